//! Validation of a study file beyond its types.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_configfile::{Fault, did_you_mean, fault};
use clearstream_schema::{
    human,
    outcome::Unit,
    record::Published,
    study::{Experiment, Figure, Levels, StudyFile, Variant, WorkloadOptions},
};
use clearstream_workload::Registry;

use crate::{
    factor::{self, Known},
    metrics, relation,
};

/// A key of the document, growing as the walk goes in: `experiment[0].flow`.
#[derive(Debug, Clone, Default)]
struct Place(String);

impl Place {
    fn at(&self, key: &str) -> Self {
        Self(if self.0.is_empty() { key.to_owned() } else { format!("{}.{key}", self.0) })
    }

    fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn problem<T>(&self, problem: impl Into<String>) -> Result<T, Fault> {
        fault(self.0.as_str(), problem)
    }
}

/// Keys of each table that are no names of workloads, for messages: serde keeps
/// tables of options and all unknown keys in one map.
const TOP_KEYS: &[&str] = &["schema", "version", "name", "title", "about", "experiment"];
const EXPERIMENT_KEYS: &[&str] = &[
    "name",
    "title",
    "workload",
    "figure",
    "metric",
    "beside",
    "factors",
    "repetitions",
    "precision-ratio",
    "lab",
    "quick",
    "full",
    "published",
    "published-table",
    "relation",
];
const VARIANT_KEYS: &[&str] = &["factors", "repetitions", "precision-ratio", "budget", "interface"];

/// The first unknown key, checked before anything is read:
/// a misspelt key is named as such, and not as the one that is missing then.
pub(crate) fn check_keys(document: &toml::Table, registry: &Registry) -> Result<(), Fault> {
    let top = Place::default();
    check_table(&top, document, TOP_KEYS, registry)?;
    let experiments = document.get("experiment").and_then(toml::Value::as_array);
    for (index, experiment) in experiments.into_iter().flatten().enumerate() {
        let Some(table) = experiment.as_table() else { continue };
        let place = top.at("experiment").item(index);
        check_table(&place, table, EXPERIMENT_KEYS, registry)?;
        for name in ["lab", "quick", "full"] {
            if let Some(variant) = table.get(name).and_then(toml::Value::as_table) {
                check_table(&place.at(name), variant, VARIANT_KEYS, registry)?;
            }
        }
    }
    Ok(())
}

fn check_table(
    place: &Place,
    table: &toml::Table,
    keys: &[&'static str],
    registry: &Registry,
) -> Result<(), Fault> {
    let known: Vec<&str> = keys.iter().copied().chain(registry.names()).collect();
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let hint = did_you_mean(key, known.iter().copied());
            let message = format!("there is no `{key}` here{hint} (known: {})", known.join(", "));
            place.at(key.as_str()).problem(message)
        }
    }
}

/// Makes published values of the published tables.
pub(crate) fn read_tables(study: &mut StudyFile) -> Result<(), Fault> {
    let top = Place::default();
    for (index, experiment) in study.experiments.iter_mut().enumerate() {
        let place = top.at("experiment").item(index).at("published-table");
        for (index, table) in std::mem::take(&mut experiment.published_table).iter().enumerate() {
            let values = table.values().or_else(|row| {
                place.item(index).at("rows").item(row).problem(format!(
                    "write {} and {}",
                    human::count(table.levels.len(), "level"),
                    human::count(table.metrics.len(), "number")
                ))
            })?;
            experiment.published.extend(values);
        }
    }
    Ok(())
}

/// Most experiments of a study.
const MAX_EXPERIMENTS: usize = 256;
/// Most levels of a factor: each is compared with all others.
const MAX_LEVELS: usize = 1024;

