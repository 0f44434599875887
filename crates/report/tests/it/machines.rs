//! The hosts of a run, however many: each is shown once, with its name and role.

use crate::common::hosts;
use crate::common::run;
use std::collections::BTreeMap;

use clearstream_report::{history_html, html, markdown};
use clearstream_schema::{
    host::{HostReport, MissingPart},
    record::{RunDocument, RunHost},
};
use serde_json::json;

fn host(role: &str, report: HostReport) -> RunHost {
    RunHost { name: report.name.clone(), role: role.to_owned(), report, capture: None }
}

/// Markdown, page and history of a run of an all-pairs experiment between these hosts.
fn report(hosts: Vec<RunHost>, change: impl FnOnce(&mut RunDocument)) -> [String; 3] {
    let study = run::study_of(json!([
        { "name": "pairs", "title": "All pairs", "workload": "all-pairs", "figure": "bars" },
    ]));
    let outcome = run::outcome(&[("pair-goodput", "b/s", "higher", 9e9)], |_| ());
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write_with(
        folder.path(),
        study,
        (HostReport::default(), HostReport::default()),
        vec![run::trial(0, "pairs", 0, &[], outcome)],
        &BTreeMap::new(),
        |run| {
            run.hosts = hosts;
            change(run);
        },
    );
    [markdown(&reader).unwrap(), html(&reader).unwrap(), history_html(std::slice::from_ref(&reader)).unwrap()]
}

#[test]
fn every_host_of_a_set_is_pictured_with_its_name_and_listed() {
    let mut third = hosts::virtual_machine("n3");
    third.missing.push(MissingPart {
        part: "rings".to_owned(),
        source: "ethtool".to_owned(),
        reason: "not reported".to_owned(),
    });
    let set = vec![
        host("node", hosts::nehalem("n1")),
        host("node", hosts::magny_cours("n2")),
        host("node", third),
        host("storage", hosts::nehalem("n4")),
    ];
    let [text, page, history] = report(set, |_| ());
    assert!(text.lines().nth(2).unwrap().starts_with("n1, n2, n3 and n4 \u{b7} standard run"), "{text}");
    for (id, title) in [
        ("figure-host-node-n1", "n1 (node)"),
        ("figure-host-node-n2", "n2 (node)"),
        ("figure-host-node-n3", "n3 (node)"),
        ("figure-host-storage", "n4 (storage)"),
    ] {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id}");
        assert!(text.contains(&format!("### {title}")), "{title}");
    }
    assert!(text.contains("Measured over paths between 4 hosts."), "{text}");
    for fact in ["- Node: n1, ", "- Node: n2, ", "- Node: n3, ", "- Storage: n4, "] {
        assert!(text.contains(fact), "{fact}");
    }
    assert!(text.contains("| n3 | rings | ethtool | not reported |"), "{text}");
    // All but the virtual machine have the same card in the same kind of slot.
    assert_eq!(page.matches("<figure id=\"figure-pcie").count(), 1);
    assert!(text.contains("(n1, n2 and n4)"), "{text}");
    assert!(!text.contains("on one machine"), "{text}");
    assert!(history.contains("4 machines") && history.contains("n1, n2, n3 and n4"));
}

#[test]
fn hosts_of_one_machine_are_pictured_once() {
    let set = ["a", "b", "c"].map(|name| host("node", hosts::virtual_machine(name)));
    let [text, page, _] = report(set.to_vec(), |run| run.lab = Some(run::lab()));
    assert_eq!(page.matches("<figure id=\"figure-host").count(), 1);
    assert!(text.contains("### a, b and c (3 hosts, one machine)"), "{text}");
    assert!(text.contains("No PCIe staircase: no host has"), "{text}");
}

#[test]
fn two_machines_of_three_hosts_are_two_pictures() {
    let twice = |name: &str| HostReport { name: name.to_owned(), ..hosts::nehalem("dtn") };
    let set = vec![
        host("client", twice("dtn")),
        host("client", twice("dtn")),
        host("server", hosts::magny_cours("far")),
    ];
    let [text, page, _] = report(set, |_| ());
    assert_eq!(page.matches("<figure id=\"figure-host").count(), 2, "one name, one processor: one machine");
    assert!(text.contains("### dtn (2 hosts, one machine)") && text.contains("### far (server)"), "{text}");
}

#[test]
fn a_record_without_hosts_is_reported_as_such() {
    let [text, page, _] = report(Vec::new(), |_| ());
    assert!(text.contains("The record describes no host."), "{text}");
    assert!(page.contains("figure-pairs-pair-goodput"));
}
