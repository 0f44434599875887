//! Delay, loss, path MTU and hops: what can be requested and what comes back.

use std::net::IpAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    BitRate, ByteCount, TimeSpan,
    notice::Notice,
    outcome::{MetricKind, Outcome, SettingValue, Unit},
};

/// A probe as requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProbeConfig {
    /// Round trips to measure, for UDP and for TCP each
    #[cfg_attr(feature = "cli", arg(long, short = 'c', value_name = "COUNT", default_value_t = ProbeConfig::default().count))]
    pub count: u32,
    /// Time between round trips
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = ProbeConfig::default().interval))]
    pub interval: TimeSpan,
    /// Payload of one probe
    #[cfg_attr(feature = "cli", arg(long, short = 's', value_name = "BYTES", default_value_t = ProbeConfig::default().size))]
    pub size: ByteCount,
    /// A probe is lost when no response arrived in this time
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", default_value_t = ProbeConfig::default().timeout))]
    pub timeout: TimeSpan,
    /// UDP and TCP port that the responders listen on, for firewalls (default: any free ones)
    #[serde(rename = "destination-port", alias = "port", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'p', visible_alias = "destination-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..)))]
    pub port: Option<u16>,
    /// Compute the bandwidth-delay product for this rate
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE"))]
    pub rate: Option<BitRate>,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self {
            count: 100,
            interval: TimeSpan::from_millis(20),
            size: ByteCount(64),
            timeout: TimeSpan::from_seconds(1),
            port: None,
            rate: None,
        }
    }
}

const UDP_METRICS: [MetricKind; 6] = [
    MetricKind::lower("udp-delay-p50", Unit::Nanoseconds),
    MetricKind::lower("udp-delay-mean", Unit::Nanoseconds),
    MetricKind::lower("udp-delay-min", Unit::Nanoseconds),
    MetricKind::lower("udp-delay-p99", Unit::Nanoseconds),
    MetricKind::lower("udp-jitter", Unit::Nanoseconds),
    MetricKind::lower("udp-loss", Unit::Ratio),
];
const TCP_METRICS: [MetricKind; 6] = [
    MetricKind::lower("tcp-delay-p50", Unit::Nanoseconds),
    MetricKind::lower("tcp-delay-mean", Unit::Nanoseconds),
    MetricKind::lower("tcp-delay-min", Unit::Nanoseconds),
    MetricKind::lower("tcp-delay-p99", Unit::Nanoseconds),
    MetricKind::lower("tcp-jitter", Unit::Nanoseconds),
    MetricKind::lower("tcp-loss", Unit::Ratio),
];
const PATH_MTU: MetricKind = MetricKind::higher("path-mtu", Unit::Bytes);

impl ProbeConfig {
    /// Metrics that a trial can have, the headline first: those of the first direction.
    pub fn metrics() -> Vec<MetricKind> {
        UDP_METRICS.into_iter().chain(TCP_METRICS).chain([PATH_MTU]).collect()
    }
}

/// Source of the clock readings of a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// The kernel's time stamps of packets (`SO_TIMESTAMPING`).
    Kernel,
    /// Clock readings around the system calls.
    Application,
}

/// Location and spread of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayRange {
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Distribution of a delay. With the kernel's stamps it counts from the
/// sending host's driver, with the application's clock from before the system call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayStats {
    /// Round trips with a response.
    pub answered_count: u64,
    /// Round trips sent.
    pub sent_count: u64,
    /// Lost / sent.
    pub loss_ratio: f64,
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Mean absolute difference of successive delays (RFC 3550 section 6.4.1 without its smoothing); 0, and not
    /// measured, below two replies.
    pub jitter_ns: u64,
    /// Source of the clock readings.
    pub clock: ClockSource,
    /// Mean time that the responder held a probe, already subtracted from every delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnaround_mean_ns: Option<u64>,
    /// Local queueing delay: time between the sending host's queueing
    /// discipline and its driver, which the delays above do not contain.
    /// Absent where the kernel does not stamp both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_queueing: Option<DelayRange>,
    /// The delays with the local queueing delay: from before the sending
    /// host's queueing discipline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_local_queueing: Option<DelayRange>,
    /// Of the lost ones, those that were handed to the sending host's queueing
    /// discipline and never to its driver (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_lost_count: Option<u64>,
    /// Of the lost ones, those that never reached the responder (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_lost_count: Option<u64>,
    /// Of the lost ones, those whose response was lost or late (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_lost_count: Option<u64>,
}

impl DelayStats {
    /// The jitter, where there were two replies to compare.
    pub fn jitter_ns(&self) -> Option<u64> {
        (self.answered_count >= 2).then_some(self.jitter_ns)
    }

    /// The delays of `received_count` of `sent_count` probes (1 at least), without jitter
    /// and what else may be measured.
    pub fn new(range: DelayRange, received_count: u64, sent_count: u64, clock: ClockSource) -> Self {
        let DelayRange { min_ns, mean_ns, p50_ns, p90_ns, p99_ns, max_ns } = range;
        Self {
            answered_count: received_count,
            sent_count,
            loss_ratio: sent_count.saturating_sub(received_count) as f64 / sent_count as f64,
            min_ns,
            mean_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns,
            jitter_ns: 0,
            clock,
            turnaround_mean_ns: None,
            local_queueing: None,
            with_local_queueing: None,
            local_lost_count: None,
            forward_lost_count: None,
            return_lost_count: None,
        }
    }

