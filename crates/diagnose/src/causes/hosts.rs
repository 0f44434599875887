//! Limits and faults that are in the hosts' own descriptions and counters.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, Remedy},
    host::PcieLink,
    human::{bytes, rate},
};

use crate::{
    facts::{Facts, Part},
    format::percent,
    hosts,
};

/// Tolerance within which a rate equals a ceiling.
const NEAR: f64 = 0.9;

pub(super) fn parts<'a, 'b>(facts: &'b Facts<'a>) -> [&'b Part<'a>; 2] {
    [&facts.sender, &facts.receiver]
}

/// Full-sized packets vanish: the handshake works and no data arrives.
pub(super) fn path_mtu(facts: &Facts<'_>) -> Option<Finding> {
    let probed = facts.probed()?;
    let (route, path) = (probed.route_mtu_bytes?, probed.path_mtu_bytes?);
    let assumed = facts.socket_mtu_bytes.is_none_or(|mtu| mtu > path);
    let suffers = facts.stalled() || (assumed && facts.timeouts > 0);
    if path >= route || !suffers {
        return None;
    }
    let sender = &facts.sender;
    let interface = sender.nic.map(|nic| nic.name.clone());
    Some(Finding {
        cause: Cause::PathMtu { route_mtu_bytes: route, path_mtu_bytes: path },
        sentence: format!(
            "path MTU: {} sends packets of {route} bytes, and none above {path} bytes arrive, without an ICMP error (a PMTU black hole)",
            sender.name()
        ),
        fault: true,
        evidence: vec![
            EvidenceItem {
                statement: format!("packets of {path} bytes pass, larger ones do not; the route has {route}"),
                source: format!(
                    "probe from {} to {}: don't-fragment packets of many sizes",
                    probed.from, probed.to
                ),
            },
            facts.sampled(
                if facts.stalled() {
                    "connected, and not a byte arrived"
                } else {
                    "retransmission timeouts while the socket used the larger MTU"
                },
                "bytes that reached the reader, tcpi_total_rto",
            ),
        ],
        remedies: vec![
            Remedy::SetMtu { end: sender.end, interface, mtu_bytes: path },
            Remedy::RaiseSysctl {
                end: sender.end,
                name: "net.ipv4.tcp_mtu_probing".to_owned(),
                field: 0,
                at_least: 1,
            },
        ],
    })
}

fn gigatransfers(link: &PcieLink) -> String {
    format!("{} GT/s x{}", link.gigatransfers_per_second, link.lane_count)
}

fn pcie_finding(facts: &Facts<'_>, part: &Part<'_>, limits: bool) -> Option<Finding> {
    let nic = part.nic?;
    let device = hosts::device(part.host, nic)?;
    let (ceiling, link) = (device.ceiling.as_ref()?, device.link.as_ref()?);
    let card = device.link_max.as_ref().unwrap_or(link);
    let near = facts.goodput_bps >= NEAR * ceiling.conservative_bps;
    let narrow = link.lane_count < card.lane_count
        || link.gigatransfers_per_second < 0.99 * card.gigatransfers_per_second;
    if if limits { !near } else { !narrow } {
        return None;
    }
    let slot = if narrow { format!("; the card could have {}", gigatransfers(card)) } else { String::new() };
    Some(Finding {
        cause: Cause::Pcie {
            end: part.end,
            interface: nic.name.clone(),
            device: device.address.clone(),
            lane_count: link.lane_count,
            card_lane_count: card.lane_count,
            low_bps: ceiling.conservative_bps,
            high_bps: ceiling.optimistic_bps,
        },
        sentence: format!(
            "PCIe: {} ({}) on {} has a link of {}, good for {} to {}{slot}",
            nic.name,
            device.address,
            part.name(),
            gigatransfers(link),
            rate(ceiling.conservative_bps),
            rate(ceiling.optimistic_bps)
        ),
        fault: narrow,
        evidence: vec![
            facts.sampled(
                format!(
                    "goodput {} is {} of the low end",
                    rate(facts.goodput_bps),
                    percent(facts.goodput_bps / ceiling.conservative_bps)
                ),
                "bytes that reached the reader",
            ),
            EvidenceItem {
                statement: ceiling.arithmetic.clone(),
                source: format!(
                    "{}: current_link_speed and current_link_width of {}",
                    part.name(),
                    device.address
                ),
            },
        ],
        remedies: vec![Remedy::Physical {
            what: if narrow {
                format!("put the card into a slot with {} lanes", card.lane_count)
            } else {
                "a second card in a slot of its own, or one of a newer PCIe generation".to_owned()
            },
        }],
    })
}

/// The flow is at what a card's PCIe link can carry.
pub(super) fn pcie(facts: &Facts<'_>) -> Option<Finding> {
    parts(facts).into_iter().find_map(|part| pcie_finding(facts, part, true))
}

/// A card in a slot that is too narrow for it, and for its own line rate.
pub(super) fn narrow_slot(facts: &Facts<'_>) -> Option<Finding> {
    parts(facts).into_iter().find_map(|part| {
        let nic = part.nic?;
        let ceiling = hosts::device(part.host, nic)?.ceiling.as_ref()?;
        let line = nic.line_rate_bps()? as f64;
        (ceiling.optimistic_bps < line).then(|| pcie_finding(facts, part, false)).flatten()
    })
}

