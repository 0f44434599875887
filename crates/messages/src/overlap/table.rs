//! Overlap of work and messages for people.

use crate::overlap::{
    OverlapConfig, OverlapMethod, OverlapPoint, OverlapSideSettings, OverlapSummary, OverlapTransport,
};
use clearstream_output::{
    Paint,
    table::{or_dash, table},
};
use clearstream_schema::{
    human::{self, count, rate},
    outcome::Unit,
    rdma::RdmaProgress,
};

/// What was measured how, a line per interval of work, the headline, and what to know.
pub(super) fn summary(summary: &OverlapSummary, paint: Paint) -> String {
    let config = &summary.requested;
    let rows = summary.points.iter().map(|point| row(config, point)).collect();
    let mut heads = vec![">work", ">availability", ">bandwidth"];
    if config.method == OverlapMethod::PostWorkWait {
        heads.extend([">post", ">work time", ">wait"]);
    }
    heads.extend([">client CPU", ">server CPU"]);
    let mut text = format!("{}\n{}", title(config), table(&heads, rows));
    if let Some(line) = headline(summary) {
        text.push('\n');
        text.push_str(&line);
    }
    for (role, settings) in [("client", &summary.client), ("server", &summary.server)] {
        if let Some(line) = side(config, settings) {
            text.push_str(&format!("\n{role}: {line}"));
        }
    }
    if let Some(job) = &summary.mpi {
        text.push('\n');
        text.push_str(&job.text());
    }
    for notice in &summary.notices {
        text.push('\n');
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
    }
    text
}

fn title(config: &OverlapConfig) -> String {
    let carrier = match (config.transport, config.progress) {
        (OverlapTransport::Tcp, _) => "TCP",
        (OverlapTransport::Mpi, _) => "MPI",
        (OverlapTransport::MpiIwarp, _) => "MPI over iWARP",
        (OverlapTransport::Iwarp, RdmaProgress::Inline) => "iWARP, inline progress",
        (OverlapTransport::Iwarp, RdmaProgress::Offloaded) => "iWARP, offloaded progress",
        (OverlapTransport::Iwarp, RdmaProgress::Adaptive) => "iWARP, adaptive progress",
    };
    let messages = format!("{} of {}", count(config.window, "message"), human::bytes(config.size.0));
    match config.method {
        OverlapMethod::Polling => format!("polling over {carrier}: {messages} in flight"),
        OverlapMethod::PostWorkWait => {
            format!("post, work, wait over {carrier}: {messages} in each direction")
        }
    }
}

/// The sentence that COMB's figure is drawn for.
fn headline(summary: &OverlapSummary) -> Option<String> {
    let (best, kept) = summary.best().zip(summary.kept())?;
    Some(format!(
        "bandwidth up to {}; 90 % of it with {} of the client's core free for work (work of {})",
        rate(best.bandwidth_bps),
        Unit::Ratio.text(kept.availability_ratio),
        count(kept.work_count, "iteration"),
    ))
}

fn row(config: &OverlapConfig, point: &OverlapPoint) -> Vec<String> {
    let percent = |ratio: f64| Unit::Ratio.text(ratio);
    let mut cells =
        vec![point.work_count.to_string(), percent(point.availability_ratio), rate(point.bandwidth_bps)];
    if config.method == OverlapMethod::PostWorkWait {
        let times = [point.post_ns, point.work_ns, point.wait_ns];
        let text = |all_ns| human::time(point.per_cycle(all_ns).round() as u64);
        cells.extend(times.map(|all_ns| or_dash(all_ns.map(text))));
    }
    cells.extend([percent(point.client_cpu_ratio), percent(point.server_cpu_ratio)]);
    cells
}

/// Settings of a connection; those of an MPI library are its own.
fn side(config: &OverlapConfig, settings: &OverlapSideSettings) -> Option<String> {
    match config.transport {
        OverlapTransport::Mpi | OverlapTransport::MpiIwarp => None,
        OverlapTransport::Tcp => Some(format!(
            "send buffer {}, receive buffer {} (as the connection began), {}, segments of {} bytes",
            or_dash(settings.send_buffer_bytes),
            or_dash(settings.receive_buffer_bytes),
            or_dash(settings.congestion_control.as_ref()),
            or_dash(settings.segment_bytes),
        )),
        OverlapTransport::Iwarp => Some(format!(
            "ULPDUs of {} bytes, CRC {}",
            or_dash(settings.mulpdu_bytes),
            match settings.crc {
                Some(true) => "on",
                Some(false) => "off",
                None => "unknown",
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::overlap::OverlapMeasured;

    use super::*;

    #[test]
    fn people_see_the_headline_and_times_of_a_cycle() {
        let measured = OverlapMeasured {
            work_count: 1000,
            cycle_count: 10,
            server_received_count: 500,
            client_received_count: 500,
            elapsed_ns: 1_000_000,
            work_alone_ns: 750_000,
            phases_ns: Some([100_000, 800_000, 100_000]),
            client_cpu_ns: 500_000,
            server_cpu_ns: 1_000_000,
            interfaces: None,
        };
        let config = OverlapConfig { method: OverlapMethod::PostWorkWait, ..OverlapConfig::default() };
        let of = OverlapSummary {
            requested: config,
            complete: true,
            client: OverlapSideSettings::default(),
            server: OverlapSideSettings::default(),
            mpi: None,
            points: vec![measured.point(1000)],
            notices: Vec::new(),
        };
        let text = summary(&of, Paint::for_stdout());
        assert!(
            text.starts_with("post, work, wait over TCP: 16 messages of 100 KiB in each direction\n"),
            "{text}"
        );
        // 1000 messages of 8000 bits in a millisecond; a tenth of each time per cycle.
        assert!(text.contains("bandwidth up to 8.00 Gb/s; 90 % of it with 75.0 % of"), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("1000 ")).unwrap_or_default();
        let row: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(row.join(" "), "1000 75.0 % 8.00 Gb/s 10.0 us 80.0 us 10.0 us 50.0 % 100 %", "{text}");
    }
}
