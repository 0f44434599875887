//! Masquerade and SNAT through netlink, as set by nft(8) in a separate network namespace.

use clearstream_netlink::source_translations;
use clearstream_schema::routing::SourceTranslation;
use clearstream_testkit::namespace::Host;

/// Source NAT reported by the kernel for a ruleset.
fn of(host: &Host, ruleset: &str) -> Vec<SourceTranslation> {
    let file = std::env::temp_dir().join(format!("nat-{}.nft", std::process::id()));
    std::fs::write(&file, format!("flush ruleset\n{ruleset}")).unwrap();
    host.tool(&format!("nft -f {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    host.run(source_translations).unwrap()
}

fn chain(family: &str, rules: &str) -> String {
    format!(
        "table {family} t {{\n chain post {{\n type nat hook postrouting priority srcnat;\n {rules}\n }}\n}}\n"
    )
}

#[test]
fn root_rules_of_nft_are_read() {
    let host = Host::new();
    host.tool("ip link add up0 type veth peer name up1");
    assert_eq!(of(&host, ""), []);
    let any = SourceTranslation::default;
    let (v4, v6) = (|| Some(false), || Some(true));
    let up0 = || Some("up0".to_owned());
    let from = |text: &str| Some(text.parse().unwrap());
    let cases = [
        ("ip", "masquerade", SourceTranslation { ipv6: v4(), ..any() }),
        (
            "ip",
            "oifname \"up0\" counter masquerade",
            SourceTranslation { ipv6: v4(), output: up0(), ..any() },
        ),
        ("ip6", "oif up0 masquerade", SourceTranslation { ipv6: v6(), output: up0(), ..any() }),
        ("inet", "masquerade", any()),
        (
            "ip",
            "ip saddr 10.1.0.0/16 masquerade",
            SourceTranslation { ipv6: v4(), from: from("10.1.0.0/16"), ..any() },
        ),
        (
            "inet",
            "ip saddr 10.1.2.0/23 masquerade",
            SourceTranslation { ipv6: v4(), from: from("10.1.2.0/23"), ..any() },
        ),
        (
            "inet",
            "ip6 saddr fd01::/64 masquerade",
            SourceTranslation { ipv6: v6(), from: from("fd01::/64"), ..any() },
        ),
        (
            "ip",
            "ip saddr 10.1.0.7 snat to 192.0.2.1",
            SourceTranslation {
                ipv6: v4(),
                from: from("10.1.0.7/32"),
                to: Some("192.0.2.1".parse().unwrap()),
                ..any()
            },
        ),
        // As set by container engines: partly unsupported, and bound to a source.
        (
            "ip",
            "ip saddr 172.17.0.0/16 oifname != \"up0\" masquerade",
            SourceTranslation { ipv6: v4(), from: from("172.17.0.0/16"), is_conditional: true, ..any() },
        ),
        (
            "ip",
            "ip daddr 10.2.0.0/16 masquerade",
            SourceTranslation { ipv6: v4(), is_conditional: true, ..any() },
        ),
        (
            "ip",
            "ip daddr 10.2.0.0/16 return\n masquerade",
            SourceTranslation { ipv6: v4(), is_conditional: true, ..any() },
        ),
    ];
    for (family, rules, expected) in cases {
        assert_eq!(of(&host, &chain(family, rules)), [expected], "{family} {rules}");
    }
    // Destination NAT is not included.
    let destination =
        "table ip t {\n chain pre {\n type nat hook prerouting priority dstnat;\n dnat to 10.0.0.1\n }\n}\n";
    assert_eq!(of(&host, destination), []);
    // A chain reached by a jump, as of kube-proxy.
    let jump = "table ip t {\n chain more {\n masquerade\n }\n chain post {\n type nat hook postrouting priority srcnat;\n jump more\n }\n}\n";
    assert_eq!(of(&host, jump), [SourceTranslation { ipv6: v4(), is_conditional: true, ..any() }]);
}
