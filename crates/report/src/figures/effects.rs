//! Effect of a factor, estimated in blocks: trials of the same repetition
//! with the same other factors. Where the effect depends on another factor it is
//! shown per level of that, and there is no single figure.

use clearstream_stats::{Block, Effect, PairedRatio};
use serde_json::Value;

use crate::{
    digest::ExperimentDigest,
    estimate::{change, change_sure},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{count, level_of, range, sentence_case, signed_percent},
    measured::MeasuredCell,
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, text_width, tick_labels},
        scale::{Scale, ticks_between},
    },
};

/// The same trials always give the same result.
const SEED: u64 = 0x40_6e;
/// An effect is at the head of the page by its own test or by that of what it
/// depends on; the second is strict, so that both together err in hardly more than 5 %.
const PROVEN: f64 = 0.01;
/// Up to this many levels that an effect depends on are listed in a sentence; of more, the ends.
const LISTED: usize = 3;
/// A factor with more levels is a curve, not a comparison.
const MOST_LEVELS: usize = 6;
/// Contrasts beyond these are left to `study compare`.
const MOST_CONTRASTS: usize = 12;
/// Room for the labels of a wide drawing.
const LABEL_WIDTH: f64 = 270.0;
const HEADING_HEIGHT: f64 = 24.0;
/// Height of a label on a phone, where it is above its mark.
const LABEL: f64 = 20.0;

/// One comparison and what it depends on.
#[derive(Debug, Clone)]
pub(crate) struct Contrast {
    /// `2 flows against 1 flow`.
    pub(crate) label: String,
    pub(crate) effect: Effect,
}

impl Contrast {
    /// The comparison of these blocks; `None` when no block is usable.
    pub(crate) fn of(label: impl Into<String>, blocks: &[Block]) -> Option<Self> {
        Some(Self { label: label.into(), effect: Effect::of(blocks, SEED)? })
    }

    /// The figure of a proven effect that is one.
    pub(crate) fn proven(&self) -> Option<PairedRatio> {
        self.effect.single().filter(PairedRatio::excludes_one)
    }

    /// Value and how sure it is, for a headline: a proven effect, or effects
    /// that are proven to differ, and nothing else.
    pub(crate) fn headline(&self) -> Option<(String, String)> {
        if let Some(ratio) = self.proven() {
            return Some((signed_percent(ratio.value - 1.0), change_sure(&ratio)));
        }
        let found = self.effect.interaction().filter(|m| m.probability_ratio.is_some_and(|p| p < PROVEN))?;
        if found.levels.len() > LISTED {
            let ((_, low), (_, high)) = ends(&found.levels)?;
            let of = count(found.levels.len(), "level");
            let value = range(&signed_percent(low.value - 1.0), &signed_percent(high.value - 1.0));
            return Some((value, format!("depends on what else is set: lowest to highest of {of}")));
        }
        let values: Vec<String> =
            found.levels.iter().map(|(_, ratio)| signed_percent(ratio.value - 1.0)).collect();
        let levels: Vec<String> =
            found.levels.iter().map(|(level, ratio)| format!("{level}: {}", change_sure(ratio))).collect();
        Some((values.join(" or "), format!("depends on what else is set; {}", levels.join("; "))))
    }

    /// One sentence without its full stop.
    pub(crate) fn sentence(&self) -> String {
        match self.effect.interaction() {
            Some(found) if found.levels.len() > LISTED => {
                let of = count(found.levels.len(), "level");
                let text = ends(&found.levels).map(|((at, low), (to, high))| {
                    format!(
                        "from {} with {at} to {} with {to}",
                        signed_percent(low.value - 1.0),
                        signed_percent(high.value - 1.0)
                    )
                });
                format!("{}: no single figure, it depends: {} ({of})", self.label, text.unwrap_or_default())
            }
            Some(found) => {
                let levels: Vec<String> =
                    found.levels.iter().map(|(level, ratio)| format!("{level}: {}", change(ratio))).collect();
                format!("{}: no single figure, it depends: {}", self.label, levels.join("; "))
            }
            None if self.proven().is_some() => format!("{}: {}", self.label, change(&self.effect.pooled)),
            None => format!("{}: no difference proven, {}", self.label, change(&self.effect.pooled)),
        }
    }
}

/// A level of another factor, and the effect there.
type Level = (String, PairedRatio);

/// The levels with the lowest and the highest effect.
fn ends(levels: &[Level]) -> Option<(&Level, &Level)> {
    let order = |one: &&Level, other: &&Level| one.1.value.total_cmp(&other.1.value);
    levels.iter().min_by(order).zip(levels.iter().max_by(order))
}

