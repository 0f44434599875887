//! Events and status of the watch over gateways.

use std::{fmt, net::IpAddr};

use crate::JsonSchema;
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
    /// Time, RFC 3339 in UTC.
    pub time: String,
    /// The host that watches.
    pub host: String,
    /// The event.
    #[serde(flatten)]
    pub event: WatchEventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum WatchEventKind {
    /// The watch started.
    Started {
        /// The monitored paths.
        #[serde(rename = "ways")]
        paths: Vec<PathStatus>,
    },
    /// A gateway was withdrawn from the next hops.
    Out {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
        /// The gateway.
        gateway: String,
        /// Cause.
        reason: OutReason,
        /// Gateways that are left.
        left_count: u32,
        /// From the first probe that failed to the kernel's acknowledgement of the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ns: Option<u64>,
    },
    /// A gateway was restored.
    In {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
        /// The gateway.
        gateway: String,
        /// Gateways that are used now.
        used_count: u32,
    },
    /// A restored gateway has the buckets of its weight in the resilient
    /// groups, and sockets repeat their route lookups.
    Rebalanced {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
        /// The gateway.
        gateway: String,
        /// Buckets that it has now.
        bucket_count: u32,
        /// Buckets in all.
        bucket_total: u32,
        /// From its return until it had them.
        delay_ns: u64,
    },
    /// A gateway is faulty, but it is the last one and stays in use.
    KeptLast {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
        /// The gateway.
        gateway: String,
        /// The fault.
        reason: OutReason,
    },
    /// No remote host responds through any gateway; the next hops stay unchanged.
    Silent {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
    },
    /// Remote hosts respond through some gateway after [`Self::Silent`].
    #[serde(rename = "heard")]
    Reachable {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
    },
    /// Another remote host is probed instead of one.
    TargetChanged {
        /// The path.
        #[serde(flatten)]
        path: NetworkPath,
        /// The target given up.
        from: IpAddr,
        /// The target probed instead.
        to: IpAddr,
        /// Cause.
        #[serde(default)]
        reason: TargetReason,
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
    /// Next hops were changed from outside, and were repaired.
    Repaired {
        /// The deviation.
        found: String,
    },
    /// Next hops or routes of this host, or addresses that they depend on, are not in effect any more.
    Lost {
        /// Which.
        what: String,
        /// Why they are not restored at once.
        reason: String,
    },
    /// Another program's object is in the place of one of this host's plan. It stays there; the own one is installed when
    /// it goes.
    Held {
        /// What is not installed.
        what: String,
        /// Owner, by its protocol, and what it has there.
        holder: String,
    },
    /// They are again.
    Restored {
        /// Which.
        what: String,
    },
    /// An operation failed; it is retried.
    Failed {
        /// The operation and the error.
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
            Self::Reachable { .. } => "heard",
            Self::TargetChanged { .. } => "target-changed",
            Self::Drained { .. } => "drained",
            Self::Undrained { .. } => "undrained",
            Self::Repaired { .. } => "repaired",
            Self::Lost { .. } => "lost",
            Self::Held { .. } => "held",
            Self::Restored { .. } => "restored",
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

/// A monitored path: from this host to a network, in one address family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NetworkPath {
    /// The remote network.
    pub network: String,
    /// The addresses.
    pub family: Family,
}

impl fmt::Display for NetworkPath {
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

/// Reason for the withdrawal of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutReason {
    /// Remote hosts respond through others and not through it.
    NoAnswer,
    /// The same, and it does not respond to ARP or neighbour discovery either.
    NoNeighbour,
    /// The same, and a routing daemon's BFD session with it is down.
    SessionDown,
    /// It loses a larger share of the probes than it may, and the others do not.
    Loss,
    /// It forwards UDP and not TCP.
    NoTcp,
    /// It forwards TCP and not UDP.
    NoUdp,
    /// It forwards small packets and not those as large as the path takes.
    NoLarge,
    /// It does not forward the packets of some ports.
    SomePorts,
    /// The own interface to it is down.
    LinkDown,
    /// An operator drained it.
    Drained,
    /// It was out when the watch started and has not yet responded for long enough.
    FoundOut,
}

impl fmt::Display for OutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "remote hosts respond through others and not through it",
            Self::NoNeighbour => "it forwards nothing and does not respond to neighbour discovery",
            Self::SessionDown => "it forwards nothing and its BFD session is down",
            Self::Loss => "it loses more of the probes than it may",
            Self::NoTcp => "it forwards UDP and not TCP",
            Self::NoUdp => "it forwards TCP and not UDP",
            Self::NoLarge => "it forwards small packets and not large ones",
            Self::SomePorts => "it drops the packets of some ports",
            Self::LinkDown => "the own interface to it is down",
            Self::Drained => "drained by an operator",
            Self::FoundOut => "it was out when the watch began",
        })
    }
}

