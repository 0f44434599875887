//! Credits: flow control of Sends by the receives posted for them.
//!
//! iWARP has no "receiver not ready": a Send without a posted receive ends the
//! connection (RFC 5041, section 7.1). So a receiver grants credits as it
//! reposts receives, by one of two methods.

use clearstream_iwarp::{
    verbs::{Access, ProtectionDomain, Region},
    work::{Completed, Completion, Data, InlineData, Operation, Remote},
};
use clearstream_schema::rdma::RdmaOperation;

use super::immediate::carried;
use crate::{data_queue_pairs::DataQueuePairs, error::RdmaError, negotiation::RemoteMemory};

/// Bytes of a counter, in host byte order.
const COUNTER_BYTES: usize = 4;

/// Counters in a sender's memory, one for each queue pair, into which the
/// receiver writes the number of Sends received.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Region,
}

impl Counters {
    /// Allocates counters of zero.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(domain: &ProtectionDomain, count: usize) -> Result<Self, RdmaError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self { memory: Region::new(domain, count * COUNTER_BYTES, access)? })
    }

    /// Returns the location of a queue pair's counter.
    pub(crate) fn place(&self, qp: usize) -> Remote {
        let address = self.memory.address() + (qp * COUNTER_BYTES) as u64;
        Remote { stag: self.memory.stag(), address }
    }

    /// Reads a counter. The receiver may write at any time: two equal reads
    /// exclude a torn value.
    fn value(&self, qp: usize) -> u64 {
        let read = || {
            let mut bytes = [0; COUNTER_BYTES];
            self.memory.read(qp * COUNTER_BYTES, &mut bytes);
            u32::from_ne_bytes(bytes)
        };
        let mut value = read();
        loop {
            let second = read();
            if second == value {
                return value.into();
            }
            value = second;
        }
    }
}

/// Flow control of the Sends of one side.
#[derive(Debug)]
pub(crate) struct Credits {
    method: Method,
    queue_pairs: Vec<State>,
}

#[derive(Debug)]
enum Method {
    /// Both sides: immediate data carries the number of reposted receives.
    Immediate { depth: u32, interval: u32 },
    /// As above, where each message has immediate data itself, so that there is
    /// none alone: with an empty message of the operation that is not measured.
    Empty { depth: u32, interval: u32, measured: RdmaOperation },
    /// Sender of perftest: the receiver has `receives` receives, and writes its
    /// count into `counters`.
    ReadCounters { counters: Counters, receives: u32 },
    /// Receiver of perftest: writes its count into the sender's memory.
    WriteCounters { interval: u32 },
    /// No Sends: no receives are needed.
    Unneeded,
}

/// State of one queue pair.
#[derive(Debug, Clone, Default)]
struct State {
    /// Sender: Sends that may be posted.
    available: u32,
    /// Sender with counters: Sends posted.
    posted: u64,
    /// Receiver: Sends received since the last report.
    unreported: u32,
    /// Receiver with counters: Sends received of the last size.
    received: u64,
    size: Option<u32>,
}

impl Credits {
    fn new(method: Method, count: usize, available: u32) -> Self {
        Self { method, queue_pairs: vec![State { available, ..State::default() }; count] }
    }

    /// Credits by immediate data, both sides.
    pub(crate) fn by_immediate_data(pairs: &DataQueuePairs, measured: RdmaOperation) -> Self {
        let (depth, interval) = (pairs.layout.depth, pairs.layout.signal_interval);
        let method = match pairs.config.immediate {
            true => Method::Empty { depth, interval, measured },
            false => Method::Immediate { depth, interval },
        };
        Self::new(method, pairs.count(), depth)
    }

    /// Credits by counters in the memory of this side, the sender; the receiver
    /// has `receives` receives on each queue pair.
    pub(crate) fn from_counters(pairs: &DataQueuePairs, counters: Counters, receives: u32) -> Self {
        Self::new(Method::ReadCounters { counters, receives }, pairs.count(), 0)
    }

    /// Credits by counters in the memory of the sender; this side receives.
    pub(crate) fn into_counters(pairs: &DataQueuePairs) -> Self {
        Self::new(Method::WriteCounters { interval: pairs.layout.signal_interval }, pairs.count(), 0)
    }

    /// No credits: for Writes and Reads, and with one message at a time in
    /// flight.
    pub(crate) fn unneeded(pairs: &DataQueuePairs) -> Self {
        Self::new(Method::Unneeded, pairs.count(), 0)
    }

    /// Begins a run.
    pub(super) fn begin(&mut self) {
        // Credits by immediate data belong to receives, which persist between
        // runs.
        if let Method::ReadCounters { .. } = self.method {
            self.queue_pairs.fill(State::default());
        }
    }

    /// Sender: returns how many of the requested Sends may be posted.
    pub(super) fn available(&mut self, qp: usize, requested: u32) -> u32 {
        let state = &mut self.queue_pairs[qp];
        if let Method::ReadCounters { counters, receives } = &self.method
            && state.available < requested
        {
            // It cannot have received more than was sent. One receive stays
            // free.
            let received = counters.value(qp).min(state.posted);
            let room = (received + u64::from(*receives) - 1).saturating_sub(state.posted);
            state.available = u32::try_from(room).unwrap_or(u32::MAX);
        }
        requested.min(state.available)
    }

