use std::path::Path;

use clearstream_configfile::ConfigError;
use clearstream_schema::fabric::{FabricFile, HostRole};
use proptest::prelude::*;

use super::*;

/// A fabric in which nothing is wrong.
const GOOD: &str = r#"schema = "clearstream.fabric"
version = 1
name = "small"

[[network]]
name = "compute"
prefixes = ["10.100.0.0/16", "fd64::/64"]

[[network]]
name = "storage"
prefixes = ["10.10.0.0/24"]
kind = "infiniband"
infiniband-mode = "connected"
mtu = 65520

[[network]]
name = "backup"
prefixes = ["10.20.0.0/24"]

[[class]]
name = "gateway"
role = "gateway"
hosts = ["gw[1-2]"]

[[class.link]]
network = "compute"
interface = "eth0"
addresses = ["10.100.0.[1-2]"]

[[class.link]]
network = "storage"
interface = "ib0"
addresses = ["10.10.0.[1-2]"]

[[class]]
name = "server"
role = "storage"
hosts = ["s[1-3]"]

[[class.link]]
network = "storage"
interface = "ib1"
addresses = ["10.10.0.[11-13]"]
alias-addresses = ["10.10.0.[21-26]"]

[[class]]
name = "client"
role = "compute"
hosts = ["c[01-10]"]

[[class.link]]
network = "compute"
interface = "eth0"
addresses = ["10.100.1.1+", "fd64::[1-a]"]

[[route]]
between = ["compute", "storage"]
via = ["gateway"]
return-path = "alias"
"#;

