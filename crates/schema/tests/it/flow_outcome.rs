//! Tests of `flow/outcome`.

use clearstream_schema::ByteCount;
use clearstream_schema::CoreList;
use clearstream_schema::flow::{
    Direction, FlowConfig, FlowSettings, FlowSummary, InterruptCore, SocketSettings,
};
use clearstream_schema::outcome::SettingValue;
use serde_json::Value;
use serde_json::json;

fn summary(requested: FlowConfig, client: SocketSettings, server: SocketSettings) -> FlowSummary {
    let of = |socket: SocketSettings| FlowSettings { flows: vec![socket; 2], ..FlowSettings::default() };
    serde_json::from_value(json!({
        "requested": requested, "client_settings": of(client), "server_settings": of(server),
        "measured_ns": 1, "received_bytes": 1, "goodput_bps": 1.0, "flow_goodput_bps": [],
        "client_cpu_seconds_per_gb": 0.1, "server_cpu_seconds_per_gb": 0.1, "complete": true,
    }))
    .unwrap()
}

#[test]
fn settings_are_those_of_each_host_as_requested_and_as_effective() {
    let requested = FlowConfig {
        flows: 2,
        direction: Direction::Reverse,
        window: Some(ByteCount(1 << 20)),
        sender_cores: Some(CoreList(vec![3])),
        ..FlowConfig::default()
    };
    let client = SocketSettings { receive_buffer_bytes: 425_984, ..SocketSettings::default() };
    let server = SocketSettings {
        send_buffer_bytes: 2 << 20,
        pinned_core: Some(3),
        congestion_control: Some("cubic".to_owned()),
        ..SocketSettings::default()
    };
    let outcome = summary(requested, client, server).outcome().unwrap();
    let found = |role: &str, name: &str| {
        let one = |one: &&SettingValue| one.role.as_deref() == Some(role) && one.name == name;
        let one = outcome.settings.iter().find(one)?;
        Some((one.requested.clone(), one.effective.clone()))
    };
    let known = |requested: Value, effective: Value| Some((Some(requested), Some(effective)));
    assert_eq!(found("client", "receive-buffer"), known(json!(1 << 20), json!(425_984)));
    assert_eq!(found("server", "send-buffer"), known(json!(1 << 20), json!(2 << 20)));
    assert_eq!(found("server", "sender-cores"), known(json!([3, 3]), json!([3, 3])));
    assert_eq!(found("server", "congestion-control"), Some((None, Some(json!("cubic")))));
    // The client receives only; what neither side knows is left out.
    assert_eq!(found("client", "send-buffer"), None);
    assert_eq!(found("client", "sender-cores"), None);
    assert_eq!(found("server", "pacing"), None);
}

/// By these a report knows the path, the machine and the cores of a trial.
#[test]
fn what_was_seen_of_path_and_cores_is_among_the_settings() {
    let socket = SocketSettings { remote: "[fd00::2]:5001".to_owned(), ..SocketSettings::default() };
    let requested = FlowConfig { direction: Direction::Reverse, burst_flows: 2, ..FlowConfig::default() };
    let mut summary = summary(requested, socket, SocketSettings::default());
    summary.client_settings.boot_id = Some("one".to_owned());
    summary.server_settings.boot_id = Some("other".to_owned());
    summary.seen_cores = vec![(0, Some(1), Some(5))];
    summary.interrupt_core = Some(InterruptCore { core: 7, softirq_share_percent: 97, confirmed: None });
    let settings = summary.outcome().unwrap().settings;
    let found = |name: &str| {
        let one = settings.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}"));
        (one.role.as_deref(), one.requested.clone().or(one.effective.clone()).unwrap())
    };
    assert_eq!(found("burst-flows"), (None, json!(2)));
    assert_eq!(found("destination-address"), (Some("client"), json!("fd00::2")));
    assert_eq!(found("same-kernel"), (None, json!(false)));
    assert_eq!(found("sender-core-seen"), (Some("server"), json!(1)));
    assert_eq!(found("receiver-core-seen"), (Some("client"), json!(5)));
    assert_eq!(found("interrupt-core"), (Some("client"), json!(7)));
}
