//! Queue pairs: create, post, modify, query, destroy.

use clearstream_iwarp::verbs::{
    State,
    raw::{QueuePair, QueuePairOptions},
};

use crate::{
    connect::iwarp_established,
    error::{CallError, IWARP_OK, verb},
    options::established,
    pointers::{at, give, give_handle, list, take},
    queues::{iwarp_completion_queue, iwarp_shared_receive_queue, post},
    requests::{iwarp_receive_request, iwarp_send_request, receive_request, send_request},
    rnic::{iwarp_domain, sized},
};

/// Not connected yet, or closed gracefully.
pub const IWARP_STATE_IDLE: u32 = 0;
/// Ready to send: requests are processed.
pub const IWARP_STATE_READY: u32 = 1;
/// Graceful close in progress: posted requests are still sent.
pub const IWARP_STATE_CLOSING: u32 = 2;
/// A Terminate is being sent to the peer.
pub const IWARP_STATE_TERMINATE: u32 = 3;
/// The connection ended with an error; every request was completed.
pub const IWARP_STATE_ERROR: u32 = 4;

/// A queue pair.
pub struct iwarp_queue_pair {
    pub(crate) pair: QueuePair,
}

/// Options of a queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_queue_pair_options {
    /// Set by iwarp_init_queue_pair_options().
    pub size: usize,
    /// Completion queue of sends. Required.
    pub send_completions: *const iwarp_completion_queue,
    /// Completion queue of receives; NULL: that of sends.
    pub receive_completions: *const iwarp_completion_queue,
    /// Shared receive queue; NULL: a queue of its own.
    pub shared_receives: *const iwarp_shared_receive_queue,
    /// Maximum number of outstanding sends.
    pub send_depth: u32,
    /// Maximum number of posted receives; unused with a shared receive queue.
    pub receive_depth: u32,
}

/// Attributes and negotiated parameters of a queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_queue_pair_attributes {
    /// Identifier.
    pub id: u32,
    /// IWARP_STATE_IDLE to IWARP_STATE_ERROR.
    pub state: u32,
    /// Whether it is or was connected: `established` is set.
    pub was_connected: bool,
    /// Parameters of the connection.
    pub established: iwarp_established,
}

/// Initialises the options with defaults: depths of 128. `size` is sizeof
/// *options.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_init_queue_pair_options(
    options: *mut iwarp_queue_pair_options,
    size: usize,
) -> i32 {
    verb!("iwarp_init_queue_pair_options", || {
        sized::<iwarp_queue_pair_options>(size)?;
        let value = iwarp_queue_pair_options {
            size,
            send_completions: std::ptr::null(),
            receive_completions: std::ptr::null(),
            shared_receives: std::ptr::null(),
            send_depth: 128,
            receive_depth: 128,
        };
        // SAFETY: as required by the header.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// Creates an idle queue pair. Post its first receives, then connect or accept.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_queue_pair(
    domain: *const iwarp_domain,
    options: *const iwarp_queue_pair_options,
    pair: *mut *mut iwarp_queue_pair,
) -> i32 {
    verb!("iwarp_create_queue_pair", || {
        // SAFETY: as required by the header.
        let (domain, options) = unsafe { (at(domain, "domain")?, at(options, "options")?) };
        sized::<iwarp_queue_pair_options>(options.size)?;
        // SAFETY: as required by the header.
        let (sends, receives, shared) = unsafe {
            let sends = at(options.send_completions, "send_completions")?;
            (sends, options.receive_completions.as_ref().unwrap_or(sends), options.shared_receives.as_ref())
        };
        let options = QueuePairOptions {
            send_completions: &sends.queue,
            receive_completions: &receives.queue,
            shared_receives: shared.map(|shared| &shared.queue),
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
        };
        let value = iwarp_queue_pair { pair: QueuePair::new(&domain.domain, &options)? };
        // SAFETY: as required by the header.
        unsafe { give_handle(pair, value, "pair") }
    })
}

/// Destroys a queue pair: its connection is closed immediately, and outstanding
/// requests are discarded. For a graceful close call iwarp_modify_queue_pair()
/// with IWARP_STATE_CLOSING first.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_queue_pair(pair: *mut iwarp_queue_pair) -> i32 {
    verb!("iwarp_destroy_queue_pair", || {
        // SAFETY: as required by the header.
        drop(unsafe { take(pair) });
        Ok(IWARP_OK)
    })
}

/// Posts `count` requests to the send queue in order, and sends them together.
/// `posted`, unless NULL, returns their number: when one is rejected, those
/// before it are posted, and it is requests[*posted].
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_send(
    pair: *const iwarp_queue_pair,
    requests: *const iwarp_send_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_send", || {
        // SAFETY: as required by the header.
        let (pair, requests) = unsafe { (at(pair, "pair")?, list(requests, count, "requests")?) };
        // SAFETY: as required by the header.
        let convert = |request: &iwarp_send_request| unsafe { send_request(request) };
        // SAFETY: as required by the header.
        unsafe { post(requests, posted, convert, |requests| pair.pair.post_sends(requests)) }
    })
}

