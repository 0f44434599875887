//! A diagnosis for people: the limit in one sentence, the ceilings of the stages,
//! the evidence, the suggestions.

use clearstream_schema::{
    diagnosis::{Diagnosis, Finding, GainBound, GainRange, Stage, StageName, Verdict},
    lab::DELAY_LINE_LIMIT_NOTICE,
    notice::Notice,
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
/// Columns of a stage before its reason: mark, name, figure, bar and the spaces between.
const STAIR: usize = 2 + 24 + 1 + 14 + 2 + BAR + 2;
/// A reason with fewer columns than these beside the bar has lines of its own.
const REASON: usize = 36;
/// Columns before the reason of a stage on lines of its own.
const REASON_MARGIN: usize = 6;

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
                text.push_str(&gains(gain, next_bottleneck(diagnosis, gain)));
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
            text.push_str(&stair(stage, diagnosis.observed_bps, width::columns(), paint));
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

/// What may be gained without the limit, and what limits then.
fn gains(gain: &GainRange, next: Option<&Stage>) -> String {
    let end = |label: &str, bound: &GainBound| format!("{label} {} ({})", rate(bound.rate_bps), bound.basis);
    let at_least = gain.at_least.as_ref().map(|bound| end("at least", bound));
    // The stage that comes next is the bound from above.
    let up_to = gain.at_most.as_ref().filter(|_| next.is_none()).map(|bound| end("up to", bound));
    let ends: Vec<String> = at_least.into_iter().chain(up_to).collect();
    let mut text = String::new();
    if !ends.is_empty() {
        text.push_str(&wrapped("possible gain: ", &ends.join(", "), str::to_owned));
    }
    if let Some((ceiling, name)) = next.and_then(|stage| Some((stage.ceiling_bps?, stage_name(stage.name)))) {
        text.push_str(&wrapped("next bottleneck: ", &format!("{} ({name})", rate(ceiling)), str::to_owned));
    }
    text
}

/// The stage with the lowest known ceiling beside the limit, where no flow has passed it and no
/// other bound is lower.
fn next_bottleneck<'a>(diagnosis: &'a Diagnosis, gain: &GainRange) -> Option<&'a Stage> {
    let reached = gain.at_least.as_ref().map_or(0.0, |bound| bound.rate_bps).max(diagnosis.observed_bps);
    let allowed = gain.at_most.as_ref().map_or(f64::INFINITY, |bound| bound.rate_bps);
    let known = diagnosis.stages.iter().filter(|stage| !stage.limiting && !stage.at_least);
    known
        .filter_map(|stage| Some((stage, stage.ceiling_bps?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .filter(|(_, ceiling)| *ceiling > reached && *ceiling <= allowed)
        .map(|(stage, _)| stage)
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
/// times it, so that the limit and the next one differ at a glance. The reason is beside it
/// where there is room, else below it, and never cut.
fn stair(stage: &Stage, observed_bps: f64, columns: Option<usize>, paint: Paint) -> String {
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
    let painted = |line: &str| if stage.limiting { paint.figure(line) } else { line.to_owned() };
    match columns {
        None => format!("{}  {}\n", painted(&line), stage.basis),
        Some(columns) if columns >= STAIR + REASON => {
            let reason = folded(STAIR, &stage.basis, columns, str::to_owned);
            format!("{}  {}", painted(&line), reason.trim_start())
        }
        Some(columns) => {
            let reason = folded(REASON_MARGIN, &stage.basis, columns, str::to_owned);
            format!("{}\n{reason}", painted(line.trim_end()))
        }
    }
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
pub(super) fn wrapped(heading: &str, prose: &str, paint: impl Fn(&str) -> String) -> String {
    let margin = heading.chars().count();
    let text = folded(margin, prose, width::prose(), paint);
    format!("{heading}{}", text.get(margin..).unwrap_or_default())
}

/// Lines of prose that end before the given column, all set in by a margin.
fn folded(margin: usize, prose: &str, columns: usize, paint: impl Fn(&str) -> String) -> String {
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
    lines.iter().map(|line| format!("{:margin$}{}\n", "", paint(line))).collect()
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
        let bars = |stage: &Stage| stair(stage, 1e9, None, paint).matches('#').count();
        let (one, three, hundred) =
            (stage(Some(1e9), true), stage(Some(3e9), false), stage(Some(100e9), false));
        assert!(bars(&one) < bars(&three) && bars(&three) < bars(&hundred));
        assert_eq!(bars(&hundred), BAR);
        assert!(stair(&one, 1e9, None, paint).contains("> send buffer"));
        assert!(stair(&stage(None, false), 1e9, None, paint).contains(" - "));
    }

    #[test]
    fn reasons_of_stages_are_folded_and_never_cut() {
        let basis = "measured rate / 41 % of a core per flow: the thread waited 47 % of the time for a core that is \
                     shared with other programs";
        let stage = Stage {
            name: StageName::ReceiverCpu,
            ceiling_bps: Some(2e9),
            at_least: false,
            limiting: true,
            basis: basis.to_owned(),
        };
        let tokens = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        for columns in [None, Some(80), Some(120), Some(160)] {
            let text = stair(&stage, 1e9, columns, Paint::for_stdout());
            assert!(tokens(&text).ends_with(basis), "{text}");
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(columns.is_none_or(|columns| longest <= columns), "{longest}: {text}");
        }
        let beside = stair(&stage, 1e9, Some(120), Paint::for_stdout());
        let lines: Vec<&str> = beside.lines().collect();
        assert!(lines.len() > 1 && lines[0].find("measured") == Some(STAIR), "{beside}");
        assert!(lines[1..].iter().all(|line| line.starts_with(&" ".repeat(STAIR))), "{beside}");
        // With little room below it.
        assert!(stair(&stage, 1e9, Some(80), Paint::for_stdout()).contains("\n      measured rate"));
    }

    #[test]
    fn the_next_bottleneck_is_the_lowest_stage_beside_the_limit() {
        let stage = |name, ceiling_bps, limiting, at_least| Stage {
            name,
            ceiling_bps: Some(ceiling_bps),
            at_least,
            limiting,
            basis: String::new(),
        };
        let mut found = clearstream_diagnose::explain(&clearstream_diagnose::Evidence::default());
        found.observed_bps = 10e9;
        found.stages = vec![
            stage(StageName::SendBuffer, 10.5e9, true, false),
            stage(StageName::Path, 12e9, false, true),
            stage(StageName::ReceiverCpu, 25.6e9, false, false),
            stage(StageName::Nic, 39.6e9, false, false),
        ];
        let bound = |rate_bps| Some(GainBound { rate_bps, basis: "a line".to_owned() });
        let text = |at_least, at_most| {
            let gain = GainRange { at_least, at_most };
            gains(&gain, next_bottleneck(&found, &gain))
        };
        assert_eq!(text(None, bound(39.6e9)), "next bottleneck: 25.6 Gb/s (receiver CPU)\n");
        assert_eq!(
            text(bound(12e9), None),
            "possible gain: at least 12.0 Gb/s (a line)\nnext bottleneck: 25.6 Gb/s (receiver CPU)\n"
        );
        // A line below every stage, or a flow that passed the stage.
        assert_eq!(text(None, bound(19e9)), "possible gain: up to 19.0 Gb/s (a line)\n");
        assert_eq!(
            text(bound(30e9), bound(39.6e9)),
            "possible gain: at least 30.0 Gb/s (a line), up to 39.6 Gb/s (a line)\n"
        );
    }
}
