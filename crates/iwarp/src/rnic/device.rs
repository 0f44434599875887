//! RNIC: progress mode, attributes, and the resources it holds.

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
    rnic::{
        AsyncEvents, VerbsError,
        driver::Driver,
        engine::Engine,
        helper::{Helper, Watch},
    },
    stag::QueuePairId,
};

/// Progress mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Calls of the program make progress: posting sends, polling receives.
    /// Lowest latency; no progress between calls.
    #[default]
    Inline,
    /// Engine threads make progress while the program computes.
    Offloaded {
        /// Each core gets one pinned engine; queue pairs are assigned
        /// round-robin. Empty: one engine that is not pinned.
        cores: Vec<u32>,
    },
    /// Calls of the program make progress, and a helper thread while none
    /// polls: low latency for a program that polls, and progress for one that
    /// computes or sleeps.
    Adaptive,
}

/// Options for opening an RNIC.
#[derive(Clone, Debug)]
pub struct RnicOptions {
    /// Progress mode.
    pub progress: Progress,
    /// Send buffer of each socket in bytes; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
    /// Receive buffer of each socket in bytes; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<usize>,
    /// Timeout for a peer's MPA Request after its connection was accepted, and
    /// for its ready-to-receive message after the Reply.
    pub request_timeout: Duration,
    /// Idle time after which an unresponsive peer is disconnected (TCP
    /// keepalive); `None` disables it.
    pub keepalive: Option<Duration>,
    /// Time that an idle engine spins before it sleeps in the kernel. A longer
    /// time reduces latency and costs a core.
    pub engine_spin: Duration,
    /// Time that a Send without a receive waits for one in the queue pair's own
    /// receive queue; meanwhile its connection is not read. Zero: it ends the
    /// connection at once, as it does after that time and with a shared
    /// receive queue.
    pub receive_timeout: Duration,
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
            receive_timeout: Duration::ZERO,
        }
    }
}

/// Capabilities of an RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Maximum number of outstanding requests of a send or receive queue.
    pub max_depth: u32,
    /// Maximum number of completion queue entries.
    pub max_completions: u32,
    /// Maximum number of segments of one Send, Write or Receive. A Read has
    /// one.
    pub max_segments: u32,
    /// Maximum bytes of inline data.
    pub max_inline_bytes: u32,
    /// Maximum bytes of one message.
    pub max_message_bytes: u32,
    /// Maximum number of a peer's outstanding Reads and atomics (IRD), and of
    /// own ones (ORD).
    pub max_reads: u16,
    /// Maximum bytes of private data of a setup frame (RFC 5044, section
    /// 7.1.1).
    pub max_private_data_bytes: u32,
}

/// A software RNIC. Clones refer to the same RNIC; it closes with its last
/// object.
#[derive(Clone, Debug)]
pub struct Rnic {
    pub(crate) device: Arc<Device>,
}

impl Rnic {
    /// Opens an RNIC and starts its engines.
    ///
    /// # Errors
    /// An engine cannot be pinned to its core, or no descriptor or thread is
    /// left.
    pub fn open(options: RnicOptions) -> Result<Self, VerbsError> {
        let engines = match &options.progress {
            Progress::Inline | Progress::Adaptive => Vec::new(),
            Progress::Offloaded { cores } if cores.is_empty() => {
                vec![Engine::start(None, options.engine_spin)?]
            }
            Progress::Offloaded { cores } => {
                let start = |core: &u32| Engine::start(Some(*core), options.engine_spin);
                cores.iter().map(start).collect::<Result<_, _>>()?
            }
        };
        let helper = (options.progress == Progress::Adaptive).then(Helper::start).transpose()?;
        Self::with(options, engines, helper)
    }

    pub(super) fn with(
        options: RnicOptions,
        engines: Vec<Engine>,
        helper: Option<Helper>,
    ) -> Result<Self, VerbsError> {
        let device = Device {
            options,
            memory: MemoryTable::new(),
            events: AsyncEvents::new()?,
            engines,
            helper,
            next_engine: AtomicUsize::new(0),
            next_queue_pair: AtomicU32::new(1),
        };
        Ok(Self { device: Arc::new(device) })
    }

    /// Returns its capabilities.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes::NOW
    }

    /// Adaptive progress: lets the helper work. It works while there are more
    /// requests than releases, and begins with one request. For programs in
    /// which it is to work during certain calls only.
    pub fn request_helper(&self) {
        if let Some(watch) = self.device.watch() {
            watch.request();
        }
    }

    /// Adaptive progress: takes a request for the helper's work back.
    pub fn release_helper(&self) {
        if let Some(watch) = self.device.watch() {
            watch.release();
        }
    }

    /// Returns its options.
    #[must_use]
    pub fn options(&self) -> &RnicOptions {
        &self.device.options
    }

    /// Returns the queue of asynchronous events.
    #[must_use]
    pub fn events(&self) -> &AsyncEvents {
        &self.device.events
    }

    /// Returns its memory table: registration by STag (`memory::raw`), bind,
    /// invalidate.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryTable> {
        &self.device.memory
    }
}

impl Attributes {
    /// Maximum bytes of inline data of one request.
    pub const MAX_INLINE_BYTES: u32 = 4096;

    /// Capabilities of this version.
    pub(super) const NOW: Self = Self {
        max_depth: 1 << 16,
        max_completions: 1 << 22,
        max_segments: 16,
        max_inline_bytes: Self::MAX_INLINE_BYTES,
        max_message_bytes: u32::MAX,
        max_reads: 128,
        max_private_data_bytes: PRIVATE_DATA_MAX as u32,
    };

    pub(super) fn check(what: &'static str, requested: u32, max: u32) -> Result<(), VerbsError> {
        if (1..=max).contains(&requested) {
            return Ok(());
        }
        Err(VerbsError::Range { what, requested: requested.into(), min: 1, max: max.into() })
    }
}

/// State common to all objects of an RNIC.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) options: RnicOptions,
    pub(crate) memory: Arc<MemoryTable>,
    pub(crate) events: AsyncEvents,
    engines: Vec<Engine>,
    helper: Option<Helper>,
    next_engine: AtomicUsize,
    next_queue_pair: AtomicU32,
}

impl Device {
    /// Allocates a unique identifier.
    pub(super) fn queue_pair_id(&self) -> QueuePairId {
        QueuePairId(self.next_queue_pair.fetch_add(1, Ordering::Relaxed))
    }

    /// Adaptive progress: what the helper watches.
    pub(super) fn watch(&self) -> Option<&Arc<Watch>> {
        self.helper.as_ref().map(|helper| &helper.watch)
    }

    /// Returns the engine for the next queue pair; `None` with inline progress.
    pub(super) fn engine(&self) -> Option<Arc<Driver>> {
        let turn = self.next_engine.fetch_add(1, Ordering::Relaxed);
        let engine = self.engines.get(turn.checked_rem(self.engines.len())?)?;
        Some(engine.driver.clone())
    }
}
