/*
 * iWARP in software: RDMA verbs over TCP, in user space.
 *
 * Generated from the sources of clearstream-iwarp-c; a test verifies this.
 *
 * Results: a function that returns int32_t returns IWARP_OK (0) or a count on
 * success and one of the negative IWARP_ERROR_ codes otherwise;
 * iwarp_error_message() then returns the reason and a suggested correction.
 *
 * Handles are pointers to incomplete types, created by one function and
 * released by another. Handles hold references to the objects that they were
 * created from: they may be released in any order. NULL is rejected, except by
 * functions that release a handle.
 *
 * Threads: all functions may be called from all threads, also concurrently with
 * the same handle. Two rules: the call that releases a handle is the last one
 * with it, and a struct iwarp_connecting is used by one thread at a time. Error
 * messages are per thread. No object may be used in the child of a fork().
 *
 * Pointers that are no handles are used during the call only. Each is NULL,
 * which is rejected unless the function allows it, or valid and aligned for what
 * the function reads or writes there: a list has as many elements as its count
 * says, a string ends with a zero. Memory that is registered is used until it is
 * deregistered.
 *
 * Structures with a member `size` must be initialised by their iwarp_init_
 * function before members are set.
 *
 * Addresses are text: "192.0.2.1:7174" or "[2001:db8::1]:7174". Names are not
 * resolved. Times are in milliseconds; a negative timeout is infinite.
 */

#ifndef CLEARSTREAM_IWARP_H
#define CLEARSTREAM_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Success.
#define IWARP_OK 0

// Invalid argument, or an argument is NULL where a value is required.
#define IWARP_ERROR_ARGUMENT -1

// A system call for a descriptor, a thread, a core or a socket failed.
#define IWARP_ERROR_SYSTEM -2

// A value is outside the range of the RNIC's attributes.
#define IWARP_ERROR_RANGE -3

// An object of another RNIC or domain.
#define IWARP_ERROR_FOREIGN -4

// The queue pair is in the wrong state.
#define IWARP_ERROR_STATE -5

// Memory or steering tags are exhausted.
#define IWARP_ERROR_NO_MEMORY -6

// The pages could not be locked in memory.
#define IWARP_ERROR_NOT_PINNED -7

// The object is in use: windows are bound to the region.
#define IWARP_ERROR_BUSY -8

// Invalid steering tag.
#define IWARP_ERROR_STAG -9

// The steering tag does not grant this access.
#define IWARP_ERROR_ACCESS -10

// The queue is full: poll completions first.
#define IWARP_ERROR_QUEUE_FULL -11

// A request has too many segments or bytes, or a sink of the wrong length.
#define IWARP_ERROR_REQUEST -12

// The completion queue overran and is unusable.
#define IWARP_ERROR_OVERRUN -13

// The peer did not respond in time.
#define IWARP_ERROR_TIMED_OUT -14

// The peer closed the connection during the setup.
#define IWARP_ERROR_CLOSED -15

// The peer's application rejected the connection; iwarp_rejection() returns
// its private data.
#define IWARP_ERROR_REJECTED -16

// The two sides have no common connection parameters.
#define IWARP_ERROR_SETUP -17

// The TCP connection failed.
#define IWARP_ERROR_CONNECT -18

// Internal error of this library. The object must not be used further.
#define IWARP_ERROR_INTERNAL -19

// Event kind unknown to this version.
#define IWARP_EVENT_OTHER 0

// The peer's first message was received: an accepted queue pair may send.
#define IWARP_EVENT_ESTABLISHED 1

// The peer closed the connection, or it was lost.
#define IWARP_EVENT_DISCONNECTED 2

// The peer sent a Terminate: it detected an error of this side.
#define IWARP_EVENT_TERMINATE_RECEIVED 3

// This side sent a Terminate: the peer violated the protocol.
#define IWARP_EVENT_TERMINATE_SENT 4

// A completion queue overran.
#define IWARP_EVENT_COMPLETION_QUEUE_OVERRUN 5

// A shared receive queue fell below its limit.
#define IWARP_EVENT_SHARED_RECEIVE_LIMIT 6

// Maximum length of an event's reason, including its terminating zero.
#define IWARP_EVENT_REASON_BYTES 160

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

// Its pages are locked in physical memory (mlock). Not required by this RNIC;
// it avoids page faults in the data path.
#define IWARP_PIN 256

