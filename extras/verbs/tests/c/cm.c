/* The connection manager as the kernel's answers, one case per run: `cm ADDRESS CASE`, both ends in this process. Each line
 * that fails names itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        errno = 0;                                                                   \
        if (!(what)) {                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)
#define REFUSED(call, code) CHECK((call) == -1 && errno == (code))

enum { BOUND_MS = 20000, PORT = 7333, FIXED = 7444 };

static struct sockaddr_storage own;
static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct rdma_cm_id *listener, *client, *server;
static struct rdma_conn_param param = {.initiator_depth = 1, .responder_resources = 1};
static struct rdma_conn_param seen;
static char bytes[4096];

static struct sockaddr *at(int port) {
    static struct sockaddr_storage address;
    address = own;
    if (own.ss_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(port);
    return (struct sockaddr *)&address;
}

/* Waits for an event as most programs do: by poll(2), outside of the library. */
static struct rdma_cm_id *event(enum rdma_cm_event_type wanted) {
    struct pollfd ready = {channel->fd, POLLIN, 0};
    struct rdma_cm_event *event;
    CHECK(poll(&ready, 1, BOUND_MS) == 1 && rdma_get_cm_event(channel, &event) == 0);
    if (event->event != wanted)
        fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
    CHECK(event->event == wanted);
    seen = event->param.conn;
    struct rdma_cm_id *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

static struct rdma_cm_id *create(void) {
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    return id;
}

static void queue_pair(struct rdma_cm_id *id) {
    if (!pd) {
        CHECK(pd = ibv_alloc_pd(id->verbs));
        CHECK(cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0));
    }
    struct ibv_qp_init_attr options = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {4, 4, 2, 1, 16}};
    CHECK(rdma_create_qp(id, pd, &options) == 0);
}

static void listen_on(int port, int backlog) {
    listener = create();
    CHECK(rdma_bind_addr(listener, at(port)) == 0 && rdma_listen(listener, backlog) == 0);
}

