//! The hosts of a fabric, each identified by class and number; names and addresses
//! are generated on request.

use std::{collections::HashSet, net::IpAddr};

use clearstream_configfile::{Fault, did_you_mean, fault};
use clearstream_schema::{
    fabric::{FabricFile, FabricNetwork, FabricRoute, HostClass, HostRole},
    prefix::Prefix,
};

use super::{
    FabricError, check,
    pattern::{AddressList, AddressPattern, NameList, Pattern},
};

/// A host: its class in the order of the file, and its number in the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId {
    /// Class.
    pub class: usize,
    /// Number, from 0.
    pub index: usize,
}

/// A host that forwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Number among all gateways of the file, from 0; tables and marks count by it.
    pub number: usize,
    /// The host.
    pub host: HostId,
    /// Its name.
    pub name: String,
    /// Share of flows relative to the others.
    pub weight: u16,
    /// It keeps connection state.
    pub stateful: bool,
}

/// A validated fabric.
#[derive(Debug, Clone)]
pub struct Fabric {
    file: FabricFile,
    pub(super) classes: Vec<Class>,
    gateways: Vec<Gateway>,
    /// Gateways of each route, by their numbers.
    of_route: Vec<Vec<usize>>,
    /// Gateways of each network's routes, by their numbers.
    of_network: Vec<Vec<usize>>,
}

/// A class with its patterns read.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) names: NameList,
    pub(super) links: Vec<Link>,
}

/// A link with its patterns read; addresses by family, IPv4 first.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) network: usize,
    pub(super) addresses: [AddressList; 2],
    pub(super) aliases: [AddressList; 2],
    pub(super) link_addresses: NameList,
}

impl Fabric {
    /// Validates a fabric and expands its hosts.
    ///
    /// # Errors
    /// The first invalid entry: its key, and a suggested correction.
    pub fn new(file: FabricFile) -> Result<Self, Fault> {
        check::head(&file)?;
        let classes =
            (0..file.classes.len()).map(|index| read_class(&file, index)).collect::<Result<Vec<_>, _>>()?;
        check::classes(&file, &classes)?;
        let gateways = all_gateways(&file, &classes);
        let of_route = (0..file.routes.len())
            .map(|index| check::route(&file, index).map(|via| of_classes(&gateways, &via)))
            .collect::<Result<Vec<_>, _>>()?;
        let of_network = (0..file.networks.len()).map(|index| of_network(&file, &of_route, index)).collect();
        let fabric = Self { file, classes, gateways, of_route, of_network };
        check::numbers(&fabric)?;
        check::addresses::check(&fabric)?;
        check::routes(&fabric)?;
        Ok(fabric)
    }

    /// Contents of the file.
    pub fn file(&self) -> &FabricFile {
        &self.file
    }

