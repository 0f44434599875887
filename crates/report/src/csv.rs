//! One line per trial for spreadsheets and scripts: RFC 4180, units in the
//! column names, an empty field where nothing was measured. A column that is empty in
//! every line is left out.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_record::Reader;
use clearstream_schema::{
    flow::{FLOW_SUMMARY_SCHEMA, FlowSummary, ReceiveMethod},
    gateways::{GATEWAYS_SCHEMA, GatewaySummary},
    outcome::Unit,
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{TrialDocument, TrialOutcome},
};

use crate::{error::ReportError, format::level};

/// Columns after the levels.
const MEASURED: [&str; 26] = [
    "outcome",
    "complete",
    "steady",
    "receive_method",
    "flows",
    "goodput_bps",
    "received_bytes",
    "measured_ns",
    "retransmit_count",
    "loss_ratio",
    "rtt_ns",
    "min_rtt_ns",
    "client_cpu_seconds_per_gb",
    "server_cpu_seconds_per_gb",
    "cycles_per_byte_ratio",
    "interrupt_core",
    "rtt_p50_ns",
    "rtt_p99_ns",
    "path_mtu_bytes",
    "other_return_ratio",
    "hit_count",
    "stuck_count",
    "gap_p50_ns",
    "gap_max_ns",
    "full_rate_ns",
    "failure",
];

/// Columns of every run.
const IDENTITY: [&str; 5] = ["experiment", "trial", "cell", "repetition", "started"];

/// All trials, streamed twice: once for the columns that are filled, once for the lines.
pub(crate) fn render(reader: &Reader) -> Result<String, ReportError> {
    let (mut levels, mut filled) = (BTreeSet::<String>::new(), BTreeSet::<String>::new());
    for trial in reader.trials()? {
        let trial = trial?;
        filled
            .extend(values(&trial).into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name));
        levels.extend(trial.factors.into_keys());
    }
    let others = filled.iter().map(String::as_str).filter(|name| !MEASURED.contains(name));
    let columns: Vec<&str> =
        MEASURED.into_iter().filter(|name| filled.contains(*name)).chain(others).collect();
    let mut out = String::new();
    let level_names = levels.iter().map(|name| format!("level_{}", name.replace('-', "_")));
    let measured_names = columns.iter().map(|name| (*name).to_owned());
    line(&mut out, IDENTITY.map(str::to_owned).into_iter().chain(level_names).chain(measured_names));
    for trial in reader.trials()? {
        let trial = trial?;
        let identity = [
            trial.experiment.clone(),
            trial.trial.to_string(),
            trial.cell.to_string(),
            trial.repetition.to_string(),
            trial.started.clone(),
        ];
        let levels = levels.iter().map(|name| trial.factors.get(name).map(level).unwrap_or_default());
        let mut values = values(&trial);
        let values = columns.iter().map(|name| values.remove(*name).unwrap_or_default());
        line(&mut out, identity.into_iter().chain(levels).chain(values));
    }
    Ok(out)
}

/// What is known of a trial, by column. A column has one name, whichever workload fills it.
fn values(trial: &TrialDocument) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> = metrics(trial).collect();
    values.extend(measured(trial).into_iter().map(|(name, value)| (name.to_owned(), value)));
    values
}

/// Metrics that a column of another name holds, by the workload's document: those columns are
/// older than metrics.
const RENAMED: [(&str, &str); 8] = [
    (FLOW_SUMMARY_SCHEMA, "retransmits"),
    (PROBE_SUMMARY_SCHEMA, "udp-delay-p50"),
    (PROBE_SUMMARY_SCHEMA, "udp-delay-p99"),
    (PROBE_SUMMARY_SCHEMA, "udp-loss"),
    (GATEWAYS_SCHEMA, "round-trip-p50"),
    (GATEWAYS_SCHEMA, "other-return"),
    (GATEWAYS_SCHEMA, "stuck-flows"),
    (GATEWAYS_SCHEMA, "recovery"),
];

/// Every metric of a trial by its column, but for [`RENAMED`].
fn metrics(trial: &TrialDocument) -> impl Iterator<Item = (String, String)> {
    let outcome = trial.outcome.measured();
    let document =
        outcome.and_then(|outcome| outcome.detail.as_ref()).map_or("", |detail| detail.schema.as_str());
    let all = outcome.into_iter().flat_map(|outcome| &outcome.metrics);
    let own = all.filter(move |metric| !RENAMED.contains(&(document, metric.name.as_str())));
    own.map(|metric| {
        let unit = match metric.unit {
            Unit::BitsPerSecond => "bps",
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Nanoseconds => "ns",
            Unit::Bytes => "bytes",
            Unit::Ratio => "ratio",
            Unit::Count => "count",
            Unit::PerSecond => "per_second",
            Unit::SecondsPerGigabyte => "seconds_per_gb",
        };
        (format!("{}_{unit}", metric.name.replace('-', "_")), metric.value.to_string())
    })
}

