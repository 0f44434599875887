/*
 * iWARP in software: RDMA verbs over TCP, in user space.
 *
 * Generated from the sources of clearstream-iwarp-c; a test compares.
 *
 * Results: a function that returns int32_t returns IWARP_OK (0) or a count on
 * success and one of the negative IWARP_ERROR_ codes otherwise;
 * iwarp_error_message() then says in words what to do instead.
 *
 * Handles are pointers to incomplete types, made by one function and ended by
 * another. What was made from a handle keeps alive what it needs: handles may
 * be ended in any order. NULL is refused, and may be ended.
 *
 * Threads: all functions may be called from all threads, also with the same
 * handle at the same time. Two rules: the call that ends a handle is the last
 * one with it, and a struct iwarp_connecting is used by one thread at a time.
 * Messages of errors belong to the thread. Nothing is to be used in the child
 * of a fork().
 *
 * Structures with a member `size` are filled by their iwarp_init_ function
 * first, then changed.
 *
 * Addresses are text: "192.0.2.1:7174" or "[2001:db8::1]:7174". Names are not
 * resolved. Times are in milliseconds; a negative time waits for ever.
 */

#ifndef CLEARSTREAM_IWARP_H
#define CLEARSTREAM_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Done.
#define IWARP_OK 0

// An argument is NULL where something is needed, or has no meaning.
#define IWARP_ERROR_ARGUMENT -1

// The system refused a descriptor, a thread, a core or a socket.
#define IWARP_ERROR_SYSTEM -2

// A number is outside of what the RNIC's attributes allow.
#define IWARP_ERROR_RANGE -3

// Objects of two RNICs, or of two domains where one is needed.
#define IWARP_ERROR_FOREIGN -4

// The queue pair is in another state than this needs.
#define IWARP_ERROR_STATE -5

// There is not as much memory, or no steering tag left.
#define IWARP_ERROR_NO_MEMORY -6

// The system refused to keep pages in memory.
#define IWARP_ERROR_NOT_PINNED -7

// Something still uses it: windows are bound to the region.
#define IWARP_ERROR_BUSY -8

// The steering tag names nothing valid.
#define IWARP_ERROR_STAG -9

// The steering tag exists and does not allow this.
#define IWARP_ERROR_ACCESS -10

// The queue is full: poll completions first.
#define IWARP_ERROR_QUEUE_FULL -11

// A request has too many segments or bytes, or a sink of the wrong length.
#define IWARP_ERROR_REQUEST -12

// The completion queue got more completions than it holds and is lost.
#define IWARP_ERROR_OVERRUN -13

// The peer did not answer in time.
#define IWARP_ERROR_TIMED_OUT -14

// The peer closed the connection before it was set up.
#define IWARP_ERROR_CLOSED -15

// The peer's program refused; iwarp_rejection() has what it said.
#define IWARP_ERROR_REJECTED -16

// Both sides do not agree on how to speak.
#define IWARP_ERROR_SETUP -17

// TCP could not connect.
#define IWARP_ERROR_CONNECT -18

// A mistake of this library. The object concerned is not to be used further.
#define IWARP_ERROR_INTERNAL -19

// A kind of event that this version does not know.
#define IWARP_EVENT_OTHER 0

// A peer's first message came: an accepted queue pair may send.
#define IWARP_EVENT_ESTABLISHED 1

// The peer closed the connection, or it is lost.
#define IWARP_EVENT_DISCONNECTED 2

// The peer sent a Terminate: it found an error in what we sent.
#define IWARP_EVENT_TERMINATE_RECEIVED 3

// We sent a Terminate: the peer broke a rule.
#define IWARP_EVENT_TERMINATE_SENT 4

// More completions than a queue holds.
#define IWARP_EVENT_COMPLETION_QUEUE_OVERRUN 5

// A shared receive queue fell below its limit.
#define IWARP_EVENT_SHARED_RECEIVE_LIMIT 6

// Longest words of an event, with their terminating zero.
#define IWARP_EVENT_WORDS_BYTES 160

// Receives and responses of Reads may be placed there.
#define IWARP_LOCAL_WRITE 1

// A peer may read it.
#define IWARP_REMOTE_READ 2

// A peer may write it.
#define IWARP_REMOTE_WRITE 4

// A peer may use atomic operations on it.
#define IWARP_REMOTE_ATOMIC 8

