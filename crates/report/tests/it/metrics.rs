//! Every workload by (factor, metric): what a study names is drawn, with the
//! numbers that the trials have.

use crate::common::hosts;
use crate::common::run;
use clearstream_report::{csv, html, markdown};
use clearstream_schema::{
    flow::ReceiveMethod,
    gateways::GatewaySummary,
    outcome::Series,
    probe::{DelayStats, PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{TrialDocument, TrialOutcome},
};
use serde_json::{Value, json};

fn servers() -> (clearstream_schema::host::HostReport, clearstream_schema::host::HostReport) {
    (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"))
}

/// Markdown and page of a run.
fn report(experiments: Value, trials: Vec<TrialDocument>) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study_of(experiments), servers(), trials);
    let page = html(&reader).unwrap();
    assert_links_lead_somewhere(&page);
    csv(&reader).unwrap();
    (markdown(&reader).unwrap(), page)
}

/// Every link within the page has its target, and no name is there twice.
fn assert_links_lead_somewhere(page: &str) {
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "an identifier twice");
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.binary_search(&link).is_ok(), "#{link} leads nowhere");
    }
}

/// Flows with three windows; the round-trip time grows with the window.
fn flows(change: impl Fn(&mut clearstream_schema::flow::FlowSummary)) -> Vec<TrialDocument> {
    let windows = [("64KiB", 1.0, 110), ("128KiB", 2.0, 120), ("256KiB", 4.0, 140)];
    let trial = |(cell, (window, gbps, rtt_us)): (u32, (&str, f64, u64))| {
        let flow = run::flow(gbps, |summary| {
            summary.rtt_ns = Some(rtt_us * 1000);
            change(summary);
        });
        run::trial(cell, "flows", cell, &[("window", json!(window))], flow)
    };
    (0..).zip(windows).map(trial).collect()
}

#[test]
fn a_metric_of_flows_is_a_curve_over_the_windows() {
    let experiment = json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": "curve", "metric": "rtt" }]);
    let (text, page) = report(experiment, flows(|_| ()));
    assert!(page.contains("<figure id=\"figure-flows-rtt\">"));
    assert!(!page.contains("figure-flows-goodput"), "what is named replaces what is usual");
    assert!(text.contains("Lowest rtt: 110 us with 64 KiB"), "{text}");
    let table = run::table_after(&text, "### Flows: rtt against window");
    assert_eq!(table[0][..3], ["window", "n", "goodput"]);
    let rtt = table[0].iter().position(|head| *head == "rtt").unwrap();
    let rtts: Vec<&str> = table[1..].iter().map(|row| row[rtt]).collect();
    assert_eq!(rtts, ["110 us", "120 us", "140 us"]);
    assert_eq!(table[3][2], "4.00 Gb/s");
}

/// Trials as the runner leaves them: goodput of each second, in Gb/s.
fn flows_over_time(trials: &[&[f64]]) -> Vec<TrialDocument> {
    let trial = |(number, gbps): (u32, &&[f64])| {
        let mut flow = run::flow(gbps[0], |_| ());
        if let TrialOutcome::Measured(outcome) = &mut flow {
            let seconds = (1..).zip(*gbps).map(|(second, gbps)| (f64::from(second) * 1e9, gbps * 1e9));
            let series = Series::over_time(&outcome.metrics[0], &seconds.collect::<Vec<_>>());
            outcome.series.push(series);
        }
        TrialDocument { repetition: number, ..run::trial(number, "flows", 0, &[], flow) }
    };
    (0..).zip(trials).map(trial).collect()
}

#[test]
fn goodput_of_flows_is_a_curve_over_the_time_where_no_factor_has_numbers() {
    let experiment = json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": "curve" }]);
    let trials = flows_over_time(&[&[2.0, 8.0, 4.0, 5.0], &[3.0, 9.0, 4.5, 5.0], &[4.0, 10.0, 5.0, 5.0]]);
    let (text, page) = report(experiment, trials);
    assert!(text.contains("### Flows: goodput against time"), "{text}");
    assert!(text.contains("Highest goodput: 9.00 Gb/s with time 2s"), "medians of three trials: {text}");
    for point in ["time 1.00 s: 3.00 Gb/s", "time 2.00 s: 9.00 Gb/s", "time 4.00 s: 5.00 Gb/s"] {
        assert_eq!(page.matches(&format!("data-tip=\"all trials, {point}")).count(), 2, "{point}");
    }
    assert!(text.contains("| send buffer | client | \u{2013} | 4 MiB | 3 | flows |"), "{text}");
}

