//! The gateways that the kernel would choose for flows (`ip route get ... sport`).

use std::collections::HashMap;

use clearstream_host::HostRoot;
use clearstream_netlink::{NetlinkError, RouteQuery, RouteSocket};
use clearstream_route::{live, ways};
use clearstream_schema::control::{Failure, FailureKind};

use super::super::calls::{Decision, Lookup, LookupResult, MOST_WIRE_LOOKUPS};

/// Looks up every flow, in order.
pub(super) fn run(lookup: &Lookup) -> Result<LookupResult, Failure> {
    if lookup.ports.len() > MOST_WIRE_LOOKUPS {
        return Err(Failure::new(
            FailureKind::Invalid,
            format!("at most {MOST_WIRE_LOOKUPS} lookups at a time"),
        ));
    }
    let refused = |error| Failure::new(FailureKind::Unsupported, format!("route lookup: {error}"));
    let mut socket = RouteSocket::open().map_err(refused)?;
    let mut places = HashMap::new();
    let mut found = LookupResult::default();
    let query = |(source, destination): &(u16, u16)| RouteQuery {
        from: Some(lookup.source),
        mark: lookup.mark.unwrap_or(0),
        ports: Some((lookup.protocol.number(), *source, *destination)),
        input: lookup.input.clone(),
        ..RouteQuery::to(lookup.destination)
    };
    if let Some(first) = lookup.ports.first().filter(|_| lookup.explain) {
        found.decision = Some(decision(&query(first), &mut socket).map_err(refused)?);
    }
    let mut lookups = socket.lookups().map_err(refused)?;
    for ports in &lookup.ports {
        let via = match lookups.find(&query(ports)) {
            Ok(route) => route.via,
            Err(error) if error.refused_with().is_some() => {
                found.refusal.get_or_insert_with(|| error.to_string());
                None
            }
            Err(error) => return Err(refused(error)),
        };
        let gateways = &mut found.gateways;
        found.choices.push(via.map(|via| {
            *places.entry(via).or_insert_with(|| {
                gateways.push(via);
                u32::try_from(gateways.len() - 1).unwrap_or(u32::MAX)
            })
        }));
    }
    Ok(found)
}

/// The route or rule that decides.
fn decision(query: &RouteQuery, socket: &mut RouteSocket) -> Result<Decision, NetlinkError> {
    let decided = ways::decided(query, &live::live(&HostRoot::live())?, socket)?;
    let mut decision = Decision {
        gateways: decided.gateways,
        refusal: decided.refusal,
        by_mark: decided.by_mark,
        ..Decision::default()
    };
    if let Some(cause) = decided.cause {
        (decision.what, decision.owner, decision.removal) = (cause.what, cause.owner, cause.advice);
        (decision.destination, decision.is_rule) = (cause.destination, cause.is_rule);
    }
    if let Some(buckets) = decided.buckets {
        decision.buckets = buckets.counts;
        decision.moves_after_seconds = Some((buckets.group.idle_seconds, buckets.group.unbalanced_seconds));
        decision.unbalanced_for_seconds = buckets.unbalanced_for_seconds;
    }
    Ok(decision)
}
