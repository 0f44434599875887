//! Weights of gateways that differ between two sides: the gateway out of
//! proportion, and the host that differs from the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use clearstream_schema::{human::list, tune::Finding};

use super::{
    super::{Facts, View, view::ResolvedHop},
    sides::{Side, side_finding},
};

/// Tolerance for equal weights, which are quotients.
const EQUAL: f64 = 0.001;

/// Whether gateways have the same shares on both sides.
pub(super) fn are_alike(left: &BTreeMap<&str, f64>, right: &BTreeMap<&str, f64>) -> bool {
    left.iter().all(|(name, share)| right.get(name).is_some_and(|other| (share - other).abs() <= EQUAL))
}

/// Weights by gateway of a host towards another one.
type Weights<'f> = BTreeMap<&'f str, u32>;

/// Two hosts whose weights differ.
struct Disagreement<'v, 'a> {
    sides: [(&'v View<'a>, &'a clearstream_schema::routing::RouteEntry); 2],
    gateways: Vec<String>,
    /// By the fabric's weights, which of the two is wrong.
    wrong: Option<usize>,
}

/// Every pair of hosts whose weights were compared.
pub(super) struct Weighed<'f, 'v, 'a> {
    facts: &'f Facts<'a>,
    /// By name: pairs that were compared, and those that differ.
    counts: HashMap<&'v str, [usize; 2]>,
    disagreements: Vec<Disagreement<'v, 'a>>,
}

impl<'f, 'v, 'a> Weighed<'f, 'v, 'a> {
    pub(super) fn new(facts: &'f Facts<'a>) -> Self {
        Self { facts, counts: HashMap::new(), disagreements: Vec::new() }
    }

    /// Compares both sides, where they go by the same gateways.
    pub(super) fn compare(&mut self, sides: &[Side<'v, '_, 'a>; 2]) {
        let [Some(left), Some(right)] = [0, 1].map(|side: usize| self.weights(&sides[side].1.1)) else {
            return;
        };
        if !left.keys().eq(right.keys()) {
            return;
        }
        let odd: Vec<String> = out_of_proportion(&left, &right).into_iter().map(str::to_owned).collect();
        for (host, _) in sides {
            let counts = self.counts.entry(host.subject.name.as_str()).or_default();
            counts[0] += 1;
            counts[1] += usize::from(!odd.is_empty());
        }
        if odd.is_empty() {
            return;
        }
        let fits = |own: &Weights<'_>| {
            let fabric = own.keys().map(|name| Some((*name, self.facts.fabric.weight(name)?)));
            let fabric: Option<Weights<'_>> = fabric.collect();
            fabric.map(|fabric| out_of_proportion(own, &fabric).is_empty())
        };
        let wrong = match (fits(&left), fits(&right)) {
            (Some(true), Some(false)) => Some(1),
            (Some(false), Some(true)) => Some(0),
            _ => None,
        };
        let sides = [0, 1].map(|side: usize| (sides[side].0, sides[side].1.0));
        self.disagreements.push(Disagreement { sides, gateways: odd, wrong });
    }

    /// Of two that differ the one that differs from more of its partners.
    pub(super) fn accuse(self, found: &mut Vec<Finding>) {
        let mut seen = BTreeSet::new();
        for Disagreement { sides, gateways, wrong } in &self.disagreements {
            let [left, right] = sides.map(|(host, _)| self.counts[host.subject.name.as_str()]);
            // Parts of those compared, then their number.
            let order = (left[1] * right[0], left[1]).cmp(&(right[1] * left[0], right[1]));
            let accused = wrong.unwrap_or_else(|| usize::from(order.is_lt()));
            let ((host, route), (other, _)) = (sides[accused], sides[1 - accused]);
            if !seen.insert((host.subject.name.as_str(), route.destination, route.table)) {
                continue;
            }
            let more = self.counts[host.subject.name.as_str()][1] - 1;
            let others = if more > 0 { format!(" and of {more} more hosts") } else { String::new() };
            let message = format!(
                "{} {} another weight than in the route of {}{others}: its share of one direction is not that \
                 of the other, and the narrower one fills first",
                list(gateways),
                if gateways.len() == 1 { "has" } else { "have" },
                other.subject.name
            );
            let advice = "write the same weights on both sides";
            found.push(side_finding(host, route, "weights-differ", message, advice));
        }
    }

    fn weights(&self, hops: &[ResolvedHop<'_>]) -> Option<Weights<'f>> {
        let mut weights = BTreeMap::new();
        for hop in hops {
            *weights.entry(self.facts.gateway_name(hop.via)?).or_default() += u32::from(hop.weight);
        }
        Some(weights)
    }
}

/// Gateways that are not in the proportion which most of them have; of equally
/// common ones that of equal numbers.
fn out_of_proportion<'n>(left: &Weights<'n>, right: &Weights<'_>) -> Vec<&'n str> {
    let ratio = |name: &str| (u64::from(left[name]), u64::from(right[name]));
    let same = |one: (u64, u64), other: (u64, u64)| one.0 * other.1 == other.0 * one.1;
    let common = left.keys().map(|name| ratio(name)).max_by_key(|one| {
        let count = left.keys().filter(|name| same(ratio(name), *one)).count();
        (count, one.0 == one.1)
    });
    let Some(common) = common else { return Vec::new() };
    left.keys().copied().filter(|name| !same(ratio(name), common)).collect()
}
