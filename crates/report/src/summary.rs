//! The numbers that matter, each with how sure it is. Which ones a record can
//! give depends on its experiments; the first three that exist are shown.

use clearstream_schema::study::Figure as Kind;
use clearstream_stats::ratio_interval;
use serde::Serialize;

use crate::{
    digest::{Cell, Digest, ExperimentDigest},
    estimate::{Estimate, median},
    figure::{identifier, published_range},
    figures::{gateways, goodput::belongs, matrix::Matrix, window::WindowModel},
    format::{bytes, count, join, milliseconds, number, percent, range, rate, signed_percent},
};

/// Cards at the head of the report.
const HEADLINES: usize = 3;
/// The same trials always give the same interval.
const SEED: u64 = 0x40_6e;

/// One number at the head of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Headline {
    /// What it is.
    pub(crate) label: String,
    /// The number with its unit.
    pub(crate) value: String,
    /// Median of how many, and its interval.
    pub(crate) sure: String,
    /// What it means, one sentence.
    pub(crate) detail: String,
    /// What others published about it.
    pub(crate) published: Option<String>,
    /// Figure that shows it.
    pub(crate) figure: String,
}

/// The first three of: failing gateway, gateways against one, single flow, window model, interrupt core, more flows,
/// round trip.
pub(crate) fn headlines(digest: &Digest) -> Vec<Headline> {
    [
        failing_gateway(digest),
        all_gateways(digest),
        single_flow(digest),
        window(digest),
        interrupt_core(digest),
        more_flows(digest),
        round_trip(digest),
    ]
    .into_iter()
    .flatten()
    .take(HEADLINES)
    .collect()
}

/// How long flows of a gateway that failed had no answer, with a watch.
fn failing_gateway(digest: &Digest) -> Option<Headline> {
    let found = digest.experiments.iter().find_map(|experiment| {
        let groups = gateways::groups(experiment);
        let mut gaps: Vec<f64> = Vec::new();
        let (mut hit, mut stuck) = (0, 0);
        for group in groups.iter().filter(|group| group.is_watched()) {
            gaps.extend(group.gaps().into_iter().map(|ns| ns as f64));
            hit += group.hit().0;
            stuck += group.hit().1;
        }
        Some((experiment, median(&gaps)?, gaps.into_iter().fold(0.0, f64::max), hit, stuck))
    });
    let (experiment, middle, longest, hit, stuck) = found?;
    Some(Headline {
        label: "Without an answer when a gateway fails, with watch".to_owned(),
        value: milliseconds(middle),
        sure: format!("median of {hit} flows, {} at most", milliseconds(longest)),
        detail: match stuck {
            0 => "Every flow of a failed gateway was answered again.".to_owned(),
            stuck => format!("{stuck} of them were not answered again."),
        },
        published: None,
        figure: identifier(&[&experiment.spec.name, "failure"]),
    })
}

/// Goodput with routes over all gateways against a plain route over one.
fn all_gateways(digest: &Digest) -> Option<Headline> {
    let (experiment, one, all) = digest.experiments.iter().find_map(|experiment| {
        let values = |word: &str| {
            let cell = experiment.cells.iter().find(|cell| {
                cell.factors.get("routes-over").and_then(serde_json::Value::as_str) == Some(word)
            });
            cell.map(Cell::values)
        };
        Some((experiment, values("one-gateway")?, values("all-gateways")?))
    })?;
    let ratio = median(&all)? / median(&one)?;
    let interval = ratio_interval(&one, &all, SEED).filter(|_| one.len() >= 3 && all.len() >= 3);
    Some(Headline {
        label: "Goodput over all gateways against one".to_owned(),
        value: percent(ratio),
        sure: match interval {
            Some(found) => format!(
                "medians of {} against {}, 95 % interval {}",
                all.len(),
                one.len(),
                range(&percent(found.low), &percent(found.high))
            ),
            None => format!("medians of {} against {}", all.len(), one.len()),
        },
        detail: format!("{} over one.", rate(median(&one)?)),
        published: None,
        figure: identifier(&[&experiment.spec.name, "goodput"]),
    })
}

