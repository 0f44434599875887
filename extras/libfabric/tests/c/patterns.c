/* Patterns of MPI that a ping-pong does not have: all ranks at once, probes of any source, messages to oneself, strided
 * types, many unexpected messages received in reverse, one-sided puts. Ends with 1 if any value differs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks, wrong;

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
    one_sided();
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("patterns: %d of %d ranks, %d values differ\n", ranks, ranks, all);
    MPI_Finalize();
    return all != 0;
}
