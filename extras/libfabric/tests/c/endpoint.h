/* An endpoint of the provider for tests: opened, closed, and its completions waited for. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BOUND_S = 20 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
/* Of endpoints that are opened from now on. */
static uint64_t capabilities = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        long code = (call);                                                                                            \
        if (code < 0) {                                                                                                \
            fprintf(stderr, "%s: %s\n", #call, fi_strerror(-code));                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Opens an endpoint on a port of loopback, or on a free one for NULL. */
static void open_endpoint(const char *port) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_av_attr vector = {.type = FI_AV_TABLE};
    hints->caps = capabilities;
    hints->domain_attr->cq_data_size = 8;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->op_flags = FI_COMPLETION;
    hints->fabric_attr->prov_name = strdup("clearstream");
    CHECK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", port, FI_SOURCE, hints, &info));
    if (info->domain_attr->av_type != FI_AV_UNSPEC)
        fail("a kind of address vector that was not asked for");
    CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(fi_domain(fabric, info, &domain, NULL));
    CHECK(fi_av_open(domain, &vector, &av, NULL));
    CHECK(fi_cq_open(domain, &queue, &cq, NULL));
    CHECK(fi_endpoint(domain, info, &ep, NULL));
    CHECK(fi_ep_bind(ep, &av->fid, 0));
    CHECK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
    CHECK(fi_enable(ep));
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void close_endpoint(void) {
    CHECK(fi_close(&ep->fid));
    CHECK(fi_close(&cq->fid));
    CHECK(fi_close(&av->fid));
    CHECK(fi_close(&domain->fid));
    CHECK(fi_close(&fabric->fid));
}

/* Sends this endpoint's address to a process by a pipe, and inserts the one that comes from there. */
static inline fi_addr_t peer_of(int from, int to) {
    char own[64], other[64];
    size_t length = sizeof own;
    fi_addr_t peer;
    memset(own, 0, sizeof own);
    CHECK(fi_getname(&ep->fid, own, &length));
    if (write(to, own, sizeof own) != sizeof own || read(from, other, sizeof other) != sizeof other)
        fail("addresses");
    if (fi_av_insert(av, other, 1, &peer, 0, NULL) != 1)
        fail("fi_av_insert");
    return peer;
}

/* Waits for one completion; returns 0, or the error of a request. */
static inline int complete(struct fi_cq_tagged_entry *entry) {
    time_t end = time(NULL) + BOUND_S;
    while (time(NULL) < end) {
        long count = fi_cq_read(cq, entry, 1);
        if (count == 1)
            return 0;
        if (count == -FI_EAVAIL) {
            struct fi_cq_err_entry error = {0};
            if (fi_cq_readerr(cq, &error, 0) != 1)
                fail("fi_cq_readerr");
            entry->flags = error.flags;
            entry->op_context = error.op_context;
            return error.err;
        }
        if (count != -FI_EAGAIN)
            fail("fi_cq_read");
    }
    fail("no completion: hangs");
    return 0;
}
