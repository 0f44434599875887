//! Rankings and placements on captured hosts, against what was measured on
//! machines like them (40GE report: pin matrix of the 8-core server, distances
//! of the 48-core server; TNC 2011 paper: its pin row).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clearstream_host::{HostRoot, capture, inspect};
use clearstream_place::document::{Closeness, RankedCore, Ranking, Role, SpreadMethod};
use clearstream_place::{
    PlaceError, placement,
    rank::rank,
    search::PortSpace,
    steering::{Request, steer},
};
use clearstream_schema::{
    flow::Protocol,
    host::{HostReport, LlcGroup, Nic, NowAndMax, NumaNode, ProcessingUnit, Rss},
    indirection::Indirection,
    plan::{Setting, Value},
};

fn fixture(name: &str) -> (HostRoot, HostReport) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(format!("{name}.tar.gz"));
    let captured = capture::open(&path).unwrap();
    (captured.root().clone(), inspect(captured.root()))
}

fn of(ranking: &Ranking, role: Role) -> &[RankedCore] {
    &ranking.roles.iter().find(|ranked| ranked.role == role).unwrap().cores
}

fn numbers(cores: &[RankedCore]) -> Vec<u32> {
    cores.iter().map(|core| core.core).collect()
}

/// "reader on the package of the interrupt core: + about 2 Gb/s; on the very
/// interrupt core: only + 1", and the other package below both.
#[test]
fn the_8_core_server_ranks_as_its_pin_matrix() {
    let (_, host) = fixture("nehalem");
    for interrupt in 0..8 {
        let ranking = rank(&host, "eth1", Some(interrupt)).unwrap();
        let readers = of(&ranking, Role::Reader);
        let package = |core: u32| host.packages.iter().position(|package| package.cores.contains(&core));
        let places: Vec<_> = readers
            .iter()
            .map(|reader| (package(reader.core) == package(interrupt), reader.core == interrupt))
            .collect();
        assert_eq!(places[..3], [(true, false); 3], "three other cores of its package first");
        assert_eq!(places[3], (true, true), "then itself");
        assert!(places[4..].iter().all(|place| !place.0), "then the other package");
    }
}

/// "receiving, other node of the same package loses 4 Gb/s"; a node two hops
/// away is behind it.
#[test]
fn the_48_core_server_ranks_as_its_pin_row() {
    let (_, host) = fixture("magny-cours-igb");
    let ranking = rank(&host, "eth1", None).unwrap();
    assert_eq!(ranking.node, Some(5), "the node attached to the I/O bridge");
    assert_eq!(numbers(&of(&ranking, Role::Interrupt)[..6]), [30, 31, 32, 33, 34, 35]);
    // The vector of the first queue went to core 32 on the captured machine.
    assert_eq!(ranking.interrupt_core, 32);
    let readers = of(&ranking, Role::Reader);
    assert_eq!(numbers(&readers[..6]), [30, 31, 33, 34, 35, 32]);
    assert!(readers[..5].iter().all(|core| core.closeness == Closeness::SharedCache));
    // Node 4 is the other die of the package; both are one hop of distance 16.
    assert!(readers[6..12].iter().all(|core| (core.node, core.distance) == (Some(4), Some(16))));
    let far: BTreeSet<_> = readers[36..].iter().map(|core| core.node).collect();
    assert_eq!(far, BTreeSet::from([Some(0), Some(6)]), "the nodes at distance 22 come last");
    let writers = of(&ranking, Role::Writer);
    assert!(writers[..6].iter().all(|core| core.node == Some(5)), "sending is best near the bridge");
    assert!(writers[36..].iter().all(|core| core.hops == Some(2)));
    assert!(readers[36].reason.contains("distance 22"), "{}", readers[36].reason);
}

#[test]
fn the_several_queues_of_igb_are_placed() {
    let (root, host) = fixture("magny-cours-igb");
    let placed = placement::plan(&root, &host, "eth1", 3).unwrap();
    assert_eq!((placed.method, placed.memory_node), (SpreadMethod::Queues, Some(5)));
    let softirq: Vec<u32> = placed.queues.iter().flat_map(|queue| queue.cores.clone()).collect();
    let interrupts: Vec<_> = placed.queues.iter().map(|queue| queue.interrupt.unwrap()).collect();
    assert_eq!(interrupts, [81, 82, 83]);
    for flow in &placed.flows {
        for core in [flow.reader_core, flow.writer_core] {
            assert!((30..36).contains(&core), "on the node of the interface");
            assert!(!softirq.contains(&core), "not on an interrupt core");
        }
    }
    assert_eq!(placed.flows.iter().map(|flow| flow.reader_core).collect::<BTreeSet<_>>().len(), 3);
    let steps = &placed.plan.steps;
    let at = |wanted: &str| {
        let found =
            steps.iter().position(|step| matches!(&step.setting, Setting::File(path) if path == wanted));
        found.unwrap_or_else(|| panic!("no step for {wanted}"))
    };
    let first = at("proc/irq/81/smp_affinity_list");
    assert_eq!(steps[first].current, Some(Value::Text("30-35".to_owned())));
    assert_eq!(steps[first].desired, Some(Value::Text(softirq[0].to_string())));
    assert!(first < at("sys/class/net/eth1/queues/tx-0/xps_cpus"));
    assert_eq!(
        placed.irqbalance_ban.as_deref(),
        Some("IRQBALANCE_ARGS=\"--banirq=81 --banirq=82 --banirq=83\"")
    );
    assert!(steps.iter().all(|step| !step.reason.is_empty()));
}

