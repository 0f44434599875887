//! Declared metrics are those of the outcome: summaries in which everything was
//! measured have every declared metric, and no other. That what is really measured has no
//! other is asserted in every run of a workload.

use std::collections::BTreeSet;

use clearstream::workloads::registry;
use clearstream_explore::document::{Exploration, Explored};
use clearstream_explore::live_traffic::document;
use clearstream_messages::message::MessageSummary;
use clearstream_messages::overlap::OverlapSummary;
use clearstream_rdma::VerbsSummary;
use clearstream_schema::{
    all_pairs::AllPairsSummary,
    flow::FlowSummary,
    gateways::GatewaySummary,
    outcome::Outcome,
    probe::ProbeSummary,
    rdma::RdmaSummary,
    semantics::StorageSemantics,
    storage::{StreamSummary, metadata::StorageMetadata},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Workloads whose outcomes were compared.
type Seen = BTreeSet<String>;

/// An outcome of a workload with these options is as it declares.
fn assert_declared(seen: &mut Seen, workload: &str, options: &Value, outcome: &Outcome) {
    seen.insert(workload.to_owned());
    let registry = registry();
    let workload = registry.workload(workload).unwrap();
    let config = options.as_object().unwrap().iter().fold(workload.defaults(), |config, (option, value)| {
        workload.with(&config, option, value, &[]).unwrap()
    });
    let declared = workload.metrics(&config);
    assert_eq!(outcome.contradicts(&declared), None, "{options}");
    let missing: Vec<&str> =
        declared.iter().map(|kind| kind.name).filter(|name| outcome.metric(name).is_none()).collect();
    assert_eq!(missing, [""; 0], "{} {options}", workload.name());
}

fn read<T: DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).unwrap()
}

fn of_flows_by_protocol_and_direction(seen: &mut Seen) {
    for (protocol, direction) in [("tcp", "forward"), ("tcp", "both"), ("mptcp", "reverse"), ("udp", "both")]
    {
        let options = json!({ "protocol": protocol, "direction": direction });
        let is_udp = protocol == "udp";
        let one = |direction: &str| {
            let mut one = json!({
                "direction": direction, "measured_ns": 1, "received_bytes": 1, "goodput_bps": 1e9,
                "flow_goodput_bps": [1e9],
            });
            if is_udp {
                one["jitter_ns"] = json!(1000);
            }
            one
        };
        let directions = match direction {
            "both" => vec![one("forward"), one("reverse")],
            direction => vec![one(direction)],
        };
        let mut summary = json!({
            "requested": options, "client_settings": {"flows": []}, "server_settings": {"flows": []},
            "measured_ns": 1, "received_bytes": 1, "goodput_bps": 1e9, "flow_goodput_bps": [1e9],
            "client_cpu_seconds_per_gb": 0.1, "server_cpu_seconds_per_gb": 0.1, "complete": true,
            "directions": directions,
        });
        let reported = match is_udp {
            true => json!({ "loss_ratio": 0.01 }),
            false => json!({ "rtt_ns": 2, "min_rtt_ns": 1, "retransmit_count": 0 }),
        };
        summary.as_object_mut().unwrap().extend(reported.as_object().unwrap().clone());
        assert_declared(seen, "flow", &options, &read::<FlowSummary>(summary).outcome().unwrap());
    }
}

fn of_probes(seen: &mut Seen) {
    let delays = json!({
        "answered_count": 2, "sent_count": 2, "loss_ratio": 0.0, "clock": "kernel", "min_ns": 1,
        "mean_ns": 1, "p50_ns": 1, "p90_ns": 1, "p99_ns": 1, "max_ns": 1, "jitter_ns": 0,
    });
    let summary: ProbeSummary = read(json!({
        "requested": {},
        "directions": [{ "from": "a", "to": "b", "udp": delays, "tcp": delays, "path_mtu_bytes": 1500 }],
    }));
    assert_declared(seen, "probe", &json!({}), &summary.outcome().unwrap());
}

