//! Wording of verdicts and probabilities, the same everywhere on the page.

use clearstream_schema::{
    diagnosis::End,
    improvement::{TriedStep, Verdict},
    plan::Effect,
};

use crate::{
    estimate::median,
    format::{number, rate, sentence_case, signed_percent},
};

/// Class of its mark in the style sheet: each has a shape of its own.
pub(super) fn mark(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::NotProven => "not-proven",
        Verdict::Worse => "worse",
        Verdict::SideEffect { .. } => "side-effect",
        Verdict::Failed { .. } => "failed",
    }
}

/// `p = 0.008`, with its bound where the value would be all zeros.
pub(super) fn probability(value: f64) -> String {
    let text =
        if value < 0.001 { "p < 0.001".to_owned() } else { format!("p = {}", probability_value(value)) };
    text.replace(' ', "\u{a0}")
}

/// The number alone.
pub(super) fn probability_value(value: f64) -> String {
    match value {
        value if !value.is_finite() => "\u{2013}".to_owned(),
        value if value < 0.001 => "< 0.001".to_owned(),
        value if value < 0.1 => format!("{value:.3}"),
        value => format!("{value:.2}"),
    }
}

/// A ratio of goodputs: `+12 %`, `6.03 times`.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() => "\u{2013}".to_owned(),
        ratio if ratio >= 2.0 => format!("{} times", number(ratio)),
        ratio => signed_percent(ratio - 1.0),
    }
}

/// The median of the pairs' ratios.
pub(super) fn gain(step: &TriedStep) -> Option<String> {
    step.gain_ratio.filter(|ratio| ratio.is_finite()).map(times)
}

/// Verdict and reason, in a sentence or two.
pub(super) fn decision(step: &TriedStep) -> String {
    let medians = median(&step.before.goodput_bps).zip(median(&step.after.goodput_bps));
    let mut figures: Vec<String> = Vec::new();
    figures.extend(medians.map(|(without, with)| format!("{} without, {} with", rate(without), rate(with))));
    figures.extend(gain(step).map(|gain| format!("{gain} in the median pair")));
    figures.extend(step.probability_ratio.map(probability));
    match &step.verdict {
        Verdict::SideEffect { what: text } | Verdict::Failed { reason: text } => {
            figures.push(text.trim().trim_end_matches('.').to_owned());
        }
        Verdict::Kept | Verdict::NotProven | Verdict::Worse => {}
    }
    let mut text = sentence_case(step.verdict.label());
    if !figures.is_empty() {
        text.push_str(&format!(": {}", figures.join(", ")));
    }
    text.push_str(match &step.verdict {
        Verdict::Kept => ".",
        Verdict::Failed { .. } => ". Nothing was changed.",
        Verdict::NotProven | Verdict::Worse | Verdict::SideEffect { .. } => ". Rolled back.",
    });
    text
}

/// Scope of a change of a setting.
pub(super) fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Now => "at once",
        Effect::NewSockets => "for new sockets",
        Effect::Handshake => "for new connections",
        Effect::NewQdiscs => "for new qdiscs",
        Effect::LinkFlap => "at once, the link may go down and up",
        Effect::Boot => "after the next boot",
    }
}

/// `client` or `server`.
pub(super) fn end(end: End) -> &'static str {
    match end {
        End::Client => "client",
        End::Server => "server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_never_zero() {
        assert_eq!(probability(2.0 / 252.0), "p\u{a0}=\u{a0}0.008");
        assert_eq!(probability(0.0001), "p\u{a0}<\u{a0}0.001");
        assert_eq!(probability(1.0), "p\u{a0}=\u{a0}1.00");
        assert_eq!(probability_value(0.0), "< 0.001");
    }
}
