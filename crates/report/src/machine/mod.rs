//! A picture of a host as the papers draw theirs: packages, NUMA nodes, cores,
//! what hangs off which node, and the distances between nodes.

mod distances;
mod layout;

use clearstream_schema::host::HostReport;

use crate::{
    figure::LegendItem,
    svg::{
        Svg,
        plot::{Size, fitted},
    },
};
use layout::Layout;

/// Colours of a standalone picture.
const STYLE: &str = include_str!("../machine.css");

/// Margin of a standalone picture.
const MARGIN: f64 = 22.0;
/// Space for the host's name and processor.
const HEADING: f64 = 50.0;

/// Facts of a report that the host itself does not know.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The core that took the receiver's packets.
    pub(crate) interrupt_core: Option<u32>,
}

/// A standalone picture of the machine: its colours follow the
/// reader's light or dark setting, and it needs no other file.
pub fn machine_svg(host: &HostReport) -> String {
    let mut svg = draw(host, Marks::default(), Size::Wide);
    let mut x = 0.0;
    for item in &legend(host, Marks::default()) {
        let width = 42.0 + 6.6 * item.label.chars().count() as f64;
        if x > 0.0 && x + width > svg.width {
            x = 0.0;
            svg.height += 20.0;
        }
        let y = svg.height + 10.0;
        swatch(&mut svg, x, y, &item.swatch);
        svg.text(x + 18.0, y + 10.0, "note start", &item.label);
        x += width;
    }
    svg.height += 24.0;
    let mut svg = svg.framed(MARGIN, HEADING);
    let room = svg.width - 2.0 * MARGIN;
    svg.text(MARGIN, MARGIN + 14.0, "host-name start", &fitted(name(host), room));
    if let Some(model) = &host.cpu_model {
        svg.text(MARGIN, MARGIN + 32.0, "note start", &fitted(model, room));
    }
    svg.finish("machine", &format!("Host {}", name(host)), &description(host), Some(STYLE))
}

/// Its name; a captured host has none unless it was kept.
fn name(host: &HostReport) -> &str {
    if host.name.is_empty() { "host without a name (captured)" } else { &host.name }
}

fn swatch(svg: &mut Svg, x: f64, y: f64, class: &str) {
    let class = class.trim_start_matches("box ");
    svg.rounded(x, y, 12.0, 12.0, 3.0, &format!("core {}", if class == "irq" { "irq" } else { class }));
}

/// One sentence with the numbers of the machine.
pub(crate) fn description(host: &HostReport) -> String {
    let count = |n: usize, noun| crate::format::count(n, noun);
    let mut text = format!(
        "{}: {}, {}, {}",
        name(host),
        count(host.packages.len(), "package"),
        count(host.nodes.len(), "NUMA node"),
        count(host.processing_units.len(), "processing unit"),
    );
    let furthest = host.nodes.iter().flat_map(|node| &node.distances).max();
    if let Some(furthest) = furthest.filter(|_| host.nodes.len() > 1) {
        text.push_str(&format!(", largest node distance {furthest}"));
    }
    for nic in host.nics.iter().filter(|nic| nic.pci_address.is_some()) {
        let at = nic.node.map_or_else(
            || ", NUMA node unknown (firmware reports -1)".to_owned(),
            |node| {
                let far: Vec<String> = host
                    .nodes
                    .iter()
                    .zip(&nic.hops)
                    .filter(|(_, hops)| nic.hops.iter().max() == Some(hops) && **hops > 1)
                    .map(|(node, _)| node.node.to_string())
                    .collect();
                let hops = nic.hops.iter().max().copied().unwrap_or(0);
                let far = if far.is_empty() {
                    String::new()
                } else {
                    format!(", {hops} hops from node {}", crate::format::join(&far))
                };
                format!(" at node {node}{far}")
            },
        );
        text.push_str(&format!("; {}{at}", nic.name));
    }
    text.push('.');
    text
}

