//! A lab: network namespaces and links on one machine that emulate hosts
//! and a WAN. This is the file in `labs/`.

use std::net::IpAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BitRate, TimeSpan};

/// Name of the format.
pub const LAB_SCHEMA: &str = "clearstream.lab";

/// A lab file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabFile {
    /// `clearstream.lab`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name, also of the running lab: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Hosts and routers.
    #[serde(rename = "host")]
    pub hosts: Vec<LabHost>,
    /// Links between two of them.
    #[serde(default, rename = "link")]
    pub links: Vec<LabLink>,
    /// Switches, each with a network of many hosts.
    #[serde(default, rename = "switch", skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<LabSwitch>,
}

impl LabFile {
    /// Every end, those of the links first, then those of the switches.
    pub fn ends(&self) -> impl Iterator<Item = &LinkEnd> {
        let links = self.links.iter().flat_map(|link| &link.ends);
        links.chain(self.switches.iter().flat_map(|switch| &switch.ends))
    }

    /// Rate of the only link, where there is one and it has a rate.
    pub fn line_rate(&self) -> Option<BitRate> {
        match self.links.as_slice() {
            [link] => link.rate,
            _ => None,
        }
    }
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabHost {
    /// Name, resolvable inside the lab.
    pub name: String,
    /// Forwards packets between its links.
    #[serde(default)]
    pub router: bool,
    /// Routes: destination prefix (or `default`) and gateway address.
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LabRoute>,
    /// Congestion control that connections start with. It is set on the routes,
    /// since a namespace may only choose from the machine's
    /// `net.ipv4.tcp_allowed_congestion_control` (default: the machine's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Sysctls of the namespace, `net.ipv4.tcp_rmem = "4096 131072 6291456"`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub sysctls: std::collections::BTreeMap<String, String>,
    /// Programs that run on it while the lab is up, in the order in which they start.
    #[serde(default, rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<LabService>,
}

/// A program that runs on a host as long as the lab is up, in the foreground. In its command and files
/// `{folder}` is a folder of its own, `{shared}` one of all services, and `{mounts}` the folder of the mount
/// points, where every host sees mounts of its own. It is ready when every condition given is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabService {
    /// Name, unique on its host.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Debian package that has the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Files of its folder: name and text.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub files: std::collections::BTreeMap<String, String>,
    /// Ready when this port of the host accepts TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_port: Option<u16>,
    /// Ready when a file system is mounted on `{mounts}/MOUNT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Ready when this program, which is repeated, ends with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Vec<String>>,
}

/// A route of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabRoute {
    /// `10.1.0.0/24` or `default`.
    pub to: String,
    /// Gateway.
    pub via: IpAddr,
}

/// Mechanism that delays the packets of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkBackend {
    /// veth when the link is ideal, else our delay line.
    #[default]
    Auto,
    /// A plain veth pair: no delay, rate, jitter or loss.
    Veth,
    /// Our delay line in user space.
    DelayLine,
    /// The kernel's netem on a veth pair, where it exists.
    Netem,
}

/// A link between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabLink {
    /// The two ends.
    pub ends: [LinkEnd; 2],
    /// One-way delay, the same in both directions.
    #[serde(default)]
    pub delay: TimeSpan,
    /// Jitter: each packet's delay varies uniformly within ± this value, without reordering.
    #[serde(default)]
    pub jitter: TimeSpan,
    /// Fraction of packets lost, 0 to 1.
    #[serde(default)]
    pub loss_ratio: f64,
    /// Rate of each direction (default: unlimited).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Queue in front of the rate limit, in time at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<TimeSpan>,
    /// MTU of both ends.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Drop longer packets without an ICMP error, as a path with a smaller MTU and
    /// an ICMP filter does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub black_hole_above: Option<u32>,
    /// Seed of losses and jitter.
    #[serde(default)]
    pub seed: u64,
    /// Mechanism of the delay.
    #[serde(default)]
    pub backend: LinkBackend,
    /// Join received segments (`rx-gro`) on a veth link; a delay line passes
    /// joined packets through anyway.
    #[serde(default = "default_gro")]
    pub gro: bool,
}

fn default_mtu() -> u32 {
    9000
}

fn default_gro() -> bool {
    true
}

impl LabLink {
    /// Whether the link changes nothing about a packet.
    pub fn is_ideal(&self) -> bool {
        self.delay.0 == 0
            && self.jitter.0 == 0
            && self.loss_ratio == 0.0
            && self.rate.is_none()
            && self.black_hole_above.is_none()
    }

    /// The backend in effect: `auto` takes a veth pair for an ideal link and the
    /// delay line otherwise, never netem.
    pub fn effective_backend(&self) -> LinkBackend {
        match self.backend {
            LinkBackend::Auto if self.is_ideal() => LinkBackend::Veth,
            LinkBackend::Auto => LinkBackend::DelayLine,
            chosen => chosen,
        }
    }
}

