//! Faults that the tests put in on purpose: only in builds with the cargo feature `test-hooks`, never in the published site.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use crate::checkpoint::Target;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kv_cache::KeyOrValue;
use crate::model::Model;

thread_local! {
    static FEATURES_HIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Devices that are requested from now on behave as if the adapter had no optional feature.
pub fn hide_features(hide: bool) {
    FEATURES_HIDDEN.set(hide);
}

pub(crate) fn features_hidden() -> bool {
    FEATURES_HIDDEN.get()
}

/// What a device was told to do wrong.
#[derive(Default)]
pub(crate) struct Hooks {
    maps_held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    skipped: Cell<Option<&'static str>>,
    chunk_rows: Cell<Option<usize>>,
}

impl Hooks {
    pub(crate) fn holds_maps(&self) -> bool {
        self.maps_held.get()
    }

    /// Wakes somebody who waits for a map when maps are no longer held.
    pub(crate) fn wait(&self, waker: &Waker) {
        if self.holds_maps() {
            self.waiting.borrow_mut().push(waker.clone());
        }
    }

    pub(crate) fn skips(&self, kernel: &str) -> bool {
        self.skipped.get() == Some(kernel)
    }

    pub(crate) fn chunk_rows(&self) -> Option<usize> {
        self.chunk_rows.get()
    }
}

impl Gpu {
    /// Delays the completion of every map until it is called with `false`.
    pub fn hold_maps(&self, hold: bool) {
        self.hooks.maps_held.set(hold);
        if !hold {
            self.hooks.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Loses the device, as after a driver's reset.
    pub fn lose(&self) {
        self.device.destroy();
    }

    /// Leaves out every dispatch of one kernel, so that its output is wrong; `None` puts it back.
    pub fn skip_kernel(&self, name: Option<&'static str>) {
        self.hooks.skipped.set(name);
    }
}

impl Model {
    /// Prefills in chunks of so many rows whatever was measured; `None` measures again.
    pub fn fix_chunk_rows(&self, rows: Option<usize>) {
        self.gpu().hooks.chunk_rows.set(rows);
    }

    /// Overwrites the 4 bytes at `offset` of a weight buffer.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::error::Error::Internal) if there is no such buffer or it is shorter.
    pub fn change_weight(&self, target: Target, offset: u64, bytes: [u8; 4]) -> Result<()> {
        let (tensor, offset) = self.weights().locate(target, offset)?;
        self.gpu().write(tensor, offset, &bytes)
    }

    /// Overwrites the first 4 bytes of the key at `position` of a layer: one value, or two of a half-size cache.
    ///
    /// # Errors
    /// [`Error::BadOption`](crate::error::Error::BadOption) if nothing is cached there.
    pub fn change_key(&self, layer: usize, position: usize, bytes: [u8; 4]) -> Result<()> {
        let cache = self.past_key_values();
        let (offset, _) = cache.row(layer, KeyOrValue::Key, position)?;
        self.gpu().write(cache.layer(layer), offset, &bytes)
    }
}
