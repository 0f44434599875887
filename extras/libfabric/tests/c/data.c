/* Messages with data for the receiver's completion, by every call and every way of transport, among messages without. */
#include "endpoint.h"

static const size_t SIZES[] = {0, 1, 4072, 4073, 65537, 1000001};
enum { COUNT = sizeof SIZES / sizeof *SIZES, LARGEST = 1000001, INJECTED = 64 };
enum { SEND, SEND_DATA, TAGGED, TAGGED_DATA, INJECT_DATA, INJECT_TAGGED_DATA, MESSAGE, CALLS };

static fi_addr_t peer;
static unsigned char buffer[LARGEST];

static uint64_t data_of(int call, size_t size) { return 0xfedcba9876543210 ^ (size << 8) ^ call; }
static int is_tagged(int call) { return call == TAGGED || call == TAGGED_DATA || call == INJECT_TAGGED_DATA; }
static int is_injected(int call) { return call == INJECT_DATA || call == INJECT_TAGGED_DATA; }

static long call_of(int call, size_t size) {
    uint64_t data = data_of(call, size);
    struct iovec piece = {buffer, size};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = peer, .data = data};
    switch (call) {
    case SEND:
        return fi_send(ep, buffer, size, NULL, peer, NULL);
    case SEND_DATA:
        return fi_senddata(ep, buffer, size, NULL, data, peer, NULL);
    case TAGGED:
        return fi_tsend(ep, buffer, size, NULL, peer, call, NULL);
    case TAGGED_DATA:
        return fi_tsenddata(ep, buffer, size, NULL, data, peer, call, NULL);
    case INJECT_DATA:
        return fi_injectdata(ep, buffer, size, data, peer);
    case INJECT_TAGGED_DATA:
        return fi_tinjectdata(ep, buffer, size, data, peer, call);
    default:
        return fi_sendmsg(ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
    }
}

static void send_all(void) {
    struct fi_cq_tagged_entry entry;
    for (int of = 0; of < COUNT; of++)
        for (int call = 0; call < CALLS; call++) {
            if (is_injected(call) && SIZES[of] > INJECTED)
                continue;
            memset(buffer, call + 1, SIZES[of]);
            CHECK(call_of(call, SIZES[of]));
            if (!is_injected(call) && complete(&entry))
                fail("a send");
        }
}

/* Posted before its message comes, or after. */
static void receive_all(void) {
    struct fi_cq_tagged_entry entry;
    for (int of = 0; of < COUNT; of++)
        for (int call = 0; call < CALLS; call++) {
            size_t size = SIZES[of];
            if (is_injected(call) && size > INJECTED)
                continue;
            CHECK(is_tagged(call) ? fi_trecv(ep, buffer, LARGEST, NULL, peer, call, 0, NULL)
                                  : fi_recv(ep, buffer, LARGEST, NULL, peer, NULL));
            if (complete(&entry) || entry.len != size)
                fail("a receive");
            int has_data = call != SEND && call != TAGGED;
            if (!!(entry.flags & FI_REMOTE_CQ_DATA) != has_data || (has_data && entry.data != data_of(call, size)))
                fail("the data of a completion");
            for (size_t at = 0; at < size; at++)
                if (buffer[at] != call + 1)
                    fail("a byte differs");
        }
}

int main(void) {
    int down[2], up[2], status;
    if (pipe(down) || pipe(up))
        fail("pipe");
    pid_t child = fork();
    alarm(4 * BOUND_S);
    open_endpoint(NULL);
    peer = child ? peer_of(up[0], down[1]) : peer_of(down[0], up[1]);
    if (child)
        receive_all();
    else
        send_all();
    /* Until both have what they wait for. */
    if (child && (write(down[1], "", 1) != 1 || waitpid(child, &status, 0) != child || status))
        fail("the sender");
    if (!child && read(down[0], buffer, 1) != 1)
        fail("the receiver");
    close_endpoint();
    return 0;
}
