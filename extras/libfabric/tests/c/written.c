/* Memory that one process registers and another writes: by every call, of lengths of each way of transport, from one piece and
 * from several, with data, in order, to an address of the process, beyond its end, by keys that are wrong, closed or for reads alone, or read, while its region is
 * closed, and in a process that ends. The memory is shared by both processes, so that a write that is complete is seen there.
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "registered.h"
#include <sys/mman.h>

enum { SIZE = (16 << 20) + 77, GUARD = 64, MANY = 200, BESIDE = 16384, ROUNDS = 14, CLOSED = 4 << 20 };
static const uint64_t KEY = 0xfedcba9876543210, READABLE = 0x7edcba9876543210, MIDDLE = 0x3edcba9876543210,
                      WHOLE = 0x1edcba9876543210;

/* What both processes see. */
static struct shared {
    struct seen {
        uint64_t count, flags, data, length, source;
    } seen;
    unsigned char memory[SIZE + GUARD];
} *shared;
static unsigned char source[2 * SIZE], *hole;
static struct fid_cntr *counter;
static uint64_t done, refused, announced;
static fi_addr_t peer;

/* Up to those copied behind the header, those of a call that copies, those of one posted buffer, one MiB, and beyond 16 MiB. */
static const size_t SIZES[] = {0, 1, 8, 1000, 4048, 4049, 4072, 4073, 4176, 4177, 65536, 1 << 20, (1 << 20) + 1, SIZE};
enum { COUNT = sizeof SIZES / sizeof *SIZES, INJECTED = 4072 };

static void fill(unsigned seed, size_t length) {
    for (size_t at = 0; at < length; at++)
        source[at] = (unsigned char)(at * 7 + at / 251 + seed * 31);
}

/* That a range of the target has what the source begins with, and the bytes beside it are untouched. */
static void holds(const char *what, size_t offset, size_t length, unsigned char beside) {
    if (memcmp(shared->memory + offset, source, length))
        fail(what);
    for (size_t at = 1; at <= GUARD; at++)
        if ((offset >= at && shared->memory[offset - at] != beside) ||
            (offset + length + at <= SIZE + GUARD && shared->memory[offset + length + at - 1] != beside))
            fail("beside what is written");
}

/* Waits for a write. */
static void writes(const char *what, void *context, int expected) {
    struct fi_cq_tagged_entry entry;
    is(what, complete(&entry), expected);
    if (entry.op_context != context || entry.flags != (FI_RMA | FI_WRITE))
        fail("whose completion it is");
    if (expected)
        refused++;
    else
        done++;
    is("writes that were counted", fi_cntr_read(counter), done);
    is("failures that were counted", fi_cntr_readerr(counter), refused);
}

