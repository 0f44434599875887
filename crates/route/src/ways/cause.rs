//! The route or rule that takes packets, by its owner, and why it comes before the plan's.

use clearstream_netlink::LiveRoute;
use clearstream_routing::lookup::{Found, LOCAL_TABLE, Passed, Verdict};
use clearstream_schema::{
    human::few,
    prefix::Prefix,
    routing::{
        HostRouting, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleEntry, SpecialRoute,
        ip_arguments::IPV6_METRIC, kernel::AbsentNetwork,
    },
};

use crate::difference::Wanted;

/// What decides where packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The rule or route in the syntax of `ip`.
    pub what: String,
    /// Who made it.
    pub owner: String,
    /// Why it comes before what the plan has.
    pub why: String,
    /// What to do.
    pub advice: String,
    /// It is a rule, or the route of a table to which one leads.
    pub is_rule: bool,
    /// Destination of the route; absent for a rule that discards, and for no route.
    pub destination: Option<Prefix>,
}

/// What the plan has for the same packets.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'p> {
    /// Its answer.
    pub found: &'p Found<'p>,
    /// Protocol number of its routes and rules.
    pub protocol: u8,
}

/// A route that decides, of the model or of the kernel.
struct Taken<'t> {
    route: &'t RouteEntry,
    from: Option<Prefix>,
    is_local: bool,
}

impl Cause {
    /// Of what a model has found. `None` where it is no route or rule, as with a rule that
    /// is not understood.
    pub fn of(found: &Found<'_>, plan: Plan<'_>) -> Option<Self> {
        if let Some(cause) = Self::of_passed(found, found.matched, plan) {
            return Some(cause);
        }
        match (&found.verdict, found.route, found.matched) {
            (Verdict::Unknown(_), ..) => None,
            (Verdict::NoRoute, ..) => Some(Self::no_route(plan)),
            (Verdict::Refused(_), None, _) => found.rule.map(|rule| Self::of_rule(rule, plan)),
            (_, Some(route), _) => {
                let (from, is_local) = found.special.map_or((None, false), |it| (it.from, it.is_local));
                Some(Self::of_route(&Taken { route, from, is_local }, found.rule, plan))
            }
            (verdict, None, Some(matched)) => Some(Self::connected(verdict, matched, plan)),
            (_, None, None) => None,
        }
    }

    /// Of the kernel's route, and the rule that leads to its table by the model.
    pub fn of_live(live: &LiveRoute, found: &Found<'_>, plan: Plan<'_>) -> Self {
        let special = SpecialRoute::from(live.clone());
        let taken = Taken { route: &special.route, from: special.from, is_local: special.is_local };
        let rule = found.rule.filter(|_| found.table == live.entry.table);
        if let Some(cause) = Self::of_passed(found, Some(live.entry.destination), plan) {
            return cause;
        }
        let is_connected = live.is_local || matches!(live.entry.action, RouteAction::Link { .. });
        if live.is_kernels() && is_connected && !live.is_for_some_packets() {
            let matched = live.entry.destination;
            let verdict = if live.is_local { Verdict::Local } else { found.verdict.clone() };
            return Self::connected(&verdict, matched, plan);
        }
        Self::of_route(&taken, rule, plan)
    }

