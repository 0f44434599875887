//! Deviations from the fabric, with suggested corrections.

mod causes;
mod spread;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::document::{LostAt, RouteResult, VerificationFinding, WireOutcome};
use clearstream_schema::{
    fabric::ReturnPath,
    human::{self, count, few},
    tune::Severity,
};

use super::{
    decisions::{Decisions, Direction},
    facts::Facts,
    flows::PlannedFlows,
    judge::{Judged, Seen},
    tested_route::TestedRoute,
};

/// Expected number of flows from which a gateway without any is reported as missing:
/// chance has a probability below `e^-12`.
const EXPECTED_FLOWS: f64 = 12.0;
/// Number of flows of a pair that take the same of several gateways only by design.
const SAME_GATEWAY: u64 = 12;

/// Results of a route.
pub(super) struct Evidence<'a> {
    pub(super) route: &'a TestedRoute,
    pub(super) planned: &'a PlannedFlows,
    pub(super) judged: &'a [Judged],
    pub(super) seen: &'a Seen,
    pub(super) facts: &'a Facts,
    /// Routes in effect; empty where everything is as planned.
    pub(super) decisions: &'a Decisions,
    pub(super) proof: &'a RouteResult,
}

/// Makes all checks, most severe first.
pub(super) fn find(evidence: &Evidence<'_>) -> Vec<VerificationFinding> {
    let mut findings = Vec::new();
    evidence.overridden(&mut findings);
    evidence.aliases_overridden(&mut findings);
    let unspread = evidence.hash_policy(&mut findings);
    evidence.lost(&mut findings);
    evidence.missing_at_clients(&unspread, &mut findings);
    evidence.missing_at_servers(&unspread, &mut findings);
    evidence.foreign(&mut findings);
    evidence.asymmetric(&mut findings);
    evidence.shares(&unspread, &mut findings);
    evidence.elsewhere(&mut findings);
    evidence.moved(&mut findings);
    findings
}

pub(super) fn error(id: &str, host: &str, message: String, correction: String) -> VerificationFinding {
    finding(id, Severity::Error, host, message, correction)
}

pub(super) fn finding(
    id: &str,
    severity: Severity,
    host: &str,
    message: String,
    correction: String,
) -> VerificationFinding {
    VerificationFinding {
        id: id.to_owned(),
        severity,
        host: host.to_owned(),
        message,
        correction,
        address: None,
    }
}

/// Flows of one server that were observed in both directions.
#[derive(Debug, Default)]
struct Returned {
    all: u64,
    elsewhere: u64,
    /// Of these, by the gateways of request and reply.
    by_gateways: BTreeMap<(usize, usize), u64>,
}

