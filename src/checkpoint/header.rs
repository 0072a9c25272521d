//! The header of a safetensors file: 8 bytes of length (little-endian), then JSON that says where each tensor lies.
//!
//! Offsets are 64-bit on every machine: a file may be larger than what a 32-bit WebAssembly memory can address.
//! Format: <https://github.com/huggingface/safetensors#format>.

use std::collections::HashSet;
use std::fmt;

use safetensors::Dtype;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::quoted;
use crate::error::{Error, Result};

/// The longest header that is read. That of GPT-2 XL has 70 KB.
pub const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Bytes before the JSON.
pub const LENGTH_BYTES: usize = 8;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as the file has it.
    pub name: String,
    /// The type of its values, as the file names it ("F32").
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where its bytes begin, counted from the end of the header.
    pub begin: u64,
    /// Where they end.
    pub end: u64,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors in the order of their bytes, which follow each other without gaps.
    pub entries: Vec<Entry>,
    /// Bytes of all tensors together.
    pub data_bytes: u64,
}

impl Header {
    /// Checks the length that a file `name` of `file_bytes` bytes states for its header.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] if it is more than the file has.
    pub fn check_length(name: &str, length: u64, file_bytes: Option<u64>) -> Result<()> {
        match file_bytes {
            Some(bytes) if length > bytes.saturating_sub(LENGTH_BYTES as u64) => Err(bad(
                name,
                format!(
                    "states a header of {length} bytes, but the whole file has {bytes}; it is cut short or damaged. Download it again"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Reads the JSON of a header.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for broken JSON, tensors that overlap, leave gaps or have another size than their shape
    /// says, and a file whose size (where known) is not what the header describes.
    pub fn parse(name: &str, json: &[u8], file_bytes: Option<u64>) -> Result<Header> {
        let Fields(fields) = serde_json::from_slice(json).map_err(|error| {
            bad(
                name,
                format!("has a broken header ({error}); download it again"),
            )
        })?;
        let mut entries = Vec::with_capacity(fields.len());
        for (
            tensor,
            Field {
                dtype,
                shape,
                data_offsets: [begin, end],
            },
        ) in fields
        {
            entries.push(Entry {
                name: tensor,
                dtype,
                shape,
                begin,
                end,
            });
        }
        entries.sort_by(|a, b| (a.begin, a.end, &a.name).cmp(&(b.begin, b.end, &b.name)));
        let data_bytes = check_offsets(name, &entries)?;
        for entry in &entries {
            entry.check_size(name)?;
        }
        if let Some(found) = file_bytes {
            let wanted = (LENGTH_BYTES + json.len()) as u64 + data_bytes;
            check_file_size(name, wanted, found)?;
        }
        Ok(Header {
            entries,
            data_bytes,
        })
    }
}

impl Entry {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }

    fn check_size(&self, name: &str) -> Result<()> {
        // A type that is not known here can still lie between the tensors that are wanted.
        let Ok(dtype) = Dtype::deserialize(
            serde::de::value::StrDeserializer::<serde_json::Error>::new(&self.dtype),
        ) else {
            return Ok(());
        };
        let bits = self
            .shape
            .iter()
            .try_fold(dtype.bitsize() as u64, |bits, n| bits.checked_mul(*n));
        match bits {
            Some(bits) if bits.is_multiple_of(8) && bits / 8 == self.bytes() => Ok(()),
            _ => Err(bad(
                name,
                format!(
                    "gives tensor {} {} bytes, which is not what {} values of shape {:?} need; it is damaged. Download it again",
                    quoted(&self.name),
                    self.bytes(),
                    self.dtype,
                    self.shape
                ),
            )),
        }
    }
}

/// Checks that sorted tensors follow each other from 0 on, and returns where the last one ends.
fn check_offsets(name: &str, entries: &[Entry]) -> Result<u64> {
    let mut end = 0;
    for entry in entries {
        let problem = if entry.end < entry.begin {
            "ends before it begins".into()
        } else if entry.begin < end {
            format!("overlaps the tensor before it, which ends at byte {end}")
        } else if entry.begin > end {
            format!("leaves a gap after byte {end}")
        } else {
            end = entry.end;
            continue;
        };
        return Err(bad(
            name,
            format!(
                "puts tensor {} at bytes {}..{}, which {problem}; it is damaged. Download it again",
                quoted(&entry.name),
                entry.begin,
                entry.end
            ),
        ));
    }
    // The size of the whole file has to be a number as well.
    if end > u64::MAX - 2 * MAX_HEADER_BYTES {
        return Err(bad(
            name,
            format!(
                "describes {end} bytes of weights, which no file has; it is damaged. Download it again"
            ),
        ));
    }
    Ok(end)
}

/// Compares the size of a file with what its header describes.
///
/// # Errors
/// [`Error::BadCheckpoint`] with both numbers.
pub fn check_file_size(name: &str, wanted: u64, found: u64) -> Result<()> {
    match found {
        _ if found < wanted => Err(bad(
            name,
            format!(
                "is cut short: it has {found} bytes, and its header describes {wanted}. Download it again"
            ),
        )),
        _ if found > wanted => Err(bad(
            name,
            format!(
                "has {found} bytes, {} more than the {wanted} that its header describes; it is damaged. Download it again",
                found - wanted
            ),
        )),
        _ => Ok(()),
    }
}

/// A [`Error::BadCheckpoint`] about one file.
pub fn bad(name: &str, what: impl fmt::Display) -> Error {
    Error::BadCheckpoint(format!("{name} {what}."))
}

#[derive(Deserialize)]
struct Field {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The tensors of the JSON object in its own order; a name that comes twice is an error, `__metadata__` is skipped.
struct Fields(Vec<(String, Field)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields, A::Error> {
        let mut names = HashSet::new();
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(serde::de::Error::custom(format!(
                    "{} comes twice",
                    quoted(&name)
                )));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                fields.push((name, map.next_value()?));
            }
        }
        Ok(Fields(fields))
    }
}
