//! Streaming I/O for people, and as IOR prints it.

use clearstream_schema::{
    human,
    storage::{StorageLatency, StreamPhase, StreamPoint, StreamSummary, host_names},
};

use super::{
    Paint,
    quantity::count,
    table::{or_dash, table},
};

const MIB: f64 = 1_048_576.0;

/// A line per phase, statistics, and what to know.
pub fn summary(summary: &StreamSummary, paint: Paint) -> String {
    let config = &summary.requested;
    let files = if config.file_per_process { "a file per rank" } else { "one shared file" };
    let mut text = format!(
        "{} in {} ({}): {} by {}{}, transfers of {}\n",
        files,
        config.directory,
        summary.file_system,
        human::bytes(config.transfer_count() * config.transfer.0 * config.rank_count()),
        count(config.rank_count(), "rank"),
        on_hosts(config.hosts.as_deref()),
        human::bytes(config.transfer.0),
    );
    let heads = [
        ">iteration",
        "phase",
        ">bandwidth",
        ">transfers/s",
        ">median",
        ">99 %",
        ">longest",
        ">open",
        ">close",
        ">total",
    ];
    let rows = summary.points.iter().map(row).collect();
    text.push_str(&table(&heads, rows));
    for of in summary.statistics.iter().filter(|_| config.iterations > 1) {
        text.push_str(&format!(
            "\n{}: mean {}, {} to {}, standard deviation {}",
            of.phase.name(),
            bandwidth(of.bandwidth_bps.mean),
            bandwidth(of.bandwidth_bps.min),
            bandwidth(of.bandwidth_bps.max),
            bandwidth(of.bandwidth_bps.standard_deviation)
        ));
    }
    if let Some(folder) = &summary.kept_folder {
        text.push_str(&format!("\nfiles remain in {}/{folder}", config.directory));
    }
    for notice in &summary.notices {
        text.push('\n');
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
    }
    text
}

/// Hosts of an MPI job.
pub(super) fn on_hosts(list: Option<&str>) -> String {
    list.map_or_else(String::new, |list| format!(" on {}", host_names(list).join(", ")))
}

/// Storage is measured in bytes.
fn bandwidth(bps: f64) -> String {
    format!("{:.1} MiB/s", bps / 8.0 / MIB)
}

fn row(point: &StreamPoint) -> Vec<String> {
    let longest = |of: fn(&clearstream_schema::storage::StreamRank) -> u64| {
        human::time(point.ranks.iter().map(of).max().unwrap_or(0))
    };
    let latency = |of: fn(StorageLatency) -> u64| or_dash(point.latency.map(|found| human::time(of(found))));
    vec![
        point.iteration.to_string(),
        point.phase.name().to_owned(),
        bandwidth(point.bandwidth_bps),
        format!("{:.0}", point.operations_per_second),
        latency(|latency| latency.p50_ns),
        latency(|latency| latency.p99_ns),
        latency(|latency| latency.max_ns),
        longest(|rank| rank.open_ns),
        longest(|rank| rank.close_ns),
        human::time(point.total_ns),
    ]
}

/// The tables of IOR 4: bandwidth in MiB/s, times in seconds.
pub fn ior(summary: &StreamSummary) -> String {
    let config = &summary.requested;
    let mut text = String::from(
        "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----",
    );
    let seconds = |ns: u64| ns as f64 / 1e9;
    for point in &summary.points {
        let longest = |of: fn(&clearstream_schema::storage::StreamRank) -> u64| {
            seconds(point.ranks.iter().map(of).max().unwrap_or(0))
        };
        let transfer = longest(|rank| rank.transfer_ns);
        text.push_str(&format!(
            "\n{:<9} {:<10.2} {:<10.2} {:<11.6} {:<10} {:<10.2} {:<10.6} {:<10.6} {:<10.6} {:<10.6} {:<4}",
            point.phase.name(),
            point.bandwidth_bps / 8.0 / MIB,
            point.operation_count as f64 / transfer.max(1e-9),
            seconds(point.latency.map_or(0, |latency| latency.mean_ns)),
            config.block.0 / 1024,
            config.transfer.0 as f64 / 1024.0,
            longest(|rank| rank.open_ns),
            transfer,
            longest(|rank| rank.close_ns),
            seconds(point.total_ns),
            point.iteration,
        ));
    }
    for of in &summary.statistics {
        let label = match of.phase {
            StreamPhase::Write => "Max Write:",
            StreamPhase::Read => "Max Read: ",
        };
        text.push_str(&format!(
            "\n{label} {:.2} MiB/sec ({:.2} MB/sec)",
            of.bandwidth_bps.max / 8.0 / MIB,
            of.bandwidth_bps.max / 8e6
        ));
    }
    text.push_str(
        "\n\nSummary of all tests:\nOperation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev    Mean(s) reps",
    );
    for of in &summary.statistics {
        let mib = |bps: f64| bps / 8.0 / MIB;
        let repetitions = summary.points.iter().filter(|point| point.phase == of.phase).count();
        text.push_str(&format!(
            "\n{:<9} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.5} {:>4}",
            of.phase.name(),
            mib(of.bandwidth_bps.max),
            mib(of.bandwidth_bps.min),
            mib(of.bandwidth_bps.mean),
            mib(of.bandwidth_bps.standard_deviation),
            of.mean_ns / 1e9,
            repetitions,
        ));
    }
    text
}
