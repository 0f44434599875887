//! A plan: reversible changes of one host, with the reason of each.
//!
//! Each item that a plan can change is a [`Setting`]: a place on a host that
//! holds one text. Reading returns the text, writing sets it, and the text that
//! was there before is the inverse of the change, whatever the setting is.

use std::{collections::BTreeMap, fmt};

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::value::{Value, ValueError};
use crate::{prefix::Prefix, routing::RuleSelector};

mod value;

/// Name of the format.
pub const PLAN_SCHEMA: &str = "clearstream.plan";

/// A list of changes of one host, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `clearstream.plan`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Purpose, for people: `40 Gb/s over 17 ms with 2 flows, profile wan`.
    pub purpose: String,
    /// The host that it was made for.
    pub host: PlanHost,
    /// The changes; settings that are right already are not listed.
    pub steps: Vec<Step>,
    /// Changes that no plan can make (a slot, a boot option), and assumptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// Host identity, to reject a plan that was made for another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanHost {
    /// Host name.
    pub name: String,
    /// Kernel release, `6.18.44`.
    pub kernel: String,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The setting.
    pub setting: Setting,
    /// Value when the plan was made; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Desired value; absent removes the setting (only where it can be absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// Reason, with the arithmetic.
    pub reason: String,
    /// When and for which sockets it takes effect.
    pub effect: Effect,
}

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

impl Step {
    /// Desired value, parsed; `None` where the setting is to be removed.
    pub fn wanted(&self) -> Option<Result<Value, ValueError>> {
        self.desired.as_deref().map(|text| Value::of(&self.setting, text))
    }
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

/// What begins the text of a root qdisc that the kernel made by itself.
pub const DEFAULT_QDISC: &str = "default ";

/// Whether the text of a root qdisc names one that the kernel makes by itself.
pub fn is_default_qdisc(text: &str) -> bool {
    text.starts_with(DEFAULT_QDISC)
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

/// Time at which a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once, for what runs too.
    Now,
    /// For sockets made afterwards.
    NewSockets,
    /// For connections made afterwards: it is fixed in the handshake.
    Handshake,
    /// For qdiscs made afterwards.
    NewQdiscs,
    /// At once, but the link may go down and up.
    LinkFlap,
    /// After the next boot.
    Boot,
}

/// One fact that [verification](Verification) checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Subject of the check, for people.
    pub subject: String,
    /// Expected value.
    pub expected: String,
    /// Actual value; absent when it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Whether it is as expected.
    pub holds: bool,
    /// Remark: who is not affected by the change, or why it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Effective settings after a plan was applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Values read back and effective values.
    pub checks: Vec<Check>,
}

/// State of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JournalState {
    /// Applying began and did not end: to be recovered.
    Applying,
    /// All changes were made and read back.
    Applied,
    /// Applied and not confirmed yet: restored at its deadline, or when its test ends.
    Pending,
    /// Reverting began and did not end: to be recovered.
    Reverting,
    /// All settings have their previous values.
    Reverted,
    /// The host was booted since: what was changed is gone with the old kernel.
    Gone,
    /// The file cannot be read as a journal.
    Unreadable,
}

/// One journal in the history of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalEntry {
    /// Its name, which `revert` takes.
    pub journal: String,
    /// Start, RFC 3339 in UTC; absent when the file is not readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Purpose of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Host name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// State.
    pub state: JournalState,
    /// It was written in this network namespace, so that it can be reverted here.
    pub here: bool,
    /// Settings that it changed.
    pub changed_count: u64,
    /// Reason for reverting it, or for its not being readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An object of the kernel that is no more, and what a plan had changed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gone {
    /// An interface, `interrupt 42`, `queue rx-3 of eth0`, `nexthop 7`.
    pub what: String,
    /// Changes that went with it; they count as restored.
    pub change_count: u64,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, change_count } = self;
        match change_count {
            1 => write!(f, "{what} is gone: its change went with it"),
            count => write!(f, "{what} is gone: its {count} changes went with it"),
        }
    }
}

/// Result of the recovery of one journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// Its name.
    pub journal: String,
    /// State in which it was found.
    pub found: JournalState,
    /// State in which it is now.
    pub now: JournalState,
    /// Settings that were restored.
    pub restored_count: u64,
    /// What is no more, so that nothing had to be restored on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// Reason why it could not be completed, and the suggested correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Values of settings, by setting.
pub type Values = BTreeMap<Setting, String>;
