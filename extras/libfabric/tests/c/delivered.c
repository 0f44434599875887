/* A send with FI_DELIVERY_COMPLETE is reported when its message is in the receive's buffer, not before: of every length,
 * tagged and not, with FI_INJECT too, and also where the receive is too short for it (fi_endpoint(3)).
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "endpoint.h"

static const size_t SIZES[] = {0, 1, 16, 4073, 65537, 3000001};
enum { COUNT = sizeof SIZES / sizeof *SIZES, LARGEST = 3000001, TAG = 7, QUIET_POLLS = 300 };

static unsigned char buffer[LARGEST];

static void say(int to) {
    if (write(to, "", 1) != 1)
        fail("a word to the peer");
}

static void hear(int from) {
    char word;
    if (read(from, &word, 1) != 1)
        fail("a word of the peer");
}

static void sends(int down, int up, size_t size, int is_tagged, int injects, fi_addr_t to) {
    struct fi_cq_tagged_entry entry;
    uint64_t flags = FI_DELIVERY_COMPLETE | FI_COMPLETION | (injects ? FI_INJECT : 0);
    struct iovec piece = {buffer, size};
    memset(buffer, 5, size);
    if (is_tagged) {
        struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = size > 0, .addr = to, .tag = TAG, .context = buffer};
        CHECK(fi_tsendmsg(ep, &message, flags));
    } else {
        struct fi_msg message = {.msg_iov = &piece, .iov_count = size > 0, .addr = to, .context = buffer};
        CHECK(fi_sendmsg(ep, &message, flags));
    }
    if (injects)
        memset(buffer, 6, size);
    for (int polls = 0; polls < QUIET_POLLS; polls++) {
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            fail("complete before there was a receive");
        usleep(10);
    }
    say(up);
    if (complete(&entry) || entry.op_context != buffer)
        fail("a delivered send");
    /* The receive's completion is there: its program has not read it yet. */
    say(up);
    hear(down);
}

static void receives(int down, int up, size_t size, size_t room, int is_tagged) {
    struct fi_cq_tagged_entry entry;
    memset(buffer, 0, LARGEST);
    hear(up);
    if (is_tagged)
        CHECK(fi_trecv(ep, buffer, room, NULL, FI_ADDR_UNSPEC, TAG, 0, buffer));
    else
        CHECK(fi_recv(ep, buffer, room, NULL, FI_ADDR_UNSPEC, buffer));
    if (complete(&entry) != (room < size ? FI_ETRUNC : 0))
        fail("a receive");
    for (size_t at = 0; at < LARGEST; at++)
        if (buffer[at] != (at < size && at < room ? 5 : 0))
            fail("the bytes of a message");
    hear(up);
    say(down);
}

static void every(int down, int up, int is_sender, fi_addr_t peer) {
    for (int is_tagged = 0; is_tagged < 2; is_tagged++)
        for (int number = 0; number < COUNT; number++)
            for (int injects = 0; injects < (SIZES[number] <= 16 ? 2 : 1); injects++) {
                size_t rooms[] = {LARGEST, SIZES[number] / 2};
                for (int at = 0; at < (SIZES[number] > 0 ? 2 : 1); at++) {
                    if (is_sender)
                        sends(down, up, SIZES[number], is_tagged, injects, peer);
                    else
                        receives(down, up, SIZES[number], rooms[at], is_tagged);
                }
            }
}

int main(void) {
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        fail("pipe");
    alarm(4 * BOUND_S);
    pid_t pid = fork();
    open_endpoint(NULL);
    int is_sender = pid == 0;
    /* Whose peer ends, ends too. */
    close(is_sender ? down[1] : down[0]);
    close(is_sender ? up[0] : up[1]);
    fi_addr_t peer = is_sender ? peer_of(down[0], up[1]) : peer_of(up[0], down[1]);
    every(is_sender ? down[0] : down[1], is_sender ? up[1] : up[0], is_sender, peer);
    close_endpoint();
    int status = 0;
    if (!is_sender && (waitpid(pid, &status, 0) != pid || status != 0))
        fail("the sender");
    return 0;
}