/// Reason for probing another remote host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetReason {
    /// It does not respond through any gateway.
    #[default]
    Silent,
    /// No watch runs there, and one does on the other.
    NoWatch,
}

/// Neighbour table state of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourState {
    /// Its link address is known.
    Known,
    /// Neighbour discovery is in progress.
    #[default]
    Unknown,
    /// It did not respond.
    Failed,
}

/// Status of a watch.
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
    /// Time since the watch started.
    pub running_ns: u64,
    /// Requests of other hosts that were served.
    pub served_count: u64,
    /// Changes of next hops that the kernel took.
    pub change_count: u64,
    /// Changes of next hops that failed.
    pub failed_change_count: u64,
    /// Next hops that were changed from outside and were repaired.
    pub repair_count: u64,
    /// Next hops and routes that were not in effect any more and were restored.
    pub restored_count: u64,
    /// The paths from this host.
    #[serde(rename = "ways")]
    pub paths: Vec<PathStatus>,
}

/// Status of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    /// The path.
    #[serde(flatten)]
    pub path: NetworkPath,
    /// Time between rounds while nothing fails.
    pub interval_ns: u64,
    /// Remote hosts that are probed.
    pub targets: Vec<IpAddr>,
    /// What `route apply` installed for it is in effect.
    pub installed: bool,
    /// What is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingObject>,
    /// Some remote host responds.
    #[serde(rename = "heard")]
    pub reachable: bool,
    /// Some remote host responds to TCP probes, so that TCP is judged too.
    #[serde(default, rename = "tcp_heard", skip_serializing_if = "Option::is_none")]
    pub tcp_reachable: Option<bool>,
    /// Remote hosts that respond to TCP probes; with fewer than two, TCP is judged by one host or not at all.
    #[serde(default)]
    pub tcp_target_count: u32,
    /// Remote hosts that respond to large probes.
    #[serde(default)]
    pub large_target_count: u32,
    /// Size of a large probe in bytes of layer 3: that of the largest packet of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_bytes: Option<u32>,
    /// The resilient group by which established flows go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupStatus>,
    /// The gateways, in the order of the fabric.
    pub gateways: Vec<GatewayStatus>,
}

/// An object of a plan that is not in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MissingObject {
    /// Which.
    pub what: String,
    /// Who is in its place, by protocol, and what it has there; absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// Status of the resilient group of a path.
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

/// Status of one gateway.
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
    /// Reason for its withdrawal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OutReason>,
    /// Neighbour table state.
    pub neighbour: NeighbourState,
    /// State of a routing daemon's BFD session; absent when none was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_up: Option<bool>,
    /// The last round trip through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ns: Option<u64>,
    /// Fraction of the last probes (`loss-window`) that were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// Buckets of the resilient group that lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_count: Option<u32>,
    /// Counters.
    #[serde(flatten)]
    pub counts: GatewayCounts,
}

/// Counters of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayCounts {
    /// Probes sent.
    pub sent_count: u64,
    /// Probes with a response in time.
    pub answered_count: u64,
    /// Of the probes sent, those by TCP.
    #[serde(default)]
    pub tcp_sent_count: u64,
    /// Of the probes with a response in time, those by TCP.
    #[serde(default)]
    pub tcp_answered_count: u64,
    /// Probes without a response, while others got responses from the same remote host.
    pub lost_count: u64,
    /// Times that it was withdrawn.
    pub out_count: u64,
    /// Times that it was restored.
    pub in_count: u64,
}

/// Request to a running watch, one JSON document per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WatchRequest {
    /// Status of a watch.
    Status,
    /// Drain a gateway: withdraw it until it is undrained.
    Drain(String),
    /// End its draining.
    Undrain(String),
}

/// Reply of a running watch, one JSON document per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WatchReply {
    /// Status after the request was executed.
    Status(WatchStatus),
    /// The request was rejected, with the reason.
    Refused(String),
}
