//! Findings about the choice of gateways: the hash policy, gateways that are never used,
//! the load of each.

use std::collections::BTreeSet;

use crate::document::VerificationFinding;
use clearstream_routing::multipath::ports_are_hashed;
use clearstream_schema::{
    fabric::{HashPolicy, ReturnPath},
    human::count,
};

use super::{
    super::{decisions::Direction, judge::Judged, shares},
    EXPECTED_FLOWS, Evidence, SAME_GATEWAY, error,
};

impl Evidence<'_> {
    fn hash_key(&self) -> String {
        let version = if self.route.ipv6 { "ipv6" } else { "ipv4" };
        format!("net.{version}.fib_multipath_hash_policy")
    }

    /// Finds and returns clients whose hash policy is not the plan's.
    pub(super) fn hash_policy(&self, findings: &mut Vec<VerificationFinding>) -> BTreeSet<usize> {
        let mut unspread = BTreeSet::new();
        if self.route.return_path == ReturnPath::Alias || self.route.gateways.len() < 2 {
            return unspread;
        }
        for (client, end) in self.route.clients.iter().enumerate() {
            let own = self.proof.pairs.iter().filter(|pair| pair.client == end.host);
            let used = |counts: &[u64]| counts.iter().filter(|count| **count > 0).count();
            let key = self.hash_key();
            let value = self.facts.sysctl(&end.host, &key).unwrap_or("unknown");
            match self.route.hash_policy {
                HashPolicy::Layer4 => {
                    let tested: Vec<_> =
                        own.filter(|pair| pair.forward_counts.iter().sum::<u64>() >= SAME_GATEWAY).collect();
                    if tested.is_empty() || tested.iter().any(|pair| used(&pair.forward_counts) != 1) {
                        continue;
                    }
                    unspread.insert(client);
                    // Another route may have one gateway only: that is reported by itself.
                    if self.decisions.leads_away(self.route, Direction::Requests, client) {
                        continue;
                    }
                    let message = format!(
                        "{}: all flows to one server take one gateway ({}), though their ports differ",
                        end.host,
                        self.family()
                    );
                    // The policy is the cause only where it is another one.
                    let read = |key: &str| self.facts.sysctl(&end.host, key);
                    if ports_are_hashed(self.route.ipv6, read) == Some(true) {
                        let used = tested[0].forward_counts.iter().position(|count| *count == 0);
                        let correction = self.why_missing(Direction::Requests, client, used.unwrap_or(0));
                        findings.push(error("gateway-missing", &end.host, message, correction));
                        continue;
                    }
                    let correction = match value {
                        "unknown" => format!("check {key} on {}, which could not be read", end.host),
                        value => format!(
                            "set {key} = 1 on {} (it is {value}): `clearstream route apply` there sets it",
                            end.host
                        ),
                    };
                    findings.push(error("ports-ignored", &end.host, message, correction));
                }
                HashPolicy::Layer3 | HashPolicy::Inner => {
                    let Some(pair) = own.into_iter().find(|pair| used(&pair.forward_counts) > 1) else {
                        continue;
                    };
                    let message = format!(
                        "flows from {} to {} take {} gateways ({}); the plan's hash policy gives each pair of hosts one",
                        end.host,
                        pair.server,
                        used(&pair.forward_counts),
                        self.family()
                    );
                    let correction = match value {
                        "0" => format!(
                            "{key} is 0 on {}: find by `ip route get` from which of its routes the flows go",
                            end.host
                        ),
                        value => format!("set {key} = 0 on {} (it is {value})", end.host),
                    };
                    findings.push(error("ports-hashed", &end.host, message, correction));
                }
            }
        }
        unspread
    }

    /// Gateways that a client never uses.
    pub(super) fn missing_at_clients(
        &self,
        unspread: &BTreeSet<usize>,
        findings: &mut Vec<VerificationFinding>,
    ) {
        for (client, end) in self.route.clients.iter().enumerate() {
            if let Some(reason) = self.planned.no_route.get(&client) {
                let refused = self.decisions.refused(client);
                let by = refused.map_or_else(String::new, |by| format!("; {} decides", by.named()));
                let message =
                    format!("{} has no path for some flows ({}): {reason}{by}", end.host, self.family());
                let correction = refused.map_or_else(
                    || format!("apply its plan: `clearstream route apply` on {}", end.host),
                    |by| format!("on {}: {}", end.host, by.removal),
                );
                findings.push(error("no-route", &end.host, message, correction));
                continue;
            }
            let is_led_away = self.decisions.leads_away(self.route, Direction::Requests, client);
            if !self.route.spreads_by_ports() || unspread.contains(&client) || is_led_away {
                continue;
            }
            for (place, gateway) in self.route.gateways.iter().enumerate() {
                let own = self.judged.iter().filter(|one| one.flow.client == client);
                let takes = |one: &Judged| {
                    one.forward == Some(place)
                        || one.stuck == Some(place)
                        || one.flow.predicted == Some(place)
                };
                let expected = own.clone().count() as f64 * self.proof.gateways[place].expected_ratio;
                let pairs = (0..self.route.servers.len()).map(|server| (client, server));
                let searched = |pair: (usize, usize)| {
                    self.planned.unreached.get(&pair).is_some_and(|missing| missing.contains(&place))
                };
                let not_found = pairs.into_iter().all(searched);
                if own.clone().any(takes) || !(not_found || expected >= EXPECTED_FLOWS) {
                    continue;
                }
                let tried = self.planned.searched;
                let message = format!(
                    "{} never sends through {} ({}): none of {} and none of {tried} further source ports lead to {}",
                    end.host,
                    gateway.host,
                    self.family(),
                    count(own.count(), "flow"),
                    gateway.client_side
                );
                let correction = self.why_missing(Direction::Requests, client, place);
                findings.push(error("gateway-missing", &end.host, message, correction));
            }
        }
    }

    /// Gateways through which a server never replies, where its own route decides.
    pub(super) fn missing_at_servers(
        &self,
        unspread: &BTreeSet<usize>,
        findings: &mut Vec<VerificationFinding>,
    ) {
        let chooses = matches!(self.route.return_path, ReturnPath::None | ReturnPath::EqualSeed);
        if !chooses || !self.route.spreads_by_ports() || !unspread.is_empty() {
            return;
        }
        for (server, end) in self.route.servers.iter().enumerate() {
            if self.decisions.leads_away(self.route, Direction::Replies, server) {
                continue;
            }
            let replies: Vec<usize> = self
                .judged
                .iter()
                .filter(|one| one.flow.server == server && !one.flow.targeted)
                .filter_map(Judged::replied_to)
                .collect();
            for (place, gateway) in self.route.gateways.iter().enumerate() {
                let expected = replies.len() as f64 * self.proof.gateways[place].expected_ratio;
                if replies.contains(&place) || expected < EXPECTED_FLOWS || !self.seen.watched[place] {
                    continue;
                }
                let message = format!(
                    "{} never replies through {} ({}): {} got replies through the others, about {expected:.0} were expected through it",
                    end.host,
                    gateway.host,
                    self.family(),
                    count(replies.len(), "flow")
                );
                let correction = self.why_missing(Direction::Replies, server, place);
                findings.push(error("gateway-missing", &end.host, message, correction));
            }
        }
    }

    pub(super) fn shares(&self, unspread: &BTreeSet<usize>, findings: &mut Vec<VerificationFinding>) {
        // A missing gateway has been reported, and affects the load of all others.
        let is_reported = |finding: &VerificationFinding| {
            matches!(
                finding.id.as_str(),
                "gateway-missing" | "overridden" | "foreign-gateway" | "not-arrived" | "no-route"
            )
        };
        if unspread.is_empty() && !findings.iter().any(is_reported) {
            findings.extend(shares::find(self.route, self.proof, &|direction| self.why_share(direction)));
        }
    }
}
