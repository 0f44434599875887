//! One module per kind of figure. Each takes a reduced experiment, states in one
//! sentence what the numbers show, and draws it.

pub(crate) mod cost;
pub(crate) mod delay;
pub(crate) mod effects;
pub(crate) mod gateways;
pub(crate) mod goodput;
pub(crate) mod heat;
pub(crate) mod live;
pub(crate) mod metric;
pub(crate) mod over_time;
pub(crate) mod pairs;
pub(crate) mod pins;
pub(crate) mod rows;
pub(crate) mod semantics;
pub(crate) mod staircase;
pub(crate) mod throughput;
pub(crate) mod window;

use std::collections::BTreeMap;

use clearstream_schema::study::Figure as Kind;

use crate::{analysis::Analysis, digest::ExperimentDigest, figure::Figure, shortfall::Shortfall};

/// The figures that only trials of one workload have.
pub(crate) fn own(analysis: &Analysis, experiment: &ExperimentDigest) -> Vec<Figure> {
    let (digest, palette) = (&analysis.digest, &analysis.palette);
    let mut figures: Vec<Figure> = Vec::new();
    if !experiment.cells().is_empty() {
        match experiment.spec.figure() {
            Kind::WindowCurve => {
                let short = analysis.shortfall(experiment).map(Shortfall::remarks);
                figures.extend(window::figure(digest, experiment, short));
            }
            Kind::LiveTraffic => figures.extend(live::figure(digest, experiment)),
            Kind::PinMatrix => figures.extend(pins::figures(digest, experiment)),
            Kind::PinRow => figures.extend(pins::row::figure(digest, experiment)),
            _ => {}
        }
        // Whatever the study names, measured goodput is never left out.
        if figures.is_empty() {
            figures.extend(goodput::figure(experiment));
            figures.extend(effects::figure(experiment));
            figures.extend(throughput::figure(experiment, palette));
        }
        if matches!(experiment.spec.figure(), Kind::Throughput | Kind::LiveTraffic) {
            figures.extend(cost::figure(digest, experiment));
        }
    }
    if !experiment.gateways.is_empty() {
        figures.extend(gateways::figures(experiment, palette));
    }
    if !experiment.pairs.is_empty() {
        figures.extend(pairs::figures(digest, experiment));
    }
    figures.extend(semantics::figure(experiment));
    if !experiment.probes.is_empty() {
        figures.extend(delay::figure(digest, experiment));
    }
    figures
}

/// Class of the `index`-th level of a factor. The first colour of the palette, `s0`, is that of
/// our trials where there is nothing to distinguish; parts of a whole (`k0`, `k1`) and directions
/// of traffic (`t0` to `t2`) have colours of their own: one colour, one meaning.
pub(crate) fn series_class(index: usize) -> String {
    format!("s{}", 1 + index % COLOURS)
}

/// Colours of levels, `s1` and on.
const COLOURS: usize = 7;

/// The colours of a page: a label has the same one in every figure, and two labels have
/// different ones as long as there are enough, within one figure at least.
#[derive(Debug, Clone, Default)]
pub(crate) struct Palette(BTreeMap<String, usize>);

impl Palette {
    /// Assigns colours to the labels of one figure that have none yet.
    pub(crate) fn add(&mut self, labels: &[String]) {
        for label in labels {
            if self.0.contains_key(label) {
                continue;
            }
            let here: Vec<usize> = labels.iter().filter_map(|other| self.0.get(other).copied()).collect();
            let uses = |colour: &usize| {
                let elsewhere = self.0.values().filter(|used| *used == colour).count();
                (here.iter().filter(|used| *used == colour).count(), elsewhere, *colour)
            };
            let colour = (0..COLOURS).min_by_key(uses).unwrap_or(0);
            self.0.insert(label.clone(), colour);
        }
    }

    /// Class of a label.
    pub(crate) fn class(&self, label: &str) -> String {
        series_class(self.0.get(label).copied().unwrap_or(0))
    }
}
