//! Metrics of `clearstream live`: sums since the start.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use clearstream_schema::live::LiveSample;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use crate::Exposition;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHost {
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfInterface {
    host: String,
    interface: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCore {
    host: String,
    core: u32,
    mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGateway {
    host: String,
    network: String,
    gateway: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLimit {
    host: String,
    limit: String,
}

type Seconds = Counter<f64, AtomicU64>;

/// Metrics of `clearstream live`.
#[derive(Clone)]
pub struct LiveMetrics {
    registry: Arc<Mutex<Registry>>,
    bytes: Family<OfInterface, Counter>,
    packets: Family<OfInterface, Counter>,
    drops: Family<OfInterface, Counter>,
    core_seconds: Family<OfCore, Seconds>,
    softnet_drops: Family<OfHost, Counter>,
    softnet_squeezes: Family<OfHost, Counter>,
    retransmits: Family<OfHost, Counter>,
    resets: Family<OfHost, Counter>,
    established: Family<OfHost, Gauge>,
    memory: Family<OfHost, Gauge>,
    samples: Family<OfHost, Counter>,
    up: Family<OfHost, Gauge>,
    limits: Family<OfLimit, Gauge>,
    gateways: Family<OfGateway, Gauge>,
    /// By host.
    seen_limits: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
}

impl Default for LiveMetrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("clearstream_live"))),
            bytes: Family::default(),
            packets: Family::default(),
            drops: Family::default(),
            core_seconds: Family::default(),
            softnet_drops: Family::default(),
            softnet_squeezes: Family::default(),
            retransmits: Family::default(),
            resets: Family::default(),
            established: Family::default(),
            memory: Family::default(),
            samples: Family::default(),
            up: Family::default(),
            limits: Family::default(),
            gateways: Family::default(),
            seen_limits: Arc::default(),
        };
        metrics.register();
        metrics
    }
}

impl LiveMetrics {
    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_with_unit("interface", "Bytes of an interface", Unit::Bytes, self.bytes.clone());
        registry.register("interface_packets", "Packets of an interface", self.packets.clone());
        registry.register("interface_drops", "Packets that an interface dropped", self.drops.clone());
        registry.register_with_unit(
            "core",
            "Time of a core by mode",
            Unit::Seconds,
            self.core_seconds.clone(),
        );
        registry.register("softnet_drops", "Packets dropped by a full backlog", self.softnet_drops.clone());
        registry.register(
            "softnet_squeezes",
            "Rounds ended by budget or time",
            self.softnet_squeezes.clone(),
        );
        registry.register("tcp_retransmitted_segments", "Segments retransmitted", self.retransmits.clone());
        registry.register("tcp_resets", "Connections reset and resets sent", self.resets.clone());
        registry.register("tcp_established", "Established connections", self.established.clone());
        registry.register_with_unit("tcp_memory", "Memory of TCP sockets", Unit::Bytes, self.memory.clone());
        registry.register("samples", "Samples of a host", self.samples.clone());
        registry.register("host_up", "1 while the host is read", self.up.clone());
        registry.register(
            "connections_limited",
            "Busiest connections by what limits them",
            self.limits.clone(),
        );
        registry.register("gateway_used", "1 while a watch uses the gateway", self.gateways.clone());
    }

    /// Takes in a sample.
    pub fn add(&self, sample: &LiveSample) {
        let host = || OfHost { host: sample.host.clone() };
        for one in &sample.counters.interfaces {
            let directions = [
                ("receive", one.receive_bytes, one.receive_packet_count, one.receive_drop_count),
                ("send", one.send_bytes, one.send_packet_count, one.send_drop_count),
            ];
            for (direction, bytes, packets, drops) in directions {
                let labels =
                    OfInterface { host: sample.host.clone(), interface: one.name.clone(), direction };
                self.bytes.get_or_create(&labels).inc_by(bytes);
                self.packets.get_or_create(&labels).inc_by(packets);
                self.drops.get_or_create(&labels).inc_by(drops);
            }
        }
        for one in &sample.counters.cores {
            let modes = [
                ("user", one.user_ns),
                ("system", one.system_ns),
                ("softirq", one.softirq_ns),
                ("irq", one.irq_ns),
                ("steal", one.steal_ns),
                ("idle", one.idle_ns),
            ];
            for (mode, ns) in modes {
                let labels = OfCore { host: sample.host.clone(), core: one.core, mode };
                self.core_seconds.get_or_create(&labels).inc_by(ns as f64 / 1e9);
            }
            self.softnet_drops.get_or_create(&host()).inc_by(one.softnet_dropped_count);
            self.softnet_squeezes.get_or_create(&host()).inc_by(one.softnet_squeezed_count);
        }
        self.retransmits.get_or_create(&host()).inc_by(sample.tcp.retransmit_count);
        self.resets.get_or_create(&host()).inc_by(sample.tcp.reset_count);
        self.established.get_or_create(&host()).set(signed(sample.tcp.established_count));
        self.memory.get_or_create(&host()).set(signed(sample.tcp.memory_bytes));
        self.samples.get_or_create(&host()).inc();
        self.up.get_or_create(&host()).set(1);
        self.limits(sample);
        for path in &sample.paths {
            for gateway in &path.gateways {
                let labels = OfGateway {
                    host: sample.host.clone(),
                    network: path.path.network.clone(),
                    gateway: gateway.name.clone(),
                };
                self.gateways.get_or_create(&labels).set(i64::from(gateway.used));
            }
        }
    }

    /// A host that does not respond.
    pub fn lose(&self, host: &str) {
        self.up.get_or_create(&OfHost { host: host.to_owned() }).set(0);
    }

    /// Limits that none has any more are 0, so that a rule sees them end.
    fn limits(&self, sample: &LiveSample) {
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for connection in &sample.connections {
            *counts.entry(&connection.limit).or_default() += 1;
        }
        let labels = |limit: &str| OfLimit { host: sample.host.clone(), limit: limit.to_owned() };
        let mut seen = self.seen_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.entry(sample.host.clone()).or_default();
        for limit in seen.iter().filter(|limit| !counts.contains_key(limit.as_str())) {
            self.limits.get_or_create(&labels(limit)).set(0);
        }
        for (limit, count) in counts {
            self.limits.get_or_create(&labels(limit)).set(count);
            seen.insert(limit.to_owned());
        }
    }

    /// The text of `/metrics`.
    pub fn exposition(&self) -> Exposition {
        let registry = Arc::clone(&self.registry);
        Arc::new(move || {
            let mut text = String::new();
            encode(&mut text, &registry.lock().unwrap_or_else(PoisonError::into_inner))?;
            Ok::<_, fmt::Error>(text)
        })
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