/// Posts `count` receives in order, also before the queue pair is connected.
/// `posted` as for iwarp_post_send().
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_receive(
    pair: *const iwarp_queue_pair,
    requests: *const iwarp_receive_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_receive", || {
        // SAFETY: as required by the header.
        let (pair, requests) = unsafe { (at(pair, "pair")?, list(requests, count, "requests")?) };
        // SAFETY: as required by the header.
        let convert = |request: &iwarp_receive_request| unsafe { receive_request(request) };
        // SAFETY: as required by the header.
        unsafe { post(requests, posted, convert, |requests| pair.pair.post_receives(requests)) }
    })
}

/// Changes the state of a queue pair: IWARP_STATE_CLOSING closes the connection
/// gracefully once all sends are out, IWARP_STATE_ERROR closes it immediately.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_modify_queue_pair(pair: *const iwarp_queue_pair, state: u32) -> i32 {
    verb!("iwarp_modify_queue_pair", || {
        // SAFETY: as required by the header.
        let pair = unsafe { at(pair, "pair")? };
        let to = STATES
            .iter()
            .find_map(|(number, to)| (*number == state).then_some(*to))
            .ok_or_else(|| CallError::argument(format!("`state` is {state}: use IWARP_STATE_...")))?;
        pair.pair.modify(to)?;
        Ok(IWARP_OK)
    })
}

/// Returns the attributes of a queue pair.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_queue_pair(
    pair: *const iwarp_queue_pair,
    attributes: *mut iwarp_queue_pair_attributes,
) -> i32 {
    verb!("iwarp_query_queue_pair", || {
        // SAFETY: as required by the header.
        let known = unsafe { at(pair, "pair")? }.pair.query();
        let value = iwarp_queue_pair_attributes {
            id: known.id.0,
            state: STATES
                .iter()
                .find_map(|(number, state)| (*state == known.state).then_some(*number))
                .unwrap_or(IWARP_STATE_ERROR),
            was_connected: known.established.is_some(),
            established: known.established.as_ref().map_or(iwarp_established::NONE, established),
        };
        // SAFETY: as required by the header.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// Returns its identifier in completions and events; 0 for NULL.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_queue_pair_id(pair: *const iwarp_queue_pair) -> u32 {
    let mut id = 0;
    verb!("iwarp_queue_pair_id", || {
        // SAFETY: as required by the header.
        id = unsafe { at(pair, "pair")? }.pair.id().0;
        Ok(IWARP_OK)
    });
    id
}

const STATES: [(u32, State); 5] = [
    (IWARP_STATE_IDLE, State::Idle),
    (IWARP_STATE_READY, State::Rts),
    (IWARP_STATE_CLOSING, State::Closing),
    (IWARP_STATE_TERMINATE, State::Terminate),
    (IWARP_STATE_ERROR, State::Error),
];
