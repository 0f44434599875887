//! Settings of a host: read from the running host, a capture, or files.

mod configured;
mod host;
mod interface;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{host::HostReport, tune::Place};

pub(crate) use self::configured::{Assignment, Reader};
pub use self::interface::Interface;
use crate::{
    kernel_config::OptionValue,
    knowledge::Knowledge,
    syntax::{self, Format, Slip, Statement, Trap},
    version::KernelVersion,
};

/// Effective or requested value of a sysctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Fields separated by one blank.
    pub text: String,
    /// File and line that set it, where known.
    pub place: Option<Place>,
    /// Whether it was read from a kernel; otherwise a file requests it.
    pub effective: bool,
}

/// A statement of a file to be linted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// File and line.
    pub(crate) place: Place,
    /// Key and value.
    pub(crate) statement: Statement,
    /// Format of the file.
    pub(crate) format: Format,
}

/// A transmit queue length that a file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenQueue {
    /// File and line.
    pub(crate) place: Place,
    /// Interface; absent when it applies to all.
    pub(crate) interface: Option<String>,
    /// Length in packets.
    pub(crate) packet_count: u64,
}

/// An option of a kernel configuration that a file sets or unsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenOption {
    /// File and line.
    pub(crate) place: Place,
    /// Value of the option.
    pub(crate) value: OptionValue,
}

/// Configuration of tuned on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tuned {
    /// Active profiles.
    pub(crate) profiles: Vec<String>,
    /// Whether its service runs.
    pub(crate) is_running: bool,
    /// Whether files below `/etc` and `/run` override its profile
    /// (`reapply_sysctl`, on by default).
    pub(crate) files_override: bool,
}

/// Input of the rules. Unknown facts are absent.
#[derive(Debug, Clone, Default)]
pub struct HostState {
    /// Name of the host or the file.
    pub subject: String,
    /// Host name; absent for a file.
    pub(crate) host_name: Option<String>,
    /// Kernel release, as `uname -r` prints it.
    pub release: Option<String>,
    /// Parsed `release`.
    pub kernel: Option<KernelVersion>,
    /// Page size.
    pub(crate) page_bytes: Option<u64>,
    /// Total memory of the host.
    pub(crate) memory_bytes: Option<u64>,
    /// Memory reserved for huge pages.
    pub(crate) huge_bytes: Option<u64>,
    /// Whether this is a network namespace other than the host's.
    pub own_network_namespace: Option<bool>,
    /// Sysctls by dotted name.
    pub values: BTreeMap<String, Value>,
    /// Names of all sysctls of the kernel; `None` when the list is incomplete.
    pub present: Option<BTreeSet<String>>,
    /// Destination that the path leads to, where one was given.
    pub destination: Option<Destination>,
    /// Interfaces other than loopback.
    pub interfaces: Vec<Interface>,
    /// Report of the host's hardware; absent for a file.
    pub report: Option<HostReport>,
    /// Whether irqbalance runs.
    pub(crate) irqbalance_is_running: Option<bool>,
    /// Configuration of tuned.
    pub(crate) tuned: Option<Tuned>,
    /// Assignments in the host's own files, by key, in ascending precedence.
    pub(crate) configured: BTreeMap<String, Vec<Assignment>>,
    /// Statements of the files to be linted.
    pub given: Vec<Given>,
    /// Transmit queue lengths of the files to be linted.
    pub(crate) given_queues: Vec<GivenQueue>,
    /// Options of the kernel configuration to be linted, by their full names.
    pub(crate) options: BTreeMap<String, GivenOption>,
    /// Lines that could not be parsed.
    pub slips: Vec<(String, Slip)>,
    /// Profiles that a linted file includes.
    pub(crate) includes: Vec<(String, String)>,
    /// Parts that could not be read, with the reason.
    pub(crate) missing: Vec<String>,
}

/// Destination of a path, and what the route there sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Address.
    pub address: IpAddr,
    /// Congestion control of its route (`congctl` of ip-route(8)), in place of the host's default.
    pub congestion_control: Option<String>,
}

/// Assumptions about the host that a file is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Kernel release.
    pub release: Option<String>,
    /// Total memory.
    pub memory_bytes: Option<u64>,
    /// Page size.
    pub page_bytes: Option<u64>,
}

impl HostState {
    /// Creates the state of a host of which only a file's settings are known.
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

    /// Returns the same host after a file's settings were applied.
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

    /// Whether the kernel has a key, by its list of names where that is known.
    pub(crate) fn has_key(&self, name: &str) -> Option<bool> {
        self.present.as_ref().map(|present| present.contains(name))
    }

    /// Returns the text of a sysctl.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.text.as_str())
    }

    /// Returns a sysctl that is one integer.
    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.text(key)?.parse().ok()
    }

    /// Returns a sysctl that is three integers.
    pub(crate) fn triple(&self, key: &str) -> Option<[i64; 3]> {
        let mut fields = self.text(key)?.split_whitespace().map(str::parse);
        let triple = [fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?];
        fields.next().is_none().then_some(triple)
    }

    /// Page size, 4096 bytes by default.
    pub(crate) fn page_or_usual(&self) -> (u64, bool) {
        self.page_bytes.map_or((4096, false), |bytes| (bytes, true))
    }
}

/// A key with a blank in its name is treated as the suggested key.
fn meant_key(statement: &Statement) -> String {
    if statement.traps.contains(&Trap::BlankInName)
        && let Some(meant) = Knowledge::embedded().suggest(&statement.key)
    {
        return meant.to_owned();
    }
    statement.key.clone()
}
