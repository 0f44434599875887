//! What `relation` of an experiment may name: two levels of one of its factors.

use clearstream_configfile::did_you_mean;
use clearstream_schema::{
    human,
    study::{Experiment, Levels},
};

/// A key of the relation, and why it cannot be drawn.
pub(crate) fn check(experiment: &Experiment) -> Result<(), (&'static str, String)> {
    let Some(relation) = &experiment.relation else { return Ok(()) };
    let variants = [&experiment.lab, &experiment.quick, &experiment.full].into_iter().flatten();
    let factors = || std::iter::once(&experiment.factors).chain(variants.clone().map(|one| &one.factors));
    let known: Vec<&str> = factors().flat_map(|of| of.keys().map(String::as_str)).collect();
    if !known.contains(&relation.factor.as_str()) {
        let hint = did_you_mean(&relation.factor, known.iter().copied());
        let known = known.join(", ");
        return Err(("factor", format!("there is no factor `{}`{hint} (known: {known})", relation.factor)));
    }
    let listed = factors().filter_map(|of| match of.get(&relation.factor)? {
        Levels::Listed(levels) => Some(levels),
        Levels::Named(_) => None,
    });
    let levels: Vec<_> = listed.flatten().collect();
    for (key, level) in [("level", &relation.level), ("over", &relation.over)] {
        if !levels.contains(&level) {
            let known: Vec<String> = levels.iter().map(|level| human::level(level)).collect();
            let (level, known) = (human::level(level), known.join(", "));
            return Err((key, format!("`{level}` is no level of `{}` (known: {known})", relation.factor)));
        }
    }
    if relation.level == relation.over {
        return Err(("over", "this is the level itself: name another".to_owned()));
    }
    match relation.differences.iter().any(|text| text.trim().is_empty()) {
        true => Err(("differences", "write a few words for each".to_owned())),
        false => Ok(()),
    }
}