    /// Sender: accounts for posted Sends.
    pub(super) fn spend(&mut self, qp: usize, count: u32) {
        let state = &mut self.queue_pairs[qp];
        state.available -= count;
        state.posted += u64::from(count);
    }

    /// Sender: processes a completed receive of credits; false where it is that
    /// of a message.
    pub(super) fn granted(&mut self, qp: usize, completion: &Completion) -> bool {
        let completed = completion.completed;
        let (depth, granted) = match &self.method {
            Method::Immediate { depth, .. } if completed == Completed::ReceiveImmediate => {
                (*depth, u64::from_be_bytes(completion.immediate.unwrap_or_default()))
            }
            Method::Empty { depth, measured, .. } if completed == of_credits(*measured) => {
                (*depth, u32::from_be_bytes(carried(completion).unwrap_or_default()).into())
            }
            _ => return completed == Completed::ReceiveImmediate,
        };
        let available = &mut self.queue_pairs[qp].available;
        // Limited by the number of receives, whatever the peer sends.
        *available = granted.saturating_add((*available).into()).min(depth.into()) as u32;
        true
    }

    /// Receiver: accounts for a message of `bytes` bytes whose receive was
    /// reposted. Returns a due report.
    pub(super) fn received(&mut self, qp: usize, bytes: u32, remote: &RemoteMemory) -> Option<Operation> {
        let state = &mut self.queue_pairs[qp];
        // perftest's sender restarts its count for each size.
        if state.size != Some(bytes) {
            if let Method::WriteCounters { .. } = self.method {
                *state = State::default();
            }
            state.size = Some(bytes);
        }
        state.received += 1;
        state.unreported += 1;
        let (Method::Immediate { interval, .. } | Method::Empty { interval, .. }) = self.method else {
            return None;
        };
        if state.unreported < interval {
            return None;
        }
        let count = std::mem::take(&mut state.unreported);
        Some(self.grant(count, remote))
    }

    /// Receiver: the message that grants reposted receives.
    fn grant(&self, count: u32, remote: &RemoteMemory) -> Operation {
        let (immediate, solicited, data) = (count.to_be_bytes(), false, Data::Inline(InlineData::new()));
        match self.method {
            Method::Empty { measured: RdmaOperation::Send, .. } => {
                Operation::WriteImmediate { data, remote: remote.sink, immediate, solicited }
            }
            Method::Empty { .. } => Operation::SendImmediate { data, immediate, solicited },
            _ => Operation::Immediate { data: u64::from(count).to_be_bytes(), solicited },
        }
    }

    /// Receiver: whether reports may be due after a poll ([`Self::report`]).
    pub(super) fn reports_after_polls(&self) -> bool {
        matches!(self.method, Method::WriteCounters { .. })
    }

    /// Receiver: returns a report that is due after a poll. A sender with few
    /// receives waits for the first of them, so that an idle receiver reports
    /// each.
    pub(super) fn report(&mut self, qp: usize, is_idle: bool, remote: &RemoteMemory) -> Option<Operation> {
        let state = &mut self.queue_pairs[qp];
        let Method::WriteCounters { interval } = self.method else { return None };
        if state.unreported < if is_idle { 1 } else { interval } {
            return None;
        }
        state.unreported = 0;
        // The counter has 32 bits, and wraps.
        let data = Data::Inline((state.received as u32).to_ne_bytes().into_iter().collect());
        Some(Operation::Write { data, remote: remote.sink })
    }
}

