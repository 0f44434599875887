//! The plan of a fabric for people.

use std::fmt::Write as _;

use clearstream_schema::{
    fabric::{HashPolicy, HostRole, Multipath, ReturnPath},
    route_plan::{PlannedHost, PlannedRoute, ProofMethod, ProofOutcome, RoutePlan, SymmetryProof},
    routing::{
        HostRouting, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleAction, RuleEntry,
    },
};

use super::{Paint, table::table, tune::wrapped};

/// Items of one kind that an abridged list shows.
const SHOWN: usize = 4;

/// Classes and routes.
pub fn overview(plan: &RoutePlan, title: Option<&str>, paint: Paint) -> String {
    let mut text = paint.figure(&plan.fabric);
    if let Some(title) = title {
        let _ = write!(text, ": {title}");
    }
    let rows = plan.classes.iter().map(|class| {
        vec![
            class.name.clone(),
            role(class.role).to_owned(),
            class.host_count.to_string(),
            class.first.clone(),
            class.last.clone(),
        ]
    });
    let _ = write!(text, "\n{}\n", table(&["class", "role", ">hosts", "first", "last"], rows.collect()));
    for route in &plan.routes {
        let _ = write!(text, "\n{}", route_text(route, paint));
    }
    text
}

/// Manual steps, and what is not done on some hosts.
pub fn notices(plan: &RoutePlan) -> String {
    if plan.notices.is_empty() {
        return String::new();
    }
    let notices = plan.notices.iter().map(|notice| wrapped(notice));
    format!("notices\n{}", notices.collect::<String>()).trim_end().to_owned()
}

fn role(role: HostRole) -> &'static str {
    match role {
        HostRole::Storage => "storage",
        HostRole::Gateway => "gateway",
        HostRole::Compute => "compute",
        HostRole::Login => "login",
    }
}

fn path(path: ReturnPath) -> &'static str {
    match path {
        ReturnPath::Auto => "auto",
        ReturnPath::None => "none",
        ReturnPath::Alias => "alias",
        ReturnPath::ConnectionMark => "connection-mark",
        ReturnPath::EqualSeed => "equal-seed",
    }
}

