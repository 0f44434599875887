//! The distance matrix as a heat table, as `numactl --hardware` lists it
//! (40GE report, figure 10).

use clearstream_schema::host::HostReport;

use crate::svg::{Svg, plot::Size};

const HEAD: f64 = 50.0;

/// Size of the table, or `None` with fewer than two nodes that have distances.
pub(super) fn extent(host: &HostReport, size: Size) -> Option<(f64, f64)> {
    let count = host.nodes.iter().filter(|node| !node.distances.is_empty()).count();
    if count < 2 {
        return None;
    }
    let side = cell(host, size) * host.nodes.len() as f64;
    Some(((side + 34.0).max(220.0), side + HEAD + 4.0))
}

fn cell(host: &HostReport, size: Size) -> f64 {
    ((size.width() - 40.0) / host.nodes.len().max(1) as f64).clamp(6.0, 34.0)
}

/// Distances in steps of their rank: the values themselves are not a scale.
fn step(host: &HostReport, distance: u32) -> usize {
    let mut seen: Vec<u32> = host.nodes.iter().flat_map(|node| node.distances.clone()).collect();
    seen.sort_unstable();
    seen.dedup();
    let rank = seen.iter().position(|known| *known == distance).unwrap_or(0);
    rank.min(3)
}

/// Draws the table.
pub(super) fn draw(svg: &mut Svg, host: &HostReport, (x, y): (f64, f64), size: Size) {
    let cell = cell(host, size);
    let left = x + 30.0;
    let top = y + HEAD;
    svg.text(x, y + 13.0, "package-name start", "Node distances (10 is local)");
    let stride = (16.0 / cell).ceil().max(1.0) as usize;
    for (index, node) in host.nodes.iter().enumerate() {
        let middle = cell * (index as f64 + 0.5);
        if index % stride == 0 {
            svg.text(left + middle, top - 8.0, "tick middle", &node.node.to_string());
            svg.text(left - 8.0, top + middle + 4.0, "tick end", &node.node.to_string());
        }
        for (column, distance) in node.distances.iter().enumerate().take(host.nodes.len()) {
            let to = host.nodes.get(column).map_or(0, |other| other.node);
            let tip = format!("node {} to node {to}: {distance}", node.node);
            let class = format!("hop{}", step(host, *distance));
            let at = (left + cell * column as f64, top + cell * index as f64);
            svg.tipped(&tip, |svg| {
                svg.rounded(
                    at.0,
                    at.1,
                    cell - 1.5,
                    cell - 1.5,
                    (cell / 10.0).min(3.0),
                    &format!("core {class}"),
                );
                if cell >= 20.0 {
                    let middle = ((cell - 1.5) / 2.0, cell / 2.0 + 4.0);
                    let class = format!("core-number middle {class}");
                    svg.text(at.0 + middle.0, at.1 + middle.1, &class, &distance.to_string());
                }
            });
        }
    }
}
