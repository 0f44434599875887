//! Hosts of a fabric whose packets another route or rule leads away from where the fabric
//! has them: a more exact route, a better metric, a rule that comes first, and a host
//! without any route to a network that the fabric joins.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use clearstream_routing::lookup::Lookup;
use clearstream_schema::{
    human::few,
    prefix::Prefix,
    routing::RouteEntry,
    tune::{Finding, FindingClass, Severity},
};

use super::super::{Facts, Identities, View, With, finding, ip_syntax};
use crate::{
    fabric::{Fabric, HostId},
    planner::Planner,
    ways::{Cause, OnlyIf, Plan, Population, Question, Way, questions},
};

/// Findings that say already why a host does not reach a network.
const EXPLAINS_NO_ROUTE: [&str; 7] = [
    "route:routing:no-route",
    "route:routing:leaves-hosts-out",
    "route:routing:not-the-other-network",
    "route:routing:on-link-beats-default",
    "route:range:no-such-source",
    "route:range:no-such-interface",
    "gateway:range:outside-every-subnet",
];
/// The ones for packets that are discarded.
const EXPLAINS_REFUSAL: [&str; 3] = ["black-hole", "unreachable", "prohibit"];

/// What a fabric plans for its hosts.
#[derive(Debug)]
pub(in crate::lint) struct Plans<'f> {
    fabric: &'f Fabric,
    planner: Planner<'f>,
    population: Population,
    identities: Identities,
}

impl<'f> Plans<'f> {
    pub(in crate::lint) fn new(fabric: &'f Fabric) -> Self {
        let (planner, population) = (Planner::new(fabric), Population::new(fabric));
        Self { fabric, planner, population, identities: Identities::new(fabric) }
    }
}

/// What one cause leads away.
#[derive(Default)]
struct Led<'a> {
    /// Networks, and addresses of hosts there.
    networks: BTreeSet<Prefix>,
    addresses: BTreeSet<IpAddr>,
    count: usize,
    /// Sources of what a gateway takes on.
    is_forwarded: bool,
    first: Option<(Question, Way)>,
    route: Option<&'a RouteEntry>,
}

/// Findings about every host of the fabric; `told` are those of the other rules.
pub(in crate::lint) fn led_away(facts: &Facts<'_>, told: &[Finding]) -> Vec<Finding> {
    let Some(plans) = &facts.plans else { return Vec::new() };
    let mut by_host: HashMap<&str, Vec<&Finding>> = HashMap::new();
    for finding in told {
        by_host.entry(finding.host.as_deref().unwrap_or_default()).or_default().push(finding);
    }
    let mut found = Vec::new();
    for host in &facts.hosts {
        let told = by_host.get(host.subject.name.as_str()).map_or(&[][..], Vec::as_slice);
        if let Ok(id) = plans.identities.of(host.subject) {
            of_host(plans, host, id, told, &mut found);
        }
    }
    found
}

