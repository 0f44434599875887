//! Notice for a measurement that was limited by a delay line, not by the path
//! that it models.

use clearstream_schema::{
    lab::{
        BUSY_LIMIT_RATIO, DELAY_LINE_LIMIT_NOTICE, DelayLineStats, LATENESS_LIMIT_NS, LATENESS_P99_LIMIT_NS,
    },
    notice::Notice,
};

/// Returns the notice for a measurement with these statistics of delay lines;
/// `None` where none of them was the limit.
pub fn notice(lines: &[DelayLineStats]) -> Option<Notice> {
    let limited: Vec<&DelayLineStats> = lines.iter().filter(|line| line.relay_limited).collect();
    if limited.is_empty() {
        return None;
    }
    let parts: Vec<String> = limited.iter().map(|line| reasons(line)).collect();
    Some(Notice {
        id: DELAY_LINE_LIMIT_NOTICE.to_owned(),
        message: format!(
            "the delay line, not the path, was the limit: {}; read the rate and the round trip as this \
             machine's, or give the link a rate that the machine can carry",
            parts.join("; ")
        ),
    })
}

/// `alpha to beta dropped 3 packets and was 2.1 ms late in the median`
fn reasons(line: &DelayLineStats) -> String {
    let dropped_count = line.relay_dropped_count + line.front_dropped_count;
    let mut parts = Vec::new();
    if dropped_count > 0 {
        parts.push(format!("dropped {dropped_count} packets that it could not process in time"));
    }
    if line.late_p50_ns > LATENESS_LIMIT_NS {
        parts.push(format!("was {:.1} ms late in the median", line.late_p50_ns as f64 / 1e6));
    }
    if line.late_p99_ns > LATENESS_P99_LIMIT_NS {
        parts.push(format!("was {:.1} ms late for one packet in a hundred", line.late_p99_ns as f64 / 1e6));
    }
    if let Some(ratio) = line.busy_ratio.filter(|ratio| *ratio >= BUSY_LIMIT_RATIO) {
        parts.push(format!("was busy {:.0} % of the time", ratio * 100.0));
    }
    format!("{} to {} {}", line.from, line.to, parts.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limited_lines_are_named_with_what_shows_it() {
        let healthy = DelayLineStats {
            from: "beta".to_owned(),
            to: "alpha".to_owned(),
            overflow_count: 7,
            late_p50_ns: 40_000,
            busy_ratio: Some(0.3),
            ..DelayLineStats::default()
        };
        assert_eq!(notice(&[]), None);
        assert_eq!(notice(std::slice::from_ref(&healthy)), None);
        let limited = DelayLineStats {
            from: "alpha".to_owned(),
            to: "beta".to_owned(),
            relay_dropped_count: 2,
            front_dropped_count: 1,
            late_p50_ns: 2_100_000,
            relay_limited: true,
            ..healthy.clone()
        };
        let notice = notice(&[limited, healthy]).unwrap();
        assert_eq!(notice.id, DELAY_LINE_LIMIT_NOTICE);
        for part in ["not the path, was the limit", "alpha to beta dropped 3 packets", "2.1 ms late"] {
            assert!(notice.message.contains(part), "{}", notice.message);
        }
        assert!(!notice.message.contains("beta to alpha"), "{}", notice.message);
    }
}
