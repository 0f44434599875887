//! A finished test as the outcome of a trial.

use super::{RdmaConfig, RdmaEffective, RdmaResult, RdmaSample, RdmaSide, RdmaSummary};
use crate::outcome::{Axis, Metric, MetricKind, Outcome, Series, SettingValue, Unit};

/// Name of the format that [`RdmaSummary`] has as a document, and as a trial's
/// detail.
pub const RDMA_SUMMARY_SCHEMA: &str = "clearstream.rdma-summary";

const BANDWIDTH: MetricKind = MetricKind::higher("bandwidth", Unit::BitsPerSecond);
const BANDWIDTH_FORWARD: MetricKind = MetricKind::higher("bandwidth-forward", Unit::BitsPerSecond);
const BANDWIDTH_REVERSE: MetricKind = MetricKind::higher("bandwidth-reverse", Unit::BitsPerSecond);
const MESSAGE_RATE: MetricKind = MetricKind::higher("message-rate", Unit::PerSecond);
const CLIENT_CPU: MetricKind = MetricKind::lower("client-cpu", Unit::SecondsPerGigabyte);
const SERVER_CPU: MetricKind = MetricKind::lower("server-cpu", Unit::SecondsPerGigabyte);
const LATENCIES: [MetricKind; 5] = [
    MetricKind::lower("latency", Unit::Nanoseconds),
    MetricKind::lower("latency-p99", Unit::Nanoseconds),
    MetricKind::lower("latency-min", Unit::Nanoseconds),
    MetricKind::lower("latency-max", Unit::Nanoseconds),
    MetricKind::lower("latency-mean", Unit::Nanoseconds),
];
const THROUGHPUT: MetricKind = MetricKind::higher("throughput", Unit::BitsPerSecond);

impl RdmaConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        if self.latency {
            return LATENCIES.into_iter().chain([THROUGHPUT, MESSAGE_RATE]).collect();
        }
        if self.size.largest() == 0 {
            return vec![MESSAGE_RATE];
        }
        let mut kinds = vec![BANDWIDTH, MESSAGE_RATE];
        if self.both_ways {
            kinds.extend([BANDWIDTH_FORWARD, BANDWIDTH_REVERSE]);
        }
        kinds.extend([CLIENT_CPU, SERVER_CPU]);
        kinds
    }
}