/// A table set by hand comes before the channels that it names, and is
/// read back in `current`.
#[test]
fn a_table_that_somebody_set_is_narrowed_before_the_channels_are_lowered() {
    let (root, mut host) = fixture("magny-cours-igb");
    let nic = host.nics.iter_mut().find(|nic| nic.name == "eth1").unwrap();
    nic.combined_channels = Some(NowAndMax { now_count: 8, max_count: 8 });
    let indirection = "0*64,6*32,7*32".parse::<Indirection>().unwrap().entries(128).unwrap();
    nic.rss = Some(Rss { indirection, ..Rss::default() });
    let placed = placement::plan(&root, &host, "eth1", 3).unwrap();
    let shown: Vec<_> = placed.plan.steps[..2]
        .iter()
        .map(|step| {
            let [current, desired] =
                [&step.current, &step.desired].map(|it| it.as_ref().unwrap().to_string());
            [step.setting.to_string(), current, desired]
        })
        .collect();
    assert_eq!(
        shown,
        [["eth1 rss indirection", "0*64,6*32,7*32", "equal 3"], ["eth1 channels combined", "8", "3"]]
    );
    assert!(placed.plan.steps[0].reason.contains("queue 7"), "{}", placed.plan.steps[0].reason);
}

/// The Toeplitz function by its definition (Microsoft, "RSS hashing functions"):
/// for each bit that is set, the 32 bits of the key from its place on.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let window = |at: usize| (at..at + 32).fold(0, |bits, at| bits << 1 | u32::from(bit(key, at)));
    (0..8 * input.len()).filter(|at| bit(input, *at) == 1).fold(0, |hash, at| hash ^ window(at))
}

/// Queue of a connection by what `ethtool -x` printed: the table's entries, and
/// the key on the line behind its title.
fn printed_queue(printed: &str, source: SocketAddr, destination: SocketAddr) -> u32 {
    let lines = || printed.lines().map(str::trim);
    let table: Vec<u32> = lines()
        .filter_map(|line| line.split_once(": ").filter(|(at, _)| at.parse::<u32>().is_ok()))
        .flat_map(|(_, entries)| entries.split_whitespace().map(|entry| entry.parse().unwrap()))
        .collect();
    let key = lines().skip_while(|line| !line.starts_with("RSS hash key")).nth(1).unwrap();
    let key: Vec<u8> = key.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let input = [octets(source.ip()), octets(destination.ip()), ports].concat();
    table[toeplitz(&key, &input) as usize % table.len()]
}

/// A card of Debian 12 with an uneven table (`ethtool -X eth2 weight 3 2 1 1`):
/// the ports land on the queues that were requested.
#[test]
fn ports_of_an_uneven_table_land_on_the_queues_of_ethtool() {
    let (root, host) = fixture("debian-12-virtio-rss");
    let printed = root.read("extra/ethtool_x_eth2.txt").unwrap();
    let nic = host.nics.iter().find(|nic| nic.name == "eth2").unwrap();
    for (source, destination) in
        [("192.0.2.1:0", "198.51.100.2:5201"), ("[2001:db8::1]:0", "[2001:db8:9::2]:5201")]
    {
        let request = |receive_queues: &[u32]| Request {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::Tcp,
            flows: 16,
            receive_queues: receive_queues.to_vec(),
            acknowledgement_queues: vec![],
            path: None,
            members: vec![],
        };
        for wanted in [vec![], vec![3, 0], vec![2]] {
            let request = request(&wanted);
            let steered = steer(&request, (&host, nic), None, &mut PortSpace::of_host(&host)).unwrap();
            let turn = if wanted.is_empty() { vec![0, 1, 2, 3] } else { wanted };
            let landed: Vec<u32> = steered
                .flows
                .iter()
                .map(|flow| {
                    let source = SocketAddr::new(request.source.ip(), flow.source_port);
                    printed_queue(&printed, source, request.destination)
                })
                .collect();
            assert_eq!(landed, turn.iter().copied().cycle().take(16).collect::<Vec<_>>(), "{source}");
            let ports: BTreeSet<u16> = steered.flows.iter().map(|flow| flow.source_port).collect();
            assert_eq!(ports.len(), 16, "a port of its own for each flow");
        }
    }
}

