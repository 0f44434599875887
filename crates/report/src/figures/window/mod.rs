//! Goodput against the window, with what the window allows (window / RTT), the
//! rate of the path, and their intersection: the bandwidth-delay product
//! (40GE report, figure 6).

use clearstream_schema::record::Published;
use clearstream_stats::PRACTICAL_RATIO;

use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::{Estimate, chosen, median},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    figures::goodput::published_legend,
    format::{bytes, count, gbps, percent, range, rate, time, window_bytes},
    measured::MeasuredCell,
};

mod plot;
mod rate;

pub(crate) use rate::PathRate;

/// A plateau below this fraction of the model is the first finding of a report.
pub(crate) const SHORT: f64 = 0.9;
/// A cell belongs to the plateau from this fraction of it on.
const KNEE_SHARE: f64 = 0.95;
/// Below this fraction of the bandwidth-delay product the window alone decides.
const BELOW_KNEE: f64 = 0.8;

/// Result of a window sweep.
#[derive(Debug, Clone)]
pub(crate) struct WindowModel {
    pub(crate) rtt_ns: f64,
    /// Rate of the path.
    pub(crate) rate: PathRate,
    /// Smallest window whose median reaches 95 % of the plateau.
    pub(crate) knee_bytes: f64,
    pub(crate) plateau: Estimate,
    /// Measured / (window / RTT) where the window alone decides.
    pub(crate) below_knee: Option<Share>,
    /// By window, ascending.
    points: Vec<Point>,
}

/// One window of the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Bytes.
    pub(crate) window: f64,
    pub(crate) estimate: Estimate,
    /// The trial nearest to the median.
    pub(crate) trial: u32,
}

impl WindowModel {
    /// Fits nothing: every number is read or computed from the trials.
    pub(crate) fn of(digest: &Digest, experiment: &ExperimentDigest) -> Option<Self> {
        let cells = experiment.cells();
        let mut points: Vec<Point> = cells
            .iter()
            .filter_map(|cell| {
                let (estimate, trial) = (cell.estimate()?, cell.typical()?.0.trial);
                Some(Point { window: cell_window(cell)? as f64, estimate, trial })
            })
            .collect();
        points.sort_by(|a, b| a.window.total_cmp(&b.window));
        let round_trips: Vec<f64> = cells.iter().flat_map(|cell| cell.of_all_trials("min-rtt")).collect();
        let rtt_ns = median(&round_trips).filter(|rtt| *rtt > 0.0)?;
        let plateau = points.iter().map(|p| p.estimate).max_by(|a, b| a.median.total_cmp(&b.median))?;
        let rate = PathRate::of(digest, experiment, plateau.median);
        let knee_bytes = points.iter().find(|p| p.estimate.median >= KNEE_SHARE * plateau.median)?.window;
        let mut model = Self { rtt_ns, rate, knee_bytes, plateau, below_knee: None, points };
        let short = model.short_plateau().first().map_or(f64::INFINITY, |point| point.window);
        let limit = (BELOW_KNEE * model.product_bytes()).min(short);
        model.below_knee = Share::of(cells.iter().filter_map(|cell| {
            let window = cell_window(cell)? as f64;
            let shares = cell.values().into_iter().map(|bps| bps * rtt_ns / 8e9 / window).collect();
            (window < limit).then_some(shares)
        }));
        Some(model)
    }

    /// The largest windows whose medians all stay below [`SHORT`] of the model while no
    /// window reaches what the largest one allows; empty where the curve ends at the model.
    pub(crate) fn short_plateau(&self) -> &[Point] {
        let Some(last) = self.points.last() else { return &[] };
        if self.plateau.median >= SHORT * self.model_bps(last.window) {
            return &[];
        }
        let reaches = |point: &Point| point.estimate.median >= SHORT * self.model_bps(point.window);
        let first = self.points.iter().rposition(reaches).map_or(0, |index| index + 1);
        &self.points[first..]
    }

    /// Bandwidth-delay product: rate x RTT / 8.
    pub(crate) fn product_bytes(&self) -> f64 {
        self.rate.bps * self.rtt_ns / 8e9
    }

    /// `min(window / RTT, rate)`: RFC 7323 section 1.1 gives the first term.
    pub(crate) fn model_bps(&self, window: f64) -> f64 {
        (window * 8e9 / self.rtt_ns).min(self.rate.bps)
    }

