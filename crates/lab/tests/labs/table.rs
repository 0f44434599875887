//! Link properties in real labs, for each backend. netem is tested where the
//! kernel has it; elsewhere its error is tested.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    time::{Duration, Instant},
};

use clearstream_lab::LabError;
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    lab::{DelayLineStats, LinkBackend},
};

use crate::common::{Inside, Lab, pair};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover, set_socket_recv_buffer_size_force};

/// Creates a lab with one link of a backend; `None`, with the reason printed,
/// where this kernel does not support it.
fn make(name: &str, link: &str, backend: LinkBackend) -> Option<Lab> {
    let mut file = pair(&format!("{name}-{}", if backend == LinkBackend::Netem { "n" } else { "d" }), link);
    file.links[0].backend = backend;
    match Lab::up(&file) {
        Ok(lab) => Some(lab),
        Err(error) if backend == LinkBackend::Netem && error.failure_kind() == FailureKind::Unsupported => {
            assert!(error.to_string().contains("netem"), "{error}");
            #[expect(clippy::print_stderr, reason = "no silent skip")]
            {
                eprintln!("SKIPPED {name} with netem: {error}");
            }
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

const BACKENDS: [LinkBackend; 2] = [LinkBackend::DelayLine, LinkBackend::Netem];

/// Opens two sockets, one on each host, connected to each other.
fn sockets(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let (here, there) = (Inside::of(&lab.0, "here"), Inside::of(&lab.0, "there"));
    let one = here.run(|| UdpSocket::bind("10.0.0.1:0").unwrap());
    let two = there.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
    one.connect(two.local_addr().unwrap()).unwrap();
    two.connect(one.local_addr().unwrap()).unwrap();
    for socket in [&one, &two] {
        // Room for all that a test sends: missing packets were lost on the
        // path, not here because of busy cores.
        set_socket_recv_buffer_size_force(socket, 32 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    (one, two)
}

fn round_trip(one: &UdpSocket, two: &UdpSocket) -> Duration {
    let mut buffer = [0; 64];
    let start = Instant::now();
    one.send(b"ping").unwrap();
    let bytes = two.recv(&mut buffer).unwrap();
    two.send(&buffer[..bytes]).unwrap();
    one.recv(&mut buffer).unwrap();
    start.elapsed()
}

#[test]
fn root_no_packet_is_early() {
    for backend in BACKENDS {
        for (link, least_us) in [
            ("delay = \"8.5ms\"", 17_000),
            ("delay = \"1ms\"", 2_000),
            ("delay = \"3ms\"\njitter = \"1ms\"", 4_000),
            // 4 bytes in an IP packet of 32, 256 bits: 2.56 ms at 100 kb/s.
            ("delay = \"1ms\"\nrate = \"100kb/s\"", 2_000 + 2 * 2_560),
        ] {
            let Some(lab) = make("early", link, backend) else { break };
            let (one, two) = sockets(&lab);
            round_trip(&one, &two);
            let times: Vec<Duration> = (0..20).map(|_| round_trip(&one, &two)).collect();
            let least = Duration::from_micros(least_us);
            assert!(times.iter().all(|time| *time >= least), "{link}: {times:?}");
            // Generous: cores may be busy. Lateness is measured elsewhere.
            let best = times.iter().min().unwrap();
            assert!(*best < least + Duration::from_millis(20), "{link}: {best:?}");
        }
    }
}

/// Sends numbered packets in one direction; returns how many arrived, and
/// checks their order.
fn stream(lab: &Lab, count: u32, bytes: usize) -> u32 {
    let (one, two) = sockets(lab);
    two.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut arrived, mut last, mut buffer) = (0, None, [0; 9000]);
        while let Ok(length) = two.recv(&mut buffer) {
            assert_eq!(length, bytes);
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
            last = Some(number);
            arrived += 1;
        }
        arrived
    });
    let mut packet = vec![0; bytes];
    for number in 0..count {
        packet[..4].copy_from_slice(&number.to_be_bytes());
        one.send(&packet).unwrap();
    }
    receiver.join().unwrap()
}

#[test]
fn root_losses_have_the_requested_ratio() {
    for backend in BACKENDS {
        for (loss, link) in [
            (0.0, "delay = \"2ms\"\njitter = \"1ms\""),
            (0.02, "delay = \"1ms\"\nloss-ratio = 0.02\nseed = 5"),
            (0.3, "loss-ratio = 0.3\nseed = 9\ndelay = \"1ms\""),
            (1.0, "loss-ratio = 1.0\ndelay = \"1ms\""),
        ] {
            let Some(lab) = make("loss", link, backend) else { break };
            let count = 4000;
            let arrived = f64::from(stream(&lab, count, 200));
            let (mean, deviation) =
                (f64::from(count) * (1.0 - loss), (f64::from(count) * loss * (1.0 - loss)).sqrt());
            assert!((arrived - mean).abs() <= 5.0 * deviation, "{loss}: {arrived} of {count}");
            if backend == LinkBackend::DelayLine {
                let forth = forth(&lab);
                assert!(forth.lost_count + forth.passed_segment_count >= u64::from(count), "{forth:?}");
                assert_eq!(forth.overflow_count, 0);
            }
        }
    }
}

fn forth(lab: &Lab) -> DelayLineStats {
    lab.0.delay_line_stats().unwrap().into_iter().find(|line| line.from == "here").unwrap()
}

#[test]
fn root_rate_is_never_exceeded_and_the_queue_ends() {
    for backend in BACKENDS {
        // 200 packets of 1028 bytes are 1 644 800 bits: 164 ms at 10 Mb/s.
        let Some(lab) = make("rate", "delay = \"1ms\"\nrate = \"10Mb/s\"\nqueue = \"1s\"", backend) else {
            break;
        };
        let (one, two) = sockets(&lab);
        let start = Instant::now();
        for _ in 0..200 {
            one.send(&[7; 1000]).unwrap();
        }
        let mut buffer = [0; 1500];
        let arrived = (0..200).take_while(|_| two.recv(&mut buffer).is_ok()).count();
        assert_eq!(arrived, 200);
        let took = start.elapsed();
        assert!(took >= Duration::from_micros(164_480), "{took:?}");
    }
    // A queue of 20 ms at 10 Mb/s has room for 24 packets of this size, and one
    // is in transmission. The burst takes a while, so some more are accepted;
    // not all.
    let lab = make("queue", "rate = \"10Mb/s\"\nqueue = \"20ms\"", LinkBackend::DelayLine).unwrap();
    let arrived = {
        let (one, two) = sockets(&lab);
        two.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        for _ in 0..500 {
            one.send(&[7; 1000]).unwrap();
        }
        let mut buffer = [0; 1500];
        (0..500).take_while(|_| two.recv(&mut buffer).is_ok()).count()
    };
    assert!((25..500).contains(&arrived), "{arrived}");
    let forth = forth(&lab);
    // The kernel's own few packets (ARP, neighbour discovery) pass or are
    // dropped in addition.
    let dropped = forth.overflow_count + forth.relay_dropped_count;
    let others = forth.passed_count + dropped - 500;
    assert!((500 - arrived as u64..=500 - arrived as u64 + others).contains(&dropped), "{forth:?}");
    assert!(others < 10, "{forth:?}");
}

#[test]
fn root_mtu_is_the_links() {
    for backend in BACKENDS {
        let Some(lab) = make("mtu", "delay = \"1ms\"\nmtu = 3000", backend) else { break };
        let (one, two) = sockets(&lab);
        // Packets that do not fit are rejected (ip(7)).
        set_ip_mtu_discover(&one, Ipv4PathMtuDiscovery::DO).unwrap();
        one.send(&[0; 3000 - 28]).unwrap();
        let mut buffer = [0; 4000];
        assert_eq!(two.recv(&mut buffer).unwrap(), 3000 - 28);
        assert_eq!(one.send(&[0; 3000 - 27]).unwrap_err().raw_os_error(), Some(90), "EMSGSIZE");
    }
}

/// `ping -M do -s` counts neither the IP header of 20 bytes nor ICMP's of 8.
#[test]
fn root_black_hole_drops_large_packets_silently() {
    let file = pair("hole", "delay = \"1ms\"\nmtu = 9000\nblack-hole-above = 1500");
    let lab = Lab::up(&file).unwrap();
    for (size, passes) in [("1472", true), ("1473", false), ("8972", false)] {
        let mut ping = Command::new("ping");
        ping.args(["-c", "2", "-i", "0.2", "-W", "1", "-M", "do", "-s", size, "10.0.0.2"]);
        let output = lab.0.command("here", ping).unwrap().output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.success(), passes, "{size}: {text}");
        assert!(!text.contains("Frag needed") && !text.contains("too long"), "{text}");
    }
}

/// TCP data over a lossy link arrives unchanged: GSO packets are split around
/// lost segments and repaired.
#[test]
fn root_tcp_is_whole_over_a_lossy_link() {
    for (link, address) in [
        ("delay = \"1ms\"\nloss-ratio = 0.01\nseed = 3\nmtu = 1500", "10.0.0.2:0"),
        ("delay = \"1ms\"\nloss-ratio = 0.01\nseed = 4\nmtu = 1500", "[fd00::2]:0"),
        ("delay = \"2ms\"\njitter = \"1ms\"\nrate = \"1Gb/s\"", "10.0.0.2:0"),
    ] {
        let lab = make("tcp", link, LinkBackend::DelayLine).unwrap();
        let (here, there) = (Inside::of(&lab.0, "here"), Inside::of(&lab.0, "there"));
        let listener = there.run(|| TcpListener::bind(address).unwrap());
        let to = listener.local_addr().unwrap();
        let length = 8 << 20;
        let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
        let sender = std::thread::spawn(move || {
            let mut stream: TcpStream = here.run(|| TcpStream::connect(to).unwrap());
            let bytes: Vec<u8> = (0..length).map(pattern).collect();
            stream.write_all(&bytes).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut arrived = Vec::with_capacity(length);
        stream.read_to_end(&mut arrived).unwrap();
        sender.join().unwrap();
        assert_eq!(arrived.len(), length);
        assert!(arrived.iter().enumerate().all(|(at, byte)| *byte == pattern(at)), "{link}");
        let forth = forth(&lab);
        assert!(forth.passed_segment_count > forth.passed_count, "joined packets passed: {forth:?}");
        if link.contains("loss") {
            assert!(forth.lost_count > 0, "{forth:?}");
        }
    }
}

#[test]
fn root_line_counters_are_reset_on_request() {
    let lab = make("again", "delay = \"1ms\"", LinkBackend::DelayLine).unwrap();
    let (one, two) = sockets(&lab);
    round_trip(&one, &two);
    let stats = lab.0.delay_line_stats().unwrap();
    let directions: Vec<(&str, &str)> =
        stats.iter().map(|line| (line.from.as_str(), line.to.as_str())).collect();
    assert_eq!(directions, [("here", "there"), ("there", "here")]);
    assert!(stats.iter().all(|line| line.passed_count > 0 && line.late_max_ns >= line.late_p50_ns));
    let before = forth(&lab).passed_count;
    lab.0.reset_delay_line_stats().unwrap();
    assert!(forth(&lab).passed_count < before.max(2));
    let plain = make("plain", "", LinkBackend::Veth).unwrap();
    assert!(plain.0.delay_line_stats().unwrap().is_empty());
}

#[test]
fn root_netem_is_supported_or_rejected_by_name() {
    let mut file = pair("netem", "delay = \"1ms\"");
    file.links[0].backend = LinkBackend::Netem;
    match Lab::up(&file) {
        Ok(_) => {}
        Err(error @ LabError::Keeper { .. }) => {
            assert_eq!(error.failure_kind(), FailureKind::Unsupported);
            let message = error.to_string();
            assert!(message.contains("netem") && message.contains("link[0].backend"), "{message}");
            assert!(message.contains("delay-line"), "{message}");
        }
        Err(error) => panic!("{error}"),
    }
}
