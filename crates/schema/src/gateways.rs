//! The gateways experiment of a study: request/response flows through the
//! gateways of a lab, one of which fails. What can be asked for and what comes
//! back.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    TimeSpan,
    fabric::ReturnPath,
    flow::Notice,
    lab::LabFault,
    outcome::{Metric, Outcome, Unit},
};

/// Name of the document that [`GatewaySummary`] is.
pub const GATEWAYS_SCHEMA: &str = "clearstream.gateways";

/// How a gateway fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayFailure {
    /// It does not.
    #[default]
    None,
    /// Dead: both its links pass nothing behind the switches, carriers stay.
    Silent,
    /// It answers for itself (ARP, ping) and forwards nothing.
    NotForwarding,
    /// Its interface on the servers' side loses its carrier; on the clients'
    /// side nothing is to be seen.
    OneSide,
}

/// An experiment with gateways as asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GatewayConfig {
    /// Fabric that the lab's hosts are of: name of a built-in one, or a file.
    pub fabric: String,
    /// Request/response flows, spread over the pairs of client and server.
    pub flows: u32,
    /// Clients and servers that take part; more hosts need more of this machine.
    pub clients: u32,
    /// Servers that take part.
    pub servers: u32,
    /// Time between the requests of a flow.
    pub interval: TimeSpan,
    /// How a gateway fails.
    pub failure: GatewayFailure,
    /// Which one; that in the middle when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Time before the failure, and the whole of an experiment without one.
    pub settle: TimeSpan,
    /// Time after the failure.
    pub duration: TimeSpan,
    /// With `route watch` on every host that takes part.
    pub watch: bool,
    /// Weights of the gateways, in their order; those of the fabric when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<u16>,
    /// How replies return; as the fabric says when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_path: Option<ReturnPath>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            fabric: "gateways-6".to_owned(),
            flows: 48,
            clients: 2,
            servers: 2,
            interval: TimeSpan::from_millis(20),
            failure: GatewayFailure::None,
            gateway: None,
            settle: TimeSpan::from_seconds(2),
            duration: TimeSpan::from_seconds(8),
            watch: false,
            weights: Vec::new(),
            return_path: None,
        }
    }
}

impl GatewayConfig {
    /// Time that it measures.
    pub fn time(&self) -> TimeSpan {
        let after = if self.failure == GatewayFailure::None { 0 } else { self.duration.0 };
        TimeSpan(self.settle.0.saturating_add(after))
    }
}

/// What came out of it. Times are from the first request on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewaySummary {
    /// [`GATEWAYS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// As asked for.
    pub config: GatewayConfig,
    /// In the fabric's order.
    pub gateways: Vec<GatewayShare>,
    /// Flows that were answered before the failure.
    pub flow_count: u64,
    /// Flows that could not be opened, or were not answered before the failure.
    pub unanswered_count: u64,
    /// Of those answered: returned by another gateway than they came by.
    pub other_return_count: u64,
    /// Answers per second before the failure.
    pub answers_per_second: f64,
    /// Median time from request to answer before the failure.
    pub round_trip_p50_ns: u64,
    /// Longest time without an answer of any flow before the failure: what this
    /// machine does to a flow while nothing fails.
    pub quiet_max_ns: u64,
    /// Share of the answers expected by weight against those counted: chi-square
    /// probability of a difference at least as large by chance, forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_probability_ratio: Option<f64>,
    /// What the failure did; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureEffect>,
    /// Answers of all flows in each step of time.
    pub series: Vec<u32>,
    /// Length of a step.
    pub step_ns: u64,
    /// Each flow.
    pub flows: Vec<GatewayFlow>,
    /// Things to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl GatewaySummary {
    /// As the outcome of a trial.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let count = |name, value: u64| Metric::lower(name, Unit::Count, value as f64);
        let time = |name, value: u64| Metric::lower(name, Unit::Nanoseconds, value as f64);
        let returns = self.other_return_count as f64 / (self.flow_count.max(1)) as f64;
        let mut metrics = vec![
            Metric::higher("answer-rate", Unit::PerSecond, self.answers_per_second),
            time("round-trip-p50", self.round_trip_p50_ns),
            Metric::lower("other-return", Unit::Ratio, returns),
            count("unanswered-flows", self.unanswered_count),
        ];
        if let Some(effect) = &self.failure {
            metrics.extend(effect.gap_max_ns.map(|gap| time("gap-max", gap)));
            metrics.extend(effect.gap_p50_ns.map(|gap| time("gap-p50", gap)));
            metrics.push(count("stuck-flows", effect.stuck_count));
            metrics.extend(effect.full_rate_ns.map(|until| time("recovery", until)));
        }
        let outcome = Outcome { notices: self.notices.clone(), ..Outcome::of(metrics) };
        outcome.with_detail(GATEWAYS_SCHEMA, 1, self)
    }
}

/// What a gateway carried before the failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayShare {
    /// Name.
    pub name: String,
    /// Share asked for, relative to the others.
    pub weight: u16,
    /// Flows whose requests it forwarded.
    pub forward_count: u64,
    /// Flows whose answers it forwarded.
    pub reply_count: u64,
}

/// What the failure did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureEffect {
    /// Gateway that failed.
    pub gateway: String,
    /// What was broken.
    pub fault: LabFault,
    /// When it was asked for; it was in force milliseconds later.
    pub at_ns: u64,
    /// Flows that used the gateway in either direction.
    pub hit_count: u64,
    /// Of those: without an answer at the end.
    pub stuck_count: u64,
    /// Of those that came back: median of the longest time without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p50_ns: Option<u64>,
    /// Longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_max_ns: Option<u64>,
    /// Flows that did not use the gateway.
    pub spared_count: u64,
    /// Of those: without an answer at the end.
    pub spared_stuck_count: u64,
    /// Of those: longest time without an answer after the failure.
    pub spared_gap_max_ns: u64,
    /// Time from the failure until as many answers came as before, and went on
    /// coming; absent when that was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_rate_ns: Option<u64>,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayFlow {
    /// Host that asks.
    pub client: String,
    /// Its address and port.
    pub from: SocketAddr,
    /// Host that answers.
    pub server: String,
    /// Its address and port.
    pub to: SocketAddr,
    /// Gateway of the requests before the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// Gateway of the answers before the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Answers in all.
    pub answer_count: u64,
    /// Longest time without an answer after the failure, that at the end included.
    pub gap_ns: u64,
    /// It was without an answer at the end for longer than it ever was before.
    pub stuck: bool,
}
