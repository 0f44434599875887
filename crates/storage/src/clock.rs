//! One clock for all ranks: a phase lasts from the first rank's begin to the last rank's end, whatever each of them
//! needed by itself.
//!
//! A rank reads `CLOCK_MONOTONIC` of its kernel, which threads and processes of one boot and one time namespace share
//! (clock_gettime(2), time_namespaces(7)): their times can be compared as they are. For every other clock rank 0 asks
//! one of its ranks for the time, before and after each phase, so that no drift between them is assumed: the answer is
//! of some instant between question and reply, and half of that round trip is the uncertainty of the shortest of
//! [`ROUNDS`]. Where this is more than that of rank 0's own clock from before the barrier that begins the phase to
//! behind the one that ends it, less the longest rank, those barriers are the span instead.

use clearstream_host::HostRoot;
use clearstream_ranks::{RankError, Tag, World};
use clearstream_schema::{
    human,
    notice::Notice,
    storage::{ClockMethod, RankSpan, StorageClock},
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::collective::{gather, share};

/// Questions to each clock; the shortest round trip counts.
const ROUNDS: usize = 8;
/// Tag of questions for the time.
const TIME: Tag = Tag(u8::MAX - 1);
/// A rank that begins later than by this part of a phase, after the first one, is worth a word.
const LATE_PART: f64 = 0.1;

/// Nanoseconds of this rank's clock.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A rank's begin and end of a phase, on its own clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Which ranks share a clock.
#[derive(Debug, Clone)]
pub(crate) struct Clocks {
    /// For each rank the first one that has the same clock.
    leaders: Vec<usize>,
}

/// A phase as far as rank 0's clock is concerned; empty at other ranks.
#[derive(Debug)]
pub(crate) struct Phase {
    /// Before the barrier that begins it.
    entered: u64,
    /// Of the leaders' clocks at the begin.
    offsets: Vec<Offset>,
}

/// A clock less that of rank 0.
#[derive(Debug, Clone, Copy, Default)]
struct Offset {
    ns: i128,
    error: u64,
}

/// What a phase took, on the clock of rank 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spans {
    pub(crate) total_ns: u64,
    pub(crate) clock: StorageClock,
    /// In the order of ranks, from the first begin.
    pub(crate) ranks: Vec<RankSpan>,
    /// Their clocks less that of rank 0.
    pub(crate) shifts: Vec<Shift>,
}

/// A rank's clock less that of rank 0, at its begin and its end of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shift {
    pub(crate) begin_ns: i64,
    pub(crate) end_ns: i64,
}

impl Shift {
    /// At a part of the phase, 0 to 1: clocks drift evenly.
    pub(crate) fn at(self, part: f64) -> i64 {
        self.begin_ns + ((self.end_ns - self.begin_ns) as f64 * part).round() as i64
    }
}

impl Clocks {
    /// All ranks call it together.
    pub(crate) fn join(world: &mut dyn World) -> Result<Self, RankError> {
        let own = identity(world.rank());
        let all = gather(world, &own)?;
        let first = |id: &String| all.iter().position(|other| other == id).unwrap_or(0);
        let leaders: Vec<usize> = all.iter().map(first).collect();
        let leaders = (world.rank() == 0).then_some(leaders);
        Ok(Self { leaders: share(world, leaders.as_ref())? })
    }

    /// The barrier that begins a phase. What follows is as close to it as the ranks can be.
    pub(crate) fn begin(&self, world: &mut dyn World) -> Result<Phase, RankError> {
        let offsets = self.offsets(world)?;
        let entered = now();
        world.barrier()?;
        Ok(Phase { entered, offsets })
    }

    /// Behind the last rank's end; every rank calls it, one that had nothing to do without times. The spans are at
    /// rank 0.
    pub(crate) fn end(
        &self,
        world: &mut dyn World,
        phase: &Phase,
        own: Option<Times>,
    ) -> Result<Option<Spans>, RankError> {
        let all = gather(world, &own)?;
        let left = now();
        let offsets = self.offsets(world)?;
        Ok((world.rank() == 0).then(|| self.spans(phase, &all, &offsets, left)))
    }

