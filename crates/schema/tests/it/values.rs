//! Values of a host's routing are parsed from their text without loss.
//! `crates/netlink/tests/it/routing.rs` passes the same texts to `ip`.

use std::{fmt::Display, net::IpAddr, str::FromStr};

use clearstream_schema::{
    plan::{Effect, LinkAttribute, Setting, Step, Value},
    prefix::Prefix,
    routing::{
        GroupMember, Hop, NexthopTarget, Resilient, RouteAction, RuleAction, RuleSelector,
        values::{AddressValue, NexthopValue, RouteValue, RuleValue},
    },
};
use proptest::{collection::vec, option, prelude::*};

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0..=128u8).prop_map(|(address, length)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        Prefix { address, length: length.min(most) }
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9.@_-]{0,14}"
}

fn nexthop() -> impl Strategy<Value = NexthopValue> {
    let gateway = (address(), name()).prop_map(|(via, interface)| NexthopTarget::Gateway { via, interface });
    let member = (any::<u32>(), any::<u16>()).prop_map(|(id, weight)| GroupMember { id, weight });
    let resilient =
        (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(bucket_count, idle, unbalanced)| Resilient {
            bucket_count,
            idle_seconds: idle,
            unbalanced_seconds: unbalanced,
        });
    let group = (vec(member, 1..5), option::of(resilient))
        .prop_map(|(members, resilient)| NexthopTarget::Group { members, resilient });
    let target = prop_oneof![gateway, group, Just(NexthopTarget::Blackhole)];
    (target, any::<u8>()).prop_map(|(target, protocol)| NexthopValue { target, protocol })
}

fn gateways() -> impl Strategy<Value = RouteAction> {
    let hop = (address(), option::of(name()), any::<u16>());
    vec(hop, 1..5).prop_map(|hops| {
        // The weight of a gateway that has no other beside it says nothing.
        let is_one = hops.len() == 1;
        let hop = |(via, interface, weight)| Hop {
            via,
            interface,
            weight: if is_one { 1 } else { weight },
            place: None,
        };
        RouteAction::Gateways(hops.into_iter().map(hop).collect())
    })
}

fn route() -> impl Strategy<Value = RouteValue> {
    let action = prop_oneof![
        name().prop_map(|interface| RouteAction::Link { interface }),
        any::<u32>().prop_map(RouteAction::Nexthop),
        gateways(),
        Just(RouteAction::Blackhole),
        Just(RouteAction::Unreachable),
        Just(RouteAction::Prohibit),
        Just(RouteAction::Throw),
    ];
    (action, option::of(address()), option::of(any::<u32>()), any::<u8>(), any::<bool>()).prop_map(
        |(action, source, mtu, protocol, is_ipv4)| {
            let by_ipv6 =
                matches!(&action, RouteAction::Gateways(hops) if hops.iter().any(|hop| hop.via.is_ipv6()));
            RouteValue { action, source, mtu, protocol, is_mixed: is_ipv4 && by_ipv6 }
        },
    )
}

fn rule() -> impl Strategy<Value = RuleValue> {
    let action = prop_oneof![
        any::<u32>().prop_map(RuleAction::Table),
        any::<u32>().prop_map(|priority| RuleAction::Other(format!("goto {priority}"))),
        prop_oneof![Just("blackhole"), Just("unreachable"), Just("prohibit"), Just("nop")]
            .prop_map(|name| RuleAction::Other(name.to_owned())),
    ];
    (action, any::<u8>()).prop_map(|(action, protocol)| RuleValue { action, protocol })
}

fn selector() -> impl Strategy<Value = RuleSelector> {
    let other = prop_oneof![
        Just(Vec::new()),
        Just(vec!["ipproto".to_owned(), "tcp".to_owned(), "dport".to_owned(), "1191".to_owned()])
    ];
    let packets = (option::of(prefix()), option::of(prefix()), option::of(any::<(u32, u32)>()));
    (packets, option::of(name()), option::of(name()), other, any::<bool>()).prop_map(
        |((from, to, mark), input, output, other, inverted)| RuleSelector {
            from,
            to,
            mark,
            input,
            output,
            other,
            inverted,
        },
    )
}

