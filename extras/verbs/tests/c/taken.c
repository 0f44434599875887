/* Mixed traffic between two ends of this process, in several threads, while another thread takes registered memory away
 * at random. Each byte is compared: what arrives is looked at by its owner where the memory is still there, else by
 * RDMA. `held`: nothing fails, and what is at the address meanwhile stays as it is; `checked`: only accesses to memory
 * that was taken fail. Each line that fails names itself.
 *
 *     taken ADDRESS held|checked BATCHES|SECONDSs SEED
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <fcntl.h>
#include "ends.h"

#define PAIRS 3
#define REGIONS 4
/* Of the peer's: those whose bytes it sends; it reads into the others. */
#define SENT 2
#define SLOTS 16
#define SLOT 65536
#define LENGTH (SLOTS * SLOT)

/* What happens to memory after its registration. From MOVED on, something else is at its address: what is not held, and
 * what a program sends itself (docs/design/0004), is then what is there. */
enum way { STAYS, READ_ONLY, FORKED, NO_RIGHTS, CUT, LAST_WITHOUT_OTHER = CUT, MOVED, UNMAPPED, OTHER_MAPPED, DROPPED, FREED, HOLE, WAYS };

struct region {
    pthread_mutex_t lock;
    enum way will, way;
    char *memory;
    /* Where the program sees the registered pages, and what else is at their address. */
    char *view, *other;
    int other_value, file;
    struct ibv_mr *mr;
    /* The bytes that the pages should have. */
    char *expected;
};

struct pair {
    unsigned seed;
    struct meeting at;
    /* The peer's and the owner's. */
    struct region regions[2][REGIONS];
    /* Two slots that nobody takes. */
    char *scratch;
    struct ibv_mr *scratch_memory;
};

/* One work request, and what of it both ends hold. */
struct transfer {
    struct region *local, *remote;
    size_t local_at, remote_at, length;
};

static struct pair pairs[PAIRS];
static int held;
static atomic_int done, taken;
static atomic_ullong compared, failed, batches;

static unsigned below(unsigned *seed, unsigned limit) { return (unsigned)rand_r(seed) % limit; }

static struct region *region_of(struct pair *pair, int number) { return &pair->regions[number / REGIONS][number % REGIONS]; }

static int is_of_file(enum way way) { return way == CUT || way == HOLE; }

