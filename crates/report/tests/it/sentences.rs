//! No sentence goes beyond its figure: what a reader can check against the table
//! of it, on records whose every number is known.

use crate::common::hosts;
use crate::common::run;
use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_report::{Report, headlines, html, markdown};
use clearstream_schema::{
    ByteCount,
    counters::{CoreCounters, InterfaceCounters},
    diagnosis::Diagnosis,
    flow::Interval,
    host::{HostReport, Nic},
    lab::DelayLineStats,
    notice::Notice,
    record::{TrialDocument, TrialOutcome},
};
use serde_json::json;

/// A page without the spaces that keep units on their line; the template writes a slash as its number.
fn plain(page: &str) -> String {
    page.replace('\u{a0}', " ").replace("&#x2f;", "/")
}

fn virtual_machines() -> (HostReport, HostReport) {
    (hosts::virtual_machine("alpha"), hosts::virtual_machine("beta"))
}

/// The run of the demo of this test: 19 Gb/s over 17 ms, and a flow that stays near 10.6.
fn short_windows() -> Vec<TrialDocument> {
    let windows = [(8u64, 3.9), (32, 10.3), (64, 10.6), (128, 10.4)];
    (0..)
        .zip(windows)
        .map(|(number, (mebibytes, gbps))| {
            let level = json!(format!("{mebibytes}MiB"));
            let outcome = run::flow(gbps, |s| {
                s.requested.window = Some(ByteCount(mebibytes << 20));
                s.min_rtt_ns = Some(17_000_000);
            });
            let mut trial = run::trial(number, "window", number, &[("window", level)], outcome);
            let late = DelayLineStats {
                late_p50_ns: 20_000,
                late_p99_ns: 400_000,
                late_max_ns: 53_000_000,
                busy_ratio: Some(0.34),
                ..DelayLineStats::default()
            };
            trial.delay_lines = vec![late; 2];
            trial
        })
        .collect()
}

fn in_lab(folder: &std::path::Path, trials: Vec<TrialDocument>) -> Reader {
    run::write_with(folder, run::study("Over 1650 km"), virtual_machines(), trials, &BTreeMap::new(), |run| {
        run.lab = Some(run::lab());
    })
}

fn unknown(because: &str) -> Diagnosis {
    serde_json::from_value(json!({
        "schema": "clearstream.diagnosis", "version": 1, "sender_name": "alpha", "receiver_name": "beta",
        "sender": "client", "flow": {}, "observed_bps": 10.6e9, "stages": [],
        "primary": { "unknown": { "because": because, "experiment": {
            "kind": "again", "question": "the same flow repeated: is the machine repeatable?", "flow": {} } } },
    }))
    .unwrap()
}

#[test]
fn a_plateau_below_the_model_is_the_first_finding_with_its_diagnosis() {
    let folder = tempfile::tempdir().unwrap();
    let mut trials = short_windows();
    trials.push(run::trial(9, "flows", 0, &[("flows", json!(1))], run::flow(38.2, |_| ())));
    let reader = in_lab(folder.path(), trials);
    let requested = std::cell::RefCell::new(Vec::new());
    let report = Report::diagnosed(&reader, &|_, trial| {
        requested.borrow_mut().push(trial);
        Ok(unknown("no signature fits."))
    })
    .unwrap();
    // The typical trial of the fastest window of the plateau.
    assert_eq!(*requested.borrow(), [2]);
    // 32 MiB / 17 ms is 15.8 Gb/s: 10.3 are 65.2 %; 10.4 of 19 are 54.7 %.
    let short = "From a window of 32 MiB on goodput stays at 54.7 to 65.2 % of the model: 10.3 to 10.6 Gb/s where window / RTT and the link allow 15.8 to 19.0 Gb/s";
    let text = report.markdown();
    let (head, rest) = text.split_once("### First finding").unwrap();
    assert!(rest.contains(short), "{rest}");
    assert!(
        rest.contains("the diagnosis of trial 2 (10.6 Gb/s) does not find the limit: no signature fits."),
        "{rest}"
    );
    assert!(rest.contains("Next step: the same flow repeated"), "{rest}");
    let lab = "The lab\u{2019}s own effect in trial 2: its delay line, set to 8.50 ms in each direction, released packets 20.0 us late in the median, 400 us at the 99th percentile and 53.0 ms at most; its thread worked 34 % of the time with traffic. That is below what counts as the limit of a measurement.";
    assert!(rest.contains(lab), "{rest}");
    let first = head.lines().find(|line| line.starts_with("- **")).unwrap();
    assert!(
        first.contains("Plateau of the window curve, of what window and link allow: 54.7 to 65.2 %**"),
        "{first}"
    );
    assert!(first.contains("Over lab link wan0: 19.0 Gb/s, 17.0 ms round trip."), "{first}");
    // The share where the window alone decides is of 8 MiB only: 3.9 / 3.947.
    assert!(
        rest.contains(
            "Where the window alone decides goodput is 98.8 % of window / RTT (one trial, no interval)"
        ),
        "{rest}"
    );
    // The product is that of the path, not of the window at which a lower rate is reached.
    assert!(
        rest.contains("32 MiB is the smallest window within 5 % of the highest median, 10.6 Gb/s")
            && rest.contains("the bandwidth-delay product of 19.0 Gb/s and 17.0 ms is 38.5 MiB"),
        "{rest}"
    );
    let page = plain(&report.html().unwrap());
    let list = page.split("<ol class=\"findings\">").nth(1).unwrap();
    assert!(
        list.trim_start().starts_with("<li class=\"short\"><a href=\"#figure-window-window\">"),
        "{}",
        &list[..200]
    );
}

