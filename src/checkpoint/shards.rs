//! `model.safetensors.index.json`: the files that a large checkpoint is split into.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::config::quoted;
use crate::error::{Error, Result};

/// The files of a sharded checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    files: Vec<String>,
}

#[derive(Deserialize)]
struct Json {
    weight_map: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads the text of an index.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] for broken JSON, an index without files, and a file that is not a plain `.safetensors`
    /// name: an index comes from anywhere, and must not reach outside its folder.
    pub fn from_json(text: &str) -> Result<ShardIndex> {
        if text
            .trim_start_matches('\u{feff}')
            .trim_start()
            .starts_with('<')
        {
            return Err(Error::Http(
                "model.safetensors.index.json is a web page, not JSON; check the address: it has to give the file itself.".into(),
            ));
        }
        if text.starts_with("version https://git-lfs") {
            return Err(bad(
                "is a Git LFS pointer, not the file itself; run `git lfs pull` in its repository",
            ));
        }
        let Json { weight_map } = serde_json::from_str(text)
            .map_err(|error| bad(&format!("is broken ({error}); download it again")))?;
        let files: BTreeSet<String> = weight_map.into_values().collect();
        if files.is_empty() {
            return Err(bad("names no files; download it again"));
        }
        if let Some(file) = files.iter().find(|file| !is_plain(file)) {
            return Err(bad(&format!(
                "names the file {}; only names of .safetensors files in the same folder are allowed",
                quoted(file)
            )));
        }
        Ok(ShardIndex {
            files: files.into_iter().collect(),
        })
    }

    /// The names of the files, each once, in alphabetical order.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Checks that all files are there.
    ///
    /// # Errors
    /// [`Error::BadCheckpoint`] naming the files for which `has` is false.
    pub fn check(&self, has: impl Fn(&str) -> bool) -> Result<()> {
        let missing: Vec<&str> = self
            .files
            .iter()
            .map(String::as_str)
            .filter(|file| !has(file))
            .collect();
        let Some(first) = missing.first() else {
            return Ok(());
        };
        let others = match missing.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Err(bad(&format!(
            "names {} files, of which {first}{others} is not there; put all of them in one folder",
            self.files.len()
        )))
    }
}

/// Whether `file` is a name that means the same file of the same folder in a path and in a URL.
fn is_plain(file: &str) -> bool {
    file.len() <= 255
        && file.ends_with(".safetensors")
        && !file.starts_with('.')
        && file
            .chars()
            .all(|c| c.is_alphanumeric() || "._-+=@() ".contains(c))
}

fn bad(what: &str) -> Error {
    Error::BadCheckpoint(format!("model.safetensors.index.json {what}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(files: &[&str]) -> Result<ShardIndex> {
        let map: BTreeMap<String, &str> = files
            .iter()
            .enumerate()
            .map(|(i, file)| (format!("t{i}"), *file))
            .collect();
        ShardIndex::from_json(
            &serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string(),
        )
    }

    #[test]
    fn files_come_once_and_in_order() {
        let index = index(&[
            "model-00002-of-00002.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ]);
        let files = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ];
        assert_eq!(index.unwrap().files(), files);
    }

    #[test]
    fn files_outside_the_folder_are_refused() {
        for file in [
            "../a.safetensors",
            "/etc/a.safetensors",
            "a/b.safetensors",
            "a\\b.safetensors",
            "%2e%2e%2fa.safetensors",
            "https:a.safetensors",
            "a?.safetensors",
            "a#.safetensors",
            ".safetensors",
            "",
            "a\0.safetensors",
            "pytorch_model.bin",
            "a.safetensors\n",
        ] {
            let error = index(&[file]).unwrap_err();
            assert_eq!(error.code(), "bad-checkpoint", "{file:?}");
            assert!(error.to_string().contains("same folder"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let index = index(&["a.safetensors", "b.safetensors", "c.safetensors"]).unwrap();
        assert_eq!(index.check(|_| true), Ok(()));
        let error = index
            .check(|file| file == "a.safetensors")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("3 files") && error.contains("b.safetensors and 1 more"),
            "{error}"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, code) in [
            ("", "bad-checkpoint"),
            ("{", "bad-checkpoint"),
            ("[]", "bad-checkpoint"),
            ("{}", "bad-checkpoint"),
            (r#"{"weight_map": {}}"#, "bad-checkpoint"),
            (r#"{"weight_map": {"a": 1}}"#, "bad-checkpoint"),
            (
                "version https://git-lfs.github.com/spec/v1",
                "bad-checkpoint",
            ),
            (" <!DOCTYPE html>", "http"),
        ] {
            assert_eq!(
                ShardIndex::from_json(text).unwrap_err().code(),
                code,
                "{text}"
            );
        }
    }
}