// Windows may be bound to it.
#define IWARP_BIND_WINDOW 16

// Tagged offsets count from its first byte instead of being addresses.
#define IWARP_ZERO_BASED 32

// Its pages are kept in physical memory (mlock). Not needed by this RNIC; it
// keeps page faults out of the data path.
#define IWARP_PIN 256

// Longest text of an address, with its terminating zero.
#define IWARP_ADDRESS_BYTES 64

// Longest private data.
#define IWARP_PRIVATE_DATA_BYTES 512

// Not connected yet, or closed in order.
#define IWARP_STATE_IDLE 0

// Requests are carried out.
#define IWARP_STATE_READY 1

// Closing in order: what was posted is still sent.
#define IWARP_STATE_CLOSING 2

// A Terminate is on its way to the peer.
#define IWARP_STATE_TERMINATE 3

// The connection ended with an error; every request came back.
#define IWARP_STATE_ERROR 4

// Into the peer's next posted receive.
#define IWARP_SEND 0

// Into the peer's memory.
#define IWARP_WRITE 1

// Out of the peer's memory, into one segment.
#define IWARP_READ 2

// Eight bytes beside the data.
#define IWARP_IMMEDIATE 3

// Adds to eight bytes of the peer's memory and brings back what was there.
#define IWARP_FETCH_ADD 4

// Swaps eight bytes of the peer's memory if they compare equal, and brings
// back what was there.
#define IWARP_COMPARE_SWAP 5

// Gives a window the range of one segment, for this queue pair.
#define IWARP_BIND_WINDOW_TO 6

// Makes a steering tag of this side invalid.
#define IWARP_LOCAL_INVALIDATE 7

// Only in completions: a Send of the peer's arrived.
#define IWARP_RECEIVE 8

// Only in completions: immediate data of the peer's arrived.
#define IWARP_RECEIVE_IMMEDIATE 9

// A completion is wanted also when the request succeeds.
#define IWARP_SIGNALED 1

// Waits until all earlier Reads and atomics are complete.
#define IWARP_FENCE 2

// Send and Immediate: wakes a peer that asked for solicited completions.
#define IWARP_SOLICITED 4

// Send and Write: segments are plain memory, copied while they are posted.
#define IWARP_INLINE 8

// Send: invalidate_stag of the peer is made invalid on delivery. Read: so is
// the tag of the segment, once the data is there.
#define IWARP_INVALIDATE 16

// Done.
#define IWARP_SUCCESS 0

// A local segment is not what its tag allows.
#define IWARP_LOCAL_PROTECTION 1

// The message was longer than the posted receive.
#define IWARP_LOCAL_LENGTH 2

// The local request can not be carried out in this state of the tag.
#define IWARP_LOCAL_OPERATION 3

// The window could not be bound.
#define IWARP_WINDOW_BIND 4

// The peer refused access to its memory.
#define IWARP_REMOTE_ACCESS 5

// The peer refused the operation.
#define IWARP_REMOTE_OPERATION 6

// The queue pair left the state in which requests are carried out.
#define IWARP_FLUSHED 7

// In completions: `immediate` is set.
#define IWARP_HAS_IMMEDIATE 1

// In completions: `invalidated_stag` is set.
#define IWARP_HAS_INVALIDATED 2

// In completions: the peer asked for attention.
#define IWARP_WAS_SOLICITED 4

// The calls of the program move the bytes: posting sends, polling receives.
// Lowest latency; nothing moves between calls.
#define IWARP_PROGRESS_INLINE 0

// Engine threads move the bytes, also while the program computes.
#define IWARP_PROGRESS_OFFLOADED 1

// A completion event channel: tells which armed completion queue got one.
struct iwarp_channel;

// A completion queue.
struct iwarp_completion_queue;

// A connection that is being set up.
struct iwarp_connecting;

// A protection domain: queue pairs reach only memory of their own.
struct iwarp_domain;

// A peer's request to connect, to be accepted or rejected once.
struct iwarp_incoming;

// A listening endpoint.
struct iwarp_listener;

// A queue pair.
struct iwarp_queue_pair;

// An RNIC in software.
struct iwarp_rnic;

// A receive queue that several queue pairs share.
struct iwarp_shared_receive_queue;

