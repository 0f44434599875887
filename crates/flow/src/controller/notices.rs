//! Notices that qualify the results.

use std::net::SocketAddr;

use clearstream_schema::flow::{
    FlowConfig, FlowSettings, Protocol, ReceiveMethod, SocketSettings, ZerocopyCount,
};
use clearstream_schema::notice::Notice;

use super::{cores::SeenCores, senders};
use crate::agent::notice;

/// Ratio of retransmitted to sent bytes above which a path is not clean.
const CLEAN_RATIO: f64 = 0.001;
/// Round-trip time below which a path is local: losses there come only from overload of a host.
const LOCAL_NS: u64 = 1_000_000;
/// Percentage of the intervals from which on a shared core is worth a notice.
const TOGETHER_PERCENT: u64 = 50;

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

    fn is_one_machine(&self) -> bool {
        self.client.boot_id.is_some() && self.client.boot_id == self.server.boot_id
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
        let is_loopback = self.client.flows.first().is_some_and(is_over_loopback);
        if self.config.protocol == Protocol::Udp || self.config.congestion_control.is_some() || is_loopback {
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

    /// Threads of an unpinned flow that shared a core in at least half of the intervals.
    fn chosen_cores(&self) -> Option<Notice> {
        let unpinned = self.config.sender_cores.is_none() || self.config.receiver_cores.is_none();
        if !self.is_one_machine() || !unpinned {
            return None;
        }
        let together =
            |seen: &SeenCores| seen.together_percent().filter(|percent| *percent >= TOGETHER_PERCENT);
        let percentages: Vec<u64> = self.seen.iter().filter_map(together).collect();
        let mean = percentages.iter().sum::<u64>().checked_div(percentages.len() as u64)?;
        let (whose, core) = match self.seen {
            [only] => (String::new(), only.receiver.winner()),
            all => (format!(" of {} of {} flows", percentages.len(), all.len()), None),
        };
        let core = core.map_or_else(|| "a CPU".to_owned(), |core| format!("CPU {core}"));
        Some(notice(
            "cores-chosen",
            format!(
                "Threads not pinned: sender and receiver{whose} shared {core} in {mean} % of the intervals; this can \
                 halve local throughput. Pin with --sender-cores / --receiver-cores"
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

/// Whether packets stay in this kernel: a host's own addresses are routed over `lo`.
fn is_over_loopback(flow: &SocketSettings) -> bool {
    let ip = |text: &str| text.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical());
    let (local, remote) = (ip(&flow.local), ip(&flow.remote));
    remote.is_some_and(|remote| remote.is_loopback() || local == Some(remote))
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{CoreList, flow::FlowInterval};

    use super::*;

    /// Threads of one flow that shared core 3 in so many of a hundred intervals.
    fn seen(together: u32) -> SeenCores {
        let mut seen = SeenCores::default();
        for interval in 0..100 {
            let sender = if interval < together { 3 } else { 2 };
            let sending = FlowInterval { sender_core: Some(sender), ..FlowInterval::default() };
            let receiving = FlowInterval { receiver_core: Some(3), ..FlowInterval::default() };
            seen.add(&sending, &receiving);
        }
        seen
    }

    fn settings(local: &str, remote: &str) -> FlowSettings {
        let flow = SocketSettings {
            local: local.to_owned(),
            remote: remote.to_owned(),
            congestion_control: Some("bbr".to_owned()),
            ..SocketSettings::default()
        };
        FlowSettings { flows: vec![flow], boot_id: Some("one".to_owned()) }
    }

    fn messages(config: &FlowConfig, settings: &FlowSettings, seen: &[SeenCores]) -> Vec<String> {
        let evidence = Evidence {
            config,
            client: settings,
            server: settings,
            zerocopy: None,
            min_rtt_ns: Some(100_000),
            resent_ratio: Some(0.0),
            seen,
            dropped_count: 0,
        };
        evidence.notices().into_iter().map(|notice| notice.message).collect()
    }

    #[test]
    fn a_shared_core_is_reported_from_half_of_the_intervals_on() {
        let loopback = settings("127.0.0.1:40000", "127.0.0.1:5000");
        let config = FlowConfig::default();
        assert!(messages(&config, &loopback, &[seen(0)]).is_empty());
        assert!(messages(&config, &loopback, &[seen(49)]).is_empty());
        assert_eq!(
            messages(&config, &loopback, &[seen(50)]),
            [
                "Threads not pinned: sender and receiver shared CPU 3 in 50 % of the intervals; this can halve local \
              throughput. Pin with --sender-cores / --receiver-cores"
            ]
        );
        // One flow of four, which a mean of all would hide.
        assert_eq!(
            messages(&config, &loopback, &[seen(0), seen(88), seen(25), seen(0)]),
            [
                "Threads not pinned: sender and receiver of 1 of 4 flows shared a CPU in 88 % of the intervals; this can \
              halve local throughput. Pin with --sender-cores / --receiver-cores"
            ]
        );
        let cores = Some(CoreList(vec![3]));
        let pinned = FlowConfig { sender_cores: cores.clone(), receiver_cores: cores, ..config };
        assert!(messages(&pinned, &loopback, &[seen(100)]).is_empty());
    }

    #[test]
    fn the_note_about_bbr_is_of_paths_and_not_of_loopback() {
        let config = FlowConfig::default();
        let note = |local: &str, remote: &str| messages(&config, &settings(local, remote), &[seen(0)]);
        for (local, remote) in [
            ("127.0.0.1:40000", "127.0.0.1:5000"),
            ("[::1]:40000", "[::1]:5000"),
            ("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:5000"),
            // An address of the host itself.
            ("10.0.0.1:40000", "10.0.0.1:5000"),
        ] {
            assert!(note(local, remote).is_empty(), "{remote}");
        }
        let found = note("10.0.0.1:40000", "10.0.0.2:5000");
        assert!(found.len() == 1 && found[0].contains("the sender is bbr, which paces"), "{found:?}");
    }
}
