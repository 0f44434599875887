/* Many connections one after the other, and many threads at once, between a server thread and
 * a client in one process. Each line that fails names itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define THREADS 8
#define DEPTH 64
#define WRITES 500
#define SLOT 256

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct ibv_pd *server_pd;
static char target[2 * THREADS * SLOT];
static struct ibv_mr *target_mr;

/* Address and key of the server's memory, in its private data. */
struct where {
    uint64_t address;
    uint32_t key;
};

static struct ibv_cq *queue(struct rdma_cm_id *id, struct ibv_pd *pd) {
    /* A request's place in the send queue is free as soon as its completion is queued: the completion queue holds those
     * of all threads, however late they are taken. */
    struct ibv_cq *cq = ibv_create_cq(id->verbs, THREADS * WRITES, NULL, NULL, 0);
    CHECK(cq);
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    CHECK(rdma_create_qp(id, pd, &attributes) == 0);
    return cq;
}

static void release(struct rdma_cm_id *id, struct ibv_cq *cq) {
    rdma_destroy_qp(id);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(rdma_destroy_id(id) == 0);
}

/* Accepts `*argument` connections and releases each when its peer disconnects. */
static void *serve(void *argument) {
    void **arguments = argument;
    struct rdma_event_channel *channel = arguments[0];
    int connections = *(int *)arguments[1];
    while (connections > 0) {
        struct rdma_cm_event *event;
        CHECK(rdma_get_cm_event(channel, &event) == 0);
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type kind = event->event;
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
            id->context = queue(id, server_pd);
            struct where where = {(uintptr_t)target, target_mr->rkey};
            struct rdma_conn_param param = {
                .private_data = &where, .private_data_len = sizeof where, .responder_resources = 4, .initiator_depth = 4};
            CHECK(rdma_accept(id, &param) == 0);
        }
        CHECK(rdma_ack_cm_event(event) == 0);
        if (kind == RDMA_CM_EVENT_DISCONNECTED) {
            rdma_disconnect(id);
            release(id, id->context);
            connections--;
        }
    }
    return NULL;
}

static struct rdma_cm_id *connected(struct ibv_pd **pd, struct ibv_cq **cq, struct where *where) {
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
    CHECK(rdma_resolve_route(id, 2000) == 0);
    if (!*pd)
        CHECK(*pd = ibv_alloc_pd(id->verbs));
    *cq = queue(id, *pd);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(id, &param) == 0);
    CHECK(id->event && id->event->param.conn.private_data_len >= sizeof *where);
    memcpy(where, id->event->param.conn.private_data, sizeof *where);
    return id;
}

static int post_write(struct rdma_cm_id *id, struct ibv_mr *mr, char *from, uint64_t number, uint64_t to, uint32_t key) {
    struct ibv_sge place = {(uintptr_t)from, SLOT, mr->lkey};
    struct ibv_send_wr request = {
        .wr_id = number, .sg_list = &place, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = to, .rkey = key}};
    struct ibv_send_wr *bad = NULL;
    return ibv_post_send(id->qp, &request, &bad);
}

