//! Figures of any metric against any factor: for the kinds `curve`, `bars`, `matrix`
//! and `table`, for a `metric` that a study names, and for workloads without a figure
//! of their own. Two experiments can be side by side in one.

mod bars;
mod curve;
mod finding;
mod matrix;
mod overhead;
mod relation;
mod table;
mod view;

use clearstream_schema::{outcome::Unit, record::Published, study::Figure as Kind};

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, draw_both, identifier},
    measured::{Measured, MetricName},
};
pub(crate) use finding::headline;
pub(crate) use relation::{headline as relation_headline, sentences};
use view::View;

/// More of them have one mark together.
const PUBLISHED_IN_LEGEND: usize = 3;

/// What an asterisk says.
const CACHED: &str = "* may come from a client\u{2019}s cache: a rate of the client, not of the storage.";

/// The relation that the study declares, then a figure of each chosen metric with a table of all metrics.
pub(crate) fn figures(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Figure> {
    let metrics = experiment.drawn_metrics();
    let each = metrics.iter().flat_map(|metric| of_metric(digest, experiment, metric));
    let mut figures: Vec<Figure> = relation::figure(experiment).into_iter().chain(each).collect();
    // What is no number is told once, in the first of them.
    let texts = experiment.spec.published.iter().filter(|one| one.is_text()).cloned();
    if let (Some(first), [_, _, ..]) = (figures.first_mut(), metrics.as_slice()) {
        first.published.extend(texts);
    }
    figures
}

fn of_metric(digest: &Digest, experiment: &ExperimentDigest, metric: &MetricName) -> Vec<Figure> {
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
    // Of one experiment all metrics of its cells, whichever series is drawn; once where it has several figures.
    let is_first = experiment.drawn_metrics().first().is_none_or(|first| *first == metric);
    let of_table = match beside {
        Some(_) => table::of(&view, view.sources[0].measured.metrics()),
        None => {
            let whole = View::of(metric, &[(experiment, &experiment.measured)], None);
            let all = experiment.measured.metrics();
            table::of(&whole, if is_first { all } else { std::slice::from_ref(metric) })
        }
    };
    figure(&view, of_table, absent)
}

fn figure(view: &View<'_>, table: crate::figure::Table, note: Option<String>) -> Figure {
    let experiment = view.sources[0].experiment;
    let id = identifier(&[&experiment.spec.name, &view.metric.name]);
    let (title, finding) = (view.title(), view.finding());
    let drawings = match &view.axis {
        Some(factor) => draw_both(&id, &title, &finding, |size| curve::draw(view, factor, size)),
        None => {
            let rows = bars::rows(view);
            draw_both(&id, &title, &finding, |size| rows.draw(size))
        }
    };
    Figure {
        drawings,
        notes: view.notes().into_iter().chain(note).collect(),
        legend: view.legend().into_iter().chain(view.legend_of_others()).collect(),
        table,
        published: listed(experiment, view.metric),
        id,
        title,
        finding,
    }
}

/// Published values that are listed below the figure of a metric: those that no table has.
fn listed(experiment: &ExperimentDigest, metric: &MetricName) -> Vec<Published> {
    let spec = &experiment.spec;
    let is_of = |published: &&Published| match (spec.metrics().len(), published.is_text()) {
        (2.., true) => false,
        (_, true) => true,
        (2.., false) => published.metric == metric.name,
        _ => true,
    };
    let in_table = |published: &&Published| {
        let relation = spec.relation.as_ref();
        relation.is_some_and(|relation| published.factors.contains_key(&relation.factor))
    };
    spec.published.iter().filter(is_of).filter(|one| one.is_text() || !in_table(one)).cloned().collect()
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
        let mut notes = Vec::new();
        if self.shows_cached() {
            notes.push(CACHED.to_owned());
        }
        let Some(other) = self.sources.get(1) else { return notes };
        notes.push(
            "The two experiments ran one after the other: their ratio is one of medians, not of pairs of trials."
                .to_owned(),
        );
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

    /// Whether figure or table has a value with an asterisk.
    fn shows_cached(&self) -> bool {
        let in_table = |source: &view::Source<'_>| {
            let cells = || source.measured.cells();
            source.measured.metrics().iter().any(|metric| cells().any(|cell| cell.is_cached(metric)))
        };
        self.cells.iter().any(|cell| cell.is_cached) || self.sources.iter().any(in_table)
    }

    /// Published values: those of a line have its mark.
    fn legend_of_others(&self) -> Vec<LegendItem> {
        let published = self.published();
        let mut items: Vec<LegendItem> = Vec::new();
        let (of_lines, others): (Vec<_>, Vec<_>) =
            published.iter().map(|(one, ..)| (*one, self.line_of(one))).partition(|(_, line)| line.is_some());
        for (index, (label, _)) in self.lines().iter().enumerate() {
            let own = of_lines.iter().filter(|(_, line)| *line == Some(index));
            let own: Vec<&Published> = own.map(|(one, _)| *one).collect();
            let mut sources: Vec<&str> = own.iter().map(|one| one.source.as_str()).collect();
            sources.dedup();
            let label = match own.as_slice() {
                [] => continue,
                [one] => &one.label,
                _ => label,
            };
            let label = format!("published: {label}, {}", sources.join(", "));
            items.push(LegendItem::new(format!("theirs {}", others_class(index)), label));
        }
        match others.len() {
            // All of them are listed below the figure.
            count if count > PUBLISHED_IN_LEGEND => {
                items.push(LegendItem::new("theirs", format!("published, {count} values")));
            }
            _ => items.extend(others.iter().map(|(one, _)| {
                LegendItem::new("theirs", format!("published: {}, {}", one.label, one.source))
            })),
        }
        items
    }

    /// The one line of a curve that a published value is of.
    fn line_of(&self, published: &Published) -> Option<usize> {
        let axis = self.axis.as_deref()?;
        published.factors.get(axis)?;
        let lines = self.lines();
        let is_own = |(_, points): &(String, Vec<(f64, &view::MetricCell<'_>)>)| {
            points.iter().any(|(_, cell)| self.is_of(published, cell, Some(axis)))
        };
        let mut own = lines.iter().enumerate().filter(|(_, line)| is_own(line)).map(|(place, _)| place);
        own.next().filter(|_| own.next().is_none())
    }

    fn legend(&self) -> Vec<LegendItem> {
        if self.axis.is_some() {
            let class = |index: usize| format!("dot {}", super::series_class(index));
            let named = self.lines().into_iter().enumerate();
            return named.map(|(index, (label, _))| LegendItem::new(class(index), label)).collect();
        }
        match &self.sources[..] {
            [_] => super::rows::legend(),
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

/// Class of the published values of a line: its colour, hollow and dashed.
fn others_class(line: usize) -> String {
    super::series_class(line).replacen('s', "p", 1)
}

/// A metric's value in a unit that all values of an axis share.
fn scaled(unit: Unit, highest: f64) -> (&'static str, f64) {
    unit.scale_for(highest)
}
