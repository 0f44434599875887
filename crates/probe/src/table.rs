//! Probe results for people.

use clearstream_output::{
    Paint,
    table::{or_dash, table},
};
use clearstream_schema::{
    human::{bytes, time},
    probe::{ClockSource, DelayStats, ProbeDirection, ProbeSummary},
};

/// Delays, loss, MTU and hops of each direction.
pub(crate) fn summary(summary: &ProbeSummary, paint: Paint) -> String {
    let mut text = String::new();
    for one in &summary.directions {
        text.push_str(&direction(one, paint));
        text.push('\n');
    }
    let all = || summary.directions.iter().flat_map(|one| one.udp.iter().chain(&one.tcp));
    if all().any(|stats| stats.local_queueing.is_some()) {
        text.push_str(
            "own queue: local queueing delay (median), between the sending host's queueing discipline and its driver; \
             the delays count from the driver\n",
        );
    }
    if all().any(|stats| stats.clock == ClockSource::Application) {
        text.push_str("* by the program's clock, not the kernel's time stamps\n");
    }
    if let (Some(rate), Some(product)) = (summary.requested.rate, summary.bandwidth_delay_product_bytes) {
        text.push_str(&format!(
            "bandwidth-delay product at {rate}: {} ({product} bytes): a window smaller than this limits the flow",
            bytes(product)
        ));
    }
    text.trim_end().to_owned()
}

fn direction(one: &ProbeDirection, paint: Paint) -> String {
    let mut text = format!(
        "{} to {}: path MTU {}, hops {}\n",
        one.from,
        one.to,
        one.path_mtu_bytes.map_or_else(|| "-".to_owned(), |mtu| format!("{mtu} bytes")),
        or_dash(one.hop_count),
    );
    let measured = [("UDP", &one.udp), ("TCP", &one.tcp)];
    let measured = measured.into_iter().filter_map(|(protocol, stats)| Some((protocol, stats.as_ref()?)));
    let rows: Vec<Vec<String>> = measured.map(|(protocol, stats)| row(protocol, stats)).collect();
    if !rows.is_empty() {
        text.push_str(&table(&HEADER, rows));
        text.push('\n');
    }
    for notice in &one.notices {
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
        text.push('\n');
    }
    text
}

/// Heads short enough for 80 columns; the clock is named where it is not the
/// kernel's, and the mean is in the document.
const HEADER: [&str; 9] =
    ["by", ">loss", ">min", ">median", ">90 %", ">99 %", ">max", ">jitter", ">own queue"];

fn row(protocol: &str, stats: &DelayStats) -> Vec<String> {
    vec![
        match stats.clock {
            ClockSource::Kernel => protocol.to_owned(),
            ClockSource::Application => format!("{protocol}*"),
        },
        format!("{:.2} %", stats.loss_ratio * 100.0),
        time(stats.min_ns),
        time(stats.p50_ns),
        time(stats.p90_ns),
        time(stats.p99_ns),
        time(stats.max_ns),
        or_dash(stats.jitter_ns().map(time)),
        stats.local_queueing.map_or_else(|| "-".to_owned(), |queueing| time(queueing.p50_ns)),
    ]
}
