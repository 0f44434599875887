//! File system metadata for people: a line per phase as soon as it is measured, then rates over iterations and what to
//! know; and the summary that mdtest 4 prints.

use clearstream_schema::{
    human,
    storage::{
        ClientCache, StorageStatistics,
        metadata::{
            MetadataConfig, MetadataKind, MetadataOperation, MetadataPhase, MetadataSummary, StorageMetadata,
        },
    },
};

use super::{
    Paint,
    storage_stream::{clocks, on_hosts, own_spans},
    table::{or_dash, table},
};

/// What is measured, by so many ranks, and the heads of the columns.
pub fn head(config: &MetadataConfig, ranks: u64) -> String {
    let trees = match (config.uses_earlier(), config.unique_directory) {
        (true, _) => "items of an earlier run",
        (false, true) => "a tree per rank",
        (false, false) => "a shared tree",
    };
    let directories: Vec<&str> =
        [&config.directory].into_iter().chain(&config.more_directories).map(String::as_str).collect();
    format!(
        "{}\n{}{}, {trees}\n{:>4} {:<9} {:<8} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9}",
        directories.join(", "),
        human::count(ranks, "rank"),
        on_hosts(config.hosts.as_deref()),
        "iter",
        "",
        "phase",
        "1/s",
        "median",
        "99 %",
        "longest",
        "total",
        "own span",
    )
}

/// A phase.
pub fn row(phase: &MetadataPhase) -> String {
    let latency = |of: fn(&clearstream_schema::storage::StorageLatency) -> u64| {
        or_dash(phase.latency.as_ref().map(|found| human::time(of(found))))
    };
    // Of fewer samples it would be the longest.
    let p99 = phase.latency.filter(|latency| latency.sample_count >= 100);
    let mut text = format!(
        "{:>4} {:<9} {:<8} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9}",
        phase.iteration,
        phase.kind.name(),
        format!("{}{}", phase.operation.name(), mark(phase.client_cache)),
        human::three_digits(phase.operations_per_second),
        latency(|latency| latency.p50_ns),
        or_dash(p99.map(|latency| human::time(latency.p99_ns))),
        latency(|latency| latency.max_ns),
        human::time(phase.total_ns),
        own_spans(phase.rank_spans.iter().copied(), phase.total_ns),
    );
    if let Some(wall) = phase.stonewall {
        text.push_str(&format!(
            "\n     at the stonewall: {} 1/s, {} in {}",
            human::three_digits(wall.operations_per_second),
            human::count(wall.operation_count, "item"),
            human::time(wall.time_ns)
        ));
    }
    text
}

fn mark(cache: Option<ClientCache>) -> &'static str {
    if cache == Some(ClientCache::Possible) { " *" } else { "" }
}

/// Rates over iterations, what to know.
pub fn end(found: &StorageMetadata, paint: Paint) -> String {
    let mut lines = Vec::new();
    if found.requested.iterations > 1 {
        let heads = ["operations/s", "", ">max", ">min", ">mean", ">sd"];
        lines.push(table(&heads, found.summary.iter().map(rate_row).collect()));
    }
    if !found.complete {
        lines.push(paint.warning(&format!("partial: {}", human::count(found.phases.len() as u64, "phase"))));
    }
    let directories = match found.tree_count {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    };
    lines.push(format!(
        "{directories} in a tree, {} of each rank and kind; file system: {}",
        human::count(found.item_count, "item"),
        found.file_system
    ));
    if let Some(folder) = &found.kept_folder {
        lines.push(format!("kept in folder {folder}"));
    }
    lines.extend(clocks(found.phases.iter().map(|phase| (phase.clock, phase.total_ns))));
    lines.extend(found.notices.iter().map(|notice| paint.warning(&format!("note: {}", notice.message))));
    lines.join("\n")
}

fn rate_row(summary: &MetadataSummary) -> Vec<String> {
    let rate = summary.operations_per_second;
    let operation = format!("{}{}", summary.operation.name(), mark(summary.client_cache));
    let figures = [rate.max, rate.min, rate.mean, rate.standard_deviation].map(human::three_digits);
    [summary.kind.name().to_owned(), operation].into_iter().chain(figures).collect()
}

/// The summary of mdtest 4, with its names and columns (its src/mdtest.c). Its standard deviation is that of a sample.
pub fn mdtest(found: &StorageMetadata) -> String {
    let iterations = found.phases.iter().map(|phase| phase.iteration + 1).max().unwrap_or(0);
    let mut text = format!(
        "SUMMARY rate (in ops/sec): (of {iterations} iterations)\n   {:<14}{:>19}{:>15}{:>15}{:>15}\n   {:<15}{:>18}{:>15}{:>15}{:>15}",
        "Operation", "Max", "Min", "Mean", "Std Dev", "---------", "---", "---", "----", "-------"
    );
    // mdtest has the tree last.
    let (tree, items): (Vec<_>, Vec<_>) =
        found.summary.iter().partition(|summary| summary.kind == MetadataKind::Tree);
    for summary in items.into_iter().chain(tree) {
        let rate = summary.operations_per_second;
        text.push_str(&format!(
            "\n   {:<22} {:>14.3} {:>14.3} {:>14.3} {:>14.3}",
            mdtest_name(summary),
            rate.max,
            rate.min,
            rate.mean,
            of_sample(rate, iterations)
        ));
    }
    text
}

/// With the divisor n - 1; 0 of one.
fn of_sample(rate: StorageStatistics, count: u32) -> f64 {
    let (all, of_sample) = (f64::from(count), f64::from(count.saturating_sub(1)));
    if count < 2 { 0.0 } else { rate.standard_deviation * (all / of_sample).sqrt() }
}

fn mdtest_name(summary: &MetadataSummary) -> String {
    let kind = match summary.kind {
        MetadataKind::Tree => "Tree",
        MetadataKind::Directory => "Directory",
        MetadataKind::File => "File",
    };
    let operation = match summary.operation {
        MetadataOperation::Create => "creation",
        MetadataOperation::Remove => "removal",
        other => other.name(),
    };
    format!("{kind} {operation}")
}
