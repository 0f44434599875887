use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
};

use crate::document::WireOutcome;
use clearstream_control::{Call, Peer, Services, memory_pair};
use clearstream_schema::control::Cookie;

use super::{super::calls::WireProtocol, *};

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn cookie() -> Cookie {
    Cookie("0123456789abcdef0123456789abcdef".to_owned())
}

fn agent() -> Peer {
    memory_pair(Services::new().with(ProofAgent::default())).unwrap()
}

fn refused<C: Call>(agent: &mut Peer, call: C) -> FailureKind {
    agent.call(&call).map(drop).unwrap_err().failure().unwrap().kind
}

fn listen(agent: &mut Peer) -> u16 {
    let listen = Listen { addresses: vec![LOOPBACK], port: None, cookie: cookie() };
    agent.call(&listen).unwrap().port
}

fn connect(agent: &mut Peer, port: u16, ports: Vec<u16>, cookie: Cookie) -> Vec<WireOutcome> {
    let flows = Connect {
        source: LOOPBACK,
        server: SocketAddr::new(LOOPBACK, port),
        ports,
        cookie,
        timeout_ms: 2_000,
        at_once: 16,
    };
    agent.call(&flows).unwrap().results.into_iter().map(|result| result.outcome).collect()
}

#[test]
fn flows_with_the_cookie_get_a_response_and_others_do_not() {
    let mut agent = agent();
    let port = listen(&mut agent);
    let ports: Vec<u16> = (21_000..21_100).collect();
    let taken = std::net::TcpListener::bind((LOOPBACK, 21_050)).unwrap();
    let outcomes = connect(&mut agent, port, ports.clone(), cookie());
    for (number, outcome) in ports.iter().zip(&outcomes) {
        let expected = if *number == 21_050 { WireOutcome::PortInUse } else { WireOutcome::Answered };
        assert_eq!(*outcome, expected, "{number}");
    }
    drop(taken);
    // The ports are free again at once: the flows ended with a reset.
    let stranger = connect(&mut agent, port, vec![21_000, 21_001], Cookie("f".repeat(32)));
    assert!(stranger.iter().all(|outcome| *outcome == WireOutcome::Reset), "{stranger:?}");
    agent.call(&Close {}).unwrap();
    assert_eq!(connect(&mut agent, port, vec![21_000], cookie()), [WireOutcome::Refused]);
}

#[test]
fn strangers_that_send_too_little_or_too_much_get_nothing() {
    let mut agent = agent();
    let port = listen(&mut agent);
    let mut stranger = TcpStream::connect((LOOPBACK, port)).unwrap();
    stranger.write_all(&[7; 1000]).unwrap();
    let mut received = Vec::new();
    // Closed, or reset because not all was read.
    let _ = stranger.read_to_end(&mut received);
    assert!(received.is_empty(), "{received:?}");
    assert_eq!(connect(&mut agent, port, vec![21_200], cookie()), [WireOutcome::Answered]);
}

#[test]
fn invalid_requests_are_rejected() {
    let mut agent = agent();
    let elsewhere: IpAddr = "192.0.2.1".parse().unwrap();
    let listen = Listen { addresses: vec![elsewhere], port: None, cookie: cookie() };
    assert_eq!(refused(&mut agent, listen), FailureKind::Invalid);
    let listen = Listen { addresses: vec![LOOPBACK], port: None, cookie: Cookie("x".to_owned()) };
    assert_eq!(refused(&mut agent, listen), FailureKind::Invalid);
    assert_eq!(refused(&mut agent, Observed {}), FailureKind::Invalid);
    let observe = Observe { ports: Vec::new(), interfaces: Vec::new(), seconds: 1 };
    assert_eq!(refused(&mut agent, observe), FailureKind::Invalid);
    let flows = Connect {
        source: elsewhere,
        server: SocketAddr::new(LOOPBACK, 9),
        ports: vec![21_300],
        cookie: cookie(),
        timeout_ms: 100,
        at_once: 1,
    };
    assert_eq!(refused(&mut agent, flows), FailureKind::Invalid);
}

