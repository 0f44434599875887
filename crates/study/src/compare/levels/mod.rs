//! Two levels of one factor within one record.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::notice::Notice;
use clearstream_stats::{Block, Effect, LEAST_PAIRS};
use serde_json::Value;

use super::{
    CellComparison, CellPairs, CompareError, Compared, Comparison, DependsOn, EffectComparison, LevelEffect,
    Pairing, Verdict, adjusted, decide,
    delay_line::{self, Tally},
    too_few,
    values::{self, Observation},
    verdict,
};

/// Compares two levels of a factor in pairs of trials of the same repetition
/// whose other factors are equal. Each is written `FACTOR=LEVEL`. `metric` is
/// the compared metric, each workload's headline when absent.
///
/// # Errors
/// The record cannot be read or has no such levels.
pub fn compare_levels(
    reader: &Reader,
    base: &str,
    changed: &str,
    metric: Option<&str>,
    practical_ratio: f64,
) -> Result<Comparison, CompareError> {
    let (factor, base_level) = split(base)?;
    let (other, changed_level) = split(changed)?;
    if factor != other || base_level == changed_level {
        return Err(CompareError::Level { text: changed.to_owned() });
    }
    let all = values::read(reader, metric)?;
    for level in [base_level, changed_level] {
        if !all.iter().any(|one| one.factors.get(factor).map(text).as_deref() == Some(level)) {
            return Err(CompareError::UnknownLevel {
                run: reader.run().id.clone(),
                factor: factor.to_owned(),
                level: level.to_owned(),
                known: known(&all, factor),
            });
        }
    }
    let mut found = compare(&all, factor, [base_level, changed_level], practical_ratio, reader.run().seed);
    found.base = format!("{} {base}", reader.run().id);
    found.changed = format!("{} {changed}", reader.run().id);
    Ok(found)
}

fn split(text: &str) -> Result<(&str, &str), CompareError> {
    let found = text.split_once('=').filter(|(factor, level)| !factor.is_empty() && !level.is_empty());
    found.ok_or_else(|| CompareError::Level { text: text.to_owned() })
}

/// A level as it is written on the command line.
fn text(level: &Value) -> String {
    level.as_str().map_or_else(|| level.to_string(), str::to_owned)
}

/// Suggestions: levels of the factor, or the factors there are.
fn known(all: &[Observation], factor: &str) -> String {
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, level) in all.iter().flat_map(|one| &one.factors) {
        let levels = seen.entry(name).or_default();
        if !levels.contains(&text(level)) {
            levels.push(text(level));
        }
    }
    let list = |(name, levels): (&&str, &Vec<String>)| format!("{name}={}", levels.join("|"));
    match seen.get_key_value(factor) {
        Some(found) => list(found),
        None if seen.is_empty() => "no factor".to_owned(),
        None => seen.iter().map(list).collect::<Vec<_>>().join(", "),
    }
}

/// A group of trials that are equal but for the compared factor and the repetition.
struct Group<'a> {
    experiment: &'a str,
    metric: Compared,
    factors: BTreeMap<String, Value>,
    values: [BTreeMap<u32, f64>; 2],
    tally: Tally,
}

pub(super) fn compare(
    all: &[Observation],
    factor: &str,
    levels: [&str; 2],
    practical_ratio: f64,
    seed: u64,
) -> Comparison {
    let groups = groups(all, factor, levels);
    let (matched, lonely): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
        groups.iter().partition(|group| group.values.iter().all(|values| !values.is_empty()));
    let mut cells: Vec<CellComparison> =
        matched.iter().filter_map(|group| group.pairs().compared()).collect();
    let mut kinds: Vec<(&str, &Compared)> =
        matched.iter().map(|group| (group.experiment, &group.metric)).collect();
    kinds.dedup();
    let mut effects: Vec<EffectComparison> =
        kinds.into_iter().filter_map(|kind| effect(&matched, kind, seed)).collect();
    let pooled: Vec<f64> =
        effects.iter().filter_map(|one| one.effect.as_ref()).map(|one| one.probability_ratio).collect();
    let probabilities = adjusted(&cells, &pooled);
    let (of_cells, of_effects) = probabilities.split_at(cells.len());
    decide(&mut cells, of_cells, practical_ratio, "trials");
    for (one, adjusted) in effects.iter_mut().filter(|one| one.effect.is_some()).zip(of_effects) {
        judge(one, *adjusted, practical_ratio);
    }
    let trials = [0, 1].map(|side| matched.iter().map(|group| group.tally.all[side]).sum());
    let few = effects.iter().filter(|effect| effect.pair_count < LEAST_PAIRS).map(|effect| Notice {
        id: "proves-nothing".to_owned(),
        message: format!("{}: {}", effect.experiment, too_few(effect.pair_count, "trials")),
    });
    let notices = delay_line::notice(&cells, trials).into_iter().chain(few).collect();
    Comparison {
        base: format!("{factor}={}", levels[0]),
        changed: format!("{factor}={}", levels[1]),
        pairing: Pairing::Repetitions,
        practical_ratio,
        effects,
        cells,
        unmatched_count: lonely.len(),
        notices,
    }
}

