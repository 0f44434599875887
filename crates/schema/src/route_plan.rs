//! Plan of a fabric: the plan of each host with its reasons, and for each
//! route the cost of its return path, the proof of its symmetry, and the
//! shares of its gateways on paper.

use std::net::IpAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    fabric::{HashPolicy, HostRole, Multipath, ReturnPath},
    routing::HostRouting,
};

/// Name of the format.
pub const ROUTE_PLAN_SCHEMA: &str = "clearstream.route-plan";

/// Plan of a fabric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RoutePlan {
    /// `clearstream.route-plan`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the fabric.
    pub fabric: String,
    /// Its classes of hosts.
    pub classes: Vec<PlannedClass>,
    /// Its routes.
    pub routes: Vec<PlannedRoute>,
    /// The hosts that were requested; the first of each class when none was.
    pub hosts: Vec<PlannedHost>,
    /// Changes left to people, or not made on some hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A class of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedClass {
    /// Name.
    pub name: String,
    /// Role of its hosts.
    pub role: HostRole,
    /// Hosts.
    pub host_count: u64,
    /// The first one's name.
    pub first: String,
    /// The last one's name.
    pub last: String,
    /// Options and features that its hosts' kernels must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_needs: Vec<String>,
}

/// A host and what it will route by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedHost {
    /// Its class.
    pub class: String,
    /// Its routing configuration.
    pub routing: HostRouting,
    /// Cause.
    pub reasons: Vec<Reason>,
}

/// Reason for a planned item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reason {
    /// Item: `table 7001`, `rule 7001`, `nexthop 7013`, `net.ipv4.ip_forward`.
    pub item: String,
    /// Cause.
    pub why: String,
}

/// Networks that reach each other, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedRoute {
    /// Names of the networks.
    pub between: [String; 2],
    /// Its gateways, in the order of the next hops.
    pub gateways: Vec<PlannedGateway>,
    /// The return path that is planned.
    pub return_path: ReturnPath,
    /// The one that the planner would choose.
    pub recommended: ReturnPath,
    /// Reason.
    pub recommended_because: String,
    /// Form of next hops, by class of end hosts.
    pub multipath: Vec<ClassMultipath>,
    /// Hash policy.
    pub hash_policy: HashPolicy,
    /// Seed of the hash, where the plan sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<u32>,
    /// Cost of each return path in this fabric.
    #[serde(rename = "prices")]
    pub costs: Vec<ReturnCost>,
    /// Whether replies return as promised.
    pub proof: SymmetryProof,
    /// Shares of the gateways.
    pub shares: GatewayShares,
    /// Effect of the loss of gateways.
    pub losses: Vec<GatewayLoss>,
}

/// A gateway of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedGateway {
    /// Name.
    pub name: String,
    /// Share of flows relative to the others.
    pub weight: u16,
    /// Addresses on the first network of the route.
    pub first_addresses: Vec<IpAddr>,
    /// Addresses on the second one.
    pub second_addresses: Vec<IpAddr>,
}

/// Form in which a class's hosts write several next hops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ClassMultipath {
    /// Class.
    pub class: String,
    /// Form.
    pub multipath: Multipath,
    /// Cause.
    pub because: String,
}

/// Cost of a return path in this fabric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReturnCost {
    /// Return path.
    pub return_path: ReturnPath,
    /// Reason why it is not available here; absent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Fraction of the flows that return by another gateway than they came by.
    pub other_gateway_ratio: f64,
    /// Fraction of the flows that lose a direction when one gateway dies, the mean over gateways.
    pub hit_ratio: f64,
    /// Further addresses, on all servers together.
    pub address_count: u64,
    /// Rules, and as many tables, on each server.
    pub rule_count: u64,
    /// Routes beside those to the far network, on each client.
    pub client_route_count: u64,
    /// Further requirements, as text.
    pub takes: String,
}

/// Method of the symmetry check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofMethod {
    /// Every pair of hosts was checked over every gateway.
    Exhaustive,
    /// Hosts of a class were found to differ only in their own
    /// addresses; one of each was checked over every gateway to every server, and
    /// all others over one gateway.
    PerClass,
}

/// Outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofOutcome {
    /// Every walk arrived, and each reply took the gateway of its request.
    Symmetric,
    /// Every walk arrived; the return path promises no more than that.
    NotPromised,
    /// A walk did not arrive, or a reply takes another gateway although it must not.
    Fails,
}

/// Both directions of every kind of flow, walked on paper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SymmetryProof {
    /// The outcome.
    pub outcome: ProofOutcome,
    /// The method.
    pub method: ProofMethod,
    /// Walks: a client, an address of a server and a gateway each, there and back.
    pub walk_count: u64,
    /// Hosts that were compared with the first of their class.
    pub compared_count: u64,
    /// Further conditions of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// The first walk that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counterexample: Option<Counterexample>,
}

/// A path that fails the check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Counterexample {
    /// Host that sends the request.
    pub client: String,
    /// Host that sends the response.
    pub server: String,
    /// Destination address of the request; absent where hosts were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Gateway that the request takes, where it takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Deviation.
    pub problem: String,
}

/// Shares of the gateways for a population of flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayShares {
    /// Flows: between how many clients and servers, and how many of each pair.
    pub flow_count: u64,
    /// Pairs of a client and a server among them.
    pub pair_count: u64,
    /// The kernel's own hash with the plan's seed; seeds drawn as hosts draw
    /// them at boot when false, so another draw gives other shares.
    pub seed_is_known: bool,
    /// By gateway.
    pub gateways: Vec<GatewayShare>,
    /// Fraction of the flows that return by another gateway than they came by.
    pub other_gateway_ratio: f64,
}

/// Share of one gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayShare {
    /// Name.
    pub name: String,
    /// By its weight.
    pub expected_ratio: f64,
    /// Of the flows, towards the servers.
    pub forward_ratio: f64,
    /// Of the flows, back to the clients.
    pub return_ratio: f64,
}

/// Effect of the loss of gateways, as a mean over which are lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayLoss {
    /// Gateways lost at the same time.
    pub lost_count: u32,
    /// Form of next hops.
    pub multipath: Multipath,
    /// Fraction of the flows that go over a lost one, in either direction.
    pub hit_ratio: f64,
    /// Fraction of the flows that move although their gateway is up, in one
    /// direction, when the failed ones are removed.
    pub moved_ratio: f64,
    /// Fraction of the flows that move when the lost ones are back, while they are
    /// busy; of a resilient group after its unbalanced timer.
    pub moved_back_ratio: f64,
    /// Largest share of one remaining gateway, in the worst case.
    pub busiest_ratio: f64,
}
