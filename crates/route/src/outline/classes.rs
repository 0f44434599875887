//! Classes of hosts: gateways from next hops, the others by network and interface.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_schema::{
    fabric::HostRole,
    prefix::Prefix,
    routing::{HostRouting, RuleAction},
};

use super::networks::{Network, addresses, hops};
use crate::lint::CONNECTION_COUNT;

/// A class of the file to write.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) role: HostRole,
    pub(super) hosts: Vec<String>,
    pub(super) links: Vec<Link>,
    pub(super) weight: u16,
    /// Known for captured gateways.
    pub(super) stateful: Option<bool>,
    /// Assumptions.
    pub(super) assumed: Vec<String>,
}

/// A link of a class: a value for each host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) network: usize,
    pub(super) interface: String,
    pub(super) ipv4: Vec<Option<IpAddr>>,
    pub(super) ipv6: Vec<Option<IpAddr>>,
    pub(super) aliases: Vec<Vec<IpAddr>>,
    pub(super) link_addresses: Vec<Option<String>>,
}

/// A gateway with its place on each network.
#[derive(Debug, Clone, Default)]
struct Seat {
    host: Option<usize>,
    name: String,
    /// By network: interface, IPv4 and IPv6 address.
    links: BTreeMap<usize, (Option<usize>, [Option<IpAddr>; 2])>,
}

/// Classes, gateways first; absent when no gateway is on two networks.
pub(super) fn find(hosts: &[HostRouting], networks: &[Network]) -> Option<Vec<Class>> {
    let seats = seats(hosts, networks);
    if seats.is_empty() {
        return None;
    }
    let mut classes = gateway_classes(hosts, networks, &seats);
    let is_gateway = |host: usize| seats.iter().any(|seat| seat.host == Some(host));
    let ends: Vec<usize> = (0..hosts.len()).filter(|host| !is_gateway(*host)).collect();
    classes.extend(end_classes(hosts, networks, &ends));
    Some(classes)
}

/// Gateways in the order in which routes name them.
fn seats(hosts: &[HostRouting], networks: &[Network]) -> Vec<Seat> {
    let owner = |address: IpAddr| {
        hosts.iter().position(|host| {
            host.interfaces.iter().flat_map(addresses).any(|prefix| prefix.address == address)
        })
    };
    let mut seats: Vec<Seat> = Vec::new();
    let mut unknown: Vec<[Vec<IpAddr>; 2]> = vec![Default::default(); networks.len()];
    for (number, network) in networks.iter().enumerate() {
        for address in &network.gateways {
            match owner(*address) {
                Some(host) if seats.iter().any(|seat| seat.host == Some(host)) => {}
                Some(host) => seats.push(captured(hosts, networks, host)),
                None => unknown[number][usize::from(address.is_ipv6())].push(*address),
            }
        }
    }
    seats.retain(|seat| seat.links.len() > 1);
    seats.extend(uncaptured(&unknown));
    seats
}

fn captured(hosts: &[HostRouting], networks: &[Network], host: usize) -> Seat {
    let mut seat = Seat { host: Some(host), name: hosts[host].host.clone(), ..Seat::default() };
    for (number, network) in networks.iter().enumerate() {
        for (_, interface) in network.members.iter().filter(|(member, _)| *member == host) {
            let of = |is_ipv6: bool| first_on(&hosts[host], *interface, network, is_ipv6);
            seat.links.entry(number).or_insert((Some(*interface), [of(false), of(true)]));
        }
    }
    seat
}

/// The first address of an interface on a network.
fn first_on(host: &HostRouting, interface: usize, network: &Network, is_ipv6: bool) -> Option<IpAddr> {
    let mut on_it = addresses(&host.interfaces[interface]).map(|prefix| prefix.address);
    on_it.find(|address| address.is_ipv6() == is_ipv6 && network.contains(*address))
}

/// Gateways that were not captured: of two networks with as many of them each, they
/// are assumed to be in the same order.
fn uncaptured(unknown: &[[Vec<IpAddr>; 2]]) -> Vec<Seat> {
    let with: Vec<usize> =
        (0..unknown.len()).filter(|number| unknown[*number].iter().any(|list| !list.is_empty())).collect();
    let [left, right] = with[..] else { return Vec::new() };
    let count = unknown[left][0].len().max(unknown[left][1].len());
    let is_even = |number: usize| unknown[number].iter().all(|list| list.is_empty() || list.len() == count);
    let has_family = |family: usize| !unknown[left][family].is_empty() && !unknown[right][family].is_empty();
    if !is_even(left) || !is_even(right) || !has_family(0) && !has_family(1) {
        return Vec::new();
    }
    let seat = |at: usize| {
        let place = |number: usize| {
            (None, [unknown[number][0].get(at).copied(), unknown[number][1].get(at).copied()])
        };
        let links = BTreeMap::from([(left, place(left)), (right, place(right))]);
        Seat { host: None, name: format!("gateway{}", at + 1), links }
    };
    (0..count).map(seat).collect()
}

