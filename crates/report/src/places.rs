//! Cores in the order of the machine: package, node, number. Neighbours in a
//! figure are then neighbours in the machine, also where the kernel numbers
//! cores round the packages.

use clearstream_schema::host::HostReport;

/// A core and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) core: u32,
    pub(crate) package: Option<u32>,
    pub(crate) node: Option<u32>,
}

/// Difference between two neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    Node,
    Package,
}

/// The place of one core.
pub(crate) fn place(host: &HostReport, core: u32) -> Place {
    let unit = host.processing_units.iter().find(|unit| unit.core == core);
    let node = unit
        .and_then(|unit| unit.node)
        .or_else(|| host.nodes.iter().find(|node| node.cores.contains(&core)).map(|node| node.node));
    let package = unit.and_then(|unit| unit.package).or_else(|| {
        host.packages.iter().find(|package| package.cores.contains(&core)).map(|package| package.package)
    });
    Place { core, package, node }
}

/// Cores sorted by package, node and number, without repetition.
pub(crate) fn sorted(host: &HostReport, cores: impl IntoIterator<Item = u32>) -> Vec<Place> {
    let mut places: Vec<Place> = cores.into_iter().map(|core| place(host, core)).collect();
    places.sort_by_key(|p| (p.package, p.node, p.core));
    places.dedup();
    places
}

/// The boundary between two neighbours, if there is one.
pub(crate) fn boundary(a: Place, b: Place) -> Option<Boundary> {
    if a.package != b.package {
        Some(Boundary::Package)
    } else if a.node != b.node {
        Some(Boundary::Node)
    } else {
        None
    }
}

/// Runs of neighbours on one node: first index, length, place of the first.
pub(crate) fn node_runs(places: &[Place]) -> Vec<(usize, usize, Place)> {
    let mut runs: Vec<(usize, usize, Place)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        match runs.last_mut() {
            Some((_, length, first)) if boundary(*first, *place).is_none() => *length += 1,
            _ => runs.push((index, 1, *place)),
        }
    }
    runs
}

impl Place {
    /// `node 3`, or `package 1` where nodes are not known.
    pub(crate) fn group_name(&self) -> String {
        match (self.node, self.package) {
            (Some(node), _) => format!("node {node}"),
            (None, Some(package)) => format!("package {package}"),
            (None, None) => "unknown place".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::magny_cours;

    #[test]
    fn round_robin_numbers_are_put_in_machine_order() {
        let host = magny_cours("dtn2");
        let places = sorted(&host, 0..48);
        let runs = node_runs(&places);
        assert_eq!(runs.len(), 8);
        assert!(runs.iter().all(|(_, length, _)| *length == 6));
        // Core 12 is on package 0, as in the paper's server.
        assert_eq!(place(&host, 12).package, Some(0));
        assert_eq!(boundary(places[5], places[6]), Some(Boundary::Node));
        assert_eq!(boundary(places[11], places[12]), Some(Boundary::Package));
        assert_eq!(boundary(places[0], places[1]), None);
    }
}
