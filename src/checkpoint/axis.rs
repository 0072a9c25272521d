//! One axis of a tensor: how its values are padded in GPU memory.

use std::ops::Range;

/// An axis made of `count` pieces of `size` values, each padded with zeros to `padded` values in GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of pieces: 1, or the heads.
    pub count: usize,
    /// Values of a piece in the checkpoint.
    pub size: usize,
    /// Values of a piece in GPU memory.
    pub padded: usize,
}

impl Axis {
    /// `count` pieces of `size` values, each padded to a multiple of 4.
    pub fn pieces(count: usize, size: usize) -> Axis {
        Axis {
            count,
            size,
            padded: pad4(size),
        }
    }

    /// `size` values, not padded.
    pub fn unpadded(size: usize) -> Axis {
        Axis {
            count: 1,
            size,
            padded: size,
        }
    }

    /// Values in the checkpoint.
    pub fn source_len(self) -> usize {
        self.count * self.size
    }

    /// Values in GPU memory.
    pub fn padded_len(self) -> usize {
        self.count * self.padded
    }

    /// Whether GPU memory holds more values than the checkpoint.
    pub fn is_padded(self) -> bool {
        self.padded > self.size
    }

    /// Where value `i` of the checkpoint lies in GPU memory.
    pub fn padded_index(self, i: usize) -> usize {
        i / self.size * self.padded + i % self.size
    }

    /// The values of the checkpoint that lie at `padded` in GPU memory.
    pub fn source_range(self, padded: Range<usize>) -> Range<usize> {
        let before = |i: usize| {
            let whole = (i / self.padded).min(self.count);
            whole * self.size
                + (i - whole * self.padded)
                    .min(self.size)
                    .min((self.count - whole) * self.size)
        };
        before(padded.start)..before(padded.end)
    }
}

/// `n` rounded up to a multiple of 4.
pub const fn pad4(n: usize) -> usize {
    n.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_padded_one_by_one() {
        let axis = Axis::pieces(9, 15);
        assert_eq!((axis.source_len(), axis.padded_len()), (135, 144));
        // Value 5 of head 1 of the keys, with three heads.
        assert_eq!(axis.padded_index(45 + 15 + 5), 48 + 16 + 5);
    }

    #[test]
    fn ranges_agree_with_indices() {
        for axis in [
            Axis::pieces(3, 15),
            Axis::pieces(1, 50),
            Axis::pieces(5, 64),
            Axis::unpadded(7),
        ] {
            let end = axis.padded_len() + 9;
            for from in 0..end {
                for to in from..end {
                    let inside = (0..axis.source_len())
                        .filter(|i| (from..to).contains(&axis.padded_index(*i)))
                        .count();
                    let range = axis.source_range(from..to);
                    assert_eq!(range.len(), inside, "{axis:?} {from}..{to}");
                    if inside > 0 {
                        assert!((from..to).contains(&axis.padded_index(range.start)));
                    }
                }
            }
        }
    }
}
