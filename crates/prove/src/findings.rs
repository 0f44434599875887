//! Deviations from the fabric, with suggested corrections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    fabric::{HashPolicy, ReturnPath},
    human::{self, count, few},
    proof::{LostAt, RouteResult, VerificationFinding, WireOutcome},
    tune::Severity,
};

use super::{
    facts::Facts,
    flows::PlannedFlows,
    judge::{Judged, Seen},
    shares,
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
    pub(super) proof: &'a RouteResult,
}

/// Makes all checks, most severe first.
pub(super) fn find(evidence: &Evidence<'_>) -> Vec<VerificationFinding> {
    let mut findings = Vec::new();
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

    fn hash_key(&self) -> String {
        let version = if self.route.ipv6 { "ipv6" } else { "ipv4" };
        format!("net.{version}.fib_multipath_hash_policy")
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
            LostAt::InGateway(host) => self.not_forwarding(host, &count, &clients, &servers),
            LostAt::ReplyInGateway(host) => self.not_forwarding(host, &count, &servers, &clients),
            LostAt::AtServer(host) => {
                let by = over(|one| one.forward);
                let message = format!("{count} from {clients} left {by} for {host}, and no reply returned");
                error("no-reply", host, message, self.why_no_reply(host))
            }
            LostAt::AtClient(host) => {
                let by = over(|one| one.reply);
                let message =
                    format!("replies to {count} through {by} were forwarded to {host} and not accepted");
                let filter = self.reverse_path_filter(host, self.client_side(host));
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
            return format!("{host} has no return path ({reason}): `clearstream route apply` on {host}");
        }
        self.reverse_path_filter(host, self.server_side(host)).unwrap_or_else(|| {
            format!(
                "check whether {host} accepts packets for this address, and where its replies are routed: `clearstream route verify`, and its firewall"
            )
        })
    }

    fn not_forwarding(&self, host: &str, count: &str, from: &str, to: &str) -> VerificationFinding {
        let message =
            format!("{host} receives packets of {count} from {from} to {to} and does not forward them");
        let key = if self.route.ipv6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        let correction = match self.facts.sysctl(host, key) {
            Some("0") => {
                format!("set {key} = 1 on {host} (it is 0): `clearstream route apply` there sets it")
            }
            _ => format!(
                "check whether {host} has a route to both networks, a firewall that drops forwarded packets, or a reverse path filter that drops them (TcpExtIPReversePathFilter in `nstat`)"
            ),
        };
        error("not-forwarding", host, message, correction)
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

    /// Gateways that a client never uses.
    fn missing_at_clients(&self, unspread: &BTreeSet<usize>, findings: &mut Vec<VerificationFinding>) {
        for (client, end) in self.route.clients.iter().enumerate() {
            if let Some(reason) = self.planned.no_route.get(&client) {
                let message =
                    format!("{} has no path for some flows ({}): {reason}", end.host, self.family());
                let correction = format!("apply its plan: `clearstream route apply` on {}", end.host);
                findings.push(error("no-route", &end.host, message, correction));
                continue;
            }
            if !self.route.spreads_by_ports() || unspread.contains(&client) {
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
                let correction = format!(
                    "add {} to its route to network {}: `clearstream route apply` on {}",
                    gateway.client_side, self.route.between[1], end.host
                );
                findings.push(error("gateway-missing", &end.host, message, correction));
            }
        }
    }

    /// Gateways through which a server never replies, where its own route decides.
    fn missing_at_servers(&self, unspread: &BTreeSet<usize>, findings: &mut Vec<VerificationFinding>) {
        let chooses = matches!(self.route.return_path, ReturnPath::None | ReturnPath::EqualSeed);
        if !chooses || !self.route.spreads_by_ports() || !unspread.is_empty() {
            return;
        }
        for (server, end) in self.route.servers.iter().enumerate() {
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
                let correction = format!(
                    "add {} to its route to network {}: `clearstream route apply` on {}",
                    gateway.server_side, self.route.between[0], end.host
                );
                findings.push(error("gateway-missing", &end.host, message, correction));
            }
        }
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
            _ => format!(
                "check that net.ipv4.fib_multipath_hash_seed and the order of the next hops are the same on {host} and on the clients"
            ),
        }
    }

    /// Finds and returns clients whose hash policy is not the plan's.
    fn hash_policy(&self, findings: &mut Vec<VerificationFinding>) -> BTreeSet<usize> {
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
                    let message = format!(
                        "{}: all flows to one server take one gateway ({}), though their ports differ",
                        end.host,
                        self.family()
                    );
                    let correction = format!(
                        "set {key} = 1 on {} (it is {value}): `clearstream route apply` there sets it",
                        end.host
                    );
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
                    let correction = format!("set {key} = 0 on {} (it is {value})", end.host);
                    findings.push(error("ports-hashed", &end.host, message, correction));
                }
            }
        }
        unspread
    }

    fn shares(&self, unspread: &BTreeSet<usize>, findings: &mut Vec<VerificationFinding>) {
        // A missing gateway has been reported, and affects the load of all others.
        let is_reported = |finding: &VerificationFinding| {
            matches!(finding.id.as_str(), "gateway-missing" | "foreign-gateway" | "not-arrived" | "no-route")
        };
        if unspread.is_empty() && !findings.iter().any(is_reported) {
            findings.extend(shares::find(self.route, self.proof));
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
