//! How weights are stored: fp32, fp16 or q8.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result};

/// Rows of the in axis that share one q8 scale per column.
pub const SCALE_ROWS: usize = 64;

/// How the matrices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    Fp32,
    /// 16-bit floats.
    Fp16,
    /// 8-bit integers with a scale per 64 values.
    Q8,
}

impl Dtype {
    /// Every dtype, largest first.
    pub const ALL: [Dtype; 3] = [Dtype::Fp32, Dtype::Fp16, Dtype::Q8];

    /// The largest checkpoint that is worth its full precision by default, in bytes.
    pub const AUTO_FP32_BYTES: u64 = 100_000_000;

    /// What `auto` stands for with a checkpoint of this size.
    pub const fn auto(checkpoint_bytes: u64) -> Dtype {
        if checkpoint_bytes < Self::AUTO_FP32_BYTES {
            Dtype::Fp32
        } else {
            Dtype::Fp16
        }
    }

    /// The next smaller one.
    pub const fn smaller(self) -> Option<Dtype> {
        match self {
            Dtype::Fp32 => Some(Dtype::Fp16),
            Dtype::Fp16 => Some(Dtype::Q8),
            Dtype::Q8 => None,
        }
    }

    /// KR: rows of the in axis in one `vec4<u32>`.
    pub const fn kr(self) -> usize {
        match self {
            Dtype::Fp32 => 1,
            Dtype::Fp16 => 2,
            Dtype::Q8 => 4,
        }
    }

    /// Bytes of one value in a matrix, q8 scales not counted.
    pub const fn value_bytes(self) -> usize {
        4 / self.kr()
    }

    /// The name of this dtype in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Fp32 => "fp32",
            Dtype::Fp16 => "fp16",
            Dtype::Q8 => "q8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Dtype> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| {
                Error::BadOption(format!(
                    "dtype {name:?} is unknown; choose fp32, fp16 or q8."
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_by_name_and_size() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert_eq!(Dtype::auto(99_999_999), Dtype::Fp32);
        assert_eq!(Dtype::auto(100_000_000), Dtype::Fp16);
        assert_eq!(Dtype::Fp32.smaller(), Some(Dtype::Fp16));
        assert_eq!(Dtype::Q8.smaller(), None);
        assert_eq!("int4".parse::<Dtype>().unwrap_err().code(), "bad-option");
    }
}
