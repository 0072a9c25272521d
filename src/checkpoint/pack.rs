//! A block of a matrix between plain f32 values and the words that kernels read; see [`super::layout`] for the words.
//!
//! Words are little-endian in GPU memory, as they are on every machine with WebGPU.

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
    words: Vec<u32>,
    scales: Vec<f32>,
    factors: Vec<f32>,
}

impl Words {
    fn pack<'a>(&'a mut self, dtype: Dtype, values: &'a [f32], n: usize) -> Packed<'a> {
        self.scales.clear();
        self.words.resize(values.len() / dtype.kr(), 0);
        let data = match dtype {
            Dtype::Fp32 => bytemuck::cast_slice(values),
            Dtype::Fp16 => {
                self.pack_halves(values, n);
                bytemuck::cast_slice(&self.words)
            }
            Dtype::Q8 => {
                self.pack_bytes(values, n);
                bytemuck::cast_slice(&self.words)
            }
        };
        Packed {
            data,
            scales: &self.scales,
        }
    }

    fn pack_halves(&mut self, values: &[f32], n: usize) {
        let groups = values.chunks_exact(2 * n);
        for (group, vec4s) in groups.zip(self.words.chunks_exact_mut(n)) {
            let (a, b) = group.split_at(n);
            for ((a, b), vec4) in quads(a).zip(quads(b)).zip(vec4s.as_chunks_mut().0) {
                *vec4 = [
                    two_halves(a[0], a[1]),
                    two_halves(a[2], a[3]),
                    two_halves(b[0], b[1]),
                    two_halves(b[2], b[3]),
                ];
            }
        }
    }

    fn pack_bytes(&mut self, values: &[f32], n: usize) {
        let blocks = values.chunks(SCALE_ROWS * n);
        for (block, words) in blocks.zip(self.words.chunks_mut(SCALE_ROWS / 4 * n)) {
            self.factors.clear();
            self.factors.resize(n, 0.0);
            for row in block.chunks_exact(n) {
                for (largest, value) in self.factors.iter_mut().zip(row) {
                    // Not `max`, which costs more because it looks for NaN; there is none here.
                    let magnitude = value.abs();
                    *largest = if magnitude > *largest {
                        magnitude
                    } else {
                        *largest
                    };
                }
            }
            for largest in &mut self.factors {
                let used = *largest > SMALLEST_Q8;
                self.scales.push(if used { *largest / 127.0 } else { 0.0 });
                *largest = if used { 127.0 / *largest } else { 0.0 };
            }
            for (group, vec4s) in block.chunks_exact(4 * n).zip(words.chunks_exact_mut(n)) {
                let (ab, cd) = group.split_at(2 * n);
                let ((a, b), (c, d)) = (ab.split_at(n), cd.split_at(n));
                let rows = quads(a).zip(quads(b)).zip(quads(c).zip(quads(d)));
                for ((((a, b), (c, d)), factors), vec4) in
                    rows.zip(quads(&self.factors)).zip(vec4s.as_chunks_mut().0)
                {
                    *vec4 = [a, b, c, d].map(|row| four_bytes(row, factors));
                }
            }
        }
    }
}

fn quads(row: &[f32]) -> impl Iterator<Item = &[f32; 4]> {
    row.as_chunks().0.iter()
}

/// Two values as one word for `unpack2x16float`.
fn two_halves(low: f32, high: f32) -> u32 {
    to_half(low) | to_half(high) << 16
}

/// The bits of the nearest 16-bit float, ties to even, of a magnitude below [`F16_OVERFLOW`](super::decode::F16_OVERFLOW).
///
/// Without the cases that cannot occur here, this is several times faster in WebAssembly than a general conversion.
fn to_half(value: f32) -> u32 {
    let bits = value.to_bits();
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    // A 16-bit float has 13 bits less of fraction, and an exponent that counts from -15 and not from -127.
    let to_even = 0xfff + (magnitude >> 13 & 1);
    let normal = ((magnitude + to_even) >> 13).wrapping_sub((127 - 15) << 10);
    // Below 2^-14 they count in steps of 2^-24, as f32 does beside 0.5: the addition rounds.
    let small = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    sign | if magnitude < (127 - 14) << 23 {
        small
    } else {
        normal
    }
}

/// Four values times their factors, each rounded to the nearest integer in -127..=127, as the bytes of one word.
fn four_bytes(values: &[f32; 4], factors: &[f32; 4]) -> u32 {
    // Beside 1.5 * 2^23 an f32 has no bits left for a fraction, and its lowest bits count ones: one addition rounds (ties
    // to even), on every machine alike.
    let byte = |i: usize| (values[i] * factors[i] + 12_582_912.0).to_bits() & 0xff;
    byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
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
    fn halves_are_rounded_as_the_half_crate_rounds() {
        let mut tried = 0;
        // Every pattern of the bits that matter for rounding, beside every 16-bit float.
        for upper in 0..=u16::MAX {
            for lower in [
                0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001, 0xffff,
            ] {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                if value.abs() < super::super::decode::F16_OVERFLOW {
                    assert_eq!(
                        to_half(value),
                        u32::from(half::f16::from_f32(value).to_bits()),
                        "{value}"
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 300_000, "{tried}");
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
