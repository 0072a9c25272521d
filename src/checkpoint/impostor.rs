//! Files that are served or saved under a checkpoint's name but are something else, told by their first bytes.

use super::header::bad;
use crate::error::Error;

/// First bytes that are enough to tell all of them.
pub const PREFIX_BYTES: usize = 64;

/// The error for a file that does not begin like a safetensors file. `start` is its first [`PREFIX_BYTES`] bytes, or all
/// of a shorter file.
pub fn explain(name: &str, start: &[u8]) -> Error {
    let text = start
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(start)
        .trim_ascii_start();
    let what = if start.starts_with(b"version https://git-lfs.github.com/spec") {
        "is a Git LFS pointer, not the weights themselves; run `git lfs pull` in its repository, or download the file from the Hub"
    } else if text.starts_with(b"<") {
        return Error::Http(format!(
            "{name} is a web page, not a safetensors file; check the address: it has to give the file itself."
        ));
    } else if start.starts_with(b"PK\x03\x04") {
        "is a zip archive, probably a pytorch_model.bin; this page reads model.safetensors only. Save the model once more with save_pretrained(..., safe_serialization=True)"
    } else if matches!(start, [0x80, 2..=5, ..]) {
        "is a Python pickle, probably a pytorch_model.bin; this page reads model.safetensors only. Save the model once more with save_pretrained(..., safe_serialization=True)"
    } else if start.starts_with(b"\x1f\x8b") {
        "is compressed with gzip; unpack it first"
    } else if start.starts_with(b"\x89HDF") {
        "is an HDF5 file (tf_model.h5); this page reads model.safetensors only"
    } else if start.starts_with(b"GGUF") {
        "is a GGUF file; this page reads model.safetensors only"
    } else if text.starts_with(b"{") || text.starts_with(b"[") {
        "is JSON text, not a safetensors file; look whether another file of the model has its name"
    } else {
        return match start.split_first_chunk() {
            Some((length, [_, ..])) => bad(
                name,
                format!(
                    "does not begin like a safetensors file (its header would have {} bytes); it is damaged or of another kind. Download it again",
                    u64::from_le_bytes(*length)
                ),
            ),
            _ => bad(
                name,
                format!(
                    "is cut short: it has {} bytes, too few for a safetensors file. Download it again",
                    start.len()
                ),
            ),
        };
    };
    bad(name, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_named() {
        let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n";
        for (start, code, words) in [
            (&lfs[..], "bad-checkpoint", "Git LFS"),
            (b"<!DOCTYPE html>", "http", "web page"),
            (b"\xef\xbb\xbf\r\n <html>", "http", "web page"),
            (
                b"PK\x03\x04\0\0\x08\x08",
                "bad-checkpoint",
                "pytorch_model.bin",
            ),
            (b"\x80\x02\x8a\x0a", "bad-checkpoint", "pickle"),
            (b"\x1f\x8b\x08\0", "bad-checkpoint", "gzip"),
            (b"\x89HDF\r\n", "bad-checkpoint", "HDF5"),
            (b"GGUF\x03\0\0\0", "bad-checkpoint", "GGUF"),
            (b"{\"error\":", "bad-checkpoint", "JSON"),
            (b"", "bad-checkpoint", "has 0 bytes"),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\x7f{\"a\"",
                "bad-checkpoint",
                "9223372036854775807",
            ),
        ] {
            let error = explain("a.safetensors", start);
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.to_string().starts_with("a.safetensors "), "{error}");
        }
    }
}
