//! Every change as two strips of dots, without and with it, on one scale: what
//! was rejected is drawn with what was kept.

use clearstream_schema::improvement::{Improvement, Runs, TriedStep};
use clearstream_stats::median;

use super::{
    Ends, ends_are, kept, measured, paired_probability,
    runs::medians,
    wording::{gain, mark, probability, probability_value, times},
};
use crate::{
    estimate::Estimate,
    figure::{Figure, LegendItem, Table, draw_both},
    format::{count, gbps, join, rate},
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, tick_labels},
        scale::{Scale, ticks_between},
    },
};

/// Changes beyond this many are in the table only.
const MAX_ROWS: usize = 30;
/// Number of kept changes named in the finding.
const NAMED: usize = 3;
/// Height of one strip of dots.
const STRIP: f64 = 26.0;
/// Titles are set in a type so much wider than the one that widths are reckoned in.
const TITLE: f64 = 0.84;
/// Width of the column of verdicts next to the titles.
const VERDICTS: f64 = 190.0;
/// Runs of a strip are spread over this height, the first on top.
const SPREAD: f64 = 11.0;
/// Below this fraction of the highest value the axis starts at zero.
const FAR_FROM_ZERO: f64 = 0.6;

/// One pair of strips.
struct Line<'a> {
    title: String,
    before: &'a Runs,
    after: &'a Runs,
    /// Class of its mark; absent for the line of all changes together.
    mark: Option<&'static str>,
    decided: String,
}

/// The strips, or `None` when nothing was tried.
pub(super) fn figure(found: &Improvement, id: &str) -> Option<Figure> {
    if found.steps.is_empty() {
        return None;
    }
    let lines = lines(found);
    let title = "Every change that was tried".to_owned();
    let finding = finding(found);
    let runs = || lines.iter().flat_map(|line| line.before.goodput_bps.iter().chain(&line.after.goodput_bps));
    let scale = scale(runs().copied(), Size::Wide);
    let mut notes = Vec::new();
    if runs().next().is_some() {
        notes.push(
            "Runs are ordered from top to bottom; baseline and treatment at the same height are one pair, measured one after the other."
                .to_owned(),
        );
    }
    if scale.0.domain().0 > 0.0 {
        notes.push(format!("The axis starts at {}, not at zero.", rate(scale.0.domain().0 * 1e9)));
    }
    if found.steps.len() > MAX_ROWS {
        notes.push(format!("Drawn are the first {MAX_ROWS} changes; the table has all."));
    }
    Some(Figure {
        drawings: draw_both(id, &title, &finding, |size| draw(&lines, size)),
        notes,
        legend: legend(found),
        table: table(found),
        published: Vec::new(),
        id: id.to_owned(),
        title,
        finding,
    })
}

fn lines(found: &Improvement) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = found
        .steps
        .iter()
        .take(MAX_ROWS)
        .enumerate()
        .map(|(index, step)| Line {
            title: format!("{}  {}", index + 1, step.candidate.title),
            before: &step.before,
            after: &step.after,
            mark: Some(mark(&step.verdict)),
            decided: gain(step).map_or_else(
                || step.verdict.label().to_owned(),
                |gain| format!("{}, {gain}", step.verdict.label()),
            ),
        })
        .collect();
    if ends_are(found) == Ends::Confirmed {
        lines.push(Line {
            title: "All kept changes, against the initial state".to_owned(),
            before: &found.before,
            after: &found.after,
            mark: None,
            decided: together(found),
        });
    }
    lines
}

/// Gain of all kept changes, with its confidence.
fn together(found: &Improvement) -> String {
    let (before, after) = (&found.before.goodput_bps, &found.after.goodput_bps);
    let ratio = median(before).zip(median(after)).map(|(before, after)| times(after / before));
    let sure = paired_probability(before, after).map(probability);
    ratio.into_iter().chain(sure).collect::<Vec<_>>().join(", ")
}

/// Kept changes and the verdicts of the others.
fn finding(found: &Improvement) -> String {
    let names: Vec<String> = kept(found)
        .map(|(_, step)| match gain(step) {
            Some(gain) => format!("{} ({gain})", step.candidate.title),
            None => step.candidate.title.clone(),
        })
        .collect();
    let others: Vec<String> = ["no proven gain", "worse", "cost too high", "failed"]
        .into_iter()
        .filter_map(|wanted| {
            let times = found.steps.iter().filter(|step| step.verdict.label() == wanted).count();
            let phrase = match wanted {
                "no proven gain" => "without proven gain",
                "cost too high" => "at too high a cost",
                other => other,
            };
            (times > 0).then(|| format!("{times} {phrase}"))
        })
        .collect();
    let tried = count(found.steps.len(), "change");
    let mut text = match names.len() {
        0 => format!("None of {tried} was kept"),
        n if n > NAMED => format!("{n} of {tried} kept, the first {}", join(&names[..NAMED])),
        n => format!("{n} of {tried} kept: {}", join(&names)),
    };
    if !others.is_empty() {
        text.push_str(&format!("; {}", join(&others)));
    }
    text.push('.');
    text
}

