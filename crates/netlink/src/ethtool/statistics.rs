//! Counters of drivers, compatible with `ethtool -S` and `ethtool -I -a`.

use super::{Ethtool, EthtoolError, HEADER, HEADER_NAME, Query, attributes, control_error, message, text};

const STATISTICS: &str = "counters";
const PAUSE: Query = Query { command: 21, what: "pause frames" };
/// `ETHTOOL_A_HEADER_FLAGS` and `ETHTOOL_FLAG_STATS`.
const HEADER_FLAGS: u16 = 3;
const WITH_STATISTICS: u32 = 1 << 2;
/// `ETHTOOL_A_PAUSE_STATS`, and the counters nested in it.
const PAUSE_STATISTICS: u16 = 5;
const SENT_FRAMES: u16 = 2;
const RECEIVED_FRAMES: u16 = 3;

/// MAC control PAUSE frames (IEEE 802.3 Annex 31B), since the driver was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PauseFrames {
    /// Frames sent: the device asked its link partner to stop.
    pub sent_count: Option<u64>,
    /// Frames received: the link partner asked the device to stop.
    pub received_count: Option<u64>,
}

impl Ethtool {
    /// Counters of the driver by its own names, in its order.
    ///
    /// # Errors
    /// `NotSupported` for drivers without any.
    pub fn statistics(&mut self, interface: &str) -> Result<Vec<(String, u64)>, EthtoolError> {
        self.control.statistics(interface).map_err(control_error(interface, STATISTICS))
    }

    /// Counters of pause frames that the driver reports in the kernel's format (Linux 5.10); others have them among
    /// [`Ethtool::statistics`], by names of their own.
    ///
    /// # Errors
    /// `NotSupported` for drivers without pause frames, `NoFamily` before Linux 5.6.
    pub fn pause_frames(&mut self, interface: &str) -> Result<PauseFrames, EthtoolError> {
        let body = self.exchange(interface, PAUSE, |out| {
            message::nest(out, HEADER, |out| {
                message::put(out, HEADER_NAME, &text(interface));
                message::put(out, HEADER_FLAGS, &WITH_STATISTICS.to_ne_bytes());
            });
        })?;
        Ok(pause_frames(&body))
    }
}

fn pause_frames(body: &[u8]) -> PauseFrames {
    let nested =
        attributes(body).find(|(kind, _)| *kind == PAUSE_STATISTICS).map_or(&[][..], |(_, nested)| nested);
    let counter = |wanted: u16| {
        let (_, value) = attributes(nested).find(|(kind, _)| *kind == wanted)?;
        Some(u64::from_ne_bytes(*value.first_chunk()?))
    };
    PauseFrames { sent_count: counter(SENT_FRAMES), received_count: counter(RECEIVED_FRAMES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes as `pause_put_stats` of net/ethtool/pause.c writes them: counters of 64 bits, aligned by
    /// `ETHTOOL_A_PAUSE_STAT_PAD`.
    #[test]
    fn counters_of_pause_frames_are_read() {
        let mut body = Vec::new();
        message::put(&mut body, 3, &[1]);
        message::nest(&mut body, PAUSE_STATISTICS, |out| {
            message::put(out, 1, &[]);
            message::put(out, SENT_FRAMES, &7u64.to_ne_bytes());
            message::put(out, RECEIVED_FRAMES, &(1u64 << 33).to_ne_bytes());
        });
        let read = pause_frames(&body);
        assert_eq!(read, PauseFrames { sent_count: Some(7), received_count: Some(1 << 33) });
        assert_eq!(pause_frames(&body[..8]), PauseFrames::default());
    }
}
