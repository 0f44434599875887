//! Which host of a fabric a given one is: by its name, by the name of its file without the ending,
//! or by its addresses, which are each of one host.

use std::{borrow::Cow, collections::HashMap, net::IpAddr, path::Path};

use clearstream_schema::{human::few, prefix::Prefix};

use super::{Subject, view::is_of_the_link};
use crate::fabric::{Fabric, HostId};

/// Hosts of a fabric by names and addresses.
#[derive(Debug)]
pub(super) struct Identities {
    names: HashMap<String, HostId>,
    addresses: HashMap<IpAddr, HostId>,
    networks: Vec<Prefix>,
    fabric: String,
}

/// Why a host's routing cannot be compared with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// Neither its name nor an address is in the fabric.
    Stranger,
    /// Its addresses are in no network of the fabric, as in bundles where they are replaced.
    Replaced,
}

impl Identities {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let mut addresses = HashMap::new();
        for host in fabric.hosts() {
            for link in 0..fabric.class(host).links.len() {
                for ipv6 in [false, true] {
                    addresses.extend(fabric.address(host, link, ipv6).map(|address| (address, host)));
                }
            }
        }
        let networks = fabric.file().networks.iter().flat_map(|network| network.prefixes.iter().copied());
        Self {
            names: fabric.hosts().map(|host| (fabric.host_name(host), host)).collect(),
            addresses,
            networks: networks.collect(),
            fabric: fabric.name().to_owned(),
        }
    }

    /// The host of the fabric that a given one is.
    pub(super) fn of(&self, subject: &Subject) -> Result<HostId, Unplaced> {
        let addresses = subject.routing.interfaces.iter().flat_map(|interface| &interface.addresses);
        let mut own =
            addresses.map(|own| own.value.address).filter(|own| !is_of_the_link(Prefix::host(*own)));
        let is_replaced = subject.is_whole
            && own.clone().next().is_some()
            && !own.clone().any(|own| self.networks.iter().any(|network| network.contains(own)));
        let named = [subject.name.as_str(), subject.routing.host.as_str(), stem(subject)];
        let by_name = named.iter().find_map(|name| self.names.get(*name).copied());
        // Files of another host may have an address by mistake.
        let by_address =
            || own.find_map(|own| self.addresses.get(&own).copied()).filter(|_| subject.is_whole);
        match by_name.or_else(by_address) {
            Some(_) if is_replaced => Err(Unplaced::Replaced),
            Some(id) => Ok(id),
            None => Err(Unplaced::Stranger),
        }
    }
}

/// The name of a bundle without its ending.
fn stem(subject: &Subject) -> &str {
    Path::new(&subject.name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// The hosts, named by the fabric where only an ending of their file's name differs, and notices about those that it does not have.
pub(super) fn named<'h>(
    hosts: &'h [Subject],
    identities: Option<&Identities>,
) -> (Cow<'h, [Subject]>, Vec<String>) {
    let Some(identities) = identities else { return (Cow::Borrowed(hosts), Vec::new()) };
    let (mut renamed, mut strangers, mut replaced) = (Cow::Borrowed(hosts), Vec::new(), Vec::new());
    for (at, host) in hosts.iter().enumerate() {
        match identities.of(host) {
            Ok(_)
                if !identities.names.contains_key(&host.name)
                    && identities.names.contains_key(stem(host)) =>
            {
                renamed.to_mut()[at].name = stem(host).to_owned();
            }
            Ok(_) => {}
            // Files of hosts that the fabric does not have are compared by its networks and gateways.
            Err(Unplaced::Stranger) if !host.is_whole => {}
            Err(Unplaced::Stranger) => strangers.push(&host.name),
            Err(Unplaced::Replaced) => replaced.push(&host.name),
        }
    }
    let fabric = &identities.fabric;
    let notice = |hosts: Vec<&String>, why: &str| {
        (!hosts.is_empty()).then(|| format!("{}: not compared with the plan of {fabric}: {why}", few(hosts)))
    };
    let notices = [
        notice(strangers, "neither this name nor an address is that of one of its hosts"),
        notice(
            replaced,
            "no address is in its networks; a bundle has them replaced, unless it was written with `inspect --capture \
             FILE --keep-addresses`",
        ),
    ];
    (renamed, notices.into_iter().flatten().collect())
}
