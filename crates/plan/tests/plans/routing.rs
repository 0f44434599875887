//! Nexthop objects, routes, rules, addresses and marks on the kernel: `ip` and
//! `nft` show whether the host routes as before or as after, never between.

use clearstream_netconfig::settings::{Format, render};
use clearstream_plan::{added, apply, history, read, recover, revert, verify};
use clearstream_schema::plan::{JournalState, Plan, Setting, Step};
use serde_json::Value;

use crate::{
    common::{run_child, step},
    kernel::Lab,
};

const MARKS: &str = "chain arrive { type filter hook prerouting priority mangle; policy accept; \
     iifname \"left\" ct state new ether saddr 02:00:00:00:00:01 ct mark set 0x00001b59 comment \"gw1\"; }; \
     chain leave { type route hook output priority mangle; policy accept; \
     ct mark != 0x00000000 meta mark set ct mark; };";

/// A host with a default route and rules of others, and something of ours.
fn lab() -> Lab {
    let lab = Lab::new();
    for line in [
        "ip address add 10.10.0.200/24 dev left",
        "ip address add fd10::200/64 dev left nodad",
        "ip route add default via 10.10.0.254 proto dhcp metric 100 mtu 1400",
        "ip -6 route add default via fd10::fe proto static",
        "ip route add 192.0.2.0/24 via 10.10.0.253 table 50",
        "ip rule add pref 100 from 10.99.0.0/16 lookup 50",
        "ip -6 rule add pref 100 from fd99::/64 lookup 50",
        "ip nexthop add id 5 via 10.10.0.253 dev left proto static",
        "ip route add 198.51.100.0/24 nhid 5",
        "ip nexthop add id 7009 via 10.10.0.9 dev left proto 117",
        "ip route add 10.200.0.0/16 via 10.10.0.9 proto 117",
        "ip rule add pref 7009 from 10.10.0.209 lookup 7009 protocol 117",
        "nft add table inet others",
    ] {
        lab.tool(line);
    }
    lab
}

fn route(table: u32, destination: &str, metric: u32) -> Setting {
    Setting::Route { table, destination: destination.parse().unwrap(), metric }
}

fn rule(ipv6: bool, priority: u32, selector: &str) -> Setting {
    Setting::Rule { ipv6, priority, selector: serde_json::from_str(selector).unwrap() }
}

fn without(setting: Setting) -> Step {
    Step { desired: None, ..step(setting, "") }
}

