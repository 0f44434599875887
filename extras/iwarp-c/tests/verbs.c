/* Every verb in one process: two queue pairs connected over loopback, once with
 * inline progress and once with an engine thread; and error cases. */
#define _POSIX_C_SOURCE 200809L

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clearstream_iwarp.h"

enum { WAIT_MS = 10000, MEMORY = 8192, ALL = 31 };

static uint64_t memory[2][MEMORY / 8];

static uint64_t address_of(const void *place) { return (uint64_t)(uintptr_t)place; }

/* State of both sides of a connection. */
struct pairs {
    struct iwarp_rnic *rnic;
    struct iwarp_domain *domain;
    struct iwarp_completion_queue *completions[2];
    struct iwarp_queue_pair *pair[2];
    struct iwarp_shared_receive_queue *shared;
    uint32_t stag[2];
};

static void wait_readable(int descriptor) {
    struct pollfd ready = {descriptor, POLLIN, 0};
    CHECK(descriptor >= 0 && poll(&ready, 1, WAIT_MS) == 1);
}

/* Waits for one completion of a side; polls the other side meanwhile, because
 * there is no background progress in inline mode. */
static struct iwarp_completion completed(struct pairs *with, int side) {
    struct iwarp_completion completion;
    for (long turn = 0; turn < 50000000L; turn++) {
        int32_t count = iwarp_poll(with->completions[side], &completion, 1);
        CHECK(count >= 0);
        if (count == 1) return completion;
        CHECK(iwarp_progress(with->completions[1 - side]) >= 0);
    }
    CHECK(!"completed in time");
    return completion;
}

static struct iwarp_completion succeeded(struct pairs *with, int side, uint32_t operation) {
    struct iwarp_completion completion = completed(with, side);
    CHECK(completion.status == IWARP_SUCCESS);
    CHECK(completion.operation == operation);
    CHECK(completion.queue_pair == iwarp_queue_pair_id(with->pair[side]));
    return completion;
}

static void receive(struct pairs *with, int side, uint64_t id) {
    struct iwarp_segment segment = {address_of(memory[side]) + 4096, 1024, with->stag[side]};
    struct iwarp_receive_request request = {id, &segment, 1};
    size_t posted = 9;
    if (side == 1)
        CHECK(iwarp_post_shared_receive(with->shared, &request, 1, &posted) == IWARP_OK);
    else
        CHECK(iwarp_post_receive(with->pair[side], &request, 1, &posted) == IWARP_OK);
    CHECK(posted == 1);
}

/* Posts a signaled request of the connecting side with one segment. */
static void post(struct pairs *with, struct iwarp_send_request request, uint64_t address, uint32_t length,
                 uint32_t stag) {
    struct iwarp_segment segment = {address, length, stag};
    request.flags |= IWARP_SIGNALED;
    request.segments = &segment;
    request.segment_count = 1;
    CHECK(iwarp_post_send(with->pair[0], &request, 1, NULL) == IWARP_OK);
}

static void open_pairs(struct pairs *with, uint32_t progress) {
    struct iwarp_rnic_options options;
    CHECK(iwarp_init_rnic_options(&options, sizeof options) == IWARP_OK);
    options.progress = progress;
    CHECK(iwarp_open_rnic(&options, &with->rnic) == IWARP_OK);
    struct iwarp_rnic_attributes attributes;
    CHECK(iwarp_query_rnic(with->rnic, &attributes) == IWARP_OK);
    CHECK(attributes.max_private_data_bytes == IWARP_PRIVATE_DATA_BYTES && attributes.max_segments >= 4);
    CHECK(iwarp_allocate_domain(with->rnic, &with->domain) == IWARP_OK);
    CHECK(iwarp_create_shared_receive_queue(with->domain, 16, 77, &with->shared) == IWARP_OK);
    for (int side = 0; side < 2; side++) {
        CHECK(iwarp_create_completion_queue(with->rnic, 64, (uint64_t)side, NULL,
                                            &with->completions[side]) == IWARP_OK);
        CHECK(iwarp_register_memory(with->domain, memory[side], MEMORY, ALL, 9, &with->stag[side]) ==
              IWARP_OK);
        CHECK((with->stag[side] & 0xff) == 9);
        struct iwarp_queue_pair_options made;
        CHECK(iwarp_init_queue_pair_options(&made, sizeof made) == IWARP_OK);
        made.send_completions = with->completions[side];
        made.shared_receives = side == 1 ? with->shared : NULL;
        CHECK(iwarp_create_queue_pair(with->domain, &made, &with->pair[side]) == IWARP_OK);
        receive(with, side, 100);
    }
}

