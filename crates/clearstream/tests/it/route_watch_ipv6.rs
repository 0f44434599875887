//! The first death of a gateway after a start, for flows of both families: in a
//! namespace of its own the kernel may leave IPv6 sockets on dead routes (see
//! the module `generation` of the netlink crate). Packets that such sockets send
//! are counted as `Ip6FragFails`.
//!
//! `CLEARSTREAM_STARTS=20 cargo nextest run -p clearstream --test route_watch_ipv6`
//! makes twenty starts of a lab of four clients, two servers and six gateways.

use crate::common;
use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

use crate::common::Lab;
use crate::watched::Fabric;

/// Hosts of a lab.
#[derive(Clone, Copy)]
struct Size {
    clients: usize,
    servers: usize,
    gateways: usize,
}

/// Addresses on a network, of both families.
fn addresses(network: &str, number: usize) -> [String; 2] {
    let (four, six) = if network == "compute" { ("10.100.0", "fd00:100:") } else { ("10.10.0", "fd00:10:") };
    [format!("{four}.{number}"), format!("{six}:{number:x}")]
}

fn lab_text(name: &str, size: Size) -> String {
    let mut text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"a lab of a test\"\n"
    );
    let ends =
        |prefix: &'static str, count, first| (1..=count).map(move |n| (format!("{prefix}{n}"), first + n));
    let gateways: Vec<(String, usize)> = ends("gw", size.gateways, 10).collect();
    let clients: Vec<(String, usize)> = ends("c", size.clients, 0).collect();
    let servers: Vec<(String, usize)> = ends("s", size.servers, 200).collect();
    for (host, _) in clients.iter().chain(&servers) {
        let _ = write!(text, "[[host]]\nname = \"{host}\"\n");
    }
    for (host, _) in &gateways {
        let _ = write!(text, "[[host]]\nname = \"{host}\"\nrouter = true\n");
    }
    for (network, hosts) in [("compute", &clients), ("storage", &servers)] {
        let _ = write!(text, "[[switch]]\nname = \"{network}-net\"\nends = [\n");
        for (host, number) in hosts.iter().chain(&gateways) {
            let [four, six] = addresses(network, *number);
            let _ = writeln!(
                text,
                "{{ host = \"{host}\", interface = \"{network}0\", addresses = [\"{four}/24\", \"{six}/64\"] }},"
            );
        }
        text.push_str("]\n");
    }
    text
}

fn fabric_text(size: Size) -> String {
    let mut text = "schema = \"clearstream.fabric\"\nversion = 1\nname = \"e2e-ipv6\"\n\
        [[network]]\nname = \"compute\"\nprefixes = [\"10.100.0.0/24\", \"fd00:100::/64\"]\n\
        [[network]]\nname = \"storage\"\nprefixes = [\"10.10.0.0/24\", \"fd00:10::/64\"]\n"
        .to_owned();
    let classes = [
        ("gateway", "gateway", "gw", size.gateways, 10, vec!["compute", "storage"]),
        ("compute", "compute", "c", size.clients, 0, vec!["compute"]),
        ("storage", "storage", "s", size.servers, 200, vec!["storage"]),
    ];
    for (name, role, prefix, count, first, networks) in classes {
        let _ = write!(
            text,
            "[[class]]\nname = \"{name}\"\nrole = \"{role}\"\nhosts = [\"{prefix}[1-{count}]\"]\n"
        );
        let (from, to) = (first + 1, first + count);
        for network in networks {
            let [four, six] = addresses(network, 0);
            let (four, six) = (four.trim_end_matches('0'), six.trim_end_matches('0'));
            let _ = write!(
                text,
                "[[class.link]]\nnetwork = \"{network}\"\ninterface = \"{network}0\"\n\
                 addresses = [\"{four}[{from}-{to}]\", \"{six}[{from:x}-{to:x}]\"]\n"
            );
        }
    }
    text + "[[route]]\nbetween = [\"compute\", \"storage\"]\nvia = [\"gateway\"]\nreturn-path = \"none\"\n"
}

