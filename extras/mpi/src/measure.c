/* All sizes, and intervals of work: the warm-up of each doubles its iterations until its time is up,
 * and the last of them determines how many fit into the duration. */
#include "mpi_rank.h"

#include <stdlib.h>

/* Time is kept for so many iterations, and a duration has no more. */
#define ITERATIONS_MAX UINT64_C(1000000)
/* So many polls, or cycles of work. */
#define CYCLES_MAX UINT64_C(1000000000)
/* So many at least on a slow path, unless they take longer than OVERTIME durations. */
#define ITERATIONS_MIN UINT64_C(10)
#define OVERTIME 10
/* A phase of work is repeated when so many times its cycles fit into the duration: the warm-up was
 * slower, as a poll with many messages is. */
#define REFIT_RATIO 2
#define REFITS_MAX 5

/* Before each phase: size and iterations; a size of 0 ends the run. */
struct phase {
    uint64_t size, iterations;
};

static bool overlaps(const struct rank *rank) {
    return rank->parameters->kind == OVERLAP_POLLING || rank->parameters->kind == OVERLAP_WAIT;
}

static uint64_t most(const struct rank *rank) { return overlaps(rank) ? CYCLES_MAX : ITERATIONS_MAX; }

static void start_counting(struct rank *rank, struct report *report) {
    rank->sent_number = rank->received_number = rank->damaged = 0;
    report->interfaces_bytes = interfaces_sent_bytes();
    report->cpu_ns = cpu_ns();
}

static void stop_counting(const struct rank *rank, struct report *report) {
    report->cpu_ns = cpu_ns() - report->cpu_ns;
    report->interfaces_bytes = interfaces_sent_bytes() - report->interfaces_bytes;
    report->damaged = rank->damaged;
}

static void send_words(struct rank *rank, const void *words, size_t bytes) {
    must(rank, MPI_Send(words, (int)bytes, MPI_BYTE, 1 - rank->number, TAG_CONTROL, MPI_COMM_WORLD),
         "send a control message");
}

static void receive_words(struct rank *rank, void *words, size_t bytes) {
    must(rank,
         MPI_Recv(words, (int)bytes, MPI_BYTE, 1 - rank->number, TAG_CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
         "receive a control message");
}

/* Damage ends the run: rank and message are named by the rank that received it. */
static void refuse_damage(const struct rank *rank, uint64_t received) {
    if (rank->damaged == 0) return;
    fail(rank, "%llu of %llu messages of %llu bytes arrived damaged, the first is message %llu at byte %llu",
         (unsigned long long)rank->damaged, (unsigned long long)received, (unsigned long long)rank->damaged_size,
         (unsigned long long)rank->damaged_message, (unsigned long long)rank->damaged_position);
}

static void run_phase(struct rank *rank, struct phase phase, bool timed, struct times *times, struct report *own,
                      struct report *other) {
    send_words(rank, &phase, sizeof phase);
    receive_words(rank, &phase, sizeof phase);
    start_counting(rank, own);
    if (overlaps(rank)) {
        overlap_lead(rank, phase.size, phase.iterations, timed, times);
    } else {
        lead(rank, phase.size, phase.iterations, timed, times);
    }
    stop_counting(rank, own);
    own->received = times->received;
    receive_words(rank, other, sizeof *other);
    refuse_damage(rank, own->received);
}

static uint64_t warm_up(struct rank *rank, uint64_t size) {
    uint64_t iterations = 1, spent = 0;
    for (;;) {
        struct times times = {0};
        struct report own, other;
        run_phase(rank, (struct phase){size, iterations}, false, &times, &own, &other);
        spent += times.elapsed_ns;
        if (spent >= rank->parameters->warm_up_ns || iterations >= most(rank)) {
            return times.elapsed_ns / iterations;
        }
        iterations *= 2;
    }
}

static uint64_t fitting(const struct rank *rank, uint64_t iteration_ns) {
    uint64_t duration_ns = rank->parameters->duration_ns;
    if (iteration_ns == 0) iteration_ns = 1;
    uint64_t overtime = duration_ns > UINT64_MAX / OVERTIME ? UINT64_MAX : duration_ns * OVERTIME;
    uint64_t least = overtime / iteration_ns < ITERATIONS_MIN ? overtime / iteration_ns : ITERATIONS_MIN;
    uint64_t fit = duration_ns / iteration_ns;
    if (fit < least) fit = least;
    if (fit > most(rank)) fit = most(rank);
    return fit == 0 ? 1 : fit;
}

static void measure_size(struct rank *rank, uint64_t size) {
    uint64_t iteration_ns = warm_up(rank, size);
    uint64_t iterations = rank->parameters->iterations;
    if (iterations == 0) iterations = fitting(rank, iteration_ns);
    struct times times = {0};
    if (rank->parameters->kind == PING_PONG) {
        times.round_trip_count = (size_t)(iterations < ITERATIONS_MAX ? iterations : ITERATIONS_MAX);
        times.round_trips_ns = calloc(times.round_trip_count, sizeof *times.round_trips_ns);
        if (times.round_trips_ns == NULL) fail(rank, "no memory for the times of %zu round trips", times.round_trip_count);
    }
    struct report own, other;
    run_phase(rank, (struct phase){size, iterations}, true, &times, &own, &other);
    for (int refit = 0; refit < REFITS_MAX && overlaps(rank) && rank->parameters->iterations == 0; refit++) {
        uint64_t more = fitting(rank, times.elapsed_ns / iterations);
        if (more < REFIT_RATIO * iterations) break;
        iterations = more;
        times = (struct times){0};
        run_phase(rank, (struct phase){size, iterations}, true, &times, &own, &other);
    }
    print_point(rank, size, iterations, &times, &own, &other);
    free(times.round_trips_ns);
}

void measure(struct rank *rank) {
    const struct parameters *parameters = rank->parameters;
    for (size_t index = 0; index < parameters->size_count; index++) {
        for (size_t work = 0; work < parameters->work_count; work++) {
            rank->work = parameters->works[work];
            measure_size(rank, parameters->sizes[index]);
        }
    }
    struct phase end = {0, 0};
    send_words(rank, &end, sizeof end);
    print_end(rank);
}

void serve(struct rank *rank) {
    for (;;) {
        struct phase phase;
        receive_words(rank, &phase, sizeof phase);
        if (phase.size == 0) return;
        struct report report;
        start_counting(rank, &report);
        /* Ready: the client's time begins with this reply. */
        send_words(rank, &phase, sizeof phase);
        report.received = overlaps(rank) ? overlap_follow(rank, phase.size, phase.iterations)
                                         : follow(rank, phase.size, phase.iterations);
        stop_counting(rank, &report);
        refuse_damage(rank, report.received);
        send_words(rank, &report, sizeof report);
    }
}
