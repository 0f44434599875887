//! A far host that is probed: whether it answers, and by what it is asked next.

use super::gateway::Transport;

/// Rounds of one far host without any answer after which it is asked by ICMP
/// echo too: perhaps no watch runs there.
const ECHO_AFTER: u32 = 3;
/// The same after which it is no longer one of those that prove something.
const SILENT_AFTER: u32 = 2;
/// The same after which another one is taken.
const GIVE_UP_AFTER: u32 = 10;
/// Rounds by TCP without any answer after which TCP is tried now and then only:
/// an earlier watch runs there, or no gateway lets its port through.
const TCP_SILENT_AFTER: u32 = 4;
/// Then one of so many of its rounds is by TCP.
const TCP_SEARCH_EVERY: u64 = 16;

/// A far host that is probed.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Its place among the candidates.
    pub(super) candidate: usize,
    /// It is asked by ICMP echo too.
    pub(super) echo: bool,
    /// Rounds in a row without any answer.
    silent_rounds: u32,
    /// The same of rounds by TCP.
    tcp_silent_rounds: u32,
    turn: u64,
}

impl Target {
    /// Targets begin at different turns, so that consecutive rounds differ in
    /// their transport too.
    pub(super) fn new(candidate: usize, first_turn: u64) -> Self {
        Self { candidate, echo: false, silent_rounds: 0, tcp_silent_rounds: 0, turn: first_turn }
    }

    /// Some gateway carried an answer lately.
    pub(super) fn answers(&self) -> bool {
        self.silent_rounds < SILENT_AFTER
    }

    /// TCP probes are answered, or it is too early to say.
    pub(super) fn answers_tcp(&self) -> bool {
        !self.echo && self.tcp_silent_rounds < TCP_SILENT_AFTER
    }

    /// What the next round is carried by: UDP and TCP as in the Thue-Morse
    /// sequence, which has no period that losses could have too, and never three
    /// of a kind in a row. A kernel answers echoes only.
    pub(super) fn next_transport(&mut self) -> Transport {
        self.turn = self.turn.wrapping_add(1);
        let tcp = if self.answers_tcp() {
            self.turn.count_ones() % 2 == 1
        } else {
            !self.echo && self.turn.is_multiple_of(TCP_SEARCH_EVERY)
        };
        if tcp { Transport::Tcp } else { Transport::Udp }
    }

    /// A round ended; true when another far host should be taken instead.
    pub(super) fn note(&mut self, transport: Transport, by_watch: bool, by_echo: bool) -> bool {
        if by_watch && transport == Transport::Tcp {
            self.tcp_silent_rounds = 0;
        }
        if by_watch || by_echo {
            self.silent_rounds = 0;
            self.echo = !by_watch;
            return false;
        }
        if transport == Transport::Tcp {
            self.tcp_silent_rounds = self.tcp_silent_rounds.saturating_add(1);
            // That it does not know TCP is no silence.
            if !self.answers_tcp() {
                return false;
            }
        }
        self.silent_rounds = self.silent_rounds.saturating_add(1);
        self.echo |= self.silent_rounds >= ECHO_AFTER;
        self.silent_rounds >= GIVE_UP_AFTER
    }
}
