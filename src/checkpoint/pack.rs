//! A block of a matrix between plain f32 values and the words that kernels read; see [`super::layout`] for the words.
//!
//! Words are little-endian in GPU memory, as they are on every machine with WebGPU.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::dtype::{Dtype, SCALE_ROWS};

/// Blocks whose largest value is below this are stored as zeros in q8: a scale for them would not be a normal number.
const SMALLEST_Q8: f32 = 1e-30;

/// A packed block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packed<'a> {
    /// The values.
    pub data: &'a [u8],
    /// The q8 scales, `[ceil(K / 64), N]`; empty for the other dtypes.
    pub scales: &'a [f32],
}

/// Packs blocks, reusing its memory.
#[derive(Debug, Default)]
pub struct Packer {
    transposed: Vec<f32>,
    words: Words,
}

impl Packer {
    /// Packs row-major `values` `[K, n]`; `n` and K are multiples of 4.
    pub fn pack<'a>(&'a mut self, dtype: Dtype, values: &'a [f32], n: usize) -> Packed<'a> {
        self.words.pack(dtype, values, n)
    }

    /// Packs the transpose `[K, rows]` of row-major `values` `[rows, K]`.
    pub fn pack_transposed(&mut self, dtype: Dtype, values: &[f32], rows: usize) -> Packed<'_> {
        self.transposed.resize(values.len(), 0.0);
        transpose(values, rows, &mut self.transposed);
        self.words.pack(dtype, &self.transposed, rows)
    }
}

#[derive(Debug, Default)]
struct Words {
    row: Vec<u16>,
    halves: Vec<u16>,
    bytes: Vec<i8>,
    scales: Vec<f32>,
    factors: Vec<f32>,
}

impl Words {
    fn pack<'a>(&'a mut self, dtype: Dtype, values: &'a [f32], n: usize) -> Packed<'a> {
        match dtype {
            Dtype::Fp32 => Packed {
                data: bytemuck::cast_slice(values),
                scales: &[],
            },
            Dtype::Fp16 => {
                self.pack_halves(values, n);
                Packed {
                    data: bytemuck::cast_slice(&self.halves),
                    scales: &[],
                }
            }
            Dtype::Q8 => {
                self.pack_bytes(values, n);
                Packed {
                    data: bytemuck::cast_slice(&self.bytes),
                    scales: &self.scales,
                }
            }
        }
    }

    fn pack_halves(&mut self, values: &[f32], n: usize) {
        const KR: usize = Dtype::Fp16.kr();
        self.row.resize(n, 0);
        self.halves.resize(values.len(), 0);
        let groups = values.chunks_exact(KR * n);
        for (group, words) in groups.zip(self.halves.chunks_exact_mut(KR * n)) {
            for (r, values) in group.chunks_exact(n).enumerate() {
                self.row
                    .reinterpret_cast_mut::<half::f16>()
                    .convert_from_f32_slice(values);
                for (quad, vec4) in self.row.chunks_exact(4).zip(words.chunks_exact_mut(4 * KR)) {
                    vec4[4 * r..4 * r + 4].copy_from_slice(quad);
                }
            }
        }
    }

    fn pack_bytes(&mut self, values: &[f32], n: usize) {
        const KR: usize = Dtype::Q8.kr();
        self.bytes.resize(values.len(), 0);
        self.scales.clear();
        let blocks = values.chunks(SCALE_ROWS * n);
        for (block, bytes) in blocks.zip(self.bytes.chunks_mut(SCALE_ROWS * n)) {
            self.factors.clear();
            self.factors.resize(n, 0.0);
            for row in block.chunks_exact(n) {
                for (largest, value) in self.factors.iter_mut().zip(row) {
                    *largest = largest.max(value.abs());
                }
            }
            for largest in &mut self.factors {
                let used = *largest > SMALLEST_Q8;
                self.scales.push(if used { *largest / 127.0 } else { 0.0 });
                *largest = if used { 127.0 / *largest } else { 0.0 };
            }
            for (group, words) in block
                .chunks_exact(KR * n)
                .zip(bytes.chunks_exact_mut(KR * n))
            {
                for (r, values) in group.chunks_exact(n).enumerate() {
                    let quads = values.chunks_exact(4).zip(self.factors.chunks_exact(4));
                    for ((quad, factors), vec4) in quads.zip(words.chunks_exact_mut(4 * KR)) {
                        for i in 0..4 {
                            vec4[4 * r + i] = round_to_i8(quad[i] * factors[i]);
                        }
                    }
                }
            }
        }
    }
}

/// The nearest integer of a value in -127..=127, ties to even.
fn round_to_i8(value: f32) -> i8 {
    // Beside 1.5 * 2^23 an f32 has no bits left for a fraction, and its lowest bits count ones: one addition rounds, on
    // every machine alike.
    (value + 12_582_912.0).to_bits() as i8
}

/// The row-major values `[K, n]` that a packed block stands for; `scales` is empty unless q8.
pub fn unpack(dtype: Dtype, data: &[u8], scales: &[f32], n: usize) -> Vec<f32> {
    let kr = dtype.kr();
    let mut values = vec![0.0; data.len() / dtype.value_bytes()];
    for (group, words) in values
        .chunks_exact_mut(kr * n)
        .zip(data.chunks_exact(4 * n))
    {
        for (r, row) in group.chunks_exact_mut(n).enumerate() {
            for (quad, vec4) in row.chunks_exact_mut(4).zip(words.chunks_exact(16)) {
                let stored = &vec4[16 / kr * r..][..16 / kr];
                for (value, stored) in quad.iter_mut().zip(stored.chunks_exact(4 / kr)) {
                    *value = match *stored {
                        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
                        [a, b] => half::f16::from_le_bytes([a, b]).to_f32(),
                        _ => f32::from(stored[0] as i8),
                    };
                }
            }
        }
    }
    if dtype == Dtype::Q8 {
        for (block, scales) in values
            .chunks_mut(SCALE_ROWS * n)
            .zip(scales.chunks_exact(n))
        {
            for row in block.chunks_exact_mut(n) {
                row.iter_mut()
                    .zip(scales)
                    .for_each(|(value, scale)| *value *= scale);
            }
        }
    }
    values
}

