//! What decides over packets on the running host: its route and rule, with their owner, and
//! how the group of that route stands.

use std::net::IpAddr;

use clearstream_netlink::{LiveNexthop, NetlinkError, RouteQuery, RouteSocket};
use clearstream_routing::lookup::{Found, Kind, Lookup, Packet, Verdict};
use clearstream_schema::routing::{HostRouting, NexthopTarget, Resilient, RouteAction};

use super::{Cause, Plan, Way, names_its_route, obstacle};

/// A protocol number that nobody signs with, so that nothing is taken for a plan's own.
const NOBODYS: u8 = u8::MAX;

/// The kernel's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The route or rule; absent where neither kernel nor model names one.
    pub cause: Option<Cause>,
    /// Why the kernel has no way.
    pub refusal: Option<String>,
    /// Gateways of the route with their weights, in its order; none for a link.
    pub gateways: Vec<(IpAddr, u16)>,
    /// Of a resilient group.
    pub buckets: Option<Buckets>,
    /// Where packets go instead that have a mark, a line for each rule.
    pub by_mark: Vec<String>,
}

/// Buckets of a resilient group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    /// Its parameters.
    pub group: Resilient,
    /// By gateway.
    pub counts: Vec<(IpAddr, u32)>,
    /// How long some gateway has had too few of them; 0 when none has.
    pub unbalanced_for_seconds: u64,
}

/// Asks the kernel for its route, and where it refuses the model of its routing `live`.
///
/// # Errors
/// The socket fails.
pub fn decided(
    query: &RouteQuery,
    live: &HostRouting,
    socket: &mut RouteSocket,
) -> Result<Decided, NetlinkError> {
    let (protocol, ports) = match query.ports {
        Some((protocol, source, destination)) => (Some(protocol), Some((source, destination))),
        None => (None, None),
    };
    let kind = Kind { user: query.user, protocol, ports, output: query.output.as_deref() };
    let input = query.input.as_deref();
    let packet = Packet { source: query.from, destination: query.to, mark: query.mark, input };
    let model = Lookup::new(live);
    let found = model.find_of(&packet, &kind);
    let by_mark = if query.mark == 0 { by_mark(live, &model, &packet, &kind, &found) } else { Vec::new() };
    // Nothing to compare with: what decides is named, and not why.
    let plan = Plan { found: &found, protocol: NOBODYS };
    let route = match socket.route_in_effect(query) {
        Ok(route) => route,
        Err(error) if error.refused_with().is_some() => {
            let refusal = Some(error.to_string());
            // A way that the kernel refuses is not what is wrong.
            let cause = match found.verdict {
                Verdict::Refused(_) | Verdict::NoRoute => Cause::of(&found, plan),
                _ => obstacle(live, &packet, &found, None),
            };
            return Ok(Decided { cause, refusal, gateways: Vec::new(), buckets: None, by_mark });
        }
        Err(error) => return Err(error),
    };
    let route = route.filter(|route| names_its_route(route, &found));
    let action = route.as_ref().map(|route| &route.entry.action).or(found.route.map(|route| &route.action));
    let (mut members, mut filling) = (Vec::new(), None);
    if let Some(action) = action {
        let nexthops = socket.nexthops()?;
        members = gateways(action, &nexthops);
        filling = buckets(action, &nexthops, socket)?;
    }
    let cause = match &route {
        Some(route) => Some(Cause::of_live(route, &found, plan)),
        None => Cause::of(&found, plan),
    };
    Ok(Decided { cause, refusal: None, gateways: members, buckets: filling, by_mark })
}

/// Rules by which packets with a mark go elsewhere. Which mark a packet has, its kernel's firewall
/// and its sender decide, so that no lookup shows it.
fn by_mark(
    live: &HostRouting,
    model: &Lookup<'_>,
    packet: &Packet<'_>,
    kind: &Kind<'_>,
    found: &Found<'_>,
) -> Vec<String> {
    let own = Way::of(&found.verdict);
    let mut lines = Vec::new();
    for rule in live.rules.iter().filter(|rule| rule.ipv6 == packet.destination.is_ipv6()) {
        let Some((mark, mask)) = rule.selector.mark.filter(|(mark, mask)| mark & mask != 0) else { continue };
        let marked = model.find_of(&Packet { mark: mark & mask, ..*packet }, kind);
        let way = Way::of(&marked.verdict);
        if marked.rule == Some(rule) && way != own {
            let priority = rule.priority.map_or_else(String::new, |priority| format!("{priority}: "));
            lines.push(format!(
                "packets with mark {mark:#x} go {way} by the rule {priority}{}",
                rule.selector.ip_arguments()
            ));
        }
    }
    lines
}

fn gateway(id: u32, nexthops: &[LiveNexthop]) -> Option<IpAddr> {
    match nexthops.iter().find(|nexthop| nexthop.entry.id == id)?.entry.target {
        NexthopTarget::Gateway { via, .. } => Some(via),
        _ => None,
    }
}

fn gateways(action: &RouteAction, nexthops: &[LiveNexthop]) -> Vec<(IpAddr, u16)> {
    match action {
        RouteAction::Gateways(hops) => hops.iter().map(|hop| (hop.via, hop.weight)).collect(),
        RouteAction::Nexthop(id) => {
            match nexthops.iter().find(|nexthop| nexthop.entry.id == *id).map(|nexthop| &nexthop.entry.target)
            {
                Some(NexthopTarget::Group { members, .. }) => members
                    .iter()
                    .filter_map(|member| Some((gateway(member.id, nexthops)?, member.weight)))
                    .collect(),
                _ => gateway(*id, nexthops).map(|via| (via, 1)).into_iter().collect(),
            }
        }
        _ => Vec::new(),
    }
}

fn buckets(
    action: &RouteAction,
    nexthops: &[LiveNexthop],
    socket: &mut RouteSocket,
) -> Result<Option<Buckets>, NetlinkError> {
    let RouteAction::Nexthop(id) = *action else { return Ok(None) };
    let Some(live) = nexthops.iter().find(|nexthop| nexthop.entry.id == id) else { return Ok(None) };
    let NexthopTarget::Group { members, resilient: Some(group) } = &live.entry.target else {
        return Ok(None);
    };
    let counts = socket.bucket_counts(id)?;
    let count = |id: u32| counts.get(&id).copied().unwrap_or(0);
    let counts =
        members.iter().filter_map(|member| Some((gateway(member.id, nexthops)?, count(member.id)))).collect();
    let unbalanced_for_seconds = live.unbalanced_for_seconds;
    Ok(Some(Buckets { group: *group, counts, unbalanced_for_seconds }))
}
