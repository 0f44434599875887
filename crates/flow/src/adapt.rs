//! The adaptive warm-up: what is tried while data already flows, and when.
//!
//! Both ends compute the same turns from the same configuration, and each counts from its own first data, so that a change
//! of the sender reaches the receiver when the receiver's own turn begins. Rounds go over the candidates alternately
//! forwards and backwards: what grows with time, such as a window that still opens, favours nobody. After each stage the
//! controller decides from the readings of both ends (`controller::adaptation`), and tells them ([`crate::calls::Adopt`]).

use std::time::Duration;

use clearstream_schema::flow::{
    AdaptationStage::{self, Confirmation, LowWater, Placement, Transfer},
    Direction, FlowConfig, Protocol, ReceiveMethod, SendMethod, ThreadPlacement,
};
use serde::{Deserialize, Serialize};

/// Start-up: the kernel's autotuning of buffers, and the scheduler, which wakes a receiver on the sender's core and spreads
/// both over cores only after 100 to 180 ms (seen with samples of 20 ms, Linux 6.18).
const SETTLE: Duration = Duration::from_millis(200);
/// For a decision of the controller.
const PAUSE: Duration = Duration::from_millis(25);
/// From the last decision to the end of the warm-up.
const REST: Duration = Duration::from_millis(60);
/// The gain of a shorter test is not worth a warm-up.
const DURATION_MIN: Duration = Duration::from_secs(2);

/// Transfer sizes: what the second-level cache of a core holds beside the packets. Flows that share cores want the small
/// ones, a flow with cores of its own the large ones.
const SIZES: [u64; 4] = [128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// Settings that the command line leaves to the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Bytes of one write or read.
    pub transfer: bool,
    /// Receive low-water mark.
    pub receive_low_water: bool,
    /// Where threads run.
    pub placement: bool,
}

impl Open {
    /// What `config` does not name and copying may be limited by. `cores`: the warm-up may pin threads.
    pub fn of(config: &FlowConfig, cores: bool) -> Self {
        let other_limit = config.protocol == Protocol::Udp
            || config.pacing.is_some()
            || config.receiver_pause.is_some()
            || config.receiver_work.is_some()
            || config.burst_flows > 0;
        if other_limit {
            return Self::default();
        }
        // With a fixed small window the reader must drain at once, or the window closes.
        let autotuned = config.window.is_none() && config.receive_buffer.is_none();
        let named = config.sender_cores.is_some() || config.receiver_cores.is_some();
        Self {
            transfer: config.transfer.is_none(),
            receive_low_water: config.receive_low_water.is_none()
                && autotuned
                && config.receive == ReceiveMethod::Copy,
            placement: cores && !named && config.direction != Direction::Both,
        }
    }

    /// Whether anything is left open.
    pub fn any(self) -> bool {
        self.transfer || self.receive_low_water || self.placement
    }
}

/// The largest transfer of a test.
pub(crate) fn largest_transfer(config: &FlowConfig, open: Open) -> u64 {
    let tried = SIZES.into_iter().max().filter(|_| open.transfer);
    tried.unwrap_or(0).max(config.transfer().0)
}

/// Why the warm-up of a test tries nothing, though something is left open.
pub(crate) fn reason_against(config: &FlowConfig, open: Open) -> Option<String> {
    if config.bytes.is_some() {
        return Some("an amount of data has no warm-up".to_owned());
    }
    if config.duration.to_std() < DURATION_MIN {
        return Some(format!("the test is shorter than {} s", DURATION_MIN.as_secs()));
    }
    if config.method == SendMethod::IoUring || config.receive == ReceiveMethod::IoUring {
        return Some("io_uring keeps the size of its buffers".to_owned());
    }
    let needed = turns(config, open).last().map_or(Duration::ZERO, |turn| turn.end) + PAUSE + REST;
    (config.warm_up.to_std() < needed).then(|| {
        let has = config.warm_up.to_std().as_millis();
        format!("a warm-up of {has} ms is shorter than {} ms", needed.as_millis())
    })
}

/// What one candidate has in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Bytes of one write or read.
    pub(crate) transfer: u64,
    pub(crate) wakes: Wakes,
    pub(crate) placement: ThreadPlacement,
}

/// When a receiver is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// As at the start: for half of a transfer, or for the first byte.
    AsBefore,
    /// For the other one of both.
    Otherwise,
}

impl Candidate {
    /// The receive low-water mark, of a receiver that began with `own`.
    pub(crate) fn low_water(self, own: u64) -> u64 {
        if (own > 1) == (self.wakes == Wakes::AsBefore) { self.transfer / 2 } else { 1 }
    }

    /// What is in effect at the start.
    pub(crate) fn first(config: &FlowConfig) -> Self {
        Self { transfer: config.transfer().0, wakes: Wakes::AsBefore, placement: ThreadPlacement::Scheduler }
    }
}

/// The candidates of a stage, what is in effect first; `first` is what was in effect at the start.
pub(crate) fn candidates(stage: AdaptationStage, current: Candidate, first: Candidate) -> Vec<Candidate> {
    match stage {
        Placement => [ThreadPlacement::Scheduler, ThreadPlacement::Together, ThreadPlacement::Apart]
            .map(|placement| Candidate { placement, ..current })
            .into(),
        Transfer => {
            let others = SIZES.into_iter().filter(|size| *size != current.transfer);
            let others = others.map(|transfer| Candidate { transfer, ..current });
            std::iter::once(current).chain(others).collect()
        }
        LowWater => [Wakes::AsBefore, Wakes::Otherwise].map(|wakes| Candidate { wakes, ..current }).into(),
        Confirmation => vec![Candidate { placement: current.placement, ..first }, current],
    }
}

