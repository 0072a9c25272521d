//! Values of a checkpoint, f32, f16 or bf16, to f32.

use half::f16;

/// The smallest magnitude that fp16 rounds to infinity; its largest number is 65504.
pub const F16_OVERFLOW: f32 = 65_520.0;

/// A type of values that weights may have in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// The upper 16 bits of 32-bit floats.
    Bf16,
}

impl Source {
    /// The type that a safetensors file calls `name`.
    pub fn from_name(name: &str) -> Option<Source> {
        match name {
            "F32" => Some(Source::F32),
            "F16" => Some(Source::F16),
            "BF16" => Some(Source::Bf16),
            _ => None,
        }
    }

    /// Bytes of one value.
    pub const fn value_bytes(self) -> usize {
        match self {
            Source::F32 => 4,
            Source::F16 | Source::Bf16 => 2,
        }
    }

    /// Decodes as many values as `values` holds and returns the bits of the largest magnitude.
    ///
    /// Magnitudes order like their bits, with infinity and then NaN above all numbers, so that one integer maximum finds
    /// whatever is out of range.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) -> u32 {
        match self {
            Source::F32 => decode_with(bytes, values, |b: [u8; 4]| u32::from_le_bytes(b)),
            Source::F16 => decode_with(bytes, values, |b| f16::from_le_bytes(b).to_f32().to_bits()),
            Source::Bf16 => decode_with(bytes, values, |b| u32::from(u16::from_le_bytes(b)) << 16),
        }
    }
}

fn decode_with<const N: usize>(
    bytes: &[u8],
    values: &mut [f32],
    bits: impl Fn([u8; N]) -> u32,
) -> u32 {
    let mut largest = 0;
    let (stored, _) = bytes.as_chunks::<N>();
    for (value, stored) in values.iter_mut().zip(stored) {
        let bits = bits(*stored);
        largest = largest.max(bits & 0x7fff_ffff);
        *value = f32::from_bits(bits);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_becomes_its_value() {
        for bits in 0..=u16::MAX {
            let mut value = [0.0];
            let expected = f16::from_bits(bits).to_f32();
            let largest = Source::F16.decode(&bits.to_le_bytes(), &mut value);
            assert!(value[0] == expected || (value[0].is_nan() && expected.is_nan()));
            assert_eq!(f32::from_bits(largest).is_finite(), expected.is_finite());
            let expected = half::bf16::from_bits(bits).to_f32();
            let largest = Source::Bf16.decode(&bits.to_le_bytes(), &mut value);
            assert!(value[0] == expected || (value[0].is_nan() && expected.is_nan()));
            assert_eq!(f32::from_bits(largest).is_finite(), expected.is_finite());
        }
    }

    #[test]
    fn one_bad_value_among_good_ones_shows() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let bytes: Vec<u8> = [1.0, bad, -2.0]
                .iter()
                .flat_map(|v: &f32| v.to_le_bytes())
                .collect();
            assert!(Source::F32.decode(&bytes, &mut [0.0; 3]) >= f32::INFINITY.to_bits());
        }
        let bytes: Vec<u8> = [1.0f32, -3.0, 2.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let mut values = [0.0; 3];
        assert_eq!(Source::F32.decode(&bytes, &mut values), 3.0f32.to_bits());
        assert_eq!(values, [1.0, -3.0, 2.0]);
    }

    #[test]
    fn fp16_overflows_where_it_is_said_to() {
        assert!(f16::from_f32(F16_OVERFLOW).is_infinite());
        assert_eq!(f16::from_f32(F16_OVERFLOW.next_down()), f16::MAX);
    }
}
