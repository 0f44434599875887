//! Metrics that an experiment can have, whatever its mode: what `metric` and
//! `beside` of a study file may name, and what published values may be of.

use clearstream_configfile::did_you_mean;
use clearstream_schema::{
    outcome::{MetricKind, Unit},
    record::Published,
    study::{Experiment, Figure, Levels, StudyFile},
};
use clearstream_workload::Registry;
use serde_json::Value;

use crate::{
    factor::Known,
    variant::{Effective, Mode},
};

/// Maximum number of combinations of levels checked for each mode. Only a metric
/// that is not among those of the first ones needs that many.
const MAX_COMBINATIONS: usize = 5_000;

/// An experiment and its workload.
#[derive(Clone, Copy)]
struct Metrics<'a> {
    study: &'a StudyFile,
    experiment: &'a Experiment,
    known: Known<'a>,
}

/// Reason why `metric` of an experiment cannot be drawn; experiments have been checked otherwise.
pub(crate) fn check_metric(
    study: &StudyFile,
    experiment: &Experiment,
    registry: &Registry,
) -> Result<(), String> {
    let names = experiment.metrics();
    if experiment.metric.is_some() && names.is_empty() {
        return Err("write at least one metric, or leave it out".to_owned());
    }
    if let Some((_, twice)) = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
        return Err(format!("`{twice}` is there twice"));
    }
    let Some(known) = registry.workload(&experiment.workload) else { return Ok(()) };
    let metrics = Metrics { study, experiment, known: Known { registry, workload: known.as_ref() } };
    names.iter().try_for_each(|name| metrics.declared(name).map(|_| ()))
}

/// A key of a published value, and why it cannot be drawn beside a metric of its experiment.
pub(crate) fn check_published(
    study: &StudyFile,
    experiment: &Experiment,
    published: &Published,
    registry: &Registry,
) -> Result<(), (&'static str, String)> {
    if published.is_text() {
        return Ok(());
    }
    let Some(known) = registry.workload(&experiment.workload) else { return Ok(()) };
    let metrics = Metrics { study, experiment, known: Known { registry, workload: known.as_ref() } };
    let kind = metrics.drawn(&published.metric).map_err(|problem| ("metric", problem))?;
    let is_of = |unit: &str| kind.unit.factor_of(unit).is_some();
    if is_of(&published.unit) {
        return Ok(());
    }
    let fitting: Vec<&str> = Unit::printed().filter(|unit| is_of(unit)).collect();
    let (name, unit, fitting) = (kind.name, &published.unit, fitting.join(", "));
    Err(("unit", format!("`{name}` is not in {unit}: write one of {fitting}")))
}

/// Reason why the experiment that `beside` names cannot be drawn in the same figure.
pub(crate) fn check_beside(
    study: &StudyFile,
    experiment: &Experiment,
    registry: &Registry,
) -> Result<(), String> {
    let Some(name) = &experiment.beside else {
        return match experiment.figure() {
            Figure::Overhead => {
                Err("figure = \"overhead\" needs it: the experiment without the layer".to_owned())
            }
            _ => Ok(()),
        };
    };
    let Some(other) = study.experiments.iter().find(|other| &other.name == name) else {
        let known: Vec<&str> = study.experiments.iter().map(|other| other.name.as_str()).collect();
        let hint = did_you_mean(name, known.iter().copied());
        return Err(format!("there is no experiment `{name}`{hint} (known: {})", known.join(", ")));
    };
    if other.name == experiment.name {
        return Err("this is the experiment itself: name another".to_owned());
    }
    let takes_two = [Figure::Curve, Figure::Overhead, Figure::Bars, Figure::Table];
    if !takes_two.contains(&experiment.figure()) {
        return Err(
            "two experiments are in one figure with figure = \"curve\", \"overhead\", \"bars\" or \"table\""
                .to_owned(),
        );
    }
    let workloads = (registry.workload(&experiment.workload), registry.workload(&other.workload));
    let (Some(own), Some(others)) = workloads else { return Ok(()) };
    let ours = Metrics { study, experiment, known: Known { registry, workload: own.as_ref() } };
    let theirs = Metrics { study, experiment: other, known: Known { registry, workload: others.as_ref() } };
    let drawn: Vec<MetricKind> = match experiment.metrics() {
        [] => ours.headline().into_iter().collect(),
        names => names.iter().filter_map(|name| ours.named(name)).collect(),
    };
    match drawn.is_empty() {
        false => drawn.into_iter().try_for_each(|drawn| share(drawn, ours, theirs)),
        true => Err(format!("the workload {} has no metrics", experiment.workload)),
    }
}

