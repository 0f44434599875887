//! Effect of the loss of gateways on flows, computed from the parts of the hash
//! space that each gateway has before and after.

use clearstream_routing::multipath::{Buckets, thresholds};
use clearstream_schema::{fabric::Multipath, route_plan::GatewayLoss};

/// Maximum number of gateways lost at a time.
const MOST_LOST: usize = 3;
/// Maximum number of sets of lost gateways; of more, evenly spaced ones are used.
const MOST_SETS: usize = 1024;
/// One more than the largest hash: 31 bits.
const HASHES: f64 = (1_u64 << 31) as f64;

/// Loss of one to three gateways with these weights, for each multipath form. With
/// `both_ways` replies choose a gateway of their own. With `rebalanced` busy
/// buckets of a resilient group move to what came back too.
pub fn losses(weights: &[u16], buckets: u16, both_ways: bool, rebalanced: bool) -> Vec<GatewayLoss> {
    let kinds = [Multipath::Resilient, Multipath::Group, Multipath::Classic];
    let most = MOST_LOST.min(weights.len().saturating_sub(1));
    let lost = (1..=most).flat_map(|lost| kinds.map(|kind| (lost, kind)));
    let hit = |share: f64| if both_ways { 1.0 - (1.0 - share).powi(2) } else { share };
    let change = |kind| move |after: &[u16]| change(weights, after, buckets, rebalanced, kind);
    lost.map(|(lost, kind)| loss(weights, lost, kind, &hit, &change(kind))).collect()
}

/// Ratios of flows: those that move needlessly, those that move on return, and
/// the busiest gateway's between.
type Change = (f64, f64, f64);

/// Flows that move needlessly and on return, and the largest share between.
fn change(before: &[u16], after: &[u16], buckets: u16, rebalanced: bool, multipath: Multipath) -> Change {
    match multipath {
        Multipath::Resilient => resilient(buckets, before, after, rebalanced),
        _ => by_thresholds(before, after),
    }
}

fn loss(
    weights: &[u16],
    lost: usize,
    multipath: Multipath,
    hit_by: &dyn Fn(f64) -> f64,
    change: &dyn Fn(&[u16]) -> Change,
) -> GatewayLoss {
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let sets = sets(weights.len(), lost);
    let (mut hit, mut moved, mut back, mut busiest) = (0.0, 0.0, 0.0, 0.0_f64);
    for set in &sets {
        let share: f64 = set.iter().map(|member| f64::from(weights[*member]) / total).sum();
        hit += hit_by(share);
        let mut without = weights.to_vec();
        for member in set {
            without[*member] = 0;
        }
        let (needless, returned, most) = change(&without);
        moved += needless;
        back += returned;
        busiest = busiest.max(most);
    }
    let count = sets.len().max(1) as f64;
    GatewayLoss {
        lost_count: lost as u32,
        multipath,
        hit_ratio: hit / count,
        moved_ratio: moved / count,
        moved_back_ratio: back / count,
        busiest_ratio: busiest,
    }
}

/// Flows that move although their gateway is alive, flows that move when the lost
/// ones are back in their places, and the largest share between.
fn by_thresholds(before: &[u16], after: &[u16]) -> Change {
    let (old, new) = (thresholds(before), thresholds(after));
    let mut start = 0_u64;
    let (mut needless, mut all) = (0_u64, 0_u64);
    let (mut at_old, mut at_new) = (0, 0);
    let end_of = |bounds: &[u32], at: usize| u64::from(bounds[at]) + 1;
    let last = 1_u64 << 31;
    while start < last && at_old < old.len() && at_new < new.len() {
        let end = end_of(&old, at_old).min(end_of(&new, at_new));
        // A gateway of weight zero ends where the one before it does.
        if end > start && at_old != at_new {
            let part = end - start;
            all += part;
            needless += if after[at_old] > 0 { part } else { 0 };
        }
        start = start.max(end);
        at_old += usize::from(end_of(&old, at_old) <= start);
        at_new += usize::from(end_of(&new, at_new) <= start);
    }
    let total: f64 = after.iter().map(|weight| f64::from(*weight)).sum();
    let most = after.iter().copied().max().unwrap_or(0);
    (needless as f64 / HASHES, all as f64 / HASHES, f64::from(most) / total)
}

/// The same for busy buckets, which move back only when the group rebalances.
fn resilient(count: u16, before: &[u16], after: &[u16], rebalanced: bool) -> Change {
    let old = Buckets::new(count, before);
    let mut new = old.clone();
    new.change(after, false);
    let lives = |owner: &Option<usize>| owner.is_some_and(|member| after[member] > 0);
    let pairs = || old.owners.iter().zip(&new.owners);
    let needless = pairs().filter(|(old, new)| old != new && lives(old)).count();
    let mut has = vec![0_usize; before.len()];
    new.owners.iter().flatten().for_each(|member| has[*member] += 1);
    let most = has.into_iter().max().unwrap_or(0);
    let mut back = new.clone();
    back.change(before, rebalanced);
    let returned = new.owners.iter().zip(&back.owners).filter(|(new, back)| new != back).count();
    let all = f64::from(count);
    (needless as f64 / all, returned as f64 / all, most as f64 / all)
}

