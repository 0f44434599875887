//! Findings from causes: place, reason and suggested correction.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use clearstream_schema::{
    human::few,
    prefix::Prefix,
    routing::{Place, RouteEntry},
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{
        View, With, finding, ip_syntax,
        rules::{filter_place, is_reported},
        view::overlap,
    },
    causes::{Affected, Cause, Causes, What},
    classes::Classes,
    site::Site,
};

const ROUTE: &str = "route";
const GATEWAY: &str = "gateway";
/// Mistakes of a host's own that explain why it has no route.
const EXPLAINS_NO_ROUTE: [&str; 3] = [
    "route:routing:not-the-other-network",
    "route:routing:on-link-beats-default",
    "gateway:range:unknown-nexthop",
];
const FORWARDING: &str = ":routing:gateway-does-not-forward";

/// A finding for each cause and host that the rules on single hosts do not explain.
pub(super) fn findings(
    site: &Site<'_, '_>,
    classes: &Classes,
    causes: &Causes,
    local: &[Finding],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_host: HashMap<&str, Vec<&Finding>> = HashMap::new();
    for finding in local {
        by_host.entry(finding.host.as_deref().unwrap_or_default()).or_default().push(finding);
    }
    for (cause, affected) in &causes.counted {
        let class = &classes.members[classes.of[cause.at]];
        let hosts = if cause.is_end { class.as_slice() } else { std::slice::from_ref(&cause.at) };
        for host in hosts {
            let is_missing =
                |other: &Cause| other.at == *host && matches!(other.what, What::LacksAddress { .. });
            let lacks_address =
                matches!(cause.what, What::NoRoute { .. }) && causes.counted.keys().any(is_missing);
            let local = by_host.get(site.name(*host)).map_or(&[][..], Vec::as_slice);
            if !lacks_address && !is_explained(site, *host, cause, local) {
                let draft = Draft { site, host: site.view(*host), at: *host, cause, affected };
                findings.push(draft.finding());
            }
        }
    }
    findings
}

/// Whether a finding about the host itself is the reason.
fn is_explained(site: &Site<'_, '_>, host: usize, cause: &Cause, local: &[&Finding]) -> bool {
    let mut of_host = local.iter();
    match &cause.what {
        What::NoRoute { network } | What::LeavesOut { network, .. } => {
            let mut routes = site.view(host).routing.routes.iter();
            routes.any(|route| overlap(route.destination, *network) && site.refuses(host, route))
                || of_host.any(|finding| EXPLAINS_NO_ROUTE.contains(&finding.id.as_str()))
        }
        What::NotOnLink { .. } => of_host.any(|finding| EXPLAINS_NO_ROUTE.contains(&finding.id.as_str())),
        What::DoesNotForward { ipv6 } => {
            let family = if *ipv6 { "net.ipv6" } else { "net.ipv4" };
            of_host.any(|finding| finding.id.ends_with(FORWARDING) && finding.id.starts_with(family))
        }
        What::Filtered { interface, .. } => is_reported(site.view(host), interface),
        _ => false,
    }
}

/// A finding about one host, before its message is written.
struct Draft<'t, 's, 'a> {
    site: &'t Site<'s, 'a>,
    host: &'s View<'a>,
    at: usize,
    cause: &'t Cause,
    affected: &'t Affected,
}