impl RdmaSummary {
    /// What arrived other than it was sent.
    #[must_use]
    pub fn difference(&self) -> Option<&'static str> {
        let any = |of: fn(&RdmaResult) -> Option<bool>| self.results.iter().any(|one| of(one) == Some(false));
        if any(|result| result.verified) {
            Some("the received content differs from what was sent")
        } else if any(|result| result.immediate_verified) {
            Some("messages came with other immediate data than was sent with them")
        } else {
            None
        }
    }

    /// As the outcome of a trial. Of several sizes the metrics are those of the
    /// best one, and a series has them all.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self, samples: &[RdmaSample]) -> Result<Outcome, serde_json::Error> {
        let metrics = if self.requested.latency { self.latency_metrics() } else { self.bandwidth_metrics() };
        let outcome = Outcome {
            complete: self.complete,
            series: self.series(samples),
            settings: self.settings(),
            notices: self.notices.clone(),
            ..Outcome::of(metrics)
        };
        outcome.with_detail(RDMA_SUMMARY_SCHEMA, 1, self)
    }

    fn bandwidth_metrics(&self) -> Vec<Metric> {
        let best = self.results.iter().max_by(|one, other| one.total_bps().total_cmp(&other.total_bps()));
        let Some(best) = best else { return Vec::new() };
        let messages = |rate: &super::RdmaRate| rate.messages_per_second;
        let message_rate =
            MESSAGE_RATE.of(messages(&best.forward) + best.reverse.as_ref().map_or(0.0, messages));
        if best.total_bytes() == 0 {
            // All messages have 0 bytes.
            return vec![message_rate];
        }
        let mut metrics = vec![BANDWIDTH.of(best.total_bps()), message_rate];
        if let Some(reverse) = &best.reverse {
            metrics.push(BANDWIDTH_FORWARD.of(best.forward.goodput_bps));
            metrics.push(BANDWIDTH_REVERSE.of(reverse.goodput_bps));
        }
        let gigabytes = best.total_bytes() as f64 / 1e9;
        let cost = |ns: u64| ns as f64 / 1e9 / gigabytes;
        metrics.push(CLIENT_CPU.of(cost(best.near_cpu_ns)));
        metrics.extend(best.far_cpu_ns.map(|ns| SERVER_CPU.of(cost(ns))));
        metrics
    }

    fn latency_metrics(&self) -> Vec<Metric> {
        let timed = self.results.iter().filter_map(|result| Some((result, result.latency.as_ref()?)));
        let Some((result, latency)) = timed.min_by_key(|(_, latency)| latency.p50_ns) else {
            return Vec::new();
        };
        let times = [latency.p50_ns, latency.p99_ns, latency.min_ns, latency.max_ns, latency.mean_ns];
        let mut metrics: Vec<Metric> =
            LATENCIES.iter().zip(times).map(|(kind, ns)| kind.of(ns as f64)).collect();
        // As NetPIPE computes it: one message at a time.
        if result.size_bytes > 0 {
            metrics.push(THROUGHPUT.of(result.size_bytes as f64 * 8e9 / latency.mean_ns as f64));
        }
        metrics.push(MESSAGE_RATE.of(result.forward.messages_per_second));
        metrics
    }

    /// Over the sizes where there are several, over the time where there is one.
    fn series(&self, samples: &[RdmaSample]) -> Vec<Series> {
        let (name, unit) = match (self.requested.latency, self.requested.size.largest()) {
            (true, _) => ("latency", Unit::Nanoseconds),
            (false, 0) => ("message-rate", Unit::PerSecond),
            (false, _) => ("bandwidth", Unit::BitsPerSecond),
        };
        let (x, mut points) = if self.requested.size.0.len() > 1 {
            let value = |result: &RdmaResult| match self.requested.latency {
                true => result.latency.as_ref().map(|latency| latency.p50_ns as f64),
                false => Some(result.total_bps()),
            };
            let point = |result| Some((result_size(result), value(result)?));
            (Axis::new("size", Unit::Bytes), self.results.iter().filter_map(point).collect::<Vec<_>>())
        } else {
            let point = |sample: &RdmaSample| {
                Some((sample.end_ns as f64, sample.headline(self.requested.latency)?.value))
            };
            (Axis::new("time", Unit::Nanoseconds), samples.iter().filter_map(point).collect())
        };
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let series = Series { name: name.to_owned(), x, y: Axis::new(name, unit), points };
        (!series.points.is_empty()).then_some(series).into_iter().collect()
    }

    fn settings(&self) -> Vec<SettingValue> {
        let (requested, effective) = (&self.requested, &self.effective);
        let RdmaEffective { near, far, .. } = effective;
        // A latency is of one message at a time.
        let asked_depth = (!requested.latency).then_some(requested.depth);
        let depth = self.results.first().map_or(requested.depth, |result| result.depth_count);
        let inline = SettingValue::of("inline").unit(Unit::Bytes);
        let side = |role: &str, core: &str, side: &RdmaSide, requested_core: Option<u32>| {
            [
                SettingValue::of("progress").requested(Some(requested.progress)).effective(side.progress),
                SettingValue::of("wait").requested(requested.wait).effective(side.wait),
                SettingValue::of(core).requested(requested_core).effective(side.core),
            ]
            .map(|setting| setting.at(role))
        };
        let of_trial = [
            SettingValue::of("no-crc").requested(Some(requested.no_crc)).effective(Some(!effective.crc)),
            SettingValue::of("revision")
                .requested(Some(requested.revision))
                .effective(Some(effective.revision)),
            marker("markers-sent", requested.markers, effective.markers_sent),
            marker("markers-received", requested.markers, effective.markers_received),
            SettingValue::of("depth").requested(asked_depth).effective(Some(depth)),
            SettingValue::of("outstanding-reads")
                .requested(Some(requested.outstanding_reads))
                .effective(Some(effective.outstanding_reads)),
            SettingValue::of("immediate")
                .requested(Some(requested.immediate))
                .effective(Some(effective.immediate)),
            inline.requested(Some(requested.inline.0)).effective(Some(effective.inline_bytes)),
            SettingValue::of("mulpdu").unit(Unit::Bytes).effective(Some(effective.mulpdu_bytes)).at("client"),
        ];
        let near = side("client", "core", near, requested.core);
        let far = side("server", "remote-core", far, requested.remote_core);
        of_trial.into_iter().chain(near).chain(far).filter(SettingValue::is_known).collect()
    }
}

/// Markers are requested for both directions.
fn marker(name: &str, requested: bool, effective: bool) -> SettingValue {
    let setting = SettingValue::of(name).requested(Some(requested)).effective(Some(effective));
    SettingValue { requested_by: Some("markers".to_owned()), ..setting }
}

impl RdmaResult {
    /// Both directions together.
    fn total_bps(&self) -> f64 {
        self.forward.goodput_bps + self.reverse.as_ref().map_or(0.0, |reverse| reverse.goodput_bps)
    }

    fn total_bytes(&self) -> u64 {
        self.forward.bytes + self.reverse.as_ref().map_or(0, |reverse| reverse.bytes)
    }
}

fn result_size(result: &RdmaResult) -> f64 {
    result.size_bytes as f64
}
