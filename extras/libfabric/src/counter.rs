//! Counters (fi_cntr(3)): completed requests of endpoints, of one direction or of both.

use std::{
    ffi::{c_int, c_void},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{abi::*, completion::locked, engine::Core};

/// Numbers, shared by the program's handle and the endpoints.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Counts a request.
    pub fn count(&self, failed: bool) {
        let number = if failed { &self.failed } else { &self.done };
        number.fetch_add(1, Ordering::AcqRel);
    }
}

/// The program's handle.
#[repr(C)]
pub struct Counter {
    abi: fid_one,
    /// Its numbers.
    pub counts: Arc<Counts>,
    endpoints: Mutex<Vec<Weak<Core>>>,
}

static OBJECT: Table<6> = Table::new([close as *const (), NONE, NONE, NONE, NONE, NONE]);
static OPERATIONS: Table<7> = Table::new([
    read as *const (),
    read_failed as *const (),
    add as *const (),
    set as *const (),
    wait as *const (),
    add_failed as *const (),
    set_failed as *const (),
]);

impl Counter {
    /// Binds an endpoint, which a read of the counter drives.
    pub fn bind(&self, endpoint: &Arc<Core>) {
        locked(&self.endpoints).push(Arc::downgrade(endpoint));
    }

    fn progress(&self) {
        locked(&self.endpoints).iter().filter_map(Weak::upgrade).for_each(|endpoint| endpoint.progress());
    }
}

/// `fi_cntr_open`.
///
/// # Safety
/// [The contract of this library](crate#safety); `attributes` may be NULL.
pub unsafe extern "C" fn open(
    _domain: *mut c_void,
    attributes: *mut fi_cntr_attr,
    into: *mut *mut Counter,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let (events, wait) =
        unsafe { attributes.as_ref() }.map_or((0, FI_WAIT_NONE), |wanted| (wanted.events, wanted.wait_obj));
    // FI_CNTR_EVENTS_COMP alone; there is no descriptor to wait for.
    if events != 0 || wait > FI_WAIT_UNSPEC {
        return -FI_ENOSYS;
    }
    let counter = Counter {
        abi: fid_one {
            fid: fid { fclass: FI_CLASS_CNTR, context, ops: OBJECT.address() },
            ops: OPERATIONS.address(),
        },
        counts: Arc::default(),
        endpoints: Mutex::default(),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(counter))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close(counter: *mut Counter) -> c_int {
    // SAFETY: of `open`, and not used after this.
    drop(unsafe { Box::from_raw(counter) });
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn read(counter: *mut Counter) -> u64 {
    // SAFETY: of `open`.
    let counter = unsafe { &*counter };
    counter.progress();
    counter.counts.done.load(Ordering::Acquire)
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn read_failed(counter: *mut Counter) -> u64 {
    // SAFETY: of `open`.
    unsafe { &*counter }.counts.failed.load(Ordering::Acquire)
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn add(counter: *mut Counter, value: u64) -> c_int {
    // SAFETY: of `open`.
    unsafe { &*counter }.counts.done.fetch_add(value, Ordering::AcqRel);
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn set(counter: *mut Counter, value: u64) -> c_int {
    // SAFETY: of `open`.
    unsafe { &*counter }.counts.done.store(value, Ordering::Release);
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn add_failed(counter: *mut Counter, value: u64) -> c_int {
    // SAFETY: of `open`.
    unsafe { &*counter }.counts.failed.fetch_add(value, Ordering::AcqRel);
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn set_failed(counter: *mut Counter, value: u64) -> c_int {
    // SAFETY: of `open`.
    unsafe { &*counter }.counts.failed.store(value, Ordering::Release);
    0
}

/// Waits until the counter has a value, or until a request has failed.
///
/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn wait(counter: *mut Counter, value: u64, timeout_ms: c_int) -> c_int {
    // SAFETY: of `open`.
    let counter = unsafe { &*counter };
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let failed = counter.counts.failed.load(Ordering::Acquire);
    let begin = Instant::now();
    loop {
        counter.progress();
        if counter.counts.done.load(Ordering::Acquire) >= value {
            return 0;
        }
        if counter.counts.failed.load(Ordering::Acquire) != failed {
            return -FI_EAVAIL;
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return -FI_ETIMEDOUT;
        }
        std::thread::yield_now();
    }
}
