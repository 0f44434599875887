//! Limits that hold for a part of the time: medians over a whole flow hide a program
//! that rests for a third of it. The slow intervals are judged by themselves.

use std::collections::BTreeSet;

use clearstream_schema::{
    diagnosis::{Cause, Finding},
    human::time,
};

use super::{processing, transport};
use crate::{
    FlowObservation,
    facts::{Facts, of_end, requested_flow},
    series::median,
};

/// Minimum number of intervals for a third to be meaningful.
const INTERVALS_LEAST: usize = 9;
/// Progress of the slow intervals / of the others.
const SLOW: f64 = 0.5;
/// Fraction of the time that a thread waits for its core: then the machine is slow, and
/// not the program.
const WAITS: f64 = 0.15;

/// A program that pauses for a part of the time, over a path that the flow fills for
/// the rest of it. Over microseconds a busy machine has the same signature.
pub(super) fn pauses(facts: &Facts<'_>) -> Option<Finding> {
    if facts.is_local() {
        return None;
    }
    let observed = requested_flow(facts.evidence)?;
    let slow = slow_third(facts, observed)?;
    let slowly = Facts::of_intervals(facts.evidence, observed, &|interval| slow.contains(&interval.index));
    if slowly.parts().iter().any(|part| part.thread.is_some_and(|thread| thread.wait >= WAITS)) {
        return None;
    }
    let finding = processing::slow_reader(&slowly)
        .filter(|finding| matches!(finding.cause, Cause::ReceiverApplication { .. }))
        .or_else(|| transport::sender_pauses(&slowly))?;
    let sentence = format!(
        "for {} of {} {}",
        time((slowly.seconds * 1e9) as u64),
        time((facts.seconds * 1e9) as u64),
        finding.sentence
    );
    Some(Finding { sentence, ..finding })
}

/// Numbers of the third of the intervals in which the senders' sockets sent least,
/// where that is clearly less than in the others.
fn slow_third(facts: &Facts<'_>, observed: &FlowObservation) -> Option<BTreeSet<u32>> {
    let mut before = None;
    let mut progress = Vec::new();
    for interval in &observed.intervals {
        let flows = &of_end(interval, facts.sender.end).flows;
        let sent: u64 = flows.iter().filter_map(|flow| flow.tcp.as_ref()?.sent_bytes).sum();
        let since = before.replace(sent).map(|before| sent.saturating_sub(before));
        progress.extend(since.filter(|_| !interval.warm_up).map(|bytes| (bytes, interval.index)));
    }
    if progress.len() < INTERVALS_LEAST {
        return None;
    }
    progress.sort_unstable();
    let (slow, others) = progress.split_at(progress.len() / 3);
    let middle = |part: &[(u64, u32)]| median(part.iter().map(|(bytes, _)| *bytes as f64));
    (middle(slow)? <= SLOW * middle(others)?).then(|| slow.iter().map(|(_, index)| *index).collect())
}
