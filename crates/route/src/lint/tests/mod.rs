//! Each rule, on a host with the mistake and on one without it.

mod broken;
mod decides;
mod gateways;
mod hosts;
mod paths;
mod reasons;
mod several;
mod tables;
mod working;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        ConnectionMark, Hop, HostRouting, Located, MAIN_TABLE, Place, RouteAction, RouteEntry,
        RoutingInterface, RuleAction, RuleEntry, RuleSelector,
    },
};

use super::*;

/// A host from lines: `address IF PREFIX`, `mtu IF BYTES`, `route DEST via
/// GATEWAY[*WEIGHT],... [dev IF] [table N] [metric N] [mtu N] [src A]`, `route DEST
/// dev IF`, `route DEST blackhole`, `rule [priority N] [from P] [to P] [fwmark N]
/// table N`, `mark N`, `KEY = VALUE`. The line number is the place.
fn host(name: &str, text: &str) -> Subject {
    let mut routing = HostRouting { host: name.to_owned(), ..HostRouting::default() };
    for (line, text) in (1..).zip(text.lines()) {
        let place = Some(Place { file: name.to_owned(), line: Some(line), ..Place::default() });
        let arguments: Vec<&str> = text.split_whitespace().collect();
        match &arguments[..] {
            [] => {}
            ["address", interface, prefix] => {
                let value = prefix.parse().unwrap();
                of(&mut routing, interface).addresses.push(Located { value, place });
            }
            ["mtu", interface, bytes] => {
                of(&mut routing, interface).mtu = Some(Located { value: bytes.parse().unwrap(), place });
            }
            ["mode", interface, mode] => {
                let value = match *mode {
                    "connected" => clearstream_schema::fabric::InfinibandMode::Connected,
                    _ => clearstream_schema::fabric::InfinibandMode::Datagram,
                };
                of(&mut routing, interface).infiniband_mode = Some(Located { value, place });
            }
            ["mark", mark] => routing.connection_marks.push(ConnectionMark {
                interface: "ib1".to_owned(),
                link_address: "02:00:00:00:00:01".to_owned(),
                gateway: "gw1".to_owned(),
                mark: mark.parse().unwrap(),
            }),
            ["route", rest @ ..] => routing.routes.push(route(rest, place)),
            ["rule", rest @ ..] => routing.rules.push(rule(rest, place)),
            [key, "=", value] => {
                routing.sysctls.insert((*key).to_owned(), Located { value: (*value).to_owned(), place });
            }
            _ => panic!("{text}"),
        }
    }
    Subject { name: name.to_owned(), routing, ..Subject::default() }
}

fn of<'a>(routing: &'a mut HostRouting, name: &str) -> &'a mut RoutingInterface {
    if !routing.interfaces.iter().any(|it| it.name == name) {
        routing.interfaces.push(RoutingInterface { name: name.to_owned(), ..RoutingInterface::default() });
    }
    routing.interfaces.iter_mut().find(|it| it.name == name).unwrap()
}

fn prefix(text: &str) -> Prefix {
    match text {
        "default" => "0.0.0.0/0".parse().unwrap(),
        text => text.parse().unwrap_or_else(|_| Prefix::host(text.parse().unwrap())),
    }
}

fn argument_of<'t>(arguments: &[&'t str], name: &str) -> Option<&'t str> {
    let at = arguments.iter().position(|argument| *argument == name)?;
    Some(arguments[at + 1])
}

fn route(arguments: &[&str], place: Option<Place>) -> RouteEntry {
    let interface = argument_of(arguments, "dev").map(str::to_owned);
    let action = match argument_of(arguments, "via") {
        Some(hops) => RouteAction::Gateways(
            hops.split(',')
                .map(|hop| {
                    let (via, weight) = hop.split_once('*').unwrap_or((hop, "1"));
                    Hop {
                        via: via.parse().unwrap(),
                        interface: interface.clone(),
                        weight: weight.parse().unwrap(),
                        place: None,
                    }
                })
                .collect(),
        ),
        None if arguments.contains(&"throw") => RouteAction::Throw,
        None if arguments.contains(&"blackhole") => RouteAction::Blackhole,
        None if arguments.contains(&"unreachable") => RouteAction::Unreachable,
        None if arguments.contains(&"prohibit") => RouteAction::Prohibit,
        None => RouteAction::Link { interface: interface.unwrap() },
    };
    RouteEntry {
        destination: prefix(arguments[0]),
        table: argument_of(arguments, "table").map_or(MAIN_TABLE, |it| it.parse().unwrap()),
        metric: argument_of(arguments, "metric").map_or(0, |it| it.parse().unwrap()),
        action,
        source: argument_of(arguments, "src").map(|it| it.parse().unwrap()),
        mtu: argument_of(arguments, "mtu").map(|it| it.parse().unwrap()),
        protocol: 0,
        place,
    }
}

