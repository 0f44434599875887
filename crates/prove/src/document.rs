//! Proof of a fabric's routes on the wire: what real flows did.

use std::net::{IpAddr, SocketAddr};

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::{
    fabric::{HashPolicy, ReturnPath},
    notice::Notice,
    tune::Severity,
};

/// Name of the format.
pub const ROUTE_PROOF_SCHEMA: &str = "clearstream.route-proof";

/// Verification of a fabric by real flows through its gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteVerification {
    /// [`ROUTE_PROOF_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the fabric.
    pub fabric: String,
    /// The conclusion.
    pub verdict: VerificationVerdict,
    /// One entry per route of the fabric and address family.
    #[serde(rename = "crossings")]
    pub routes: Vec<RouteResult>,
    /// Deviations from the fabric, most severe first.
    pub findings: Vec<VerificationFinding>,
    /// Parts left out or not measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// Duration of the verification.
    pub duration_ns: u64,
}

/// The conclusion of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerificationVerdict {
    /// Every check agreed with the fabric.
    Proven,
    /// Every check that could be made agreed with the fabric; some could not be made.
    Incomplete,
    /// At least one check disagreed with the fabric.
    Failed,
}

/// A route of the fabric, one address family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteResult {
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
    /// Flows opened to measure the load distribution.
    pub flow_count: u64,
    /// Of all flows, those whose response arrived.
    pub answered_count: u64,
    /// Additional flows, opened so that every pair of hosts used every gateway.
    pub targeted_count: u64,
    /// Flows seen in both directions, by which symmetry is judged.
    pub judged_count: u64,
    /// Of these, flows that returned by another gateway.
    pub asymmetric_count: u64,
    /// Fraction of asymmetric flows that the return path leads to expect:
    /// `1 - sum of squared weights` for none, else 0.
    pub asymmetric_expected_ratio: f64,
    /// Flows whose gateway was the one that the kernel's lookup named, and all
    /// that could be compared.
    pub predicted_count: [u64; 2],
    /// Load distribution against the weights; absent where nothing is hashed per flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_fit: Option<ShareFit>,
    /// The same of the replies; absent where they are to follow the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_fit: Option<ShareFit>,
    /// Fit of the load distribution that the clients' kernels predict for flows
    /// that were not opened: route queries are cheap, so the sample is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_forward_fit: Option<ShareFit>,
    /// The same for replies, predicted by the servers' kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_reply_fit: Option<ShareFit>,
    /// Whether source ports were chosen from the kernels' route lookups so that requests
    /// are distributed over the gateways by their weights.
    #[serde(default)]
    pub even: bool,
    /// One entry per gateway.
    pub gateways: Vec<GatewayResult>,
    /// One entry per pair of hosts.
    pub pairs: Vec<PairResult>,
    /// One entry per flow.
    pub flows: Vec<FlowPath>,
}

/// Pearson's chi-square test of the load distribution against the weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareFit {
    /// Flows that were counted.
    pub flow_count: u64,
    /// `sum of (observed - expected)^2 / expected`.
    pub chi_square: f64,
    /// Gateways less one.
    pub degrees_of_freedom: u32,
    /// Probability of such a deviation or a larger one when the load follows the weights.
    pub p_value: f64,
    /// Largest deviation of a gateway's share from its weight, relative to the weight.
    pub worst_deviation_ratio: f64,
    /// Deviation that some gateway exceeds by chance in one of twenty runs
    /// with so many flows: what is smaller cannot be distinguished from chance.
    pub chance_deviation_ratio: f64,
}

/// Results of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayResult {
    /// Host name.
    pub gateway: String,
    /// Its address on the clients' side.
    pub client_side: String,
    /// Its address on the servers' side.
    pub server_side: String,
    /// Fraction that its weight requests.
    pub expected_ratio: f64,
    /// Flows of the population that clients sent to it.
    pub forward_count: u64,
    /// Their fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ratio: Option<f64>,
    /// Flows of the population whose replies servers sent to it.
    pub reply_count: u64,
    /// Their fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_ratio: Option<f64>,
    /// Fraction of the flows that the clients' kernels would send here, from route queries alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_forward_ratio: Option<f64>,
    /// The same for replies, from the servers' kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_reply_ratio: Option<f64>,
    /// Flows that arrived and did not leave, in either direction, additional flows included.
    pub stuck_count: u64,
    /// Flows through it that got no response.
    pub unanswered_count: u64,
    /// Packet counts from two independent sources.
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
    /// Forwarding rate.
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

/// Rate at which a gateway forwarded one bulk flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardingRate {
    /// Sending host.
    pub client: String,
    /// Receiving host.
    pub server: String,
    /// Bits per second that reached the receiving application.
    pub goodput_bps: f64,
    /// Packets per second that the gateway's interface on the servers' side
    /// sent; joined segments count once where its driver counts so (veth).
    pub packets_per_second: f64,
    /// Segments retransmitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// The limit of the rate.
    pub limit: ForwardingLimit,
    /// Evidence for it.
    pub reason: String,
}

/// Limit of a bulk flow through a gateway.
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

/// Results of the flows of a pair of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairResult {
    /// Host that connects.
    pub client: String,
    /// Its class.
    pub client_class: String,
    /// Host that listens.
    pub server: String,
    /// Its class.
    pub server_class: String,
    /// Flows, additional ones included.
    pub flow_count: u64,
    /// Flows that got a response.
    pub answered_count: u64,
    /// By gateway, in the order of the route: flows whose requests it forwarded.
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

/// Outcome of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WireOutcome {
    /// Connected, and the response arrived.
    Answered,
    /// Not attempted: the time was up.
    NotTried,
    /// Not attempted: the source port was in use.
    PortInUse,
    /// No route from this host, or an ICMP unreachable from a router.
    NoRoute,
    /// The connection was refused.
    Refused,
    /// No response to the connection request.
    NotConnected,
    /// Connected, but no response arrived.
    NotAnswered,
    /// Reset after the connection was established.
    Reset,
}

/// Path of one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPath {
    /// Address and bound port of the client.
    pub client: SocketAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Outcome.
    pub outcome: WireOutcome,
    /// Opened to use a certain gateway; not part of the load distribution.
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
    /// Last place it was observed at, when it got no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostAt>,
}

/// Last place at which a flow without response was observed.
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

/// A deviation from the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationFinding {
    /// Stable kebab-case name of the kind.
    pub id: String,
    /// Severity; an error fails the verification.
    pub severity: Severity,
    /// Host or gateway that it is about.
    pub host: String,
    /// Observation and consequence, one line.
    pub message: String,
    /// Suggested correction.
    pub correction: String,
    /// Address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}
