/* Memory that one process registers for another: what tests of it have in common. */
#include "endpoint.h"
#include <fcntl.h>
#include <rdma/fi_rma.h>

static inline void is(const char *what, long value, long expected) {
    if (value != expected) {
        fprintf(stderr, "%s: %ld instead of %ld\n", what, value, expected);
        exit(1);
    }
}

static inline void say(int to) {
    if (write(to, "", 1) != 1)
        fail("a word to the peer");
}

/* Hears a word of the peer, until then with progress. */
static inline void hear(int from) {
    char word;
    struct fi_cq_tagged_entry entry;
    for (time_t end = time(NULL) + BOUND_S; read(from, &word, 1) != 1;)
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN || time(NULL) > end)
            fail("a word of the peer");
}

static inline void meet(int from, int to) {
    say(to);
    hear(from);
}

static inline struct fid_mr *registers(void *base, size_t length, uint64_t access, uint64_t key) {
    struct fid_mr *region;
    CHECK(fi_mr_reg(domain, base, length, access, 0, key, 0, &region, NULL));
    if (fi_mr_key(region) != key)
        fail("the key that was asked for");
    return region;
}