/// Comparisons of every factor's first level with its others.
pub(crate) fn contrasts(experiment: &ExperimentDigest) -> Vec<Contrast> {
    let names = experiment.varying_factors();
    let mut all = Vec::new();
    for factor in &names {
        let levels = levels(experiment, factor);
        if levels.len() < 2 || levels.len() > MOST_LEVELS {
            continue;
        }
        let others: Vec<&String> = names.iter().filter(|name| *name != factor).collect();
        for changed in &levels[1..] {
            let label = sentence_case(&format!(
                "{} against {}",
                level_of(factor, changed),
                level_of(factor, &levels[0])
            ));
            let blocks = blocks(experiment, factor, (&levels[0], changed), &others);
            all.extend(Contrast::of(label, &blocks));
        }
    }
    all.truncate(MOST_CONTRASTS);
    all
}

/// Levels in the order of the cells.
fn levels(experiment: &ExperimentDigest, factor: &str) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for value in experiment.cells().iter().filter_map(|cell| cell.factors.get(factor)) {
        if !seen.contains(value) {
            seen.push(value.clone());
        }
    }
    seen
}

fn blocks(
    experiment: &ExperimentDigest,
    factor: &str,
    (base, changed): (&Value, &Value),
    others: &[&String],
) -> Vec<Block> {
    let cells = experiment.cells();
    let with = |wanted: &Value| {
        let wanted = wanted.clone();
        cells.iter().filter(move |cell| cell.factors.get(factor) == Some(&wanted))
    };
    let same_context = |one: &MeasuredCell, other: &MeasuredCell| {
        others.iter().all(|o| one.factors.get(*o) == other.factors.get(*o))
    };
    let mut all = Vec::new();
    for one in with(base) {
        let context: Vec<String> = others
            .iter()
            .map(|name| one.factors.get(*name).map(|value| level_of(name, value)).unwrap_or_default())
            .collect();
        for other in with(changed).filter(|other| same_context(one, other)) {
            let second = other.by_repetition();
            all.extend(one.by_repetition().into_iter().filter_map(|(repetition, base)| {
                Some(Block { base, changed: *second.get(&repetition)?, context: context.clone() })
            }));
        }
    }
    all
}

/// A line of the drawing.
struct Line {
    /// The comparison, above the first of several lines or where it is too long for one.
    heading: Option<String>,
    label: String,
    ratio: PairedRatio,
}

fn lines(contrasts: &[Contrast]) -> Vec<Line> {
    let mut all = Vec::new();
    for contrast in contrasts {
        let name = contrast.label.clone();
        match contrast.effect.interaction() {
            None if text_width(&name) < LABEL_WIDTH => {
                all.push(Line { heading: None, label: name, ratio: contrast.effect.pooled });
            }
            None => {
                let label = "all pairs".to_owned();
                all.push(Line { heading: Some(name), label, ratio: contrast.effect.pooled });
            }
            Some(found) => all.extend(found.levels.iter().enumerate().map(|(index, (level, ratio))| Line {
                heading: (index == 0).then(|| name.clone()),
                label: level.clone(),
                ratio: *ratio,
            })),
        }
    }
    all
}

/// The figure of an experiment whose factors have few levels; `None` without a pair.
pub(crate) fn figure(experiment: &ExperimentDigest) -> Option<Figure> {
    of(experiment, &contrasts(experiment))
}

/// A figure of these comparisons; `None` without one.
pub(crate) fn of(experiment: &ExperimentDigest, contrasts: &[Contrast]) -> Option<Figure> {
    let lines = lines(contrasts);
    if lines.is_empty() {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "effects"]);
    let title = format!("{}: what a level changes, in pairs", experiment.spec.title);
    let sentences: Vec<String> = contrasts.iter().map(Contrast::sentence).collect();
    let finding = format!("{}.", sentences.join(". "));
    let mut notes = vec![
        "A pair is two trials of the same repetition whose other factors are equal: what drifts between repetitions, and what the other factors do, is in both.".to_owned(),
    ];
    if contrasts.len() > 1 {
        notes.push(
            "Each interval is one by itself: of twenty, one excludes no difference by chance.".to_owned(),
        );
    }
    let mut legend = vec![LegendItem::new("bar s0", "typical ratio of the pairs with its 95 % interval")];
    if lines.iter().any(|line| !line.ratio.is_95()) {
        legend
            .push(LegendItem::new("bar few", "fewer than six pairs: with their range, which proves nothing"));
    }
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&lines, size)),
        notes,
        legend,
        table: table(contrasts),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

