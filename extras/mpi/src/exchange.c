/* Ping-pong by NetPIPE's method (a message to and fro, MPI_Send and MPI_Recv),
 * one-way and bidirectional windows of non-blocking messages by that of the OSU
 * micro-benchmarks, each window acknowledged with 4 bytes. */
#include "mpi_rank.h"

static void send_window(struct rank *rank, uint64_t size, MPI_Request *requests) {
    int other = 1 - rank->number;
    for (size_t slot = 0; slot < rank->parameters->window; slot++) {
        unsigned char *message = outgoing(rank, slot, size);
        fill(rank, message, size);
        must(rank, MPI_Isend(message, (int)size, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD, &requests[slot]),
             "send a message");
    }
}

static void post_window(struct rank *rank, uint64_t size, MPI_Request *requests) {
    int other = 1 - rank->number;
    for (size_t slot = 0; slot < rank->parameters->window; slot++) {
        unsigned char *message = incoming(rank, slot, size);
        must(rank, MPI_Irecv(message, (int)size, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD, &requests[slot]),
             "post a receive");
    }
}

static void check_window(struct rank *rank, uint64_t size) {
    for (size_t slot = 0; slot < rank->parameters->window; slot++) check(rank, incoming(rank, slot, size), size);
}

static void wait_all(struct rank *rank, size_t count, MPI_Request *requests) {
    must(rank, MPI_Waitall((int)count, requests, rank->statuses), "complete messages");
}

static void send_one(struct rank *rank, void *bytes, uint64_t size, int tag) {
    must(rank, MPI_Send(bytes, (int)size, MPI_BYTE, 1 - rank->number, tag, MPI_COMM_WORLD), "send a message");
}

static void receive_one(struct rank *rank, void *bytes, uint64_t size, int tag) {
    must(rank,
         MPI_Recv(bytes, (int)size, MPI_BYTE, 1 - rank->number, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
         "receive a message");
}

/* Both directions at once; both acknowledge, so that the time ends with the last message. */
static void exchange_windows(struct rank *rank, uint64_t size) {
    size_t window = (size_t)rank->parameters->window;
    post_window(rank, size, rank->requests);
    send_window(rank, size, rank->requests + window);
    wait_all(rank, 2 * window, rank->requests);
    check_window(rank, size);
    unsigned char sent[ACKNOWLEDGEMENT_BYTES] = {0}, received[ACKNOWLEDGEMENT_BYTES];
    must(rank,
         MPI_Sendrecv(sent, sizeof sent, MPI_BYTE, 1 - rank->number, TAG_ACKNOWLEDGEMENT, received,
                      sizeof received, MPI_BYTE, 1 - rank->number, TAG_ACKNOWLEDGEMENT, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE),
         "acknowledge a window");
}

static void lead_iteration(struct rank *rank, uint64_t size) {
    unsigned char acknowledgement[ACKNOWLEDGEMENT_BYTES];
    switch (rank->parameters->kind) {
    case PING_PONG:
        fill(rank, rank->outgoing, size);
        send_one(rank, rank->outgoing, size, TAG_DATA);
        receive_one(rank, rank->incoming, size, TAG_DATA);
        check(rank, rank->incoming, size);
        break;
    case STREAM:
        send_window(rank, size, rank->requests);
        wait_all(rank, (size_t)rank->parameters->window, rank->requests);
        receive_one(rank, acknowledgement, sizeof acknowledgement, TAG_ACKNOWLEDGEMENT);
        break;
    default: exchange_windows(rank, size); break;
    }
}

static void follow_iteration(struct rank *rank, uint64_t size) {
    unsigned char acknowledgement[ACKNOWLEDGEMENT_BYTES] = {0};
    switch (rank->parameters->kind) {
    case PING_PONG:
        receive_one(rank, rank->incoming, size, TAG_DATA);
        check(rank, rank->incoming, size);
        fill(rank, rank->outgoing, size);
        send_one(rank, rank->outgoing, size, TAG_DATA);
        break;
    case STREAM:
        post_window(rank, size, rank->requests);
        wait_all(rank, (size_t)rank->parameters->window, rank->requests);
        check_window(rank, size);
        send_one(rank, acknowledgement, sizeof acknowledgement, TAG_ACKNOWLEDGEMENT);
        break;
    default: exchange_windows(rank, size); break;
    }
}

void lead(struct rank *rank, uint64_t size, uint64_t iterations, bool timed, struct times *times) {
    bool is_timed = timed && rank->parameters->kind == PING_PONG;
    uint64_t sent = rank->sent_number, received = rank->received_number;
    uint64_t begun = now_ns(), last = begun;
    for (uint64_t iteration = 0; iteration < iterations; iteration++) {
        lead_iteration(rank, size);
        if (!is_timed) continue;
        uint64_t now = now_ns();
        if (iteration < times->round_trip_count) times->round_trips_ns[iteration] = now - last;
        last = now;
    }
    times->elapsed_ns = now_ns() - begun;
    times->sent = rank->sent_number - sent;
    times->received = rank->received_number - received;
}

uint64_t follow(struct rank *rank, uint64_t size, uint64_t iterations) {
    uint64_t received = rank->received_number;
    for (uint64_t iteration = 0; iteration < iterations; iteration++) follow_iteration(rank, size);
    return rank->received_number - received;
}
