//! Boxes in boxes: package, node, core; and the NICs under their node.

use std::collections::BTreeMap;

use clearstream_schema::host::{HostReport, Nic, ProcessingUnit};

use super::Marks;
use crate::{
    format::{bytes, rate},
    places::place,
    svg::{
        Svg,
        plot::{Size, fitted},
    },
};

const CORE_WIDTH: f64 = 27.0;
const CORE_HEIGHT: f64 = 24.0;
const PAD: f64 = 10.0;
const NODE_HEAD: f64 = 24.0;
const NODE_FOOT: f64 = 20.0;
const PACKAGE_HEAD: f64 = 26.0;
const NIC_WIDTH: f64 = 206.0;
const NIC_HEIGHT: f64 = 44.0;
const NIC_DROP: f64 = 22.0;
const BETWEEN: f64 = 18.0;

/// A node (or its substitute) with its place inside its group.
pub(super) struct NodeBox {
    title: String,
    detail: String,
    foot: String,
    node: Option<u32>,
    units: Vec<u32>,
    columns: usize,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// A package, or the machine where packages are not known.
pub(super) struct Group {
    title: String,
    nodes: Vec<NodeBox>,
    nics: Vec<usize>,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Positions of all boxes.
pub(super) struct Layout {
    groups: Vec<Group>,
    loose: Vec<usize>,
    virtual_names: Vec<String>,
    pub(super) width: f64,
    pub(super) height: f64,
    body_height: f64,
}

/// Hops from each node to the nearest node with a NIC in a slot, and the names of those NICs.
pub(super) fn hops_by_node(host: &HostReport) -> Option<(String, BTreeMap<u32, u32>)> {
    let nics: Vec<&Nic> = host
        .nics
        .iter()
        .filter(|nic| nic.pci_address.is_some() && nic.node.is_some() && nic.hops.len() == host.nodes.len())
        .collect();
    if nics.is_empty() || host.nodes.len() < 2 {
        return None;
    }
    let nearest = |index: usize| nics.iter().map(|nic| nic.hops[index]).min().unwrap_or(0);
    let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let hops = host.nodes.iter().enumerate().map(|(index, node)| (node.node, nearest(index))).collect();
    Some((names.join(" or "), hops))
}

/// Cores to ring: the flows' interrupt core where known, else the cores that
/// NIC interrupts go to, unless these are most of the machine.
pub(super) fn interrupt_cores(host: &HostReport, marks: Marks) -> Vec<u32> {
    if let Some(core) = marks.interrupt_core {
        return vec![core];
    }
    let mine = |nic: &Nic| nic.pci_address.is_some();
    let numbers: Vec<u32> =
        host.nics.iter().filter(|nic| mine(nic)).flat_map(|nic| nic.interrupts.clone()).collect();
    let mut cores: Vec<u32> = host
        .interrupts
        .iter()
        .filter(|interrupt| numbers.contains(&interrupt.interrupt))
        .flat_map(|interrupt| interrupt.effective_cores.clone())
        .collect();
    cores.sort_unstable();
    cores.dedup();
    if cores.len() * 2 > host.processing_units.len() { Vec::new() } else { cores }
}

impl Layout {
    /// Places all boxes for a page width.
    pub(super) fn of(host: &HostReport, size: Size) -> Self {
        let mut groups = groups(host);
        let slots: Vec<usize> =
            (0..host.nics.len()).filter(|index| host.nics[*index].pci_address.is_some()).collect();
        let mut loose = Vec::new();
        for index in slots {
            let node = host.nics[index].node;
            match groups.iter_mut().find(|g| node.is_some() && g.nodes.iter().any(|n| n.node == node)) {
                Some(group) => group.nics.push(index),
                None => loose.push(index),
            }
        }
        for group in &mut groups {
            group.arrange(size);
        }
        let limit = size.width() - 2.0;
        let (mut x, mut y, mut row_height, mut width) = (1.0, 1.0, 0.0f64, 0.0f64);
        for group in &mut groups {
            let drop = if group.nics.is_empty() { 0.0 } else { NIC_DROP + NIC_HEIGHT };
            if x > 1.0 && x + group.width > limit {
                x = 1.0;
                y += row_height + BETWEEN;
                row_height = 0.0;
            }
            (group.x, group.y) = (x, y);
            x += group.width + BETWEEN;
            width = width.max(x - BETWEEN);
            row_height = row_height.max(group.height + drop);
        }
        let body_height = y + row_height;
        let virtual_names: Vec<String> =
            host.nics.iter().filter(|nic| nic.pci_address.is_none()).map(|nic| nic.name.clone()).collect();
        let mut height = body_height;
        if !loose.is_empty() {
            height += BETWEEN + 18.0 + NIC_HEIGHT;
            width = width.max(loose.len() as f64 * (NIC_WIDTH + 12.0));
        }
        if !virtual_names.is_empty() {
            height += 26.0;
        }
        Self {
            groups,
            loose,
            virtual_names,
            width: width.min(limit).max(NIC_WIDTH + 4.0) + 2.0,
            height,
            body_height,
        }
    }

