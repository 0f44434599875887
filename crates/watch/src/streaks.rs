//! Consecutive lost rounds of one gateway: of all kinds, of each class, and of each port.

use super::probe_kind::{PORT_COUNT, ProbeClass, ProbeKind};

/// Consecutive lost rounds since the last reply.
#[derive(Debug, Clone, Default)]
pub(super) struct Streak {
    failures: u32,
    targets: Vec<usize>,
    last_success: Option<u64>,
}

impl Streak {
    fn succeeded(&mut self, round: u64) {
        self.last_success = self.last_success.max(Some(round));
        self.failures = 0;
        self.targets.clear();
    }

    fn failed(&mut self, round: u64, target: usize) {
        // A later reply outweighs an earlier loss.
        if self.last_success.is_none_or(|success| success < round) {
            self.failures = self.failures.saturating_add(1);
            if !self.targets.contains(&target) {
                self.targets.push(target);
            }
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Losses to a single target are not enough, unless only one responds.
    pub(super) fn is_enough(&self, failures: u32, responding_targets: usize) -> bool {
        self.failures >= failures && self.targets.len() >= responding_targets.min(2)
    }
}

/// The streaks of one gateway. A round counts in that of all kinds, in that of its class, and a small one in that of
/// its port. A reply ends those in which its round counts and no other: what works by one kind proves nothing of the
/// others.
#[derive(Debug, Clone)]
pub(super) struct Streaks {
    pub(super) any: Streak,
    classes: [Streak; ProbeClass::ALL.len()],
    /// Of the small ones by UDP, then of those by TCP.
    ports: [Streak; 2 * PORT_COUNT],
    /// Streaks of classes and ports that are not ended.
    failing_count: usize,
}

impl Default for Streaks {
    fn default() -> Self {
        Self {
            any: Streak::default(),
            classes: Default::default(),
            ports: std::array::from_fn(|_| Streak::default()),
            failing_count: 0,
        }
    }
}

impl Streaks {
    pub(super) fn succeeded(&mut self, round: u64, kind: ProbeKind) {
        self.any.succeeded(round);
        self.change(kind, |streak| streak.succeeded(round));
    }

    pub(super) fn failed(&mut self, round: u64, kind: ProbeKind, target: usize) {
        self.any.failed(round, target);
        self.change(kind, |streak| streak.failed(round, target));
    }

    fn change(&mut self, kind: ProbeKind, how: impl Fn(&mut Streak)) {
        let class = kind.class.index();
        let port = (!kind.class.large).then(|| class * PORT_COUNT + usize::from(kind.port) % PORT_COUNT);
        let port = port.map(|port| &mut self.ports[port]);
        for streak in [Some(&mut self.classes[class]), port].into_iter().flatten() {
            let before = streak.has_failed();
            how(streak);
            self.failing_count += usize::from(streak.has_failed());
            self.failing_count -= usize::from(before);
        }
    }

    /// No remote host replies to a class any more: what was lost of it before proves nothing.
    pub(super) fn forget(&mut self, class: ProbeClass) {
        for port in 0..PORT_COUNT {
            self.change(ProbeKind { class, port: port as u8 }, |streak| {
                streak.failures = 0;
                streak.targets.clear();
            });
        }
    }

    pub(super) fn class(&self, class: ProbeClass) -> &Streak {
        &self.classes[class.index()]
    }

    /// The ports of a transport, given by its small class.
    pub(super) fn ports(&self, class: ProbeClass) -> &[Streak] {
        &self.ports[class.small().index() * PORT_COUNT..][..PORT_COUNT]
    }

    /// The latest round of some kind failed.
    pub(super) fn has_failed(&self) -> bool {
        self.any.has_failed() || self.failing_count > 0
    }

    /// The kind to be probed again, because it failed most often in a row. A large one has no port of its own.
    pub(super) fn worst(&self) -> Option<(ProbeClass, Option<u8>)> {
        if self.failing_count == 0 {
            return None;
        }
        let ports = ProbeClass::ALL.iter().filter(|class| !class.large).flat_map(|class| {
            self.ports(*class)
                .iter()
                .enumerate()
                .map(move |(port, streak)| (streak, (*class, Some(port as u8))))
        });
        let large = ProbeClass::ALL.iter().filter(|class| class.large);
        let large = large.map(|class| (self.class(*class), (*class, None)));
        let worst = ports.chain(large).max_by_key(|(streak, _)| streak.failures)?;
        worst.0.has_failed().then_some(worst.1)
    }
}