fn rule(arguments: &[&str], place: Option<Place>) -> RuleEntry {
    let from = argument_of(arguments, "from").map(prefix);
    RuleEntry {
        ipv6: from.is_some_and(|from| from.address.is_ipv6()),
        priority: argument_of(arguments, "priority").map(|it| it.parse().unwrap()),
        selector: RuleSelector {
            from,
            to: argument_of(arguments, "to").map(prefix),
            mark: argument_of(arguments, "fwmark").map(|it| (it.parse().unwrap(), u32::MAX)),
            ..RuleSelector::default()
        },
        action: match argument_of(arguments, "table") {
            Some(table) => RuleAction::Table(table.parse().unwrap()),
            None => RuleAction::Other((*arguments.last().unwrap()).to_owned()),
        },
        protocol: 0,
        place,
    }
}

const NONE: [u32; 0] = [];

fn report_of(hosts: &[Subject]) -> LintReport {
    lint(hosts, None, &MuteList::default())
}

/// `id@line` of every finding but those named in `but`.
fn ids(report: &LintReport) -> Vec<String> {
    let line = |finding: &Finding| finding.place.as_ref().map_or(0, |place| place.line);
    report.findings.iter().map(|finding| format!("{}@{}", finding.id, line(finding))).collect()
}

/// Lines with a finding of this id, of one host.
fn lines(text: &str, id: &str) -> Vec<u32> {
    lines_of(&[host("h", text)], id)
}

fn lines_of(hosts: &[Subject], id: &str) -> Vec<u32> {
    let report = report_of(hosts);
    let found = report.findings.iter().filter(|finding| finding.id == id);
    found.map(|finding| finding.place.as_ref().map_or(0, |place| place.line)).collect()
}

/// A server as it ought to be: an address for each gateway.
const SERVER: &str = "\
address ib1 10.10.0.201/24
address ib1 10.10.0.211/24
address ib1 10.10.0.212/24
rule priority 101 from 10.10.0.211 table 1
rule priority 102 from 10.10.0.212 table 2
route default via 10.10.0.11 dev ib1 table 1
route default via 10.10.0.12 dev ib1 table 2
route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1
net.ipv4.fib_multipath_hash_policy = 1
";

/// A client of it.
const CLIENT: &str = "\
address ipogif0 10.100.0.1/16
route 10.10.0.211 via 10.100.0.91 dev ipogif0
route 10.10.0.212 via 10.100.0.92 dev ipogif0
route 10.10.0.0/24 via 10.100.0.91,10.100.0.92 dev ipogif0
net.ipv4.fib_multipath_hash_policy = 1
";

fn gateway(number: u8, forwarding: u8) -> Subject {
    let text = format!(
        "address ipogif0 10.100.0.9{number}/16\naddress ib0 10.10.0.1{number}/24\n\
         net.ipv4.ip_forward = {forwarding}\n"
    );
    host(&format!("sn{number}"), &text)
}

#[test]
fn what_is_right_has_no_finding() {
    let all = [host("nsd1", SERVER), host("c1", CLIENT), gateway(1, 1), gateway(2, 1)];
    for alone in &all {
        assert_eq!(ids(&report_of(std::slice::from_ref(alone))), Vec::<String>::new(), "{}", alone.name);
    }
    assert_eq!(ids(&report_of(&all)), Vec::<String>::new());
}

#[test]
fn findings_are_muted_by_id_or_beginning_and_counted() {
    let text = "address ib1 10.10.0.201/24\nrule from 10.10.0.9 table 7\n";
    let all = report_of(&[host("h", text)]).findings.len();
    let mute: MuteList = "rule:*".parse().unwrap();
    let report = lint(&[host("h", text)], None, &mute);
    assert!(all > 1 && report.findings.is_empty() && report.muted_count == all as u64);
    for finding in &report_of(&[host("h", text)]).findings {
        assert!(finding.id.parse::<MuteList>().is_ok(), "{}", finding.id);
        assert!(finding.advice.is_some() && !finding.source.is_empty(), "{finding:?}");
    }
}
