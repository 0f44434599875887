//! Packets that interfaces lose, and pause frames (IEEE 802.3 Annex 31B): by `/proc/net/dev` and by the driver's own
//! counters, whose names differ from driver to driver.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, PauseDirection, Remedy},
    host::Nic,
};

use super::hosts::parts;
use crate::{
    facts::{Facts, Part},
    format::percent,
};

/// Longest time of one pause frame: 65535 quanta of 512 bit times.
const PAUSE_BITS_MAX: f64 = 65_535.0 * 512.0;
/// Fraction of the time that pause frames must be able to stop the sender for.
const PAUSED_MIN: f64 = 0.01;
/// Driver counters that the evidence quotes.
const QUOTED_MAX: usize = 5;

/// Names of packets that found no receive buffer: mlx5, bnxt and ena, sfc, ixgbe, e1000 and others.
const NO_BUFFER: &[&str] = &[
    "out_of_buffer",
    "no_buf",
    "nobuf",
    "nodesc",
    "no_desc",
    "no_dma_resources",
    "missed",
    "rx_discards",
    "overflow",
    "overrun",
    "fifo",
];
/// Names of packets that arrived damaged.
const DAMAGED: &[&str] = &["crc", "uncorrectable", "symbol", "jabber", "align"];

/// An interface that drops or damages packets.
pub(super) fn interface_loss(facts: &Facts<'_>) -> Option<Finding> {
    parts(facts).into_iter().find_map(|part| {
        let nics = cards(part);
        let by_kernel = nics.first().filter(|_| part.lost_packets > 0 && part.nic.is_some_and(is_card));
        let risen = |names| nics.iter().find_map(|nic| Some((*nic, highest(part, nic, names)?)));
        if let Some((nic, (name, count))) = risen(NO_BUFFER) {
            let sentence = format!(
                "{} on {} dropped {count} packets for want of receive buffers ({name})",
                nic.name,
                part.name()
            );
            return Some(loss(part, nic, count, sentence, larger_ring(nic)));
        }
        if let Some((nic, (name, count))) = risen(DAMAGED) {
            let sentence =
                format!("{} on {} received {count} damaged packets ({name})", nic.name, part.name());
            let what = "check the cable, the optics and the port at the other end of the link".to_owned();
            return Some(loss(part, nic, count, sentence, what));
        }
        let nic = by_kernel?;
        let sentence =
            format!("{} on {} dropped or damaged {} packets", nic.name, part.name(), part.lost_packets);
        let what =
            format!("`ethtool -S {}` distinguishes drops for want of buffers from damaged packets", nic.name);
        Some(loss(part, nic, part.lost_packets, sentence, what))
    })
}

fn loss(part: &Part<'_>, nic: &Nic, count: u64, sentence: String, what: String) -> Finding {
    let mut evidence = quoted(part, nic);
    if part.lost_packets > 0 {
        evidence.insert(
            0,
            EvidenceItem {
                statement: format!("{} errors and drops while the flow ran", part.lost_packets),
                source: format!("{}: {} in /proc/net/dev", part.name(), nic.name),
            },
        );
    }
    Finding {
        cause: Cause::InterfaceLoss {
            end: part.end,
            interface: nic.name.clone(),
            lost_packet_count: count.max(part.lost_packets),
        },
        sentence,
        fault: true,
        evidence,
        remedies: vec![Remedy::Physical { what }],
    }
}

fn larger_ring(nic: &Nic) -> String {
    match nic.receive_ring {
        Some(ring) if ring.now_count < ring.max_count => format!(
            "raise the receive ring of {}, now {} of {} descriptors: `ethtool -G {} rx {}`",
            nic.name, ring.now_count, ring.max_count, nic.name, ring.max_count
        ),
        _ => format!("let more queues and cores receive on {} (`clearstream place`)", nic.name),
    }
}

/// Flow control by pause frames: the receiver's card stops its switch, or the switch the sender's card.
pub(super) fn pause_frames(facts: &Facts<'_>) -> Option<Finding> {
    paused(facts, &facts.receiver, PauseDirection::Sent)
        .or_else(|| paused(facts, &facts.sender, PauseDirection::Received))
}