fn reparsed<T: Display + FromStr>(value: &T) -> Result<T, T::Err> {
    value.to_string().parse()
}

proptest! {
    #[test]
    fn nexthops_come_back(value in nexthop()) {
        prop_assert_eq!(reparsed(&value).unwrap(), value.clone());
        prop_assert_eq!(value.clone().at(7).value(), value);
    }

    #[test]
    fn routes_come_back(value in route()) {
        prop_assert_eq!(reparsed(&value).unwrap(), value.clone());
        let destination: Prefix = if value.is_mixed { "10.0.0.0/8" } else { "fd00::/8" }.parse().unwrap();
        prop_assert_eq!(value.clone().at(254, destination, 0).value(), value);
    }

    #[test]
    fn rules_and_their_selectors_come_back(value in rule(), selector in selector()) {
        prop_assert_eq!(reparsed(&value).unwrap(), value.clone());
        prop_assert_eq!(reparsed(&selector).unwrap(), selector.clone());
        prop_assert_eq!(value.clone().at(false, 100, &selector).value(), value);
    }

    #[test]
    fn addresses_come_back(protocol in any::<u8>()) {
        let value = AddressValue { protocol };
        prop_assert_eq!(reparsed(&value).unwrap(), value);
    }

    /// What is no value of its setting stays the text that it is.
    #[test]
    fn any_text_is_read_or_stays(text in "\\PC{0,40}") {
        for setting in settings() {
            let value = Value::of(&setting, &text);
            prop_assert!(!matches!(value, Value::Text(_)) || value.to_string() == text);
            prop_assert_eq!(Value::of(&setting, &value.to_string()), value);
        }
    }

    /// A document has the text of a value, which a step of it is read from.
    #[test]
    fn steps_come_back(route in route(), other in "\\PC{0,40}") {
        let destination: Prefix = if route.is_mixed { "10.0.0.0/8" } else { "fd00::/8" }.parse().unwrap();
        let setting = Setting::Route { table: 254, destination, metric: 0 };
        let (text, current) = (route.to_string(), Value::of(&setting, &other));
        let step = Step {
            setting,
            current: Some(current),
            desired: Some(Value::Route(route)),
            reason: String::new(),
            effect: Effect::Now,
        };
        let written = serde_json::to_value(&step).unwrap();
        prop_assert_eq!(written["desired"].as_str(), Some(text.as_str()));
        prop_assert_eq!(serde_json::from_value::<Step>(written).unwrap(), step);
    }
}

fn settings() -> [Setting; 7] {
    let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
    [
        Setting::Nexthop { id: 1 },
        Setting::Route { table: 254, destination: prefix, metric: 0 },
        Setting::Rule { ipv6: false, priority: 1, selector: Box::default() },
        Setting::Address { interface: "eth0".to_owned(), prefix },
        Setting::NetfilterTable { name: "clearstream".to_owned() },
        Setting::Sysctl("net.ipv4.tcp_rmem".to_owned()),
        Setting::Link { interface: "eth0".to_owned(), attribute: LinkAttribute::Mtu },
    ]
}

/// As iproute2 6 prints them, and unsupported tokens.
#[test]
fn arguments_of_ip_are_parsed() {
    let selector: RuleSelector =
        "not from 10.0.0.0/8 to 192.0.2.1 fwmark 0x1b59/0xff iif ib0".parse().unwrap();
    assert_eq!(selector.from, Some("10.0.0.0/8".parse().unwrap()));
    assert_eq!(selector.to, Some("192.0.2.1/32".parse().unwrap()));
    assert_eq!((selector.mark, selector.inverted), (Some((7001, 255)), true));
    assert_eq!("from all".parse(), Ok(RuleSelector::default()));
    for (text, part) in [
        ("from everywhere", "no address and no network"),
        ("fwmark many", "no mark"),
        ("from", "ends too early"),
    ] {
        let error = text.parse::<RuleSelector>().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(text), "{error}");
    }
    let error = "via 10.0.0.1 encap seg6".parse::<RouteValue>().unwrap_err().to_string();
    assert!(error.contains("\"encap\" is not supported"), "{error}");
    assert!("117".parse::<AddressValue>().unwrap_err().to_string().contains("proto NUMBER"));
}
