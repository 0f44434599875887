//! Calls to the agents of a verification: route lookups, real flows from bound ports,
//! flows observed at a gateway, path MTU from a bound port.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::document::WireOutcome;
use clearstream_control::{Call, Done, MARGIN};
use clearstream_schema::{control::Cookie, counters::HostCounters, prefix::Prefix, scope::Right};
use serde::{Deserialize, Serialize};

/// Maximum number of lookups per [`Lookup`]: what fits into a frame.
pub const MOST_WIRE_LOOKUPS: usize = 32_768;
/// Maximum number of flows per [`Connect`]: what fits into a frame.
pub const MOST_WIRE_FLOWS: usize = 5_000;
/// Maximum number of flows per reply to [`Observed`].
pub const MOST_OBSERVED_FLOWS: usize = 2_000;
/// Maximum number of ports of an observation.
pub const MOST_OBSERVED_PORTS: usize = 100;

/// Transport protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireProtocol {
    /// 6.
    Tcp,
    /// 17.
    Udp,
}

impl WireProtocol {
    /// Number of the protocol (IANA).
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Queries the kernel which gateway flows would take; sends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol.
    pub protocol: WireProtocol,
    /// Firewall mark of the packets, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// Source and destination port of each flow.
    pub ports: Vec<(u16, u16)>,
    /// Interface of arrival: the host forwards the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Also name the route or rule that decides over the first flow.
    #[serde(default)]
    pub explain: bool,
}

impl Call for Lookup {
    const NAME: &'static str = "route lookup";
    const NEEDS: Right = Right::Measure;
    type Reply = LookupResult;
}

/// Gateways that the kernel would choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupResult {
    /// Gateways that were chosen.
    pub gateways: Vec<IpAddr>,
    /// Per flow: index in `gateways`; absent where the kernel names none (no
    /// route, or the destination is on the link).
    pub choices: Vec<Option<u32>>,
    /// The kernel's error for the first flow without a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// What decides over the first flow, where that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// The route or rule by which packets go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// In the syntax of `ip`; empty where it is not known.
    pub what: String,
    /// Who made it: `proto dhcp`.
    pub owner: String,
    /// How it is removed.
    pub removal: String,
    /// Destination of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Prefix>,
    /// A rule leads to its table, or is what decides.
    #[serde(default)]
    pub is_rule: bool,
    /// Gateways of the route with their weights, in its order.
    pub gateways: Vec<(IpAddr, u16)>,
    /// Buckets of a resilient group by gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(IpAddr, u32)>,
    /// Seconds after which idle buckets, and busy ones of an unbalanced group, move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_after_seconds: Option<(u32, u32)>,
    /// How long the group has been unbalanced.
    #[serde(default)]
    pub unbalanced_for_seconds: u64,
    /// The kernel's error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Where packets go instead that have a mark, a line for each rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_mark: Vec<String>,
}

impl LookupResult {
    /// Gateway of a flow, by its index in the request.
    pub fn gateway(&self, flow: usize) -> Option<IpAddr> {
        let place = (*self.choices.get(flow)?)?;
        self.gateways.get(usize::try_from(place).ok()?).copied()
    }
}

/// Listens for flows of a verification and responds to those that carry the cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// Addresses of this host.
    pub addresses: Vec<IpAddr>,
    /// Port; chosen by the kernel when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Cookie that flows must carry.
    pub cookie: Cookie,
}

impl Call for Listen {
    const NAME: &'static str = "route listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// The listening port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Port, the same for every address.
    pub port: u16,
}

/// Opens flows from bound source ports and exchanges a little data over each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// Source address.
    pub source: IpAddr,
    /// Where the other agent listens.
    pub server: SocketAddr,
    /// Source port of each flow.
    pub ports: Vec<u16>,
    /// Cookie to carry.
    pub cookie: Cookie,
    /// Timeout of a flow, connecting included, milliseconds.
    #[serde(rename = "patience_ms")]
    pub timeout_ms: u32,
    /// Maximum number of concurrent flows.
    pub at_once: u16,
}

impl Call for Connect {
    const NAME: &'static str = "route connect";
    const NEEDS: Right = Right::Measure;
    type Reply = Connected;

