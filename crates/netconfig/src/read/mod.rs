//! Configuration files to what a host routes by. Readers are tolerant: what
//! they do not understand is reported with its place and never stops the rest.
//!
//! Each format has its own reader (`formats`); here is what they share: INI and YAML with
//! lines (`ini`, `yaml`), the syntax of `ip` (`script`, `ip_arguments`), and routing in
//! nftables files (`nftables`).

pub(crate) mod detect;
mod folder;
pub(crate) mod gathering;
pub(crate) mod ini;
pub(crate) mod ip_arguments;
mod names;
mod nearest;
pub(crate) mod nftables;
pub(crate) mod script;
pub(crate) mod statements;
pub(crate) mod values;
pub(crate) mod yaml;

use std::{io, path::PathBuf};

use clearstream_schema::routing::{HostRouting, Place};

pub use self::folder::{files, folder};
use self::{detect::Known, gathering::Gathering};

/// Something in a file that was not understood, or that cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unread {
    /// File and line.
    pub place: Place,
    /// The text, shortened and without control characters.
    pub text: String,
    /// Why it was not read.
    pub reason: String,
}

/// Result of reading files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Hosts, by name.
    pub hosts: Vec<HostRouting>,
    /// What was not understood.
    pub unread: Vec<Unread>,
    /// Files of which nothing was understood.
    pub not_understood: Vec<String>,
}

/// A file's path, as it is to appear in places, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Path as given; its last part and the text decide the format.
    pub path: String,
    /// Text.
    pub text: String,
}

/// Files that could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Nothing there is a configuration.
    #[error(
        "{}: no file there is a routing configuration: {nearest}; known are keyfiles of NetworkManager, .network \
         files, netplan, ifcfg, /etc/network/interfaces, nmstate (also in policies of Kubernetes), Ansible, scripts \
         of ip commands, and what ip prints", path.display()
    )]
    Nothing {
        /// The folder or file.
        path: PathBuf,
        /// What it is taken for, and what is read of that kind.
        nearest: String,
    },
}

/// How the reason begins where nothing of a file is understood.
const NOTHING: &str = "nothing in it was understood";

/// Lines of a file of which nothing was understood that are reported one by one.
const FEW_LINES: usize = 4;

/// Reads files of one host, already in memory. The order does not matter. Documents of several hosts give as
/// many.
pub fn sources(sources: &[Source]) -> Reading {
    let mut gathering = Gathering::default();
    gathering.paths = sources.iter().map(|source| source.path.clone()).collect();
    let mut not_understood = Vec::new();
    let mut sorted: Vec<(Option<Known>, &Source)> =
        sources.iter().map(|source| (detect::known(source), source)).collect();
    // Within a turn in the order of names, as of sysctl.d (sysctl.d(5)).
    sorted.sort_by_key(|(known, source)| {
        (known.is_none(), known.and_then(Known::order), detect::last_part(&source.path))
    });
    for (known, source) in sorted {
        gathering.begin();
        let set_before = gathering.set_count();
        match known {
            Some(Known::By(reader, _)) => (reader.read)(source, &mut gathering),
            Some(Known::Own) => gathering.understood(),
            Some(Known::Foreign) | None => {}
        }
        let says_nothing =
            gathering.set_count() == set_before && gathering.unread_of(&source.path).next().is_some();
        if gathering.is_understood() && !says_nothing {
            gathering.facts().read_files.insert(source.path.clone());
        } else if !source.text.trim().is_empty() {
            nothing_of(source, &mut gathering);
            not_understood.push(source.path.clone());
        }
    }
    gathering.leave_open_what_was_not_printed();
    let mut others = std::mem::take(&mut gathering.others);
    let (routing, unread) = gathering.finish();
    for other in &mut others {
        other.files.read_files.clone_from(&routing.files.read_files);
    }
    // A document of several hosts alone says nothing of one more.
    let is_empty = routing == HostRouting::default() && !others.is_empty();
    let own = (!is_empty).then_some(routing);
    Reading { hosts: own.into_iter().chain(others).collect(), unread, not_understood }
}

/// Says that nothing of a file was understood, and what is: instead of line by line, where there are many.
fn nothing_of(source: &Source, gathering: &mut Gathering) {
    let lines = gathering.unread_of(&source.path).count();
    if lines > FEW_LINES {
        gathering.forget_unread(&source.path);
    }
    let reason = format!("{NOTHING}: {}", nearest::form(source));
    gathering.unread(&source.path, 1, detect::last_part(&source.path), reason);
}

/// Reads files of one host, already in memory: the host, and what was not understood.
pub fn texts(files: &[Source]) -> (HostRouting, Vec<Unread>) {
    let mut reading = sources(files);
    (if reading.hosts.is_empty() { HostRouting::default() } else { reading.hosts.remove(0) }, reading.unread)
}

/// Reads what `ip rule`, `ip route show table all`, `ip nexthop` or `ip
/// address` print. `ipv6` is the family of arguments that imply none (`from all
/// lookup 7001`).
pub fn printed_by_ip(source: &Source, ipv6: Option<bool>) -> (HostRouting, Vec<Unread>) {
    let mut gathering = Gathering::default();
    script::read(source, ipv6, &mut gathering);
    gathering.finish()
}
