/* Many queue pairs that receive from one shared receive queue: a server thread and a client in one process. Messages of
 * one queue pair come in order and with their bytes; those of several queue pairs complete in any order. Each line that
 * fails names itself. */
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

#define PAIRS 8
#define WINDOW 4
#define MESSAGES 400
#define RECEIVES (PAIRS * WINDOW)
/* Longer than what the kernel hands over at once: a message of one queue pair is half there while others are whole. */
#define LONGEST 150000

struct header {
    uint32_t pair, number, length;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static int sleeps;
static char received[RECEIVES][LONGEST], sent[PAIRS][WINDOW][LONGEST];
static struct header replies[RECEIVES], confirmed[PAIRS][WINDOW];

static uint32_t length_of(uint32_t pair, uint32_t number) {
    return (pair + number) % 5 == 0 ? LONGEST - number : sizeof(struct header) + (pair * 131 + number * 17) % 900;
}

static char byte_at(const struct header *header, uint32_t at) {
    return (char)(header->pair * 31 + header->number * 7 + at);
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *memory, size_t length) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    return mr;
}

/* A completion queue with its channel. */
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

/* Takes completions; with `sleeps` it waits for the event of the channel first. */
static int take(struct queue *queue, struct ibv_wc *done, int room) {
    int count = ibv_poll_cq(queue->cq, room, done);
    if (count == 0 && sleeps) {
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(queue->channel, &cq, &context) == 0 && cq == queue->cq);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
        count = ibv_poll_cq(queue->cq, room, done);
    }
    CHECK(count >= 0);
    for (int place = 0; place < count; place++)
        CHECK(done[place].status == IBV_WC_SUCCESS);
    return count;
}

static void send_from(struct ibv_qp *pair, uint64_t id, void *from, uint32_t length, uint32_t key) {
    struct ibv_sge place = {(uintptr_t)from, length, key};
    struct ibv_send_wr *bad, request = {
        .wr_id = id, .sg_list = &place, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    CHECK(ibv_post_send(pair, &request, &bad) == 0);
}

static void receive_shared(struct ibv_srq *srq, uint64_t buffer, uint32_t key) {
    struct ibv_sge place = {(uintptr_t)received[buffer], LONGEST, key};
    struct ibv_recv_wr *bad, request = {.wr_id = buffer, .sg_list = &place, .num_sge = 1};
    CHECK(ibv_post_srq_recv(srq, &request, &bad) == 0);
}

struct server {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
};

/* Waits for the next event of the connection manager: its type, and its connection. */
static enum rdma_cm_event_type next_event(struct rdma_event_channel *events, struct rdma_cm_id **id) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(events, &event) == 0);
    enum rdma_cm_event_type type = event->event;
    *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return type;
}

static void check_message(struct header *next, struct ibv_qp **pairs, const struct ibv_wc *done) {
    const char *message = received[done->wr_id];
    struct header header;
    memcpy(&header, message, sizeof header);
    CHECK(header.pair < PAIRS && pairs[header.pair]->qp_num == done->qp_num);
    CHECK(header.number == next[header.pair].number++);
    CHECK(header.length == length_of(header.pair, header.number) && done->byte_len == header.length);
    for (uint32_t at = sizeof header; at < header.length; at++)
        CHECK(message[at] == byte_at(&header, at));
}

/* Accepts all, then receives: every message gives its buffer back before it is confirmed, so that the client never
 * sends more than there are receives. */
static void *serve(void *argument) {
    struct server *server = argument;
    struct ibv_context *context = server->listener->verbs;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_mr *memory = registered(pd, received, sizeof received), *reply = registered(pd, replies, sizeof replies);
    struct queue queue = queue_of(context);
    struct ibv_srq_init_attr attributes = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &attributes);
    CHECK(srq);
    for (uint64_t buffer = 0; buffer < RECEIVES; buffer++)
        receive_shared(srq, buffer, memory->lkey);
    struct ibv_qp *pairs[PAIRS];
    struct rdma_cm_id *id;
    /* A request may come before the connection before it is established here. */
    for (int requests = 0, established = 0; requests < PAIRS || established < PAIRS;) {
        enum rdma_cm_event_type type = next_event(server->events, &id);
        CHECK(type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED);
        if (type == RDMA_CM_EVENT_ESTABLISHED) {
            established++;
            continue;
        }
        struct ibv_qp_init_attr init = {
            .send_cq = queue.cq, .recv_cq = queue.cq, .srq = srq, .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 2 * WINDOW, .max_send_sge = 1}};
        CHECK(rdma_create_qp(id, pd, &init) == 0);
        pairs[requests++] = id->qp;
        struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
        CHECK(rdma_accept(id, &param) == 0);
    }
    struct header next[PAIRS] = {{0}};
    for (int left = 2 * PAIRS * MESSAGES; left > 0;) {
        struct ibv_wc done[16];
        int count = take(&queue, done, 16);
        left -= count;
        for (int place = 0; place < count; place++) {
            if (done[place].opcode != IBV_WC_RECV)
                continue;
            uint64_t buffer = done[place].wr_id;
            check_message(next, pairs, &done[place]);
            struct header header;
            memcpy(&header, received[buffer], sizeof header);
            struct header *answer = &replies[header.pair * WINDOW + header.number % WINDOW];
            *answer = header;
            receive_shared(srq, buffer, memory->lkey);
            send_from(pairs[header.pair], 0, answer, sizeof *answer, reply->lkey);
        }
    }
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK(next_event(server->events, &id) == RDMA_CM_EVENT_DISCONNECTED);
        rdma_disconnect(id);
        rdma_destroy_qp(id);
        CHECK(rdma_destroy_id(id) == 0);
    }
    CHECK(ibv_destroy_srq(srq) == 0);
    release(&queue);
    CHECK(ibv_dereg_mr(memory) == 0 && ibv_dereg_mr(reply) == 0 && ibv_dealloc_pd(pd) == 0);
    return NULL;
}