/// A turn of one candidate, in time since the first data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) stage: AdaptationStage,
    pub(crate) candidate: usize,
    pub(crate) start: Duration,
    /// From here on it counts: what the candidate before it left in queues is gone.
    pub(crate) counts: Duration,
    pub(crate) end: Duration,
}

/// In their order: the scheduler has been at work for longest when it is compared with pins.
const STAGES: [AdaptationStage; 4] = [Transfer, LowWater, Placement, Confirmation];

/// Rounds of a stage, time of a turn, and the part of it that does not count.
fn extent(stage: AdaptationStage) -> (usize, Duration, Duration) {
    let ms = Duration::from_millis;
    match stage {
        // The scheduler needs some milliseconds to move threads.
        Placement => (3, ms(12), ms(5)),
        Transfer => (4, ms(10), ms(2)),
        LowWater => (4, ms(10), ms(2)),
        Confirmation => (4, ms(12), ms(2)),
    }
}

/// Candidates in the order of their turns. The scheduler has its turns before any thread was pinned: it leaves threads for a
/// while where they were pinned.
fn order(stage: AdaptationStage, count: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let first = usize::from(stage == Placement);
    let round = move |round: usize| {
        (first..count)
            .map(move |place| if round.is_multiple_of(2) { place } else { count - 1 + first - place })
    };
    std::iter::repeat_n(0, rounds * first).chain((0..rounds).flat_map(round))
}

/// All turns of a test, in order.
pub(crate) fn turns(config: &FlowConfig, open: Open) -> Vec<Turn> {
    let first = Candidate::first(config);
    let mut all = Vec::new();
    let mut at = SETTLE;
    for stage in STAGES {
        let is_open = match stage {
            Placement => open.placement,
            Transfer => open.transfer,
            LowWater => open.receive_low_water,
            Confirmation => open.transfer || open.receive_low_water,
        };
        if !is_open {
            continue;
        }
        let count = candidates(stage, first, first).len();
        let (rounds, time, unsettled) = extent(stage);
        for candidate in order(stage, count, rounds) {
            all.push(Turn { stage, candidate, start: at, counts: at + unsettled, end: at + time });
            at += time;
        }
        at += PAUSE;
    }
    all
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;

    const ALL: Open = Open { transfer: true, receive_low_water: true, placement: true };

    #[test]
    fn turns_follow_one_another_and_each_candidate_has_one_in_each_round() {
        let turns = turns(&FlowConfig::default(), ALL);
        assert!(turns.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(turns.iter().all(|turn| turn.start < turn.counts && turn.counts < turn.end));
        assert!(turns.last().unwrap().end <= Duration::from_millis(750), "{:?}", turns.last());
        let of = |stage| -> Vec<usize> {
            turns.iter().filter(|turn| turn.stage == stage).map(|turn| turn.candidate).collect()
        };
        for (stage, count) in [(Transfer, 4), (LowWater, 2), (Confirmation, 2)] {
            for (number, round) in of(stage).chunks(count).enumerate() {
                let mut expected: Vec<usize> = (0..count).collect();
                if number % 2 == 1 {
                    expected.reverse();
                }
                assert_eq!(round, expected);
            }
        }
        assert_eq!(of(Placement), [0, 0, 0, 1, 2, 2, 1, 1, 2], "the scheduler before any pin");
    }

    #[test]
    fn what_is_named_has_no_candidates() {
        let open = |config: FlowConfig| Open::of(&config, true);
        let base = FlowConfig::default;
        assert_eq!(open(base()), ALL);
        let size = FlowConfig { transfer: Some(ByteCount(1 << 20)), ..base() };
        assert!(!open(size.clone()).transfer && open(size.clone()).receive_low_water);
        assert!(turns(&size, open(size.clone())).iter().all(|turn| turn.stage != Transfer));
        assert_eq!(largest_transfer(&size, open(size.clone())), 1 << 20);
        assert!(!open(FlowConfig { receive_low_water: Some(ByteCount(1)), ..base() }).receive_low_water);
        assert!(!open(FlowConfig { window: Some(ByteCount(1 << 20)), ..base() }).receive_low_water);
        assert!(!Open::of(&base(), false).placement);
        let cores = Some(clearstream_schema::CoreList(vec![0]));
        assert!(!open(FlowConfig { receiver_cores: cores, ..base() }).placement);
        assert!(!open(FlowConfig { protocol: Protocol::Udp, ..base() }).any());
        assert!(!open(FlowConfig { burst_flows: 1, ..base() }).any());
    }

    #[test]
    fn a_receiver_is_woken_for_half_of_a_transfer_or_for_a_byte() {
        let first = Candidate { transfer: 1 << 20, ..Candidate::first(&FlowConfig::default()) };
        let other = Candidate { wakes: Wakes::Otherwise, ..first };
        assert_eq!((first.low_water(1), other.low_water(1)), (1, 512 << 10));
        assert_eq!((first.low_water(256 << 10), other.low_water(256 << 10)), (512 << 10, 1));
    }

    #[test]
    fn a_test_without_time_for_it_says_so() {
        let reason = |config: FlowConfig| reason_against(&config, ALL).unwrap_or_default();
        let base = FlowConfig::default;
        assert_eq!(reason(base()), "");
        assert!(reason(FlowConfig { bytes: Some(ByteCount(1)), ..base() }).contains("amount of data"));
        assert!(
            reason(FlowConfig { duration: TimeSpan::from_millis(1999), ..base() })
                .contains("shorter than 2 s")
        );
        assert!(
            reason(FlowConfig { warm_up: TimeSpan::from_millis(700), ..base() })
                .contains("warm-up of 700 ms")
        );
        assert!(reason(FlowConfig { method: SendMethod::IoUring, ..base() }).contains("io_uring"));
    }
}
