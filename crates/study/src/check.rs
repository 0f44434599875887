//! What a study file must keep to beyond its shape.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_configfile::{Fault, did_you_mean, fault};
use clearstream_schema::{
    flow::FlowConfig,
    record::Published,
    study::{Experiment, Levels, StudyFile, Variant, Workload},
};
use serde_json::Value;

use crate::factor::{self, Factor};

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

/// The first thing that means nothing.
pub(crate) fn check(study: &StudyFile) -> Result<(), Fault> {
    let top = Place::default();
    check_name(&top, &study.name)?;
    check_options(&top.at("flow"), Workload::Flow, &study.flow)?;
    if study.experiments.is_empty() {
        return top.at("experiment").problem("a study needs at least one [[experiment]]");
    }
    let mut names = BTreeSet::new();
    for (index, experiment) in study.experiments.iter().enumerate() {
        let place = top.at("experiment").item(index);
        if !names.insert(&experiment.name) {
            return place
                .at("name")
                .problem(format!("there is an experiment \"{}\" already", experiment.name));
        }
        check_experiment(&place, experiment)?;
    }
    Ok(())
}

fn check_experiment(place: &Place, experiment: &Experiment) -> Result<(), Fault> {
    check_name(place, &experiment.name)?;
    check_options(&place.at("flow"), Workload::Flow, &experiment.flow)?;
    check_options(&place.at("probe"), Workload::Probe, &experiment.probe)?;
    check_options(&place.at("gateways"), Workload::Gateways, &experiment.gateways)?;
    check_factors(&place.at("factors"), experiment, &experiment.factors)?;
    check_repetitions(place, Some(experiment.repetitions))?;
    check_precision(place, experiment.precision_ratio)?;
    let variants = [("lab", &experiment.lab), ("quick", &experiment.quick), ("full", &experiment.full)];
    for (name, variant) in variants {
        if let Some(variant) = variant {
            check_variant(&place.at(name), experiment, variant)?;
        }
    }
    for (index, published) in experiment.published.iter().enumerate() {
        check_published(&place.at("published").item(index), published)?;
    }
    Ok(())
}

fn check_variant(place: &Place, experiment: &Experiment, variant: &Variant) -> Result<(), Fault> {
    check_options(&place.at("flow"), Workload::Flow, &variant.flow)?;
    check_options(&place.at("probe"), Workload::Probe, &variant.probe)?;
    check_options(&place.at("gateways"), Workload::Gateways, &variant.gateways)?;
    check_factors(&place.at("factors"), experiment, &variant.factors)?;
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

fn check_options(
    place: &Place,
    workload: Workload,
    options: &BTreeMap<String, Value>,
) -> Result<(), Fault> {
    for (key, value) in options {
        if let Err(message) = factor::try_option(workload, key, value) {
            return place.at(key).problem(message);
        }
    }
    Ok(())
}

fn check_factors(
    place: &Place,
    experiment: &Experiment,
    factors: &BTreeMap<String, Levels>,
) -> Result<(), Fault> {
    if experiment.workload == Workload::Inspect && !factors.is_empty() {
        return place.problem("the inspect workload has no factors");
    }
    for (name, levels) in factors {
        let place = place.at(name);
        let factor = Factor::of(experiment.workload, name);
        match levels {
            Levels::Named(word) if !factor.takes_cores() => {
                return place.problem(format!(
                    "write a list of levels; only core factors take a word such as \"{word}\""
                ));
            }
            Levels::Named(word) if !factor::CORE_WORDS.contains(&word.as_str()) => {
                let hint = did_you_mean(word, factor::CORE_WORDS);
                return place.problem(format!(
                    "there is no \"{word}\"{hint} (known: {})",
                    factor::CORE_WORDS.join(", ")
                ));
            }
            Levels::Named(_) => {}
            Levels::Listed(levels) if levels.is_empty() => {
                return place.problem("write at least one level");
            }
            Levels::Listed(levels) => {
                for (index, level) in levels.iter().enumerate() {
                    if let Err(message) = factor.check(experiment.workload, name, level) {
                        return place.item(index).problem(message);
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
            place.at("precision-ratio").problem("write a share between 0 and 1, as in 0.02 for 2 %")
        }
        _ => Ok(()),
    }
}

fn check_published(place: &Place, published: &Published) -> Result<(), Fault> {
    if published.source.trim().is_empty() {
        return place.at("source").problem("say which paper and figure");
    }
    if let (Some(low), Some(high)) = (published.low_gbps, published.high_gbps)
        && low > high
    {
        return place.at("low-gbps").problem("the low end lies above the high end");
    }
    for (key, level) in &published.factors {
        let known = factor::is_lab_only(key) || FlowConfig::default().with(key, level.clone()).is_ok();
        if !known {
            let message = factor::try_option(Workload::Flow, key, level).err().unwrap_or_default();
            return place.at("factors").at(key).problem(message);
        }
    }
    Ok(())
}