/* Connects without blocking, by descriptors. */
static void connect_pairs(struct pairs *with) {
    struct iwarp_listener *listener;
    struct iwarp_incoming *incoming = NULL;
    struct iwarp_connecting *connecting;
    char where[IWARP_ADDRESS_BYTES];
    CHECK(iwarp_listen(with->rnic, "127.0.0.1:0", &listener) == IWARP_OK);
    CHECK(iwarp_listener_address(listener, where) == IWARP_OK);
    CHECK(iwarp_next_incoming(listener, 0, &incoming) == 0);
    struct iwarp_connect_options options;
    CHECK(iwarp_init_connect_options(&options, sizeof options) == IWARP_OK);
    options.private_data = (const uint8_t *)"first";
    options.private_data_length = 5;
    options.peer_to_peer = true;
    CHECK(iwarp_start_connect(with->pair[0], where, &options, &connecting) == IWARP_OK);
    while (iwarp_next_incoming(listener, 0, &incoming) == 0) {
        struct pollfd both[2] = {{iwarp_listener_descriptor(listener), POLLIN, 0},
                                 {iwarp_connecting_descriptor(connecting), POLLIN, 0}};
        CHECK(poll(both, 2, WAIT_MS) > 0);
        CHECK(iwarp_advance(connecting, NULL) == 0);
    }
    struct iwarp_incoming_attributes attributes;
    CHECK(iwarp_query_incoming(incoming, &attributes) == IWARP_OK);
    CHECK(attributes.private_data_length == 5 && memcmp(attributes.private_data, "first", 5) == 0);
    CHECK(attributes.revision == 2 && attributes.peer_to_peer && attributes.crc && attributes.ird == 16);
    struct iwarp_established here, there;
    options.private_data = NULL;
    options.private_data_length = 0;
    CHECK(iwarp_accept(with->pair[1], incoming, &options, &there) == IWARP_OK);
    int32_t advanced;
    while ((advanced = iwarp_advance(connecting, &here)) == 0)
        wait_readable(iwarp_connecting_descriptor(connecting));
    CHECK(advanced == 1);
    CHECK(iwarp_end_connecting(connecting) == IWARP_OK);
    CHECK(here.initiator && !there.initiator && here.crc && there.crc && here.peer_to_peer);
    CHECK(strcmp(here.peer, where) == 0 && strcmp(there.peer, here.local) == 0);
    CHECK(iwarp_next_listener_failure(listener, where, sizeof where) == 0);
    CHECK(iwarp_destroy_listener(listener) == IWARP_OK);
}

