//! Proof of a fabric's routes on the wire: what real flows did.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    fabric::{HashPolicy, ReturnPath},
    flow::Notice,
    tune::Severity,
};

/// Name of the format.
pub const ROUTE_PROOF_SCHEMA: &str = "clearstream.route-proof";

/// What real flows through the gateways of a fabric did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteProof {
    /// [`ROUTE_PROOF_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the fabric.
    pub fabric: String,
    /// The conclusion.
    pub verdict: ProofVerdict,
    /// One entry per route of the fabric and address family.
    pub crossings: Vec<CrossingProof>,
    /// What is not as the fabric says, gravest first.
    pub findings: Vec<ProofFinding>,
    /// What was left out or could not be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// How long it took.
    pub duration_ns: u64,
}

/// The conclusion of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofVerdict {
    /// Everything was seen to be as the fabric says.
    Proven,
    /// Nothing wrong was seen, but not everything could be looked at.
    Incomplete,
    /// Something is not as the fabric says.
    Failed,
}

/// A route of the fabric, one address family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossingProof {
    /// Networks: the clients' and the servers'.
    pub between: [String; 2],
    /// Whether it is the IPv6 part.
    pub ipv6: bool,
    /// Return path of the plan.
    pub return_path: ReturnPath,
    /// Whether that return path promises symmetry.
    pub symmetry_promised: bool,
    /// Hash policy of the plan.
    pub hash_policy: HashPolicy,
    /// Flows opened to see the shares.
    pub flow_count: u64,
    /// Of all flows, those whose answer came back.
    pub answered_count: u64,
    /// Flows opened beside, so that every pair of hosts used every gateway.
    pub targeted_count: u64,
    /// Flows seen in both directions, by which symmetry is judged.
    pub judged_count: u64,
    /// Of these, flows that returned by another gateway.
    pub asymmetric_count: u64,
    /// Share of asymmetric flows that the return path leads to expect:
    /// `1 - sum of squared weights` for none, else 0.
    pub asymmetric_expected_ratio: f64,
    /// Flows whose gateway was the one that the kernel's lookup named, and all
    /// that could be compared.
    pub predicted_count: [u64; 2],
    /// Shares of the gateways against the weights; absent where nothing is hashed per flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_fit: Option<ShareFit>,
    /// The same of the replies; absent where they are to follow the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_fit: Option<ShareFit>,
    /// Shares of the gateways by what the clients' kernels say of flows that
    /// nobody opened: many more than are opened, so that chance decides less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_forward_fit: Option<ShareFit>,
    /// The same of replies, by the servers' kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_reply_fit: Option<ShareFit>,
    /// Whether source ports were chosen by the kernels' word so that requests
    /// fall to the gateways by their weights.
    #[serde(default)]
    pub even: bool,
    /// One entry per gateway.
    pub gateways: Vec<GatewayProof>,
    /// One entry per pair of hosts.
    pub pairs: Vec<PairProof>,
    /// One entry per flow.
    pub flows: Vec<FlowPath>,
}

/// Pearson's chi-square test of shares against weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareFit {
    /// Flows that were counted.
    pub flow_count: u64,
    /// `sum of (observed - expected)^2 / expected`.
    pub chi_square: f64,
    /// Gateways less one.
    pub degrees_of_freedom: u32,
    /// Probability of such a deviation or a larger one when the shares are as the weights.
    pub p_value: f64,
    /// Largest deviation of a gateway's share from its weight, relative to the weight.
    pub worst_deviation_ratio: f64,
    /// Deviation that some gateway exceeds by chance in one of twenty proofs
    /// with so many flows: what is smaller cannot be told from chance.
    pub chance_deviation_ratio: f64,
}