    fn spans(&self, phase: &Phase, all: &[Option<Times>], at_end: &[Offset], left: u64) -> Spans {
        let of = |offsets: &[Offset], rank: usize| {
            self.leaders.get(rank).and_then(|leader| offsets.get(*leader)).copied().unwrap_or_default()
        };
        let at = |time: u64, offset: Offset| i128::from(time) - offset.ns;
        let on_one = |(rank, times): (usize, &Option<Times>)| {
            let times = (*times)?;
            Some((at(times.begin, of(&phase.offsets, rank)), at(times.end, of(at_end, rank))))
        };
        let joined: Vec<Option<(i128, i128)>> = all.iter().enumerate().map(on_one).collect();
        let begin = joined.iter().flatten().map(|(begin, _)| *begin).min().unwrap_or(0);
        let end = joined.iter().flatten().map(|(_, end)| *end).max().unwrap_or(0);
        let since = |time: i128| u64::try_from(time - begin).unwrap_or(0);
        let span = |(begin, end): &(i128, i128)| RankSpan { begin_ns: since(*begin), end_ns: since(*end) };
        let ranks = joined.iter().map(|times| times.as_ref().map_or_else(RankSpan::default, span));
        let worst = |offsets: &[Offset]| offsets.iter().map(|offset| offset.error).max().unwrap_or(0);
        let error = worst(&phase.offsets) + worst(at_end);
        let longest =
            all.iter().flatten().map(|times| times.end.saturating_sub(times.begin)).max().unwrap_or(0);
        let barriers = left.saturating_sub(phase.entered);
        let of_barriers = barriers.saturating_sub(longest);
        let is_one = self.leaders.iter().all(|leader| *leader == 0);
        let (method, total_ns, uncertainty_ns) = match (is_one, error <= of_barriers) {
            (true, _) => (ClockMethod::OneClock, since(end), 0),
            // No rank takes longer than all of them.
            (false, true) => (ClockMethod::JoinedClocks, since(end).max(longest), error),
            (false, false) => (ClockMethod::Barriers, barriers, of_barriers),
        };
        let ns = |offset: Offset| i64::try_from(offset.ns).unwrap_or(0);
        let shift = |rank| Shift { begin_ns: ns(of(&phase.offsets, rank)), end_ns: ns(of(at_end, rank)) };
        let shifts = (0..all.len()).map(shift).collect();
        Spans { total_ns, clock: StorageClock { method, uncertainty_ns }, ranks: ranks.collect(), shifts }
    }

    /// Offsets of all leaders by their rank, at rank 0.
    fn offsets(&self, world: &mut dyn World) -> Result<Vec<Offset>, RankError> {
        let is_leader = |rank: usize| rank != 0 && self.leaders.get(rank) == Some(&rank);
        if world.rank() != 0 {
            for _ in 0..if is_leader(world.rank()) { ROUNDS } else { 0 } {
                world.receive_next(TIME)?;
                world.send(0, TIME, now().to_le_bytes().to_vec())?;
            }
            return Ok(Vec::new());
        }
        let mut offsets = vec![Offset::default(); world.size()];
        for leader in (1..world.size()).filter(|rank| is_leader(*rank)) {
            let mut rounds = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                let asked = now();
                world.send(leader, TIME, Vec::new())?;
                let bytes = world.receive_next(TIME)?.bytes;
                let replied = now();
                let there = bytes.try_into().map_or(0, u64::from_le_bytes);
                rounds.push(offset(asked, there, replied));
            }
            offsets[leader] = rounds.into_iter().min_by_key(|round| round.error).unwrap_or_default();
        }
        Ok(offsets)
    }
}

/// The reply is of an instant between question and reply.
fn offset(asked: u64, there: u64, replied: u64) -> Offset {
    let round_trip = replied.saturating_sub(asked);
    let middle = asked + round_trip / 2;
    Offset { ns: i128::from(there) - i128::from(middle), error: round_trip.div_ceil(2) }
}

/// Equal where the monotonic clock is the same one; where that cannot be read it is nobody else's.
fn identity(rank: usize) -> String {
    let root = HostRoot::live();
    let (boot, namespace) =
        (root.read("proc/sys/kernel/random/boot_id"), root.link_target("proc/self/ns/time"));
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{} {namespace}", boot.trim()),
        _ => format!("rank {rank}: {:016x}", rand::random::<u64>()),
    }
}