fn of_gateways_with_and_without_a_failure(seen: &mut Seen) {
    for failure in ["none", "silent"] {
        let options = json!({ "failure": failure });
        let mut summary = json!({
            "schema": "clearstream.gateways", "version": 1, "config": options, "gateways": [],
            "flow_count": 1, "unanswered_count": 0, "other_return_count": 0, "answers_per_second": 1.0,
            "round_trip_p50_ns": 1, "quiet_max_ns": 1, "series": [], "step_ns": 1, "flows": [],
        });
        if failure != "none" {
            summary["failure"] = json!({
                "gateway": "gw1", "fault": {"host": "gw1", "kind": "cut"}, "at_ns": 1, "hit_count": 1,
                "stuck_count": 0, "spared_count": 0, "spared_stuck_count": 0, "spared_gap_max_ns": 1,
                "gap_p50_ns": 1, "gap_max_ns": 1, "full_rate_ns": 1,
            });
        }
        assert_declared(seen, "gateways", &options, &read::<GatewaySummary>(summary).outcome().unwrap());
    }
}

fn of_messages_by_kind(seen: &mut Seen) {
    for kind in ["ping-pong", "stream", "bidirectional"] {
        let options = json!({ "kind": kind });
        let mut point = json!({
            "size_bytes": 1, "iteration_count": 1, "server_received_count": 1, "client_received_count": 1,
            "elapsed_ns": 1, "client_cpu_ratio": 0.5, "server_cpu_ratio": 0.5,
        });
        let measured = match kind {
            "ping-pong" => json!({
                "latency": {"min_ns": 1, "mean_ns": 1, "p50_ns": 1, "p99_ns": 1, "max_ns": 1},
                "throughput_bps": 1e9,
            }),
            _ => json!({ "bandwidth_bps": 1e9, "message_rate_per_second": 1.0 }),
        };
        point.as_object_mut().unwrap().extend(measured.as_object().unwrap().clone());
        let summary: MessageSummary = read(json!({
            "requested": options, "complete": true, "client": {}, "server": {}, "points": [point],
        }));
        assert_declared(seen, "message", &options, &summary.outcome().unwrap());
    }
}

fn of_overlap_by_method(seen: &mut Seen) {
    for method in ["polling", "post-work-wait"] {
        let options = json!({ "method": method });
        let mut point = json!({
            "work_count": 100, "cycle_count": 10, "server_received_count": 1, "client_received_count": 1,
            "elapsed_ns": 2, "work_alone_ns": 1, "availability_ratio": 0.5, "bandwidth_bps": 1e9,
            "message_rate_per_second": 1.0, "client_cpu_ratio": 0.5, "server_cpu_ratio": 0.5,
        });
        if method == "post-work-wait" {
            let times = json!({ "post_ns": 1, "work_ns": 1, "wait_ns": 1 });
            point.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        }
        let summary: OverlapSummary = read(json!({
            "requested": options, "complete": true, "client": {}, "server": {}, "points": [point],
        }));
        assert_declared(seen, "overlap", &options, &summary.outcome().unwrap());
    }
}

fn of_explorations(seen: &mut Seen) {
    let rank = json!({
        "host": "a", "state_count": 1, "transition_count": 1, "deadlock_count": 0, "accepting_count": 0,
        "memory_bytes": 1, "sent_messages": [0, 1], "sent_bytes": [0, 8],
    });
    let found: Exploration = read(json!({
        "schema": "clearstream.exploration", "version": 1, "model": "leader", "parameters": [],
        "transport": "Open MPI", "message_bytes": 64, "complete": true, "state_count": 2,
        "transition_count": 2, "deadlock_count": 0, "accepting_count": 0, "state_bytes": 4, "duration_ns": 4,
        "states_per_second": 5e8, "ranks": [rank.clone(), rank],
    }));
    let flows: FlowSummary = read(json!({
        "requested": {}, "client_settings": {"flows": []}, "server_settings": {"flows": []}, "measured_ns": 1,
        "received_bytes": 1, "goodput_bps": 1e9, "flow_goodput_bps": [1e9], "client_cpu_seconds_per_gb": 0.1,
        "server_cpu_seconds_per_gb": 0.1, "complete": true, "rtt_ns": 2, "min_rtt_ns": 1, "retransmit_count": 0,
    }));
    let mut explored = Explored::default();
    explored.add(found.clone());
    let both = document::beside(flows.outcome().unwrap(), &explored);
    // 16 bytes in 4 ns.
    assert_eq!(both.metric("application-rate").unwrap().value, 3.2e10);
    assert_declared(seen, "live-traffic", &json!({}), &both);
    assert_declared(seen, "explore", &json!({}), &found.outcome().unwrap());
}