fn draw(lines: &[Line], size: Size) -> Svg {
    let row_height = size.pick(30.0, 46.0);
    let headings = lines.iter().filter(|line| line.heading.is_some()).count() as f64;
    let height = 30.0 + row_height * lines.len() as f64 + HEADING_HEIGHT * headings + 44.0;
    let svg = Svg::new(size.width(), height);
    let area = Area {
        left: size.pick(LABEL_WIDTH + 20.0, 12.0),
        right: svg.width - size.pick(80.0, 14.0),
        top: 24.0,
        bottom: svg.height - 44.0,
    };
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let low = lines.iter().map(|line| percent(line.ratio.low)).fold(-5.0, f64::min);
    let high = lines.iter().map(|line| percent(line.ratio.high)).fold(5.0, f64::max);
    let margin = (high - low) * 0.06;
    let domain = (low - margin, high + margin);
    let x = Scale::Linear { domain, range: (0.0, 1.0) };
    let ticks = ticks_between(domain.0, domain.1, size.pick(7, 5));
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "change of goodput, %"), (y, Vec::new(), ""));
    let stretches = stretches(lines, area, row_height, size);
    for tick in ticks.iter().filter(|tick| **tick != 0.0).chain([&0.0]) {
        plot.upright(*tick, if *tick == 0.0 { "axis" } else { "grid" }, &stretches);
    }
    let mut top = area.top;
    for line in lines {
        if let Some(heading) = &line.heading {
            let text = fitted(heading, plot.svg.width - 20.0);
            plot.svg.text(4.0, top + 15.0, "panel halo start", &text);
            top += HEADING_HEIGHT;
        }
        row(&mut plot, line, (top, row_height), percent, size);
        top += row_height;
    }
    plot.svg
}

/// Range of vertical lines: not behind headings, nor on a phone behind labels.
fn stretches(lines: &[Line], area: Area, row_height: f64, size: Size) -> Vec<(f64, f64)> {
    let mut top = area.top;
    let mut all = Vec::with_capacity(lines.len());
    for line in lines {
        if line.heading.is_some() {
            top += HEADING_HEIGHT;
        }
        all.push((top + size.pick(0.0, LABEL), top + row_height));
        top += row_height;
    }
    all
}

fn row(plot: &mut Plot, line: &Line, (top, height): (f64, f64), percent: impl Fn(f64) -> f64, size: Size) {
    let middle = top + height * size.pick(0.5, 0.68);
    match size {
        Size::Wide => {
            let label = fitted(&line.label, LABEL_WIDTH);
            plot.svg.text(plot.area.left - 12.0, middle + 4.0, "rowlabel end", &label);
            let value = signed_percent(line.ratio.value - 1.0);
            plot.svg.text(plot.area.right + 76.0, middle + 4.0, "value end", &value);
        }
        Size::Narrow => {
            let value = signed_percent(line.ratio.value - 1.0);
            let label = fitted(&line.label, plot.svg.width - 34.0 - text_width(&value));
            plot.svg.text(plot.area.left, middle - 16.0, "rowlabel halo start", &label);
            plot.svg.text(plot.area.right, middle - 16.0, "value halo end", &value);
        }
    }
    mark(plot, line, middle, percent);
}

fn mark(plot: &mut Plot, line: &Line, middle: f64, percent: impl Fn(f64) -> f64) {
    let class = if line.ratio.is_95() { "s0" } else { "few" };
    let [low, at, high] =
        [line.ratio.low, line.ratio.value, line.ratio.high].map(|ratio| plot.x.at(percent(ratio)));
    let tip = format!("{} \u{2013} {}", line.label, change(&line.ratio));
    plot.svg.tipped(&tip, |svg| {
        svg.rounded(low, middle - 3.0, (high - low).max(1.0), 6.0, 3.0, &format!("interval {class}"));
        svg.rounded(at - 1.75, middle - 9.0, 3.5, 18.0, 1.5, &format!("median {class}"));
    });
}

fn table(contrasts: &[Contrast]) -> Table {
    let mut table = Table::new(
        "Change of goodput, in pairs",
        &["Comparison", "At", "#Pairs", "#Change", "#Interval", "#p", "Result"],
    );
    let interval = |ratio: &PairedRatio| {
        change_sure(ratio).split_once(", ").map_or_else(|| "\u{2013}".to_owned(), |(_, text)| text.to_owned())
    };
    for contrast in contrasts {
        let mut push = |at: &str, ratio: &PairedRatio, result: &str| {
            table.push(vec![
                contrast.label.clone(),
                at.to_owned(),
                ratio.count.to_string(),
                signed_percent(ratio.value - 1.0),
                interval(ratio),
                format!("{:.3}", ratio.probability_ratio),
                result.to_owned(),
            ]);
        };
        match contrast.effect.interaction() {
            None => {
                let result = if contrast.proven().is_some() { "differs" } else { "not proven" };
                push("all other levels", &contrast.effect.pooled, result);
            }
            Some(found) => {
                for (level, ratio) in &found.levels {
                    push(level, ratio, "depends on this");
                }
            }
        }
    }
    table
}
