/* Registered memory that goes away, in every way that a program can do it, and the peer's access to it: by Write, Read,
 * atomic operation and Send, short and long. Both ends are in this process. `held`: the access reaches the memory that
 * was registered; `checked`: it fails and ends its connection, or it succeeds. Neither ends the program, nor changes what
 * is at the address meanwhile (`held`). Each line that fails names itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include "ends.h"

#define LENGTH (1 << 20)
#define OLD 0x11
#define NEW 0x22
#define SENT 0x33

static struct meeting meeting;
static int held;
static char own[LENGTH];
static struct ibv_mr *own_memory;

static int is_all(const char *memory, size_t length, int value) {
    for (size_t at = 0; at < length; at++)
        if (memory[at] != value)
            return 0;
    return 1;
}

static enum ibv_wc_status request(struct end *end, enum ibv_wr_opcode opcode, size_t length, void *remote, uint32_t key) {
    struct ibv_sge sge = {(uintptr_t)own, length, own_memory->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = (uintptr_t)remote;
    wr.wr.rdma.rkey = key;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)remote;
        wr.wr.atomic.rkey = key;
        wr.wr.atomic.compare_add = 1;
    }
    CHECK(ibv_post_send(end->id->qp, &wr, &bad) == 0);
    return take(end).status;
}

enum way { STAYS, UNMAPPED, OTHER_MAPPED, NO_RIGHTS, READ_ONLY, DROPPED, FREED, CUT, HOLE, WAYS };
static const char *const WAY[] = {"stays", "munmap", "mmap over it", "PROT_NONE", "PROT_READ", "MADV_DONTNEED", "free", "ftruncate", "hole"};

static int is_of_file(enum way way) { return way == CUT || way == HOLE; }

static char *memory_for(enum way way, int *file) {
    char *memory;
    *file = -1;
    if (way == FREED) {
        /* From a mapping of its own, which goes with it: what the allocator keeps, it gives to others, with a card too. */
        malloc_trim(0);
        memory = aligned_alloc(4096, LENGTH);
        CHECK((char *)sbrk(0) < memory);
    } else if (is_of_file(way)) {
        *file = memfd_create("memory", 0);
        CHECK(*file >= 0 && ftruncate(*file, LENGTH) == 0);
        memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    } else {
        memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    CHECK(memory && memory != MAP_FAILED);
    memset(memory, OLD, LENGTH);
    return memory;
}

static void go_away(enum way way, char *memory, int file) {
    switch (way) {
    case STAYS: break;
    case UNMAPPED: CHECK(munmap(memory, LENGTH) == 0); break;
    case OTHER_MAPPED:
        CHECK(mmap(memory, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
        memset(memory, NEW, LENGTH);
        break;
    case NO_RIGHTS: CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0); break;
    case READ_ONLY: CHECK(mprotect(memory, LENGTH, PROT_READ) == 0); break;
    case DROPPED: CHECK(madvise(memory, LENGTH, MADV_DONTNEED) == 0); break;
    case FREED: free(memory); break;
    case CUT: CHECK(ftruncate(file, 0) == 0); break;
    case HOLE: CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LENGTH) == 0); break;
    case WAYS: break;
    }
}

static void clear_away(enum way way, char *memory, int file) {
    if (way == OTHER_MAPPED && held)
        CHECK(is_all(memory, LENGTH, NEW));
    if (way != UNMAPPED && way != FREED)
        munmap(memory, LENGTH);
    if (file >= 0)
        close(file);
}

/* The pages as the peer sees them. */
static void check_pages(struct end *peer, char *memory, uint32_t key, size_t at, size_t length, int value) {
    memset(own, 0, sizeof own);
    CHECK(request(peer, IBV_WR_RDMA_READ, length, memory + at, key) == IBV_WC_SUCCESS);
    CHECK(is_all(own, length, value));
}

/* Whether an access by address must fail. */
static int is_lost(enum way way, int writes) {
    return way == UNMAPPED || way == NO_RIGHTS || way == CUT || (writes && way == READ_ONLY);
}

enum operation { WRITE, READ, ADD, SEND, OPERATIONS };
static const char *const OPERATION[] = {"Write", "Read", "FetchAdd", "Send"};