/// Shapes of the verdicts that occur.
fn legend(found: &Improvement) -> Vec<LegendItem> {
    let mut legend = vec![
        LegendItem::new("dot hollow", "one run without the change"),
        LegendItem::new("dot s0", "one run with it"),
        LegendItem::new("bar s7", "median without"),
        LegendItem::new("bar s0", "median with"),
    ];
    if !found.steps.iter().any(measured) {
        legend.clear();
    }
    for step in &found.steps {
        let item = LegendItem::new(format!("verdict {}", mark(&step.verdict)), step.verdict.label());
        if !legend.contains(&item) {
            legend.push(item);
        }
    }
    legend
}

/// Gb/s from zero, or from a round number below the lowest where all runs are far from zero.
fn scale(runs: impl Iterator<Item = f64>, size: Size) -> (Scale, Vec<f64>) {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in runs.filter(|value| value.is_finite()).map(|bps| bps / 1e9) {
        low = low.min(value);
        high = high.max(value);
    }
    let wanted = size.pick(8, 4);
    if !(low.is_finite() && low > FAR_FROM_ZERO * high) {
        return Scale::from_zero(high, wanted);
    }
    // Room for the marks, then whole steps.
    let margin = ((high - low) * 0.06).max(high * 0.004);
    let inner = ticks_between(low - margin, high + margin, wanted);
    let step = inner.windows(2).map(|pair| pair[1] - pair[0]).fold(high * 0.1, f64::min);
    let first = ((low - margin) / step).floor().max(0.0);
    let last = ((high + margin) / step).ceil().max(first + 1.0);
    let ticks = (first as i64..=last as i64).map(|index| index as f64 * step).collect();
    (Scale::Linear { domain: (first * step, last * step), range: (0.0, 1.0) }, ticks)
}

/// Heading of the strips of a line: its title, in two lines on a phone.
fn heading(line: &Line<'_>, size: Size) -> Vec<String> {
    match size {
        Size::Wide => {
            vec![fitted(&line.title, TITLE * (size.width() - VERDICTS - 40.0))]
        }
        Size::Narrow => wrapped(&line.title, TITLE * size.width()),
    }
}

/// Two lines at most, broken between words where that is possible.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let first: String = {
        let cut = fitted(text, width);
        if cut == text {
            return vec![cut];
        }
        cut.trim_end_matches('\u{2026}').to_owned()
    };
    // Not behind the number alone, which is followed by two spaces.
    let at = first.rfind(' ').filter(|at| *at > 8).unwrap_or(first.len());
    vec![first[..at].to_owned(), fitted(text[at..].trim_start(), width)]
}

/// Total height of a line.
fn height(line: &Line<'_>, size: Size) -> f64 {
    let text = match size {
        Size::Wide => 30.0,
        Size::Narrow => 12.0 + 17.0 * (heading(line, size).len() as f64 + 1.0),
    };
    text + if has_runs(line) { 2.0 * STRIP + 14.0 } else { 26.0 }
}

fn has_runs(line: &Line<'_>) -> bool {
    !(line.before.goodput_bps.is_empty() && line.after.goodput_bps.is_empty())
}

fn draw(lines: &[Line<'_>], size: Size) -> Svg {
    let total: f64 = lines.iter().map(|line| height(line, size)).sum();
    let svg = Svg::new(size.width(), total + 52.0);
    let area = Area {
        left: size.pick(72.0, 58.0),
        right: svg.width - size.pick(70.0, 46.0),
        top: 4.0,
        bottom: svg.height - 46.0,
    };
    let runs = lines.iter().flat_map(|line| line.before.goodput_bps.iter().chain(&line.after.goodput_bps));
    let (x, ticks) = scale(runs.copied(), size);
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "goodput, Gb/s"), (y, Vec::new(), ""));
    let mut top = area.top;
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            plot.svg.line((0.0, top), (plot.svg.width, top), "between");
        }
        let strips = text_of(&mut plot.svg, line, top, size);
        top += height(line, size);
        if has_runs(line) {
            pair(&mut plot, line, &ticks, strips);
        } else {
            plot.svg.text(size.pick(area.left, 2.0), strips + 12.0, "note start", "no run was made");
        }
    }
    plot.svg
}

