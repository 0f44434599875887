//! Fault injection into a running lab.

use std::collections::BTreeSet;

use clearstream_schema::lab::{FaultKind, LabFault, LabFile, LinkBackend, LinkEnd};

use crate::{
    LabError,
    keeper::{Network, no_host},
    links,
};

/// Effect of a fault on the lab. Two faults may have the same effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// A port forwards no frames.
    PortIsolated { switch: usize, port: usize },
    /// A port is down.
    PortDown { switch: usize, port: usize },
    /// A link between two hosts forwards nothing.
    LinkCut { link: usize },
    /// A host discards packets instead of forwarding them; index of the host,
    /// index of the interface among its own.
    TransitDiscarded { host: usize, interface: usize },
}

/// Changes the lab from one list of faults to another. Effects that both have
/// in common stay. Where a step fails, the previous steps are rolled back.
pub(crate) fn change(
    network: &mut Network,
    file: &LabFile,
    before: &[LabFault],
    after: &[LabFault],
) -> Result<(), LabError> {
    let (before, after) = (all_effects(file, before)?, all_effects(file, after)?);
    let cleared = before.difference(&after).map(|effect| (*effect, false));
    let steps: Vec<(Effect, bool)> = cleared.chain(after.difference(&before).map(|d| (*d, true))).collect();
    for (done, (effect, injected)) in steps.iter().enumerate() {
        if let Err(error) = apply(network, file, *effect, *injected) {
            for (effect, injected) in steps[..done].iter().rev() {
                // Return the first error.
                let _ = apply(network, file, *effect, !injected);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn all_effects(file: &LabFile, faults: &[LabFault]) -> Result<BTreeSet<Effect>, LabError> {
    let mut all = BTreeSet::new();
    for fault in faults {
        all.extend(effects(file, fault)?);
    }
    Ok(all)
}

/// Returns the effects of a fault; an error where it cannot be injected.
fn effects(file: &LabFile, fault: &LabFault) -> Result<Vec<Effect>, LabError> {
    let host = file.hosts.iter().position(|host| host.name == fault.host);
    let host = host.ok_or_else(|| no_host(file, &fault.host))?;
    let matches = |end: &LinkEnd| {
        end.host == fault.host && fault.interface.as_ref().is_none_or(|name| *name == end.interface)
    };
    if fault.kind == FaultKind::NoForwarding {
        if !file.hosts[host].router {
            return Err(refused(file, fault, "it is no router: name a host that forwards"));
        }
        let own = file.ends().filter(|end| end.host == fault.host).enumerate();
        let found: Vec<Effect> = own
            .filter(|(_, end)| matches(end))
            .map(|(interface, _)| Effect::TransitDiscarded { host, interface })
            .collect();
        return if found.is_empty() { Err(no_interface(file, fault)) } else { Ok(found) };
    }
    let mut found = Vec::new();
    for (link, described) in file.links.iter().enumerate() {
        if !described.ends.iter().any(matches) {
            continue;
        }
        match (fault.kind, described.effective_backend()) {
            (FaultKind::Cut, LinkBackend::Netem) => {
                let reason = "a link of netem cannot be cut: write backend = \"delay-line\"";
                return Err(refused(file, fault, reason));
            }
            (FaultKind::Cut, _) => found.push(Effect::LinkCut { link }),
            _ => {
                let reason = "only a host at a [[switch]] can lose its carrier and the other end keep it: \
                              cut the link instead";
                return Err(refused(file, fault, reason));
            }
        }
    }
    for (switch, described) in file.switches.iter().enumerate() {
        let ports = described.ends.iter().enumerate().filter(|(_, end)| matches(end));
        found.extend(ports.map(|(port, _)| match fault.kind {
            FaultKind::LinkDown => Effect::PortDown { switch, port },
            _ => Effect::PortIsolated { switch, port },
        }));
    }
    if found.is_empty() { Err(no_interface(file, fault)) } else { Ok(found) }
}

fn apply(network: &mut Network, file: &LabFile, effect: Effect, injected: bool) -> Result<(), LabError> {
    match effect {
        Effect::PortIsolated { switch, port } => network.switches[switch].set_joined(port, !injected),
        Effect::PortDown { switch, port } => {
            network.switches[switch].set_up(port, !injected)?;
            let end = &file.switches[switch].ends[port..=port];
            if injected { Ok(()) } else { links::wait_until_up(end, &mut network.nodes) }
        }
        Effect::LinkCut { link } => cut(network, &file.links[link].ends, injected),
        Effect::TransitDiscarded { host, interface } => {
            let name = &file.hosts[host].name;
            let Some(end) = file.ends().filter(|end| end.host == *name).nth(interface) else { return Ok(()) };
            network.nodes[host].network(|netlink| netlink.set_transit_discard(&end.interface, injected))
        }
    }
}

/// Cuts a link: both ends send nothing; packets in flight in a delay line still
/// arrive. Rejected if an end has a root qdisc of its own, which would be lost.
fn cut(network: &mut Network, ends: &[LinkEnd; 2], injected: bool) -> Result<(), LabError> {
    if injected {
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
        links::node_of(&mut network.nodes, end)?.network(|netlink| match injected {
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
    let interface = fault.interface.as_deref().unwrap_or("of the fault");
    LabError::NoLink {
        lab: file.name.clone(),
        what: format!("interface {interface} on {}", fault.host),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    }
}
