//! Flows through gateways: the load of each against its weight and the return
//! paths; responses over time around the failure of a gateway, and
//! the gaps of the flows.

use std::collections::BTreeMap;

use clearstream_schema::gateways::{FailureEffect, GatewayShare, GatewaySummary};
use serde_json::Value;

use crate::{
    digest::{ExperimentDigest, GatewayTrial},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    figures::Palette,
    format::{count, level_of, percent, sentence_case, time},
    svg::{
        Svg,
        plot::{Area, Plot, Size, text_width, tick_labels},
        scale::{Scale, ticks_between},
    },
};

/// Trials with the same levels.
pub(crate) struct Group<'a> {
    factors: &'a BTreeMap<String, Value>,
    trials: Vec<&'a GatewaySummary>,
}

/// The trials of an experiment by their levels, in the order of the study.
pub(crate) fn groups(experiment: &ExperimentDigest) -> Vec<Group<'_>> {
    let mut sorted: Vec<&GatewayTrial> = experiment.gateways.iter().collect();
    sorted.sort_by_key(|trial| trial.cell);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for trial in sorted {
        match groups.last_mut().filter(|group| *group.factors == *trial.factors) {
            Some(group) => group.trials.push(&trial.summary),
            None => groups.push(Group { factors: &trial.factors, trials: vec![&trial.summary] }),
        }
    }
    groups
}

/// Labels of the lines of an experiment, for their colours.
pub(crate) fn labels(experiment: &ExperimentDigest) -> Vec<String> {
    groups(experiment).iter().map(Group::label).collect()
}

impl Group<'_> {
    /// Its levels as text.
    pub(crate) fn label(&self) -> String {
        let levels: Vec<String> = self
            .factors
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                ("watch", Value::Bool(true)) => "with watch".to_owned(),
                ("watch", Value::Bool(false)) => "without watch".to_owned(),
                ("failure", Value::String(name)) => failure_name(name).to_owned(),
                _ => level_of(name, value),
            })
            .collect();
        if levels.is_empty() { "all trials".to_owned() } else { levels.join(", ") }
    }

    fn effects(&self) -> impl Iterator<Item = &FailureEffect> {
        self.trials.iter().filter_map(|trial| trial.failure.as_ref())
    }

    /// Longest gap between responses of every flow that used the failed
    /// gateway and recovered, all trials together, ascending.
    pub(crate) fn gaps(&self) -> Vec<u64> {
        let mut gaps: Vec<u64> = Vec::new();
        for trial in &self.trials {
            let Some(effect) = &trial.failure else { continue };
            let gateway = Some(effect.gateway.clone());
            let hit = trial.flows.iter().filter(|flow| flow.forward == gateway || flow.reply == gateway);
            gaps.extend(hit.filter(|flow| !flow.stuck).map(|flow| flow.gap_ns));
        }
        gaps.sort_unstable();
        gaps
    }

    /// Flows that used the failed gateway, and those of them that got stuck.
    pub(crate) fn hit(&self) -> (u64, u64) {
        self.effects()
            .fold((0, 0), |(hit, stuck), effect| (hit + effect.hit_count, stuck + effect.stuck_count))
    }

    /// Whether it is about failures with a watch.
    pub(crate) fn is_watched(&self) -> bool {
        self.trials.iter().any(|trial| trial.config.watch && trial.failure.is_some())
    }

    fn loads(&self) -> Vec<GatewayShare> {
        let mut sum: Vec<GatewayShare> = Vec::new();
        for trial in &self.trials {
            for gateway in &trial.gateways {
                match sum.iter_mut().find(|known| known.name == gateway.name) {
                    Some(known) => {
                        known.forward_count += gateway.forward_count;
                        known.reply_count += gateway.reply_count;
                    }
                    None => sum.push(gateway.clone()),
                }
            }
        }
        sum
    }

    fn returns(&self) -> (u64, u64) {
        self.trials.iter().fold((0, 0), |(flows, other), trial| {
            (flows + trial.flow_count, other + trial.other_return_count)
        })
    }
}

fn failure_name(name: &str) -> &str {
    match name {
        "silent" => "dies silently",
        "not-forwarding" => "stops forwarding",
        "one-side" => "loses the servers' side",
        "none" => "no failure",
        other => other,
    }
}

/// All figures of an experiment with gateways.
pub(crate) fn figures(experiment: &ExperimentDigest, palette: &Palette) -> Vec<Figure> {
    let groups = groups(experiment);
    let failing = groups.iter().any(|group| group.effects().next().is_some());
    let first = if failing { failures(experiment, &groups, palette) } else { loads(experiment, &groups) };
    first.into_iter().collect()
}

