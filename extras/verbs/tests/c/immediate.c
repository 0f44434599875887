/* Sends and Writes with immediate data between two ends in one process, among requests without: each takes one receive
 * and has one completion at either end, in order and with its bytes. `refused`: to or from a peer that does not offer
 * it. Each line that fails names itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define REQUESTS 100
/* Two more announce that they are there, two are left to be flushed. */
#define RECEIVES (REQUESTS + 4)
#define DEPTH 16
#define LONGEST 150000
#define INLINE 200
#define IMMEDIATE(number) htonl(0xa5000000 + (number))

enum { SEND_IMMEDIATE, WRITE_IMMEDIATE, SEND, WRITE, READ, KINDS };

static const enum ibv_wr_opcode REQUEST[] = {
    IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
static const enum ibv_wc_opcode COMPLETED[] = {
    IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ};
static const uint32_t LENGTH[] = {0, 1, INLINE, 20000, LONGEST, 77};

static struct sockaddr_in address = {.sin_family = AF_INET};
static int sleeps, shares, late;
static char sent[REQUESTS][LONGEST], written[REQUESTS][LONGEST], received[RECEIVES][LONGEST], target[LONGEST];
static struct ibv_mr *target_memory;
/* All requests were posted; the receiver waits for a solicited event. */
static pthread_barrier_t posted, armed;

static uint32_t length_of(int number) {
    return LENGTH[number / KINDS % (sizeof LENGTH / sizeof *LENGTH)];
}

static void check_bytes(int number, const char *bytes) {
    for (uint32_t at = 0; at < length_of(number); at++)
        CHECK(bytes[at] == (char)(number * 31 + at));
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *memory, size_t length, int access) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE | access);
    CHECK(mr);
    return mr;
}

struct queue {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
};

static struct queue queue_of(struct ibv_context *context) {
    struct queue queue;
    CHECK(queue.channel = ibv_create_comp_channel(context));
    CHECK(queue.cq = ibv_create_cq(context, 4 * RECEIVES, NULL, queue.channel, 0));
    CHECK(ibv_req_notify_cq(queue.cq, 0) == 0);
    return queue;
}

static void release(struct queue *queue) {
    CHECK(ibv_destroy_cq(queue->cq) == 0 && ibv_destroy_comp_channel(queue->channel) == 0);
}

static void await_event(struct queue *queue) {
    struct ibv_cq *cq;
    void *context;
    CHECK(ibv_get_cq_event(queue->channel, &cq, &context) == 0 && cq == queue->cq);
    ibv_ack_cq_events(cq, 1);
}

/* Takes the next completion. */
static struct ibv_wc take(struct queue *queue) {
    struct ibv_wc done;
    int count;
    while ((count = ibv_poll_cq(queue->cq, 1, &done)) == 0)
        if (sleeps) {
            await_event(queue);
            CHECK(ibv_req_notify_cq(queue->cq, 0) == 0);
        }
    CHECK(count == 1);
    return done;
}

static enum rdma_cm_event_type next_event(struct rdma_event_channel *events, struct rdma_cm_id **id) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(events, &event) == 0);
    enum rdma_cm_event_type type = event->event;
    *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return type;
}

