//! A diagnosis for people: the limit in one sentence, the ceilings of the stages,
//! the evidence, the suggestions.

use clearstream_schema::{
    diagnosis::{Diagnosis, Finding, GainBound, GainRange, Stage, StageName, Verdict},
    flow::Notice,
    lab::DELAY_LINE_LIMIT_NOTICE,
};

use super::{
    Paint,
    quantity::{rate, time},
    verbatim, width,
};

/// Columns of the longest bar.
const BAR: usize = 28;
/// A ceiling this many times the rate seen fills the bar.
const BAR_SPAN: f64 = 10.0;
/// Columns from which on a stage has its reason on the same line.
const WIDE: usize = 96;
/// Columns before the reason of a stage on a line of its own.
const REASON: usize = 6;

/// The whole page.
pub fn diagnosis(diagnosis: &Diagnosis, paint: Paint) -> String {
    let mut text = head(diagnosis);
    // A limit of the lab qualifies all figures below it.
    let (limits, notices): (Vec<&Notice>, Vec<&Notice>) =
        diagnosis.notices.iter().partition(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE);
    for notice in limits {
        text.push_str(&wrapped("delay line ", &notice.message, |line| paint.warning(line)));
    }
    match &diagnosis.primary {
        Verdict::Found(finding) => {
            text.push_str(&wrapped("limit      ", &finding.sentence, |line| paint.figure(line)));
            if let Some(gain) = &diagnosis.gain {
                text.push_str(&wrapped("to gain    ", &range(gain), str::to_owned));
            }
        }
        Verdict::Unknown { because, experiment } => {
            text.push_str(&wrapped("limit      ", &format!("unknown: {because}"), |line| {
                paint.warning(line)
            }));
            text.push_str(&wrapped("next step  ", &experiment.question, str::to_owned));
        }
    }
    for finding in &diagnosis.secondary {
        text.push_str(&wrapped("also       ", &finding.sentence, |line| paint.warning(line)));
    }
    if !diagnosis.stages.is_empty() {
        text.push_str("\nwhat each stage can carry, in order from writer to reader\n");
        for stage in &diagnosis.stages {
            text.push_str(&stair(stage, diagnosis.observed_bps, paint));
        }
    }
    text.push_str(&evidence(diagnosis));
    if !diagnosis.suggestions.is_empty() {
        text.push_str("\nsuggestions, the most informative first\n");
        for (number, suggestion) in (1..).zip(&diagnosis.suggestions) {
            text.push_str(&wrapped(&format!("  {number}. "), &suggestion.sentence, str::to_owned));
            if let Some(command) = &suggestion.command {
                text.push_str(&verbatim(&format!("       {command}\n")));
            }
        }
    }
    for notice in notices {
        text.push_str(&wrapped("note: ", &notice.message, |line| paint.warning(line)));
    }
    text.truncate(text.trim_end().len());
    text
}