    /// Name of the fabric.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Every host, class by class.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        (0..self.classes.len()).flat_map(|class| self.class_hosts(class))
    }

    /// Hosts of a class.
    pub fn class_hosts(&self, class: usize) -> impl Iterator<Item = HostId> + use<> {
        (0..self.class_count(class)).map(move |index| HostId { class, index })
    }

    /// Hosts in a class.
    pub fn class_count(&self, class: usize) -> usize {
        self.classes.get(class).map_or(0, |class| class.names.count())
    }

    /// Hosts in all.
    pub fn host_count(&self) -> usize {
        (0..self.classes.len()).map(|class| self.class_count(class)).sum()
    }

    /// Class of a host, as the file has it.
    pub fn class(&self, host: HostId) -> &HostClass {
        &self.file.classes[host.class]
    }

    /// Number of a class by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn find_class(&self, name: &str) -> Result<usize, FabricError> {
        self.file.classes.iter().position(|class| class.name == name).ok_or_else(|| FabricError::NoClass {
            fabric: self.file.name.clone(),
            name: name.to_owned(),
            known: self.file.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// A host by its name.
    ///
    /// # Errors
    /// There is none; the nearest name is suggested.
    pub fn find(&self, name: &str) -> Result<HostId, FabricError> {
        if let Some(host) = self.hosts().find(|host| self.host_name(*host) == name) {
            return Ok(host);
        }
        let names: Vec<String> = self.hosts().take(4096).map(|host| self.host_name(host)).collect();
        let known =
            self.file.classes.iter().map(|class| format!("{} ({})", class.name, class.hosts.join(", ")));
        Err(FabricError::NoHost {
            fabric: self.file.name.clone(),
            name: name.to_owned(),
            hint: did_you_mean(name, names.iter().map(String::as_str)),
            known: known.collect::<Vec<_>>().join(", "),
        })
    }

    /// Name of a host.
    pub fn host_name(&self, host: HostId) -> String {
        self.classes[host.class].names.nth(host.index).unwrap_or_default()
    }

    /// Number of the network that a link of a host is on.
    pub fn link_network(&self, host: HostId, link: usize) -> usize {
        self.classes[host.class].links[link].network
    }

    /// The link of a host that is on a network.
    pub fn link_on(&self, host: HostId, network: usize) -> Option<usize> {
        self.classes[host.class].links.iter().position(|link| link.network == network)
    }

    /// Address of a host on one of its links.
    pub fn address(&self, host: HostId, link: usize, ipv6: bool) -> Option<IpAddr> {
        self.classes[host.class].links[link].addresses[usize::from(ipv6)].nth(host.index)
    }

    /// Further addresses of a host on one of its links, one for each
    /// [gateway of the network](Self::network_gateways), in their order.
    pub fn aliases(&self, host: HostId, link: usize, ipv6: bool) -> Vec<IpAddr> {
        let link = &self.classes[host.class].links[link];
        let each = self.of_network[link.network].len();
        let list = &link.aliases[usize::from(ipv6)];
        if list.is_empty() {
            return Vec::new();
        }
        (0..each).filter_map(|gateway| list.nth(host.index * each + gateway)).collect()
    }

    /// Link address of a host on one of its links, if the file has it.
    pub fn link_address(&self, host: HostId, link: usize) -> Option<String> {
        let text = self.classes[host.class].links[link].link_addresses.nth(host.index)?;
        Some(text.to_ascii_lowercase())
    }

    /// A network of the file.
    pub fn network(&self, network: usize) -> &FabricNetwork {
        &self.file.networks[network]
    }

    /// Number of a network by its name; a fabric names only networks it has.
    pub fn network_number(&self, name: &str) -> Option<usize> {
        self.file.networks.iter().position(|network| network.name == name)
    }

    /// The prefix of a network that an address is in.
    pub fn prefix_of(&self, network: usize, address: IpAddr) -> Option<Prefix> {
        self.file.networks[network].prefixes.iter().copied().find(|prefix| prefix.contains(address))
    }

    /// Every gateway, by number.
    pub fn gateways(&self) -> &[Gateway] {
        &self.gateways
    }

    /// A route of the file, with the numbers of the networks that it joins.
    pub fn route(&self, route: usize) -> (&FabricRoute, [usize; 2]) {
        let route = &self.file.routes[route];
        let number = |name: &String| self.network_number(name).unwrap_or_default();
        (route, [number(&route.between[0]), number(&route.between[1])])
    }

    /// Gateways of a route, in the order of its next hops.
    pub fn route_gateways(&self, route: usize) -> impl Iterator<Item = &Gateway> {
        self.of_route[route].iter().map(|number| &self.gateways[*number])
    }

    /// Gateways of all routes of a network, each once.
    pub fn network_gateways(&self, network: usize) -> impl Iterator<Item = &Gateway> {
        self.of_network[network].iter().map(|number| &self.gateways[*number])
    }

    /// Classes of a role that have a link on a network.
    pub fn classes_on(&self, network: usize) -> impl Iterator<Item = usize> + '_ {
        let on = move |class: &Class| class.links.iter().any(|link| link.network == network);
        self.classes.iter().enumerate().filter(move |(_, class)| on(class)).map(|(index, _)| index)
    }
}

