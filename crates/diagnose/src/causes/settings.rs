//! Settings in the hosts' own descriptions that make a limit, or make it worse:
//! offloads, MTU, SACK, the restart after idle times, a shaper on the sender's own
//! interface. A finding gets their names and how to change them.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, Remedy, Role},
    host::Nic,
    human::time,
    line_rate,
};

use crate::{
    facts::{Facts, Part},
    format::percent,
};

/// MTU of Ethernet (RFC 894).
const USUAL_MTU: u32 = 1500;
/// Disciplines that hold packets back to a rate, or may.
const SHAPERS: [&str; 5] = ["tbf", "htb", "hfsc", "netem", "cake"];

/// The finding with the settings that bear on its cause.
pub(super) fn named(facts: &Facts<'_>, mut finding: Finding) -> Finding {
    match finding.cause {
        Cause::Cpu { .. } | Cause::InterruptCollision { .. } | Cause::NumaRemote { .. } => {
            offloads(facts, &mut finding);
            small_mtu(facts, &mut finding);
        }
        Cause::Loss { .. } | Cause::Policer { .. } | Cause::Reordering { .. } => sack(facts, &mut finding),
        Cause::SenderApplication { .. } => idle_restart(facts, &mut finding),
        Cause::PathCapacity { .. } => {
            shaper(facts, &mut finding);
            small_mtu(facts, &mut finding);
        }
        _ => {}
    }
    finding
}

fn add(finding: &mut Finding, clause: &str, item: EvidenceItem, remedy: Remedy) {
    finding.sentence.push_str("; ");
    finding.sentence.push_str(clause);
    finding.evidence.push(item);
    finding.remedies.insert(0, remedy);
}

/// Segmentation and joining of packets (Documentation/networking/segmentation-offloads.rst)
/// in the direction of the data. A virtual interface joins nothing unless configured to.
fn switched_off(part: &Part<'_>, nic: &Nic) -> Vec<(&'static str, &'static str)> {
    let names: &[(&str, &str)] = match part.role {
        Role::Sender => &[("tx-tcp-segmentation", "tso"), ("tx-generic-segmentation", "gso")],
        Role::Receiver if nic.pci_address.is_some() => &[("rx-gro", "gro")],
        Role::Receiver => &[],
    };
    names.iter().filter(|(name, _)| nic.offloads.get(*name) == Some(&false)).copied().collect()
}

fn offloads(facts: &Facts<'_>, finding: &mut Finding) {
    for part in facts.parts() {
        let Some(nic) = part.nic else { continue };
        let off = switched_off(part, nic);
        if off.is_empty() {
            continue;
        }
        let names: Vec<&str> = off.iter().map(|(name, _)| *name).collect();
        let switches: Vec<String> = off.iter().map(|(_, name)| format!("{name} on")).collect();
        let at = format!("{} off on {} of {}", names.join(" and "), nic.name, part.name());
        // Some cards cannot segment; the kernel always can, and joins what a card receives.
        finding.fault |= off.iter().any(|(_, name)| *name != "tso");
        add(
            finding,
            &format!("{at}: each packet is processed by itself"),
            EvidenceItem {
                statement: at.clone(),
                source: format!("{}: ethtool -k {}", part.name(), nic.name),
            },
            Remedy::Physical {
                what: format!(
                    "switch them on at {} where the card can: ethtool -K {} {}",
                    part.name(),
                    nic.name,
                    switches.join(" ")
                ),
            },
        );
    }
}

fn small_mtu(facts: &Facts<'_>, finding: &mut Finding) {
    let small = |part: &&Part<'_>| part.nic.and_then(|nic| nic.mtu_bytes).is_some_and(|mtu| mtu < USUAL_MTU);
    let Some(part) = facts.parts().into_iter().find(small) else { return };
    let Some((nic, mtu)) = part.nic.and_then(|nic| Some((nic, nic.mtu_bytes?))) else { return };
    let cost = 1.0 - line_rate::goodput_ratio(mtu) / line_rate::goodput_ratio(USUAL_MTU);
    let times = f64::from(USUAL_MTU - 52) / f64::from(mtu.max(68) - 52).max(1.0);
    add(
        finding,
        &format!(
            "the MTU of {} on {} is {mtu}: {times:.1} times the packets of {USUAL_MTU}, and {} of the line for their headers",
            nic.name,
            part.name(),
            percent(cost)
        ),
        EvidenceItem {
            statement: format!("MTU {mtu}"),
            source: format!("{}: sysfs mtu of {}", part.name(), nic.name),
        },
        Remedy::SetMtu { end: part.end, interface: Some(nic.name.clone()), mtu_bytes: USUAL_MTU },
    );
}

