//! A small SVG writer: the only place that writes markup of figures. Texts
//! are always escaped; coordinates are rounded to a hundredth of a unit.

pub(crate) mod plot;
pub(crate) mod scale;

use std::fmt::Write;

/// Escapes text for element content and for attributes in double quotes.
/// Control characters that XML 1.0 forbids (section 2.2) become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate without needless digits: `12.5`, `3`, never `-0`.
pub(crate) fn coordinate(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" || text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

/// A drawing under construction. Classes come from this crate, texts from anywhere.
pub(crate) struct Svg {
    /// Width of the drawing area.
    pub(crate) width: f64,
    /// Height of the drawing area.
    pub(crate) height: f64,
    body: String,
}

impl Svg {
    /// An empty drawing.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn push(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(args);
    }

    /// A rectangle.
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.rounded(x, y, width, height, 0.0, class);
    }

    /// A rectangle with round corners.
    pub(crate) fn rounded(&mut self, x: f64, y: f64, width: f64, height: f64, radius: f64, class: &str) {
        let [x, y, w, h] = [x, y, width.max(0.0), height.max(0.0)].map(coordinate);
        let radius = if radius > 0.0 { format!(" rx=\"{}\"", coordinate(radius)) } else { String::new() };
        self.push(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{radius} class=\"{class}\"/>"
        ));
    }

    /// A straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
        self.push(format_args!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" class=\"{class}\"/>"));
    }

    /// A line through points.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            path.push(if index == 0 { 'M' } else { 'L' });
            path.push_str(&coordinate(*x));
            path.push(' ');
            path.push_str(&coordinate(*y));
        }
        if !path.is_empty() {
            self.push(format_args!("<path d=\"{path}\" class=\"{class}\"/>"));
        }
    }

    /// A circle.
    pub(crate) fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        let [x, y, r] = [x, y, radius].map(coordinate);
        self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" class=\"{class}\"/>"));
    }

    /// A line of text; `class` carries the anchor (`start`, `middle`, `end`).
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let [x, y] = [x, y].map(coordinate);
        let text = escape(text);
        self.push(format_args!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{text}</text>"));
    }

    /// A line of text that reads upwards.
    pub(crate) fn text_upwards(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let [x, y] = [x, y].map(coordinate);
        let text = escape(text);
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\" class=\"{class}\" transform=\"rotate(-90 {x} {y})\">{text}</text>"
        ));
    }

    /// Marks drawn by `draw` show `tip` when pointed at.
    pub(crate) fn tipped(&mut self, tip: &str, draw: impl FnOnce(&mut Self)) {
        let tip = escape(tip);
        self.push(format_args!("<g data-tip=\"{tip}\">"));
        draw(self);
        self.body.push_str("</g>");
    }

    /// The same drawing with a margin all round and room for a heading above.
    pub(crate) fn framed(self, margin: f64, heading: f64) -> Self {
        let [x, y] = [margin, margin + heading].map(coordinate);
        Self {
            width: self.width + 2.0 * margin,
            height: self.height + 2.0 * margin + heading,
            body: format!("<g transform=\"translate({x} {y})\">{}</g>", self.body),
        }
    }

    /// The drawing as an image with a name and a description for screen readers.
    /// `id` must be unique in the page.
    pub(crate) fn finish(self, id: &str, title: &str, description: &str, style: Option<&str>) -> String {
        let [width, height] = [self.width, self.height].map(coordinate);
        let (id, title, description) = (escape(id), escape(title), escape(description));
        let style = style.map(|css| format!("<style>{css}</style>")).unwrap_or_default();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\
             <title id=\"{id}-title\">{title}</title><desc id=\"{id}-desc\">{description}</desc>{style}{}</svg>",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(1.0, 2.0, "t", "</text><script>alert('1')</script>");
        svg.tipped("\" onload=\"x", |svg| svg.rect(0.0, 0.0, 1.0, 1.0, "b"));
        let text = svg.finish("i", "</title><script>", "a & b\u{0}", None);
        assert!(!text.contains("<script>"));
        assert!(text.contains("data-tip=\"&quot; onload=&quot;x\""));
        assert!(text.contains("a &amp; b\u{fffd}"));
    }

    #[test]
    fn coordinates_are_short_and_finite() {
        assert_eq!(coordinate(12.500001), "12.5");
        assert_eq!(coordinate(-0.001), "0");
        assert_eq!(coordinate(100.0), "100");
        assert_eq!(coordinate(f64::INFINITY), "0");
    }
}