fn groups<'a>(all: &'a [Observation], factor: &str, levels: [&str; 2]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places: BTreeMap<(&str, &Compared, String), usize> = BTreeMap::new();
    for one in all {
        let Some(level) = one.factors.get(factor).map(text) else { continue };
        let Some(side) = levels.iter().position(|known| *known == level) else { continue };
        let mut factors = one.factors.clone();
        factors.remove(factor);
        let place = *places
            .entry((&one.experiment, &one.metric, values::key(&factors)))
            .or_insert_with(|| groups.len());
        if place == groups.len() {
            let (experiment, metric) = (one.experiment.as_str(), one.metric.clone());
            groups.push(Group {
                experiment,
                metric,
                factors,
                values: Default::default(),
                tally: Tally::default(),
            });
        }
        groups[place].values[side].insert(one.repetition, one.value);
        groups[place].tally.add(side, one.is_delay_line_limited);
    }
    groups.sort_by_key(|group| {
        all.iter().position(|one| one.experiment == group.experiment && one.metric == group.metric)
    });
    groups
}

impl<'a> Group<'a> {
    fn pairs(&self) -> CellPairs<'a> {
        let [base, changed] = &self.values;
        CellPairs {
            experiment: self.experiment,
            factors: self.factors.clone(),
            metric: self.metric.clone(),
            base: base.values().copied().collect(),
            changed: changed.values().copied().collect(),
            pairs: base
                .iter()
                .filter_map(|(repetition, value)| Some((*value, *changed.get(repetition)?)))
                .collect(),
            delay_line_limited: self.tally.limited,
        }
    }
}

/// All cells of an experiment, pooled only where the effect is one.
fn effect(
    groups: &[&Group<'_>],
    (experiment, metric): (&str, &Compared),
    seed: u64,
) -> Option<EffectComparison> {
    let here: Vec<&&Group<'_>> =
        groups.iter().filter(|group| group.experiment == experiment && group.metric == *metric).collect();
    let names: Vec<String> = here.first()?.factors.keys().cloned().collect();
    let blocks: Vec<Block> = here
        .iter()
        .flat_map(|group| {
            let context: Vec<String> =
                names.iter().map(|name| group.factors.get(name).map(text).unwrap_or_default()).collect();
            let block = move |(base, changed)| Block { base, changed, context: context.clone() };
            group.pairs().pairs.into_iter().map(block)
        })
        .collect();
    let found = Effect::of(&blocks, seed)?;
    let depends_on = found.interaction().map(|moderator| DependsOn {
        factor: names[moderator.factor].clone(),
        probability_ratio: moderator.probability_ratio,
        levels: moderator
            .levels
            .iter()
            .map(|(level, ratio)| LevelEffect::of(Some(level.clone()), ratio))
            .collect(),
    });
    let factor = depends_on.as_ref().map(|on| on.factor.as_str());
    let reason = factor.map(|factor| format!("it depends on {factor}: there is no single figure"));
    Some(EffectComparison {
        experiment: experiment.to_owned(),
        metric: metric.clone(),
        pair_count: blocks.len(),
        depends_on,
        effect: found.single().map(|pooled| LevelEffect::of(None, &pooled)),
        adjusted_probability_ratio: None,
        verdict: Verdict::Unknown,
        reason,
    })
}

/// Decides about the effect over all cells.
fn judge(one: &mut EffectComparison, adjusted: f64, practical_ratio: f64) {
    let Some(found) = &one.effect else { return };
    let interval = Some((found.low_ratio, found.high_ratio)).filter(|_| found.pair_count >= LEAST_PAIRS);
    one.adjusted_probability_ratio = Some(adjusted);
    one.verdict = verdict(&one.metric, (found.ratio, interval, adjusted), practical_ratio);
    one.reason = (one.verdict == Verdict::Unknown).then(|| {
        if found.pair_count < LEAST_PAIRS {
            too_few(found.pair_count, "trials")
        } else {
            "the pairs scatter too much".to_owned()
        }
    });
}

#[cfg(test)]
mod simulation;
