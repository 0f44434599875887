//! A probed remote host: whether it responds, to which kinds of probes, and by which it is probed next.

use super::probe_kind::{ProbeClass, Transport};

/// Consecutive rounds without any reply after which ICMP echo is sent too: perhaps no
/// watch runs there.
const ECHO_AFTER: u32 = 3;
/// The same after which the target no longer counts as responding.
const SILENT_AFTER: u32 = 2;
/// The same after which another target replaces it.
const GIVE_UP_AFTER: u32 = 10;
/// Consecutive rounds of a class without any reply after which it is probed rarely: the gateways block it, or the
/// links over there take no packets as large.
const CLASS_SILENT_AFTER: u32 = 4;
/// One of this many of its turns is of that class then.
const CLASS_SEARCH_EVERY: u64 = 16;

/// A probed remote host.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Index among the candidates.
    pub(super) candidate: usize,
    /// No watch replies there, as far as is known: ICMP echo is sent too.
    pub(super) echo: bool,
    /// Consecutive rounds without any reply.
    silent_rounds: u32,
    /// The same for rounds of each class.
    class_silent_rounds: [u32; ProbeClass::ALL.len()],
    turn: u64,
}

impl Target {
    /// Targets start at different turns, so that consecutive rounds use different
    /// transports too.
    pub(super) fn new(candidate: usize, first_turn: u64) -> Self {
        let class_silent_rounds = [0; ProbeClass::ALL.len()];
        Self { candidate, echo: false, silent_rounds: 0, class_silent_rounds, turn: first_turn }
    }

    /// Some gateway carried a reply recently.
    pub(super) fn responds(&self) -> bool {
        self.silent_rounds < SILENT_AFTER
    }

    /// Probes of a class get replies, or too few were sent to decide. A kernel alone replies to echoes only, which
    /// are small.
    pub(super) fn responds_to(&self, class: ProbeClass) -> bool {
        let is_heard = |class: ProbeClass| {
            class == ProbeClass::BASE || self.class_silent_rounds[class.index()] < CLASS_SILENT_AFTER
        };
        (class == ProbeClass::BASE || !self.echo) && is_heard(class.small()) && is_heard(class)
    }

    /// Class of the next round: UDP and TCP follow the Thue-Morse sequence, which is not periodic, so that periodic
    /// losses cannot hit one transport only, and never repeats a value three times. One of `large_every` turns is
    /// large.
    pub(super) fn next_class(&mut self, large_every: Option<u64>) -> ProbeClass {
        self.turn = self.turn.wrapping_add(1);
        let transport = if self.turn.count_ones() % 2 == 1 { Transport::Tcp } else { Transport::Udp };
        let large = large_every.filter(|every| self.turn % every == every - 1);
        if let Some(every) = large {
            let class = ProbeClass { transport, large: true };
            let searches = !self.echo && (self.turn / every).is_multiple_of(CLASS_SEARCH_EVERY);
            if self.responds_to(class) || searches {
                return class;
            }
        }
        let tcp = ProbeClass { transport: Transport::Tcp, large: false };
        let is_tcp = if self.responds_to(tcp) {
            transport == Transport::Tcp
        } else {
            !self.echo && self.turn.is_multiple_of(CLASS_SEARCH_EVERY)
        };
        if is_tcp { tcp } else { ProbeClass::BASE }
    }

    /// Records a round that ended; returns whether another target should replace this one.
    pub(super) fn note(&mut self, class: ProbeClass, by_watch: bool, by_echo: bool) -> bool {
        if by_watch {
            self.class_silent_rounds[class.index()] = 0;
        }
        if by_watch || by_echo {
            self.silent_rounds = 0;
            self.echo = !by_watch;
            return false;
        }
        if class != ProbeClass::BASE {
            let silent_rounds = &mut self.class_silent_rounds[class.index()];
            *silent_rounds = silent_rounds.saturating_add(1);
            // That a class gets no replies is no silence. Of the large ones no one is: links differ.
            if class.large || !self.responds_to(class) {
                return false;
            }
        }
        self.silent_rounds = self.silent_rounds.saturating_add(1);
        self.echo |= self.silent_rounds >= ECHO_AFTER;
        self.silent_rounds >= GIVE_UP_AFTER
    }
}