#[test]
fn a_metric_of_any_workload_is_a_matrix_over_two_factors() {
    // 1 to 4 KiB down, one and ten threads across, once more with a third factor.
    let cells = [false, true]
        .into_iter()
        .flat_map(|pin| [1u64, 10].map(|threads| (pin, threads)))
        .flat_map(|(pin, threads)| ["1KiB", "2KiB", "4KiB"].map(|size| (pin, threads, size)));
    let trials = || {
        (0..).zip(cells.clone()).map(|(cell, (pin, threads, size))| {
            let factors = [("pin", json!(pin)), ("threads", json!(threads)), ("size", json!(size))];
            let time = f64::from(cell + 1) * 1e3;
            run::trial(cell, "any", cell, &factors, run::outcome(&[("time", "ns", "lower", time)], |_| ()))
        })
    };
    let experiment = json!([{ "name": "any", "title": "Any", "workload": "toy", "figure": "matrix" }]);
    // One cell is missing.
    let (text, page) = report(experiment.clone(), trials().filter(|one| one.cell != 5).collect());
    let table = run::table_after(&text, "### Any: time by pin and size (threads 1)");
    assert_eq!(table[0], ["pin", "size 1 KiB", "size 2 KiB", "size 4 KiB"]);
    assert_eq!(table[1], ["false", "1.00 us", "2.00 us", "3.00 us"]);
    assert_eq!(table[2], ["true", "7.00 us", "8.00 us", "9.00 us"]);
    let table = run::table_after(&text, "### Any: time by pin and size (threads 10)");
    assert_eq!(table[1], ["false", "4.00 us", "5.00 us", "\u{2013}"]);
    assert!(text.contains("1 cell could not be measured"), "{text}");
    assert!(text.contains("Lowest time: 1.00 us with"), "{text}");
    for id in ["figure-any-time", "figure-any-time-2"] {
        let figure = page.split(&format!("<figure id=\"{id}\">")).nth(1).unwrap();
        let figure = figure.split("</figure>").next().unwrap();
        let heat = figure.matches("class=\"h0\"").count() + figure.matches("class=\"h8\"").count();
        assert_eq!(heat, 4, "lowest and highest in both drawings of {id}");
    }
    // Without a second factor of several levels there are bars.
    let (_, page) = report(experiment, trials().filter(|one| one.cell < 3).collect());
    let figure = page.split("<figure id=\"figure-any-time\">").nth(1).unwrap();
    assert!(!figure.split("</figure>").next().unwrap().contains("class=\"h0\""));
}

#[test]
fn bars_and_tables_of_flows_have_the_headline_without_a_metric() {
    for figure in ["bars", "table"] {
        let experiment = json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": figure }]);
        let (text, page) = report(experiment, flows(|_| ()));
        assert!(page.contains("<figure id=\"figure-flows-goodput\">"), "{figure}");
        assert!(text.contains("Highest goodput: 4.00 Gb/s with 256 KiB"), "{text}");
    }
}

#[test]
fn a_metric_beside_a_figure_of_flows_is_drawn_too() {
    let experiment = |metric: &str| {
        json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": "throughput",
                 "metric": metric }])
    };
    let (_, page) = report(experiment("min-rtt"), flows(|_| ()));
    assert!(page.contains("<figure id=\"figure-flows-goodput\">"));
    assert!(page.contains("<figure id=\"figure-flows-min-rtt\">"));
    let (_, page) = report(experiment("goodput"), flows(|_| ()));
    assert_eq!(page.matches("<figure id=\"figure-flows-goodput\">").count(), 1);
}

#[test]
fn a_discarding_receiver_is_called_so_in_every_figure() {
    for figure in ["curve", "bars"] {
        let experiment = json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": figure }]);
        let (text, page) = report(experiment, flows(|one| one.requested.receive = ReceiveMethod::Discard));
        let table = run::table_after(&text, "### Flows: goodput");
        assert_eq!(table[0][1], "receiver");
        assert!(table[1..].iter().all(|row| row[1] == "discard"), "{table:?}");
        assert!(page.contains("discard"), "{figure}: legend or rows");
    }
}