static void exchange(struct pairs *with) {
    struct iwarp_send_request request;
    struct iwarp_completion completion;
    unsigned char *here = (unsigned char *)memory[0], *there = (unsigned char *)memory[1];

    /* Inline data: its memory is reusable after posting. */
    memset(&request, 0, sizeof request);
    request.id = 1;
    request.operation = IWARP_SEND;
    request.flags = IWARP_INLINE | IWARP_SOLICITED;
    char text[] = "inline";
    post(with, request, address_of(text), 6, 0);
    memset(text, 'x', sizeof text);
    succeeded(with, 0, IWARP_SEND);
    completion = succeeded(with, 1, IWARP_RECEIVE);
    CHECK(completion.id == 100 && completion.bytes == 6 && memcmp(there + 4096, "inline", 6) == 0);
    CHECK(completion.flags == IWARP_WAS_SOLICITED);

    /* Immediate data consumes a receive. */
    receive(with, 1, 101);
    memset(&request, 0, sizeof request);
    request.operation = IWARP_IMMEDIATE;
    request.flags = IWARP_SIGNALED;
    memcpy(request.immediate, "eight by", 8);
    CHECK(iwarp_post_send(with->pair[0], &request, 1, NULL) == IWARP_OK);
    succeeded(with, 0, IWARP_IMMEDIATE);
    completion = succeeded(with, 1, IWARP_RECEIVE_IMMEDIATE);
    CHECK((completion.flags & IWARP_HAS_IMMEDIATE) && memcmp(completion.immediate, "eight by", 8) == 0);

    /* Write, Read, compare and swap. */
    memset(&request, 0, sizeof request);
    memcpy(here, "written by verbs", 16);
    request.operation = IWARP_WRITE;
    request.remote_stag = with->stag[1];
    request.remote_address = address_of(there) + 64;
    post(with, request, address_of(here), 16, with->stag[0]);
    succeeded(with, 0, IWARP_WRITE);
    request.operation = IWARP_READ;
    post(with, request, address_of(here) + 128, 16, with->stag[0]);
    CHECK(succeeded(with, 0, IWARP_READ).bytes == 16);
    CHECK(memcmp(here + 128, "written by verbs", 16) == 0);
    memory[1][32] = 5;
    request.operation = IWARP_COMPARE_SWAP;
    request.remote_address = address_of(&memory[1][32]);
    request.compare_or_add = 5;
    request.compare_or_add_mask = UINT64_MAX;
    request.swap = 6;
    request.swap_mask = UINT64_MAX;
    post(with, request, address_of(&memory[0][40]), 8, with->stag[0]);
    succeeded(with, 0, IWARP_COMPARE_SWAP);
    CHECK(memory[0][40] == 5 && memory[1][32] == 6);
}

static void windows(struct pairs *with) {
    struct iwarp_registration known;
    struct iwarp_send_request request;
    struct iwarp_segment part = {address_of(memory[0]), 64, with->stag[0]};
    uint32_t window;
    CHECK(iwarp_allocate_window(with->domain, &window) == IWARP_OK);
    memset(&request, 0, sizeof request);
    request.operation = IWARP_BIND_WINDOW_TO;
    request.stag = window;
    request.access = IWARP_REMOTE_READ;
    post(with, request, part.address, part.length, part.stag);
    succeeded(with, 0, IWARP_BIND_WINDOW_TO);
    CHECK(iwarp_query_stag(with->rnic, window, &known) == IWARP_ERROR_STAG);
    window = iwarp_next_stag(window);
    CHECK(iwarp_query_stag(with->rnic, window, &known) == IWARP_OK);
    CHECK(known.valid && known.length == 64 && known.access == IWARP_REMOTE_READ);
    CHECK(known.queue_pair == iwarp_queue_pair_id(with->pair[0]));
    CHECK(iwarp_deregister_memory(with->rnic, with->stag[0]) == IWARP_ERROR_BUSY);
    CHECK(strstr(iwarp_error_message(), "unbind") != NULL);

    memset(&request, 0, sizeof request);
    request.operation = IWARP_LOCAL_INVALIDATE;
    request.stag = window;
    post(with, request, 0, 0, 0);
    succeeded(with, 0, IWARP_LOCAL_INVALIDATE);
    CHECK(iwarp_query_stag(with->rnic, window, &known) == IWARP_OK && !known.valid);
    CHECK(iwarp_deallocate_window(with->rnic, window) == IWARP_OK);

    /* A tag of the other side that a Send invalidates. */
    uint32_t spare;
    static uint64_t bytes[8];
    CHECK(iwarp_register_memory(with->domain, bytes, sizeof bytes, IWARP_REMOTE_READ, 1, &spare) == IWARP_OK);
    receive(with, 1, 102);
    memset(&request, 0, sizeof request);
    request.flags = IWARP_INVALIDATE;
    request.stag = spare;
    post(with, request, 0, 0, 0);
    succeeded(with, 0, IWARP_SEND);
    struct iwarp_completion completion = succeeded(with, 1, IWARP_RECEIVE);
    CHECK((completion.flags & IWARP_HAS_INVALIDATED) && completion.invalidated_stag == spare);
    CHECK(iwarp_query_stag(with->rnic, spare, &known) == IWARP_OK && !known.valid);
    uint32_t old = spare;
    CHECK(iwarp_reregister_memory(with->rnic, NULL, NULL, 0, IWARP_LOCAL_WRITE, &spare) == IWARP_OK);
    CHECK(spare == iwarp_next_stag(old));
    CHECK(iwarp_deregister_memory(with->rnic, old) == IWARP_ERROR_STAG);
    CHECK(iwarp_deregister_memory(with->rnic, spare) == IWARP_OK);
}

