/* Errors name the rank and its host, and end all ranks. */
#include "mpi_rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void fail(const struct rank *rank, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fprintf(stderr, "clearstream-mpi: rank %d on %s: %s\n", rank->number, rank->host, message);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void must(const struct rank *rank, int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(rank, "cannot %s: %s", what, text);
}