/// Sets of `size` out of `count`, in order; evenly spaced ones of many.
fn sets(count: usize, size: usize) -> Vec<Vec<usize>> {
    let all = (0..size).fold(1_usize, |all, at| all.saturating_mul(count - at) / (at + 1));
    let step = all.div_ceil(MOST_SETS).max(1);
    let mut set: Vec<usize> = (0..size).collect();
    let mut sets = Vec::with_capacity(all.div_ceil(step));
    for number in 0..all {
        if number % step == 0 {
            sets.push(set.clone());
        }
        // The next combination in the order of a dictionary.
        let Some(at) = (0..size).rev().find(|at| set[*at] < count - size + at) else { break };
        set[at] += 1;
        for next in at + 1..size {
            set[next] = set[next - 1] + 1;
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(losses: &[GatewayLoss], lost: u32, multipath: Multipath) -> &GatewayLoss {
        losses.iter().find(|loss| loss.lost_count == lost && loss.multipath == multipath).unwrap()
    }

    /// Measured on Linux 6.18 with 240 flows over six gateways when the third one
    /// went: a group or classic route moved 59 flows, 24 of them needlessly, and 59
    /// on return; a resilient group of 120 buckets moved none needlessly and none
    /// on return while busy.
    #[test]
    fn agrees_with_what_was_measured_when_one_of_six_goes() {
        let before = [1; 6];
        let mut after = before;
        after[2] = 0;
        let (needless, all, _) = by_thresholds(&before, &after);
        // A binomial of 240 flows is within three deviations of its mean.
        let within = |ratio: f64, measured: f64| {
            let deviation = (240.0 * ratio * (1.0 - ratio)).sqrt();
            (240.0 * ratio - measured).abs() < 3.0 * deviation
        };
        assert!(within(needless, 24.0), "{needless}");
        assert!(within(all, 59.0), "{all}");
        let (needless, back, busiest) = resilient(120, &before, &after, false);
        assert_eq!((needless, back), (0.0, 0.0));
        // By the unbalanced timer it gets a sixth of the buckets, busy or not.
        let (_, back, _) = resilient(120, &before, &after, true);
        assert!((back - 20.0 / 120.0).abs() < 1e-9, "{back}");
        assert!((busiest - 0.2).abs() < 1e-9, "24 of 120 buckets: {busiest}");
    }

    /// By hand: boundaries at sixths become fifths. The second gateway gives
    /// 1/5 - 1/6 to the first, the fourth 3/5 - 3/6 less the lost one's, and so on.
    #[test]
    fn moved_parts_are_those_between_old_and_new_boundaries() {
        let (needless, all, busiest) = by_thresholds(&[1; 6], &[1, 1, 0, 1, 1, 1]);
        assert!((needless - 4.0 / 30.0).abs() < 1e-6, "{needless}");
        assert!((all - 4.0 / 30.0 - 1.0 / 6.0).abs() < 1e-6, "{all}");
        assert!((busiest - 0.2).abs() < 1e-6);
        let (needless, all, busiest) = by_thresholds(&[3, 1], &[3, 0]);
        assert!(needless.abs() < 1e-6 && (all - 0.25).abs() < 1e-6 && (busiest - 1.0).abs() < 1e-6);
    }

    #[test]
    fn hit_flows_are_those_of_the_lost_and_twice_as_many_without_symmetry() {
        let one_way = losses(&[1; 6], 120, false, true);
        let both = losses(&[1; 6], 120, true, true);
        for lost in 1..=3 {
            let share = f64::from(lost) / 6.0;
            for multipath in [Multipath::Resilient, Multipath::Group, Multipath::Classic] {
                assert!((find(&one_way, lost, multipath).hit_ratio - share).abs() < 1e-9);
                let twice = 2.0 * share - share * share;
                assert!((find(&both, lost, multipath).hit_ratio - twice).abs() < 1e-9);
            }
        }
        assert!(losses(&[1], 120, true, true).is_empty(), "the last gateway is never removed");
    }

    #[test]
    fn sets_are_all_combinations_or_evenly_spaced_ones() {
        assert_eq!(sets(4, 2).len(), 6);
        assert_eq!(sets(3, 3), [[0, 1, 2]]);
        let many = sets(64, 3);
        assert!(many.len() > MOST_SETS / 2 && many.len() <= MOST_SETS, "{}", many.len());
    }
}
