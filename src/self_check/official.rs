//! What others have published about OpenAI's weights and DistilGPT-2's: ids and logits, each with its source.
//!
//! The weights are recognised by the id that they were loaded by. Ids that end a text count as any other here.

use crate::checkpoint::Dtype;

/// One published result.
pub struct Published {
    /// Where.
    pub source: &'static str,
    /// The ids of the prompt.
    pub prompt: &'static [u32],
    /// What comes then.
    pub then: Then,
}

/// What was published.
#[derive(Clone, Copy)]
pub enum Then {
    /// The ids that greedy generation gives, computed in this dtype.
    Ids(Dtype, &'static [u32]),
    /// The ten largest logits `(id, logit)` after the prompt, in fp32.
    Logits(&'static [(u32, f32)]),
}

/// What is published about the model of this hub id.
pub fn of(name: &str) -> &'static [Published] {
    match name {
        "openai-community/gpt2" | "gpt2" => GPT2,
        "distilbert/distilgpt2" | "distilgpt2" => DISTILGPT2,
        _ => &[],
    }
}

const GPT2: &[Published] = &[
    Published {
        source: "huggingface/transformers test_modeling_gpt2.py test_lm_generate_gpt2",
        prompt: &[464, 3290],
        then: Then::Ids(
            Dtype::Fp32,
            &[
                373, 1043, 287, 257, 2214, 1474, 262, 16246, 286, 2688, 290, 2688, 27262, 13, 198,
                198, 464, 3290,
            ],
        ),
    },
    Published {
        source: "huggingface/transformers test_batch_generation",
        prompt: &[15496, 11, 616, 3290, 318, 257, 1310],
        then: Then::Ids(
            Dtype::Fp32,
            &[
                1643, 286, 257, 2085, 13, 314, 1101, 407, 1654, 611, 339, 338, 1016,
            ],
        ),
    },
    Published {
        source: "huggingface/transformers test_flash_attn_2_generate_padding_left",
        prompt: &[5303],
        then: Then::Ids(
            Dtype::Fp16,
            &[
                11, 508, 373, 4642, 287, 262, 1748, 286, 509, 13597, 1045, 11, 373, 257, 2888, 286,
                262, 509, 13597, 1045,
            ],
        ),
    },
    Published {
        source: "huggingface/transformers",
        prompt: &[15496, 428, 318, 257, 845, 890, 6827],
        then: Then::Ids(
            Dtype::Fp16,
            &[
                13, 314, 1101, 7926, 13, 314, 1101, 7926, 13, 314, 1101, 7926, 13, 314, 1101, 7926,
                13, 314, 1101, 7926,
            ],
        ),
    },
    Published {
        source: "Aisuko/forge, tests/data/hf_golden.json",
        prompt: &[15496, 11, 616, 3290, 318, 13779],
        then: Then::Ids(
            Dtype::Fp32,
            &[
                13, 314, 1101, 407, 1654, 611, 673, 338, 257, 26188, 393, 407, 13, 314, 1101,
            ],
        ),
    },
    Published {
        source: "poloclub/transformer-explainer",
        prompt: &[6601, 32704, 795, 30132, 2985, 284],
        then: Then::Logits(&[
            (38350, -135.913),
            (2251, -136.684),
            (766, -137.12),
            (787, -137.647),
            (3538, -137.666),
            (2952, -137.724),
            (7301, -137.784),
            (1064, -138.048),
            (1833, -138.293),
            (1382, -138.41),
        ]),
    },
    Published {
        source: "poloclub/transformer-explainer",
        prompt: &[1722, 262, 40663, 373, 13885, 262],
        then: Then::Logits(&[
            (5440, -92.864),
            (4417, -94.183),
            (4429, -94.417),
            (8824, -94.457),
            (3668, -94.469),
            (886, -94.549),
            (4074, -94.741),
            (5743, -94.878),
            (3491, -94.902),
            (27460, -94.974),
        ]),
    },
    Published {
        source: "poloclub/transformer-explainer",
        prompt: &[2202, 262, 36043, 5440, 484, 5071, 257],
        then: Then::Logits(&[
            (6283, -89.019),
            (11428, -89.261),
            (5440, -89.263),
            (1588, -89.266),
            (4858, -89.299),
            (1402, -89.435),
            (649, -89.595),
            (5909, -89.632),
            (3236, -89.853),
            (6175, -90.06),
        ]),
    },
];

const DISTILGPT2: &[Published] = &[Published {
    source: "huggingface/transformers 2020-era test_modeling_gpt2.py test_lm_generate_distilgpt2",
    prompt: &[464, 1893],
    then: Then::Ids(
        Dtype::Fp32,
        &[
            286, 262, 1578, 1829, 11, 290, 262, 1893, 286, 262, 1578, 7526, 11, 423, 587, 287, 262,
            2635,
        ],
    ),
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_is_inside_the_vocabulary_and_ranked() {
        for published in of("gpt2").iter().chain(of("distilgpt2")) {
            let ids: Vec<u32> = match published.then {
                Then::Ids(_, ids) => ids.to_vec(),
                Then::Logits(logits) => {
                    assert!(
                        logits.is_sorted_by(|a, b| a.1 >= b.1),
                        "{}",
                        published.source
                    );
                    logits.iter().map(|(id, _)| *id).collect()
                }
            };
            assert!(!ids.is_empty() && ids.iter().chain(published.prompt).all(|id| *id < 50_257));
        }
        assert!(of("someone/else").is_empty());
    }
}
