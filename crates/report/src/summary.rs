//! The numbers that matter, each with how sure it is. Which ones a record can
//! give depends on its experiments; the first three that exist are shown.

use crate::{
    analysis::Analysis,
    digest::{Digest, ExperimentDigest},
    estimate::{Estimate, change, chosen, median},
    figure::published_range,
    figures::{
        effects, gateways, goodput::belongs, metric, pairs, pins::ReaderPlace, semantics, window::WindowModel,
    },
    format::{bytes, count, percent, range, rate, sentence_case, time},
    headline::Headline,
    link,
    measured::{CellMetric, MeasuredCell},
};
use clearstream_schema::study::Figure as Kind;

/// Cards at the head of the report.
const HEADLINES: usize = 3;

/// The first three of: two relations that the study declares, plateau below the model, slowest pair of hosts, failing gateway, file semantics, gateways against one, single flow,
/// window model, interrupt core, more flows, round trip. An effect that is not proven comes after
/// these and is called so; then the best cell of each experiment that is drawn by a metric.
pub(crate) fn headlines(analysis: &Analysis) -> Vec<Headline> {
    let digest = &analysis.digest;
    let short =
        window(analysis).filter(|_| digest.experiments.iter().any(|one| analysis.shortfall(one).is_some()));
    let model = if short.is_some() { None } else { window(analysis) };
    let relations =
        digest.experiments.iter().filter_map(|experiment| metric::relation_headline(digest, experiment));
    let mut all: Vec<Headline> = relations.take(HEADLINES - 1).collect();
    let own = [
        short,
        pairs::headline(digest),
        failing_gateway(digest),
        semantics::headline(digest),
        all_gateways(digest),
        single_flow(digest),
        model,
        interrupt_core(digest),
        more_flows(digest),
        round_trip(digest),
    ];
    all.extend(own.into_iter().flatten());
    all.sort_by_key(|headline| !headline.proven);
    let by_metric = digest.experiments.iter().filter(|experiment| experiment.is_drawn_by_metric());
    all.extend(by_metric.filter_map(|experiment| metric::headline(digest, experiment)).take(HEADLINES));
    all.truncate(HEADLINES);
    all
}

/// Value, confidence and remark of an effect: where it is within chance, a sentence
/// replaces the figure and states what would prove it.
fn effect(contrast: &effects::Contrast) -> (String, String, bool) {
    if let Some((value, sure)) = contrast.headline() {
        return (value, sure, true);
    }
    let (pooled, few) = (contrast.effect.pooled, clearstream_stats::LEAST_PAIRS);
    let next = match pooled.count.checked_sub(few) {
        None => format!("{few} pairs are the fewest that can prove anything: run with more repetitions"),
        Some(_) => "more repetitions narrow the interval".to_owned(),
    };
    let seen = match contrast.effect.interaction() {
        Some(_) => "it differs with what else is set".to_owned(),
        None => format!("observed {}", change(&pooled)),
    };
    ("not proven".to_owned(), format!("{seen}; {next}"), false)
}

/// Gaps of the flows of a failed gateway, with a watch.
fn failing_gateway(digest: &Digest) -> Option<Headline> {
    let found = digest.experiments.iter().find_map(|experiment| {
        let groups = gateways::groups(experiment);
        let (mut medians, mut longest) = (Vec::new(), 0.0f64);
        let (mut hit, mut stuck) = (0, 0);
        for group in groups.iter().filter(|group| group.is_watched()) {
            let gaps: Vec<f64> = group.gaps().into_iter().map(|ns| ns as f64).collect();
            longest = gaps.iter().copied().fold(longest, f64::max);
            medians.extend(median(&gaps));
            hit += group.hit().0;
            stuck += group.hit().1;
        }
        let ends = medians.iter().copied().min_by(f64::total_cmp);
        Some((
            experiment,
            (ends?, medians.iter().copied().fold(0.0, f64::max), medians.len()),
            longest,
            hit,
            stuck,
        ))
    });
    let (experiment, (low, high, kinds), longest, hit, stuck) = found?;
    // Kinds of failure are not pooled: each has its own detection time.
    let of =
        if kinds == 1 { "median of".to_owned() } else { format!("medians of {kinds} kinds of failure,") };
    Some(Headline {
        label: "Outage when a gateway fails, with watch".to_owned(),
        value: range(&time(low), &time(high)),
        sure: format!("{of} {hit} flows, {} at most", time(longest)),
        detail: match stuck {
            0 => "Every flow of a failed gateway recovered.".to_owned(),
            stuck => format!("{stuck} of them did not recover."),
        },
        published: None,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("failure"),
    })
}