fn gateway_classes(hosts: &[HostRouting], networks: &[Network], seats: &[Seat]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for seat in seats {
        let weight = seat_weight(hosts, seat);
        let stateful = seat.host.map(|host| {
            let count = hosts[host].sysctls.get(CONNECTION_COUNT).and_then(|value| value.value.parse().ok());
            count.is_some_and(|count: u64| count > 0)
        });
        let interfaces: Vec<(usize, String)> = seat
            .links
            .iter()
            .map(|(number, (interface, _))| {
                (*number, interface_name(hosts, networks, seat, *number, *interface))
            })
            .collect();
        let is_like = |class: &Class| {
            let its = class.links.iter().map(|link| (link.network, link.interface.clone()));
            class.weight == weight && class.stateful == stateful && its.eq(interfaces.iter().cloned())
        };
        let at = match classes.iter().position(is_like) {
            Some(at) => at,
            None => {
                let mut assumed = Vec::new();
                if seat.host.is_none() {
                    assumed.push(
                        "none of these gateways was captured: their names and interfaces are made up, and \
                         the first address on one network is taken to be that of the first on the other"
                            .to_owned(),
                    );
                }
                let number = classes.len() + 1;
                classes.push(Class {
                    name: if number == 1 { "gateway".to_owned() } else { format!("gateway-{number}") },
                    role: HostRole::Gateway,
                    hosts: Vec::new(),
                    links: interfaces
                        .iter()
                        .map(|(network, interface)| Link {
                            network: *network,
                            interface: interface.clone(),
                            ..Link::default()
                        })
                        .collect(),
                    weight,
                    stateful,
                    assumed,
                });
                classes.len() - 1
            }
        };
        add_seat(hosts, seat, &mut classes[at]);
    }
    classes
}

fn interface_name(
    hosts: &[HostRouting],
    networks: &[Network],
    seat: &Seat,
    network: usize,
    interface: Option<usize>,
) -> String {
    if let (Some(host), Some(interface)) = (seat.host, interface) {
        return hosts[host].interfaces[interface].name.clone();
    }
    // The name that captured hosts use.
    let some = networks[network].members.first();
    some.map_or_else(
        || "eth0".to_owned(),
        |(host, interface)| hosts[*host].interfaces[*interface].name.clone(),
    )
}

fn add_seat(hosts: &[HostRouting], seat: &Seat, class: &mut Class) {
    class.hosts.push(seat.name.clone());
    for link in &mut class.links {
        let Some((interface, [ipv4, ipv6])) = seat.links.get(&link.network) else { continue };
        link.ipv4.push(*ipv4);
        link.ipv6.push(*ipv6);
        let captured = seat.host.zip(*interface).map(|(host, interface)| &hosts[host].interfaces[interface]);
        // Six octets: a server can distinguish gateways by them.
        let address = captured.and_then(|it| it.link_address.clone()).filter(|link| link.len() == 17);
        link.link_addresses.push(address.filter(|link| link != "00:00:00:00:00:00"));
    }
}

/// The weight that routes give a gateway; 1 where they do not agree.
fn seat_weight(hosts: &[HostRouting], seat: &Seat) -> u16 {
    let mine = |address: IpAddr| seat.links.values().any(|(_, both)| both.contains(&Some(address)));
    let mut weights = hosts.iter().flat_map(|host| {
        let routes = host.routes.iter().map(|route| hops(host, &route.action));
        routes.filter(|hops| hops.len() > 1).flatten()
    });
    let mut weights = weights.by_ref().filter(|(via, _)| mine(*via)).map(|(_, weight)| weight.max(1));
    let first = weights.next().unwrap_or(1);
    if weights.all(|weight| weight == first) { first } else { 1 }
}

