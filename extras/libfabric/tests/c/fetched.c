/* Memory that one process registers and another reads: wholly, in parts, into several pieces, nothing of it, beyond its end,
 * by keys that are wrong, closed or of another domain, and from a process that ends.
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "registered.h"

enum { SIZE = 5000001, SMALL = 100, MANY = 64, PART = 70001 };
/* Of 64 bits; the other ones differ in the upper half alone. */
static const uint64_t KEY = 0xfedcba9876543210, LOCAL = 0x7edcba9876543210, ELSEWHERE = 0x3edcba9876543210,
                      WRITABLE = 0x1edcba9876543210;

static unsigned char memory[SIZE], other[SMALL], buffer[SIZE + 1];
static struct fid_cntr *counter;
static uint64_t done, refused;
static fi_addr_t peer;

static unsigned char byte(size_t at) { return (unsigned char)(at * 7 + at / 251); }

/* What may not be registered. */
static void refusals(void) {
    struct iovec pieces[2] = {{memory, 10}, {other, 10}};
    struct fid_mr *region;
    is("a key that is used", fi_mr_reg(domain, other, SMALL, FI_REMOTE_READ, 0, KEY, 0, &region, NULL), -FI_ENOKEY);
    is("a right that is none of memory", fi_mr_reg(domain, other, SMALL, FI_REMOTE_READ | FI_TAGGED, 0, 1, 0, &region, NULL),
       -FI_EOPNOTSUPP);
    is("two pieces", fi_mr_regv(domain, pieces, 2, FI_REMOTE_READ, 0, 1, 0, &region, NULL), -FI_EINVAL);
    is("around the address space", fi_mr_reg(domain, (void *)UINTPTR_MAX, 2, FI_REMOTE_READ, 0, 1, 0, &region, NULL), -FI_EINVAL);
}

static struct fid_domain *another_domain(void) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_domain *another;
    hints->fabric_attr->prov_name = strdup("clearstream");
    CHECK(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
    is("bytes of a key", info->domain_attr->mr_key_size, 8);
    is("ranges of a read", info->tx_attr->rma_iov_limit, 1);
    CHECK(fi_domain(fabric, info, &another, NULL));
    fi_freeinfo(info);
    fi_freeinfo(hints);
    return another;
}

static void target(int from, int to) {
    struct fid_domain *another = another_domain();
    struct fid_mr *region = registers(memory, SIZE, FI_REMOTE_READ, KEY), *elsewhere;
    /* Its own requests alone: it has no key for peers, and two may have the same one. */
    struct fid_mr *local = registers(other, SMALL, FI_SEND | FI_RECV | FI_READ, LOCAL);
    struct fid_mr *same = registers(other, SMALL, FI_SEND, LOCAL);
    struct fid_mr *writable = registers(memory, SIZE, FI_REMOTE_WRITE, WRITABLE);
    struct fi_mr_attr attributes = {.mr_iov = &(struct iovec){other, SMALL}, .iov_count = 1, .access = FI_REMOTE_READ};
    attributes.requested_key = ELSEWHERE;
    CHECK(fi_mr_regattr(another, &attributes, 0, &elsewhere));
    for (size_t at = 0; at < SIZE; at++)
        memory[at] = byte(at);
    memset(other, 9, SMALL);
    refusals();
    meet(from, to);
    meet(from, to);
    CHECK(fi_close(&region->fid));
    meet(from, to);
    meet(from, to);
    region = registers(other, SMALL, FI_REMOTE_READ, KEY);
    meet(from, to);
    meet(from, to);
    CHECK(fi_close(&region->fid));
    CHECK(fi_close(&local->fid));
    CHECK(fi_close(&same->fid));
    CHECK(fi_close(&writable->fid));
    CHECK(fi_close(&elsewhere->fid));
    CHECK(fi_close(&another->fid));
}

/* Waits for a read. */
static void reads(const char *what, void *context, int expected) {
    struct fi_cq_tagged_entry entry;
    is(what, complete(&entry), expected);
    if (entry.op_context != context || entry.flags != (FI_RMA | FI_READ))
        fail("whose completion it is");
    if (expected)
        refused++;
    else
        done++;
    is("reads that were counted", fi_cntr_read(counter), done);
    is("failures that were counted", fi_cntr_readerr(counter), refused);
}

static void fetches(const char *what, size_t length, uint64_t offset, uint64_t key, int expected) {
    memset(buffer, 0xee, sizeof buffer);
    CHECK(fi_read(ep, buffer, length, NULL, peer, offset, key, &length));
    reads(what, &length, expected);
    for (size_t at = 0; at <= SIZE; at++)
        if (buffer[at] != (!expected && at < length ? byte(offset + at) : 0xee))
            fail(what);
}