/// Draws title and verdict; returns the top of the strips.
fn text_of(svg: &mut Svg, line: &Line<'_>, top: f64, size: Size) -> f64 {
    let mut at = top + size.pick(22.0, 20.0);
    let lines = heading(line, size);
    svg.tipped(&line.title, |svg| {
        for (index, text) in lines.iter().enumerate() {
            svg.text(0.0, at + 17.0 * index as f64, "steptitle start", text);
        }
    });
    match size {
        Size::Wide => {
            let left = svg.width - VERDICTS;
            svg.text(left, at, "decided start", &line.decided);
            if let Some(mark) = line.mark {
                shape(svg, mark, left - 13.0, at - 4.5);
            }
            at + 8.0
        }
        Size::Narrow => {
            at += 17.0 * lines.len() as f64;
            let left = if line.mark.is_some() { 18.0 } else { 0.0 };
            svg.text(left, at, "decided start", &line.decided);
            if let Some(mark) = line.mark {
                shape(svg, mark, 7.0, at - 4.5);
            }
            at + 8.0
        }
    }
}

/// A verdict's mark round a point: the style sheet's swatches have the same outlines.
fn shape(svg: &mut Svg, mark: &str, x: f64, y: f64) {
    const KEPT: [(f64, f64); 7] =
        [(0.0, 55.0), (18.0, 37.0), (38.0, 57.0), (82.0, 13.0), (100.0, 31.0), (38.0, 93.0), (0.0, 55.0)];
    const WORSE: [(f64, f64); 4] = [(0.0, 10.0), (100.0, 10.0), (50.0, 95.0), (0.0, 10.0)];
    const SIDE_EFFECT: [(f64, f64); 5] =
        [(50.0, 0.0), (100.0, 50.0), (50.0, 100.0), (0.0, 50.0), (50.0, 0.0)];
    const FAILED: [(f64, f64); 13] = [
        (16.0, 0.0),
        (50.0, 34.0),
        (84.0, 0.0),
        (100.0, 16.0),
        (66.0, 50.0),
        (100.0, 84.0),
        (84.0, 100.0),
        (50.0, 66.0),
        (16.0, 100.0),
        (0.0, 84.0),
        (34.0, 50.0),
        (0.0, 16.0),
        (16.0, 0.0),
    ];
    let outline: &[(f64, f64)] = match mark {
        "kept" => &KEPT,
        "worse" => &WORSE,
        "side-effect" => &SIDE_EFFECT,
        "failed" => &FAILED,
        _ => {
            svg.circle(x, y, 5.0, &format!("verdict {mark}"));
            return;
        }
    };
    let side = 12.5;
    let placed: Vec<(f64, f64)> = outline
        .iter()
        .map(|(dx, dy)| (x + (dx / 100.0 - 0.5) * side, y + (dy / 100.0 - 0.5) * side))
        .collect();
    svg.polyline(&placed, &format!("verdict {mark}"));
}

/// Both strips of a line, the shift of the median between them.
fn pair(plot: &mut Plot, line: &Line<'_>, ticks: &[f64], top: f64) {
    for tick in ticks {
        let at = plot.x.at(*tick);
        plot.svg.line((at, top), (at, top + 2.0 * STRIP), if *tick == 0.0 { "axis" } else { "grid" });
    }
    let (upper, lower) = (top + STRIP / 2.0, top + STRIP * 1.5);
    let medians = Estimate::of(&line.before.goodput_bps).zip(Estimate::of(&line.after.goodput_bps));
    if let Some((without, with)) = medians {
        let (from, to) = (plot.x.at(without.median / 1e9), plot.x.at(with.median / 1e9));
        plot.svg.line((from, upper), (to, lower), "shift");
    }
    strip(plot, "without", line.before, upper, ("dot hollow", "median s7"));
    strip(plot, "with", line.after, lower, ("dot with s0", "median s0"));
}

fn strip(plot: &mut Plot, name: &str, runs: &Runs, middle: f64, (dot, bar): (&str, &str)) {
    plot.svg.text(plot.area.left - 10.0, middle + 4.0, "tick end", name);
    let Some(estimate) = Estimate::of(&runs.goodput_bps) else { return };
    let last = runs.goodput_bps.len().saturating_sub(1).max(1) as f64;
    let alone = runs.goodput_bps.len() < 2;
    let dots: Vec<(f64, f64)> = runs
        .goodput_bps
        .iter()
        .enumerate()
        .filter(|(_, bps)| bps.is_finite())
        .map(|(index, bps)| {
            let fraction = if alone { 0.0 } else { index as f64 / last - 0.5 };
            (plot.x.at(bps / 1e9), middle + fraction * SPREAD)
        })
        .collect();
    let at = plot.x.at(estimate.median / 1e9);
    let tip = format!("{name}: {} \u{2013} {}", rate(estimate.median), estimate.how_sure(rate));
    plot.svg.tipped(&tip, |svg| {
        for (x, y) in &dots {
            svg.circle(*x, *y, 3.2, dot);
        }
        svg.rounded(at - 1.5, middle - 11.0, 3.0, 22.0, 1.5, bar);
    });
    let right = plot.svg.width - 2.0;
    plot.svg.text(right, middle + 4.0, "value end", &gbps(estimate.median));
}

