//! Sender core against receiver core as a heat map, in machine order, with node
//! and package boundaries and the interrupt core marked (40GE report, figure 14).

use std::collections::BTreeMap;

use clearstream_schema::flow::Direction;

use crate::{
    digest::{Cell, Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::{
        effects,
        interrupt::ReaderPlace,
        order::{Boundary, Place, boundary, node_runs, sorted},
    },
    flow_trial::most_named,
    format::{core, gbps, level_of, range, rate},
    svg::{Svg, plot::Size},
};

/// Width of a digit in a cell.
const CELL_DIGIT: f64 = 6.4;
/// Steps of the heat scale; the style sheet has as many colours.
pub(crate) const HEAT_STEPS: usize = 9;

/// A pin matrix in numbers.
pub(crate) struct Matrix {
    /// Levels of the other factors; empty when there are none.
    pub(crate) label: String,
    /// The cells that it is made of.
    cells: Vec<Cell>,
    pub(crate) senders: Vec<Place>,
    pub(crate) receivers: Vec<Place>,
    /// Median goodput by (sender, receiver).
    pub(crate) medians: BTreeMap<(u32, u32), f64>,
    /// Trials behind each.
    counts: BTreeMap<(u32, u32), usize>,
    pub(crate) interrupt_core: Option<u32>,
}

impl Matrix {
    /// One matrix per combination of the other factors, such as the core that a lab steers packets to.
    pub(crate) fn all(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Self> {
        let cores = ["sender-cores", "receiver-cores"];
        let others: Vec<String> =
            experiment.varying_factors().into_iter().filter(|name| !cores.contains(&name.as_str())).collect();
        let mut groups: BTreeMap<Vec<String>, Vec<Cell>> = BTreeMap::new();
        for cell in &experiment.cells {
            let key =
                others.iter().filter_map(|name| Some(level_of(name, cell.factors.get(name)?))).collect();
            groups.entry(key).or_default().push(cell.clone());
        }
        groups
            .into_iter()
            .filter_map(|(label, cells)| Self::of(digest, experiment.direction(), label.join(", "), cells))
            .collect()
    }

    /// The medians of cells whose trials have a core on each side.
    fn of(digest: &Digest, direction: Direction, label: String, cells: Vec<Cell>) -> Option<Self> {
        let mut medians = BTreeMap::new();
        let mut counts = BTreeMap::new();
        for cell in &cells {
            if let (Some(places), Some(estimate)) = (places_of(cell), cell.goodput()) {
                medians.insert(places, estimate.median);
                counts.insert(places, estimate.count);
            }
        }
        if medians.is_empty() {
            return None;
        }
        let trials = cells.iter().flat_map(|cell| &cell.trials);
        Some(Self {
            interrupt_core: most_named(trials).map(|found| found.0),
            label,
            senders: sorted(digest.sender(direction), medians.keys().map(|key| key.0)),
            receivers: sorted(digest.receiver(direction), medians.keys().map(|key| key.1)),
            medians,
            counts,
            cells,
        })
    }

    /// Goodput by repetition of each pair of cores (sender, receiver).
    pub(crate) fn by_repetition(&self) -> BTreeMap<(u32, u32), BTreeMap<u32, f64>> {
        let placed = self.cells.iter().filter_map(|cell| Some((places_of(cell)?, cell.by_repetition())));
        placed.collect()
    }

    /// Lowest to highest of the cells with these places: the values of the matrix, not pooled.
    fn over(&self, wanted: impl Fn(u32, u32) -> bool) -> Option<String> {
        let found = || self.medians.iter().filter(|(key, _)| wanted(key.0, key.1)).map(|(_, bps)| *bps);
        let (low, high) = (found().min_by(f64::total_cmp)?, found().max_by(f64::total_cmp)?);
        Some(range(&rate(low), &rate(high)))
    }

    fn bounds(&self) -> (f64, f64) {
        self.medians.values().fold((f64::INFINITY, 0.0), |(l, h), v| (l.min(*v), h.max(*v)))
    }

    /// Class of the heat colour of a value.
    fn heat(&self, value: f64) -> String {
        heat_class(value, self.bounds())
    }
}

/// The cores that sent and read in a cell.
fn places_of(cell: &Cell) -> Option<(u32, u32)> {
    let first = cell.trials.first();
    let pinned = |factor: &str| cell.factors.get(factor).and_then(core);
    let sender = pinned("sender-cores").or(first.and_then(|trial| trial.sender_core))?;
    let receiver = pinned("receiver-cores").or(first.and_then(|trial| trial.receiver_core))?;
    Some((sender, receiver))
}

/// The step of the heat scale that a value falls into.
pub(crate) fn heat_class(value: f64, (low, high): (f64, f64)) -> String {
    let fraction = if high > low { (value - low) / (high - low) } else { 0.5 };
    let step = ((fraction * HEAT_STEPS as f64) as usize).min(HEAT_STEPS - 1);
    format!("h{step}")
}

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

fn figure(digest: &Digest, experiment: &ExperimentDigest, matrix: &Matrix, index: usize) -> Figure {
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
    if let Some((core, votes, total)) = most_named(matrix.cells.iter().flat_map(|cell| &cell.trials)) {
        notes.push(format!(
            "Core {core} took the receiver's packets in {votes} of {total} trials that show it."
        ));
    }
    let missing = matrix.senders.len() * matrix.receivers.len() - matrix.medians.len();
    if missing > 0 {
        notes.push(format!(
            "{} could not be measured (drawn as crosses).",
            crate::format::count(missing, "pair")
        ));
    }
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(matrix, digest.one_machine(), size)),
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
fn finding(matrix: &Matrix, one_machine: bool) -> String {
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
fn extremes(matrix: &Matrix) -> String {
    let best = matrix.medians.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let worst = matrix.medians.iter().min_by(|a, b| a.1.total_cmp(b.1));
    let Some(((b, high), (w, low))) = best.zip(worst) else { return String::new() };
    format!(
        "No core stood out as the interrupt core; of {}, the highest with sender {} and receiver {} ({}), the lowest with {} and {} ({}), both chosen after measuring: expect a smaller difference when repeated.",
        crate::format::count(matrix.medians.len(), "pair"),
        b.0,
        b.1,
        rate(*high),
        w.0,
        w.1,
        rate(*low),
    )
}

/// Positions of the cells: machine order with gaps at boundaries.
fn positions(places: &[Place], cell: f64, gap: f64) -> Vec<f64> {
    let mut at = 0.0;
    let mut all = Vec::with_capacity(places.len());
    for (index, place) in places.iter().enumerate() {
        if index > 0 {
            at += cell
                + match boundary(places[index - 1], *place) {
                    Some(Boundary::Package) => gap * 2.5,
                    Some(Boundary::Node) => gap,
                    None => 0.0,
                };
        }
        all.push(at);
    }
    all
}

fn draw(matrix: &Matrix, one_machine: bool, size: Size) -> Svg {
    let left = size.pick(112.0, 52.0);
    let top = 78.0;
    let most = matrix.senders.len().max(matrix.receivers.len()).max(1) as f64;
    let groups = node_runs(&matrix.senders).len() as f64;
    let room = size.width() - left - size.pick(100.0, 14.0);
    let gap = if most > 16.0 { 2.0 } else { 5.0 };
    let cell = ((room - groups * gap * 1.5) / most).clamp(3.0, size.pick(62.0, 56.0));
    let across = positions(&matrix.senders, cell, gap);
    let down = positions(&matrix.receivers, cell, gap);
    let extent = |list: &[f64]| list.last().copied().unwrap_or(0.0) + cell;
    let mut svg = Svg::new(size.width(), top + extent(&down) + 20.0);
    match size {
        Size::Wide => {
            svg.text(left, 16.0, "unit start", "sender core \u{2192}");
            svg.text(left - 12.0, top - 12.0, "unit end", "receiver core \u{2193}");
        }
        Size::Narrow => svg.text(4.0, 16.0, "unit start", "receiver core \u{2193}   sender core \u{2192}"),
    }
    headings(&mut svg, &matrix.senders, &across, cell, (left, top), true, size);
    headings(&mut svg, &matrix.receivers, &down, cell, (left, top), false, size);
    for (row, receiver) in matrix.receivers.iter().enumerate() {
        for (column, sender) in matrix.senders.iter().enumerate() {
            let (x, y) = (left + across[column], top + down[row]);
            heat_cell(&mut svg, matrix, (sender.core, receiver.core), (x, y), cell);
        }
    }
    mark_interrupt_core(&mut svg, matrix, one_machine, (left, top), (&across, &down), cell, size);
    svg
}

fn heat_cell(svg: &mut Svg, matrix: &Matrix, pair: (u32, u32), (x, y): (f64, f64), cell: f64) {
    let inset = if cell > 14.0 { 1.0 } else { 0.0 };
    let side = cell - inset;
    match matrix.medians.get(&pair) {
        Some(value) => {
            let tip = format!("sender {}, receiver {}: {}", pair.0, pair.1, rate(*value));
            let class = matrix.heat(*value);
            svg.tipped(&tip, |svg| {
                svg.rounded(x, y, side, side, if cell > 20.0 { 3.0 } else { 0.0 }, &class);
                let text = gbps(*value);
                if cell >= 27.0 && CELL_DIGIT * text.len() as f64 <= side {
                    let middle = (x + side / 2.0, y + side / 2.0 + 4.0);
                    svg.text(middle.0, middle.1, &format!("cell middle {class}"), &text);
                }
            });
        }
        None => {
            svg.line((x + 2.0, y + 2.0), (x + side - 2.0, y + side - 2.0), "absent");
            svg.line((x + 2.0, y + side - 2.0), (x + side - 2.0, y + 2.0), "absent");
        }
    }
}

/// Core numbers next to the cells and node names next to the numbers.
fn headings(
    svg: &mut Svg,
    places: &[Place],
    at: &[f64],
    cell: f64,
    (left, top): (f64, f64),
    across: bool,
    size: Size,
) {
    let stride = (15.0 / cell).ceil().max(1.0) as usize;
    for (index, place) in places.iter().enumerate() {
        if index % stride != 0 {
            continue;
        }
        let middle = at[index] + cell / 2.0;
        if across {
            svg.text(left + middle, top - 8.0, "tick middle", &place.core.to_string());
        } else {
            svg.text(left - 8.0, top + middle + 4.0, "tick end", &place.core.to_string());
        }
    }
    let runs = node_runs(places);
    if runs.len() < 2 {
        return;
    }
    for (first, length, place) in runs {
        let from = at[first];
        let to = at[first + length - 1] + cell;
        let long = to - from > 44.0;
        let name =
            if long { place.group_name() } else { place.node.map_or_else(String::new, |n| n.to_string()) };
        if across {
            svg.line((left + from, top - 24.0), (left + to - 1.0, top - 24.0), "bracket");
            svg.text(left + (from + to) / 2.0, top - 30.0, "group middle", &name);
        } else {
            let x = left - size.pick(34.0, 26.0);
            svg.line((x, top + from), (x, top + to - 1.0), "bracket");
            let (text_x, class) = (x - 7.0, "group middle");
            svg.text_upwards(text_x, top + (from + to) / 2.0, class, &name);
        }
    }
}

fn mark_interrupt_core(
    svg: &mut Svg,
    matrix: &Matrix,
    one_machine: bool,
    (left, top): (f64, f64),
    (across, down): (&[f64], &[f64]),
    cell: f64,
    size: Size,
) {
    let Some(core) = matrix.interrupt_core else { return };
    let width = across.last().copied().unwrap_or(0.0) + cell;
    let height = down.last().copied().unwrap_or(0.0) + cell;
    if one_machine && let Some(column) = matrix.senders.iter().position(|p| p.core == core) {
        svg.rounded(
            left + across[column] - 1.5,
            top - 1.5,
            cell + 2.0,
            height + 2.0,
            4.0,
            "irq-outline thin",
        );
    }
    if let Some(row) = matrix.receivers.iter().position(|p| p.core == core) {
        let y = top + down[row];
        svg.rounded(left - 2.5, y - 2.5, width + 4.0, cell + 4.0, 5.0, "irq-outline");
        if size == Size::Wide {
            svg.text(left + width + 10.0, y + cell / 2.0, "irq-text start", "interrupt");
            svg.text(left + width + 10.0, y + cell / 2.0 + 13.0, "irq-text start", &format!("core {core}"));
        }
    }
}

fn table(matrix: &Matrix) -> Table {
    let titles: Vec<String> = std::iter::once("Receiver core".to_owned())
        .chain(matrix.senders.iter().map(|sender| format!("#sender {}, Gb/s", sender.core)))
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let trials: usize = matrix.counts.values().sum();
    let mut table = Table::new(format!("Median goodput, {}", crate::format::count(trials, "trial")), &titles);
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
