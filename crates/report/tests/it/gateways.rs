//! Records with gateways: the report agrees with a computation by hand.

use crate::common::hosts;
use crate::common::run;
use clearstream_report::{csv, headlines, html, markdown};
use clearstream_schema::{
    gateways::GatewaySummary,
    record::{RECORD_VERSION, TRIAL_SCHEMA, TrialDocument},
};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// Six gateways, eight flows in each direction on each; responses of a flow on the third
/// pause for `gap_ms`, or for ever.
fn summary(failure: &str, watch: bool, gap_ms: Option<u64>) -> Value {
    let gateway = |number: u64| format!("gw{number}");
    let flows: Vec<Value> = (0..48u64)
        .map(|flow| {
            let (forward, reply) = (flow % 6 + 1, flow / 8 + 1);
            let hit = forward == 3 || reply == 3;
            json!({
                "client": "compute-1", "from": format!("10.100.0.1:{}", 40_000 + flow),
                "server": "storage-1", "to": "10.10.0.201:5000",
                "forward": gateway(forward), "reply": gateway(reply),
                "answer_count": 500,
                "gap_ns": match (hit, gap_ms) {
                    (true, Some(gap)) => (gap + flow) * MS,
                    (true, None) => 8_000 * MS,
                    _ => 20 * MS,
                },
                "stuck": hit && gap_ms.is_none(),
            })
        })
        .collect();
    // Requests by 3: flows 2, 8, .. 44; responses by 3: flows 16 to 23, of which 20 is in both.
    let hit = flows.iter().filter(|flow| flow["forward"] == "gw3" || flow["reply"] == "gw3").count();
    let stuck = flows.iter().filter(|flow| flow["stuck"] == true).count();
    let shares: Vec<Value> = (1..=6)
        .map(|number| json!({"name": gateway(number), "weight": 1, "forward_count": 8, "reply_count": 8}))
        .collect();
    let mut document = json!({
        "schema": "clearstream.gateways", "version": 1,
        "config": {"failure": failure, "watch": watch},
        "gateways": shares,
        "flow_count": 48, "unanswered_count": 0, "other_return_count": 40,
        "answers_per_second": 2400.0, "round_trip_p50_ns": 200_000, "quiet_max_ns": 30 * MS,
        "series": vec![240; 20].into_iter().chain(vec![170; 60]).collect::<Vec<u32>>(),
        "step_ns": 100 * MS,
        "flows": flows,
    });
    if failure != "none" {
        document["failure"] = json!({
            "gateway": "gw3", "fault": {"host": "gw3", "kind": "cut"}, "at_ns": 2_000 * MS,
            "hit_count": hit, "stuck_count": stuck, "spared_count": 48 - hit, "spared_stuck_count": 0,
            "spared_gap_max_ns": 20 * MS,
            "full_rate_ns": gap_ms.map(|gap| gap * MS),
        });
        assert_eq!(hit, 15);
    }
    document
}

fn trial(number: u32, experiment: &str, cell: u32, factors: Value, summary: Value) -> TrialDocument {
    let summary: GatewaySummary = serde_json::from_value(summary).unwrap();
    serde_json::from_value(json!({
        "workload": "gateways",
        "schema": TRIAL_SCHEMA, "version": RECORD_VERSION, "trial": number, "experiment": experiment,
        "cell": cell, "repetition": 0, "factors": factors, "started": "2026-01-02T03:04:05Z",
        "outcome": {"measured": summary.outcome().unwrap()},
    }))
    .unwrap()
}

fn record(folder: &std::path::Path) -> clearstream_record::Reader {
    let study = serde_json::from_value(json!({
        "schema": "clearstream.study", "version": 1, "name": "by-hand", "title": "Gateways",
        "experiment": [
            { "name": "shares", "title": "Shares", "workload": "gateways", "figure": "gateways",
              "published": [{ "label": "equal cost", "source": "paper, section IV.B" }] },
            { "name": "failover", "title": "Failover", "workload": "gateways", "figure": "gateways" },
        ],
    }))
    .unwrap();
    let trials = vec![
        trial(0, "shares", 0, json!({}), summary("none", false, None)),
        trial(1, "failover", 0, json!({"failure": "silent", "watch": false}), summary("silent", false, None)),
        trial(
            2,
            "failover",
            1,
            json!({"failure": "silent", "watch": true}),
            summary("silent", true, Some(300)),
        ),
    ];
    run::write(folder, study, (hosts::nehalem("compute-1"), hosts::nehalem("storage-1")), trials)
}

#[test]
fn gaps_stuck_flows_load_and_return_paths_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let reader = record(folder.path());
    let text = markdown(&reader).unwrap();
    // 15 flows of gateway 3 with gaps of 300 ms and their numbers: 2, 8, 14, 16 to 23, 26, 32, 38, 44.
    for sentence in [
        "With watch 0 of 15 flows of a failed gateway got no further response, the others had a gap of 320",
        "344",
        "without watch 15 of 15 flows",
        "dies silently, with watch",
        "48 flows, load within 0 % of the weights, 83.3 % return by another gateway",
    ] {
        assert!(text.contains(sentence), "\"{sentence}\" is not in:\n{text}");
    }
    let head = headlines(&reader).unwrap().join("\n");
    assert!(head.contains("with watch: 320 ms (median of 15 flows, 344 ms at most)"), "{head}");
    let page = html(&reader).unwrap();
    for id in ["figure-failover-failure", "figure-shares-load"] {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    assert!(page.contains("the gateway fails") && page.contains("paper, section IV.B"));
}

#[test]
fn csv_has_the_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let text = csv(&record(folder.path())).unwrap();
    let lines: Vec<Vec<&str>> = text.trim_end().split("\r\n").map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|known| *known == name).unwrap();
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert_eq!(lines[2][column("outcome")], "gateways");
    assert_eq!((lines[2][column("hit_count")], lines[2][column("stuck_count")]), ("15", "15"));
    assert_eq!(lines[2][column("full_rate_ns")], "", "never");
    assert_eq!(lines[3][column("full_rate_ns")], "300000000");
    assert_eq!(lines[1][column("other_return_ratio")], "0.8333");
    assert_eq!(lines[1][column("hit_count")], "");
}