/// The same as numbers.
fn table(found: &Improvement) -> Table {
    let mut table = Table::new(
        "Every change that was tried: medians without and with it",
        &[
            "Change",
            "Verdict",
            "#Pairs",
            "#Gb/s without",
            "#with",
            "#Gain, median pair",
            "#Interval of the pairs' ratio",
            "#p",
            "#CPU s/GB without",
            "#with",
            "#Retransmits/GB without",
            "#with",
            "#RTT ms without",
            "#with",
        ],
    );
    for (index, step) in found.steps.iter().enumerate() {
        let name = format!("{}. {}", index + 1, step.candidate.title);
        table.push(row(name, step));
    }
    table
}

fn row(name: String, step: &TriedStep) -> Vec<String> {
    let none = || "\u{2013}".to_owned();
    let (before, after) = (&step.before.goodput_bps, &step.after.goodput_bps);
    let interval = match super::ratio_interval(before, after) {
        text if text == "no interval" => none(),
        text => text,
    };
    let pairs = before.len().min(after.len()).to_string();
    let mut cells = vec![name, step.verdict.label().to_owned(), pairs];
    for (index, (without, with)) in medians(&step.before).into_iter().zip(medians(&step.after)).enumerate() {
        cells.extend([without, with]);
        // Goodput comes first, and the deciding metric is next to it.
        if index == 0 {
            cells.push(gain(step).unwrap_or_else(none));
            cells.push(interval.clone());
            cells.push(step.probability_ratio.map_or_else(none, probability_value));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use clearstream_schema::improvement::Verdict;

    use super::*;

    #[test]
    fn the_scale_starts_at_zero_unless_all_runs_are_far_from_it() {
        let (scale, ticks) = scale_of(&[9.0, 22.0]);
        assert_eq!((scale.domain().0, ticks[0]), (0.0, 0.0));
        // 21.5 to 22.4: whole steps round them.
        let (scale, ticks) = scale_of(&[21.5, 22.4]);
        let (low, high) = scale.domain();
        assert!(low > 20.0 && low < 21.5 && high > 22.4 && high < 24.0, "{low} {high}");
        assert!(ticks.len() >= 3 && ticks.len() <= 12, "{ticks:?}");
        for one in [&[5.0][..], &[0.0], &[], &[f64::NAN]] {
            let (scale, ticks) = scale_of(one);
            assert!(scale.domain().0 < scale.domain().1 && ticks.len() >= 2, "{one:?}");
        }
    }

    fn scale_of(gbps: &[f64]) -> (Scale, Vec<f64>) {
        scale(gbps.iter().map(|value| value * 1e9), Size::Wide)
    }

    #[test]
    fn long_titles_break_at_spaces() {
        assert_eq!(wrapped("short", 100.0), ["short"]);
        let text = "1  net.ipv4.tcp_rmem = 4096 131072 67108864 at the server";
        let lines = wrapped(text, 300.0);
        assert_eq!(lines.len(), 2);
        assert_eq!(format!("{} {}", lines[0], lines[1]), text);
        let endless = "ü".repeat(200);
        assert_eq!(wrapped(&endless, 300.0).len(), 2);
    }

    #[test]
    fn every_verdict_has_a_shape_of_its_own() {
        let verdicts = [
            Verdict::Kept,
            Verdict::NotProven,
            Verdict::Worse,
            Verdict::SideEffect { what: String::new() },
            Verdict::Failed { reason: String::new() },
        ];
        let drawn: std::collections::BTreeSet<String> = verdicts
            .iter()
            .map(|verdict| {
                let mut svg = Svg::new(20.0, 20.0);
                shape(&mut svg, mark(verdict), 10.0, 10.0);
                let text = svg.finish("i", "", "", None);
                text.split("class=").next().unwrap_or_default().to_owned()
                    + text.split(" d=\"").nth(1).unwrap_or("circle").split('"').next().unwrap_or_default()
            })
            .collect();
        assert_eq!(drawn.len(), verdicts.len(), "distinct without colour: {drawn:?}");
    }
}
