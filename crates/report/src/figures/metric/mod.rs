//! Figures of any metric against any factor: for the kinds `curve`, `bars`, `matrix`
//! and `table`, for a `metric` that a study names, and for workloads without a figure
//! of their own. Two experiments can be side by side in one.

mod bars;
mod curve;
mod finding;
mod matrix;
mod overhead;
mod table;
mod view;

use clearstream_schema::{outcome::Unit, record::Published, study::Figure as Kind};

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, draw_both, identifier},
    measured::{Measured, MetricName},
};
pub(crate) use finding::headline;
use view::View;

/// More of them have one mark together.
const PUBLISHED_IN_LEGEND: usize = 3;

/// The figure of the chosen metric, and a table of all metrics.
pub(crate) fn figures(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Figure> {
    let Some(metric) = experiment.measured.metric(experiment.spec.metric.as_deref()) else {
        return Vec::new();
    };
    if experiment.spec.figure() == Kind::Matrix {
        let drawn = matrix::figures(experiment, metric);
        if !drawn.is_empty() {
            return drawn;
        }
    }
    let mut figures = vec![of_values(digest, experiment, metric)];
    if experiment.spec.figure() == Kind::Overhead {
        figures.extend(overhead::figures(digest, experiment, metric));
    }
    figures
}

/// The metric itself, with that of the experiment beside this one.
fn of_values(digest: &Digest, experiment: &ExperimentDigest, metric: &MetricName) -> Figure {
    let (beside, absent) = match beside(digest, experiment, metric) {
        Ok(other) => (other, None),
        Err(note) => (None, Some(note)),
    };
    let shown: Vec<&ExperimentDigest> = std::iter::once(experiment).chain(beside).collect();
    let over_series = |one: &&ExperimentDigest| match experiment.spec.figure() {
        Kind::Curve | Kind::Overhead => one.measured.over_series(metric),
        _ => Measured::default(),
    };
    let expanded: Vec<Measured> = shown.iter().map(over_series).collect();
    let axis = axis(experiment, metric, &expanded[0]);
    let with_series = shown.iter().copied().zip(&expanded);
    let parts: Vec<_> =
        with_series.map(|(one, expanded)| (one, drawn_of(one, expanded, axis.as_deref()))).collect();
    let view = View::of(metric, &parts, axis);
    // Of one experiment all metrics of its cells, whichever series is drawn.
    let of_table = match beside {
        Some(_) => table::of(&view),
        None => table::of(&View::of(metric, &[(experiment, &experiment.measured)], None)),
    };
    figure(&view, of_table, absent)
}

fn figure(view: &View<'_>, table: crate::figure::Table, note: Option<String>) -> Figure {
    let experiment = view.sources[0].experiment;
    let id = identifier(&[&experiment.spec.name, &view.metric.name]);
    let (title, finding) = (view.title(), view.finding());
    let drawings = draw_both(&id, &title, &finding, |size| match &view.axis {
        Some(factor) => curve::draw(view, factor, size),
        None => bars::draw(view, size),
    });
    let published = view.published();
    let theirs: Vec<LegendItem> = match published.len() {
        // All of them are listed below the figure.
        count if count > PUBLISHED_IN_LEGEND => {
            vec![LegendItem::new("theirs", format!("published, {count} values"))]
        }
        _ => {
            let label =
                |published: &Published| format!("published: {}, {}", published.label, published.source);
            published.iter().map(|(one, ..)| LegendItem::new("theirs", label(one))).collect()
        }
    };
    Figure {
        drawings,
        notes: view.notes().into_iter().chain(note).collect(),
        legend: view.legend().into_iter().chain(theirs).collect(),
        table,
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    }
}

/// Cells that have a number on the axis: those of an experiment, or the points of their series.
fn drawn_of<'a>(one: &'a ExperimentDigest, expanded: &'a Measured, axis: Option<&str>) -> &'a Measured {
    match axis {
        Some(axis) if !view::has_numbers(&one.measured, axis) => expanded,
        _ => &one.measured,
    }
}

/// The experiment that is drawn in the same figure, or why it is not.
fn beside<'a>(
    digest: &'a Digest,
    experiment: &ExperimentDigest,
    metric: &MetricName,
) -> Result<Option<&'a ExperimentDigest>, String> {
    let Some(name) = &experiment.spec.beside else { return Ok(None) };
    let other = digest.experiments.iter().find(|other| &other.spec.name == name);
    let measured = other.filter(|other| !other.measured.is_empty());
    let Some(other) = measured else {
        return Err(format!("The record has no trial of {name}, which this figure refers to."));
    };
    let same = |found: &MetricName| found.name == metric.name && found.unit == metric.unit;
    match other.measured.metrics().iter().any(same) {
        true => Ok(Some(other)),
        false => Err(format!("No trial of {name} has the metric {} in {}.", metric.name, metric.unit)),
    }
}

/// The factor along the horizontal axis of a curve: one of numbers, or the axis of the metric's series.
fn axis(experiment: &ExperimentDigest, metric: &MetricName, expanded: &Measured) -> Option<String> {
    match experiment.spec.figure() {
        Kind::Bars | Kind::Matrix | Kind::Table => None,
        _ => view::numeric_factor(&experiment.measured, metric)
            .or_else(|| view::numeric_factor(expanded, metric)),
    }
}

impl View<'_> {
    fn spoken(&self) -> String {
        self.metric.name.replace('-', " ")
    }

    /// Title of an axis: the quantity with its unit, where it has one.
    fn axis_title(&self, unit: &str) -> String {
        if unit.is_empty() { self.spoken() } else { format!("{}, {unit}", self.spoken()) }
    }

    fn title(&self) -> String {
        let title = &self.sources[0].experiment.spec.title;
        let text = match &self.axis {
            Some(factor) => format!("{title}: {} against {}", self.spoken(), factor.replace('-', " ")),
            None => format!("{title}: {} of each cell", self.spoken()),
        };
        match self.sources.get(1) {
            Some(other) => format!("{text}, beside {}", other.experiment.spec.title),
            None => text,
        }
    }

    fn notes(&self) -> Vec<String> {
        let Some(other) = self.sources.get(1) else { return Vec::new() };
        let mut notes = vec![
            "The two experiments ran one after the other: their ratio is one of medians, not of pairs of trials."
                .to_owned(),
        ];
        if self.outside_count > 0 {
            notes.push(format!(
                "{} of {} beyond these levels {} in its own figure.",
                crate::format::count(self.outside_count, "cell"),
                other.experiment.spec.title,
                if self.outside_count == 1 { "is" } else { "are" }
            ));
        }
        notes
    }

    fn legend(&self) -> Vec<LegendItem> {
        if self.axis.is_some() {
            let class = |index: usize| format!("dot {}", super::series_class(index));
            let named = self.lines().into_iter().enumerate();
            return named.map(|(index, (label, _))| LegendItem::new(class(index), label)).collect();
        }
        match &self.sources[..] {
            [_] => vec![LegendItem::new("dot s0", "one trial")],
            several => (0..several.len())
                .map(|place| {
                    let title = &several[place].experiment.spec.title;
                    LegendItem::new(
                        format!("dot {}", super::series_class(place)),
                        format!("one trial of {title}"),
                    )
                })
                .collect(),
        }
    }
}

/// A metric's value in a unit that all values of an axis share.
fn scaled(unit: Unit, highest: f64) -> (&'static str, f64) {
    unit.scale_for(highest)
}