fn of_host(plans: &Plans<'_>, host: &View<'_>, id: HostId, told: &[&Finding], found: &mut Vec<Finding>) {
    let wanted = plans.planner.routing(id);
    let planned = Lookup::new(&wanted);
    let protocol = plans.fabric.file().numbers.protocol;
    let mut causes: BTreeMap<(String, String), (Cause, Led<'_>)> = BTreeMap::new();
    for question in questions(plans.fabric, &plans.population, id, &wanted, host.routing, false) {
        let (model, plan) = (question.ask(&host.node.lookup), question.ask(&planned));
        let way = Way::of(&model.verdict);
        if is_alike(&way, &question.planned) || !is_known(host, &question, &way) || !may_be(host, &question) {
            continue;
        }
        // Of addresses that stand for gateways, which rules of the host's own are missing is
        // reported by what compares the two directions.
        let is_own_choice = plan.rule.is_some() && model.rule.is_none() && matches!(way, Way::Hops(_));
        let Some(cause) = Cause::of(&model, Plan { found: &plan, protocol }) else { continue };
        if is_own_choice || is_told(&way, model.route, told) {
            continue;
        }
        let network =
            if matches!(way, Way::Nowhere(_)) { question.network.to_string() } else { String::new() };
        let (_, led) = causes.entry((cause.what.clone(), network)).or_insert((cause, Led::default()));
        led.networks.insert(question.network);
        if led.addresses.insert(question.destination) {
            led.count += question.destination_count;
        }
        led.is_forwarded |= question.input.is_some();
        led.route = led.route.or(model.route);
        led.first.get_or_insert((question, way));
    }
    found.extend(causes.into_values().filter_map(|(cause, led)| overridden(host, &cause, &led)));
}

/// By the same gateways, or these and more, which other rules judge; or a link. Names of
/// interfaces differ between a fabric and a host.
fn is_alike(way: &Way, planned: &Way) -> bool {
    let gateways = |way: &Way| match way {
        Way::Hops(hops) => Some(hops.iter().map(|(via, _)| *via).collect::<BTreeSet<_>>()),
        _ => None,
    };
    match (gateways(way), gateways(planned)) {
        (None, None) => way == planned,
        (Some(way), Some(planned)) => way.is_superset(&planned),
        _ => false,
    }
}

/// Files contain only what they set: of these only what is there is known, and addresses of
/// an interface may be elsewhere.
fn is_known(host: &View<'_>, question: &Question, way: &Way) -> bool {
    let has_source = question.source.is_none_or(|own| question.input.is_some() || host.own.contains(&own));
    match way {
        Way::Unknown(_) => false,
        Way::Nowhere(reason) if reason == "no route" => host.is_whole(),
        _ => has_source,
    }
}

/// Whether such packets may exist: a kernel's rule is there for somebody, while files without what
/// sets its mark are reported as such.
fn may_be(host: &View<'_>, question: &Question) -> bool {
    question.only_if.is_none() || host.is_whole() || host.sets_mark(question.mark)
}

/// Whether another finding about the host says it.
fn is_told(way: &Way, route: Option<&RouteEntry>, told: &[&Finding]) -> bool {
    let text = route.map(ip_syntax::route);
    let mut told = told.iter().filter(|finding| finding.severity > Severity::Note);
    told.any(|finding| match way {
        Way::Nowhere(reason) if reason == "no route" => EXPLAINS_NO_ROUTE.contains(&finding.id.as_str()),
        Way::Nowhere(_) => {
            EXPLAINS_REFUSAL.iter().any(|cause| finding.id.ends_with(&format!(":routing:{cause}")))
        }
        _ => {
            let is_about = matches!(finding.key.as_str(), "route" | "gateway" | "table");
            is_about && text.is_some() && finding.value == text
                || text.is_none() && finding.id.starts_with("address:routing:")
        }
    })
}

fn overridden(host: &View<'_>, cause: &Cause, led: &Led<'_>) -> Option<Finding> {
    let (question, way) = led.first.as_ref()?;
    let networks = few(led.networks.iter());
    // Where something leads past the plan's route, that is what is wrong.
    if *way == Way::Nowhere("no route".to_owned()) && cause.owner.is_empty() {
        let message = format!("no route to {networks}, which the fabric joins to this host's network");
        let hops = match &question.planned {
            Way::Hops(hops) => few(hops.iter().filter_map(|(via, _)| *via)),
            _ => String::new(),
        };
        let advice = match hops.is_empty() {
            true => "set its interface up, and `clearstream route apply` adds the address of that network"
                .to_owned(),
            false => format!("`clearstream route apply` adds it, by {hops}"),
        };
        return Some(
            finding(host, "route", FindingClass::Routing, "no-route", Severity::Error, message)
                .of(networks)
                .advise(advice)
                .sourced("the fabric file; ip-route(8)"),
        );
    }
    // What is led away though the plan's own way is there; else it is another way altogether.
    let is_meant = cause.destination == Some(question.network.network())
        && !cause.is_rule
        && led.route.is_some_and(|route| route.metric == 0);
    let is_set = host.sets_mark(question.mark);
    let severity = match (led.count, way) {
        (0, _) => Severity::Note,
        _ if question.only_if.is_some() && !is_set => Severity::Note,
        (_, Way::Hops(_)) if is_meant => Severity::Warning,
        _ => Severity::Error,
    };
    let who = match led.count {
        0 => "addresses of no host of the fabric".to_owned(),
        1 => question.destination.to_string(),
        count => format!("{count} addresses of hosts, first {}", question.destination),
    };
    let verb = if led.is_forwarded { "takes on" } else { "sends" };
    let which = match question.only_if {
        Some(OnlyIf::Marked) if is_set => {
            format!(" with mark {:#x}, which a rule of its firewall sets,", question.mark)
        }
        Some(OnlyIf::Marked) => format!(
            " with mark {:#x} (what sets it was not read: nftables, iptables, or SO_MARK of a program)",
            question.mark
        ),
        Some(OnlyIf::Bound) => " from sockets bound to an interface (SO_BINDTODEVICE)".to_owned(),
        None => String::new(),
    };
    let message = format!(
        "what this host {verb} to {networks}{which} goes {} by the fabric, and for {who} it goes {way}: {}",
        question.planned,
        cause.description()
    );
    let key = if cause.is_rule { "rule" } else { "route" };
    let place = led.route.and_then(|route| route.place.as_ref());
    Some(
        finding(host, key, FindingClass::Routing, "overridden", severity, message)
            .of(cause.what.clone())
            .at(place)
            .advise(cause.advice.clone())
            .sourced("ip-route(8), ip-rule(8); the fabric file"),
    )
}