/// Both ends of what may be gained, each with where it comes from.
fn range(gain: &GainRange) -> String {
    let end = |label: &str, bound: &GainBound| format!("{label} {} ({})", rate(bound.rate_bps), bound.basis);
    let ends = [
        gain.at_least.as_ref().map(|bound| end("at least", bound)),
        gain.at_most.as_ref().map(|bound| end("at most", bound)),
    ];
    ends.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn head(diagnosis: &Diagnosis) -> String {
    let flows = match diagnosis.flow.flows {
        1 => "1 flow".to_owned(),
        count => format!("{count} flows"),
    };
    let rtt = diagnosis.min_rtt_ns.map_or_else(String::new, |rtt| format!(", round trip {}", time(rtt)));
    format!(
        "{} to {}: {flows}, {} goodput{rtt}\n\n",
        diagnosis.sender_name,
        diagnosis.receiver_name,
        rate(diagnosis.observed_bps)
    )
}

fn evidence(diagnosis: &Diagnosis) -> String {
    let primary = match &diagnosis.primary {
        Verdict::Found(finding) => Some(finding),
        Verdict::Unknown { .. } => None,
    };
    let findings: Vec<&Finding> = primary.into_iter().chain(&diagnosis.secondary).collect();
    let mut text = String::new();
    if findings.iter().any(|finding| !finding.evidence.is_empty()) {
        text.push_str("\nevidence\n");
    }
    for item in findings.iter().flat_map(|finding| &finding.evidence) {
        text.push_str(&wrapped("  - ", &format!("{}  [{}]", item.statement, item.source), str::to_owned));
    }
    for experiment in &diagnosis.experiments {
        text.push_str(&wrapped("  - ", &format!("{}  [experiment]", experiment.conclusion), str::to_owned));
    }
    text
}

/// One step: a bar on a logarithmic scale from a tenth of the rate seen to ten
/// times it, so that the limit and the next one differ at a glance.
fn stair(stage: &Stage, observed_bps: f64, paint: Paint) -> String {
    let name = stage_name(stage.name);
    let (bar, figure) = match stage.ceiling_bps {
        None => (String::new(), "-".to_owned()),
        Some(ceiling) => {
            let ratio = (ceiling / observed_bps.max(1.0)).clamp(1.0 / BAR_SPAN, BAR_SPAN);
            let share = (ratio.ln() / BAR_SPAN.ln() + 1.0) / 2.0;
            let length = ((share * BAR as f64).round() as usize).clamp(1, BAR);
            let full = if stage.at_least { "." } else { "#" };
            let sign = if stage.at_least { ">= " } else { "" };
            (full.repeat(length), format!("{sign}{}", rate(ceiling)))
        }
    };
    let mark = if stage.limiting { ">" } else { " " };
    let line = format!("{mark} {name:<24} {figure:>14}  {bar:<BAR$}");
    let line = if stage.limiting { paint.figure(&line) } else { line };
    if width::columns().is_some_and(|columns| columns < WIDE) {
        let reason = format!("{}{}", " ".repeat(REASON), shortened(&stage.basis));
        return format!("{}\n{reason}\n", line.trim_end());
    }
    format!("{line}  {}\n", shortened(&stage.basis))
}

fn shortened(basis: &str) -> String {
    const LONGEST: usize = 70;
    if basis.chars().count() <= LONGEST {
        return basis.to_owned();
    }
    let mut text: String = basis.chars().take(LONGEST - 1).collect();
    text.push('…');
    text
}

fn stage_name(name: StageName) -> &'static str {
    match name {
        StageName::SenderApplication => "sender application",
        StageName::SendBuffer => "send buffer",
        StageName::CongestionWindow => "congestion window, loss",
        StageName::Pacing => "pacing",
        StageName::SenderCpu => "sender CPU",
        StageName::SenderPcie => "sender NUMA, PCIe",
        StageName::Nic => "NIC",
        StageName::Path => "path",
        StageName::ReceiverWindow => "receiver window",
        StageName::ReceiverPcie => "receiver NUMA, PCIe",
        StageName::ReceiverInterruptCore => "receiver interrupt core",
        StageName::ReceiverCpu => "receiver CPU",
        StageName::Copies => "copies",
        StageName::ReceiverApplication => "receiver application",
    }
}

/// Prose behind a heading, further lines set in below it.
fn wrapped(heading: &str, prose: &str, paint: impl Fn(&str) -> String) -> String {
    let margin = heading.chars().count();
    let columns = width::prose();
    let mut lines = vec![String::new()];
    for token in prose.split_whitespace() {
        let last = lines.last_mut();
        match last {
            Some(line) if line.is_empty() => line.push_str(token),
            Some(line) if margin + line.chars().count() + 1 + token.chars().count() <= columns => {
                line.push(' ');
                line.push_str(token);
            }
            _ => lines.push(token.to_owned()),
        }
    }
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number == 0 {
            text.push_str(heading);
        } else {
            text.push_str(&" ".repeat(margin));
        }
        text.push_str(&paint(line));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_the_lab_is_shown_before_that_of_the_path() {
        let notice = |id: &str, message: &str| Notice { id: id.to_owned(), message: message.to_owned() };
        let evidence = clearstream_diagnose::Evidence {
            notices: vec![
                notice("probe-failed", "no probe"),
                notice(DELAY_LINE_LIMIT_NOTICE, "the delay line, not the path, was the limit"),
            ],
            ..Default::default()
        };
        let text = diagnosis(&clearstream_diagnose::explain(&evidence), Paint::for_stdout());
        let line = |start: &str| text.lines().position(|line| line.starts_with(start)).expect("such a line");
        assert!(line("delay line the delay line, not the path") < line("limit "), "{text}");
        assert!(line("note: no probe") > line("limit "), "{text}");
        assert_eq!(text.matches("not the path").count(), 1, "{text}");
    }

    #[test]
    fn prose_is_broken_at_spaces_and_indented() {
        let text = wrapped("limit  ", &"token ".repeat(40), str::to_owned);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= width::prose()));
        assert!(lines[0].starts_with("limit  token") && lines[1].starts_with("       token"));
    }

    #[test]
    fn bars_grow_with_the_ceiling_and_the_limit_is_marked() {
        let stage = |ceiling_bps: Option<f64>, limiting| Stage {
            name: StageName::SendBuffer,
            ceiling_bps,
            at_least: false,
            limiting,
            basis: "0.87 * 4 MiB / 17 ms".to_owned(),
        };
        let paint = Paint::for_stdout();
        let bars = |stage: &Stage| stair(stage, 1e9, paint).matches('#').count();
        let (one, three, hundred) =
            (stage(Some(1e9), true), stage(Some(3e9), false), stage(Some(100e9), false));
        assert!(bars(&one) < bars(&three) && bars(&three) < bars(&hundred));
        assert_eq!(bars(&hundred), BAR);
        assert!(stair(&one, 1e9, paint).contains("> send buffer"));
        assert!(stair(&stage(None, false), 1e9, paint).contains(" - "));
    }
}