    fn reply_within(&self) -> Duration {
        // The agent opens flows for a minute at most.
        const FLOWS_MOST: Duration = Duration::from_secs(60);
        let turns = self.ports.len().div_ceil(usize::from(self.at_once.max(1)));
        let timeout = Duration::from_millis(self.timeout_ms.into());
        timeout.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX)).min(FLOWS_MOST) + MARGIN
    }
}

/// Outcomes of the flows of a [`Connect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// One entry per port, in order.
    pub results: Vec<ConnectResult>,
}

/// One flow of a [`Connect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectResult {
    /// Source port.
    pub port: u16,
    /// Outcome.
    pub outcome: WireOutcome,
    /// Time until it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<u64>,
}

/// Starts to count the packets that pass this host, by flow and direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Ports of the listening side, TCP and UDP.
    pub ports: Vec<u16>,
    /// Interfaces; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Maximum duration.
    pub seconds: u32,
}

impl Call for Observe {
    const NAME: &'static str = "route observe";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Stops counting and reports; called again while there is more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {}

impl Call for Observed {
    const NAME: &'static str = "route observed";
    const NEEDS: Right = Right::Measure;
    type Reply = Observation;
}

/// Flows observed at a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// One entry per flow seen.
    pub flows: Vec<ObservedFlow>,
    /// Packets that the kernel could not hand over: their flows may be missing. Absent if it does
    /// not say how many.
    pub lost_count: Option<u64>,
    /// Set when the limit of flows was exceeded.
    #[serde(default)]
    pub truncated: bool,
    /// Set when the next call will return further flows.
    #[serde(default)]
    pub more: bool,
}

/// Packets of one flow at one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedFlow {
    /// The connecting side.
    pub client: SocketAddr,
    /// The listening side.
    pub server: SocketAddr,
    /// Protocol.
    pub protocol: WireProtocol,
    /// Packets from client to server.
    pub forward: Passed,
    /// Packets from server to client.
    pub reply: Passed,
}

/// Packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Received.
    pub in_count: u32,
    /// Sent.
    pub out_count: u32,
}

/// Finds the path MTU to a listening prober from a bound UDP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// Address and UDP port to send from.
    pub source: SocketAddr,
    /// UDP address of the responding side ([`clearstream_probe::calls::Listen`]).
    pub destination: SocketAddr,
    /// Cookie of the responding side.
    pub cookie: Cookie,
    /// Timeout for the response to one packet, milliseconds.
    #[serde(rename = "patience_ms")]
    pub timeout_ms: u32,
}

impl Call for PathMtu {
    const NAME: &'static str = "route path-mtu";
    const NEEDS: Right = Right::Measure;
    type Reply = PathMtuFound;

    fn reply_within(&self) -> Duration {
        // Half of the steps of the search wait for what never comes.
        Duration::from_millis(self.timeout_ms.into()) * 24 + MARGIN
    }
}

/// Result of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtuFound {
    /// Largest IP packet that passed; absent without any response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<u32>,
    /// MTU that the host had cached before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_bytes: Option<u32>,
    /// Smallest MTU reported by ICMP.
    #[serde(rename = "told_bytes", default, skip_serializing_if = "Option::is_none")]
    pub icmp_bytes: Option<u32>,
}

/// Reads the routing-related state: interfaces, MTU, forwarding, hash policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {}

impl Call for Facts {
    const NAME: &'static str = "route facts";
    const NEEDS: Right = Right::Measure;
    type Reply = HostRouteFacts;
}

/// Routing-related state of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRouteFacts {
    /// Interfaces of the namespace.
    pub interfaces: Vec<InterfaceFacts>,
    /// Sysctls by dotted name, where they exist: forwarding, hash
    /// policy, reverse path filters.
    pub sysctls: std::collections::BTreeMap<String, String>,
    /// Random name of the kernel's run: equal on hosts of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Name.
    pub name: String,
    /// MTU.
    pub mtu_bytes: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Link rate from its driver; absent where it has none (veth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
}

impl HostRouteFacts {
    /// The interface that has an address.
    pub fn interface_of(&self, address: IpAddr) -> Option<&InterfaceFacts> {
        self.interfaces.iter().find(|interface| interface.addresses.contains(&address))
    }
}

/// Reads the interface and core counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {}

impl Call for Counters {
    const NAME: &'static str = "route counters";
    const NEEDS: Right = Right::Measure;
    type Reply = HostCounters;
}

/// Closes everything that was opened for a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {}

impl Call for Close {
    const NAME: &'static str = "route close";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}
