use super::*;

const GOOD: &str = r#"schema = "clearstream.lab"
version = 1
name = "three"
title = "Two hosts and a router"

[[host]]
name = "alpha"
[[host.route]]
to = "10.2.0.0/24"
via = "10.1.0.254"

[[host]]
name = "gate"
router = true

[[host]]
name = "beta"
[host.sysctls]
"net.ipv4.tcp_congestion_control" = "cubic"

[[link]]
delay = "8.5ms"
jitter = "0.2ms"
rate = "19Gb/s"
queue = "20ms"
ends = [
  { host = "alpha", interface = "eth0", addresses = ["10.1.0.1/24", "fd01::1/64"] },
  { host = "gate", interface = "eth0", addresses = ["10.1.0.254/24"] },
]

[[link]]
ends = [
  { host = "gate", interface = "eth1", addresses = ["10.2.0.254/24"] },
  { host = "beta", interface = "eth0", addresses = ["10.2.0.2/24"] },
]
"#;

fn message(text: &str) -> String {
    parse(Path::new("my.toml"), text).expect_err("a fault").to_string()
}

#[test]
fn built_in_labs_are_valid_and_have_their_names() {
    for name in built_in_names() {
        assert_eq!(load(name).unwrap().name, name);
    }
}

#[test]
fn valid_file_is_read() {
    let file = parse(Path::new("my.toml"), GOOD).unwrap();
    assert_eq!(file.links[0].delay.0, 8_500_000);
    assert!(file.hosts[1].router);
    assert_eq!(file.links[1].effective_backend(), clearstream_schema::lab::LinkBackend::Veth);
}

/// Changes of the valid file, and file, line, key and hint of the error.
#[test]
fn errors_have_file_line_key_and_a_correction() {
    let table = [
        ("delay = \"8.5ms\"", "dely = \"8.5ms\"", "my.toml:22: link[0].dely", "did you mean `delay`?"),
        ("delay = \"8.5ms\"", "delay = \"8.5 furlongs\"", "my.toml:22: link[0].delay", "17ms"),
        ("jitter = \"0.2ms\"", "jitter = \"9ms\"", "my.toml:23: link[0].jitter", "more than the delay"),
        ("rate = \"19Gb/s\"", "rate = 0", "my.toml:24: link[0].rate", "omit it"),
        ("rate = \"19Gb/s\"\n", "", "my.toml:24: link[0].queue", "without a rate"),
        ("queue = \"20ms\"", "loss-ratio = 1.5", "my.toml:25: link[0].loss-ratio", "0.01"),
        ("queue = \"20ms\"", "mtu = 70000", "my.toml:25: link[0].mtu", "65521"),
        ("queue = \"20ms\"", "mtu = 1000", "my.toml:27: link[0].ends[0].addresses[1]", "1280"),
        ("queue = \"20ms\"", "backend = \"veth\"", "my.toml:25: link[0].backend", "delay-line"),
        ("queue = \"20ms\"", "backend = \"magic\"", "my.toml:25: link[0].backend", "netem"),
        (
            "{ host = \"alpha\", interface = \"eth0\"",
            "{ host = \"alhpa\", interface = \"eth0\"",
            "my.toml:27: link[0].ends[0].host",
            "did you mean `alpha`?",
        ),
        (
            "{ host = \"gate\", interface = \"eth1\"",
            "{ host = \"gate\", interface = \"eth0\"",
            "my.toml:33: link[1].ends[0].interface",
            "another interface",
        ),
        (
            "{ host = \"gate\", interface = \"eth1\"",
            "{ host = \"beta\", interface = \"eth1\"",
            "my.toml:34: link[1].ends[1].host",
            "same host",
        ),
        (
            "interface = \"eth1\"",
            "interface = \"a-name-of-sixteen\"",
            "my.toml:33: link[1].ends[0].interface",
            "1 to 15",
        ),
        (
            "queue = \"20ms\"",
            "queue = \"20ms\"\nblack-hole-above = 9000",
            "my.toml:26: link[0].black-hole-above",
            "68 to 8999",
        ),
        ("10.2.0.2/24", "10.2.0.2", "my.toml:34: link[1].ends[1].addresses[0]", "10.0.0.1/24"),
        ("10.2.0.2/24", "10.2.0.254/24", "my.toml:34: link[1].ends[1].addresses[0]", "address of gate"),
        ("via = \"10.1.0.254\"", "via = \"10.3.0.254\"", "my.toml:10: host[0].route[0].via", "neighbour"),
        ("to = \"10.2.0.0/24\"", "to = \"everywhere\"", "my.toml:9: host[0].route[0].to", "default"),
        ("name = \"beta\"", "name = \"alpha\"", "my.toml:17: host[2].name", "another host"),
        ("name = \"three\"", "name = \"a b\"", "my.toml:3: name", "letters"),
        (
            "\"net.ipv4.tcp_congestion_control\"",
            "\"vm.swappiness\"",
            "my.toml:19: host[2].sysctls.vm.swappiness",
            "net.",
        ),
        ("clearstream.lab", "clearstream.study", "my.toml:1: schema", "clearstream.lab"),
        ("version = 1", "version = 2", "my.toml:2: version", "use 1"),
        ("version = 1", "version = ", "my.toml:2: ", ""),
    ];
    for (from, to, place, hint) in table {
        assert!(GOOD.contains(from), "{from}");
        let message = message(&GOOD.replacen(from, to, 1));
        assert!(message.starts_with(place), "{to}: {message}");
        assert!(message.contains(hint), "{to}: {message}");
    }
}

