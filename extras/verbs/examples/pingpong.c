/*
 * Two programs exchange messages by RDMA, then one of them writes, reads and adds to the memory of the other.
 *
 *     cc -o pingpong pingpong.c -lrdmacm -libverbs
 *     clearstream rdma run -- ./pingpong listen 127.0.0.1 7200 1000
 *     clearstream rdma run -- ./pingpong connect 127.0.0.1 7200 1000    prints the round-trip time
 *
 * With an RDMA card the same program runs without `clearstream rdma run`. Functions: rdma_cm(7), ibv_post_send(3).
 */
#define _DEFAULT_SOURCE

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { MESSAGE = 64, SHARED = 4096, COUNTER = 8, DATA = 64, DATA_LENGTH = 1000 };

/* State of one side. */
struct side {
    struct rdma_cm_id *id;
    /* First the message that is sent, then the one that is received. */
    unsigned char messages[2 * MESSAGE];
    struct ibv_mr *messages_region;
    /* Memory that the peer may write, read and add to. Aligned to eight bytes. */
    uint64_t shared[SHARED / 8];
    struct ibv_mr *shared_region;
};

/* Location of the listener's shared memory, sent in its private data in network byte order. */
struct advertised {
    uint64_t address;
    uint32_t key;
    uint32_t length;
};

static void fail(const char *what) {
    fprintf(stderr, "pingpong: %s\n", what);
    exit(1);
}

/* Calls of librdmacm return -1 and set errno. */
static void must(int result, const char *what) {
    if (result != 0) {
        perror(what);
        exit(1);
    }
}

static void post_receive(struct side *side) {
    must(rdma_post_recv(side->id, NULL, side->messages + MESSAGE, MESSAGE, side->messages_region), "post a receive");
}

/* Memory is registered, and the first receive is posted, before the connection: a message may follow it at once. */
static void open_side(struct side *side) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    side->messages_region = rdma_reg_msgs(side->id, side->messages, sizeof side->messages);
    side->shared_region = ibv_reg_mr(side->id->pd, side->shared, sizeof side->shared, access);
    if (side->messages_region == NULL || side->shared_region == NULL) fail("memory cannot be registered");
    post_receive(side);
}

/* Memory belongs to the card until its registration has ended. */
static void close_side(struct side *side) {
    must(rdma_dereg_mr(side->messages_region), "deregister messages");
    must(rdma_dereg_mr(side->shared_region), "deregister shared memory");
    rdma_destroy_ep(side->id);
}

/* The next completion of a send or a receive queue; sleeps until there is one. */
static struct ibv_wc completed(struct side *side, int of_receive, enum ibv_wc_opcode operation) {
    struct ibv_wc completion;
    int count = of_receive ? rdma_get_recv_comp(side->id, &completion) : rdma_get_send_comp(side->id, &completion);
    if (count != 1) fail("no completion");
    if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
    if (completion.opcode != operation) fail("something else completed");
    return completion;
}

static void send_message(struct side *side, uint64_t number) {
    memcpy(side->messages, &number, sizeof number);
    must(rdma_post_send(side->id, NULL, side->messages, MESSAGE, side->messages_region, IBV_SEND_SIGNALED), "send");
    completed(side, 0, IBV_WC_SEND);
}

/* Waits for the peer's next message and posts another receive. */
static uint64_t receive_message(struct side *side) {
    uint64_t number;
    if (completed(side, 1, IBV_WC_RECV).byte_len != MESSAGE) fail("a message of another length");
    memcpy(&number, side->messages + MESSAGE, sizeof number);
    post_receive(side);
    return number;
}

static unsigned char pattern(int index) { return (unsigned char)(index * 7 + 3); }

static struct rdma_addrinfo *resolve(const char *address, const char *port, int flags) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    must(rdma_getaddrinfo(address, port, &hints, &found), "address");
    return found;
}

static struct ibv_qp_init_attr queues(void) {
    struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC};
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 8;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    return attributes;
}