/// How receives of credits complete, beside messages of an operation with
/// immediate data.
fn of_credits(measured: RdmaOperation) -> Completed {
    match measured {
        RdmaOperation::Send => Completed::ReceiveWritten,
        RdmaOperation::Write | RdmaOperation::Read => Completed::Receive,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clearstream_iwarp::{
        stag::Stag,
        verbs::{Rnic, RnicOptions},
    };
    use clearstream_schema::rdma::{RdmaConfig, RdmaOperation};

    use super::*;
    use crate::{data_queue_pairs::Role, negotiation::Layout};

    const REMOTE: RemoteMemory = RemoteMemory {
        source: Remote { stag: Stag(1), address: 0 },
        sink: Remote { stag: Stag(1), address: 4096 },
    };

    /// Creates one queue pair with 16 requests in flight, every fourth
    /// signaled.
    fn pairs() -> DataQueuePairs {
        pairs_of(RdmaConfig { depth: 16, ..RdmaConfig::default() })
    }

    fn pairs_of(config: RdmaConfig) -> DataQueuePairs {
        let layout = Layout::new(&config, RdmaOperation::Send).unwrap();
        let rnic = Rnic::open(RnicOptions::default()).unwrap();
        DataQueuePairs::new(&rnic, &config, layout, Role::Client).unwrap()
    }

    fn received(completed: Completed, immediate: Option<[u8; 8]>) -> Completion {
        Completion { completed, immediate, ..Completion::EMPTY }
    }

    fn written(operation: Option<Operation>) -> Option<u32> {
        operation.map(|operation| match operation {
            Operation::Write { data: Data::Inline(bytes), remote } => {
                assert_eq!(remote, REMOTE.sink);
                u32::from_ne_bytes(bytes.as_slice().try_into().unwrap())
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_sender_is_limited_by_granted_and_existing_receives() {
        let mut credits = Credits::by_immediate_data(&pairs(), RdmaOperation::Send);
        assert_eq!(credits.available(0, 20), 16);
        credits.spend(0, 16);
        assert_eq!(credits.available(0, 1), 0);
        let granted = |credits: &mut Credits, immediate| {
            assert!(credits.granted(0, &received(Completed::ReceiveImmediate, immediate)));
        };
        granted(&mut credits, None);
        assert_eq!(credits.available(0, 1), 0);
        granted(&mut credits, Some(4_u64.to_be_bytes()));
        assert_eq!(credits.available(0, 8), 4);
        granted(&mut credits, Some([0xff; 8]));
        assert_eq!(credits.available(0, 100), 16);
        assert!(!credits.granted(0, &received(Completed::Receive, None)));
    }

    #[test]
    fn beside_messages_with_immediate_data_credits_come_with_an_empty_one_of_the_other_operation() {
        let pairs = pairs_of(RdmaConfig { depth: 16, immediate: true, ..RdmaConfig::default() });
        for (measured, message, credit) in [
            (RdmaOperation::Send, Completed::Receive, Completed::ReceiveWritten),
            (RdmaOperation::Write, Completed::ReceiveWritten, Completed::Receive),
        ] {
            let (mut credits, empty) =
                (Credits::by_immediate_data(&pairs, measured), Data::Inline(InlineData::new()));
            (0..3).for_each(|_| assert_eq!(credits.received(0, 0, &REMOTE), None));
            let immediate = 4_u32.to_be_bytes();
            let expected = match measured {
                RdmaOperation::Send => {
                    let remote = REMOTE.sink;
                    Operation::WriteImmediate { data: empty, remote, immediate, solicited: false }
                }
                _ => Operation::SendImmediate { data: empty, immediate, solicited: false },
            };
            assert_eq!(credits.received(0, 0, &REMOTE), Some(expected));
            credits.spend(0, 16);
            let grant = Some([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 4]);
            assert!(!credits.granted(0, &received(message, grant)));
            assert_eq!(credits.available(0, 8), 0);
            assert!(credits.granted(0, &received(credit, grant)));
            assert_eq!(credits.available(0, 8), 4);
        }
    }

    #[test]
    fn a_receiver_grants_reposted_receives_once_per_interval() {
        let mut credits = Credits::by_immediate_data(&pairs(), RdmaOperation::Send);
        for _ in 0..2 {
            for _ in 0..3 {
                assert_eq!(credits.received(0, 100, &REMOTE), None);
            }
            let granted = Operation::Immediate { data: 4_u64.to_be_bytes(), solicited: false };
            assert_eq!(credits.received(0, 7, &REMOTE), Some(granted));
        }
        assert!(!credits.reports_after_polls());
    }

    #[test]
    fn a_counter_grants_all_receives_but_one_and_never_what_was_not_sent() {
        let pairs = pairs();
        let counters = Counters::new(pairs.domain(), 1).unwrap();
        let mut credits = Credits::from_counters(&pairs, counters, 6);
        credits.begin();
        let count = |credits: &Credits, value: u32| match &credits.method {
            Method::ReadCounters { counters, .. } => counters.memory.write(0, &value.to_ne_bytes()),
            other => panic!("{other:?}"),
        };
        assert_eq!(credits.available(0, 8), 5);
        credits.spend(0, 5);
        assert_eq!(credits.available(0, 8), 0);
        count(&credits, 3);
        assert_eq!(credits.available(0, 8), 3);
        credits.spend(0, 3);
        count(&credits, u32::MAX);
        assert_eq!(credits.available(0, 8), 5, "8 were sent, and are received at most");
    }

    #[test]
    fn a_counter_is_written_once_per_interval_and_whenever_idle() {
        let mut credits = Credits::into_counters(&pairs());
        assert!(credits.reports_after_polls());
        let receive = |credits: &mut Credits, count: u32, bytes: u32| {
            (0..count).for_each(|_| assert_eq!(credits.received(0, bytes, &REMOTE), None));
        };
        receive(&mut credits, 3, 100);
        assert_eq!(written(credits.report(0, false, &REMOTE)), None);
        receive(&mut credits, 1, 100);
        assert_eq!(written(credits.report(0, false, &REMOTE)), Some(4));
        assert_eq!(written(credits.report(0, true, &REMOTE)), None);
        receive(&mut credits, 1, 100);
        assert_eq!(written(credits.report(0, true, &REMOTE)), Some(5));
        // perftest's client restarts its count for the next size.
        receive(&mut credits, 1, 200);
        assert_eq!(written(credits.report(0, true, &REMOTE)), Some(1));
    }
}