/// Without selective acknowledgements one loss of a round trip is repaired in each
/// (RFC 2018, RFC 6675).
fn sack(facts: &Facts<'_>, finding: &mut Finding) {
    let name = "net.ipv4.tcp_sack";
    let off = |part: &&Part<'_>| part.host.kernel.sysctls.get(name).is_some_and(|value| value.trim() == "0");
    let Some(part) = facts.parts().into_iter().find(off) else { return };
    finding.fault = true;
    add(
        finding,
        &format!("{name} is 0 on {}: one lost segment is repaired in a round trip, and no more", part.name()),
        EvidenceItem { statement: format!("{name} = 0"), source: format!("{}: sysctl", part.name()) },
        Remedy::RaiseSysctl { end: part.end, name: name.to_owned(), field: 0, at_least: 1 },
    );
}

/// After an idle time of a retransmission timeout the window is that of a new
/// connection (RFC 5681, section 4.1). Without a window to rebuild over a long path,
/// or without gaps, it costs nothing.
fn idle_restart(facts: &Facts<'_>, finding: &mut Finding) {
    let name = "net.ipv4.tcp_slow_start_after_idle";
    let on = facts.sender.host.kernel.sysctls.get(name).is_some_and(|value| value.trim() == "1");
    if !on || facts.is_local() || facts.medians.busy >= 0.75 {
        return;
    }
    let host = facts.sender.name();
    finding.sentence.push_str(&format!(
        "; after each pause of a retransmission timeout the window is reset ({name} = 1 on {host})"
    ));
    finding.evidence.push(EvidenceItem {
        statement: format!(
            "{name} = 1, and a window takes round trips of {} to recover",
            time(facts.base_rtt_ns())
        ),
        source: format!("{host}: sysctl"),
    });
    finding
        .remedies
        .push(Remedy::Physical { what: format!("on {host}, for senders that pause: sysctl -w {name}=0") });
}

/// A discipline on the sender's own interface that shapes: the queue is in front of
/// it, and the path behind it may carry more.
fn shaper(facts: &Facts<'_>, finding: &mut Finding) {
    let Some(nic) = facts.sender.nic else { return };
    let Some(qdisc) = nic.root_qdisc.as_deref() else { return };
    let kind = qdisc.split_whitespace().next().unwrap_or_default();
    if !SHAPERS.contains(&kind) {
        return;
    }
    let (host, interface) = (facts.sender.name(), &nic.name);
    let certain = shaped_rate_bps(qdisc).is_some_and(|rate_bps| {
        // The discipline counts headers, too.
        (0.8..=1.02).contains(
            &(facts.goodput_bps / (rate_bps * line_rate::goodput_ratio(nic.mtu_bytes.unwrap_or(1500)))),
        )
    });
    let clause = if certain {
        format!(
            "that is the rate of the root qdisc of {interface} on {host} (\"{qdisc}\"), and no property of the path"
        )
    } else {
        format!("the root qdisc of {interface} on {host} is \"{qdisc}\", which may be what holds it back")
    };
    if certain {
        finding.sentence = finding.sentence.replace("; no host is at fault", "");
        finding.fault = true;
    }
    add(
        finding,
        &clause,
        EvidenceItem {
            statement: format!("root qdisc {qdisc}"),
            source: format!("{host}: tc qdisc show dev {interface}"),
        },
        Remedy::Physical {
            what: format!(
                "on {host}: check `tc -s qdisc show dev {interface}`, and raise its rate or remove it (`tc qdisc del dev {interface} root`)"
            ),
        },
    );
}

/// The rate in the text of a discipline: `rate 1gbit`, in bits per second (tc(8): units
/// of 1000; `bps` are bytes).
fn shaped_rate_bps(qdisc: &str) -> Option<f64> {
    let text = qdisc.split_whitespace().skip_while(|token| *token != "rate").nth(1)?;
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "tbit" => 1e12,
        "gbit" => 1e9,
        "mbit" => 1e6,
        "kbit" => 1e3,
        "bit" | "" => 1.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_tc_spells_them() {
        assert_eq!(shaped_rate_bps("tbf rate 1gbit burst 262144b limit 2762144b"), Some(1e9));
        assert_eq!(shaped_rate_bps("tbf rate 2500kbit burst 1600b"), Some(2.5e6));
        assert_eq!(shaped_rate_bps("fq"), None);
    }
}
