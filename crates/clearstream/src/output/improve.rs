//! Results of `clearstream improve` for people.

use clearstream_schema::{
    diagnosis::Diagnosis,
    improvement::{Improvement, LoopEnd, Runs, TriedStep, Verdict},
};
use clearstream_stats::median;

use super::{Paint, quantity::rate, table::table};

/// What limits the path, while the loop runs.
pub fn limit(diagnosis: &Diagnosis) -> String {
    format!("{}  limit: {}", rate(diagnosis.observed_bps), diagnosis.sentence())
}

/// One decision, while the loop runs.
pub fn decided(step: &TriedStep) -> String {
    format!("{}: {}{}", step.candidate.title, step.verdict.label(), gain(step))
}

/// The end: every change, and what is in effect.
pub fn summary(found: &Improvement, paint: Paint) -> String {
    let mut text = String::new();
    let rows: Vec<Vec<String>> = found
        .steps
        .iter()
        .enumerate()
        .map(|(index, step)| {
            vec![
                (index + 1).to_string(),
                step.candidate.title.clone(),
                middle(&step.before),
                middle(&step.after),
                step.gain_ratio
                    .map_or_else(|| "-".to_owned(), |gain| format!("{:+.1} %", (gain - 1.0) * 100.0)),
                step.probability_ratio
                    .map_or_else(|| "-".to_owned(), |probability| format!("{probability:.3}")),
                step.verdict.label().to_owned(),
            ]
        })
        .collect();
    if rows.is_empty() {
        text.push_str(match found.end {
            LoopEnd::NothingLeft => "nothing was tried: no known setting removes this limit\n",
            LoopEnd::LimitUnknown => "bottleneck not identified, so nothing was tried\n",
            LoopEnd::Contended => {
                "nothing was tried: other processes held the cores in every diagnosis, so there is no conclusion \
                 about the path\n"
            }
            LoopEnd::TimeOver | LoopEnd::Stopped => "nothing was tried\n",
        });
    } else {
        text.push_str(&table(&[">", "change", ">without", ">with", ">gain", ">p", "verdict"], rows));
        text.push('\n');
    }
    for step in &found.steps {
        if let Verdict::SideEffect { what } | Verdict::Failed { reason: what } = &step.verdict {
            text.push_str(&paint.warning(&format!("{}: {what}", step.candidate.title)));
            text.push('\n');
        }
    }
    if let (Some(before), Some(after)) = (median(&found.before.goodput_bps), median(&found.after.goodput_bps))
    {
        let figure = format!("{} -> {}", rate(before), rate(after));
        text.push_str(&format!("\n{}  ({:.2} times, medians)\n", paint.figure(&figure), after / before));
    } else if let Some(observed) = found.observed_bps {
        text.push_str(&format!("goodput {}\n", paint.figure(&rate(observed))));
    }
    if let Some(limit) = &found.limit {
        text.push_str(&format!("limit now: {limit}\n"));
    }
    if let Some(step) = found.next_step.as_ref().filter(|step| !step.is_empty()) {
        text.push_str(&format!("next step: {step}\n"));
    }
    for kept in &found.journals {
        text.push_str(&format!(
            "in effect at {}: `clearstream plan revert {}` there reverts it\n",
            kept.host, kept.journal
        ));
    }
    if found.end == LoopEnd::TimeOver {
        text.push_str(&paint.warning("the time was over before everything was tried: --budget gives more\n"));
    }
    for notice in &found.notices {
        text.push_str(&paint.warning(&notice.message));
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn gain(step: &TriedStep) -> String {
    match (step.gain_ratio, median(&step.before.goodput_bps), median(&step.after.goodput_bps)) {
        (Some(gain), Some(before), Some(after)) => {
            format!(" ({} -> {}, {:+.1} %)", rate(before), rate(after), (gain - 1.0) * 100.0)
        }
        _ => String::new(),
    }
}

fn middle(runs: &Runs) -> String {
    median(&runs.goodput_bps).map_or_else(|| "-".to_owned(), rate)
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{flow::FlowConfig, improvement::DecisionRule};

    use super::*;

    fn found(end: LoopEnd) -> Improvement {
        Improvement {
            schema: "clearstream.improvement".to_owned(),
            version: 1,
            client: "here".to_owned(),
            server: "there".to_owned(),
            rule: DecisionRule {
                pair_count: 7,
                threshold_ratio: 0.02,
                level_ratio: 0.05,
                look_count: 1,
                seed: 1,
            },
            requested: FlowConfig::default(),
            kept: FlowConfig::default(),
            steps: Vec::new(),
            before: Runs::default(),
            after: Runs::default(),
            journals: Vec::new(),
            end,
            limit: None,
            observed_bps: None,
            next_step: None,
            notices: Vec::new(),
        }
    }

    /// "No change would help" is a claim that only a known limit allows.
    #[test]
    fn an_unknown_limit_claims_nothing() {
        let text = |end| summary(&found(end), Paint::NONE);
        assert_eq!(text(LoopEnd::LimitUnknown), "bottleneck not identified, so nothing was tried");
        assert_eq!(text(LoopEnd::NothingLeft), "nothing was tried: no known setting removes this limit");
        assert_eq!(text(LoopEnd::Stopped), "nothing was tried");
        assert!(text(LoopEnd::TimeOver).contains("--budget gives more"));
    }

    /// Contention was identified: "bottleneck not identified" is another end.
    #[test]
    fn contention_has_its_own_end_and_next_step() {
        let contended = Improvement {
            limit: Some("contention: on client other processes hold core 3".to_owned()),
            next_step: Some("repeat the measurement when client is idle".to_owned()),
            ..found(LoopEnd::Contended)
        };
        assert_eq!(
            summary(&contended, Paint::NONE),
            "nothing was tried: other processes held the cores in every diagnosis, so there is no conclusion about the path\n\
             limit now: contention: on client other processes hold core 3\n\
             next step: repeat the measurement when client is idle"
        );
    }

    /// What is known without a limit: how fast the path is, and what would show more.
    #[test]
    fn an_unknown_limit_leaves_goodput_and_next_step() {
        let unknown = Improvement {
            limit: Some("limit unknown: the samples scatter too much".to_owned()),
            observed_bps: Some(9.4e9),
            next_step: Some("repeat with a longer run on an idle host".to_owned()),
            ..found(LoopEnd::LimitUnknown)
        };
        assert_eq!(
            summary(&unknown, Paint::NONE),
            "bottleneck not identified, so nothing was tried\n\
             goodput 9.40 Gb/s\n\
             limit now: limit unknown: the samples scatter too much\n\
             next step: repeat with a longer run on an idle host"
        );
        // Two measured medians are stronger evidence than one diagnosis.
        let runs = |gbps: f64| Runs { goodput_bps: vec![gbps * 1e9], ..Runs::default() };
        let measured = Improvement { before: runs(4.0), after: runs(8.0), ..unknown };
        let text = summary(&measured, Paint::NONE);
        assert!(text.contains("4.00 Gb/s -> 8.00 Gb/s") && !text.contains("goodput"), "{text}");
        assert!(text.ends_with("next step: repeat with a longer run on an idle host"), "{text}");
    }
}
