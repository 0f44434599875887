//! Path of a run's packets: over which link of a lab, over the loopback
//! of one machine, or between machines.

use core::{fmt, net::IpAddr};

use clearstream_schema::lab::{LabFile, LabLink};
use serde::{Serialize, Serializer};

use crate::{
    digest::{Digest, ExperimentDigest},
    format::{self, rate, time},
    machines,
};

/// The link that an experiment measured over: the one with the server's address,
/// else the one that the study names, else the first.
pub(crate) fn of<'a>(lab: &'a LabFile, experiment: &ExperimentDigest) -> Option<&'a LabLink> {
    let has = |link: &&LabLink, wanted: IpAddr| {
        link.ends.iter().flat_map(|end| &end.addresses).any(|address| {
            let text = address.split('/').next().unwrap_or_default();
            text.parse::<IpAddr>().is_ok_and(|own| own == wanted)
        })
    };
    if let Some(address) = experiment.server_address() {
        return lab.links.iter().find(|link| has(link, address));
    }
    let variant = experiment.spec.lab.as_ref().and_then(|variant| variant.interface.as_deref());
    match variant {
        Some(name) => lab.links.iter().find(|link| link.ends.iter().any(|end| end.interface == name)),
        // Between more hosts no one link is the path.
        None => lab.links.first().filter(|_| lab.hosts.len() == 2),
    }
}

/// Where an experiment was measured; in a card its name alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    /// `over` a path, `on` hosts.
    preposition: &'static str,
    name: String,
}

impl Place {
    /// `over loopback of dtn1`, `on compute-4`.
    pub(crate) fn phrase(&self) -> String {
        format!("{} {}", self.preposition, self.name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

/// Path of an experiment's packets, in short; of storage the hosts whose calls were measured.
pub(crate) fn path(digest: &Digest, experiment: &ExperimentDigest) -> Place {
    if experiment.clients.is_empty() {
        return Place { preposition: "over", name: between_ends(digest, experiment) };
    }
    let hosts = format::hosts_of(&experiment.clients);
    let name = match &digest.run.lab {
        Some(lab) => format!("{hosts} in lab {}", lab.name),
        None => hosts,
    };
    Place { preposition: "on", name }
}

fn between_ends(digest: &Digest, experiment: &ExperimentDigest) -> String {
    match &digest.run.lab {
        Some(lab) => match of(lab, experiment) {
            Some(link) => format!("lab link {}", described(link, experiment)),
            None => format!("lab {}", lab.name),
        },
        None if between_all(digest, experiment) => format!("paths between {} hosts", digest.run.hosts.len()),
        None if digest.one_machine() => format!("loopback of {}", digest.server().name),
        None => format!("{} to {}", digest.client().name, digest.server().name),
    }
}

/// More hosts than client and server took part, and the trials are none between those two.
fn between_all(digest: &Digest, experiment: &ExperimentDigest) -> bool {
    digest.run.hosts.len() > 2 && experiment.cells().is_empty() && experiment.probes.is_empty()
}

/// `wan0: 19.0 Gb/s, 17.0 ms round trip`, but for what is a factor of the experiment.
fn described(link: &LabLink, experiment: &ExperimentDigest) -> String {
    let [one, other] = &link.ends;
    let name = if one.interface == other.interface {
        one.interface.clone()
    } else {
        format!("{} {} \u{2013} {} {}", one.host, one.interface, other.host, other.interface)
    };
    let spec = &experiment.spec;
    let of_lab = |name| spec.lab.as_ref().is_some_and(|variant| variant.factors.contains_key(name));
    let is_factor = |name| spec.factors.contains_key(name) || of_lab(name);
    let mut parts = Vec::new();
    match link.rate {
        _ if is_factor("link-rate") => parts.push("rate by trial".to_owned()),
        limit => parts.extend(limit.map(|limit| rate(limit.0 as f64))),
    }
    if is_factor("link-delay") {
        parts.push("delay by trial".to_owned());
    } else if link.delay.0 > 0 {
        parts.push(format!("{} round trip", time(2.0 * link.delay.0 as f64)));
    }
    if parts.is_empty() {
        parts.push("virtual, no rate or delay set".to_owned());
    }
    format!("{name}: {}", parts.join(", "))
}

/// Suffix of the title of a run that crossed no network.
pub(crate) fn title_suffix(digest: &Digest) -> &'static str {
    suffix_of(digest.run.lab.as_ref().map(|lab| lab.name.as_str()), is_one_machine(digest))
}

/// As [`title_suffix`], of a lab's name and whether all hosts are one machine.
pub(crate) fn suffix_of(lab: Option<&str>, one_machine: bool) -> &'static str {
    match (lab, one_machine) {
        (Some(_), _) => " \u{2013} in a lab on one machine",
        (None, true) => " \u{2013} on one machine",
        (None, false) => "",
    }
}

/// Both ends of all paths; a client of storage is no end of one.
fn is_one_machine(digest: &Digest) -> bool {
    digest.storage_clients().is_none() && machines::of(digest).len() < 2
}

/// The band of a run that crossed no network; nothing where two machines took part.
pub(crate) fn band(digest: &Digest) -> Option<String> {
    let lab = digest.run.lab.as_ref().map(|lab| lab.name.as_str());
    let one_machine = is_one_machine(digest).then_some(digest.server().name.as_str());
    band_of(lab, one_machine, digest.run.hosts.len())
}

/// As [`band`], of a lab's name and the name of the one machine that `host_count` hosts are.
pub(crate) fn band_of(lab: Option<&str>, one_machine: Option<&str>, host_count: usize) -> Option<String> {
    let no_network = "no packet crossed an Ethernet card, a cable or a network";
    if let Some(lab) = lab {
        return Some(format!(
            "Made on one machine, in the lab {lab}: its hosts are network namespaces joined by virtual links; {no_network}. \
             Rates are what this machine\u{2019}s processors and those links carry, not what the published hardware did."
        ));
    }
    one_machine.map(|name| {
        let ends = match host_count {
            0..=2 => "both ends".to_owned(),
            count => format!("all {count} hosts"),
        };
        format!(
            "Made on one machine, {ends} on {name}, over its loopback: {no_network}. Rates are what its processors \
             carry, not what a network between two machines does."
        )
    })
}
