//! Goodput by sender and receiver core, in machine order: numbers of a pin matrix.

use std::collections::BTreeMap;

use crate::{
    cell_settings::most_named,
    digest::{Digest, ExperimentDigest},
    format::{core, range, rate},
    measured::{CellMetric, MeasuredCell},
    places::{Place, sorted},
};

/// A pin matrix in numbers.
pub(crate) struct Matrix<'a> {
    /// Levels of the other factors; empty when there are none.
    pub(crate) label: String,
    /// The cells that it is made of.
    cells: Vec<CellMetric<'a>>,
    pub(crate) senders: Vec<Place>,
    pub(crate) receivers: Vec<Place>,
    /// Median goodput by (sender, receiver).
    pub(crate) medians: BTreeMap<(u32, u32), f64>,
    /// Trials behind each.
    pub(super) counts: BTreeMap<(u32, u32), usize>,
    pub(crate) interrupt_core: Option<u32>,
    /// That core, how many trials name it, and how many name any.
    pub(super) named: Option<(u32, usize, usize)>,
}

impl<'a> Matrix<'a> {
    /// One matrix per combination of the other factors, such as the core that a lab steers packets to.
    pub(crate) fn all(digest: &Digest, experiment: &'a ExperimentDigest) -> Vec<Self> {
        let cores = ["sender-cores", "receiver-cores"];
        let others: Vec<String> =
            experiment.varying_factors().into_iter().filter(|name| !cores.contains(&name.as_str())).collect();
        let mut groups: BTreeMap<Vec<String>, Vec<CellMetric<'_>>> = BTreeMap::new();
        for cell in experiment.cells() {
            groups.entry(cell.levels(&others)).or_default().push(cell);
        }
        groups
            .into_iter()
            .filter_map(|(label, cells)| Self::of(digest, experiment.is_reverse(), label.join(", "), cells))
            .collect()
    }

    /// The medians of cells whose trials have a core on each side.
    fn of(digest: &Digest, is_reverse: bool, label: String, cells: Vec<CellMetric<'a>>) -> Option<Self> {
        let mut medians = BTreeMap::new();
        let mut counts = BTreeMap::new();
        for cell in &cells {
            if let (Some(places), Some(estimate)) = (places_of(cell), cell.estimate()) {
                medians.insert(places, estimate.median);
                counts.insert(places, estimate.count);
            }
        }
        if medians.is_empty() {
            return None;
        }
        let named = most_named(cells.iter().map(|cell| &cell.settings));
        Some(Self {
            interrupt_core: named.map(|found| found.0),
            named,
            label,
            senders: sorted(digest.sender(is_reverse), medians.keys().map(|key| key.0)),
            receivers: sorted(digest.receiver(is_reverse), medians.keys().map(|key| key.1)),
            medians,
            counts,
            cells,
        })
    }

    /// Goodput by repetition of each pair of cores (sender, receiver).
    pub(crate) fn by_repetition(&self) -> BTreeMap<(u32, u32), BTreeMap<u32, f64>> {
        let placed = self.cells.iter().filter_map(|cell| Some((places_of(cell)?, cell.by_repetition())));
        placed.collect()
    }

    /// Lowest to highest of the cells with these places: the values of the matrix, not pooled.
    pub(super) fn over(&self, wanted: impl Fn(u32, u32) -> bool) -> Option<String> {
        let found = || self.medians.iter().filter(|(key, _)| wanted(key.0, key.1)).map(|(_, bps)| *bps);
        let (low, high) = (found().min_by(f64::total_cmp)?, found().max_by(f64::total_cmp)?);
        Some(range(&rate(low), &rate(high)))
    }

    pub(super) fn bounds(&self) -> (f64, f64) {
        self.medians.values().fold((f64::INFINITY, 0.0), |(l, h), v| (l.min(*v), h.max(*v)))
    }
}

/// The cores that sent and read in a cell.
fn places_of(cell: &MeasuredCell) -> Option<(u32, u32)> {
    let place = |pinned: &str, seen: &str| {
        let level = cell.factors.get(pinned).and_then(core);
        let setting = |name| cell.settings.number(name).and_then(|core| u32::try_from(core).ok());
        level.or_else(|| setting(pinned)).or_else(|| setting(seen))
    };
    Some((place("sender-cores", "sender-core-seen")?, place("receiver-cores", "receiver-core-seen")?))
}