#[test]
fn root_packets_are_counted_by_flow_and_direction() {
    let mut agent = agent();
    let port = listen(&mut agent);
    let observe = Observe { ports: vec![port], interfaces: vec!["lo".to_owned()], seconds: 60 };
    agent.call(&observe).unwrap();
    let outcomes = connect(&mut agent, port, (22_000..22_020).collect(), cookie());
    assert!(outcomes.iter().all(|outcome| *outcome == WireOutcome::Answered));
    let seen = agent.call(&Observed {}).unwrap();
    assert_eq!((seen.flows.len(), seen.lost_count, seen.truncated), (20, Some(0), false));
    for (flow, number) in seen.flows.iter().zip(22_000..) {
        assert_eq!(
            (flow.client.port(), flow.server.port(), flow.protocol),
            (number, port, WireProtocol::Tcp)
        );
        // SYN, its acknowledgement, the request, the reset;
        // on loopback each packet leaves and arrives.
        assert!(flow.forward.out_count >= 3 && flow.forward.in_count == flow.forward.out_count, "{flow:?}");
        assert!(flow.reply.out_count >= 2 && flow.reply.in_count == flow.reply.out_count, "{flow:?}");
    }
}

#[test]
fn lookups_return_each_flow_in_order() {
    let mut agent = agent();
    let lookup = Lookup {
        source: LOOPBACK,
        destination: LOOPBACK,
        protocol: WireProtocol::Tcp,
        mark: None,
        ports: vec![(1000, 80), (1001, 80)],
        input: None,
        explain: false,
    };
    let found = agent.call(&lookup).unwrap();
    // This host itself: no gateway, and no refusal.
    assert_eq!((found.choices, found.refusal), (vec![None, None], None));
}

#[test]
fn facts_are_those_that_ip_and_sysctl_show() {
    let mut agent = agent();
    let facts = agent.call(&Facts {}).unwrap();
    let loopback = facts.interface_of(LOOPBACK).unwrap();
    assert_eq!((loopback.name.as_str(), loopback.speed_bps), ("lo", None));
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", "lo"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mtu = shown.split_once("mtu ").unwrap().1.split_whitespace().next().unwrap();
    assert_eq!(loopback.mtu_bytes.to_string(), mtu);
    let forward = std::process::Command::new("sysctl").args(["-n", "net.ipv4.ip_forward"]).output().unwrap();
    assert_eq!(facts.sysctls["net.ipv4.ip_forward"], String::from_utf8(forward.stdout).unwrap().trim());
}

#[test]
fn root_more_flows_than_fit_into_a_reply_are_reported_in_several() {
    let mut agent = agent();
    let server = std::net::UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let to = server.local_addr().unwrap();
    let observe = Observe { ports: vec![to.port()], interfaces: Vec::new(), seconds: 60 };
    agent.call(&observe).unwrap();
    let count = 2 * MOST_OBSERVED_FLOWS + 10;
    for port in 23_000..23_000 + count {
        let client = std::net::UdpSocket::bind((LOOPBACK, u16::try_from(port).unwrap())).unwrap();
        client.send_to(b"x", to).unwrap();
    }
    let mut pages = Vec::new();
    loop {
        let seen = agent.call(&Observed {}).unwrap();
        let more = seen.more;
        // A serialized reply fits into a frame.
        assert!(clearstream_schema::json::to_vec(&seen).unwrap().len() < 1 << 20);
        pages.push(seen.flows);
        if !more {
            break;
        }
    }
    assert_eq!(pages.len(), 3);
    let ports: std::collections::BTreeSet<u16> =
        pages.iter().flatten().map(|flow| flow.client.port()).collect();
    assert_eq!(ports.len(), count);
    assert!(agent.call(&Observed {}).is_err(), "reported once");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_as_a_packet_or_not(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
        let _ = super::observe::read_flow(&bytes);
    }
}