static void serve(struct side *side, const char *address, const char *port, uint64_t rounds) {
    struct rdma_addrinfo *local = resolve(address, port, RAI_PASSIVE);
    struct ibv_qp_init_attr attributes = queues();
    struct rdma_cm_id *listener;
    must(rdma_create_ep(&listener, local, NULL, &attributes), "listen");
    rdma_freeaddrinfo(local);
    must(rdma_listen(listener, 1), "listen");
    printf("listening\n");
    fflush(stdout);
    must(rdma_get_request(listener, &side->id), "accept");
    const struct rdma_conn_param *asked = &side->id->event->param.conn;
    /* Private data may be followed by zeros. */
    if (asked->private_data_len < 5 || memcmp(asked->private_data, "hello", 5) != 0) fail("not a pingpong");

    side->shared[COUNTER / 8] = 40;
    open_side(side);
    struct advertised advertised = {htobe64((uint64_t)(uintptr_t)side->shared), htobe32(side->shared_region->rkey),
                                    htobe32(sizeof side->shared)};
    /* responder_resources: how many Reads and atomics of the peer are served at a time. */
    struct rdma_conn_param answer = {.private_data = &advertised, .private_data_len = sizeof advertised,
                                     .responder_resources = asked->initiator_depth};
    must(rdma_accept(side->id, &answer), "accept");

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
    /* The peer closes the connection: our receive is flushed. */
    struct ibv_wc completion;
    if (rdma_get_recv_comp(side->id, &completion) != 1 || completion.status != IBV_WC_WR_FLUSH_ERR)
        fail("no close by the peer");
    printf("served %" PRIu64 " rounds\n", rounds);
    close_side(side);
    rdma_destroy_ep(listener);
}

/* librdmacm has a function for every operation but the atomics. */
static void fetch_and_add(struct side *side, uint64_t remote, uint32_t key, uint64_t addend) {
    struct ibv_sge place = {(uint64_t)(uintptr_t)side->shared, 8, side->shared_region->lkey};
    struct ibv_send_wr request = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED}, *bad;
    request.sg_list = &place;
    request.num_sge = 1;
    request.wr.atomic.remote_addr = remote;
    request.wr.atomic.rkey = key;
    request.wr.atomic.compare_add = addend;
    if (ibv_post_send(side->id->qp, &request, &bad) != 0) fail("fetch and add is refused");
    completed(side, 0, IBV_WC_FETCH_ADD);
}

static void connect_to(struct side *side, const char *address, const char *port, uint64_t rounds) {
    struct rdma_addrinfo *peer = resolve(address, port, 0);
    struct ibv_qp_init_attr attributes = queues();
    must(rdma_create_ep(&side->id, peer, NULL, &attributes), "connect");
    rdma_freeaddrinfo(peer);
    open_side(side);
    struct rdma_conn_param request = {.private_data = "hello", .private_data_len = 5, .initiator_depth = 1};
    must(rdma_connect(side->id, &request), "connect");
    struct advertised there;
    if (side->id->event->param.conn.private_data_len < sizeof there) fail("not a pingpong");
    memcpy(&there, side->id->event->param.conn.private_data, sizeof there);
    uint64_t remote = be64toh(there.address);
    uint32_t key = be32toh(there.key);

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
    must(rdma_post_write(side->id, NULL, bytes + DATA, DATA_LENGTH, side->shared_region, IBV_SEND_SIGNALED,
                         remote + DATA, key), "write");
    completed(side, 0, IBV_WC_RDMA_WRITE);
    must(rdma_post_read(side->id, NULL, bytes + 2048, DATA_LENGTH, side->shared_region, IBV_SEND_SIGNALED,
                        remote + DATA, key), "read");
    completed(side, 0, IBV_WC_RDMA_READ);
    if (memcmp(bytes + DATA, bytes + 2048, DATA_LENGTH) != 0) fail("not what was written");
    fetch_and_add(side, remote + COUNTER, key, 2);
    if (side->shared[0] != 40) fail("another number was there");

    send_message(side, rounds);
    if (receive_message(side) != rounds + 1) fail("another last message");
    must(rdma_disconnect(side->id), "disconnect");
    double microseconds = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
    printf("%" PRIu64 " rounds, %.2f us each\n", rounds, rounds > 0 ? microseconds / (double)rounds : 0.0);
    close_side(side);
}

int main(int argc, char **argv) {
    if (argc != 5 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
        fprintf(stderr, "usage: pingpong listen|connect ADDRESS PORT ROUNDS\n");
        return 2;
    }
    static struct side side;
    uint64_t rounds = strtoull(argv[4], NULL, 10);
    if (strcmp(argv[1], "listen") == 0)
        serve(&side, argv[2], argv[3], rounds);
    else
        connect_to(&side, argv[2], argv[3], rounds);
    return 0;
}