/// The slower card is at its line rate.
pub(super) fn line_rate(facts: &Facts<'_>) -> Option<Finding> {
    let part = parts(facts).into_iter().find(|part| {
        let most = part.nic.and_then(|nic| nic.goodput_max_bps());
        most.is_some_and(|most| facts.goodput_bps >= 0.95 * most)
    })?;
    let nic = part.nic?;
    let (speed, most) = (nic.line_rate_bps()?, nic.goodput_max_bps()?);
    Some(Finding {
        cause: Cause::LineRate { end: part.end, interface: nic.name.clone(), speed_bps: speed },
        sentence: format!(
            "line rate: {} on {} is a card of {}, and the flow fills it; no host is at fault",
            nic.name,
            part.name(),
            rate(speed as f64)
        ),
        fault: false,
        evidence: vec![facts.sampled(
            format!(
                "goodput {} is {} of what {} carry at MTU {}",
                rate(facts.goodput_bps),
                percent(facts.goodput_bps / most),
                rate(speed as f64),
                nic.mtu_bytes.unwrap_or(1500)
            ),
            "bytes that reached the reader",
        )],
        remedies: vec![Remedy::Physical { what: "a faster card, or a second one".to_owned() }],
    })
}

fn memory_finding(part: &Part<'_>, observed: Option<u64>) -> Option<Finding> {
    let memory = hosts::tcp_memory(part.host)?;
    let raw = part.host.kernel.sysctls.get("net.ipv4.tcp_mem").cloned().unwrap_or_default();
    let unit =
        if memory.unit_error { "; the value appears to be in bytes, and the unit is pages" } else { "" };
    let sentence = match observed {
        Some(count) => format!(
            "memory pressure: TCP on {} came under pressure {count} times, from {} pages ({}) on (net.ipv4.tcp_mem){unit}",
            part.name(),
            memory.pressure_pages,
            bytes(memory.pressure_bytes)
        ),
        None => format!(
            "net.ipv4.tcp_mem on {} is \"{raw}\"{unit}: pressure begins at {}",
            part.name(),
            bytes(memory.pressure_bytes)
        ),
    };
    let mut evidence = vec![EvidenceItem {
        statement: format!(
            "net.ipv4.tcp_mem = {raw}: pressure from {} of {} of memory",
            bytes(memory.pressure_bytes),
            bytes(hosts::memory_bytes(part.host))
        ),
        source: format!(
            "{}: sysctl net.ipv4.tcp_mem, in pages of {} bytes",
            part.name(),
            part.host.kernel.page_bytes
        ),
    }];
    if let Some(count) = observed {
        evidence.insert(
            0,
            EvidenceItem {
                statement: format!("TCPMemoryPressures rose by {count}"),
                source: format!("{}: /proc/net/netstat while the flow ran", part.name()),
            },
        );
    }
    Some(Finding {
        cause: Cause::MemoryPressure {
            end: part.end,
            pressure_pages: memory.pressure_pages,
            pressure_bytes: memory.pressure_bytes,
            unit_error: memory.unit_error,
            needed_pages: memory.needed_pages,
        },
        sentence,
        fault: true,
        evidence,
        remedies: vec![Remedy::RaiseSysctl {
            end: part.end,
            name: "net.ipv4.tcp_mem".to_owned(),
            field: 1,
            at_least: memory.needed_pages,
        }],
    })
}

/// TCP's memory of a host was used up while the flow ran.
pub(super) fn memory_pressure(facts: &Facts<'_>) -> Option<Finding> {
    parts(facts).into_iter().find_map(|part| {
        let count = part.counter("TCPMemoryPressures");
        (count > 0).then(|| memory_finding(part, Some(count))).flatten()
    })
}

/// `tcp_mem` in bytes: no limit now, or one that waits for more flows.
pub(super) fn memory_units(facts: &Facts<'_>) -> Option<Finding> {
    parts(facts).into_iter().find_map(|part| {
        let memory = hosts::tcp_memory(part.host)?;
        memory.unit_error.then(|| memory_finding(part, None)).flatten()
    })
}

/// The backlog of a core was full (`netdev_max_backlog`, with RPS): packets
/// were dropped that had arrived. The counters are of a whole machine, so that
/// two hosts on one cannot be separated.
pub(super) fn receive_overrun(facts: &Facts<'_>) -> Option<Finding> {
    let part = &facts.receiver;
    let dropped = part.cores.iter().map(|core| core.softnet_dropped_count).fold(0, u64::saturating_add);
    if dropped == 0 || facts.one_machine {
        return None;
    }
    Some(Finding {
        cause: Cause::ReceiveOverrun { end: part.end, dropped_packet_count: dropped },
        sentence: format!(
            "{} dropped {dropped} packets that had arrived: the backlog of a core was full",
            part.name()
        ),
        fault: true,
        evidence: vec![EvidenceItem {
            statement: format!("{dropped} packets dropped while the flow ran"),
            source: format!("{}: /proc/net/softnet_stat, column 2", part.name()),
        }],
        remedies: vec![Remedy::RaiseSysctl {
            end: part.end,
            name: "net.core.netdev_max_backlog".to_owned(),
            field: 0,
            at_least: 10_000,
        }],
    })
}
