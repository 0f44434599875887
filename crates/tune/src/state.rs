//! The settings of a host, however they were learnt: from the running host, a
//! captured one, or files.

mod configured;
mod host;
mod interface;

use std::collections::{BTreeMap, BTreeSet};

use clearstream_schema::{host::HostReport, tune::Place};

pub use self::{
    configured::{Assignment, Reader},
    interface::Interface,
};
use crate::{
    kernel_config::OptionValue,
    knowledge::Knowledge,
    syntax::{self, Format, Slip, Statement, Trap},
    version::KernelVersion,
};

/// A sysctl as it is or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The text, fields divided by one blank.
    pub text: String,
    /// Where it was set, when that is known.
    pub place: Option<Place>,
    /// It was read from a kernel; else a file requests it.
    pub effective: bool,
}

/// A line of a file that was given to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Where.
    pub place: Place,
    /// What it says.
    pub statement: Statement,
    /// How its file is written.
    pub format: Format,
}

/// A transmit queue length that a file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenQueue {
    /// Where.
    pub place: Place,
    /// Interface; absent when it is for all.
    pub interface: Option<String>,
    /// Packets.
    pub packet_count: u64,
}

/// An option of a kernel's configuration that a file sets or leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenOption {
    /// Where.
    pub place: Place,
    /// Its value.
    pub value: OptionValue,
}

/// What tuned is requested to do on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuned {
    /// Profiles that are active.
    pub profiles: Vec<String>,
    /// It runs now.
    pub is_running: bool,
    /// It lets the files below `/etc` and `/run` win over its profile
    /// (`reapply_sysctl`, on unless switched off).
    pub files_win: bool,
}

/// Everything that rules look at. Whatever is not known is absent.
#[derive(Debug, Clone, Default)]
pub struct HostState {
    /// The host's name or the file's.
    pub subject: String,
    /// Host name, where there is a host.
    pub host_name: Option<String>,
    /// `uname -r`.
    pub release: Option<String>,
    /// The same as a number.
    pub kernel: Option<KernelVersion>,
    /// Page size.
    pub page_bytes: Option<u64>,
    /// Memory of the host.
    pub memory_bytes: Option<u64>,
    /// Memory set aside for huge pages.
    pub huge_bytes: Option<u64>,
    /// Whether this is a network namespace other than the host's.
    pub own_network_namespace: Option<bool>,
    /// Sysctls by dotted name.
    pub values: BTreeMap<String, Value>,
    /// Names of sysctls that the kernel has, where all of them are known.
    pub present: Option<BTreeSet<String>>,
    /// Interfaces other than loopback.
    pub interfaces: Vec<Interface>,
    /// The host's report, where there is a host.
    pub report: Option<HostReport>,
    /// irqbalance runs.
    pub irqbalance_is_running: Option<bool>,
    /// tuned.
    pub tuned: Option<Tuned>,
    /// What the host's own files request, by key, in the order in which they win.
    pub configured: BTreeMap<String, Vec<Assignment>>,
    /// Lines of the files that were given.
    pub given: Vec<Given>,
    /// Transmit queues of the files that were given.
    pub given_queues: Vec<GivenQueue>,
    /// Options of the kernel configuration that was given, by their full names.
    pub options: BTreeMap<String, GivenOption>,
    /// Lines that could not be read.
    pub slips: Vec<(String, Slip)>,
    /// Profiles that a given file builds on.
    pub includes: Vec<(String, String)>,
    /// Parts that could not be read, with the reason.
    pub missing: Vec<String>,
}

/// What is to be assumed of the host that a file is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Its kernel's release.
    pub release: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// Its page size.
    pub page_bytes: Option<u64>,
}

impl HostState {
    /// A host of which only a file's settings are known.
    pub fn of_file(file: &str, text: &str, assumed: Assumed) -> Self {
        let mut state = Self {
            subject: file.to_owned(),
            kernel: assumed.release.as_deref().and_then(|release| release.parse().ok()),
            release: assumed.release,
            page_bytes: assumed.page_bytes,
            memory_bytes: assumed.memory_bytes,
            ..Self::default()
        };
        state.give(file, text);
        state
    }

    /// The same host after a file's settings were applied.
    pub fn with_file(mut self, file: &str, text: &str) -> Self {
        self.subject = format!("{file} on {}", self.subject);
        self.give(file, text);
        self
    }

    fn give(&mut self, file: &str, text: &str) {
        let parsed = syntax::parse(text);
        let place = |line| Place { file: file.to_owned(), line };
        for statement in parsed.statements {
            let key = meant_key(&statement);
            if !statement.is_bound {
                let value = Value {
                    text: statement.value.clone(),
                    place: Some(place(statement.line)),
                    effective: false,
                };
                self.values.insert(key, value);
            }
            self.given.push(Given { place: place(statement.line), statement, format: parsed.format });
        }
        self.given_queues.extend(parsed.queue_lengths.into_iter().map(|set| GivenQueue {
            place: place(set.line),
            interface: set.interface,
            packet_count: set.packet_count,
        }));
        for (line, name, value) in parsed.options {
            self.options.insert(name, GivenOption { place: place(line), value });
        }
        self.includes.extend(parsed.includes.into_iter().map(|name| (file.to_owned(), name)));
        self.slips.extend(parsed.slips.into_iter().map(|slip| (file.to_owned(), slip)));
    }

    /// Whether the kernel has a key: by what is there, where that is known.
    pub fn has_key(&self, name: &str) -> Option<bool> {
        self.present.as_ref().map(|present| present.contains(name))
    }

    /// Text of a sysctl.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.text.as_str())
    }

    /// A sysctl that is one whole number.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.text(key)?.parse().ok()
    }

    /// A sysctl that is three whole numbers.
    pub fn triple(&self, key: &str) -> Option<[i64; 3]> {
        let mut fields = self.text(key)?.split_whitespace().map(str::parse);
        let triple = [fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?];
        fields.next().is_none().then_some(triple)
    }

    /// Page size; that of most hosts where it is not known.
    pub fn page_or_usual(&self) -> (u64, bool) {
        self.page_bytes.map_or((4096, false), |bytes| (bytes, true))
    }
}

/// A name with a blank is looked at as what was probably meant.
fn meant_key(statement: &Statement) -> String {
    if statement.traps.contains(&Trap::BlankInName)
        && let Some(meant) = Knowledge::embedded().suggest(&statement.key)
    {
        return meant.to_owned();
    }
    statement.key.clone()
}
