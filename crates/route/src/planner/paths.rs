//! Paths of a route: a request from a client over each gateway that it may choose to a
//! server, and the reply, against what the plan promises of them.

use std::{collections::HashMap, net::IpAddr};

use clearstream_routing::{
    lookup::{Found, NextHop, Packet, Verdict},
    node::{Node, ReverseFilter},
};
use clearstream_schema::{
    fabric::ReturnPath,
    route_plan::Counterexample,
    routing::{HostRouting, Resilient},
};

use super::{Planner, pairs::Pair};
use crate::{
    fabric::HostId,
    walk::{End, Flow, Hosts, Next, RoundTrip, Walk, Walker},
};

/// Numbers of the hosts in a walk; those of the gateways follow.
const CLIENT: usize = 0;
const SERVER: usize = 1;
const FIRST_GATEWAY: usize = 2;

/// Gateways of a route by their numbers, with what they route by.
pub(super) fn forwarders(
    planner: &Planner<'_>,
    index: usize,
    routing: &dyn Fn(HostId) -> HostRouting,
) -> Vec<(usize, HostRouting)> {
    let numbers = &planner.routes[index].gateways;
    numbers.iter().map(|number| (*number, routing(planner.fabric.gateways()[*number].host))).collect()
}

/// The gateways of a route, ready for lookups.
pub(super) struct Paths<'w> {
    planner: &'w Planner<'w>,
    index: usize,
    /// Each with its name in the fabric.
    gateways: Vec<(&'w str, Node<'w>)>,
    /// Their addresses: the number in a walk, and the interface.
    owners: HashMap<IpAddr, (usize, &'w str)>,
}

/// A client and a server with the gateways between them, as the walker sees them: what
/// the fabric says of links and gateways holds, and nothing else is there.
struct Between<'r> {
    paths: &'r Paths<'r>,
    ends: [Node<'r>; 2],
}

impl<'r> Hosts<'r> for Between<'r> {
    fn node(&self, host: usize) -> &Node<'r> {
        self.ends.get(host).unwrap_or_else(|| &self.paths.gateways[host - FIRST_GATEWAY].1)
    }

    fn name(&self, host: usize) -> &str {
        let gateway = || self.paths.gateways[host - FIRST_GATEWAY].0;
        self.ends.get(host).map_or_else(gateway, |end| end.routing.host.as_str())
    }

    fn next(&self, _: usize, _: &'r str, via: IpAddr) -> Next<'r> {
        let owner = self.paths.owners.get(&via);
        owner.map_or(Next::NotGiven, |(gateway, input)| Next::Host(*gateway, input))
    }

    fn neighbour(&self, _: usize, _: &str, target: usize, address: IpAddr) -> Option<&'r str> {
        self.node(target).interface_with(address)
    }
}

/// A request, and what is promised of its reply.
#[derive(Clone, Copy)]
struct Request {
    pair: Pair,
    source: IpAddr,
    address: IpAddr,
    promise: ReturnPath,
}

/// Next hops that a host may choose, and the resilient group that selects one.
type Choice<'f, 'r> = (&'f [NextHop<'r>], Option<Resilient>);

impl<'w> Paths<'w> {
    pub(super) fn new(
        planner: &'w Planner<'w>,
        index: usize,
        forwarders: &'w [(usize, HostRouting)],
    ) -> Self {
        let (mut owners, mut gateways) = (HashMap::new(), Vec::new());
        for (number, routing) in forwarders {
            let gateway = FIRST_GATEWAY + gateways.len();
            for interface in &routing.interfaces {
                let own = interface.addresses.iter().map(|address| address.value.address);
                owners.extend(own.map(|address| (address, (gateway, interface.name.as_str()))));
            }
            gateways.push((planner.fabric.gateways()[*number].name.as_str(), Node::new(routing)));
        }
        Self { planner, index, gateways, owners }
    }

    pub(super) fn planner(&self) -> &'w Planner<'w> {
        self.planner
    }

    /// Whether gateways carry a family.
    pub(super) fn carries(&self, ipv6: bool) -> bool {
        !self.planner.routes[self.index].hops[usize::from(ipv6)][0].is_empty()
    }

