//! Link model: when a packet leaves, or whether it is lost. Pure functions: the
//! time is an argument, random numbers come from a seed.

use clearstream_schema::lab::LabLink;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkModel {
    /// Propagation delay.
    pub delay_ns: u64,
    /// Maximum deviation of each packet's delay, uniform in both directions;
    /// packets are not reordered.
    pub jitter_ns: u64,
    /// Loss probability of each packet, independent, 0 to 1.
    pub loss_ratio: f64,
    /// Link rate; unlimited when absent.
    pub rate_bps: Option<u64>,
    /// Maximum queueing delay; a packet that would wait longer is dropped.
    pub queue_ns: u64,
    /// Longer packets are dropped silently, counted from the IP header; none
    /// when absent.
    pub longest_bytes: Option<u32>,
}

/// Default queue in front of a rate limit: 50 ms, as a deep-buffered router has
/// for a 40 Gb/s port, and several times the round-trip time of the built-in
/// labs.
pub const DEFAULT_QUEUE_NS: u64 = 50_000_000;

impl From<&LabLink> for LinkModel {
    fn from(link: &LabLink) -> Self {
        Self {
            delay_ns: link.delay.0,
            jitter_ns: link.jitter.0,
            loss_ratio: link.loss_ratio,
            rate_bps: link.rate.map(|rate| rate.0),
            queue_ns: link.queue.map_or(DEFAULT_QUEUE_NS, |queue| queue.0),
            longest_bytes: link.black_hole_above,
        }
    }
}

/// Result for a packet that was not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves at this time.
    Leaves {
        /// Nanoseconds on the clock of the arrivals.
        at_ns: u64,
    },
    /// The queue was full.
    Overflow,
    /// The line is so late that waiting for it would exceed the queue.
    Behind,
}

/// Lateness below which a line is not behind: its thread competes for cores.
pub const BEHIND_TOLERANCE_NS: u64 = 2_000_000;

/// State of one direction.
#[derive(Debug, Clone)]
pub struct Direction {
    model: LinkModel,
    losses: Random,
    jitter: Random,
    /// Number of packets before the next loss.
    passes_until_loss: u64,
    /// Time at which all accepted packets have been transmitted.
    wire_free_ns: u64,
    /// Fraction of a nanosecond beyond that, in `1/rate` of one.
    wire_rest: u64,
    last_leaves_ns: u64,
}

impl Direction {
    /// Creates an idle direction. The same seed gives the same losses and the
    /// same jitter.
    pub fn new(model: LinkModel, seed: u64) -> Self {
        let mut direction = Self {
            model,
            losses: Random::new(seed),
            // A separate sequence, so that losses are the same with and without
            // jitter.
            jitter: Random::new(seed ^ 0x6a09_e667_f3bc_c909),
            passes_until_loss: 0,
            wire_free_ns: 0,
            wire_rest: 0,
            last_leaves_ns: 0,
        };
        direction.passes_until_loss = direction.next_gap();
        direction
    }

    /// Accepts packets by another model from now on. Losses keep their sequence.
    pub fn change(&mut self, model: LinkModel) {
        if model.loss_ratio != self.model.loss_ratio {
            self.model = model;
            self.passes_until_loss = self.next_gap();
        }
        self.model = model;
    }

    /// Whether packets of this length are dropped silently (path MTU black
    /// hole).
    pub fn is_black_holed(&self, packet_bytes: u64) -> bool {
        self.model.longest_bytes.is_some_and(|longest| packet_bytes > u64::from(longest))
    }

    /// Whether the next packet is lost. Losses occur before the queue and take
    /// no transmission time, as in netem.
    pub fn loses_next(&mut self) -> bool {
        if self.passes_until_loss == 0 {
            self.passes_until_loss = self.next_gap();
            return true;
        }
        // Without loss the gap is unlimited.
        if self.passes_until_loss != u64::MAX {
            self.passes_until_loss -= 1;
        }
        false
    }

