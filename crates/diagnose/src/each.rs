//! Each flow of a test by itself: medians over flows hide that some of them
//! got a hundredth of the others.

use std::collections::BTreeMap;

use clearstream_schema::{
    diagnosis::End,
    flow::{FlowInterval, Interval},
};

use crate::{facts::of_end, series::median};

/// Groups of flows differ by this factor at least.
const GAP: f64 = 4.0;

/// Figures of one flow after the warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EachFlow {
    pub(crate) number: u32,
    pub(crate) goodput_bps: f64,
    /// Goodput of the first and of the second half of the time.
    pub(crate) halves_bps: (f64, f64),
    pub(crate) rtt_ns: f64,
    pub(crate) min_rtt_ns: f64,
    pub(crate) loss_ratio: f64,
    /// Of the first and of the second half of the time.
    pub(crate) halves_loss_ratio: (f64, f64),
    pub(crate) sender_core: Option<u32>,
    pub(crate) receiver_core: Option<u32>,
}

#[derive(Default)]
struct Sums {
    bytes: [u64; 2],
    rtts: Vec<f64>,
    min_rtts: Vec<f64>,
    sent: Option<(u64, u64)>,
    middle: (u64, u64),
    last: (u64, u64),
    sender_cores: Vec<Option<u32>>,
    receiver_cores: Vec<Option<u32>>,
}

/// Every flow of a test, by number.
pub(crate) fn flows(used: &[&Interval], sending: End, receiving: End) -> Vec<EachFlow> {
    let mut sums = BTreeMap::<u32, Sums>::new();
    let mut seconds = [0.0; 2];
    for (at, interval) in used.iter().enumerate() {
        let half = usize::from(at >= used.len() / 2);
        let side = of_end(interval, receiving);
        seconds[half] += side.end_ns.saturating_sub(side.start_ns) as f64 / 1e9;
        for flow in &side.flows {
            let sum = sums.entry(flow.flow).or_default();
            sum.bytes[half] = sum.bytes[half].saturating_add(flow.received_bytes);
            sum.receiver_cores.push(flow.receiver_core);
        }
        for flow in &of_end(interval, sending).flows {
            add_sender(sums.entry(flow.flow).or_default(), flow, half);
        }
    }
    let rate = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / seconds.max(1e-9);
    sums.into_iter()
        .map(|(number, sum)| EachFlow {
            number,
            goodput_bps: rate(sum.bytes[0].saturating_add(sum.bytes[1]), seconds[0] + seconds[1]),
            halves_bps: (rate(sum.bytes[0], seconds[0]), rate(sum.bytes[1], seconds[1])),
            rtt_ns: median(sum.rtts).unwrap_or(0.0),
            min_rtt_ns: sum.min_rtts.into_iter().reduce(f64::min).unwrap_or(0.0),
            loss_ratio: sum.sent.map_or(0.0, |first| lost(first, sum.last)),
            halves_loss_ratio: sum
                .sent
                .map_or((0.0, 0.0), |first| (lost(first, sum.middle), lost(sum.middle, sum.last))),
            sender_core: steady(&sum.sender_cores),
            receiver_core: steady(&sum.receiver_cores),
        })
        .collect()
}

/// Bytes retransmitted / bytes sent between two readings of both.
fn lost(before: (u64, u64), now: (u64, u64)) -> f64 {
    now.1.saturating_sub(before.1) as f64 / now.0.saturating_sub(before.0).max(1) as f64
}

fn add_sender(sum: &mut Sums, flow: &FlowInterval, half: usize) {
    sum.sender_cores.push(flow.sender_core);
    let Some(tcp) = &flow.tcp else { return };
    sum.rtts.push(tcp.rtt_ns as f64);
    sum.min_rtts.extend(tcp.min_rtt_ns.map(|rtt| rtt as f64));
    sum.last = (tcp.sent_bytes.unwrap_or(0), tcp.retransmitted_bytes.unwrap_or(0));
    sum.sent.get_or_insert(sum.last);
    if half == 0 {
        sum.middle = sum.last;
    }
}

/// The core of nearly all samples.
fn steady(cores: &[Option<u32>]) -> Option<u32> {
    let core = cores.iter().flatten().next()?;
    let same = cores.iter().filter(|other| **other == Some(*core)).count();
    (same * 10 >= cores.len() * 8).then_some(*core)
}

/// Slow flows and the others, where a gap divides them in both halves of the
/// time; chance and the start of a flow do not last.
pub(crate) fn divided(flows: &[EachFlow]) -> Option<(Vec<&EachFlow>, Vec<&EachFlow>)> {
    let mut sorted: Vec<&EachFlow> = flows.iter().collect();
    sorted.sort_by(|one, other| one.goodput_bps.total_cmp(&other.goodput_bps));
    let ratio = |at: &usize| sorted[*at].goodput_bps / sorted[*at - 1].goodput_bps.max(1.0);
    let place = (1..sorted.len()).max_by(|one, other| ratio(one).total_cmp(&ratio(other)))?;
    if ratio(&place) < GAP {
        return None;
    }
    let (slow, fast) = sorted.split_at(place);
    let lasts = |of: fn(&EachFlow) -> f64| {
        let most = slow.iter().map(|flow| of(flow)).fold(0.0, f64::max);
        let least = fast.iter().map(|flow| of(flow)).fold(f64::INFINITY, f64::min);
        least >= 0.75 * GAP * most
    };
    let steady = lasts(|flow| flow.halves_bps.0) && lasts(|flow| flow.halves_bps.1);
    steady.then(|| (slow.to_vec(), fast.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32, first: f64, second: f64) -> EachFlow {
        EachFlow {
            number,
            goodput_bps: f64::midpoint(first, second),
            halves_bps: (first, second),
            ..EachFlow::default()
        }
    }

    #[test]
    fn a_gap_that_lasts_divides() {
        let flows = [flow(0, 9.0, 10.0), flow(1, 0.1, 0.1), flow(2, 11.0, 9.5), flow(3, 0.12, 0.1)];
        let (slow, fast) = divided(&flows).unwrap();
        let numbers = |part: &[&EachFlow]| part.iter().map(|flow| flow.number).collect::<Vec<_>>();
        assert_eq!((numbers(&slow), numbers(&fast)), (vec![1, 3], vec![0, 2]));
        // One that was slow at the start only, and flows that share unevenly.
        assert_eq!(divided(&[flow(0, 10.0, 10.0), flow(1, 0.1, 4.0)]), None);
        assert_eq!(divided(&[flow(0, 10.0, 10.0), flow(1, 4.0, 4.0), flow(2, 2.0, 2.0)]), None);
        assert_eq!(divided(&[flow(0, 10.0, 10.0)]), None);
    }
}