impl Evidence<'_> {
    fn family(&self) -> &'static str {
        self.route.family()
    }

    /// Flows without a response, by the last place at which they were observed.
    fn lost(&self, findings: &mut Vec<VerificationFinding>) {
        let mut by_place: BTreeMap<(&LostAt, Option<usize>), Vec<&Judged>> = BTreeMap::new();
        for one in self.judged {
            let Some(lost) = &one.lost else { continue };
            let gateway = match lost {
                // The client itself had no route, which is reported separately.
                LostAt::BeforeGateways if one.outcome == WireOutcome::NoRoute => continue,
                LostAt::BeforeGateways => one.flow.predicted,
                _ => None,
            };
            by_place.entry((lost, gateway)).or_default().push(one);
        }
        for ((place, gateway), lost) in by_place {
            findings.push(self.lost_at(place, gateway, &lost));
        }
    }

    fn lost_at(&self, place: &LostAt, gateway: Option<usize>, lost: &[&Judged]) -> VerificationFinding {
        let count = format!("{} ({})", count(lost.len(), "flow"), self.family());
        let clients = hosts(lost.iter().map(|one| &self.route.clients[one.flow.client].host));
        let servers = hosts(lost.iter().map(|one| &self.route.servers[one.flow.server].host));
        let over = |of: fn(&Judged) -> Option<usize>| {
            hosts(lost.iter().filter_map(|one| of(one)).map(|gateway| &self.route.gateways[gateway].host))
        };
        match place {
            LostAt::BeforeGateways => self.not_arrived(gateway, &count, &clients),
            LostAt::InGateway(host) => self.not_forwarding(place, host, lost, [&count, &clients, &servers]),
            LostAt::ReplyInGateway(host) => {
                self.not_forwarding(place, host, lost, [&count, &servers, &clients])
            }
            LostAt::AtServer(host) => {
                let by = over(|one| one.forward);
                let message = format!("{count} from {clients} left {by} for {host}, and no reply returned");
                let gateways = lost.iter().filter_map(|one| one.forward);
                let elsewhere = self.sent_elsewhere(Direction::Requests, gateways);
                error("no-reply", host, message, elsewhere.unwrap_or_else(|| self.why_no_reply(host)))
            }
            LostAt::AtClient(host) => {
                let by = over(|one| one.reply);
                let message =
                    format!("replies to {count} through {by} were forwarded to {host} and not accepted");
                let gateways = lost.iter().filter_map(|one| one.reply);
                let elsewhere = self.sent_elsewhere(Direction::Replies, gateways);
                let filter = elsewhere.or_else(|| self.reverse_path_filter(host, self.client_side(host)));
                error("reply-not-taken", host, message, filter.unwrap_or_else(|| format!(
                    "check whether the firewall of {host} drops replies through another gateway than that of the request"
                )))
            }
        }
    }

    fn not_arrived(&self, gateway: Option<usize>, count: &str, clients: &str) -> VerificationFinding {
        let network = &self.route.between[0];
        let Some(gateway) = gateway.map(|gateway| self.route.gateways[gateway].host.as_str()) else {
            let message = format!("{count} from {clients} arrived at no gateway");
            let correction = format!(
                "check where `ip route get` on {clients} leads, and whether that host is up on network {network}"
            );
            return error("not-arrived", clients, message, correction);
        };
        let message = format!("{count} from {clients} were sent to {gateway} and never arrived there");
        let correction = format!(
            "check whether {gateway} is up and on network {network}: its link, and its entry in the neighbour table of the clients (`ip neigh`)"
        );
        error("not-arrived", gateway, message, correction)
    }

    fn why_no_reply(&self, host: &str) -> String {
        let server = self.route.servers.iter().position(|end| end.host == host);
        if let Some(reason) = server.and_then(|server| self.planned.no_return_route.get(&server)) {
            let refused = server.and_then(|server| self.decisions.refused_reply(server));
            return match refused {
                Some(by) => format!("{} on {host} refuses replies ({reason}): {}", by.named(), by.removal),
                None => format!("{host} has no return path ({reason}): `clearstream route apply` on {host}"),
            };
        }
        self.reverse_path_filter(host, self.server_side(host)).unwrap_or_else(|| {
            format!(
                "check whether {host} accepts packets for this address, and where its replies are routed: `clearstream route verify`, and its firewall"
            )
        })
    }

    fn server_side(&self, host: &str) -> Option<IpAddr> {
        self.route.servers.iter().find(|end| end.host == host).map(|end| end.address)
    }

    fn client_side(&self, host: &str) -> Option<IpAddr> {
        self.route.clients.iter().find(|end| end.host == host).map(|end| end.address)
    }

    /// Correction if a strict filter may be dropping packets (RFC 3704; the kernel uses
    /// the maximum of `all` and the interface's value, ip-sysctl).
    fn reverse_path_filter(&self, host: &str, address: Option<IpAddr>) -> Option<String> {
        if self.route.ipv6 {
            return None;
        }
        let interface = self.facts.interface(host, address?)?;
        let value = |name: &str| {
            let key = format!("net.ipv4.conf.{name}.rp_filter");
            self.facts.sysctl(host, &key).and_then(|text| text.parse::<u8>().ok()).unwrap_or(0)
        };
        (value("all").max(value(&interface.replace('.', "/"))) == 1).then(|| {
            format!(
                "rp_filter is strict on {interface} of {host}: add a return route over that interface, or set net.ipv4.conf.{interface}.rp_filter = 2"
            )
        })
    }

    /// Gateways that the kernel returned and the fabric lacks.
    fn foreign(&self, findings: &mut Vec<VerificationFinding>) {
        for (client, foreign) in &self.planned.foreign {
            let host = &self.route.clients[*client].host;
            for (address, count) in foreign {
                let message = format!(
                    "{host} would send {} to {address}, which is no gateway of this route of the fabric",
                    human::count(*count, "flow")
                );
                let correction = format!(
                    "remove {address} from its route to network {}, or add it to the fabric",
                    self.route.between[1]
                );
                let mut found = error("foreign-gateway", host, message, correction);
                found.address = Some(*address);
                findings.push(found);
            }
        }
    }

    /// Replies that return through another gateway although the plan promises symmetry.
    fn asymmetric(&self, findings: &mut Vec<VerificationFinding>) {
        if !self.route.promises_symmetry() {
            return;
        }
        let mut by_server: BTreeMap<usize, Returned> = BTreeMap::new();
        for one in self.judged {
            let (Some(forward), Some(reply)) = (one.forward, one.reply) else { continue };
            let returned = by_server.entry(one.flow.server).or_default();
            returned.all += 1;
            if forward != reply {
                returned.elsewhere += 1;
                *returned.by_gateways.entry((forward, reply)).or_default() += 1;
            }
        }
        for (server, returned) in by_server.into_iter().filter(|(_, returned)| returned.elsewhere > 0) {
            let Returned { all, elsewhere: wrong, by_gateways } = returned;
            let host = &self.route.servers[server].host;
            let name = |gateway: usize| self.route.gateways[gateway].host.as_str();
            let most = by_gateways.iter().max_by_key(|(_, count)| **count);
            let example = most.map_or_else(String::new, |((forward, reply), count)| {
                format!(
                    ", {count} of them requested through {} and replied to through {}",
                    name(*forward),
                    name(*reply)
                )
            });
            let message = format!(
                "{host}: {wrong} of {} ({}) returned through another gateway than the request{example}; the plan promises none",
                count(all, "flow"),
                self.family()
            );
            findings.push(error("asymmetric", host, message, self.why_asymmetric(host)));
        }
    }

    fn why_asymmetric(&self, host: &str) -> String {
        match self.route.return_path {
            ReturnPath::ConnectionMark => format!(
                "check on {host} that the nft table that marks connections exists and has the link address of each gateway, and that each mark has a rule and a table: `clearstream route verify`"
            ),
            ReturnPath::Alias => format!(
                "check on {host} that each alias has a rule and its table leads to its gateway: `clearstream route verify`"
            ),
            _ => self.why_unequal(host),
        }
    }

    /// Flows with a response that no gateway of the fabric forwarded.
    fn elsewhere(&self, findings: &mut Vec<VerificationFinding>) {
        if !self.seen.watched.iter().all(|watched| *watched) {
            return;
        }
        for what in ["requests", "replies"] {
            let passed = |one: &&Judged| match what {
                "requests" => one.forward.is_none(),
                _ => one.forward.is_some() && one.reply.is_none(),
            };
            let with_response = self.judged.iter().filter(|one| one.has_response());
            let past: Vec<&Judged> = with_response.filter(passed).collect();
            if past.is_empty() {
                continue;
            }
            let clients = hosts(past.iter().map(|one| &self.route.clients[one.flow.client].host));
            let message = format!(
                "{what} of {} ({}) of {clients} arrived and passed no gateway of the fabric",
                count(past.len(), "flow"),
                self.family()
            );
            let correction =
                "there is another path between the networks: find it with `ip route get`, and remove \
                              it, or add it to the fabric"
                    .to_owned();
            findings.push(error("elsewhere", &clients, message, correction));
        }
    }

    fn moved(&self, findings: &mut Vec<VerificationFinding>) {
        let moved: Vec<&Judged> = self.judged.iter().filter(|one| one.moved).collect();
        if moved.is_empty() {
            return;
        }
        let clients = hosts(moved.iter().map(|one| &self.route.clients[one.flow.client].host));
        let message = format!(
            "{} ({}) of {clients} changed the gateway while they were open",
            count(moved.len(), "flow"),
            self.family()
        );
        let correction =
            "a route or group was changed meanwhile (`clearstream route watch` does that), or packets \
                          were lost and the kernel selected another path: repeat the verification"
                .to_owned();
        findings.push(finding("moved", Severity::Warning, &clients, message, correction));
    }
}

/// Hosts, each once, the first of many.
fn hosts<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    few(names.into_iter().collect::<BTreeSet<_>>())
}