fn plan(lab: &Lab) -> Plan {
    let address =
        |prefix: &str| Setting::Address { interface: "left".to_owned(), prefix: prefix.parse().unwrap() };
    lab.plan(vec![
        step(address("10.10.0.211/32"), "proto 117"),
        step(address("fd10::211/128"), "proto 117"),
        step(Setting::Nexthop { id: 7001 }, "via 10.10.0.1 dev left proto 117"),
        step(Setting::Nexthop { id: 7002 }, "via 10.10.0.2 dev left proto 117"),
        step(
            Setting::Nexthop { id: 7013 },
            "group 7001,2/7002 type resilient buckets 12 idle_timer 60 unbalanced_timer 0 proto 117",
        ),
        step(Setting::NetfilterTable { name: "clearstream_route".to_owned() }, MARKS),
        step(route(7001, "10.100.0.0/16", 0), "via 10.10.0.1 dev left proto 117"),
        step(route(7001, "fd64::/64", 1024), "via fd10::1 dev left proto 117"),
        step(route(254, "10.100.0.0/16", 0), "nhid 7013 proto 117 src 10.10.0.200 mtu 1300"),
        // Is another one before.
        step(
            route(254, "10.200.0.0/16", 0),
            "proto 117 nexthop via 10.10.0.1 dev left weight 2 nexthop via 10.10.0.2 dev left weight 1",
        ),
        step(
            route(254, "fd64::/64", 1024),
            "proto 117 nexthop via fd10::1 dev left weight 1 nexthop via fd10::2 dev left weight 1",
        ),
        step(rule(false, 7001, r#"{"from":"10.10.0.211/32","inverted":false}"#), "lookup 7001 proto 117"),
        step(rule(true, 7001, r#"{"mark":[7001,4294967295],"inverted":false}"#), "lookup 7001 proto 117"),
        without(rule(false, 7009, r#"{"from":"10.10.0.209/32","inverted":false}"#)),
        without(Setting::Nexthop { id: 7009 }),
    ])
}

/// Everything that the plan of these tests touches, and what stands beside it.
fn shown(lab: &Lab) -> Vec<String> {
    let lists = [
        "-4 route show table all",
        "-6 route show table all",
        "-4 rule show",
        "-6 rule show",
        "nexthop show",
        "address show left",
    ];
    let script = lab.folder.path().join("show.sh");
    if !script.exists() {
        let lines = lists.map(|list| format!("ip -j {list}; echo\n"));
        std::fs::write(&script, lines.concat()).unwrap();
    }
    let mut all = Vec::new();
    let texts = lab.tool(&format!("sh {}", script.display()));
    for (list, text) in lists.iter().zip(texts.lines().filter(|line| !line.is_empty())) {
        let mut found: Value = serde_json::from_str(text).unwrap();
        found.sort_all_objects();
        // Link-local ones come when the kernel has tried out the address.
        let mut texts: Vec<String> = found
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|entry| match entry["addr_info"].as_array() {
                Some(addresses) => addresses.clone(),
                None => vec![entry.clone()],
            })
            .map(|entry| entry.to_string())
            .filter(|text| !text.contains("fe80") && !text.contains("ff00"))
            .collect();
        texts.sort();
        all.push(format!("{list}: {}", texts.join("\n")));
    }
    all.push(lab.tool("nft list ruleset"));
    all
}

#[test]
fn root_routes_are_what_ip_shows_and_come_back() {
    let lab = lab();
    let (plan, before) = (plan(&lab), shown(&lab));
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    let after = shown(&lab).join("\n");
    for part in [
        r#""dst":"10.100.0.0/16","#,
        r#""table":"7001""#,
        r#""nhid":7013"#,
        r#""type":"resilient""#,
        r#""gateway":"fd10::2""#,
        r#""protocol":"117","src":"10.10.0.211","table":"7001""#,
        r#""fwmark":"0x1b59""#,
        r#""local":"fd10::211""#,
        "ether saddr 02:00:00:00:00:01",
    ] {
        assert!(after.contains(part), "{part} is not in\n{after}");
    }
    assert!(!after.contains("7009"), "{after}");
    let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
    let bad: Vec<_> = verification.checks.iter().filter(|check| !check.holds).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(lab.inside(|options| apply(&plan, &options)).unwrap().journal, None);
    // The kernel's own choice: the table of the rule, the group without it.
    assert!(lab.tool("ip route get 10.100.0.7 from 10.10.0.211").contains("via 10.10.0.1"));
    assert!(lab.tool("ip route get 10.100.0.7").contains("via 10.10.0."));
    lab.inside(|options| revert(&journal, false, &options)).unwrap();
    assert_eq!(shown(&lab), before);
}

/// What a plan in effect has added itself, for a watch that puts it back: nothing that was there before.
#[test]
fn root_added_addresses_are_those_of_plans_in_effect() {
    let lab = lab();
    let address =
        |prefix: &str| Setting::Address { interface: "left".to_owned(), prefix: prefix.parse().unwrap() };
    let added_now = || {
        let is_address = |setting: &Setting| matches!(setting, Setting::Address { .. });
        let found = lab.inside(|options| added(is_address, &options)).unwrap();
        let mut settings: Vec<Setting> = found.into_iter().map(|(setting, _)| setting).collect();
        settings.sort();
        settings.iter().map(Setting::to_string).collect::<Vec<_>>()
    };
    let make = |prefixes: &[&str]| {
        let plan = lab.plan(prefixes.iter().map(|prefix| step(address(prefix), "proto 117")).collect());
        lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap()
    };
    let text = |prefix: &str| address(prefix).to_string();
    assert!(added_now().is_empty());
    let first = make(&["10.10.0.211/32"]);
    assert_eq!(added_now(), [text("10.10.0.211/32")]);
    let second = make(&["10.10.0.211/32", "10.10.0.212/32"]);
    assert_eq!(added_now(), [text("10.10.0.211/32"), text("10.10.0.212/32")]);
    lab.inside(|options| revert(&second, false, &options)).unwrap();
    assert_eq!(added_now(), [text("10.10.0.211/32")]);
    lab.inside(|options| revert(&first, false, &options)).unwrap();
    assert!(added_now().is_empty());
}

#[test]
fn root_killed_at_every_moment_routes_are_before_or_after() {
    let lab = lab();
    let (mut plan, before) = (plan(&lab), shown(&lab));
    // One of each kind and operation: added, replaced, removed.
    let of_both = ["fd10::211/128", "nexthop 7009", "fd64::/64 table 7001", "rule -6 7001"];
    plan.steps.retain(|step| !of_both.iter().any(|part| step.setting.to_string().contains(part)));
    let mut moments = 0;
    let after = loop {
        let lives = run_child("apply", None, &lab.journals(), &plan, moments, |command| lab.enter(command));
        lab.inside(|options| recover(&options)).unwrap();
        let now = shown(&lab);
        let state = lab.inside(|options| history(&options)).unwrap().last().map(|entry| entry.state);
        if state == Some(JournalState::Applied) {
            // The last moment comes when everything is done.
            assert!(lives || moments == 2 + 3 * plan.steps.len(), "moment {moments}");
            break now;
        }
        assert!(!lives && now == before, "moment {moments}: {now:#?}\n{before:#?}");
        moments += 1;
    };
    assert_ne!(after, before);
    for moment in 0.. {
        let newest = lab.inside(|options| history(&options)).unwrap().pop().unwrap();
        assert_eq!(newest.state, JournalState::Applied);
        let journal = newest.journal;
        let lives = run_child(&journal, None, &lab.journals(), &plan, moment, |command| lab.enter(command));
        lab.inside(|options| recover(&options)).unwrap();
        assert_eq!(shown(&lab), before, "moment {moment} of revert");
        if lives {
            break;
        }
        lab.inside(|options| apply(&plan, &options)).unwrap();
        assert_eq!(shown(&lab), after);
    }
}

/// A revert neither removes nor overwrites what others made.
#[test]
fn root_others_things_stay() {
    let lab = lab();
    let plan = plan(&lab);
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    // A route of others uses a nexthop of ours: the kernel would remove that route
    // with it.
    lab.tool("ip route add 203.0.113.0/24 nhid 7001");
    let error = lab.inside(|options| revert(&journal, false, &options)).unwrap_err().to_string();
    assert!(error.contains("203.0.113.0/24") && error.contains("still uses it"), "{error}");
    assert!(lab.tool("ip route show 203.0.113.0/24").contains("nhid 7001"));
    lab.tool("ip route del 203.0.113.0/24");
    lab.inside(|options| recover(&options)).unwrap();
    let newest = lab.inside(|options| history(&options)).unwrap().pop().unwrap();
    assert_eq!(newest.state, JournalState::Reverted);
    // Others changed a route of ours.
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    lab.tool("ip route replace 10.100.0.0/16 via 10.10.0.77");
    let error = lab.inside(|options| revert(&journal, false, &options)).unwrap_err().to_string();
    assert!(error.contains("route 10.100.0.0/16 table 254") && error.contains("via 10.10.0.77"), "{error}");
    assert!(error.contains("\"absent\" (before)"), "{error}");
}

#[test]
fn root_what_cannot_be_written_back_is_refused_before_anything_changes() {
    let lab = lab();
    lab.tool("ip route add 10.100.0.0/16 via 10.10.0.77 congctl reno");
    let (plan, before) = (plan(&lab), shown(&lab));
    let error = lab.inside(|options| apply(&plan, &options)).unwrap_err().to_string();
    assert!(error.starts_with("nothing was changed") && error.contains("congctl"), "{error}");
    assert_eq!(shown(&lab), before);
    let bad = lab.plan(vec![step(
        Setting::NetfilterTable { name: "clearstream_t".to_owned() },
        "chain } table inet x {",
    )]);
    let error = lab.inside(|options| apply(&bad, &options)).unwrap_err().to_string();
    assert!(error.contains("closes more braces"), "{error}");
    let there = [Setting::Nexthop { id: 5 }, route(50, "192.0.2.0/24", 0), route(50, "192.0.3.0/24", 0)];
    let values = lab.inside(|options| read(&there, &options)).unwrap();
    assert_eq!(values[&there[0]].to_string(), "via 10.10.0.253 dev left proto 4");
    assert_eq!(values[&there[1]].to_string(), "via 10.10.0.253 dev left proto 3");
    assert!(!values.contains_key(&there[2]));
}

#[test]
fn root_a_script_of_routes_does_what_apply_does() {
    let (by_script, applied) = (lab(), lab());
    let shell: Format = "shell".parse().unwrap();
    let rendered = render(&plan(&by_script), shell);
    let left_out: Vec<String> = rendered.left_out.iter().map(|left| left.setting.to_string()).collect();
    assert_eq!(left_out, ["nft table inet clearstream_route", "rule 7009 from 10.10.0.209", "nexthop 7009"]);
    let path = by_script.folder.path().join("routes.sh");
    std::fs::write(&path, &rendered.files[0].text).unwrap();
    // Twice: it may be repeated.
    by_script.tool(&format!("sh {}", path.display()));
    by_script.tool(&format!("sh {}", path.display()));
    let mut rest = plan(&applied);
    rest.steps.retain(|step| !left_out.contains(&step.setting.to_string()));
    applied.inside(|options| apply(&rest, &options)).unwrap();
    assert_eq!(shown(&by_script), shown(&applied));
    for format in Format::all().filter(|format| !["shell", "ansible"].contains(&format.name())) {
        let rendered = render(&rest, format);
        assert!(rendered.files.is_empty(), "{}", format.name());
        assert!(
            rendered.left_out.iter().all(|left| left.reason.contains("route render")),
            "{:?}",
            rendered.left_out
        );
    }
}
