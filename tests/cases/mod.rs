//! One list of cases for every adapter: `tests/engine.rs` runs it natively, `tests/web.rs` in a browser.

pub mod agreement;
pub mod pick;
pub mod run;

#[path = "../fixtures/mod.rs"]
pub mod fixtures;

/// Calls `$run!` with every case.
#[macro_export]
macro_rules! every_case {
    ($run:ident) => {
        $run! {
            agreement::greedy_ids_and_logits_are_those_of_hugging_face,
            agreement::every_cut_of_the_kernels_gives_the_same,
            agreement::without_a_cache_the_ids_are_the_same,
            agreement::prefill_and_decode_agree_wherever_the_prompt_is_cut,
            pick::the_pick_kernel_is_its_twin_on_awkward_logits,
            pick::the_pick_kernel_and_its_twin_process_like_hugging_face,
            pick::draws_follow_the_probabilities,
            pick::a_seed_repeats_its_draws_and_another_does_not,
        }
    };
}