static void open_region(struct pair *pair, struct region *region) {
    int is_sent = region < pair->regions[0] + SENT;
    region->will = 1 + below(&pair->seed, held && !is_sent ? WAYS - 1 : LAST_WITHOUT_OTHER);
    region->way = STAYS;
    region->other = NULL;
    region->file = -1;
    int rights = PROT_READ | PROT_WRITE;
    if (region->will == FREED) {
        region->memory = aligned_alloc(4096, LENGTH);
    } else if (is_of_file(region->will)) {
        CHECK((region->file = memfd_create("memory", MFD_CLOEXEC)) >= 0 && ftruncate(region->file, LENGTH) == 0);
        region->memory = mmap(NULL, LENGTH, rights, MAP_SHARED, region->file, 0);
    } else {
        region->memory = mmap(NULL, LENGTH, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    CHECK(region->memory && region->memory != MAP_FAILED);
    uint32_t value = (uint32_t)rand_r(&pair->seed);
    for (size_t at = 0; at < LENGTH; at += 4, value = value * 1664525 + 1013904223)
        memcpy(region->expected + at, &value, 4);
    memcpy(region->memory, region->expected, LENGTH);
    region->view = region->memory;
    CHECK(region->mr = ibv_reg_mr(pair->at.pd, region->memory, LENGTH, ALL_RIGHTS));
}

static void put_other(struct region *region, int how, int value) {
    char *other = mmap(region->memory, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
    /* Another thread's may be there already. */
    if (other == MAP_FAILED)
        return;
    CHECK(other == region->memory);
    region->other = memset(other, region->other_value = value, LENGTH);
}

/* Takes the memory of a region away, of which the library is not told. */
static void take_away(struct region *region, int value) {
    region->way = region->will;
    char *memory = region->memory;
    switch (region->way) {
    case READ_ONLY: CHECK(mprotect(memory, LENGTH, PROT_READ) == 0); return;
    case FORKED: {
        pid_t child = fork();
        if (child == 0) {
            memset(memory, value, LENGTH);
            _exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
        return;
    }
    case NO_RIGHTS: CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0); break;
    case CUT: CHECK(ftruncate(region->file, 0) == 0); break;
    case MOVED: {
        char *place = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(place != MAP_FAILED);
        region->view = mremap(memory, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        CHECK(region->view == place);
        put_other(region, MAP_FIXED_NOREPLACE, value);
        return;
    }
    case UNMAPPED:
        CHECK(munmap(memory, LENGTH) == 0);
        put_other(region, MAP_FIXED_NOREPLACE, value);
        break;
    case FREED:
        free(memory);
        put_other(region, MAP_FIXED_NOREPLACE, value);
        break;
    case OTHER_MAPPED: put_other(region, MAP_FIXED, value); break;
    case DROPPED:
        CHECK(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
        region->other = memory;
        region->other_value = 0;
        break;
    case HOLE:
        CHECK(fallocate(region->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LENGTH) == 0);
        region->other = memory;
        region->other_value = 0;
        break;
    case STAYS: case WAYS: CHECK(!"a way");
    }
    region->view = NULL;
}

static void close_region(struct region *region) {
    if (region->other)
        for (size_t at = 0; at < LENGTH; at++)
            CHECK(region->other[at] == (char)region->other_value);
    if (region->view)
        CHECK(memcmp(region->view, region->expected, LENGTH) == 0);
    CHECK(ibv_dereg_mr(region->mr) == 0);
    if (region->will == FREED && region->way == STAYS) {
        free(region->memory);
    } else {
        if (region->view && region->view != region->memory)
            CHECK(munmap(region->view, LENGTH) == 0);
        if (region->other || (region->way != UNMAPPED && region->way != FREED && region->way != MOVED))
            CHECK(munmap(region->memory, LENGTH) == 0);
    }
    if (region->file >= 0)
        close(region->file);
}

static void *take_at_random(void *of) {
    unsigned seed = *(unsigned *)of;
    while (!done) {
        struct pair *pair = &pairs[below(&seed, PAIRS)];
        struct region *region = &pair->regions[below(&seed, 2)][below(&seed, REGIONS)];
        pthread_mutex_lock(&region->lock);
        if (region->way == STAYS) {
            take_away(region, 1 + below(&seed, 255));
            taken++;
        }
        pthread_mutex_unlock(&region->lock);
        usleep(below(&seed, held ? 1000 : 30000));
    }
    return NULL;
}

/* A connection that has ended takes no more requests. */
static int is_posted(struct end *end, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad;
    int error = ibv_post_send(end->id->qp, wr, &bad);
    CHECK(error == 0 || error == ENOTCONN);
    return error == 0;
}

static int is_of_owner(struct pair *pair, struct region *region) { return region >= pair->regions[1]; }

static int read_by(struct pair *pair, struct end *end, uintptr_t remote, uint32_t key, char *into, size_t length) {
    struct ibv_sge own = {(uintptr_t)into, length, pair->scratch_memory->lkey};
    struct ibv_send_wr wr = {.sg_list = &own, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = key;
    enum ibv_wc_status status = is_posted(end, &wr) ? take(end).status : IBV_WC_WR_FLUSH_ERR;
    now = ibv_wc_status_str(status);
    return status == IBV_WC_SUCCESS;
}

/* A Read comes after what was written before it (RFC 5040, section 5.5): with it, the bytes of Writes are there. */
static int flush(struct pair *pair) {
    return read_by(pair, &pair->at.peer, (uintptr_t)pair->scratch, pair->scratch_memory->rkey, pair->scratch + SLOT, 1);
}

/* Compares the slot of a region that a batch has changed. */
static void compare(struct pair *pair, struct region *region, size_t at) {
    const char *expected = region->expected + at;
    pthread_mutex_lock(&region->lock);
    int seen = region->view != NULL;
    if (seen)
        CHECK(memcmp(region->view + at, expected, SLOT) == 0);
    pthread_mutex_unlock(&region->lock);
    if (!seen && held) {
        /* Its pages, as the other end sees them. */
        struct end *end = is_of_owner(pair, region) ? &pair->at.peer : &pair->at.owner;
        CHECK(read_by(pair, end, (uintptr_t)region->memory + at, region->mr->rkey, pair->scratch, SLOT));
        CHECK(memcmp(pair->scratch, expected, SLOT) == 0);
    }
    compared += seen || held ? SLOT : 0;
}

static size_t random_length(unsigned *seed) {
    static const unsigned limits[] = {65, 4097, SLOT + 1};
    return below(seed, limits[below(seed, 3)]);
}

static void shuffle(unsigned *seed, int *slots) {
    for (int number = 0; number < SLOTS; number++) {
        int other = (int)below(seed, (unsigned)number + 1);
        slots[number] = slots[other];
        slots[other] = number;
    }
}

enum kind { WRITE, WRITE_WITH_DATA, READ, ADD, SEND, SEND_WITH_DATA, KINDS };
static const enum ibv_wr_opcode OPCODES[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};

static void post_receive(struct pair *pair, enum kind kind, struct transfer *transfer, int number) {
    size_t room = SLOT - transfer->remote_at % SLOT;
    struct ibv_sge into = {(uintptr_t)transfer->remote->memory + transfer->remote_at, room, transfer->remote->mr->lkey};
    struct ibv_recv_wr *bad, receive = {.wr_id = (uint64_t)number, .sg_list = &into, .num_sge = kind == WRITE_WITH_DATA ? 0 : 1};
    CHECK(ibv_post_recv(pair->at.owner.id->qp, &receive, &bad) == 0);
}

static int post(struct pair *pair, enum kind kind, struct transfer *transfer, int number) {
    size_t first = below(&pair->seed, 2) ? transfer->length : below(&pair->seed, transfer->length + 1);
    uintptr_t local = (uintptr_t)transfer->local->memory + transfer->local_at;
    struct ibv_sge own[] = {{local, first, transfer->local->mr->lkey}, {local + first, transfer->length - first, transfer->local->mr->lkey}};
    int pieces = kind == ADD || kind == READ || first == transfer->length ? 1 : 2;
    own[0].length = pieces == 1 ? transfer->length : first;
    struct ibv_send_wr wr = {.wr_id = (uint64_t)number, .sg_list = own, .num_sge = pieces, .opcode = OPCODES[kind], .send_flags = IBV_SEND_SIGNALED};
    wr.imm_data = htonl((uint32_t)number * 77);
    wr.wr.rdma.remote_addr = (uintptr_t)transfer->remote->memory + transfer->remote_at;
    wr.wr.rdma.rkey = transfer->remote->mr->rkey;
    if (kind == ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)transfer->remote->memory + transfer->remote_at;
        wr.wr.atomic.rkey = transfer->remote->mr->rkey;
        wr.wr.atomic.compare_add = (uint64_t)number + 3;
    }
    return is_posted(&pair->at.peer, &wr);
}

/* What the requests should have done. */
static void carry(enum kind kind, struct transfer *transfer, int number) {
    char *local = transfer->local->expected + transfer->local_at, *remote = transfer->remote->expected + transfer->remote_at;
    if (kind == READ || kind == ADD)
        memcpy(local, remote, transfer->length);
    else
        memcpy(remote, local, transfer->length);
    if (kind == ADD)
        *(uint64_t *)(void *)remote += (uint64_t)number + 3;
}

/* Up to sixteen requests at a time, no two of which share a byte. Returns whether all succeeded; else the connection is
 * ended. */
static int batch(struct pair *pair) {
    struct transfer transfers[SLOTS];
    int local[SLOTS], remote[SLOTS], count = 1 + (int)below(&pair->seed, SLOTS);
    enum kind kind = below(&pair->seed, KINDS);
    int receives = kind == SEND || kind == SEND_WITH_DATA || kind == WRITE_WITH_DATA;
    shuffle(&pair->seed, local);
    shuffle(&pair->seed, remote);
    for (int number = 0; number < count; number++) {
        struct transfer *transfer = &transfers[number];
        transfer->local = &pair->regions[0][below(&pair->seed, SENT) + (kind == READ || kind == ADD ? SENT : 0)];
        transfer->remote = &pair->regions[1][below(&pair->seed, REGIONS)];
        transfer->length = kind == ADD ? 8 : random_length(&pair->seed);
        /* One of no bytes is in its slot too, not behind it. */
        unsigned room = SLOT - (unsigned)transfer->length + (transfer->length > 0);
        transfer->local_at = (size_t)local[number] * SLOT + below(&pair->seed, room);
        transfer->remote_at = (size_t)remote[number] * SLOT + below(&pair->seed, room) / 8 * 8;
        if (receives)
            post_receive(pair, kind, transfer, number);
    }
    int posted = 0;
    while (posted < count && post(pair, kind, &transfers[posted], posted))
        posted++;
    int whole = posted == count;
    for (int number = 0; number < posted; number++) {
        struct ibv_wc completion = take(&pair->at.peer);
        CHECK(completion.wr_id == (uint64_t)number);
        whole &= completion.status == IBV_WC_SUCCESS;
    }
    whole = whole && flush(pair);
    for (int number = 0; receives && number < count; number++) {
        struct ibv_wc completion = take(&pair->at.owner);
        CHECK(completion.wr_id == (uint64_t)number);
        whole &= completion.status == IBV_WC_SUCCESS;
        CHECK(completion.status || completion.byte_len == transfers[number].length);
        CHECK(completion.status || kind == SEND || (completion.wc_flags & IBV_WC_WITH_IMM && completion.imm_data == htonl((uint32_t)number * 77)));
    }
    batches++;
    for (int number = 0; number < count; number++)
        carry(kind, &transfers[number], number);
    for (int number = 0; whole && number < count; number++) {
        struct transfer *transfer = &transfers[number];
        if (kind != READ)
            compare(pair, transfer->remote, transfer->remote_at / SLOT * SLOT);
        if (kind == READ || kind == ADD)
            compare(pair, transfer->local, transfer->local_at / SLOT * SLOT);
    }
    if (whole)
        return 1;
    /* What of them is there is not known, once nothing more comes: their slots are left out. */
    disconnect_ends(&pair->at);
    for (int number = 0; number < count; number++) {
        struct transfer *transfer = &transfers[number];
        struct region *changed[] = {transfer->local, transfer->remote};
        size_t at[] = {transfer->local_at / SLOT * SLOT, transfer->remote_at / SLOT * SLOT};
        for (int side = 0; side < 2; side++) {
            pthread_mutex_lock(&changed[side]->lock);
            if (changed[side]->view)
                memcpy(changed[side]->expected + at[side], changed[side]->view + at[side], SLOT);
            pthread_mutex_unlock(&changed[side]->lock);
        }
    }
    return 0;
}

static int is_missing_any(struct pair *pair) {
    int missing = 0;
    for (int number = 0; number < 2 * REGIONS; number++) {
        struct region *region = region_of(pair, number);
        pthread_mutex_lock(&region->lock);
        missing |= region->way != STAYS;
        pthread_mutex_unlock(&region->lock);
    }
    return missing;
}

static void replace(struct pair *pair, int all) {
    for (int number = 0; number < 2 * REGIONS; number++) {
        struct region *region = region_of(pair, number);
        pthread_mutex_lock(&region->lock);
        if (all || below(&pair->seed, 8 * REGIONS) == 0) {
            close_region(region);
            open_region(pair, region);
        }
        pthread_mutex_unlock(&region->lock);
    }
}

static void *carry_batches(void *of) {
    struct pair *pair = of;
    while (!done) {
        if (batch(pair)) {
            replace(pair, 0);
            continue;
        }
        CHECK(!held && is_missing_any(pair));
        failed++;
        replace(pair, 1);
        connect_ends(&pair->at);
    }
    disconnect_ends(&pair->at);
    for (int number = 0; number < 2 * REGIONS; number++) {
        struct region *region = region_of(pair, number);
        pthread_mutex_lock(&region->lock);
        close_region(region);
        /* Nothing is left to take. */
        region->way = WAYS;
        pthread_mutex_unlock(&region->lock);
    }
    CHECK(ibv_dereg_mr(pair->scratch_memory) == 0);
    return NULL;
}

static void open_pair(struct pair *pair, const char *address, unsigned seed) {
    pair->seed = seed;
    open_meeting(&pair->at, address);
    CHECK(pair->scratch = calloc(2, SLOT));
    CHECK(pair->scratch_memory = ibv_reg_mr(pair->at.pd, pair->scratch, 2 * SLOT, ALL_RIGHTS));
    for (int number = 0; number < 2 * REGIONS; number++) {
        struct region *region = region_of(pair, number);
        CHECK(pthread_mutex_init(&region->lock, NULL) == 0 && (region->expected = malloc(LENGTH)));
        open_region(pair, region);
    }
    connect_ends(&pair->at);
}

int main(int count, char **arguments) {
    CHECK(count == 5);
    held = strcmp(arguments[2], "held") == 0;
    char *unit;
    unsigned long long limit = strtoull(arguments[3], &unit, 10);
    unsigned seed = (unsigned)atoi(arguments[4]);
    /* Memory of this length has a mapping of its own, which goes with it. */
    CHECK(mallopt(M_MMAP_THRESHOLD, LENGTH / 2) == 1);
    for (int number = 0; number < PAIRS; number++)
        open_pair(&pairs[number], arguments[1], seed + 1 + (unsigned)number);
    pthread_t taker, threads[PAIRS];
    CHECK(pthread_create(&taker, NULL, take_at_random, &seed) == 0);
    for (int number = 0; number < PAIRS; number++)
        CHECK(pthread_create(&threads[number], NULL, carry_batches, &pairs[number]) == 0);
    time_t start = time(NULL);
    while (*unit ? time(NULL) - start < (time_t)limit : batches < limit)
        usleep(10000);
    done = 1;
    for (int number = 0; number < PAIRS; number++)
        CHECK(pthread_join(threads[number], NULL) == 0);
    CHECK(pthread_join(taker, NULL) == 0);
    fprintf(stderr, "taken %d times, %llu batches, %llu failed, %llu MiB compared\n", taken, batches, failed, compared >> 20);
    CHECK(taken > 0 && batches > 0 && compared > 0 && (held || failed > 0));
    puts("taken");
    return 0;
}
