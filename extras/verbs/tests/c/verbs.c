/* A server thread and a client on this host: queues, events and errors as
 * programs expect them. Each line that fails names itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define DEPTH 8
static char memory[2][1 << 16];

struct side {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_comp_channel *completions;
    struct ibv_mr *mr;
};

static struct rdma_cm_event *event(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != wanted)
        fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
    CHECK(event->event == wanted);
    return event;
}

static void prepare(struct side *side, char *bytes) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(side->pd = ibv_alloc_pd(side->id->verbs));
    CHECK(side->completions = ibv_create_comp_channel(side->id->verbs));
    CHECK(side->cq = ibv_create_cq(side->id->verbs, 4 * DEPTH, side, side->completions, 0));
    CHECK(side->mr = ibv_reg_mr(side->pd, bytes, sizeof memory[0], access));
    struct ibv_qp_init_attr attributes = {
        .send_cq = side->cq,
        .recv_cq = side->cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2},
        .qp_type = IBV_QPT_RC,
    };
    CHECK(rdma_create_qp(side->id, side->pd, &attributes) == 0);
    CHECK(side->id->qp->state == IBV_QPS_INIT);
    CHECK(attributes.cap.max_inline_data >= 4);
}

static int receive(struct side *side, uint64_t number) {
    struct ibv_sge place = {(uintptr_t)side->mr->addr + 4096 * number, 4096, side->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = number, .sg_list = &place, .num_sge = 1}, *bad = NULL;
    int code = ibv_post_recv(side->id->qp, &request, &bad);
    CHECK(code == 0 || bad == &request);
    return code;
}

static int post(struct side *side, enum ibv_wr_opcode opcode, uint64_t number, uint64_t remote, uint32_t key, uint32_t length) {
    struct ibv_sge place = {(uintptr_t)side->mr->addr + 32768, length, side->mr->lkey};
    struct ibv_send_wr request = {
        .wr_id = number, .sg_list = &place, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.rkey = key;
        request.wr.atomic.compare_add = 5;
    } else {
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = key;
    }
    struct ibv_send_wr *bad = NULL;
    int code = ibv_post_send(side->id->qp, &request, &bad);
    CHECK(code == 0 || bad == &request);
    return code;
}

/* Sleeps on the completion channel until there is a completion. */
static struct ibv_wc completion(struct side *side) {
    struct ibv_wc entry;
    for (;;) {
        int count = ibv_poll_cq(side->cq, 1, &entry);
        CHECK(count >= 0);
        if (count == 1)
            return entry;
        CHECK(ibv_req_notify_cq(side->cq, 0) == 0);
        count = ibv_poll_cq(side->cq, 1, &entry);
        if (count == 1)
            return entry;
        struct pollfd ready = {side->completions->fd, POLLIN, 0};
        CHECK(poll(&ready, 1, 10000) == 1);
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(side->completions, &cq, &context) == 0);
        CHECK(cq == side->cq && context == side);
        ibv_ack_cq_events(cq, 1);
    }
}

static void expect(struct side *side, uint64_t number, enum ibv_wc_status status, enum ibv_wc_opcode opcode) {
    struct ibv_wc entry = completion(side);
    if (entry.wr_id != number || entry.status != status)
        fprintf(stderr, "request %lu: %s\n", (unsigned long)entry.wr_id, ibv_wc_status_str(entry.status));
    CHECK(entry.wr_id == number && entry.status == status);
    CHECK(entry.opcode == opcode && entry.qp_num == side->id->qp->qp_num);
}

static void release(struct side *side) {
    CHECK(ibv_destroy_cq(side->cq) == EBUSY);
    CHECK(ibv_dealloc_pd(side->pd) == EBUSY);
    rdma_destroy_qp(side->id);
    CHECK(ibv_dereg_mr(side->mr) == 0);
    CHECK(ibv_destroy_comp_channel(side->completions) == EBUSY);
    CHECK(ibv_destroy_cq(side->cq) == 0);
    CHECK(ibv_destroy_comp_channel(side->completions) == 0);
    CHECK(ibv_dealloc_pd(side->pd) == 0);
    CHECK(rdma_destroy_id(side->id) == 0);
}