static void check_received(const struct ibv_wc *done, int number, int place) {
    int kind = number % KINDS;
    CHECK(done->status == IBV_WC_SUCCESS && done->wr_id == (uint64_t)place);
    CHECK(done->opcode == (kind == WRITE_IMMEDIATE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
    CHECK(done->byte_len == length_of(number));
    CHECK(!!(done->wc_flags & IBV_WC_WITH_IMM) == (kind != SEND));
    CHECK(kind == SEND || done->imm_data == IMMEDIATE(number));
    check_bytes(number, kind == WRITE_IMMEDIATE ? written[number] : received[place]);
    /* What was written before. */
    if (kind == SEND_IMMEDIATE && number > 0)
        check_bytes(number - KINDS + WRITE, written[number - KINDS + WRITE]);
}

static void *serve(void *argument) {
    struct rdma_event_channel *events = argument;
    struct rdma_cm_id *id;
    CHECK(next_event(events, &id) == RDMA_CM_EVENT_CONNECT_REQUEST);
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    CHECK(pd);
    struct ibv_mr *memory = registered(pd, received, sizeof received, 0);
    target_memory = registered(pd, written, sizeof written, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct queue queue = queue_of(id->verbs);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    struct ibv_srq *srq = shares ? ibv_create_srq(pd, &shared) : NULL;
    CHECK(!shares || srq);
    struct ibv_qp_init_attr init = {
        .send_cq = queue.cq, .recv_cq = queue.cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, pd, &init) == 0);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    if (late) {
        CHECK(rdma_accept(id, &param) == 0);
        pthread_barrier_wait(&posted);
    }
    for (int place = 0; place < RECEIVES; place++) {
        struct ibv_sge into = {(uintptr_t)received[place], LONGEST, memory->lkey};
        struct ibv_recv_wr *bad, request = {.wr_id = place, .sg_list = &into, .num_sge = 1};
        CHECK((srq ? ibv_post_srq_recv(srq, &request, &bad) : ibv_post_recv(id->qp, &request, &bad)) == 0);
    }
    if (!late)
        CHECK(rdma_accept(id, &param) == 0);
    int place = 0;
    for (int number = 0; number < REQUESTS; number++) {
        if (number % KINDS == WRITE || number % KINDS == READ)
            continue;
        struct ibv_wc done = take(&queue);
        check_received(&done, number, place++);
    }
    /* An event comes for the second, whose sender asks for it. */
    struct ibv_wc two[2];
    CHECK(ibv_req_notify_cq(queue.cq, 1) == 0);
    pthread_barrier_wait(&armed);
    for (int taken = 0; taken < 2;) {
        await_event(&queue);
        CHECK(ibv_req_notify_cq(queue.cq, 1) == 0);
        int count = ibv_poll_cq(queue.cq, 2 - taken, two + taken);
        CHECK(count >= 0);
        taken += count;
    }
    for (int which = 0; which < 2; which++, place++) {
        CHECK(two[which].status == IBV_WC_SUCCESS && two[which].wr_id == (uint64_t)place);
        CHECK(two[which].opcode == (which ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
        CHECK(two[which].imm_data == IMMEDIATE(REQUESTS + which) && two[which].byte_len == 0);
    }
    while (next_event(events, &id) != RDMA_CM_EVENT_DISCONNECTED)
        ;
    sleeps = 0;
    for (; !shares && place < RECEIVES; place++) {
        struct ibv_wc done = take(&queue);
        CHECK(done.status == IBV_WC_WR_FLUSH_ERR && done.wr_id == (uint64_t)place);
    }
    rdma_disconnect(id);
    rdma_destroy_qp(id);
    CHECK(!srq || ibv_destroy_srq(srq) == 0);
    CHECK(rdma_destroy_id(id) == 0);
    release(&queue);
    CHECK(ibv_dereg_mr(memory) == 0 && ibv_dereg_mr(target_memory) == 0 && ibv_dealloc_pd(pd) == 0);
    return NULL;
}

struct side {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct queue queue;
    struct ibv_mr *memory, *sink;
};

static struct side connected(void) {
    struct side side;
    CHECK(rdma_create_id(NULL, &side.id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(side.id, NULL, (struct sockaddr *)&address, 2000) == 0);
    CHECK(rdma_resolve_route(side.id, 2000) == 0);
    CHECK(side.pd = ibv_alloc_pd(side.id->verbs));
    side.queue = queue_of(side.id->verbs);
    side.memory = registered(side.pd, sent, sizeof sent, 0);
    side.sink = registered(side.pd, target, sizeof target, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = side.queue.cq, .recv_cq = side.queue.cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1,
                .max_inline_data = INLINE}};
    CHECK(rdma_create_qp(side.id, side.pd, &init) == 0);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(side.id, &param) == 0);
    return side;
}

static void close_side(struct side *side) {
    rdma_disconnect(side->id);
    rdma_destroy_qp(side->id);
    CHECK(rdma_destroy_id(side->id) == 0);
    release(&side->queue);
    CHECK(ibv_dereg_mr(side->memory) == 0 && ibv_dereg_mr(side->sink) == 0 && ibv_dealloc_pd(side->pd) == 0);
}

static int is_signaled(int number) {
    return number % 3 != 0 || number == REQUESTS - 1;
}

/* Takes the completion of the next request that has one. */
static int confirm(struct side *side, int next) {
    while (!is_signaled(next))
        next++;
    struct ibv_wc done = take(&side->queue);
    CHECK(done.status == IBV_WC_SUCCESS && done.wr_id == (uint64_t)next);
    CHECK(done.opcode == COMPLETED[next % KINDS]);
    return next + 1;
}

static int post(struct side *side, int number) {
    int kind = number % KINDS;
    uint32_t length = length_of(number), half = length / 2;
    for (uint32_t at = 0; at < length; at++)
        sent[number][at] = (char)(number * 31 + at);
    uintptr_t from = kind == READ ? (uintptr_t)target : (uintptr_t)sent[number];
    uint32_t key = kind == READ ? side->sink->lkey : side->memory->lkey;
    struct ibv_sge parts[2] = {{from, half, key}, {from + half, length - half, key}};
    if (kind == READ)
        parts[0].length = length;
    int flags = is_signaled(number) ? IBV_SEND_SIGNALED : 0;
    int is_inline = kind != READ && length <= INLINE && number % 2;
    flags |= is_inline ? IBV_SEND_INLINE : 0;
    flags |= kind == SEND_IMMEDIATE && number % 2 ? IBV_SEND_FENCE : 0;
    flags |= kind <= WRITE_IMMEDIATE && number % 4 ? IBV_SEND_SOLICITED : 0;
    struct ibv_send_wr *bad, request = {
        .wr_id = number, .sg_list = parts, .num_sge = kind == READ ? 1 : 2, .opcode = REQUEST[kind],
        .send_flags = flags, .imm_data = IMMEDIATE(number),
        .wr.rdma = {(uintptr_t)written[kind == READ ? 0 : number], target_memory->rkey}};
    int code = ibv_post_send(side->id->qp, &request, &bad);
    if (code == 0 && is_inline)
        memset(sent[number], 0x55, length);
    return code;
}

static int post_empty(struct side *side, uint64_t id, enum ibv_wr_opcode opcode, int flags, struct ibv_sge *part) {
    struct ibv_send_wr *bad, request = {
        .wr_id = id, .sg_list = part, .num_sge = part ? 1 : 0, .opcode = opcode, .send_flags = flags,
        .imm_data = IMMEDIATE(id), .wr.rdma = {(uintptr_t)written, target_memory ? target_memory->rkey : 0}};
    return ibv_post_send(side->id->qp, &request, &bad);
}

static void send_all(void) {
    struct side side = connected();
    int next = 0;
    for (int number = 0; number < REQUESTS; number++) {
        int code;
        /* Nobody posts receives before this many are out. */
        if (late && number == DEPTH)
            pthread_barrier_wait(&posted);
        while ((code = post(&side, number)) == ENOMEM)
            next = confirm(&side, next);
        CHECK(code == 0);
    }
    while (next < REQUESTS)
        next = confirm(&side, next);
    pthread_barrier_wait(&armed);
    CHECK(post_empty(&side, REQUESTS, IBV_WR_SEND_WITH_IMM, 0, NULL) == 0);
    CHECK(post_empty(&side, REQUESTS + 1, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SOLICITED, NULL) == 0);
    /* The error of a request, with its identifier; what follows is flushed. */
    struct ibv_sge wrong = {(uintptr_t)sent, 8, side.memory->lkey + 1};
    CHECK(post_empty(&side, 1000, late ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM, 0, &wrong) == 0);
    CHECK(post_empty(&side, 1001, IBV_WR_SEND_WITH_IMM, 0, NULL) == 0);
    CHECK(post_empty(&side, 1002, IBV_WR_RDMA_WRITE_WITH_IMM, 0, NULL) == 0);
    struct ibv_wc done = take(&side.queue);
    CHECK(done.status == IBV_WC_LOC_PROT_ERR && done.wr_id == 1000);
    for (uint64_t id = 1001; id <= 1002; id++) {
        done = take(&side.queue);
        CHECK(done.status == IBV_WC_WR_FLUSH_ERR && done.wr_id == id);
    }
    close_side(&side);
}

/* Each request is refused with its place in the list; what came before it is posted. */
static void refuse(struct side *side) {
    const enum ibv_wr_opcode with_data[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (int which = 0; which < 2; which++) {
        struct ibv_send_wr *bad = NULL, last = {.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE},
            refused = {.wr_id = 2, .opcode = with_data[which], .next = &last},
            first = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .next = &refused};
        CHECK(ibv_post_send(side->id->qp, &first, &bad) == EINVAL && bad == &refused);
        struct ibv_wc done = take(&side->queue);
        CHECK(done.status == IBV_WC_SUCCESS && done.wr_id == 1);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 4 && inet_aton(arguments[1], &address.sin_addr));
    if (strcmp(arguments[2], "refused") == 0) {
        address.sin_port = htons(atoi(arguments[3]));
        struct side side = connected();
        refuse(&side);
        close_side(&side);
        puts("immediate");
        return 0;
    }
    sleeps = strcmp(arguments[2], "sleep") == 0;
    shares = strcmp(arguments[3], "shared") == 0;
    late = strcmp(arguments[3], "late") == 0;
    pthread_barrier_init(&posted, NULL, 2);
    pthread_barrier_init(&armed, NULL, 2);
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *listener;
    CHECK(events && rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
    address.sin_port = rdma_get_src_port(listener);
    CHECK(rdma_listen(listener, 1) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, events) == 0);
    send_all();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(events);
    puts("immediate");
    return 0;
}
