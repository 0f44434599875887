/*
 * Two programs exchange messages by RDMA over TCP, then one of them writes,
 * reads and adds to the memory of the other.
 *
 *     pingpong listen 127.0.0.1:0 1000        prints its address
 *     pingpong connect 127.0.0.1:PORT 1000    prints the round-trip time
 *
 * cc -o pingpong pingpong.c -lclearstream_iwarp
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clearstream_iwarp.h"

enum { MESSAGE = 64, SHARED = 4096, COUNTER = 8, DATA = 64, DATA_LENGTH = 1000, WAIT_MS = 10000 };

/* State of one side. */
struct side {
    struct iwarp_rnic *rnic;
    struct iwarp_domain *domain;
    struct iwarp_channel *channel;
    struct iwarp_completion_queue *completions;
    struct iwarp_queue_pair *pair;
    /* First the message that is sent, then the one that is received. */
    unsigned char messages[2 * MESSAGE];
    uint32_t messages_stag;
    /* Memory that the peer may write, read and add to. Aligned to eight bytes. */
    uint64_t shared[SHARED / 8];
    uint32_t shared_stag;
};

/* Location of the listener's shared memory, sent in its private data. */
struct advertised {
    uint64_t address;
    uint32_t stag;
    uint32_t length;
};

/* Exits with the library's message when a call failed. */
static int32_t must(int32_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "pingpong: %s: %s (%s)\n", what, iwarp_error_message(), iwarp_error_name(result));
        exit(1);
    }
    return result;
}

static void fail(const char *what) {
    fprintf(stderr, "pingpong: %s\n", what);
    exit(1);
}

static uint64_t address_of(const void *place) { return (uint64_t)(uintptr_t)place; }

static void post_receive(struct side *side) {
    struct iwarp_segment segment = {address_of(side->messages + MESSAGE), MESSAGE, side->messages_stag};
    struct iwarp_receive_request request = {1, &segment, 1};
    must(iwarp_post_receive(side->pair, &request, 1, NULL), "post a receive");
}

static void open_side(struct side *side) {
    memset(side, 0, sizeof *side);
    must(iwarp_open_rnic(NULL, &side->rnic), "open an RNIC");
    must(iwarp_allocate_domain(side->rnic, &side->domain), "allocate a domain");
    must(iwarp_create_channel(&side->channel), "create a channel");
    must(iwarp_create_completion_queue(side->rnic, 64, 7, side->channel, &side->completions),
         "create a completion queue");
    must(iwarp_register_memory(side->domain, side->messages, sizeof side->messages, IWARP_LOCAL_WRITE, 0,
                               &side->messages_stag),
         "register messages");
    must(iwarp_register_memory(side->domain, side->shared, sizeof side->shared,
                               IWARP_LOCAL_WRITE | IWARP_REMOTE_READ | IWARP_REMOTE_WRITE | IWARP_REMOTE_ATOMIC,
                               0, &side->shared_stag),
         "register shared memory");
    struct iwarp_queue_pair_options options;
    must(iwarp_init_queue_pair_options(&options, sizeof options), "options of a queue pair");
    options.send_completions = side->completions;
    must(iwarp_create_queue_pair(side->domain, &options, &side->pair), "create a queue pair");
    post_receive(side);
}

static void close_side(struct side *side) {
    must(iwarp_destroy_queue_pair(side->pair), "destroy the queue pair");
    must(iwarp_deregister_memory(side->rnic, side->messages_stag), "deregister messages");
    must(iwarp_deregister_memory(side->rnic, side->shared_stag), "deregister shared memory");
    must(iwarp_destroy_completion_queue(side->completions), "destroy the completion queue");
    must(iwarp_destroy_channel(side->channel), "destroy the channel");
    must(iwarp_deallocate_domain(side->domain), "deallocate the domain");
    must(iwarp_close_rnic(side->rnic), "close the RNIC");
}

