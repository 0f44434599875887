//! Cost of all kept changes, in a sentence: round trip, CPU time and
//! retransmissions before and now.

use clearstream_schema::improvement::Improvement;

use super::{kept, wording::times};
use crate::{
    estimate::median,
    format::{significant, time},
};

/// A measure: name, medians before and now, how a value is written, and its unit.
type Measure<'a> = (&'a str, Option<(f64, f64)>, &'a dyn Fn(f64) -> String, &'a str);

/// A smaller increase is not a cost.
const NOTABLE: f64 = 1.05;

/// The sentence; `None` when nothing was kept or beginning and end have no runs.
pub(super) fn sentence(found: &Improvement) -> Option<String> {
    kept(found).next()?;
    let (before, after) = (&found.before, &found.after);
    let middle = |values: &[f64]| {
        let known: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        median(&known)
    };
    let rtt =
        |values: &[Option<u64>]| middle(&values.iter().flatten().map(|ns| *ns as f64).collect::<Vec<_>>());
    let measures: [Measure<'_>; 3] = [
        ("the round-trip time", rtt(&before.rtt_ns).zip(rtt(&after.rtt_ns)), &time, ""),
        (
            "CPU time",
            middle(&before.cpu_seconds_per_gb).zip(middle(&after.cpu_seconds_per_gb)),
            &significant,
            " s per GB",
        ),
        (
            "retransmissions",
            middle(&before.retransmits_per_gb).zip(middle(&after.retransmits_per_gb)),
            &significant,
            " per GB",
        ),
    ];
    let mut known = 0;
    let mut rose = Vec::new();
    for (name, ends, text, unit) in measures {
        let Some((without, with)) = ends else { continue };
        known += 1;
        if with > NOTABLE * without {
            let ratio = if without > 0.0 { format!(" ({})", times(with / without)) } else { String::new() };
            rose.push(format!("{name} from {} to {}{unit}{ratio}", text(without), text(with)));
        }
    }
    match (known, rose.is_empty()) {
        (0, _) => None,
        (_, true) => Some(
            "No other measured quantity (round trip, CPU time, retransmissions) rose by more than 5 %."
                .to_owned(),
        ),
        (_, false) => Some(format!(
            "The gain was paid for: {} rose (medians before and now).",
            crate::format::join(&rose)
        )),
    }
}