/// The phase in which a rank began latest, as a part of it.
pub(crate) fn late_rank(phases: impl IntoIterator<Item = (String, u64, Vec<RankSpan>)>) -> Option<Notice> {
    let of_phase = |(name, total, spans): (String, u64, Vec<RankSpan>)| {
        let (rank, last) = spans.iter().enumerate().max_by_key(|(_, span)| span.begin_ns)?;
        Some((last.begin_ns as f64 / total.max(1) as f64, name, rank, last.begin_ns))
    };
    let worst = phases.into_iter().filter_map(of_phase).max_by(|one, other| one.0.total_cmp(&other.0));
    let (part, name, rank, late) = worst.filter(|(part, ..)| *part > LATE_PART)?;
    let message = format!(
        "rank {rank} began {} after the first one, {:.0} % of {name}: a longer phase has the ranks together",
        human::time(late),
        part * 100.0
    );
    Some(Notice { id: "late-rank".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(begin: u64, end: u64) -> Option<Times> {
        Some(Times { begin, end })
    }

    #[test]
    fn one_clock_has_the_first_begin_and_the_last_end() {
        let clocks = Clocks { leaders: vec![0, 0, 0] };
        let phase = Phase { entered: 90, offsets: Vec::new() };
        let found = clocks.spans(&phase, &[times(100, 200), times(150, 260), times(120, 130)], &[], 300);
        assert_eq!(found.total_ns, 160);
        assert_eq!(found.clock, StorageClock { method: ClockMethod::OneClock, uncertainty_ns: 0 });
        let expected = [(0, 100), (50, 160), (20, 30)];
        assert_eq!(found.ranks.iter().map(|it| (it.begin_ns, it.end_ns)).collect::<Vec<_>>(), expected);
        // Who had nothing to do was there, and has no part in it.
        let found = clocks.spans(&phase, &[None, times(150, 260), None], &[], 300);
        assert_eq!((found.total_ns, found.ranks[1].begin_ns), (110, 0));
    }

    /// The second clock is 1000 s ahead, and runs 40 ns further ahead during the phase.
    #[test]
    fn clocks_are_joined_by_their_offsets_or_by_barriers_where_these_know_more() {
        let clocks = Clocks { leaders: vec![0, 1, 1] };
        let ahead = 1_000_000_000_000;
        let offsets = |ns: i128, error| vec![Offset::default(), Offset { ns, error }, Offset::default()];
        let all = [times(1000, 5000), times(ahead + 1100, ahead + 5240), times(ahead + 900, ahead + 4000)];
        let phase = Phase { entered: 500, offsets: offsets(i128::from(ahead), 100) };
        let at_end = offsets(i128::from(ahead) + 40, 200);
        let found = clocks.spans(&phase, &all, &at_end, 6000);
        assert_eq!(found.total_ns, 5200 - 900);
        assert_eq!(found.clock, StorageClock { method: ClockMethod::JoinedClocks, uncertainty_ns: 300 });
        // A question that took longer than the phase and its barriers is no better than they are.
        let phase = Phase { entered: 880, offsets: offsets(i128::from(ahead), 4000) };
        let found = clocks.spans(&phase, &all, &at_end, 5300);
        assert_eq!((found.total_ns, found.clock.method), (4420, ClockMethod::Barriers));
        assert_eq!(found.clock.uncertainty_ns, 4420 - 4140, "less the longest rank");
    }

    #[test]
    fn the_time_of_a_reply_is_between_question_and_reply() {
        for there in [10_000, 10_050, 10_100] {
            // True offset: at some time of 100 to 200 here it was `there`.
            let found = offset(100, there, 200);
            for true_at in [100, 150, 200] {
                let true_offset = i128::from(there) - true_at;
                assert!((found.ns - true_offset).unsigned_abs() <= u128::from(found.error));
            }
        }
    }

    #[test]
    fn a_rank_that_begins_late_is_named_with_its_phase() {
        let spans = [RankSpan { begin_ns: 0, end_ns: 1000 }, RankSpan { begin_ns: 400, end_ns: 900 }];
        let phase = |spans: &[RankSpan]| (String::from("write of iteration 2"), 1000, spans.to_vec());
        let found = late_rank([phase(&spans[..1]), phase(&spans)]).unwrap();
        assert!(found.message.contains("rank 1 began 400"), "{}", found.message);
        assert!(found.message.contains("40 % of write of iteration 2"), "{}", found.message);
        assert_eq!(late_rank([phase(&spans[..1])]), None);
    }
}