fn paused(facts: &Facts<'_>, part: &Part<'_>, direction: PauseDirection) -> Option<Finding> {
    let counts = cards(part).into_iter().filter_map(|nic| Some((nic, pauses(part, nic, direction)?)));
    let (nic, count) = counts.max_by_key(|(_, count)| *count)?;
    let ratio = nic.speed_bps.map(|speed| stopped_ratio(count, speed, facts.seconds));
    if ratio.is_some_and(|ratio| ratio < PAUSED_MIN) {
        return None;
    }
    let limit = ratio.map_or_else(String::new, |ratio| format!(" for up to {} of the time", percent(ratio)));
    let (sentence, what) = match direction {
        PauseDirection::Sent => (
            format!(
                "{} on {} sent {count} pause frames: it could not take packets as fast as they came, and stopped its \
                 link partner{limit}",
                nic.name,
                part.name()
            ),
            format!("check for a full core, a narrow PCIe slot or a small receive ring on {}", part.name()),
        ),
        PauseDirection::Received => (
            format!(
                "{} on {} received {count} pause frames: its link partner stopped it{limit}",
                nic.name,
                part.name()
            ),
            "find the port behind the switch that is slower or full: pause frames stop all traffic of this link, and \
             not only what goes there"
                .to_owned(),
        ),
    };
    Some(Finding {
        cause: Cause::PauseFrames {
            end: part.end,
            interface: nic.name.clone(),
            direction,
            frame_count: count,
            stopped_time_ratio_max: ratio,
        },
        sentence,
        fault: true,
        evidence: quoted(part, nic),
        remedies: vec![Remedy::Physical { what }],
    })
}

/// Upper limit of the fraction of the time: a frame may ask for less, and may be cancelled by the next.
fn stopped_ratio(count: u64, speed_bps: u64, seconds: f64) -> f64 {
    (count as f64 * PAUSE_BITS_MAX / speed_bps as f64 / seconds.max(1e-9)).min(1.0)
}

fn is_card(nic: &Nic) -> bool {
    nic.pci_address.is_some()
}

/// The card that carried the data; behind a bond, a VLAN or a bridge all cards of the host.
fn cards<'a>(part: &Part<'a>) -> Vec<&'a Nic> {
    match part.nic {
        Some(nic) if is_card(nic) => vec![nic],
        Some(_) if !part.over_loopback => part.host.nics.iter().filter(|nic| is_card(nic)).collect(),
        _ => Vec::new(),
    }
}

/// The counter of received packets with one of these parts in its name that rose most: drivers count a packet under
/// several names.
fn highest<'a>(part: &Part<'a>, nic: &Nic, names: &[&str]) -> Option<(&'a str, u64)> {
    let counters = part.driver_counters.get(nic.name.as_str())?;
    let fits = |name: &str| {
        let name = name.to_ascii_lowercase();
        !name.contains("tx") && names.iter().any(|part| name.contains(part))
    };
    counters
        .iter()
        .map(|(name, count)| (*name, *count))
        .filter(|(name, _)| fits(name))
        .max_by_key(|(_, count)| *count)
}

/// Pause frames of a card, those of one priority (IEEE 802.1Qbb) included.
fn pauses(part: &Part<'_>, nic: &Nic, direction: PauseDirection) -> Option<u64> {
    let side = match direction {
        PauseDirection::Sent => "tx",
        PauseDirection::Received => "rx",
    };
    let fits = |name: &str| {
        let name = name.to_ascii_lowercase();
        let frames = name.contains("pause") || name.contains("xoff");
        let other = ["duration", "transition", "storm", "xon"].iter().any(|part| name.contains(part));
        name.contains(side) && frames && !other
    };
    let counters = part.driver_counters.get(nic.name.as_str())?;
    counters.iter().filter(|(name, _)| fits(name)).map(|(_, count)| *count).max()
}

/// The driver counters of a card that rose most.
fn quoted(part: &Part<'_>, nic: &Nic) -> Vec<EvidenceItem> {
    let mut counters: Vec<(&str, u64)> = part
        .driver_counters
        .get(nic.name.as_str())
        .map(|counters| counters.iter().map(|(name, count)| (*name, *count)).collect())
        .unwrap_or_default();
    if counters.is_empty() {
        return Vec::new();
    }
    counters.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<String> =
        counters.iter().take(QUOTED_MAX).map(|(name, count)| format!("{name} +{count}")).collect();
    vec![EvidenceItem {
        statement: format!("{} while the flow ran", listed.join(", ")),
        source: format!("{}: ethtool -S {}", part.name(), nic.name),
    }]
}
