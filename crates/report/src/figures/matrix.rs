//! Sender core against receiver core as a heat map, in machine order, with node
//! and package boundaries and the interrupt core marked (40GE report, figure 14).

use std::collections::BTreeMap;

use clearstream_schema::flow::Direction;

use crate::{
    digest::{Cell, Digest, ExperimentDigest, most_named},
    estimate::median,
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    figures::order::{Boundary, Place, boundary, node_runs, sorted},
    format::{core, gbps, level_of, rate, signed_percent},
    svg::{Svg, plot::Size},
};

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

/// What the reader's place does, as ratios of medians.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InterruptEffect {
    pub(crate) interrupt_core: u32,
    /// Median over senders with the reader on the interrupt core.
    pub(crate) on_core_bps: f64,
    /// Best other reader on the interrupt core's node (else package, else machine).
    pub(crate) best_neighbour: (u32, f64),
    /// `on_core / best_neighbour - 1`.
    pub(crate) on_core_ratio: f64,
    /// Readers on the interrupt core's package, itself left out, over readers
    /// elsewhere, minus 1; absent with one package.
    pub(crate) same_package_ratio: Option<f64>,
    /// Largest over smallest median over receivers, minus 1, by sender.
    pub(crate) sender_spread_ratio: f64,
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
            let first = cell.trials.first();
            let sender =
                cell.factors.get("sender-cores").and_then(core).or(first.and_then(|t| t.sender_core));
            if let (Some(sender), Some(receiver), Some(estimate)) =
                (sender, receiver_of(cell), cell.goodput())
            {
                medians.insert((sender, receiver), estimate.median);
                counts.insert((sender, receiver), estimate.count);
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

    /// Goodput of every trial that read on a core.
    pub(crate) fn read_on(&self, receiver: u32) -> Vec<f64> {
        let here = self.cells.iter().filter(|cell| receiver_of(cell) == Some(receiver));
        here.flat_map(Cell::values).collect()
    }

    fn over_senders(&self, receiver: u32) -> Option<f64> {
        let values: Vec<f64> =
            self.medians.iter().filter(|(key, _)| key.1 == receiver).map(|(_, v)| *v).collect();
        median(&values)
    }

    fn over_receivers(&self, sender: u32) -> Option<f64> {
        let values: Vec<f64> =
            self.medians.iter().filter(|(key, _)| key.0 == sender).map(|(_, v)| *v).collect();
        median(&values)
    }

    /// The effect of the interrupt core, when it is known and was read on.
    pub(crate) fn effect(&self) -> Option<InterruptEffect> {
        let interrupt_core = self.interrupt_core?;
        let home = self.receivers.iter().find(|place| place.core == interrupt_core)?;
        let on_core_bps = self.over_senders(interrupt_core)?;
        let others: Vec<(&Place, f64)> = self
            .receivers
            .iter()
            .filter(|place| place.core != interrupt_core)
            .filter_map(|place| Some((place, self.over_senders(place.core)?)))
            .collect();
        let nearest = [
            others.iter().filter(|(p, _)| p.node.is_some() && p.node == home.node).collect::<Vec<_>>(),
            others.iter().filter(|(p, _)| p.package == home.package).collect(),
            others.iter().collect(),
        ];
        let neighbours = nearest.into_iter().find(|list| !list.is_empty())?;
        let (place, best) = neighbours.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let on_package = |inside: bool| {
            let values: Vec<f64> =
                others.iter().filter(|(p, _)| (p.package == home.package) == inside).map(|o| o.1).collect();
            median(&values)
        };
        let senders: Vec<f64> =
            self.senders.iter().filter_map(|place| self.over_receivers(place.core)).collect();
        let highest = senders.iter().copied().fold(f64::MIN, f64::max);
        let lowest = senders.iter().copied().fold(f64::MAX, f64::min);
        Some(InterruptEffect {
            interrupt_core,
            on_core_bps,
            best_neighbour: (place.core, *best),
            on_core_ratio: on_core_bps / best - 1.0,
            same_package_ratio: on_package(true).zip(on_package(false)).map(|(near, far)| near / far - 1.0),
            sender_spread_ratio: highest / lowest - 1.0,
        })
    }

    fn bounds(&self) -> (f64, f64) {
        self.medians.values().fold((f64::INFINITY, 0.0), |(l, h), v| (l.min(*v), h.max(*v)))
    }

    /// Class of the heat colour of a value.
    fn heat(&self, value: f64) -> String {
        heat_class(value, self.bounds())
    }
}

