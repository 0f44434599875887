//! What the watch over gateways tells: events as they happen, and how things
//! stand when it is asked.

use std::{fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format of [`WatchEvent`].
pub const WATCH_EVENT_SCHEMA: &str = "clearstream.watch-event";
/// Name of the format of [`WatchStatus`].
pub const WATCH_STATUS_SCHEMA: &str = "clearstream.watch-status";

/// One line of `route watch --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchEvent {
    /// `clearstream.watch-event`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// The host that watches.
    pub host: String,
    /// What happened.
    #[serde(flatten)]
    pub event: WatchEventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum WatchEventKind {
    /// The watch began.
    Started {
        /// The ways that it watches.
        ways: Vec<WayStatus>,
    },
    /// A gateway was taken out of the next hops.
    Out {
        /// The way.
        #[serde(flatten)]
        way: Way,
        /// The gateway.
        gateway: String,
        /// Why.
        reason: OutReason,
        /// Gateways that are left.
        left_count: u32,
        /// From the first probe that failed to the kernel's acknowledgement of the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ns: Option<u64>,
    },
    /// A gateway was put back.
    In {
        /// The way.
        #[serde(flatten)]
        way: Way,
        /// The gateway.
        gateway: String,
        /// Gateways that are used now.
        used_count: u32,
    },
    /// A gateway that came back has the buckets of its weight in the resilient
    /// groups, and sockets look their routes up again.
    Rebalanced {
        /// The path.
        #[serde(flatten)]
        way: Way,
        /// The gateway.
        gateway: String,
        /// Buckets that it has now.
        bucket_count: u32,
        /// Buckets in all.
        bucket_total: u32,
        /// From its return until it had them.
        delay_ns: u64,
    },
    /// A gateway is not well, but it is the last one and stays.
    KeptLast {
        /// The way.
        #[serde(flatten)]
        way: Way,
        /// The gateway.
        gateway: String,
        /// What is wrong with it.
        reason: OutReason,
    },
    /// No far host answers through any gateway; nothing is changed for that.
    Silent {
        /// The way.
        #[serde(flatten)]
        way: Way,
    },
    /// Far hosts answer again.
    Heard {
        /// The way.
        #[serde(flatten)]
        way: Way,
    },
    /// A far host does not answer through any gateway; another one is probed instead.
    TargetChanged {
        /// The way.
        #[serde(flatten)]
        way: Way,
        /// The one that is given up.
        from: IpAddr,
        /// The one that is probed instead.
        to: IpAddr,
    },
    /// An operator drained a gateway.
    Drained {
        /// The gateway.
        gateway: String,
    },
    /// An operator ended the draining of a gateway.
    Undrained {
        /// The gateway.
        gateway: String,
    },
    /// Next hops were not as the watch left them, and were put right.
    Repaired {
        /// What was found.
        found: String,
    },
    /// Something could not be done; it is tried again.
    Failed {
        /// What, and why.
        message: String,
    },
    /// The watch ended; the routes stay as they are.
    Stopped,
}

impl WatchEventKind {
    /// Its name: the key `event`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Out { .. } => "out",
            Self::In { .. } => "in",
            Self::Rebalanced { .. } => "rebalanced",
            Self::KeptLast { .. } => "kept-last",
            Self::Silent { .. } => "silent",
            Self::Heard { .. } => "heard",
            Self::TargetChanged { .. } => "target-changed",
            Self::Drained { .. } => "drained",
            Self::Undrained { .. } => "undrained",
            Self::Repaired { .. } => "repaired",
            Self::Failed { .. } => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// The gateway whose next hops were changed; none where nothing was.
    pub fn changed_gateway(&self) -> Option<&str> {
        match self {
            Self::Out { gateway, .. } | Self::In { gateway, .. } | Self::Rebalanced { gateway, .. } => {
                Some(gateway)
            }
            _ => None,
        }
    }
}

/// From a host to a network, in one family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Way {
    /// The far network.
    pub network: String,
    /// The addresses.
    pub family: Family,
}

