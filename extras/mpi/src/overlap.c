/* Overlap of work and messages by the two methods of COMB (W. Lawry, C. Wilson,
 * A. Maccabe, R. Brightwell: "COMB: A Portable Benchmark Suite for Assessing MPI
 * Overlap"). Work is a loop of counted iterations: its time alone, divided by
 * the time of the same iterations beside messages, is the availability of the core.
 *
 * polling: the client works, and every `work` iterations it looks for messages
 * that arrived and replies to them; the server returns each message at once.
 * post-work-wait: the client posts a window each way, works, and waits. */
#include "mpi_rank.h"

#include <stdlib.h>

/* Parts in which the time of the work alone is measured. */
#define WORK_PARTS UINT64_C(8)

/* Work that the compiler can neither remove nor shorten: each step needs the last. */
static uint64_t work(uint64_t iterations, uint64_t value) {
    for (uint64_t iteration = 0; iteration < iterations; iteration++) {
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

/* The work of all cycles without messages, by the fastest of some equal parts: what interrupts
 * the others is no part of the work (as crates/overlap does). */
static uint64_t work_alone_ns(uint64_t cycles, uint64_t iterations) {
    uint64_t parts = cycles < WORK_PARTS ? cycles : WORK_PARTS, value = cycles;
    double fastest = 0;
    for (uint64_t part = 0; part < parts; part++) {
        uint64_t count = cycles / parts + (part < cycles % parts), begun = now_ns();
        for (uint64_t cycle = 0; cycle < count; cycle++) value = work(iterations, value);
        double of_cycle = (double)(now_ns() - begun) / (double)count;
        if (part == 0 || of_cycle < fastest) fastest = of_cycle;
    }
    return (uint64_t)(fastest * (double)cycles);
}

/* --- post-work-wait ----------------------------------------------------- */

static void post(struct rank *rank, uint64_t size) {
    size_t window = (size_t)rank->parameters->window;
    int other = 1 - rank->number;
    for (size_t slot = 0; slot < window; slot++) {
        must(rank,
             MPI_Irecv(incoming(rank, slot, size), (int)size, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD,
                       &rank->requests[slot]),
             "post a receive");
    }
    for (size_t slot = 0; slot < window; slot++) {
        unsigned char *message = outgoing(rank, slot, size);
        fill(rank, message, size);
        must(rank,
             MPI_Isend(message, (int)size, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD, &rank->requests[window + slot]),
             "send a message");
    }
}

static void finish(struct rank *rank, uint64_t size) {
    size_t window = (size_t)rank->parameters->window;
    must(rank, MPI_Waitall((int)(2 * window), rank->requests, rank->statuses), "complete messages");
    for (size_t slot = 0; slot < window; slot++) check(rank, incoming(rank, slot, size), size);
}

static void wait_lead(struct rank *rank, uint64_t size, uint64_t cycles, struct times *times) {
    uint64_t value = cycles, begun = now_ns(), before = begun;
    for (uint64_t cycle = 0; cycle < cycles; cycle++) {
        post(rank, size);
        uint64_t posted = now_ns();
        value = work(rank->work, value);
        uint64_t worked = now_ns();
        finish(rank, size);
        uint64_t finished = now_ns();
        times->post_ns += posted - before;
        times->work_ns += worked - posted;
        times->wait_ns += finished - worked;
        before = finished;
    }
    times->elapsed_ns = before - begun;
    times->sent = rank->sent_number;
    times->received = rank->received_number;
}

/* --- polling ------------------------------------------------------------ */

/* Messages that go to and fro, one per slot. A message without bytes ends a slot:
 * messages of one tag match in order, so that nothing is in flight behind it. */
struct slots {
    size_t count, open;
    uint64_t size;
    bool *is_sending;
    uint64_t *numbers; /* of the message that is received into a slot */
    int *done;
    MPI_Status *statuses;
    uint64_t posted, replied;
};

static struct slots slots_new(struct rank *rank, uint64_t size) {
    size_t count = (size_t)rank->parameters->window;
    struct slots slots = {.count = count, .open = count, .size = size};
    slots.is_sending = calloc(count, sizeof *slots.is_sending);
    slots.numbers = calloc(count, sizeof *slots.numbers);
    slots.done = calloc(count, sizeof *slots.done);
    slots.statuses = calloc(count, sizeof *slots.statuses);
    if (slots.is_sending == NULL || slots.numbers == NULL || slots.done == NULL || slots.statuses == NULL) {
        fail(rank, "no memory for %zu messages in flight", count);
    }
    return slots;
}

static void slots_free(struct slots *slots) {
    free(slots->is_sending);
    free(slots->numbers);
    free(slots->done);
    free(slots->statuses);
}

static void slot_receive(struct rank *rank, struct slots *slots, size_t slot) {
    slots->is_sending[slot] = false;
    slots->numbers[slot] = slots->posted++;
    must(rank,
         MPI_Irecv(incoming(rank, slot, slots->size), (int)slots->size, MPI_BYTE, 1 - rank->number, TAG_DATA,
                   MPI_COMM_WORLD, &rank->requests[slot]),
         "post a receive");
}

static void slot_send(struct rank *rank, struct slots *slots, size_t slot) {
    slots->is_sending[slot] = true;
    slots->replied++;
    unsigned char *message = outgoing(rank, slot, slots->size);
    fill(rank, message, slots->size);
    must(rank,
         MPI_Isend(message, (int)slots->size, MPI_BYTE, 1 - rank->number, TAG_DATA, MPI_COMM_WORLD,
                   &rank->requests[slot]),
         "send a message");
}

/* What became of a slot: sent slots receive, received messages are replied to. */
static void slot_done(struct rank *rank, struct slots *slots, size_t slot, MPI_Status *status, bool replies) {
    if (slots->is_sending[slot]) {
        slot_receive(rank, slots, slot);
        return;
    }
    int bytes = 0;
    must(rank, MPI_Get_count(status, MPI_BYTE, &bytes), "read the size of a message");
    if (bytes == 0) {
        slots->open--;
        return;
    }
    check_numbered(rank, incoming(rank, slot, slots->size), slots->size, slots->numbers[slot]);
    rank->received_number++;
    if (replies) {
        slot_send(rank, slots, slot);
    } else {
        slot_receive(rank, slots, slot);
    }
}

static void slots_poll(struct rank *rank, struct slots *slots, bool replies) {
    int count = 0;
    must(rank, MPI_Testsome((int)slots->count, rank->requests, &count, slots->done, slots->statuses), "poll for messages");
    for (int index = 0; count != MPI_UNDEFINED && index < count; index++) {
        slot_done(rank, slots, (size_t)slots->done[index], &slots->statuses[index], replies);
    }
}

static void send_ends(struct rank *rank, const struct slots *slots) {
    for (size_t slot = 0; slot < slots->count; slot++) {
        must(rank, MPI_Send(NULL, 0, MPI_BYTE, 1 - rank->number, TAG_DATA, MPI_COMM_WORLD), "end the messages");
    }
}

static void polling_lead(struct rank *rank, uint64_t size, uint64_t polls, struct times *times) {
    struct slots slots = slots_new(rank, size);
    for (size_t slot = 0; slot < slots.count; slot++) slot_receive(rank, &slots, slot);
    uint64_t value = polls, begun = now_ns();
    for (uint64_t poll = 0; poll < polls; poll++) {
        value = work(rank->work, value);
        slots_poll(rank, &slots, true);
    }
    times->elapsed_ns = now_ns() - begun;
    times->sent = slots.replied;
    times->received = rank->received_number;
    /* No further replies; replies on their way return before the server's end. */
    for (size_t sending = 1; sending > 0;) {
        slots_poll(rank, &slots, false);
        sending = 0;
        for (size_t slot = 0; slot < slots.count; slot++) sending += slots.is_sending[slot];
    }
    send_ends(rank, &slots);
    while (slots.open > 0) slots_poll(rank, &slots, false);
    slots_free(&slots);
}

static void polling_follow(struct rank *rank, uint64_t size) {
    struct slots slots = slots_new(rank, size);
    for (size_t slot = 0; slot < slots.count; slot++) slot_send(rank, &slots, slot);
    while (slots.open > 0) slots_poll(rank, &slots, true);
    send_ends(rank, &slots);
    slots_free(&slots);
}

void overlap_lead(struct rank *rank, uint64_t size, uint64_t iterations, bool timed, struct times *times) {
    if (rank->parameters->kind == OVERLAP_POLLING) {
        polling_lead(rank, size, iterations, times);
    } else {
        wait_lead(rank, size, iterations, times);
    }
    if (timed) times->work_alone_ns = work_alone_ns(iterations, rank->work);
}

uint64_t overlap_follow(struct rank *rank, uint64_t size, uint64_t iterations) {
    if (rank->parameters->kind == OVERLAP_POLLING) {
        polling_follow(rank, size);
        return rank->received_number;
    }
    for (uint64_t cycle = 0; cycle < iterations; cycle++) {
        post(rank, size);
        finish(rank, size);
    }
    return rank->received_number;
}
