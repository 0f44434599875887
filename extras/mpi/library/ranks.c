/* What clearstream needs of an MPI, as plain C functions: MPI's types differ between
 * libraries, so this file is compiled by the site's mpicc, and the command loads the result
 * (crates/sys/src/mpi.rs). Functions return 0, or MPI's error code.
 *
 * clearstream_mpi_send copies, and keeps the copy until it is sent; what is sent is freed at the next send.
 * Where a rank is measured, nothing is copied: clearstream_mpi_send_whole and clearstream_mpi_receive are MPI's own
 * blocking calls, and a set of requests has the messages in flight. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Changes with every change of these functions. */
#define INTERFACE_VERSION 3
/* Of clearstream_mpi_init: MPI gives less than was asked for. No code of MPI is negative. */
#define FEW_THREADS (-1)

struct sending {
    MPI_Request request;
    void *bytes;
    struct sending *next;
};

static struct sending *pending;

int clearstream_mpi_version(void) { return INTERFACE_VERSION; }

/* Threads of the process: one, or any that call one at a time (MPI 3.1 section 12.4.3). The second costs each message
 * a lock in some libraries (Open MPI 4.1 over shared memory: 0.58 us instead of 0.44 us for a byte). */
int clearstream_mpi_init(int has_threads, int *rank, int *size) {
    int provided = 0, wanted = has_threads ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE;
    int code = MPI_Init_thread(NULL, NULL, wanted, &provided);
    if (code != MPI_SUCCESS) return code;
    if (provided < wanted) {
        MPI_Finalize();
        return FEW_THREADS;
    }
    /* Errors come back as codes, and the command reports them with rank and host. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return code != MPI_SUCCESS ? code : MPI_Comm_size(MPI_COMM_WORLD, size);
}

/* The first line of the library's version, the host, and the version of the standard; `bytes` is the room for each text. */
int clearstream_mpi_names(char *library, char *host, size_t bytes, int *version, int *subversion) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "", name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    int code = MPI_Get_library_version(text, &length);
    if (code == MPI_SUCCESS) code = MPI_Get_processor_name(name, &length);
    if (code == MPI_SUCCESS) code = MPI_Get_version(version, subversion);
    text[strcspn(text, "\n")] = '\0';
    strncpy(library, text, bytes - 1);
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

/* Returns when the buffer may change. */
int clearstream_mpi_send_whole(const void *bytes, int count, int to, int tag) {
    return MPI_Send(bytes, count, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

/* Messages in flight, each in a slot. Buffers of messages that are not complete belong to MPI. */
struct requests {
    int count;
    MPI_Status *statuses; /* MPICH's MPI_STATUSES_IGNORE warns with GCC 12 */
    MPI_Request of[];
};

void *clearstream_mpi_requests(int count) {
    struct requests *set = malloc(sizeof *set + (size_t)count * sizeof *set->of);
    MPI_Status *statuses = calloc((size_t)count, sizeof *statuses);
    if (set == NULL || statuses == NULL) {
        free(set);
        free(statuses);
        return NULL;
    }
    *set = (struct requests){.count = count, .statuses = statuses};
    for (int slot = 0; slot < count; slot++) set->of[slot] = MPI_REQUEST_NULL;
    return set;
}

int clearstream_mpi_start_send(void *requests, int slot, const void *bytes, int count, int to, int tag) {
    struct requests *set = requests;
    return MPI_Isend(bytes, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &set->of[slot]);
}

int clearstream_mpi_start_receive(void *requests, int slot, void *bytes, int count, int from, int tag) {
    struct requests *set = requests;
    return MPI_Irecv(bytes, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, &set->of[slot]);
}

int clearstream_mpi_test(void *requests, int slot, int *done) {
    struct requests *set = requests;
    return MPI_Test(&set->of[slot], done, MPI_STATUS_IGNORE);
}

int clearstream_mpi_wait_all(void *requests) {
    struct requests *set = requests;
    return MPI_Waitall(set->count, set->of, set->statuses);
}

/* Receives that wait are cancelled (MPI 3.1 section 3.8.4). A send that is not complete is none of those: its set and
 * its buffer stay. Returns whether everything is freed. */
int clearstream_mpi_requests_free(void *requests) {
    struct requests *set = requests;
    for (int slot = 0; slot < set->count; slot++) {
        int done = 0;
        if (set->of[slot] == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&set->of[slot]);
        MPI_Test(&set->of[slot], &done, MPI_STATUS_IGNORE);
        if (!done) return 0;
    }
    free(set->statuses);
    free(set);
    return 1;
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