    /// Draws all boxes at the upper left corner.
    pub(super) fn draw(&self, svg: &mut Svg, host: &HostReport, marks: Marks) {
        let hops = hops_by_node(host).map(|found| found.1);
        let interrupt = interrupt_cores(host, marks);
        for group in &self.groups {
            svg.rounded(group.x, group.y, group.width, group.height, 10.0, "package");
            svg.text(group.x + PAD, group.y + 17.0, "package-name start", &group.title);
            for node in &group.nodes {
                node.draw(svg, host, (group.x, group.y), hops.as_ref(), &interrupt);
            }
            for (slot, index) in group.nics.iter().enumerate() {
                group.draw_nic(svg, host, *index, slot);
            }
        }
        let mut y = self.body_height + BETWEEN;
        if !self.loose.is_empty() {
            svg.text(2.0, y + 10.0, "note start", "NUMA node unknown (firmware reports -1)");
            for (slot, index) in self.loose.iter().enumerate() {
                nic_box(svg, host, *index, (2.0 + slot as f64 * (NIC_WIDTH + 12.0), y + 18.0), "nic loose");
            }
            y += 18.0 + NIC_HEIGHT + BETWEEN;
        }
        if !self.virtual_names.is_empty() {
            let text = format!("virtual interfaces: {}", self.virtual_names.join(", "));
            svg.text(2.0, y + 4.0, "note start", &fitted(&text, svg.width));
        }
    }
}

impl Group {
    fn new(title: String, nodes: Vec<NodeBox>) -> Self {
        Self { title, nodes, nics: Vec::new(), x: 0.0, y: 0.0, width: 0.0, height: 0.0 }
    }

    /// Puts the nodes side by side, in rows when they do not fit.
    fn arrange(&mut self, size: Size) {
        let limit = size.pick((size.width() - BETWEEN - 2.0) / 2.0, size.width() - 2.0) - 2.0 * PAD;
        let (mut x, mut y, mut row, mut widest) = (0.0, 0.0, 0.0f64, 0.0f64);
        for node in &mut self.nodes {
            node.columns = columns(node.units.len(), limit, size);
            let rows = node.units.len().div_ceil(node.columns.max(1));
            let title = 7.2 * (node.title.chars().count() + node.detail.chars().count() + 3) as f64;
            node.width = (node.columns as f64 * CORE_WIDTH).max(title).max(96.0) + 2.0 * PAD;
            let foot = if node.foot.is_empty() { 6.0 } else { NODE_FOOT };
            node.height = NODE_HEAD + rows as f64 * CORE_HEIGHT + foot + 4.0;
            if x > 0.0 && x + node.width > limit {
                x = 0.0;
                y += row + PAD;
                row = 0.0;
            }
            (node.x, node.y) = (PAD + x, PACKAGE_HEAD + y);
            x += node.width + PAD;
            widest = widest.max(x - PAD);
            row = row.max(node.height);
        }
        let nics = self.nics.len() as f64 * (NIC_WIDTH + 8.0) - 8.0;
        let inner = widest.max(7.5 * self.title.chars().count() as f64).max(nics.min(limit));
        if y == 0.0 {
            // One row of nodes fills its package.
            let extra = (inner - widest).max(0.0) / self.nodes.len().max(1) as f64;
            for (index, node) in self.nodes.iter_mut().enumerate() {
                node.x += extra * index as f64;
                node.width += extra;
            }
        }
        self.width = inner + 2.0 * PAD;
        self.height = PACKAGE_HEAD + y + row + PAD;
    }

