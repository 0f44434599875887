//! What is written to files, as a text.

use std::{fmt, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ParseUnitError;

/// Contents of what a measurement writes, as text: `random`, `zero`, `compress:4`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DataKind {
    /// Nothing that a file system or a disk can compress, and no two blocks that are alike.
    #[default]
    Random,
    /// Zeros.
    Zero,
    /// Blocks of 4 KiB that compress to this part of their size, no two of them alike.
    Compress(u32),
}

/// Largest part: a block of 4 KiB keeps 64 bytes.
const PART_MAX: u32 = 64;

impl FromStr for DataKind {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let example = "random, zero or compress:4 (2 to 64)";
        let wrong = || ParseUnitError { kind: "contents of files", text: text.to_owned(), example };
        match text.split_once(':') {
            None if text == "random" => Ok(Self::Random),
            None if text == "zero" => Ok(Self::Zero),
            Some(("compress", part)) => {
                let part = part.parse().ok().filter(|part| (2..=PART_MAX).contains(part));
                part.map(Self::Compress).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.pad("random"),
            Self::Zero => f.pad("zero"),
            Self::Compress(part) => f.pad(&format!("compress:{part}")),
        }
    }
}

stored_as_text!(DataKind, "Contents of files", "random", |_| None);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_as_they_are_written() {
        for text in ["random", "zero", "compress:2", "compress:64"] {
            assert_eq!(text.parse::<DataKind>().unwrap().to_string(), text);
        }
        for text in
            ["", "Random", "compress", "compress:", "compress:1", "compress:65", "compress:x", "zero:2"]
        {
            assert!(text.parse::<DataKind>().unwrap_err().to_string().contains("compress:4"), "{text}");
        }
    }
}
