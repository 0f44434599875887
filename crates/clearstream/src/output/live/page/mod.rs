//! The page of one host, as it fits: interfaces, cores, TCP, connections, gateways. Letters carry what colours do.

use std::iter::repeat_n;

use clearstream_schema::{
    counters::CoreCounters,
    live::{LiveConnection, LiveSample},
};
use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{Board, ScreenEvent, board::HostBoard, busy_interfaces, busy_ratio, named, per_second};
use crate::output::{
    escaped,
    quantity::{bytes, rate, time},
    sparkline::sparkline_of_rates,
    width,
};

/// Columns of a core's strip with its number and percentage: four fit beside each other into 80 columns.
const CORE_COLUMNS: usize = 19;
const STRIP_COLUMNS: usize = 8;

/// What the person chose to see.
#[derive(Debug, Default)]
pub(super) struct Page {
    host: usize,
    paused: bool,
    /// First connection that is shown.
    first: usize,
    colours: bool,
    /// Lines that stay while the page is paused.
    kept: Vec<Line<'static>>,
}

impl Page {
    pub(super) fn new(colours: bool) -> Self {
        Self { colours, ..Self::default() }
    }

    /// A key that was pressed.
    pub(super) fn key(&mut self, key: KeyCode) -> Option<ScreenEvent> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Some(ScreenEvent::Quit),
            KeyCode::Tab | KeyCode::Right => self.host = self.host.wrapping_add(1),
            KeyCode::BackTab | KeyCode::Left => self.host = self.host.wrapping_sub(1),
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            _ => return None,
        }
        Some(ScreenEvent::Redraw)
    }

    /// Draws the whole screen.
    pub(super) fn draw(&mut self, board: &Board, frame: &mut Frame<'_>) {
        let area = frame.area();
        let count = board.hosts().len();
        self.host = match self.host {
            usize::MAX => count.saturating_sub(1),
            host if host >= count => 0,
            host => host,
        };
        let Some(host) = board.hosts().get(self.host) else { return };
        if !self.paused || self.kept.is_empty() {
            self.kept = self.lines(host, area);
        }
        let [top, bottom] = [self.title(host, count), self.keys(count)];
        let links = board.links().iter().map(|link| Line::raw(link.clone()));
        let room = usize::from(area.height).saturating_sub(2 + links.len());
        let body = self.kept.iter().take(room).cloned();
        let blank = room.saturating_sub(self.kept.len());
        let lines = [top]
            .into_iter()
            .chain(body)
            .chain(repeat_n(Line::default(), blank))
            .chain(links)
            .chain([bottom]);
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }

    fn title(&self, host: &HostBoard, count: usize) -> Line<'static> {
        let of = if count > 1 { format!(" ({} of {count})", self.host + 1) } else { String::new() };
        let state = match (&host.lost, &host.latest) {
            (Some((since, reason)), _) => {
                format!("  no samples for {} s: {}", since.elapsed().as_secs(), escaped(reason))
            }
            (None, Some(sample)) => {
                let clock = sample.time.get(11..19).unwrap_or(&sample.time);
                format!("  {clock} UTC  interval {}", time(sample.interval_ns))
            }
            (None, None) => "  waiting for the first interval".to_owned(),
        };
        let paused = if self.paused { "  paused" } else { "" };
        let name = Span::styled(format!("{}{of}", escaped(&host.name)), self.strong());
        let style = if host.lost.is_some() { self.colour(Color::Red) } else { Style::default() };
        Line::from(vec![name, Span::styled(format!("{state}{paused}"), style)])
    }

    fn keys(&self, count: usize) -> Line<'static> {
        let hosts = if count > 1 { "  tab next host" } else { "" };
        let text = format!("q quit{hosts}  p pause  up/down connections");
        Line::styled(
            text,
            Style::default().add_modifier(if self.colours { Modifier::DIM } else { Modifier::empty() }),
        )
    }

    fn lines(&self, host: &HostBoard, area: Rect) -> Vec<Line<'static>> {
        let Some(sample) = &host.latest else { return Vec::new() };
        let (columns, rows) = (usize::from(area.width), usize::from(area.height).saturating_sub(2));
        let mut lines = self.interfaces(host, sample, columns, (rows / 4).max(2));
        lines.extend(self.cores(sample, columns, (rows / 3).max(2)));
        lines.extend(self.tcp(sample));
        lines.extend(self.gateways(sample));
        lines.extend(sample.notices.iter().take(2).map(|notice| {
            Line::styled(format!("note: {}", escaped(&notice.message)), self.colour(Color::Yellow))
        }));
        let room = rows.saturating_sub(lines.len());
        lines.extend(self.connections(sample, columns, room));
        lines
    }

    fn interfaces(
        &self,
        host: &HostBoard,
        sample: &LiveSample,
        columns: usize,
        room: usize,
    ) -> Vec<Line<'static>> {
        let mut lines = vec![self.heading(&format!(
            "{:<12}{:>11}{:>11}{:>10}{:>10}{:>7}  last",
            "interface", "in", "out", "in p/s", "out p/s", "drops"
        ))];
        let busy = busy_interfaces(sample);
        let hidden = busy.len().saturating_sub(room);
        for interface in busy.iter().take(room) {
            let drops = interface.receive_drop_count + interface.send_drop_count;
            let head = format!(
                "{:<12}{:>11}{:>11}{:>10}{:>10}{:>7}  ",
                cut(&interface.name, 11),
                rate(per_second(interface.receive_bytes * 8, sample)),
                rate(per_second(interface.send_bytes * 8, sample)),
                short(per_second(interface.receive_packet_count, sample)),
                short(per_second(interface.send_packet_count, sample)),
                drops,
            );
            let room = columns.saturating_sub(head.chars().count());
            let rates = host.rates.get(&interface.name).into_iter().flatten().copied().collect::<Vec<f64>>();
            let style = if drops > 0 { self.colour(Color::Red) } else { Style::default() };
            lines.push(Line::from(vec![
                Span::styled(head, style),
                Span::raw(sparkline_of_rates(&rates, room)),
            ]));
        }
        if busy.is_empty() {
            lines.push(Line::raw("no traffic"));
        } else if hidden > 0 {
            lines.push(Line::raw(format!("{hidden} more")));
        }
        lines.extend(self.queues(sample, columns));
        lines
    }

    /// Packets per second of each queue, of drivers that count them.
    fn queues(&self, sample: &LiveSample, columns: usize) -> Option<Line<'static>> {
        let busy = sample.queues.iter().filter(|queue| queue.packet_count > 0);
        let parts: Vec<String> = busy
            .map(|queue| {
                let direction = if queue.sends { "tx" } else { "rx" };
                format!(
                    "{} {direction}{} {}",
                    queue.interface,
                    queue.queue,
                    short(per_second(queue.packet_count, sample))
                )
            })
            .collect();
        (!parts.is_empty()).then(|| Line::raw(cut(&format!("queues p/s: {}", parts.join("  ")), columns)))
    }

    /// A strip per core, or one letter per core where there are too many.
    fn cores(&self, sample: &LiveSample, columns: usize, room: usize) -> Vec<Line<'static>> {
        let cores = &sample.counters.cores;
        let places = |core: u32| sample.places.iter().find(|place| place.core == core);
        let nodes: std::collections::BTreeSet<_> = cores
            .iter()
            .filter_map(|core| places(core.core))
            .map(|place| (place.package, place.node))
            .collect();
        let mut lines =
            vec![self.heading("cores: u user, s system, S softirq, I interrupt, t stolen by the hypervisor")];
        let per_row = (columns / CORE_COLUMNS).max(1);
        let fits = cores.len().div_ceil(per_row) + nodes.len() <= room + 1;
        for (package, node) in &nodes {
            let of_node: Vec<&CoreCounters> = cores
                .iter()
                .filter(|core| {
                    places(core.core).is_some_and(|place| (place.package, place.node) == (*package, *node))
                })
                .collect();
            let label = format!("package {package} node {node} ");
            if fits {
                if nodes.len() > 1 {
                    lines.push(Line::raw(label));
                }
                for row in of_node.chunks(per_row) {
                    lines.push(Line::from(row.iter().flat_map(|core| self.strip(core)).collect::<Vec<_>>()));
                }
            } else {
                // Tenths of each core's time: 0 idle, 9 full.
                let tenths = of_node.iter().map(|core| tenth(busy_ratio(core)));
                let room = columns.saturating_sub(label.len());
                lines.push(Line::raw(format!("{label}{}", tenths.take(room).collect::<String>())));
            }
        }
        let sum = |of: fn(&CoreCounters) -> u64| cores.iter().map(of).sum::<u64>();
        let (dropped, squeezed) =
            (sum(|core| core.softnet_dropped_count), sum(|core| core.softnet_squeezed_count));
        let style = if dropped > 0 { self.colour(Color::Red) } else { Style::default() };
        lines.push(Line::styled(
            format!(
                "softnet {} p/s, {dropped} dropped, {squeezed} rounds cut short; {} interrupts/s",
                short(per_second(sum(|core| core.softnet_processed_count), sample)),
                short(per_second(sum(|core| core.interrupt_count), sample)),
            ),
            style,
        ));
        lines
    }

    fn strip(&self, core: &CoreCounters) -> Vec<Span<'static>> {
        let all =
            core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns + core.idle_ns;
        let parts = [
            ('u', core.user_ns, Color::Green),
            ('s', core.system_ns, Color::Blue),
            ('S', core.softirq_ns, Color::Magenta),
            ('I', core.irq_ns, Color::Red),
            ('t', core.steal_ns, Color::Yellow),
        ];
        let mut spans = vec![Span::raw(format!("{:>3} ", core.core))];
        let (mut done, mut drawn) = (0, 0);
        for (letter, ns, colour) in parts {
            done += ns;
            // Ends are rounded, so that the parts sum up to the whole.
            let end = (done as f64 / all.max(1) as f64 * STRIP_COLUMNS as f64).round() as usize;
            spans.push(Span::styled(letter.to_string().repeat(end - drawn), self.colour(colour)));
            drawn = end;
        }
        let idle = ".".repeat(STRIP_COLUMNS - drawn);
        spans.push(Span::raw(format!("{idle}{:>4.0}%  ", busy_ratio(core) * 100.0)));
        spans
    }

    fn tcp(&self, sample: &LiveSample) -> Vec<Line<'static>> {
        let tcp = &sample.tcp;
        let per_second = |count: u64| short(per_second(count, sample));
        let pressed = tcp.memory_pressure_bytes.is_some_and(|bound| tcp.memory_bytes >= bound);
        let bound =
            tcp.memory_pressure_bytes.map_or_else(String::new, |bound| format!(" of {}", bytes(bound)));
        let text = format!(
            "TCP out {}/s in {}/s, {} retransmitted, {} resets; {} established; memory {}{bound}{}",
            per_second(tcp.sent_segment_count),
            per_second(tcp.received_segment_count),
            tcp.retransmit_count,
            tcp.reset_count,
            tcp.established_count,
            bytes(tcp.memory_bytes),
            if pressed { ": under pressure" } else { "" },
        );
        vec![Line::styled(text, if pressed { self.colour(Color::Red) } else { Style::default() })]
    }

    fn gateways(&self, sample: &LiveSample) -> Vec<Line<'static>> {
        let line = |path: &clearstream_schema::watch::PathStatus| {
            let gateways = path.gateways.iter().map(|gateway| {
                let state = match (gateway.used, gateway.drained) {
                    (_, true) => "drained",
                    (true, _) => "used",
                    (false, _) => "out",
                };
                format!("{} {state}", gateway.name)
            });
            let text = format!("gateways to {}: {}", path.path, gateways.collect::<Vec<_>>().join(", "));
            let faulty = path.gateways.iter().any(|gateway| !gateway.used && !gateway.drained);
            Line::styled(text, if faulty { self.colour(Color::Red) } else { Style::default() })
        };
        sample.paths.iter().map(line).collect()
    }

    fn connections(&self, sample: &LiveSample, columns: usize, room: usize) -> Vec<Line<'static>> {
        if room < 2 || sample.connection_count == 0 {
            return Vec::new();
        }
        let shown = sample.connections.len();
        let first = self.first.min(shown.saturating_sub(1));
        let mut lines = vec![self.heading(&format!(
            "{} connections, the busiest over {}",
            sample.connection_count,
            time(sample.connections_ns)
        ))];
        for connection in sample.connections.iter().skip(first) {
            lines.extend(self.connection(connection, columns));
        }
        lines.truncate(room);
        lines
    }

    /// What it carries in a line, and its limit in as many as the sentence needs, at most three.
    fn connection(&self, one: &LiveConnection, columns: usize) -> Vec<Line<'static>> {
        let retransmitted = match one.retransmit_count {
            0 => String::new(),
            count => format!(", {count} retransmitted"),
        };
        let head = format!(
            "{:<20} {:>10}  rtt {}{retransmitted}  {} > {}",
            cut(&escaped(&named(one)), 20),
            rate(one.out_bps.max(one.in_bps)),
            time(one.rtt_ns),
            one.local,
            one.remote,
        );
        let limit = format!("{}: {}", one.limit, escaped(&one.sentence));
        let limited = !matches!(one.limit.as_str(), "idle" | "unknown");
        let style = if limited { self.colour(Color::Yellow) } else { Style::default() };
        let lines = width::fit(&limit, columns.saturating_sub(2).max(20));
        let lines = lines.lines().take(3).map(|line| Line::styled(format!("  {line}"), style));
        [Line::raw(cut(&head, columns))].into_iter().chain(lines).collect()
    }

    fn heading(&self, text: &str) -> Line<'static> {
        Line::styled(text.to_owned(), self.strong())
    }

    fn strong(&self) -> Style {
        if self.colours { Style::default().add_modifier(Modifier::BOLD) } else { Style::default() }
    }

    fn colour(&self, colour: Color) -> Style {
        if self.colours { Style::default().fg(colour) } else { Style::default() }
    }
}

/// `12.3k`: a count in four or five columns.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

fn tenth(ratio: f64) -> char {
    char::from_digit((ratio * 10.0).min(9.0) as u32, 10).unwrap_or('9')
}

/// The first columns of a text; an ellipsis stands for what is left out.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