/* A peer that accesses memory without permission: both sides get an error. */
static void ends_in_error(struct pairs *with) {
    struct iwarp_send_request request;
    struct iwarp_event event;
    struct iwarp_queue_pair_attributes attributes;
    bool sent = false, received = false;
    memset(&request, 0, sizeof request);
    request.id = 13;
    request.operation = IWARP_READ;
    request.remote_stag = with->stag[1] ^ 1;
    request.remote_address = address_of(memory[1]);
    post(with, request, address_of(memory[0]), 8, with->stag[0]);
    struct iwarp_completion completion = completed(with, 0);
    while (completion.id != 13) completion = completed(with, 0);
    CHECK(completion.status == IWARP_REMOTE_ACCESS);
    for (int tries = 0; tries < 1000 && !(sent && received); tries++) {
        CHECK(iwarp_progress(with->completions[0]) >= 0 && iwarp_progress(with->completions[1]) >= 0);
        if (iwarp_next_event(with->rnic, 10, &event) != 1) continue;
        bool terminate =
            event.kind == IWARP_EVENT_TERMINATE_SENT || event.kind == IWARP_EVENT_TERMINATE_RECEIVED;
        if (!terminate) continue;
        /* RFC 5040, section 4.8: RDMAP, remote protection error, invalid STag. */
        CHECK(event.layer == 0 && event.error_type == 1 && event.code == 0);
        sent = sent || (event.kind == IWARP_EVENT_TERMINATE_SENT &&
                        event.queue_pair == iwarp_queue_pair_id(with->pair[1]));
        received = received || (event.kind == IWARP_EVENT_TERMINATE_RECEIVED &&
                                event.queue_pair == iwarp_queue_pair_id(with->pair[0]));
    }
    CHECK(sent && received);
    CHECK(iwarp_query_queue_pair(with->pair[0], &attributes) == IWARP_OK);
    CHECK(attributes.was_connected && attributes.state != IWARP_STATE_READY);
    CHECK(attributes.id == iwarp_queue_pair_id(with->pair[0]));
}

static void close_pairs(struct pairs *with) {
    /* Releases the handles in an unusual order. */
    CHECK(iwarp_close_rnic(with->rnic) == IWARP_OK);
    CHECK(iwarp_deallocate_domain(with->domain) == IWARP_OK);
    for (int side = 0; side < 2; side++) {
        CHECK(iwarp_destroy_completion_queue(with->completions[side]) == IWARP_OK);
        CHECK(iwarp_destroy_queue_pair(with->pair[side]) == IWARP_OK);
    }
    CHECK(iwarp_destroy_shared_receive_queue(with->shared) == IWARP_OK);
}

static void everything(uint32_t progress) {
    struct pairs with;
    memset(&with, 0, sizeof with);
    open_pairs(&with, progress);
    CHECK(iwarp_event_descriptor(with.rnic) >= 0);
    CHECK(iwarp_set_shared_receive_limit(with.shared, 0) == IWARP_OK);
    connect_pairs(&with);
    exchange(&with);
    windows(&with);
    ends_in_error(&with);
    close_pairs(&with);
}

