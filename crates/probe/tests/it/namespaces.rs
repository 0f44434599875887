//! Real paths: two hosts and a router in network namespaces created with
//! iproute2, checked against the configuration and `ping`.
//! Needs root; their names begin with `root_`.

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, TcpStream},
    os::fd::AsFd,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use clearstream_control::{Peer, Services, memory_pair};
use clearstream_probe::{ProbeAgent, Responder, run};
use clearstream_schema::{
    TimeSpan,
    control::Cookie,
    probe::{ClockSource, ProbeConfig, ProbeSummary},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const CLIENT: &str = "10.99.1.1";
const SERVER: &str = "10.99.2.1";

/// client -- router -- server, removed when dropped.
struct Path {
    client: String,
    router: String,
    server: String,
}

fn ip(arguments: &str) -> Output {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn enable_forwarding(namespace: &str) {
    let write = "echo 1 > /proc/sys/net/ipv4/ip_forward";
    let status = Command::new("ip").args(["netns", "exec", namespace, "sh", "-c", write]).status().unwrap();
    assert!(status.success());
}

impl Path {
    /// `middle_mtu` is the MTU of the link between router and server; both ends of the client's link have
    /// 1500.
    fn new(middle_mtu: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("csprobe-{}-{number}-{role}", std::process::id());
        let path = Self { client: name("c"), router: name("r"), server: name("s") };
        let Self { client: c, router: r, server: s } = &path;
        for host in [c, r, s] {
            ip(&format!("netns add {host}"));
            ip(&format!("-n {host} link set lo up"));
        }
        ip(&format!("-n {c} link add one type veth peer name left netns {r}"));
        ip(&format!(
            "-n {s} link add one mtu {middle_mtu} type veth peer name right mtu {middle_mtu} netns {r}"
        ));
        for (host, link, address) in [
            (c, "one", "10.99.1.1/24"),
            (r, "left", "10.99.1.2/24"),
            (r, "right", "10.99.2.2/24"),
            (s, "one", "10.99.2.1/24"),
        ] {
            ip(&format!("-n {host} addr add {address} dev {link}"));
            ip(&format!("-n {host} link set {link} up"));
        }
        ip(&format!("-n {c} route add default via 10.99.1.2"));
        ip(&format!("-n {s} route add default via 10.99.2.2"));
        enable_forwarding(r);
        path
    }

    /// Stops the router's own ICMP messages: they are discarded by a rule.
    fn silence_router(&self) {
        ip(&format!("-n {} rule add iif lo ipproto icmp type blackhole", self.router));
    }

    /// Runs nft(8) in the client's namespace.
    fn filter_at_client(&self, rules: &str) {
        let output = Command::new("ip").args(["netns", "exec", &self.client, "nft", rules]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn probe(&self) -> ProbeSummary {
        let mut client = peer_in(&self.client);
        let mut server = peer_in(&self.server);
        let config = ProbeConfig {
            count: 20,
            interval: TimeSpan::from_millis(5),
            timeout: TimeSpan::from_millis(500),
            ..ProbeConfig::default()
        };
        let server_address: IpAddr = SERVER.parse().unwrap();
        run(&mut client, &mut server, None, server_address, &config, &AtomicBool::new(false)).unwrap()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for host in [&self.client, &self.router, &self.server] {
            let _ = Command::new("ip").args(["netns", "del", host]).output();
        }
    }
}

/// An agent whose threads live in the namespace: threads inherit it.
fn peer_in(namespace: &str) -> Peer {
    inside(namespace, || memory_pair(Services::new().with(ProbeAgent::default())).unwrap())
}

/// Runs `act` on a thread in the namespace.
fn inside<T: Send + 'static>(namespace: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        act()
    })
    .join()
    .unwrap()
}

fn ids(summary: &ProbeSummary) -> Vec<&str> {
    summary.directions.iter().flat_map(|one| &one.notices).map(|notice| notice.id.as_str()).collect()
}

/// Minimum round trip by `ping`, in nanoseconds.
fn ping_min_ns(path: &Path) -> f64 {
    let output = ip(&format!("netns exec {} ping -n -q -c 20 -i 0.01 {SERVER}", path.client));
    let text = String::from_utf8(output.stdout).unwrap();
    // rtt min/avg/max/mdev = 0.033/0.050/0.071/0.009 ms
    let figures = text.rsplit("= ").next().unwrap();
    figures.split('/').next().unwrap().parse::<f64>().unwrap() * 1e6
}

#[test]
fn root_two_links_are_two_hops_and_delays_are_of_the_order_of_ping() {
    let path = Path::new(1500);
    let ping_ns = ping_min_ns(&path);
    let summary = path.probe();
    assert_eq!(summary.directions.len(), 2, "{:?}", ids(&summary));
    for (direction, from, to) in
        [(&summary.directions[0], CLIENT, SERVER), (&summary.directions[1], SERVER, CLIENT)]
    {
        assert_eq!(direction.from_address.unwrap().to_string(), from);
        assert_eq!(direction.to_address.unwrap().to_string(), to);
        assert_eq!(direction.hop_count, Some(2));
        assert_eq!(direction.path_mtu_bytes, Some(1500));
        for stats in [direction.udp.as_ref().unwrap(), direction.tcp.as_ref().unwrap()] {
            assert_eq!(stats.clock, ClockSource::Kernel, "veth has software timestamps");
            assert_eq!((stats.answered_count, stats.sent_count), (20, 20));
            let ratio = stats.min_ns as f64 / ping_ns;
            assert!((0.01..100.0).contains(&ratio), "{} ns against {ping_ns} ns of ping", stats.min_ns);
        }
    }
    assert_eq!(ids(&summary), Vec::<&str>::new());
}

/// Saturates a link of 2 Mb/s and keeps a backlog of 200 ms in front of it, until dropped.
struct Filler(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Filler {
    fn start(path: &Path) -> Self {
        const EVERY: Duration = Duration::from_millis(4);
        let file = File::open(format!("/run/netns/{}", path.client)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let socket = std::net::UdpSocket::bind("10.99.1.1:0").unwrap();
            let started = std::time::Instant::now();
            let mut due = 50;
            let mut sent = 0;
            while !seen.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(60) {
                while sent < due {
                    // Port 9 is discard; 958 octets are 1000 on Ethernet.
                    let _ = socket.send_to(&[0; 958], "10.99.1.2:9");
                    sent += 1;
                }
                std::thread::sleep(EVERY);
                due = 50 + u32::try_from(started.elapsed().as_nanos() / EVERY.as_nanos()).unwrap();
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

/// A queue of 200 ms in front of the client's driver: `ping` includes it; the probe reports it separately
/// from the delays of the path.
#[test]
fn root_a_queue_at_the_sending_host_is_separated_from_the_path() {
    let path = Path::new(1500);
    ip(&format!(
        "netns exec {} tc qdisc add dev one root tbf rate 2mbit burst 2000 limit 1000000",
        path.client
    ));
    let filler = Filler::start(&path);
    let summary = path.probe();
    let ping_ns = ping_min_ns(&path);
    drop(filler);
    let bound_ns = 100_000_000;
    assert!(ping_ns > f64::from(bound_ns), "the queue is there: {ping_ns} ns by ping");
    let there = &summary.directions[0];
    let (udp, tcp) = (there.udp.as_ref().unwrap(), there.tcp.as_ref().unwrap());
    assert_eq!(udp.clock, ClockSource::Kernel);
    // Messages that wait for TCP's window are sent together and have one timestamp: then the whole series
    // uses the program's clock, queue included.
    assert!(tcp.clock == ClockSource::Kernel || tcp.min_ns > bound_ns as u64, "{tcp:?}");
    for stats in [udp, tcp].into_iter().filter(|stats| stats.clock == ClockSource::Kernel) {
        let (queueing, with) = (stats.local_queueing.unwrap(), stats.with_local_queueing.unwrap());
        assert!(queueing.min_ns > bound_ns as u64, "{queueing:?}");
        assert!(stats.min_ns < queueing.min_ns, "the path itself has no queue: {stats:?}");
        assert!(with.min_ns > queueing.min_ns && with.max_ns > stats.max_ns, "{with:?}");
    }
    // Queueing at the responding host is part of the path to the other one.
    let back = summary.directions[1].udp.as_ref().unwrap();
    assert!(
        back.min_ns > bound_ns as u64 && back.local_queueing.unwrap().min_ns < bound_ns as u64,
        "{back:?}"
    );
    let ids = ids(&summary);
    assert!(ids.contains(&"udp-local-queueing"), "{ids:?}");
}

/// Every fifth segment with data is dropped after the client's queueing discipline: its retransmission is the
/// first that reaches the driver, and later segments wait at the server. No delay is 0 for it, and none is
/// shorter than one without loss.
#[test]
fn root_delays_with_loss_are_plausible() {
    let path = Path::new(1500);
    path.filter_at_client(
        "add table netdev loss; add chain netdev loss out { type filter hook egress device \"one\" priority 0; }; \
         add rule netdev loss out ip protocol tcp meta length > 100 numgen inc mod 5 == 0 drop",
    );
    let ping_ns = ping_min_ns(&path);
    let summary = path.probe();
    for direction in &summary.directions {
        let stats = direction.tcp.as_ref().unwrap();
        assert!(stats.min_ns > 0 && stats.min_ns as f64 > ping_ns / 100.0, "{stats:?}");
        assert_eq!(stats.answered_count, 20, "TCP delivers all: {stats:?}");
    }
    let udp = summary.directions[0].udp.as_ref().unwrap();
    assert_eq!((udp.clock, udp.local_lost_count), (ClockSource::Kernel, Some(0)));
}

/// A probe in the format documented in wire.rs.
fn message(sequence: u32, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    bytes[..6].copy_from_slice(&[b'C', b'S', b'P', b'R', 1, 2]);
    bytes[8..24].copy_from_slice(&[0xab; 16]);
    bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
    bytes[40..44].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// Reads the reply to a message of this size and returns its turnaround.
fn turnaround(stream: &mut TcpStream, sequence: u32, size: usize) -> Duration {
    let mut bytes = vec![0; size];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!((bytes[5], &bytes[24..28]), (0x82, sequence.to_be_bytes().as_slice()));
    Duration::from_nanos(u64::from_be_bytes(*bytes[32..].first_chunk().unwrap()))
}

/// The second of three messages is lost repeatedly: the third one is at the responder long before it can be
/// read. The time until then is the path's, not the responder's: subtracted from a round trip it would leave
/// nothing.
#[test]
fn root_waiting_for_a_retransmission_is_not_turnaround() {
    let path = Path::new(1500);
    let cookie = Cookie("ab".repeat(16));
    let responder =
        inside(&path.server, move || Responder::open(Some(SERVER.parse().unwrap()), None, &cookie)).unwrap();
    let to = responder.tcp();
    let mut stream = inside(&path.client, move || TcpStream::connect(to)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The kernel enables timestamps of arrivals with a delay.
    for sequence in 0..20 {
        stream.write_all(&message(sequence, 64)).unwrap();
        turnaround(&mut stream, sequence, 64);
    }
    path.filter_at_client(
        "add table netdev loss; add chain netdev loss out { type filter hook egress device \"one\" priority 0; }; \
         add rule netdev loss out ip protocol tcp meta length > 200 drop",
    );
    stream.write_all(&message(20, 300)).unwrap();
    stream.write_all(&message(21, 64)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let let_through = std::time::Instant::now();
    path.filter_at_client("delete table netdev loss");
    for (sequence, size) in [(20, 300), (21, 64)] {
        let held = turnaround(&mut stream, sequence, size);
        let elapsed = let_through.elapsed();
        assert!(held < elapsed, "message {sequence} was held for {held:?} within {elapsed:?}");
    }
}

/// Half of the datagrams are dropped in the local queue: they are counted there.
#[test]
fn root_drops_of_the_local_queue_are_counted_there() {
    let path = Path::new(1500);
    path.filter_at_client(
        "add table netdev loss; add chain netdev loss out { type filter hook egress device \"one\" priority 0; }; \
         add rule netdev loss out ip protocol udp meta length < 120 numgen inc mod 2 == 1 drop",
    );
    let summary = path.probe();
    let stats = summary.directions[0].udp.as_ref().unwrap();
    assert_eq!(stats.sent_count - stats.answered_count, 10, "{stats:?}");
    assert_eq!((stats.local_lost_count, stats.forward_lost_count), (Some(10), Some(10)));
}

#[test]
fn root_a_smaller_link_reported_by_icmp_is_found() {
    let path = Path::new(1400);
    let summary = path.probe();
    let there = &summary.directions[0];
    assert_eq!((there.path_mtu_bytes, there.route_mtu_bytes), (Some(1400), Some(1500)));
    let back = &summary.directions[1];
    assert_eq!((back.path_mtu_bytes, back.route_mtu_bytes), (Some(1400), Some(1400)));
    assert_eq!(ids(&summary), ["path-mtu-below-route"]);
}

#[test]
fn root_a_black_hole_is_found_and_named() {
    let path = Path::new(1337);
    path.silence_router();
    let summary = path.probe();
    assert_eq!(summary.directions[0].path_mtu_bytes, Some(1337), "no plateau, no ICMP: found by search");
    assert_eq!(summary.directions[0].route_mtu_bytes, Some(1500), "the route is unchanged");
    assert_eq!(ids(&summary), ["path-mtu-black-hole"]);
}

#[test]
fn root_a_path_that_fails_is_an_error_not_a_hang() {
    let path = Path::new(1500);
    let mut client = peer_in(&path.client);
    let mut server = peer_in(&path.server);
    ip(&format!("-n {} link set right down", path.router));
    let config = ProbeConfig {
        count: 3,
        interval: TimeSpan::from_millis(5),
        timeout: TimeSpan::from_millis(100),
        ..ProbeConfig::default()
    };
    let started = std::time::Instant::now();
    let error =
        run(&mut client, &mut server, None, SERVER.parse().unwrap(), &config, &AtomicBool::new(false))
            .unwrap_err();
    assert!(error.to_string().contains(SERVER), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
}