/// One flow, receiver not discarding, in experiments that are not about placement.
fn single_flow(digest: &Digest) -> Option<Headline> {
    let plain = |e: &&ExperimentDigest| matches!(e.spec.figure, Kind::Throughput | Kind::WindowCurve);
    let single = |cell: &&Cell| {
        cell.trials
            .first()
            .is_some_and(|trial| trial.flow_count == 1 && !trial.discard && trial.burst_flow_count == 0)
    };
    let candidates = |placement: bool| {
        digest
            .experiments
            .iter()
            .filter(move |e| placement || plain(e))
            .flat_map(|e| e.cells.iter().filter(single).map(move |cell| (e, cell)))
            .filter_map(|(e, cell)| Some((e, cell, cell.goodput()?)))
            .max_by(|a, b| a.2.median.total_cmp(&b.2.median))
    };
    let (experiment, cell, estimate) = candidates(false).or_else(|| candidates(true))?;
    let published = experiment
        .spec
        .published
        .iter()
        .filter(|p| belongs(p, cell))
        .filter(|p| !p.factors.is_empty())
        .find_map(|p| Some(format!("{} ({})", published_range(p)?.2, p.source)));
    let kind = match experiment.spec.figure {
        Kind::WindowCurve => "window",
        Kind::PinMatrix => "matrix",
        Kind::PinRow => "row",
        Kind::LiveTraffic => "live",
        _ => "goodput",
    };
    Some(Headline {
        label: "Best single-flow goodput".to_owned(),
        value: rate(estimate.median),
        sure: estimate.how_sure(rate),
        detail: format!("{}: {}.", experiment.spec.title, cell.label(&experiment.varying_factors())),
        published,
        figure: identifier(&[&experiment.spec.name, kind]),
    })
}

fn window(digest: &Digest) -> Option<Headline> {
    let experiment = digest.drawn_as(Kind::WindowCurve)?;
    let model = WindowModel::of(digest, experiment)?;
    let published = experiment
        .spec
        .published
        .iter()
        .find(|p| p.factors.contains_key("window"))
        .map(|p| format!("published: {} ({})", p.label, p.source));
    let knee = format!(
        "{} from a window of {} on; the bandwidth-delay product is {}.",
        rate(model.plateau.median),
        bytes(model.knee_bytes),
        bytes(model.product_bytes())
    );
    let figure = identifier(&[&experiment.spec.name, "window"]);
    match model.below_knee {
        Some(share) => Some(Headline {
            label: "Goodput of what the window allows, below the knee".to_owned(),
            value: percent(share.median),
            sure: share.how_sure(percent),
            detail: knee,
            published,
            figure,
        }),
        None => Some(Headline {
            label: "Window at the knee".to_owned(),
            value: bytes(model.knee_bytes),
            sure: model.plateau.how_sure(rate),
            detail: knee,
            published,
            figure,
        }),
    }
}

fn interrupt_core(digest: &Digest) -> Option<Headline> {
    let experiment = digest.drawn_as(Kind::PinMatrix)?;
    let matrices = Matrix::all(digest, experiment);
    let effects: Vec<_> = matrices.iter().filter_map(|m| Some((m, m.effect()?))).collect();
    let (_, first) = effects.first()?;
    let base: Vec<f64> = effects.iter().flat_map(|(m, e)| m.read_on(e.best_neighbour.0)).collect();
    let changed: Vec<f64> = effects.iter().flat_map(|(m, e)| m.read_on(e.interrupt_core)).collect();
    let ratio = median(&changed)? / median(&base)? - 1.0;
    let n = base.len() + changed.len();
    let sure = match ratio_interval(&base, &changed, SEED).filter(|_| base.len() >= 3 && changed.len() >= 3) {
        Some(found) => format!(
            "medians of {} against {}, 95 % interval {}",
            changed.len(),
            base.len(),
            range(&signed_percent(found.low - 1.0), &signed_percent(found.high - 1.0))
        ),
        None => format!("{}, too few for an interval", count(n, "trial")),
    };
    let package = first.same_package_ratio.map_or_else(String::new, |ratio| {
        format!(" Other readers on its package: {} against those elsewhere.", signed_percent(ratio))
    });
    let detail = if effects.len() == 1 {
        format!(
            "Core {} takes the packets; compared with reading on core {}, its best neighbour.{package}",
            first.interrupt_core, first.best_neighbour.0
        )
    } else {
        let each: Vec<String> = effects
            .iter()
            .map(|(_, e)| format!("{} with core {}", signed_percent(e.on_core_ratio), e.interrupt_core))
            .collect();
        format!("Compared with the best neighbour, taken together: {} as the interrupt core.", join(&each))
    };
    let published = experiment
        .spec
        .published
        .iter()
        .find(|p| published_range(p).is_none())
        .map(|p| format!("published: {} ({})", p.label, p.source));
    Some(Headline {
        label: "Reader on the interrupt core".to_owned(),
        value: signed_percent(ratio),
        sure,
        detail,
        published,
        figure: identifier(&[&experiment.spec.name, "matrix"]),
    })
}

