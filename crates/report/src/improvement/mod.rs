//! The page of a closed loop: goodput before and now, every change that was
//! tried with its runs, what is effective and how it is restored.

mod changes;
mod cost;
mod figure;
mod runs;
mod wording;

use clearstream_schema::{
    flow::Direction,
    host::HostReport,
    improvement::{Improvement, LoopEnd, Runs, TriedStep, Verdict},
};
use clearstream_stats::{false_discovery_adjusted, paired_ratio};
use serde::Serialize;

use crate::{
    document::{Fact, host_text},
    estimate::Estimate,
    figure::{Figure, Table},
    format::{count, number, range, rate},
    headline::Headline,
    link,
};
use changes::Journal;
use wording::{decision, mark, probability, times};

/// Reason for trying nothing although there was time.
const UNTRIED: &str = "no known setting removes this limit";
/// Anchor of the cards: the drawing of all changes.
const FIGURE: &str = "figure-steps";

/// Reason for trying nothing although there was time, where the limit is not known.
const NOT_IDENTIFIED: &str = "bottleneck not identified, so nothing was tried";
const CONTENDED: &str = "other processes held the cores in every diagnosis, so nothing was tried";

/// Time, program and hosts of a loop.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// Version of the program.
    pub program_version: String,
    /// Role (`Client`, `Server`) and what the host is.
    pub hosts: Vec<(String, HostReport)>,
    /// Name of the lab of the loop.
    pub lab: Option<String>,
    /// Both ends ran on one machine, over its loopback.
    pub one_machine: bool,
}

impl Made {
    fn title_suffix(&self) -> &'static str {
        link::suffix_of(self.lab.as_deref(), self.one_machine)
    }

    fn band(&self, server: &str) -> Option<String> {
        link::band_of(self.lab.as_deref(), self.one_machine.then_some(server), 2)
    }
}

/// Contents of the page.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    title: String,
    /// Warning for a loop that crossed no network.
    band: Option<String>,
    subtitle: String,
    headlines: Vec<Headline>,
    limit: Option<String>,
    /// Suggested next step where the limit is not known.
    next_step: Option<String>,
    cost: Option<String>,
    trust: Vec<String>,
    figure: Option<Figure>,
    options: Table,
    settings: Table,
    journals: Vec<Journal>,
    steps: Vec<Step>,
    /// Runs at the beginning and at the end, where they are no step's own.
    ends: Option<Table>,
    notices: Table,
    provenance: Vec<Fact>,
}

/// One change with all that is known about it.
#[derive(Debug, Serialize)]
struct Step {
    id: String,
    number: usize,
    title: String,
    /// Class of the verdict's mark.
    mark: &'static str,
    verdict: &'static str,
    decision: String,
    limit: String,
    /// Absent when it equals `limit`.
    reason: Option<String>,
    changes: Table,
    runs: Option<Table>,
}

impl Document {
    /// Composes the page.
    pub(crate) fn of(found: &Improvement, made: Option<&Made>) -> Self {
        let mut notices = Table::new("Warnings", &["Notice", "What was seen"]);
        for notice in &found.notices {
            notices.push(vec![notice.id.clone(), notice.message.clone()]);
        }
        Self {
            title: format!("{}{}", title(found), made.map_or("", Made::title_suffix)),
            band: made.and_then(|made| made.band(&found.server)),
            subtitle: subtitle(found),
            headlines: headlines(found),
            limit: found.limit.clone().filter(|limit| !limit.is_empty()),
            next_step: found.next_step.clone().filter(|step| !step.is_empty()),
            cost: cost::sentence(found),
            trust: trust(found),
            figure: figure::figure(found, FIGURE),
            options: changes::options(found),
            settings: changes::settings(found),
            journals: changes::journals(found),
            steps: steps(found),
            ends: (ends_are(found) == Ends::Confirmed)
                .then(|| runs::table("Everything that was kept", &found.before, &found.after)),
            notices,
            provenance: provenance(found, made),
        }
    }
}

fn steps(found: &Improvement) -> Vec<Step> {
    let before = changes::options_before(found);
    found
        .steps
        .iter()
        .zip(&before)
        .enumerate()
        .map(|(index, (step, options))| Step {
            id: format!("step-{}", index + 1),
            number: index + 1,
            title: step.candidate.title.clone(),
            mark: mark(&step.verdict),
            verdict: step.verdict.label(),
            decision: decision(step),
            limit: step.limit.clone(),
            reason: Some(step.candidate.reason.clone()).filter(|reason| *reason != step.limit),
            changes: changes::of_step(step, options),
            runs: measured(step).then(|| runs::table("Goodput and its cost", &step.before, &step.after)),
        })
        .collect()
}

fn measured(step: &TriedStep) -> bool {
    !(step.before.goodput_bps.is_empty() && step.after.goodput_bps.is_empty())
}

fn kept(found: &Improvement) -> impl Iterator<Item = (usize, &TriedStep)> {
    found.steps.iter().enumerate().filter(|(_, step)| step.verdict == Verdict::Kept)
}