    /// What led past the plan's route, where a wider one or none decides instead.
    fn of_passed(found: &Found<'_>, matched: Option<Prefix>, plan: Plan<'_>) -> Option<Self> {
        // Without a plan, what leads nowhere is one that was led past something.
        let has_plan = !std::ptr::eq(plan.found, found);
        let planned = plan.found.matched;
        let length = planned.map_or(0, |planned| planned.length);
        let is_past = found.verdict != Verdict::Local
            && match has_plan {
                true => planned.is_some() && matched.is_none_or(|matched| matched.length < length),
                false => found.verdict == Verdict::NoRoute,
            }
            && !(has_plan && plan.found.passed.is_some())
            // What leads there instead is the cause.
            && found.rule.is_none_or(|rule| rule.protocol == plan.protocol);
        let instead = matched.map_or_else(String::new, |matched| match matched.length {
            0 => ", so that the default route decides".to_owned(),
            _ => format!(", so that {} decides", short(matched)),
        });
        let (what, protocol, why, advice, is_rule) = match found.passed.filter(|_| is_past)? {
            Passed::Throw(route) => {
                let taken = Taken { route, from: None, is_local: false };
                let before =
                    planned.map_or_else(String::new, |planned| format!(" before the plan's {planned}"));
                let why = format!("it ends the lookup in its table{before}");
                (
                    route_text(&taken),
                    route.protocol,
                    why,
                    remove(route.protocol, &route_removal(&taken)),
                    false,
                )
            }
            Passed::Network(absent) => {
                let AbsentNetwork { interface, network } = absent;
                let what =
                    format!("the route to {network}, the network of an address of {interface}, is gone");
                let why = format!("{interface} is down, or somebody removed it");
                let advice = format!(
                    "`ip link set {interface} up`, or `ip route replace {network} dev {interface}`, and find who removed it"
                );
                (what, 2, why, advice, false)
            }
            Passed::Rule(rule) => {
                let why = "it leads past the table of the plan's route".to_owned();
                let what = format!("the rule {}", rule_text(rule));
                (what, rule.protocol, why, remove(rule.protocol, &rule_removal(rule)), true)
            }
            Passed::Absent(priority, ipv6) => {
                let ip = if ipv6 { "ip -6" } else { "ip" };
                let table = match priority {
                    0 => "local",
                    32_767 => "default",
                    _ => "main",
                };
                let what = format!("the kernel's own rule of priority {priority} is gone");
                let why = format!("no rule leads to the table {table} there");
                (what, 2, why, format!("`{ip} rule add pref {priority} lookup {table}`"), true)
            }
        };
        let owner = owner(protocol, plan.protocol);
        Some(Self { what, owner, why: format!("{why}{instead}"), advice, is_rule, destination: None })
    }

    fn of_route(taken: &Taken<'_>, rule: Option<&RuleEntry>, plan: Plan<'_>) -> Self {
        let Taken { route, .. } = taken;
        let planned = plan.found;
        let is_by_rule = route.table != MAIN_TABLE && rule.is_some();
        let foreign_rule = rule.filter(|rule| rule.protocol != plan.protocol);
        let signed = foreign_rule.filter(|_| is_by_rule).map_or(route.protocol, |rule| rule.protocol);
        let (text, owner) = (route_text(taken), owner(signed, plan.protocol));
        let metric = RouteEntry::kernel_metric;
        let own = planned.route.filter(|own| own.table == route.table);
        let why = if route.table == LOCAL_TABLE {
            "the table local comes before every rule".to_owned()
        } else if let Some(rule) = foreign_rule.filter(|_| is_by_rule) {
            format!("the rule \"{}\" leads there first", rule_text(rule))
        } else {
            let matched = planned.matched.unwrap_or(route.destination);
            match own {
                _ if route.destination.length > matched.length => {
                    format!("it is more exact than the plan's {matched}")
                }
                _ if route.destination.length < matched.length => {
                    format!("the plan's route to {matched} is not there")
                }
                _ if taken.from.is_some() => "a route for some sources comes before one for all".to_owned(),
                Some(own) if metric(route) < metric(own) => {
                    format!("its metric {} comes before the plan's {}", metric(route), metric(own))
                }
                _ if route.protocol == plan.protocol => "the route differs from the plan's".to_owned(),
                _ => "it is there in place of the plan's".to_owned(),
            }
        };
        let is_missing = route.destination.length < planned.matched.map_or(0, |matched| matched.length);
        let advice = match foreign_rule.filter(|_| is_by_rule) {
            Some(rule) => remove(rule.protocol, &rule_removal(rule)),
            None if route.protocol == plan.protocol || is_missing => {
                "`clearstream route apply` sets the plan's".to_owned()
            }
            None => remove(route.protocol, &route_removal(taken)),
        };
        let what = match rule.filter(|_| is_by_rule) {
            Some(rule) => format!("{text} by the rule {}", rule_text(rule)),
            None => text,
        };
        Self { what, owner, why, advice, is_rule: is_by_rule, destination: Some(route.destination) }
    }