static struct rdma_cm_id *routed(int to, int from) {
    struct rdma_cm_id *id = create();
    if (from)
        CHECK(rdma_bind_addr(id, at(from)) == 0);
    CHECK(rdma_resolve_addr(id, NULL, at(to), 1000) == 0);
    event(RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    queue_pair(id);
    return id;
}

static void join(int from) {
    client = routed(PORT, from);
    CHECK(rdma_connect(client, &param) == 0);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(server);
    CHECK(rdma_accept(server, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    event(RDMA_CM_EVENT_ESTABLISHED);
}

static void leave(void) {
    CHECK(rdma_disconnect(client) == 0);
    event(RDMA_CM_EVENT_DISCONNECTED);
    event(RDMA_CM_EVENT_DISCONNECTED);
    struct rdma_cm_id *both[] = {client, server};
    for (int of = 0; of < 2; of++) {
        CHECK(rdma_disconnect(both[of]) == 0);
        rdma_destroy_qp(both[of]);
        CHECK(rdma_destroy_id(both[of]) == 0);
    }
}

static int post(enum ibv_wr_opcode opcode, int segments, uint32_t length, int flags, struct ibv_mr *mr) {
    struct ibv_sge places[4];
    for (int of = 0; of < 4; of++)
        places[of] = (struct ibv_sge){(uintptr_t)bytes, length, mr->lkey};
    struct ibv_send_wr *bad, request = {.sg_list = places, .num_sge = segments, .opcode = opcode, .send_flags = flags};
    request.wr.rdma.remote_addr = (uintptr_t)bytes;
    request.wr.rdma.rkey = mr->rkey;
    return ibv_post_send(client->qp, &request, &bad);
}

static struct ibv_mr *memory(void) {
    struct ibv_mr *mr;
    CHECK(mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    return mr;
}

/* Each call in each state in which the kernel refuses it (`enum rdma_cm_state`). */
static void states(void) {
    struct rdma_cm_id *id = create();
    struct ibv_qp_init_attr none = {.qp_type = IBV_QPT_RC};
    listen_on(PORT, 4);
    REFUSED(rdma_resolve_route(id, 1000), EINVAL);
    REFUSED(rdma_connect(id, &param), EINVAL);
    REFUSED(rdma_accept(id, &param), EINVAL);
    REFUSED(rdma_reject(id, NULL, 0), EINVAL);
    REFUSED(rdma_disconnect(id), EINVAL);
    REFUSED(rdma_establish(id), EINVAL);
    CHECK(rdma_bind_addr(id, at(0)) == 0);
    REFUSED(rdma_bind_addr(id, at(0)), EINVAL);
    REFUSED(rdma_resolve_route(id, 1000), EINVAL);
    struct sockaddr_in6 six = {.sin6_family = own.ss_family == AF_INET ? AF_INET6 : AF_INET, .sin6_port = htons(PORT)};
    REFUSED(rdma_resolve_addr(id, NULL, (void *)&six, 1000), EINVAL);
    CHECK(rdma_resolve_addr(id, NULL, at(PORT), 1000) == 0);
    event(RDMA_CM_EVENT_ADDR_RESOLVED);
    REFUSED(rdma_resolve_addr(id, NULL, at(PORT), 1000), EINVAL);
    REFUSED(rdma_listen(id, 1), EINVAL);
    queue_pair(id);
    none.send_cq = none.recv_cq = cq;
    REFUSED(rdma_create_qp(id, pd, &none), EINVAL);
    REFUSED(rdma_connect(id, &param), EINVAL);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    REFUSED(rdma_resolve_route(id, 1000), EINVAL);
    REFUSED(rdma_disconnect(id), EINVAL);
    struct rdma_conn_param many = {.initiator_depth = 129, .responder_resources = 1};
    REFUSED(rdma_connect(id, &many), EINVAL);
    CHECK(rdma_connect(id, &param) == 0);
    REFUSED(rdma_connect(id, &param), EINVAL);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    REFUSED(rdma_connect(server, &param), EINVAL);
    REFUSED(rdma_accept(server, &param), EINVAL); /* No queue pair. */
    queue_pair(server);
    CHECK(rdma_accept(server, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    event(RDMA_CM_EVENT_ESTABLISHED);
    REFUSED(rdma_accept(server, &param), EINVAL);
    REFUSED(rdma_reject(server, NULL, 0), EINVAL);
    REFUSED(rdma_establish(server), EINVAL);
    REFUSED(rdma_disconnect(listener), EINVAL);
    REFUSED(rdma_listen(listener, 1), EINVAL);
    REFUSED(rdma_connect(listener, &param), EINVAL);
    struct rdma_cm_id *waits, *unbound = create();
    REFUSED(rdma_create_qp(unbound, pd, &none), EINVAL);
    CHECK(rdma_create_id(NULL, &waits, NULL, RDMA_PS_TCP) == 0);
    REFUSED(rdma_migrate_id(waits, NULL), EINVAL);
    CHECK(rdma_destroy_id(waits) == 0 && rdma_destroy_id(unbound) == 0);
    client = id;
    leave();
}

/* An end of this process with that port. */
static int socket_of(int port, int is_local) {
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage name = {0};
        socklen_t length = sizeof name;
        int code = is_local ? getsockname(fd, (void *)&name, &length) : getpeername(fd, (void *)&name, &length);
        struct tcp_info info;
        socklen_t size = sizeof info;
        if (code || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) || info.tcpi_state != TCP_ESTABLISHED)
            continue;
        /* The port has the same place in both families. */
        if (((struct sockaddr_in *)&name)->sin_port == htons(port))
            return fd;
    }
    return -1;
}

static int number(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
}

static void options(void) {
    struct rdma_cm_id *id = create();
    uint8_t small = 14;
    int on = 1, off = 0;
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof on), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &on, sizeof on), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &small, 1), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &small, 1), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, 99, &on, sizeof on), ENOSYS);
    REFUSED(rdma_set_option(id, 99, 0, &on, sizeof on), ENOSYS);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on) == 0);
    CHECK(rdma_bind_addr(id, at(0)) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &off, sizeof off) == 0);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof off), EINVAL);
    CHECK(rdma_listen(id, 1) == 0);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on), EINVAL);
    CHECK(rdma_destroy_id(id) == 0);

    /* Both ends have the type of service, the listener's and the initiator's, and what becomes of the time. */
    uint8_t tos = 0x68, longer = 20;
    listener = create();
    CHECK(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0);
    CHECK(rdma_bind_addr(listener, at(PORT)) == 0 && rdma_listen(listener, 1) == 0);
    client = routed(PORT, FIXED);
    CHECK(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0);
    CHECK(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &longer, 1) == 0);
    CHECK(rdma_connect(client, &param) == 0);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(server);
    CHECK(rdma_set_option(server, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &small, 1) == 0);
    CHECK(rdma_accept(server, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    event(RDMA_CM_EVENT_ESTABLISHED);
    int ends[] = {socket_of(FIXED, 1), socket_of(FIXED, 0)};
    for (int of = 0; of < 2; of++) {
        CHECK(ends[of] >= 0);
        if (own.ss_family == AF_INET)
            CHECK(number(ends[of], IPPROTO_IP, IP_TOS) == tos);
        else
            CHECK(number(ends[of], IPPROTO_IPV6, IPV6_TCLASS) == tos);
    }
    /* Eight transmissions of 4.096 us doubled 20 times; no less than ten seconds. */
    CHECK(number(ends[0], IPPROTO_TCP, TCP_USER_TIMEOUT) == 34359);
    CHECK(number(ends[1], IPPROTO_TCP, TCP_USER_TIMEOUT) == 10000);
    leave();
    CHECK(rdma_destroy_id(listener) == 0);
}

/* A client with a port of its own comes back to the same server at once; two share a port if both ask for it. */
static void port(void) {
    int on = 1;
    listen_on(PORT, 4);
    for (int round = 0; round < 3; round++) {
        join(FIXED);
        CHECK(ntohs(rdma_get_src_port(client)) == FIXED && ntohs(rdma_get_dst_port(server)) == FIXED);
        leave();
    }
    struct rdma_cm_id *one = create(), *other = create();
    CHECK(rdma_bind_addr(one, at(FIXED)) == 0);
    REFUSED(rdma_bind_addr(other, at(FIXED)), EADDRINUSE);
    CHECK(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    REFUSED(rdma_bind_addr(other, at(FIXED)), EADDRINUSE);
    CHECK(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    CHECK(rdma_bind_addr(other, at(FIXED)) == 0);
    CHECK(rdma_listen(one, 1) == 0);
    REFUSED(rdma_listen(other, 1), EADDRINUSE);
    CHECK(rdma_destroy_id(one) == 0 && rdma_destroy_id(other) == 0);
}

/* Outstanding Reads are those that were asked for, in events and queue pairs; none asked, none allowed. */
static void reads(void) {
    static const struct {
        struct rdma_conn_param client, server;
        int initiates, serves;
    } table[] = {
        {{.initiator_depth = 0, .responder_resources = 0}, {.initiator_depth = 0, .responder_resources = 0}, 0, 0},
        {{.initiator_depth = 3, .responder_resources = 5}, {.initiator_depth = 2, .responder_resources = 4}, 3, 2},
        {{.initiator_depth = 1, .responder_resources = 1}, {.initiator_depth = 8, .responder_resources = 8}, 1, 1},
        {{.initiator_depth = 255, .responder_resources = 255}, {.initiator_depth = 255, .responder_resources = 255}, 128, 128},
    };
    listen_on(PORT, 4);
    for (unsigned row = 0; row < sizeof table / sizeof *table; row++) {
        int initiates = table[row].initiates, serves = table[row].serves;
        struct ibv_qp_attr attributes;
        struct ibv_qp_init_attr created;
        param = table[row].client;
        client = routed(PORT, 0);
        CHECK(rdma_connect(client, &param) == 0);
        server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
        CHECK(seen.responder_resources == (param.initiator_depth == 255 ? 128 : param.initiator_depth));
        CHECK(seen.initiator_depth == (param.responder_resources == 255 ? 128 : param.responder_resources));
        queue_pair(server);
        param = table[row].server;
        CHECK(rdma_accept(server, &param) == 0);
        for (int of = 0; of < 2; of++) {
            int is_client = event(RDMA_CM_EVENT_ESTABLISHED) == client;
            CHECK(seen.initiator_depth == (is_client ? initiates : serves));
            CHECK(seen.responder_resources == (is_client ? serves : initiates));
        }
        CHECK(ibv_query_qp(client->qp, &attributes, IBV_QP_MAX_QP_RD_ATOMIC, &created) == 0);
        CHECK(attributes.max_rd_atomic == initiates && attributes.max_dest_rd_atomic == serves);
        struct ibv_mr *mr = memory();
        CHECK(post(IBV_WR_RDMA_READ, 1, 8, 0, mr) == (initiates ? 0 : EINVAL));
        if (initiates) {
            struct ibv_wc entry;
            int count;
            while ((count = ibv_poll_cq(cq, 1, &entry)) == 0)
                ;
            CHECK(count == 1 && entry.status == IBV_WC_SUCCESS);
        }
        leave();
        CHECK(ibv_dereg_mr(mr) == 0);
    }
}

/* A request beyond the capabilities of its queue pair is refused, and nothing of it is posted. */
static void limits(void) {
    listen_on(PORT, 4);
    join(0);
    struct ibv_mr *mr = memory();
    CHECK(post(IBV_WR_SEND, 3, 8, 0, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_WRITE, 3, 8, 0, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_WRITE, -1, 8, 0, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_READ, 2, 8, 0, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_READ, 1, 1u << 31, 0, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_WRITE, 2, 1u << 30, 0, mr) == EINVAL);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr created;
    CHECK(ibv_query_qp(client->qp, &attributes, IBV_QP_CAP, &created) == 0);
    CHECK(created.cap.max_inline_data >= 16 && created.cap.max_inline_data < sizeof bytes);
    CHECK(post(IBV_WR_RDMA_WRITE, 1, created.cap.max_inline_data + 1, IBV_SEND_INLINE, mr) == EINVAL);
    CHECK(post(IBV_WR_RDMA_WRITE, 1, created.cap.max_inline_data, IBV_SEND_INLINE, mr) == 0);
    CHECK(post(IBV_WR_RDMA_WRITE, 2, 8, 0, mr) == 0);
    struct ibv_sge places[2] = {{(uintptr_t)bytes, 8, mr->lkey}, {(uintptr_t)bytes, 8, mr->lkey}};
    struct ibv_recv_wr *bad, second = {.sg_list = places, .num_sge = 2}, first = {.next = &second, .sg_list = places, .num_sge = 1};
    CHECK(ibv_post_recv(server->qp, &first, &bad) == EINVAL && bad == &second);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq && ibv_post_srq_recv(srq, &first, &bad) == EINVAL && bad == &second && ibv_destroy_srq(srq) == 0);
    leave();
}

/* Requests that the program has not taken wait, as many as it said; others are rejected. */
static void backlog(void) {
    enum { ROOM = 3, MORE = 2 };
    struct rdma_event_channel *others = rdma_create_event_channel();
    struct rdma_cm_id *ids[ROOM + MORE];
    CHECK(others && rdma_create_id(others, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, at(PORT)) == 0 && rdma_listen(listener, ROOM) == 0);
    for (int of = 0; of < ROOM + MORE; of++)
        ids[of] = routed(PORT, 0);
    for (int of = 0; of < ROOM + MORE; of++)
        CHECK(rdma_connect(ids[of], &param) == 0);
    for (int of = 0; of < MORE; of++)
        event(RDMA_CM_EVENT_REJECTED);
    struct rdma_cm_event *request;
    CHECK(rdma_get_cm_event(others, &request) == 0 && request->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(request->id);
    CHECK(rdma_accept(request->id, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_ack_cm_event(request) == 0);
}

/* A handler has an event of an identifier that another thread destroys. */
static volatile int acknowledged;

static void *handle(void *argument) {
    struct rdma_cm_event *event = argument;
    usleep(3300000);
    CHECK(event->id == client && event->id->channel == channel);
    acknowledged = 1;
    CHECK(rdma_ack_cm_event(event) == 0);
    return NULL;
}

static void held(void) {
    struct rdma_cm_event *resolved;
    pthread_t thread;
    client = create();
    CHECK(rdma_resolve_addr(client, NULL, at(PORT), 1000) == 0);
    CHECK(rdma_get_cm_event(channel, &resolved) == 0);
    CHECK(pthread_create(&thread, NULL, handle, resolved) == 0);
    CHECK(rdma_destroy_id(client) == 0 && acknowledged);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A server that prepares its memory between request and reply. */
static void slow(void) {
    listen_on(PORT, 4);
    client = routed(PORT, 0);
    CHECK(rdma_connect(client, &param) == 0);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(server);
    usleep(5500000);
    CHECK(rdma_accept(server, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    event(RDMA_CM_EVENT_ESTABLISHED);
    leave();
}

/* Without a descriptor for it a request waits, without work for this process, and is served when there is one. */
static void descriptors(void) {
    static const char request[] = "MPA ID Req Frame\x00\x01\x00\x00";
    struct rlimit before, none;
    struct rusage used;
    listen_on(PORT, 4);
    int peer = socket(own.ss_family, SOCK_STREAM, 0);
    CHECK(peer >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = peer + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(connect(peer, at(PORT), sizeof own) == 0 && write(peer, request, sizeof request - 1) == sizeof request - 1);
    struct pollfd ready = {channel->fd, POLLIN, 0};
    CHECK(poll(&ready, 1, 400) == 0 && getrusage(RUSAGE_SELF, &used) == 0);
    CHECK(used.ru_utime.tv_sec + used.ru_stime.tv_sec == 0 && used.ru_utime.tv_usec + used.ru_stime.tv_usec < 300000);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_reject(server, NULL, 0) == 0 && rdma_destroy_id(server) == 0);
}

/* Functions of the real library, which stand for those that newer ones have: they refuse an object of this one. */
static void refuse(void) {
    void *real = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);
    struct ibv_device_attr attributes;
    struct ibv_pd *(*alloc_pd)(struct ibv_context *) = dlsym(real, "ibv_alloc_pd");
    int (*attach)(struct ibv_qp *, const union ibv_gid *, uint16_t) = dlsym(real, "ibv_attach_mcast");
    union ibv_gid gid = {{0}};
    int (*query_device)(struct ibv_context *, struct ibv_device_attr *) = dlsym(real, "ibv_query_device");
    int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *) = dlsym(real, "ibv_query_srq");
    CHECK(real && alloc_pd && alloc_pd != ibv_alloc_pd && attach && query_device && query_srq);
    client = create();
    CHECK(rdma_bind_addr(client, at(0)) == 0);
    queue_pair(client);
    CHECK(alloc_pd(client->verbs) == NULL && errno == EOPNOTSUPP);
    CHECK(attach(client->qp, &gid, 0) == EOPNOTSUPP);
    CHECK(query_device(client->verbs, &attributes) == EOPNOTSUPP);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq && query_srq(srq, &shared.attr) == EOPNOTSUPP && ibv_query_srq(srq, &shared.attr) == 0);
    /* Functions in the context's own table. */
    struct ibv_qp_init_attr_ex extended = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd};
    CHECK(ibv_create_qp_ex(client->verbs, &extended) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == NULL && errno == EOPNOTSUPP);
}

/* A server that sends as soon as it is connected, to whoever connects. */
static void first(void) {
    listen_on(PORT, 4);
    server = event(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(server);
    CHECK(rdma_accept(server, &param) == 0);
    event(RDMA_CM_EVENT_ESTABLISHED);
    client = server;
    memcpy(bytes, "speaks first", 12);
    CHECK(post(IBV_WR_SEND, 1, 12, 0, memory()) == 0);
    event(RDMA_CM_EVENT_DISCONNECTED);
}

static void connects(void) {
    listen_on(PORT, 4);
    join(0);
    puts("connected");
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"states", states}, {"options", options}, {"port", port}, {"reads", reads}, {"limits", limits}, {"backlog", backlog},
                 {"held", held}, {"slow", slow}, {"descriptors", descriptors}, {"refuse", refuse}, {"first", first}, {"connects", connects}};
    struct addrinfo *found;
    CHECK(count == 3 && getaddrinfo(words[1], NULL, NULL, &found) == 0);
    memcpy(&own, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    CHECK(channel = rdma_create_event_channel());
    for (unsigned of = 0; of < sizeof cases / sizeof *cases; of++) {
        if (strcmp(cases[of].name, words[2]) == 0) {
            cases[of].run();
            puts(words[2]);
            return 0;
        }
    }
    return 2;
}