#[test]
fn unknown_name_lists_the_built_in_ones() {
    let message = load("wan-1650").expect_err("no such lab").to_string();
    assert!(
        message.contains("did you mean `wan-1650km`?") && message.contains("./wan-1650.toml"),
        "{message}"
    );
    let message = load("/nonexistent/lab.toml").expect_err("no such file").to_string();
    assert!(message.contains("/nonexistent/lab.toml"), "{message}");
}

proptest::proptest! {
    /// Whatever is truncated or damaged: an error or a lab, never a panic.
    #[test]
    fn damaged_files_are_rejected_with_a_message(from in 0usize..900, length in 0usize..60, byte in 0u8..128) {
        let mut text = GOOD.as_bytes().to_vec();
        let from = from.min(text.len());
        let end = (from + length).min(text.len());
        text.splice(from..end, [byte]);
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Err(error) = parse(Path::new("x.toml"), &text) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}

const SWITCHED: &str = r#"schema = "clearstream.lab"
version = 1
name = "office"
title = "Three hosts at a switch"
[[host]]
name = "alpha"
[[host]]
name = "beta"
[[host]]
name = "gamma"
[[host.route]]
to = "default"
via = "10.3.0.1"
[[switch]]
name = "floor"
mtu = 1500
ends = [
  { host = "alpha", interface = "eth0", addresses = ["10.3.0.1/24", "fd03::1/64"] },
  { host = "beta", interface = "eth0", addresses = ["10.3.0.2/24"] },
  { host = "gamma", interface = "eth0", addresses = ["10.3.0.3/24"] },
]
"#;

#[test]
fn switches_are_read_and_their_faults_reported() {
    let file = parse(Path::new("my.toml"), SWITCHED).unwrap();
    assert_eq!((file.links.len(), file.switches[0].ends.len(), file.ends().count()), (0, 3, 3));
    for (from, to, place, hint) in [
        ("name = \"floor\"", "name = \"beta\"", "my.toml:15: switch[0].name", "a host"),
        ("mtu = 1500", "mtu = 66000", "my.toml:16: switch[0].mtu", "65535"),
        ("mtu = 1500", "mtu = 1000", "my.toml:18: switch[0].ends[0].addresses[1]", "1280"),
        ("mtu = 1500", "delay = \"1ms\"", "my.toml:16: switch[0].delay", "there is no `delay`"),
        (
            "{ host = \"beta\"",
            "{ host = \"betta\"",
            "my.toml:19: switch[0].ends[1].host",
            "did you mean `beta`?",
        ),
        (
            "{ host = \"beta\", interface = \"eth0\"",
            "{ host = \"alpha\", interface = \"eth0\"",
            "my.toml:19: switch[0].ends[1].interface",
            "another interface",
        ),
        ("10.3.0.3/24", "10.3.0.2/24", "my.toml:20: switch[0].ends[2].addresses[0]", "of beta, too"),
        ("via = \"10.3.0.1\"", "via = \"10.4.0.1\"", "my.toml:13: host[2].route[0].via", "neighbour"),
    ] {
        assert!(SWITCHED.contains(from), "{from}");
        let message = message(&SWITCHED.replacen(from, to, 1));
        assert!(message.starts_with(place) && message.contains(hint), "{to}: {message}");
    }
}
