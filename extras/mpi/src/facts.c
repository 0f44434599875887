/* Clocks, cores and counters of the host. */
#include "mpi_rank.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* All threads: MPI libraries may have threads of progress. */
uint64_t cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

bool pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core >= CPU_SETSIZE) return false;
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* The sum of sent bytes of the interfaces of this network namespace but for
 * loopback (proc(5)): /proc/self/net is that of the process, wherever /sys was mounted. */
uint64_t interfaces_sent_bytes(void) {
    FILE *file = fopen("/proc/self/net/dev", "r");
    if (file == NULL) return 0;
    char line[1024];
    uint64_t sum = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon == NULL) continue;
        *colon = '\0';
        const char *name = line + strspn(line, " ");
        unsigned long long sent = 0;
        /* Eight fields of receiving, then the bytes sent. */
        bool is_read = sscanf(colon + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %llu", &sent) == 1;
        if (is_read && strcmp(name, "lo") != 0) sum += sent;
    }
    fclose(file);
    return sum;
}