/// What one gateway did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayProof {
    /// Host name.
    pub gateway: String,
    /// Its address on the clients' side.
    pub client_side: String,
    /// Its address on the servers' side.
    pub server_side: String,
    /// Share that its weight asks for.
    pub expected_ratio: f64,
    /// Flows of the population that clients sent to it.
    pub forward_count: u64,
    /// Their share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ratio: Option<f64>,
    /// Flows of the population whose replies servers sent to it.
    pub reply_count: u64,
    /// Their share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_ratio: Option<f64>,
    /// Share of the flows that the clients' kernels were only asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_forward_ratio: Option<f64>,
    /// The same of replies, by the servers' kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_reply_ratio: Option<f64>,
    /// Flows that arrived and did not leave, either direction, those opened beside included.
    pub stuck_count: u64,
    /// Flows through it that were not answered.
    pub unanswered_count: u64,
    /// Packets by two witnesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketWitnesses>,
    /// Path MTU from clients to servers through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// Path MTU from servers to clients through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_path_mtu_bytes: Option<u32>,
    /// MTU that the fabric gives the networks of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_mtu_bytes: Option<u32>,
    /// How fast it forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<ForwardingRate>,
}

/// Packets of the proof at a gateway: counted by flow, and by its interfaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketWitnesses {
    /// Packets of the flows that left towards the servers, counted one by one.
    pub forward_count: u64,
    /// Packets that the interface on the servers' side sent meanwhile, by its
    /// own counter: other traffic is in it, so never less.
    pub forward_interface_count: u64,
    /// Packets of the flows that left towards the clients.
    pub reply_count: u64,
    /// Packets that the interface on the clients' side sent meanwhile.
    pub reply_interface_count: u64,
}

/// How fast a gateway forwarded one bulk flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardingRate {
    /// Who sent.
    pub client: String,
    /// Who received.
    pub server: String,
    /// Bits per second that reached the receiving application.
    pub goodput_bps: f64,
    /// Packets per second that the gateway's interface on the servers' side
    /// sent; joined segments count once where its driver counts so (veth).
    pub packets_per_second: f64,
    /// Segments sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// What limited it.
    pub limit: ForwardingLimit,
    /// How that is known.
    pub reason: String,
}

/// What limited a bulk flow through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardingLimit {
    /// The rate of a link of the gateway.
    Link,
    /// A core of the gateway.
    GatewayCore,
    /// A core of the machine that holds all hosts (a lab).
    SharedCore,
    /// The sending or receiving program or its core.
    EndHost,
    /// Packets were lost.
    Loss,
    /// None of these.
    Unknown,
}

/// What the flows of a pair of hosts did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairProof {
    /// Host that connects.
    pub client: String,
    /// Its class.
    pub client_class: String,
    /// Host that listens.
    pub server: String,
    /// Its class.
    pub server_class: String,
    /// Flows, those opened beside included.
    pub flow_count: u64,
    /// Answered.
    pub answered_count: u64,
    /// By gateway, in the order of the crossing: flows that it forwarded.
    pub forward_counts: Vec<u64>,
    /// By gateway: flows whose replies it forwarded.
    pub reply_counts: Vec<u64>,
    /// Flows that returned by another gateway.
    pub asymmetric_count: u64,
    /// Gateways that no flow of this pair can take: none of the ports tried
    /// leads to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<String>,
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

/// Way of one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPath {
    /// Address and bound port of the client.
    pub client: SocketAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
    /// How it went.
    pub outcome: WireOutcome,
    /// Opened to use a certain gateway, and not part of the shares.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub targeted: bool,
    /// Gateway that the client's kernel named beforehand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<String>,
    /// Gateway that forwarded its packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// Gateway that forwarded the replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Where it was seen last, when it was not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostAt>,
}

/// Where an unanswered flow was seen last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LostAt {
    /// No gateway saw it.
    BeforeGateways,
    /// It arrived at this gateway and did not leave.
    InGateway(String),
    /// It left this gateway, and no reply came to any gateway.
    AtServer(String),
    /// The reply arrived at this gateway and did not leave.
    ReplyInGateway(String),
    /// The reply left this gateway and was not taken by the client.
    AtClient(String),
}

/// Something that is not as the fabric says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProofFinding {
    /// Stable kebab-case name of the kind.
    pub id: String,
    /// How much it matters; an error fails the proof.
    pub severity: Severity,
    /// Host or gateway that it is about.
    pub host: String,
    /// What was seen and what follows, one line.
    pub message: String,
    /// What to do.
    pub correction: String,
    /// Address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}
