//! Messages by size for people.

use crate::message::{
    MessageConfig, MessageKind, MessageMethod, MessagePoint, MessageSummary, MessageTransport,
};
use clearstream_output::{
    Paint,
    table::{or_dash, table},
};
use clearstream_schema::{
    human::{count, rate, time},
    outcome::Unit,
};

/// What was measured how, a line per size, and what to know.
pub(super) fn summary(summary: &MessageSummary, paint: Paint) -> String {
    let config = &summary.requested;
    let is_ping_pong = config.kind == MessageKind::PingPong;
    let rows = summary.points.iter().map(|point| row(config, point)).collect();
    let heads: &[&str] = if is_ping_pong {
        &[
            ">size",
            ">median",
            ">99 %",
            ">min",
            ">mean",
            ">throughput",
            ">round trips",
            ">client CPU",
            ">server CPU",
        ]
    } else {
        &[">size", ">bandwidth", ">messages/s", ">windows", ">client CPU", ">server CPU"]
    };
    let mut text = format!("{}\n{}", title(config), table(heads, rows));
    let side = |role: &str, side: &crate::message::MessageSideSettings| {
        format!(
            "\n{role}: send buffer {}, receive buffer {} (as the connection began), {}, {}, segments of {} bytes",
            or_dash(side.send_buffer_bytes),
            or_dash(side.receive_buffer_bytes),
            match side.no_delay {
                Some(true) => "TCP_NODELAY",
                Some(false) => "Nagle's algorithm",
                None => "TCP_NODELAY unknown",
            },
            or_dash(side.congestion_control.as_ref()),
            or_dash(side.segment_bytes),
        )
    };
    match &summary.mpi {
        Some(job) => text.push_str(&format!("\n{}", job.text())),
        None if config.transport.is_mpi() => {}
        None => {
            text.push_str(&side("client", &summary.client));
            text.push_str(&side("server", &summary.server));
        }
    }
    for notice in &summary.notices {
        text.push('\n');
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
    }
    text
}

fn title(config: &MessageConfig) -> String {
    let method = match (config.transport, config.method) {
        (MessageTransport::Mpi, _) => "MPI",
        (MessageTransport::MpiIwarp, _) => "MPI over iWARP",
        (_, MessageMethod::Blocking) => "blocking calls",
        (_, MessageMethod::BusyPoll) => "busy polling",
        (_, MessageMethod::IoUring) => "io_uring",
    };
    match config.kind {
        MessageKind::PingPong => format!("ping-pong by {method}: one-way latency (half of a round trip)"),
        MessageKind::Stream => {
            format!("one way by {method}: windows of {}, acknowledged", count(config.window, "message"))
        }
        MessageKind::Bidirectional => format!(
            "both ways at once by {method}: windows of {} each, acknowledged; sum of both directions",
            count(config.window, "message")
        ),
    }
}

fn row(config: &MessageConfig, point: &MessagePoint) -> Vec<String> {
    let percent = |ratio: f64| Unit::Ratio.text(ratio);
    let mut cells = vec![point.size_bytes.to_string()];
    if config.kind == MessageKind::PingPong {
        let of = |value: fn(&crate::message::MessageLatency) -> u64| {
            point.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| time(value(latency)))
        };
        cells.extend([of(|it| it.p50_ns), of(|it| it.p99_ns), of(|it| it.min_ns), of(|it| it.mean_ns)]);
        cells.push(or_dash(point.throughput_bps.map(rate)));
    } else {
        cells.push(or_dash(point.bandwidth_bps.map(rate)));
        cells.push(or_dash(point.message_rate_per_second.map(|rate| format!("{rate:.0}"))));
    }
    cells.push(point.iteration_count.to_string());
    cells.extend([percent(point.client_cpu_ratio), percent(point.server_cpu_ratio)]);
    cells
}
