//! Notices that qualify the results.

use clearstream_schema::flow::{FlowConfig, FlowSettings, Notice, Protocol, ReceiveMethod, ZerocopyCount};

use super::{cores::SeenCores, senders};
use crate::agent::notice;

/// Ratio of retransmitted to sent bytes above which a path is not clean.
const CLEAN_RATIO: f64 = 0.001;
/// Round-trip time below which a path is local: losses there come only from overload of a host.
const LOCAL_NS: u64 = 1_000_000;

/// Evidence of both sides from which notices are derived.
pub(super) struct Evidence<'a> {
    pub(super) config: &'a FlowConfig,
    pub(super) client: &'a FlowSettings,
    pub(super) server: &'a FlowSettings,
    pub(super) zerocopy: Option<ZerocopyCount>,
    pub(super) min_rtt_ns: Option<u64>,
    /// Bytes retransmitted / bytes sent.
    pub(super) resent_ratio: Option<f64>,
    /// By flow number.
    pub(super) seen: &'a [SeenCores],
    pub(super) dropped_count: u64,
}

impl Evidence<'_> {
    pub(super) fn notices(&self) -> Vec<Notice> {
        [self.zerocopy(), self.discard(), self.congestion_control(), self.chosen_cores(), self.dropped()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn zerocopy(&self) -> Option<Notice> {
        let count = self.zerocopy.filter(|count| count.copied_count > 0)?;
        let percent = 100.0 * count.copied_count as f64 / count.completed_count.max(1) as f64;
        Some(notice(
            "zerocopy-copied",
            format!(
                "{percent:.0} % of the zero-copy sends were copied by the kernel instead ({} of {}): loopback and \
                 veth always copy, and so do devices without scatter-gather; plain copy is cheaper there",
                count.copied_count, count.completed_count
            ),
        ))
    }

    fn discard(&self) -> Option<Notice> {
        (self.config.receive == ReceiveMethod::Discard).then(|| {
            notice(
                "receive-discard",
                "receiver: discard. The bytes were dropped in the kernel and never reached the application's memory: \
                 this is not goodput in the full sense",
            )
        })
    }

    fn congestion_control(&self) -> Option<Notice> {
        if self.config.protocol == Protocol::Udp || self.config.congestion_control.is_some() {
            return None;
        }
        let of = |side: &super::Side| match side {
            super::Side::Client => self.client,
            super::Side::Server => self.server,
        };
        let bbr = senders(self.config.direction)
            .iter()
            .flat_map(|side| &of(side).flows)
            .filter_map(|flow| flow.congestion_control.as_deref())
            .find(|name| name.starts_with("bbr"))?;
        let clean = self.resent_ratio.is_some_and(|ratio| ratio < CLEAN_RATIO)
            || self.min_rtt_ns.is_some_and(|rtt| rtt < LOCAL_NS);
        clean.then(|| {
            notice(
                "congestion-control-default",
                format!(
                    "the default congestion control of the sender is {bbr}, which paces: on a path without loss it \
                     often reaches half of what cubic does; compare with --congestion-control cubic"
                ),
            )
        })
    }

    fn chosen_cores(&self) -> Option<Notice> {
        let one_machine = self.client.boot_id.is_some() && self.client.boot_id == self.server.boot_id;
        let unpinned = self.config.sender_cores.is_none() || self.config.receiver_cores.is_none();
        if !one_machine || !unpinned {
            return None;
        }
        let percentages: Vec<u64> = self.seen.iter().filter_map(SeenCores::together_percent).collect();
        let mean = percentages.iter().sum::<u64>().checked_div(percentages.len() as u64)?;
        let core = match self.seen {
            [only] if mean >= 50 => only.receiver.winner().map(|core| format!("CPU {core}")),
            _ => None,
        };
        let what = match mean {
            0 => "never shared a CPU".to_owned(),
            _ => format!("shared {} in {mean} % of the intervals", core.as_deref().unwrap_or("a CPU")),
        };
        Some(notice(
            "cores-chosen",
            format!(
                "Threads not pinned: sender and receiver {what}; this can halve or double local throughput. Pin with \
                 --sender-cores / --receiver-cores"
            ),
        ))
    }

    fn dropped(&self) -> Option<Notice> {
        (self.dropped_count > 0).then(|| {
            notice(
                "intervals-dropped",
                format!(
                    "{} intervals were dropped for lack of time and are missing from the series; a longer interval helps",
                    self.dropped_count
                ),
            )
        })
    }
}