/* Polls until there is a completion of this operation, and returns it. */
static struct iwarp_completion await(struct side *side, uint32_t operation) {
    struct iwarp_completion completion;
    if (must(iwarp_wait(side->completions, WAIT_MS, &completion), "wait") == 0) fail("nothing completed in time");
    if (completion.status != IWARP_SUCCESS) {
        fprintf(stderr, "pingpong: operation %" PRIu32 " ended with status %" PRIu32 "\n", completion.operation,
                completion.status);
        exit(1);
    }
    if (completion.operation != operation) fail("something else completed");
    return completion;
}

/* Like await, sleeping on the channel until there is a completion. */
static struct iwarp_completion sleep_for(struct side *side, uint32_t operation) {
    struct iwarp_completion completion;
    uint64_t token = 0;
    must(iwarp_arm(side->completions, false), "arm");
    while (must(iwarp_poll(side->completions, &completion, 1), "poll") == 0) {
        if (must(iwarp_next_channel_event(side->channel, WAIT_MS, &token), "next event") == 0)
            fail("no event in time");
        if (token != 7) fail("an event of another queue");
    }
    if (completion.status != IWARP_SUCCESS || completion.operation != operation) fail("it ended otherwise");
    return completion;
}

static void post(struct side *side, struct iwarp_send_request request, void *place, uint32_t length,
                 uint32_t stag, const char *what) {
    struct iwarp_segment segment = {address_of(place), length, stag};
    request.segments = &segment;
    request.segment_count = 1;
    size_t posted = 0;
    must(iwarp_post_send(side->pair, &request, 1, &posted), what);
    if (posted != 1) fail("wrong number of posted requests");
}

static void send_message(struct side *side, uint64_t number) {
    struct iwarp_send_request request = {0};
    memcpy(side->messages, &number, sizeof number);
    request.id = number;
    request.operation = IWARP_SEND;
    post(side, request, side->messages, MESSAGE, side->messages_stag, "send");
}

/* Waits for the peer's next message and posts another receive. */
static uint64_t receive_message(struct side *side) {
    uint64_t number;
    struct iwarp_completion completion = await(side, IWARP_RECEIVE);
    if (completion.bytes != MESSAGE) fail("a message of another length");
    memcpy(&number, side->messages + MESSAGE, sizeof number);
    post_receive(side);
    return number;
}

static unsigned char pattern(int index) { return (unsigned char)(index * 7 + 3); }

static void serve(struct side *side, const char *local, uint64_t rounds) {
    struct iwarp_listener *listener;
    char where[IWARP_ADDRESS_BYTES];
    must(iwarp_listen(side->rnic, local, &listener), "listen");
    must(iwarp_listener_address(listener, where), "address");
    printf("%s\n", where);
    fflush(stdout);

    /* The first peer is rejected, as a demonstration. */
    struct iwarp_incoming *incoming;
    if (must(iwarp_next_incoming(listener, WAIT_MS, &incoming), "accept") == 0) fail("nobody came");
    must(iwarp_reject(incoming, (const uint8_t *)"try later.", 10), "reject");

    if (must(iwarp_next_incoming(listener, WAIT_MS, &incoming), "accept") == 0) fail("no second connection");
    struct iwarp_incoming_attributes attributes;
    must(iwarp_query_incoming(incoming, &attributes), "query");
    if (attributes.private_data_length != 5 || memcmp(attributes.private_data, "hello", 5) != 0) fail("not a pingpong");

    struct advertised advertised = {address_of(side->shared), side->shared_stag, sizeof side->shared};
    struct iwarp_connect_options options;
    must(iwarp_init_connect_options(&options, sizeof options), "options");
    options.private_data = (const uint8_t *)&advertised;
    options.private_data_length = sizeof advertised;
    must(iwarp_accept(side->pair, incoming, &options, NULL), "accept");
    must(iwarp_destroy_listener(listener), "close the listener");

    side->shared[COUNTER / 8] = 40;
    for (uint64_t round = 0; round < rounds; round++) {
        if (receive_message(side) != round) fail("another message");
        send_message(side, round + 1);
    }
    /* The peer has finished its accesses to our memory. */
    if (receive_message(side) != rounds) fail("another last message");
    const unsigned char *bytes = (const unsigned char *)side->shared;
    for (int index = 0; index < DATA_LENGTH; index++)
        if (bytes[DATA + index] != pattern(index)) fail("not what the peer wrote");
    if (side->shared[COUNTER / 8] != 42) fail("not what the peer added");
    send_message(side, rounds + 1);
    struct iwarp_completion completion;
    /* The peer closes the connection: our receive is flushed. */
    if (must(iwarp_wait(side->completions, WAIT_MS, &completion), "wait") != 1) fail("no close by the peer");
    if (completion.status != IWARP_FLUSHED) fail("a receive was not flushed");
    printf("served %" PRIu64 " rounds\n", rounds);
}

