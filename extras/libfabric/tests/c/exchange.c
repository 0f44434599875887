/* Two MPI ranks exchange messages of each size, one at a time to and fro and then all in flight at once, and compare every
 * byte: exchange MESSAGES SIZE... The first message goes one way, so that one of the ranks connects to the other. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte(int rank, int message, int position) {
    return (unsigned char)((position + 1) * 131 + message * 17 + rank * 71 + (position >> 8));
}

static void fill(unsigned char *bytes, int size, int rank, int message) {
    for (int position = 0; position < size; position++) bytes[position] = byte(rank, message, position);
}

static long differing(const unsigned char *bytes, int size, int rank, int message) {
    long count = 0;
    for (int position = 0; position < size; position++) count += bytes[position] != byte(rank, message, position);
    return count;
}

/* Bytes that differ. */
static long window(int rank, int messages, int size, unsigned char *out, unsigned char *in) {
    MPI_Request *requests = calloc(2 * (size_t)messages, sizeof *requests);
    MPI_Status *statuses = calloc(2 * (size_t)messages, sizeof *statuses);
    if (requests == NULL || statuses == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    long count = 0;
    for (int message = 0; message < messages; message++) {
        unsigned char *to = out + (size_t)message * size, *from = in + (size_t)message * size;
        fill(to, size, rank, message);
        MPI_Irecv(from, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[message]);
        MPI_Isend(to, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[messages + message]);
    }
    MPI_Waitall(2 * messages, requests, statuses);
    for (int message = 0; message < messages; message++) {
        count += differing(in + (size_t)message * size, size, 1 - rank, message);
    }
    free(requests);
    free(statuses);
    return count;
}

static long to_and_fro(int rank, int messages, int size, unsigned char *out, unsigned char *in) {
    long count = 0;
    for (int message = 0; message < messages; message++) {
        fill(out, size, rank, message);
        if (rank == 0) MPI_Send(out, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        MPI_Recv(in, size, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        count += differing(in, size, 1 - rank, message);
        if (rank == 1) MPI_Send(out, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    return count;
}

int main(int count, char **arguments) {
    int rank = 0, ranks = 0, messages = count > 1 ? atoi(arguments[1]) : 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || messages < 1) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int index = 2; index < count; index++) {
        int size = atoi(arguments[index]);
        unsigned char *out = malloc((size_t)messages * size), *in = calloc((size_t)messages, (size_t)size);
        if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
        long own = to_and_fro(rank, messages, size, out, in), all = 0;
        own += window(rank, messages, size, out, in);
        MPI_Reduce(&own, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("exchange: %d messages of %d bytes, %ld bytes differ\n", 2 * messages, size, all);
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
