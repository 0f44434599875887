//! Rows of a running test, at most 80 columns wide.

use clearstream_schema::{
    counters::CoreCounters,
    flow::{Direction, DirectionInterval, FlowConfig, FlowSettings, Interval, Protocol, SideInterval},
};

use super::super::quantity::{bytes, rate, time};

/// Columns of the table: they depend on the protocol and on where both ends are.
#[derive(Debug, Clone, Copy)]
pub struct IntervalTable {
    is_udp: bool,
    is_both: bool,
    is_one_machine: bool,
    has_warm_up: bool,
}

impl IntervalTable {
    /// For a test whose flows are connected.
    pub fn new(config: &FlowConfig, client: &FlowSettings, server: &FlowSettings) -> Self {
        Self {
            is_udp: config.protocol == Protocol::Udp,
            is_both: config.direction == Direction::Both,
            is_one_machine: super::is_one_machine(client, server),
            has_warm_up: config.warm_up.0 > 0 && config.bytes.is_none(),
        }
    }

    /// Legend and column headings.
    pub fn heading(&self) -> String {
        let host = if self.is_one_machine { "the host" } else { "the hosts" };
        let mut notes =
            format!("CPU: cores busy by the flow threads (client/server) and by all on {host}.\n");
        if self.is_both {
            notes.push_str("> client to server, < server to client. ");
        }
        if self.has_warm_up {
            notes.push_str("w: warm-up, not in the totals.");
        }
        let margin = if self.is_both { "  " } else { "" };
        let counts = match self.is_udp {
            true => format!("{:>14}{:>6}{:>8}", "lost/received", "late", "jitter"),
            false => format!("{:>7}{:>8}{:>9}", "retr", "rtt", "cwnd"),
        };
        let host = if self.is_one_machine { "host" } else { "hosts" };
        format!(
            "{}\n{:>14}  {margin}{:>10}{counts}{:>12}{host:>12}",
            notes.trim_end(),
            "interval",
            "goodput",
            "threads"
        )
    }

    /// A row for each direction that carries data.
    pub fn rows(&self, interval: &Interval) -> String {
        let rows: Vec<String> = interval.directions.iter().map(|one| self.row(interval, one)).collect();
        rows.join("\n")
    }

    fn row(&self, interval: &Interval, one: &DirectionInterval) -> String {
        // A side that was not there has no times.
        let timed = if interval.client.end_ns > 0 { &interval.client } else { &interval.server };
        let mark = if interval.warm_up { "w" } else { " " };
        let span = format!("{mark}{:>6.2}-{:>6.2} s", timed.start_ns as f64 / 1e9, timed.end_ns as f64 / 1e9);
        let arrow = match one.direction {
            _ if !self.is_both => "",
            Direction::Reverse => " <",
            Direction::Forward | Direction::Both => " >",
        };
        // The CPU usage is of both directions together: shown once.
        let processors = match one.direction {
            Direction::Reverse if self.is_both => String::new(),
            _ => self.processors(interval),
        };
        let row = format!("{span}{arrow}{:>10}{}{processors}", rate(one.goodput_bps), self.counts(one));
        row.trim_end().to_owned()
    }

    fn counts(&self, one: &DirectionInterval) -> String {
        let dash = || "-".to_owned();
        let number = |count: Option<u64>| count.map_or_else(dash, |count| count.to_string());
        if self.is_udp {
            let lost = format!("{}/{}", number(one.lost_count), number(one.datagram_count));
            let jitter = one.jitter_ns.map_or_else(dash, time);
            return format!("{lost:>14}{:>6}{jitter:>8}", number(one.reordered_count));
        }
        let rtt = one.rtt_ns.map_or_else(dash, time);
        let window = one.congestion_window_bytes.map_or_else(dash, bytes);
        format!("{:>7}{rtt:>8}{window:>9}", number(one.retransmit_count))
    }

    fn processors(&self, interval: &Interval) -> String {
        let (client, server) = (&interval.client, &interval.server);
        let threads = format!("{}/{}", threads(client), threads(server));
        let host = match self.is_one_machine {
            // The same counters, read twice.
            true if client.cores.is_empty() => host(server),
            true => host(client),
            false => format!("{}/{}", host(client), host(server)),
        };
        format!("{threads:>12}{host:>12}")
    }
}