    fn of_rule(rule: &RuleEntry, plan: Plan<'_>) -> Self {
        Self {
            what: format!("the rule {}", rule_text(rule)),
            owner: owner(rule.protocol, plan.protocol),
            why: "it comes before the plan's".to_owned(),
            advice: remove(rule.protocol, &rule_removal(rule)),
            is_rule: true,
            destination: None,
        }
    }

    fn connected(verdict: &Verdict<'_>, matched: Prefix, plan: Plan<'_>) -> Self {
        let is_local = *verdict == Verdict::Local;
        let interface = match verdict {
            Verdict::Link(interface) => format!(" on {interface}"),
            _ => String::new(),
        };
        let (what, advice) = if is_local {
            let address = matched.address;
            (
                format!("{address} is an address of this host"),
                format!(
                    "remove it from its interface (`ip address`), or give it another one: in the fabric {address} is elsewhere"
                ),
            )
        } else {
            (
                format!("{matched}, the network of an address{interface}"),
                "correct the length of that address's prefix, or remove the address (`ip address`)"
                    .to_owned(),
            )
        };
        let planned = plan.found.matched.unwrap_or(matched);
        let why = match (is_local, matched.length >= planned.length) {
            (true, _) => "a host takes its own addresses first".to_owned(),
            (false, true) => format!("a link comes before the plan's route to {planned}"),
            (false, false) => format!("the plan's route to {planned} is not there"),
        };
        Self { what, owner: owner(2, plan.protocol), why, advice, is_rule: false, destination: Some(matched) }
    }

    fn no_route(plan: Plan<'_>) -> Self {
        let matched = plan.found.matched.map_or_else(String::new, |matched| format!(" to {matched}"));
        Self {
            what: "no route".to_owned(),
            owner: String::new(),
            why: format!("the plan's route{matched} is not there, or no rule leads to it"),
            advice: "`clearstream route apply` sets it".to_owned(),
            is_rule: false,
            destination: None,
        }
    }

    /// One line: what, who, why.
    pub fn description(&self) -> String {
        match self.owner.is_empty() {
            _ if self.why.is_empty() => self.what.clone(),
            true => format!("{}: {}", self.what, self.why),
            false => format!("{} ({}): {}", self.what, self.owner, self.why),
        }
    }
}

/// A nexthop object of the plan, or a member of its group, that is otherwise than planned, and what
/// makes it so again: an object that somebody else has replaced is not signed as the plan's.
pub fn altered_nexthop(id: u32, live: &HostRouting, wanted: &Wanted<'_>) -> Option<String> {
    let of = |routing: &HostRouting, id: u32| routing.nexthops.iter().find(|it| it.id == id).cloned();
    let group = of(wanted.routing, id)?;
    let members = match &group.target {
        NexthopTarget::Group { members, .. } => members.iter().map(|member| member.id).collect(),
        _ => Vec::new(),
    };
    let differs = |id: &u32| {
        let (live, wanted) = (of(live, *id), of(wanted.routing, *id)?);
        (live.as_ref().map(|live| &live.target) != Some(&wanted.target)).then_some((live, wanted))
    };
    let (live, planned) = members.into_iter().chain([id]).find_map(|id| differs(&id))?;
    let number = planned.id;
    let command = format!("`ip nexthop replace id {number} {}`", planned.ip_arguments());
    Some(match live {
        Some(live) if live.protocol == wanted.protocol => {
            format!(
                "nexthop {number} is \"{}\": `clearstream route apply` sets the plan's",
                live.ip_arguments()
            )
        }
        Some(live) => format!(
            "nexthop {number} is \"{}\" ({}), not the plan's: who made it so has to stop, and now: {command}",
            Nexthop { protocol: 0, ..live.clone() }.ip_arguments(),
            owner(live.protocol, wanted.protocol)
        ),
        None => format!("nexthop {number} is gone: `clearstream route apply` sets it"),
    })
}

