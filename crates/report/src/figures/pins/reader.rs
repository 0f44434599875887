//! Effect of the reader's place, from a pin matrix, in blocks of one
//! sender core and one repetition. On one machine a sender can share a core with
//! the interrupts or with the reader: that is another effect, and is kept apart.

use std::collections::BTreeMap;

use clearstream_stats::Block;

use super::matrix::Matrix;
use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::{change, median},
    figures::effects::Contrast,
    places::Place,
};

/// Comparisons of the reader's places.
#[derive(Debug, Default)]
pub(crate) struct ReaderPlace {
    /// On the interrupt core against elsewhere, while the sender shares neither core.
    pub(crate) on_core: Option<Contrast>,
    /// The same with every sender, where some share a core with either.
    pub(crate) any_sender: Option<Contrast>,
    /// Sender and reader on one core against on two; only where both ends share a machine.
    pub(crate) one_core: Option<Contrast>,
    /// Other readers on the interrupt core's package against those on other packages.
    pub(crate) same_package: Option<Contrast>,
    /// Readers elsewhere are those on other packages, as in the published measurements.
    pub(crate) other_packages: bool,
}

/// Goodput by repetition of each pair of cores.
type Values = BTreeMap<(u32, u32), BTreeMap<u32, f64>>;

#[derive(Default)]
struct Blocks {
    on_core: Vec<Block>,
    any_sender: Vec<Block>,
    one_core: Vec<Block>,
    same_package: Vec<Block>,
}

impl ReaderPlace {
    /// The comparisons that the matrices of an experiment allow.
    pub(crate) fn of(digest: &Digest, experiment: &ExperimentDigest) -> Self {
        let matrices = Matrix::all(digest, experiment);
        let mut blocks = Blocks::default();
        let mut other_packages = false;
        for matrix in &matrices {
            other_packages |= add(matrix, digest.one_machine(), &mut blocks);
        }
        let elsewhere = if other_packages { "readers on other packages" } else { "readers on other cores" };
        let on_core = format!("Reader on the interrupt core against {elsewhere}");
        let shared = blocks.any_sender.len() > blocks.on_core.len();
        Self {
            on_core: Contrast::of(on_core.clone(), &blocks.on_core),
            any_sender: Contrast::of(on_core, &blocks.any_sender).filter(|_| shared),
            one_core: Contrast::of("Sender and reader on one core against on two", &blocks.one_core),
            same_package: Contrast::of(
                "Other readers on the package of the interrupt core against readers on other packages",
                &blocks.same_package,
            ),
            other_packages,
        }
    }

    /// All that there are, for the figure.
    pub(crate) fn contrasts(&self) -> Vec<Contrast> {
        let shared = self.any_sender.clone().filter(|_| self.on_core.is_none());
        [self.on_core.clone(), shared, self.same_package.clone(), self.one_core.clone()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Reason why the interrupt core's own effect is not known, with the observed places.
    pub(crate) fn confounded(&self) -> Option<String> {
        let any = self.any_sender.as_ref().filter(|_| self.on_core.is_none())?;
        let levels = any.effect.moderators.iter().find(|moderator| moderator.factor == 0);
        let seen: Vec<String> = match levels {
            Some(found) => found
                .levels
                .iter()
                .map(|(level, ratio)| format!("{} with the {level}", change(ratio)))
                .collect(),
            None => vec![change(&any.effect.pooled)],
        };
        Some(format!(
            "Reading on the interrupt core cannot be distinguished from it here, since sender, reader and interrupts never had a core each: {}.",
            seen.join(", ")
        ))
    }
}

/// Adds the blocks of one matrix; true when it has readers on other packages.
fn add(matrix: &Matrix<'_>, one_machine: bool, blocks: &mut Blocks) -> bool {
    let Some(interrupt) = matrix.interrupt_core else { return false };
    let Some(home) = matrix.receivers.iter().find(|place| place.core == interrupt) else { return false };
    let values = matrix.by_repetition();
    let others = || matrix.receivers.iter().filter(|place| place.core != interrupt);
    let (near, far): (Vec<&Place>, Vec<&Place>) = others().partition(|place| place.package == home.package);
    let elsewhere = if far.is_empty() { near.clone() } else { far.clone() };
    for sender in matrix.senders.iter().map(|place| place.core) {
        let shares = |core: u32| one_machine && core == sender;
        let place = if !one_machine {
            format!("sender core {sender}")
        } else if sender == interrupt {
            "sender on the interrupt core".to_owned()
        } else {
            "sender elsewhere".to_owned()
        };
        let context = vec![place, matrix.label.clone()];
        let on_core = values.get(&(sender, interrupt));
        for (repetition, changed) in on_core.into_iter().flatten() {
            let at = |places: &[&Place]| typical(&values, sender, places, *repetition, shares);
            // Without a place of its own the reader elsewhere is on the sender's core.
            let alone = at(&elsewhere);
            let any = typical(&values, sender, &elsewhere, *repetition, |_| false);
            if let Some(base) = alone.or(any) {
                blocks.any_sender.push(Block { base, changed: *changed, context: context.clone() });
            }
            if let Some(base) = alone.filter(|_| !shares(interrupt)) {
                let context = vec![format!("sender core {sender}"), matrix.label.clone()];
                blocks.on_core.push(Block { base, changed: *changed, context });
            }
        }
        for repetition in repetitions(&values, sender) {
            let at = |places: &[&Place]| typical(&values, sender, places, repetition, shares);
            if let (false, Some(base), Some(changed)) = (far.is_empty(), at(&far), at(&near)) {
                let context = vec![format!("sender core {sender}"), matrix.label.clone()];
                blocks.same_package.push(Block { base, changed, context });
            }
            let all: Vec<&Place> = matrix.receivers.iter().collect();
            let together = values.get(&(sender, sender)).and_then(|found| found.get(&repetition));
            if let (true, Some(changed), Some(base)) = (one_machine, together, at(&all)) {
                blocks.one_core.push(Block { base, changed: *changed, context: context.clone() });
            }
        }
    }
    !far.is_empty()
}

fn repetitions(values: &Values, sender: u32) -> Vec<u32> {
    let mut all: Vec<u32> = values
        .iter()
        .filter(|(key, _)| key.0 == sender)
        .flat_map(|(_, found)| found.keys().copied())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Median over readers on these places in one repetition: none of them is chosen by its value.
fn typical(
    values: &Values,
    sender: u32,
    places: &[&Place],
    repetition: u32,
    left_out: impl Fn(u32) -> bool,
) -> Option<f64> {
    let found: Vec<f64> = places
        .iter()
        .filter(|place| !left_out(place.core))
        .filter_map(|place| values.get(&(sender, place.core))?.get(&repetition).copied())
        .collect();
    median(&found)
}
