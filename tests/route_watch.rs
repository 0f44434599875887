//! `clearstream route watch` as an operator has it: gateways fail in each of
//! their ways, and flows through them go on.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use common::{Lab, Run, alive, assert_valid, clearstream, eventually, program, run, signal};
use serde_json::Value;

/// A lab of gateways between `c1` and `s1`.
fn lab_text(name: &str, gateways: usize) -> String {
    let mut text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"a lab of a test\"\n\
         [[host]]\nname = \"c1\"\n[[host]]\nname = \"s1\"\n"
    );
    for gateway in 1..=gateways {
        text.push_str(&format!("[[host]]\nname = \"gw{gateway}\"\nrouter = true\n"));
    }
    for (network, host, interface, prefix, end) in
        [("compute-net", "c1", "compute0", "10.100.0", 1), ("storage-net", "s1", "storage0", "10.10.0", 201)]
    {
        text.push_str(&format!("[[switch]]\nname = \"{network}\"\nends = [\n"));
        let mut end_of = |host: &str, number: usize| {
            text.push_str(&format!(
                "{{ host = \"{host}\", interface = \"{interface}\", addresses = [\"{prefix}.{number}/24\"] }},\n"
            ));
        };
        end_of(host, end);
        (1..=gateways).for_each(|gateway| end_of(&format!("gw{gateway}"), 10 + gateway));
        text.push_str("]\n");
    }
    text
}

/// `route` and further keys of the route.
fn fabric_text(gateways: usize, route: &str) -> String {
    let last = 10 + gateways;
    let last_alias = 220 + gateways;
    format!(
        r#"
schema = "clearstream.fabric"
version = 1
name = "e2e-watch"
[[network]]
name = "compute"
prefixes = ["10.100.0.0/24"]
[[network]]
name = "storage"
prefixes = ["10.10.0.0/24"]
[[class]]
name = "gateway"
role = "gateway"
hosts = ["gw[1-{gateways}]"]
[[class.link]]
network = "compute"
interface = "compute0"
addresses = ["10.100.0.[11-{last}]"]
[[class.link]]
network = "storage"
interface = "storage0"
addresses = ["10.10.0.[11-{last}]"]
[[class]]
name = "compute"
role = "compute"
hosts = ["c1"]
[[class.link]]
network = "compute"
interface = "compute0"
addresses = ["10.100.0.1"]
[[class]]
name = "storage"
role = "storage"
hosts = ["s1"]
[[class.link]]
network = "storage"
interface = "storage0"
addresses = ["10.10.0.201"]
alias-addresses = ["10.10.0.[221-{last_alias}]"]
[[route]]
between = ["compute", "storage"]
via = ["gateway"]
{route}
[watch]
up-count = 25
"#
    )
}

/// A lab whose ends route over the gateways.
struct Fabric {
    lab: Lab,
    folder: tempfile::TempDir,
    file: String,
}

impl Fabric {
    fn up(name: &str, gateways: usize, route: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path().join(format!("{name}.toml"));
        fs::write(&lab, lab_text(name, gateways)).unwrap();
        let file = folder.path().join("fabric.toml");
        fs::write(&file, fabric_text(gateways, route)).unwrap();
        Self { lab: Lab::up(&lab, name), file: file.to_str().unwrap().to_owned(), folder }
    }

    fn apply(&self) {
        for host in ["c1", "s1"] {
            self.route(host, &["apply", &self.file, "--yes"]).ok();
        }
    }

    fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = clearstream(&[&["lab", "exec", &self.lab.0, host, "--"], words].concat());
        // Neither the journals nor the session of whoever runs the tests.
        command.env("CLEARSTREAM_PLANS", self.folder.path().join("plans"));
        command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
        command
    }

    fn exec(&self, host: &str, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.finish(self.command(host, &words)).ok().to_owned()
    }

    fn route(&self, host: &str, words: &[&str]) -> Run {
        let program = program().to_str().unwrap();
        self.finish(self.command(host, &[&[program, "route"], words].concat()))
    }

    fn finish(&self, mut command: Command) -> Run {
        common::finish(command.spawn().unwrap(), Duration::from_secs(30))
    }

    fn fault(&self, words: &[&str]) {
        run(&[&["lab", "fault", &self.lab.0], words].concat()).ok();
    }

    /// Starts a watch and waits until it watches.
    fn watch(&self, host: &str, options: &[&str]) -> Watch {
        let program = program().to_str().unwrap();
        let state = self.folder.path().join("state");
        let words = [program, "route", "watch", &self.file, "--json", "--state", state.to_str().unwrap()];
        let mut child = self.command(host, &[&words, options].concat()).spawn().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (lines, sink) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&events));
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                sink.lock().unwrap().push(serde_json::from_str::<Value>(&line).unwrap());
            }
        });
        let watch = Watch { child, events };
        eventually(Duration::from_secs(20), "the watch begins", || !watch.of("started").is_empty());
        watch
    }

    /// Gateways among the next hops, as `ip` has them.
    fn used(&self, host: &str) -> Vec<String> {
        let shown: Value = serde_json::from_str(&self.exec(host, "ip -j nexthop")).unwrap();
        let all = shown.as_array().unwrap();
        let group = all.iter().find_map(|nexthop| nexthop["group"].as_array()).unwrap();
        let via = |id: &Value| all.iter().find(|nexthop| nexthop["id"] == *id).unwrap()["gateway"].clone();
        group.iter().map(|member| via(&member["id"]).as_str().unwrap().to_owned()).collect()
    }
}