static void access_it(enum way way, enum operation operation, size_t length) {
    static char name[100];
    snprintf(name, sizeof name, "%s of %zu bytes, %s, %s", OPERATION[operation], length, WAY[way], held ? "held" : "checked");
    now = name;
    connect_ends(&meeting);
    struct end *peer = &meeting.peer, *owner = &meeting.owner;
    int file;
    char *memory = memory_for(way, &file);
    struct ibv_mr *mr = ibv_reg_mr(meeting.pd, memory, LENGTH, ALL_RIGHTS);
    CHECK(mr);
    struct ibv_sge into = {(uintptr_t)memory + 4096, length, mr->lkey};
    struct ibv_recv_wr *bad, receive = {.sg_list = &into, .num_sge = 1};
    CHECK(operation != SEND || ibv_post_recv(owner->id->qp, &receive, &bad) == 0);
    go_away(way, memory, file);
    memset(own, SENT, sizeof own);
    enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};
    enum ibv_wc_status status = request(peer, opcodes[operation], length, memory + 4096, mr->rkey);
    if (held) {
        CHECK(status == IBV_WC_SUCCESS);
        if (operation == SEND)
            CHECK(take(owner).status == IBV_WC_SUCCESS);
        if (operation == READ)
            CHECK(is_all(own, length, OLD));
        if (operation == WRITE || operation == SEND)
            check_pages(peer, memory, mr->rkey, 4096, length, SENT);
        if (operation == ADD) {
            CHECK(is_all(own, 8, OLD));
            memset(own, OLD, 8);
            (*(uint64_t *)own)++;
            char expected[8];
            memcpy(expected, own, 8);
            CHECK(request(peer, IBV_WR_RDMA_READ, 8, memory + 4096, mr->rkey) == IBV_WC_SUCCESS);
            CHECK(memcmp(own, expected, 8) == 0);
        }
        check_pages(peer, memory, mr->rkey, 0, 4096, OLD);
        check_pages(peer, memory, mr->rkey, 4096 + length, LENGTH - 4096 - length, OLD);
    } else if (is_lost(way, operation != READ)) {
        /* A Write or a Send completes when its bytes were handed over. The owner of the memory hears of the rest. */
        CHECK(operation == WRITE || operation == SEND || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_WR_FLUSH_ERR);
        if (operation == SEND)
            CHECK(take(owner).status == IBV_WC_LOC_PROT_ERR);
    }
    disconnect_ends(&meeting);
    CHECK(ibv_dereg_mr(mr) == 0);
    clear_away(way, memory, file);
}

static void register_what_cannot_be(void) {
    now = "registrations";
    char *memory = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!ibv_reg_mr(meeting.pd, memory, LENGTH, ALL_RIGHTS) && errno == EFAULT);
    CHECK(!ibv_reg_mr(meeting.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(meeting.pd, memory, LENGTH, IBV_ACCESS_REMOTE_READ);
    CHECK(mr && ibv_dereg_mr(mr) == 0);
    CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0);
    CHECK(!ibv_reg_mr(meeting.pd, memory, LENGTH, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);
    /* The last page is missing. */
    CHECK(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0 && munmap(memory + LENGTH - 4096, 4096) == 0);
    CHECK(!ibv_reg_mr(meeting.pd, memory, LENGTH, ALL_RIGHTS) && errno == EFAULT);
    CHECK(munmap(memory, LENGTH) == 0);
    CHECK(!ibv_reg_mr(meeting.pd, memory, LENGTH, ALL_RIGHTS) && errno == EFAULT);
    CHECK(!ibv_reg_mr(meeting.pd, NULL, 4096, ALL_RIGHTS) && errno == EFAULT);
    CHECK(!ibv_reg_mr(meeting.pd, own, 0, ALL_RIGHTS) && errno == EINVAL);
    CHECK(!ibv_reg_mr(meeting.pd, (void *)-4096, 8192, ALL_RIGHTS));
    /* Calls of libibverbs that are newer than the installed headers. */
    struct { size_t length; int access; uint64_t comp_mask, iova; void *addr; } attributes = {LENGTH, ALL_RIGHTS, 2, 0, own};
    struct ibv_mr *(*by_attributes)(struct ibv_pd *, void *) = dlsym(RTLD_DEFAULT, "ibv_reg_mr_ex");
    struct ibv_mr *(*of_buffer)(struct ibv_pd *, void *, void *, size_t, int) = dlsym(RTLD_DEFAULT, "ibv_reg_buf_mr");
    CHECK(by_attributes && of_buffer);
    CHECK((mr = by_attributes(meeting.pd, &attributes)) && mr->addr == own && ibv_dereg_mr(mr) == 0);
    attributes.comp_mask = 1;
    CHECK(!by_attributes(meeting.pd, &attributes) && errno == EINVAL);
    attributes.comp_mask = 2 | 4;
    CHECK(!by_attributes(meeting.pd, &attributes) && errno == EOPNOTSUPP);
    CHECK((mr = of_buffer(meeting.pd, NULL, own, LENGTH, ALL_RIGHTS)) && mr->length == LENGTH && ibv_dereg_mr(mr) == 0);
    CHECK(!of_buffer(meeting.pd, NULL, NULL, LENGTH, ALL_RIGHTS) && errno == EFAULT);
    /* A mapping of a file. */
    char path[] = "/var/tmp/memory-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, LENGTH) == 0);
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(mr = ibv_reg_mr(meeting.pd, memory, LENGTH, ALL_RIGHTS));
    CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, LENGTH) == 0 && close(file) == 0);
    /* More registrations at a time than there are entries for pages that are held. */
    static struct ibv_mr *many[17000];
    for (int number = 0; number < 17000; number++)
        CHECK(many[number] = ibv_reg_mr(meeting.pd, own + 64 * (number % 1000), 64, ALL_RIGHTS));
    for (int number = 0; number < 17000; number++)
        CHECK(ibv_dereg_mr(many[number]) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    held = strcmp(arguments[2], "held") == 0;
    CHECK(mallopt(M_MMAP_THRESHOLD, LENGTH / 2) == 1);
    open_meeting(&meeting, arguments[1]);
    CHECK(own_memory = ibv_reg_mr(meeting.pd, own, sizeof own, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    for (enum way way = 0; way < WAYS; way++)
        for (enum operation operation = 0; operation < OPERATIONS; operation++) {
            size_t lengths[] = {8, 5000, 65536, 300000};
            for (int length = 0; length < (operation == ADD ? 1 : 4); length++)
                access_it(way, operation, lengths[length]);
        }
    register_what_cannot_be();
    puts("memory");
    return 0;
}