    /// Walks between a client and a server, by every family, address of the server and
    /// gateway; of the gateways only one in turn when `turn` is given. Counts the walks.
    pub(super) fn walk(
        &self,
        pair: Pair,
        ends: [&HostRouting; 2],
        turn: Option<usize>,
    ) -> Result<u64, Counterexample> {
        let between = Between { paths: self, ends: ends.map(Node::new) };
        let fabric = self.planner.fabric;
        let route = &self.planner.routes[self.index];
        let networks = route.networks;
        let mut walks = 0;
        for ipv6 in [false, true].into_iter().filter(|ipv6| self.carries(*ipv6)) {
            let on = |host: HostId, end: usize| {
                let link = fabric.link_on(host, networks[end])?;
                Some((link, fabric.address(host, link, ipv6)?))
            };
            let (Some((_, source)), Some((link, address))) =
                (on(pair.client, pair.client_end), on(pair.server, 1 - pair.client_end))
            else {
                continue;
            };
            let promise = route.return_path();
            let request = |address, promise| Request { pair, source, address, promise };
            // The first address of a server with aliases is distributed like any
            // other.
            let plain = if promise == ReturnPath::Alias { ReturnPath::None } else { promise };
            walks += between.request(&request(address, plain), turn)?;
            if promise == ReturnPath::Alias {
                for alias in fabric.aliases(pair.server, link, ipv6) {
                    walks += between.request(&request(alias, promise), turn)?;
                }
            }
        }
        Ok(walks)
    }
}

impl<'r> Between<'r> {
    fn request(&self, request: &Request, turn: Option<usize>) -> Result<u64, Counterexample> {
        let fails = |gateway: Option<usize>, problem: String| Counterexample {
            client: self.name(CLIENT).to_owned(),
            server: self.paths.planner.fabric.host_name(request.pair.server),
            address: Some(request.address),
            gateway: gateway.map(|gateway| self.name(gateway).to_owned()),
            problem,
        };
        let Request { source, address, .. } = *request;
        // Clients send by the address of the fabric's link, which may be one of several.
        let flow = Flow { source, destination: address, mark: 0, is_bound: true };
        let trip = Walker::new(self).there_and_back((CLIENT, SERVER), flow, turn, &|_| true);
        let (hops, resilient) = self.next_hops(CLIENT, &trip.there.found).map_err(|problem| {
            fails(None, format!("{} has {problem} to {}", self.name(CLIENT), request.address))
        })?;
        let taken = match turn {
            Some(turn) => hops.get(turn % hops.len().max(1)).map_or(&[][..], std::slice::from_ref),
            None => hops,
        };
        for hop in taken {
            let gateway = self.owner(hop).map_err(|problem| fails(None, problem))?;
            self.over(request, &trip, (hops, resilient), gateway)
                .map_err(|problem| fails(Some(gateway), problem))?;
        }
        Ok(taken.len() as u64)
    }

    /// One request over one gateway, and its reply.
    fn over(
        &self,
        request: &Request,
        trip: &RoundTrip<'r>,
        choice: Choice<'_, 'r>,
        gateway: usize,
    ) -> Result<(), String> {
        self.delivers(&trip.there, gateway)?;
        let is_over = |last: Option<(usize, &str)>| last.is_some_and(|(last, _)| last == gateway);
        let mut replies = trip.replies.iter();
        let reply = replies.find(|reply| reply.to.iter().any(|arrival| is_over(arrival.last)));
        let Some(back) = reply.and_then(|reply| reply.legs.first()) else {
            return Err(format!("{} gets nothing over {}", self.name(SERVER), self.name(gateway)));
        };
        let reply = self
            .next_hops(SERVER, &back.found)
            .map_err(|problem| format!("{} has {problem} back to {}", self.name(SERVER), request.source))?;
        let mut returns = Vec::new();
        for hop in reply.0 {
            let by = self.owner(hop)?;
            self.delivers(back, by)?;
            returns.push(by);
        }
        self.keeps_promise(request, choice, reply, gateway, &returns)
    }

    fn keeps_promise(
        &self,
        request: &Request,
        choice: Choice<'_, 'r>,
        reply: Choice<'_, 'r>,
        gateway: usize,
        returns: &[usize],
    ) -> Result<(), String> {
        match request.promise {
            ReturnPath::None | ReturnPath::Auto => Ok(()),
            ReturnPath::Alias | ReturnPath::ConnectionMark if returns == [gateway] => Ok(()),
            ReturnPath::Alias | ReturnPath::ConnectionMark => {
                let names = returns.iter().map(|gateway| self.name(*gateway)).collect::<Vec<_>>().join(", ");
                Err(format!("the reply of {} goes over {names}", self.name(SERVER)))
            }
            ReturnPath::EqualSeed => self.choose_alike(choice, reply, request.address.is_ipv6()),
        }
    }