/// The first invalid value.
pub(crate) fn check(study: &StudyFile, registry: &Registry) -> Result<(), Fault> {
    let top = Place::default();
    check_name(&top, &study.name)?;
    check_options(&top, registry, &study.options)?;
    if study.experiments.is_empty() {
        return top.at("experiment").problem("a study needs at least one [[experiment]]");
    }
    if study.experiments.len() > MAX_EXPERIMENTS {
        return top.at("experiment").problem(format!("a study has at most {MAX_EXPERIMENTS} experiments"));
    }
    let mut names = BTreeSet::new();
    for (index, experiment) in study.experiments.iter().enumerate() {
        let place = top.at("experiment").item(index);
        if !names.insert(&experiment.name) {
            return place
                .at("name")
                .problem(format!("there is an experiment \"{}\" already", experiment.name));
        }
        check_experiment(&place, registry, experiment)?;
    }
    for (index, experiment) in study.experiments.iter().enumerate() {
        let place = top.at("experiment").item(index);
        relation::check(experiment)
            .or_else(|(key, problem)| place.at("relation").at(key).problem(problem))?;
        let metric = metrics::check_metric(study, experiment, registry);
        metric.or_else(|problem| place.at("metric").problem(problem))?;
        let beside = metrics::check_beside(study, experiment, registry);
        beside.or_else(|problem| place.at("beside").problem(problem))?;
        for (index, published) in experiment.published.iter().enumerate() {
            let drawn = metrics::check_published(study, experiment, published, registry);
            let place = place.at("published").item(index);
            drawn.or_else(|(key, problem)| place.at(key).problem(problem))?;
        }
    }
    Ok(())
}

fn check_experiment(place: &Place, registry: &Registry, experiment: &Experiment) -> Result<(), Fault> {
    check_name(place, &experiment.name)?;
    let Some(workload) = registry.workload(&experiment.workload) else {
        let hint = did_you_mean(&experiment.workload, registry.names());
        let known: Vec<&str> = registry.names().collect();
        return place.at("workload").problem(format!(
            "there is no workload `{}`{hint} (known: {})",
            experiment.workload,
            known.join(", ")
        ));
    };
    let known = Known { registry, workload: workload.as_ref() };
    check_options(place, registry, &experiment.options)?;
    check_factors(&place.at("factors"), known, &experiment.factors)?;
    check_matrix(place, experiment)?;
    check_repetitions(place, Some(experiment.repetitions))?;
    check_precision(place, experiment.precision_ratio)?;
    let variants = [("lab", &experiment.lab), ("quick", &experiment.quick), ("full", &experiment.full)];
    for (name, variant) in variants {
        if let Some(variant) = variant {
            check_variant(&place.at(name), known, variant)?;
        }
    }
    for (index, published) in experiment.published.iter().enumerate() {
        check_published(&place.at("published").item(index), known, published)?;
    }
    Ok(())
}

/// A matrix has rows and columns.
fn check_matrix(place: &Place, experiment: &Experiment) -> Result<(), Fault> {
    let variants = [&experiment.lab, &experiment.quick, &experiment.full];
    let more = variants.into_iter().flatten().flat_map(|variant| variant.factors.keys());
    let factors: BTreeSet<&String> = experiment.factors.keys().chain(more).collect();
    match experiment.figure() {
        Figure::Matrix if factors.len() < 2 => place.at("figure").problem(
            "a matrix is over two factors: name two below [experiment.factors], or write \"bars\" or \"curve\"",
        ),
        _ => Ok(()),
    }
}

fn check_variant(place: &Place, known: Known<'_>, variant: &Variant) -> Result<(), Fault> {
    check_options(place, known.registry, &variant.options)?;
    check_factors(&place.at("factors"), known, &variant.factors)?;
    check_repetitions(place, variant.repetitions)?;
    check_precision(place, variant.precision_ratio)?;
    if variant.budget.is_some_and(|budget| budget.0 == 0) {
        return place.at("budget").problem("write a time longer than nothing, as in \"60s\"");
    }
    Ok(())
}

/// Names end up in folder names and in the report's anchors.
fn check_name(place: &Place, name: &str) -> Result<(), Fault> {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return place.at("name").problem("write 1 to 64 small letters, digits and -");
    }
    Ok(())
}

