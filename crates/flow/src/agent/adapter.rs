//! The adaptive warm-up at one end: puts each candidate into effect in its turn, reads what it moved, and adopts what the
//! controller decides ([`crate::adapt`] says what is tried and when).

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use clearstream_control::EventSender;
use clearstream_schema::flow::{AdaptationStage, FlowConfig, ThreadPlacement};
use clearstream_sys::{affinity, priority, socket as options, tcp_info};
use socket2::Socket;

use super::sample::Flow;
use crate::{
    adapt::{Candidate, Open, Turn, candidates, turns},
    calls::{Adopt, Reading, Tried},
    data::{ThreadCounters, TransferSize},
};

/// Round trips beyond which a turn is over before its change has reached the other end.
const RTT_MAX: Duration = Duration::from_millis(4);
/// Threads on a core beyond which a turn is over before each of them ran.
const THREADS_PER_CORE_MAX: usize = 2;

/// The adapter of a test, once it runs: its sampler takes the turns, decisions come in beside it.
pub(super) type Shared = Arc<Mutex<Option<Adapter>>>;

/// The adapter, where the test has one by now.
pub(super) fn locked(adapter: &Shared) -> MutexGuard<'_, Option<Adapter>> {
    // A panic elsewhere leaves a schedule that is valid in any state.
    adapter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the turns that are due, and returns the time of the next one. Always called on the same thread, the sampler's.
pub(super) fn take_turns(adapter: &Shared) -> Option<Instant> {
    locked(adapter).as_mut()?.take_turns()
}

/// What one thread needs to be moved and read.
#[derive(Debug)]
struct Thread {
    flow: usize,
    sends: bool,
    counters: Arc<ThreadCounters>,
    /// Where the scheduler had it before it was pinned.
    home: Option<u32>,
}

/// A receiving socket, with its own low-water mark.
#[derive(Debug)]
struct Receiver {
    socket: Arc<Socket>,
    low_water: u32,
}

/// One step of the schedule.
#[derive(Debug, Clone, Copy)]
enum Step {
    Begin(Turn),
    Count,
    End,
    /// The turns of a stage are over.
    Report(AdaptationStage),
}

/// State of the turns.
#[derive(Debug)]
pub(super) struct Adapter {
    test: u64,
    events: EventSender,
    open: Open,
    threads: Vec<Thread>,
    receivers: Vec<Receiver>,
    transfer: TransferSize,
    cores: Vec<u32>,
    begun: Instant,
    steps: VecDeque<(Duration, Step)>,
    /// The stage that runs or waits for its decision.
    stage: Option<AdaptationStage>,
    candidates: Vec<Candidate>,
    current: Candidate,
    first: Candidate,
    placed: ThreadPlacement,
    /// The stage is over and its decision has not come.
    undecided: bool,
    /// The thread that takes the turns runs before all others, until they are over.
    has_priority: bool,
    counting: Option<(Instant, Reading)>,
    /// A shorter reading does not count.
    least: Duration,
    readings: Vec<Reading>,
    /// Something was adopted since the settings were read.
    adopted: bool,
}

