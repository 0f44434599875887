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

static void print_overlap(const struct rank *rank, uint64_t iterations, const struct times *times) {
    double cycles = (double)iterations;
    double elapsed = times->elapsed_ns == 0 ? 1.0 : (double)times->elapsed_ns;
    printf(",\"overlap\":{\"work_iterations\":%llu,\"work_alone_ns\":%.1f,\"availability_ratio\":%.6f",
           (unsigned long long)rank->parameters->work, (double)times->work_alone_ns / cycles,
           (double)times->work_alone_ns / elapsed);
    if (rank->parameters->kind == OVERLAP_WAIT) {
        printf(",\"post_ns\":%.1f,\"work_ns\":%.1f,\"wait_ns\":%.1f", (double)times->post_ns / cycles,
               (double)times->work_ns / cycles, (double)times->wait_ns / cycles);
    }
    printf("}");
}

void print_size(const struct rank *rank, uint64_t size, uint64_t iterations, const struct times *times,
                const struct report *own, const struct report *other) {
    enum kind kind = rank->parameters->kind;
    double seconds = times->elapsed_ns == 0 ? 1e-9 : (double)times->elapsed_ns / 1e9;
    double messages = (double)(times->sent + times->received);
    printf("{\"event\":\"size\",\"size_bytes\":%llu,\"iteration_count\":%llu,\"server_received_count\":%llu,"
           "\"client_received_count\":%llu,\"elapsed_ns\":%llu",
           (unsigned long long)size, (unsigned long long)iterations, (unsigned long long)other->received,
           (unsigned long long)own->received, (unsigned long long)times->elapsed_ns);
    if (kind == PING_PONG) {
        print_latency(times);
        printf(",\"throughput_bps\":%.3f", (double)size * 8.0 * 2.0 * (double)iterations / seconds);
    } else {
        printf(",\"bandwidth_bps\":%.3f,\"message_rate_per_second\":%.3f", (double)size * 8.0 * messages / seconds,
               messages / seconds);
    }
    if (kind == OVERLAP_POLLING || kind == OVERLAP_WAIT) print_overlap(rank, iterations, times);
    printf(",\"client_cpu_ratio\":%.6f,\"server_cpu_ratio\":%.6f", (double)own->cpu_ns / 1e9 / seconds,
           (double)other->cpu_ns / 1e9 / seconds);
    printf(",\"interfaces\":{\"client_sent_bytes\":%llu,\"server_sent_bytes\":%llu}}\n",
           (unsigned long long)own->interfaces_bytes, (unsigned long long)other->interfaces_bytes);
    fflush(stdout);
    if (ferror(stdout)) fail(rank, "cannot write results");
}

void print_end(const struct rank *rank) {
    printf("{\"event\":\"end\",\"size_count\":%zu}\n", rank->parameters->size_count);
    fflush(stdout);
}