fn cores(busy_ns: u64, side: &SideInterval) -> String {
    let wall = side.end_ns.saturating_sub(side.start_ns).max(1);
    format!("{:.2}", busy_ns as f64 / wall as f64)
}

/// Cores that the flow threads kept busy.
fn threads(side: &SideInterval) -> String {
    if side.flows.is_empty() { "-".to_owned() } else { cores(side.thread_cpu_ns, side) }
}

/// Cores that all programs and interrupts of the host kept busy.
fn host(side: &SideInterval) -> String {
    if side.cores.is_empty() {
        return "-".to_owned();
    }
    let busy = |core: &CoreCounters| core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns;
    cores(side.cores.iter().map(busy).sum(), side)
}

#[cfg(test)]
mod tests {
    use clearstream_schema::flow::FlowInterval;

    use super::*;

    fn side() -> SideInterval {
        let core = |core| CoreCounters { core, user_ns: 32_500_000_000, ..CoreCounters::default() };
        SideInterval {
            start_ns: 99_000_000_000,
            end_ns: 100_000_000_000,
            flows: vec![FlowInterval::default()],
            thread_cpu_ns: 12_340_000_000,
            cores: vec![core(0), core(1)],
            ..SideInterval::default()
        }
    }

    fn direction(direction: Direction, is_udp: bool) -> DirectionInterval {
        DirectionInterval {
            direction,
            goodput_bps: 123.4e9,
            retransmit_count: (!is_udp).then_some(123_456),
            rtt_ns: (!is_udp).then_some(266_123_456),
            congestion_window_bytes: (!is_udp).then_some(123 << 20),
            datagram_count: is_udp.then_some(9_123_456),
            lost_count: is_udp.then_some(12_345),
            reordered_count: is_udp.then_some(1234),
            jitter_ns: is_udp.then_some(123_456),
        }
    }

    /// Rows were 104 to 115 columns wide.
    #[test]
    fn rows_and_heads_of_the_largest_figures_fit_80_columns() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for tested in [Direction::Forward, Direction::Reverse, Direction::Both] {
                let config = FlowConfig { protocol, direction: tested, ..FlowConfig::default() };
                let one = FlowSettings { boot_id: Some("one".to_owned()), ..FlowSettings::default() };
                for server in [one.clone(), FlowSettings::default()] {
                    let table = IntervalTable::new(&config, &one, &server);
                    let is_udp = protocol == Protocol::Udp;
                    let directions = match tested {
                        Direction::Both => vec![Direction::Forward, Direction::Reverse],
                        only => vec![only],
                    };
                    let interval = Interval {
                        index: 0,
                        warm_up: true,
                        goodput_bps: 0.0,
                        directions: directions.into_iter().map(|one| direction(one, is_udp)).collect(),
                        client: side(),
                        server: side(),
                    };
                    let text = format!("{}\n{}", table.heading(), table.rows(&interval));
                    for line in text.lines() {
                        assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
                    }
                    assert!(text.contains("12.34/12.34"), "threads apart from hosts:\n{text}");
                    assert_eq!(text.contains("65.00/65.00"), !table.is_one_machine, "{text}");
                    assert_eq!(text.contains("> client to server"), tested == Direction::Both, "{text}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_zero_is_zero() {
        let config = FlowConfig::default();
        let table = IntervalTable::new(&config, &FlowSettings::default(), &FlowSettings::default());
        let directions = vec![DirectionInterval {
            retransmit_count: Some(0),
            rtt_ns: None,
            ..direction(Direction::Forward, false)
        }];
        let absent = SideInterval::default();
        let interval = Interval {
            index: 3,
            warm_up: false,
            goodput_bps: 0.0,
            directions,
            client: side(),
            server: absent,
        };
        let row = table.rows(&interval);
        let cells: Vec<&str> = row.split_whitespace().collect();
        // Interval, rate, retransmits, round trip, window, threads, hosts.
        assert_eq!(cells[4..], ["0", "-", "123", "MiB", "12.34/-", "65.00/-"], "{row}");
    }
}
