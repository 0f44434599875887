/* Two processes over the provider: messages of all ways of transport with every byte checked, then one is killed, and
 * requests of the other must fail by themselves.
 *
 * Prints what went wrong and ends with 1, or ends with 0. */
#include "endpoint.h"

/* Copied, gathered from the program's memory, read by the receiver. */
static const size_t SIZES[] = {0, 1, 4072, 4073, 4096, 65536, 65537, 3000001};
enum { COUNT = sizeof SIZES / sizeof *SIZES, LARGEST = 3000001, ROUNDS = 100 };

static fi_addr_t peer;

static unsigned char byte(size_t at, size_t size, int round) { return (unsigned char)(at * 7 + size + round * 31 + at / 251); }

/* Posts a receive, and sends; in the other order when `late`: the message then waits for its receive. */
static void round_trip(unsigned char *out, unsigned char *in, size_t size, int round, int late) {
    struct fi_cq_tagged_entry entry;
    size_t received = 0;
    int left = 2;
    for (size_t at = 0; at < size; at++)
        out[at] = byte(at, size, round);
    memset(in, 0xee, size + 1);
    if (!late)
        CHECK(fi_trecv(ep, in, size, NULL, peer, round, 0, NULL));
    CHECK(fi_tsend(ep, out, size, NULL, peer, round, NULL));
    if (late) {
        usleep(200);
        fi_cq_read(cq, NULL, 0);
        CHECK(fi_trecv(ep, in, size, NULL, FI_ADDR_UNSPEC, 0, ~0ul, NULL));
    }
    for (; left; left--) {
        if (complete(&entry))
            fail("a request failed");
        if (entry.flags & FI_RECV) {
            received = entry.len;
            if (entry.tag != (uint64_t)round)
                fail("tag");
        }
    }
    if (received != size || in[size] != 0xee)
        fail("length");
    for (size_t at = 0; at < size; at++)
        if (in[at] != byte(at, size, round))
            fail("a byte differs");
}

static void talk(void) {
    unsigned char *out = malloc(LARGEST + 1), *in = malloc(LARGEST + 1);
    for (int of = 0; of < COUNT; of++)
        for (int round = 0; round < (SIZES[of] > 100000 ? 4 : ROUNDS); round++)
            round_trip(out, in, SIZES[of], round, round % 2);
    free(out);
    free(in);
}

/* An injected send has no context: that it fails afterwards is not reported, an MPI library would follow NULL. */
static void injected_to_nobody(char *buffer) {
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct fi_cq_tagged_entry entry;
    fi_addr_t to;
    if (fi_av_insert(av, &nobody, 1, &to, 0, NULL) != 1)
        fail("fi_av_insert");
    CHECK(fi_tinject(ep, buffer, 8, to, 1));
    CHECK(fi_tsend(ep, buffer, 8, NULL, to, 1, buffer));
    if (complete(&entry) != FI_ECONNRESET || entry.op_context != buffer)
        fail("a send to an address where nobody listens");
    if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
        fail("a completion of an injected send");
}

int main(void) {
    int down[2], up[2], status;
    struct fi_cq_tagged_entry entry;
    char buffer[64];
    if (pipe(down) || pipe(up))
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        alarm(4 * BOUND_S);
        open_endpoint(NULL);
        peer = peer_of(down[0], up[1]);
        talk();
        if (write(up[1], "done", 4) != 4)
            fail("done");
        for (;;)
            fi_cq_read(cq, &entry, 1);
    }
    close(up[1]);
    open_endpoint(NULL);
    peer = peer_of(up[0], down[1]);
    talk();
    if (read(up[0], buffer, 4) != 4)
        fail("the peer found an error");
    CHECK(fi_trecv(ep, buffer, sizeof buffer, NULL, peer, 1, 0, NULL));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (complete(&entry) != FI_ECONNRESET || !(entry.flags & FI_RECV))
        fail("a receive from a killed peer");
    CHECK(fi_tsend(ep, buffer, sizeof buffer, NULL, peer, 1, NULL));
    if (complete(&entry) != FI_ECONNRESET || !(entry.flags & FI_SEND))
        fail("a send to a killed peer");
    if (fi_tinject(ep, buffer, sizeof buffer, peer, 1) != -FI_ECONNRESET)
        fail("an injected send to a killed peer");
    injected_to_nobody(buffer);
    close_endpoint();
    return 0;
}
