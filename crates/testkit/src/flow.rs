//! Synthetic flow results.

use clearstream_schema::flow::{FlowConfig, FlowSettings, FlowSummary};

/// A complete flow at a steady rate without further measurements: the optional results are absent, and
/// neither end reports its settings.
pub fn summary(requested: &FlowConfig, goodput_bps: f64, measured_ns: u64) -> FlowSummary {
    FlowSummary {
        requested: requested.clone(),
        client_settings: FlowSettings::default(),
        server_settings: FlowSettings::default(),
        measured_ns,
        received_bytes: (goodput_bps / 8.0 * measured_ns as f64 / 1e9) as u64,
        goodput_bps,
        flow_goodput_bps: vec![goodput_bps],
        directions: Vec::new(),
        retransmit_count: None,
        loss_ratio: None,
        rtt_ns: None,
        min_rtt_ns: None,
        client_cpu_seconds_per_gb: 0.1,
        server_cpu_seconds_per_gb: 0.1,
        client_cpu: None,
        server_cpu: None,
        cycles_per_byte_ratio: None,
        zerocopy: None,
        adaptation: None,
        interrupt_core: None,
        seen_cores: Vec::new(),
        notices: Vec::new(),
        complete: true,
    }
}