fn multipath(multipath: Multipath) -> &'static str {
    match multipath {
        Multipath::Auto => "auto",
        Multipath::Resilient => "resilient",
        Multipath::Group => "group",
        Multipath::Classic => "classic",
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

fn route_text(route: &PlannedRoute, paint: Paint) -> String {
    let [one, other] = &route.between;
    let head = format!("{one} - {other} over {} gateways", route.gateways.len());
    let mut text = format!("{}\n", paint.figure(&head));
    let chosen = match route.return_path == route.recommended {
        true => format!("return path {}, as recommended", path(route.return_path)),
        false => format!("return path {}; recommended: {}", path(route.return_path), path(route.recommended)),
    };
    let _ = writeln!(text, "    {chosen}");
    text.push_str(&wrapped(&route.recommended_because));
    for class in &route.multipath {
        let _ = writeln!(text, "    {}: {}", class.class, multipath(class.multipath));
        text.push_str(&wrapped(&class.because));
    }
    let hash = match route.hash_policy {
        HashPolicy::Layer3 => "addresses",
        HashPolicy::Layer4 => "addresses and ports",
        HashPolicy::Inner => "addresses of inner packets",
    };
    let seed = route.hash_seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let _ = writeln!(text, "    hash of {hash}{seed}");
    text.push_str(&proof_text(&route.proof, paint));
    let _ = write!(text, "\n{}\n\n{}\n\n{}\n", costs(route), shares(route), failures(route));
    text
}

fn proof_text(proof: &SymmetryProof, paint: Paint) -> String {
    let outcome = match proof.outcome {
        ProofOutcome::Symmetric => "symmetry check: each reply takes the gateway of its request".to_owned(),
        ProofOutcome::NotPromised => {
            "symmetry check: every request and reply arrives; replies may take another gateway".to_owned()
        }
        ProofOutcome::Fails => paint.warning("symmetry check: failed"),
    };
    let method = match proof.method {
        ProofMethod::Exhaustive => {
            format!("{} paths simulated: every pair, address and gateway", proof.walk_count)
        }
        ProofMethod::PerClass => format!(
            "{} paths simulated: one host of each class over all gateways, the others over one; {} hosts differ from the first of their class in their addresses only",
            proof.walk_count, proof.compared_count
        ),
    };
    let mut text = format!("    {outcome}\n{}", wrapped(&method));
    for condition in &proof.conditions {
        text.push_str(&wrapped(&format!("provided that {condition}")));
    }
    if let Some(found) = &proof.counterexample {
        let over = found.gateway.as_ref().map(|name| format!(" over {name}")).unwrap_or_default();
        let requested = found.address.map(|address| format!(" sends to {address} of {}", found.server));
        let requested = requested.unwrap_or_else(|| format!(" and {}", found.server));
        text.push_str(&wrapped(&format!("{}{requested}{over}: {}", found.client, found.problem)));
    }
    text
}

fn costs(route: &PlannedRoute) -> String {
    let rows = route.costs.iter().map(|cost| {
        let mark = if cost.return_path == route.return_path { "*" } else { "" };
        vec![
            format!("{}{mark}", path(cost.return_path)),
            percent(cost.other_gateway_ratio),
            percent(cost.hit_ratio),
            cost.address_count.to_string(),
            cost.rule_count.to_string(),
            cost.client_route_count.to_string(),
        ]
    });
    let header = [
        "return path",
        ">return elsewhere",
        ">affected by one failure",
        ">addresses",
        ">rules a server",
        ">routes a client",
    ];
    let mut text = table(&header, rows.collect());
    for cost in &route.costs {
        let takes = match &cost.obstacle {
            Some(obstacle) => format!("not here: {obstacle}"),
            None => format!("takes: {}", cost.takes),
        };
        let _ = write!(text, "\n    {}\n{}", path(cost.return_path), wrapped(&takes).trim_end());
    }
    text
}

fn shares(route: &PlannedRoute) -> String {
    let rows = route.shares.gateways.iter().zip(&route.gateways).map(|(share, gateway)| {
        vec![
            share.name.clone(),
            gateway.weight.to_string(),
            percent(share.expected_ratio),
            percent(share.forward_ratio),
            percent(share.return_ratio),
        ]
    });
    let seeds = match route.shares.seed_is_known {
        true => "with the kernel's hash and the plan's seed",
        false => "with random seeds, as hosts draw them at boot",
    };
    format!(
        "{} flows of {} pairs, {seeds}: {} return elsewhere\n{}",
        route.shares.flow_count,
        route.shares.pair_count,
        percent(route.shares.other_gateway_ratio),
        table(&["gateway", ">weight", ">by weight", ">to servers", ">back"], rows.collect())
    )
}

fn failures(route: &PlannedRoute) -> String {
    let rows = route.losses.iter().map(|loss| {
        vec![
            loss.lost_count.to_string(),
            multipath(loss.multipath).to_owned(),
            percent(loss.hit_ratio),
            percent(loss.moved_ratio),
            percent(loss.moved_back_ratio),
            percent(loss.busiest_ratio),
        ]
    });
    table(
        &[
            ">lost",
            "multipath",
            ">flows affected",
            ">unnecessarily rehashed",
            ">rehashed on return",
            ">largest share then",
        ],
        rows.collect(),
    )
}

/// A line of a host's plan: its kind, what, and the name of its reason.
struct Item {
    kind: &'static str,
    line: String,
    reason: String,
}

/// Planned routing of one host; abridged unless `in_full`.
pub fn host(plan: &RoutePlan, host: &PlannedHost, in_full: bool, paint: Paint) -> String {
    let mut text = paint.figure(&host.routing.host);
    let class = plan.classes.iter().find(|class| class.name == host.class);
    let others = class.map_or(0, |class| class.host_count.saturating_sub(1));
    let _ = match others {
        0 => writeln!(text, ", class {}", host.class),
        1 => writeln!(text, ", class {}, like one other", host.class),
        _ => writeln!(text, ", class {}, like {others} others", host.class),
    };
    let items = items(&host.routing);
    let mut at = 0;
    while at < items.len() {
        let run = items[at..].iter().take_while(|item| item.kind == items[at].kind).count();
        // Sysctls have a reason each; other kinds come in runs of similar items.
        let whole = in_full || run <= SHOWN || items[at].kind == "sysctl";
        let shown = if whole { run } else { SHOWN - 1 };
        for item in &items[at..at + shown] {
            let _ = writeln!(text, "    {}", item.line);
            let reason = host.reasons.iter().find(|reason| reason.item == item.reason);
            if let Some(reason) = reason {
                text.push_str(&wrapped(&reason.why));
            }
        }
        if shown < run {
            let _ = writeln!(text, "    ... and {} more such, to {}", run - shown, items[at + run - 1].line);
        }
        at += run;
    }
    if let Some(class) = class.filter(|class| !class.kernel_needs.is_empty()) {
        let _ = writeln!(text, "    its kernel has to have");
        text.push_str(&wrapped(&class.kernel_needs.join(", ")));
    }
    text
}

fn items(routing: &HostRouting) -> Vec<Item> {
    let item = |kind, line: String, reason: String| Item { kind, line, reason };
    let mut items = Vec::new();
    for interface in &routing.interfaces {
        let addresses = interface.addresses.iter().map(|address| address.value.to_string());
        let mut line = format!("interface {} {}", interface.name, addresses.collect::<Vec<_>>().join(" "));
        if let Some(mtu) = &interface.mtu {
            let _ = write!(line, " mtu {}", mtu.value);
        }
        items.push(item("interface", line, format!("interface {}", interface.name)));
    }
    items.extend(routing.nexthops.iter().map(nexthop));
    items.extend(routing.routes.iter().map(route_item));
    items.extend(routing.rules.iter().map(rule));
    for mark in &routing.connection_marks {
        let address = if mark.link_address.is_empty() { "its link address" } else { &mark.link_address };
        let line =
            format!("mark {} what {} sends from {address} to {}", mark.mark, mark.gateway, mark.interface);
        items.push(item("mark", line, format!("mark {}", mark.mark)));
    }
    for (key, value) in &routing.sysctls {
        items.push(item("sysctl", format!("{key} = {}", value.value), key.clone()));
    }
    items
}

fn nexthop(nexthop: &Nexthop) -> Item {
    let (kind, target, name) = match &nexthop.target {
        NexthopTarget::Gateway { via, interface } => {
            ("nexthop", format!("via {via} dev {interface}"), "nexthop")
        }
        NexthopTarget::Blackhole => ("nexthop", "blackhole".to_owned(), "nexthop"),
        NexthopTarget::Group { members, resilient } => {
            let shown = members.iter().take(8).map(|member| match member.weight {
                1 => member.id.to_string(),
                weight => format!("{} weight {weight}", member.id),
            });
            let mut target = format!("group of {}", shown.collect::<Vec<_>>().join(", "));
            if members.len() > 8 {
                let _ = write!(target, " and {} more", members.len() - 8);
            }
            if let Some(resilient) = resilient {
                let _ = write!(
                    target,
                    "; resilient, {} buckets, idle after {} s",
                    resilient.bucket_count, resilient.idle_seconds
                );
            }
            ("group", target, "group")
        }
    };
    Item { kind, line: format!("nexthop {} {target}", nexthop.id), reason: format!("{name} {}", nexthop.id) }
}

fn route_item(route: &RouteEntry) -> Item {
    let action = match &route.action {
        RouteAction::Nexthop(id) => format!("nexthop {id}"),
        RouteAction::Link { interface } => format!("dev {interface}"),
        RouteAction::Gateways(hops) => {
            let hop = |hop: &clearstream_schema::routing::Hop| match hop.weight {
                1 => format!("via {}", hop.via),
                weight => format!("via {} weight {weight}", hop.via),
            };
            hops.iter().map(hop).collect::<Vec<_>>().join(", ")
        }
        RouteAction::Blackhole => "blackhole".to_owned(),
        RouteAction::Unreachable => "unreachable".to_owned(),
        RouteAction::Prohibit => "prohibit".to_owned(),
        RouteAction::Throw => "throw".to_owned(),
    };
    let mut line = format!("route {} {action}", route.destination);
    let is_main = route.table == MAIN_TABLE;
    if !is_main {
        let _ = write!(line, " table {}", route.table);
    }
    if let Some(source) = route.source {
        let _ = write!(line, " src {source}");
    }
    if let Some(mtu) = route.mtu {
        let _ = write!(line, " mtu {mtu}");
    }
    match is_main {
        true => Item { kind: "route", line, reason: format!("route {}", route.destination) },
        false => Item { kind: "table", line, reason: format!("table {}", route.table) },
    }
}

fn rule(rule: &RuleEntry) -> Item {
    let priority = rule.priority.unwrap_or_default();
    let mut line = format!("rule {priority}");
    if let Some(from) = rule.selector.from {
        let _ = write!(line, " from {}", from.address);
    }
    if let Some((mark, _)) = rule.selector.mark {
        let _ = write!(line, " fwmark {mark}{}", if rule.ipv6 { " (IPv6)" } else { "" });
    }
    match &rule.action {
        RuleAction::Table(table) => {
            let _ = write!(line, " table {table}");
        }
        RuleAction::Other(text) => {
            let _ = write!(line, " {text}");
        }
    }
    Item { kind: "rule", line, reason: format!("rule {priority}") }
}
