//! Parsers of kernel file formats, from text to numbers: no file is opened here. Each parser accepts any
//! input and either parses it or returns an error.

pub mod cpuset;
pub mod pci;
pub mod stat;
pub mod table;
pub mod text;

/// Text that does not have the kernel's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected, found \"{found}\"")]
pub struct ParseError {
    /// Expected content.
    pub expected: &'static str,
    /// Actual content, truncated.
    pub found: String,
}

impl ParseError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        // A corrupt file may be one endless line: the message must not be.
        let mut short: String = found.chars().take(40).flat_map(char::escape_default).collect();
        if found.chars().nth(40).is_some() {
            short.push('…');
        }
        Self { expected, found: short }
    }
}
