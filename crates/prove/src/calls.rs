//! What a controller calls at the agents of a proof on the wire: which gateway the
//! kernel would choose, real flows from bound ports, what a gateway saw pass, path
//! MTU with a bound port.

use std::net::{IpAddr, SocketAddr};

use clearstream_control::{Call, Done};
use clearstream_schema::{control::Cookie, counters::HostCounters, proof::WireOutcome, scope::Right};
use serde::{Deserialize, Serialize};

/// Most lookups of one [`Lookup`]; so many fit into a frame.
pub const MOST_WIRE_LOOKUPS: usize = 32_768;
/// Most flows of one [`Connect`]; so many results fit into a frame.
pub const MOST_WIRE_FLOWS: usize = 5_000;
/// Most flows of one answer to [`Observed`].
pub const MOST_OBSERVED_FLOWS: usize = 2_000;
/// Most ports that one observation is for.
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
    /// Firewall mark that the packets carry, when they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// Source and destination port of each flow.
    pub ports: Vec<(u16, u16)>,
}

impl Call for Lookup {
    const NAME: &'static str = "route lookup";
    const NEEDS: Right = Right::Measure;
    type Reply = LookedUp;
}

/// Which gateway the kernel would choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Waits for flows of a proof and answers those that carry the cookie.
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

/// Where flows are waited for.
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
    /// How long a flow may take, connecting included, milliseconds.
    #[serde(rename = "patience_ms")]
    pub timeout_ms: u32,
    /// Flows at a time.
    pub at_once: u16,
}

impl Call for Connect {
    const NAME: &'static str = "route connect";
    const NEEDS: Right = Right::Measure;
    type Reply = Connected;
}

/// How the flows of a [`Connect`] went.
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
    /// How it went.
    pub outcome: WireOutcome,
    /// Time until it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<u64>,
}

/// Begins to count what passes this host, by flow and direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Ports of the listening side, TCP and UDP.
    pub ports: Vec<u16>,
    /// Interfaces; all when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// End by itself after this long.
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

/// What passed a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// That arrived.
    pub in_count: u32,
    /// That left again.
    pub out_count: u32,
}

/// Finds the path MTU to a listening prober from a bound UDP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// Address and UDP port to send from.
    pub source: SocketAddr,
    /// UDP address of the answering side ([`clearstream_probe::calls::Listen`]).
    pub destination: SocketAddr,
    /// Cookie of the answering side.
    pub cookie: Cookie,
    /// How long to wait for an answer to one packet, milliseconds.
    #[serde(rename = "patience_ms")]
    pub timeout_ms: u32,
}

impl Call for PathMtu {
    const NAME: &'static str = "route path-mtu";
    const NEEDS: Right = Right::Measure;
    type Reply = PathMtuFound;
}

/// What the search found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtuFound {
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

/// Reads what matters for routes: interfaces, MTU, forwarding, hash policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {}

impl Call for Facts {
    const NAME: &'static str = "route facts";
    const NEEDS: Right = Right::Measure;
    type Reply = HostRouteFacts;
}

/// What of a host matters for its routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Reads the interface and core counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {}

impl Call for Counters {
    const NAME: &'static str = "route counters";
    const NEEDS: Right = Right::Measure;
    type Reply = HostCounters;
}

/// Closes everything that was opened for a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {}

impl Call for Close {
    const NAME: &'static str = "route close";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}
