//! One list of cases for every adapter: `tests/engine.rs` runs it natively, `tests/web.rs` in a browser.

pub mod agreement;
pub mod cache;
pub mod counters;
pub mod dtypes;
#[cfg(feature = "test-hooks")]
pub mod faults;
pub mod kernels;
#[cfg(feature = "test-hooks")]
pub mod last_rows;
pub mod made;
pub mod pick;
pub mod refused;
pub mod run;
pub mod self_check;
pub mod steps;
pub mod stops;

#[path = "../fixtures/mod.rs"]
pub mod fixtures;

/// Calls `$run!` with every case; those that put faults in need the feature `test-hooks`.
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
            self_check::the_self_check_passes_in_every_dtype,
            self_check::the_self_check_sees_one_changed_weight,
            kernels::embed_is_its_twin,
            kernels::layer_norm_is_its_twin,
            kernels::queries_keys_and_values_are_those_of_the_twin,
            kernels::attention_is_its_twin,
            kernels::the_mlp_kernels_are_their_twins,
            kernels::every_activation_is_finite_and_its_twin,
            kernels::the_head_is_its_twin,
            dtypes::every_dtype_agrees_with_the_reference_on_rounded_weights,
            cache::prefill_and_decode_agree_at_every_length,
            cache::a_long_prompt_on_twelve_heads_is_the_twins,
            cache::a_second_prompt_is_not_influenced_by_the_first,
            cache::reuse_starts_behind_what_prompts_share,
            cache::keys_values_and_attention_are_the_references,
            cache::attention_after_a_stop_is_that_of_the_last_delivered_id,
            steps::at_one_in_flight_nothing_is_submitted_before_it_is_asked_for,
            steps::the_number_in_flight_changes_nothing_but_the_number,
            steps::after_a_stop_the_next_run_is_as_on_a_fresh_model,
            steps::a_long_prefill_is_interrupted_between_its_chunks,
            steps::a_second_generation_is_refused_while_one_runs,
            steps::disposing_ends_a_run_and_frees_everything,
            stops::the_context_ends_a_run,
            stops::models_of_few_positions_run,
            stops::end_ids_and_stop_strings_end_a_run,
            stops::what_a_run_cannot_begin_with_is_refused,
            stops::a_tokenizer_larger_than_the_model_is_refused_and_a_smaller_one_masks,
            refused::a_load_that_fails_leaves_nothing_behind,
            refused::odd_but_valid_files_load,
            counters::a_decode_step_is_one_small_submit,
            counters::a_prefill_is_one_submit_a_chunk,
            counters::memory_is_flat_over_many_generations,
        }
        #[cfg(feature = "test-hooks")]
        $run! {
            last_rows::the_last_row_of_every_matrix_is_read,
            faults::steps_are_submitted_while_every_map_is_delayed,
            faults::a_stop_does_not_wait_for_the_gpu,
            faults::the_size_of_chunks_changes_nothing,
            faults::a_lost_device_is_one_clear_error,
            faults::without_optional_features_everything_works,
            faults::what_is_corrupt_shows_in_the_logits,
            self_check::the_self_check_sees_a_kernel_that_does_nothing,
        }
    };
}
