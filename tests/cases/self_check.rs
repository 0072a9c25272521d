//! The self check: it passes on a sound device in every dtype, and sees one changed weight.

use gpt2_webgpu::checkpoint::{Dtype, Matrix, Target};
use gpt2_webgpu::self_check::self_check;

use super::fixtures::fixture;
use super::run::{Load, gpu, load_fixture};

pub async fn the_self_check_passes_in_every_dtype() {
    let gpu = gpu().await;
    for name in ["c60_n_inner70", "untied", "head1_vocab6"] {
        for dtype in Dtype::ALL {
            let load = Load {
                dtype: Some(dtype),
                ..Load::default()
            };
            let model = load_fixture(&gpu, fixture(name), load).await;
            let checked = self_check(&model, name).await.expect("a free model");
            assert!(checked.ok, "{name} {dtype}: {checked:?}");
            assert_eq!(checked.checks.len(), 3);
            assert!(checked.max_logit_diff.is_some_and(|most| most < 0.02));
            assert!(model.past_key_values().is_empty());
        }
    }
}

pub async fn the_self_check_sees_one_changed_weight() {
    let gpu = gpu().await;
    let model = load_fixture(&gpu, fixture("small"), Load::default()).await;
    let target = Target::Matrix {
        layer: 1,
        matrix: Matrix::CFc,
    };
    let (tensor, offset) = model.weights().locate(target, 64).expect("a matrix");
    gpu.write(tensor, offset, &0.25_f32.to_le_bytes())
        .expect("a place inside it");
    let checked = self_check(&model, "small").await.expect("a free model");
    assert!(!checked.ok);
    let wrong: Vec<_> = checked.checks.iter().filter(|check| !check.ok).collect();
    assert_eq!(wrong.len(), 1, "{checked:?}");
    assert_eq!(wrong[0].name, "weights");
    assert!(wrong[0].detail.contains("CFc"), "{}", wrong[0].detail);
}

#[cfg(feature = "test-hooks")]
pub async fn the_self_check_sees_a_kernel_that_does_nothing() {
    let gpu = gpu().await;
    let model = load_fixture(&gpu, fixture("small"), Load::default()).await;
    gpu.skip_kernel(Some("ln_fc"));
    let checked = self_check(&model, "small").await.expect("a free model");
    let reference = checked.checks.iter().find(|each| each.name == "reference");
    assert!(
        !checked.ok && reference.is_some_and(|each| !each.ok),
        "{checked:?}"
    );
    gpu.skip_kernel(None);
    let checked = self_check(&model, "small").await.expect("a free model");
    assert!(checked.ok, "{checked:?}");
}
