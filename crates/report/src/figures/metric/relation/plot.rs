//! A row per cell with the published and the measured ratio on one logarithmic axis.

use super::rows::{Row, Rows};
use crate::{
    format::significant,
    svg::{
        Svg,
        plot::{Area, Plot, Size, Tick, fitted, text_width},
        scale::Scale,
    },
};

const HEADING_HEIGHT: f64 = 24.0;

pub(super) fn draw(all: &[Rows<'_>], title: &str, size: Size) -> Svg {
    let row_height = size.pick(22.0, 34.0);
    let count: usize = all.iter().map(|rows| rows.rows.len()).sum();
    let height = 34.0 + row_height * count as f64 + HEADING_HEIGHT * all.len() as f64 + 44.0;
    let svg = Svg::new(size.width(), height);
    let labels = all.iter().flat_map(|rows| &rows.rows).map(|row| text_width(&row.label));
    let area = Area {
        left: size.pick((labels.fold(0.0, f64::max) + 20.0).clamp(90.0, 280.0), 12.0),
        right: svg.width - size.pick(150.0, 14.0),
        top: 24.0,
        bottom: svg.height - 44.0,
    };
    let (x, ticks) = axis(all, size.pick(9, 5));
    let positions: Vec<f64> = ticks.iter().map(|(at, _)| *at).collect();
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, ticks, title), (y, Vec::new(), ""));
    let mut stretches = Vec::new();
    let mut top = area.top;
    for rows in all {
        top += HEADING_HEIGHT;
        let label = size.pick(0.0, 15.0);
        stretches.extend((0..rows.rows.len()).map(|row| {
            let from = top + row_height * row as f64;
            (from + label, from + row_height)
        }));
        top += row_height * rows.rows.len() as f64;
    }
    for at in positions.into_iter().filter(|at| (*at - 1.0).abs() > 1e-9) {
        plot.upright(at, "grid", &stretches);
    }
    plot.upright(1.0, "axis", &stretches);
    let (at, anchor) = size.pick((area.right + 10.0, "start"), (area.right, "end"));
    plot.svg.text(at, area.top + 6.0, &format!("unit {anchor}"), "published | ours");
    let mut top = area.top;
    for rows in all {
        let heading = heading(rows);
        plot.svg.text(4.0, top + 16.0, "panel halo start", &heading);
        top += HEADING_HEIGHT;
        for row in &rows.rows {
            draw_row(&mut plot, (&heading, row), (top, row_height), size);
            top += row_height;
        }
    }
    plot.svg
}

/// The metric, with `*` where ours may have come from a cache.
pub(super) fn heading(rows: &Rows<'_>) -> String {
    let name = crate::format::sentence_case(&rows.metric.name.replace('-', " "));
    if rows.is_cached { format!("{name}*") } else { name }
}

fn draw_row(plot: &mut Plot, (metric, row): (&str, &Row), (top, height): (f64, f64), size: Size) {
    let middle = top + height * size.pick(0.5, 0.7);
    let values = values(row);
    match size {
        Size::Wide => {
            let label = fitted(&row.label, plot.area.left - 12.0);
            plot.svg.text(plot.area.left - 12.0, middle + 4.0, "tick end", &label);
            plot.svg.text(plot.area.right + 10.0, middle + 4.0, "tick start", &values);
        }
        Size::Narrow => {
            let room = plot.svg.width - 34.0 - text_width(&values);
            plot.svg.text(plot.area.left, middle - 11.0, "tick halo start", &fitted(&row.label, room));
            plot.svg.text(plot.area.right, middle - 11.0, "tick halo end", &values);
        }
    }
    if let Some(ours) = &row.ours {
        let class = if ours.ratio.is_95() { "s0" } else { "few" };
        let [low, at, high] =
            [ours.ratio.low, ours.ratio.value, ours.ratio.high].map(|ratio| plot.x.at(ratio));
        let tip = format!("{metric}, {}: ours {} = {}", row.label, ours.values, ours.text());
        plot.svg.tipped(&tip, |svg| {
            svg.rounded(low, middle - 3.0, (high - low).max(1.0), 6.0, 3.0, &format!("interval {class}"));
            svg.circle(at, middle, 4.5, "dot s0");
            svg.circle(at, middle, 12.0, "readout");
        });
    }
    if let Some(theirs) = &row.theirs {
        let at = plot.x.at(theirs.ratio);
        let (ratio, sources) = (significant(theirs.ratio), theirs.sources.join(", "));
        let tip = format!("{metric}, {}: published {} = {ratio} ({sources})", row.label, theirs.values);
        plot.svg.tipped(&tip, |svg| svg.circle(at, middle, 6.0, "theirs-dot"));
    }
}

/// `41.2 | 4.20`: published, ours.
fn values(row: &Row) -> String {
    let theirs = row.theirs.as_ref().map_or("\u{2013}".to_owned(), |theirs| significant(theirs.ratio));
    let ours = row.ours.as_ref().map_or("\u{2013}".to_owned(), |ours| significant(ours.ratio.value));
    format!("{theirs} | {ours}")
}

/// From the lowest to the highest ratio and one, with ticks at 1, 2 and 5 of each power of ten.
fn axis(all: &[Rows<'_>], most: usize) -> (Scale, Vec<Tick>) {
    let rows = || all.iter().flat_map(|rows| &rows.rows);
    let theirs = rows().filter_map(|row| row.theirs.as_ref()).map(|theirs| theirs.ratio);
    let ours = rows().filter_map(|row| row.ours.as_ref()).flat_map(|one| [one.ratio.low, one.ratio.high]);
    let (low, high) = theirs.chain(ours).fold((0.8, 1.25), |(l, h): (f64, f64), x| (l.min(x), h.max(x)));
    let (low, high) = (low / 1.15, high * 1.15);
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let at = |steps: &[f64]| -> Vec<f64> {
        let all = powers.clone().flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|at| (low..=high).contains(at)).collect()
    };
    let fine = at(&[1.0, 2.0, 5.0]);
    let chosen = if fine.len() > most { at(&[1.0]) } else { fine };
    let ticks = chosen.into_iter().map(|at| (at, format!("{}", (at * 1e6).round() / 1e6))).collect();
    (Scale::Logarithmic { domain: (low, high), range: (0.0, 1.0) }, ticks)
}
