//! Goodput against the window, with what the window allows (window / RTT), the
//! rate of the path, and their crossing: the bandwidth-delay product
//! (40GE report, figure 6).

use clearstream_schema::record::Published;
use clearstream_stats::PRACTICAL_RATIO;

use crate::{
    digest::{Cell, Digest, ExperimentDigest},
    estimate::{Estimate, chosen, median},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::goodput::published_legend,
    format::{bytes, count, gbps, percent, range, rate, time, window_bytes},
    svg::{
        Svg,
        plot::{Area, Plot, Size, tick_labels},
        scale::{Scale, powers_of_two},
    },
};

/// A cell belongs to the plateau from this share of it on.
const KNEE_SHARE: f64 = 0.95;
/// Below this share of the bandwidth-delay product the window alone decides.
const BELOW_KNEE: f64 = 0.8;

/// What a window sweep says about the path.
#[derive(Debug, Clone)]
pub(crate) struct WindowModel {
    pub(crate) rtt_ns: f64,
    /// Rate of the path: the lab's, else the plateau measured.
    pub(crate) rate_bps: f64,
    /// True when the rate is that of the lab's link.
    pub(crate) rate_known: bool,
    /// Smallest window whose median reaches 95 % of the plateau.
    pub(crate) knee_bytes: f64,
    pub(crate) plateau: Estimate,
    /// Measured / (window / RTT) below the knee.
    pub(crate) below_knee: Option<Share>,
    /// Window in bytes and median goodput, ascending.
    points: Vec<(f64, Estimate)>,
}

