//! Streaming I/O as IOR 4 prints it, column by column (its src/ior-output.c), for tickets and the scripts that read them.

use clearstream_schema::{
    human,
    storage::{StreamConfig, StreamPhase, StreamPoint, StreamRank, StreamReorder, StreamSummary},
};

const MIB: f64 = 1_048_576.0;

/// The options, and the heads of the results.
pub fn head(config: &StreamConfig, ranks: &[StreamRank]) -> String {
    let (nodes, per_node) = nodes(ranks);
    let mut options = vec![
        ("api", api(config).to_owned()),
        ("apiVersion", String::new()),
        ("test filename", format!("{}/{}", config.directory, config.name.as_deref().unwrap_or("data"))),
        (
            "access",
            if config.file_per_process { "file-per-process" } else { "single-shared-file" }.to_owned(),
        ),
        ("type", "independent".to_owned()),
        ("segments", config.segments.to_string()),
        ("ordering in a file", if config.random_offsets { "random" } else { "sequential" }.to_owned()),
        (
            "ordering inter file",
            match config.reorder {
                StreamReorder::None => "no tasks offsets",
                StreamReorder::Constant => "constant task offset",
                StreamReorder::Random => "random task offset",
            }
            .to_owned(),
        ),
    ];
    if config.reorder != StreamReorder::None {
        options.push(("task offset", offset(config, per_node).to_string()));
    }
    if config.reorder == StreamReorder::Random {
        options.push(("reorder random seed", config.seed.to_string()));
    }
    options.extend([
        ("nodes", nodes.to_string()),
        ("tasks", ranks.len().to_string()),
        ("clients per node", per_node.to_string()),
        ("memoryBuffer", "CPU".to_owned()),
        ("dataAccess", "CPU".to_owned()),
        ("GPUDirect", "0".to_owned()),
        ("repetitions", config.iterations.to_string()),
        ("xfersize", human::bytes(config.transfer.0)),
        ("blocksize", human::bytes(config.block.0)),
        (
            "aggregate filesize",
            human::bytes(config.transfer_count().saturating_mul(config.transfer.0 * ranks.len() as u64)),
        ),
    ]);
    if let Some(stonewall) = config.stonewall {
        options.push(("stonewallingTime", format!("{:.0}", stonewall.seconds())));
        options.push(("stoneWallingWearOut", u8::from(config.wear_out).to_string()));
    }
    let lines = options.iter().map(|(key, value)| format!("{key:<20}: {value}\n")).collect::<String>();
    format!(
        "Options: \n{lines}\nResults: \n\n\
         access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----"
    )
}

/// A phase.
pub fn row(config: &StreamConfig, point: &StreamPoint) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let longest = |of: fn(&StreamRank) -> u64| seconds(point.ranks.iter().map(of).max().unwrap_or(0));
    let transfer = longest(|rank| rank.transfer_ns);
    let figures = [
        point.bandwidth_bps / 8.0 / MIB,
        point.operation_count as f64 / transfer.max(1e-9),
        seconds(point.latency.map_or(0, |latency| latency.mean_ns)),
        config.block.0 as f64 / 1024.0,
        config.transfer.0 as f64 / 1024.0,
        longest(|rank| rank.open_ns),
        transfer,
        longest(|rank| rank.close_ns),
        seconds(point.total_ns),
    ];
    let [bandwidth, rate, latency, block, size, open, transfer, close, total] = figures.map(number);
    format!(
        "{:<10}{bandwidth} {rate} {latency}  {block} {size} {open} {transfer} {close} {total} {:<4}",
        point.phase.name(),
        point.iteration
    )
}

/// Ten characters, as many digits behind the point as IOR's `PPDouble` leaves.
fn number(value: f64) -> String {
    let precision = match value {
        value if value < 1.0 => 6,
        value if value < 3600.0 => 2,
        _ => 0,
    };
    format!("{value:<10.precision$}")
}

