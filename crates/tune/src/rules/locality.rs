//! Locality: interrupts, NUMA nodes and PCIe slots, from the host's report.

use std::collections::BTreeMap;

use clearstream_schema::{
    CoreList,
    host::{HostReport, Interrupt, Nic, PciDevice},
    human::rate,
    tune::{Finding, FindingClass, Severity},
};

use super::{Facts, With};

/// Interrupts below this fraction of an interface's total are not busy.
const BUSY_SHARE: f64 = 0.05;

const SOURCE: &str = "Documentation/core-api/irq/irq-affinity.rst";

/// Interrupts handled on another NUMA node than the interface's.
pub(super) fn interrupts(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(report) = &facts.state.report else { return };
    for nic in &report.nics {
        let Some(local) =
            device(report, nic).map(|device| &device.local_cores).filter(|cores| !cores.is_empty())
        else {
            continue;
        };
        // A host with one node has no remote node.
        if report.nodes.len() < 2 {
            continue;
        }
        let away: Vec<&Interrupt> = of_interface(report, nic)
            .filter(|interrupt| !interrupt.effective_cores.is_empty())
            .filter(|interrupt| interrupt.effective_cores.iter().all(|core| !local.contains(core)))
            .collect();
        if away.is_empty() {
            continue;
        }
        let cores: Vec<u32> = away.iter().flat_map(|interrupt| interrupt.effective_cores.clone()).collect();
        let message = format!(
            "{} of its interrupts run on cores {}, and the device is at node {} (cores {}): each packet crosses the interconnect before it is read",
            away.len(),
            CoreList(sorted(cores)),
            nic.node.map_or_else(|| "?".to_owned(), |node| node.to_string()),
            CoreList(local.clone())
        );
        let finding = facts.about_interface(
            &nic.name,
            "interrupts",
            FindingClass::Locality,
            "remote-node",
            Severity::Warning,
            message,
        );
        found.push(finding.advise("clearstream place plan").sourced(SOURCE));
    }
}

/// Two busy queues on one core, or on sibling threads.
pub(super) fn shared_cores(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(report) = &facts.state.report else { return };
    for nic in &report.nics {
        let all: u64 = of_interface(report, nic).map(deliveries).sum();
        let busy = of_interface(report, nic).filter(|interrupt| {
            deliveries(interrupt) as f64 > BUSY_SHARE * all as f64 && deliveries(interrupt) > 1000
        });
        let mut by_core: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for interrupt in busy {
            if let [core] = interrupt.effective_cores[..] {
                by_core.entry(first_sibling(report, core)).or_default().push(interrupt.interrupt);
            }
        }
        for (core, numbers) in by_core.into_iter().filter(|(_, numbers)| numbers.len() > 1) {
            let message = format!(
                "interrupts {} are busy and share the physical core of {core}",
                numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            );
            let finding = facts.about_interface(
                &nic.name,
                "interrupts",
                FindingClass::Locality,
                "shared-core",
                Severity::Note,
                message,
            );
            found.push(finding.advise("clearstream place plan").sourced(SOURCE));
        }
    }
}

/// irqbalance overrides manual affinity.
pub(super) fn balancer(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (Some(report), Some(true)) = (&facts.state.report, facts.state.irqbalance_is_running) else { return };
    for nic in &report.nics {
        let queues = of_interface(report, nic).filter(|interrupt| interrupt.queue.is_some());
        let pinned = queues.filter(|interrupt| interrupt.allowed_cores.len() == 1).count();
        if pinned > 1 {
            let message = format!(
                "{pinned} of its interrupts are pinned to one core each, and irqbalance is running: it may move them every ten seconds"
            );
            let finding = facts.about_interface(
                &nic.name,
                "interrupts",
                FindingClass::Provenance,
                "irqbalance",
                Severity::Note,
                message,
            );
            found.push(
                finding
                    .advise("ban them from irqbalance (--banirq) rather than stop it")
                    .sourced("irqbalance(1)"),
            );
        }
    }
}

/// The slot's PCIe link compared with the port's speed and the card's maximum.
pub(super) fn slot(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(report) = &facts.state.report else { return };
    for nic in &report.nics {
        let Some(device) = device(report, nic) else { continue };
        if let (Some(link), Some(most)) = (device.link, device.link_max) {
            let slower = link.gigatransfers_per_second < most.gigatransfers_per_second;
            if slower || link.lane_count < most.lane_count {
                let message = format!(
                    "the link runs at {} GT/s x{}, the device can {} GT/s x{}: a narrow slot, a riser, or power saving",
                    link.gigatransfers_per_second,
                    link.lane_count,
                    most.gigatransfers_per_second,
                    most.lane_count
                );
                let finding = facts.about_interface(
                    &nic.name,
                    "pcie",
                    FindingClass::Locality,
                    "link-below-maximum",
                    Severity::Warning,
                    message,
                );
                found.push(
                    finding
                        .advise("another slot; recheck the link under load")
                        .sourced("PCI Express Base, Link Status"),
                );
            }
        }
        if let (Some(ceiling), Some(speed)) = (&device.ceiling, nic.speed_bps)
            && ceiling.conservative_bps < speed as f64
        {
            let message = format!(
                "{} between {} and {}, less than the interface's {}",
                ceiling.arithmetic,
                rate(ceiling.conservative_bps),
                rate(ceiling.optimistic_bps),
                rate(speed as f64)
            );
            let severity =
                if ceiling.optimistic_bps < speed as f64 { Severity::Warning } else { Severity::Note };
            let finding = facts.about_interface(
                &nic.name,
                "pcie",
                FindingClass::Locality,
                "slower-than-link",
                severity,
                message,
            );
            found.push(
                finding
                    .advise("a wider or newer slot; no sysctl changes this")
                    .sourced("PCI Express Base; Neugebauer et al., SIGCOMM 2018"),
            );
        }
    }
}

fn device<'a>(report: &'a HostReport, nic: &Nic) -> Option<&'a PciDevice> {
    let address = nic.pci_address.as_deref()?;
    report.pci_devices.iter().find(|device| device.address == address)
}

fn of_interface<'a>(report: &'a HostReport, nic: &'a Nic) -> impl Iterator<Item = &'a Interrupt> {
    report.interrupts.iter().filter(|interrupt| nic.interrupts.contains(&interrupt.interrupt))
}

fn deliveries(interrupt: &Interrupt) -> u64 {
    interrupt.counts.values().sum()
}

fn first_sibling(report: &HostReport, core: u32) -> u32 {
    let unit = report.processing_units.iter().find(|unit| unit.core == core);
    unit.and_then(|unit| unit.siblings.iter().min().copied()).unwrap_or(core)
}

fn sorted(mut cores: Vec<u32>) -> Vec<u32> {
    cores.sort_unstable();
    cores.dedup();
    cores
}
