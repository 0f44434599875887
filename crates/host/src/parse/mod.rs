//! Formats of kernel files, from text to numbers: no file is opened here.
//! Each parser takes anything and either reads it or says what is wrong.

pub mod cpuset;
pub mod pci;
pub mod stat;
pub mod table;
pub mod text;

/// Text that does not have the form the kernel gives it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected, found \"{found}\"")]
pub struct ParseError {
    /// What should be there.
    pub expected: &'static str,
    /// What is there, shortened.
    pub found: String,
}

impl ParseError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        // A garbled file may be one endless line: the message must not be.
        let mut short: String = found.chars().take(40).flat_map(char::escape_default).collect();
        if found.chars().nth(40).is_some() {
            short.push('…');
        }
        Self { expected, found: short }
    }
}