impl Adapter {
    /// Turns from `begun` on; an adapter without turns where they would say nothing.
    pub(super) fn new(
        (test, events): (u64, &EventSender),
        config: &FlowConfig,
        open: Open,
        (flows, transfer): (&[Flow], TransferSize),
        begun: Instant,
    ) -> Self {
        let threads: Vec<Thread> = flows
            .iter()
            .zip(0..)
            .flat_map(|(flow, number)| {
                flow.workers.iter().map(move |worker| Thread {
                    flow: number,
                    sends: worker.sends,
                    counters: Arc::clone(&worker.counters),
                    home: None,
                })
            })
            .collect();
        let receives = flows.iter().filter(|flow| flow.workers.iter().any(|worker| !worker.sends));
        let receivers = receives.map(|flow| Receiver {
            low_water: options::receive_low_water(&*flow.socket).unwrap_or(1),
            socket: Arc::clone(&flow.socket),
        });
        let first = Candidate::first(config);
        let mut adapter = Self {
            test,
            events: events.clone(),
            open,
            receivers: receivers.collect(),
            threads,
            transfer,
            cores: affinity::allowed_cores().unwrap_or_default(),
            begun,
            steps: VecDeque::new(),
            stage: None,
            candidates: Vec::new(),
            current: first,
            first,
            placed: first.placement,
            undecided: false,
            has_priority: false,
            counting: None,
            least: Duration::ZERO,
            readings: Vec::new(),
            adopted: false,
        };
        match adapter.reason_against(flows) {
            None => {
                adapter.steps = steps(&turns(config, open));
                // Where that is not permitted some turns are missed: data threads leave no core for tens of
                // milliseconds. A policy that somebody chose stays.
                adapter.has_priority = priority::is_ordinary() && priority::make_real_time().is_ok();
            }
            Some(reason) => {
                adapter.events.send(&Tried { test, stage: None, readings: Vec::new(), reason: Some(reason) });
            }
        }
        adapter
    }

    /// Why turns of some milliseconds would say nothing here.
    fn reason_against(&self, flows: &[Flow]) -> Option<String> {
        let rtt = flows.first().and_then(|flow| tcp_info::read(&*flow.socket).ok()).map(|info| info.rtt_ns);
        let rtt = Duration::from_nanos(rtt.unwrap_or(0));
        if rtt > RTT_MAX {
            return Some(format!(
                "the round trip of {:.1} ms is longer than {} ms",
                rtt.as_secs_f64() * 1e3,
                RTT_MAX.as_millis()
            ));
        }
        let (threads, cores) = (self.threads.len(), self.cores.len());
        (threads > cores * THREADS_PER_CORE_MAX)
            .then(|| format!("{threads} threads share {cores} cores of a host"))
    }

    fn take_turns(&mut self) -> Option<Instant> {
        while let Some((at, step)) = self.steps.front().copied() {
            if self.begun + at > Instant::now() {
                return Some(self.begun + at);
            }
            self.steps.pop_front();
            match step {
                Step::Report(stage) => self.report(stage),
                // The decision of the stage before has not come: nothing is tried meanwhile.
                _ if self.undecided => {}
                Step::Begin(turn) => self.begin(turn),
                Step::Count => self.counting = Some((Instant::now(), self.moved())),
                Step::End => self.end(),
            }
        }
        if mem::take(&mut self.has_priority) {
            // An ordinary thread may always be one.
            drop(priority::make_ordinary());
        }
        None
    }

    fn begin(&mut self, turn: Turn) {
        if self.stage != Some(turn.stage) {
            self.stage = Some(turn.stage);
            self.candidates = candidates(turn.stage, self.current, self.first);
        }
        self.readings.push(Reading::default());
        self.least = (turn.end - turn.counts) / 2;
        if let Some(candidate) = self.candidates.get(turn.candidate) {
            self.put_into_effect(*candidate);
        }
    }

    fn end(&mut self) {
        let Some((since, before)) = self.counting.take() else { return };
        let (duration, now) = (since.elapsed(), self.moved());
        // Begun late, and over at once: nothing was read.
        if duration < self.least {
            return;
        }
        if let Some(reading) = self.readings.last_mut() {
            *reading = Reading {
                duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
                received_bytes: now.received_bytes - before.received_bytes,
                cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            };
        }
    }

    fn report(&mut self, stage: AdaptationStage) {
        self.put_into_effect(self.current);
        self.undecided = true;
        let readings = mem::take(&mut self.readings);
        self.events.send(&Tried { test: self.test, stage: Some(stage), readings, reason: None });
    }

