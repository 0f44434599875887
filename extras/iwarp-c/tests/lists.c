/* Lists of requests: posted in one pass, also with a request that is rejected. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "clearstream_iwarp.h"

enum { WAIT_MS = 10000, DESCRIPTORS = 256, COUNT = 8, MANY = 1000, DEPTH = 2 * COUNT };

/* Number of TCP data segments sent by all connections of this process. Each
 * send call on an idle connection sends one (TCP_NODELAY, tcp(7)). */
static unsigned segments_sent(void) {
    unsigned segments = 0;
    for (int descriptor = 0; descriptor < DESCRIPTORS; descriptor++) {
        struct tcp_info info;
        socklen_t length = sizeof info;
        if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
            segments += info.tcpi_data_segs_out;
        }
    }
    return segments;
}

static struct iwarp_rnic *rnic;
static struct iwarp_domain *domain;
static struct iwarp_completion_queue *completions[2];
static struct iwarp_queue_pair *pair[2];
static struct iwarp_shared_receive_queue *shared;
static uint64_t memory[2][COUNT];
static uint32_t stag[2];

static uint64_t address_of(const void *place) { return (uint64_t)(uintptr_t)place; }

static void open_pairs(void) {
    struct iwarp_rnic_options options;
    CHECK(iwarp_init_rnic_options(&options, sizeof options) == IWARP_OK);
    options.progress = IWARP_PROGRESS_INLINE;
    CHECK(iwarp_open_rnic(&options, &rnic) == IWARP_OK);
    CHECK(iwarp_allocate_domain(rnic, &domain) == IWARP_OK);
    CHECK(iwarp_create_shared_receive_queue(domain, DEPTH, 1, &shared) == IWARP_OK);
    for (int side = 0; side < 2; side++) {
        CHECK(iwarp_create_completion_queue(rnic, 4 * DEPTH, 0, NULL, &completions[side]) == IWARP_OK);
        CHECK(iwarp_register_memory(domain, memory[side], sizeof memory[side], IWARP_LOCAL_WRITE, 0,
                                    &stag[side]) == IWARP_OK);
        struct iwarp_queue_pair_options made;
        CHECK(iwarp_init_queue_pair_options(&made, sizeof made) == IWARP_OK);
        made.send_completions = completions[side];
        made.shared_receives = side == 1 ? shared : NULL;
        made.send_depth = DEPTH;
        made.receive_depth = DEPTH;
        CHECK(iwarp_create_queue_pair(domain, &made, &pair[side]) == IWARP_OK);
    }
}

static void connect_pairs(void) {
    struct iwarp_listener *listener;
    struct iwarp_incoming *incoming = NULL;
    struct iwarp_connecting *connecting;
    char where[IWARP_ADDRESS_BYTES];
    CHECK(iwarp_listen(rnic, "127.0.0.1:0", &listener) == IWARP_OK);
    CHECK(iwarp_listener_address(listener, where) == IWARP_OK);
    CHECK(iwarp_start_connect(pair[0], where, NULL, &connecting) == IWARP_OK);
    while (iwarp_next_incoming(listener, 0, &incoming) == 0) {
        struct pollfd both[2] = {{iwarp_listener_descriptor(listener), POLLIN, 0},
                                 {iwarp_connecting_descriptor(connecting), POLLIN, 0}};
        CHECK(poll(both, 2, WAIT_MS) > 0);
        CHECK(iwarp_advance(connecting, NULL) == 0);
    }
    CHECK(iwarp_accept(pair[1], incoming, NULL, NULL) == IWARP_OK);
    int32_t advanced;
    while ((advanced = iwarp_advance(connecting, NULL)) == 0) {
        struct pollfd ready = {iwarp_connecting_descriptor(connecting), POLLIN, 0};
        CHECK(poll(&ready, 1, WAIT_MS) == 1);
    }
    CHECK(advanced == 1);
    CHECK(iwarp_end_connecting(connecting) == IWARP_OK);
    CHECK(iwarp_destroy_listener(listener) == IWARP_OK);
}

/* Receives with ids from 0 on, each for one word. `bad`: the one with more
 * segments than a request may have. */
static void receives(struct iwarp_receive_request *requests, struct iwarp_segment *segments, size_t bad,
                     const struct iwarp_segment *too_many) {
    for (size_t index = 0; index < COUNT; index++) {
        segments[index] = (struct iwarp_segment){address_of(&memory[1][index]), 8, stag[1]};
        requests[index] = (struct iwarp_receive_request){index, &segments[index], 1};
        if (index == bad) {
            requests[index].segments = too_many;
            requests[index].segment_count = MANY;
        }
    }
}

