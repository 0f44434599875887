//! Labs of gateways with routes, watches and flows over them.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::common::{self, Lab, Run, alive, clearstream, eventually, program, run, signal};

/// A lab of gateways between `c1` and `s1`.
pub(crate) fn lab_text(name: &str, gateways: usize) -> String {
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
pub(crate) fn fabric_text(gateways: usize, route: &str) -> String {
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
pub(crate) struct Fabric {
    pub(crate) lab: Lab,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) file: String,
}

impl Fabric {
    pub(crate) fn up(name: &str, gateways: usize, route: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path().join(format!("{name}.toml"));
        fs::write(&lab, lab_text(name, gateways)).unwrap();
        let file = folder.path().join("fabric.toml");
        fs::write(&file, fabric_text(gateways, route)).unwrap();
        Self { lab: Lab::up(&lab, name), file: file.to_str().unwrap().to_owned(), folder }
    }

    pub(crate) fn apply(&self) {
        for host in ["c1", "s1"] {
            self.route(host, &["apply", &self.file, "--yes"]).ok();
        }
    }

    pub(crate) fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = clearstream(&[&["lab", "exec", &self.lab.0, host, "--"], arguments].concat());
        // Independent of the journals and the session in which the tests run.
        command.env("CLEARSTREAM_PLANS", self.folder.path().join("plans"));
        command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
        command
    }

    pub(crate) fn exec(&self, host: &str, line: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        self.finish(self.command(host, &arguments)).ok().to_owned()
    }

    pub(crate) fn route(&self, host: &str, arguments: &[&str]) -> Run {
        let program = program().to_str().unwrap();
        self.finish(self.command(host, &[&[program, "route"], arguments].concat()))
    }

    pub(crate) fn change(&self, host: &str, arguments: &[&str]) -> Run {
        let program = program().to_str().unwrap();
        self.finish(self.command(host, &[&[program, "plan"], arguments].concat()))
    }

    pub(crate) fn finish(&self, mut command: Command) -> Run {
        common::finish(command.spawn().unwrap(), Duration::from_secs(30))
    }

    pub(crate) fn fault(&self, arguments: &[&str]) {
        run(&[&["lab", "fault", &self.lab.0], arguments].concat()).ok();
    }

    /// Starts a watch and waits until it watches.
    pub(crate) fn watch(&self, host: &str, options: &[&str]) -> Watch {
        let program = program().to_str().unwrap();
        let state = self.folder.path().join("state");
        let arguments = [program, "route", "watch", &self.file, "--json", "--state", state.to_str().unwrap()];
        let mut child = self.command(host, &[&arguments, options].concat()).spawn().unwrap();
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
    pub(crate) fn used(&self, host: &str) -> Vec<String> {
        let shown: Value = serde_json::from_str(&self.exec(host, "ip -j nexthop")).unwrap();
        let all = shown.as_array().unwrap();
        let group = all.iter().find_map(|nexthop| nexthop["group"].as_array()).unwrap();
        let via = |id: &Value| all.iter().find(|nexthop| nexthop["id"] == *id).unwrap()["gateway"].clone();
        group.iter().map(|member| via(&member["id"]).as_str().unwrap().to_owned()).collect()
    }
}

/// A running watch; ended with the value.
pub(crate) struct Watch {
    pub(crate) child: Child,
    pub(crate) events: Arc<Mutex<Vec<Value>>>,
}

impl Watch {
    pub(crate) fn of(&self, event: &str) -> Vec<Value> {
        self.events.lock().unwrap().iter().filter(|found| found["event"] == event).cloned().collect()
    }

    /// The watch itself: `lab exec` has become it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Link of its page, which is printed on standard error.
    pub(crate) fn link(&mut self) -> String {
        let mut lines = BufReader::new(self.child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let found = lines.find_map(|line| Some(line.split_once("page: ")?.1.to_owned())).unwrap();
        thread::spawn(move || lines.count());
        found
    }

    pub(crate) fn end(&self, name: &str) {
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

/// Request and response at an interval on flows with bound ports; every quarter of a
/// second one line with the time since the last response of each flow.
pub(crate) const FLOWS: &str = r#"
import sys, socket, selectors, time
sel = selectors.DefaultSelector()
def serve(address):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 5555)); listener.listen(1024)
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
def request(address, own, count, interval):
    flows = []
    for port in range(20000, 20000 + int(count)):
        flow = socket.socket()
        flow.bind((own, port)); flow.connect((address, 5555)); flow.setblocking(False)
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flows.append(flow); sel.register(flow, selectors.EVENT_READ, len(flows) - 1)
    last = [time.monotonic()] * len(flows); waiting = [False] * len(flows)
    due = reported = time.monotonic()
    while True:
        now = time.monotonic()
        if now >= due:
            for index, flow in enumerate(flows):
                if not waiting[index]: flow.send(b"x"); waiting[index] = True
            due = now + float(interval)
        if now >= reported:
            print(" ".join("%.3f" % (now - at) for at in last), flush=True)
            reported = now + 0.25
        for key, _ in sel.select(max(0, due - time.monotonic())):
            if key.fileobj.recv(64): last[key.data] = time.monotonic(); waiting[key.data] = False
serve(sys.argv[2]) if sys.argv[1] == "serve" else request(*sys.argv[2:])
"#;

/// Flows from `c1` to `s1`; ended with the value.
pub(crate) struct Flows {
    processes: Vec<Child>,
    quiet: Arc<Mutex<Vec<f64>>>,
}

impl Flows {
    /// 24 flows with a request every 20 ms.
    pub(crate) fn start(fabric: &Fabric) -> Self {
        Self::start_many(fabric, 24, "0.02")
    }

    /// Flows with a request every so many seconds.
    pub(crate) fn start_many(fabric: &Fabric, count: usize, interval: &str) -> Self {
        let script = fabric.folder.path().join("flows.py");
        fs::write(&script, FLOWS).unwrap();
        let start = |host: &str, arguments: &[&str]| {
            let arguments = [&["/usr/bin/python3", script.to_str().unwrap()], arguments].concat();
            fabric.command(host, &arguments).stderr(Stdio::inherit()).spawn().unwrap()
        };
        let mut server = start("s1", &["serve", "10.10.0.201"]);
        let mut ready = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let mut client = start("c1", &["request", "10.10.0.201", "10.100.0.1", &count.to_string(), interval]);
        let quiet = Arc::new(Mutex::new(Vec::new()));
        let (lines, sink) = (BufReader::new(client.stdout.take().unwrap()), Arc::clone(&quiet));
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *sink.lock().unwrap() = line.split(' ').map(|time| time.parse().unwrap()).collect();
            }
        });
        let flows = Self { processes: vec![server, client], quiet };
        eventually(Duration::from_secs(20), "flows get responses", || flows.all_go_on());
        flows
    }

    /// Seconds since the last response of each flow.
    pub(crate) fn quiet(&self) -> Vec<f64> {
        self.quiet.lock().unwrap().clone()
    }

    pub(crate) fn all_go_on(&self) -> bool {
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