    fn draw_nic(&self, svg: &mut Svg, host: &HostReport, index: usize, slot: usize) {
        let nic = &host.nics[index];
        let Some(node) = self.nodes.iter().find(|node| node.node == nic.node) else { return };
        let width = NIC_WIDTH + 8.0;
        let room = (self.width - NIC_WIDTH).max(0.0);
        let centre = node.x + node.width / 2.0;
        let x = self.x + (centre - NIC_WIDTH / 2.0 + slot as f64 * width).clamp(0.0, room);
        let y = self.y + self.height + NIC_DROP;
        let from = (
            self.x + centre.clamp(x - self.x + 12.0, x - self.x + NIC_WIDTH - 12.0),
            self.y + node.y + node.height,
        );
        svg.line(from, (from.0, y), "wire");
        nic_box(svg, host, index, (x, y), "nic");
    }
}

impl NodeBox {
    fn new(title: String, detail: String, foot: String, node: Option<u32>, units: Vec<u32>) -> Self {
        Self { title, detail, foot, node, units, columns: 1, x: 0.0, y: 0.0, width: 0.0, height: 0.0 }
    }

    fn draw(
        &self,
        svg: &mut Svg,
        host: &HostReport,
        (left, top): (f64, f64),
        hops: Option<&BTreeMap<u32, u32>>,
        interrupt: &[u32],
    ) {
        let (x, y) = (left + self.x, top + self.y);
        svg.rounded(x, y, self.width, self.height, 7.0, "node");
        svg.text(x + PAD, y + 16.0, "node-name start", &self.title);
        svg.text(x + self.width - PAD, y + 16.0, "note end", &self.detail);
        if !self.foot.is_empty() {
            svg.text(x + PAD, y + self.height - 8.0, "note start", &self.foot);
        }
        for (index, core) in self.units.iter().enumerate() {
            let at = (
                x + PAD + (index % self.columns) as f64 * CORE_WIDTH,
                y + NODE_HEAD + (index / self.columns) as f64 * CORE_HEIGHT,
            );
            let unit = host.processing_units.iter().find(|unit| unit.core == *core);
            let hop = place(host, *core).node.and_then(|node| hops?.get(&node).copied());
            draw_core(svg, *core, unit, at, hop, interrupt.contains(core));
        }
        if self.units.is_empty() {
            svg.text(x + PAD, y + NODE_HEAD + 12.0, "note start", "no cores");
        }
    }
}

fn draw_core(
    svg: &mut Svg,
    core: u32,
    unit: Option<&ProcessingUnit>,
    (x, y): (f64, f64),
    hop: Option<u32>,
    interrupt: bool,
) {
    let state = match unit {
        Some(unit) if !unit.online => "offline".to_owned(),
        Some(unit) if !unit.allowed => "forbidden".to_owned(),
        _ => hop.map_or_else(|| "plain".to_owned(), |hop| format!("hop{}", hop.min(3))),
    };
    let siblings = unit.map(|unit| unit.siblings.clone()).unwrap_or_default();
    let mut tip = format!("core {core}: {}", if state == "offline" { "offline" } else { "online" });
    if siblings.len() > 1 {
        let others: Vec<String> =
            siblings.iter().filter(|other| **other != core).map(u32::to_string).collect();
        tip.push_str(&format!(", shares its core with {}", others.join(", ")));
    }
    if interrupt {
        tip.push_str(", interrupt core");
    }
    // SMT siblings are drawn together without a gap.
    let first = siblings.len() > 1 && siblings.first() == Some(&core);
    let width = if first { CORE_WIDTH } else { CORE_WIDTH - 4.0 };
    svg.tipped(&tip, |svg| {
        svg.rounded(x, y, width, CORE_HEIGHT - 4.0, 4.0, &format!("core {state}"));
        if interrupt {
            svg.rounded(x - 1.5, y - 1.5, width + 3.0, CORE_HEIGHT - 1.0, 5.5, "irq-outline");
        }
        svg.text(x + width / 2.0, y + 14.5, &format!("core-number middle {state}"), &core.to_string());
    });
}

fn nic_box(svg: &mut Svg, host: &HostReport, index: usize, (x, y): (f64, f64), class: &str) {
    let nic = &host.nics[index];
    let device = host.pci_devices.iter().find(|device| Some(&device.address) == nic.pci_address.as_ref());
    let mut first = vec![nic.name.clone()];
    first.extend(nic.driver.clone());
    first.extend(nic.speed_bps.map(|bps| rate(bps as f64)));
    let mut second: Vec<String> = nic.pci_address.iter().cloned().collect();
    if let Some(ceiling) = device.and_then(|device| device.ceiling.as_ref()) {
        second.push(format!("PCIe Gen{} x{}", ceiling.generation, ceiling.lane_count));
    }
    let mut tip = format!("{}: {}", first.join(" "), second.join(" "));
    if let Some(parent) = device.and_then(|device| device.parent.as_ref()) {
        tip.push_str(&format!(", below bridge {parent}"));
    }
    svg.tipped(&tip, |svg| {
        svg.rounded(x, y, NIC_WIDTH, NIC_HEIGHT, 6.0, class);
        svg.text(x + 10.0, y + 18.0, "node-name start", &fitted(&first.join(" \u{b7} "), NIC_WIDTH - 12.0));
        svg.text(x + 10.0, y + 35.0, "note start", &fitted(&second.join(" \u{b7} "), NIC_WIDTH - 4.0));
    });
}

/// Cores of a node per row: six as in the papers' figures, more for big nodes.
fn columns(units: usize, limit: f64, size: Size) -> usize {
    let fits = ((limit - 2.0 * PAD) / CORE_WIDTH) as usize;
    let wanted = match units {
        0..=4 => units,
        5 | 6 => size.pick(units, 3),
        7..=8 => 4,
        9..=24 => size.pick(6, 4),
        25..=64 => 8,
        _ => 12,
    };
    wanted.clamp(1, fits.max(1))
}

/// Packages with their nodes. Nodes that span packages are outer boxes
/// themselves, as on virtual machines where every core is a package.
fn groups(host: &HostReport) -> Vec<Group> {
    let mut by_package: BTreeMap<Option<u32>, BTreeMap<Option<u32>, Vec<u32>>> = BTreeMap::new();
    for unit in &host.processing_units {
        let at = place(host, unit.core);
        by_package.entry(at.package).or_default().entry(at.node).or_default().push(unit.core);
    }
    let mut groups: Vec<Group> = by_package
        .into_iter()
        .map(|(package, nodes)| {
            let title = package.map_or_else(|| "package not known".to_owned(), |p| format!("package {p}"));
            let nodes = nodes.into_iter().map(|(node, units)| node_box(host, node, units)).collect();
            Group::new(title, nodes)
        })
        .collect();
    let empty: Vec<NodeBox> = host
        .nodes
        .iter()
        .filter(|node| node.cores.is_empty())
        .map(|node| node_box(host, Some(node.node), Vec::new()))
        .collect();
    if !empty.is_empty() {
        groups.push(Group::new("memory only".to_owned(), empty));
    }
    groups
}

fn node_box(host: &HostReport, node: Option<u32>, mut units: Vec<u32>) -> NodeBox {
    // Threads of one core are drawn together, cores of one cache too.
    let key = |core: &u32| {
        let cache = host.llc_groups.iter().position(|group| group.cores.contains(core));
        let unit = host.processing_units.iter().find(|unit| unit.core == *core);
        let first = unit.and_then(|unit| unit.siblings.iter().min().copied()).unwrap_or(*core);
        (cache, first, *core)
    };
    units.sort_by_key(key);
    let found = host.nodes.iter().find(|known| Some(known.node) == node);
    let detail = found
        .filter(|node| node.memory_bytes > 0)
        .map_or_else(String::new, |node| bytes(node.memory_bytes as f64));
    let caches: Vec<_> =
        host.llc_groups.iter().filter(|group| group.cores.iter().any(|core| units.contains(core))).collect();
    let foot = match caches.as_slice() {
        [] => String::new(),
        [one] => format!("L{} {}", one.level, bytes(one.size_bytes as f64)),
        [one, ..] => format!("{} x L{} {}", caches.len(), one.level, bytes(one.size_bytes as f64)),
    };
    let title = node.map_or_else(|| "node not known".to_owned(), |node| format!("node {node}"));
    NodeBox::new(title, detail, foot, node, units)
}