/* Signaled Sends with ids from `id` on, each of one word. */
static void sends(struct iwarp_send_request *requests, struct iwarp_segment *segments, uint64_t id) {
    memset(requests, 0, COUNT * sizeof *requests);
    for (size_t index = 0; index < COUNT; index++) {
        memory[0][index] = id + index;
        segments[index] = (struct iwarp_segment){address_of(&memory[0][index]), 8, stag[0]};
        requests[index].id = id + index;
        requests[index].operation = IWARP_SEND;
        requests[index].flags = IWARP_SIGNALED;
        requests[index].segments = &segments[index];
        requests[index].segment_count = 1;
    }
}

/* Checks that a side has the completions of `count` requests from `id` on. */
static void completed(int side, uint64_t id, size_t count) {
    struct iwarp_completion found;
    for (size_t done = 0; done < count;) {
        int32_t polled = iwarp_poll(completions[side], &found, 1);
        CHECK(polled >= 0);
        if (polled == 0) continue;
        CHECK(found.status == IWARP_SUCCESS && found.id == id + done);
        done++;
    }
    CHECK(iwarp_poll(completions[side], &found, 1) == 0);
}

int main(void) {
    struct iwarp_segment segments[COUNT], too_many[MANY];
    struct iwarp_receive_request received[COUNT];
    struct iwarp_send_request sent[COUNT];
    size_t posted = 99;
    unsigned before;

    open_pairs();
    /* Not connected: every send is rejected; an empty list is not. */
    sends(sent, segments, 0);
    CHECK(iwarp_post_send(pair[0], sent, COUNT, &posted) == IWARP_ERROR_STATE && posted == 0);
    CHECK(iwarp_post_send(pair[0], sent, 0, &posted) == IWARP_OK && posted == 0);
    connect_pairs();

    /* A list of receives up to the rejected one, then the rest of it. */
    memset(too_many, 0, sizeof too_many);
    receives(received, segments, 3, too_many);
    CHECK(iwarp_post_shared_receive(shared, received, COUNT, &posted) == IWARP_ERROR_REQUEST && posted == 3);
    receives(received, segments, COUNT, NULL);
    CHECK(iwarp_post_shared_receive(shared, received + posted, COUNT - posted, &posted) == IWARP_OK);
    CHECK(posted == COUNT - 3);

    /* All Sends of a list are sent by one call. */
    sends(sent, segments, 10);
    before = segments_sent();
    CHECK(iwarp_post_send(pair[0], sent, COUNT, &posted) == IWARP_OK && posted == COUNT);
    CHECK(segments_sent() == before + 1);
    completed(0, 10, COUNT);
    completed(1, 0, COUNT);
    for (size_t index = 0; index < COUNT; index++) CHECK(memory[1][index] == 10 + index);

    /* An invalid request: those before it are sent, those after it are not. */
    receives(received, segments, COUNT, NULL);
    CHECK(iwarp_post_shared_receive(shared, received, COUNT, NULL) == IWARP_OK);
    sends(sent, segments, 20);
    sent[5].operation = 99;
    before = segments_sent();
    CHECK(iwarp_post_send(pair[0], sent, COUNT, &posted) == IWARP_ERROR_ARGUMENT && posted == 5);
    CHECK(segments_sent() == before + 1);
    CHECK(strstr(iwarp_error_message(), "99") != NULL);
    completed(0, 20, 5);
    completed(1, 0, 5);

    /* A request that the queue pair rejects: the same. */
    sends(sent, segments, 30);
    sent[2].segments = too_many;
    sent[2].segment_count = MANY;
    CHECK(iwarp_post_send(pair[0], sent, COUNT, &posted) == IWARP_ERROR_REQUEST && posted == 2);
    completed(0, 30, 2);
    completed(1, 5, 2);

    /* More than the queue holds. */
    for (size_t round = 0; round < DEPTH / COUNT; round++) {
        receives(received, segments, COUNT, NULL);
        CHECK(iwarp_post_receive(pair[0], received, COUNT, &posted) == IWARP_OK && posted == COUNT);
    }
    CHECK(iwarp_post_receive(pair[0], received, COUNT, &posted) == IWARP_ERROR_QUEUE_FULL && posted == 0);

    for (int side = 0; side < 2; side++) {
        CHECK(iwarp_destroy_queue_pair(pair[side]) == IWARP_OK);
        CHECK(iwarp_destroy_completion_queue(completions[side]) == IWARP_OK);
        CHECK(iwarp_deregister_memory(rnic, stag[side]) == IWARP_OK);
    }
    CHECK(iwarp_destroy_shared_receive_queue(shared) == IWARP_OK);
    CHECK(iwarp_deallocate_domain(domain) == IWARP_OK);
    CHECK(iwarp_close_rnic(rnic) == IWARP_OK);
    puts("lists");
    return 0;
}
