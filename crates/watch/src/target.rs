//! A probed remote host: whether it responds, and by which transport it is probed next.

use super::gateway::Transport;

/// Consecutive rounds without any reply after which ICMP echo is sent too: perhaps no
/// watch runs there.
const ECHO_AFTER: u32 = 3;
/// The same after which the target no longer counts as responding.
const SILENT_AFTER: u32 = 2;
/// The same after which another target replaces it.
const GIVE_UP_AFTER: u32 = 10;
/// Consecutive TCP rounds without any reply after which TCP is probed rarely: a watch of
/// an earlier release runs there, or the gateways block the port.
const TCP_SILENT_AFTER: u32 = 4;
/// One of this many rounds is by TCP then.
const TCP_SEARCH_EVERY: u64 = 16;

/// A probed remote host.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Index among the candidates.
    pub(super) candidate: usize,
    /// ICMP echo is sent too.
    pub(super) echo: bool,
    /// Consecutive rounds without any reply.
    silent_rounds: u32,
    /// The same for rounds by TCP.
    tcp_silent_rounds: u32,
    turn: u64,
}

impl Target {
    /// Targets start at different turns, so that consecutive rounds use different
    /// transports too.
    pub(super) fn new(candidate: usize, first_turn: u64) -> Self {
        Self { candidate, echo: false, silent_rounds: 0, tcp_silent_rounds: 0, turn: first_turn }
    }

    /// Some gateway carried a reply recently.
    pub(super) fn responds(&self) -> bool {
        self.silent_rounds < SILENT_AFTER
    }

    /// TCP probes get replies, or too few were sent to decide.
    pub(super) fn responds_to_tcp(&self) -> bool {
        !self.echo && self.tcp_silent_rounds < TCP_SILENT_AFTER
    }

    /// Transport of the next round: UDP and TCP follow the Thue-Morse sequence, which
    /// is not periodic, so that periodic losses cannot hit one transport only, and
    /// never repeats a value three times. A kernel alone replies to echoes only.
    pub(super) fn next_transport(&mut self) -> Transport {
        self.turn = self.turn.wrapping_add(1);
        let tcp = if self.responds_to_tcp() {
            self.turn.count_ones() % 2 == 1
        } else {
            !self.echo && self.turn.is_multiple_of(TCP_SEARCH_EVERY)
        };
        if tcp { Transport::Tcp } else { Transport::Udp }
    }

    /// Records a round that ended; returns whether another target should replace this one.
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
            // Missing TCP support is no silence.
            if !self.responds_to_tcp() {
                return false;
            }
        }
        self.silent_rounds = self.silent_rounds.saturating_add(1);
        self.echo |= self.silent_rounds >= ECHO_AFTER;
        self.silent_rounds >= GIVE_UP_AFTER
    }
}