static void refused(void) {
    struct iwarp_rnic *rnic;
    struct iwarp_domain *domain;
    struct iwarp_completion_queue *completions;
    struct iwarp_queue_pair *pair;
    struct iwarp_rnic_options options;
    struct iwarp_completion completion;
    uint32_t stag;
    static uint64_t bytes[8];

    CHECK(iwarp_open_rnic(NULL, NULL) == IWARP_ERROR_ARGUMENT);
    CHECK(strcmp(iwarp_error_message(), "`rnic` is NULL") == 0);
    memset(&options, 0, sizeof options);
    CHECK(iwarp_open_rnic(&options, &rnic) == IWARP_ERROR_ARGUMENT);
    CHECK(strstr(iwarp_error_message(), "iwarp_init_rnic_options") != NULL);
    CHECK(iwarp_init_rnic_options(&options, 8) == IWARP_ERROR_ARGUMENT);
    CHECK(iwarp_open_rnic(NULL, &rnic) == IWARP_OK);
    CHECK(iwarp_allocate_domain(rnic, &domain) == IWARP_OK);
    CHECK(iwarp_register_memory(domain, NULL, 8, 0, 0, &stag) == IWARP_ERROR_ARGUMENT);
    CHECK(iwarp_register_memory(domain, bytes, 8, 64, 0, &stag) == IWARP_ERROR_ARGUMENT);
    CHECK(iwarp_register_memory(domain, bytes, SIZE_MAX, 0, 0, &stag) == IWARP_ERROR_NO_MEMORY);
    CHECK(iwarp_register_memory(domain, bytes, 8, 0, 0, NULL) == IWARP_ERROR_ARGUMENT);
    CHECK(iwarp_deregister_memory(rnic, 0x100) == IWARP_ERROR_STAG);
    CHECK(iwarp_create_completion_queue(rnic, 0, 0, NULL, &completions) == IWARP_ERROR_RANGE);
    CHECK(iwarp_create_completion_queue(rnic, 8, 0, NULL, &completions) == IWARP_OK);
    CHECK(iwarp_poll(completions, NULL, 1) == IWARP_ERROR_ARGUMENT);
    CHECK(iwarp_poll(completions, &completion, 1) == 0);
    CHECK(iwarp_wait(completions, 1, &completion) == 0);

    struct iwarp_queue_pair_options made;
    CHECK(iwarp_init_queue_pair_options(&made, sizeof made) == IWARP_OK);
    CHECK(iwarp_create_queue_pair(domain, &made, &pair) == IWARP_ERROR_ARGUMENT);
    made.send_completions = completions;
    CHECK(iwarp_create_queue_pair(domain, &made, &pair) == IWARP_OK);
    CHECK(iwarp_connect(pair, "no address", NULL, NULL) == IWARP_ERROR_ARGUMENT);
    CHECK(strstr(iwarp_error_message(), "192.0.2.1:7174") != NULL);
    CHECK(iwarp_connect(pair, "127.0.0.1:1", NULL, NULL) == IWARP_ERROR_CONNECT);
    CHECK(iwarp_modify_queue_pair(pair, IWARP_STATE_READY) == IWARP_ERROR_STATE);
    CHECK(iwarp_modify_queue_pair(pair, 99) == IWARP_ERROR_ARGUMENT);

    /* The first two are posted, the third is invalid. */
    struct iwarp_segment segments[2] = {{0, 8, 0}, {0, 8, 0}};
    struct iwarp_receive_request receives[3] = {{1, segments, 1}, {2, NULL, 0}, {3, NULL, 1}};
    size_t posted = 0;
    CHECK(iwarp_post_receive(pair, receives, 3, &posted) == IWARP_ERROR_ARGUMENT);
    CHECK(posted == 2);
    struct iwarp_send_request request;
    memset(&request, 0, sizeof request);
    request.operation = 99;
    CHECK(iwarp_post_send(pair, &request, 1, &posted) == IWARP_ERROR_ARGUMENT && posted == 0);
    request.operation = IWARP_READ;
    request.segments = segments;
    request.segment_count = 2;
    CHECK(iwarp_post_send(pair, &request, 1, &posted) == IWARP_ERROR_ARGUMENT && posted == 0);

    for (int32_t code = IWARP_ERROR_INTERNAL; code < 0; code++)
        CHECK(strcmp(iwarp_error_name(code), iwarp_error_name(-1000)) != 0);
    CHECK(iwarp_library_version()[0] != 0);
    CHECK(iwarp_queue_pair_id(NULL) == 0);
    CHECK(iwarp_destroy_queue_pair(NULL) == IWARP_OK);
    CHECK(iwarp_destroy_queue_pair(pair) == IWARP_OK);
    CHECK(iwarp_destroy_completion_queue(completions) == IWARP_OK);
    CHECK(iwarp_deallocate_domain(domain) == IWARP_OK);
    CHECK(iwarp_close_rnic(rnic) == IWARP_OK);
}

int main(void) {
    refused();
    everything(IWARP_PROGRESS_INLINE);
    everything(IWARP_PROGRESS_OFFLOADED);
    everything(IWARP_PROGRESS_ADAPTIVE);
    printf("every verb\n");
    return 0;
}