/// Sender to receiver, as data went.
fn path(found: &Improvement) -> String {
    let (client, server) = (&found.client, &found.server);
    match found.requested.direction {
        Direction::Forward => format!("{client} to {server}"),
        Direction::Reverse => format!("{server} to {client}"),
        Direction::Both => format!("{client} and {server}, both directions"),
    }
}

fn title(found: &Improvement) -> String {
    let path = path(found);
    let ends = Estimate::of(&found.before.goodput_bps).zip(Estimate::of(&found.after.goodput_bps));
    match ends {
        _ if found.steps.is_empty() => format!("{path}: nothing was tried"),
        _ if kept(found).next().is_none() => format!("{path}: nothing tried was better"),
        Some((before, after)) => {
            format!("{path}: from {}", range(&rate(before.median), &rate(after.median)))
        }
        None => format!("{path}: {} kept", count(kept(found).count(), "change")),
    }
}

fn subtitle(found: &Improvement) -> String {
    let mut parts = Vec::new();
    if !found.steps.is_empty() {
        parts.push(format!("{} of {} kept", kept(found).count(), count(found.steps.len(), "change")));
    }
    parts.push(match found.end {
        LoopEnd::NothingLeft if found.steps.is_empty() => UNTRIED.to_owned(),
        LoopEnd::LimitUnknown if found.steps.is_empty() => NOT_IDENTIFIED.to_owned(),
        LoopEnd::Contended if found.steps.is_empty() => CONTENDED.to_owned(),
        end => end_text(end).to_owned(),
    });
    parts.join(" \u{b7} ")
}

fn end_text(end: LoopEnd) -> &'static str {
    match end {
        LoopEnd::NothingLeft => "nothing was left to try",
        LoopEnd::LimitUnknown => "nothing was left to try: bottleneck not identified",
        LoopEnd::Contended => "nothing was left to try: other processes held the cores",
        LoopEnd::TimeOver => "the time was over before everything was tried",
        LoopEnd::Stopped => "stopped by hand, the change in test was rolled back",
    }
}

/// Origin of the first and last runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Interleaved at the end, all kept changes against the beginning.
    Confirmed,
    /// The runs of one step without and with its change: interleaved too.
    OneStep,
    /// Runs of different steps, made at different times.
    Apart,
    /// There are none.
    Absent,
}

fn ends_are(found: &Improvement) -> Ends {
    let (before, after) = (&found.before, &found.after);
    if before.goodput_bps.is_empty() || after.goodput_bps.is_empty() {
        return Ends::Absent;
    }
    let of_a_step = |runs: &Runs| found.steps.iter().any(|step| step.before == *runs || step.after == *runs);
    if found.steps.iter().any(|step| step.before == *before && step.after == *after) {
        Ends::OneStep
    } else if of_a_step(before) || of_a_step(after) {
        Ends::Apart
    } else {
        Ends::Confirmed
    }
}

/// Before, now, and the gain with how sure it is.
fn headlines(found: &Improvement) -> Vec<Headline> {
    let ends = Estimate::of(&found.before.goodput_bps).zip(Estimate::of(&found.after.goodput_bps));
    let Some((before, after)) = ends else { return observed(found).into_iter().collect() };
    let nothing = kept(found).next().is_none();
    let card = |label: &str, estimate: Estimate, detail: &str| Headline {
        label: label.to_owned(),
        value: rate(estimate.median),
        sure: estimate.how_sure(rate),
        detail: detail.to_owned(),
        published: None,
        path: None,
        proven: true,
        figure: FIGURE.to_owned(),
    };
    let now = if nothing {
        ("Goodput in the last runs", "Nothing was kept: hosts and flow are unchanged.")
    } else {
        ("Goodput now", "With everything that was kept.")
    };
    vec![
        card("Goodput before", before, "The requested flow, on the hosts as they were."),
        card(now.0, after, now.1),
        gain(found, (before, after), nothing),
    ]
}

fn gain(found: &Improvement, (before, after): (Estimate, Estimate), nothing: bool) -> Headline {
    let ratio = after.median / before.median;
    let (base, changed) = (&found.before.goodput_bps, &found.after.goodput_bps);
    let interval = ratio_interval(base, changed);
    let p = paired_probability(base, changed)
        .map_or_else(String::new, |value| format!("; {}", probability(value)));
    let (label, detail) = match (nothing, ends_are(found)) {
        (true, _) => (
            "Last runs against the first",
            "No change lies between them: this is the path\u{2019}s own drift.",
        ),
        (false, Ends::Apart) => {
            ("Gain", "Not interleaved: a drift of the path between beginning and end is part of it.")
        }
        (false, _) => ("Gain", "Interleaved, so a drift of the path is not part of it."),
    };
    Headline {
        label: label.to_owned(),
        value: times(ratio),
        sure: format!("ratio of the medians {}, {interval}{p}", number(ratio)),
        detail: detail.to_owned(),
        published: None,
        path: None,
        proven: true,
        figure: FIGURE.to_owned(),
    }
}

