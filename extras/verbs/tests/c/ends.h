/* Two ends of a connection in one process, for tests that look at both. */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

/* What is tried now, for the line that fails. */
static _Thread_local const char *now = "";

/* Ends the program at once: other threads may be in the middle of something. */
#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s: line %d: %s: %s\n", now, __LINE__, #what, strerror(errno));   \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define REQUESTS_MAX 32

struct end {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
};

/* A listener, whose connections have both ends here. */
struct meeting {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct sockaddr_in address;
    struct ibv_pd *pd;
    struct end peer, owner;
};

static void make_queues(struct meeting *at, struct end *end) {
    CHECK(end->cq = ibv_create_cq(end->id->verbs, 2 * REQUESTS_MAX, NULL, NULL, 0));
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = REQUESTS_MAX, .max_recv_wr = REQUESTS_MAX, .max_send_sge = 2, .max_recv_sge = 2}};
    CHECK(rdma_create_qp(end->id, at->pd, &init) == 0);
}

static void connect_ends(struct meeting *at) {
    struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};
    CHECK(rdma_create_id(at->events, &at->peer.id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(at->peer.id, NULL, (struct sockaddr *)&at->address, 2000) == 0);
    for (int established = 0; established < 2;) {
        struct rdma_cm_event *event;
        CHECK(rdma_get_cm_event(at->events, &event) == 0);
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        CHECK(rdma_ack_cm_event(event) == 0);
        switch (type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            CHECK(rdma_resolve_route(id, 2000) == 0);
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            make_queues(at, &at->peer);
            CHECK(rdma_connect(id, &param) == 0);
            break;
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            at->owner.id = id;
            make_queues(at, &at->owner);
            CHECK(rdma_accept(id, &param) == 0);
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            established++;
            break;
        default:
            CHECK(!"an event of the setup");
        }
    }
}

static void release(struct end *end) {
    rdma_destroy_qp(end->id);
    CHECK(ibv_destroy_cq(end->cq) == 0 && rdma_destroy_id(end->id) == 0);
}

/* Ends both; what the connection manager says of it is taken. */
static void disconnect_ends(struct meeting *at) {
    rdma_disconnect(at->peer.id);
    rdma_disconnect(at->owner.id);
    for (int left = 2; left > 0;) {
        struct rdma_cm_event *event;
        CHECK(rdma_get_cm_event(at->events, &event) == 0);
        left -= event->event == RDMA_CM_EVENT_DISCONNECTED;
        CHECK(rdma_ack_cm_event(event) == 0);
    }
    release(&at->peer);
    release(&at->owner);
}

static void open_meeting(struct meeting *at, const char *address) {
    at->address.sin_family = AF_INET;
    CHECK(inet_aton(address, &at->address.sin_addr));
    CHECK(at->events = rdma_create_event_channel());
    CHECK(rdma_create_id(at->events, &at->listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(at->listener, (struct sockaddr *)&at->address) == 0 && rdma_listen(at->listener, 8) == 0);
    at->address.sin_port = rdma_get_src_port(at->listener);
    CHECK(at->pd = ibv_alloc_pd(at->listener->verbs));
}

static struct ibv_wc take(struct end *end) {
    struct ibv_wc done;
    int count;
    while ((count = ibv_poll_cq(end->cq, 1, &done)) == 0)
        sched_yield();
    CHECK(count == 1);
    return done;
}
