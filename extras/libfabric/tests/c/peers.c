/* Identity of a peer: an address that is inserted twice is one peer, and a program that starts anew at the address of one
 * that ended, or was killed, is served, whoever speaks first and whether this side has noticed the end or not.
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "endpoint.h"

enum { LENGTH = 64, LONG = 3000001, LIVES = 8 };

static char out[LONG], in[LONG];

static struct sockaddr_in address_of(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

static int own_port(void) {
    struct sockaddr_in own;
    size_t length = sizeof own;
    CHECK(fi_getname(&ep->fid, &own, &length));
    return ntohs(own.sin_port);
}

static fi_addr_t insert(int port) {
    struct sockaddr_in address = address_of(port);
    fi_addr_t number = FI_ADDR_UNSPEC;
    if (fi_av_insert(av, &address, 1, &number, 0, NULL) != 1)
        fail("fi_av_insert");
    return number;
}

/* Waits for a message: other requests may fail meanwhile, but not this. */
static void received(const void *context, int tag) {
    struct fi_cq_tagged_entry entry;
    for (;;) {
        int code = complete(&entry);
        if (entry.op_context != context)
            continue;
        if (code)
            fail(fi_strerror(code));
        if (entry.tag != (uint64_t)tag)
            fail("another message");
        return;
    }
}

/* Sends until it arrived: a connection that the peer lost is not known at once. */
static void sent(fi_addr_t to, size_t length, int tag) {
    struct fi_cq_tagged_entry entry;
    for (int attempt = 0; attempt < 10000; attempt++) {
        CHECK(fi_tsend(ep, out, length, NULL, to, tag, out));
        int code;
        do
            code = complete(&entry);
        while (entry.op_context != out);
        if (code == 0)
            return;
        if (code != FI_ECONNRESET)
            fail(fi_strerror(code));
        usleep(1000);
    }
    fail("the peer is not served");
}

static void injected(fi_addr_t to, int tag) {
    for (time_t end = time(NULL) + BOUND_S; time(NULL) < end;) {
        long code = fi_tinject(ep, out, LENGTH, to, tag);
        if (code == 0)
            return;
        if (code != -FI_EAGAIN && code != -FI_ECONNRESET)
            fail(fi_strerror(-code));
        fi_cq_read(cq, NULL, 0);
    }
    fail("an injected send is not taken");
}

/* The other process of the two: each life speaks first or answers, with short and long messages, and ends by itself or is
 * killed. */
struct life {
    int speaks_first, is_killed;
    size_t length;
};

static struct life life_of(int number) {
    struct life life = {.speaks_first = number & 1, .is_killed = number & 2, .length = number & 4 ? LONG : LENGTH};
    return life;
}

static void live(int number, int port, int parent, int ready) {
    struct life life = life_of(number);
    char text[16];
    alarm(2 * BOUND_S);
    snprintf(text, sizeof text, "%d", port);
    open_endpoint(text);
    fi_addr_t to = insert(parent);
    CHECK(fi_trecv(ep, in, LONG, NULL, to, number, 0, in));
    if (write(ready, "r", 1) != 1)
        fail("ready");
    if (life.speaks_first)
        sent(to, life.length, number);
    received(in, number);
    if (!life.speaks_first)
        sent(to, life.length, number);
    if (life.is_killed) {
        if (write(ready, "k", 1) != 1)
            fail("ready");
        for (;;)
            fi_cq_read(cq, NULL, 0);
    }
    close_endpoint();
    exit(0);
}

static void restarts(int port, fi_addr_t to) {
    int parent = own_port(), status;
    for (int number = 0; number < LIVES; number++) {
        struct life life = life_of(number);
        int ready[2];
        char letter;
        if (pipe(ready))
            fail("pipe");
        /* Posted before and after the connection ends: from any peer, as it would fail with the last life. */
        CHECK(fi_trecv(ep, in, LONG, NULL, FI_ADDR_UNSPEC, number, 0, in));
        pid_t child = fork();
        if (child == 0)
            execl("/proc/self/exe", "peers", "live", (snprintf(in, 64, "%d", number), in), (snprintf(in + 64, 64, "%d", port), in + 64),
                  (snprintf(in + 128, 64, "%d", parent), in + 128), (snprintf(in + 192, 64, "%d", ready[1]), in + 192), (char *)0);
        close(ready[1]);
        if (read(ready[0], &letter, 1) != 1)
            fail("the peer found an error");
        if (life.speaks_first)
            received(in, number);
        if (number % 3 == 0 && life.length == LENGTH)
            injected(to, number);
        else
            sent(to, life.length, number);
        if (!life.speaks_first)
            received(in, number);
        if (life.is_killed) {
            while (read(ready[0], &letter, 1) != 1)
                fail("the peer found an error");
            kill(child, SIGKILL);
        }
        /* A long message is read by the peer as long as this side makes progress. */
        while (waitpid(child, &status, WNOHANG) == 0)
            fi_cq_read(cq, NULL, 0);
        if (life.is_killed ? !WIFSIGNALED(status) : status != 0)
            fail("the peer found an error");
        close(ready[0]);
        /* The end is noticed before the next life, or not. */
        for (int polls = 0; polls < 1000 * (number % 2); polls++)
            fi_cq_read(cq, NULL, 0);
    }
}

/* Numbers of one address, and receives that name any of them. */
static void is_one_peer(void) {
    int port = own_port();
    fi_addr_t first = insert(port), second = insert(port);
    struct sockaddr_in found;
    size_t length = sizeof found;
    struct fi_cq_tagged_entry entry;
    if (first != second)
        fail("an address with two numbers");
    for (int late = 0; late < 2; late++) {
        if (!late)
            CHECK(fi_trecv(ep, in, LENGTH, NULL, second, 7, 0, in));
        CHECK(fi_tsend(ep, out, LENGTH, NULL, first, 7, out));
        if (late)
            CHECK(fi_trecv(ep, in, LENGTH, NULL, second, 7, 0, in));
        for (int left = 2; left; left--)
            if (complete(&entry))
                fail("a message to this side itself");
    }
    CHECK(fi_av_remove(av, &first, 1, 0));
    if (fi_av_lookup(av, second, &found, &length) || ntohs(found.sin_port) != port)
        fail("removed once, inserted twice");
    CHECK(fi_av_remove(av, &second, 1, 0));
    if (fi_av_lookup(av, second, &found, &length) != -FI_EINVAL || fi_tsend(ep, out, LENGTH, NULL, second, 7, NULL) != -FI_EINVAL)
        fail("removed");
    fi_addr_t again = insert(port);
    CHECK(fi_trecv(ep, in, LENGTH, NULL, again, 8, 0, in));
    CHECK(fi_tsend(ep, out, LENGTH, NULL, again, 8, out));
    for (int left = 2; left; left--)
        if (complete(&entry))
            fail("a message after another insertion");
}

int main(int count, char **words) {
    if (count == 6)
        live(atoi(words[2]), atoi(words[3]), atoi(words[4]), atoi(words[5]));
    /* A port of the peer that is free, and stays so. */
    open_endpoint(NULL);
    int port = own_port();
    close_endpoint();
    open_endpoint(NULL);
    is_one_peer();
    restarts(port, insert(port));
    close_endpoint();
    return 0;
}