/// A learning switch: hosts on it reach each other as on one Ethernet. What
/// becomes of a port behind it does not show as carrier on the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabSwitch {
    /// Name, no host's: letters, digits and `-`.
    pub name: String,
    /// Its ports, in order: interfaces of hosts.
    pub ends: Vec<LinkEnd>,
    /// MTU of all of them, bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Join received segments (`rx-gro`) on the hosts' interfaces.
    #[serde(default = "default_gro")]
    pub gro: bool,
}

/// One end of a link, or one port of a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkEnd {
    /// Host name.
    pub host: String,
    /// Interface name inside the host.
    pub interface: String,
    /// Addresses with prefix length: `10.0.0.1/24`, `fd00::1/64`.
    pub addresses: Vec<String>,
    /// Steer received packets to these cores (`rps_cpus`): a movable interrupt core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_cores: Option<crate::CoreList>,
}

/// Counters of the delay line for one direction.
///
/// A *packet* is what crosses the delay line: with segmentation offload it
/// represents several packets on the wire, called *segments*.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayLineStats {
    /// Number of the link in the lab file, from 0.
    #[serde(default)]
    pub link: u64,
    /// Host that sends in this direction.
    #[serde(default)]
    pub from: String,
    /// Host that receives.
    #[serde(default)]
    pub to: String,
    /// Packets (segments joined by offload count once) passed on.
    pub passed_count: u64,
    /// Segments accepted from the sending host.
    #[serde(default)]
    pub passed_segment_count: u64,
    /// Bytes passed on, from the IP header.
    pub passed_bytes: u64,
    /// Segments dropped by the loss model.
    pub lost_count: u64,
    /// Segments dropped because the modelled queue was full.
    pub overflow_count: u64,
    /// Segments dropped because the delay line itself was behind: waiting for
    /// it and for the modelled wire together exceeded the queue.
    #[serde(default)]
    pub relay_dropped_count: u64,
    /// Packets dropped in front of the delay line: by the sending interface (its
    /// `tx_dropped`), or where the kernel holds packets by a queue of it.
    #[serde(default)]
    pub front_dropped_count: u64,
    /// Packets that the receiving host did not take (interface down).
    #[serde(default)]
    pub refused_count: u64,
    /// Lateness against the scheduled release time: median.
    pub late_p50_ns: u64,
    /// 99th percentile.
    pub late_p99_ns: u64,
    /// Largest.
    pub late_max_ns: u64,
    /// Longest time a packet may have waited before the delay line saw it:
    /// median. It adds to the delay of a line that copies packets (then it is the
    /// time since its device was last seen empty), not of one whose packets the
    /// kernel holds and stamps.
    #[serde(default)]
    pub unseen_p50_ns: u64,
    /// 99th percentile.
    #[serde(default)]
    pub unseen_p99_ns: u64,
    /// Largest.
    #[serde(default)]
    pub unseen_max_ns: u64,
    /// Fraction of the time with traffic in which the delay line's thread worked,
    /// 0 to 1; both directions of a link share the thread. Absent without traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ratio: Option<f64>,
    /// The delay line, not the path it models, was the limit: it dropped
    /// packets, was late by more than [`LATENESS_LIMIT_NS`] in the median or
    /// [`LATENESS_P99_LIMIT_NS`] for one packet in a hundred, or worked for at
    /// least [`BUSY_LIMIT_RATIO`] of the time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relay_limited: bool,
}

/// Median lateness above which a delay line counts as the limit of a
/// measurement: a healthy one is late by some tens of microseconds.
pub const LATENESS_LIMIT_NS: u64 = 1_000_000;
/// The same for the 99th percentile: a line whose thread is kept from its core
/// releases most packets in time when it runs, and stretches every round trip
/// in which it does not.
pub const LATENESS_P99_LIMIT_NS: u64 = 10_000_000;
/// Busy share from which a delay line counts as the limit of a measurement.
pub const BUSY_LIMIT_RATIO: f64 = 0.9;

/// Id of the notice of a measurement whose limit was a delay line.
pub const DELAY_LINE_LIMIT_NOTICE: &str = "delay-line-limit";

impl DelayLineStats {
    /// Whether the delay line was the limit, from the other fields.
    pub fn exceeds_relay_limits(&self) -> bool {
        self.relay_dropped_count > 0
            || self.front_dropped_count > 0
            || self.late_p50_ns > LATENESS_LIMIT_NS
            || self.late_p99_ns > LATENESS_P99_LIMIT_NS
            || self.busy_ratio.is_some_and(|ratio| ratio >= BUSY_LIMIT_RATIO)
    }
}

/// Faults that can be injected into a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Drops all packets in both directions without notification: the carrier stays up.
    Cut,
    /// The host's interface loses its carrier.
    LinkDown,
    /// The host responds for itself (ARP, ping) and forwards nothing.
    NoForwarding,
}

/// A fault of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LabFault {
    /// Host that has it.
    pub host: String,
    /// Interface of the host (default: all of them).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Reason.
    pub kind: FaultKind,
}