/// Reason why a metric of an experiment is not one of the other in the same unit, and which are.
fn share(drawn: MetricKind, ours: Metrics<'_>, theirs: Metrics<'_>) -> Result<(), String> {
    let name = &theirs.experiment.name;
    let problem = match theirs.named(drawn.name) {
        Some(found) if found.unit == drawn.unit => return Ok(()),
        Some(found) => {
            format!("`{}` is in {} here and in {} in `{name}`", drawn.name, drawn.unit, found.unit)
        }
        None => format!("`{name}` has no metric `{}`", drawn.name),
    };
    let (all, other_all) = (ours.all(), theirs.all());
    let same = |one: &MetricKind, two: &MetricKind| one.name == two.name && one.unit == two.unit;
    let is_shared = |one: &&MetricKind| other_all.iter().any(|two| same(one, two));
    let shared: Vec<&str> = all.iter().filter(is_shared).map(|kind| kind.name).collect();
    Err(match shared.is_empty() {
        true => format!("{problem}: the two have no metric in common"),
        false => format!("{problem}: write a `metric` that both have ({})", shared.join(", ")),
    })
}

impl Metrics<'_> {
    /// The metric of this name, where some combination of levels has it.
    fn named(&self, name: &str) -> Option<MetricKind> {
        self.find(|kind| (kind.name == name).then_some(kind))
    }

    /// As [`Self::named`], or what there is instead.
    fn declared(&self, name: &str) -> Result<MetricKind, String> {
        if let Some(kind) = self.named(name) {
            return Ok(kind);
        }
        let workload = &self.experiment.workload;
        let all: Vec<&str> = self.all().iter().map(|kind| kind.name).collect();
        if all.is_empty() {
            return Err(format!("the workload {workload} has no metrics"));
        }
        let hint = did_you_mean(name, all.iter().copied());
        let all = all.join(", ");
        Err(format!(
            "the workload {workload} has no metric `{name}` with these options{hint} (it has: {all})"
        ))
    }

    /// As [`Self::declared`], or the overhead of the metric that the figure draws.
    fn drawn(&self, name: &str) -> Result<MetricKind, String> {
        let of = name.strip_suffix("-overhead").filter(|_| self.experiment.figure() == Figure::Overhead);
        match of {
            Some(of) => self.declared(of).map(|kind| MetricKind { unit: Unit::Ratio, ..kind }),
            None => self.declared(name),
        }
    }

    /// The headline of the first combination of levels.
    fn headline(&self) -> Option<MetricKind> {
        self.find(Some)
    }

    /// Those of all combinations, each once.
    fn all(&self) -> Vec<MetricKind> {
        let mut all: Vec<MetricKind> = Vec::new();
        self.find(|kind| {
            if !all.contains(&kind) {
                all.push(kind);
            }
            None::<()>
        });
        all
    }

    /// The first result, over the metrics of every combination of levels in every mode.
    fn find<T>(&self, mut test: impl FnMut(MetricKind) -> Option<T>) -> Option<T> {
        let modes = [Mode::Standard, Mode::Quick, Mode::Full];
        let runs = modes.into_iter().flat_map(|mode| [false, true].map(|in_lab| (mode, in_lab)));
        for (mode, in_lab) in runs {
            let effective = Effective::of(&self.study.options, self.experiment, mode, in_lab);
            let base = effective
                .options
                .iter()
                .fold(self.known.workload.defaults(), |config, (name, value)| self.with(config, name, value));
            let factors = self.factors(&effective);
            let count = factors.iter().fold(1usize, |count, (_, levels)| count.saturating_mul(levels.len()));
            for place in 0..count.min(MAX_COMBINATIONS) {
                let config = self.combination(base.clone(), &factors, place);
                let found = self.known.workload.metrics(&config).into_iter().find_map(&mut test);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Factors that are options, with their levels. Names of core sets have none here: which
    /// cores a host has decides no metric.
    fn factors<'e>(&self, effective: &'e Effective) -> Vec<(&'e String, &'e Vec<Value>)> {
        let options = effective.factors.iter().filter(|(name, _)| !self.known.is_lab_only(name));
        let listed = options.filter_map(|(name, levels)| match levels {
            Levels::Listed(levels) => Some((name, levels)),
            Levels::Named(_) => None,
        });
        listed.collect()
    }

    /// A configuration with one of the combinations of levels, by its place among them.
    fn combination(&self, base: Value, factors: &[(&String, &Vec<Value>)], mut place: usize) -> Value {
        factors.iter().fold(base, |config, (name, levels)| {
            let level = &levels[place % levels.len()];
            place /= levels.len();
            self.with(config, name, level)
        })
    }

    /// With one option set; options that the workload does not take are named elsewhere.
    fn with(&self, config: Value, option: &str, value: &Value) -> Value {
        self.known.with(&config, option, value).unwrap_or(config)
    }
}