#[test]
fn a_plateau_without_a_diagnosis_names_the_command_and_a_full_one_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let text = markdown(&in_lab(folder.path(), short_windows())).unwrap();
    assert!(text.contains("clearstream diagnose --from RUN --trial 2"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let report =
        Report::diagnosed(&in_lab(folder.path(), short_windows()), &|_, _| Err("no samples".to_owned()))
            .unwrap();
    assert!(report.markdown().contains("trial 2 (10.6 Gb/s) could not be diagnosed: no samples"));
    let folder = tempfile::tempdir().unwrap();
    let mut trials = short_windows();
    for trial in &mut trials[1..] {
        let bytes = trial.factors["window"].as_str().unwrap().parse::<ByteCount>().unwrap();
        trial.outcome = run::flow((bytes.0 as f64 * 8.0 / 17e6).min(18.8), |s| {
            s.requested.window = Some(bytes);
            s.min_rtt_ns = Some(17_000_000);
        });
    }
    let reader = in_lab(folder.path(), trials);
    let report = Report::diagnosed(&reader, &|_, _| panic!("nothing to diagnose")).unwrap();
    assert!(!report.markdown().contains("First finding"));
}

/// Between real hosts there is no lab to name a rate: 40 Gb/s at MTU 9000 carry 39.6 Gb/s of
/// payload (8948 of 9038 bytes on the wire), and two servers that stay near 10.6 fall short of it.
#[test]
fn a_plateau_below_the_line_rate_of_two_servers_is_the_first_finding() {
    let short = |servers: (HostReport, HostReport), samples: &BTreeMap<u32, Vec<Interval>>| {
        let folder = tempfile::tempdir().unwrap();
        let mut trials = short_windows();
        trials.iter_mut().for_each(|trial| trial.delay_lines = Vec::new());
        let study = run::study("Two servers");
        let reader = run::write_with(folder.path(), study, servers, trials, samples, |_| ());
        Report::diagnosed(&reader, &|_, _| Ok(unknown("no signature fits."))).unwrap().markdown()
    };
    let servers = || (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let text = short(servers(), &BTreeMap::new());
    let (_, found) = text.split_once("### First finding").unwrap();
    assert!(
        found.contains("From a window of 32 MiB on goodput stays at 26.3 to 65.2 % of the model: 10.3 to 10.6 Gb/s where window / RTT and the link allow 15.8 to 39.6 Gb/s"),
        "{found}"
    );
    assert!(found.contains("(eth2: 40.0 Gb/s at MTU 9000), 39.6 Gb/s"), "{found}");

    // The slower interface decides: 1448 of 1538 bytes of 25 Gb/s are 23.5.
    let mut slower = servers();
    let card = slower.1.nics.iter_mut().find(|nic| nic.name == "eth2").unwrap();
    (card.speed_bps, card.mtu_bytes) = (Some(25_000_000_000), Some(1500));
    assert!(short(slower, &BTreeMap::new()).contains("allow 15.8 to 23.5 Gb/s"));

    // Of two cards that are up the byte counters of the samples name the one on the path.
    let mut two_cards = servers();
    for host in [&mut two_cards.0, &mut two_cards.1] {
        let card = host.nics.iter().find(|nic| nic.name == "eth2").unwrap().clone();
        let pci_address = Some("0000:01:00.0".to_owned());
        host.nics.push(Nic { name: "eth0".to_owned(), speed_bps: Some(1_000_000_000), pci_address, ..card });
    }
    assert!(!short(two_cards.clone(), &BTreeMap::new()).contains("First finding"), "which card is not known");
    let carried = |side: &mut clearstream_schema::flow::SideInterval| {
        let counted = |name: &str, send_bytes| InterfaceCounters {
            name: name.to_owned(),
            send_bytes,
            ..InterfaceCounters::default()
        };
        side.interfaces = vec![counted("eth0", 4000), counted("eth2", 1_300_000_000)];
    };
    let samples = BTreeMap::from([(0, run::samples(&[3.9, 3.9], carried))]);
    assert!(short(two_cards, &samples).contains("allow 15.8 to 39.6 Gb/s"));
    // Virtual interfaces have no line rate to fall short of.
    assert!(!short(virtual_machines(), &BTreeMap::new()).contains("First finding"));
}

#[test]
fn ranges_over_time_quote_every_repetition() {
    let folder = tempfile::tempdir().unwrap();
    let mut trials = Vec::new();
    let mut samples = BTreeMap::new();
    // Four are drawn; the widest is the last of six, far from the median.
    for (number, (low, high, mean)) in (0..).zip([
        (30.0, 40.0, 35.0),
        (31.0, 39.0, 35.0),
        (32.0, 38.0, 35.0),
        (33.0, 37.0, 35.0),
        (34.0, 36.0, 35.0),
        (23.4, 46.6, 34.0),
    ]) {
        let one = run::trial(number, "flows", 0, &[("flows", json!(1))], run::flow(mean, |_| ()));
        trials.push(TrialDocument { repetition: number, ..one });
        // The first sample is in the warm-up and counts for nothing.
        samples.insert(number, run::samples(&[99.0, low, high], |_| ()));
    }
    let reader =
        run::write_with(folder.path(), run::study("Six"), virtual_machines(), trials, &samples, |_| ());
    let text = markdown(&reader).unwrap();
    assert!(text.contains("1 flow: 23.4 to 46.6 Gb/s (6 trials)."), "{text}");
    assert!(text.contains("2 trials more in sentence and table are not drawn."), "{text}");
    assert_eq!(text.matches("| 1 flow (trial ").count(), 6, "the table has all: {text}");
}

#[test]
fn the_cost_is_that_of_the_flow_and_other_programs_are_separate() {
    let folder = tempfile::tempdir().unwrap();
    // 8 Gb/s are 10^9 bytes a second: threads use 0.21 and 0.50 of a core, softirqs 0.05, others 16.5.
    let side = |side: &mut clearstream_schema::flow::SideInterval| {
        side.thread_cpu_ns = 355_000_000;
        side.cores = vec![CoreCounters {
            user_ns: 16_500_000_000,
            system_ns: 710_000_000,
            softirq_ns: 50_000_000,
            ..CoreCounters::default()
        }];
    };
    let trial = run::trial(
        0,
        "flows",
        0,
        &[("flows", json!(1))],
        run::flow(8.0, |s| {
            (s.client_cpu_seconds_per_gb, s.server_cpu_seconds_per_gb) = (0.21, 0.50);
        }),
    );
    let samples = BTreeMap::from([(0, run::samples(&[8.0, 8.0, 8.0], side))]);
    let one = || hosts::virtual_machine("busy");
    let reader =
        run::write_with(folder.path(), run::study("Busy"), (one(), one()), vec![trial], &samples, |_| ());
    let text = markdown(&reader).unwrap();
    assert!(text.contains("A gigabyte costs 0.710 CPU s of the flow\u{2019}s threads at both ends together (1 flow), up to 0.760 CPU s with all softirqs of the hosts; medians"), "{text}");
    assert!(text.contains("| 1 flow | both ends, one machine | 0.710 | 0.0500 | 0.760 | 16.5 |"), "{text}");
    assert!(
        text.contains("Other programs used up to 16.5 CPU s in the time of a gigabyte"),
        "no lab is named where there is none: {text}"
    );
}

#[test]
fn a_run_on_one_machine_is_labelled_in_title_band_and_cards() {
    let flow = |remote: &str| run::flow(38.2, |s| s.client_settings.flows[0].remote = remote.to_owned());
    let folder = tempfile::tempdir().unwrap();
    let mut trials = short_windows();
    trials.push(run::trial(9, "flows", 0, &[("flows", json!(1))], flow("10.0.1.2:5201")));
    let reader = in_lab(folder.path(), trials);
    let page = plain(&html(&reader).unwrap());
    assert!(page.contains("<h1>Over 1650 km \u{2013} in a lab on one machine</h1>"));
    let band = page.split("class=\"band\"").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(band.contains("no packet crossed an Ethernet card, a cable or a network"), "{band}");
    let lines = headlines(&reader).unwrap();
    let best = lines.iter().find(|line| line.starts_with("Best single-flow")).unwrap();
    assert!(
        best.contains("lab link lan0: virtual, no rate or delay set. "),
        "the short link, not the long one: {best}"
    );

    let folder = tempfile::tempdir().unwrap();
    let trials = vec![run::trial(0, "flows", 0, &[("flows", json!(1))], flow("127.0.0.1:5201"))];
    let one = || hosts::virtual_machine("vm");
    let text = markdown(&run::write(folder.path(), run::study("Alone"), (one(), one()), trials)).unwrap();
    assert!(
        text.starts_with("# Alone \u{2013} on one machine\n") && text.contains("over its loopback"),
        "{text}"
    );
    assert!(text.contains("Over loopback of vm.") && !text.contains("the lab"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let trials = vec![run::trial(0, "flows", 0, &[("flows", json!(1))], flow("10.9.9.9:5201"))];
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write(folder.path(), run::study("Two servers"), servers, trials);
    assert!(!html(&reader).unwrap().contains("class=\"band\""));
    assert!(headlines(&reader).unwrap()[0].contains(", dtn1 to dtn2. "));
}

#[test]
fn one_row_for_a_warning_that_many_trials_have() {
    let folder = tempfile::tempdir().unwrap();
    let mut trials = run::round_numbers();
    let count = trials.len();
    for (trial, percent) in trials.iter_mut().take(7).zip([100, 97, 88, 91, 99, 100, 93]) {
        if let TrialOutcome::Measured(outcome) = &mut trial.outcome {
            let message = format!("sender and receiver shared a CPU in {percent} % of the intervals");
            outcome.notices.push(Notice { id: "cores-chosen".to_owned(), message });
        }
    }
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let text = markdown(&run::write(folder.path(), run::study("Two servers"), servers, trials)).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| cores-chosen")).collect();
    let row = format!(
        "| cores-chosen | sender and receiver shared a CPU in 88 to 100 % of the intervals | flows, window | 7 of {count} |"
    );
    assert_eq!(rows, [row.as_str()]);
}

#[test]
fn units_stand_in_heads_and_small_rates_keep_their_digits() {
    let folder = tempfile::tempdir().unwrap();
    let trials = [0.109, 0.1, 0.091].into_iter().zip(0..).map(|(gbps, repetition)| {
        let one = run::trial(repetition, "flows", 0, &[("flows", json!(1))], run::flow(gbps, |_| ()));
        TrialDocument { repetition, ..one }
    });
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write(folder.path(), run::study("Slow"), servers, trials.collect());
    let text = markdown(&reader).unwrap();
    assert!(text.contains("| 1 flow | 3 | 0.100 | 0.0910 to 0.109 (range of 3) |"), "{text}");
    let page = html(&reader).unwrap();
    assert!(
        page.contains(">goodput, Gb/s</text>") && !page.contains(">Gb/s</text>"),
        "axes name their quantity"
    );
}

/// Several runs of a study: each cell over the runs, oldest first, and nothing claimed of a trend.
#[test]
fn several_runs_are_one_page_by_date() {
    let servers = || (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |folder: &std::path::Path, started: &str, gbps: f64| {
        let trials = vec![
            run::trial(0, "flows", 0, &[("flows", json!(1))], run::flow(gbps, |_| ())),
            run::trial(1, "flows", 1, &[("flows", json!(2))], run::flow(27.5, |s| s.requested.flows = 2)),
        ];
        run::write_with(folder, run::study("Two servers"), servers(), trials, &BTreeMap::new(), |run| {
            run.started = started.to_owned();
        })
    };
    let newer = run(new.path(), "2026-02-01T00:00:00Z", 20.0);
    let older = run(old.path(), "2026-01-01T00:00:00Z", 22.0);
    let page = plain(&clearstream_report::history_html(&[newer, older]).unwrap());
    assert!(page.contains("2 runs, 2026-01-01T00:00:00Z to 2026-02-01T00:00:00Z"));
    assert!(page.contains("1 flow: 20.0 to 22.0 Gb/s (2 runs); 2 flows: 27.5 Gb/s (2 runs)."), "{page}");
    // Older first: 22, then 20.
    let row = "<th scope=\"row\">1 flow</th><td class=\"num\">22.0 Gb/s</td><td class=\"num\">20.0 Gb/s</td>";
    assert!(page.contains(row));
    assert!(
        page.contains("Fewer than two runs measured the same cell of it."),
        "the window was not measured"
    );
    assert_eq!(page.matches("<script").count(), 1);
}