impl WindowModel {
    /// Fits nothing: every number is read or computed from the trials.
    pub(crate) fn of(digest: &Digest, experiment: &ExperimentDigest) -> Option<Self> {
        let mut points: Vec<(f64, Estimate)> = experiment
            .cells
            .iter()
            .filter_map(|cell| Some((cell_window(cell)? as f64, cell.goodput()?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let round_trips: Vec<f64> =
            experiment.trials().filter_map(|trial| trial.min_rtt_ns).map(|ns| ns as f64).collect();
        let rtt_ns = median(&round_trips).filter(|rtt| *rtt > 0.0)?;
        let plateau = points.iter().map(|p| p.1).max_by(|a, b| a.median.total_cmp(&b.median))?;
        let lab_rate = lab_rate_bps(digest);
        let rate_bps = lab_rate.unwrap_or(plateau.median);
        let knee_bytes = points.iter().find(|p| p.1.median >= KNEE_SHARE * plateau.median)?.0;
        let product = rate_bps * rtt_ns / 8e9;
        let below_knee = Share::of(experiment.cells.iter().filter_map(|cell| {
            let window = cell_window(cell)? as f64;
            let shares = cell.values().into_iter().map(|bps| bps * rtt_ns / 8e9 / window).collect();
            (window < BELOW_KNEE * product).then_some(shares)
        }));
        Some(Self {
            rtt_ns,
            rate_bps,
            rate_known: lab_rate.is_some(),
            knee_bytes,
            plateau,
            below_knee,
            points,
        })
    }

    /// Bandwidth-delay product: rate x RTT / 8.
    pub(crate) fn product_bytes(&self) -> f64 {
        self.rate_bps * self.rtt_ns / 8e9
    }

    /// `min(window / RTT, rate)`: RFC 7323 section 1.1 gives the first term.
    pub(crate) fn model_bps(&self, window: f64) -> f64 {
        (window * 8e9 / self.rtt_ns).min(self.rate_bps)
    }

    fn finding(&self) -> String {
        let mut text = self.below_knee.map_or_else(String::new, |share| {
            format!("Below the knee goodput is {} of window / RTT ({}); ", share.text(), share.how_sure())
        });
        text.push_str(&format!(
            "{} is reached from a window of {} on, where the bandwidth-delay product is {} ({} \u{d7} {}).",
            rate(self.plateau.median),
            bytes(self.knee_bytes),
            bytes(self.product_bytes()),
            rate(self.rate_bps),
            time(self.rtt_ns),
        ));
        text
    }
}

/// Goodput as a share of what the window allows, window by window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Over all trials; only where the windows agree.
    pooled: Estimate,
    /// Lowest and highest median of a window.
    medians: (f64, f64),
    windows: usize,
}

impl Share {
    fn of(shares: impl Iterator<Item = Vec<f64>>) -> Option<Self> {
        let all: Vec<Vec<f64>> = shares.collect();
        let medians: Vec<f64> = all.iter().filter_map(|one| median(one)).collect();
        let lowest = medians.iter().copied().min_by(f64::total_cmp)?;
        let highest = medians.iter().copied().max_by(f64::total_cmp)?;
        let pooled = Estimate::of(&all.concat())?;
        Some(Self { pooled, medians: (lowest, highest), windows: medians.len() })
    }

    /// One share may stand for all windows.
    fn agrees(&self) -> bool {
        self.medians.1 <= self.medians.0 * (1.0 + PRACTICAL_RATIO)
    }

    /// One share, or what it is from window to window.
    pub(crate) fn text(&self) -> String {
        if self.agrees() {
            percent(self.pooled.median)
        } else {
            range(&percent(self.medians.0), &percent(self.medians.1))
        }
    }

    /// How sure that is.
    pub(crate) fn how_sure(&self) -> String {
        if self.agrees() {
            self.pooled.how_sure(percent)
        } else {
            format!("lowest to highest of the medians of {}", count(self.windows, "window"))
        }
    }
}

/// Lowest rate of the lab's links, when it has any.
pub(crate) fn lab_rate_bps(digest: &Digest) -> Option<f64> {
    let lab = digest.run.lab.as_ref()?;
    lab.links.iter().filter_map(|link| link.rate).map(|rate| rate.0 as f64).min_by(f64::total_cmp)
}

fn cell_window(cell: &Cell) -> Option<u64> {
    cell.factors
        .get("window")
        .and_then(window_bytes)
        .or_else(|| cell.trials.first().and_then(|trial| trial.window_bytes))
}

/// The published window of a figure, when it names one.
fn published_window(published: &Published) -> Option<f64> {
    published.factors.get("window").and_then(window_bytes).map(|bytes| bytes as f64)
}

/// The curve, or `None` without windows or round-trip times.
pub(crate) fn figure(digest: &Digest, experiment: &ExperimentDigest) -> Option<Figure> {
    let model = WindowModel::of(digest, experiment)?;
    let id = identifier(&[&experiment.spec.name, "window"]);
    let title = format!("{}: goodput against window", experiment.spec.title);
    let finding = model.finding();
    let source = if model.rate_known { "the lab link's rate" } else { "the highest goodput measured" };
    let mut legend = vec![
        LegendItem::new(
            "dot s0",
            "median of our trials, with its 95 % interval (the range below six); small: one trial",
        ),
        LegendItem::new("line model", format!("model: min(window / RTT, {source})")),
        LegendItem::new("line product", "bandwidth-delay product"),
    ];
    legend.extend(published_legend(&experiment.spec.published));
    let mut notes = vec![format!(
        "RTT is the median of the senders' lowest round-trip times, {}; the rate is {source}, {}.",
        time(model.rtt_ns),
        rate(model.rate_bps)
    )];
    if !model.rate_known && model.points.len() > 1 {
        notes.push(format!("That rate is {}.", chosen(model.points.len(), "window")));
    }
    let unset = experiment.cells.iter().filter(|cell| cell_window(cell).is_none());
    notes.extend(unset.filter_map(|cell| cell.goodput()).map(|estimate| {
        format!("With an autotuned window: {} ({}).", rate(estimate.median), estimate.how_sure(rate))
    }));
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(experiment, &model, size)),
        notes,
        legend,
        table: table(&model),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

fn draw(experiment: &ExperimentDigest, model: &WindowModel, size: Size) -> Svg {
    let theirs: Vec<&Published> = experiment.spec.published.iter().collect();
    let windows = model
        .points
        .iter()
        .map(|p| p.0)
        .chain([model.product_bytes()])
        .chain(theirs.iter().filter_map(|p| published_window(p)));
    let (low, high) = windows.fold((f64::INFINITY, 0.0f64), |(l, h), w| (l.min(w), h.max(w)));
    let (low, high) = (low.max(1.0) / 1.25, high.max(2.0) * 1.25);
    let highest = experiment
        .trials()
        .map(|trial| trial.goodput_bps / 1e9)
        .chain([model.rate_bps / 1e9])
        .chain(theirs.iter().filter_map(|p| published_range(p)).map(|range| range.1))
        .fold(0.0, f64::max);
    let (y, y_ticks) = Scale::from_zero(highest, 5);
    let x = Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) };
    let x_ticks =
        powers_of_two(low, high, size.pick(9, 4)).into_iter().map(|w| (w, bytes(w))).collect::<Vec<_>>();
    let svg = Svg::new(size.width(), size.pick(400.0, 320.0));
    let area = Area {
        left: size.pick(52.0, 40.0),
        right: svg.width - size.pick(20.0, 12.0),
        top: 60.0,
        bottom: svg.height - 44.0,
    };
    let mut plot =
        Plot::on(svg, area, (x, x_ticks, "window (log scale)"), (y, tick_labels(&y_ticks), "Gb/s"));
    draw_theirs(&mut plot, &theirs);
    plot.rule_at(model.product_bytes(), "product", &format!("BDP {}", bytes(model.product_bytes())), 0);
    draw_model(&mut plot, model, low, high);
    draw_ours(&mut plot, experiment, model);
    plot.svg
}