// Maximum length of an address as text, including its terminating zero.
#define IWARP_ADDRESS_BYTES 64

// Maximum length of private data.
#define IWARP_PRIVATE_DATA_BYTES 512

// Not connected yet, or closed gracefully.
#define IWARP_STATE_IDLE 0

// Ready to send: requests are processed.
#define IWARP_STATE_READY 1

// Graceful close in progress: posted requests are still sent.
#define IWARP_STATE_CLOSING 2

// A Terminate is being sent to the peer.
#define IWARP_STATE_TERMINATE 3

// The connection ended with an error; every request was completed.
#define IWARP_STATE_ERROR 4

// Sends to the peer's next posted receive.
#define IWARP_SEND 0

// Writes to the peer's memory.
#define IWARP_WRITE 1

// Reads from the peer's memory, into one segment.
#define IWARP_READ 2

// Eight bytes of immediate data.
#define IWARP_IMMEDIATE 3

// Adds to eight bytes of the peer's memory and returns their original value.
#define IWARP_FETCH_ADD 4

// Swaps eight bytes of the peer's memory if they compare equal, and returns
// their original value.
#define IWARP_COMPARE_SWAP 5

// Binds a window to the range of one segment, for this queue pair.
#define IWARP_BIND_WINDOW_TO 6

// Invalidates a local steering tag.
#define IWARP_LOCAL_INVALIDATE 7

// Only in completions: a Send of the peer was received.
#define IWARP_RECEIVE 8

// Only in completions: immediate data of the peer was received.
#define IWARP_RECEIVE_IMMEDIATE 9

// Generates a completion also when the request succeeds.
#define IWARP_SIGNALED 1

// Starts after all earlier Reads and atomics are complete.
#define IWARP_FENCE 2

// Send and Immediate: notifies a peer that waits for solicited completions.
#define IWARP_SOLICITED 4

// Send and Write: segments are plain memory, copied when posted.
#define IWARP_INLINE 8

// Send: invalidate_stag of the peer is invalidated on delivery. Read: the tag
// of the segment is invalidated when the data has arrived.
#define IWARP_INVALIDATE 16

// Completed successfully.
#define IWARP_SUCCESS 0

// The tag of a local segment does not allow the access.
#define IWARP_LOCAL_PROTECTION 1

// The message was longer than the posted receive.
#define IWARP_LOCAL_LENGTH 2

// The local operation is invalid in the current state of the tag.
#define IWARP_LOCAL_OPERATION 3

// The window could not be bound.
#define IWARP_WINDOW_BIND 4

// The peer denied access to its memory.
#define IWARP_REMOTE_ACCESS 5

// The peer rejected the operation.
#define IWARP_REMOTE_OPERATION 6

// Flushed: the queue pair left the state in which requests are processed.
#define IWARP_FLUSHED 7

// In completions: `immediate` is set.
#define IWARP_HAS_IMMEDIATE 1

// In completions: `invalidated_stag` is set.
#define IWARP_HAS_INVALIDATED 2

// In completions: the peer requested a solicited event.
#define IWARP_WAS_SOLICITED 4

// Calls of the program make progress: posting sends, polling receives. Lowest
// latency; no progress between calls.
#define IWARP_PROGRESS_INLINE 0

// Engine threads make progress, also while the program computes.
#define IWARP_PROGRESS_OFFLOADED 1

// Calls of the program make progress, and a helper thread while none polls.
#define IWARP_PROGRESS_ADAPTIVE 2

// A completion event channel: reports which armed completion queue got a
// completion.
struct iwarp_channel;

// A completion queue.
struct iwarp_completion_queue;

// A connection setup in progress.
struct iwarp_connecting;

// A protection domain: queue pairs access only memory of their own.
struct iwarp_domain;

// A connection request, to be accepted or rejected once.
struct iwarp_incoming;

// A listening endpoint.
struct iwarp_listener;

// A queue pair.
struct iwarp_queue_pair;

// A software RNIC.
struct iwarp_rnic;

// A shared receive queue (SRQ).
struct iwarp_shared_receive_queue;

