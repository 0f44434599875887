//! What text for people is made of: tables and lines that fit their terminal, colours that carry meaning, and
//! characters that a terminal would obey made visible. Nothing here prints: the command does.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod paint;
pub mod sparkline;
pub mod table;
pub mod terminal;
pub mod width;

pub use paint::Paint;
pub use terminal::{escaped, wants_colours};

/// A line that is never broken, such as a command to copy.
pub fn verbatim(text: &str) -> String {
    format!("{}{text}", terminal::VERBATIM)
}
