//! The RNIC of the process, opened on first use.

use std::{
    ptr,
    sync::{
        Mutex, Once, OnceLock,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
    time::Duration,
};

use clearstream_iwarp::verbs::{Progress, Rnic, RnicOptions};

use crate::{
    abi::verbs_context,
    cm::Connections,
    context,
    handle::{Handle, objects},
    helper::{Helper, without_signals},
    report::notice,
    settings::{Mode, Settings},
    statistics::report_at_exit,
};

/// Time that a Send without a receive waits for one. The programs are made for InfiniBand too, where the sender retries
/// while the receiver is not ready: rsockets post fewer receives than their credits allow messages.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// State of the process.
pub struct Runtime {
    /// Settings.
    pub settings: Settings,
    /// The RNIC.
    pub rnic: Rnic,
    /// The only context, which is never freed.
    pub context: Handle<verbs_context>,
    /// Helper thread.
    pub helper: Helper,
    /// Connections, their setups and listeners. Locked while an identifier of
    /// the connection manager is read or changed.
    pub connections: Mutex<Connections>,
    /// Events of queues and queue pairs for the program.
    pub async_events: context::AsyncQueue,
}

type Opened = OnceLock<Option<Runtime>>;

/// State of the process; NULL: that of [`FIRST`].
static CURRENT: AtomicPtr<Opened> = AtomicPtr::new(ptr::null_mut());
static FIRST: Opened = OnceLock::new();
static IS_FORKED: AtomicBool = AtomicBool::new(false);

fn current() -> &'static Opened {
    // SAFETY: NULL, or never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }.unwrap_or(&FIRST)
}

/// Returns the settings; `None`, after a message, when they are invalid.
pub fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let read = || Settings::from_environment().map_err(|line| notice(&line)).ok();
    SETTINGS.get_or_init(read).as_ref()
}

/// Returns the state of the process, opening the RNIC on first use; `None`,
/// after a message, when that fails or the process is the child of a fork.
pub fn runtime() -> Option<&'static Runtime> {
    if !is_usable() {
        return None;
    }
    let runtime = current().get_or_init(|| open().map_err(|line| notice(&line)).ok()).as_ref()?;
    runtime.helper.start();
    Some(runtime)
}

/// Returns the state of the process if the RNIC was opened.
pub fn opened() -> Option<&'static Runtime> {
    current().get()?.as_ref()
}

/// Whether this process may use its objects: a fork's child must not use those of its parent.
pub fn is_usable() -> bool {
    if !IS_FORKED.load(Ordering::Relaxed) {
        return true;
    }
    notice(
        "this process is the child of a fork and cannot use RDMA objects of its parent: open the device \
         after fork(), or start the child by exec()",
    );
    false
}

/// In the child: the threads and connections are those of the parent. Without an object of the parent, it opens the
/// device as a new process does.
extern "C" fn note_fork() {
    if objects() > 0 {
        IS_FORKED.store(true, Ordering::Relaxed);
    } else {
        CURRENT.store(Box::into_raw(Box::new(OnceLock::new())), Ordering::Release);
    }
}

fn open() -> Result<Runtime, String> {
    let settings = settings().ok_or("no device: its settings are invalid")?.clone();
    let progress = match settings.mode {
        Mode::Adaptive | Mode::Inline => Progress::Adaptive,
        Mode::Offloaded => Progress::Offloaded { cores: Vec::new() },
    };
    // Engines and the RNIC's helper are threads too.
    let options = RnicOptions { progress, receive_timeout: RECEIVE_TIMEOUT, ..RnicOptions::default() };
    let rnic = without_signals(|| Rnic::open(options))
        .map_err(|error| format!("cannot open the device: {error}"))?;
    if settings.mode == Mode::Inline {
        // It works while a thread waits.
        rnic.release_helper();
    }
    let helper = Helper::new().map_err(|error| format!("cannot open the device: {error}"))?;
    if settings.statistics || settings.trace {
        report_at_exit();
    }
    let async_events =
        context::AsyncQueue::new().map_err(|error| format!("cannot open the device: {error}"))?;
    let context = context::make_context(&async_events);
    static IS_NOTED: Once = Once::new();
    // SAFETY: the handler stores a flag or a pointer.
    IS_NOTED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(note_fork));
    });
    Ok(Runtime { settings, rnic, context, helper, connections: Mutex::default(), async_events })
}
