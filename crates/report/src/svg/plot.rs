//! Axes around a drawing: the frame that every chart with two scales shares.

use super::{Svg, scale::Scale};

/// For which page width a figure is drawn. Both are in the page; the style
/// sheet shows the one that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Desktop and print.
    Wide,
    /// A phone held upright.
    Narrow,
}

impl Size {
    /// Both, in the order of the page.
    pub(crate) const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    /// Width of a drawing.
    pub(crate) fn width(self) -> f64 {
        match self {
            Self::Wide => 890.0,
            Self::Narrow => 350.0,
        }
    }

    /// One of two values.
    pub(crate) fn pick<T>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }
}

/// Area of the values, inside the margins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    /// Left edge.
    pub(crate) left: f64,
    /// Right edge.
    pub(crate) right: f64,
    /// Upper edge.
    pub(crate) top: f64,
    /// Lower edge.
    pub(crate) bottom: f64,
}

/// Height of the title of a vertical axis, above its ticks.
const TITLE_HEIGHT: f64 = 24.0;
/// Height of a label at the end of a line, with what keeps it from the next one.
const LABEL_HEIGHT: f64 = 18.0;

/// A tick: value and label.
pub(crate) type Tick = (f64, String);

/// A drawing with two axes.
pub(crate) struct Plot {
    /// The drawing.
    pub(crate) svg: Svg,
    /// Horizontal scale.
    pub(crate) x: Scale,
    /// Vertical scale.
    pub(crate) y: Scale,
    /// Inside the margins.
    pub(crate) area: Area,
    /// Height that the title of the vertical axis takes above the area.
    title_height: f64,
}

impl Plot {
    /// Adds axes inside `area` of `svg`. Only horizontal grid lines: values are read off them.
    pub(crate) fn on(svg: Svg, area: Area, x: (Scale, Vec<Tick>, &str), y: (Scale, Vec<Tick>, &str)) -> Self {
        let title_height = if y.2.is_empty() { 0.0 } else { TITLE_HEIGHT };
        let (across, up) = (x.0.over((area.left, area.right)), y.0.over((area.bottom, area.top)));
        let mut plot = Self { svg, x: across, y: up, area, title_height };
        for (value, label) in &y.1 {
            let at = plot.y.at(*value);
            plot.svg.line((area.left, at), (area.right, at), if *value == 0.0 { "axis" } else { "grid" });
            plot.svg.text(area.left - 8.0, at + 4.0, "tick end", label);
        }
        for (value, label) in &x.1 {
            let at = plot.x.at(*value);
            plot.svg.line((at, area.bottom), (at, area.bottom + 4.0), "axis");
            // The last label must not leave the drawing.
            let over = at + text_width(label) / 2.0 > plot.svg.width;
            let (at, anchor) = if over { (plot.svg.width - 1.0, "end") } else { (at, "middle") };
            plot.svg.text(at, area.bottom + 18.0, &format!("tick {anchor}"), label);
        }
        if !y.2.is_empty() {
            plot.svg.text(2.0, area.top - 14.0, "unit start", y.2);
        }
        if !x.2.is_empty() {
            plot.svg.text(area.right, area.bottom + 36.0, "unit end", x.2);
        }
        plot
    }

    /// Stretches of height that vertical lines may cross: all of it where labels are outside
    /// the area; where they are inside it (on a phone), of each row of `height` all but its label.
    pub(crate) fn stretches(&self, size: Size, rows: usize, height: f64, label: f64) -> Vec<(f64, f64)> {
        match size {
            Size::Wide => vec![(self.area.top, self.area.bottom)],
            Size::Narrow => (0..rows)
                .map(|row| self.area.top + height * row as f64)
                .map(|top| (top + label, top + height))
                .collect(),
        }
    }

    /// A vertical line at a value over some stretches of height: labels between them stay clear.
    pub(crate) fn upright(&mut self, value: f64, class: &str, stretches: &[(f64, f64)]) {
        let at = self.x.at(value);
        for (top, bottom) in stretches {
            self.svg.line((at, *top), (at, *bottom), class);
        }
    }

    /// Points in positions.
    pub(crate) fn place(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        points.iter().map(|(x, y)| (self.x.at(*x), self.y.at(*y))).collect()
    }

