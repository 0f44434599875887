//! `clearstream route watch` as an operator has it: gateways fail in each
//! mode, and flows through them go on.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::common::{assert_valid, eventually, program, run, signal};
use crate::watched::{Fabric, Flows, Watch};
use serde_json::Value;

#[test]
fn root_flows_of_a_failed_gateway_go_on_and_without_a_watch_they_do_not() {
    let fabric = Fabric::up("e2e-watch", 4, "return-path = \"none\"");
    fabric.apply();
    let flows = Flows::start(&fabric);
    fabric.fault(&["gw1", "kill"]);
    thread::sleep(Duration::from_millis(2500));
    // TCP retransmits after 0.2, 0.6, 1.4 s; by then nothing has helped.
    let quiet = flows.quiet();
    let (stuck, others): (Vec<f64>, Vec<f64>) = quiet.iter().partition(|time| **time > 1.5);
    assert!(!stuck.is_empty() && others.len() > stuck.len(), "{quiet:?}");
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    let out = |gateway: &str| {
        eventually(Duration::from_secs(10), &format!("{gateway} is removed on both sides"), || {
            watches.iter().all(|watch| watch.of("out").iter().any(|event| event["gateway"] == gateway))
        });
        // The flows that were stuck before wait for TCP's next attempt.
        eventually(Duration::from_secs(10), &format!("flows go on without {gateway}"), || flows.all_go_on());
    };
    out("gw1");
    fabric.fault(&["gw2", "drop"]);
    out("gw2");
    fabric.fault(&["gw3:storage0", "link-down"]);
    out("gw3");
    for (host, last) in [("c1", "10.100.0.14"), ("s1", "10.10.0.14")] {
        assert_eq!(fabric.used(host), [last]);
    }
    // The last one stays, whatever happens to it, and all are restored.
    fabric.fault(&["gw4", "drop"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(fabric.used("c1"), ["10.100.0.14"]);
    run(&["lab", "fault", &fabric.lab.0, "--clear"]).ok();
    eventually(Duration::from_secs(15), "all gateways are restored", || {
        ["c1", "s1"].iter().all(|host| fabric.used(host).len() == 4)
    });
    eventually(Duration::from_secs(15), "flows go on", || flows.all_go_on());
    for event in watches.iter().flat_map(|watch| watch.events.lock().unwrap().clone()) {
        assert_valid("watch-event", &event);
    }
}

/// Numbers that a scraper finds.
fn scraped(fabric: &Fabric, port: u16) -> String {
    let script = fabric.folder.path().join("scrape.py");
    let text = "import sys, urllib.request\n\
                from prometheus_client.openmetrics.parser import text_string_to_metric_families as families\n\
                request = urllib.request.Request(sys.argv[1], headers={'Accept': 'application/openmetrics-text'})\n\
                text = urllib.request.urlopen(request, timeout=5).read().decode()\n\
                for family in families(text):\n    for sample in family.samples:\n        \
                print(sample.name, sample.labels.get('gateway'), sample.value)\n";
    fs::write(&script, text).unwrap();
    fabric.exec("c1", &format!("/usr/bin/python3 {} http://127.0.0.1:{port}/metrics", script.display()))
}

/// With a watch on one side only: the peer's kernel replies to echoes.
#[test]
fn root_a_watch_is_queried_drained_killed_and_restarted() {
    let fabric = Fabric::up("e2e-watch-ask", 2, "return-path = \"none\"");
    let file = fabric.file.clone();
    fabric.route("c1", &["watch", &file]).refused(4, &["route apply"]);
    fabric.route("c1", &["health"]).refused(3, &["route watch"]);
    fabric.apply();
    fabric.route("gw1", &["watch", &file]).refused(2, &["nothing to watch"]);
    let watch = fabric.watch("c1", &["--metrics", "127.0.0.1:9901"]);
    fabric.route("c1", &["watch", &file]).refused(4, &["another watch"]);
    let health = || fabric.route("c1", &["health", "--json"]).json();
    let gateways = || health()["ways"][0]["gateways"].clone();
    eventually(Duration::from_secs(10), "echoes get replies", || {
        gateways().as_array().unwrap().iter().all(|gateway| gateway["answered_count"].as_u64() > Some(0))
    });
    assert_valid("watch-status", &health());

    fabric.route("c1", &["drain", "gw1"]).ok();
    assert_eq!(fabric.used("c1"), ["10.100.0.12"]);
    fabric.route("c1", &["drain", "gw2"]).refused(4, &["last"]);
    fabric.route("c1", &["drain", "gw9"]).refused(4, &["gw1, gw2"]);
    let numbers = scraped(&fabric, 9901);
    assert!(numbers.contains("clearstream_watch_gateway_drained gw1 1.0"), "{numbers}");
    assert!(numbers.contains("clearstream_watch_gateway_used gw2 1.0"), "{numbers}");

    // A crash leaves routes that work, and the drained stay drained.
    signal(watch.pid(), "KILL");
    drop(watch);
    assert_eq!(fabric.used("c1"), ["10.100.0.12"]);
    fabric.exec("c1", "ping -c 1 -W 2 10.10.0.201");
    let manager = UnixDatagram::bind(fabric.folder.path().join("notify")).unwrap();
    let watch = supervised(&fabric, &manager);
    assert_eq!(gateways()[0]["drained"], true);
    fabric.route("c1", &["undrain", "gw1"]).ok();
    eventually(Duration::from_secs(10), "it is restored", || fabric.used("c1").len() == 2);

    // A change by another program is repaired.
    let group = fabric.exec("c1", "ip -j nexthop show groups");
    let group: Value = serde_json::from_str(&group).unwrap();
    let (id, member) = (&group[0]["id"], &group[0]["group"][0]["id"]);
    fabric.exec(
        "c1",
        &format!("ip nexthop replace id {id} group {member} type resilient buckets 120 idle_timer 60"),
    );
    eventually(Duration::from_secs(10), "it is repaired", || !watch.of("repaired").is_empty());
    assert_eq!(fabric.used("c1").len(), 2);
    watch.end("TERM");
    eventually(Duration::from_secs(5), "it reports its end", || !watch.of("stopped").is_empty());
    assert_eq!(fabric.used("c1").len(), 2);
}

#[test]
fn root_a_watch_has_a_page() {
    let fabric = Fabric::up("e2e-watch-page", 2, "return-path = \"none\"");
    fabric.apply();
    let mut watch = fabric.watch("c1", &["--web=127.0.0.1:9902"]);
    let link = watch.link();
    fabric.fault(&["gw1", "kill"]);
    eventually(Duration::from_secs(10), "gw1 is removed", || !watch.of("out").is_empty());
    // What the stream of the page has: the table with a fault in the row of gw1, and the event.
    let (address, token) = link.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    assert_eq!(address, "127.0.0.1:9902");
    let shown = || {
        let url = format!("http://{address}/events?token={token}");
        // It ends by the time limit: a stream has no end.
        fabric.finish(fabric.command("c1", &["curl", "-sN", "--max-time", "2", &url])).stdout
    };
    eventually(Duration::from_secs(20), "the page has it", || {
        let text = shown();
        text.contains("gw1 removed from the path to")
            && text.contains("\"removed\"")
            && text.contains("\"bad\":true")
    });
    let refused = fabric.exec("c1", &format!("curl -s http://{address}/events?token=0"));
    assert!(refused.contains("token"), "{refused}");
    watch.end("TERM");
}

/// A watch that a service manager waits for.
fn supervised(fabric: &Fabric, manager: &UnixDatagram) -> Watch {
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The environment of a process is given by `env` inside of the lab.
    let path = fabric.folder.path().join("notify");
    let wrapper = fabric.folder.path().join("watch.sh");
    let text = format!(
        "#!/bin/sh\nNOTIFY_SOCKET={} WATCHDOG_USEC=2000000 exec {} \"$@\"\n",
        path.display(),
        program().display()
    );
    fs::write(&wrapper, text).unwrap();
    let state = fabric.folder.path().join("state");
    let arguments = ["sh", wrapper.to_str().unwrap(), "route", "watch", &fabric.file, "--json", "--state"];
    let arguments = [&arguments, [state.to_str().unwrap()].as_slice()].concat();
    let mut child = fabric.command("c1", &arguments).spawn().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let (lines, sink) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&events));
    thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            sink.lock().unwrap().push(serde_json::from_str::<Value>(&line).unwrap());
        }
    });
    let notified = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert!(notified().starts_with("READY=1\nSTATUS="));
    assert!(notified().starts_with("WATCHDOG=1\n"));
    Watch { child, events }
}