/// Who made a route or rule, by its protocol number (`rt_protos`, linux/rtnetlink.h).
pub fn owner(protocol: u8, own: u8) -> String {
    let name = match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        number if number == own => return format!("proto {number}, ClearStream's own"),
        number => return format!("proto {number}"),
    };
    format!("proto {name}")
}

/// Where such an owner keeps what it makes.
fn owner_hint(protocol: u8) -> String {
    match protocol {
        1 => "an ICMP redirect: set accept_redirects to 0",
        2 => "the kernel for an address, or a program that signs as the kernel",
        3 => "`ip` by hand or in a script",
        4 => "NetworkManager, systemd-networkd or a script",
        9 => "router advertisements: NetworkManager, systemd-networkd, or accept_ra_rt_info_max_plen of the interface",
        11 | 186..=189 => "FRR",
        12 => "BIRD",
        16 => "the DHCP client, or the routes that the DHCP server gives",
        18 => "keepalived",
        0 => "a program that does not sign: `ip rule` or `ip route` by hand, or a script",
        _ => "the program with this protocol number",
    }
    .to_owned()
}

fn remove(protocol: u8, command: &str) -> String {
    format!("remove it where it is made ({}), and now: `{command}`", owner_hint(protocol))
}

/// The route without its next hops: what the kernel keeps it by.
fn route_key(taken: &Taken<'_>) -> String {
    let Taken { route, from, is_local } = taken;
    let keyword = if *is_local { Some("local") } else { route.action.type_keyword() };
    let kind = keyword.map_or_else(String::new, |keyword| format!("{keyword} "));
    let destination = match route.destination.length {
        0 => "default".to_owned(),
        _ => short(route.destination),
    };
    let from = from.map_or_else(String::new, |from| format!(" from {from}"));
    let usual = if route.destination.address.is_ipv6() { IPV6_METRIC } else { 0 };
    let metric = match route.kernel_metric() {
        metric if metric == usual => String::new(),
        metric => format!(" metric {metric}"),
    };
    let table = match route.table {
        MAIN_TABLE => String::new(),
        LOCAL_TABLE => " table local".to_owned(),
        table => format!(" table {table}"),
    };
    format!("{kind}{destination}{from}{metric}{table}")
}

/// With one next hop, or the number of them.
fn route_text(taken: &Taken<'_>) -> String {
    let unsigned = RouteEntry { protocol: 0, ..taken.route.clone() };
    let hops = match &unsigned.action {
        RouteAction::Gateways(hops) if hops.len() > 1 => {
            format!("over {} gateways, {}", hops.len(), few(hops.iter().map(|hop| hop.via)))
        }
        action => {
            let arguments = unsigned.ip_arguments();
            arguments.trim_start_matches(action.type_keyword().unwrap_or_default()).trim().to_owned()
        }
    };
    format!("{} {hops}", route_key(taken)).trim_end().to_owned()
}

fn route_removal(taken: &Taken<'_>) -> String {
    let family = if taken.route.destination.address.is_ipv6() { "ip -6" } else { "ip" };
    match &taken.route.action {
        RouteAction::Gateways(hops) if hops.len() > 1 => format!("{family} route del {}", route_key(taken)),
        _ => format!("{family} route del {}", route_text(taken)),
    }
}

/// `100: from all to 10.10.0.0/24 lookup 100`.
fn rule_text(rule: &RuleEntry) -> String {
    let value = RuleEntry { protocol: 0, ..rule.clone() };
    let priority = rule.priority.map_or_else(String::new, |priority| format!("{priority}: "));
    format!("{priority}{} {}", rule.selector.ip_arguments(), value.ip_arguments())
}

fn rule_removal(rule: &RuleEntry) -> String {
    let family = if rule.ipv6 { "ip -6" } else { "ip" };
    let value = RuleEntry { protocol: 0, ..rule.clone() };
    let priority = rule.priority.map_or_else(String::new, |priority| format!(" pref {priority}"));
    format!("{family} rule del{priority} {} {}", rule.selector.ip_arguments(), value.ip_arguments())
}

fn short(prefix: Prefix) -> String {
    if prefix == Prefix::host(prefix.address) { prefix.address.to_string() } else { prefix.to_string() }
}
