/* Strict options: a mistake is reported with what to write instead. */
#include "mpi_rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "clearstream-mpi: measures messages between two MPI ranks; started by `clearstream message --transport mpi`,\n"
    "or by hand: mpirun -np 2 clearstream-mpi --sizes BYTES,BYTES,... [options]\n"
    "  --kind ping-pong|stream|bidirectional|overlap-polling|overlap-wait   (default: ping-pong)\n"
    "  --window COUNT          messages in flight (default: 64)\n"
    "  --duration-ns TIME      per size (default: 200000000)\n"
    "  --iterations COUNT      per size, instead of a time\n"
    "  --warm-up-ns TIME       per size (default: 20000000)\n"
    "  --work COUNT,COUNT,...  iterations of the work loop per poll or cycle (overlap)\n"
    "  --cores CORE,CORE       of rank 0 and rank 1 (`-`: not pinned)\n"
    "  --verify                check every byte\n"
    "Results are JSON, a line per size and work, on standard output.\n";

static const char *const KINDS[] = {"ping-pong", "stream", "bidirectional", "overlap-polling", "overlap-wait"};

_Noreturn static void invalid(const char *option, const char *value, const char *expected) {
    fprintf(stderr, "clearstream-mpi: %s must be %s, not \"%s\"\n", option, expected, value);
    exit(2);
}

/* A number up to `end`, which it leaves behind it. */
static uint64_t number(const char *option, const char *text, const char **end, uint64_t least, uint64_t most,
                       const char *expected) {
    char *behind = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &behind, 10);
    if (*text < '0' || *text > '9' || errno != 0 || value < least || value > most) invalid(option, text, expected);
    *end = behind;
    return value;
}

static uint64_t whole(const char *option, const char *text, uint64_t least, uint64_t most, const char *expected) {
    const char *end = text;
    uint64_t value = number(option, text, &end, least, most, expected);
    if (*end != '\0') invalid(option, text, expected);
    return value;
}

/* Numbers with commas between them; returns how many. */
static size_t list(const char *option, const char *text, uint64_t least, uint64_t most, const char *expected,
                   uint64_t **numbers) {
    size_t count = 1;
    for (const char *at = text; *at != '\0'; at++) count += *at == ',';
    free(*numbers);
    *numbers = calloc(count, sizeof **numbers);
    if (*numbers == NULL) invalid(option, text, "a shorter list");
    const char *at = text;
    for (size_t index = 0; index < count; index++) {
        (*numbers)[index] = number(option, at, &at, least, most, expected);
        if (*at != (index + 1 < count ? ',' : '\0')) invalid(option, text, expected);
        at += *at == ',';
    }
    return count;
}

static void read_cores(const char *text, struct parameters *parameters) {
    static const char expected[] = "a core or `-` for each of two ranks, as in 0,1";
    const char *at = text;
    for (int rank = 0; rank < 2; rank++) {
        if (*at == '-') {
            at++;
        } else {
            parameters->cores[rank] = (int)number("--cores", at, &at, 0, 1 << 20, expected);
        }
        if (*at != (rank == 0 ? ',' : '\0')) invalid("--cores", text, expected);
        at += *at == ',';
    }
}

static enum kind read_kind(const char *text) {
    for (size_t index = 0; index < sizeof KINDS / sizeof *KINDS; index++) {
        if (strcmp(text, KINDS[index]) == 0) return (enum kind)index;
    }
    invalid("--kind", text, "ping-pong, stream, bidirectional, overlap-polling or overlap-wait");
}

void parameters_read(int count, char **arguments, struct parameters *parameters) {
    *parameters = (struct parameters){
        .kind = PING_PONG, .window = 64, .duration_ns = 200000000, .warm_up_ns = 20000000, .cores = {-1, -1}};
    for (int index = 1; index < count; index++) {
        const char *option = arguments[index];
        if (strcmp(option, "--help") == 0) {
            fputs(USAGE, stdout);
            exit(0);
        }
        if (strcmp(option, "--verify") == 0) {
            parameters->verify = true;
            continue;
        }
        const char *value = index + 1 < count ? arguments[++index] : "";
        if (strcmp(option, "--kind") == 0) {
            parameters->kind = read_kind(value);
        } else if (strcmp(option, "--sizes") == 0) {
            parameters->size_count =
                list(option, value, 1, 1 << 30, "message sizes of 1 to 1073741824 bytes, as in 1,64,1024", &parameters->sizes);
        } else if (strcmp(option, "--window") == 0) {
            parameters->window = whole(option, value, 1, 65536, "1 to 65536 messages");
        } else if (strcmp(option, "--duration-ns") == 0) {
            parameters->duration_ns = whole(option, value, 1, UINT64_MAX, "a time in nanoseconds");
        } else if (strcmp(option, "--iterations") == 0) {
            parameters->iterations = whole(option, value, 1, UINT64_MAX, "1 or more");
        } else if (strcmp(option, "--warm-up-ns") == 0) {
            parameters->warm_up_ns = whole(option, value, 0, UINT64_MAX, "a time in nanoseconds");
        } else if (strcmp(option, "--work") == 0) {
            parameters->work_count =
                list(option, value, 0, UINT64_MAX, "numbers of iterations, as in 1000,100000", &parameters->works);
        } else if (strcmp(option, "--cores") == 0) {
            read_cores(value, parameters);
        } else {
            fprintf(stderr, "clearstream-mpi: there is no option \"%s\"\n%s", option, USAGE);
            exit(2);
        }
    }
    if (parameters->size_count == 0) {
        fprintf(stderr, "clearstream-mpi: --sizes is missing\n%s", USAGE);
        exit(2);
    }
    /* Without work there is one interval of none. */
    if (parameters->work_count == 0) parameters->work_count = list("--work", "0", 0, 0, "0", &parameters->works);
}
