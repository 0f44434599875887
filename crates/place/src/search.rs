//! The search for source ports: which are free to choose from, and the first
//! that meets every constraint.

use std::fmt;

use clearstream_host::HostRoot;
use clearstream_schema::{CoreList, host::HostReport};

use crate::landing::Landing;

/// `ip_local_port_range` where the host does not report it (Linux's default).
const DEFAULT_RANGE: (u16, u16) = (32_768, 60_999);

/// Source ports that flows may take, in ascending order from the last one taken.
#[derive(Debug, Clone)]
pub struct PortSpace {
    first: u16,
    last: u16,
    excluded: Vec<bool>,
}

impl PortSpace {
    /// The ports from `first` to `last`.
    pub fn new(first: u16, last: u16) -> Self {
        Self { first, last, excluded: vec![false; 1 << 16] }
    }

    /// `net.ipv4.ip_local_port_range` of the host without its
    /// `ip_local_reserved_ports`.
    pub fn of_host(host: &HostReport) -> Self {
        let sysctl = |name: &str| host.kernel.sysctls.get(name).map(String::as_str).unwrap_or_default();
        let range: Vec<u16> = sysctl("net.ipv4.ip_local_port_range")
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let (first, last) = match range.as_slice() {
            [first, last] => (*first, *last),
            _ => DEFAULT_RANGE,
        };
        let mut space = Self::new(first, last);
        // The kernel prints them in list form, as it does cores.
        if let Ok(CoreList(reserved)) = sysctl("net.ipv4.ip_local_reserved_ports").parse() {
            reserved
                .into_iter()
                .filter_map(|port| u16::try_from(port).ok())
                .for_each(|port| space.exclude(port));
        }
        space
    }

    /// Removes a port.
    pub fn exclude(&mut self, port: u16) {
        self.excluded[usize::from(port)] = true;
    }

    /// Removes the local ports of a host's TCP and UDP sockets, as its
    /// `/proc/net` lists them.
    pub fn exclude_taken(&mut self, root: &HostRoot) {
        for table in ["tcp", "tcp6", "udp", "udp6"] {
            let text = root.read(&format!("proc/net/{table}")).unwrap_or_default();
            for port in text.lines().skip(1).filter_map(local_port) {
                self.exclude(port);
            }
        }
    }

    /// Ports left.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        (self.first.max(1)..=self.last).filter(|port| !self.excluded[usize::from(*port)])
    }
}

/// `  0: 0100007F:1F90 00000000:0000 0A ...`
fn local_port(line: &str) -> Option<u16> {
    let local = line.split_whitespace().nth(1)?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

/// Target of a source port.
#[derive(Debug, Clone, Copy)]
pub struct Constraint<'a> {
    /// For people: `receive queue`, `acknowledgement queue`, `path member`.
    pub name: &'static str,
    /// Mapping of ports.
    pub landing: &'a Landing,
    /// Wanted target.
    pub wanted: u32,
}

impl Constraint<'_> {
    fn holds(&self, port: u16) -> bool {
        self.landing.of(port) == Some(self.wanted)
    }
}

/// A port that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The port; it is not allocated twice.
    pub port: u16,
    /// Ports that were tried, this one included.
    pub tried_count: u32,
}

/// No port meets all constraints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPort {
    /// Ports that were free to choose from.
    pub port_count: usize,
    /// Each constraint with what is wanted, and how many of these ports meet it alone.
    pub alone: Vec<(&'static str, u32, usize)>,
}

impl fmt::Display for NoPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no source port of the {} free ones leads to", self.port_count)?;
        for (at, (name, wanted, count)) in self.alone.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {name} {wanted} ({count} do, taken alone)")?;
        }
        f.write_str(
            "; widen net.ipv4.ip_local_port_range, take another destination port, or drop a constraint",
        )
    }
}

/// The lowest free port that meets all constraints. Linear: a random port
/// meets one of q queues with probability 1/q, so that about the product of
/// the counts is tried.
pub fn find(space: &mut PortSpace, constraints: &[Constraint<'_>]) -> Result<Found, NoPort> {
    let mut tried_count = 0;
    let port = space.ports().find(|port| {
        tried_count += 1;
        constraints.iter().all(|constraint| constraint.holds(*port))
    });
    if let Some(port) = port {
        space.exclude(port);
        return Ok(Found { port, tried_count });
    }
    let alone = constraints.iter().map(|constraint| {
        let count = space.ports().filter(|port| constraint.holds(*port)).count();
        (constraint.name, constraint.wanted, count)
    });
    Err(NoPort { port_count: space.ports().count(), alone: alone.collect() })
}