    /// Its location and spread.
    pub fn range(&self) -> DelayRange {
        DelayRange {
            min_ns: self.min_ns,
            mean_ns: self.mean_ns,
            p50_ns: self.p50_ns,
            p90_ns: self.p90_ns,
            p99_ns: self.p99_ns,
            max_ns: self.max_ns,
        }
    }
}

/// Round trips without a flow and beside it, from client to server and back:
/// what the flow's queues add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyUnderLoad {
    /// Before the flow.
    pub idle: LatencySample,
    /// While the flow ran, after its warm-up.
    pub loaded: LatencySample,
    /// Median loaded less median idle.
    pub added_p50_ns: i64,
    /// 99th percentile loaded less that idle.
    pub added_p99_ns: i64,
    /// The delays contain the wait in the client's own queueing discipline.
    pub includes_local_queueing: bool,
}

/// One series of UDP round trips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySample {
    /// Round trips sent.
    pub sent_count: u64,
    /// Lost / sent.
    pub loss_ratio: f64,
    /// The delays.
    pub range: DelayRange,
    /// Source of the clock readings.
    pub clock: ClockSource,
}

impl LatencyUnderLoad {
    /// Compares two series. The wait in the own queueing discipline is part of
    /// the delays where the kernel stamped it in both.
    pub fn of(idle: &DelayStats, loaded: &DelayStats) -> Self {
        let whole = idle.with_local_queueing.zip(loaded.with_local_queueing);
        let sample = |stats: &DelayStats, whole: Option<DelayRange>| LatencySample {
            sent_count: stats.sent_count,
            loss_ratio: stats.loss_ratio,
            range: whole.unwrap_or_else(|| stats.range()),
            clock: stats.clock,
        };
        let (idle, loaded) =
            (sample(idle, whole.map(|(idle, _)| idle)), sample(loaded, whole.map(|(_, loaded)| loaded)));
        let added = |of: fn(&DelayRange) -> u64| {
            let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
            signed(of(&loaded.range)) - signed(of(&idle.range))
        };
        Self {
            added_p50_ns: added(|range| range.p50_ns),
            added_p99_ns: added(|range| range.p99_ns),
            includes_local_queueing: whole.is_some(),
            idle,
            loaded,
        }
    }
}

/// Results of one direction of starting (who sends first).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeDirection {
    /// Name of the host that sent the probes.
    pub from: String,
    /// Name of the host that responded.
    pub to: String,
    /// UDP round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<DelayStats>,
    /// TCP round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<DelayStats>,
    /// Address that the probes came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_address: Option<IpAddr>,
    /// Address that the probes went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_address: Option<IpAddr>,
    /// MTU of the route as the sending host sees it before it has sent anything (`IP_MTU`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_mtu_bytes: Option<u32>,
    /// Largest IP packet that passes with don't-fragment set, found by sending packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// Hops on the path: routers plus one, from the time-to-live that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_count: Option<u32>,
    /// Facts that could not be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A finished probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeSummary {
    /// Requested configuration.
    pub requested: ProbeConfig,
    /// One entry per starting side.
    pub directions: Vec<ProbeDirection>,
    /// `rate * min RTT / 8` for the rate requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_delay_product_bytes: Option<u64>,
}

/// Name of the format that [`ProbeSummary`] has as a trial's detail.
pub const PROBE_SUMMARY_SCHEMA: &str = "clearstream.probe-summary";

impl ProbeSummary {
    /// As the outcome of a trial: metrics of the direction from the client.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let mut metrics = Vec::new();
        if let Some(direction) = self.directions.first() {
            for (kinds, stats) in [(&UDP_METRICS, &direction.udp), (&TCP_METRICS, &direction.tcp)] {
                let Some(stats) = stats else { continue };
                let times = [stats.p50_ns, stats.mean_ns, stats.min_ns, stats.p99_ns].map(Some);
                let times = times.into_iter().chain([stats.jitter_ns()]).map(|ns| ns.map(|ns| ns as f64));
                let values = times.chain([Some(stats.loss_ratio)]);
                metrics.extend(kinds.iter().zip(values).filter_map(|(kind, value)| Some(kind.of(value?))));
            }
            metrics.extend(direction.path_mtu_bytes.map(|bytes| PATH_MTU.of(bytes.into())));
        }
        let notices = self.directions.iter().flat_map(|direction| {
            direction.notices.iter().map(|notice| Notice {
                id: notice.id.clone(),
                message: format!("{} ({} to {})", notice.message, direction.from, direction.to),
            })
        });
        let outcome =
            Outcome { settings: self.settings(), notices: notices.collect(), ..Outcome::of(metrics) };
        outcome.with_detail(PROBE_SUMMARY_SCHEMA, 1, self)
    }

    /// Settings of the hosts that sent probes: the client is the first.
    fn settings(&self) -> Vec<SettingValue> {
        let count = self.requested.count;
        let of_host = |(role, direction): (&str, &ProbeDirection)| {
            let each = |name: &str, stats: &Option<DelayStats>| {
                let sent = SettingValue {
                    requested_by: Some("count".to_owned()),
                    ..SettingValue::of(&format!("{name}-count"))
                };
                let stats = stats.as_ref();
                [
                    sent.requested(Some(count)).effective(stats.map(|stats| stats.sent_count)),
                    SettingValue::of(&format!("{name}-clock")).effective(stats.map(|stats| stats.clock)),
                ]
            };
            let all = each("udp", &direction.udp).into_iter().chain(each("tcp", &direction.tcp));
            all.map(|setting| setting.at(role)).filter(SettingValue::is_known).collect::<Vec<_>>()
        };
        ["client", "server"].into_iter().zip(&self.directions).flat_map(of_host).collect()
    }
}
