//! Interfaces: queues, qdiscs, steering, offloads.

use clearstream_schema::tune::{Finding, FindingClass, Severity};

use super::{Facts, With};
use crate::state::Interface;

/// Disciplines without a transmit queue limit of their device: they have their
/// own limits (sch_fq.c, sch_fq_codel.c) or queues (mq), or none.
const QUEUE_LENGTH_IGNORED_BY: [&str; 6] = ["fq", "fq_codel", "mq", "noqueue", "cake", "fq_pie"];

/// Default length of a transmit queue (ether_setup).
const USUAL_QUEUE_PACKETS: u64 = 1000;

const DEFAULT_QDISC: &str = "net.core.default_qdisc";

/// A length that the effective discipline ignores.
pub(super) fn queue_length(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let message = |qdisc: &str, packets: u64| {
        format!(
            "{packets} packets mean nothing to {qdisc}: only pfifo and pfifo_fast take their limit from it (fq has 10000 packets and 100 for each flow, fq_codel 10240)"
        )
    };
    let planned = facts.state.text(DEFAULT_QDISC);
    for given in &facts.state.given_queues {
        let Some(qdisc) = planned.filter(|qdisc| QUEUE_LENGTH_IGNORED_BY.contains(qdisc)) else { continue };
        let text = message(qdisc, given.packet_count);
        let mut finding =
            facts.finding("link.txqueuelen", FindingClass::Contradiction, "with-fq", Severity::Warning, text);
        finding.place = Some(given.place.clone());
        finding.interface = given.interface.clone();
        finding.value = Some(given.packet_count.to_string());
        found.push(finding.advise("leave the length alone").sourced("net/sched/sch_fq.c, sch_generic.c"));
    }
    for nic in devices(facts) {
        let (Some(qdisc), Some(packets)) = (&nic.qdisc, nic.queue_packets) else { continue };
        if packets > USUAL_QUEUE_PACKETS && QUEUE_LENGTH_IGNORED_BY.contains(&qdisc.as_str()) {
            let finding = facts.about_interface(
                &nic.name,
                "link.txqueuelen",
                FindingClass::Contradiction,
                "with-fq",
                Severity::Warning,
                message(qdisc, packets),
            );
            found.push(finding.advise("leave the length alone").sourced("net/sched/sch_fq.c, sch_generic.c"));
        }
    }
}

/// A default that existing interfaces do not use.
pub(super) fn default_qdisc(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(value) = facts.state.values.get(DEFAULT_QDISC) else { return };
    let wanted = value.text.as_str();
    let others: Vec<String> = devices(facts)
        .filter_map(|nic| Some((nic, nic.qdisc.as_deref()?)))
        // The leaves of mq are not known here; mq itself does not matter.
        .filter(|(_, qdisc)| *qdisc != wanted && *qdisc != "mq" && *qdisc != "noqueue")
        .map(|(nic, qdisc)| format!("{} has {qdisc}", nic.name))
        .collect();
    if !others.is_empty() {
        let message = format!("{wanted} is for qdiscs made afterwards: {}", others.join(", "));
        found.push(
            facts
                .finding(DEFAULT_QDISC, FindingClass::Contradiction, "not-in-force", Severity::Note, message)
                .advise(format!(
                    "tc qdisc replace dev IFACE root {wanted}, or set the interface down and up"
                )),
        );
    } else if !value.effective && facts.state.interfaces.is_empty() {
        let message = format!(
            "{wanted} is for qdiscs made afterwards: interfaces that are up keep theirs, virtual ones have none"
        );
        found.push(
            facts
                .finding(DEFAULT_QDISC, FindingClass::Unverifiable, "later", Severity::Note, message)
                .advise("set it before the interfaces come up, or replace their qdisc"),
        );
    }
}

/// Software steering (RPS) in addition to enough hardware queues.
pub(super) fn steering_and_queues(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for nic in devices(facts).filter(|nic| nic.steered_queue_count > 0) {
        let cores = nic.steering_cores.len();
        if nic.receive_queue_count as usize >= cores && cores > 0 {
            let message = format!(
                "{} queues of the device are also steered in software, to {cores} core(s): each packet then costs an interrupt between cores and gains nothing",
                nic.receive_queue_count
            );
            let finding = facts.about_interface(
                &nic.name,
                "link.rps_cpus",
                FindingClass::Wasteful,
                "with-queues",
                Severity::Warning,
                message,
            );
            found.push(
                finding
                    .advise("clear rps_cpus where the device has a queue for each core")
                    .sourced("Documentation/networking/scaling.rst"),
            );
        }
    }
}

