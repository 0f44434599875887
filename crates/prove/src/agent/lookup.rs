//! The gateways that the kernel would choose for flows (`ip route get ... sport`).

use std::collections::HashMap;

use clearstream_netlink::{RouteQuery, RouteSocket};
use clearstream_schema::control::{Failure, FailureKind};

use super::{
    super::calls::{Lookup, LookupResult, MOST_WIRE_LOOKUPS},
    failure,
};

/// Looks up every flow, in order.
pub(super) fn run(lookup: &Lookup) -> Result<LookupResult, Failure> {
    if lookup.ports.len() > MOST_WIRE_LOOKUPS {
        return Err(failure(FailureKind::Invalid, format!("at most {MOST_WIRE_LOOKUPS} lookups at a time")));
    }
    let refused = |error| failure(FailureKind::Unsupported, format!("route lookup: {error}"));
    let mut socket = RouteSocket::open().map_err(refused)?;
    let mut places = HashMap::new();
    let mut found = LookupResult::default();
    for (source, destination) in &lookup.ports {
        let query = RouteQuery {
            from: Some(lookup.source),
            mark: lookup.mark.unwrap_or(0),
            ports: Some((lookup.protocol.number(), *source, *destination)),
            ..RouteQuery::to(lookup.destination)
        };
        let via = match socket.lookup(&query) {
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
