//! What files say beside routes and rules, and what they leave open: by which tool a
//! route gets into a kernel, which of its parts are known only at run time, and what
//! the tool or the kernel refuses. Of plans and of kernels all of it is empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::Place;
use crate::{prefix::Prefix, tune::Severity};

/// What brings a line of a file into the kernel: decides what becomes of two routes
/// for one destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loader {
    /// A call of `ip`: the kernel refuses the second route of a destination, table and metric.
    #[default]
    Command,
    /// The same in a condition, a loop or a function of a script: whether it runs is not known.
    Conditional,
    /// `ip route append`: the kernel takes the second one too.
    Append,
    /// None: a kernel printed it, so that it is in effect.
    Kernel,
    /// systemd-networkd replaces the first route of IPv4 by the second, and joins those of IPv6.
    Networkd,
    /// NetworkManager appends the second, and gives each interface a metric of its own.
    NetworkManager,
    /// `ifcfg` and `route-`: the network scripts or NetworkManager, whichever is installed.
    NetworkScripts,
}

impl Loader {
    /// The tool's name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Command | Self::Conditional | Self::Append => "ip",
            Self::Kernel => "the kernel",
            Self::Networkd => "systemd-networkd",
            Self::NetworkManager => "NetworkManager",
            Self::NetworkScripts => "ifup",
        }
    }
}

/// A route that exists, and of which files do not say everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRoute {
    /// Its table; absent where it may be any.
    pub table: Option<u32>,
    /// Its destination; absent where it may be any.
    pub destination: Option<Prefix>,
    /// Why it is not known.
    pub reason: String,
}

impl UnknownRoute {
    /// Whether it may be in a table.
    pub fn may_be_in(&self, table: u32) -> bool {
        self.table.is_none_or(|own| own == table)
    }

    /// Whether it may be for an address.
    pub fn may_lead_to(&self, address: IpAddr) -> bool {
        self.destination.is_none_or(|destination| destination.contains(address))
    }
}

/// What a tool or the kernel does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Key of the finding: `route`, `rule`, `file`.
    pub what: &'static str,
    /// An error where it is certain.
    pub severity: Severity,
    /// The text.
    pub text: String,
    /// Who refuses it and why, as a sentence.
    pub reason: String,
    /// What to write instead.
    pub advice: String,
    /// Document or source that says so.
    pub source: &'static str,
    /// Location.
    pub place: Place,
}

/// Facts of one host's files. Two are equal as what they route by is.
#[derive(Debug, Clone, Default, Eq)]
pub struct FileFacts {
    /// Gateways that a route makes neighbours (`onlink`), with the interface where it is named.
    pub on_link: BTreeSet<(IpAddr, Option<String>)>,
    /// Routes that are not known completely.
    pub unknown_routes: Vec<UnknownRoute>,
    /// Nexthop objects that are there, and whose gateway is not known.
    pub unknown_nexthops: BTreeSet<u32>,
    /// Interfaces that get more addresses and routes at run time (DHCP, router advertisements), by family (`true` for
    /// IPv6).
    pub dynamic: BTreeSet<(String, bool)>,
    /// Interfaces whose names files do not state; here they have their link address or the name of their profile.
    pub nameless: BTreeSet<String>,
    /// Interfaces all of whose addresses a tool's files state, by family.
    pub complete: BTreeSet<(String, bool)>,
    /// Tables of the routes to an interface's own networks, by interface and family (`true` for IPv6), where that is
    /// not the main table.
    pub connected: BTreeMap<(String, bool), u32>,
    /// Tables of VRFs, which need no rule of one's own.
    pub vrf_tables: BTreeSet<u32>,
    /// Interfaces of VRFs, with the table.
    pub vrf_members: BTreeMap<String, u32>,
    /// What is not taken.
    pub refused: Vec<Refused>,
    /// Marks that firewall rules set; a mask of which part is known.
    pub marks: BTreeSet<u32>,
    /// Rules of a firewall that set marks were read.
    pub has_firewall: bool,
    /// Files, by what was read of them.
    pub read_files: BTreeSet<String>,
}

impl PartialEq for FileFacts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl FileFacts {
    /// Routes of a table that are not known completely.
    pub fn unknown_in(&self, table: u32) -> impl Iterator<Item = &UnknownRoute> {
        self.unknown_routes.iter().filter(move |route| route.may_be_in(table))
    }

    /// The table of an interface's own networks.
    pub fn connected_table(&self, interface: &str, ipv6: bool) -> u32 {
        self.connected.get(&(interface.to_owned(), ipv6)).copied().unwrap_or(super::MAIN_TABLE)
    }
}
