/* Two groups of ranks, even and odd ones, and a communicator between them: MPI libraries insert the addresses of its ranks a
 * second time. Collective and single messages over it, and over the merged one. */
#include <mpi.h>
#include <stdio.h>

#define CHECK(what)                                                  \
    do {                                                             \
        if (!(what)) {                                               \
            fprintf(stderr, "line %d, rank %d: %s\n", __LINE__, rank, #what); \
            MPI_Abort(MPI_COMM_WORLD, 1);                            \
        }                                                            \
    } while (0)

int main(int count, char **words) {
    int rank, size, others, all, value = -1;
    int values[64];
    MPI_Comm local, between, merged;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &local);
    for (int round = 0; round < 3; round++) {
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
        MPI_Comm_remote_size(between, &others);
        CHECK(others == size / 2);
        MPI_Allgather(&rank, 1, MPI_INT, values, 1, MPI_INT, between);
        for (int of = 0; of < others; of++)
            CHECK(values[of] == 2 * of + 1 - rank % 2);
        /* From the rank of the other group with the same place, and to it, by name. */
        MPI_Sendrecv(&rank, 1, MPI_INT, rank / 2, 7, &value, 1, MPI_INT, rank / 2, 7, between, MPI_STATUS_IGNORE);
        CHECK(value == (rank ^ 1));
        MPI_Intercomm_merge(between, rank % 2, &merged);
        MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, merged);
        CHECK(all == size * (size - 1) / 2);
        MPI_Comm_free(&merged);
        MPI_Comm_free(&between);
    }
    if (rank == 0)
        printf("intercomm: %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