/// Receive flow steering (RFS) needs three settings.
pub(super) fn flow_steering(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.core.rps_sock_flow_entries";
    let Some(entries) = facts.state.number(key) else { return };
    let source = "Documentation/networking/scaling.rst";
    for nic in devices(facts) {
        let Some(per_queue) = nic.flow_entries else { continue };
        let has_filters = nic.offloads.get("rx-ntuple-filter").copied();
        if entries > 0 && per_queue == 0 {
            let message = format!(
                "{entries} entries in all, and {} has none in its queues' rps_flow_cnt: flow steering is off there",
                nic.name
            );
            let mut finding =
                facts.finding(key, FindingClass::Contradiction, "half-set", Severity::Warning, message);
            finding.interface = Some(nic.name.clone());
            let share = entries / i64::from(nic.receive_queue_count.max(1));
            found.push(finding.advise(format!("{share} in each rps_flow_cnt, or 0 here")).sourced(source));
        } else if entries == 0 && per_queue > 0 {
            let message = format!(
                "the queues of {} have {per_queue} entries, and the table that all share has none: flow steering is off",
                nic.name
            );
            let mut finding =
                facts.finding(key, FindingClass::Contradiction, "half-set", Severity::Warning, message);
            finding.interface = Some(nic.name.clone());
            found.push(finding.advise("32768, or 0 in each rps_flow_cnt").sourced(source));
        }
        if has_filters == Some(true) && (entries == 0) != (per_queue == 0) {
            let finding = facts.about_interface(
                &nic.name,
                "link.ntuple",
                FindingClass::Contradiction,
                "arfs-without-tables",
                Severity::Note,
                "filters of the device are on, and accelerated flow steering needs both tables beside them"
                    .to_owned(),
            );
            found.push(finding.sourced(source));
        }
    }
}

/// Merged packets (LRO) must not be forwarded.
pub(super) fn large_receive(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let forwards = facts.state.number("net.ipv4.ip_forward").is_some_and(|on| on != 0);
    for nic in devices(facts) {
        let on =
            ["large-receive-offload", "rx-lro"].iter().any(|name| nic.offloads.get(*name) == Some(&true));
        if on && (forwards || nic.is_bridge_port) {
            let message = format!(
                "the device merges packets, and this host {} them: merged packets cannot be split into the original ones",
                if nic.is_bridge_port { "bridges" } else { "routes" }
            );
            let finding = facts.about_interface(
                &nic.name,
                "link.lro",
                FindingClass::Contradiction,
                "with-forwarding",
                Severity::Error,
                message,
            );
            found.push(
                finding
                    .advise("lro off; GRO stays on")
                    .sourced("Documentation/networking/netdev-features.rst"),
            );
        }
    }
}

/// Offloads that bulk data requires.
pub(super) fn offloads(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for nic in devices(facts).filter(|nic| nic.is_up) {
        for (feature, what) in [
            (
                "tx-tcp-segmentation",
                "the host cuts every segment itself: up to 45 times the work of one 64 KiB buffer at an MTU of 1500",
            ),
            (
                "rx-gro",
                "every segment goes up the stack alone: up to 45 times the work of one 64 KiB buffer at an MTU of 1500",
            ),
            (
                "tx-scatter-gather",
                "every segment is copied together first, and segmentation offload is off with it",
            ),
        ] {
            if nic.offloads.get(feature) == Some(&false) {
                let finding = facts.about_interface(
                    &nic.name,
                    "link.offloads",
                    FindingClass::Unsafe,
                    feature,
                    Severity::Warning,
                    format!("{feature} is off: {what}"),
                );
                found.push(
                    finding.advise(format!("ethtool -K {} {feature} on", nic.name)).sourced("ethtool(8)"),
                );
            }
        }
    }
}

/// IP over InfiniBand: the large MTU of connected mode costs the offloads.
pub(super) fn infiniband(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for nic in &facts.state.interfaces {
        let Some(mode) = nic.infiniband_mode.as_deref() else { continue };
        let mtu = nic.mtu_bytes.unwrap_or(0);
        let (severity, message) = match mode {
            "connected" => (
                Severity::Note,
                format!(
                    "connected mode: an MTU of up to 65520 ({mtu} now), without checksum and segmentation offload"
                ),
            ),
            _ if mtu > 4092 => (
                Severity::Error,
                format!(
                    "datagram mode carries at most 4092 bytes (the InfiniBand MTU less 4), and the MTU is {mtu}"
                ),
            ),
            _ => continue,
        };
        let finding =
            facts.about_interface(&nic.name, "link.ipoib-mode", FindingClass::Path, mode, severity, message);
        found.push(
            finding
                .advise("measure both modes: connected without segmentation offload, datagram with it and several queues")
                .sourced("Documentation/infiniband/ipoib.rst"),
        );
    }
}

fn devices<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a Interface> {
    facts.state.interfaces.iter().filter(|nic| nic.is_device)
}