// How to connect, and how to accept.
struct iwarp_connect_options {
    // Set by iwarp_init_connect_options().
    size_t size;
    // For the peer's program; may be NULL.
    const uint8_t *private_data;
    // Its length: up to 512 bytes, 4 of which revision 2 needs.
    uint32_t private_data_length;
    // Reads and atomics that the peer may have outstanding here.
    uint16_t ird;
    // Reads and atomics that may be outstanding towards the peer.
    uint16_t ord;
    // Ask for CRC32C over each FPDU.
    bool crc;
    // Ask the peer to put markers into what it sends.
    bool markers;
    // Connect: either side may send first. Needs revision 2.
    bool peer_to_peer;
    // Ask for, or agree to, FPDUs larger than a TCP segment.
    bool large_fpdus;
    // Connect: MPA revision, 1 or 2.
    uint8_t revision;
    // Connect: from where; NULL leaves it to the kernel.
    const char *local;
    // Connect: for all of it.
    uint64_t timeout_ms;
    // Connect: for the reply once the request is sent.
    uint64_t reply_timeout_ms;
    // Connect: how long after the reply the first message may leave; -1: as
    // the peer is known to need it.
    int64_t settle_us;
};

// What both sides agreed on.
struct iwarp_established {
    // This end.
    char local[IWARP_ADDRESS_BYTES];
    // The other end.
    char peer[IWARP_ADDRESS_BYTES];
    // What the peer's program had to say.
    uint8_t private_data[IWARP_PRIVATE_DATA_BYTES];
    // Its length.
    uint32_t private_data_length;
    // Bytes of an FPDU's upper-layer data unit, at most.
    uint32_t mulpdu_bytes;
    // Reads and atomics that the peer may have outstanding here.
    uint16_t ird;
    // Reads and atomics that may be outstanding towards the peer.
    uint16_t ord;
    // MPA revision.
    uint8_t revision;
    // CRC32C is on, both ways.
    bool crc;
    // Markers in what is sent.
    bool markers_out;
    // Markers in what is received.
    bool markers_in;
    // A ready-to-receive message opens the connection.
    bool peer_to_peer;
    // This side connected.
    bool initiator;
};

// What a peer asks for.
struct iwarp_incoming_attributes {
    // This end.
    char local[IWARP_ADDRESS_BYTES];
    // The other end.
    char peer[IWARP_ADDRESS_BYTES];
    // What the peer's program had to say.
    uint8_t private_data[IWARP_PRIVATE_DATA_BYTES];
    // Its length.
    uint32_t private_data_length;
    // How many Reads the peer takes at a time; -1: it does not say.
    int32_t ird;
    // How many Reads the peer wants outstanding; -1: it does not say.
    int32_t ord;
    // MPA revision.
    uint8_t revision;
    // The peer wants CRC32C.
    bool crc;
    // The peer wants markers in what it receives.
    bool markers;
    // The peer wants a connection on which either side may send first.
    bool peer_to_peer;
};

// What happened to an object and completes no request.
struct iwarp_event {
    // IWARP_EVENT_ESTABLISHED to IWARP_EVENT_SHARED_RECEIVE_LIMIT.
    uint32_t kind;
    // Whose connection.
    uint32_t queue_pair;
    // The number of the queue that overran or fell below its limit.
    uint64_t token;
    // Of a Terminate: the layer of the error (0 RDMAP, 1 DDP, 2 the transport
    // below), its type and its code.
    uint8_t layer;
    // See layer.
    uint8_t error_type;
    // See layer.
    uint8_t code;
    // Why, where there is a reason.
    char words[IWARP_EVENT_WORDS_BYTES];
};

// What a steering tag is at the moment.
struct iwarp_registration {
    // Tagged offset of its first byte.
    uint64_t address;
    // Its length in bytes.
    uint64_t length;
    // Its rights, and IWARP_PIN.
    uint32_t access;
    // Of a window that is bound: for which queue pair. 0: none.
    uint32_t queue_pair;
    // It can be used now.
    bool valid;
};

// What a queue pair is made of.
struct iwarp_queue_pair_options {
    // Set by iwarp_init_queue_pair_options().
    size_t size;
    // Where sends complete. Needed.
    const struct iwarp_completion_queue *send_completions;
    // Where receives complete; NULL: where sends do.
    const struct iwarp_completion_queue *receive_completions;
    // Takes receives from there; NULL: a queue of its own.
    const struct iwarp_shared_receive_queue *shared_receives;
    // Sends outstanding, at most.
    uint32_t send_depth;
    // Receives posted, at most; not used with shared receives.
    uint32_t receive_depth;
};