/// Hosts on one network of the fabric, by role and interface.
fn end_classes(hosts: &[HostRouting], networks: &[Network], ends: &[usize]) -> Vec<Class> {
    let mut links: Vec<(usize, Link)> = Vec::new();
    for host in ends {
        let mut on = networks.iter().enumerate().flat_map(|(number, network)| {
            let members = network.members.iter().filter(|(member, _)| member == host);
            members.map(move |(_, interface)| (number, *interface)).take(1)
        });
        // A host on several networks that is no gateway belongs to none of them.
        if let (Some((network, interface)), None) = (on.next(), on.next()) {
            links.push((*host, end_link(&hosts[*host], network, &networks[network], interface)));
        }
    }
    let busiest = (0..networks.len()).max_by_key(|number| {
        (links.iter().filter(|(_, link)| link.network == *number).count(), std::cmp::Reverse(*number))
    });
    let mut classes: Vec<Class> = Vec::new();
    for (host, link) in links {
        let (role, is_assumed) = role(&hosts[host].host, &link, busiest);
        let is_like = |class: &Class| {
            class.role == role
                && class.links[0].network == link.network
                && class.links[0].interface == link.interface
                && class.links[0].aliases.first().map_or(0, Vec::len) == link.aliases[0].len()
        };
        match classes.iter_mut().find(|class| is_like(class)) {
            Some(class) => class.add(&hosts[host].host, link),
            None => {
                let assumed = is_assumed.then(|| "the role is a guess: storage, compute or login".to_owned());
                let mut class = Class {
                    name: String::new(),
                    role,
                    hosts: Vec::new(),
                    links: vec![Link {
                        network: link.network,
                        interface: link.interface.clone(),
                        ..Link::default()
                    }],
                    weight: 1,
                    stateful: None,
                    assumed: assumed.into_iter().collect(),
                };
                class.add(&hosts[host].host, link);
                classes.push(class);
            }
        }
    }
    name_them(&mut classes);
    classes
}

impl Class {
    fn add(&mut self, host: &str, link: Link) {
        self.hosts.push(host.to_owned());
        let all = &mut self.links[0];
        all.ipv4.extend(link.ipv4);
        all.ipv6.extend(link.ipv6);
        all.aliases.extend(link.aliases);
    }
}

fn end_link(host: &HostRouting, number: usize, network: &Network, interface: usize) -> Link {
    Link {
        network: number,
        interface: host.interfaces[interface].name.clone(),
        ipv4: vec![first_on(host, interface, network, false)],
        ipv6: vec![first_on(host, interface, network, true)],
        aliases: vec![aliases(host, network, interface)],
        link_addresses: Vec::new(),
    }
}

/// An address for each IPv4 gateway, in their order: by rules from the address
/// to a table that goes by the gateway. None unless there is one for each.
fn aliases(host: &HostRouting, network: &Network, interface: usize) -> Vec<IpAddr> {
    let by_gateway = |gateway: &IpAddr| {
        addresses(&host.interfaces[interface]).map(|prefix| prefix.address).find(|address| {
            host.rules.iter().any(|rule| {
                let RuleAction::Table(table) = rule.action else { return false };
                let goes_by = |hops: Vec<(IpAddr, u16)>| matches!(hops[..], [(via, _)] if via == *gateway);
                rule.selector.from == Some(Prefix::host(*address))
                    && host.routes.iter().any(|it| it.table == table && goes_by(hops(host, &it.action)))
            })
        })
    };
    let gateways = network.gateways.iter().filter(|gateway| gateway.is_ipv4());
    gateways.map(by_gateway).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Role of a host, by its name or its addresses; else a guess: the network with
/// most hosts is the compute network.
fn role(name: &str, link: &Link, busiest: Option<usize>) -> (HostRole, bool) {
    const STORAGE: [&str; 8] = ["storage", "nsd", "oss", "mds", "ost", "nfs", "server", "dtn"];
    let name = name.to_ascii_lowercase();
    if STORAGE.iter().any(|part| name.contains(part)) || !link.aliases[0].is_empty() {
        return (HostRole::Storage, false);
    }
    if name.contains("login") {
        return (HostRole::Login, false);
    }
    if ["compute", "node", "nid", "client"].iter().any(|part| name.contains(part)) {
        return (HostRole::Compute, false);
    }
    (if busiest == Some(link.network) { HostRole::Compute } else { HostRole::Storage }, true)
}

fn name_them(classes: &mut [Class]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for class in classes {
        let role = match class.role {
            HostRole::Storage => "storage",
            HostRole::Gateway => "gateway",
            HostRole::Compute => "compute",
            HostRole::Login => "login",
        };
        let count = counts.entry(role).or_default();
        *count += 1;
        class.name = if *count == 1 { role.to_owned() } else { format!("{role}-{count}") };
    }
}
