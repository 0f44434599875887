//! What the agents of a proof on the wire are asked, and what they answer:
//! which gateway the kernel would choose, real flows from bound ports, what a
//! gateway saw pass, path MTU with a bound port.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{control::Cookie, counters::HostCounters};

/// Most lookups of one [`RouteRequest::Lookup`]; so many fit into a frame.
pub const MOST_WIRE_LOOKUPS: usize = 32_768;
/// Most flows of one [`RouteRequest::Connect`]; so many results fit into a frame.
pub const MOST_WIRE_FLOWS: usize = 5_000;
/// Most flows of one answer to [`RouteRequest::Observed`].
pub const MOST_OBSERVED_FLOWS: usize = 2_000;
/// Most ports that one observation is for.
pub const MOST_OBSERVED_PORTS: usize = 100;

/// What an agent is asked about routes on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteRequest {
    /// Tell what matters for routes: interfaces, MTU, forwarding, hash policy.
    Facts,
    /// Ask the kernel which gateway flows would take; sends nothing.
    Lookup(FlowLookup),
    /// Wait for flows of a proof and answer those that carry the cookie.
    Listen(WireListen),
    /// Open flows from bound source ports and exchange a little data over each.
    Connect(WireFlows),
    /// Begin to count what passes this host, by flow and direction.
    Observe(WireObserve),
    /// Stop counting and tell; asked again while there is more.
    Observed,
    /// Read the interface and core counters.
    Counters,
    /// Find the path MTU to a listening prober from a bound UDP port.
    PathMtu(WirePathMtu),
    /// Close everything that was opened for a proof.
    Close,
}

/// Answer to a [`RouteRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteReply {
    /// Done; nothing to tell.
    Done,
    /// To `facts`.
    Facts(HostRouteFacts),
    /// To `lookup`: one entry per flow asked for, in order.
    LookedUp(LookedUp),
    /// To `listen`.
    Listening {
        /// Port, the same for every address.
        port: u16,
    },
    /// To `connect`: one entry per port, in order.
    Connected(Vec<WireFlowResult>),
    /// To `observed`.
    Observed(Observation),
    /// To `counters`.
    Counters(HostCounters),
    /// To `path-mtu`.
    PathMtu(WirePathMtuFound),
}

/// Transport protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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

/// Flows whose gateway is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowLookup {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol.
    pub protocol: WireProtocol,
    /// Firewall mark that the packets carry, when they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// Source and destination port of each flow.
    pub ports: Vec<(u16, u16)>,
}

/// Which gateway the kernel would choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LookedUp {
    /// Gateways that were chosen.
    pub gateways: Vec<IpAddr>,
    /// Per flow: place in `gateways`; absent where the kernel names none (no
    /// route, or the destination is on the link).
    pub choices: Vec<Option<u32>>,
    /// What the kernel said of the first flow that has no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

impl LookedUp {
    /// Gateway of a flow, by its place in the request.
    pub fn gateway(&self, flow: usize) -> Option<IpAddr> {
        let place = (*self.choices.get(flow)?)?;
        self.gateways.get(usize::try_from(place).ok()?).copied()
    }
}

/// Where flows are waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireListen {
    /// Addresses of this host.
    pub addresses: Vec<IpAddr>,
    /// Port; chosen by the kernel when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Cookie that flows must carry.
    pub cookie: Cookie,
}

/// Flows to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireFlows {
    /// Source address.
    pub source: IpAddr,
    /// Where the other agent listens.
    pub server: SocketAddr,
    /// Source port of each flow.
    pub ports: Vec<u16>,
    /// Cookie to carry.
    pub cookie: Cookie,
    /// How long a flow may take, connecting included, milliseconds.
    pub patience_ms: u32,
    /// Flows at a time.
    pub at_once: u16,
}

/// How a flow went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WireOutcome {
    /// Connected, and the answer came back.
    Answered,
    /// There was no time left for it.
    NotTried,
    /// The source port was taken: the flow was not tried.
    PortInUse,
    /// This host has no route (or a router said so).
    NoRoute,
    /// Somebody refused the connection.
    Refused,
    /// No answer to the connection request.
    NotConnected,
    /// Connected, but the answer did not come back.
    NotAnswered,
    /// Reset after it was connected.
    Reset,
}

/// One flow of a [`WireFlows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireFlowResult {
    /// Source port.
    pub port: u16,
    /// How it went.
    pub outcome: WireOutcome,
    /// Time until it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<u64>,
}

/// What is to be counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireObserve {
    /// Ports of the listening side, TCP and UDP.
    pub ports: Vec<u16>,
    /// Interfaces; all when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// End by itself after this long.
    pub seconds: u32,
}

/// What passed a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// One entry per flow seen.
    pub flows: Vec<ObservedFlow>,
    /// Packets that the kernel could not hand over: their flows may be missing.
    pub lost_count: u64,
    /// Set when there were more flows than are kept.
    #[serde(default)]
    pub truncated: bool,
    /// Set when the next question will give further flows.
    #[serde(default)]
    pub more: bool,
}

/// Packets of one flow at one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedFlow {
    /// Who connected.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Passed {
    /// That arrived.
    pub in_count: u32,
    /// That left again.
    pub out_count: u32,
}

/// A search for the path MTU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WirePathMtu {
    /// Address and UDP port to send from.
    pub source: SocketAddr,
    /// UDP address of the answering side ([`crate::control::Request::ProbeListen`]).
    pub destination: SocketAddr,
    /// Cookie of the answering side.
    pub cookie: Cookie,
    /// How long to wait for an answer to one packet, milliseconds.
    pub patience_ms: u32,
}

/// What the search found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WirePathMtuFound {
    /// Largest IP packet that passed; absent when nothing came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<u32>,
    /// MTU that the host believed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_bytes: Option<u32>,
    /// Smallest MTU that a router told by ICMP on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_bytes: Option<u32>,
}

/// What of a host matters for its routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostRouteFacts {
    /// Interfaces of the namespace.
    pub interfaces: Vec<InterfaceFacts>,
    /// Sysctls by dotted name, as far as they are there: forwarding, hash
    /// policy, reverse path filters.
    pub sysctls: std::collections::BTreeMap<String, String>,
    /// Random name of the kernel's run: equal on hosts of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceFacts {
    /// Name.
    pub name: String,
    /// MTU.
    pub mtu_bytes: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Rate that its driver tells; absent where it tells none (veth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
}

impl HostRouteFacts {
    /// The interface that has an address.
    pub fn interface_of(&self, address: IpAddr) -> Option<&InterfaceFacts> {
        self.interfaces.iter().find(|interface| interface.addresses.contains(&address))
    }
}
