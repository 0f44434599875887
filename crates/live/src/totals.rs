//! Sums over the samples of a host.

use clearstream_schema::{
    counters::{CoreCounters, HostCounters, InterfaceCounters},
    live::{LiveSample, LiveTotals},
};

/// Sums of one host.
#[derive(Debug, Clone)]
pub struct Totals(LiveTotals);

impl Totals {
    /// Without samples yet.
    pub fn of(host: &str) -> Self {
        Self(LiveTotals {
            host: host.to_owned(),
            sample_count: 0,
            gap_count: 0,
            duration_ns: 0,
            counters: HostCounters::default(),
        })
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &LiveSample) {
        let sums = &mut self.0.counters;
        for core in &sample.counters.cores {
            match sums.cores.iter_mut().find(|sum| sum.core == core.core) {
                Some(sum) => add_core(sum, core),
                None => sums.cores.push(core.clone()),
            }
        }
        for interface in &sample.counters.interfaces {
            match sums.interfaces.iter_mut().find(|sum| sum.name == interface.name) {
                Some(sum) => add_interface(sum, interface),
                None => sums.interfaces.push(interface.clone()),
            }
        }
        for (name, count) in &sample.counters.tcp {
            *sums.tcp.entry(name.clone()).or_default() += count;
        }
        self.0.sample_count += 1;
        self.0.duration_ns += sample.interval_ns;
    }

    /// Counts an interval without a sample.
    pub fn add_gap(&mut self) {
        self.0.gap_count += 1;
    }

    /// The sums.
    pub fn document(&self) -> &LiveTotals {
        &self.0
    }
}

/// Adds the fields of one to another's.
macro_rules! add {
    ($sum:ident, $one:ident, { $($field:ident),* }) => { $($sum.$field += $one.$field;)* };
}

fn add_core(sum: &mut CoreCounters, one: &CoreCounters) {
    add!(sum, one, {
        user_ns, system_ns, softirq_ns, irq_ns, idle_ns, steal_ns, net_rx_count, interrupt_count,
        softnet_processed_count, softnet_dropped_count, softnet_squeezed_count
    });
}

fn add_interface(sum: &mut InterfaceCounters, one: &InterfaceCounters) {
    add!(sum, one, {
        receive_bytes, receive_packet_count, receive_error_count, receive_drop_count,
        send_bytes, send_packet_count, send_error_count, send_drop_count
    });
}
