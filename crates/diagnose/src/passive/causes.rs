//! The order of the questions: the first that holds is the limit, as in the active diagnosis.

use clearstream_schema::{
    connections::{ConnectionFinding, ConnectionVerdict},
    human::{rate, time},
};

use super::{facts::Facts, receiver, sender};
use crate::format::percent;

/// Samples that are too few, and a time that is too short, for a conclusion.
const SAMPLES_MIN: usize = 2;
const SECONDS_MIN: f64 = 0.5;

/// The ends of a connection that are on this host, by the direction of its data.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends<'a> {
    Both { sender: Facts<'a>, receiver: Facts<'a> },
    Sender(Facts<'a>),
    Receiver(Facts<'a>),
}

impl<'a> Ends<'a> {
    pub(super) fn sender(&self) -> Option<Facts<'a>> {
        match self {
            Self::Both { sender, .. } | Self::Sender(sender) => Some(*sender),
            Self::Receiver(_) => None,
        }
    }

    pub(super) fn receiver(&self) -> Option<Facts<'a>> {
        match self {
            Self::Both { receiver, .. } | Self::Receiver(receiver) => Some(*receiver),
            Self::Sender(_) => None,
        }
    }

    /// The end that is described first.
    pub(super) fn described(&self) -> Facts<'a> {
        match self {
            Self::Both { sender, .. } | Self::Sender(sender) => *sender,
            Self::Receiver(receiver) => *receiver,
        }
    }
}

/// A question to both ends, and one to the sender's.
type Question = fn(&Ends<'_>) -> Option<ConnectionFinding>;

const QUESTIONS: [Question; 10] = [
    sender::stalled,
    sender::pacing,
    receiver::application,
    receiver::window,
    sender::send_buffer,
    sender::pauses,
    sender::path_capacity,
    sender::loss,
    sender::application,
    sender::cpu,
];

/// What limits a connection.
pub(super) fn judge(ends: &Ends<'_>) -> ConnectionVerdict {
    let facts = ends.described();
    if [ends.sender(), ends.receiver()].into_iter().flatten().all(|facts| facts.is_idle()) {
        return ConnectionVerdict::Idle;
    }
    if facts.series.samples.len() < SAMPLES_MIN || facts.seconds() < SECONDS_MIN {
        return ConnectionVerdict::Unknown {
            because: format!("it was observed for {:.1} s only", facts.seconds()),
            next: "observe it for longer (--duration), while it carries data".to_owned(),
        };
    }
    match QUESTIONS.iter().find_map(|question| question(ends)) {
        Some(finding) => ConnectionVerdict::Found(finding),
        None => unknown(ends),
    }
}

fn unknown(ends: &Ends<'_>) -> ConnectionVerdict {
    let (because, next) = match ends {
        Ends::Receiver(facts) => (
            format!(
                "the program reads all that arrives, {}: the limit is the path or the sender, which this end \
                 does not show",
                rate(facts.in_bps())
            ),
            "run `clearstream diagnose --socket` on the sender's host",
        ),
        Ends::Sender(facts) | Ends::Both { sender: facts, .. } => (
            format!(
                "{} of the congestion window in flight, window waited for {} of the busy time, {} \
                 retransmitted, {} of round trip (lowest {}): no signature fits",
                percent(facts.window_fill()),
                facts.window_limited().map_or_else(|| "an unknown part".to_owned(), percent),
                facts.retransmits(),
                time(facts.rtt_ns()),
                facts.min_rtt_ns().map_or_else(|| "not known".to_owned(), time)
            ),
            "run `clearstream diagnose HOST`, whose experiments separate the causes",
        ),
    };
    ConnectionVerdict::Unknown { because, next: next.to_owned() }
}
