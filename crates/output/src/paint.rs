//! Colours that carry meaning.

use std::io;

use crate::terminal::{Style, styled, wants_colours};

/// Colours; absent when the output is not a terminal or `NO_COLOR` is set (<https://no-color.org>).
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// No colours: for a file, and for tests of text.
    pub const NONE: Self = Self { on: false };

    /// Colours for standard output.
    pub fn for_stdout() -> Self {
        Self { on: wants_colours(&io::stdout()) }
    }

    /// Colours for standard error.
    pub fn for_stderr() -> Self {
        Self { on: wants_colours(&io::stderr()) }
    }

    /// A warning: a lost capability, a failed trial.
    pub fn warning(self, text: &str) -> String {
        self.wrap(Style::Warning, text)
    }

    /// The figure the command was run for.
    pub fn figure(self, text: &str) -> String {
        self.wrap(Style::Figure, text)
    }

    fn wrap(self, style: Style, text: &str) -> String {
        if self.on { styled(style, text) } else { text.to_owned() }
    }
}