fn draw_model(plot: &mut Plot, model: &WindowModel, low: f64, high: f64) {
    let mut points: Vec<(f64, f64)> = (0..=96)
        .map(|step| low * (high / low).powf(f64::from(step) / 96.0))
        .chain([model.product_bytes()])
        .filter(|window| (low..=high).contains(window))
        .map(|window| (window, model.model_bps(window) / 1e9))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    plot.line(&points, "line model");
}

fn draw_theirs(plot: &mut Plot, theirs: &[&Published]) {
    let mut knee_drawn = false;
    for published in theirs {
        let range = published_range(published);
        match (published_window(published), range) {
            (Some(window), range) => {
                // The first window named is the knee; later ones are points beyond it.
                if !std::mem::replace(&mut knee_drawn, true) {
                    let label = format!("published knee {}", megabytes(window));
                    plot.rule_at(window, "theirs", &label, 1);
                }
                if let Some((low, high, text)) = range {
                    let (x, upper, lower) = (plot.x.at(window), plot.y.at(high), plot.y.at(low));
                    let tip = format!("{text} at {} ({})", megabytes(window), published.source);
                    plot.svg.tipped(&tip, |svg| {
                        svg.line((x, upper), (x, lower), "theirs");
                        svg.circle(x, (upper + lower) / 2.0, 6.0, "theirs-dot");
                    });
                }
            }
            (None, Some((low, high, _))) => plot.published_band(low, high),
            (None, None) => {}
        }
    }
}

fn draw_ours(plot: &mut Plot, experiment: &ExperimentDigest, model: &WindowModel) {
    for cell in &experiment.cells {
        let Some(window) = cell_window(cell) else { continue };
        for value in cell.values() {
            let (x, y) = (plot.x.at(window as f64), plot.y.at(value / 1e9));
            plot.svg.circle(x, y, 2.5, "dot faint s0");
        }
    }
    for (window, estimate) in &model.points {
        let (x, y) = (plot.x.at(*window), plot.y.at(estimate.median / 1e9));
        let tip = format!(
            "window {}: {} ({}); the model says {}",
            bytes(*window),
            rate(estimate.median),
            estimate.how_sure(rate),
            rate(model.model_bps(*window))
        );
        let interval = estimate.interval.map(|(l, h)| (plot.y.at(l / 1e9), plot.y.at(h / 1e9)));
        plot.svg.tipped(&tip, |svg| {
            if let Some((low, high)) = interval {
                svg.line((x, low), (x, high), "whisker s0");
            }
            svg.circle(x, y, 4.5, "dot s0");
            svg.circle(x, y, 14.0, "readout");
        });
    }
}

/// As the paper prints it: decimal megabytes.
fn megabytes(bytes: f64) -> String {
    format!("{:.2} MB", bytes / 1e6)
}

fn table(model: &WindowModel) -> Table {
    let mut table = Table::new(
        "Median goodput against window",
        &["Window", "#n", "#Median, Gb/s", "#95 % interval or range, Gb/s", "#Model, Gb/s", "#Of the model"],
    );
    for (window, estimate) in &model.points {
        let model_bps = model.model_bps(*window);
        table.push(vec![
            bytes(*window),
            estimate.count.to_string(),
            gbps(estimate.median),
            estimate.interval_text(gbps),
            gbps(model_bps),
            percent(estimate.median / model_bps),
        ]);
    }
    table
}