/// Tables of options, each below the name of a workload.
fn check_options(place: &Place, registry: &Registry, options: &WorkloadOptions) -> Result<(), Fault> {
    for (name, table) in &options.0 {
        let place = place.at(name.as_str());
        let Some(workload) = registry.workload(name) else {
            return place.problem(format!("there is no workload `{name}`"));
        };
        let Some(table) = table.as_object() else {
            return place.problem(format!("write a table of options: [{name}]"));
        };
        let known = Known { registry, workload: workload.as_ref() };
        for (key, value) in table {
            if let Err(message) = known.try_option(key, value) {
                return place.at(key.as_str()).problem(message);
            }
        }
    }
    Ok(())
}

fn check_factors(place: &Place, known: Known<'_>, factors: &BTreeMap<String, Levels>) -> Result<(), Fault> {
    if !known.workload.varies() && !factors.is_empty() {
        return place.problem(format!("the {} workload has no factors", known.workload.name()));
    }
    for (name, levels) in factors {
        let place = place.at(name.as_str());
        let factor = known.factor(name);
        match levels {
            Levels::Named(name) if !factor.takes_cores() => {
                return place.problem(format!(
                    "write a list of levels; only core factors take a name such as \"{name}\""
                ));
            }
            Levels::Named(name) if !factor::CORE_SETS.contains(&name.as_str()) => {
                let hint = did_you_mean(name, factor::CORE_SETS);
                return place.problem(format!(
                    "there is no \"{name}\"{hint} (known: {})",
                    factor::CORE_SETS.join(", ")
                ));
            }
            Levels::Named(_) => {}
            Levels::Listed(levels) if levels.is_empty() => {
                return place.problem("write at least one level");
            }
            Levels::Listed(levels) if levels.len() > MAX_LEVELS => {
                return place.problem(format!("a factor has at most {MAX_LEVELS} levels"));
            }
            Levels::Listed(levels) => {
                for (index, level) in levels.iter().enumerate() {
                    if let Err(message) = known.check_level(name, level) {
                        let place = if known.has(name) { place.item(index) } else { place };
                        return place.problem(message);
                    }
                    if levels[..index].contains(level) {
                        return place.item(index).problem(format!("{level} is there twice"));
                    }
                }
            }
        }
    }
    Ok(())
}

fn check_repetitions(place: &Place, repetitions: Option<u32>) -> Result<(), Fault> {
    match repetitions {
        Some(count) if !(1..=1000).contains(&count) => place.at("repetitions").problem("write 1 to 1000"),
        _ => Ok(()),
    }
}

fn check_precision(place: &Place, ratio: Option<f64>) -> Result<(), Fault> {
    match ratio {
        Some(ratio) if !(ratio > 0.0 && ratio < 1.0) => {
            place.at("precision-ratio").problem("write a ratio between 0 and 1, as in 0.02 for 2 %")
        }
        _ => Ok(()),
    }
}

fn check_published(place: &Place, known: Known<'_>, published: &Published) -> Result<(), Fault> {
    if published.source.trim().is_empty() {
        return place.at("source").problem("write which paper and figure");
    }
    if Unit::of_printed(&published.unit).is_none() {
        let units: Vec<&str> = Unit::printed().collect();
        let hint = did_you_mean(&published.unit, units.iter().copied());
        let message = format!("there is no unit `{}`{hint} (known: {})", published.unit, units.join(", "));
        return place.at("unit").problem(message);
    }
    if let (Some(low), Some(high)) = (published.low, published.high)
        && low > high
    {
        return place.at("low").problem("the low end lies above the high end");
    }
    for (key, level) in &published.factors {
        if known.is_lab_only(key) {
            continue;
        }
        if let Err(message) = known.try_option(key, level) {
            return place.at("factors").at(key.as_str()).problem(message);
        }
    }
    Ok(())
}
