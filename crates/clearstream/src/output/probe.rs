//! Probe results for people.

use clearstream_schema::probe::{ClockSource, DelayStats, ProbeSummary};

use super::{
    Paint,
    quantity::{bytes, time},
    table::{or_dash, table},
};

/// Delays, loss, MTU and hops of each direction.
pub fn summary(summary: &ProbeSummary, paint: Paint) -> String {
    let mut rows = Vec::new();
    let mut facts = Vec::new();
    for direction in &summary.directions {
        for (protocol, stats) in [("UDP", &direction.udp), ("TCP", &direction.tcp)] {
            if let Some(stats) = stats {
                rows.push(delay_row(&format!("{} to {}", direction.from, direction.to), protocol, stats));
            }
        }
        facts.push(format!(
            "{} to {}: path MTU {}, hops {}",
            direction.from,
            direction.to,
            direction.path_mtu_bytes.map_or_else(|| "-".to_owned(), |mtu| format!("{mtu} bytes")),
            or_dash(direction.hop_count),
        ));
        facts.extend(
            direction.notices.iter().map(|notice| paint.warning(&format!("note: {}", notice.message))),
        );
    }
    let mut text = table(
        &[
            "direction",
            "by",
            ">loss",
            ">min",
            ">mean",
            ">median",
            ">90 %",
            ">99 %",
            ">max",
            ">jitter",
            ">own queue",
            "clock",
        ],
        rows,
    );
    if summary
        .directions
        .iter()
        .any(|one| one.udp.iter().chain(&one.tcp).any(|it| it.local_queueing.is_some()))
    {
        text.push_str(
            "\nown queue: local queueing delay (median), between the sending host's queueing discipline and its driver; \
             the delays count from the driver",
        );
    }
    for fact in facts {
        text.push('\n');
        text.push_str(&fact);
    }
    if let (Some(rate), Some(product)) = (summary.requested.rate, summary.bandwidth_delay_product_bytes) {
        text.push_str(&format!(
            "\nbandwidth-delay product at {rate}: {} ({product} bytes): a window smaller than this limits the flow",
            bytes(product)
        ));
    }
    text
}

fn delay_row(direction: &str, protocol: &str, stats: &DelayStats) -> Vec<String> {
    vec![
        direction.to_owned(),
        protocol.to_owned(),
        format!("{:.2} %", stats.loss_ratio * 100.0),
        time(stats.min_ns),
        time(stats.mean_ns),
        time(stats.p50_ns),
        time(stats.p90_ns),
        time(stats.p99_ns),
        time(stats.max_ns),
        time(stats.jitter_ns),
        stats.local_queueing.map_or_else(|| "-".to_owned(), |queueing| time(queueing.p50_ns)),
        match stats.clock {
            ClockSource::Kernel => "kernel",
            ClockSource::Application => "application",
        }
        .to_owned(),
    ]
}
