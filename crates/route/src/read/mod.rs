//! Configuration files to what a host routes by. Readers are tolerant: what
//! they do not understand is reported with its place and never stops the rest.
//!
//! | what | by |
//! |---|---|
//! | NetworkManager keyfiles | `networkmanager` |
//! | systemd-networkd `.network` | `networkd` |
//! | netplan, nmstate, Ansible (YAML) | `netplan`, `nmstate`, `ansible` |
//! | `ifcfg-*`, `route-*`, `rule-*` | `ifcfg` |
//! | scripts and batches of `ip`, and what `ip` prints | `script`, `words` |
//! | `sysctl.conf`, connection marks of nftables | `sysctl`, `marks` |

mod ansible;
mod detect;
mod folder;
mod gathering;
mod ifcfg;
mod ini;
mod marks;
mod netplan;
mod networkd;
mod networkmanager;
mod nmstate;
mod script;
mod statements;
mod sysctl;
mod values;
mod words;
mod yaml;

use std::{io, path::PathBuf};

use clearstream_schema::routing::{HostRouting, Place};

pub use folder::{files, folder};
use gathering::Gathering;
pub(crate) use values::link_address;

/// Something in a file that was not understood, or that cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unread {
    /// Where.
    pub place: Place,
    /// The words, shortened and without control characters.
    pub text: String,
    /// Why it was not read.
    pub reason: String,
}

/// What files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Hosts, by name.
    pub hosts: Vec<HostRouting>,
    /// What was not understood.
    pub unread: Vec<Unread>,
}

/// A file's path, as it is to appear in places, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Path as given; its last part tells the format, together with the text.
    pub path: String,
    /// Text.
    pub text: String,
}

/// Files that could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says no.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing there is a configuration.
    #[error(
        "{}: no file there is a routing configuration; known are keyfiles of NetworkManager, .network files, \
         netplan, ifcfg, nmstate, Ansible, scripts of ip commands, and what ip prints", path.display()
    )]
    Nothing {
        /// The folder or file.
        path: PathBuf,
    },
}

/// Reads files of one host, already in memory. The order does not matter.
pub fn texts(sources: &[Source]) -> (HostRouting, Vec<Unread>) {
    let mut gathering = Gathering::default();
    let mut sorted: Vec<(detect::Kind, &Source)> =
        sources.iter().map(|source| (detect::kind(&source.path, &source.text), source)).collect();
    // Names of tables come first; sysctl.d is in the order of names (sysctl.d(5)).
    sorted.sort_by_key(|(kind, source)| (*kind, detect::last_part(&source.path)));
    for (kind, source) in sorted {
        detect::read(kind, source, &mut gathering);
    }
    gathering.finish()
}

/// Reads what `ip rule`, `ip route show table all`, `ip nexthop` or `ip
/// address` print. `ipv6` tells of which family it is, where the words do not
/// (`from all lookup 7001`).
pub fn printed_by_ip(source: &Source, ipv6: Option<bool>) -> (HostRouting, Vec<Unread>) {
    let mut gathering = Gathering::default();
    script::read(source, ipv6, &mut gathering);
    gathering.finish()
}
