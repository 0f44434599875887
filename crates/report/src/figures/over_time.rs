//! Rates over time, a panel below the other: the drawing of every series over time. Annotations of a panel are its
//! warm-up, published values, and the names of lines at their ends.

use crate::{
    series::Points,
    svg::{
        Svg,
        plot::{Area, Plot, Size, tick_labels},
        scale::{Scale, downsample, ticks_between},
    },
};

/// A line needs no more points than the drawing has units.
const MAX_POINTS: usize = 400;
/// Room to the right of lines with their names.
const NAMES: f64 = 160.0;

/// What is drawn.
pub(crate) struct OverTime {
    /// Quantity of the vertical axis, which is in Gb/s.
    pub(crate) quantity: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// Lines with the same axes.
#[derive(Default)]
pub(crate) struct Panel {
    /// Absent where there is only one.
    pub(crate) title: Option<String>,
    /// In the order in which they are drawn, the last one above the others.
    pub(crate) lines: Vec<Line>,
    /// Lowest and highest published value, Gb/s.
    pub(crate) bands: Vec<(f64, f64)>,
    pub(crate) warm_up_seconds: f64,
    /// Names at the right of a wide drawing: height in Gb/s, text, class.
    pub(crate) names: Vec<(f64, String, String)>,
    /// Stretches of time, seconds, with the text shown on hover.
    pub(crate) readouts: Vec<(f64, f64, String)>,
}

/// A line over seconds, in bits per second.
pub(crate) struct Line {
    /// For the legend.
    pub(crate) name: String,
    /// Colour and stroke.
    pub(crate) class: String,
    pub(crate) points: Points,
}

impl OverTime {
    /// End of the longest line, at least one second.
    pub(crate) fn seconds(&self) -> f64 {
        self.points().map(|point| point.0).fold(1.0, f64::max)
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points)
    }

    pub(crate) fn draw(&self, size: Size) -> Svg {
        let has_titles = self.panels.iter().any(|panel| panel.title.is_some());
        let (height, head) =
            if has_titles { (size.pick(236.0, 216.0), 56.0) } else { (size.pick(360.0, 280.0), 34.0) };
        let has_names = self.panels.iter().any(|panel| !panel.names.is_empty());
        let right = size.pick(if has_names { NAMES } else { 20.0 }, 10.0);
        let mut svg = Svg::new(size.width(), height * self.panels.len() as f64);
        for (index, panel) in self.panels.iter().enumerate() {
            let top = height * index as f64;
            let area = Area {
                left: size.pick(52.0, 40.0),
                right: size.width() - right,
                top: top + head,
                bottom: top + height - 44.0,
            };
            if let Some(title) = &panel.title {
                svg.text(size.pick(area.left, 4.0), top + 16.0, "panel start", title);
            }
            svg = self.draw_panel(svg, area, panel, size);
        }
        svg
    }

    fn draw_panel(&self, svg: Svg, area: Area, panel: &Panel, size: Size) -> Svg {
        let published = self.panels.iter().flat_map(|panel| &panel.bands).map(|band| band.1);
        let highest = self.points().map(|point| point.1 / 1e9).chain(published).fold(0.0, f64::max);
        let seconds = self.seconds();
        let (y, y_ticks) = Scale::from_zero(highest, if panel.title.is_some() { 4 } else { 5 });
        let x = Scale::Linear { domain: (0.0, seconds), range: (0.0, 1.0) };
        let x_ticks = tick_labels(&ticks_between(0.0, seconds, size.pick(8, 5)));
        let title = format!("{}, Gb/s", self.quantity);
        let mut plot = Plot::on(svg, area, (x, x_ticks, "time, s"), (y, tick_labels(&y_ticks), &title));
        if panel.warm_up_seconds > 0.0 {
            plot.shade(0.0, panel.warm_up_seconds.min(seconds), "warm");
        }
        for (low, high) in &panel.bands {
            plot.published_band(*low, *high);
        }
        for line in &panel.lines {
            let points = downsample(&line.points, MAX_POINTS).into_iter().map(|(at, bps)| (at, bps / 1e9));
            plot.line(&points.collect::<Points>(), &format!("line {}", line.class));
        }
        if size == Size::Wide && !panel.names.is_empty() {
            plot.end_labels(panel.names.clone());
        }
        for (from, to, tip) in &panel.readouts {
            let (left, right) = (plot.x.at(*from), plot.x.at(*to));
            plot.svg.tipped(tip, |svg| {
                svg.rect(left, area.top, right - left, area.bottom - area.top, "readout");
            });
        }
        plot.svg
    }
}
