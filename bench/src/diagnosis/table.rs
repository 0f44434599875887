//! The table at the end: what was named for each cause, which healthy paths
//! were blamed, and how often the range of gain contains the goodput after removal.

use super::{Outcome, causes::CAUSES, causes::HEALTHY, counts};

/// Markdown.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text =
        "| cause | named first | without effect | to gain holds | named |\n|---|---|---|---|---|\n"
            .to_owned();
    for case in &CAUSES {
        let own: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.name == case.name).collect();
        if own.is_empty() {
            continue;
        }
        let made: Vec<&&Outcome> = own.iter().filter(|outcome| outcome.had_effect()).collect();
        let right = made.iter().filter(|outcome| outcome.right).count();
        let (held, ranges) = contained(made.iter().map(|outcome| **outcome));
        let named: Vec<String> =
            counts(own.iter().copied()).into_iter().map(|(name, count)| format!("{count} {name}")).collect();
        text.push_str(&format!(
            "| {} | {right}/{} | {} | {held}/{ranges} | {} |\n",
            case.name,
            made.len(),
            own.len() - made.len(),
            named.join(", ")
        ));
    }
    text.push_str("\n| healthy | accused | named |\n|---|---|---|\n");
    for (case, loaded) in HEALTHY.iter().flat_map(|case| [(case, false), (case, true)]) {
        let own = || outcomes.iter().filter(|outcome| outcome.name == case.name && outcome.loaded == loaded);
        if own().next().is_none() {
            continue;
        }
        let named: Vec<String> =
            counts(own()).into_iter().map(|(name, count)| format!("{count} {name}")).collect();
        let beside = if loaded { ", loaded" } else { "" };
        let accused = own().filter(|outcome| outcome.fault).count();
        text.push_str(&format!(
            "| {}{beside} | {accused}/{} | {} |\n",
            case.name,
            own().count(),
            named.join(", ")
        ));
    }
    text.push_str(&totals(outcomes));
    text
}

fn contained<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (usize, usize) {
    let known: Vec<bool> = outcomes.filter_map(Outcome::contained).collect();
    (known.iter().filter(|held| **held).count(), known.len())
}

fn totals(outcomes: &[Outcome]) -> String {
    let causes: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| !outcome.healthy && outcome.had_effect()).collect();
    let right = causes.iter().filter(|outcome| outcome.right).count();
    let healthy: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.healthy).collect();
    let accused = healthy.iter().filter(|outcome| outcome.fault).count();
    let (held, known) = contained(causes.iter().copied());
    let open = causes.iter().filter(|outcome| outcome.contained() == Some(true) && outcome.is_open()).count();
    let none = causes.iter().filter(|outcome| outcome.gain == (None, None)).count();
    let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    format!(
        "\nnamed first: {right} of {} ({:.1} %); healthy accused: {accused} of {}; \
         to gain holds what removal gives: {held} of {known} ({:.1} %), {open} of them by a range without an \
         upper end; {none} trials without a range hold nothing\n",
        causes.len(),
        share(right, causes.len()),
        healthy.len(),
        share(held, known)
    )
}
