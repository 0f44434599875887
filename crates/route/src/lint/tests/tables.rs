//! Rules and tables.

use super::*;

#[test]
fn the_same_rule_twice() {
    let twice = "rule priority 1 from 10.0.0.1 table 1\nrule priority 2 from 10.0.0.1 table 1\n";
    assert_eq!(lines(twice, "rule:no-op:duplicate"), [2]);
    let other = "rule priority 1 from 10.0.0.1 table 1\nrule priority 2 from 10.0.0.2 table 1\n";
    assert_eq!(lines(other, "rule:no-op:duplicate"), NONE);
}

/// `ip rule add` without priority puts each rule before those that are there.
#[test]
fn of_rules_without_priority_the_earlier_one_is_shadowed() {
    let tables = "route default via 10.0.0.9 table 1\nroute default via 10.0.0.8 table 2\n";
    let bare = format!("rule from 10.0.0.1 table 1\nrule from 10.0.0.1 table 2\n{tables}");
    assert_eq!(lines(&bare, "rule:no-op:shadowed"), [1]);
    let numbered =
        format!("rule priority 5 from 10.0.0.1 table 1\nrule priority 6 from 10.0.0.1 table 2\n{tables}");
    assert_eq!(lines(&numbered, "rule:no-op:shadowed"), [2]);
    // A wider rule hides a narrower one behind it, but not in front of it.
    let wide =
        format!("rule priority 6 from 10.0.0.1 table 1\nrule priority 5 from 10.0.0.0/8 table 2\n{tables}");
    assert_eq!(lines(&wide, "rule:no-op:shadowed"), [1]);
    let narrow =
        format!("rule priority 5 from 10.0.0.1 table 1\nrule priority 6 from 10.0.0.0/8 table 2\n{tables}");
    assert_eq!(lines(&narrow, "rule:no-op:shadowed"), NONE);
}

#[test]
fn a_table_without_a_route_for_all_hides_nothing() {
    let text = "rule priority 1 from 10.0.0.1 table 1\nrule priority 2 from 10.0.0.1 table 2\n\
                route 10.9.0.0/16 via 10.0.0.9 table 1\nroute default via 10.0.0.8 table 2\n";
    assert_eq!(lines(text, "rule:no-op:shadowed"), NONE);
    let throwing = "rule priority 1 from 10.0.0.1 table 1\nrule priority 2 from 10.0.0.1 table 2\n\
                    route default throw table 1\nroute default via 10.0.0.8 table 2\n";
    assert_eq!(lines(throwing, "rule:no-op:shadowed"), NONE);
}

#[test]
fn a_rule_for_an_address_that_nobody_has() {
    let id = "rule:no-op:address-nobody-has";
    let own = "address ib1 10.10.0.201/24\nrule priority 1 from 10.10.0.201 table 1\nroute default via 10.10.0.11 table 1\n";
    assert_eq!(lines(own, id), NONE);
    let other = own.replace("from 10.10.0.201", "from 10.10.0.202");
    assert_eq!(lines(&other, id), [2]);
    // On a host that forwards, it may be for the packets of others.
    assert_eq!(lines(&format!("{other}net.ipv4.ip_forward = 1\n"), id), NONE);
    // Where no address is known, a gateway's address is still none of one's own.
    assert_eq!(
        lines("rule priority 1 from 10.10.0.11 table 1\nroute default via 10.10.0.11 table 1\n", id),
        [1]
    );
    assert_eq!(
        lines("rule priority 1 from 10.10.0.201 table 1\nroute default via 10.10.0.11 table 1\n", id),
        NONE
    );
}

#[test]
fn a_rule_for_a_table_without_routes() {
    let id = "rule:no-op:empty-table";
    assert_eq!(lines("rule priority 1 from 10.0.0.1 table 9\n", id), [1]);
    assert_eq!(
        lines("rule priority 1 from 10.0.0.1 table 9\nroute default via 10.0.0.9 table 9\n", id),
        NONE
    );
    assert_eq!(lines("rule priority 1 from 10.0.0.1 table 254\n", id), NONE);
}

#[test]
fn rules_without_priority_are_reported_once_for_a_file() {
    let id = "rule:order:no-priority";
    assert_eq!(lines("rule from 10.0.0.1 table 9\nrule from 10.0.0.2 table 9\n", id), [1]);
    assert_eq!(lines("rule priority 3 from 10.0.0.1 table 9\n", id), NONE);
}

#[test]
fn a_mark_that_nothing_sets() {
    let id = "rule:no-op:mark-never-set";
    assert_eq!(lines("rule priority 1 fwmark 7 table 9\n", id), [1]);
    assert_eq!(lines("rule priority 1 fwmark 7 table 9\nmark 7\n", id), NONE);
    assert_eq!(lines("rule priority 1 fwmark 7 table 9\nmark 8\n", id), [1]);
}

#[test]
fn a_table_without_a_rule() {
    let id = "table:no-op:no-rule";
    let text = "rule priority 1 from 10.0.0.1 table 1\nroute default via 10.0.0.9 table 1\nroute default via 10.0.0.8 table 2\n";
    assert_eq!(lines(text, id), [3]);
    assert_eq!(lines(&text.replace("table 2", "table 254"), id), NONE);
    // No rule at all: perhaps they were not given; on a whole host they do not exist.
    let bare = "route default via 10.0.0.8 table 2\n";
    assert_eq!(lines(bare, id), NONE);
    assert_eq!(lines(bare, "table:unverifiable:no-rules-given"), [1]);
    let whole = Subject { is_whole: true, ..host("h", bare) };
    assert_eq!(lines_of(std::slice::from_ref(&whole), id), [1]);
    assert_eq!(lines_of(&[whole], "table:unverifiable:no-rules-given"), NONE);
}

#[test]
fn a_table_that_two_gateways_share() {
    let id = "table:contradiction:used-twice";
    let text = "route default via 10.0.0.9 table 1\nroute default via 10.0.0.8 table 1\n";
    assert_eq!(lines(text, id), [2]);
    assert_eq!(lines(&text.replace("10.0.0.8 table 1", "10.0.0.8 table 1 metric 9"), id), NONE);
    let same = "route default via 10.0.0.9 table 1\nroute default via 10.0.0.9 table 1\n";
    assert_eq!(lines(same, "table:no-op:listed-twice"), [2]);
    assert_eq!(lines(same, id), NONE);
}

#[test]
fn a_remote_network_as_neighbours() {
    let id = "route:routing:on-link-beats-default";
    let table = "route 10.100.0.0/16 dev ib1 table 1\nroute default via 10.10.0.11 dev ib1 table 1\n";
    // By the address of the interface.
    assert_eq!(lines(&format!("{table}address ib1 10.10.0.201/24\n"), id), [1]);
    // By the other table, where no address is known.
    assert_eq!(lines(&format!("{table}route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1\n"), id), [1]);
    // What belongs there: the network of the interface itself.
    assert_eq!(lines(&format!("{table}address ib1 10.100.0.7/16\n"), id), NONE);
    // By another interface the default route is not meant for it.
    let tunnel = "route 10.8.0.0/24 dev wg0\nroute default via 10.10.0.11 dev ib1\naddress ib1 10.10.0.201/24\naddress wg0 10.9.0.1/24\n";
    assert_eq!(lines(tunnel, id), NONE);
    let zero =
        "route 169.254.0.0/16 dev ib1\nroute default via 10.10.0.11 dev ib1\naddress ib1 10.10.0.201/24\n";
    assert_eq!(lines(zero, id), NONE);
}
