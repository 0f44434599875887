//! Causes, from what kernels were read to have: the route or rule in effect, buckets, weights,
//! forwarding. What the figures exclude is not named.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::document::{LostAt, VerificationFinding};
use clearstream_schema::human::{count as counted, few};

use super::{
    super::{calls::Decision, decisions::Direction, judge::Judged},
    Evidence, error, hosts,
};

/// A sender and a receiver, and what decides between them.
type Led<'d> = (usize, usize, &'d Decision);

impl Evidence<'_> {
    /// What a gateway does not take on, with the reason that its kernel shows.
    pub(super) fn not_forwarding(
        &self,
        place: &LostAt,
        host: &str,
        lost: &[&Judged],
        [count, from, to]: [&str; 3],
    ) -> VerificationFinding {
        let message =
            format!("{host} receives packets of {count} from {from} to {to} and does not forward them");
        let key = if self.route.ipv6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        let direction = match place {
            LostAt::ReplyInGateway(_) => Direction::Replies,
            _ => Direction::Requests,
        };
        let gateway = self.route.gateways.iter().position(|gateway| gateway.host == host);
        let decision = gateway.and_then(|gateway| self.decisions.at_gateway(direction, gateway));
        let correction = if self.facts.sysctl(host, key) == Some("0") {
            format!("set {key} = 1 on {host} (it is 0): `clearstream route apply` there sets it")
        } else if let Some(decision) = decision.filter(|decision| decision.refusal.is_some()) {
            let refusal = decision.refusal.as_deref().unwrap_or_default();
            match decision.what.is_empty() {
                true => format!("its kernel refuses them ({refusal}): {}", self.filters(host)),
                false => format!("{} decides there ({refusal}): {}", decision.named(), decision.removal),
            }
        } else if let Some(decision) = decision.filter(|decision| !decision.gateways.is_empty()) {
            let by = few(decision.gateways.iter().map(|(via, _)| via));
            format!("it sends them on to {by}: {} decides there: {}", decision.named(), decision.removal)
        } else if let Some(stateful) = gateway.and_then(|gateway| self.keeps_state(gateway, lost)) {
            stateful
        } else if let Some(by_mark) = decision.and_then(|decision| decision.by_mark.first()) {
            format!(
                "{by_mark}, and which mark they have, its firewall decides: see `nft list ruleset` on {host}"
            )
        } else if decision.is_some() {
            format!("its routes lead there (`ip route get`), so {}", self.filters(host))
        } else {
            format!("check whether {host} has a route to both networks, and {}", self.filters(host))
        };
        error("not-forwarding", host, message, correction)
    }

    /// What may drop packets where routes do not; the filter only where it is on.
    fn filters(&self, host: &str) -> String {
        let is_on = |key: &str| self.facts.sysctl(host, key).is_none_or(|value| value != "0");
        let interfaces =
            self.route.gateways.iter().filter(|gateway| gateway.host == host).flat_map(|gateway| {
                [gateway.client_side, gateway.server_side].map(|address| self.facts.interface(host, address))
            });
        let is_filtered = !self.route.ipv6
            && (is_on("net.ipv4.conf.all.rp_filter")
                || interfaces
                    .flatten()
                    .any(|name| is_on(&format!("net.ipv4.conf.{}.rp_filter", name.replace('.', "/")))));
        let filter = if is_filtered {
            ", or a reverse path filter that drops them (TcpExtIPReversePathFilter in `nstat`)"
        } else {
            ""
        };
        format!("check {host} for a firewall that drops forwarded packets{filter}")
    }

    /// Whether exactly the flows are lost here whose request took another gateway: a firewall
    /// or NAT that has seen no beginning of them.
    fn keeps_state(&self, gateway: usize, lost: &[&Judged]) -> Option<String> {
        let is_reply = lost.iter().all(|one| matches!(one.lost, Some(LostAt::ReplyInGateway(_))));
        let came_elsewhere = |one: &Judged| one.forward.is_some_and(|forward| forward != gateway);
        let passed = self.judged.iter().filter(|one| one.reply == Some(gateway));
        let (mut own, mut foreign) = (0, 0);
        passed.for_each(|one| *(if came_elsewhere(one) { &mut foreign } else { &mut own }) += 1);
        let is_exact = is_reply && lost.iter().all(|one| came_elsewhere(one)) && foreign == 0 && own > 0;
        is_exact.then(|| {
            let by = hosts(
                lost.iter().filter_map(|one| one.forward).map(|other| &self.route.gateways[other].host),
            );
            format!(
                "exactly the flows are dropped whose request took another gateway ({by}); replies to its own {own} flows \
                 pass: it keeps connection state (firewall, NAT). Give replies the gateway of the request \
                 (`return-path` in the fabric), or let it forward packets of connections that it does not know"
            )
        })
    }

    /// Routes and rules that take flows from the gateways of the fabric.
    pub(super) fn overridden(&self, findings: &mut Vec<VerificationFinding>) {
        let mut causes: BTreeMap<(Direction, &str, &str), Vec<Led<'_>>> = BTreeMap::new();
        for (direction, from, to, decision) in self.decisions.led_away(self.route) {
            let host = direction.ends(self.route).0[from].host.as_str();
            causes.entry((direction, host, &decision.what)).or_default().push((from, to, decision));
        }
        for ((direction, host, _), pairs) in causes {
            let decision = pairs[0].2;
            let others = hosts(pairs.iter().map(|(_, to, _)| &direction.ends(self.route).1[*to].host));
            let is_of = |one: &&Judged| {
                let (client, server) = (one.flow.client, one.flow.server);
                pairs.iter().any(|(from, to, _)| direction.pair(*from, *to) == (client, server))
            };
            let flows = counted(self.judged.iter().filter(is_of).count(), "flow");
            let by = match decision.gateways.as_slice() {
                [] => "no gateway".to_owned(),
                gateways => few(gateways.iter().map(|(via, _)| via)),
            };
            let message = format!(
                "{host}: {} to {others} ({}, {flows}) go by {by} and not by the {} gateways of the fabric: {} decides",
                direction.name(),
                self.family(),
                self.route.gateways.len(),
                decision.named()
            );
            let correction = format!("on {host}: {}", decision.removal);
            findings.push(error("overridden", host, message, correction));
        }
    }

    /// Replies from addresses that stand for a gateway, by another way.
    pub(super) fn aliases_overridden(&self, findings: &mut Vec<VerificationFinding>) {
        let mut causes: BTreeMap<(usize, &str), Vec<Led<'_>>> = BTreeMap::new();
        for (server, client, gateway, decision) in self.decisions.aliases_led_away(self.route) {
            causes.entry((server, &decision.what)).or_default().push((client, gateway, decision));
        }
        for ((server, _), led) in causes {
            let end = &self.route.servers[server];
            let decision = led[0].2;
            let to = hosts(led.iter().map(|(client, ..)| &self.route.clients[*client].host));
            let meant = hosts(led.iter().map(|(_, gateway, _)| &self.route.gateways[*gateway].host));
            let aliases =
                few(led.iter().map(|(_, gateway, _)| end.aliases[*gateway]).collect::<BTreeSet<_>>());
            let by = match (&decision.refusal, decision.gateways.as_slice()) {
                (Some(refusal), _) => format!("nowhere ({refusal})"),
                (None, []) => "by no gateway".to_owned(),
                (None, gateways) => format!("by {}", few(gateways.iter().map(|(via, _)| via))),
            };
            let host = &end.host;
            let message = format!(
                "{host}: replies from {aliases} to {to} ({}) go {by} and not by {meant}: {} decides",
                self.family(),
                decision.named()
            );
            findings.push(error("overridden", host, message, format!("on {host}: {}", decision.removal)));
        }
    }

    /// Where gateways send on what they are to give to a neighbour.
    pub(super) fn sent_elsewhere(
        &self,
        direction: Direction,
        gateways: impl Iterator<Item = usize>,
    ) -> Option<String> {
        let gateways: BTreeSet<usize> = gateways.collect();
        gateways.into_iter().find_map(|gateway| {
            let decision = self.decisions.at_gateway(direction, gateway)?;
            let host = &self.route.gateways[gateway].host;
            let by = few(decision.gateways.iter().map(|(via, _)| via));
            (!by.is_empty()).then(|| {
                format!(
                    "{host} sends them on to {by}: {} decides there: {}",
                    decision.named(),
                    decision.removal
                )
            })
        })
    }

    /// What marks may do to packets of a host, of which lookups show nothing.
    fn by_mark(&self, direction: Direction, from: usize) -> Option<String> {
        let host = &direction.ends(self.route).0[from].host;
        self.decisions.by_mark(direction, from).map(|by_mark| {
            format!(
                "on {host} {by_mark}; which mark a packet has, its firewall or its program decides, and lookups without \
                 one lead as planned: see `nft list ruleset` there"
            )
        })
    }

    /// What to do where a host never uses a gateway, by the route in effect.
    pub(super) fn why_missing(&self, direction: Direction, from: usize, gateway: usize) -> String {
        let host = &direction.ends(self.route).0[from].host;
        let has_it = |decision: &Decision| {
            let via = direction.address(&self.route.gateways[gateway]);
            decision.gateways.iter().any(|(member, _)| *member == via)
        };
        if self.decisions.any_of(direction, from).is_some_and(has_it)
            && let Some(by_mark) = self.by_mark(direction, from)
        {
            return by_mark;
        }
        let via = direction.address(&self.route.gateways[gateway]);
        let network = direction.far(self.route);
        match self.decisions.any_of(direction, from) {
            Some(decision) if decision.gateways.iter().any(|(member, _)| *member == via) => {
                let what = decision.named();
                match buckets(decision, via) {
                    Some(buckets) => format!("{what} on {host} has {via}: {buckets}"),
                    None => format!(
                        "{what} on {host} has {via}, and its kernel does not choose it: see whether its link or \
                         neighbour entry is down (`ip route show`, `ip neigh`)"
                    ),
                }
            }
            Some(decision) if !decision.what.is_empty() => format!(
                "add {via} to its route to network {network}, which is {}: `clearstream route apply` on {host}",
                decision.named()
            ),
            _ => format!("add {via} to its route to network {network}: `clearstream route apply` on {host}"),
        }
    }

    /// Why equal seeds do not give equal gateways: another seed or another order, as they were
    /// read.
    pub(super) fn why_unequal(&self, server: &str) -> String {
        const SEED: &str = "net.ipv4.fib_multipath_hash_seed";
        let own = self.facts.sysctl(server, SEED);
        let other = self.route.clients.iter().find(|client| self.facts.sysctl(&client.host, SEED) != own);
        if let Some(client) = other {
            let shown = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
            return format!(
                "{SEED} is {} on {server} and {} on {}: `clearstream route apply` sets the fabric's",
                shown(own),
                shown(self.facts.sysctl(&client.host, SEED)),
                client.host
            );
        }
        for direction in [Direction::Replies, Direction::Requests] {
            for (from, end) in direction.ends(self.route).0.iter().enumerate() {
                let Some(decision) = self.decisions.any_of(direction, from) else { continue };
                let wanted = self.route.gateways.iter().map(|gateway| direction.address(gateway));
                if !decision.gateways.iter().map(|(via, _)| *via).eq(wanted) {
                    return format!(
                        "the next hops of {} on {} stand in another order than the fabric's: `clearstream route apply` there",
                        decision.named(),
                        end.host
                    );
                }
            }
        }
        "seeds and orders of the next hops are equal on all hosts: the buckets of resilient groups may differ \
         (`ip nexthop bucket`), or source ports were not bound"
            .to_owned()
    }

    /// Why the load is not that of the weights: a host whose route has others, or whose buckets
    /// have not moved.
    pub(super) fn why_share(&self, direction: Direction) -> String {
        let total: f64 = self.route.gateways.iter().map(|gateway| f64::from(gateway.weight)).sum();
        for (from, end) in direction.ends(self.route).0.iter().enumerate() {
            let Some(decision) = self.decisions.any_of(direction, from) else { continue };
            let all: f64 = decision.gateways.iter().map(|(_, weight)| f64::from(*weight)).sum();
            for gateway in &self.route.gateways {
                let via = direction.address(gateway);
                let own = decision.gateways.iter().filter(|(member, _)| *member == via);
                let (times, weight) =
                    own.fold((0, 0.0), |(times, sum), (_, weight)| (times + 1, sum + f64::from(*weight)));
                let is_off = (weight / all - f64::from(gateway.weight) / total).abs() > 0.001;
                if all > 0.0 && is_off {
                    let twice =
                        if times > 1 { format!(", which it lists {times} times") } else { String::new() };
                    return format!(
                        "{} on {} gives {via} {weight} of {all} parts{twice}, the fabric {} of {total}: \
                         `clearstream route apply` there",
                        decision.named(),
                        end.host,
                        gateway.weight
                    );
                }
            }
            let off = self.route.gateways.iter().find_map(|gateway| {
                let via = direction.address(gateway);
                let (_, count) = decision.buckets.iter().find(|(member, _)| *member == via)?;
                let sum: u32 = decision.buckets.iter().map(|(_, count)| count).sum();
                let is_off =
                    (f64::from(*count) / f64::from(sum) - f64::from(gateway.weight) / total).abs() > 0.02;
                is_off.then(|| buckets(decision, via)).flatten()
            });
            if let Some(off) = off {
                return format!("on {}: {off}", end.host);
            }
        }
        let ends = direction.ends(self.route).0;
        if let Some(by_mark) = (0..ends.len()).find_map(|from| self.by_mark(direction, from)) {
            return by_mark;
        }
        "the routes in effect have the fabric's gateways and weights: repeat with more flows (--flows), while no \
         gateway is removed or restored"
            .to_owned()
    }
}

/// How the buckets of a resilient group stand, and when they move.
fn buckets(decision: &Decision, via: IpAddr) -> Option<String> {
    let (idle, busy) = decision.moves_after_seconds?;
    let count = decision.buckets.iter().find(|(member, _)| *member == via)?.1;
    let all: u32 = decision.buckets.iter().map(|(_, count)| count).sum();
    let busy = match busy {
        0 => "busy ones never".to_owned(),
        seconds => format!("busy ones when it has been unbalanced for {seconds} s"),
    };
    Some(format!(
        "{count} of {all} buckets of its resilient group lead to {via}, and the group has been unbalanced for {} s: \
         buckets that are idle for {idle} s move by themselves, {busy}; there is nothing to apply",
        decision.unbalanced_for_seconds
    ))
}