// A piece of local memory.
struct iwarp_segment {
    // Tagged offset of its first byte; with IWARP_INLINE a plain address.
    uint64_t address;
    // Its length in bytes.
    uint32_t length;
    // Its steering tag; not used with IWARP_INLINE.
    uint32_t stag;
};

// A request of the send queue. What an operation does not use is not looked
// at; all zero is a Send of nothing.
struct iwarp_send_request {
    // Comes back in the completion.
    uint64_t id;
    // IWARP_SEND to IWARP_LOCAL_INVALIDATE.
    uint32_t operation;
    // IWARP_SIGNALED, IWARP_FENCE, IWARP_SOLICITED, IWARP_INLINE,
    // IWARP_INVALIDATE.
    uint32_t flags;
    // What is gathered or filled, in order. Read, atomics and bind take one.
    const struct iwarp_segment *segments;
    // How many segments.
    size_t segment_count;
    // Write, Read, atomics: where in the peer's memory.
    uint64_t remote_address;
    // Write, Read, atomics: the peer's steering tag.
    uint32_t remote_stag;
    // Send with IWARP_INVALIDATE: the peer's tag. Local invalidate: this
    // side's. Bind: the window's.
    uint32_t stag;
    // Bind: rights of the window.
    uint32_t access;
    // Immediate: the bytes, in the order of the wire.
    uint8_t immediate[8];
    // Fetch and add: what is added. Compare and swap: what must be there.
    uint64_t compare_or_add;
    // Fetch and add: bits that are the most significant of a field of their
    // own (0: one number of 64 bits). Compare and swap: which bits are
    // compared.
    uint64_t compare_or_add_mask;
    // Compare and swap: what comes in its place.
    uint64_t swap;
    // Compare and swap: which bits are swapped.
    uint64_t swap_mask;
};

// A request of a receive queue.
struct iwarp_receive_request {
    // Comes back in the completion.
    uint64_t id;
    // Filled in order.
    const struct iwarp_segment *segments;
    // How many segments.
    size_t segment_count;
};

// What a queue pair is and was agreed on.
struct iwarp_queue_pair_attributes {
    // Its number.
    uint32_t id;
    // IWARP_STATE_IDLE to IWARP_STATE_ERROR.
    uint32_t state;
    // It is or was connected: `established` is set.
    bool was_connected;
    // What both sides agreed on.
    struct iwarp_established established;
};

// How a request ended.
struct iwarp_completion {
    // The request's.
    uint64_t id;
    // Whose request: iwarp_queue_pair_id().
    uint32_t queue_pair;
    // What it was: IWARP_SEND to IWARP_RECEIVE_IMMEDIATE.
    uint32_t operation;
    // IWARP_SUCCESS, or why not. Of a request that failed only `id`,
    // `queue_pair`, `operation` and this are set.
    uint32_t status;
    // Bytes sent, read or received.
    uint32_t bytes;
    // IWARP_HAS_IMMEDIATE, IWARP_HAS_INVALIDATED, IWARP_WAS_SOLICITED.
    uint32_t flags;
    // A tag of this side that the peer's Send made invalid.
    uint32_t invalidated_stag;
    // Immediate data that arrived.
    uint8_t immediate[8];
};

// How an RNIC is opened.
struct iwarp_rnic_options {
    // Set by iwarp_init_rnic_options().
    size_t size;
    // IWARP_PROGRESS_INLINE (the default) or IWARP_PROGRESS_OFFLOADED.
    uint32_t progress;
    // How many cores are listed.
    uint32_t core_count;
    // Offloaded: one engine is pinned to each of these. None: one engine that
    // is not pinned.
    const uint32_t *cores;
    // Send buffer of each socket in bytes; 0 leaves it to the kernel.
    uint64_t send_buffer_bytes;
    // Receive buffer of each socket in bytes; 0 leaves it to the kernel.
    uint64_t receive_buffer_bytes;
    // How long a peer may take for its request, and for its first message.
    uint64_t request_timeout_ms;
    // A peer that shows no sign of life for so long is given up; 0: never.
    uint64_t keepalive_ms;
    // How long an idle engine spins before it sleeps.
    uint64_t engine_spin_us;
};

