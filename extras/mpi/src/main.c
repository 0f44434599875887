#include "mpi_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_BYTES 256

/* The first line of results: who takes part, so that a rank that dies can be named. */
static void introduce(struct rank *rank, int count) {
    char *hosts = calloc((size_t)count, HOST_BYTES);
    int64_t *processes = calloc((size_t)count, sizeof *processes);
    if (hosts == NULL || processes == NULL) fail(rank, "no memory for the names of %d ranks", count);
    int64_t process = getpid();
    must(rank, MPI_Gather(rank->host, HOST_BYTES, MPI_CHAR, hosts, HOST_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD),
         "gather the names of hosts");
    must(rank, MPI_Gather(&process, 1, MPI_INT64_T, processes, 1, MPI_INT64_T, 0, MPI_COMM_WORLD),
         "gather process IDs");
    if (rank->number == 0) print_ranks(rank, hosts, HOST_BYTES, processes, count);
    free(hosts);
    free(processes);
}

int main(int count, char **arguments) {
    struct parameters parameters;
    parameters_read(count, arguments, &parameters);
    supervise();
    if (MPI_Init(&count, &arguments) != MPI_SUCCESS) {
        fprintf(stderr, "clearstream-mpi: MPI cannot be initialised\n");
        return 1;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int number = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct rank rank;
    bool is_open = rank_open(&rank, &parameters, number);
    if (!is_open) fail(&rank, "no memory for messages: take smaller ones, or a smaller window");
    if (ranks != 2) {
        fail(&rank,
             "%d rank(s) were started, 2 are needed: with mpirun -np 2, this program was built for another MPI "
             "library than the one that mpirun belongs to",
             ranks);
    }
    if (parameters.cores[number] >= 0 && !pin(parameters.cores[number])) {
        fail(&rank, "core %d cannot be used on this host", parameters.cores[number]);
    }
    introduce(&rank, ranks);
    if (number == 0) {
        measure(&rank);
    } else {
        serve(&rank);
    }
    rank_close(&rank);
    /* MPICH 4.0 over UCX's TCP: a rank in MPI_Finalize waits for acknowledgements that
     * the other one no longer sends from there. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    free(parameters.sizes);
    free(parameters.works);
    return 0;
}
