/* Patterns of MPI that a ping-pong does not have: all ranks at once, probes of any source, messages to oneself, strided
 * types, many unexpected messages received in reverse, too long ones, a sender that computes, one-sided puts. Ends with 1
 * if any value differs. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static int rank, ranks, wrong;
static volatile sig_atomic_t notified;

static void check(int holds) { wrong += !holds; }

static int value(int of, int at) { return of * 1000003 + at; }

static void all_to_all(int *out, int *in, int count) {
    for (int at = 0; at < count * ranks; at++)
        out[at] = value(rank, at);
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    for (int of = 0; of < ranks; of++)
        for (int at = 0; at < count; at++)
            check(in[of * count + at] == value(of, rank * count + at));
}

/* Also to this rank itself. */
static void probes(int *out, int *in, int count) {
    MPI_Request sends[ranks];
    for (int to = 0; to < ranks; to++)
        MPI_Isend(out, count, MPI_INT, to, 7, MPI_COMM_WORLD, &sends[to]);
    for (int left = ranks; left; left--) {
        MPI_Status status;
        int arrived;
        MPI_Probe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_INT, &arrived);
        check(arrived == count);
        MPI_Recv(in, count, MPI_INT, status.MPI_SOURCE, 7, MPI_COMM_WORLD, &status);
        for (int at = 0; at < count; at++)
            check(in[at] == value(status.MPI_SOURCE, at));
    }
    MPI_Waitall(ranks, sends, MPI_STATUSES_IGNORE);
}

static void strided(int *out, int *in, int count) {
    MPI_Datatype type;
    int from = (rank + ranks - 1) % ranks, blocks = (count + 1) / 2;
    MPI_Type_vector(blocks, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int at = 0; at < count; at++)
        in[at] = -1;
    MPI_Sendrecv(out, 1, type, (rank + 1) % ranks, 9, in, 1, type, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 0; at < count; at++)
        check(in[at] == (at % 2 ? -1 : value(from, at)));
    MPI_Type_free(&type);
}