fn more_flows(digest: &Digest) -> Option<Headline> {
    let experiment = digest.drawn_as(Kind::Throughput)?;
    let most = experiment.cells.iter().filter_map(|cell| {
        let flows = cell.trials.first()?.flow_count;
        Some((flows, cell, cell.goodput()?))
    });
    let (flows, cell, estimate) =
        most.filter(|found| found.0 > 1).max_by(|a, b| a.2.median.total_cmp(&b.2.median))?;
    let published = experiment
        .spec
        .published
        .iter()
        .filter(|p| belongs(p, cell))
        .find_map(|p| Some(format!("{} ({})", published_range(p)?.2, p.source)));
    Some(Headline {
        label: format!("Goodput of {}", count(flows as usize, "flow")),
        value: rate(estimate.median),
        sure: estimate.how_sure(rate),
        detail: format!("{}.", experiment.spec.title),
        published,
        figure: identifier(&[&experiment.spec.name, "goodput"]),
    })
}

fn round_trip(digest: &Digest) -> Option<Headline> {
    let experiment = digest.experiments.iter().find(|e| !e.probes.is_empty())?;
    let stats: Vec<_> = experiment
        .probes
        .iter()
        .flat_map(|(_, probe)| &probe.directions)
        .filter_map(|direction| direction.udp.as_ref().or(direction.tcp.as_ref()))
        .collect();
    let middle = median(&stats.iter().map(|s| s.p50_ns as f64).collect::<Vec<_>>())?;
    let worst = stats.iter().map(|s| s.p99_ns).max()?;
    let answered: u64 = stats.iter().map(|s| s.answered_count).sum();
    Some(Headline {
        label: "Round trip, median".to_owned(),
        value: milliseconds(middle),
        sure: format!("{answered} probes answered, 99th percentile {}", milliseconds(worst as f64)),
        detail: format!("{}.", experiment.spec.title),
        published: None,
        figure: identifier(&[&experiment.spec.name, "delay"]),
    })
}

/// How far the whole record can be trusted, in sentences.
pub(crate) fn trust(digest: &Digest) -> Vec<String> {
    let mut lines = Vec::new();
    let planned = digest.run.planned_trial_count as usize;
    let mut text = format!("{} of {} in the record", digest.trial_count, count(planned, "planned trial"));
    if !digest.failures.is_empty() {
        text.push_str(&format!(", {} failed", digest.failures.len()));
    }
    if digest.run.ended.is_none() {
        text.push_str("; the run did not end by itself (killed, or still running)");
    }
    lines.push(format!("{text}."));
    let told: Vec<bool> = digest
        .experiments
        .iter()
        .flat_map(ExperimentDigest::trials)
        .filter_map(|trial| trial.steady)
        .collect();
    if !told.is_empty() {
        let steady = told.iter().filter(|steady| **steady).count();
        lines.push(format!(
            "{steady} of the {} long enough to tell were steady after the warm-up.",
            count(told.len(), "trial")
        ));
    }
    let short = digest.experiments.iter().flat_map(ExperimentDigest::trials).filter(|t| !t.complete).count();
    if short > 0 {
        lines.push(format!(
            "{} ended early or miss samples; their samples up to then count where nothing better is there.",
            count(short, "trial")
        ));
    }
    let widest = digest
        .experiments
        .iter()
        .flat_map(|e| &e.cells)
        .filter_map(Cell::goodput)
        .filter_map(|e: Estimate| e.interval.map(|(low, high)| (high - low) / e.median))
        .collect::<Vec<f64>>();
    if let Some(middle) = median(&widest) {
        lines.push(format!(
            "Intervals are 95 % bootstrap intervals of the median; half of the {} have one narrower than {} of their median.",
            count(widest.len(), "cell"),
            percent(middle)
        ));
    } else if digest.experiments.iter().any(|e| !e.cells.is_empty()) {
        lines.push(
            "No cell has the three trials that an interval needs: read the numbers as single observations."
                .to_owned(),
        );
    }
    lines.push(format!(
        "Trials ran interleaved in a random order (seed {}), so that drift does not look like an effect.",
        digest.run.seed
    ));
    if let Some(lines_of_delay) = &digest.delay_lines {
        let middle = median(&lines_of_delay.late_p50_ns).unwrap_or(0.0);
        lines.push(format!(
            "The lab's delay line released packets {} late in the median, {} at the worst 99th percentile{}.",
            milliseconds(middle),
            milliseconds(lines_of_delay.late_p99_ns as f64),
            if lines_of_delay.overflow_count > 0 {
                format!("; its queue overflowed {} times", number(lines_of_delay.overflow_count as f64))
            } else {
                String::new()
            }
        ));
        if lines_of_delay.limited_trial_count > 0 {
            lines.push(format!(
                "In {} of {} the delay line, not the path, was the limit (marked `delay-line-limit`): read their rates and round trips as this machine's.",
                number(lines_of_delay.limited_trial_count as f64),
                count(digest.trial_count, "trial")
            ));
        }
    }
    lines
}