fn of_storage_by_phases_and_kinds(seen: &mut Seen) {
    let mix = json!({"write": true, "existing": true, "mix-reads": 50});
    for (options, phases) in
        [(json!({}), &["write", "read"][..]), (json!({"write": true}), &["write"]), (mix, &["mixed"])]
    {
        let latency = json!({
            "sample_count": 1, "min_ns": 1, "mean_ns": 1, "p50_ns": 1, "p90_ns": 1, "p99_ns": 1, "p999_ns": 1,
            "max_ns": 1,
        });
        let share = json!({
            "bytes": 1, "operation_count": 1, "bandwidth_bps": 8e9, "operations_per_second": 1e9,
            "latency": latency,
        });
        let point = |phase: &&str| {
            let mut point = json!({
                "iteration": 0, "phase": phase, "bytes": 1, "operation_count": 1, "total_ns": 1,
                "bandwidth_bps": 8e9, "operations_per_second": 1e9, "latency": latency, "ranks": [],
            });
            if *phase == "mixed" {
                point["mix"] = json!({"read": share, "write": share});
            }
            point
        };
        let figure = json!({"max": 8e9, "min": 8e9, "mean": 8e9, "standard_deviation": 0.0});
        let statistics = |phase: &&str| json!({"phase": phase, "bandwidth_bps": figure, "mean_ns": 1.0});
        let summary: StreamSummary = read(json!({
            "requested": options, "complete": true, "file_system": "ext4",
            "points": phases.iter().map(point).collect::<Vec<_>>(),
            "statistics": phases.iter().map(statistics).collect::<Vec<_>>(),
        }));
        assert_declared(seen, "storage-stream", &options, &summary.outcome().unwrap());
    }
    for (options, kinds) in
        [(json!({}), &["file", "directory"][..]), (json!({"files-only": true}), &["file"])]
    {
        let figure = json!({"max": 2.0, "min": 1.0, "mean": 1.5, "standard_deviation": 0.5});
        let operations = ["create", "stat", "read", "rename", "remove"];
        let of_kind = |kind: &&str| {
            operations.map(
                |operation| json!({"kind": kind, "operation": operation, "operations_per_second": figure}),
            )
        };
        let found: StorageMetadata = read(json!({
            "schema": "clearstream.storage-metadata", "version": 1, "directory": "/mnt", "file_system": "ext4",
            "requested": options, "transport": "threads", "hosts": ["a"], "tree_count": 1, "item_count": 1,
            "complete": true, "phases": [], "summary": kinds.iter().flat_map(of_kind).collect::<Vec<_>>(),
        }));
        assert_declared(seen, "storage-metadata", &options, &found.outcome().unwrap());
    }
}

fn of_semantics_with_and_without_a_second_client(seen: &mut Seen) {
    let check = |name: &str, clients: &str, verdict: &str| {
        json!({
            "area": "coherence", "check": name, "title": name, "clients": clients, "verdict": verdict, "standard": "s",
        })
    };
    let names = "close-to-open write-read size truncated mode times links create folder list remove unlist rename replace \
        mmap-mmap mmap-read write-mmap msync-read msync-open msync-mmap write-msync";
    let mut shared: Vec<Value> = names.split(' ').map(|name| check(name, "to-peer", "yes")).collect();
    let number = shared.len() as f64;
    for (name, clients, verdict, stale_ns) in [
        ("flock-conflict", "two", "no", 0),
        ("close-to-open", "from-peer", "late", 7),
        ("mmap-read", "two", "left-open", 9),
    ] {
        shared.push(check(name, clients, verdict));
        shared.last_mut().unwrap()["stale_ns"] = json!(stale_ns);
    }
    for (options, checks) in [
        (json!({"hosts": "a,b"}), shared),
        (json!({}), vec![check("flock-conflict", "one", "yes"), check("mmap-read", "one", "yes")]),
    ] {
        let mount = json!({"directory": "/mnt", "file_system": "ext4"});
        let found: StorageSemantics = read(json!({
            "schema": "clearstream.storage-semantics", "version": 1, "mount": mount, "wait_ns": 10, "complete": true,
            "duration_ns": 1, "checks": checks,
        }));
        let outcome = found.outcome().unwrap();
        assert_declared(seen, "storage-semantics", &options, &outcome);
        let value = |name: &str| outcome.metric(name).map(|metric| metric.value);
        if options["hosts"].is_string() {
            assert_eq!(
                ["checks-kept", "checks-late", "checks-deviating", "checks-left-open"].map(value),
                [Some(number), Some(1.0), Some(1.0), Some(1.0)]
            );
            assert_eq!(
                ["stale-close-to-open", "stale-size", "stale-mmap-read"].map(value),
                [Some(7.0), Some(0.0), Some(9.0)]
            );
        }
    }
}