#[test]
fn a_metric_that_the_record_lacks_is_reported_as_missing() {
    for figure in ["throughput", "curve"] {
        let experiment = json!([{ "name": "flows", "title": "Flows", "workload": "flow", "figure": figure,
                                  "metric": "jitter" }]);
        let (text, page) = report(experiment, flows(|_| ()));
        assert!(text.contains("No trial of this experiment has the metric jitter."), "{text}");
        assert!(page.contains("<figure id=\"figure-flows-goodput\">"), "what was measured is drawn");
    }
    let trials = vec![run::trial(0, "other", 0, &[], run::outcome(&[("time", "ns", "lower", 1.0)], |_| ()))];
    let experiment = json!([{ "name": "other", "title": "Other", "workload": "verbs-calls",
                              "figure": "bars", "metric": "time-p99" }]);
    let (text, _) = report(experiment, trials);
    assert!(text.contains("No trial of this experiment has the metric time-p99."), "{text}");
}

/// A probe whose median delay is so many microseconds.
fn probe(us: u64) -> TrialOutcome {
    let delays = json!({
        "answered_count": 99, "sent_count": 100, "loss_ratio": 0.01, "clock": "kernel",
        "min_ns": us * 900, "mean_ns": us * 1000, "p50_ns": us * 1000, "p90_ns": us * 1500,
        "p99_ns": us * 2000, "max_ns": us * 3000, "jitter_ns": us * 10,
    });
    let summary: ProbeSummary = serde_json::from_value(json!({
        "requested": {}, "directions": [{ "from": "dtn1", "to": "dtn2", "udp": delays }],
    }))
    .unwrap();
    TrialOutcome::Measured(Box::new(summary.outcome().unwrap()))
}

#[test]
fn probes_are_drawn_over_a_factor() {
    let sizes = [("64B", 100), ("512B", 110), ("1024B", 130)];
    let trials = || {
        (0..)
            .zip(sizes)
            .map(|(cell, (size, us))| run::trial(cell, "delay", cell, &[("size", json!(size))], probe(us)))
    };
    let experiment = |figure: &str, metric: Value| {
        json!([{ "name": "delay", "title": "Delay", "workload": "probe", "figure": figure,
                 "metric": metric }])
    };
    let (text, page) = report(experiment("curve", json!("udp-delay-p99")), trials().collect());
    assert!(page.contains("<figure id=\"figure-delay-udp-delay-p99\">"));
    assert!(text.contains("Lowest udp delay p99: 200 us with size 64 B"), "{text}");
    let table = run::table_after(&text, "### Delay: udp delay p99 against size");
    let column = table[0].iter().position(|head| *head == "udp delay p99").unwrap();
    let values: Vec<&str> = table[1..].iter().map(|row| row[column]).collect();
    assert_eq!(values, ["200 us", "220 us", "260 us"]);
    // As ever where nothing is named.
    let (_, page) = report(experiment("delay", Value::Null), trials().collect());
    assert!(page.contains("<figure id=\"figure-delay-delay\">") && !page.contains("udp-delay-p50\">"));
}

#[test]
fn trials_with_gateways_are_drawn_over_a_factor() {
    let trial = |(cell, flows): (u32, u64)| {
        let summary: GatewaySummary = serde_json::from_value(json!({
            "schema": "clearstream.gateways", "version": 1, "config": {"flows": flows}, "gateways": [],
            "flow_count": flows, "unanswered_count": 0, "other_return_count": flows / 4,
            "answers_per_second": flows * 50, "round_trip_p50_ns": 200_000 + flows * 1000,
            "quiet_max_ns": 1, "series": [], "step_ns": 100_000_000, "flows": [],
        }))
        .unwrap();
        let outcome = TrialOutcome::Measured(Box::new(summary.outcome().unwrap()));
        run::trial(cell, "shares", cell, &[("flows", json!(flows))], outcome)
    };
    let trials: Vec<TrialDocument> = (0..).zip([16, 48, 96]).map(trial).collect();
    let experiment = json!([{ "name": "shares", "title": "Shares", "workload": "gateways",
                              "figure": "curve", "metric": "round-trip-p50" }]);
    let (text, page) = report(experiment, trials);
    assert!(page.contains("<figure id=\"figure-shares-round-trip-p50\">"));
    let table = run::table_after(&text, "### Shares: round trip p50 against flows");
    assert_eq!(table[0][..5], ["flows", "n", "answer rate", "round trip p50", "other return"]);
    assert_eq!(table[2], ["48", "1", "2400 1/s", "248 us", "25.0 %", "0"]);
}