impl<'s, 'a> Draft<'_, 's, 'a> {
    fn finding(&self) -> Finding {
        match &self.cause.what {
            What::NoRoute { network } => self.no_route(*network),
            What::LeavesOut { route, network, is_certain } => self.leaves_out(*route, *network, *is_certain),
            What::Refuses { kind, route, rule, network } => self.refuses(kind, *route, *rule, *network),
            What::DoesNotForward { ipv6 } => self.does_not_forward(*ipv6),
            What::WrongGateway { route, via, owner, network } => {
                self.wrong_gateway(*route, *via, *owner, *network)
            }
            What::NobodyHas { route, via, network } => self.nobody_has(*route, *via, *network),
            What::LacksAddress { via } => self.lacks_address(*via),
            What::Filtered { interface, network } => self.filtered(interface, *network),
            What::NotOnLink { route, interface, network } => self.not_on_link(*route, interface, *network),
            What::Loop { route, through, network } => self.goes_round(*route, through, *network),
        }
    }

    /// `stops 12 pairs of addresses, first c1 and 10.2.0.201 of s1`.
    fn who(&self) -> String {
        let example = self.affected.example;
        let server = format!("{} of {}", example.address, self.site.name(example.server));
        let (client, count) = (self.site.name(example.client), self.affected.pair_count());
        let is_client = self.cause.is_end && self.cause.at == example.client;
        let is_server = self.cause.is_end && self.cause.at == example.server;
        match (is_client, is_server, example.is_reply) {
            (true, ..) if !example.is_reply => match count {
                1 => format!("cannot reach {server}"),
                _ => format!("cannot reach {count} addresses, first {server}"),
            },
            (true, ..) => match count {
                1 => format!("drops the reply of {server}"),
                _ => format!("drops the replies of {count} addresses, first {server}"),
            },
            (_, true, true) => match count {
                1 => format!("cannot reply to {client}"),
                _ => format!("cannot reply to {count} hosts, first {client}"),
            },
            (_, true, false) => match count {
                1 => format!("drops the requests of {client}"),
                _ => format!("drops the requests of {count} hosts, first {client}"),
            },
            _ => match count {
                1 => format!("stops {client} and {server}"),
                _ => format!("stops {count} pairs of addresses, first {client} and {server}"),
            },
        }
    }

    fn route(&self, number: usize) -> Option<&'a RouteEntry> {
        self.host.routing.routes.get(number)
    }

    fn broken(&self, key: &str, cause: &str, severity: Severity, message: String) -> Finding {
        finding(self.host, key, FindingClass::Routing, cause, severity, message)
    }

    /// The route in question, and where it or one of its next hops stands.
    fn about(&self, finding: Finding, route: Option<usize>, via: Option<IpAddr>) -> Finding {
        let Some(route) = route.and_then(|route| self.route(route)) else { return finding };
        let hop = self.host.hops(route).into_iter().find(|hop| Some(hop.via) == via);
        let place: Option<&Place> = hop.and_then(|hop| hop.place).or(route.place.as_ref());
        finding.of(ip_syntax::route(route)).at(place)
    }

    /// The route to write: by the given gateways that lead there.
    fn proposal(&self, network: Prefix) -> String {
        let ipv6 = network.address.is_ipv6();
        let mut near = self.site.networks_of(self.at).filter(|near| near.address.is_ipv6() == ipv6);
        let gateways = near.find_map(|near| {
            let gateways = self.site.gateways_between(near, network);
            (!gateways.is_empty()).then_some(gateways)
        });
        let ip = if ipv6 { "ip -6" } else { "ip" };
        match gateways.as_deref() {
            None => format!("{ip} route add {network} via GATEWAY"),
            Some([(_, via)]) => format!("{ip} route add {network} via {via}"),
            Some(gateways) => {
                let hops = gateways.iter().map(|(_, via)| format!(" nexthop via {via}"));
                format!("{ip} route add {network}{}", hops.collect::<String>())
            }
        }
    }

    fn no_route(&self, network: Prefix) -> Finding {
        let message = format!("no route to {network}: {}", self.who());
        self.broken(ROUTE, "no-route", Severity::Error, message)
            .of(network.to_string())
            .advise(self.proposal(network))
            .sourced("ip-route(8); simulated")
    }

    fn leaves_out(&self, route: usize, network: Prefix, is_certain: bool) -> Finding {
        let part = self.route(route).map_or(network, |route| route.destination);
        let (severity, rest) = if is_certain {
            (Severity::Error, "has no route")
        } else {
            (Severity::Warning, "goes by a wider route to where no host was given")
        };
        let message = format!("{part} is part of {network} only, and the rest {rest}: {}", self.who());
        let finding = self.broken(ROUTE, "leaves-hosts-out", severity, message);
        self.about(finding, Some(route), None)
            .advise(format!("write {network} in place of {part}"))
            .sourced("ip-route(8); simulated")
    }

    fn refuses(&self, kind: &str, route: Option<usize>, rule: Option<usize>, network: Prefix) -> Finding {
        let (key, what) = match (route, rule) {
            (None, Some(_)) => ("rule", "rule"),
            _ => (ROUTE, "route"),
        };
        let message = format!("what goes to {network} meets a {kind} {what}: {}", self.who());
        let cause = if kind == "blackhole" { "black-hole" } else { kind };
        let finding = self.broken(key, cause, Severity::Error, message);
        let finding = match (route, rule.and_then(|rule| self.host.routing.rules.get(rule))) {
            (None, Some(rule)) => finding.of(ip_syntax::rule(rule)).at(rule.place.as_ref()),
            _ => self.about(finding, route, None),
        };
        finding
            .advise(format!("delete it, or add a route that is more exact: {}", self.proposal(network)))
            .sourced("ip-route(8), ip-rule(8); simulated")
    }

    fn does_not_forward(&self, ipv6: bool) -> Finding {
        let key = if ipv6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        let message = format!("is sent packets for others and does not forward: {}", self.who());
        self.broken(key, "gateway-does-not-forward", Severity::Error, message)
            .at(self.host.sysctl(key).and_then(|value| value.place.as_ref()))
            .advise(format!("set {key} to 1"))
            .sourced("ip-sysctl.rst; simulated")
    }

    fn wrong_gateway(&self, route: usize, via: IpAddr, owner: usize, network: Prefix) -> Finding {
        let ipv6 = network.address.is_ipv6();
        let why = match self.site.node(owner).forwards(None, ipv6) {
            Some(true) => format!("which has no route to {network}"),
            _ => format!("which does not forward and is not on {network}"),
        };
        let message = format!("{via} is {}, {why}: {}", self.site.name(owner), self.who());
        let finding = self.broken(GATEWAY, "wrong-host", Severity::Error, message);
        self.about(finding, Some(route), Some(via))
            .advise(self.instead(network))
            .sourced("ip-route(8); simulated")
    }

    fn nobody_has(&self, route: usize, via: IpAddr, network: Prefix) -> Finding {
        let by_fabric = self.site.facts.fabric.networks.iter().any(|it| it.prefix.contains(via));
        let who = if by_fabric { "gateway of the fabric" } else { "given host" };
        let message = format!("next hop {via}: no {who} has it; it {}", self.who());
        let severity = Severity::Error;
        let finding = self.broken(GATEWAY, "nobody-has-it", severity, message);
        self.about(finding, Some(route), Some(via))
            .advise(self.instead(network))
            .sourced("ip-route(8); simulated")
    }

    fn lacks_address(&self, via: IpAddr) -> Finding {
        let message = format!("the fabric gives it {via}, and it does not have that address: {}", self.who());
        self.broken("address", "missing", Severity::Error, message)
            .of(via.to_string())
            .advise(format!("ip address add {via} with the length of its network"))
            .sourced("the fabric file; simulated")
    }

    /// Next hops that lead to a network.
    fn instead(&self, network: Prefix) -> String {
        let ipv6 = network.address.is_ipv6();
        let near = self.site.networks_of(self.at).filter(|near| near.address.is_ipv6() == ipv6);
        let gateways = near.flat_map(|near| self.site.gateways_between(near, network));
        let named: Vec<String> =
            gateways.map(|(host, via)| format!("{via} ({})", self.site.name(host))).collect();
        match named.is_empty() {
            true => format!("write the address, on this side, of a gateway that is on {network}"),
            false => format!("write a gateway that leads there: {}", few(named)),
        }
    }

    fn filtered(&self, interface: &str, network: Prefix) -> Finding {
        let (setting, place) = filter_place(self.host, interface, "rp_filter");
        let message = format!(
            "what arrives on {interface} from {network} is dropped by the reverse path filter, as the route \
             back does not leave by {interface}: {}",
            self.who()
        );
        self.broken("rp_filter", "will-drop", Severity::Error, message)
            .of(setting)
            .at(place)
            .on(interface)
            .advise(format!(
                "lead the route back to {network} over {interface}, or set the filter of all and {interface} to 2"
            ))
            .sourced("ip-sysctl.rst; RFC 3704, section 2; simulated")
    }

    fn not_on_link(&self, route: Option<usize>, interface: &str, network: Prefix) -> Finding {
        let message = format!(
            "{network} is taken for the link of {interface}, and its hosts are not there: {}",
            self.who()
        );
        let finding = self.broken(ROUTE, "not-on-the-link", Severity::Error, message);
        self.about(finding, route, None)
            .on(interface)
            .advise(format!("delete it, or go by a gateway: {}", self.proposal(network)))
            .sourced("ip-route(8); simulated")
    }

    fn goes_round(&self, route: Option<usize>, through: &[usize], network: Prefix) -> Finding {
        let names = through.iter().chain(through.first()).map(|host| self.site.name(*host));
        let round = names.collect::<Vec<_>>().join(" to ");
        let message = format!("packets to {network} loop, {round}, until their TTL expires: {}", self.who());
        let finding = self.broken(ROUTE, "loop", Severity::Error, message);
        self.about(finding, route, None)
            .advise(format!("let one of them lead to {network} without the others"))
            .sourced("RFC 1812, section 5.3.1; simulated")
    }
}