/// A byte every 20 ms on each flow, half of them by IPv6; for each line of input it
/// prints how many IPv4 and IPv6 flows have had a response within the last second.
const PROBER: &str = r#"
import sys, socket, selectors, time
sel = selectors.DefaultSelector()
def serve(four, six):
    for family, address in ((socket.AF_INET, four), (socket.AF_INET6, six)):
        listener = socket.socket(family)
        listener.bind((address, 5555)); listener.listen(256)
        sel.register(listener, selectors.EVENT_READ, True)
    print("ready", flush=True)
    while True:
        for key, _ in sel.select():
            if key.data: sel.register(key.fileobj.accept()[0], selectors.EVENT_READ, False)
            else:
                data = key.fileobj.recv(4096)
                if data: key.fileobj.send(data)
                else: sel.unregister(key.fileobj); key.fileobj.close()
def request(count, four, six, *servers):
    flows = []
    for number in range(int(count)):
        server = servers[number // 2 % len(servers)].split(",")
        family, own = ((socket.AF_INET, four), (socket.AF_INET6, six))[number % 2]
        flow = socket.socket(family)
        flow.bind((own, 20000 + number)); flow.connect((server[number % 2], 5555)); flow.setblocking(False)
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sel.register(flow, selectors.EVENT_READ, number); flows.append(flow)
    sel.register(sys.stdin, selectors.EVENT_READ, None)
    last = [time.monotonic()] * len(flows); due = 0
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        if now >= due:
            for flow in flows:
                try: flow.send(b"x")
                except BlockingIOError: pass
            due = now + 0.02
        for key, _ in sel.select(max(0, due - time.monotonic())):
            if key.data is not None:
                if key.fileobj.recv(4096): last[key.data] = time.monotonic()
            elif not sys.stdin.readline(): return
            else:
                now = time.monotonic()
                print(*(sum(now - at < 1 for at in last[kind::2]) for kind in (0, 1)), flush=True)
serve(*sys.argv[2:]) if sys.argv[1] == "serve" else request(*sys.argv[2:])
"#;

/// Records the kernel's notifications of IPv6 route changes: those that came
/// before a line on standard input are written to the file. The socket's buffer
/// holds all of them, so that none is lost however slow this is.
const LISTENER: &str = r#"
import sys, socket
SO_RCVBUFFORCE, RTMGRP_IPV6_ROUTE = 33, 0x400
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
netlink.bind((0, RTMGRP_IPV6_ROUTE))
print("ready", flush=True)
sys.stdin.readline()
netlink.setblocking(False)
with open(sys.argv[1], "wb") as file:
    try:
        while True: file.write(netlink.recv(1 << 16))
    except BlockingIOError: pass
print("written", flush=True)
"#;

/// A program in a lab, ended with the value.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(fabric: &Fabric, host: &str, text: &str, arguments: &[String]) -> Self {
        let script = fabric.folder.path().join("program.py");
        fs::write(&script, text).unwrap();
        let mut line = vec!["/usr/bin/python3", script.to_str().unwrap()];
        line.extend(arguments.iter().map(String::as_str));
        let mut command = fabric.command(host, &line);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, input, output };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The response to a line: of the prober, flows with responses, by IPv4 and by IPv6.
    fn query(&mut self) -> String {
        self.input.write_all(b"?\n").unwrap();
        self.line()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hosts, without routes over the gateways.
fn up(name: &str, size: Size) -> Fabric {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("lab.toml");
    fs::write(&lab, lab_text(name, size)).unwrap();
    let file = folder.path().join("fabric.toml");
    fs::write(&file, fabric_text(size)).unwrap();
    let file = file.to_str().unwrap().to_owned();
    Fabric { lab: Lab::up(&lab, name), folder, file }
}

/// One start, and the death of the first gateway.
fn start(size: Size, flow_count: usize) {
    let fabric = up("e2e-watch-ipv6", size);
    let clients: Vec<String> = (1..=size.clients).map(|number| format!("c{number}")).collect();
    let servers: Vec<String> = (1..=size.servers).map(|number| format!("s{number}")).collect();
    let hosts: Vec<&String> = clients.iter().chain(&servers).collect();
    for host in &hosts {
        fabric.route(host, &["apply", &fabric.file, "--yes"]).ok();
    }
    let watches: Vec<_> = hosts.iter().map(|host| fabric.watch(host, &[])).collect();
    let both = |network: &str, number| addresses(network, number);
    let serve = |number: usize| [vec!["serve".to_owned()], both("storage", 200 + number).to_vec()].concat();
    let _servers: Vec<Program> = (1..=size.servers)
        .map(|number| Program::start(&fabric, &servers[number - 1], PROBER, &serve(number)))
        .collect();
    let targets: Vec<String> =
        (1..=size.servers).map(|number| both("storage", 200 + number).join(",")).collect();
    let request = |number: usize| {
        let own = both("compute", number).to_vec();
        [vec!["request".to_owned(), flow_count.to_string()], own, targets.clone()].concat()
    };
    let mut probers: Vec<Program> = (1..=size.clients)
        .map(|number| Program::start(&fabric, &clients[number - 1], PROBER, &request(number)))
        .collect();
    let all = format!("{} {}", flow_count / 2, flow_count / 2);
    let mut go_on = |what: &str| {
        common::eventually(Duration::from_secs(20), what, || {
            probers.iter_mut().all(|prober| prober.query() == all)
        });
    };
    go_on("all flows get responses");
    for interface in ["compute0", "storage0"] {
        fabric.exec("gw1", &format!("ip link set {interface} down"));
    }
    common::eventually(Duration::from_secs(20), "gw1 is out everywhere, for both families", || {
        watches.iter().all(|watch| watch.of("out").len() == 2)
    });
    go_on("all flows get responses without gw1");
    for client in &clients {
        let counters = fabric.exec(client, "cat /proc/net/snmp6");
        let dead = counters.lines().find_map(|line| line.strip_prefix("Ip6FragFails")).unwrap();
        assert_eq!(dead.trim(), "0", "{client} sent into dead routes");
    }
}

#[test]
fn root_ipv6_flows_go_on_at_the_first_death() {
    let starts = std::env::var("CLEARSTREAM_STARTS").ok().and_then(|count| count.parse().ok());
    let size = if starts.is_some() {
        Size { clients: 4, servers: 2, gateways: 6 }
    } else {
        Size { clients: 2, servers: 1, gateways: 2 }
    };
    for _ in 0..starts.unwrap_or(1) {
        start(size, 50);
    }
}

/// Each step of the generation is a route change that the kernel reports, and
/// `ip` decodes: there must be so many before the watch has started.
#[test]
fn root_a_watch_moves_the_generation_of_ipv6_routes_far() {
    let fabric = up("e2e-watch-generation", Size { clients: 1, servers: 1, gateways: 2 });
    fabric.route("c1", &["apply", &fabric.file, "--yes"]).ok();
    let record = fabric.folder.path().join("changes").to_str().unwrap().to_owned();
    let mut counts = Vec::new();
    for _ in 0..2 {
        let mut listener = Program::start(&fabric, "c1", LISTENER, std::slice::from_ref(&record));
        let watch = fabric.watch("c1", &[]);
        assert_eq!(listener.query(), "written");
        drop(watch);
        let shown = fabric.exec("c1", &format!("ip -6 monitor file {record}"));
        let (removed, changed): (Vec<&str>, Vec<&str>) = shown
            .lines()
            .filter(|line| line.contains(" 100:: "))
            .partition(|line| line.starts_with("Deleted"));
        assert_eq!(removed.len(), 1, "nothing is left");
        counts.push(changed.len());
    }
    assert!(counts.iter().all(|count| (4096..=16_383).contains(count)), "{counts:?}");
}