/// Goodput with routes over all gateways against a plain route over one, in pairs of a repetition.
fn all_gateways(digest: &Digest) -> Option<Headline> {
    let (experiment, one, all) = digest.experiments.iter().find_map(|experiment| {
        let cell = |level: &str| {
            experiment.cells().into_iter().find(|cell| {
                cell.factors.get("routes-over").and_then(serde_json::Value::as_str) == Some(level)
            })
        };
        Some((experiment, cell("one-gateway")?, cell("all-gateways")?))
    })?;
    let found = effects::contrasts(experiment).into_iter().find(|c| c.label.contains("gateway"))?;
    let (value, sure, proven) = effect(&found);
    Some(Headline {
        label: "Goodput over all gateways against one".to_owned(),
        value,
        sure,
        path: Some(link::path(digest, experiment)),
        proven,
        detail: format!(
            "{} over all, {} over one (medians).",
            rate(all.estimate()?.median),
            rate(one.estimate()?.median)
        ),
        published: None,
        figure: experiment.anchor("effects"),
    })
}

/// One flow, receiver not discarding, in experiments that are not about placement.
fn single_flow(digest: &Digest) -> Option<Headline> {
    let plain = |e: &&ExperimentDigest| matches!(e.spec.figure(), Kind::Throughput | Kind::WindowCurve);
    let single = |cell: &CellMetric<'_>| {
        flow_count(cell) == Some(1)
            && !cell.settings.discards()
            && cell.settings.number("burst-flows").is_none_or(|flows| flows == 0)
    };
    let candidates = |placement: bool| -> Vec<(&ExperimentDigest, CellMetric<'_>, Estimate)> {
        digest
            .experiments
            .iter()
            .filter(|e| placement || plain(e))
            .flat_map(|e| e.cells().into_iter().filter(single).map(move |cell| (e, cell)))
            .filter_map(|(e, cell)| Some((e, cell, cell.estimate()?)))
            .collect()
    };
    let mut all = candidates(false);
    if all.is_empty() {
        all = candidates(true);
    }
    let (experiment, cell, estimate) =
        all.iter().copied().max_by(|a, b| a.2.median.total_cmp(&b.2.median))?;
    let published = experiment
        .spec
        .published
        .iter()
        .filter(|p| belongs(p, &cell))
        .filter(|p| !p.factors.is_empty())
        .find_map(|p| Some(format!("{} ({})", published_range(p)?.2, p.source)));
    let kind = match experiment.spec.figure() {
        Kind::WindowCurve => "window",
        Kind::PinMatrix => "matrix",
        Kind::PinRow => "row",
        Kind::LiveTraffic => "live",
        _ => "goodput",
    };
    Some(Headline {
        label: "Best single-flow goodput".to_owned(),
        value: rate(estimate.median),
        sure: with_choice(&estimate, all.len(), "cell"),
        detail: format!("{}: {}.", experiment.spec.title, cell.label(&experiment.varying_factors())),
        published,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor(kind),
    })
}

/// As many flows as were requested.
fn flow_count(cell: &MeasuredCell) -> Option<u64> {
    cell.settings.number("flows")
}

/// Confidence of the highest of several cells.
fn with_choice(estimate: &Estimate, candidates: usize, noun: &str) -> String {
    match chosen(candidates, noun) {
        text if text.is_empty() => estimate.how_sure(rate),
        text => format!("{}; {text}", estimate.how_sure(rate)),
    }
}