static void ranges(void) {
    fetches("all of it", SIZE, 0, KEY, 0);
    fetches("a part", 70000, 12345, KEY, 0);
    fetches("the last byte", 1, SIZE - 1, KEY, 0);
    fetches("the most that comes with the answer", 4048, 3, KEY, 0);
    fetches("one byte more", 4049, 3, KEY, 0);
    fetches("nothing", 0, 77, KEY, 0);
    fetches("nothing at the end", 0, SIZE, KEY, 0);
    fetches("nothing beyond the end", 0, SIZE + 1, KEY, FI_EACCES);
    fetches("one byte beyond the end", 1, SIZE, KEY, FI_EACCES);
    fetches("more than is there", SIZE, 1, KEY, FI_EACCES);
    fetches("around the address space", 2, UINT64_MAX, KEY, FI_EACCES);
    fetches("an unknown key", 1, 0, KEY + 1, FI_EACCES);
    fetches("a key of 32 bits", 1, 0, (uint32_t)KEY, FI_EACCES);
    fetches("local memory", 1, 0, LOCAL, FI_EACCES);
    fetches("another domain", 1, 0, ELSEWHERE, FI_EACCES);
    fetches("memory for writes alone", 1, 0, WRITABLE, FI_EACCES);
}

/* Into pieces that lie in the buffer from its end to its beginning. */
static void pieces(void) {
    struct iovec list[4] = {{buffer + 60000, 7}, {NULL, 0}, {buffer + 10000, 50000}, {buffer, 3}};
    struct fi_rma_iov range = {.addr = 99, .len = 50010, .key = KEY};
    struct fi_msg_rma message = {.msg_iov = list, .iov_count = 4, .addr = peer, .rma_iov = &range, .rma_iov_count = 1};
    message.context = list;
    for (int round = 0; round < 4; round++) {
        int is_message = round % 2;
        size_t at = 99;
        /* Read by RDMA Read, and copied from the answer. */
        list[2].iov_len = round < 2 ? 50000 : 500;
        range.len = list[2].iov_len + 10;
        memset(buffer, 0xee, sizeof buffer);
        if (is_message)
            CHECK(fi_readmsg(ep, &message, FI_COMPLETION));
        else
            CHECK(fi_readv(ep, list, NULL, 4, peer, 99, KEY, list));
        reads("pieces", list, 0);
        for (int number = 0; number < 4; number++)
            for (size_t of = 0; of < list[number].iov_len; of++)
                if (((unsigned char *)list[number].iov_base)[of] != byte(at++))
                    fail("pieces");
        if (buffer[3] != 0xee || buffer[9999] != 0xee || buffer[60007] != 0xee)
            fail("beside the pieces");
    }
    range.len++;
    is("another length there", fi_readmsg(ep, &message, FI_COMPLETION), -FI_EINVAL);
    message.rma_iov_count = 2;
    is("two ranges", fi_readmsg(ep, &message, FI_COMPLETION), -FI_EINVAL);
}

/* More at once than a connection takes. */
static void many(void) {
    struct fi_cq_tagged_entry entry;
    for (size_t number = 0; number < MANY; number++)
        CHECK(fi_read(ep, buffer + number * PART, PART, NULL, peer, number * PART + 5, KEY, buffer + number));
    for (size_t number = 0; number < MANY; number++)
        is("one of many", complete(&entry), 0);
    done += MANY;
    for (size_t at = 0; at < (size_t)MANY * PART; at++)
        if (buffer[at] != byte(at + 5))
            fail("one of many");
}

static void initiator(int from, int to) {
    struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP};
    CHECK(fi_cntr_open(domain, &attributes, &counter, NULL));
    CHECK(fi_ep_bind(ep, &counter->fid, FI_READ));
    meet(from, to);
    ranges();
    pieces();
    many();
    meet(from, to);
    meet(from, to);
    fetches("a closed region", 1, 0, KEY, FI_EACCES);
    meet(from, to);
    meet(from, to);
    CHECK(fi_read(ep, buffer, SMALL, NULL, peer, 0, KEY, buffer));
    reads("another region with the key", buffer, 0);
    if (buffer[0] != 9 || buffer[SMALL - 1] != 9)
        fail("another region with the key");
    fetches("more than that has", SMALL + 1, 0, KEY, FI_EACCES);
    meet(from, to);
}

/* The peer does not answer any more, and ends. */
static void ends(pid_t pid) {
    int status;
    CHECK(fi_read(ep, buffer, 1, NULL, peer, 0, KEY, &done));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    reads("a peer that ended", &done, FI_ECONNRESET);
    CHECK(fi_read(ep, buffer, 1, NULL, peer, 0, KEY, &refused));
    reads("a peer that is not there", &refused, FI_ECONNRESET);
    CHECK(fi_close(&counter->fid));
}

int main(void) {
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        fail("pipe");
    alarm(4 * BOUND_S);
    pid_t pid = fork();
    open_endpoint(NULL);
    int from = pid ? up[0] : down[0], to = pid ? down[1] : up[1];
    /* Whose peer ends, ends too. */
    close(pid ? up[1] : down[1]);
    close(pid ? down[0] : up[0]);
    peer = peer_of(from, to);
    fcntl(from, F_SETFL, O_NONBLOCK);
    if (pid == 0) {
        target(from, to);
        pause();
    }
    initiator(from, to);
    /* It closes its regions, and makes no progress then. */
    usleep(100000);
    ends(pid);
    close_endpoint();
    return 0;
}