fn measured(trial: &TrialDocument) -> BTreeMap<&'static str, String> {
    let mut values = BTreeMap::new();
    values.extend(trial.steady.map(|steady| ("steady", steady.to_string())));
    let outcome = match &trial.outcome {
        TrialOutcome::Measured(outcome) => outcome,
        TrialOutcome::Failed(failure) => {
            values.insert("outcome", "failed".to_owned());
            values.insert("failure", failure.message.clone());
            return values;
        }
    };
    values.insert("outcome", trial.workload.clone());
    if let Some(Ok(summary)) = outcome.detail::<FlowSummary>(FLOW_SUMMARY_SCHEMA) {
        flow(&mut values, &summary);
    } else if let Some(Ok(summary)) = outcome.detail::<ProbeSummary>(PROBE_SUMMARY_SCHEMA) {
        probe(&mut values, &summary);
    } else if let Some(Ok(summary)) = outcome.detail::<GatewaySummary>(GATEWAYS_SCHEMA) {
        gateways(&mut values, &summary);
    } else if !outcome.metrics.is_empty() {
        values.insert("complete", outcome.complete.to_string());
    }
    values
}

fn flow(values: &mut BTreeMap<&'static str, String>, summary: &FlowSummary) {
    let receive = match summary.requested.receive {
        ReceiveMethod::Copy => "copy",
        ReceiveMethod::Discard => "discard",
        ReceiveMethod::Splice => "splice",
        ReceiveMethod::IoUring => "io-uring",
    };
    values.insert("complete", summary.complete.to_string());
    values.insert("receive_method", receive.to_owned());
    values.insert("flows", summary.requested.flows.to_string());
    values.insert("goodput_bps", format!("{:.0}", summary.goodput_bps));
    values.insert("received_bytes", summary.received_bytes.to_string());
    values.insert("measured_ns", summary.measured_ns.to_string());
    values.insert("client_cpu_seconds_per_gb", format!("{:.6}", summary.client_cpu_seconds_per_gb));
    values.insert("server_cpu_seconds_per_gb", format!("{:.6}", summary.server_cpu_seconds_per_gb));
    values.extend(summary.retransmit_count.map(|n| ("retransmit_count", n.to_string())));
    values.extend(summary.loss_ratio.map(|n| ("loss_ratio", n.to_string())));
    values.extend(summary.rtt_ns.map(|n| ("rtt_ns", n.to_string())));
    values.extend(summary.min_rtt_ns.map(|n| ("min_rtt_ns", n.to_string())));
    values.extend(summary.cycles_per_byte_ratio.map(|n| ("cycles_per_byte_ratio", format!("{n:.4}"))));
    values.extend(summary.interrupt_core.as_ref().map(|found| ("interrupt_core", found.core.to_string())));
}

fn gateways(values: &mut BTreeMap<&'static str, String>, summary: &GatewaySummary) {
    values.insert("flows", summary.flow_count.to_string());
    values.insert("rtt_p50_ns", summary.round_trip_p50_ns.to_string());
    let returns = summary.other_return_count as f64 / summary.flow_count.max(1) as f64;
    values.insert("other_return_ratio", format!("{returns:.4}"));
    if let Some(effect) = &summary.failure {
        values.insert("hit_count", effect.hit_count.to_string());
        values.insert("stuck_count", effect.stuck_count.to_string());
        values.extend(effect.gap_p50_ns.map(|ns| ("gap_p50_ns", ns.to_string())));
        values.extend(effect.gap_max_ns.map(|ns| ("gap_max_ns", ns.to_string())));
        values.extend(effect.full_rate_ns.map(|ns| ("full_rate_ns", ns.to_string())));
    }
}

/// The first direction: the others are in the record.
fn probe(values: &mut BTreeMap<&'static str, String>, summary: &ProbeSummary) {
    let Some(direction) = summary.directions.first() else { return };
    values.extend(direction.path_mtu_bytes.map(|mtu| ("path_mtu_bytes", mtu.to_string())));
    if let Some(stats) = direction.udp.as_ref().or(direction.tcp.as_ref()) {
        values.insert("rtt_p50_ns", stats.p50_ns.to_string());
        values.insert("rtt_p99_ns", stats.p99_ns.to_string());
        values.insert("loss_ratio", stats.loss_ratio.to_string());
    }
}

fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    for (index, value) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&field(&value));
    }
    out.push_str("\r\n");
}

/// Quoted where RFC 4180 requires it. A text that a spreadsheet would run as
/// a formula gets an apostrophe in front.
fn field(raw: &str) -> String {
    let formula = raw.starts_with(['=', '+', '-', '@', '\t', '\r']) && raw.parse::<f64>().is_err();
    let text = if formula { format!("'{raw}") } else { raw.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_formulas_disarmed() {
        assert_eq!(field("0-3,8"), "\"0-3,8\"");
        assert_eq!(field("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(field("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(field("-5.5"), "-5.5");
        assert_eq!(field(""), "");
    }
}
