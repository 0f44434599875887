//! Where threads run: sender core against receiver core as a heat map, in machine order, with node
//! and package boundaries and the interrupt core marked (40GE report, figure 14), and what a place changes.

mod matrix;
mod reader;
pub(crate) mod row;

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::{
        effects,
        heat::{Group, HeatCell, HeatMap},
    },
    format::{count, gbps, rate},
    places::{Boundary, Place, boundary, node_runs},
};
use matrix::Matrix;
pub(crate) use reader::ReaderPlace;

/// Gap before the cores of another package, where that before another node is one.
const PACKAGE_GAP: f64 = 2.5;

/// Heat maps, one per combination of the other factors; none when no cell has a core on each side.
pub(crate) fn figures(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Figure> {
    let all = Matrix::all(digest, experiment);
    let mut figures: Vec<Figure> =
        all.iter().enumerate().map(|(index, matrix)| figure(digest, experiment, matrix, index)).collect();
    let place = ReaderPlace::of(digest, experiment);
    let has_text = experiment.spec.published.iter().any(|published| published_range(published).is_none());
    if let (Some(first), true) =
        (figures.first_mut(), has_text && (place.on_core.is_none() || !place.other_packages))
    {
        first.notes.push("The published effects are between packages, with the sender on a machine of its own: no measurement here is comparable with them.".to_owned());
    }
    figures.extend(effects::of(experiment, &place.contrasts()));
    figures
}

fn figure(digest: &Digest, experiment: &ExperimentDigest, matrix: &Matrix<'_>, index: usize) -> Figure {
    let mut id = identifier(&[&experiment.spec.name, "matrix"]);
    let mut title = format!("{}: goodput by sender and receiver core", experiment.spec.title);
    if index > 0 {
        id.push_str(&format!("-{}", index + 1));
    }
    if !matrix.label.is_empty() {
        title.push_str(&format!(" ({})", matrix.label));
    }
    let finding = finding(matrix, digest.one_machine());
    let (low, high) = matrix.bounds();
    let mut legend = vec![LegendItem::new("heat", format!("{} to {}", rate(low), rate(high)))];
    if matrix.interrupt_core.is_some() {
        legend.push(LegendItem::new("irq", "row of the interrupt core (it takes the receiver's packets)"));
        if digest.one_machine() {
            legend.push(LegendItem::new("irq thin", "column of the same core: both ends share this machine"));
        }
    }
    let mut notes = Vec::new();
    if let Some((core, votes, total)) = matrix.named {
        notes.push(format!(
            "Core {core} took the receiver's packets in {votes} of {total} trials that show it."
        ));
    }
    let missing = matrix.senders.len() * matrix.receivers.len() - matrix.medians.len();
    if missing > 0 {
        notes.push(format!("{} could not be measured (drawn as crosses).", count(missing, "pair")));
    }
    let map = heat_map(matrix, digest.one_machine());
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| map.draw(size)),
        notes,
        legend,
        table: table(matrix),
        published: if index == 0 { experiment.spec.published.clone() } else { Vec::new() },
        id,
        title,
        finding,
    }
}

/// Goodput by kind of place. The effect of a place is estimated in
/// pairs, in the figure of effects.
fn finding(matrix: &Matrix<'_>, one_machine: bool) -> String {
    let apart = |sender: u32, receiver: u32| !one_machine || sender != receiver;
    let home = matrix.interrupt_core.and_then(|core| matrix.receivers.iter().find(|p| p.core == core));
    let Some(home) = home else { return extremes(matrix) };
    let place = |core: u32| matrix.receivers.iter().find(|place| place.core == core);
    let near = |core: u32| place(core).is_some_and(|p| p.package == home.package && p.core != home.core);
    let far = |core: u32| place(core).is_some_and(|p| p.package != home.package);
    let clear = |sender: u32, receiver: u32| apart(sender, receiver) && (!one_machine || sender != home.core);
    let kinds = [
        (format!("on the interrupt core ({})", home.core), matrix.over(|s, r| clear(s, r) && r == home.core)),
        ("by other cores of its package".to_owned(), matrix.over(|s, r| clear(s, r) && near(r))),
        ("by other packages".to_owned(), matrix.over(|s, r| clear(s, r) && far(r))),
        ("with sender and reader on one core".to_owned(), matrix.over(|s, r| !apart(s, r))),
    ];
    let mut parts: Vec<String> =
        kinds.into_iter().filter_map(|(name, goodput)| Some(format!("{} {name}", goodput?))).collect();
    let shared = matrix.over(|s, r| one_machine && apart(s, r) && s == home.core);
    parts.extend(
        shared.map(|goodput| {
            format!("{goodput} with the sender on the interrupt core and the reader on another")
        }),
    );
    format!("Read {}.", parts.join(", "))
}