impl fmt::Display for Way {
    /// `storage IPv4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.network, self.family)
    }
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Why a gateway is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutReason {
    /// Far hosts answer through others and not through it.
    NoAnswer,
    /// The same, and it does not answer as a neighbour either.
    NoNeighbour,
    /// The same, and a routing daemon's BFD session with it is down.
    SessionDown,
    /// It loses a larger share of the probes than it may, and the others do not.
    Loss,
    /// It forwards UDP and not TCP.
    NoTcp,
    /// It forwards TCP and not UDP.
    NoUdp,
    /// The own interface to it is down.
    LinkDown,
    /// An operator drained it.
    Drained,
    /// It was out when the watch began and has not yet answered for long enough.
    FoundOut,
}

impl fmt::Display for OutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "far hosts answer through others and not through it",
            Self::NoNeighbour => "it forwards nothing and does not answer as a neighbour",
            Self::SessionDown => "it forwards nothing and its BFD session is down",
            Self::Loss => "it loses more of the probes than it may",
            Self::NoTcp => "it forwards UDP and not TCP",
            Self::NoUdp => "it forwards TCP and not UDP",
            Self::LinkDown => "the own interface to it is down",
            Self::Drained => "drained by an operator",
            Self::FoundOut => "it was out when the watch began",
        })
    }
}

/// What the kernel knows of a gateway as a neighbour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourWord {
    /// Its link address is known.
    Known,
    /// It is being looked for.
    #[default]
    Unknown,
    /// It did not answer.
    Failed,
}

/// How things stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchStatus {
    /// `clearstream.watch-status`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// The host that watches.
    pub host: String,
    /// Name of the fabric.
    pub fabric: String,
    /// Time since the watch began.
    pub running_ns: u64,
    /// Requests of other hosts that were answered.
    pub served_count: u64,
    /// Changes of next hops that the kernel took.
    pub change_count: u64,
    /// Changes of next hops that failed.
    pub failed_change_count: u64,
    /// Next hops that somebody else had changed and that were put right.
    pub repair_count: u64,
    /// The ways from here.
    pub ways: Vec<WayStatus>,
}

/// How one way stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WayStatus {
    /// The way.
    #[serde(flatten)]
    pub way: Way,
    /// Time between rounds while nothing fails.
    pub interval_ns: u64,
    /// Far hosts that are probed.
    pub targets: Vec<IpAddr>,
    /// Some far host answers.
    pub heard: bool,
    /// Some far host answers TCP probes, so that TCP is judged too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_heard: Option<bool>,
    /// The resilient group by which established flows go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupStatus>,
    /// The gateways, in the order of the fabric.
    pub gateways: Vec<GatewayStatus>,
}

/// How the resilient group of a path stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupStatus {
    /// Nexthop id.
    pub id: u32,
    /// Buckets in all.
    pub bucket_total: u32,
    /// Seconds without a route lookup after which a bucket may move.
    pub idle_seconds: u32,
    /// Seconds after which busy buckets move to a gateway that lacks some; 0 for never.
    pub unbalanced_seconds: u32,
}

/// How one gateway stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayStatus {
    /// Its name.
    pub name: String,
    /// Its address on this side.
    pub address: IpAddr,
    /// It is among the next hops.
    pub used: bool,
    /// An operator drained it.
    pub drained: bool,
    /// Why it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OutReason>,
    /// What the kernel knows of it as a neighbour.
    pub neighbour: NeighbourWord,
    /// What a routing daemon's BFD session says; absent when none was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_up: Option<bool>,
    /// The last round trip through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ns: Option<u64>,
    /// Share of the last probes (`loss-window`) that were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// Buckets of the resilient group that lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_count: Option<u32>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: GatewayCounts,
}

/// What was counted of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayCounts {
    /// Probes sent.
    pub sent_count: u64,
    /// Probes answered in time.
    pub answered_count: u64,
    /// Of the probes sent, those by TCP.
    #[serde(default)]
    pub tcp_sent_count: u64,
    /// Of the probes answered in time, those by TCP.
    #[serde(default)]
    pub tcp_answered_count: u64,
    /// Probes that were not answered, while others got answers from the same far host.
    pub lost_count: u64,
    /// Times that it was taken out.
    pub out_count: u64,
    /// Times that it was put back.
    pub in_count: u64,
}

/// What a running watch can be asked, one JSON document per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WatchRequest {
    /// How things stand.
    Status,
    /// Take a gateway out until it is undrained.
    Drain(String),
    /// End its draining.
    Undrain(String),
}

/// What it answers, one JSON document per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WatchReply {
    /// How things stand, after what was asked for is done.
    Status(WatchStatus),
    /// Why it was not done.
    Refused(String),
}
