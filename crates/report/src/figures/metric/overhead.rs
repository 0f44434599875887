//! What a layer costs: `(raw - own) / raw` of a metric at each level of the axis, where `raw` is the
//! experiment that `beside` names. It is formula 1 of D. Dalessandro, P. Wyckoff, "A Performance
//! Analysis of the Ammasso RDMA Enabled Ethernet Adapter and its iWARP API" (figure 7, MPI over raw).

use clearstream_schema::outcome::{Better, Unit};

use super::{
    axis, beside, drawn_of, figure, table,
    view::{MetricCell, View},
};
use crate::{
    digest::{Digest, ExperimentDigest},
    figure::Figure,
    measured::{Measured, MetricName},
};

/// The overhead of an experiment; nothing where the record lacks what it is compared with.
pub(super) fn figures(digest: &Digest, experiment: &ExperimentDigest, metric: &MetricName) -> Vec<Figure> {
    let Ok(Some(raw)) = beside(digest, experiment, metric) else { return Vec::new() };
    let expanded = [experiment, raw].map(|one| one.measured.over_series(metric));
    let axis = axis(experiment, metric, &expanded[0]);
    let drawn = |one, expanded| (one, drawn_of(one, expanded, axis.as_deref()));
    let both = View::of(metric, &[drawn(experiment, &expanded[0]), drawn(raw, &expanded[1])], axis.clone());
    let (name, overhead) = derived(&both);
    if overhead.is_empty() {
        return Vec::new();
    }
    let view = View::of(&name, &[(experiment, &overhead)], axis);
    let spoken = metric.name.replace('-', " ");
    let note = format!(
        "Overhead is (raw - own) / raw{}: {spoken} of each trial against the best median of {} at the same levels. \
         Below zero it is a gain. The two experiments ran one after the other, and the spread of raw is not in it.",
        if metric.better == Better::Lower { ", with the sign turned" } else { "" },
        raw.spec.title
    );
    vec![figure(&view, table::of(&view, view.sources[0].measured.metrics()), Some(note))]
}

/// Overheads as a metric of the experiment's cells.
fn derived(both: &View<'_>) -> (MetricName, Measured) {
    let metric = both.metric;
    let name =
        MetricName { name: format!("{}-overhead", metric.name), unit: Unit::Ratio, better: Better::Lower };
    let mut cells: Vec<(&MetricCell<'_>, f64)> = Vec::new();
    for (own, raw) in both.pairs() {
        let (Some(own), Some(raw)) = (own, raw.map(|raw| raw.estimate.median)) else { continue };
        match cells.iter_mut().find(|(known, _)| std::ptr::eq(*known, own)) {
            Some((_, best)) => *best = better(metric.better, *best, raw),
            None => cells.push((own, raw)),
        }
    }
    let overhead = |value: f64, raw: f64| match metric.better {
        Better::Higher => (raw - value) / raw,
        Better::Lower => (value - raw) / raw,
    };
    let cells = cells.into_iter().map(|(own, raw)| {
        (own.cell, own.values.iter().map(|value| overhead(*value, raw)).collect::<Vec<f64>>())
    });
    let measured = Measured::of_one_metric(name.clone(), cells);
    (name, measured)
}

fn better(better: Better, one: f64, other: f64) -> f64 {
    match better {
        Better::Higher => one.max(other),
        Better::Lower => one.min(other),
    }
}
