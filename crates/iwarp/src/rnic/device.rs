//! The RNIC itself: how it progresses, what it can do, what it has open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    memory::MemoryTable,
    mpa::PRIVATE_DATA_MAX,
    rnic::{AsyncEvents, VerbsError, driver::Driver, engine::Engine},
    stag::QueuePairId,
};

/// Who moves the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The calls of the program: posting sends, polling receives. Lowest
    /// latency; nothing moves between calls.
    #[default]
    Inline,
    /// Engine threads: communication goes on while the program computes.
    Offloaded {
        /// One engine is pinned to each; queue pairs are dealt out in turn.
        /// Empty: one engine that is not pinned.
        cores: Vec<u32>,
    },
}

/// How an RNIC is opened.
#[derive(Clone, Debug)]
pub struct RnicOptions {
    /// Who moves the bytes.
    pub progress: Progress,
    /// Send buffer of each socket in bytes; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
    /// Receive buffer of each socket in bytes; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<usize>,
    /// How long a peer may take for its MPA Request after it connected, and
    /// for its ready-to-receive message after the Reply.
    pub request_timeout: Duration,
    /// A peer that shows no sign of life for so long is given up, also on an
    /// idle connection (TCP keepalive); `None` waits for ever.
    pub keepalive: Option<Duration>,
    /// How long an idle engine spins before it sleeps in the kernel. A longer
    /// spin answers sooner and costs a core.
    pub engine_spin: Duration,
}

impl Default for RnicOptions {
    fn default() -> Self {
        Self {
            progress: Progress::Inline,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            request_timeout: Duration::from_secs(10),
            keepalive: Some(Duration::from_secs(60)),
            engine_spin: Duration::from_micros(200),
        }
    }
}

/// What an RNIC can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Requests outstanding on a send or receive queue, at most.
    pub max_depth: u32,
    /// Completions that a queue holds, at most.
    pub max_completions: u32,
    /// Segments of one Send, Write or Receive, at most. A Read has one.
    pub max_segments: u32,
    /// Bytes of inline data, at most.
    pub max_inline_bytes: u32,
    /// Bytes of one message, at most.
    pub max_message_bytes: u32,
    /// Reads and atomics that a peer may have outstanding here, at most (IRD),
    /// and that may be outstanding towards it (ORD).
    pub max_reads: u16,
    /// Bytes of private data of a set-up frame, at most (RFC 5044, section
    /// 7.1.1).
    pub max_private_data_bytes: u32,
}

/// An RNIC. Clones name the same one; it closes with its last object.
#[derive(Clone, Debug)]
pub struct Rnic {
    pub(crate) device: Arc<Device>,
}

impl Rnic {
    /// Opens an RNIC and starts its engines.
    ///
    /// # Errors
    /// An engine cannot be pinned to its core, or there is no descriptor or
    /// thread left.
    pub fn open(options: RnicOptions) -> Result<Self, VerbsError> {
        let engines = match &options.progress {
            Progress::Inline => Vec::new(),
            Progress::Offloaded { cores } if cores.is_empty() => {
                vec![Engine::start(None, options.engine_spin)?]
            }
            Progress::Offloaded { cores } => {
                let start = |core: &u32| Engine::start(Some(*core), options.engine_spin);
                cores.iter().map(start).collect::<Result<_, _>>()?
            }
        };
        let device = Device {
            options,
            memory: MemoryTable::new(),
            events: AsyncEvents::new()?,
            engines,
            next_engine: AtomicUsize::new(0),
            next_queue_pair: AtomicU32::new(1),
        };
        Ok(Self { device: Arc::new(device) })
    }

    /// What it can do.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes::NOW
    }

    /// How it was opened.
    #[must_use]
    pub fn options(&self) -> &RnicOptions {
        &self.device.options
    }

    /// Events that belong to no completion.
    #[must_use]
    pub fn events(&self) -> &AsyncEvents {
        &self.device.events
    }

    /// Its table of registered memory: registration by tag (`memory::raw`),
    /// bind, invalidate.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryTable> {
        &self.device.memory
    }
}

impl Attributes {
    /// Of every RNIC of this version.
    pub(super) const NOW: Self = Self {
        max_depth: 1 << 16,
        max_completions: 1 << 22,
        max_segments: 16,
        max_inline_bytes: 4096,
        max_message_bytes: u32::MAX,
        max_reads: 128,
        max_private_data_bytes: PRIVATE_DATA_MAX as u32,
    };

    pub(super) fn check(what: &'static str, asked: u32, most: u32) -> Result<(), VerbsError> {
        if (1..=most).contains(&asked) {
            return Ok(());
        }
        Err(VerbsError::Range { what, asked: asked.into(), least: 1, most: most.into() })
    }
}

/// What all objects of an RNIC share.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) options: RnicOptions,
    pub(crate) memory: Arc<MemoryTable>,
    pub(crate) events: AsyncEvents,
    engines: Vec<Engine>,
    next_engine: AtomicUsize,
    next_queue_pair: AtomicU32,
}

impl Device {
    /// A number that no other queue pair has.
    pub(super) fn queue_pair_id(&self) -> QueuePairId {
        QueuePairId(self.next_queue_pair.fetch_add(1, Ordering::Relaxed))
    }

    /// The engine of the next queue pair; none inline.
    pub(super) fn engine(&self) -> Option<Arc<Driver>> {
        let turn = self.next_engine.fetch_add(1, Ordering::Relaxed);
        let engine = self.engines.get(turn.checked_rem(self.engines.len())?)?;
        Some(engine.driver.clone())
    }
}