static int entries(const char *folder) {
    int count = 0;
    DIR *open = opendir(folder);
    CHECK(open);
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

/* Connections one after the other leave neither descriptors nor threads. */
static void connect_often(int connections) {
    struct ibv_pd *pd = NULL;
    char source[SLOT];
    struct ibv_mr *mr = NULL;
    int descriptors = 0, threads = 0;
    for (int number = 0; number < connections; number++) {
        struct ibv_cq *cq;
        struct where where;
        struct rdma_cm_id *id = connected(&pd, &cq, &where);
        if (!mr)
            CHECK(mr = ibv_reg_mr(pd, source, sizeof source, IBV_ACCESS_LOCAL_WRITE));
        memset(source, number, sizeof source);
        CHECK(post_write(id, mr, source, 7, where.address, where.key) == 0);
        struct ibv_wc done;
        int count;
        while ((count = ibv_poll_cq(cq, 1, &done)) == 0) {}
        CHECK(count == 1 && done.wr_id == 7 && done.status == IBV_WC_SUCCESS);
        CHECK(rdma_disconnect(id) == 0);
        release(id, cq);
        if (number == 10) {
            descriptors = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
        }
    }
    /* The server has yet to hear of the last ends: this side does not wait for them. */
    for (int wait = 0; wait < 1000 && entries("/proc/self/fd") > descriptors + 8; wait++)
        usleep(10000);
    CHECK(entries("/proc/self/fd") <= descriptors + 8);
    CHECK(entries("/proc/self/task") <= threads + 1);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

struct poster {
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    char *source;
    struct where where;
    int slot;
};

/* Posts while there is room: ENOMEM says that there is none (ibv_post_send(3)). */
static void *post_many(void *argument) {
    struct poster *poster = argument;
    uint64_t to = poster->where.address + (uint64_t)poster->slot * SLOT;
    for (uint64_t number = 0; number < WRITES;) {
        uint64_t wr_id = (uint64_t)poster->slot << 32 | number;
        int code = post_write(poster->id, poster->mr, poster->source, wr_id, to, poster->where.key);
        CHECK(code == 0 || code == ENOMEM);
        number += code == 0;
    }
    return NULL;
}

/* Takes completions of one queue until each poster's requests are all there, in their order. */
static void take_all(struct ibv_cq *cq, int first, int posters) {
    uint64_t next[2 * THREADS] = {0};
    for (uint64_t left = (uint64_t)posters * WRITES; left > 0;) {
        struct ibv_wc done[16];
        int count = ibv_poll_cq(cq, 16, done);
        CHECK(count >= 0);
        for (int place = 0; place < count; place++) {
            uint64_t slot = done[place].wr_id >> 32;
            CHECK(done[place].status == IBV_WC_SUCCESS);
            CHECK(slot >= (uint64_t)first && slot < (uint64_t)(first + posters));
            CHECK((uint32_t)done[place].wr_id == next[slot]++);
        }
        left -= count;
    }
}

struct own {
    struct poster poster;
    struct ibv_cq *cq;
};

static void *post_and_take(void *argument) {
    struct own *own = argument;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, post_many, &own->poster) == 0);
    take_all(own->cq, own->poster.slot, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    return NULL;
}

/* Eight threads on one queue pair, and beside them eight with one each. */
static void post_from_threads(void) {
    static char source[2 * THREADS][SLOT];
    struct ibv_pd *pd = NULL;
    struct ibv_cq *common, *single[THREADS];
    struct where where;
    struct rdma_cm_id *ids[THREADS], *id = connected(&pd, &common, &where);
    struct ibv_mr *mr = ibv_reg_mr(pd, source, sizeof source, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    pthread_t threads[2 * THREADS];
    struct poster posters[THREADS];
    struct own owns[THREADS];
    for (int slot = 0; slot < 2 * THREADS; slot++)
        memset(source[slot], 'a' + slot, SLOT);
    for (int slot = 0; slot < THREADS; slot++) {
        posters[slot] = (struct poster){id, mr, source[slot], where, slot};
        CHECK(pthread_create(&threads[slot], NULL, post_many, &posters[slot]) == 0);
    }
    for (int slot = 0; slot < THREADS; slot++) {
        struct where there;
        ids[slot] = connected(&pd, &single[slot], &there);
        owns[slot] = (struct own){{ids[slot], mr, source[THREADS + slot], there, THREADS + slot}, single[slot]};
        CHECK(pthread_create(&threads[THREADS + slot], NULL, post_and_take, &owns[slot]) == 0);
    }
    take_all(common, 0, THREADS);
    for (int slot = 0; slot < 2 * THREADS; slot++)
        CHECK(pthread_join(threads[slot], NULL) == 0);
    CHECK(rdma_disconnect(id) == 0);
    release(id, common);
    for (int slot = 0; slot < THREADS; slot++) {
        CHECK(rdma_disconnect(ids[slot]) == 0);
        release(ids[slot], single[slot]);
    }
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && inet_aton(arguments[1], &address.sin_addr));
    int connections = atoi(arguments[2]);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener;
    CHECK(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
    address.sin_port = rdma_get_src_port(listener);
    CHECK(server_pd = ibv_alloc_pd(listener->verbs));
    CHECK(target_mr = ibv_reg_mr(server_pd, target, sizeof target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    CHECK(rdma_listen(listener, 64) == 0);
    int all = connections > 0 ? connections : 1 + THREADS;
    void *served[] = {channel, &all};
    pthread_t server;
    CHECK(pthread_create(&server, NULL, serve, served) == 0);
    if (connections > 0)
        connect_often(connections);
    else
        post_from_threads();
    CHECK(pthread_join(server, NULL) == 0);
    /* Writes are placed before the peer that wrote them disconnects. */
    if (connections == 0)
        for (int slot = 0; slot < 2 * THREADS; slot++)
            for (int place = 0; place < SLOT; place++)
                CHECK(target[slot * SLOT + place] == 'a' + slot);
    CHECK(rdma_destroy_id(listener) == 0);
    CHECK(ibv_dereg_mr(target_mr) == 0 && ibv_dealloc_pd(server_pd) == 0);
    rdma_destroy_event_channel(channel);
    puts("many");
    return 0;
}
