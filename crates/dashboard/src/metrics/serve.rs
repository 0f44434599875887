//! Metrics of `clearstream serve`.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::MetricType::{Counter, Gauge},
};

use super::{Exposition, Family, add, exposition};

/// What a daemon counted since it started.
#[derive(Debug, Clone, Default)]
pub struct ServeCounts {
    /// Sessions that began, and those that broke off.
    pub session_count: u64,
    /// Sessions whose connection failed.
    pub failed_count: u64,
    /// Peers and calls that were refused.
    pub refused_count: u64,
    /// Sessions that are open.
    pub open_count: u64,
    /// Calls by name and whether they were served.
    pub calls: Vec<(String, bool, u64)>,
    /// Bytes sent and received on this host, by kind of test.
    pub transfers: Vec<(&'static str, [u64; 2])>,
}

/// The text of `/metrics`.
pub fn serve_exposition(counts: impl Fn() -> ServeCounts + Send + Sync + 'static) -> Exposition {
    exposition("clearstream_serve", move || Exposed(counts()))
}

#[derive(Debug)]
struct Exposed(ServeCounts);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = &self.0;
        let rows: [(Family, u64); 4] = [
            (Family("sessions", Counter, "Sessions of controllers that began"), counts.session_count),
            (Family("sessions_failed", Counter, "Sessions whose connection failed"), counts.failed_count),
            (Family("refused", Counter, "Peers and calls that were refused"), counts.refused_count),
            (Family("sessions_open", Gauge, "Sessions that are open"), counts.open_count),
        ];
        const NONE: [(&str, &str); 0] = [];
        for (family, value) in rows {
            add(&mut encoder, family, &[(NONE, value as f64)])?;
        }
        let outcome = |is_served: bool| if is_served { "served" } else { "failed" };
        let calls = counts.calls.iter().map(|(name, is_served, count)| {
            ([("call", name.as_str()), ("outcome", outcome(*is_served))], *count as f64)
        });
        add(&mut encoder, Family("calls", Counter, "Calls of controllers"), &calls.collect::<Vec<_>>())?;
        let transfers = counts.transfers.iter().flat_map(|(test, [sent, received])| {
            [("send", sent), ("receive", received)]
                .map(|(direction, bytes)| ([("test", *test), ("direction", direction)], *bytes as f64))
        });
        let family = Family("test_bytes", Counter, "Bytes that tests moved on this host, by kind of test");
        add(&mut encoder, family, &transfers.collect::<Vec<_>>())
    }
}
