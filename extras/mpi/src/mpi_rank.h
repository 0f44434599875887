/* Messages between two MPI ranks: rank 0 (the client) measures, rank 1 (the
 * server) follows. See README.md for parameters and results. */
#ifndef CLEARSTREAM_MPI_RANK_H
#define CLEARSTREAM_MPI_RANK_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind { PING_PONG, STREAM, BIDIRECTIONAL, OVERLAP_POLLING, OVERLAP_WAIT };

/* Options of the command line, the same on every rank. */
struct parameters {
    enum kind kind;
    uint64_t *sizes;
    size_t size_count;
    uint64_t window;
    uint64_t duration_ns;
    uint64_t iterations; /* 0: as many as fit into duration_ns */
    uint64_t warm_up_ns;
    uint64_t *works; /* iterations of the work loop between two polls, or in a cycle */
    size_t work_count;
    int cores[2]; /* -1: not pinned */
    bool verify;
};

/* A rank's part of a phase: what rank 1 reports to rank 0. */
struct report {
    uint64_t received;         /* messages */
    uint64_t damaged;          /* of these, with contents that differ */
    uint64_t cpu_ns;           /* of the process */
    uint64_t interfaces_bytes; /* sent by interfaces other than loopback */
};

/* Times of a phase at rank 0. */
struct times {
    uint64_t elapsed_ns;
    uint64_t *round_trips_ns; /* ping-pong, one per iteration kept */
    size_t round_trip_count;
    uint64_t sent; /* messages sent by rank 0 while elapsed_ns was measured */
    uint64_t received;
    /* Overlap: the work loop alone, and the parts of all cycles. */
    uint64_t work_alone_ns;
    uint64_t post_ns, work_ns, wait_ns;
};

/* Message contents and the state of a rank. */
struct rank {
    const struct parameters *parameters;
    int number;
    char host[256];
    unsigned char *outgoing, *incoming;
    MPI_Request *requests; /* two per message of a window */
    MPI_Status *statuses;  /* likewise (MPICH's MPI_STATUSES_IGNORE warns with GCC 12) */
    size_t capacity;       /* bytes of each buffer */
    uint64_t work;         /* of this phase, at rank 0 */
    uint64_t sent_number, received_number, damaged;
    /* The first damage, for the message. */
    uint64_t damaged_message, damaged_position, damaged_size;
};

/* Tags: data has one of its own, so that messages match in the order sent. */
enum { TAG_CONTROL = 1, TAG_DATA = 2, TAG_ACKNOWLEDGEMENT = 3 };
#define ACKNOWLEDGEMENT_BYTES 4

/* parameters.c: ends the program with a message when they are invalid. */
void parameters_read(int count, char **arguments, struct parameters *parameters);

/* facts.c */
uint64_t now_ns(void);
uint64_t cpu_ns(void);
uint64_t interfaces_sent_bytes(void);
bool pin(int core);

/* traffic.c: buffers and contents. Slots are messages that are in flight together. */
bool rank_open(struct rank *rank, const struct parameters *parameters, int number);
void rank_close(struct rank *rank);
unsigned char *outgoing(struct rank *rank, size_t slot, uint64_t size);
unsigned char *incoming(struct rank *rank, size_t slot, uint64_t size);
void fill(struct rank *rank, unsigned char *message, uint64_t size);
void check(struct rank *rank, const unsigned char *message, uint64_t size);
void check_numbered(struct rank *rank, const unsigned char *message, uint64_t size, uint64_t number);

/* supervisor.c: continues in a child, whose death by a signal is reported. */
void supervise(void);

/* errors.c: ends all ranks, and names this one and its host. */
_Noreturn void fail(const struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
void must(const struct rank *rank, int code, const char *what);

/* exchange.c: the iterations of one phase. */
void lead(struct rank *rank, uint64_t size, uint64_t iterations, bool timed, struct times *times);
uint64_t follow(struct rank *rank, uint64_t size, uint64_t iterations);

/* overlap.c: the same for the overlap of work and messages. */
void overlap_lead(struct rank *rank, uint64_t size, uint64_t iterations, bool timed, struct times *times);
uint64_t overlap_follow(struct rank *rank, uint64_t size, uint64_t iterations);

/* measure.c: all sizes, and intervals of work. */
void measure(struct rank *rank);
void serve(struct rank *rank);

/* output.c: lines on rank 0's standard output. */
void print_ranks(const struct rank *rank, const char *hosts, size_t host_bytes, const int64_t *processes, int count);
void print_point(const struct rank *rank, uint64_t size, uint64_t iterations, const struct times *times,
                 const struct report *own, const struct report *other);
void print_end(const struct rank *rank);

#endif
