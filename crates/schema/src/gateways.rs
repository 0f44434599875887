//! The gateways experiment of a study: request/response flows through the
//! gateways of a lab, one of which fails. What can be requested and what comes
//! back.

use std::net::SocketAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    TimeSpan,
    fabric::ReturnPath,
    lab::LabFault,
    notice::Notice,
    outcome::{MetricKind, Outcome, Unit},
};

/// Name of the document that [`GatewaySummary`] is.
pub const GATEWAYS_SCHEMA: &str = "clearstream.gateways";

const RESPONSE_RATE: MetricKind = MetricKind::higher("answer-rate", Unit::PerSecond);
const ROUND_TRIP: MetricKind = MetricKind::lower("round-trip-p50", Unit::Nanoseconds);
const OTHER_RETURN: MetricKind = MetricKind::lower("other-return", Unit::Ratio);
const UNANSWERED: MetricKind = MetricKind::lower("unanswered-flows", Unit::Count);
const GAP_MAX: MetricKind = MetricKind::lower("gap-max", Unit::Nanoseconds);
const GAP_MEDIAN: MetricKind = MetricKind::lower("gap-p50", Unit::Nanoseconds);
const STUCK: MetricKind = MetricKind::lower("stuck-flows", Unit::Count);
const RECOVERY: MetricKind = MetricKind::lower("recovery", Unit::Nanoseconds);

/// Fault of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayFailure {
    /// It does not.
    #[default]
    None,
    /// Dead: both its links pass nothing behind the switches, carriers stay.
    Silent,
    /// Responds for itself (ARP, ping) and forwards nothing.
    NotForwarding,
    /// Its interface on the servers' side loses its carrier; on the clients'
    /// side nothing is to be seen.
    OneSide,
}

/// An experiment with gateways as requested.
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
    /// Fault of a gateway.
    pub failure: GatewayFailure,
    /// Gateway (default: the middle one).
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
    /// Return path of replies (default: the fabric's).
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
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let mut kinds = vec![RESPONSE_RATE, ROUND_TRIP, OTHER_RETURN, UNANSWERED];
        if self.failure != GatewayFailure::None {
            kinds.extend([GAP_MAX, GAP_MEDIAN, STUCK, RECOVERY]);
        }
        kinds
    }

    /// Time that it measures.
    pub fn time(&self) -> TimeSpan {
        let after = if self.failure == GatewayFailure::None { 0 } else { self.duration.0 };
        TimeSpan(self.settle.0.saturating_add(after))
    }
}

/// Results. Times are relative to the first request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewaySummary {
    /// [`GATEWAYS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// As requested.
    pub config: GatewayConfig,
    /// In the fabric's order.
    pub gateways: Vec<GatewayShare>,
    /// Flows that got responses before the failure.
    pub flow_count: u64,
    /// Flows that could not be opened, or got no response before the failure.
    pub unanswered_count: u64,
    /// Of the flows with responses: returned by another gateway than they came by.
    pub other_return_count: u64,
    /// Responses per second before the failure.
    pub answers_per_second: f64,
    /// Median time from request to response before the failure.
    pub round_trip_p50_ns: u64,
    /// Longest gap between responses of any flow before the failure: the machine's
    /// own effect on a flow, without a fault.
    pub quiet_max_ns: u64,
    /// Chi-square test of the responses against the weights: the
    /// probability of a difference at least as large by chance, forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_probability_ratio: Option<f64>,
    /// Effect of the failure; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureEffect>,
    /// Responses of all flows in each time step.
    pub series: Vec<u32>,
    /// Length of a step.
    pub step_ns: u64,
    /// Each flow.
    pub flows: Vec<GatewayFlow>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl GatewaySummary {
    /// As the outcome of a trial.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let returns = self.other_return_count as f64 / (self.flow_count.max(1)) as f64;
        let mut metrics = vec![
            RESPONSE_RATE.of(self.answers_per_second),
            ROUND_TRIP.of(self.round_trip_p50_ns as f64),
            OTHER_RETURN.of(returns),
            UNANSWERED.of(self.unanswered_count as f64),
        ];
        if let Some(effect) = &self.failure {
            metrics.extend(effect.gap_max_ns.map(|ns| GAP_MAX.of(ns as f64)));
            metrics.extend(effect.gap_p50_ns.map(|ns| GAP_MEDIAN.of(ns as f64)));
            metrics.push(STUCK.of(effect.stuck_count as f64));
            metrics.extend(effect.full_rate_ns.map(|ns| RECOVERY.of(ns as f64)));
        }
        let outcome = Outcome { notices: self.notices.clone(), ..Outcome::of(metrics) };
        outcome.with_detail(GATEWAYS_SCHEMA, 1, self)
    }
}

/// Load of a gateway before the failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayShare {
    /// Name.
    pub name: String,
    /// Share requested, relative to the others.
    pub weight: u16,
    /// Flows whose requests it forwarded.
    pub forward_count: u64,
    /// Flows whose responses it forwarded.
    pub reply_count: u64,
}

/// Effect of the failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureEffect {
    /// Gateway that failed.
    pub gateway: String,
    /// The injected fault.
    pub fault: LabFault,
    /// Time of its request; it was effective milliseconds later.
    pub at_ns: u64,
    /// Flows that used the gateway in either direction.
    pub hit_count: u64,
    /// Of those: without responses at the end.
    pub stuck_count: u64,
    /// Of those that recovered: median of the longest gap between responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p50_ns: Option<u64>,
    /// Longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_max_ns: Option<u64>,
    /// Flows that did not use the gateway.
    pub spared_count: u64,
    /// Of those: without responses at the end.
    pub spared_stuck_count: u64,
    /// Of those: longest gap between responses after the failure.
    pub spared_gap_max_ns: u64,
    /// Time from the failure until the response rate of before is reached and
    /// sustained; absent when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_rate_ns: Option<u64>,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayFlow {
    /// Host that sends requests.
    pub client: String,
    /// Its address and port.
    pub from: SocketAddr,
    /// Host that sends responses.
    pub server: String,
    /// Its address and port.
    pub to: SocketAddr,
    /// Gateway of the requests before the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// Gateway of the responses before the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Responses in all.
    pub answer_count: u64,
    /// Longest gap between responses after the failure, that at the end included.
    pub gap_ns: u64,
    /// Without responses at the end, for longer than any gap before the failure.
    pub stuck: bool,
}