/// Addresses that several hosts of a network have.
pub(super) fn duplicates(site: &Site<'_, '_>) -> Vec<Finding> {
    let mut holders: BTreeMap<IpAddr, Vec<(usize, Prefix)>> = BTreeMap::new();
    for (network, members) in &site.networks {
        for member in members {
            let known = holders.entry(member.address).or_default();
            if known.iter().all(|(host, _)| *host != member.host) {
                known.push((member.host, *network));
            }
        }
    }
    let mut findings = Vec::new();
    for (address, holders) in holders.into_iter().filter(|(_, holders)| holders.len() > 1) {
        let (first, network) = holders[0];
        if !holders.iter().all(|(_, other)| overlap(*other, network)) {
            continue;
        }
        let is_gateway = |host: usize| site.is_gateway(host, address.is_ipv6());
        // Gateways share an address on purpose: the anycast gateway of EVPN (RFC
        // 9135, section 4.1), VRRP (RFC 9568).
        if holders.iter().all(|(host, _)| is_gateway(*host)) {
            continue;
        }
        // A gateway is known to others by its address; another host with it is wrong.
        let is_accused = |(host, _): &&(usize, Prefix)| *host != first && !is_gateway(*host);
        let accused = holders.iter().rfind(is_accused).map_or(first, |(host, _)| *host);
        let others = holders.iter().map(|(host, _)| *host).filter(|host| *host != accused);
        let message = format!(
            "{address} is an address of {} too: neighbours send to whichever replied last, and connections \
             of both break",
            few(others.map(|host| site.name(host)))
        );
        let host = site.view(accused);
        let mut addresses = host.routing.interfaces.iter().flat_map(|interface| &interface.addresses);
        let place = addresses.find(|own| own.value.address == address).and_then(|own| own.place.as_ref());
        findings.push(
            finding(host, "address", FindingClass::Contradiction, "duplicate", Severity::Error, message)
                .of(address.to_string())
                .at(place)
                .advise("give one of them another address")
                .sourced("RFC 5227"),
        );
    }
    findings
}