// Options for connecting and for accepting.
struct iwarp_connect_options {
    // Set by iwarp_init_connect_options().
    size_t size;
    // Private data for the peer's application; may be NULL.
    const uint8_t *private_data;
    // Its length: up to 512 bytes, 4 of which revision 2 uses.
    uint32_t private_data_length;
    // Maximum number of the peer's outstanding Reads and atomics (IRD).
    uint16_t ird;
    // Maximum number of own outstanding Reads and atomics (ORD).
    uint16_t ord;
    // Request CRC32C over each FPDU.
    bool crc;
    // Request markers in the incoming stream.
    bool markers;
    // Connect: either side may send first. Needs revision 2.
    bool peer_to_peer;
    // Offer, or accept, FPDUs larger than a TCP segment.
    bool large_fpdus;
    // Connect: MPA revision, 1 or 2.
    uint8_t revision;
    // Connect: local address; NULL leaves it to the kernel.
    const char *local;
    // Connect: timeout of the whole setup.
    uint64_t timeout_ms;
    // Connect: timeout of the reply once the request is sent.
    uint64_t reply_timeout_ms;
    // Connect: delay of the first message after the reply; -1: the default for
    // the peer.
    int64_t settle_us;
};

// Parameters of an established connection.
struct iwarp_established {
    // Local address.
    char local[IWARP_ADDRESS_BYTES];
    // Address of the peer.
    char peer[IWARP_ADDRESS_BYTES];
    // Private data of the peer's application.
    uint8_t private_data[IWARP_PRIVATE_DATA_BYTES];
    // Its length.
    uint32_t private_data_length;
    // Maximum length of a ULPDU.
    uint32_t mulpdu_bytes;
    // Maximum number of the peer's outstanding Reads and atomics (IRD).
    uint16_t ird;
    // Maximum number of own outstanding Reads and atomics (ORD).
    uint16_t ord;
    // MPA revision.
    uint8_t revision;
    // CRC32C is enabled, in both directions.
    bool crc;
    // Markers in the outgoing stream.
    bool markers_out;
    // Markers in the incoming stream.
    bool markers_in;
    // The setup is peer-to-peer, with a ready-to-receive message.
    bool peer_to_peer;
    // This side is the initiator.
    bool initiator;
};

// Attributes of a connection request.
struct iwarp_incoming_attributes {
    // Local address.
    char local[IWARP_ADDRESS_BYTES];
    // Address of the peer.
    char peer[IWARP_ADDRESS_BYTES];
    // Private data of the peer's application.
    uint8_t private_data[IWARP_PRIVATE_DATA_BYTES];
    // Its length.
    uint32_t private_data_length;
    // The peer's IRD; -1: not negotiated.
    int32_t ird;
    // The peer's ORD; -1: not negotiated.
    int32_t ord;
    // MPA revision.
    uint8_t revision;
    // The peer requests CRC32C.
    bool crc;
    // The peer requests markers in its incoming stream.
    bool markers;
    // The peer requests a connection on which either side may send first.
    bool peer_to_peer;
};

// Asynchronous event: a change of an object that completes no request.
struct iwarp_event {
    // IWARP_EVENT_ESTABLISHED to IWARP_EVENT_SHARED_RECEIVE_LIMIT.
    uint32_t kind;
    // Queue pair of the connection.
    uint32_t queue_pair;
    // Token of the queue that overran or fell below its limit.
    uint64_t token;
    // Of a Terminate: layer (0 RDMAP, 1 DDP, 2 the lower layer protocol), type
    // and code of the error.
    uint8_t layer;
    // See layer.
    uint8_t error_type;
    // See layer.
    uint8_t code;
    // Reason, if there is one.
    char reason[IWARP_EVENT_REASON_BYTES];
};

// Current state of a steering tag.
struct iwarp_registration {
    // Tagged offset of its first byte.
    uint64_t address;
    // Its length in bytes.
    uint64_t length;
    // Access rights, and IWARP_PIN.
    uint32_t access;
    // Of a bound window: its queue pair. 0: none.
    uint32_t queue_pair;
    // Whether it is usable now.
    bool valid;
};

// Options of a queue pair.
struct iwarp_queue_pair_options {
    // Set by iwarp_init_queue_pair_options().
    size_t size;
    // Completion queue of sends. Required.
    const struct iwarp_completion_queue *send_completions;
    // Completion queue of receives; NULL: that of sends.
    const struct iwarp_completion_queue *receive_completions;
    // Shared receive queue; NULL: a queue of its own.
    const struct iwarp_shared_receive_queue *shared_receives;
    // Maximum number of outstanding sends.
    uint32_t send_depth;
    // Maximum number of posted receives; unused with a shared receive queue.
    uint32_t receive_depth;
};

