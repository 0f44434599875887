/* A thread follows an event until it acknowledges it, while another destroys what the event is about: the destruction
 * waits (ibv_get_cq_event(3), ibv_get_async_event(3)). Each line that fails names itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static struct ibv_context *context;
static struct ibv_comp_channel *channel;

/* An event that a thread has. */
static sem_t delivered;
static atomic_int acknowledged, destroyed;

/* Long enough for a destruction that does not wait; no other length makes the test fail. */
static void hold(void) {
    CHECK(sem_post(&delivered) == 0);
    usleep(100000);
    CHECK(!destroyed);
    acknowledged = 1;
}

static void *follow_pair(void *number) {
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
    hold();
    CHECK(event.element.qp->qp_context == number);
    ibv_ack_async_event(&event);
    return NULL;
}

static void *follow_queue(void *number) {
    struct ibv_cq *cq;
    void *of_queue;
    CHECK(ibv_get_cq_event(channel, &cq, &of_queue) == 0);
    hold();
    CHECK(of_queue == number && cq->cq_context == number);
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

static pthread_t follow(void *(*how)(void *), void *number) {
    pthread_t thread;
    acknowledged = destroyed = 0;
    CHECK(sem_init(&delivered, 0, 0) == 0 && pthread_create(&thread, NULL, how, number) == 0);
    return thread;
}

static void is_destroyed(pthread_t thread) {
    destroyed = 1;
    CHECK(acknowledged);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void fail(struct ibv_qp *pair) {
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(pair, &attributes, IBV_QP_STATE) == 0);
}

int main(void) {
    static int numbers[2];
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd && (channel = ibv_create_comp_channel(context)));
    CHECK(ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
    struct ibv_cq *cq = ibv_create_cq(context, 8, &numbers[0], channel, 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(cq && srq && channel->refcnt == 1);
    struct ibv_qp_init_attr options = {
        .qp_context = &numbers[1],
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *sharing = ibv_create_qp(pd, &options);
    options.srq = NULL;
    struct ibv_qp *pair = ibv_create_qp(pd, &options);
    CHECK(sharing && pair);

    pthread_t thread = follow(follow_pair, &numbers[1]);
    fail(sharing);
    CHECK(sem_wait(&delivered) == 0);
    CHECK(ibv_destroy_qp(sharing) == 0);
    is_destroyed(thread);

    thread = follow(follow_queue, &numbers[0]);
    fail(pair);
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    struct ibv_recv_wr *bad, request = {.wr_id = 1};
    CHECK(ibv_post_recv(pair, &request, &bad) == 0);
    CHECK(sem_wait(&delivered) == 0);
    CHECK(ibv_destroy_qp(pair) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    is_destroyed(thread);

    CHECK(channel->refcnt == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_dealloc_pd(pd) == 0);
    ibv_free_device_list(devices);
    puts("held");
    return 0;
}