static void unexpected(void) {
    enum { COUNT = 2000 };
    for (int at = 0; rank == 0 && at < COUNT; at++)
        MPI_Send(&at, 1, MPI_INT, 1, at, MPI_COMM_WORLD);
    for (int at = COUNT - 1; rank == 1 && at >= 0; at--) {
        int got;
        MPI_Recv(&got, 1, MPI_INT, 0, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(got == at);
    }
}

/* Long messages without a receive: they are received in reverse, some of them while they arrive. */
static void long_unexpected(void) {
    enum { COUNT = 12, LENGTH = 40000 };
    static int sent[COUNT][LENGTH], got[LENGTH];
    MPI_Request sends[COUNT];
    for (int at = 0; rank == 0 && at < COUNT; at++) {
        for (int of = 0; of < LENGTH; of++)
            sent[at][of] = value(at, of);
        MPI_Isend(sent[at], LENGTH - at, MPI_INT, 1, at, MPI_COMM_WORLD, &sends[at]);
    }
    for (int at = COUNT - 1; rank == 1 && at >= 0; at--) {
        MPI_Recv(got, LENGTH, MPI_INT, 0, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int of = 0; of < LENGTH - at; of++)
            check(got[of] == value(at, of));
    }
    if (rank == 0)
        MPI_Waitall(COUNT, sends, MPI_STATUSES_IGNORE);
}

/* A sender far ahead of its receiver: what the receiver holds is bounded. */
static void far_ahead(void) {
    enum { COUNT = 160, BYTES = 1 << 20 };
    static char sent[BYTES], got[BYTES];
    MPI_Request sends[COUNT + 1];
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int at = 0; rank == 0 && at < COUNT; at++) {
        sent[0] = sent[BYTES - 1] = 42;
        MPI_Isend(sent, BYTES, MPI_CHAR, 1, 11, MPI_COMM_WORLD, &sends[at]);
    }
    if (rank == 0) {
        MPI_Isend(&rank, 1, MPI_INT, 1, 12, MPI_COMM_WORLD, &sends[COUNT]);
        MPI_Waitall(COUNT + 1, sends, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        int ignored;
        MPI_Recv(&ignored, 1, MPI_INT, 0, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        getrusage(RUSAGE_SELF, &after);
        check(after.ru_maxrss - before.ru_maxrss < 100 << 10);
        for (int at = 0; at < COUNT; at++) {
            got[0] = got[BYTES - 1] = 0;
            MPI_Recv(got, BYTES, MPI_CHAR, 0, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(got[0] == 42 && got[BYTES - 1] == 42);
        }
    }
}

static void notify(int signal) { notified = signal; }

/* A sender that calls nothing of MPI until all its messages have arrived, more than there are credits. */
static void computes(void) {
    enum { COUNT = 50, INTS = 16384 };
    static int longs[INTS], got[INTS];
    MPI_Request sends[COUNT];
    int process = getpid();
    if (rank == 0) {
        signal(SIGUSR1, notify);
        MPI_Send(&process, 1, MPI_INT, 1, 13, MPI_COMM_WORLD);
        for (int at = 0; at < COUNT; at++) {
            MPI_Send(&at, 1, MPI_INT, 1, 13, MPI_COMM_WORLD);
            MPI_Isend(longs, INTS, MPI_INT, 1, 13, MPI_COMM_WORLD, &sends[at]);
        }
        for (int left = 60000; left && !notified; left--)
            usleep(1000);
        check(notified);
        MPI_Waitall(COUNT, sends, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(&process, 1, MPI_INT, 0, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < COUNT; at++) {
            MPI_Recv(got, 1, MPI_INT, 0, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(got[0] == at);
            MPI_Recv(got, INTS, MPI_INT, 0, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        kill(process, SIGUSR1);
    }
}

/* A message longer than its receive, posted before or after it arrives: an error of this receive alone. */
static void truncated(int length) {
    int *out = malloc(sizeof(int) * length), *in = malloc(sizeof(int) * length), class, ignored;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int posted = 0; posted < 2; posted++) {
        for (int at = 0; at < length; at++)
            out[at] = value(posted, at), in[at] = -1;
        if (rank == 1) {
            MPI_Request receive;
            if (posted)
                MPI_Irecv(in, length / 2, MPI_INT, 0, 3, MPI_COMM_WORLD, &receive);
            MPI_Send(&rank, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
            MPI_Probe(0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            int code = posted ? MPI_Wait(&receive, MPI_STATUS_IGNORE)
                              : MPI_Recv(in, length / 2, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Error_class(code, &class);
            check(class == MPI_ERR_TRUNCATE && in[length / 2] == -1);
            MPI_Recv(in, length, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 0; at < length; at++)
                check(in[at] == out[at]);
        } else if (rank == 0) {
            MPI_Recv(&ignored, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, length, MPI_INT, 1, 3, MPI_COMM_WORLD);
            MPI_Send(out, length, MPI_INT, 1, 5, MPI_COMM_WORLD);
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    free(out);
    free(in);
}

static void one_sided(void) {
    int *memory, from = (rank + ranks - 1) % ranks;
    MPI_Win window;
    MPI_Win_allocate(sizeof(int) * ranks, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, rank, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    check(memory[from] == from);
    MPI_Win_free(&window);
}

int main(int count, char **arguments) {
    int all;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int size = 1; size <= 100000; size *= 10) {
        int *out = malloc(sizeof(int) * size * ranks), *in = malloc(sizeof(int) * size * ranks);
        all_to_all(out, in, size);
        probes(out, in, size);
        strided(out, in, size);
        free(out);
        free(in);
    }
    unexpected();
    long_unexpected();
    far_ahead();
    computes();
    for (int length = 100; length <= 100000; length *= 10)
        truncated(length);
    one_sided();
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("patterns: %d of %d ranks, %d values differ\n", ranks, ranks, all);
    MPI_Finalize();
    return all != 0;
}
