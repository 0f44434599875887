//! One walk: from a client over each gateway that it may choose to a server,
//! and back, by lookups alone.

use std::{collections::HashMap, net::IpAddr};

use clearstream_routing::{
    lookup::{Lookup, NextHop, Packet, Verdict},
    node::{Node, Received, ReverseFilter},
};
use clearstream_schema::{
    fabric::ReturnPath,
    route_plan::Counterexample,
    routing::{HostRouting, Resilient},
};

use super::{Planner, pairs::Pair};
use crate::fabric::HostId;

/// Gateways of a route by their numbers, with what they route by.
pub(super) fn forwarders(
    planner: &Planner<'_>,
    index: usize,
    routing: &dyn Fn(HostId) -> HostRouting,
) -> Vec<(usize, HostRouting)> {
    let numbers = &planner.routes[index].gateways;
    numbers.iter().map(|number| (*number, routing(planner.fabric.gateways()[*number].host))).collect()
}

/// Walks over the gateways of a route.
pub(super) struct Walker<'w> {
    planner: &'w Planner<'w>,
    index: usize,
    forwarders: HashMap<usize, Node<'w>>,
    /// Gateways by their addresses.
    owners: HashMap<IpAddr, usize>,
}

/// A client and a server, ready for lookups.
pub(super) struct Walk<'r> {
    client: Node<'r>,
    server: Node<'r>,
}

impl<'r> Walk<'r> {
    pub(super) fn new(client: &'r HostRouting, server: &'r HostRouting) -> Self {
        Self { client: Node::new(client), server: Node::new(server) }
    }
}

/// A request in transit.
struct Request<'r> {
    walk: &'r Walk<'r>,
    pair: Pair,
    source: IpAddr,
    address: IpAddr,
    promise: ReturnPath,
}

/// Next hops that a host may choose, and the resilient group that selects one.
type Choice<'r> = (Vec<NextHop<'r>>, Option<Resilient>);

impl<'w> Walker<'w> {
    pub(super) fn new(
        planner: &'w Planner<'w>,
        index: usize,
        forwarders: &'w [(usize, HostRouting)],
    ) -> Self {
        let mut owners = HashMap::new();
        for (number, routing) in forwarders {
            for address in routing.interfaces.iter().flat_map(|interface| &interface.addresses) {
                owners.insert(address.value.address, *number);
            }
        }
        let ready = |(number, routing): &'w (usize, HostRouting)| (*number, Node::new(routing));
        Self { planner, index, forwarders: forwarders.iter().map(ready).collect(), owners }
    }

    pub(super) fn planner(&self) -> &'w Planner<'w> {
        self.planner
    }

    /// Whether gateways carry a family.
    pub(super) fn carries(&self, ipv6: bool) -> bool {
        !self.planner.routes[self.index].hops[usize::from(ipv6)][0].is_empty()
    }

