//! File system metadata for people.

use clearstream_schema::{
    human,
    storage::{
        ClientCache,
        metadata::{MetadataKind, MetadataOperation, MetadataPhase, MetadataSummary, StorageMetadata},
    },
};

use super::{Paint, storage_stream::on_hosts, table::table};

/// Rates over iterations, latencies of the last one, what to know.
pub fn summary(found: &StorageMetadata, paint: Paint) -> String {
    let config = &found.requested;
    let trees = if config.unique_directory { "a tree per rank" } else { "a shared tree" };
    let directories = match found.tree_count {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    };
    let mut text = format!(
        "{} ({})\n{}{}, {trees} of {directories}: {} of each rank and kind\n\n",
        found.directory,
        found.file_system,
        human::count(config.rank_count(), "rank"),
        on_hosts(config.hosts.as_deref()),
        human::count(found.item_count, "item"),
    );
    let heads = ["operations/s", "", ">max", ">min", ">mean", ">sd"];
    text.push_str(&table(&heads, found.summary.iter().map(rate_row).collect()));
    text.push_str("\n\n");
    let heads = ["latency", "", ">min", ">p50", ">p90", ">p99", ">p99.9", ">max"];
    let last = found.phases.iter().map(|phase| phase.iteration).max();
    let phases = found.phases.iter().filter(|phase| Some(phase.iteration) == last);
    text.push_str(&table(&heads, phases.filter_map(latency_row).collect()));
    for notice in &found.notices {
        text.push('\n');
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
    }
    text
}

fn rate_row(summary: &MetadataSummary) -> Vec<String> {
    let rate = summary.operations_per_second;
    let mark = if summary.client_cache == Some(ClientCache::Possible) { " *" } else { "" };
    let head = [summary.kind.name().to_owned(), format!("{}{mark}", summary.operation.name())];
    let figures = [rate.max, rate.min, rate.mean, rate.standard_deviation].map(human::three_digits);
    head.into_iter().chain(figures).collect()
}

fn latency_row(phase: &MetadataPhase) -> Option<Vec<String>> {
    let latency = phase.latency.filter(|_| phase.kind != MetadataKind::Tree)?;
    let times =
        [latency.min_ns, latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns];
    let head = [phase.kind.name().to_owned(), phase.operation.name().to_owned()];
    Some(head.into_iter().chain(times.map(human::time)).collect())
}

/// The summary of mdtest 4, with its names and columns.
pub fn mdtest(found: &StorageMetadata) -> String {
    let iterations = found.requested.iterations;
    let mut text = format!(
        "SUMMARY rate: (of {iterations} iterations)\n   \
         {:<24}{:>18}{:>15}{:>15}{:>15}\n   {:<24}{:>18}{:>15}{:>15}{:>15}\n",
        "Operation", "Max", "Min", "Mean", "Std Dev", "---------", "---", "---", "----", "-------"
    );
    // mdtest has the tree last.
    let (tree, items): (Vec<_>, Vec<_>) =
        found.summary.iter().partition(|summary| summary.kind == MetadataKind::Tree);
    for summary in items.into_iter().chain(tree) {
        let rate = summary.operations_per_second;
        text.push_str(&format!(
            "   {:<24}{:>18.3}{:>15.3}{:>15.3}{:>15.3}\n",
            mdtest_name(summary),
            rate.max,
            rate.min,
            rate.mean,
            rate.standard_deviation
        ));
    }
    for notice in &found.notices {
        text.push_str(&format!("note: {}\n", notice.message.trim_start_matches("* ")));
    }
    text.trim_end().to_owned()
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