    /// Both sides choose among the same gateways in the same order with the same
    /// hash, which is one for both directions.
    fn choose_alike(&self, choice: Choice<'_, 'r>, reply: Choice<'_, 'r>, ipv6: bool) -> Result<(), String> {
        let [client, server] = [CLIENT, SERVER].map(|host| self.node(host).routing);
        let order = |choice: Choice<'_, 'r>| -> Vec<(Option<usize>, u16)> {
            choice.0.iter().map(|hop| (self.owner(hop).ok(), hop.weight)).collect()
        };
        if order(choice) != order(reply) {
            return Err(format!(
                "{} and {} have other gateways, orders or weights",
                client.host, server.host
            ));
        }
        let buckets = |choice: Choice<'_, 'r>| choice.1.map(|resilient| resilient.bucket_count);
        if buckets(choice) != buckets(reply) {
            return Err(format!(
                "{} and {} choose by other methods: by buckets or by thresholds",
                client.host, server.host
            ));
        }
        if choice.0.len() < 2 {
            return Ok(());
        }
        let policy =
            if ipv6 { "net.ipv6.fib_multipath_hash_policy" } else { "net.ipv4.fib_multipath_hash_policy" };
        for key in [policy, "net.ipv4.fib_multipath_hash_seed"] {
            let value = |routing: &HostRouting| routing.sysctls.get(key).map(|value| value.value.clone());
            if value(client).is_none() || value(client) != value(server) {
                return Err(format!("{key} is not the same on {} and {}", client.host, server.host));
            }
        }
        let policy = client.sysctls.get(policy).map(|value| value.value.as_str());
        if ipv6 && policy != Some("1") {
            return Err("IPv6 hashes the flow label, which differs between request and reply".to_owned());
        }
        Ok(())
    }

    /// Gateways that a host may choose for packets, by what it looked up.
    fn next_hops<'f>(&self, host: usize, found: &'f Found<'r>) -> Result<Choice<'f, 'r>, String> {
        let (next_hops, resilient) = match &found.verdict {
            Verdict::Gateways(next_hops, resilient) => (next_hops, *resilient),
            Verdict::Link(interface) => {
                return Err(format!(
                    "it as a neighbour on {interface} in table {}: no gateway is used",
                    found.table
                ));
            }
            Verdict::Local => return Err("the address itself".to_owned()),
            Verdict::Refused(kind) => return Err(format!("a {kind} route")),
            Verdict::NoRoute => return Err("no route".to_owned()),
            Verdict::Unknown(rule) => return Err(format!("a rule that is not understood ({rule})")),
        };
        for hop in next_hops {
            let packet = Packet { source: None, destination: hop.via, mark: 0, input: None };
            let neighbour = self.node(host).lookup.find(&packet);
            let on_link = matches!(neighbour.verdict, Verdict::Link(name) if hop.interface.is_none_or(|own| own == name));
            if !on_link {
                return Err(format!("a gateway, {}, that is on none of its links,", hop.via));
            }
        }
        Ok((next_hops, resilient))
    }

    fn owner(&self, hop: &NextHop<'_>) -> Result<usize, String> {
        let owner = self.paths.owners.get(&hop.via);
        owner
            .map(|(gateway, _)| *gateway)
            .ok_or_else(|| format!("{} is no address of a gateway of this route", hop.via))
    }

    /// Checks that a gateway passes packets on to the host that they are for, which is
    /// on one of its links.
    fn delivers(&self, walk: &Walk<'r>, gateway: usize) -> Result<(), String> {
        let destination = walk.flow.destination;
        let name = self.name(gateway);
        let mut ends = walk.branches.iter().filter_map(|branch| match (&branch.trail[1..], &branch.end) {
            ([], end @ End::NotForwarded { host, .. }) if *host == gateway => Some(end),
            ([only], end) if *only == gateway => Some(end),
            _ => None,
        });
        match ends.next() {
            Some(End::Arrived(_)) => Ok(()),
            Some(End::NotForwarded { input, .. }) => {
                let key = match self.node(gateway).forwards(None, destination.is_ipv6()) {
                    Some(true) => &format!("net.ipv4.conf.{}.forwarding", input.replace('.', "/")),
                    _ if destination.is_ipv6() => "net.ipv6.conf.all.forwarding",
                    _ => "net.ipv4.ip_forward",
                };
                Err(format!("{name} does not forward: {key} is not 1"))
            }
            Some(End::NotOnLink { .. }) => {
                Err(format!("{} does not have the address {destination}", self.name(walk.target)))
            }
            Some(End::Filtered { at, input }) => Err(self.filtered(*at, input, walk.flow.source)),
            _ => {
                let packet = Packet { source: None, destination, mark: 0, input: None };
                let other = self.node(gateway).lookup.find(&packet).verdict;
                Err(format!("{name} does not have {destination} on a link: {other:?}"))
            }
        }
    }

    fn filtered(&self, host: usize, input: &str, source: IpAddr) -> String {
        let is_strict = self.node(host).reverse_filter(input) == ReverseFilter::Strict;
        let kind = if is_strict { "strict" } else { "loose" };
        let name = self.name(host);
        format!(
            "{name} drops it: its {kind} reverse path filter wants a route back to {source} by {input}, where it arrives"
        )
    }
}