/// More flows than the node has room for: no reader on an interrupt core.
#[test]
fn a_crowd_shares_readers_and_not_interrupt_cores() {
    let (root, host) = fixture("magny-cours-igb");
    let placed = placement::plan(&root, &host, "eth1", 16).unwrap();
    let softirq: Vec<u32> = placed.queues.iter().flat_map(|queue| queue.cores.clone()).collect();
    assert_eq!(softirq.len(), 3, "half of the six cores of the node");
    for flow in &placed.flows {
        assert!(!softirq.contains(&flow.reader_core) && (30..36).contains(&flow.reader_core));
    }
}

/// One receive queue, no node: distributed in software, and reported.
#[test]
fn virtio_falls_back_to_rps() {
    let (root, host) = fixture("magny-cours-igb");
    let placed = placement::plan(&root, &host, "eth0", 4).unwrap();
    assert_eq!((placed.method, placed.memory_node), (SpreadMethod::Software, None));
    let step = placed.plan.steps.iter().find(|step| {
        matches!(&step.setting, Setting::File(path) if path == "sys/class/net/eth0/queues/rx-0/rps_cpus")
    });
    assert_eq!(step.unwrap().desired, Some(Value::Text("0000,0000000f".to_owned())));
    assert!(placed.plan.advice.iter().any(|line| line.contains("RPS")), "{:?}", placed.plan.advice);
}

#[test]
fn an_unknown_interface_names_the_others() {
    let (_, host) = fixture("nehalem");
    let message = rank(&host, "eth9", None).unwrap_err().to_string();
    assert!(message.contains("no interface eth9") && message.contains("eth1"), "{message}");
}

/// Two nodes of two physical cores with two threads each: units 0-3 are the
/// first threads, 4-7 their siblings.
fn hand_made() -> HostReport {
    let unit = |core: u32| ProcessingUnit {
        core,
        online: true,
        package: Some(core % 4 / 2),
        node: Some(core % 4 / 2),
        core_id: Some(core % 4),
        siblings: vec![core % 4, core % 4 + 4],
        allowed: true,
    };
    let node = |node: u32, distances: [u32; 2]| NumaNode {
        node,
        cores: vec![node * 2, node * 2 + 1, node * 2 + 4, node * 2 + 5],
        memory_bytes: 1 << 30,
        free_bytes: 1 << 29,
        distances: distances.to_vec(),
    };
    HostReport {
        nodes: vec![node(0, [10, 21]), node(1, [21, 10])],
        llc_groups: (0..2)
            .map(|node| LlcGroup {
                level: 3,
                size_bytes: 8 << 20,
                cores: vec![node * 2, node * 2 + 1, node * 2 + 4, node * 2 + 5],
            })
            .collect(),
        processing_units: (0..8).map(unit).collect(),
        nics: vec![Nic {
            name: "eth0".to_owned(),
            node: Some(0),
            distances: vec![10, 21],
            hops: vec![0, 1],
            receive_queue_count: 1,
            ..Nic::default()
        }],
        ..HostReport::default()
    }
}

#[test]
fn siblings_stand_behind_the_interrupt_core_and_before_the_other_node() {
    let ranking = rank(&hand_made(), "eth0", Some(0)).unwrap();
    assert_eq!(numbers(of(&ranking, Role::Reader)), [1, 5, 0, 4, 2, 3, 6, 7]);
    assert_eq!(
        numbers(of(&ranking, Role::Interrupt)),
        [0, 1, 4, 5, 2, 3, 6, 7],
        "second threads after first ones"
    );
    assert!(of(&ranking, Role::Reader)[1].reason.contains("second thread"));
}

#[test]
fn cores_that_may_not_be_used_are_named() {
    let mut host = hand_made();
    host.processing_units[1].online = false;
    host.processing_units[5].allowed = false;
    host.limits.isolated_cores = vec![3];
    let ranking = rank(&host, "eth0", None).unwrap();
    let reasons: Vec<_> =
        ranking.excluded.iter().map(|excluded| (excluded.core, excluded.reason.as_str())).collect();
    assert_eq!(reasons[0], (1, "offline"));
    assert!(reasons[1].0 == 3 && reasons[1].1.contains("isolated"), "{reasons:?}");
    assert!(reasons[2].0 == 5 && reasons[2].1.contains("not allowed"), "{reasons:?}");
    // 0 and 4 are the interrupt core and its sibling; 7 is the only usable
    // thread of its physical core, 6 the second one of 2's.
    assert_eq!(numbers(of(&ranking, Role::Reader)), [0, 4, 2, 7, 6]);
    assert!(matches!(rank(&host, "eth0", Some(1)), Err(PlaceError::Core { core: 1, .. })));
    host.processing_units.iter_mut().for_each(|unit| unit.online = false);
    assert!(matches!(rank(&host, "eth0", None), Err(PlaceError::NoCores { .. })));
}

#[test]
fn an_unreported_node_is_not_guessed() {
    let mut host = hand_made();
    host.nics[0] = Nic { name: "eth0".to_owned(), ..Nic::default() };
    let ranking = rank(&host, "eth0", Some(2)).unwrap();
    assert_eq!(of(&ranking, Role::Reader)[0].core, 3);
    assert!(ranking.notes.iter().any(|note| note.contains("not known")), "{:?}", ranking.notes);
}