/* Waits until an injected write is counted: it has no completion. */
static void is_counted(const char *what) {
    done++;
    if (fi_cntr_wait(counter, done, BOUND_S * 1000))
        fail(what);
    struct fi_cq_tagged_entry entry;
    is("a completion of an injected write", fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
}

/* The target's completion of data that came with a write. */
static void is_announced(uint64_t data, size_t length) {
    volatile struct seen *seen = &shared->seen;
    announced++;
    for (time_t end = time(NULL) + BOUND_S; seen->count < announced;)
        if (time(NULL) > end)
            fail("no completion with the data");
    is("completions with data", seen->count, announced);
    is("data", seen->data, data);
    is("length that came with data", seen->length, length);
    is("flags that came with data", seen->flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    is("who sent the data", seen->source, 0);
}

enum call { WRITE, WRITEV, MESSAGE, MESSAGE_INJECTED, MESSAGE_DATA, INJECT, DATA, INJECT_DATA, CALLS };

static void call(enum call call, size_t length, size_t offset, uint64_t key, uint64_t data) {
    size_t a = length / 3, b = length / 2;
    struct iovec list[4] = {{source, a}, {NULL, 0}, {source + a, b - a}, {source + b, length - b}};
    struct fi_rma_iov range = {.addr = offset, .len = length, .key = key};
    struct fi_msg_rma message = {.msg_iov = list, .iov_count = 4, .addr = peer, .rma_iov = &range, .rma_iov_count = 1};
    message.context = source;
    message.data = data;
    switch (call) {
    case WRITE: CHECK(fi_write(ep, source, length, NULL, peer, offset, key, source)); break;
    case WRITEV: CHECK(fi_writev(ep, list, NULL, 4, peer, offset, key, source)); break;
    case MESSAGE: CHECK(fi_writemsg(ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)); break;
    case MESSAGE_INJECTED: CHECK(fi_writemsg(ep, &message, FI_COMPLETION | FI_INJECT)); break;
    case MESSAGE_DATA: CHECK(fi_writemsg(ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA)); break;
    case INJECT: CHECK(fi_inject_write(ep, source, length, peer, offset, key)); break;
    case DATA: CHECK(fi_writedata(ep, source, length, NULL, data, peer, offset, key, source)); break;
    case INJECT_DATA: CHECK(fi_inject_writedata(ep, source, length, data, peer, offset, key)); break;
    case CALLS: break;
    }
    /* The buffer is the program's again. */
    if (call == INJECT || call == INJECT_DATA || call == MESSAGE_INJECTED)
        memset(source, 0xdd, length);
}

static void every_call_and_length(void) {
    for (unsigned number = 0; number < COUNT * CALLS; number++) {
        enum call of = number % CALLS;
        size_t length = SIZES[number / CALLS], offset = length == SIZE ? 0 : 4000 + number;
        uint64_t data = 0x8000000000000001 + number;
        int is_injected = of == INJECT || of == INJECT_DATA, copies = is_injected || of == MESSAGE_INJECTED;
        if (copies && length > INJECTED) {
            is("too long to be copied", fi_inject_write(ep, source, length, peer, offset, KEY), -FI_EINVAL);
            continue;
        }
        fill(number, length);
        memset(shared->memory, 0xee, length == SIZE ? sizeof shared->memory : length + 2 * 4096);
        call(of, length, offset, KEY, data);
        if (is_injected)
            is_counted("an injected write");
        else
            writes("a write", source, 0);
        if (copies)
            fill(number, length);
        holds("what was written", offset, length, 0xee);
        if (of == MESSAGE_DATA || of == DATA || of == INJECT_DATA)
            is_announced(data, length);
    }
}

static void refusals(void) {
    const struct {
        const char *what;
        size_t length;
        uint64_t offset, key;
    } cases[] = {
        {"one byte beyond the end", 1, SIZE, KEY},
        {"more than is there", SIZE, 1, KEY},
        {"nothing beyond the end", 0, SIZE + 1, KEY},
        {"around the address space", 2, UINT64_MAX, KEY},
        {"an unknown key", 1, 0, KEY + 1},
        {"a key of 32 bits", 1, 0, (uint32_t)KEY},
        {"memory for reads alone", 1, 0, READABLE},
        {"an unknown key, of a full buffer", 4177, 0, KEY + 1},
        {"memory for reads alone, long", 1 << 20, 0, READABLE},
    };
    memset(shared->memory, 0xee, sizeof shared->memory);
    for (size_t of = 0; of < sizeof cases / sizeof *cases; of++) {
        for (enum call by = WRITE; by < CALLS; by++) {
            if ((by == INJECT || by == INJECT_DATA || by == MESSAGE_INJECTED) && cases[of].length > INJECTED)
                continue;
            call(by, cases[of].length, cases[of].offset, cases[of].key, 7);
            /* Injected ones too: the program learns of it. */
            writes(cases[of].what, by == INJECT || by == INJECT_DATA ? NULL : source, FI_EACCES);
        }
    }
    for (size_t at = 0; at < sizeof shared->memory; at++)
        if (shared->memory[at] != 0xee)
            fail("a refused write wrote");
    is("data of refused writes", shared->seen.count, announced);
    struct fi_rma_iov ranges[2] = {{0, 1, KEY}, {1, 1, KEY}};
    struct iovec piece = {source, 2};
    struct fi_msg_rma message = {.msg_iov = &piece, .iov_count = 1, .addr = peer, .rma_iov = ranges, .rma_iov_count = 2};
    is("two ranges", fi_writemsg(ep, &message, FI_COMPLETION), -FI_EINVAL);
    message.rma_iov_count = 1;
    is("another length there", fi_writemsg(ep, &message, FI_COMPLETION), -FI_EINVAL);
    ranges[0].len = 2;
    is("a fence", fi_writemsg(ep, &message, FI_COMPLETION | FI_FENCE), -FI_EOPNOTSUPP);
    is("a counter of peers' writes", fi_ep_bind(ep, &counter->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
}

/* FI_ORDER_WAW, FI_ORDER_RAW: writes to the same memory, of lengths that go different ways, and a read after them. */
static void order(void) {
    static unsigned char back[70000];
    struct fi_cq_tagged_entry entry;
    static uint64_t words[MANY][70000 / 8];
    for (uint64_t number = 0; number < MANY; number++) {
        size_t length = number % 3 == 0 ? 8 : number % 3 == 1 ? 5000 : sizeof back;
        for (size_t at = 0; at < length / 8; at++)
            words[number][at] = number + 1;
        CHECK(fi_write(ep, words[number], length, NULL, peer, 0, KEY, words[number]));
    }
    CHECK(fi_read(ep, back, sizeof back, NULL, peer, 0, KEY, back));
    for (int number = 0; number <= MANY; number++)
        is("one of many", complete(&entry), 0);
    done += MANY;
    /* The last one, the last of 5000 bytes or more, and the last of the longest ones. */
    const size_t places[] = {0, 8, 4992, 5000, 69992};
    for (int place = 0; place < 5; place++) {
        uint64_t expected = 0, is_there;
        for (uint64_t number = 0; number < MANY; number++)
            if (places[place] < (number % 3 == 0 ? 8u : number % 3 == 1 ? 5000u : sizeof back))
                expected = number + 1;
        memcpy(&is_there, back + places[place], 8);
        is("the last of many writes, as it is read", is_there, expected);
        memcpy(&is_there, shared->memory + places[place], 8);
        is("the last of many writes", is_there, expected);
    }
}

/* The whole address space is a region, as MPI libraries register it for dynamic windows: offsets are addresses. What is not
 * mapped is refused, or ends the connection where it was found out too late; the process goes on. */
static void addresses(void) {
    static unsigned char back[70000];
    uint64_t mapped = (uintptr_t)shared->memory + 5, unmapped = (uintptr_t)hole;
    const size_t lengths[] = {1, 4048, 70000};
    for (int of = 0; of < 3; of++) {
        size_t length = lengths[of];
        fill(of, length);
        memset(shared->memory, 0xee, 2 * sizeof back);
        call(WRITE, length, mapped, WHOLE, 0);
        writes("a write to an address", source, 0);
        holds("a write to an address", 5, length, 0xee);
        CHECK(fi_read(ep, back, length, NULL, peer, mapped, WHOLE, back));
        struct fi_cq_tagged_entry entry;
        is("a read from an address", complete(&entry), 0);
        if (memcmp(back, source, length))
            fail("a read from an address");
        call(WRITE, length, unmapped, WHOLE, 0);
        writes("a write to what is not mapped", source, FI_EACCES);
        CHECK(fi_read(ep, back, length, NULL, peer, unmapped, WHOLE, back));
        int code = complete(&entry);
        is("a read from what is not mapped", code, length <= 4048 ? FI_EACCES : FI_ECONNRESET);
    }
    call(WRITE, 1, 0, WHOLE, 0);
    writes("a write to NULL", source, FI_EACCES);
    /* Its beginning is mapped. */
    call(WRITE, 2 * SIZE, (uintptr_t)hole - BESIDE, WHOLE, 0);
    writes("a long write to what is not mapped", source, FI_ECONNRESET);
}

/* Serves the peer until it says a word; notes data that comes with writes. */
static void serve(int from) {
    char word;
    struct fi_cq_tagged_entry entry;
    fi_addr_t sender;
    for (time_t end = time(NULL) + 3 * BOUND_S; read(from, &word, 1) != 1;) {
        long count = fi_cq_readfrom(cq, &entry, 1, &sender);
        if (count == 1) {
            struct seen *seen = &shared->seen;
            seen->flags = entry.flags;
            seen->data = entry.data;
            seen->length = entry.len;
            seen->source = sender;
            __atomic_fetch_add(&seen->count, 1, __ATOMIC_RELEASE);
        } else if (count != -FI_EAGAIN || time(NULL) > end) {
            fail("a word of the peer");
        }
    }
}

static void target(int from, int to) {
    struct fid_mr *region = registers(shared->memory, SIZE, FI_REMOTE_WRITE | FI_REMOTE_READ, KEY);
    struct fid_mr *whole = registers(NULL, SIZE_MAX, FI_REMOTE_WRITE | FI_REMOTE_READ, WHOLE);
    struct fid_mr *readable = registers(shared->memory, SIZE, FI_REMOTE_READ, READABLE);
    meet(from, to);
    serve(from);
    CHECK(fi_close(&region->fid));
    meet(from, to);
    serve(from);
    /* Closed while it is written, or read, at whatever time: no byte changes, or is sent, afterwards. */
    for (int round = 0; round < ROUNDS; round++) {
        struct fi_cq_tagged_entry entry;
        struct timespec begin, now;
        struct fid_mr *middle = registers(shared->memory, CLOSED, FI_REMOTE_WRITE | FI_REMOTE_READ, MIDDLE);
        meet(from, to);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            fi_cq_read(cq, &entry, 1);
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < round * 200000L);
        CHECK(fi_close(&middle->fid));
        memset(shared->memory, 0x11 * round, CLOSED);
        serve(from);
        for (size_t at = 0; at < CLOSED; at++)
            if (shared->memory[at] != 0x11 * round)
                fail("a byte was written after its region was closed");
        say(to);
    }
    CHECK(fi_close(&readable->fid));
    CHECK(fi_close(&whole->fid));
}

static void closed_in_the_middle(int from, int to) {
    for (int round = 0; round < ROUNDS; round++) {
        struct fi_cq_tagged_entry entry;
        int code = 0;
        fill(round, CLOSED);
        meet(from, to);
        while (!code) {
            if (round % 2)
                CHECK(fi_read(ep, source, CLOSED, NULL, peer, 0, MIDDLE, source));
            else
                CHECK(fi_write(ep, source, CLOSED, NULL, peer, 0, MIDDLE, source));
            code = complete(&entry);
            if (round % 2 == 0) {
                done += !code;
                refused += code != 0;
            }
            for (size_t at = 0; round % 2 && !code && at < CLOSED; at++)
                if (source[at] != 0x11 * (round - 1))
                    fail("a byte was read after its region was closed");
        }
        if (code != FI_EACCES && code != FI_ECONNRESET)
            is("a region that is closed while it is written", code, FI_ECONNRESET);
        say(to);
        hear(from);
    }
}

/* The peer does not answer any more, and ends. */
static void ends(pid_t pid) {
    int status;
    CHECK(fi_write(ep, source, SIZE, NULL, peer, 0, READABLE, &done));
    CHECK(fi_inject_write(ep, source, 1, peer, 0, READABLE));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    int own = 0, injected = 0;
    for (int number = 0; number < 2; number++) {
        struct fi_cq_tagged_entry entry;
        is("a peer that ended", complete(&entry), FI_ECONNRESET);
        own += entry.op_context == &done;
        injected += entry.op_context == NULL;
    }
    is("the write that failed", own, 1);
    is("the injected write that failed", injected, 1);
    refused += 2;
    CHECK(fi_write(ep, source, 1, NULL, peer, 0, READABLE, &refused));
    writes("a peer that is not there", &refused, FI_ECONNRESET);
    CHECK(fi_close(&counter->fid));
}

static void initiator(int from, int to) {
    struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP};
    CHECK(fi_cntr_open(domain, &attributes, &counter, NULL));
    CHECK(fi_ep_bind(ep, &counter->fid, FI_WRITE));
    meet(from, to);
    every_call_and_length();
    refusals();
    order();
    addresses();
    say(to);
    meet(from, to);
    memset(shared->memory, 0xee, SIZE);
    call(WRITE, 1, 0, KEY, 0);
    writes("a closed region", source, FI_EACCES);
    call(WRITE, 1 << 20, 0, KEY, 0);
    writes("a closed region, long", source, FI_EACCES);
    is("memory of a closed region", shared->memory[0], 0xee);
    say(to);
    closed_in_the_middle(from, to);
}

int main(void) {
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        fail("pipe");
    alarm(4 * BOUND_S);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
    /* Some pages, and behind them what is mapped without any right. */
    hole = mmap(NULL, BESIDE + 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (hole == MAP_FAILED || mprotect(hole, BESIDE, PROT_READ | PROT_WRITE))
        fail("mmap");
    hole += BESIDE;
    capabilities |= FI_RMA | FI_SOURCE;
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
    ends(pid);
    close_endpoint();
    return 0;
}
