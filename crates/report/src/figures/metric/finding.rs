//! Finding of a figure of a metric, as sentences: the best cell, marked as chosen
//! after measuring, and the comparison with the other experiment of the figure.

use clearstream_schema::outcome::Better;

use super::view::{MetricCell, View};
use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::chosen,
    figure::identifier,
    format::{count, range, sentence_case, significant},
    headline::Headline,
    link,
};

/// Pairs of lines whose ratios a sentence lists; more are in the table only.
const LISTED_PAIRS: usize = 6;

/// The best cell of an experiment's first metric, for the head of the page: never of a client's cache.
pub(crate) fn headline(digest: &Digest, experiment: &ExperimentDigest) -> Option<Headline> {
    let metric = *experiment.drawn_metrics().first()?;
    let view = View::of(metric, &[(experiment, &experiment.measured)], None);
    let best = view.best().filter(|best| !best.is_cached)?;
    let sure = best.estimate.how_sure(|value| metric.unit.text(value));
    let choice = match metric.better {
        Better::Higher => chosen(view.cells.len(), "cell"),
        Better::Lower if view.cells.len() < 2 => String::new(),
        Better::Lower => format!("the lowest of {}, chosen after measuring", count(view.cells.len(), "cell")),
    };
    Some(Headline {
        label: format!("{} {}", view.superlative(), view.spoken()),
        value: metric.unit.text(best.estimate.median),
        sure: if choice.is_empty() { sure } else { format!("{sure}; {choice}") },
        detail: format!("{}: {}.", experiment.spec.title, view.label(best, None)),
        published: None,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: identifier(&[&experiment.spec.name, &metric.name]),
    })
}

impl<'a> View<'a> {
    fn superlative(&self) -> &'static str {
        match self.metric.better {
            Better::Higher => "Highest",
            Better::Lower => "Lowest",
        }
    }

    /// Of those that no cache can have made, where there is one.
    fn best(&self) -> Option<&MetricCell<'a>> {
        let value = |cell: &&MetricCell<'_>| cell.estimate.median;
        let order = |one: &&MetricCell<'_>, other: &&MetricCell<'_>| value(one).total_cmp(&value(other));
        let all = self.all_cached();
        let candidates = self.cells.iter().filter(|cell| all || !cell.is_cached);
        match self.metric.better {
            Better::Higher => candidates.max_by(order),
            Better::Lower => candidates.min_by(order),
        }
    }

    /// The best cell, marked as chosen, and the ratios to the other experiment.
    pub(super) fn finding(&self) -> String {
        let Some(best) = self.best() else { return "Nothing was measured to its end.".to_owned() };
        let unit = |value: f64| self.metric.unit.text(value);
        let chosen = match self.cells.len() {
            1 => String::new(),
            count => {
                format!("; {} of {count} cells, chosen after measuring", self.superlative().to_lowercase())
            }
        };
        format!(
            "{} {}: {} with {} ({}){chosen}.{}",
            self.superlative(),
            self.spoken(),
            unit(best.estimate.median),
            self.label(best, None),
            best.estimate.how_sure(unit),
            self.ratios().map_or_else(String::new, |text| format!(" {text}"))
        )
    }

    /// Lowest and highest ratio of the cells whose levels agree: of each pair of lines by itself,
    /// so that a range is of the axis alone.
    fn ratios(&self) -> Option<String> {
        let [own, other] = &self.sources[..] else { return None };
        let mut lines: Vec<(String, Vec<f64>)> = Vec::new();
        for (own, other) in self.pairs() {
            let (Some(own), Some(other)) = (own, other) else { continue };
            let Some(ratio) = ratio(own, other) else { continue };
            let label = self.pair_label(own, other);
            match lines.iter_mut().find(|(known, _)| *known == label) {
                Some((_, ratios)) => ratios.push(ratio),
                None => lines.push((label, vec![ratio])),
            }
        }
        if lines.is_empty() {
            return None;
        }
        let span = |ratios: &[f64]| {
            let (low, high) =
                ratios.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(*x), h.max(*x)));
            range(&significant(low), &significant(high))
        };
        let subject = format!(
            "the {} of {} over that of {}",
            self.spoken(),
            other.experiment.spec.title,
            own.experiment.spec.title
        );
        Some(match (&lines[..], &self.axis) {
            ([(_, ratios)], _) => format!("Where the levels agree {subject} is {}.", span(ratios)),
            (several, Some(axis)) if several.len() <= LISTED_PAIRS => {
                let each = |(label, ratios): &(String, Vec<f64>)| format!("{} for {label}", span(ratios));
                let listed: Vec<String> = several.iter().map(each).collect();
                format!(
                    "{}, over the {} of both: {}.",
                    sentence_case(&subject),
                    axis.replace('-', " "),
                    listed.join("; ")
                )
            }
            (several, _) => {
                let all: Vec<f64> = several.iter().flat_map(|(_, ratios)| ratios).copied().collect();
                format!(
                    "Where the levels agree {subject} is {} in {} combinations of levels, each in the table.",
                    span(&all),
                    several.len()
                )
            }
        })
    }

    /// The levels of two cells that are compared, without that of the axis.
    fn pair_label(&self, own: &MetricCell<'_>, other: &MetricCell<'_>) -> String {
        let axis = self.axis.as_deref();
        let (own_levels, other_levels) = (self.levels(own, axis), self.levels(other, axis));
        match (own_levels.is_empty(), other_levels.is_empty()) {
            (_, true) => own_levels,
            (true, false) => other_levels,
            (false, false) if own_levels == other_levels => own_levels,
            (false, false) => format!("{other_levels} against {own_levels}"),
        }
    }
}

/// The median of the other experiment's cell over that of this one's.
pub(super) fn ratio(own: &MetricCell<'_>, other: &MetricCell<'_>) -> Option<f64> {
    let ratio = other.estimate.median / own.estimate.median;
    ratio.is_finite().then_some(ratio)
}