/// A running watch; ended with the value.
struct Watch {
    child: Child,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Watch {
    fn of(&self, event: &str) -> Vec<Value> {
        self.events.lock().unwrap().iter().filter(|found| found["event"] == event).cloned().collect()
    }

    /// The watch itself: `lab exec` has become it.
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&self, name: &str) {
        signal(self.pid(), name);
        eventually(Duration::from_secs(10), "the watch ends", || !alive(self.pid()));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Request and response every 20 ms on flows with bound ports; every quarter of a
/// second one line with the time that each flow has been without an answer.
const FLOWS: &str = r#"
import sys, socket, selectors, time
sel = selectors.DefaultSelector()
def serve(address):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 5555)); listener.listen(64)
    sel.register(listener, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in sel.select():
            if key.fileobj is listener:
                sel.register(listener.accept()[0], selectors.EVENT_READ)
            else:
                data = key.fileobj.recv(64)
                if data: key.fileobj.send(data)
                else: sel.unregister(key.fileobj); key.fileobj.close()
def ask(address, own):
    flows = []
    for port in range(20000, 20024):
        flow = socket.socket()
        flow.bind((own, port)); flow.connect((address, 5555)); flow.setblocking(False)
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flows.append(flow); sel.register(flow, selectors.EVENT_READ, len(flows) - 1)
    heard = [time.monotonic()] * len(flows); waiting = [False] * len(flows)
    due = told = time.monotonic()
    while True:
        now = time.monotonic()
        if now >= due:
            for index, flow in enumerate(flows):
                if not waiting[index]: flow.send(b"x"); waiting[index] = True
            due = now + 0.02
        if now >= told:
            print(" ".join("%.3f" % (now - at) for at in heard), flush=True)
            told = now + 0.25
        for key, _ in sel.select(max(0, due - time.monotonic())):
            if key.fileobj.recv(64): heard[key.data] = time.monotonic(); waiting[key.data] = False
serve(sys.argv[2]) if sys.argv[1] == "serve" else ask(sys.argv[2], sys.argv[3])
"#;

/// Flows from `c1` to `s1`; ended with the value.
struct Flows {
    processes: Vec<Child>,
    quiet: Arc<Mutex<Vec<f64>>>,
}

impl Flows {
    fn start(fabric: &Fabric) -> Self {
        let script = fabric.folder.path().join("flows.py");
        fs::write(&script, FLOWS).unwrap();
        let start = |host: &str, words: &[&str]| {
            let words = [&["/usr/bin/python3", script.to_str().unwrap()], words].concat();
            fabric.command(host, &words).stderr(Stdio::inherit()).spawn().unwrap()
        };
        let mut server = start("s1", &["serve", "10.10.0.201"]);
        let mut ready = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let mut client = start("c1", &["ask", "10.10.0.201", "10.100.0.1"]);
        let quiet = Arc::new(Mutex::new(Vec::new()));
        let (lines, sink) = (BufReader::new(client.stdout.take().unwrap()), Arc::clone(&quiet));
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *sink.lock().unwrap() = line.split(' ').map(|time| time.parse().unwrap()).collect();
            }
        });
        let flows = Self { processes: vec![server, client], quiet };
        eventually(Duration::from_secs(20), "flows are answered", || flows.all_go_on());
        flows
    }

    /// Seconds that each flow has been without an answer.
    fn quiet(&self) -> Vec<f64> {
        self.quiet.lock().unwrap().clone()
    }

    fn all_go_on(&self) -> bool {
        let quiet = self.quiet();
        !quiet.is_empty() && quiet.iter().all(|time| *time < 0.5)
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn root_flows_of_a_failed_gateway_go_on_and_without_a_watch_they_do_not() {
    let fabric = Fabric::up("e2e-watch", 4, "return-path = \"none\"");
    fabric.apply();
    let flows = Flows::start(&fabric);
    fabric.fault(&["gw1", "kill"]);
    thread::sleep(Duration::from_millis(2500));
    // TCP asks again after 0.2, 0.6, 1.4 s; by then nothing has helped.
    let quiet = flows.quiet();
    let (stuck, others): (Vec<f64>, Vec<f64>) = quiet.iter().partition(|time| **time > 1.5);
    assert!(!stuck.is_empty() && others.len() > stuck.len(), "{quiet:?}");
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    let out = |gateway: &str| {
        eventually(Duration::from_secs(10), &format!("{gateway} is out on both sides"), || {
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
    // The last one stays, whatever happens to it, and all come back.
    fabric.fault(&["gw4", "drop"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(fabric.used("c1"), ["10.100.0.14"]);
    run(&["lab", "fault", &fabric.lab.0, "--clear"]).ok();
    eventually(Duration::from_secs(15), "all gateways are back", || {
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
                from prometheus_client.parser import text_string_to_metric_families as families\n\
                text = urllib.request.urlopen(sys.argv[1], timeout=5).read().decode()\n\
                for family in families(text):\n    for sample in family.samples:\n        \
                print(sample.name, sample.labels.get('gateway'), sample.value)\n";
    fs::write(&script, text).unwrap();
    fabric.exec("c1", &format!("/usr/bin/python3 {} http://127.0.0.1:{port}/metrics", script.display()))
}

/// With a watch on one side only: the other side's kernel answers echoes.
#[test]
fn root_a_watch_is_asked_drained_killed_and_begun_again() {
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
    eventually(Duration::from_secs(10), "echoes are answered", || {
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
    let watch = told(&fabric, &manager);
    assert_eq!(gateways()[0]["drained"], true);
    fabric.route("c1", &["undrain", "gw1"]).ok();
    eventually(Duration::from_secs(10), "it is used again", || fabric.used("c1").len() == 2);

    // What somebody else changes is put right.
    let group = fabric.exec("c1", "ip -j nexthop show groups");
    let group: Value = serde_json::from_str(&group).unwrap();
    let (id, member) = (&group[0]["id"], &group[0]["group"][0]["id"]);
    fabric.exec(
        "c1",
        &format!("ip nexthop replace id {id} group {member} type resilient buckets 120 idle_timer 60"),
    );
    eventually(Duration::from_secs(10), "it is put right", || !watch.of("repaired").is_empty());
    assert_eq!(fabric.used("c1").len(), 2);
    watch.end("TERM");
    eventually(Duration::from_secs(5), "it says goodbye", || !watch.of("stopped").is_empty());
    assert_eq!(fabric.used("c1").len(), 2);
}

/// A watch that a service manager waits for.
fn told(fabric: &Fabric, manager: &UnixDatagram) -> Watch {
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
    let words = ["sh", wrapper.to_str().unwrap(), "route", "watch", &fabric.file, "--json", "--state"];
    let words = [&words, [state.to_str().unwrap()].as_slice()].concat();
    let mut child = fabric.command("c1", &words).spawn().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let (lines, sink) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&events));
    thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            sink.lock().unwrap().push(serde_json::from_str::<Value>(&line).unwrap());
        }
    });
    let heard = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert!(heard().starts_with("READY=1\nSTATUS="));
    assert!(heard().starts_with("WATCHDOG=1\n"));
    Watch { child, events }
}

/// Without nexthop objects, and with an address for each gateway: the way to the
/// address of a dead one, and the table of replies from it, go by the other.
#[test]
fn root_aliases_and_classic_routes_of_a_dead_gateway_go_by_the_others() {
    let route = "return-path = \"alias\"\nmultipath = \"classic\"";
    let fabric = Fabric::up("e2e-watch-alias", 2, route);
    fabric.apply();
    let ways = |host: &str, line: &str| fabric.exec(host, line).matches(" via 10.").count();
    let vias = |host: &str, table: &str| {
        let text = fabric.exec(host, &format!("ip route show table {table}"));
        (text.matches("0.11 ").count(), text.matches("0.12 ").count())
    };
    let before = (vias("c1", "main"), vias("s1", "7001"), vias("s1", "7002"));
    assert_eq!((before.1, before.2), ((1, 0), (0, 1)), "a table for each gateway");
    assert!(ways("c1", "ip route get 10.10.0.221") == 1);
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
    let said = String::from_utf8_lossy(&output.stderr);
    let about: Vec<&str> = said.lines().filter(|line| line.contains("clearstream")).collect();
    assert!(output.status.success() && about.is_empty(), "{said}");
}
