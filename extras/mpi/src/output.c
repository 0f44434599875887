/* Results of rank 0: one JSON document per line. */
#include "mpi_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A string up to its first line's end. */
static void print_string(const char *text) {
    putchar('"');
    for (; *text != '\0' && *text != '\n'; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') putchar('\\');
        if (letter < 0x20) {
            putchar(' ');
        } else {
            putchar(letter);
        }
    }
    putchar('"');
}

void print_ranks(const struct rank *rank, const char *hosts, size_t host_bytes, const int64_t *processes, int count) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, version = 0, subversion = 0;
    MPI_Get_library_version(library, &length);
    MPI_Get_version(&version, &subversion);
    printf("{\"event\":\"ranks\",\"library\":");
    print_string(library);
    printf(",\"standard\":\"%d.%d\",\"ranks\":[", version, subversion);
    for (int index = 0; index < count; index++) {
        printf("%s{\"rank\":%d,\"host\":", index == 0 ? "" : ",", index);
        print_string(hosts + (size_t)index * host_bytes);
        printf(",\"process\":%lld}", (long long)processes[index]);
    }
    printf("]}\n");
    fflush(stdout);
    if (ferror(stdout)) fail(rank, "cannot write results");
}

static int by_time(const void *one, const void *other) {
    uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;
    return (first > second) - (first < second);
}

/* Half of the round trips, by nearest rank. */
static void print_latency(const struct times *times) {
    size_t count = times->round_trip_count;
    uint64_t *sorted = times->round_trips_ns;
    if (count == 0) return;
    qsort(sorted, count, sizeof *sorted, by_time);
    uint64_t sum = 0;
    for (size_t index = 0; index < count; index++) sum += sorted[index];
    size_t median = (count * 50 + 99) / 100 - 1, nearly_all = (count * 99 + 99) / 100 - 1;
    printf(",\"latency\":{\"min_ns\":%llu,\"mean_ns\":%llu,\"p50_ns\":%llu,\"p99_ns\":%llu,\"max_ns\":%llu}",
           (unsigned long long)sorted[0] / 2, (unsigned long long)(sum / count / 2),
           (unsigned long long)sorted[median] / 2, (unsigned long long)sorted[nearly_all] / 2,
           (unsigned long long)sorted[count - 1] / 2);
}

static bool overlaps(enum kind kind) { return kind == OVERLAP_POLLING || kind == OVERLAP_WAIT; }

/* What was done: iterations of a message size, or cycles of an interval of work. */
static void print_counts(const struct rank *rank, uint64_t size, uint64_t iterations, const struct times *times) {
    if (!overlaps(rank->parameters->kind)) {
        printf("\"size_bytes\":%llu,\"iteration_count\":%llu", (unsigned long long)size,
               (unsigned long long)iterations);
        return;
    }
    double elapsed = times->elapsed_ns == 0 ? 1.0 : (double)times->elapsed_ns;
    printf("\"work_count\":%llu,\"cycle_count\":%llu,\"work_alone_ns\":%llu,\"availability_ratio\":%.6f",
           (unsigned long long)rank->work, (unsigned long long)iterations, (unsigned long long)times->work_alone_ns,
           (double)times->work_alone_ns / elapsed);
    if (rank->parameters->kind == OVERLAP_WAIT) {
        printf(",\"post_ns\":%llu,\"work_ns\":%llu,\"wait_ns\":%llu", (unsigned long long)times->post_ns,
               (unsigned long long)times->work_ns, (unsigned long long)times->wait_ns);
    }
}

void print_point(const struct rank *rank, uint64_t size, uint64_t iterations, const struct times *times,
                 const struct report *own, const struct report *other) {
    double seconds = times->elapsed_ns == 0 ? 1e-9 : (double)times->elapsed_ns / 1e9;
    double messages = (double)(times->sent + times->received);
    printf("{\"event\":\"point\",");
    print_counts(rank, size, iterations, times);
    printf(",\"server_received_count\":%llu,\"client_received_count\":%llu,\"elapsed_ns\":%llu",
           (unsigned long long)other->received, (unsigned long long)own->received,
           (unsigned long long)times->elapsed_ns);
    if (rank->parameters->kind == PING_PONG) {
        print_latency(times);
        printf(",\"throughput_bps\":%.3f", (double)size * 8.0 * 2.0 * (double)iterations / seconds);
    } else {
        printf(",\"bandwidth_bps\":%.3f,\"message_rate_per_second\":%.3f", (double)size * 8.0 * messages / seconds,
               messages / seconds);
    }
    printf(",\"client_cpu_ratio\":%.6f,\"server_cpu_ratio\":%.6f", (double)own->cpu_ns / 1e9 / seconds,
           (double)other->cpu_ns / 1e9 / seconds);
    printf(",\"interfaces\":{\"client_sent_bytes\":%llu,\"server_sent_bytes\":%llu}}\n",
           (unsigned long long)own->interfaces_bytes, (unsigned long long)other->interfaces_bytes);
    fflush(stdout);
    if (ferror(stdout)) fail(rank, "cannot write results");
}

void print_end(const struct rank *rank) {
    printf("{\"event\":\"end\",\"point_count\":%zu}\n",
           rank->parameters->size_count * rank->parameters->work_count);
    fflush(stdout);
}
