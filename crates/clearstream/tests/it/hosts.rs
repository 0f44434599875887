//! `clearstream inspect` and `clearstream probe` as a person runs them.

use crate::common::{assert_valid, run};

#[test]
fn describes_this_host_as_the_kernel_does() {
    let host = run(&["inspect", "--json"]).json();
    assert_valid("host", &host);
    let online = std::thread::available_parallelism().unwrap().get();
    let units = host["processing_units"].as_array().unwrap();
    assert!(units.iter().filter(|unit| unit["allowed"] == true).count() >= online);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(host["kernel"]["release"], release.trim());
}

#[test]
fn a_captured_host_reads_as_the_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("host.tar.gz");
    let picture = folder.path().join("host.svg");
    let (bundle, picture) = (bundle.to_str().unwrap(), picture.to_str().unwrap());
    run(&["inspect", "--capture", bundle]).ok();
    let live = run(&["inspect", "--json"]).json();
    let captured = run(&["inspect", "--from", bundle, "--json", "--svg", picture]).json();
    for part in ["packages", "llc_groups", "l2_cache_bytes", "pci_devices"] {
        assert_eq!(captured[part], live[part], "{part}");
    }
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg"));
}

#[test]
fn refuses_what_is_no_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not-a-bundle.tar.gz");
    std::fs::write(&path, "hello").unwrap();
    run(&["inspect", "--from", path.to_str().unwrap()]).refused(7, &["not-a-bundle.tar.gz"]);
    run(&["inspect", "--from", "/nonexistent/bundle.tar.gz"]).refused(7, &["/nonexistent/bundle.tar.gz"]);
}

#[test]
fn probes_both_directions_and_computes_the_window() {
    let probe =
        run(&["probe", "localhost", "--count", "20", "--interval", "5ms", "--rate", "19Gb/s", "--json"])
            .json();
    let directions = probe["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2, "there and back");
    let mut lowest = u64::MAX;
    for direction in directions {
        for protocol in ["udp", "tcp"] {
            let stats = &direction[protocol];
            assert_eq!(stats["answered_count"], stats["sent_count"], "loopback loses nothing: {stats}");
            lowest = lowest.min(stats["min_ns"].as_u64().unwrap());
        }
        // lo has an MTU of 65536, but the total length of an IPv4 packet has 16 bits (RFC 791).
        assert_eq!(direction["path_mtu_bytes"], 65535);
        assert_eq!(direction["hop_count"], 1);
    }
    // Rate x RTT / 8, the report's formula.
    let product = probe["bandwidth_delay_product_bytes"].as_u64().unwrap();
    let expected = 19.0 * lowest as f64 / 8.0;
    assert!((product as f64 - expected).abs() <= 1.0, "{product} against {expected}");
}

/// A port for a firewall: taken, it ends the probe with the code of the guide.
#[test]
fn a_probe_uses_the_requested_port_or_names_the_conflict() {
    let quick = ["probe", "localhost", "--count", "3", "--interval", "2ms", "--json", "--port"];
    let with = |port: &str| run(&[quick.as_slice(), &[port]].concat());
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    with(&port).refused(4, &[&port, "in use", "--port"]);
    with("0").refused_by_usage("--port");
    drop(taken);
    // Another process may take it in between, or have it for TCP: then another one.
    let found = (0..20).find_map(|_| {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::net::TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port.to_string())
    });
    let port = found.unwrap();
    let probe = with(&port).json();
    assert_valid("probe", &probe);
    assert_eq!(probe["requested"]["destination-port"].to_string(), port);
    for direction in probe["directions"].as_array().unwrap() {
        assert_eq!(direction["udp"]["answered_count"], 3, "{direction}");
        assert_eq!(direction["tcp"]["answered_count"], 3, "{direction}");
    }
}