#[test]
fn csv_has_every_metric_of_every_workload() {
    let both_ways = run::flow(3.0, |one| {
        let direction = |name: &str, gbps: f64| {
            json!({ "direction": name, "goodput_bps": gbps * 1e9, "received_bytes": 1, "measured_ns": 1,
                    "flow_goodput_bps": [], "jitter_ns": 7000 })
        };
        let both = json!([direction("forward", 2.0), direction("reverse", 1.0)]);
        one.directions = serde_json::from_value(both).unwrap();
        one.retransmit_count = Some(5);
    });
    let probed = match probe(100) {
        TrialOutcome::Measured(outcome) => {
            let mut summary: ProbeSummary = outcome.detail(PROBE_SUMMARY_SCHEMA).unwrap().unwrap();
            let direction = &mut summary.directions[0];
            direction.tcp = direction.udp.clone().map(|udp| DelayStats { mean_ns: 123_456, ..udp });
            TrialOutcome::Measured(Box::new(summary.outcome().unwrap()))
        }
        TrialOutcome::Failed(failure) => panic!("{failure}"),
    };
    let gateways: GatewaySummary = serde_json::from_value(json!({
        "schema": "clearstream.gateways", "version": 1, "config": {"failure": "silent"}, "gateways": [],
        "flow_count": 48, "unanswered_count": 2, "other_return_count": 12,
        "answers_per_second": 2400.0, "round_trip_p50_ns": 200_000, "quiet_max_ns": 1,
        "failure": { "gateway": "g1", "fault": {"host": "g1", "kind": "cut"}, "at_ns": 1, "hit_count": 8, "stuck_count": 3,
                     "spared_count": 40, "spared_stuck_count": 0, "spared_gap_max_ns": 1,
                     "gap_p50_ns": 4000, "gap_max_ns": 5000, "full_rate_ns": 6000 },
        "series": [], "step_ns": 100_000_000, "flows": [],
    }))
    .unwrap();
    let outcomes = [both_ways, probed, TrialOutcome::Measured(Box::new(gateways.outcome().unwrap()))];
    let metric_counts: Vec<usize> =
        outcomes.iter().map(|outcome| outcome.measured().unwrap().metrics.len()).collect();
    let trials = (0..).zip(outcomes).map(|(trial, outcome)| run::trial(trial, "all", trial, &[], outcome));
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study_of(json!([])), servers(), trials.collect());
    let text = csv(&reader).unwrap();
    let lines: Vec<Vec<&str>> = text.trim_end().split("\r\n").map(|line| line.split(',').collect()).collect();
    let expected: [&[(&str, &str)]; 3] = [
        &[
            ("goodput_bps", "3000000000"),
            ("client_cpu_seconds_per_gb", ""),
            ("server_cpu_seconds_per_gb", ""),
            ("rtt_ns", ""),
            ("min_rtt_ns", ""),
            ("retransmit_count", "5"),
            ("forward_goodput_bps", "2000000000"),
            ("reverse_goodput_bps", "1000000000"),
            ("jitter_ns", "7000"),
        ],
        &[
            ("rtt_p50_ns", "100000"),
            ("udp_delay_mean_ns", "100000"),
            ("udp_delay_min_ns", "90000"),
            ("rtt_p99_ns", "200000"),
            ("udp_jitter_ns", "1000"),
            ("loss_ratio", "0.01"),
            ("tcp_delay_p50_ns", "100000"),
            ("tcp_delay_mean_ns", "123456"),
            ("tcp_delay_min_ns", "90000"),
            ("tcp_delay_p99_ns", "200000"),
            ("tcp_jitter_ns", "1000"),
            ("tcp_loss_ratio", "0.01"),
        ],
        &[
            ("answer_rate_per_second", "2400"),
            ("rtt_p50_ns", "200000"),
            ("other_return_ratio", "0.2500"),
            ("unanswered_flows_count", "2"),
            ("gap_max_ns", "5000"),
            ("gap_p50_ns", "4000"),
            ("stuck_count", "3"),
            ("full_rate_ns", "6000"),
        ],
    ];
    for ((line, columns), metric_count) in lines[1..].iter().zip(expected).zip(metric_counts) {
        assert_eq!(columns.len(), metric_count, "a metric more or less: {columns:?}");
        for (name, value) in columns {
            let column = lines[0].iter().position(|known| known == name);
            let found = line[column.unwrap_or_else(|| panic!("no {name} in {:?}", lines[0]))];
            assert!(!found.is_empty(), "{name}");
            assert!(value.is_empty() || found == *value, "{name}: {found}");
        }
    }
    let mut names = lines[0].clone();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a column twice: {names:?}");
}