// What an RNIC can do.
struct iwarp_rnic_attributes {
    // Requests outstanding on a send or receive queue, at most.
    uint32_t max_depth;
    // Completions that a queue holds, at most.
    uint32_t max_completions;
    // Segments of one Send, Write or Receive, at most. A Read has one.
    uint32_t max_segments;
    // Bytes of inline data, at most.
    uint32_t max_inline_bytes;
    // Bytes of one message, at most.
    uint32_t max_message_bytes;
    // Reads and atomics outstanding in each direction, at most.
    uint32_t max_reads;
    // Bytes of private data, at most; revision 2 needs 4 of them.
    uint32_t max_private_data_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Fills in the defaults, for connecting. `size` is sizeof *options.
int32_t iwarp_init_connect_options(struct iwarp_connect_options *options, size_t size);

// Connects and waits until the peer has agreed. `options` and `into` may be
// NULL. When it fails, the queue pair is idle again.
int32_t iwarp_connect(const struct iwarp_queue_pair *pair,
                      const char *peer,
                      const struct iwarp_connect_options *options,
                      struct iwarp_established *into);

// Starts to connect and does not wait. `options` may be NULL.
int32_t iwarp_start_connect(const struct iwarp_queue_pair *pair,
                            const char *peer,
                            const struct iwarp_connect_options *options,
                            struct iwarp_connecting **connecting);

// A descriptor that is readable when iwarp_advance() has something to do, a
// time limit included. It belongs to `connecting`.
int32_t iwarp_connecting_descriptor(const struct iwarp_connecting *connecting);

// Goes on with a set-up without waiting. Returns 1 when it is established
// (`into`, unless NULL, says how), 0 when there is more to wait for. Then, or
// after an error, end it by iwarp_end_connecting().
int32_t iwarp_advance(struct iwarp_connecting *connecting, struct iwarp_established *into);

// Ends the handle of a set-up; one that is not established is given up, and
// its queue pair is idle again.
int32_t iwarp_end_connecting(struct iwarp_connecting *connecting);

// Listens at an address; port 0 takes a free one (iwarp_listener_address()).
int32_t iwarp_listen(const struct iwarp_rnic *rnic,
                     const char *local,
                     struct iwarp_listener **listener);

// Ends a listener.
int32_t iwarp_destroy_listener(struct iwarp_listener *listener);

// Where it listens: text into IWARP_ADDRESS_BYTES bytes.
int32_t iwarp_listener_address(const struct iwarp_listener *listener, char *into);

// A descriptor that is readable when iwarp_next_incoming() has something to
// do. It belongs to the listener.
int32_t iwarp_listener_descriptor(const struct iwarp_listener *listener);

// Waits up to `timeout_ms` for a peer's request. Returns 1, or 0 when the time
// is over.
int32_t iwarp_next_incoming(const struct iwarp_listener *listener,
                            int64_t timeout_ms,
                            struct iwarp_incoming **incoming);

// What became of a peer that never had a complete request, oldest first: one
// line of text, cut to `room` bytes with its zero. Returns 1, or 0 when there
// is none left.
int32_t iwarp_next_listener_failure(const struct iwarp_listener *listener, char *into, size_t room);

// What a peer asks for.
int32_t iwarp_query_incoming(const struct iwarp_incoming *incoming,
                             struct iwarp_incoming_attributes *attributes);

// Accepts a request and ends its handle, whatever comes of it. `options` and
// `into` may be NULL.
int32_t iwarp_accept(const struct iwarp_queue_pair *pair,
                     struct iwarp_incoming *incoming,
                     const struct iwarp_connect_options *options,
                     struct iwarp_established *into);

// Refuses a request with a word of why, and ends its handle.
int32_t iwarp_reject(struct iwarp_incoming *incoming, const uint8_t *data, size_t length);

// Why this thread's last refused call was refused, in one line of English that
// says what to do instead. Empty before the first. The text stays until the
// thread's next refused call.
const char *iwarp_error_message(void);

// What a code means, in general. For every number.
const char *iwarp_error_name(int32_t code);

// What the peer said when it rejected this thread's last refused
// iwarp_connect() or iwarp_advance(): copies up to `room` bytes into `into`
// and returns how many there are.
//
// # Safety
// `into` has `room` bytes, or `room` is 0.
int32_t iwarp_rejection(uint8_t *into, size_t room);

// A descriptor that is readable while an event waits. It belongs to the RNIC.
int32_t iwarp_event_descriptor(const struct iwarp_rnic *rnic);

// Waits up to `timeout_ms` for an asynchronous event. Returns 1, or 0 when the
// time is over. With inline progress nothing happens while a program only
// waits here.
int32_t iwarp_next_event(const struct iwarp_rnic *rnic,
                         int64_t timeout_ms,
                         struct iwarp_event *into);

// Registers `length` bytes at `base` and gives out their steering tag, whose
// lower eight bits are `key`. Tagged offsets count from the address of `base`,
// or from 0 with IWARP_ZERO_BASED.
//
// The memory is to stay allocated until iwarp_deregister_memory() has
// returned. The program may read and write it at any time; bytes that a
// request or a peer writes meanwhile are then old, new, or some of each.
int32_t iwarp_register_memory(const struct iwarp_domain *domain,
                              void *base,
                              size_t length,
                              uint32_t access,
                              uint8_t key,
                              uint32_t *stag);

// Registers a region again: in another domain unless `domain` is NULL, with
// other memory unless `base` is NULL, always with the rights of `access`. The
// tag gets its next key, which comes back in `stag`. The old memory may be
// freed when this has returned.
int32_t iwarp_reregister_memory(const struct iwarp_rnic *rnic,
                                const struct iwarp_domain *domain,
                                void *base,
                                size_t length,
                                uint32_t access,
                                uint32_t *stag);

// Gives a region up. Waits for accesses that are under way, each at most one
// call of the kernel that does not block; requests that still use the memory
// fail. When this has returned the memory may be freed.
int32_t iwarp_deregister_memory(const struct iwarp_rnic *rnic, uint32_t stag);

// A new memory window, bound to nothing. IWARP_BIND_WINDOW binds it; its tag
// is iwarp_next_stag() of the one before then.
int32_t iwarp_allocate_window(const struct iwarp_domain *domain, uint32_t *stag);

// Gives a window up, bound or not.
int32_t iwarp_deallocate_window(const struct iwarp_rnic *rnic, uint32_t stag);

// The tag after the next bind of a window, or after a region was registered
// again: the same index with the next key.
uint32_t iwarp_next_stag(uint32_t stag);

// What a steering tag is at the moment.
int32_t iwarp_query_stag(const struct iwarp_rnic *rnic,
                         uint32_t stag,
                         struct iwarp_registration *registration);

// Fills in the defaults: depths of 128. `size` is sizeof *options.
int32_t iwarp_init_queue_pair_options(struct iwarp_queue_pair_options *options, size_t size);

// A new, idle queue pair. Post its first receives, then connect or accept.
int32_t iwarp_create_queue_pair(const struct iwarp_domain *domain,
                                const struct iwarp_queue_pair_options *options,
                                struct iwarp_queue_pair **pair);

// Ends a queue pair: its connection is closed at once, and what is outstanding
// is forgotten. To end in order, iwarp_modify_queue_pair() to
// IWARP_STATE_CLOSING first.
int32_t iwarp_destroy_queue_pair(struct iwarp_queue_pair *pair);

// Posts `count` requests of the send queue in order, and sends them together.
// `posted`, unless NULL, is how many were: when one is refused, those before it
// are posted, and it is requests[*posted].
int32_t iwarp_post_send(const struct iwarp_queue_pair *pair,
                        const struct iwarp_send_request *requests,
                        size_t count,
                        size_t *posted);

// Posts `count` receives in order, also before the queue pair is connected.
// `posted` as for iwarp_post_send().
int32_t iwarp_post_receive(const struct iwarp_queue_pair *pair,
                           const struct iwarp_receive_request *requests,
                           size_t count,
                           size_t *posted);

// Moves a queue pair on: IWARP_STATE_CLOSING ends the connection in order once
// all sends are out, IWARP_STATE_ERROR at once.
int32_t iwarp_modify_queue_pair(const struct iwarp_queue_pair *pair, uint32_t state);

// What a queue pair is now.
int32_t iwarp_query_queue_pair(const struct iwarp_queue_pair *pair,
                               struct iwarp_queue_pair_attributes *attributes);

// Its number, as completions and events name it; 0 for NULL.
uint32_t iwarp_queue_pair_id(const struct iwarp_queue_pair *pair);

// A new channel.
int32_t iwarp_create_channel(struct iwarp_channel **channel);

// Ends a channel.
int32_t iwarp_destroy_channel(struct iwarp_channel *channel);

// A descriptor that is readable when iwarp_next_channel_event() has something
// to do. It belongs to the channel: do not read, write or close it.
int32_t iwarp_channel_descriptor(const struct iwarp_channel *channel);

// Waits up to `timeout_ms` for an event, and gives out the `token` of its
// queue, which is disarmed then. Returns 1, or 0 when the time is over.
int32_t iwarp_next_channel_event(const struct iwarp_channel *channel,
                                 int64_t timeout_ms,
                                 uint64_t *token);

// A new completion queue for `capacity` completions. `token` names it in
// events; `channel` may be NULL.
int32_t iwarp_create_completion_queue(const struct iwarp_rnic *rnic,
                                      uint32_t capacity,
                                      uint64_t token,
                                      const struct iwarp_channel *channel,
                                      struct iwarp_completion_queue **queue);

// Ends a completion queue. Queue pairs that complete there go on.
int32_t iwarp_destroy_completion_queue(struct iwarp_completion_queue *queue);

// Takes up to `room` completions, oldest first, and returns how many. With
// inline progress an empty queue first looks at its sockets.
int32_t iwarp_poll(const struct iwarp_completion_queue *queue,
                   struct iwarp_completion *completions,
                   uint32_t room);

// Waits up to `timeout_ms` for a completion: polls for a short while, then
// sleeps. Returns 1, or 0 when the time is over.
int32_t iwarp_wait(const struct iwarp_completion_queue *queue,
                   int64_t timeout_ms,
                   struct iwarp_completion *into);

// Asks for one event on the channel: for the next completion, or, with
// `solicited_only`, for the next that the peer solicited or that failed.
// Completions that are there already raise none: poll again after this.
int32_t iwarp_arm(const struct iwarp_completion_queue *queue, bool solicited_only);

// Inline progress: moves what can be moved and takes no completion. Returns 1
// if something moved. For a program that waits for a peer's Write.
int32_t iwarp_progress(const struct iwarp_completion_queue *queue);

// A new shared receive queue for `depth` receives; `token` names it in events.
int32_t iwarp_create_shared_receive_queue(const struct iwarp_domain *domain,
                                          uint32_t depth,
                                          uint64_t token,
                                          struct iwarp_shared_receive_queue **queue);

// Ends a shared receive queue. Queue pairs that use it go on.
int32_t iwarp_destroy_shared_receive_queue(struct iwarp_shared_receive_queue *queue);

// Posts `count` receives in order. `posted`, unless NULL, is how many were:
// when one is refused, those before it are posted.
int32_t iwarp_post_shared_receive(const struct iwarp_shared_receive_queue *queue,
                                  const struct iwarp_receive_request *requests,
                                  size_t count,
                                  size_t *posted);

// Asks for one IWARP_EVENT_SHARED_RECEIVE_LIMIT as soon as fewer than `limit`
// receives are left; 0 asks for none.
int32_t iwarp_set_shared_receive_limit(const struct iwarp_shared_receive_queue *queue,
                                       uint32_t limit);

// Fills in the defaults. `size` is sizeof *options.
int32_t iwarp_init_rnic_options(struct iwarp_rnic_options *options, size_t size);

// Opens an RNIC and starts its engines. `options` may be NULL: inline
// progress.
int32_t iwarp_open_rnic(const struct iwarp_rnic_options *options, struct iwarp_rnic **rnic);

// Closes an RNIC. It goes on until the last object made from it is ended.
int32_t iwarp_close_rnic(struct iwarp_rnic *rnic);

// What an RNIC can do.
int32_t iwarp_query_rnic(const struct iwarp_rnic *rnic, struct iwarp_rnic_attributes *attributes);

// The version of this library, like "0.1.0".
const char *iwarp_library_version(void);

// A new protection domain.
int32_t iwarp_allocate_domain(const struct iwarp_rnic *rnic, struct iwarp_domain **domain);

// Gives a protection domain up. Its queue pairs go on. Its memory stays
// registered: deregister it first.
int32_t iwarp_deallocate_domain(struct iwarp_domain *domain);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CLEARSTREAM_IWARP_H */