// A range of local memory (scatter/gather element).
struct iwarp_segment {
    // Tagged offset of its first byte; with IWARP_INLINE a plain address.
    uint64_t address;
    // Its length in bytes.
    uint32_t length;
    // Its steering tag; not used with IWARP_INLINE.
    uint32_t stag;
};

// Send work request. Members that an operation does not use are ignored; all
// zero is a zero-length Send.
struct iwarp_send_request {
    // Returned in the completion.
    uint64_t id;
    // IWARP_SEND to IWARP_LOCAL_INVALIDATE.
    uint32_t operation;
    // IWARP_SIGNALED, IWARP_FENCE, IWARP_SOLICITED, IWARP_INLINE,
    // IWARP_INVALIDATE.
    uint32_t flags;
    // Scatter/gather list, in order. Read, atomics and bind take one segment.
    const struct iwarp_segment *segments;
    // Number of segments.
    size_t segment_count;
    // Write, Read, atomics: address in the peer's memory.
    uint64_t remote_address;
    // Write, Read, atomics: the peer's steering tag.
    uint32_t remote_stag;
    // Send with IWARP_INVALIDATE: the peer's tag. Local invalidate: the local
    // tag. Bind: the window's.
    uint32_t stag;
    // Bind: rights of the window.
    uint32_t access;
    // Immediate: the bytes, in network order.
    uint8_t immediate[8];
    // Fetch and add: value to add. Compare and swap: expected value.
    uint64_t compare_or_add;
    // Fetch and add: most significant bits of separately added fields (0: one
    // number of 64 bits). Compare and swap: bits to compare.
    uint64_t compare_or_add_mask;
    // Compare and swap: new value.
    uint64_t swap;
    // Compare and swap: bits to swap.
    uint64_t swap_mask;
};

// Receive work request.
struct iwarp_receive_request {
    // Returned in the completion.
    uint64_t id;
    // Scatter list, filled in order.
    const struct iwarp_segment *segments;
    // Number of segments.
    size_t segment_count;
};

// Attributes and negotiated parameters of a queue pair.
struct iwarp_queue_pair_attributes {
    // Identifier.
    uint32_t id;
    // IWARP_STATE_IDLE to IWARP_STATE_ERROR.
    uint32_t state;
    // Whether it is or was connected: `established` is set.
    bool was_connected;
    // Parameters of the connection.
    struct iwarp_established established;
};

// Completion queue entry.
struct iwarp_completion {
    // Identifier of the request.
    uint64_t id;
    // Queue pair of the request: iwarp_queue_pair_id().
    uint32_t queue_pair;
    // Operation: IWARP_SEND to IWARP_RECEIVE_IMMEDIATE.
    uint32_t operation;
    // IWARP_SUCCESS, or the error. Of a failed request only `id`,
    // `queue_pair`, `operation` and this are set.
    uint32_t status;
    // Bytes sent, read or received.
    uint32_t bytes;
    // IWARP_HAS_IMMEDIATE, IWARP_HAS_INVALIDATED, IWARP_WAS_SOLICITED.
    uint32_t flags;
    // Local tag that the peer's Send invalidated.
    uint32_t invalidated_stag;
    // Received immediate data.
    uint8_t immediate[8];
};

// Options for opening an RNIC.
struct iwarp_rnic_options {
    // Set by iwarp_init_rnic_options().
    size_t size;
    // IWARP_PROGRESS_INLINE (the default), IWARP_PROGRESS_OFFLOADED or
    // IWARP_PROGRESS_ADAPTIVE.
    uint32_t progress;
    // Number of cores.
    uint32_t core_count;
    // Offloaded: each of these cores gets one pinned engine. None: one engine
    // that is not pinned.
    const uint32_t *cores;
    // Send buffer of each socket in bytes; 0 leaves it to the kernel.
    uint64_t send_buffer_bytes;
    // Receive buffer of each socket in bytes; 0 leaves it to the kernel.
    uint64_t receive_buffer_bytes;
    // Timeout for a peer's request, and for its first message.
    uint64_t request_timeout_ms;
    // Idle time after which an unresponsive peer is disconnected; 0: never.
    uint64_t keepalive_ms;
    // Time that an idle engine spins before it sleeps.
    uint64_t engine_spin_us;
};

