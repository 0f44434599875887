//! What the ranks of a storage measurement do now, for people: a line of at most 80 columns.

use clearstream_schema::{human, storage::StorageLive};

/// One line.
pub fn line(live: &StorageLive) -> String {
    let mut text = format!("{} {}", live.phase, live.iteration);
    if live.bytes > 0 {
        text.push_str(&format!("  {}", human::byte_rate(live.bandwidth_bps / 8.0)));
    }
    let calls = match live.operations_per_second {
        rate if rate >= 1e6 => format!("{:.0} M", rate / 1e6),
        rate => format!("{rate:.0}"),
    };
    text.push_str(&format!("  {calls} calls/s"));
    let part = live.operation_count as f64 * 100.0 / live.expected_count.max(1) as f64;
    text.push_str(&format!("  {:.0} %", part.min(100.0).floor()));
    if let Some(left) = live.left_ns {
        text.push_str(&format!("  {} left", human::long_time(left.div_ceil(1_000_000_000))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_eighty_columns_whatever_is_in_it() {
        let live = StorageLive {
            phase: "directory create".to_owned(),
            iteration: 999_999,
            elapsed_ns: u64::MAX,
            operation_count: u64::MAX / 2,
            bytes: u64::MAX,
            operations_per_second: 1.2e9,
            bandwidth_bps: 8e14,
            expected_count: u64::MAX,
            left_ns: Some(86_400_000_000_000 * 20),
            rank_count: 1,
        };
        let text = line(&live);
        assert!(text.len() <= 80, "{} {text}", text.len());
        let live = StorageLive { bytes: 0, left_ns: None, operation_count: 5, expected_count: 10, ..live };
        assert_eq!(line(&live), "directory create 999999  1200 M calls/s  50 %");
    }
}
