//! Text to tokens and back.

use serde::{Deserialize, Serialize};

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// The id.
    pub id: u32,
    /// The part of the text it covers; several tokens that share one character all show that character.
    pub text: String,
    /// The bytes it stands for.
    pub bytes: Vec<u8>,
    /// Start of its span in the text, in UTF-16 units.
    pub start: usize,
    /// End of its span in the text, in UTF-16 units.
    pub end: usize,
    /// Whether it is a special token.
    pub special: bool,
}