    fn finding(&self) -> String {
        let mut text = self.below_knee.map_or_else(String::new, |fraction| {
            format!(
                "Where the window alone decides goodput is {} of window / RTT ({}); ",
                fraction.text(),
                fraction.how_sure()
            )
        });
        text.push_str(&format!(
            "{} is the smallest window within 5 % of the highest median, {}; the bandwidth-delay product of {} and {} is {}.",
            bytes(self.knee_bytes),
            rate(self.plateau.median),
            rate(self.rate.bps),
            time(self.rtt_ns),
            bytes(self.product_bytes()),
        ));
        text
    }
}

/// Goodput as a fraction of the rate that the window allows, window by window.
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

    /// Whether one fraction represents all windows.
    fn agrees(&self) -> bool {
        self.medians.1 <= self.medians.0 * (1.0 + PRACTICAL_RATIO)
    }

    /// One fraction, or its range from window to window.
    pub(crate) fn text(&self) -> String {
        if self.agrees() {
            percent(self.pooled.median)
        } else {
            range(&percent(self.medians.0), &percent(self.medians.1))
        }
    }

    /// Confidence.
    pub(crate) fn how_sure(&self) -> String {
        if self.agrees() {
            let of = count(self.windows, "window");
            match self.pooled.count {
                1 => self.pooled.how_sure(percent),
                _ => format!("trials at {of} together: {}", self.pooled.how_sure(percent)),
            }
        } else {
            format!("lowest to highest of the medians of {}", count(self.windows, "window"))
        }
    }
}

fn cell_window(cell: &MeasuredCell) -> Option<u64> {
    let level = cell.factors.get("window").and_then(window_bytes);
    level.or_else(|| cell.settings.requested_bytes("receive-buffer"))
}

/// The published window of a figure, when it names one.
fn published_window(published: &Published) -> Option<f64> {
    published.factors.get("window").and_then(window_bytes).map(|bytes| bytes as f64)
}

/// Remarks on a plateau below the model, which come first.
pub(crate) struct Remarks {
    pub(crate) finding: String,
    /// One sentence each.
    pub(crate) notes: Vec<String>,
}

/// The curve, or `None` without windows or round-trip times.
pub(crate) fn figure(
    digest: &Digest,
    experiment: &ExperimentDigest,
    short: Option<Remarks>,
) -> Option<Figure> {
    let model = WindowModel::of(digest, experiment)?;
    let id = identifier(&[&experiment.spec.name, "window"]);
    let title = format!("{}: goodput against window", experiment.spec.title);
    let finding = match &short {
        Some(short) => format!("{} {}", short.finding, model.finding()),
        None => model.finding(),
    };
    let source = &model.rate.source;
    let mut legend = vec![
        LegendItem::new(
            "dot s0",
            "median of our trials, with its 95 % interval (the range below six); small: one trial",
        ),
        LegendItem::new("line model", format!("model: min(window / RTT, {source})")),
        LegendItem::new("line product", "bandwidth-delay product; below: the model is 1"),
    ];
    legend.extend(published_legend(&experiment.spec.published));
    let mut notes = short.map(|short| short.notes).unwrap_or_default();
    notes.push(format!(
        "RTT is the median of the senders' lowest round-trip times, {}; the rate is {source}, {}.",
        time(model.rtt_ns),
        rate(model.rate.bps)
    ));
    if model.rate.measured && model.points.len() > 1 {
        notes.push(format!("That rate is {}.", chosen(model.points.len(), "window")));
    }
    let cells = experiment.cells();
    let unset = cells.iter().filter(|cell| cell_window(cell).is_none());
    notes.extend(unset.filter_map(|cell| cell.estimate()).map(|estimate| {
        format!("With an autotuned window: {} ({}).", rate(estimate.median), estimate.how_sure(rate))
    }));
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| plot::draw(experiment, &model, size)),
        notes,
        legend,
        table: table(&model),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

fn table(model: &WindowModel) -> Table {
    let mut table = Table::new(
        "Median goodput against window",
        &["Window", "#n", "#Median, Gb/s", "#95 % interval or range, Gb/s", "#Model, Gb/s", "#Of the model"],
    );
    for Point { window, estimate, .. } in model.points.iter().copied() {
        let model_bps = model.model_bps(window);
        table.push(vec![
            bytes(window),
            estimate.count.to_string(),
            gbps(estimate.median),
            estimate.interval_text(gbps),
            gbps(model_bps),
            percent(estimate.median / model_bps),
        ]);
    }
    table
}
