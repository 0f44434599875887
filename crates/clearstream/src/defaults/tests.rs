#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

use super::*;

const FILE: &str = r#"
schema = "clearstream.config"
version = 1

[defaults]
ssh-options = ["ConnectTimeout=10"]
port = 5201

[defaults.flow]
duration = "3s"
direction = "reverse"

[host.dtn2]
ssh-options = ["Port=2222"]
remote-program = "~/bin/clearstream"
receiver-cores = [2, 3]
ipv6 = true

[host.dtn2.flow]
duration = "5s"

[host."192.0.2.7"]
pairing = "/etc/dtn3.json"
address = "198.51.100.7"
"#;

fn read(text: &str) -> Result<Defaults, String> {
    Defaults::read(Source::new("config.toml", text)).map_err(|error| error.to_string())
}

/// What the file adds to a command line.
fn added(line: &str) -> Vec<String> {
    let file = read(FILE).unwrap();
    let mut root = Cli::command();
    root.build();
    let arguments = std::iter::once("clearstream").chain(line.split_whitespace());
    let matches =
        Cli::command().try_get_matches_from(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
    let Some(call) = Call::of(&root, &matches, &file) else { return Vec::new() };
    file.arguments(&call).into_iter().map(|(argument, _)| argument).collect()
}

fn sorted(mut arguments: Vec<String>) -> Vec<String> {
    arguments.sort();
    arguments
}

#[test]
fn a_hosts_table_wins_over_the_general_one_and_the_command_line_over_both() {
    assert_eq!(
        sorted(added("flow dtn2")),
        [
            "--direction=reverse",
            "--duration=5s",
            "--ipv6",
            "--port=5201",
            "--receiver-cores=2,3",
            "--remote-program=~/bin/clearstream",
            "--ssh-option=ConnectTimeout=10",
            "--ssh-option=Port=2222",
        ]
    );
    let found = added("flow op@dtn2 -t 1s -4 --destination-port 7000 --ssh-option Port=22");
    let options: Vec<&str> = found.iter().map(String::as_str).filter(|one| one.contains("ssh")).collect();
    assert_eq!(options, ["--ssh-option=Port=2222", "--ssh-option=ConnectTimeout=10"], "the host's first");
    for absent in ["--ipv6", "--port", "--duration"] {
        assert!(!found.iter().any(|one| one.starts_with(absent)), "{absent}: {found:?}");
    }
}

#[test]
fn options_that_would_exclude_what_is_written_are_left_out() {
    let found = added("flow dtn2 -n 1GiB");
    assert!(!found.iter().any(|one| one.starts_with("--duration")), "{found:?}");
    let found = added("flow --hosts hosts.toml");
    assert_eq!(sorted(found), ["--direction=reverse", "--duration=3s"]);
}

#[test]
fn options_without_effect_on_the_access_method_are_ignored() {
    assert_eq!(sorted(added("flow localhost")), ["--direction=reverse", "--duration=3s"]);
    assert_eq!(sorted(added("flow --lab two-hosts -t 1s")), ["--direction=reverse"]);
    assert_eq!(
        sorted(added("probe 192.0.2.7")),
        ["--address=198.51.100.7", "--pairing=/etc/dtn3.json", "--port=5201"]
    );
    // A host that `rdma serve` listens on is no agent's.
    assert_eq!(added("rdma write dtn2"), [""; 0]);
    assert!(added("rdma write --to dtn2").contains(&"--port=5201".to_owned()));
    assert_eq!(added("lab list"), [""; 0]);
}

#[test]
fn every_verb_that_reaches_a_host_has_the_same_options() {
    for line in [
        "probe dtn2",
        "message --to dtn2",
        "diagnose dtn2",
        "improve dtn2",
        "place ports dtn2",
        "study run clearstream-40ge --to dtn2",
        "rdma read --to dtn2",
        "deploy dtn2",
    ] {
        let found = added(line);
        for wanted in ["--ssh-option=Port=2222", "--remote-program=~/bin/clearstream"] {
            assert!(found.iter().any(|one| one == wanted), "{line}: {found:?}");
        }
    }
}

#[test]
fn slips_are_named_with_line_key_and_suggestion() {
    for (text, expected) in [
        (
            "[defaults]\nprot = 1\n",
            "config.toml:2: defaults.prot: there is no option `prot` here; did you mean `port`?",
        ),
        ("[default]\n", "config.toml:1: default: there is no `default` here; did you mean `defaults`?"),
        (
            "[defaults.flwo]\nport = 1\n",
            "config.toml:1: defaults.flwo: no verb `flwo` calls a host; did you mean `flow`?",
        ),
        (
            "[host.a.flow]\nwindwo = \"1M\"\n",
            "config.toml:2: host.a.flow.windwo: there is no option `windwo` here; did you mean `window`?",
        ),
        ("[defaults]\naddress = \"::1\"\n", "config.toml:2: defaults.address: it is of one host"),
        ("[host.a]\nssh-options = [[1]]\n", "config.toml:2: host.a.ssh-options: an option is a text"),
        ("port = 1\n", "config.toml:1: port: there is no `port` here"),
        ("version = 2\n", "config.toml:1: version: version 2 is not supported"),
        ("[host.a]\nport = x\n", "config.toml:2: port: "),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.starts_with(expected), "{message}\nexpected: {expected}");
    }
}

#[test]
fn a_value_that_its_option_rejects_is_an_error_of_the_file() {
    let file = read("[host.a]\nremote-program = \"x\"\nport = 0\n").unwrap();
    let added = [
        ("--remote-program=x".to_owned(), "host.a.remote-program".to_owned()),
        ("--port=0".to_owned(), "host.a.port".to_owned()),
    ];
    let line = ["clearstream", "flow", "a", "--remote-program=x", "--port=0"];
    let error = Cli::command().try_get_matches_from(line).unwrap_err();
    let message = file.rejected(&added, &error).to_string();
    assert!(message.starts_with("config.toml:3: host.a.port: invalid value '0'"), "{message}");
}

#[test]
fn the_settings_of_a_host_are_those_that_win() {
    let file = read(FILE).unwrap();
    let keys: Vec<String> = file
        .settings(Some("dtn2"))
        .into_iter()
        .map(|setting| format!("{}:{}", setting.key, setting.line))
        .collect();
    assert!(keys.contains(&"host.dtn2.flow.duration:20".to_owned()), "{keys:?}");
    assert!(!keys.iter().any(|key| key.starts_with("defaults.flow.duration")), "{keys:?}");
    assert!(keys.iter().any(|key| key.starts_with("defaults.ssh-options")), "they add up: {keys:?}");
    assert_eq!(file.settings(None).len(), 11);
}
