/* Objects with attributes that the provider does not serve are refused: a program that gets one takes it as asked for. MPICH
 * 4.0 opens a vector by name, and reads its numbers at map_addr if that succeeds. */
#include "endpoint.h"

static void is(const char *what, int code, int expected) {
    if (code != expected) {
        fprintf(stderr, "%s: %d instead of %d\n", what, code, expected);
        exit(1);
    }
}

static void vectors(void) {
    const struct {
        struct fi_av_attr attributes;
        int code;
    } cases[] = {
        {{.type = FI_AV_UNSPEC}, 0},
        {{.type = FI_AV_MAP, .count = 4}, 0},
        {{.type = FI_AV_TABLE, .flags = FI_SYMMETRIC}, 0},
        {{.type = FI_AV_MAP, .name = "shared"}, -FI_ENOSYS},
        {{.type = FI_AV_MAP, .name = "shared", .flags = FI_READ}, -FI_ENOSYS},
        {{.type = FI_AV_TABLE, .flags = FI_READ}, -FI_ENOSYS},
        {{.type = FI_AV_TABLE, .flags = FI_EVENT}, -FI_ENOSYS},
        {{.type = FI_AV_TABLE + 1}, -FI_EINVAL},
    };
    for (size_t of = 0; of < sizeof cases / sizeof *cases; of++) {
        struct fi_av_attr attributes = cases[of].attributes;
        struct fid_av *vector;
        int code = fi_av_open(domain, &attributes, &vector, NULL);
        is("fi_av_open", code, cases[of].code);
        if (!code)
            CHECK(fi_close(&vector->fid));
    }
}

/* Nothing of this provider can be waited for by a descriptor, a mutex or a set. */
static void waits(void) {
    for (enum fi_wait_obj wait = FI_WAIT_NONE; wait <= FI_WAIT_POLLFD; wait++) {
        int expected = wait == FI_WAIT_NONE || wait == FI_WAIT_UNSPEC ? 0 : -FI_ENOSYS;
        struct fi_cq_attr of_queue = {.wait_obj = wait};
        struct fi_cntr_attr of_counter = {.wait_obj = wait};
        struct fi_eq_attr of_events = {.wait_obj = wait};
        struct fid_cq *queue;
        struct fid_cntr *counter;
        struct fid_eq *events;
        is("fi_cq_open", fi_cq_open(domain, &of_queue, &queue, NULL), expected);
        is("fi_cntr_open", fi_cntr_open(domain, &of_counter, &counter, NULL), expected);
        is("fi_eq_open", fi_eq_open(fabric, &of_events, &events, NULL), expected);
        if (expected)
            continue;
        CHECK(fi_close(&queue->fid));
        CHECK(fi_close(&counter->fid));
        CHECK(fi_close(&events->fid));
    }
}

/* A second endpoint at the address of the first. */
static void address_in_use(void) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct sockaddr_in own;
    size_t length = sizeof own;
    char port[6];
    struct fid_ep *second;
    CHECK(fi_getname(&ep->fid, &own, &length));
    snprintf(port, sizeof port, "%u", ntohs(own.sin_port));
    hints->caps = capabilities;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("clearstream");
    CHECK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", port, FI_SOURCE, hints, &info));
    CHECK(fi_endpoint(domain, info, &second, NULL));
    CHECK(fi_ep_bind(second, &av->fid, 0));
    CHECK(fi_ep_bind(second, &cq->fid, FI_SEND | FI_RECV));
    is("fi_enable", fi_enable(second), -FI_EADDRINUSE);
    CHECK(fi_close(&second->fid));
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

/* Access to memory: all of it, or what is named; orders that are kept, and others. */
static void capabilities_of_memory(void) {
    const uint64_t own = FI_READ | FI_WRITE, of_peers = FI_REMOTE_READ | FI_REMOTE_WRITE;
    const struct {
        uint64_t asked, order, granted;
        int code;
    } cases[] = {
        {0, 0, FI_RMA | own | of_peers, 0},
        {FI_MSG | FI_RMA, 0, FI_RMA | own | of_peers, 0},
        {FI_RMA | FI_READ, 0, FI_RMA | FI_READ, 0},
        {FI_RMA | FI_WRITE | FI_REMOTE_WRITE, 0, FI_RMA | FI_WRITE | FI_REMOTE_WRITE, 0},
        {FI_MSG | FI_TAGGED, 0, 0, 0},
        {FI_RMA, FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW,
         FI_RMA | own | of_peers, 0},
        {FI_RMA, FI_ORDER_WAR, 0, -FI_ENODATA},
        {FI_RMA, FI_ORDER_WAS, 0, -FI_ENODATA},
        {FI_RMA | FI_ATOMIC, 0, 0, -FI_ENODATA},
        {FI_RMA | FI_RMA_EVENT, 0, 0, -FI_ENODATA},
        {FI_RMA | FI_FENCE, 0, 0, -FI_ENODATA},
    };
    for (size_t of = 0; of < sizeof cases / sizeof *cases; of++) {
        struct fi_info *hints = fi_allocinfo(), *info;
        hints->fabric_attr->prov_name = strdup("clearstream");
        hints->caps = cases[of].asked;
        hints->tx_attr->msg_order = cases[of].order;
        is("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &info), cases[of].code);
        if (!cases[of].code) {
            uint64_t granted = cases[of].granted;
            is("capabilities", info->caps & (FI_RMA | own | of_peers), granted);
            is("capabilities of sends", info->tx_attr->caps & (FI_RMA | own | of_peers), granted & (FI_RMA | own));
            is("capabilities of receives", info->rx_attr->caps & (FI_RMA | own | of_peers), granted & (FI_RMA | of_peers));
            is("orders that are kept", (info->tx_attr->msg_order & cases[of].order) == cases[of].order, 1);
            is("length of writes in order", info->ep_attr->max_order_waw_size == info->ep_attr->max_msg_size, 1);
            fi_freeinfo(info);
        }
        fi_freeinfo(hints);
    }
}

int main(void) {
    alarm(BOUND_S);
    open_endpoint(NULL);
    capabilities_of_memory();
    vectors();
    waits();
    address_in_use();
    close_endpoint();
    return 0;
}