fn failures(experiment: &ExperimentDigest, groups: &[Group<'_>], palette: &Palette) -> Option<Figure> {
    let finding = failure_finding(groups)?;
    let id = identifier(&[&experiment.spec.name, "failure"]);
    let title = format!("{}: responses around the failure", experiment.spec.title);
    let legend = groups
        .iter()
        .map(|group| {
            let label = group.label();
            LegendItem::new(format!("line {}", palette.class(&label)), label)
        })
        .collect();
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw_failures(groups, palette, size)),
        notes: vec![
            "Responses in each 0.1 s, in % of those before the failure; the median of a cell's trials."
                .to_owned(),
            "A flow sends its next request after a response, so a flow without a path sends nothing."
                .to_owned(),
            "Every host of the lab has a hash seed of its own, as machines have.".to_owned(),
        ],
        legend,
        table: failure_table(groups),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// Gaps between responses, with and without a watch.
fn failure_finding(groups: &[Group<'_>]) -> Option<String> {
    let sentence = |watched: bool| {
        let of_kind: Vec<&Group<'_>> = groups
            .iter()
            .filter(|group| group.effects().next().is_some() && group.is_watched() == watched)
            .collect();
        let (hit, stuck) =
            of_kind.iter().map(|group| group.hit()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut gaps: Vec<u64> = of_kind.iter().flat_map(|group| group.gaps()).collect();
        gaps.sort_unstable();
        if hit == 0 {
            return None;
        }
        let setup = if watched { "with watch" } else { "without watch" };
        let back = match (middle(&gaps), gaps.last()) {
            (Some(median), Some(longest)) => format!(
                "the others had a gap of {} (median), {} at most",
                time(median as f64),
                time(*longest as f64)
            ),
            _ => "no other recovered".to_owned(),
        };
        Some(format!("{setup} {stuck} of {hit} flows of a failed gateway got no further response, {back}"))
    };
    let parts: Vec<String> = [true, false].into_iter().filter_map(sentence).collect();
    (!parts.is_empty()).then(|| sentence_case(&format!("{}.", parts.join("; "))))
}

fn middle(sorted: &[u64]) -> Option<u64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Responses relative to those before the failure, median over trials; seconds
/// from the failure.
fn responses(group: &Group<'_>) -> Vec<(f64, f64)> {
    let mut by_step: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for trial in &group.trials {
        let Some(effect) = &trial.failure else { continue };
        let step_ns = trial.step_ns.max(1);
        let usual = trial.answers_per_second * step_ns as f64 / 1e9;
        let failing = i64::try_from(effect.at_ns / step_ns).unwrap_or(i64::MAX);
        for (step, count) in (0i64..).zip(&trial.series) {
            by_step.entry(step - failing).or_default().push(f64::from(*count) / usual.max(1e-9));
        }
    }
    let step_seconds = group.trials.first().map_or(0.1, |trial| trial.step_ns as f64 / 1e9);
    // Trials do not begin and end at the same step; a few of them are no median.
    let most = by_step.values().map(Vec::len).max().unwrap_or(0);
    by_step
        .into_iter()
        .filter(|(_, ratios)| 2 * ratios.len() > most)
        .map(|(step, mut ratios)| {
            ratios.sort_by(f64::total_cmp);
            (step as f64 * step_seconds, ratios[(ratios.len() - 1) / 2])
        })
        .collect()
}

fn draw_failures(groups: &[Group<'_>], palette: &Palette, size: Size) -> Svg {
    let lines: Vec<Vec<(f64, f64)>> = groups.iter().map(responses).collect();
    let points = || lines.iter().flatten();
    let first = points().map(|point| point.0).fold(0.0, f64::min);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let highest = points().map(|point| point.1 * 100.0).fold(100.0, f64::max);
    let (y, y_ticks) = Scale::from_zero(highest, 5);
    let svg = Svg::new(size.width(), size.pick(340.0, 270.0));
    let area = Area {
        left: size.pick(56.0, 44.0),
        right: svg.width - size.pick(24.0, 10.0),
        top: 48.0,
        bottom: svg.height - 44.0,
    };
    let x = Scale::Linear { domain: (first, last), range: (0.0, 1.0) };
    let x_ticks = tick_labels(&ticks_between(first, last, size.pick(10, 5)));
    let mut plot = Plot::on(
        svg,
        area,
        (x, x_ticks, "time after the failure, s"),
        (y, tick_labels(&y_ticks), "responses, % of before"),
    );
    plot.rule_at(0.0, "axis", "the gateway fails", 0);
    for (group, line) in groups.iter().zip(&lines) {
        let line: Vec<(f64, f64)> = line.iter().map(|(at, ratio)| (*at, ratio * 100.0)).collect();
        plot.line(&line, &format!("line {}", palette.class(&group.label())));
    }
    plot.svg
}

fn failure_table(groups: &[Group<'_>]) -> Table {
    let mut table = Table::new(
        "Flows around the failure of a gateway, all trials of a cell together",
        &[
            "Cell",
            "#Trials",
            "#Flows of the gateway",
            "#Stuck",
            "#Gap, median, ms",
            "#Longest, ms",
            "#Full rate after, median, ms",
            "#Other flows, longest, ms",
            "#Before the failure, longest, ms",
        ],
    );
    for group in groups {
        let (hit, stuck) = group.hit();
        let gaps = group.gaps();
        let mut full: Vec<u64> = group.effects().filter_map(|effect| effect.full_rate_ns).collect();
        full.sort_unstable();
        let trials = group.effects().count();
        let full_text = match middle(&full) {
            Some(median) if full.len() == trials => in_ms(Some(median)),
            Some(_) => format!("not in {} of {trials}", trials - full.len()),
            None => "never".to_owned(),
        };
        table.push(vec![
            group.label(),
            trials.to_string(),
            hit.to_string(),
            stuck.to_string(),
            in_ms(middle(&gaps)),
            in_ms(gaps.last().copied()),
            full_text,
            in_ms(group.effects().map(|effect| effect.spared_gap_max_ns).max()),
            in_ms(group.trials.iter().map(|trial| trial.quiet_max_ns).max()),
        ]);
    }
    table
}

fn in_ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| "\u{2013}".to_owned(), |ns| format!("{:.0}", ns as f64 / 1e6))
}

fn loads(experiment: &ExperimentDigest, groups: &[Group<'_>]) -> Option<Figure> {
    let finding = load_finding(groups)?;
    let id = identifier(&[&experiment.spec.name, "load"]);
    let title = format!("{}: what each gateway carried", experiment.spec.title);
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw_loads(groups, size)),
        notes: [
            Some(
                "Counted at the gateways, packet by packet, with the flow's own addresses and ports."
                    .to_owned(),
            ),
            chance(groups),
        ]
        .into_iter()
        .flatten()
        .collect(),
        legend: vec![
            LegendItem::new("box t1", "requests"),
            LegendItem::new("box t0", "responses"),
            LegendItem::new("line thin", "load by weight"),
        ],
        table: load_table(groups),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// Effect of chance on the smallest load: two standard deviations of the
/// binomial distribution.
fn chance(groups: &[Group<'_>]) -> Option<String> {
    let deviation = |group: &Group<'_>| {
        let all = group.loads();
        let weights: u64 = all.iter().map(|one| u64::from(one.weight)).sum();
        let least = all.iter().map(|one| one.weight).min().filter(|weight| *weight > 0)?;
        let ratio = f64::from(least) / weights as f64;
        let flows = group.returns().0;
        (flows > 0).then(|| 2.0 * ((1.0 - ratio) / (ratio * flows as f64)).sqrt())
    };
    let largest = groups.iter().filter_map(deviation).reduce(f64::max)?;
    Some(format!(
        "A gateway is chosen by a hash: among as many flows chance alone moves the load of a gateway by {}, one gateway in twenty by more.",
        percent(largest)
    ))
}

fn load_finding(groups: &[Group<'_>]) -> Option<String> {
    let parts: Vec<String> = groups
        .iter()
        .filter_map(|group| {
            let (flows, other) = group.returns();
            let worst =
                group.loads().iter().filter_map(|one| deviation(one, &group.loads())).fold(0.0, f64::max);
            (flows > 0).then(|| {
                format!(
                    "{}: {}, load within {} of the weights, {} return by another gateway",
                    group.label(),
                    count(usize::try_from(flows).unwrap_or(usize::MAX), "flow"),
                    percent(worst),
                    percent(other as f64 / flows as f64)
                )
            })
        })
        .collect();
    // Each part has commas of its own.
    (!parts.is_empty()).then(|| sentence_case(&format!("{}.", parts.join("; "))))
}

/// Deviation of a gateway's requests from its load by weight, relative to it.
fn deviation(gateway: &GatewayShare, all: &[GatewayShare]) -> Option<f64> {
    let flows: u64 = all.iter().map(|one| one.forward_count).sum();
    let weights: u64 = all.iter().map(|one| u64::from(one.weight)).sum();
    let expected = flows as f64 * f64::from(gateway.weight) / weights.max(1) as f64;
    (expected > 0.0).then(|| (gateway.forward_count as f64 / expected - 1.0).abs())
}

fn draw_loads(groups: &[Group<'_>], size: Size) -> Svg {
    let margin = size.pick(56.0, 40.0);
    let titles: Vec<Vec<String>> =
        groups.iter().map(|group| by_level(&group.label(), size.width() - margin)).collect();
    // Panels have equal size: each has room for the longest title.
    let title_height = 16.0 * titles.iter().map(Vec::len).max().unwrap_or(1).saturating_sub(1) as f64;
    let height = size.pick(170.0, 150.0) + title_height;
    let mut svg = Svg::new(size.width(), height * groups.len() as f64 + 16.0);
    for (index, group) in groups.iter().enumerate() {
        let all = group.loads();
        let total = |count: fn(&GatewayShare) -> u64| all.iter().map(count).sum::<u64>().max(1) as f64;
        let (forward, reply) = (total(|one| one.forward_count), total(|one| one.reply_count));
        let weights = all.iter().map(|one| u64::from(one.weight)).sum::<u64>().max(1) as f64;
        let highest = all
            .iter()
            .flat_map(|one| [one.forward_count as f64 / forward, one.reply_count as f64 / reply])
            .fold(0.01, f64::max);
        let top = height * index as f64 + 34.0 + title_height;
        let bottom = height * (index + 1) as f64 - 24.0;
        let (left, right) = (margin, svg.width - 16.0);
        let step = (right - left) / all.len().max(1) as f64;
        let y = |ratio: f64| bottom - (bottom - top) * ratio / highest;
        for (line, title) in titles[index].iter().rev().enumerate() {
            svg.text(left, top - 14.0 - 16.0 * line as f64, "panel start", title);
        }
        svg.line((left, bottom), (right, bottom), "axis");
        for (place, gateway) in all.iter().enumerate() {
            let start = left + step * place as f64;
            let bars = [
                (gateway.forward_count as f64 / forward, "t1", "requests"),
                (gateway.reply_count as f64 / reply, "t0", "responses"),
            ];
            for (number, (ratio, class, kind)) in bars.into_iter().enumerate() {
                let x = start + step * (0.16 + 0.34 * number as f64);
                let tip = format!("{}: {} of the {kind}", gateway.name, percent(ratio));
                svg.tipped(&tip, |svg| {
                    svg.rounded(x, y(ratio), step * 0.32, bottom - y(ratio), 2.0, class);
                });
            }
            let expected = y(f64::from(gateway.weight) / weights);
            svg.line((start + step * 0.1, expected), (start + step * 0.9, expected), "line thin");
            svg.text(start + step * 0.5, bottom + 16.0, "tick middle", &gateway.name);
        }
    }
    svg
}

/// Levels of a label in lines that fit a width: a truncated one would not distinguish cells.
fn by_level(label: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for level in label.split(", ") {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(level) + text_width(", ") < width => {
                line.push_str(", ");
                line.push_str(level);
            }
            _ => lines.push(level.to_owned()),
        }
    }
    lines
}

fn load_table(groups: &[Group<'_>]) -> Table {
    let mut table = Table::new(
        "Flows by gateway",
        &["Cell", "Gateway", "#Weight", "#Load by weight", "#Requests", "#Of all", "#Responses", "#Of all"],
    );
    for group in groups {
        let all = group.loads();
        let weights: u64 = all.iter().map(|one| u64::from(one.weight)).sum();
        let forward: u64 = all.iter().map(|one| one.forward_count).sum();
        let reply: u64 = all.iter().map(|one| one.reply_count).sum();
        let ratio = |part: u64, whole: u64| percent(part as f64 / whole.max(1) as f64);
        for gateway in &all {
            table.push(vec![
                group.label(),
                gateway.name.clone(),
                gateway.weight.to_string(),
                ratio(gateway.weight.into(), weights),
                gateway.forward_count.to_string(),
                ratio(gateway.forward_count, forward),
                gateway.reply_count.to_string(),
                ratio(gateway.reply_count, reply),
            ]);
        }
    }
    table
}
