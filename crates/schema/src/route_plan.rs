//! What a fabric comes to: the plan of each host with its reasons, and for each
//! route the price of its return path, the proof of its symmetry, and the
//! shares of its gateways on paper.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    fabric::{HashPolicy, HostRole, Multipath, ReturnPath},
    routing::HostRouting,
};

/// Name of the format.
pub const ROUTE_PLAN_SCHEMA: &str = "clearstream.route-plan";

/// What a fabric comes to.
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
    /// The hosts that were asked for; the first of each class when none was.
    pub hosts: Vec<PlannedHost>,
    /// What the plan leaves to people, or does not do on some hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A class of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedClass {
    /// Name.
    pub name: String,
    /// What its hosts are for.
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
    /// What it will route by.
    pub routing: HostRouting,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// Why something is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reason {
    /// What: `table 7001`, `rule 7001`, `nexthop 7013`, `net.ipv4.ip_forward`.
    pub item: String,
    /// Why.
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
    /// Why it would.
    pub recommended_because: String,
    /// How next hops are written, by class of end hosts.
    pub multipath: Vec<ClassMultipath>,
    /// What is hashed.
    pub hash_policy: HashPolicy,
    /// Seed of the hash, where the plan sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<u32>,
    /// What each return path costs here.
    pub prices: Vec<ReturnPrice>,
    /// Whether replies return as promised.
    pub proof: SymmetryProof,
    /// Shares of the gateways.
    pub shares: GatewayShares,
    /// What the loss of gateways does.
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

/// How a class's hosts write several next hops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ClassMultipath {
    /// Class.
    pub class: String,
    /// How.
    pub multipath: Multipath,
    /// Why.
    pub because: String,
}

/// What a return path costs in this fabric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReturnPrice {
    /// Which.
    pub return_path: ReturnPath,
    /// Why it cannot be had here; absent when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Share of the flows that return by another gateway than they came by.
    pub other_gateway_ratio: f64,
    /// Share of the flows that lose a direction when one gateway dies, the mean over gateways.
    pub hit_ratio: f64,
    /// Further addresses, on all servers together.
    pub address_count: u64,
    /// Rules, and as many tables, on each server.
    pub rule_count: u64,
    /// Routes beside those to the far network, on each client.
    pub client_route_count: u64,
    /// What it takes beside, in words.
    pub takes: String,
}

/// How symmetry was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofMethod {
    /// Every pair of hosts and every gateway was walked.
    Exhaustive,
    /// Hosts of a class were found to differ in nothing but their own
    /// addresses, one of each was walked over every gateway to every server, and
    /// every other one over one gateway.
    PerClass,
}

/// What came of it.
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
    /// What came of it.
    pub outcome: ProofOutcome,
    /// How it was looked at.
    pub method: ProofMethod,
    /// Walks: a client, an address of a server and a gateway each, there and back.
    pub walk_count: u64,
    /// Hosts that were compared with the first of their class.
    pub compared_count: u64,
    /// What it rests on beside the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// The first walk that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counterexample: Option<Counterexample>,
}

/// A walk that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Counterexample {
    /// Who asks.
    pub client: String,
    /// Who answers.
    pub server: String,
    /// Address that is asked; absent where hosts were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Gateway that the request takes, where it takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// What happens instead.
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
    /// Share of the flows that return by another gateway than they came by.
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

/// What the loss of gateways does, as a mean over which are lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayLoss {
    /// Gateways lost at the same time.
    pub lost_count: u32,
    /// How next hops are written.
    pub multipath: Multipath,
    /// Share of the flows that go over a lost one, in either direction.
    pub hit_ratio: f64,
    /// Share of the flows that are moved although their gateway lives, in one
    /// direction, when the lost ones are taken out.
    pub moved_ratio: f64,
    /// Share of the flows that move when the lost ones are back, while they are
    /// busy; of a resilient group after its unbalanced timer.
    pub moved_back_ratio: f64,
    /// Largest share of one remaining gateway, in the worst case.
    pub busiest_ratio: f64,
}
