/* Message contents: generation and verification. */
#include "mpi_rank.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A byte of a message. Differs by rank, message and position, so that a message
 * of the wrong rank, order or offset is detected (as crates/message does). */
static unsigned char byte(int rank, uint64_t message, uint64_t position) {
    uint64_t mixed = position ^ (message << 32 | message >> 32) ^ (uint64_t)rank << 63;
    return (unsigned char)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static size_t slots(const struct parameters *parameters) {
    /* Without verification the messages of a window have one buffer, as in the OSU micro-benchmarks. */
    bool one = parameters->kind == PING_PONG || (!parameters->verify && parameters->kind != OVERLAP_POLLING);
    return one ? 1 : (size_t)parameters->window;
}

bool rank_open(struct rank *rank, const struct parameters *parameters, int number) {
    *rank = (struct rank){.parameters = parameters, .number = number};
    gethostname(rank->host, sizeof rank->host - 1);
    uint64_t largest = 0;
    for (size_t index = 0; index < parameters->size_count; index++) {
        if (parameters->sizes[index] > largest) largest = parameters->sizes[index];
    }
    rank->capacity = (size_t)largest * slots(parameters);
    rank->outgoing = malloc(rank->capacity);
    rank->incoming = malloc(rank->capacity);
    size_t requests = 2 * (size_t)parameters->window;
    rank->requests = calloc(requests, sizeof *rank->requests);
    rank->statuses = calloc(requests, sizeof *rank->statuses);
    if (rank->outgoing == NULL || rank->incoming == NULL) return false;
    if (rank->requests == NULL || rank->statuses == NULL) return false;
    /* Pages are there before anything is timed. */
    memset(rank->outgoing, 1, rank->capacity);
    memset(rank->incoming, 2, rank->capacity);
    return true;
}

void rank_close(struct rank *rank) {
    free(rank->outgoing);
    free(rank->incoming);
    free(rank->requests);
    free(rank->statuses);
}

static size_t place(const struct rank *rank, size_t slot, uint64_t size) {
    return slots(rank->parameters) == 1 ? 0 : slot * (size_t)size;
}

unsigned char *outgoing(struct rank *rank, size_t slot, uint64_t size) {
    return rank->outgoing + place(rank, slot, size);
}

unsigned char *incoming(struct rank *rank, size_t slot, uint64_t size) {
    return rank->incoming + place(rank, slot, size);
}

void fill(struct rank *rank, unsigned char *message, uint64_t size) {
    if (rank->parameters->verify) {
        for (uint64_t position = 0; position < size; position++) {
            message[position] = byte(rank->number, rank->sent_number, position);
        }
    }
    rank->sent_number++;
}

void check_numbered(struct rank *rank, const unsigned char *message, uint64_t size, uint64_t number) {
    if (!rank->parameters->verify) return;
    for (uint64_t position = 0; position < size; position++) {
        if (message[position] == byte(1 - rank->number, number, position)) continue;
        if (rank->damaged++ == 0) {
            rank->damaged_message = number;
            rank->damaged_position = position;
            rank->damaged_size = size;
        }
        return;
    }
}

void check(struct rank *rank, const unsigned char *message, uint64_t size) {
    check_numbered(rank, message, size, rank->received_number);
    rank->received_number++;
}