/// Goodput of the diagnosis, where no change was measured.
fn observed(found: &Improvement) -> Option<Headline> {
    let bps = found.observed_bps.filter(|bps| bps.is_finite() && *bps > 0.0)?;
    Some(Headline {
        label: "Goodput measured".to_owned(),
        value: rate(bps),
        sure: "one flow of the diagnosis, no interval".to_owned(),
        detail: "The requested flow, on the hosts as they are.".to_owned(),
        published: None,
        path: None,
        proven: true,
        figure: "provenance".to_owned(),
    })
}

/// Probability by chance of runs that were made in pairs.
pub(crate) fn paired_probability(base: &[f64], changed: &[f64]) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = base.iter().copied().zip(changed.iter().copied()).collect();
    paired_ratio(&pairs).map(|found| found.probability_ratio)
}

/// Interval of the ratio from the pairs of runs; their range where they are few.
pub(crate) fn ratio_interval(base: &[f64], changed: &[f64]) -> String {
    let pairs: Vec<(f64, f64)> = base.iter().copied().zip(changed.iter().copied()).collect();
    match paired_ratio(&pairs).filter(|found| found.count >= 2) {
        None => "no interval".to_owned(),
        Some(found) if found.is_95() => {
            format!("95 % interval of the pairs {}", range(&number(found.low), &number(found.high)))
        }
        Some(found) => {
            format!("range of {} pairs {}", found.count, range(&number(found.low), &number(found.high)))
        }
    }
}

/// Limits of the page's validity, in sentences.
fn trust(found: &Improvement) -> Vec<String> {
    let pairs: Vec<usize> = found
        .steps
        .iter()
        .filter(|step| measured(step))
        .map(|step| step.before.goodput_bps.len().min(step.after.goodput_bps.len()))
        .collect();
    let Some((fewest, most)) = pairs.iter().min().zip(pairs.iter().max()) else {
        return vec!["No change was measured: there is no comparison of baseline and treatment.".to_owned()];
    };
    let pairs_text = if fewest == most { count(*most, "pair") } else { format!("{fewest} to {most} pairs") };
    let mut lines = vec![format!(
        "Each change was measured in pairs of baseline and treatment ({pairs_text}, the order within a pair drawn at random), so that drift is not mistaken for an effect."
    )];
    lines.push(match ends_are(found) {
        Ends::Confirmed => format!(
            "Before and now come from {} of their own, made at the end: all kept changes against the initial state.",
            count(found.before.goodput_bps.len().min(found.after.goodput_bps.len()), "pair")
        ),
        Ends::OneStep => "Before and now are the runs of one change, without and with it.".to_owned(),
        Ends::Apart => {
            "Before and now are the first and the last runs: they were made at different times.".to_owned()
        }
        Ends::Absent => "There are no runs to compare beginning and end.".to_owned(),
    });
    lines.push(
        "p is the probability of such a difference in goodput had the change done nothing (two-sided signed-rank test of the pairs); intervals are of the ratios of pairs (signed ranks), 95 % from six pairs on."
            .to_owned(),
    );
    lines.extend(many_tests(found));
    lines
}

/// Of many tests some succeed by chance: the probabilities with that taken into account.
fn many_tests(found: &Improvement) -> Option<String> {
    let tested: Vec<(&TriedStep, f64)> =
        found.steps.iter().filter_map(|step| Some((step, step.probability_ratio?))).collect();
    let adjusted = false_discovery_adjusted(&tested.iter().map(|(_, p)| *p).collect::<Vec<_>>());
    let largest = tested
        .iter()
        .zip(adjusted)
        .filter(|((step, _), _)| step.verdict == Verdict::Kept)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    (tested.len() > 1).then(|| {
        format!(
            "{} changes were tested; the least sure of those kept has {}, and {} when the number of tests is taken into account (Benjamini and Hochberg).",
            tested.len(),
            probability(largest.0.1),
            probability(largest.1)
        )
    })
}

fn provenance(found: &Improvement, made: Option<&Made>) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let mut facts = Vec::new();
    if let Some(made) = made {
        facts.push(fact("Started", made.started.clone()));
        facts.push(fact("Program", format!("clearstream {}", made.program_version)));
        facts.extend(made.hosts.iter().map(|(role, host)| fact(role, host_text(host))));
    }
    facts.extend([
        fact("Client", found.client.clone()),
        fact("Server", found.server.clone()),
        fact("Path", path(found)),
        fact("Requested flow", changes::requested_options(&found.requested)),
        fact(
            "Rule and seed",
            format!(
                "{} per change, analysed {}, gains below {} do not matter; seed {}",
                count(found.rule.pair_count as usize, "pair"),
                match found.rule.look_count {
                    1 => "once".to_owned(),
                    count => format!("{count} times at most"),
                },
                crate::format::percent(found.rule.threshold_ratio),
                found.rule.seed
            ),
        ),
        fact("Ended because", end_text(found.end).to_owned()),
        fact("Document", format!("{}, version {}", found.schema, found.version)),
    ]);
    facts
}