/// The transpose `[K, rows]` of row-major `values` `[rows, K]`.
pub fn transpose(values: &[f32], rows: usize, transposed: &mut [f32]) {
    /// Side of the squares that stay in the cache.
    const SIDE: usize = 16;
    let columns = values.len() / rows;
    for top in (0..rows).step_by(SIDE) {
        let height = SIDE.min(rows - top);
        for left in (0..columns).step_by(SIDE) {
            for column in left..columns.min(left + SIDE) {
                let out = &mut transposed[column * rows + top..][..height];
                for (row, out) in out.iter_mut().enumerate() {
                    *out = values[(top + row) * columns + column];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(dtype: Dtype, values: &[f32], n: usize) -> (Vec<u8>, Vec<f32>) {
        let mut packer = Packer::default();
        let packed = packer.pack(dtype, values, n);
        (packed.data.to_vec(), packed.scales.to_vec())
    }

    /// Value (k, n) is 10 k + n: 4 rows of 8 columns.
    fn counted() -> Vec<f32> {
        (0..32).map(|i| (i / 8 * 10 + i % 8) as f32).collect()
    }

    #[test]
    fn fp32_is_row_major() {
        let (data, scales) = pack(Dtype::Fp32, &counted(), 8);
        assert_eq!(
            data,
            counted()
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        );
        assert!(scales.is_empty());
    }

    #[test]
    fn fp16_words_hold_two_rows() {
        let (data, _) = pack(Dtype::Fp16, &counted(), 8);
        // vec4 index (k / 2) * (N / 4) + n / 4 = (2 / 2) * 2 + 1 for rows 2 and 3, columns 4..8.
        let vec4: Vec<f32> = data[3 * 16..4 * 16]
            .chunks_exact(2)
            .map(|half| half::f16::from_le_bytes([half[0], half[1]]).to_f32())
            .collect();
        assert_eq!(vec4, [24.0, 25.0, 26.0, 27.0, 34.0, 35.0, 36.0, 37.0]);
    }

    #[test]
    fn q8_words_hold_one_row_each() {
        let (data, scales) = pack(Dtype::Q8, &counted(), 8);
        // Column 5 holds 5, 15, 25, 35, its scale is 35 / 127; it is byte 1 of each word of vec4 1.
        assert_eq!(scales.len(), 8);
        assert_eq!(scales[5], 35.0 / 127.0);
        let column: Vec<i8> = (0..4).map(|k| data[16 + 4 * k + 1] as i8).collect();
        assert_eq!(column, [18, 54, 91, 127]);
    }

    #[test]
    fn q8_scales_change_after_64_rows() {
        let mut values = vec![1.0; 68 * 4];
        values[64 * 4..].fill(-2.0);
        let (data, scales) = pack(Dtype::Q8, &values, 4);
        assert_eq!(scales, [[1.0 / 127.0; 4], [2.0 / 127.0; 4]].concat());
        assert_eq!(unpack(Dtype::Q8, &data, &scales, 4), values);
    }

    #[test]
    fn q8_keeps_zeros_and_tiny_values_finite() {
        for value in [0.0, 1e-31, f32::MIN_POSITIVE / 2.0] {
            let (data, scales) = pack(Dtype::Q8, &[value; 16], 4);
            assert_eq!(unpack(Dtype::Q8, &data, &scales, 4), [0.0; 16]);
        }
        let (data, scales) = pack(Dtype::Q8, &[3e38; 16], 4);
        assert!(
            unpack(Dtype::Q8, &data, &scales, 4)
                .iter()
                .all(|v| v.is_finite() && *v > 2.9e38)
        );
    }

    proptest! {
        #[test]
        fn unpacking_gives_back_what_is_stored(
            (n, values) in (1usize..20, 1usize..40).prop_flat_map(|(n, k)| {
                (Just(4 * n), prop::collection::vec(-4.0f32..4.0, 16 * n * k))
            }),
        ) {
            for dtype in Dtype::ALL {
                let (data, scales) = pack(dtype, &values, n);
                let back = unpack(dtype, &data, &scales, n);
                for (i, (value, back)) in values.iter().zip(&back).enumerate() {
                    let allowed = match dtype {
                        Dtype::Fp32 => 0.0,
                        Dtype::Fp16 => value.abs() / 2048.0 + 1e-7,
                        Dtype::Q8 => scales[i / n / 64 * n + i % n] * 0.5001,
                    };
                    prop_assert!((value - back).abs() <= allowed, "{dtype} {i}: {value} became {back}");
                }
                // What is stored is stored again unchanged.
                let (again, _) = pack(dtype, &back, n);
                prop_assert_eq!(&again, &data);
            }
        }

        #[test]
        fn transposing_twice_changes_nothing(rows in 1usize..40, columns in 1usize..40) {
            let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let (mut there, mut back) = (values.clone(), values.clone());
            transpose(&values, rows, &mut there);
            prop_assert_eq!(there[(columns - 1) * rows], (columns - 1) as f32);
            transpose(&there, columns, &mut back);
            prop_assert_eq!(back, values);
        }
    }
}
