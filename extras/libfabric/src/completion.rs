//! Completion queues (fi_cq(3)).

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use crate::{abi::*, engine::Core};

/// Locks a mutex and ignores poisoning: nothing panics while it is held.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entries, oldest first.
#[derive(Default)]
struct Entries {
    done: VecDeque<(fi_cq_tagged_entry, u64)>,
    failed: VecDeque<fi_cq_err_entry>,
}

/// A queue, shared by the program's handle and the endpoints.
pub struct Completions {
    entries: Mutex<Entries>,
    endpoints: Mutex<Vec<Weak<Core>>>,
}

// SAFETY: pointers of the program are passed through, never followed.
unsafe impl Send for Completions {}
// SAFETY: as above; all members are behind mutexes.
unsafe impl Sync for Completions {}

impl Completions {
    /// Adds the completion of a successful request.
    pub fn push(&self, entry: fi_cq_tagged_entry, source: u64) {
        locked(&self.entries).done.push_back((entry, source));
    }

    /// Adds an error.
    pub fn fail(&self, entry: fi_cq_err_entry) {
        locked(&self.entries).failed.push_back(entry);
    }

    /// Binds an endpoint, which a read of the queue drives.
    pub fn bind(&self, endpoint: &Arc<Core>) {
        let mut endpoints = locked(&self.endpoints);
        if !endpoints.iter().any(|bound| bound.as_ptr() == Arc::as_ptr(endpoint)) {
            endpoints.push(Arc::downgrade(endpoint));
        }
    }

    /// Moves messages of its endpoints.
    fn progress(&self) {
        let endpoints = locked(&self.endpoints);
        endpoints.iter().filter_map(Weak::upgrade).for_each(|endpoint| endpoint.progress());
    }
}

/// The program's handle.
#[repr(C)]
pub struct CompletionQueue {
    abi: fid_one,
    /// Bytes of an entry of the requested format.
    entry_bytes: usize,
    /// The queue.
    pub completions: Arc<Completions>,
}

static OBJECT: Table<6> = Table::new([close as *const (), NONE, NONE, NONE, NONE, NONE]);
static OPERATIONS: Table<7> = Table::new([
    read as *const (),
    read_from as *const (),
    read_error as *const (),
    wait as *const (),
    wait_from as *const (),
    signal as *const (),
    describe as *const (),
]);

/// `fi_cq_open`.
///
/// # Safety
/// [The contract of this library](crate#safety); `attributes` may be NULL.
pub unsafe extern "C" fn open(
    _domain: *mut c_void,
    attributes: *mut fi_cq_attr,
    into: *mut *mut CompletionQueue,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let (format, wait) =
        unsafe { attributes.as_ref() }.map_or((0, FI_WAIT_NONE), |wanted| (wanted.format, wanted.wait_obj));
    // There is no descriptor to wait for.
    if wait > FI_WAIT_UNSPEC {
        return -FI_ENOSYS;
    }
    let entry_bytes = match format {
        1 => 8,
        2 => 24,
        3 => 40,
        _ => 48,
    };
    let queue = CompletionQueue {
        abi: fid_one {
            fid: fid { fclass: FI_CLASS_CQ, context, ops: OBJECT.address() },
            ops: OPERATIONS.address(),
        },
        entry_bytes,
        completions: Arc::new(Completions { entries: Mutex::default(), endpoints: Mutex::default() }),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(queue))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close(queue: *mut CompletionQueue) -> c_int {
    // SAFETY: of `open`, and not used after this.
    drop(unsafe { Box::from_raw(queue) });
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `count` entries of the format of the queue, and
/// is aligned for nothing.
unsafe extern "C" fn read(queue: *mut CompletionQueue, into: *mut u8, count: usize) -> isize {
    // SAFETY: as required by `read_from`.
    unsafe { read_from(queue, into, count, ptr::null_mut()) }
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `count` entries of the format of the queue,
/// `sources` is NULL or has room for as many numbers.
unsafe extern "C" fn read_from(
    queue: *mut CompletionQueue,
    into: *mut u8,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: of `open`.
    let queue = unsafe { &*queue };
    let mut entries = locked(&queue.completions.entries);
    if entries.done.is_empty() || count == 0 {
        drop(entries);
        queue.completions.progress();
        entries = locked(&queue.completions.entries);
    }
    if entries.done.is_empty() {
        return -(if entries.failed.is_empty() { FI_EAGAIN } else { FI_EAVAIL } as isize);
    }
    let count = count.min(entries.done.len());
    for (at, (entry, source)) in entries.done.drain(..count).enumerate() {
        // SAFETY: the caller has room for `count` entries of its format, which begin as the longest one does.
        unsafe {
            let from = ptr::from_ref(&entry).cast::<u8>();
            ptr::copy_nonoverlapping(from, into.add(at * queue.entry_bytes), queue.entry_bytes);
            if !sources.is_null() {
                sources.add(at).write(source);
            }
        }
    }
    count as isize
}

/// # Safety
/// [The contract of this library](crate#safety); `into` is an entry whose buffer for details is set, perhaps to NULL.
unsafe extern "C" fn read_error(
    queue: *mut CompletionQueue,
    into: *mut fi_cq_err_entry,
    _flags: u64,
) -> isize {
    // SAFETY: of `open`.
    let queue = unsafe { &*queue };
    match locked(&queue.completions.entries).failed.pop_front() {
        None => -(FI_EAGAIN as isize),
        Some(mut entry) => {
            // SAFETY: the caller's entry, whose buffer for details stays unused.
            unsafe {
                (entry.err_data, entry.err_data_size) = ((*into).err_data, 0);
                into.write(entry);
            }
            1
        }
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `into` as for [`read`].
unsafe extern "C" fn wait(
    queue: *mut CompletionQueue,
    into: *mut u8,
    count: usize,
    condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: as required by `wait_from`.
    unsafe { wait_from(queue, into, count, ptr::null_mut(), condition, timeout_ms) }
}

/// # Safety
/// [The contract of this library](crate#safety); `into` and `sources` as for [`read_from`].
unsafe extern "C" fn wait_from(
    queue: *mut CompletionQueue,
    into: *mut u8,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let begin = Instant::now();
    loop {
        // SAFETY: the caller's arguments.
        let outcome = unsafe { read_from(queue, into, count, sources) };
        if outcome != -(FI_EAGAIN as isize) || limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return outcome;
        }
        std::thread::yield_now();
    }
}

extern "C" fn signal(_queue: *mut CompletionQueue) -> c_int {
    0
}

/// # Safety
/// [The contract of this library](crate#safety); all arguments may be NULL.
unsafe extern "C" fn describe(
    _queue: *mut CompletionQueue,
    _code: c_int,
    _details: *const c_void,
    _buffer: *mut c_char,
    _length: usize,
) -> *const c_char {
    c"the connection ended, the message did not fit, or the memory may not be read or written: see err"
        .as_ptr()
}
