//! What people and programs see. Only here and in the verbs is anything printed.
//! Documents and events go through [`Output`]; people read lines and tables.

pub mod connections;
pub mod daemon;
pub mod diagnose;
pub mod diagnostics;
pub mod documents;
mod events;
pub mod explore;
pub mod fabric;
pub mod flow;
pub mod host;
pub mod improve;
pub mod iperf3;
pub mod live;
pub mod place;
pub mod printer;
pub mod progress;
pub mod proof;
pub mod rdma;
#[cfg(debug_assertions)]
pub mod schemas;
pub mod semantics;
mod stderr;
pub mod storage_comparison;
pub mod storage_ior;
pub mod storage_live;
pub mod storage_metadata;
pub mod storage_stream;
pub mod tune;
pub mod watch;

use std::io::{self, Write};

pub use clearstream_output::{
    Paint, escaped, sparkline, table,
    terminal::{self, of_launcher},
    verbatim, width,
};
use clearstream_output::{
    terminal::{Escaping, printable},
    wants_colours,
};
pub use clearstream_schema::human as quantity;
use clearstream_schema::{control::FailureKind, failure::Classified};
use serde::Serialize;

pub use events::Output;
pub use stderr::{flush, in_background};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables and trees.
    Human,
    /// One document at the end.
    Json,
    /// One JSON line per event.
    JsonStream,
}

/// Output options, common to all verbs.
#[derive(Debug, Clone, clap::Args)]
pub struct OutputArgs {
    /// Print one JSON document at the end
    #[arg(long, global = true, conflicts_with = "json_stream", help_heading = "Output")]
    json: bool,
    /// Print a JSON line per event as it happens; the last one has the result
    #[arg(long, global = true, help_heading = "Output")]
    json_stream: bool,
    /// Log agents and daemons to standard error at this level: error, warn, info, debug or trace, also per
    /// component, as in control=debug,lab=info [env: CLEARSTREAM_LOG]
    #[arg(long, global = true, value_name = "LEVEL|FILTER", help_heading = "Output")]
    pub log: Option<String>,
}

impl OutputArgs {
    /// The format that was requested.
    pub fn format(&self) -> Format {
        match (self.json, self.json_stream) {
            (true, _) => Format::Json,
            (_, true) => Format::JsonStream,
            _ => Format::Human,
        }
    }
}

/// Writes one JSON document and a line end. A closed pipe is not an error: the
/// reader has seen enough.
fn json<T: Serialize>(document: &T, pretty: bool) -> Result<(), Unwritten> {
    let text = clearstream_schema::json::to_vec(document)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if pretty {
        clearstream_schema::json::write_with(Escaping::pretty(), &text, &mut out)
    } else {
        clearstream_schema::json::write_with(Escaping::compact(), &text, &mut out)
    };
    closed_is_read(
        written.map_err(io::Error::from).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()),
    )
}

/// Writes one line for people to standard output, broken between words where
/// the terminal is narrower, control characters escaped.
pub fn line(text: &str) -> Result<(), Unwritten> {
    match width::columns() {
        Some(columns) => as_it_is(&width::fit(text, columns)),
        None => as_it_is(text),
    }
}

/// Writes text that programs read, such as a script or a unit file, without a
/// break of its lines; control characters escaped.
pub fn as_it_is(text: &str) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    let text = printable(text, wants_colours(&out));
    closed_is_read(
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()),
    )
}

/// Writes one line to standard error, control characters escaped; what cannot be
/// written is dropped.
pub fn log(text: &str) {
    let mut text = printable(text, wants_colours(&io::stderr())).into_owned();
    text.push('\n');
    stderr::write(text);
}

fn closed_is_read(written: io::Result<()>) -> Result<(), Unwritten> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Unwritten),
    }
}

/// Standard output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the result: {0}")]
pub struct Unwritten(#[from] io::Error);

impl From<serde_json::Error> for Unwritten {
    fn from(error: serde_json::Error) -> Self {
        Self(error.into())
    }
}

impl Classified for Unwritten {
    fn failure_kind(&self) -> FailureKind {
        FailureKind::File
    }
}