/// Legend of the marks in the picture.
pub(crate) fn legend(host: &HostReport, marks: Marks) -> Vec<LegendItem> {
    let mut items = Vec::new();
    let hops = layout::hops_by_node(host);
    if let Some((nics, hops)) = &hops {
        let mut seen: Vec<u32> = hops.values().copied().collect();
        seen.sort_unstable();
        seen.dedup();
        for hop in seen {
            let label = match hop {
                0 => format!("on the node of {nics}"),
                hop => format!("{} away", crate::format::count(hop as usize, "hop")),
            };
            items.push(LegendItem::new(format!("box hop{}", hop.min(3)), label));
        }
    } else {
        items.push(LegendItem::new("box plain", "core"));
    }
    let offline = host.processing_units.iter().any(|unit| !unit.online);
    let forbidden = host.processing_units.iter().any(|unit| unit.online && !unit.allowed);
    if offline {
        items.push(LegendItem::new("box offline", "offline"));
    }
    if forbidden {
        items.push(LegendItem::new("box forbidden", "not allowed to this process"));
    }
    if marks.interrupt_core.is_some() || !layout::interrupt_cores(host, marks).is_empty() {
        let label = if marks.interrupt_core.is_some() {
            "interrupt core of the flows"
        } else {
            "takes interrupts of a NIC"
        };
        items.push(LegendItem::new("box irq", label));
    }
    items
}

/// The picture for one page width.
pub(crate) fn draw(host: &HostReport, marks: Marks, size: Size) -> Svg {
    let layout = Layout::of(host, size);
    let matrix = distances::extent(host, size);
    let beside = matrix.is_some_and(|(width, _)| layout.width + 48.0 + width <= size.width());
    let (matrix_width, matrix_height) = matrix.unwrap_or_default();
    let width = if beside { layout.width + 48.0 + matrix_width } else { layout.width.max(matrix_width) };
    let height = match (matrix, beside) {
        (None, _) => layout.height,
        (Some(_), true) => layout.height.max(matrix_height),
        (Some(_), false) => layout.height + 26.0 + matrix_height,
    };
    let mut svg = Svg::new(width.max(size.pick(420.0, 330.0)), height + 4.0);
    layout.draw(&mut svg, host, marks);
    if matrix.is_some() {
        let at = if beside { (layout.width + 48.0, 0.0) } else { (0.0, layout.height + 26.0) };
        distances::draw(&mut svg, host, at, size);
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{magny_cours, nehalem, virtual_machine};

    #[test]
    fn every_core_node_and_package_is_in_the_picture() {
        for host in [virtual_machine("vm"), nehalem("dtn1"), magny_cours("dtn2")] {
            for size in Size::ALL {
                let text = draw(&host, Marks::default(), size).finish("m", "t", "d", None);
                for unit in &host.processing_units {
                    assert!(
                        text.contains(&format!("data-tip=\"core {}:", unit.core)),
                        "{} core {}",
                        host.name,
                        unit.core
                    );
                }
                for node in &host.nodes {
                    assert!(text.contains(&format!(">node {}</text>", node.node)), "{}", host.name);
                }
                assert_eq!(text.matches(">package ").count(), host.packages.len(), "{}", host.name);
            }
        }
    }

    #[test]
    fn the_48_core_server_shows_its_distances_as_numactl_lists_them() {
        let text = machine_svg(&magny_cours("dtn2"));
        // Figure 10 of the report: 0 to 3 is 22, 2 to 5 is 16.
        assert!(text.contains("data-tip=\"node 0 to node 3: 22\""));
        assert!(text.contains("data-tip=\"node 2 to node 5: 16\""));
        assert_eq!(text.matches("data-tip=\"node ").count(), 64);
        assert!(text.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn distances_are_to_the_nearest_of_all_cards_and_a_captured_host_has_a_heading() {
        let mut host = nehalem("");
        let mut second = host.nics.iter().find(|nic| nic.pci_address.is_some()).unwrap().clone();
        (second.name, second.node, second.hops) = ("eth9".to_owned(), Some(0), vec![0, 1]);
        second.pci_address = Some("0000:06:00.0".to_owned());
        host.nics.push(second);
        let (names, hops) = layout::hops_by_node(&host).unwrap();
        assert_eq!(names, "eth2 or eth9");
        assert!(hops.values().all(|hop| *hop == 0), "one card at each node: {hops:?}");
        let text = machine_svg(&host);
        assert!(
            text.contains("host without a name (captured)") && text.contains("on the node of eth2 or eth9")
        );
    }

    #[test]
    fn a_host_with_nothing_known_is_still_a_picture() {
        let text = machine_svg(&HostReport { name: "<empty>".to_owned(), ..HostReport::default() });
        assert!(text.starts_with("<svg") && text.ends_with("</svg>") && text.contains("&lt;empty&gt;"));
    }

    #[test]
    fn nothing_is_drawn_outside_the_picture() {
        for host in [virtual_machine("vm"), nehalem("dtn1"), magny_cours("dtn2")] {
            for size in Size::ALL {
                let svg = draw(&host, Marks { interrupt_core: Some(1) }, size);
                assert!(svg.width <= size.width() + 1.0, "{} {:?} {}", host.name, size, svg.width);
            }
        }
    }
}