// Capabilities of an RNIC.
struct iwarp_rnic_attributes {
    // Maximum number of outstanding requests of a send or receive queue.
    uint32_t max_depth;
    // Maximum number of completion queue entries.
    uint32_t max_completions;
    // Maximum number of segments of one Send, Write or Receive. A Read has
    // one.
    uint32_t max_segments;
    // Maximum bytes of inline data.
    uint32_t max_inline_bytes;
    // Maximum bytes of one message.
    uint32_t max_message_bytes;
    // Maximum number of outstanding Reads and atomics in each direction.
    uint32_t max_reads;
    // Maximum bytes of private data; revision 2 uses 4 of them.
    uint32_t max_private_data_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Initialises the options with defaults, for connecting. `size` is sizeof
// *options.
int32_t iwarp_init_connect_options(struct iwarp_connect_options *options, size_t size);

// Connects and waits until the connection is established. `options` and `into`
// may be NULL. On failure the queue pair is idle again.
int32_t iwarp_connect(const struct iwarp_queue_pair *pair,
                      const char *peer,
                      const struct iwarp_connect_options *options,
                      struct iwarp_established *into);

// Starts a connection setup without blocking. `options` may be NULL.
int32_t iwarp_start_connect(const struct iwarp_queue_pair *pair,
                            const char *peer,
                            const struct iwarp_connect_options *options,
                            struct iwarp_connecting **connecting);

// Returns a descriptor that is readable when iwarp_advance() can make
// progress, including timeouts. It is owned by `connecting`.
int32_t iwarp_connecting_descriptor(const struct iwarp_connecting *connecting);

// Advances a connection setup without blocking. Returns 1 when the connection
// is established (with its parameters in `into`, unless NULL), 0 when it is
// still in progress. Then, or after an error, release it by
// iwarp_end_connecting().
int32_t iwarp_advance(struct iwarp_connecting *connecting, struct iwarp_established *into);

// Releases the handle of a connection setup; one that is not established is
// aborted, and its queue pair is idle again.
int32_t iwarp_end_connecting(struct iwarp_connecting *connecting);

// Listens on an address; port 0 selects a free one (iwarp_listener_address()).
int32_t iwarp_listen(const struct iwarp_rnic *rnic,
                     const char *local,
                     struct iwarp_listener **listener);

// Destroys a listener.
int32_t iwarp_destroy_listener(struct iwarp_listener *listener);

// Returns its local address: text into IWARP_ADDRESS_BYTES bytes.
int32_t iwarp_listener_address(const struct iwarp_listener *listener, char *into);

// Returns a descriptor that is readable when iwarp_next_incoming() can make
// progress. It is owned by the listener.
int32_t iwarp_listener_descriptor(const struct iwarp_listener *listener);

// Waits up to `timeout_ms` for a connection request. Returns 1, or 0 on
// timeout.
int32_t iwarp_next_incoming(const struct iwarp_listener *listener,
                            int64_t timeout_ms,
                            struct iwarp_incoming **incoming);

// Returns the error of a peer without a complete request, oldest first: one
// line of text, truncated to `room` bytes including its zero. Returns 1, or 0
// when there is none left.
int32_t iwarp_next_listener_failure(const struct iwarp_listener *listener, char *into, size_t room);

// Returns the attributes of a connection request.
int32_t iwarp_query_incoming(const struct iwarp_incoming *incoming,
                             struct iwarp_incoming_attributes *attributes);

// Accepts a connection request and releases its handle in any case. `options`
// and `into` may be NULL.
int32_t iwarp_accept(const struct iwarp_queue_pair *pair,
                     struct iwarp_incoming *incoming,
                     const struct iwarp_connect_options *options,
                     struct iwarp_established *into);

// Rejects a connection request with private data, and releases its handle.
int32_t iwarp_reject(struct iwarp_incoming *incoming, const uint8_t *data, size_t length);

// Returns the message of this thread's last error: one line of English with a
// suggested correction. Empty before the first. The text is valid until the
// thread's next error.
const char *iwarp_error_message(void);

// Returns a general description of a code. Valid for every number.
const char *iwarp_error_name(int32_t code);

// Returns the private data with which the peer rejected this thread's last
// failed iwarp_connect() or iwarp_advance(): copies up to `room` bytes into
// `into` and returns their total number.
int32_t iwarp_rejection(uint8_t *into, size_t room);

// Returns a descriptor that is readable while an event is queued. It is owned
// by the RNIC.
int32_t iwarp_event_descriptor(const struct iwarp_rnic *rnic);

// Waits up to `timeout_ms` for an asynchronous event. Returns 1, or 0 on
// timeout. With inline progress a program that only waits here makes no
// progress.
int32_t iwarp_next_event(const struct iwarp_rnic *rnic,
                         int64_t timeout_ms,
                         struct iwarp_event *into);

// Registers `length` bytes at `base` and returns their steering tag, whose
// lower eight bits are `key`. Tagged offsets count from the address of `base`,
// or from 0 with IWARP_ZERO_BASED.
//
// The memory must stay allocated until iwarp_deregister_memory() has returned.
// The program may read and write it at any time; bytes that a request or a
// peer writes concurrently are then old, new, or a mix of both.
int32_t iwarp_register_memory(const struct iwarp_domain *domain,
                              void *base,
                              size_t length,
                              uint32_t access,
                              uint8_t key,
                              uint32_t *stag);

// Reregisters a region: in another domain unless `domain` is NULL, with other
// memory unless `base` is NULL, always with the rights of `access`. The tag
// gets its next key and is returned in `stag`. The old memory may be freed
// when this has returned.
int32_t iwarp_reregister_memory(const struct iwarp_rnic *rnic,
                                const struct iwarp_domain *domain,
                                void *base,
                                size_t length,
                                uint32_t access,
                                uint32_t *stag);

// Deregisters a region. Waits for accesses in progress, each at most one
// non-blocking system call; requests that still use the memory fail. When this
// has returned the memory may be freed.
int32_t iwarp_deregister_memory(const struct iwarp_rnic *rnic, uint32_t stag);

// Allocates an unbound memory window. IWARP_BIND_WINDOW_TO binds it; its tag
// is then iwarp_next_stag() of the previous one.
int32_t iwarp_allocate_window(const struct iwarp_domain *domain, uint32_t *stag);

// Deallocates a window, bound or not.
int32_t iwarp_deallocate_window(const struct iwarp_rnic *rnic, uint32_t stag);

// Returns the tag after the next bind of a window, or after a reregistration
// of a region: the same index with the next key.
uint32_t iwarp_next_stag(uint32_t stag);

// Returns the current state of a steering tag.
int32_t iwarp_query_stag(const struct iwarp_rnic *rnic,
                         uint32_t stag,
                         struct iwarp_registration *registration);

// Initialises the options with defaults: depths of 128. `size` is sizeof
// *options.
int32_t iwarp_init_queue_pair_options(struct iwarp_queue_pair_options *options, size_t size);

// Creates an idle queue pair. Post its first receives, then connect or accept.
int32_t iwarp_create_queue_pair(const struct iwarp_domain *domain,
                                const struct iwarp_queue_pair_options *options,
                                struct iwarp_queue_pair **pair);

// Destroys a queue pair: its connection is closed immediately, and outstanding
// requests are discarded. For a graceful close call iwarp_modify_queue_pair()
// with IWARP_STATE_CLOSING first.
int32_t iwarp_destroy_queue_pair(struct iwarp_queue_pair *pair);

// Posts `count` requests to the send queue in order, and sends them together.
// `posted`, unless NULL, returns their number: when one is rejected, those
// before it are posted, and it is requests[*posted].
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

// Changes the state of a queue pair: IWARP_STATE_CLOSING closes the connection
// gracefully once all sends are out, IWARP_STATE_ERROR closes it immediately.
int32_t iwarp_modify_queue_pair(const struct iwarp_queue_pair *pair, uint32_t state);

// Returns the attributes of a queue pair.
int32_t iwarp_query_queue_pair(const struct iwarp_queue_pair *pair,
                               struct iwarp_queue_pair_attributes *attributes);

// Returns its identifier in completions and events; 0 for NULL.
uint32_t iwarp_queue_pair_id(const struct iwarp_queue_pair *pair);

// Creates a channel.
int32_t iwarp_create_channel(struct iwarp_channel **channel);

// Destroys a channel.
int32_t iwarp_destroy_channel(struct iwarp_channel *channel);

// Returns a descriptor that is readable when iwarp_next_channel_event() can
// make progress. It is owned by the channel: do not read, write or close it.
int32_t iwarp_channel_descriptor(const struct iwarp_channel *channel);

// Waits up to `timeout_ms` for an event, and returns the `token` of its queue,
// which is disarmed then. Returns 1, or 0 on timeout.
int32_t iwarp_next_channel_event(const struct iwarp_channel *channel,
                                 int64_t timeout_ms,
                                 uint64_t *token);

// Creates a completion queue for `capacity` completions. `token` identifies it
// in events; `channel` may be NULL.
int32_t iwarp_create_completion_queue(const struct iwarp_rnic *rnic,
                                      uint32_t capacity,
                                      uint64_t token,
                                      const struct iwarp_channel *channel,
                                      struct iwarp_completion_queue **queue);

// Destroys a completion queue. Its queue pairs keep working.
int32_t iwarp_destroy_completion_queue(struct iwarp_completion_queue *queue);

// Polls up to `room` completions, oldest first, and returns their number. With
// inline progress an empty queue first polls its sockets.
int32_t iwarp_poll(const struct iwarp_completion_queue *queue,
                   struct iwarp_completion *completions,
                   uint32_t room);

// Waits up to `timeout_ms` for a completion: polls for a short while, then
// sleeps. Returns 1, or 0 on timeout.
int32_t iwarp_wait(const struct iwarp_completion_queue *queue,
                   int64_t timeout_ms,
                   struct iwarp_completion *into);

// Requests one event on the channel: for the next completion, or, with
// `solicited_only`, for the next that is solicited or in error. Completions
// already in the queue generate none: poll again after this.
int32_t iwarp_arm(const struct iwarp_completion_queue *queue, bool solicited_only);

// Makes inline progress without taking a completion. Returns 1 if there was
// progress. For a program that waits for a peer's Write.
int32_t iwarp_progress(const struct iwarp_completion_queue *queue);

// Creates a shared receive queue for `depth` receives; `token` identifies it
// in events.
int32_t iwarp_create_shared_receive_queue(const struct iwarp_domain *domain,
                                          uint32_t depth,
                                          uint64_t token,
                                          struct iwarp_shared_receive_queue **queue);

// Destroys a shared receive queue. Queue pairs that use it keep working.
int32_t iwarp_destroy_shared_receive_queue(struct iwarp_shared_receive_queue *queue);

// Posts `count` receives in order. `posted`, unless NULL, returns their
// number: when one is rejected, those before it are posted.
int32_t iwarp_post_shared_receive(const struct iwarp_shared_receive_queue *queue,
                                  const struct iwarp_receive_request *requests,
                                  size_t count,
                                  size_t *posted);

// Requests one IWARP_EVENT_SHARED_RECEIVE_LIMIT as soon as fewer than `limit`
// receives are left; 0 requests none.
int32_t iwarp_set_shared_receive_limit(const struct iwarp_shared_receive_queue *queue,
                                       uint32_t limit);

// Initialises the options with defaults. `size` is sizeof *options.
int32_t iwarp_init_rnic_options(struct iwarp_rnic_options *options, size_t size);

// Opens an RNIC and starts its engines. `options` may be NULL: inline
// progress.
int32_t iwarp_open_rnic(const struct iwarp_rnic_options *options, struct iwarp_rnic **rnic);

// Closes an RNIC. It stays open until the last object created from it is
// destroyed.
int32_t iwarp_close_rnic(struct iwarp_rnic *rnic);

// Returns the capabilities of an RNIC.
int32_t iwarp_query_rnic(const struct iwarp_rnic *rnic, struct iwarp_rnic_attributes *attributes);

// Returns the version of this library, like "0.1.0".
const char *iwarp_library_version(void);

// Allocates a protection domain.
int32_t iwarp_allocate_domain(const struct iwarp_rnic *rnic, struct iwarp_domain **domain);

// Deallocates a protection domain. Its queue pairs keep working. Its memory
// stays registered: deregister it first.
int32_t iwarp_deallocate_domain(struct iwarp_domain *domain);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CLEARSTREAM_IWARP_H */
