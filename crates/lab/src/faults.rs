//! Faults on demand: what is broken in a running lab, and how it is mended.

use std::collections::BTreeSet;

use clearstream_schema::lab::{FaultKind, LabFault, LabFile, LinkBackend, LinkEnd};

use crate::{
    LabError,
    keeper::{Network, no_host},
    links,
};

/// What is done to a lab for a fault. Two faults may ask for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    /// Frames of a port go nowhere.
    PortParted { switch: usize, port: usize },
    /// A port is down.
    PortDown { switch: usize, port: usize },
    /// A link between two hosts passes nothing.
    LinkCut { link: usize },
    /// A host discards what it should forward; number of its host, position of
    /// the interface among its own.
    TransitDiscarded { host: usize, interface: usize },
}

/// Takes the lab from one list of faults to another. What both ask for stays.
/// Where a step fails, the steps before it are taken back.
pub(crate) fn change(
    network: &mut Network,
    file: &LabFile,
    before: &[LabFault],
    after: &[LabFault],
) -> Result<(), LabError> {
    let (before, after) = (damages(file, before)?, damages(file, after)?);
    let mends = before.difference(&after).map(|damage| (*damage, false));
    let steps: Vec<(Damage, bool)> = mends.chain(after.difference(&before).map(|d| (*d, true))).collect();
    for (done, (damage, broken)) in steps.iter().enumerate() {
        if let Err(error) = apply(network, file, *damage, *broken) {
            for (damage, broken) in steps[..done].iter().rev() {
                // The error that matters is the first one.
                let _ = apply(network, file, *damage, !broken);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn damages(file: &LabFile, faults: &[LabFault]) -> Result<BTreeSet<Damage>, LabError> {
    let mut all = BTreeSet::new();
    for fault in faults {
        all.extend(damage(file, fault)?);
    }
    Ok(all)
}

/// What a fault does; an error where the lab cannot have it.
fn damage(file: &LabFile, fault: &LabFault) -> Result<Vec<Damage>, LabError> {
    let host = file.hosts.iter().position(|host| host.name == fault.host);
    let host = host.ok_or_else(|| no_host(file, &fault.host))?;
    let meant = |end: &LinkEnd| {
        end.host == fault.host && fault.interface.as_ref().is_none_or(|name| *name == end.interface)
    };
    if fault.kind == FaultKind::NoForwarding {
        if !file.hosts[host].router {
            return Err(refused(file, fault, "it is no router: name a host that forwards"));
        }
        let own = file.ends().filter(|end| end.host == fault.host).enumerate();
        let found: Vec<Damage> = own
            .filter(|(_, end)| meant(end))
            .map(|(interface, _)| Damage::TransitDiscarded { host, interface })
            .collect();
        return if found.is_empty() { Err(no_interface(file, fault)) } else { Ok(found) };
    }
    let mut found = Vec::new();
    for (link, described) in file.links.iter().enumerate() {
        if !described.ends.iter().any(meant) {
            continue;
        }
        match (fault.kind, described.effective_backend()) {
            (FaultKind::Cut, LinkBackend::Netem) => {
                let reason = "a link of netem cannot be cut: write backend = \"delay-line\"";
                return Err(refused(file, fault, reason));
            }
            (FaultKind::Cut, _) => found.push(Damage::LinkCut { link }),
            _ => {
                let reason = "only a host at a [[switch]] can lose its carrier and the other end keep it: \
                              cut the link instead";
                return Err(refused(file, fault, reason));
            }
        }
    }
    for (switch, described) in file.switches.iter().enumerate() {
        let ports = described.ends.iter().enumerate().filter(|(_, end)| meant(end));
        found.extend(ports.map(|(port, _)| match fault.kind {
            FaultKind::LinkDown => Damage::PortDown { switch, port },
            _ => Damage::PortParted { switch, port },
        }));
    }
    if found.is_empty() { Err(no_interface(file, fault)) } else { Ok(found) }
}

fn apply(network: &mut Network, file: &LabFile, damage: Damage, broken: bool) -> Result<(), LabError> {
    match damage {
        Damage::PortParted { switch, port } => network.switches[switch].set_joined(port, !broken),
        Damage::PortDown { switch, port } => {
            network.switches[switch].set_up(port, !broken)?;
            let end = &file.switches[switch].ends[port..=port];
            if broken { Ok(()) } else { links::wait_until_up(end, &mut network.nodes) }
        }
        Damage::LinkCut { link } => cut(network, &file.links[link].ends, broken),
        Damage::TransitDiscarded { host, interface } => {
            let name = &file.hosts[host].name;
            let Some(end) = file.ends().filter(|end| end.host == *name).nth(interface) else { return Ok(()) };
            network.nodes[host].network(|netlink| netlink.set_transit_discard(&end.interface, broken))
        }
    }
}

/// Both ends of a link send nothing; what is on its way in a delay line still
/// arrives. What somebody has put at the root of an end would be lost, so that
/// is refused.
fn cut(network: &mut Network, ends: &[LinkEnd; 2], broken: bool) -> Result<(), LabError> {
    if broken {
        for end in ends {
            let node = links::node_of(&mut network.nodes, end)?;
            let root = node.network(|netlink| netlink.discipline(&end.interface))?;
            if !root.is_default && root.text != "noqueue" {
                return Err(LabError::Unsupported {
                    what: format!(
                        "{} on {} has the queueing discipline {}",
                        end.interface, end.host, root.text
                    ),
                    remedy: "delete it before the link is cut: cutting puts another in its place".to_owned(),
                });
            }
        }
    }
    for end in ends {
        links::node_of(&mut network.nodes, end)?.network(|netlink| match broken {
            true => netlink.set_blackhole(&end.interface),
            false => netlink.delete_discipline(&end.interface),
        })?;
    }
    Ok(())
}

fn refused(file: &LabFile, fault: &LabFault, reason: &str) -> LabError {
    let place = place(fault);
    LabError::Fault { lab: file.name.clone(), place, reason: reason.to_owned() }
}

fn place(fault: &LabFault) -> String {
    match &fault.interface {
        Some(interface) => format!("{}:{interface}", fault.host),
        None => fault.host.clone(),
    }
}

fn no_interface(file: &LabFile, fault: &LabFault) -> LabError {
    let ends = file.ends().filter(|end| end.host == fault.host);
    let known: Vec<&str> = ends.map(|end| end.interface.as_str()).collect();
    let interface = fault.interface.as_deref().unwrap_or("to break");
    LabError::NoLink {
        lab: file.name.clone(),
        what: format!("interface {interface} on {}", fault.host),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    }
}
