/* What clearstream needs of an MPI, as plain C functions: MPI's types differ between
 * libraries, so this file is compiled by the site's mpicc, and the command loads the result
 * (crates/sys/src/mpi.rs). Functions return 0, or MPI's error code.
 *
 * A send keeps its buffer until it is complete; completed ones are freed at the next send.
 * Calls come from any thread, one at a time (MPI_THREAD_SERIALIZED, MPI 3.1 section 12.4.3). */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Changes with every change of these functions. */
#define INTERFACE_VERSION 2
/* Of clearstream_mpi_init: MPI gives less than MPI_THREAD_SERIALIZED. No code of MPI is negative. */
#define FEW_THREADS (-1)

struct sending {
    MPI_Request request;
    void *bytes;
    struct sending *next;
};

static struct sending *pending;

int clearstream_mpi_version(void) { return INTERFACE_VERSION; }

int clearstream_mpi_init(int *rank, int *size) {
    int provided = 0;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS) return code;
    if (provided < MPI_THREAD_SERIALIZED) {
        MPI_Finalize();
        return FEW_THREADS;
    }
    /* Errors come back as codes, and the command reports them with rank and host. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return code != MPI_SUCCESS ? code : MPI_Comm_size(MPI_COMM_WORLD, size);
}

/* First lines of the names; `bytes` is the room for each. */
int clearstream_mpi_names(char *library, char *host, size_t bytes) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    int code = MPI_Get_library_version(version, &length);
    if (code == MPI_SUCCESS) code = MPI_Get_processor_name(name, &length);
    version[strcspn(version, "\n,")] = '\0';
    strncpy(library, version, bytes - 1);
    strncpy(host, name, bytes - 1);
    return code;
}

int clearstream_mpi_error(int error, char *text, size_t bytes) {
    char message[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    int code = MPI_Error_string(error, message, &length);
    strncpy(text, message, bytes - 1);
    return code;
}

static int free_completed(void) {
    for (struct sending **place = &pending; *place != NULL;) {
        struct sending *one = *place;
        int done = 0;
        int code = MPI_Test(&one->request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return code;
        if (!done) {
            place = &one->next;
            continue;
        }
        *place = one->next;
        free(one->bytes);
        free(one);
    }
    return MPI_SUCCESS;
}

int clearstream_mpi_send(const void *bytes, int count, int to, int tag) {
    int code = free_completed();
    if (code != MPI_SUCCESS) return code;
    struct sending *one = malloc(sizeof *one);
    void *copy = malloc(count > 0 ? (size_t)count : 1);
    if (one == NULL || copy == NULL) {
        free(one);
        free(copy);
        return MPI_ERR_NO_MEM;
    }
    memcpy(copy, bytes, (size_t)count);
    *one = (struct sending){.bytes = copy, .next = pending};
    code = MPI_Isend(copy, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &one->request);
    if (code != MPI_SUCCESS) {
        free(copy);
        free(one);
        return code;
    }
    pending = one;
    return MPI_SUCCESS;
}

/* Whether a message of this tag has arrived, from whom and of how many bytes. */
int clearstream_mpi_probe(int tag, int *found, int *from, int *count) {
    MPI_Status status;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, found, &status);
    if (code != MPI_SUCCESS || !*found) return code;
    *from = status.MPI_SOURCE;
    return MPI_Get_count(&status, MPI_BYTE, count);
}

int clearstream_mpi_receive(void *bytes, int count, int from, int tag) {
    return MPI_Recv(bytes, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int clearstream_mpi_finalize(void) {
    for (struct sending *one = pending; one != NULL;) {
        struct sending *next = one->next;
        int code = MPI_Wait(&one->request, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return code;
        free(one->bytes);
        free(one);
        one = next;
    }
    pending = NULL;
    return MPI_Finalize();
}

/* Ends the processes of all ranks. */
void clearstream_mpi_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }
