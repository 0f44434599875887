//! Settings that `clearstream flow` chooses where the command line names none.

use crate::common::{Lab, assert_published, run};
use clearstream_schema::CoreList;
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

/// Long enough for a search of six trials: a tenth of the duration, 50 ms each at least.
const FLOW: [&str; 8] = ["flow", "localhost", "--duration", "3s", "--warm-up", "0s", "--interval", "500ms"];

fn flow(more: &[&str]) -> Value {
    run(&[FLOW.as_slice(), &["--json"], more].concat()).json()
}

/// What the trials say is checked against the settings that the kernel reports.
#[test]
fn the_test_runs_with_what_the_best_trial_had() {
    let document = flow(&[]);
    assert_published(&document);
    let choice = &document["choice"];
    let trials = choice["trials"].as_array().unwrap();
    assert!((3..=6).contains(&trials.len()), "{trials:#?}");
    assert!(trials[0].get("transfer").is_none() && trials[0].get("sender_cores").is_none(), "{}", trials[0]);
    let goodput = |trial: &Value| trial["goodput_bps"].as_f64().unwrap();
    assert!(trials.iter().all(|trial| goodput(trial) > 0.0));

    // The one with the most, or one that 5 % do not separate from it.
    let chosen = choice["chosen"].as_object().unwrap();
    let is_chosen = |trial: &&Value| {
        ["transfer", "send_buffer", "sender_cores", "receiver_cores"]
            .iter()
            .all(|key| trial.get(key) == chosen.get(*key))
    };
    let taken = trials.iter().find(is_chosen).map(goodput).unwrap();
    let best = trials.iter().map(goodput).fold(0.0, f64::max);
    assert!(taken * 1.05_f64.powi(5) >= best, "{choice:#}");

    let summary = &document["summary"];
    assert!(
        summary["requested"].get("transfer").is_none() && summary["requested"].get("sender-cores").is_none()
    );
    let settings = &summary["client_settings"]["flows"][0];
    let size = chosen.get("transfer").map_or("512KiB", |size| size.as_str().unwrap());
    let bytes = if size.ends_with("MiB") { 1 << 20 } else { 1 << 10 };
    let number: u64 = size[..size.len() - 3].parse().unwrap();
    assert_eq!(settings["transfer_bytes"], number * bytes);
    let core =
        chosen.get("sender_cores").map(|cores| cores.as_str().unwrap().split(['-', ',']).next().unwrap());
    assert_eq!(settings.get("pinned_core").map(ToString::to_string).as_deref(), core);
}

#[test]
fn people_see_the_choice_as_options() {
    let text = run(&FLOW).ok().to_owned();
    let line = text.lines().find(|line| line.starts_with("chosen: ")).unwrap();
    assert!(line.contains("short trials"), "{line}");
    let options = line.strip_prefix("chosen: ").unwrap().split(" (").next().unwrap();
    if options != "defaults" {
        // Given as options, nothing is chosen.
        let mut arguments: Vec<&str> = FLOW.iter().copied().chain(options.split(' ')).collect();
        if !options.contains("--transfer") {
            arguments.extend(["--transfer", "512KiB"]);
        }
        if !options.contains("--sender-cores") {
            arguments.extend(["--cores", "scheduler"]);
        }
        let second = run(&[arguments.as_slice(), &["--json"]].concat()).json();
        assert!(second.get("choice").is_none());
    }
}

#[test]
fn nothing_is_chosen_where_everything_is_named_or_copying_is_no_limit() {
    for named in [
        ["--cores", "scheduler", "--transfer", "256KiB"].as_slice(),
        &["--sender-cores", "0", "--receiver-cores", "0", "--transfer", "1MiB"],
        &["--bytes", "10MB"],
        &["--pacing", "100Mb/s", "--duration", "3s"],
        &["--protocol", "udp", "--pacing", "100Mb/s"],
        // A tenth of a second is too short for trials.
        &["--duration", "1s"],
    ] {
        let mut arguments = vec!["flow", "localhost", "--warm-up", "0s", "--json"];
        if !named.contains(&"--duration") && !named.contains(&"--bytes") {
            arguments.extend(["--duration", "3s"]);
        }
        let document = run(&[&arguments, named].concat()).json();
        assert!(document.get("choice").is_none(), "{named:?}: {}", document["choice"]);
    }
    run(&["flow", "localhost", "--cores", "scheduler", "--sender-cores", "0"])
        .refused_by_usage("--sender-cores");
}

#[test]
fn one_of_both_is_chosen_where_the_other_is_named() {
    let document = flow(&["--cores", "scheduler"]);
    let chosen = document["choice"]["chosen"].as_object().unwrap();
    assert!(chosen.get("sender_cores").is_none() && chosen.get("receiver_cores").is_none(), "{chosen:?}");
    assert_eq!(document["choice"]["trials"].as_array().unwrap().len(), 3);

    let document = flow(&["--transfer", "128KiB"]);
    let trials = document["choice"]["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial.get("transfer").is_none()), "{trials:?}");
    assert_eq!(document["summary"]["client_settings"]["flows"][0]["transfer_bytes"], 128 << 10);
}

/// L2 cache of the first core as the kernel describes it, bytes.
fn l2_cache() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").ok()?;
    Some(text.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10)
}

/// A delay line makes two hosts of two namespaces: no trials, cores by the ranking of
/// `place`, the size by the caches.
#[test]
fn root_between_two_hosts_cores_are_ranked_and_the_size_follows_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("chosen-{}", std::process::id());
    let file = folder.path().join("lab.toml");
    std::fs::write(&file, two_hosts(&name, "delay = \"1ms\"\nbackend = \"delay-line\"")).unwrap();
    let lab = Lab::up(&file, &name);
    let flow = |more: &[&str]| {
        let arguments =
            ["flow", "--lab", &lab.0, "--flows", "2", "-t", "500ms", "-i", "250ms", "-O", "0s", "--json"];
        run(&[arguments.as_slice(), more].concat()).json()
    };
    let document = flow(&[]);
    let choice = &document["choice"];
    let reason = choice["reason"].as_str().unwrap();
    assert!(reason.contains("cores: the ranking of `place` for each host's interface"), "{reason}");
    assert_eq!(choice["trials"].as_array().map(Vec::len), Some(0), "the path is somebody's: {choice}");
    // The kernel's effective values, of each flow at both ends.
    for (side, key) in [("client_settings", "sender_cores"), ("server_settings", "receiver_cores")] {
        let chosen: CoreList = serde_json::from_value(choice["chosen"][key].clone()).unwrap();
        let flows = document["summary"][side]["flows"].as_array().unwrap();
        let pinned: Vec<Option<u64>> = flows.iter().map(|flow| flow["pinned_core"].as_u64()).collect();
        let wanted: Vec<Option<u64>> = chosen.0.iter().map(|core| Some(u64::from(*core))).collect();
        assert_eq!((pinned.len(), &pinned), (2, &wanted), "{side}");
        assert_ne!(pinned[0], pinned[1], "a core for each flow");
    }
    if let Some(cache) = l2_cache() {
        assert!(reason.contains("half of the smaller L2 cache of both hosts"), "{reason}");
        let size = document["summary"]["client_settings"]["flows"][0]["transfer_bytes"].as_u64().unwrap();
        assert!(size <= cache.max(256 << 10) && size.is_power_of_two(), "{size} of {cache}");
    }

    let document = flow(&["--cores", "scheduler"]);
    assert!(document["choice"]["chosen"].get("sender_cores").is_none(), "{}", document["choice"]);
    for side in ["client_settings", "server_settings"] {
        let flows = document["summary"][side]["flows"].as_array().unwrap();
        assert!(flows.iter().all(|flow| flow.get("pinned_core").is_none()), "{side}");
    }
    let document = flow(&["--cores", "scheduler", "--transfer", "128KiB"]);
    assert!(document.get("choice").is_none(), "{}", document["choice"]);
}
