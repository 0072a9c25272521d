//! The cases of `tests/cases` on this machine's adapter.
#![cfg(not(target_arch = "wasm32"))]

mod cases;

use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Cases share a device, which belongs to one thread; a software adapter spreads their work over the processor by itself.
static GPU_THREAD: LazyLock<Sender<Job>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    // What fails is said past the capture of test output, which would give it to whichever test came first.
    panic::set_hook(Box::new(|failure| {
        let _ = writeln!(io::stderr(), "{failure}");
    }));
    thread::spawn(move || jobs.into_iter().for_each(|job| job()));
    sender
});

/// Runs a case on the thread that has the device, and fails here as it failed there.
fn run(case: impl FnOnce() + Send + 'static) {
    let (sender, outcome) = mpsc::channel();
    let job = move || {
        // Nobody waits any more if the test was given up.
        let _ = sender.send(panic::catch_unwind(AssertUnwindSafe(case)));
    };
    GPU_THREAD.send(Box::new(job)).expect("the thread lives");
    if let Err(failure) = outcome.recv().expect("an outcome") {
        panic::resume_unwind(failure);
    }
}

macro_rules! native {
    ($($module:ident :: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                run(|| pollster::block_on(cases::$module::$case()));
            }
        )*
    };
}

every_case!(native);
