//! What people and programs see. Only here and in the verbs is anything printed.

pub mod diagnose;
pub mod fabric;
pub mod flow;
pub mod host;
pub mod improve;
pub mod place;
pub mod probe;
pub mod progress;
pub mod proof;
pub mod quantity;
pub mod rdma;
pub mod table;
pub mod tune;
pub mod watch;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// How results leave the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables and trees.
    Human,
    /// One document at the end.
    Json,
    /// One JSON line per event.
    JsonStream,
}

/// Colours that carry meaning; absent when the output is not a terminal or
/// `NO_COLOR` is set (<https://no-color.org>).
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Colours for standard output.
    pub fn for_stdout() -> Self {
        Self {
            on: io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Colours for standard error.
    pub fn for_stderr() -> Self {
        Self {
            on: io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Something the reader must not miss: a lost capability, a failed trial.
    pub fn warning(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// The figure the command was run for.
    pub fn figure(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes one JSON document and a line end. A closed pipe is not an error: the
/// reader has seen enough.
pub fn json<T: Serialize>(document: &T, pretty: bool) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if pretty {
        serde_json::to_writer_pretty(&mut out, document)
    } else {
        serde_json::to_writer(&mut out, document)
    };
    closed_is_read(
        written.map_err(io::Error::from).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()),
    )
}

/// Writes one line to standard output.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    closed_is_read(
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()),
    )
}

fn closed_is_read(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