/* Address and key of the server's memory, in its private data. */
struct target {
    uint64_t address;
    uint32_t key;
};

static void *serve(void *argument) {
    struct rdma_cm_id *listener = argument;
    struct side side = {.channel = listener->channel};
    struct rdma_cm_event *request = event(side.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(request->listen_id == listener && request->id->verbs == listener->verbs);
    CHECK(request->param.conn.private_data_len == 5);
    CHECK(memcmp(request->param.conn.private_data, "hello", 5) == 0);
    side.id = request->id;
    prepare(&side, memory[0]);
    for (uint64_t number = 0; number < DEPTH; number++)
        CHECK(receive(&side, number) == 0);
    CHECK(receive(&side, DEPTH) == ENOMEM);
    struct target target = {(uintptr_t)side.mr->addr + 60000 / 8 * 8, side.mr->rkey};
    struct rdma_conn_param param = {.private_data = &target, .private_data_len = sizeof target, .responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_accept(side.id, &param) == 0);
    rdma_ack_cm_event(request);
    rdma_ack_cm_event(event(side.channel, RDMA_CM_EVENT_ESTABLISHED));
    expect(&side, 0, IBV_WC_SUCCESS, IBV_WC_RECV);
    CHECK(strcmp(memory[0], "sent") == 0);
    for (uint64_t number = 1; number < DEPTH; number++)
        expect(&side, number, IBV_WC_SUCCESS, IBV_WC_RECV);
    /* Three more messages wait for a receive, as for a receiver that is not ready on InfiniBand. */
    usleep(100000);
    memset(memory[0], 0, 32768);
    for (uint64_t number = 0; number < DEPTH; number++)
        CHECK(receive(&side, number) == 0);
    for (uint64_t number = 0; number < 3; number++)
        expect(&side, number, IBV_WC_SUCCESS, IBV_WC_RECV);
    CHECK(strcmp(memory[0] + 4096 * 2, "sent") == 0);
    CHECK(receive(&side, 0) == 0);
    rdma_ack_cm_event(event(side.channel, RDMA_CM_EVENT_DISCONNECTED));
    /* What was posted comes back flushed, and what is posted now too. */
    for (uint64_t number = 3; number < DEPTH; number++)
        expect(&side, number, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    expect(&side, 0, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    CHECK(receive(&side, 77) == 0);
    expect(&side, 77, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    CHECK(post(&side, IBV_WR_SEND, 78, 0, 0, 16) == 0);
    expect(&side, 78, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
    release(&side);
    return NULL;
}

static void *wait_for_ever(void *argument) {
    struct ibv_cq *cq;
    void *context;
    ibv_get_cq_event(argument, &cq, &context);
    return "an event";
}

/* A thread that waits can be cancelled, and its channel destroyed. */
static void cancel(struct ibv_context *context) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    pthread_t thread;
    void *result;
    CHECK(channel && pthread_create(&thread, NULL, wait_for_ever, channel) == 0);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void expect_refusal_after_fork(struct ibv_context *context) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(ibv_alloc_pd(context) == NULL && errno == EPERM ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The first address that is not loopback; loopback where there is no other. */
static struct sockaddr_in own_address(void) {
    struct sockaddr_in found = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct ifaddrs *all;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) &&
            !(one->ifa_flags & IFF_LOOPBACK)) {
            found.sin_addr = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
            break;
        }
    }
    freeifaddrs(all);
    return found;
}

/* The loopback address is the device's only on a host that has no other. */
static void bind_to_loopback(struct rdma_event_channel *channel, int is_only) {
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&loopback) == 0);
    CHECK((id->verbs != NULL) == is_only);
    CHECK(rdma_destroy_id(id) == 0);
}

int main(void) {
    struct sockaddr_in address = own_address();
    struct rdma_event_channel *channel = rdma_create_event_channel();
    bind_to_loopback(channel, address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct rdma_cm_id *listener, *second;
    CHECK(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
    CHECK(listener->verbs && listener->pd && listener->pd->context == listener->verbs);
    /* The port is reserved before anything listens. */
    address.sin_port = rdma_get_src_port(listener);
    CHECK(address.sin_port != 0);
    CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(second, (struct sockaddr *)&address) == -1 && errno == EADDRINUSE);
    CHECK(rdma_destroy_id(second) == 0);
    CHECK(rdma_listen(listener, 4) == 0);
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    struct rdma_cm_event *none;
    CHECK(rdma_get_cm_event(channel, &none) == -1 && errno == EAGAIN);
    CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);
    cancel(listener->verbs);
    expect_refusal_after_fork(listener->verbs);

    pthread_t server;
    CHECK(pthread_create(&server, NULL, serve, listener) == 0);
    struct side side = {.channel = rdma_create_event_channel()};
    CHECK(rdma_create_id(side.channel, &side.id, &side, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(side.id, NULL, (struct sockaddr *)&address, 1000) == 0);
    rdma_ack_cm_event(event(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(rdma_resolve_route(side.id, 1000) == 0);
    rdma_ack_cm_event(event(side.channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    prepare(&side, memory[1]);
    CHECK(post(&side, IBV_WR_SEND, 1, 0, 0, 16) == EINVAL); /* not connected yet */
    struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(side.id, &param) == 0);
    struct rdma_cm_event *established = event(side.channel, RDMA_CM_EVENT_ESTABLISHED);
    struct target target;
    CHECK(established->param.conn.private_data_len >= sizeof target);
    memcpy(&target, established->param.conn.private_data, sizeof target);
    rdma_ack_cm_event(established);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr options;
    CHECK(ibv_query_qp(side.id->qp, &attributes, IBV_QP_STATE, &options) == 0);
    CHECK(attributes.qp_state == IBV_QPS_RTS && options.cap.max_send_wr == DEPTH);

    char *local = memory[1] + 32768;
    uint64_t counter = 37;
    memcpy(local, &counter, sizeof counter);
    CHECK(post(&side, IBV_WR_RDMA_WRITE, 2, target.address, target.key, 8) == 0);
    expect(&side, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    CHECK(post(&side, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, target.address, target.key, 8) == 0);
    expect(&side, 3, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    memcpy(&counter, local, sizeof counter);
    CHECK(counter == 37);
    CHECK(post(&side, IBV_WR_RDMA_READ, 4, target.address, target.key, 8) == 0);
    expect(&side, 4, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    memcpy(&counter, local, sizeof counter);
    CHECK(counter == 42);
    CHECK(post(&side, IBV_WR_TSO, 5, 0, 0, 8) == EOPNOTSUPP);

    /* Reads wait for the peer: the queue is full until they complete. */
    int posted = 0, code = 0;
    while (posted < 1000 && (code = post(&side, IBV_WR_RDMA_READ, 100 + posted, target.address, target.key, 8)) == 0)
        posted++;
    CHECK(code == ENOMEM && posted >= DEPTH);
    for (int number = 0; number < posted; number++)
        expect(&side, 100 + number, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    strcpy(local, "sent");
    CHECK(post(&side, IBV_WR_SEND, 6, 0, 0, 16) == 0);
    expect(&side, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
    for (uint64_t number = 0; number < DEPTH - 1 + 3; number++) {
        CHECK(post(&side, IBV_WR_SEND, number, 0, 0, 16) == 0);
        expect(&side, number, IBV_WC_SUCCESS, IBV_WC_SEND);
    }
    CHECK(rdma_disconnect(side.id) == 0);
    rdma_ack_cm_event(event(side.channel, RDMA_CM_EVENT_DISCONNECTED));
    CHECK(pthread_join(server, NULL) == 0);
    release(&side);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(side.channel);
    puts("verbs");
    return 0;
}