static void connect_to(struct side *side, const char *peer, uint64_t rounds) {
    struct iwarp_established established;
    struct iwarp_connect_options options;
    must(iwarp_init_connect_options(&options, sizeof options), "options");
    options.private_data = (const uint8_t *)"hello";
    options.private_data_length = 5;

    uint8_t reason[32];
    int32_t refused = iwarp_connect(side->pair, peer, &options, &established);
    if (refused != IWARP_ERROR_REJECTED) fail("the first attempt was not rejected");
    if (iwarp_rejection(reason, sizeof reason) != 10 || memcmp(reason, "try later.", 10) != 0)
        fail("no reason for the rejection");

    must(iwarp_connect(side->pair, peer, &options, &established), "connect");
    struct advertised there;
    if (established.private_data_length != sizeof there) fail("not a pingpong");
    memcpy(&there, established.private_data, sizeof there);

    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t round = 0; round < rounds; round++) {
        send_message(side, round);
        if (receive_message(side) != round + 1) fail("another message");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);

    /* Write, read it back, add two. */
    unsigned char *bytes = (unsigned char *)side->shared;
    for (int index = 0; index < DATA_LENGTH; index++) bytes[DATA + index] = pattern(index);
    struct iwarp_send_request request = {0};
    request.flags = IWARP_SIGNALED;
    request.operation = IWARP_WRITE;
    request.remote_address = there.address + DATA;
    request.remote_stag = there.stag;
    post(side, request, bytes + DATA, DATA_LENGTH, side->shared_stag, "write");
    await(side, IWARP_WRITE);
    request.operation = IWARP_READ;
    post(side, request, bytes + 2048, DATA_LENGTH, side->shared_stag, "read");
    if (sleep_for(side, IWARP_READ).bytes != DATA_LENGTH) fail("another length");
    if (memcmp(bytes + DATA, bytes + 2048, DATA_LENGTH) != 0) fail("not what was written");
    request.operation = IWARP_FETCH_ADD;
    request.remote_address = there.address + COUNTER;
    request.compare_or_add = 2;
    post(side, request, side->shared, 8, side->shared_stag, "fetch and add");
    await(side, IWARP_FETCH_ADD);
    if (side->shared[0] != 40) fail("another number was there");

    send_message(side, rounds);
    if (receive_message(side) != rounds + 1) fail("another last message");
    must(iwarp_modify_queue_pair(side->pair, IWARP_STATE_CLOSING), "disconnect");
    struct iwarp_completion completion;
    if (must(iwarp_wait(side->completions, WAIT_MS, &completion), "wait") != 1) fail("no end");
    if (completion.status != IWARP_FLUSHED) fail("a receive was not flushed");
    double microseconds = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
    printf("%" PRIu64 " rounds, %.2f us each\n", rounds, rounds > 0 ? microseconds / (double)rounds : 0.0);
}

int main(int argc, char **argv) {
    if (argc != 4 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
        fprintf(stderr, "usage: pingpong listen|connect ADDRESS:PORT ROUNDS\n");
        return 2;
    }
    static struct side side;
    uint64_t rounds = strtoull(argv[3], NULL, 10);
    open_side(&side);
    if (strcmp(argv[1], "listen") == 0)
        serve(&side, argv[2], rounds);
    else
        connect_to(&side, argv[2], rounds);
    close_side(&side);
    return 0;
}
