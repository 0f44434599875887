//! Queue pairs: create, post, modify, query, destroy.

use clearstream_iwarp::verbs::{
    State,
    raw::{QueuePair, QueuePairOptions},
};

use crate::{
    connect::{established, iwarp_established},
    error::{IWARP_OK, Refusal, verb},
    pointers::{at, give, give_handle, list, take},
    queues::{iwarp_completion_queue, iwarp_shared_receive_queue, post},
    requests::{iwarp_receive_request, iwarp_send_request, receive_request, send_request},
    rnic::{iwarp_domain, sized},
};

/// Not connected yet, or closed in order.
pub const IWARP_STATE_IDLE: u32 = 0;
/// Requests are carried out.
pub const IWARP_STATE_READY: u32 = 1;
/// Closing in order: what was posted is still sent.
pub const IWARP_STATE_CLOSING: u32 = 2;
/// A Terminate is on its way to the peer.
pub const IWARP_STATE_TERMINATE: u32 = 3;
/// The connection ended with an error; every request came back.
pub const IWARP_STATE_ERROR: u32 = 4;

/// A queue pair.
pub struct iwarp_queue_pair {
    pub(crate) pair: QueuePair,
}

/// What a queue pair is made of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_queue_pair_options {
    /// Set by iwarp_init_queue_pair_options().
    pub size: usize,
    /// Where sends complete. Needed.
    pub send_completions: *const iwarp_completion_queue,
    /// Where receives complete; NULL: where sends do.
    pub receive_completions: *const iwarp_completion_queue,
    /// Takes receives from there; NULL: a queue of its own.
    pub shared_receives: *const iwarp_shared_receive_queue,
    /// Sends outstanding, at most.
    pub send_depth: u32,
    /// Receives posted, at most; not used with shared receives.
    pub receive_depth: u32,
}

/// What a queue pair is and was agreed on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_queue_pair_attributes {
    /// Its number.
    pub id: u32,
    /// IWARP_STATE_IDLE to IWARP_STATE_ERROR.
    pub state: u32,
    /// It is or was connected: `established` is set.
    pub was_connected: bool,
    /// What both sides agreed on.
    pub established: iwarp_established,
}

/// Fills in the defaults: depths of 128. `size` is sizeof *options.
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
        // SAFETY: as the header says.
        unsafe { give(options, value, "options")? };
        Ok(IWARP_OK)
    })
}

/// A new, idle queue pair. Post its first receives, then connect or accept.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_create_queue_pair(
    domain: *const iwarp_domain,
    options: *const iwarp_queue_pair_options,
    pair: *mut *mut iwarp_queue_pair,
) -> i32 {
    verb!("iwarp_create_queue_pair", || {
        // SAFETY: as the header says.
        let (domain, options) = unsafe { (at(domain, "domain")?, at(options, "options")?) };
        sized::<iwarp_queue_pair_options>(options.size)?;
        // SAFETY: as the header says.
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
        // SAFETY: as the header says.
        unsafe { give_handle(pair, value, "pair") }
    })
}

/// Ends a queue pair: its connection is closed at once, and what is outstanding
/// is forgotten. To end in order, iwarp_modify_queue_pair() to
/// IWARP_STATE_CLOSING first.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_destroy_queue_pair(pair: *mut iwarp_queue_pair) -> i32 {
    verb!("iwarp_destroy_queue_pair", || {
        // SAFETY: as the header says.
        drop(unsafe { take(pair) });
        Ok(IWARP_OK)
    })
}

/// Posts `count` requests of the send queue in order, and sends them together.
/// `posted`, unless NULL, is how many were: when one is refused, those before it
/// are posted, and it is requests[*posted].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_send(
    pair: *const iwarp_queue_pair,
    requests: *const iwarp_send_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_send", || {
        // SAFETY: as the header says.
        let (pair, requests) = unsafe { (at(pair, "pair")?, list(requests, count, "requests")?) };
        // SAFETY: as the header says.
        let convert = |request: &iwarp_send_request| unsafe { send_request(request) };
        // SAFETY: as the header says.
        unsafe { post(requests, posted, convert, |requests| pair.pair.post_sends(requests)) }
    })
}

/// Posts `count` receives in order, also before the queue pair is connected.
/// `posted` as for iwarp_post_send().
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_post_receive(
    pair: *const iwarp_queue_pair,
    requests: *const iwarp_receive_request,
    count: usize,
    posted: *mut usize,
) -> i32 {
    verb!("iwarp_post_receive", || {
        // SAFETY: as the header says.
        let (pair, requests) = unsafe { (at(pair, "pair")?, list(requests, count, "requests")?) };
        // SAFETY: as the header says.
        let convert = |request: &iwarp_receive_request| unsafe { receive_request(request) };
        // SAFETY: as the header says.
        unsafe { post(requests, posted, convert, |requests| pair.pair.post_receives(requests)) }
    })
}

/// Moves a queue pair on: IWARP_STATE_CLOSING ends the connection in order once
/// all sends are out, IWARP_STATE_ERROR at once.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_modify_queue_pair(pair: *const iwarp_queue_pair, state: u32) -> i32 {
    verb!("iwarp_modify_queue_pair", || {
        // SAFETY: as the header says.
        let pair = unsafe { at(pair, "pair")? };
        let to = STATES
            .iter()
            .find_map(|(number, to)| (*number == state).then_some(*to))
            .ok_or_else(|| Refusal::argument(format!("`state` is {state}: use IWARP_STATE_...")))?;
        pair.pair.modify(to)?;
        Ok(IWARP_OK)
    })
}

/// What a queue pair is now.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_queue_pair(
    pair: *const iwarp_queue_pair,
    attributes: *mut iwarp_queue_pair_attributes,
) -> i32 {
    verb!("iwarp_query_queue_pair", || {
        // SAFETY: as the header says.
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
        // SAFETY: as the header says.
        unsafe { give(attributes, value, "attributes")? };
        Ok(IWARP_OK)
    })
}

/// Its number, as completions and events name it; 0 for NULL.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_queue_pair_id(pair: *const iwarp_queue_pair) -> u32 {
    let mut id = 0;
    verb!("iwarp_queue_pair_id", || {
        // SAFETY: as the header says.
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