fn window(analysis: &Analysis) -> Option<Headline> {
    let digest = &analysis.digest;
    let experiment = digest.drawn_as(Kind::WindowCurve)?;
    let model = WindowModel::of(digest, experiment)?;
    let published = experiment
        .spec
        .published
        .iter()
        .find(|p| p.factors.contains_key("window"))
        .map(|p| format!("published: {} ({})", p.label, p.source));
    let knee = format!(
        "{} is the smallest window within 5 % of the highest median, {}; the bandwidth-delay product of {} and {} is {}.",
        bytes(model.knee_bytes),
        rate(model.plateau.median),
        rate(model.rate.bps),
        time(model.rtt_ns),
        bytes(model.product_bytes())
    );
    let (label, value, sure, detail) = match (analysis.shortfall(experiment), model.below_knee) {
        (Some(short), _) => (
            "Plateau of the window curve, of what window and link allow",
            short.fraction_text(),
            short.how_sure(),
            format!("{} {}.", knee, sentence_case(&short.limit())),
        ),
        (None, Some(fraction)) => {
            ("Goodput as % of window/RTT (window-limited region)", fraction.text(), fraction.how_sure(), knee)
        }
        (None, None) => ("Window at the knee", bytes(model.knee_bytes), model.plateau.how_sure(rate), knee),
    };
    Some(Headline {
        label: label.to_owned(),
        value,
        sure,
        detail,
        published,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("window"),
    })
}

fn interrupt_core(digest: &Digest) -> Option<Headline> {
    let experiment = digest.drawn_as(Kind::PinMatrix)?;
    let found = ReaderPlace::of(digest, experiment);
    let figure = experiment.anchor("effects");
    if let Some(contrast) = &found.on_core {
        let (value, sure, proven) = effect(contrast);
        let against =
            if found.other_packages { "readers on other packages" } else { "readers on other cores" };
        // An effect that depends on more has its place in the figure.
        let package = found.same_package.as_ref().filter(|c| c.effect.interaction().is_none());
        let package = package.map_or_else(String::new, |c| format!(" {}.", c.sentence()));
        // The published figures compare with readers on another package.
        let published = experiment.spec.published.iter().filter(|_| found.other_packages && proven);
        let published = published
            .filter(|p| published_range(p).is_none())
            .map(|p| format!("published: {} ({})", p.label, p.source))
            .next();
        return Some(Headline {
            label: "Reader on the interrupt core".to_owned(),
            value,
            sure,
            detail: format!("Against {against}, the sender on a core of its own.{package}"),
            published,
            path: Some(link::path(digest, experiment)),
            proven,
            figure,
        });
    }
    let (value, sure, proven) = effect(found.one_core.as_ref()?);
    Some(Headline {
        label: "Sender and reader on one core".to_owned(),
        value,
        sure,
        detail: found.confounded().unwrap_or_else(|| "Against sender and reader on a core each.".to_owned()),
        // Nothing of the kind was published: sender and reader were on different machines.
        published: None,
        path: Some(link::path(digest, experiment)),
        proven,
        figure,
    })
}

