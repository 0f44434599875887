//! The places on a host that a plan can change, and what is known of each kind without a
//! host. How a kind is read and written is a file of the plan crate.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::{JsonSchema, prefix::Prefix, routing::RuleSelector};

/// A place on a host that holds one text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// A sysctl by its dotted name, `net.ipv4.tcp_wmem`; a dot inside a name
    /// (an interface's) is written as `/`, as sysctl(8) has it.
    Sysctl(String),
    /// A file below `/sys` or `/proc/irq`, by its path from `/`:
    /// `sys/class/net/eth0/queues/rx-0/rps_cpus`, `proc/irq/42/smp_affinity_list`.
    File(String),
    /// An attribute of a network interface.
    Link {
        /// Interface name.
        interface: String,
        /// Parameter.
        attribute: LinkAttribute,
    },
    /// The root qdisc of an interface, spelled as `tc` does: `fq maxrate 2gbit`,
    /// `noqueue`.
    Qdisc {
        /// Interface name.
        interface: String,
    },
    /// A number or switch of a driver, as `ethtool` names them.
    Ethtool {
        /// Interface name.
        interface: String,
        /// `channels`, `rings`, `coalesce`, `features`, `pause`, `rss`.
        group: String,
        /// `combined`, `rx`, `rx-usecs`, `tx-tcp-segmentation`, `indirection`.
        name: String,
    },
    /// A nexthop object, as arguments of `ip nexthop add id N`:
    /// `via 10.0.0.1 dev eth0 proto 117`, `group 1,3/2 proto 117`. May be absent.
    Nexthop {
        /// Its number.
        id: u32,
    },
    /// A route, as arguments of `ip route add`: `nhid 7010 proto 117`,
    /// `proto 117 nexthop via 10.0.0.1 dev eth0 weight 1 nexthop ...`. May be absent.
    Route {
        /// Table.
        table: u32,
        /// Destination.
        destination: Prefix,
        /// Metric, 1024 for IPv6 where none is given.
        #[serde(default)]
        metric: u32,
    },
    /// A policy rule, as arguments of `ip rule add`: `lookup 7001 proto 117`.
    /// May be absent.
    Rule {
        /// Whether it is for IPv6.
        ipv6: bool,
        /// Priority.
        priority: u32,
        /// Selector of packets.
        #[serde(default)]
        selector: Box<RuleSelector>,
    },
    /// An address of an interface, as arguments of `ip address add` after the
    /// address: `proto 117`. May be absent.
    Address {
        /// Interface name.
        interface: String,
        /// The address and the length of its network.
        prefix: Prefix,
    },
    /// A table of nft(8) of family `inet`, as its text on one line:
    /// `chain output { type route hook output priority mangle; ... }`. May be absent.
    NetfilterTable {
        /// Name.
        name: String,
    },
}

/// Attributes of a link that a plan can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkAttribute {
    /// MTU, bytes of layer 3.
    Mtu,
    /// Length of the transmit queue, packets.
    TransmitQueueLength,
}

impl Setting {
    /// A plan may take it away, and bring what was not there.
    pub fn may_be_absent(&self) -> bool {
        match self {
            Self::Sysctl(_)
            | Self::File(_)
            | Self::Link { .. }
            | Self::Qdisc { .. }
            | Self::Ethtool { .. } => false,
            Self::Nexthop { .. }
            | Self::Route { .. }
            | Self::Rule { .. }
            | Self::Address { .. }
            | Self::NetfilterTable { .. } => true,
        }
    }

    /// It decides which way packets of the host take.
    pub fn is_routing(&self) -> bool {
        match self {
            Self::Sysctl(_)
            | Self::File(_)
            | Self::Link { .. }
            | Self::Qdisc { .. }
            | Self::Ethtool { .. } => false,
            Self::Nexthop { .. }
            | Self::Route { .. }
            | Self::Rule { .. }
            | Self::Address { .. }
            | Self::NetfilterTable { .. } => true,
        }
    }

    /// The interface that it belongs to, of a sysctl and of a file the one in its path: it
    /// comes and goes with it.
    pub fn interface(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Sysctl(key) => interface_of_sysctl(key).map(Cow::Owned),
            Self::File(path) => path.strip_prefix("sys/class/net/")?.split('/').next().map(Cow::Borrowed),
            Self::Link { interface, .. }
            | Self::Qdisc { interface }
            | Self::Ethtool { interface, .. }
            | Self::Address { interface, .. } => Some(Cow::Borrowed(interface)),
            Self::Nexthop { .. } | Self::Route { .. } | Self::Rule { .. } | Self::NetfilterTable { .. } => {
                None
            }
        }
    }

    /// The names in it, of which others make parts of lines and file names.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Sysctl(name) | Self::File(name) | Self::NetfilterTable { name } => vec![name],
            Self::Link { interface, .. } | Self::Qdisc { interface } | Self::Address { interface, .. } => {
                vec![interface]
            }
            Self::Ethtool { interface, group, name } => vec![interface, group, name],
            Self::Rule { selector, .. } => {
                let names = selector.input.iter().chain(&selector.output).chain(&selector.other);
                names.map(String::as_str).collect()
            }
            Self::Nexthop { .. } | Self::Route { .. } => Vec::new(),
        }
    }
}

/// The path of a sysctl below `/proc/sys`. The first separator decides, as in sysctl(8): after
/// `net.` a dot parts names and a slash stands for a dot in one, after `net/` it is the
/// reverse. It is not checked.
pub fn sysctl_path(key: &str) -> String {
    if key.find(['.', '/']).is_some_and(|at| key.as_bytes().get(at) == Some(&b'/')) {
        return key.to_owned();
    }
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    key.chars().map(swapped).collect()
}

/// ip-sysctl.rst: `conf/interface/*`, `neigh/interface/*`, and two names that are none.
fn interface_of_sysctl(key: &str) -> Option<String> {
    match sysctl_path(key).split('/').collect::<Vec<_>>()[..] {
        ["net", _, "conf" | "neigh", name, ..] if !matches!(name, "all" | "default") => Some(name.to_owned()),
        _ => None,
    }
}

impl fmt::Display for Setting {
    /// As an operator names it: `net.ipv4.tcp_wmem`, `/proc/irq/42/smp_affinity_list`,
    /// `eth0 mtu`, `eth0 qdisc`, `eth0 channels combined`, `route 10.0.0.0/8 table 254`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(key) => f.write_str(key),
            Self::File(path) => write!(f, "/{path}"),
            Self::Link { interface, attribute: LinkAttribute::Mtu } => write!(f, "{interface} mtu"),
            Self::Link { interface, attribute: LinkAttribute::TransmitQueueLength } => {
                write!(f, "{interface} txqueuelen")
            }
            Self::Qdisc { interface } => write!(f, "{interface} qdisc"),
            Self::Ethtool { interface, group, name } => write!(f, "{interface} {group} {name}"),
            Self::Nexthop { id } => write!(f, "nexthop {id}"),
            Self::Route { table, destination, metric } => {
                write!(f, "route {destination} table {table}")?;
                if *metric == 0 { Ok(()) } else { write!(f, " metric {metric}") }
            }
            Self::Rule { ipv6, priority, selector } => {
                write!(f, "{} {priority} {}", if *ipv6 { "rule -6" } else { "rule" }, selector)
            }
            Self::Address { interface, prefix } => write!(f, "{interface} address {prefix}"),
            Self::NetfilterTable { name } => write!(f, "nft table inet {name}"),
        }
    }
}
