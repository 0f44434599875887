//! The table of nft that marks connections by the gateway they came by.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_netlink::Neighbour;
use clearstream_routing::marks;
use clearstream_schema::{
    plan::{Setting, Value},
    routing::{ConnectionMark, HostRouting, NexthopTarget, RouteAction, RuleAction},
};

use super::{DifferenceError, Draft};

/// Name of the table, of family `inet`.
pub const MARK_TABLE: &str = "clearstream_route";

pub(super) fn add(draft: &mut Draft<'_>) -> Result<(), DifferenceError> {
    let marks = &draft.wanted.routing.connection_marks;
    if marks.is_empty() {
        return Ok(());
    }
    if let Some(unknown) = marks.iter().find(|mark| mark.link_address.is_empty()) {
        let (gateway, interface) = (unknown.gateway.clone(), unknown.interface.clone());
        return Err(DifferenceError::UnknownGateway { gateway, interface });
    }
    let setting = Setting::NetfilterTable { name: MARK_TABLE.to_owned() };
    let wanted = Value::of(&setting, &text(marks));
    if draft.current.mark_table.as_ref() == Some(&wanted) {
        return Ok(());
    }
    let items: Vec<String> = marks.iter().map(|mark| format!("mark {}", mark.mark)).collect();
    let otherwise = "connections are marked by the gateway that they came by, and replies carry the mark";
    draft.step(setting, draft.current.mark_table.clone(), Some(wanted), &items, otherwise);
    Ok(())
}

/// The chains on one line, as settings are.
fn text(wanted: &[ConnectionMark]) -> String {
    let mut text = String::new();
    for line in marks::chains(wanted).lines().map(str::trim) {
        text.push_str(line);
        text.push_str(if line.ends_with(['{', ';']) { " " } else { "; " });
    }
    text.trim_end().to_owned()
}

/// Gateways whose link address a plan leaves to the neighbours: their addresses
/// and the interfaces on which they are requested.
pub fn unknown_gateways(routing: &HostRouting) -> Vec<(IpAddr, String)> {
    let unknown = routing.connection_marks.iter().filter(|mark| mark.link_address.is_empty());
    let found: BTreeSet<(IpAddr, String)> = unknown
        .flat_map(|mark| gateways_of(routing, mark.mark).into_iter().map(|via| (via, mark.interface.clone())))
        .collect();
    found.into_iter().collect()
}

/// Fills in the link addresses that are not in the plan from the neighbours.
pub fn learn_marks(routing: &mut HostRouting, neighbours: &[Neighbour]) {
    let found: Vec<Option<String>> = routing
        .connection_marks
        .iter()
        .map(|mark| {
            let gateways = gateways_of(routing, mark.mark);
            let known = neighbours.iter().find(|neighbour| {
                neighbour.interface == mark.interface
                    && gateways.contains(&neighbour.address)
                    && neighbour.link_address.is_some()
            });
            known.and_then(|neighbour| neighbour.link_address.clone())
        })
        .collect();
    for (mark, address) in routing.connection_marks.iter_mut().zip(found) {
        if let (true, Some(address)) = (mark.link_address.is_empty(), address) {
            mark.link_address = address;
        }
    }
}

/// Gateways of the tables that a mark leads to.
fn gateways_of(routing: &HostRouting, mark: u32) -> Vec<IpAddr> {
    let tables: BTreeSet<u32> = routing
        .rules
        .iter()
        .filter(|rule| rule.selector.mark.is_some_and(|(wanted, _)| wanted == mark))
        .filter_map(|rule| match rule.action {
            RuleAction::Table(table) => Some(table),
            RuleAction::Other(_) => None,
        })
        .collect();
    let mut found = Vec::new();
    for route in routing.routes.iter().filter(|route| tables.contains(&route.table)) {
        match &route.action {
            RouteAction::Gateways(hops) => found.extend(hops.iter().map(|hop| hop.via)),
            RouteAction::Nexthop(id) => {
                found.extend(routing.nexthops.iter().filter(|nexthop| nexthop.id == *id).filter_map(
                    |nexthop| match &nexthop.target {
                        NexthopTarget::Gateway { via, .. } => Some(*via),
                        _ => None,
                    },
                ));
            }
            _ => {}
        }
    }
    found
}