fn refused(text: &str) -> (usize, String, String) {
    match parse(Path::new("f.toml"), text) {
        Err(FabricError::Config(ConfigError::Invalid { line: Some(line), key, problem, .. })) => {
            (line, key, problem)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_file_is_read() {
    let fabric = parse(Path::new("f.toml"), GOOD).unwrap();
    assert_eq!(fabric.host_count(), 15);
    let host = fabric.find("s2").unwrap();
    assert_eq!(fabric.address(host, 0, false).unwrap().to_string(), "10.10.0.12");
    let aliases: Vec<String> = fabric.aliases(host, 0, false).iter().map(ToString::to_string).collect();
    assert_eq!(aliases, ["10.10.0.23", "10.10.0.24"]);
    let client = fabric.find("c10").unwrap();
    assert_eq!(fabric.address(client, 0, true).unwrap().to_string(), "fd64::a");
    assert_eq!(fabric.gateways().len(), 2);
}

/// Each mistake is reported with its line, its key and a suggestion.
#[test]
fn mistakes_are_named_with_key_and_line() {
    for (good, bad, key, expected) in [
        ("clearstream.fabric\"", "clearstream.lab\"", "schema", "clearstream.fabric"),
        ("version = 1", "version = 2", "version", "use 1"),
        ("name = \"small\"", "name = \"sm all\"", "name", "letters"),
        (
            "interface = \"ib0\"",
            "interfaces = \"ib0\"",
            "class[0].link[1].interfaces",
            "did you mean `interface`",
        ),
        ("role = \"storage\"", "role = \"storrage\"", "class[1].role", "did you mean `storage`"),
        ("\"10.100.0.0/16\"", "\"10.100.0.1/16\"", "network[0].prefixes[0]", "the network is 10.100.0.0/16"),
        ("\"10.20.0.0/24\"", "\"10.0.0.0/8\"", "network[2].prefixes[0]", "overlaps 10.100.0.0/16"),
        ("mtu = 65520", "mtu = 65535", "network[1].mtu", "at most 65520"),
        ("kind = \"infiniband\"", "kind = \"ethernet\"", "network[1].infiniband-mode", "only InfiniBand"),
        (
            "infiniband-mode = \"connected\"",
            "infiniband-mode = \"datagram\"",
            "network[1].mtu",
            "at most 4092",
        ),
        ("\"fd64::/64\"]", "\"fd64::/64\"]\nmtu = 1000", "network[0].mtu", "at least 1280"),
        (
            "network = \"compute\"",
            "network = \"comptue\"",
            "class[0].link[0].network",
            "did you mean `compute`",
        ),
        ("interface = \"eth0\"", "interface = \"much-too-long-a-name\"", "class[0].link[0].interface", "15"),
        ("hosts = [\"s[1-3]\"]", "hosts = [\"s[1-3\"]", "class[1].hosts[0]", "without its ]"),
        ("hosts = [\"s[1-3]\"]", "hosts = [\"s_[1-3]\"]", "class[1].hosts", "RFC 1123"),
        ("hosts = [\"s[1-3]\"]", "hosts = [\"gw1\", \"s[1-2]\"]", "class[1].hosts", "twice"),
        (
            "hosts = [\"s[1-3]\"]",
            "hosts = [\"s[1-4]\"]",
            "class[1].link[0].addresses",
            "3 IPv4 addresses for 4 hosts",
        ),
        (
            "10.10.0.[11-13]",
            "10.10.1.[11-13]",
            "class[1].link[0].addresses",
            "outside of network \"storage\"",
        ),
        ("10.10.0.[11-13]", "10.10.0.[0-2]", "class[1].link[0].addresses", "network's own"),
        ("10.10.0.[11-13]", "10.10.0.[2-4]", "class[1].link[0].addresses", "an address of gw2"),
        ("10.10.0.[21-26]", "10.10.0.[13-18]", "class[1].link[0].alias-addresses", "an address of s3"),
        ("10.10.0.[21-26]", "10.10.0.[21-25]", "class[1].link[0].alias-addresses", "3 x 2 = 6"),
        (
            "10.10.0.[11-13]\"",
            "10.10.0.[11-13]\", \"fd65::[1-3]\"",
            "class[1].link[0].addresses",
            "no IPv6 prefix",
        ),
        (
            "10.100.1.1+\",",
            "10.100.1.1+\", \"10.100.2.1\",",
            "class[2].link[0].addresses[1]",
            "write it last",
        ),
        ("10.100.1.1+", "10.100.255.250+", "class[2].link[0].addresses", "broadcast"),
        ("via = [\"gateway\"]", "via = [\"gatway\"]", "route[0].via[0]", "did you mean `gateway`"),
        ("via = [\"gateway\"]", "via = [\"server\"]", "route[0].via[0]", "no class of gateways"),
        ("via = [\"gateway\"]", "via = [\"gateway\", \"gateway\"]", "route[0].via[1]", "twice"),
        (
            "between = [\"compute\", \"storage\"]",
            "between = [\"compute\", \"backup\"]",
            "route[0].via[0]",
            "no link on \"backup\"",
        ),
        (
            "between = [\"compute\", \"storage\"]",
            "between = [\"compute\", \"store\"]",
            "route[0].between[1]",
            "no network",
        ),
        (
            "between = [\"compute\", \"storage\"]",
            "between = [\"compute\", \"compute\"]",
            "route[0].between",
            "two networks",
        ),
        (
            "return-path = \"alias\"",
            "return-path = \"connection-mark\"",
            "route[0].return-path",
            "no Ethernet",
        ),
        ("alias-addresses = [\"10.10.0.[21-26]\"]\n", "", "route[0].return-path", "no alias-addresses"),
        ("role = \"storage\"", "role = \"storage\"\nweight = 2", "class[1].weight", "only gateways"),
        ("role = \"gateway\"", "role = \"gateway\"\nweight = 0", "class[0].weight", "1 to 256"),
        ("role = \"compute\"", "role = \"compute\"\nstateful = true", "class[2].stateful", "only gateways"),
        (
            "role = \"compute\"",
            "role = \"compute\"\ntuning = \"fast\"",
            "class[2].tuning",
            "wan, lan, storage or latency",
        ),
        ("role = \"compute\"", "role = \"compute\"\ntuning = \"lan\"", "class[2].tuning", "[path]"),
        ("role = \"compute\"", "role = \"compute\"\nkernel = \"new\"", "class[2].kernel", "uname -r"),
        ("return-path = \"alias\"", "multipath = \"resilient\"\nhash-seed = 0", "route[0].hash-seed", "draw"),
    ] {
        assert!(GOOD.contains(good), "{good}");
        let text = GOOD.replacen(good, bad, 1);
        let (line, found, problem) = refused(&text);
        assert_eq!(found, key, "{bad}: {problem}");
        assert!(problem.contains(expected), "{bad}: {problem}");
        // The line is that of the key, or of what should have it.
        let last = key.rsplit('.').next().unwrap().split('[').next().unwrap();
        let there = text.lines().nth(line - 1).unwrap();
        assert!(there.contains(last) || bad.is_empty(), "{bad}: line {line} is {there}");
    }
}

#[test]
fn numbers_that_meet_the_kernels_are_refused() {
    for (numbers, key, expected) in [
        ("first-table = 254", "numbers.first-table", "253 to 255"),
        ("first-table = 0", "numbers.first-table", "253 to 255"),
        ("first-priority = 32765", "numbers.first-priority", "32766"),
        ("first-mark = 0", "numbers.first-mark", "no mark"),
        ("protocol = 4", "numbers.protocol", "117"),
        ("bucket-count = 1", "numbers.bucket-count", "2 gateways"),
    ] {
        let (_, found, problem) = refused(&format!("{GOOD}\n[numbers]\n{numbers}\n"));
        assert_eq!(found, key);
        assert!(problem.contains(expected), "{numbers}: {problem}");
    }
}

#[test]
fn kernels_without_requested_features_are_named() {
    let old = GOOD.replace("role = \"compute\"", "role = \"compute\"\nkernel = \"4.18.0-553.el8\"");
    let text = old.replace("return-path = \"alias\"", "multipath = \"group\"");
    let (_, key, problem) = refused(&text);
    assert_eq!(key, "route[0].multipath");
    assert!(problem.contains("5.3") && problem.contains("4.18"), "{problem}");
    let text = old.replace("return-path = \"alias\"", "return-path = \"equal-seed\"");
    assert_eq!(refused(&text).1, "route[0].return-path");
}

#[test]
fn unknown_names_are_rejected_with_the_nearest() {
    let fabric = parse(Path::new("f.toml"), GOOD).unwrap();
    let text = fabric.find("c11").unwrap_err().to_string();
    assert!(text.contains("did you mean `c"), "{text}");
    assert!(fabric.find_class("servers").is_err());
    assert!(matches!(load("nowhere"), Err(FabricError::Config(ConfigError::Unknown { .. }))));
    assert!(matches!(load("./nowhere.toml"), Err(FabricError::Config(ConfigError::Read { .. }))));
}

#[test]
fn built_in_fabrics_make_sense() {
    for name in built_in_names() {
        let fabric = load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(fabric.name(), name);
    }
    assert_eq!(load("ten-thousand").unwrap().host_count(), 10_000);
    assert_eq!(load("ten-thousand").unwrap().gateways().len(), 64);
}

/// Table I of the paper on native clients (Cray User Group 2017).
#[test]
fn the_gateways_of_the_paper_have_the_addresses_it_prints() {
    let fabric = load("cumulus-wolf").unwrap();
    for number in 1..=6 {
        let host = fabric.find(&format!("sn{number}")).unwrap();
        assert_eq!(fabric.address(host, 0, false).unwrap().to_string(), format!("10.100.0.9{number}"));
        assert_eq!(fabric.address(host, 1, false).unwrap().to_string(), format!("10.10.0.1{number}"));
    }
}

/// The lab file is written by hand: hosts, interfaces and addresses agree.
#[test]
fn the_fabric_of_the_lab_is_the_lab() {
    let lab = include_str!("../../../../labs/gateways-6.toml");
    let lab: clearstream_schema::lab::LabFile = toml::from_str(lab).unwrap();
    let fabric = load("gateways-6").unwrap();
    let mut there: Vec<(String, String, String)> = Vec::new();
    for end in lab.ends() {
        there
            .extend(end.addresses.iter().map(|text| (end.host.clone(), end.interface.clone(), text.clone())));
    }
    let mut planned = Vec::new();
    for host in fabric.hosts() {
        for (link, described) in fabric.class(host).links.iter().enumerate() {
            let addresses = [false, true].into_iter().filter_map(|ipv6| fabric.address(host, link, ipv6));
            for address in addresses {
                let length = fabric.prefix_of(fabric.link_network(host, link), address).unwrap().length;
                planned.push((
                    fabric.host_name(host),
                    described.interface.clone(),
                    format!("{address}/{length}"),
                ));
            }
        }
    }
    there.sort();
    planned.sort();
    assert_eq!(planned, there);
}

proptest! {
    /// Any line of a good file replaced by anything gives a fabric or an error
    /// that names a line of the file.
    #[test]
    fn no_line_makes_it_panic(line in 0_usize..66, text in "[a-z\\[\\]=\" 0-9.,:+/-]{0,30}") {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        let at = line.min(lines.len() - 1);
        lines[at] = &text;
        let text = lines.join("\n");
        if let Err(error) = parse(Path::new("f.toml"), &text) {
            let FabricError::Config(ConfigError::Invalid { line: Some(line), .. }) = error else {
                panic!("{error}")
            };
            prop_assert!(line >= 1 && line <= lines.len() + 1);
        }
    }

    /// A written fabric reads back unchanged.
    #[test]
    fn a_file_survives_being_written(weight in 1_u16..=256, stateful: bool) {
        let mut file: FabricFile = toml::from_str(GOOD).unwrap();
        for class in file.classes.iter_mut().filter(|class| class.role == HostRole::Gateway) {
            class.weight = weight;
            class.stateful = stateful;
        }
        let text = toml::to_string(&file).unwrap();
        let fabric = parse(Path::new("f.toml"), &text).unwrap();
        prop_assert_eq!(fabric.file(), &file);
    }
}
