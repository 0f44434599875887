//! Steering between described hosts, and the errors where it is impossible.

use std::collections::BTreeMap;

use clearstream_place::document::SteeredFlow;
use clearstream_place::{
    landed::{Seen, landed},
    path::PathHash,
    search::PortSpace,
    steering::{Request, SteeringError, steer},
};
use clearstream_schema::{
    flow::Protocol,
    host::{HostReport, Interrupt, InterruptQueue, Nic, QueueDirection, Rss},
};

/// "Verifying the RSS hash calculation", Microsoft.
const KEY: &str = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:\
                   6a:42:b7:3b:be:ac:01:fa";

fn nic(queues: u32) -> Nic {
    Nic {
        name: "eth0".to_owned(),
        driver: Some("ice".to_owned()),
        receive_queue_count: queues,
        rss: Some(Rss {
            hash_function: Some("toeplitz".to_owned()),
            key: Some(KEY.to_owned()),
            indirection: (0..128).map(|entry| entry % queues).collect(),
            fields: BTreeMap::from([
                ("tcp4".to_owned(), "sdfn".to_owned()),
                ("udp4".to_owned(), "sd".to_owned()),
            ]),
            ..Rss::default()
        }),
        ..Nic::default()
    }
}

fn host(nic: &Nic) -> HostReport {
    let interrupts = (0..nic.receive_queue_count).map(|queue| Interrupt {
        interrupt: 100 + queue,
        action: format!("ice-eth0-TxRx-{queue}"),
        counts: BTreeMap::new(),
        allowed_cores: vec![queue / 2],
        effective_cores: vec![queue.min(6)],
        node: None,
        queue: Some(InterruptQueue { interface: "eth0".to_owned(), direction: QueueDirection::Both, queue }),
    });
    HostReport { nics: vec![nic.clone()], interrupts: interrupts.collect(), ..HostReport::default() }
}

fn request() -> Request {
    Request {
        source: "192.0.2.1:0".parse().unwrap(),
        destination: "198.51.100.2:5201".parse().unwrap(),
        protocol: Protocol::Tcp,
        flows: 8,
        receive_queues: vec![],
        acknowledgement_queues: vec![],
        path: None,
        members: vec![],
    }
}

fn space() -> PortSpace {
    PortSpace::new(32_768, 60_999)
}

/// The measured first port of each queue, through the whole of it.
#[test]
fn round_robin_queues_get_the_measured_ports() {
    let nic = nic(8);
    let host = host(&nic);
    let ports = steer(&request(), (&host, &nic), None, &mut space()).unwrap();
    let found: Vec<_> = ports.flows.iter().map(|flow| flow.source_port).collect();
    assert_eq!(found, [32_773, 32_772, 32_781, 32_780, 32_769, 32_768, 32_777, 32_776]);
    let queues: Vec<_> = ports.flows.iter().map(|flow| flow.receive_queue.unwrap()).collect();
    assert_eq!(queues, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ports.flows[3].receive_core, Some(3));
}

#[test]
fn three_constraints_at_once() {
    let nic = nic(8);
    let host = host(&nic);
    let request = Request {
        receive_queues: vec![2, 7],
        acknowledgement_queues: vec![1],
        path: Some(PathHash::Crc32 { member_count: 4 }),
        members: vec![3],
        ..request()
    };
    let ports = steer(&request, (&host, &nic), Some(&nic), &mut space()).unwrap();
    for flow in &ports.flows {
        assert_eq!(flow.receive_queue, Some([2, 7][flow.flow as usize % 2]));
        assert_eq!((flow.acknowledgement_queue, flow.path_member), (Some(1), Some(3)));
    }
}

#[test]
fn reserved_and_taken_ports_are_left_out() {
    let mut report = HostReport::default();
    report.kernel.sysctls.insert("net.ipv4.ip_local_port_range".to_owned(), "40000\t40009".to_owned());
    report
        .kernel
        .sysctls
        .insert("net.ipv4.ip_local_reserved_ports".to_owned(), "40000-40003,40008".to_owned());
    let mut space = PortSpace::of_host(&report);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
    let table =
        "  sl  local_address rem_address   st\n   0: 0100007F:9C45 00000000:0000 0A 00000000:00000000\n";
    std::fs::write(folder.path().join("proc/net/tcp"), table).unwrap();
    space.exclude_taken(&clearstream_host::HostRoot::directory(folder.path()));
    assert_eq!(space.ports().collect::<Vec<_>>(), [40_004, 40_006, 40_007, 40_009]);
}