    /// A line through values.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let placed = self.place(points);
        self.svg.polyline(&placed, class);
    }

    /// A stretch of the horizontal axis, full height.
    pub(crate) fn shade(&mut self, from: f64, to: f64, class: &str) {
        let (from, to) = (self.x.at(from), self.x.at(to));
        self.svg.rect(from, self.area.top, to - from, self.area.bottom - self.area.top, class);
    }

    /// A vertical rule that extends above the plot by `row` lines, with its label there, above
    /// the title of the axis; the label turns left when there is no room to the right.
    pub(crate) fn rule_at(&mut self, x: f64, class: &str, label: &str, row: usize) {
        let whole = [(self.area.top, self.area.bottom)];
        self.rule_over(x, class, label, row, &whole);
    }

    /// As [`Self::rule_at`], with the label in the first line and to the left where it would
    /// reach the rule at `next`, which extends above it.
    pub(crate) fn rule_before(&mut self, x: f64, class: &str, label: &str, next: f64) {
        let whole = [(self.area.top, self.area.bottom)];
        self.rule(x, class, (label, 0, self.x.at(next)), &whole);
    }

    /// A rule that leaves out what lies between some stretches of height.
    pub(crate) fn rule_over(
        &mut self,
        x: f64,
        class: &str,
        label: &str,
        row: usize,
        stretches: &[(f64, f64)],
    ) {
        self.rule(x, class, (label, row, self.svg.width), stretches);
    }

    /// A rule whose label, in its row, has room as far as an end.
    fn rule(&mut self, x: f64, class: &str, (label, row, end): (&str, usize, f64), stretches: &[(f64, f64)]) {
        let at = self.x.at(x);
        let head = self.area.top - 4.0 - self.title_height - 16.0 * row as f64;
        self.svg.line((at, head - 10.0), (at, self.area.top), class);
        self.upright(x, class, stretches);
        let width = text_width(label) + 8.0;
        let (dx, anchor) = if at + width < end || at < width { (5.0, "start") } else { (-5.0, "end") };
        self.svg.text(at + dx, head, &format!("note halo {anchor}"), label);
    }

    /// A published range or value across the full width: shaded band or dashed line.
    pub(crate) fn published_band(&mut self, low: f64, high: f64) {
        let (upper, lower) = (self.y.at(high.max(low)), self.y.at(low.min(high)));
        if lower - upper > 1.0 {
            self.svg.rect(
                self.area.left,
                upper,
                self.area.right - self.area.left,
                lower - upper,
                "theirs-band",
            );
            self.svg.line((self.area.left, lower), (self.area.right, lower), "theirs");
        }
        self.svg.line((self.area.left, upper), (self.area.right, upper), "theirs");
    }

    /// Names at the right ends of lines, pushed apart so that none covers another.
    pub(crate) fn end_labels(&mut self, mut labels: Vec<(f64, String, String)>) {
        labels.sort_by(|a, b| self.y.at(a.0).total_cmp(&self.y.at(b.0)));
        let mut lowest = f64::NEG_INFINITY;
        let room = self.area.bottom;
        let mut placed: Vec<f64> = Vec::new();
        for (value, _, _) in &labels {
            let at = self.y.at(*value).max(lowest + LABEL_HEIGHT);
            placed.push(at);
            lowest = at;
        }
        let overflow = (lowest - room).max(0.0);
        for ((_, text, class), at) in labels.iter().zip(placed) {
            self.svg.text(
                self.area.right + 8.0,
                at - overflow + 4.0,
                &format!("endlabel start {class}"),
                text,
            );
        }
    }
}

/// Width of a text in the drawings' type, on the safe side.
pub(crate) fn text_width(text: &str) -> f64 {
    7.3 * text.chars().count() as f64
}

/// A text cut to a width, with an ellipsis.
pub(crate) fn fitted(text: &str, width: f64) -> String {
    let room = (width / 7.3).max(4.0) as usize;
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room - 1).chain(['\u{2026}']).collect()
}

/// Text of ticks that are all multiples of one step: as many decimals as the step needs.
pub(crate) fn tick_labels(ticks: &[f64]) -> Vec<Tick> {
    let step = ticks.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(f64::INFINITY, f64::min);
    let decimals = if step.is_finite() && step > 0.0 {
        (-(step.log10() + 1e-9).floor()).clamp(0.0, 6.0) as usize
    } else {
        0
    };
    ticks.iter().map(|tick| (*tick, format!("{tick:.decimals$}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_put_ticks_at_the_positions_of_the_scale() {
        let area = Area { left: 50.0, right: 250.0, top: 20.0, bottom: 120.0 };
        let (y, ticks) = Scale::from_zero(10.0, 2);
        let x = Scale::Linear { domain: (0.0, 4.0), range: (0.0, 1.0) };
        let mut plot = Plot::on(
            Svg::new(300.0, 160.0),
            area,
            (x, tick_labels(&[0.0, 2.0, 4.0]), "s"),
            (y, tick_labels(&ticks), "Gb/s"),
        );
        plot.line(&[(0.0, 0.0), (2.0, 5.0), (4.0, 10.0)], "line");
        let text = plot.svg.finish("p", "t", "d", None);
        // Middle of both scales: x 50 + 200 / 2, y 120 - 100 / 2.
        assert!(text.contains("M50 120L150 70L250 20"), "{text}");
        assert!(text.contains("<line x1=\"50\" y1=\"70\" x2=\"250\" y2=\"70\" class=\"grid\"/>"), "{text}");
        assert!(text.contains(">5</text>") && text.contains(">10</text>"));
    }

    #[test]
    fn labels_at_the_ends_of_lines_never_touch() {
        let area = Area { left: 50.0, right: 250.0, top: 20.0, bottom: 120.0 };
        let (y, ticks) = Scale::from_zero(10.0, 2);
        let x = Scale::Linear { domain: (0.0, 4.0), range: (0.0, 1.0) };
        let mut plot =
            Plot::on(Svg::new(300.0, 160.0), area, (x, Vec::new(), ""), (y, tick_labels(&ticks), ""));
        plot.end_labels([5.0, 5.1, 5.2].map(|value| (value, value.to_string(), "s1".to_owned())).to_vec());
        let text = plot.svg.finish("p", "t", "d", None);
        let heights: Vec<f64> = text
            .split("endlabel")
            .take(3)
            .map(|part| part.rsplit(" y=\"").next().unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_HEIGHT), "{heights:?}");
    }

    #[test]
    fn labels_of_ticks_share_their_decimals() {
        let labels: Vec<_> = tick_labels(&[0.0, 0.5, 1.0]).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.0", "0.5", "1.0"]);
        let labels: Vec<_> = tick_labels(&[0.0, 20.0]).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "20"]);
    }
}