fn read_class(file: &FabricFile, index: usize) -> Result<Class, Fault> {
    let class = &file.classes[index];
    let names = class.hosts.iter().enumerate().map(|(number, text)| {
        Pattern::read(text, 10).or_else(|problem| fault(format!("class[{index}].hosts[{number}]"), problem))
    });
    let names = names.collect::<Result<NameList, _>>()?;
    let links = (0..class.links.len()).map(|link| read_link(file, index, link));
    Ok(Class { names, links: links.collect::<Result<_, _>>()? })
}

fn read_link(file: &FabricFile, class: usize, index: usize) -> Result<Link, Fault> {
    let link = &file.classes[class].links[index];
    let key = format!("class[{class}].link[{index}]");
    let Some(network) = file.networks.iter().position(|network| network.name == link.network) else {
        let names = || file.networks.iter().map(|network| network.name.as_str());
        let hint = did_you_mean(&link.network, names());
        let known = names().collect::<Vec<_>>().join(", ");
        let problem = format!("there is no network \"{}\"{hint} (known: {known})", link.network);
        return fault(format!("{key}.network"), problem);
    };
    let link_addresses = link.link_addresses.iter().enumerate().map(|(number, text)| {
        Pattern::read(text, 16).or_else(|problem| fault(format!("{key}.link-addresses[{number}]"), problem))
    });
    Ok(Link {
        network,
        addresses: read_addresses(&link.addresses, &format!("{key}.addresses"))?,
        aliases: read_addresses(&link.alias_addresses, &format!("{key}.alias-addresses"))?,
        link_addresses: link_addresses.collect::<Result<_, _>>()?,
    })
}

fn read_addresses(patterns: &[String], key: &str) -> Result<[AddressList; 2], Fault> {
    let mut lists = [AddressList::default(), AddressList::default()];
    for (index, text) in patterns.iter().enumerate() {
        let key = format!("{key}[{index}]");
        let pattern = AddressPattern::read(text).or_else(|problem| fault(key.as_str(), problem))?;
        let list = &mut lists[usize::from(pattern.is_ipv6())];
        if list.count().is_none() {
            return fault(key, "the pattern before it ends in + and never ends: write it last");
        }
        list.push(pattern);
    }
    Ok(lists)
}

fn all_gateways(file: &FabricFile, classes: &[Class]) -> Vec<Gateway> {
    let of_class = |(index, class): (usize, &HostClass)| {
        let (weight, stateful) = (class.weight, class.stateful);
        let names = classes[index].names.clone();
        (0..names.count()).map(move |number| Gateway {
            number: 0,
            host: HostId { class: index, index: number },
            name: names.nth(number).unwrap_or_default(),
            weight,
            stateful,
        })
    };
    let forwards = |(_, class): &(usize, &HostClass)| class.role == HostRole::Gateway;
    let all = file.classes.iter().enumerate().filter(forwards).flat_map(of_class);
    all.enumerate().map(|(number, gateway)| Gateway { number, ..gateway }).collect()
}

/// Gateways of the classes, in the order of the classes.
fn of_classes(gateways: &[Gateway], classes: &[usize]) -> Vec<usize> {
    let of = |class: &usize| {
        let class = *class;
        gateways.iter().filter(move |gateway| gateway.host.class == class).map(|gateway| gateway.number)
    };
    classes.iter().flat_map(of).collect()
}

fn of_network(file: &FabricFile, of_route: &[Vec<usize>], network: usize) -> Vec<usize> {
    let name = &file.networks[network].name;
    let mut seen = HashSet::new();
    let routes = file.routes.iter().zip(of_route).filter(|(route, _)| route.between.contains(name));
    routes.flat_map(|(_, gateways)| gateways).copied().filter(|number| seen.insert(*number)).collect()
}