    /// Walks every family, address of the server and gateway; of the gateways
    /// only one in turn when `turn` is given. Counts the walks.
    pub(super) fn walk(
        &self,
        pair: &Pair,
        walk: &Walk<'_>,
        turn: Option<usize>,
    ) -> Result<u64, Counterexample> {
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
            let request = |address, promise| Request { walk, pair: *pair, source, address, promise };
            // The first address of a server with aliases is distributed like any
            // other.
            let plain = if promise == ReturnPath::Alias { ReturnPath::None } else { promise };
            walks += self.request(&request(address, plain), turn)?;
            if promise == ReturnPath::Alias {
                for alias in fabric.aliases(pair.server, link, ipv6) {
                    walks += self.request(&request(alias, promise), turn)?;
                }
            }
        }
        Ok(walks)
    }

    fn request(&self, request: &Request<'_>, turn: Option<usize>) -> Result<u64, Counterexample> {
        let (client, lookup) = (request.walk.client.routing, &request.walk.client.lookup);
        let there = Packet::sent(request.source, request.address);
        let choice = self.next_hops(lookup, &there).map_err(|problem| {
            self.counterexample(
                request,
                None,
                format!("{} has {problem} to {}", client.host, request.address),
            )
        })?;
        let taken: Vec<NextHop<'_>> = match turn {
            Some(turn) => choice.0.get(turn % choice.0.len()).copied().into_iter().collect(),
            None => choice.0.clone(),
        };
        for hop in &taken {
            let gateway = self.owner(hop).map_err(|problem| self.counterexample(request, None, problem))?;
            self.over(request, &choice, gateway)
                .map_err(|problem| self.counterexample(request, Some(gateway), problem))?;
        }
        Ok(taken.len() as u64)
    }

    /// One request over one gateway, and its reply.
    fn over(&self, request: &Request<'_>, choice: &Choice<'_>, gateway: usize) -> Result<(), String> {
        let Node { routing: server, lookup, .. } = &request.walk.server;
        let out = self.forwards(gateway, request.address)?;
        let Some(arrival) = request.walk.server.interface_with(request.address) else {
            return Err(format!("{} does not have the address {}", server.host, request.address));
        };
        let back = Packet {
            source: Some(request.address),
            destination: request.source,
            mark: self.mark(server, arrival, gateway, out),
            input: None,
        };
        let reply = self
            .next_hops(lookup, &back)
            .map_err(|problem| format!("{} has {problem} back to {}", server.host, request.source))?;
        passes_filter(&request.walk.server, request.source, request.address, back.mark)?;
        passes_filter(&request.walk.client, request.address, request.source, 0)?;
        let mut returns = Vec::new();
        for hop in &reply.0 {
            let number = self.owner(hop)?;
            self.forwards(number, request.source)?;
            returns.push(number);
        }
        self.keeps_promise(request, choice, &reply, gateway, &returns)
    }

    fn keeps_promise(
        &self,
        request: &Request<'_>,
        choice: &Choice<'_>,
        reply: &Choice<'_>,
        gateway: usize,
        returns: &[usize],
    ) -> Result<(), String> {
        match request.promise {
            ReturnPath::None | ReturnPath::Auto => Ok(()),
            ReturnPath::Alias | ReturnPath::ConnectionMark if returns == [gateway] => Ok(()),
            ReturnPath::Alias | ReturnPath::ConnectionMark => {
                let names = returns.iter().map(|number| self.name(*number)).collect::<Vec<_>>().join(", ");
                Err(format!("the reply of {} goes over {names}", request.walk.server.routing.host))
            }
            ReturnPath::EqualSeed => self.choose_alike(request, choice, reply),
        }
    }

    /// Both sides choose among the same gateways in the same order with the same
    /// hash, which is one for both directions.
    fn choose_alike(
        &self,
        request: &Request<'_>,
        choice: &Choice<'_>,
        reply: &Choice<'_>,
    ) -> Result<(), String> {
        let (client, server) = (request.walk.client.routing, request.walk.server.routing);
        let order = |choice: &Choice<'_>| -> Vec<(Option<usize>, u16)> {
            choice.0.iter().map(|hop| (self.owners.get(&hop.via).copied(), hop.weight)).collect()
        };
        if order(choice) != order(reply) {
            return Err(format!(
                "{} and {} have other gateways, orders or weights",
                client.host, server.host
            ));
        }
        if choice.1.map(|resilient| resilient.bucket_count) != reply.1.map(|resilient| resilient.bucket_count)
        {
            return Err(format!(
                "{} and {} choose by other methods: by buckets or by thresholds",
                client.host, server.host
            ));
        }
        let ipv6 = request.address.is_ipv6();
        let policy =
            if ipv6 { "net.ipv6.fib_multipath_hash_policy" } else { "net.ipv4.fib_multipath_hash_policy" };
        let seed = "net.ipv4.fib_multipath_hash_seed";
        for key in [policy, seed] {
            let value = |routing: &HostRouting| routing.sysctls.get(key).map(|value| value.value.clone());
            if choice.0.len() > 1 && (value(client).is_none() || value(client) != value(server)) {
                return Err(format!("{key} is not the same on {} and {}", client.host, server.host));
            }
        }
        let policy = client.sysctls.get(policy).map(|value| value.value.as_str());
        if ipv6 && choice.0.len() > 1 && policy != Some("1") {
            return Err("IPv6 hashes the flow label, which differs between request and reply".to_owned());
        }
        Ok(())
    }

    /// Gateways that a packet may take.
    fn next_hops<'r>(&self, lookup: &Lookup<'r>, packet: &Packet<'_>) -> Result<Choice<'r>, String> {
        let found = lookup.find(packet);
        let (next_hops, resilient) = match found.verdict {
            Verdict::Gateways(next_hops, resilient) => (next_hops, resilient),
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
        for hop in &next_hops {
            let neighbour = lookup.find(&Packet { source: None, destination: hop.via, mark: 0, input: None });
            let on_link = matches!(neighbour.verdict, Verdict::Link(name) if hop.interface.is_none_or(|own| own == name));
            if !on_link {
                return Err(format!("a gateway, {}, that is on none of its links,", hop.via));
            }
        }
        Ok((next_hops, resilient))
    }

    fn owner(&self, hop: &NextHop<'_>) -> Result<usize, String> {
        self.owners
            .get(&hop.via)
            .copied()
            .ok_or_else(|| format!("{} is no address of a gateway of this route", hop.via))
    }

    /// Checks that a gateway forwards and has the destination on a link; returns
    /// the link.
    fn forwards(&self, gateway: usize, destination: IpAddr) -> Result<&'w str, String> {
        let name = || self.name(gateway);
        let Some(node) = self.forwarders.get(&gateway) else {
            return Err(format!("{} is no gateway of this route", name()));
        };
        let key = if destination.is_ipv6() { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        if node.forwards(None, destination.is_ipv6()) != Some(true) {
            return Err(format!("{} does not forward: {key} is not 1", name()));
        }
        match node.lookup.find(&Packet { source: None, destination, mark: 0, input: None }).verdict {
            Verdict::Link(interface) => Ok(interface),
            other => Err(format!("{} does not have {destination} on a link: {other:?}", name())),
        }
    }

    /// Mark of the replies to what a gateway sent to an interface.
    fn mark(&self, server: &HostRouting, interface: &str, gateway: usize, out: &str) -> u32 {
        let routing = self.forwarders.get(&gateway).map(|node| node.routing);
        let sends = routing.and_then(|routing| routing.interfaces.iter().find(|link| link.name == out));
        let hardware = sends.and_then(|link| link.link_address.as_deref());
        let name = self.name(gateway);
        let came_by = server.connection_marks.iter().find(|mark| {
            mark.interface == interface
                && match hardware {
                    Some(address) if !mark.link_address.is_empty() => mark.link_address == address,
                    _ => mark.gateway == name,
                }
        });
        came_by.map_or(0, |mark| mark.mark)
    }

    fn name(&self, gateway: usize) -> &'w str {
        &self.planner.fabric.gateways()[gateway].name
    }

    fn counterexample(
        &self,
        request: &Request<'_>,
        gateway: Option<usize>,
        problem: String,
    ) -> Counterexample {
        Counterexample {
            client: request.walk.client.routing.host.clone(),
            server: self.planner.fabric.host_name(request.pair.server),
            address: Some(request.address),
            gateway: gateway.map(|number| self.name(number).to_owned()),
            problem,
        }
    }
}

/// Checks that a packet passes the source validation of its destination.
fn passes_filter(node: &Node<'_>, source: IpAddr, own: IpAddr, mark: u32) -> Result<(), String> {
    let Some(input) = node.interface_with(own) else { return Ok(()) };
    let packet = Received { source, destination: Some(own), mark, input, output: None };
    if node.accepts(&packet) {
        return Ok(());
    }
    let kind = if node.reverse_filter(input) == ReverseFilter::Strict { "strict" } else { "loose" };
    Err(format!(
        "{} drops it: its {kind} reverse path filter wants a route back to {source} by {input}, where it arrives",
        node.routing.host
    ))
}
