//! Two directories that were measured in turns, for people.

use clearstream_schema::{human, storage::comparison::StorageComparison};
use clearstream_stats::{LEAST_PAIRS, median};

use super::{
    Paint,
    table::{or_dash, table},
};

/// Medians of each metric on both, and the ratio with its interval.
pub fn summary(found: &StorageComparison, paint: Paint) -> String {
    let mut text = String::new();
    for (directory, file_system) in found.directories.iter().zip(&found.file_systems) {
        text.push_str(&format!("{directory} ({file_system})\n"));
    }
    let [first, second] = names(&found.directories);
    let heads = ["median", &format!(">{first}"), &format!(">{second}"), ">ratio", ">interval"];
    let rows = found.metrics.iter().map(|metric| {
        let middle = |values: &[f64]| or_dash(median(values).map(|value| metric.unit.text(value)));
        let ratio = or_dash(metric.ratio.map(|ratio| human::three_digits(ratio.value)));
        let interval = metric.ratio.map(|ratio| {
            format!("{} to {}", human::three_digits(ratio.low), human::three_digits(ratio.high))
        });
        vec![metric.name.clone(), middle(&metric.first), middle(&metric.second), ratio, or_dash(interval)]
    });
    text.push_str(&table(&heads, rows.collect()));
    let pairs = found.metrics.iter().filter_map(|metric| metric.ratio).map(|ratio| ratio.pair_count).min();
    if let Some(pairs) = pairs {
        let ratios = format!("\nratios are {second} / {first}, of {}", human::count(pairs, "pair"));
        text.push_str(&ratios);
        if pairs < LEAST_PAIRS as u64 {
            text.push_str(&paint.warning(&format!(
                "\nnote: the intervals are ranges: from {} iterations on (-i) they have 95 % confidence",
                LEAST_PAIRS
            )));
        }
    }
    for notice in &found.notices {
        text.push('\n');
        text.push_str(&paint.warning(&format!("note: {}", notice.message)));
    }
    text
}

/// The last parts of the paths, unless they are the same.
fn names(directories: &[String; 2]) -> [&str; 2] {
    let all = directories.each_ref().map(String::as_str);
    let short = all.map(|path| path.trim_end_matches('/').rsplit('/').next().unwrap_or(path));
    if short[0] == short[1] { all } else { short }
}