/// Highest and lowest pair, called what they are.
fn extremes(matrix: &Matrix<'_>) -> String {
    let best = matrix.medians.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let worst = matrix.medians.iter().min_by(|a, b| a.1.total_cmp(b.1));
    let Some(((b, high), (w, low))) = best.zip(worst) else { return String::new() };
    format!(
        "No core stood out as the interrupt core; of {}, the highest with sender {} and receiver {} ({}), the lowest with {} and {} ({}), both chosen after measuring: expect a smaller difference when repeated.",
        count(matrix.medians.len(), "pair"),
        b.0,
        b.1,
        rate(*high),
        w.0,
        w.1,
        rate(*low),
    )
}

fn heat_map(matrix: &Matrix<'_>, one_machine: bool) -> HeatMap {
    let numbers = |places: &[Place]| places.iter().map(|place| place.core.to_string()).collect();
    let place_of = |places: &[Place], core: u32| places.iter().position(|place| place.core == core);
    let cell = |(&(sender, receiver), &bps): (&(u32, u32), &f64)| {
        let tip = format!("sender {sender}, receiver {receiver}: {}", rate(bps));
        let place = (place_of(&matrix.receivers, receiver)?, place_of(&matrix.senders, sender)?);
        Some((place, HeatCell { value: bps, text: gbps(bps), tip }))
    };
    let interrupt = matrix.interrupt_core;
    let beside = |core| ["interrupt".to_owned(), format!("core {core}")];
    HeatMap {
        title: "goodput, Gb/s".to_owned(),
        axes: "receiver core \u{2193}   sender core \u{2192}".to_owned(),
        rows: numbers(&matrix.receivers),
        columns: numbers(&matrix.senders),
        cells: matrix.medians.iter().filter_map(cell).collect(),
        has_empty_diagonal: false,
        row_groups: groups(&matrix.receivers),
        column_groups: groups(&matrix.senders),
        outlined_row: interrupt.and_then(|core| Some((place_of(&matrix.receivers, core)?, beside(core)))),
        outlined_column: interrupt.filter(|_| one_machine).and_then(|core| place_of(&matrix.senders, core)),
    }
}

/// Cores by node, those of another package further away.
fn groups(places: &[Place]) -> Vec<Group> {
    let mut before: Option<Place> = None;
    let group = |(_, length, place): (usize, usize, Place)| {
        let gap = match before.and_then(|before| boundary(before, place)) {
            Some(Boundary::Package) => PACKAGE_GAP,
            _ => 1.0,
        };
        before = Some(place);
        let short = place.node.map_or_else(String::new, |node| node.to_string());
        Group { length, name: place.group_name(), short, gap }
    };
    node_runs(places).into_iter().map(group).collect()
}

fn table(matrix: &Matrix<'_>) -> Table {
    let titles: Vec<String> = std::iter::once("Receiver core".to_owned())
        .chain(matrix.senders.iter().map(|sender| format!("#sender {}, Gb/s", sender.core)))
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let trials: usize = matrix.counts.values().sum();
    let mut table = Table::new(format!("Median goodput, {}", count(trials, "trial")), &titles);
    for receiver in &matrix.receivers {
        let marked = matrix.interrupt_core == Some(receiver.core);
        let name = format!(
            "{} ({}){}",
            receiver.core,
            receiver.group_name(),
            if marked { ", interrupt core" } else { "" }
        );
        let values = matrix.senders.iter().map(|sender| {
            matrix
                .medians
                .get(&(sender.core, receiver.core))
                .map_or_else(|| "\u{2013}".to_owned(), |value| gbps(*value))
        });
        table.push(std::iter::once(name).chain(values).collect());
    }
    table
}
