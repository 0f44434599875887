//! A study of gateways of which one fails, the lab that it runs in, and its trials.

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::Lab;

/// A gateway is out after `down-count` rounds and the probe timeout, 3 x 20 ms + 60 ms
/// (`WatchSettings::default`), and a flow over it gets a response at TCP's next
/// retransmission: 0.2, 0.6, 1.4, 3.0 or 6.2 s after the loss (RFC 6298). A flow is
/// stuck without a response in the last second. 9 s leave the retransmission at 6.2 s in
/// the trial, so that a watch on a busy machine may take 50 times that bound.
pub(crate) const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "e2e-gateways"
title = "a study of a test"
[[experiment]]
name = "failover"
title = "a gateway stops forwarding"
workload = "gateways"
figure = "gateways"
[experiment.gateways]
flows = 36
settle = "1s"
duration = "9s"
failure = "not-forwarding"
gateway = "gw5"
return-path = "none"
[experiment.factors]
watch = [false, true]
"#;

/// The built-in lab under a name of its own.
pub(crate) fn lab(folder: &Path, name: &str) -> Lab {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/gateways-6.toml"));
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text.unwrap().replace("name = \"gateways-6\"", &format!("name = \"{name}\""))).unwrap();
    Lab::up(&path, name)
}

pub(crate) fn trials(runs: &Path) -> Vec<Value> {
    let record = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