/// Each refusal names what to do about it.
#[test]
fn obstacles_are_named() {
    let change = |change: fn(&mut Rss)| {
        let mut nic = nic(8);
        change(nic.rss.as_mut().unwrap());
        nic
    };
    let cases: [(Nic, &str); 8] = [
        (Nic { rss: None, driver: Some("virtio_net".to_owned()), ..nic(8) }, "virtio_net"),
        (change(|rss| rss.key = None), "no hash key"),
        (change(|rss| rss.key = Some("0".repeat(80))), "reads as zeros"),
        (change(|rss| rss.key = Some("6d5a".to_owned())), "need 16"),
        (change(|rss| rss.hash_function = Some("crc32".to_owned())), "hfunc toeplitz"),
        (change(|rss| rss.input_transform = Some("unknown (0x8)".to_owned())), "xfrm none"),
        (change(|rss| drop(rss.fields.insert("tcp4".to_owned(), "sd".to_owned()))), "rx-flow-hash tcp4 sdfn"),
        (nic(1), "one queue"),
    ];
    for (nic, hint) in cases {
        let message = steer(&request(), (&host(&nic), &nic), None, &mut space()).unwrap_err().to_string();
        assert!(message.contains(hint) && message.starts_with("eth0"), "{hint}: {message}");
    }
    let nic = nic(8);
    let host = host(&nic);
    let udp = Request { protocol: Protocol::Udp, ..request() };
    let error = steer(&udp, (&host, &nic), None, &mut space()).unwrap_err();
    assert!(matches!(&error, SteeringError::Fields { kind, .. } if kind == "udp4"), "{error}");
    let none = Request { receive_queues: vec![8], ..request() };
    let message = steer(&none, (&host, &nic), None, &mut space()).unwrap_err().to_string();
    assert!(message.contains("queue 8") && message.contains("0-7"), "{message}");
    let message = steer(&request(), (&host, &nic), None, &mut PortSpace::new(5, 4)).unwrap_err().to_string();
    assert!(message.contains("flow 0") && message.contains("ip_local_port_range"), "{message}");
    let members = Request { members: vec![1], ..request() };
    assert!(matches!(steer(&members, (&host, &nic), None, &mut space()), Err(SteeringError::Request(_))));
}

#[test]
fn landing_is_proven_or_reported_as_unproven() {
    let mut nic = nic(8);
    let host = host(&nic);
    let requested = |queue: u32| SteeredFlow {
        flow: 0,
        source_port: 40_000,
        receive_queue: Some(queue),
        receive_hash: None,
        receive_core: Some(queue.min(6)),
        acknowledgement_queue: None,
        path_member: None,
        tried_count: 1,
    };
    let on = |core| Seen { core: Some(core), napi_id: None };
    let right = landed(&requested(3), on(3), &host, &nic);
    assert_eq!((right.confirmed, right.effective_queue), (Some(true), Some(3)));
    let wrong = landed(&requested(3), on(4), &host, &nic);
    assert_eq!((wrong.confirmed, wrong.effective_queue), (Some(false), Some(4)));
    // Queues 6 and 7 share core 6: the core proves nothing for them, and refutes others.
    assert_eq!(landed(&requested(7), on(6), &host, &nic).confirmed, None);
    assert_eq!(landed(&requested(3), on(6), &host, &nic).confirmed, Some(false));
    // No queue's interrupt goes there.
    assert_eq!(landed(&requested(3), on(40), &host, &nic).confirmed, Some(false));
    assert_eq!(landed(&requested(3), Seen::default(), &host, &nic).confirmed, None);
    nic.receive_napi = BTreeMap::from([(6, 8206), (7, 8207)]);
    let napi = landed(&requested(7), Seen { core: Some(6), napi_id: Some(8207) }, &host, &nic);
    assert_eq!((napi.confirmed, napi.effective_queue), (Some(true), Some(7)));
}

/// Weights, a queue without entries, a size that is no power of two, and
/// entries of queues that are gone: no flow is steered to what gets no packet.
#[test]
fn uneven_tables_are_steered_by_their_entries() {
    let mut nic = nic(8);
    let rss = nic.rss.as_mut().unwrap();
    // 100 entries: most to queue 0, none to 1, some to 2 and 3, the rest to 6.
    rss.indirection = (0..100).map(|entry| [0, 0, 0, 2, 3, 6][entry % 6]).collect();
    rss.queue_count = Some(4);
    let table = rss.indirection.clone();
    let host = host(&nic);
    let ports = steer(&request(), (&host, &nic), None, &mut space()).unwrap();
    let queues: Vec<_> = ports.flows.iter().map(|flow| flow.receive_queue.unwrap()).collect();
    assert_eq!(queues, [0, 2, 3, 0, 2, 3, 0, 2]);
    for flow in &ports.flows {
        let hash = u32::from_str_radix(flow.receive_hash.as_deref().unwrap(), 16).unwrap();
        assert_eq!(Some(table[hash as usize % 100]), flow.receive_queue);
    }
    let notes = ports.notes.join("\n");
    assert!(
        notes.contains("queue 6, which is not there any more") && notes.contains("100 entries"),
        "{notes}"
    );
    let wanted = Request { receive_queues: vec![6], ..request() };
    let error = steer(&wanted, (&host, &nic), None, &mut space()).unwrap_err();
    assert!(matches!(error, SteeringError::Queue { queue: 6, .. }), "{error}");
}
