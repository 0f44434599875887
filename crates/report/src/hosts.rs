//! The section of the hosts: pictures of each machine and the stairs of its slots.

use clearstream_schema::{host::HostReport, study::Figure as Kind};

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, Section, Table, draw_both, identifier},
    figures::staircase,
    format::{bytes, join},
    machine::{self, Marks},
    machines::{self, Machine},
};

/// Pictures of all machines and the stairs of their slots.
pub(crate) fn section(digest: &Digest) -> Section {
    let machines = machines::of(digest);
    let host_count = digest.run.hosts.len();
    // A lab's links are virtual: nothing that was measured there crossed a slot.
    let over_slots = digest.run.lab.is_none();
    let best = best_goodput(digest).filter(|_| over_slots);
    let of_storage = digest.storage_clients().is_some();
    let mut figures = Vec::new();
    for (place, machine) in machines.iter().enumerate() {
        figures.push(picture(digest, machine, host_count));
        // Calls on files cross no slot that is known here.
        if of_storage {
            continue;
        }
        let same = |other: &Machine<'_>| staircase::same_stairs(machine.report(), other.report());
        if machines[..place].iter().any(same) {
            continue;
        }
        let group: Vec<String> = machines.iter().filter(|other| same(other)).map(Machine::name).collect();
        let label = match (group.len() == machines.len(), host_count) {
            (true, 2) => "both hosts".to_owned(),
            (true, count) if count > 2 => "all hosts".to_owned(),
            _ if group.len() > 1 => join(group),
            _ => machine.key(digest),
        };
        figures.extend(staircase::figure(machine.report(), &label, best));
    }
    let about_hosts = digest.experiments.iter().filter(|e| e.spec.figure() == Kind::Topology);
    if let Some(first) = figures.first_mut() {
        first.published = about_hosts.flat_map(|e| e.spec.published.clone()).collect();
    }
    let slots = digest.run.hosts.iter().any(|host| staircase::slot(&host.report).is_some());
    Section {
        id: "section-hosts".to_owned(),
        title: "The hosts".to_owned(),
        about: match (slots, over_slots) {
            _ if of_storage => String::new(),
            (true, true) => String::new(),
            (true, false) => "The lab's links are virtual: no packet of this run crossed a PCIe slot, so the stairs below show the capacity of the slots, not a measurement.".to_owned(),
            (false, _) => format!(
                "No PCIe staircase: {} has a network interface in a PCIe slot with a known link, so no slot can limit this path.",
                if host_count == 2 { "neither host" } else { "no host" }
            ),
        },
        absent: figures.is_empty().then(|| "The record describes no host.".to_owned()),
        figures,
    }
}

/// The highest median goodput of all cells.
fn best_goodput(digest: &Digest) -> Option<f64> {
    let cells = digest.experiments.iter().flat_map(ExperimentDigest::cells);
    cells.filter_map(|cell| cell.estimate()).map(|estimate| estimate.median).max_by(f64::total_cmp)
}

fn picture(digest: &Digest, machine: &Machine<'_>, host_count: usize) -> Figure {
    let (host, marks) = (machine.report(), Marks { interrupt_core: machine.interrupt_core(digest) });
    let id = identifier(&["host", &machine.key(digest)]);
    let title =
        format!("{} ({})", machine.name(), machine.role(host_count, digest.storage_clients().is_none()));
    let finding = machine::description(host);
    let notes = host.cpu_model.iter().map(|model| format!("Processor: {model}.")).collect();
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| machine::draw(host, marks, size)),
        notes,
        legend: machine::legend(host, marks),
        table: nodes(host),
        published: Vec::new(),
        id,
        title,
        finding,
    }
}

fn nodes(host: &HostReport) -> Table {
    let mut table =
        Table::new("Nodes of the host", &["Node", "Cores", "#Memory", "Package", "Distances", "Interfaces"]);
    for node in &host.nodes {
        let packages: Vec<String> = host
            .packages
            .iter()
            .filter(|package| package.cores.iter().any(|core| node.cores.contains(core)))
            .map(|package| package.package.to_string())
            .collect();
        let nics: Vec<String> =
            host.nics.iter().filter(|nic| nic.node == Some(node.node)).map(|nic| nic.name.clone()).collect();
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        table.push(vec![
            node.node.to_string(),
            clearstream_schema::CoreList(node.cores.clone()).to_string(),
            bytes(node.memory_bytes as f64),
            packages.join(", "),
            distances.join(" "),
            nics.join(", "),
        ]);
    }
    table
}