fn more_flows(digest: &Digest) -> Option<Headline> {
    let experiment = digest.drawn_as(Kind::Throughput)?;
    let most = experiment.cells().into_iter().filter_map(|cell| {
        let flows = flow_count(&cell)?;
        Some((flows, cell, cell.estimate()?))
    });
    let several: Vec<_> = most.filter(|found| found.0 > 1).collect();
    let (flows, cell, estimate) = several.iter().copied().max_by(|a, b| a.2.median.total_cmp(&b.2.median))?;
    let published = experiment
        .spec
        .published
        .iter()
        .filter(|p| belongs(p, &cell))
        .find_map(|p| Some(format!("{} ({})", published_range(p)?.2, p.source)));
    Some(Headline {
        label: format!("Goodput of {}", count(flows as usize, "flow")),
        value: rate(estimate.median),
        sure: with_choice(&estimate, several.len(), "cell"),
        detail: format!("{}.", experiment.spec.title),
        published,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("goodput"),
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
    let received: u64 = stats.iter().map(|s| s.answered_count).sum();
    Some(Headline {
        label: "Round trip, median".to_owned(),
        value: time(middle),
        sure: format!("{received} probes with a response, 99th percentile {}", time(worst as f64)),
        detail: format!("{}.", experiment.spec.title),
        published: None,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("delay"),
    })
}

/// Limits of the record's validity, in sentences.
pub(crate) fn trust(digest: &Digest) -> Vec<String> {
    let mut lines = Vec::new();
    let planned = digest.run.planned_trial_count as usize;
    // A run without a plan is an observation: its trials are of the same time.
    let mut text = if planned == 0 {
        format!("{} over time in the record, observed together", count(digest.trial_count, "metric"))
    } else {
        format!("{} of {} in the record", digest.trial_count, count(planned, "planned trial"))
    };
    if !digest.failures.is_empty() {
        text.push_str(&format!(", {} failed", digest.failures.len()));
    }
    if digest.run.ended.is_none() {
        text.push_str("; the run did not end by itself (killed, or still running)");
    }
    lines.push(format!("{text}."));
    let judged: Vec<bool> = digest
        .experiments
        .iter()
        .flat_map(ExperimentDigest::trials)
        .filter_map(|trial| trial.steady)
        .collect();
    if !judged.is_empty() {
        let steady = judged.iter().filter(|steady| **steady).count();
        lines.push(format!(
            "{steady} of the {} long enough to judge were steady after the warm-up.",
            count(judged.len(), "trial")
        ));
    }
    let short = digest.experiments.iter().flat_map(ExperimentDigest::trials).filter(|t| !t.complete).count();
    if short > 0 {
        lines.push(format!(
            "{} ended early or miss samples; their samples up to then count where nothing better is there.",
            count(short, "trial")
        ));
    }
    lines.extend(intervals(digest));
    if planned > 0 {
        lines.push(format!(
            "Trials ran interleaved in a random order (seed {}), so that drift is not mistaken for an effect.",
            digest.run.seed
        ));
    }
    if let Some(lines_of_delay) = &digest.delay_lines {
        let middle = median(&lines_of_delay.late_p50_ns).unwrap_or(0.0);
        lines.push(format!(
            "The lab's delay line released packets {} late in the median, {} at the worst 99th percentile{}.",
            time(middle),
            time(lines_of_delay.late_p99_ns as f64),
            if lines_of_delay.overflow_count > 0 {
                format!("; its queue overflowed {} times", lines_of_delay.overflow_count)
            } else {
                String::new()
            }
        ));
        if lines_of_delay.limited_trial_count > 0 {
            lines.push(format!(
                "In {} of {} the delay line, not the path, was the limit (notice delay-line-limit): read their rates and round trips as this machine's.",
                lines_of_delay.limited_trial_count,
                count(digest.trial_count, "trial")
            ));
        }
    }
    lines
}

/// Of which confidence the intervals are.
fn intervals(digest: &Digest) -> Vec<String> {
    let cells = digest.experiments.iter().flat_map(ExperimentDigest::cells);
    let all: Vec<Estimate> = cells.filter_map(|cell| cell.estimate()).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let widths: Vec<f64> = all
        .iter()
        .filter(|e| e.is_95)
        .filter_map(|e| e.interval.map(|(low, high)| (high - low) / e.median))
        .collect();
    if let Some(middle) = median(&widths) {
        lines.push(format!(
            "{} with six trials or more: their medians have 95 % intervals (order statistics), half of them narrower than {} of the median.",
            count(widths.len(), "cell"),
            percent(middle)
        ));
    }
    let few = all.len() - widths.len();
    if few > 0 {
        lines.push(format!(
            "{} with fewer than six trials: the range of three, four or five holds the true median with 75, 87.5 or 94 %, so it is called a range and proves nothing by itself.",
            count(few, "cell")
        ));
    }
    lines.push(
        "Effects are estimated in pairs of one repetition whose other factors are equal; one is at the head of this page with a figure only when its 95 % interval excludes no effect, or when it is proven to depend on another factor; else it is called not proven."
            .to_owned(),
    );
    lines
}
