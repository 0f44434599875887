//! Removal of objects with our numbers that are no longer wanted, in reverse order.

use std::collections::BTreeSet;

use clearstream_schema::{
    plan::{Setting, Value},
    routing::{MAIN_TABLE, Nexthop, NexthopTarget, values::AddressValue},
};

use super::{Draft, marks::MARK_TABLE};

const WHY: &str = "made by an earlier plan and no longer wanted";

pub(super) fn add(draft: &mut Draft<'_>) {
    let protocol = draft.wanted.protocol;
    let (current, wanted) = (draft.current, draft.wanted.routing);
    let kept_rules: BTreeSet<Setting> = wanted.rules.iter().filter_map(|rule| rule.setting()).collect();
    let gone = current.routing.rules.iter().filter(|rule| rule.protocol == protocol);
    let gone: BTreeSet<Setting> = gone.filter_map(|rule| rule.setting()).collect();
    remove(draft, gone.difference(&kept_rules).cloned());

    let kept_routes: BTreeSet<Setting> = wanted.routes.iter().map(|route| route.setting()).collect();
    // The main table first: it is searched without a rule.
    for main in [true, false] {
        let gone = current
            .routing
            .routes
            .iter()
            .filter(|route| route.protocol == protocol && (route.table == MAIN_TABLE) == main);
        let gone: BTreeSet<Setting> = gone.map(|route| route.setting()).collect();
        remove(draft, gone.difference(&kept_routes).cloned());
    }
    if wanted.connection_marks.is_empty()
        && let Some(table) = current.mark_table.clone()
    {
        let setting = Setting::NetfilterTable { name: MARK_TABLE.to_owned() };
        draft.step(setting, Some(table), None, &[], WHY);
    }
    let kept_nexthops: BTreeSet<u32> = wanted.nexthops.iter().map(|nexthop| nexthop.id).collect();
    for groups in [true, false] {
        let is_gone = |nexthop: &&Nexthop| {
            nexthop.protocol == protocol
                && !kept_nexthops.contains(&nexthop.id)
                && matches!(nexthop.target, NexthopTarget::Group { .. }) == groups
        };
        let gone = current.routing.nexthops.iter().filter(is_gone).map(Nexthop::setting);
        remove(draft, gone);
    }
    let kept = |interface: &str, address| {
        let named = wanted.interfaces.iter().filter(|wanted| wanted.name == interface);
        named.flat_map(|wanted| &wanted.addresses).any(|wanted| wanted.value.address == address)
    };
    for live in &current.addresses {
        if live.protocol == protocol && protocol != 0 && !kept(&live.interface, live.prefix.address) {
            let setting = Setting::Address { interface: live.interface.clone(), prefix: live.prefix };
            draft.step(setting, Some(Value::Address(AddressValue { protocol })), None, &[], WHY);
        }
    }
}

fn remove(draft: &mut Draft<'_>, settings: impl Iterator<Item = Setting>) {
    for setting in settings {
        let current = draft.value(&setting);
        draft.step(setting, current, None, &[], WHY);
    }
}
