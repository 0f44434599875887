//! Driver state in a separate network namespace, compared with ethtool run there: a veth pair with several
//! queues and offloads disabled.

use std::collections::BTreeMap;

use clearstream_netlink::ethtool::{Ethtool, EthtoolError};
use clearstream_testkit::namespace::Host;

#[test]
fn root_a_veth_pair_matches_ethtool() {
    let host = Host::new();
    host.tool("ip link add left.7 numtxqueues 4 numrxqueues 4 type veth peer name right");
    host.tool("ip link set left.7 up");
    host.tool("ip link set right up");
    host.tool("ethtool -K left.7 tso off gro on");
    host.tool("ethtool -L left.7 rx 3 tx 2");
    let mut ethtool = host.run(Ethtool::open).unwrap();

    let features = ethtool.features("left.7").unwrap();
    let printed = host.tool("ethtool -k left.7");
    let printed: BTreeMap<&str, bool> = printed
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(_, value)| !value.contains("[fixed]"))
        .map(|(name, value)| (name.trim(), value.starts_with("on")))
        .collect();
    assert!(printed.len() > 10, "{printed:?}");
    for (name, on) in printed {
        assert_eq!(features.get(name), Some(&on), "{name}");
    }
    assert!(!features["tcp-segmentation-offload"] && features["generic-receive-offload"]);

    let channels = ethtool.channels("left.7").unwrap();
    let receive = channels.receive.unwrap();
    assert_eq!((receive.now_count, receive.max_count), (3, 4));
    assert_eq!(channels.transmit.unwrap().now_count, 2);
    assert_eq!(channels.combined, None);
    // A veth pair reports 10 Gb/s.
    assert_eq!(ethtool.link_speed_bps("left.7").unwrap(), Some(10_000_000_000));
    assert!(host.tool("ethtool left.7").contains("Speed: 10000Mb/s"));
    assert!(matches!(ethtool.rss("left.7"), Err(EthtoolError::NotSupported { .. })));

    let driver = ethtool.driver_information("left.7").unwrap();
    assert_eq!(driver.name, "veth");
    let printed = host.tool("ethtool -i left.7");
    for (key, value) in [
        ("driver", Some(&driver.name)),
        ("version", driver.version.as_ref()),
        ("firmware-version", driver.firmware_version.as_ref()),
        ("bus-info", driver.bus.as_ref()),
    ] {
        let line = format!("{key}: {}", value.map_or("", String::as_str));
        assert!(printed.lines().any(|printed| printed.trim_end() == line.trim_end()), "{line}\n{printed}");
    }
}

#[test]
fn root_counters_of_a_driver_match_ethtool() {
    let host = Host::new();
    host.tool("ip link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1");
    host.tool("ip addr add 10.9.0.1/24 dev v0");
    host.tool("ip link set v0 up");
    host.tool("ip link set v1 up");
    let mut ethtool = host.run(Ethtool::open).unwrap();
    let counters = ethtool.statistics("v0").unwrap();
    // "NIC statistics:", then a line for each, in the driver's order.
    let printed = host.tool("ethtool -S v0");
    let printed: Vec<(&str, u64)> = printed
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    assert!(printed.iter().any(|(name, _)| *name == "rx_queue_0_drops"), "{printed:?}");
    let found: Vec<(&str, u64)> = counters.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(found, printed);
    // The number of its counters follows the channels.
    host.tool("ethtool -L v0 rx 1 tx 1");
    assert!(ethtool.statistics("v0").unwrap().len() < counters.len());
    assert!(matches!(ethtool.statistics("lo"), Err(EthtoolError::NotSupported { .. })));
    assert!(matches!(ethtool.pause_frames("v0"), Err(EthtoolError::NotSupported { .. })));
}