/// Times by size, with pages pinned or not, of a workload that the report does not know.
fn registration() -> Vec<TrialDocument> {
    let cells = [false, true].into_iter().flat_map(|pin| [1u64, 4, 16, 64].map(|kib| (pin, kib)));
    (0..)
        .zip(cells)
        .map(|(cell, (pin, kib))| {
            let time = kib as f64 * if pin { 2e3 } else { 1e3 };
            let factors = [("pin", json!(pin)), ("size", json!(format!("{kib}KiB")))];
            run::trial(
                cell,
                "registration",
                cell,
                &factors,
                run::outcome(&[("time", "ns", "lower", time)], |_| ()),
            )
        })
        .collect()
}

#[test]
fn published_values_are_drawn_where_metric_unit_and_factors_agree() {
    let published = |label: &str, metric: &str, unit: &str, factors: Value| {
        json!({ "label": label, "source": "paper", "metric": metric, "unit": unit, "low": 7.0, "high": 7.0,
                "factors": factors })
    };
    let experiment = json!([{
        "name": "registration", "title": "Registration", "workload": "verbs-calls", "figure": "curve",
        "verbs-calls": { "call": "register-memory" },
        "published": [
            published("agrees", "time", "us", json!({"size": "4096B", "pin": true})),
            published("of all", "time", "us", json!({})),
            published("fixed option", "time", "us", json!({"call": "register-memory"})),
            published("other level", "time", "us", json!({"size": "4KiB", "pin": "maybe"})),
            published("other call", "time", "us", json!({"call": "open"})),
            published("other metric", "time-p99", "us", json!({})),
            published("other unit", "time", "Gb/s", json!({})),
        ],
    }]);
    let (_, page) = report(experiment, registration());
    let figure = page.split("<figure id=\"figure-registration-time\">").nth(1).unwrap();
    let legend = figure.split("<ul class=\"legend\">").nth(1).unwrap().split("</ul>").next().unwrap();
    for (label, drawn) in [
        ("agrees", true),
        ("of all", true),
        ("fixed option", true),
        ("other level", false),
        ("other call", false),
        ("other metric", false),
        ("other unit", false),
    ] {
        assert_eq!(legend.contains(&format!("published: {label}, paper")), drawn, "{label}: {legend}");
    }
    // At the size that it names there is one mark in each of the two drawings.
    assert_eq!(figure.matches("data-tip=\"agrees (paper)\"").count(), 2);
    assert_eq!(figure.matches("data-tip=\"other level (paper)\"").count(), 0);
}

#[test]
fn settings_of_every_workload_stand_by_experiment() {
    let with = |crc: bool| {
        run::outcome(&[("bandwidth", "b/s", "higher", 1e9)], |outcome| {
            outcome["settings"] = json!([
                { "name": "crc", "requested": true, "effective": crc },
                { "role": "server", "name": "receive-buffer", "unit": "B", "requested": 65_536, "effective": 32_768 },
                { "role": "client", "name": "congestion-control", "effective": "cubic" },
            ]);
        })
    };
    let experiments = json!([
        { "name": "verbs", "title": "Verbs", "workload": "rdma", "figure": "bars" },
        { "name": "more", "title": "More", "workload": "rdma", "figure": "bars" },
    ]);
    let trials = vec![
        run::trial(0, "verbs", 0, &[], with(true)),
        run::trial(1, "verbs", 0, &[], with(false)),
        run::trial(2, "more", 0, &[], with(true)),
    ];
    let (text, page) = report(experiments, trials);
    let table = run::table_after(&text, "## Settings: requested and effective");
    assert_eq!(table[0], ["Setting", "Host", "Requested", "Effective", "Trials", "Experiments"]);
    let rows: Vec<&[&str]> = table[1..].iter().map(Vec::as_slice).collect();
    let expected: [[&str; 6]; 4] = [
        ["crc (differs)", "\u{2013}", "true", "false", "1", "verbs"],
        ["receive buffer (differs)", "server", "64 KiB", "32 KiB", "3", "all"],
        ["crc", "\u{2013}", "true", "true", "2", "all"],
        ["congestion control", "client", "\u{2013}", "cubic", "3", "all"],
    ];
    assert_eq!(rows, expected);
    let settings = page.split("<section id=\"settings\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(settings.matches("<tr class=\"differs\">").count(), 2);
}