/// The core that read in a cell.
fn receiver_of(cell: &Cell) -> Option<u32> {
    let pinned = cell.factors.get("receiver-cores").and_then(core);
    pinned.or_else(|| cell.trials.first().and_then(|trial| trial.receiver_core))
}

/// The step of the heat scale that a value falls into.
pub(crate) fn heat_class(value: f64, (low, high): (f64, f64)) -> String {
    let share = if high > low { (value - low) / (high - low) } else { 0.5 };
    let step = ((share * HEAT_STEPS as f64) as usize).min(HEAT_STEPS - 1);
    format!("h{step}")
}

/// Heat maps, one per combination of the other factors; none when no cell has a core on each side.
pub(crate) fn figures(digest: &Digest, experiment: &ExperimentDigest) -> Vec<Figure> {
    let all = Matrix::all(digest, experiment);
    all.iter().enumerate().map(|(index, matrix)| figure(digest, experiment, matrix, index)).collect()
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
    let finding = finding(matrix);
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
        notes
            .push(format!("Core {core} took the receiver's packets in {votes} of {total} trials that tell."));
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

fn finding(matrix: &Matrix) -> String {
    match matrix.effect() {
        Some(effect) => {
            let mut text = format!(
                "Reader on the interrupt core ({}): {} against the best neighbour, core {} ({} and {})",
                effect.interrupt_core,
                signed_percent(effect.on_core_ratio),
                effect.best_neighbour.0,
                rate(effect.on_core_bps),
                rate(effect.best_neighbour.1),
            );
            if let Some(ratio) = effect.same_package_ratio {
                text.push_str(&format!(
                    "; other readers on its package: {} against those elsewhere",
                    signed_percent(ratio)
                ));
            }
            text.push_str(&format!(
                "; the sender's place moves it by {} at most.",
                crate::format::percent(effect.sender_spread_ratio)
            ));
            text
        }
        None => {
            let best = matrix.medians.iter().max_by(|a, b| a.1.total_cmp(b.1));
            let worst = matrix.medians.iter().min_by(|a, b| a.1.total_cmp(b.1));
            match best.zip(worst) {
                Some(((b, high), (w, low))) => format!(
                    "Best with sender {} and receiver {} ({}), worst with {} and {} ({}, {}); no core stood out as the interrupt core.",
                    b.0,
                    b.1,
                    rate(*high),
                    w.0,
                    w.1,
                    rate(*low),
                    signed_percent(low / high - 1.0)
                ),
                None => String::new(),
            }
        }
    }
}

/// Where cells are: machine order with gaps at boundaries.
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
                if cell >= 27.0 {
                    let middle = (x + side / 2.0, y + side / 2.0 + 4.0);
                    svg.text(middle.0, middle.1, &format!("cell middle {class}"), &gbps(*value));
                }
            });
        }
        None => {
            svg.line((x + 2.0, y + 2.0), (x + side - 2.0, y + side - 2.0), "absent");
            svg.line((x + 2.0, y + side - 2.0), (x + side - 2.0, y + 2.0), "absent");
        }
    }
}

/// Core numbers beside the cells and node names beside the numbers.
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
        .chain(matrix.senders.iter().map(|sender| format!("#sender {}", sender.core)))
        .collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let trials: usize = matrix.counts.values().sum();
    let mut table =
        Table::new(format!("Median goodput in Gb/s, {}", crate::format::count(trials, "trial")), &titles);
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