/// Without nexthop objects, and with an address for each gateway: the route to the
/// address of a dead one, and the table of replies from it, use the other.
#[test]
fn root_aliases_and_classic_routes_of_a_dead_gateway_go_by_the_others() {
    let route = "return-path = \"alias\"\nmultipath = \"classic\"";
    let fabric = Fabric::up("e2e-watch-alias", 2, route);
    fabric.apply();
    let next_hops = |host: &str, line: &str| fabric.exec(host, line).matches(" via 10.").count();
    let vias = |host: &str, table: &str| {
        let text = fabric.exec(host, &format!("ip route show table {table}"));
        (text.matches("0.11 ").count(), text.matches("0.12 ").count())
    };
    let before = (vias("c1", "main"), vias("s1", "7001"), vias("s1", "7002"));
    assert_eq!((before.1, before.2), ((1, 0), (0, 1)), "a table for each gateway");
    assert!(next_hops("c1", "ip route get 10.10.0.221") == 1);
    let _watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    fabric.fault(&["gw1", "kill"]);
    eventually(Duration::from_secs(10), "nothing goes by gw1 on both sides", || {
        [vias("c1", "main"), vias("s1", "main"), vias("s1", "7001")].iter().all(|(first, _)| *first == 0)
    });
    fabric.exec("c1", "ping -c 2 -i 0.2 -W 2 10.10.0.221");
    fabric.fault(&["gw1", "--clear"]);
    eventually(Duration::from_secs(15), "everything is as it was", || {
        (vias("c1", "main"), vias("s1", "7001"), vias("s1", "7002")) == before
    });
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(&["route", "watch", "gateways-6", "--metrics", "127.0.0.1:9901", "--unit"]);
    let unit = folder.path().join("clearstream-route-watch.service");
    fs::write(&unit, text.ok()).unwrap();
    assert!(text.stdout.contains("Type=notify") && text.stdout.contains("WatchdogSec="), "{}", text.stdout);
    verify_unit(&unit);
}

fn verify_unit(unit: &Path) {
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let about: Vec<&str> = stderr.lines().filter(|line| line.contains("clearstream")).collect();
    assert!(output.status.success() && about.is_empty(), "{stderr}");
}