    /// Puts what was decided into effect.
    pub(super) fn adopt(&mut self, Adopt { stage, candidate, .. }: Adopt) {
        self.undecided = false;
        // The turns of a stage that this end did not take have no candidates.
        if self.stage == Some(stage)
            && let Some(adopted) = self.candidates.get(candidate).copied()
        {
            self.adopted |= adopted != self.current;
            self.current = adopted;
        }
        let confirms = |step: &(Duration, Step)| match step.1 {
            Step::Begin(turn) => turn.stage == AdaptationStage::Confirmation,
            _ => false,
        };
        let as_first = Candidate { placement: self.current.placement, ..self.first };
        if self.steps.front().is_some_and(confirms) && as_first == self.current {
            // Nothing to confirm.
            self.steps.clear();
        }
        self.put_into_effect(self.current);
    }

    /// What is in effect, once after something was adopted and all turns are over.
    pub(super) fn take_adopted(&mut self) -> Option<Adopted> {
        let is_over = self.steps.is_empty() && !self.undecided;
        (is_over && mem::take(&mut self.adopted))
            .then(|| Adopted { placement: self.current.placement, cores: self.cores.clone() })
    }

    fn put_into_effect(&mut self, candidate: Candidate) {
        self.transfer.set(usize::try_from(candidate.transfer).unwrap_or(usize::MAX));
        if self.open.receive_low_water {
            for Receiver { socket, low_water } in &self.receivers {
                let mark = u32::try_from(candidate.low_water((*low_water).into())).unwrap_or(u32::MAX);
                // A connection that has just ended has none.
                drop(options::set_receive_low_water(&**socket, mark));
            }
        }
        self.place(candidate.placement);
    }

    /// The scheduler leaves threads where they were pinned: it gets them back where it had them.
    fn place(&mut self, placement: ThreadPlacement) {
        let before = mem::replace(&mut self.placed, placement);
        if before == placement {
            return;
        }
        for thread in &mut self.threads {
            if before == ThreadPlacement::Scheduler {
                thread.home = thread.counters.read().core;
            }
            let own = core_of(placement, &self.cores, thread.flow, thread.sends);
            // A thread that has just ended runs nowhere.
            if let Some(core) = own.or(thread.home) {
                drop(affinity::allow(thread.counters.thread(), &[core]));
            }
            if own.is_none() {
                drop(affinity::allow(thread.counters.thread(), &self.cores));
            }
        }
    }

    fn moved(&self) -> Reading {
        self.threads.iter().fold(Reading::default(), |mut sum, thread| {
            let reading = thread.counters.read();
            sum.received_bytes += if thread.sends { 0 } else { reading.bytes };
            sum.cpu_ns += reading.cpu_ns;
            sum
        })
    }
}

/// What was adopted, as far as sockets cannot be asked for it.
#[derive(Debug)]
pub(super) struct Adopted {
    placement: ThreadPlacement,
    cores: Vec<u32>,
}

impl Adopted {
    /// Core of a thread; `None` where the scheduler chooses.
    pub(super) fn core_of(&self, flow: usize, sends: bool) -> Option<u32> {
        core_of(self.placement, &self.cores, flow, sends)
    }
}

/// Core of a thread on a host that has these for it.
fn core_of(placement: ThreadPlacement, cores: &[u32], flow: usize, sends: bool) -> Option<u32> {
    let place = match placement {
        ThreadPlacement::Scheduler => return None,
        ThreadPlacement::Together => flow,
        ThreadPlacement::Apart => 2 * flow + usize::from(!sends),
    };
    cores.get(place.checked_rem(cores.len())?).copied()
}

/// The steps of turns, a report after the last turn of each stage.
fn steps(turns: &[Turn]) -> VecDeque<(Duration, Step)> {
    let mut all = VecDeque::new();
    for (place, turn) in turns.iter().enumerate() {
        all.extend([(turn.start, Step::Begin(*turn)), (turn.counts, Step::Count), (turn.end, Step::End)]);
        if turns.get(place + 1).is_none_or(|next| next.stage != turn.stage) {
            all.push_back((turn.end, Step::Report(turn.stage)));
        }
    }
    all
}