/// The largest rates, and the summary over repetitions.
pub fn end(summary: &StreamSummary) -> String {
    let config = &summary.requested;
    let ranks = summary.points.first().map(|point| point.ranks.as_slice()).unwrap_or_default();
    let mut text = String::new();
    for of in &summary.statistics {
        let label = match of.phase {
            StreamPhase::Write => "Max Write:",
            StreamPhase::Read => "Max Read: ",
            // IOR has none.
            StreamPhase::Mixed => "Max Mixed:",
        };
        let max = of.bandwidth_bps.max;
        text.push_str(&format!("{label} {:.2} MiB/sec ({:.2} MB/sec)\n", max / 8.0 / MIB, max / 8e6));
    }
    text.push_str(&format!(
        "\nSummary of all tests:\n{:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>13} \
         Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt {:>8} {:>8} {:>9} {:>5} RefNum",
        "Operation",
        "Max(MiB)",
        "Min(MiB)",
        "Mean(MiB)",
        "StdDev",
        "Max(OPs)",
        "Min(OPs)",
        "Mean(OPs)",
        "StdDev",
        "Mean(s)",
        "Stonewall(s)",
        "Stonewall(MiB)",
        " blksiz",
        "xsize",
        "aggs(MiB)",
        "API",
    ));
    let (_, per_node) = nodes(ranks);
    for of in &summary.statistics {
        let points: Vec<&StreamPoint> = summary.points.iter().filter(|it| it.phase == of.phase).collect();
        let rate = |bps: f64| bps / 8.0 / config.transfer.0 as f64;
        let bandwidth = of.bandwidth_bps;
        let (wall_s, wall_mib) = stonewall(&points);
        text.push_str(&format!(
            "\n{:<9} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.5} {wall_s:>10} \
             {wall_mib:>13} {:>5} {:>6} {:>3} {:>4} {:>3} {:>5} {:>8} {:>9} {:>4} {:>6} {:>8} {:>8} {:>9.1} {:>3} {:>6}",
            of.phase.name(),
            bandwidth.max / 8.0 / MIB,
            bandwidth.min / 8.0 / MIB,
            bandwidth.mean / 8.0 / MIB,
            bandwidth.standard_deviation / 8.0 / MIB,
            rate(bandwidth.max),
            rate(bandwidth.min),
            rate(bandwidth.mean),
            rate(bandwidth.standard_deviation),
            of.mean_ns / 1e9,
            0,
            ranks.len(),
            per_node,
            points.len(),
            u8::from(config.file_per_process),
            u8::from(config.reorder == StreamReorder::Constant),
            offset(config, per_node),
            u8::from(config.reorder == StreamReorder::Random),
            config.seed,
            config.segments,
            config.block.0,
            config.transfer.0,
            points.first().map_or(0.0, |point| point.bytes as f64 / MIB),
            api(config),
            0,
        ));
    }
    text
}

/// Mean time to the stonewall, and what was transferred per second of it.
fn stonewall(points: &[&StreamPoint]) -> (String, String) {
    let walls: Vec<_> = points.iter().filter_map(|point| point.stonewall).collect();
    if walls.is_empty() {
        return ("NA".to_owned(), "NA".to_owned());
    }
    let (bytes, ns) = walls.iter().fold((0, 0), |(bytes, ns), it| (bytes + it.bytes, ns + it.time_ns));
    let seconds = ns as f64 / 1e9;
    (format!("{:.2}", seconds / walls.len() as f64), format!("{:.2}", bytes as f64 / seconds / MIB))
}

/// Hosts, and the ranks of the first one.
fn nodes(ranks: &[StreamRank]) -> (usize, usize) {
    let mut hosts: Vec<&str> = ranks.iter().map(|rank| rank.host.as_str()).collect();
    let of_first = hosts.iter().filter(|host| Some(*host) == hosts.first()).count();
    hosts.sort_unstable();
    hosts.dedup();
    (hosts.len(), of_first)
}

fn offset(config: &StreamConfig, per_node: usize) -> usize {
    config.reorder_offset.map_or(per_node, |offset| offset as usize)
}

fn api(config: &StreamConfig) -> &'static str {
    match config.backend {
        clearstream_schema::storage::StreamBackend::Posix => "POSIX",
        clearstream_schema::storage::StreamBackend::Mmap => "MMAP",
        clearstream_schema::storage::StreamBackend::IoUring => "IO_URING",
    }
}