    /// Whether the next `count` packets all pass: nearly always, which makes
    /// one check sufficient for a GSO packet.
    pub fn passes(&self, count: u32) -> bool {
        self.passes_until_loss >= u64::from(count)
    }

    /// Accounts for `count` packets that have passed, after [`Self::passes`]
    /// returned true.
    pub fn pass(&mut self, count: u32) {
        if self.passes_until_loss != u64::MAX {
            self.passes_until_loss = self.passes_until_loss.saturating_sub(u64::from(count));
        }
    }

    /// Returns the number of packets between two losses: geometric
    /// distribution, by inversion, `floor(ln U / ln (1 - p))` (Devroye 1986,
    /// chapter X.2).
    fn next_gap(&mut self) -> u64 {
        let loss = self.model.loss_ratio;
        if loss <= 0.0 {
            return u64::MAX;
        }
        if loss >= 1.0 {
            return 0;
        }
        let gap = self.losses.unit().ln() / (-loss).ln_1p();
        gap as u64
    }

    /// Whether the wait for the line plus the queueing delay exceeds the queue.
    fn is_behind(&self, late_ns: u64, waits_ns: u64) -> bool {
        late_ns > BEHIND_TOLERANCE_NS && waits_ns.saturating_add(late_ns) > self.model.queue_ns
    }

    /// Whether a line whose oldest packet is overdue by `late_ns` drops all
    /// arriving packets.
    pub fn takes_nothing(&self, now_ns: u64, late_ns: u64) -> bool {
        let waits_ns = self.model.rate_bps.map_or(0, |_| self.wire_free_ns.saturating_sub(now_ns));
        self.is_behind(late_ns, waits_ns)
    }

    /// Returns the departure time of a packet of `wire_bytes` that arrives at
    /// `now_ns`. Arrival times must be monotonic.
    pub fn accept(&mut self, now_ns: u64, wire_bytes: u64) -> Verdict {
        self.accept_behind(now_ns, 0, wire_bytes)
    }

    /// Like [`Self::accept`], for a line whose oldest packet is overdue by
    /// `late_ns`. The queue bounds the sum of queueing delay and lateness, so
    /// that a line that cannot carry the rate drops the excess and does not add
    /// unbounded delay.
    pub fn accept_behind(&mut self, now_ns: u64, late_ns: u64, wire_bytes: u64) -> Verdict {
        let waits_ns = self.model.rate_bps.map_or(0, |_| self.wire_free_ns.saturating_sub(now_ns));
        if waits_ns > self.model.queue_ns {
            return Verdict::Overflow;
        }
        if self.is_behind(late_ns, waits_ns) {
            return Verdict::Behind;
        }
        let sent_ns = match self.model.rate_bps {
            None => now_ns,
            Some(rate_bps) => {
                let idle = self.wire_free_ns < now_ns;
                let start_ns = if idle { now_ns } else { self.wire_free_ns };
                // Exact: the remainder of a division is carried over to the
                // next packet.
                let rest = if idle { 0 } else { self.wire_rest };
                let work = u128::from(wire_bytes) * 8 * 1_000_000_000 + u128::from(rest);
                let rate = u128::from(rate_bps.max(1));
                self.wire_free_ns = start_ns + u64::try_from(work / rate).unwrap_or(u64::MAX / 2);
                self.wire_rest = u64::try_from(work % rate).unwrap_or(0);
                self.wire_free_ns
            }
        };
        let mut leaves_ns = sent_ns + self.model.delay_ns;
        if self.model.jitter_ns > 0 {
            let spread = 2.0 * self.model.jitter_ns as f64;
            leaves_ns = leaves_ns + (self.jitter.unit() * spread) as u64 - self.model.jitter_ns;
        }
        self.last_leaves_ns = self.last_leaves_ns.max(leaves_ns.max(sent_ns));
        Verdict::Leaves { at_ns: self.last_leaves_ns }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and stable over versions, which
/// library generators do not guarantee.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1]: never zero, so that its logarithm exists.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
