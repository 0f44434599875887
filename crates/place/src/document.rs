//! Placement: rankings of cores, placements of queues and processes, and
//! source ports that steer flows to queues.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::plan::Plan;

/// Name of the document of a ranking.
pub const RANKING_SCHEMA: &str = "clearstream.ranking";
/// Name of the document of a placement.
pub const PLACEMENT_SCHEMA: &str = "clearstream.placement";
/// Name of the document of steered ports.
pub const PORTS_SCHEMA: &str = "clearstream.ports";

/// Purpose of a core.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The interrupts of the interface and the softirqs after them.
    Interrupt,
    /// The thread that reads from the socket.
    Reader,
    /// The thread that writes to the socket.
    Writer,
}

/// Position of a core relative to the core that it works with: the interrupt core
/// for readers and writers, the interface for interrupts. Best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Closeness {
    /// Another physical core behind the same last-level cache.
    SharedCache,
    /// Another physical core of the same node.
    SameNode,
    /// The same core: cache-warm, but both jobs share its cycles.
    SameCore,
    /// An SMT sibling of the same core: shares its execution units.
    Sibling,
    /// Another node.
    OtherNode,
}

/// A core in its place of a ranking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankedCore {
    /// Core.
    pub core: u32,
    /// Position.
    pub closeness: Closeness,
    /// NUMA node, where the host reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Package, where the host reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<u32>,
    /// Node distance to the one it works with (10 is local).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<u32>,
    /// Hops from its node to the interface's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<u32>,
    /// Reason for its rank.
    pub reason: String,
}

/// A core that is in no ranking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedCore {
    /// Core.
    pub core: u32,
    /// Cause.
    pub reason: String,
}

/// Cores for one role, best first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleRanking {
    /// Role.
    pub role: Role,
    /// Cores.
    pub cores: Vec<RankedCore>,
}

/// Cores to use for an interface, best first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// [`RANKING_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Host name.
    pub host: String,
    /// Interface.
    pub interface: String,
    /// NUMA node of the interface, where the host reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Interrupt core that readers and writers are ranked against.
    pub interrupt_core: u32,
    /// Source of the value.
    pub interrupt_core_from: String,
    /// One ranking per role.
    pub roles: Vec<RoleRanking>,
    /// Cores left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ExcludedCore>,
    /// Facts that could not be determined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Mechanism that distributes packets over cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadMethod {
    /// The card: one interrupt per queue (RSS).
    Queues,
    /// The kernel: one set of cores per queue (RPS).
    Software,
}

/// A receive queue in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueuePlacement {
    /// Queue.
    pub queue: u32,
    /// Its interrupt; absent where the interface has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<u32>,
    /// Cores that process its packets.
    pub cores: Vec<u32>,
}

/// A flow in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPlacement {
    /// Flow.
    pub flow: u32,
    /// Queue that should take its packets.
    pub queue: u32,
    /// Core of the reading thread when this host receives.
    pub reader_core: u32,
    /// Core of the writing thread when this host sends.
    pub writer_core: u32,
}

/// Queues, interrupts and processes of one interface in their places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// [`PLACEMENT_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Interface.
    pub interface: String,
    /// NUMA node of the interface, where the host reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Mechanism that distributes packets over cores.
    pub method: SpreadMethod,
    /// Queues.
    pub queues: Vec<QueuePlacement>,
    /// Flows.
    pub flows: Vec<FlowPlacement>,
    /// NUMA node to allocate buffers on, where the host reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
    /// The line that keeps irqbalance off these interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irqbalance_ban: Option<String>,
    /// The changes.
    pub plan: Plan,
}

/// A flow and the source port found for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredFlow {
    /// Flow.
    pub flow: u32,
    /// Its source port.
    pub source_port: u16,
    /// Receive queue that its data lands on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_queue: Option<u32>,
    /// Hash that the receiver's card computes, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_hash: Option<String>,
    /// Interrupt core of that queue, where one stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_core: Option<u32>,
    /// Queue at the sender that its acknowledgements land on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledgement_queue: Option<u32>,
    /// Path or member of an aggregate that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_member: Option<u32>,
    /// Ports tried.
    pub tried_count: u32,
}

/// Source ports that steer flows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredPorts {
    /// [`PORTS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Address of the sender.
    pub source: String,
    /// Address and port of the receiver.
    pub destination: String,
    /// Interface of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Flows.
    pub flows: Vec<SteeredFlow>,
    /// Facts that could not be determined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Core that processed a steered flow's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandedFlow {
    /// Flow.
    pub flow: u32,
    /// Receive queue requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_queue: Option<u32>,
    /// Receive queue that took its packets, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_queue: Option<u32>,
    /// Core that took its packets (`SO_INCOMING_CPU`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_core: Option<u32>,
    /// They are the same; absent when it cannot be determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// Evidence for it.
    pub evidence: String,
}

/// Result of steering for a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeringReport {
    /// Ports requested.
    pub ports: SteeredPorts,
    /// Receive queues of the flows.
    pub landed: Vec<LandedFlow>,
}
