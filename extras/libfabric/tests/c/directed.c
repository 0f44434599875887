/* Receives that name a peer take its messages and no other's, whichever comes first: of every way of transport, tagged and
 * not, posted before the messages come and after. Without the capability the name does not matter (fi_getinfo(3)).
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "endpoint.h"

/* By copy, gathered, straight to the receive, and read by the receiver. */
static const size_t SIZES[] = {16, 4073, 65537, 3000001};
enum { COUNT = sizeof SIZES / sizeof *SIZES, LARGEST = 3000001, SENDERS = 2, TAG = 7, QUIET_POLLS = 2000 };

struct sender {
    pid_t pid;
    int down, up;
    fi_addr_t address;
};

/* What a sender is told: to send a message. */
struct order {
    size_t size;
    int is_tagged;
};

static struct sender senders[SENDERS];
static unsigned char buffers[SENDERS + 1][LARGEST];

static void sends(int number, int down, int up) {
    struct order order;
    struct fi_cq_tagged_entry entry;
    fi_addr_t to = peer_of(down, up);
    while (read(down, &order, sizeof order) == sizeof order) {
        memset(buffers[0], number + 1, order.size);
        if (order.is_tagged)
            CHECK(fi_tsend(ep, buffers[0], order.size, NULL, to, TAG, NULL));
        else
            CHECK(fi_send(ep, buffers[0], order.size, NULL, to, NULL));
        if (write(up, "", 1) != 1)
            fail("a sender's reply");
        if (complete(&entry))
            fail("a send");
    }
    close_endpoint();
    exit(0);
}

static void start(int number) {
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        fail("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        alarm(4 * BOUND_S);
        close(down[1]);
        for (int other = 0; other < number; other++)
            close(senders[other].down);
        open_endpoint(NULL);
        sends(number, down[0], up[1]);
    }
    close(down[0]);
    senders[number] = (struct sender){.pid = pid, .down = down[1], .up = up[0]};
}

static void order(int number, size_t size, int is_tagged) {
    struct order order = {.size = size, .is_tagged = is_tagged};
    char reply;
    if (write(senders[number].down, &order, sizeof order) != sizeof order || read(senders[number].up, &reply, 1) != 1)
        fail("an order");
}

/* Posts a receive into the buffer of this number. */
static void post(int into, fi_addr_t from, int is_tagged) {
    unsigned char *buffer = buffers[into];
    memset(buffer, 0, LARGEST);
    if (is_tagged)
        CHECK(fi_trecv(ep, buffer, LARGEST, NULL, from, TAG, 0, buffer));
    else
        CHECK(fi_recv(ep, buffer, LARGEST, NULL, from, buffer));
}

/* The next completion is that of a buffer, with the message of a sender. */
static void expect(int into, int sender, size_t size, const char *what) {
    struct fi_cq_tagged_entry entry;
    if (complete(&entry))
        fail("a receive failed");
    if (entry.op_context != buffers[into] || entry.len != size)
        fail(what);
    for (size_t at = 0; at < size; at++)
        if (buffers[into][at] != sender + 1)
            fail(what);
}

/* Nothing is received, although what was sent has come, or most of it. */
static void nothing(const char *what) {
    struct fi_cq_tagged_entry entry;
    for (int polls = 0; polls < QUIET_POLLS; polls++) {
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            fail(what);
        usleep(10);
    }
}

/* Whether a message of a sender is there. */
static int peek(int sender) {
    struct fi_cq_tagged_entry entry;
    struct fi_msg_tagged message = {.addr = senders[sender].address, .tag = TAG, .context = &message};
    CHECK(fi_trecvmsg(ep, &message, FI_PEEK | FI_COMPLETION));
    return complete(&entry) == 0;
}

static void directed(size_t size, int is_tagged) {
    fi_addr_t first = senders[0].address, second = senders[1].address;
    /* Posted before: the later receive is the first to have a message. */
    post(1, second, is_tagged);
    post(0, first, is_tagged);
    order(0, size, is_tagged);
    expect(0, 0, size, "posted: the message of the first sender");
    nothing("posted: a receive for another sender");
    order(1, size, is_tagged);
    expect(1, 1, size, "posted: the message of the second sender");
    /* Posted after: the earlier message is not for it. */
    order(0, size, is_tagged);
    post(1, second, is_tagged);
    nothing("arrived: a receive for another sender");
    if (is_tagged && (peek(1) || !peek(0)))
        fail("a peek for a sender");
    order(1, size, is_tagged);
    expect(1, 1, size, "arrived: the message of the second sender");
    post(0, first, is_tagged);
    expect(0, 0, size, "arrived: the message of the first sender");
    /* Among receives for any sender the first posted that fits is taken. */
    post(1, second, is_tagged);
    post(2, FI_ADDR_UNSPEC, is_tagged);
    post(0, first, is_tagged);
    order(0, size, is_tagged);
    expect(2, 0, size, "any: the message of the first sender");
    order(0, size, is_tagged);
    expect(0, 0, size, "any: the next message of the first sender");
    order(1, size, is_tagged);
    expect(1, 1, size, "any: the message of the second sender");
}

static void undirected(size_t size, int is_tagged) {
    for (int late = 0; late < 2; late++) {
        if (!late)
            post(0, senders[1].address, is_tagged);
        order(0, size, is_tagged);
        if (late)
            post(0, senders[1].address, is_tagged);
        expect(0, 0, size, "a receive whose address does not matter");
    }
}

static void run(int is_directed) {
    int status;
    capabilities = FI_MSG | FI_TAGGED | (is_directed ? FI_DIRECTED_RECV : 0);
    for (int number = 0; number < SENDERS; number++)
        start(number);
    open_endpoint(NULL);
    for (int number = 0; number < SENDERS; number++)
        senders[number].address = peer_of(senders[number].up, senders[number].down);
    for (int of = 0; of < COUNT; of++)
        for (int is_tagged = 0; is_tagged < 2; is_tagged++)
            (is_directed ? directed : undirected)(SIZES[of], is_tagged);
    for (int number = 0; number < SENDERS; number++)
        close(senders[number].down);
    for (int number = 0; number < SENDERS; number++)
        if (waitpid(senders[number].pid, &status, 0) != senders[number].pid || status)
            fail("a sender");
    close_endpoint();
}

int main(void) {
    alarm(4 * BOUND_S);
    run(1);
    run(0);
    return 0;
}