fn of_rdma_by_what_is_measured(seen: &mut Seen) {
    for options in [json!({}), json!({"both-ways": true}), json!({"latency": true})] {
        let rate = json!({
            "message_count": 1, "bytes": 64, "elapsed_ns": 1, "goodput_bps": 1e9, "messages_per_second": 1.0,
        });
        let mut result = json!({
            "size_bytes": 64, "depth_count": 1, "forward": rate, "near_cpu_ns": 1, "far_cpu_ns": 1,
        });
        if options["both-ways"] == true {
            result["reverse"] = rate;
        }
        if options["latency"] == true {
            result["latency"] =
                json!({"sample_count": 1, "p50_ns": 1, "p99_ns": 1, "min_ns": 1, "max_ns": 1, "mean_ns": 1});
        }
        let side = json!({ "address": "127.0.0.1:1" });
        let summary: RdmaSummary = read(json!({
            "operation": "send", "requested": options, "results": [result], "complete": true,
            "effective": {
                "near": side, "far": side, "revision": 2, "crc": true, "markers_sent": false,
                "markers_received": false, "outstanding_reads": 1, "incoming_reads": 1, "mulpdu_bytes": 1,
                "inline_bytes": 0,
            },
        }));
        assert_declared(seen, "rdma", &options, &summary.outcome(&[]).unwrap());
    }
}

fn of_verbs_calls_pairs_and_descriptions(seen: &mut Seen) {
    let verbs: VerbsSummary = read(json!({
        "requested": {}, "calls_per_sample_count": 1, "clock_ns": 1, "times_ns": [1.0, 2.0],
        "complete": true,
    }));
    assert_declared(seen, "verbs-calls", &json!({}), &verbs.outcome().unwrap());
    let pairs: AllPairsSummary =
        read(json!({ "complete": true, "rounds": [[{"from": "a", "to": "b", "goodput_bps": 1e9}]] }));
    assert_declared(seen, "all-pairs", &json!({}), &pairs.outcome().unwrap());
    assert_declared(seen, "inspect", &json!({}), &Outcome::default());
}

/// A workload that is added to the program needs its outcomes above.
#[test]
fn every_workload_has_the_metrics_that_it_declares() {
    let mut seen = Seen::new();
    of_flows_by_protocol_and_direction(&mut seen);
    of_probes(&mut seen);
    of_gateways_with_and_without_a_failure(&mut seen);
    of_messages_by_kind(&mut seen);
    of_overlap_by_method(&mut seen);
    of_explorations(&mut seen);
    of_storage_by_phases_and_kinds(&mut seen);
    of_semantics_with_and_without_a_second_client(&mut seen);
    of_rdma_by_what_is_measured(&mut seen);
    of_verbs_calls_pairs_and_descriptions(&mut seen);
    let names: Seen = registry().names().map(str::to_owned).collect();
    assert_eq!(seen, names);
}

/// A study names factors by them: also those that are unset, and none that is misspelt.
#[test]
fn every_workload_knows_its_options() {
    let registry = registry();
    for name in registry.names() {
        let workload = registry.workload(name).unwrap();
        for option in workload.defaults().as_object().unwrap().keys() {
            assert!(workload.has(option), "{name}: {option}");
        }
        assert!(!workload.has("no-such-option"), "{name}");
    }
    let flow = registry.workload("flow").unwrap();
    assert!(flow.defaults().get("congestion-control").is_none() && flow.has("congestion-control"));
}