static void send_message(struct ibv_qp *qp, uint32_t pair, uint32_t number, uint32_t key) {
    char *message = sent[pair][number % WINDOW];
    struct header header = {pair, number, length_of(pair, number)};
    memcpy(message, &header, sizeof header);
    for (uint32_t at = sizeof header; at < header.length; at++)
        message[at] = byte_at(&header, at);
    send_from(qp, PAIRS * WINDOW, message, header.length, key);
}

static void receive_own(struct ibv_qp *qp, uint32_t pair, uint32_t number, uint32_t key) {
    struct header *into = &confirmed[pair][number % WINDOW];
    struct ibv_sge place = {(uintptr_t)into, sizeof *into, key};
    struct ibv_recv_wr *bad, request = {.wr_id = pair, .sg_list = &place, .num_sge = 1};
    CHECK(ibv_post_recv(qp, &request, &bad) == 0);
}

static void send_all(void) {
    struct rdma_cm_id *ids[PAIRS];
    struct ibv_pd *pd = NULL;
    struct queue queue;
    struct ibv_mr *messages = NULL, *confirmations = NULL;
    uint32_t next[PAIRS] = {0}, heard[PAIRS] = {0};
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK(rdma_create_id(NULL, &ids[pair], NULL, RDMA_PS_TCP) == 0);
        CHECK(rdma_resolve_addr(ids[pair], NULL, (struct sockaddr *)&address, 2000) == 0);
        CHECK(rdma_resolve_route(ids[pair], 2000) == 0);
        if (!pd) {
            CHECK(pd = ibv_alloc_pd(ids[0]->verbs));
            queue = queue_of(ids[0]->verbs);
            messages = registered(pd, sent, sizeof sent);
            confirmations = registered(pd, confirmed, sizeof confirmed);
        }
        struct ibv_qp_init_attr init = {
            .send_cq = queue.cq, .recv_cq = queue.cq, .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 2 * WINDOW, .max_recv_wr = WINDOW, .max_send_sge = 1, .max_recv_sge = 1}};
        CHECK(rdma_create_qp(ids[pair], pd, &init) == 0);
        for (uint32_t number = 0; number < WINDOW; number++)
            receive_own(ids[pair]->qp, pair, number, confirmations->lkey);
        struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
        CHECK(rdma_connect(ids[pair], &param) == 0);
    }
    for (int pair = 0; pair < PAIRS; pair++)
        while (next[pair] < WINDOW)
            send_message(ids[pair]->qp, pair, next[pair]++, messages->lkey);
    for (int left = 2 * PAIRS * MESSAGES; left > 0;) {
        struct ibv_wc done[16];
        int count = take(&queue, done, 16);
        left -= count;
        for (int place = 0; place < count; place++) {
            if (done[place].opcode != IBV_WC_RECV)
                continue;
            uint32_t pair = done[place].wr_id, number = heard[pair]++;
            const struct header *header = &confirmed[pair][number % WINDOW];
            CHECK(header->pair == pair && header->number == number);
            receive_own(ids[pair]->qp, pair, number, confirmations->lkey);
            if (next[pair] < MESSAGES)
                send_message(ids[pair]->qp, pair, next[pair]++, messages->lkey);
        }
    }
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK(rdma_disconnect(ids[pair]) == 0);
        rdma_destroy_qp(ids[pair]);
        CHECK(rdma_destroy_id(ids[pair]) == 0);
    }
    release(&queue);
    CHECK(ibv_dereg_mr(messages) == 0 && ibv_dereg_mr(confirmations) == 0 && ibv_dealloc_pd(pd) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && inet_aton(arguments[1], &address.sin_addr));
    sleeps = strcmp(arguments[2], "sleep") == 0;
    struct server server = {.events = rdma_create_event_channel()};
    CHECK(server.events && rdma_create_id(server.events, &server.listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(server.listener, (struct sockaddr *)&address) == 0);
    address.sin_port = rdma_get_src_port(server.listener);
    CHECK(rdma_listen(server.listener, PAIRS) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &server) == 0);
    send_all();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rdma_destroy_id(server.listener) == 0);
    rdma_destroy_event_channel(server.events);
    puts("shared");
    return 0;
}
