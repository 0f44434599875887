/* The process that mpirun starts supervises the one that measures, and names it
 * when a signal ends it: mpirun of some libraries reports a number only, or nothing. */
#include "mpi_rank.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Interval of looking whether mpirun, or its daemon, is still there. */
#define PARENT_CHECK_NS 500000000

/* Rank as the launcher numbers it: PMIx and Open MPI, Hydra and Slurm. */
static const char *rank_of_environment(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
        const char *number = getenv(names[index]);
        if (number != NULL) return number;
    }
    return "?";
}

_Noreturn static void end_as(int status) {
    if (!WIFSIGNALED(status)) exit(WEXITSTATUS(status));
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    int number = WTERMSIG(status);
    fprintf(stderr, "clearstream-mpi: rank %s on %s: ended by signal %d (%s)\n", rank_of_environment(), host, number,
            strsignal(number));
    fflush(stderr);
    /* Launchers treat a rank that a signal ended differently from one that exits. */
    signal(number, SIG_DFL);
    raise(number);
    exit(128 + number);
}

/* Returns in the process that is supervised. */
void supervise(void) {
    sigset_t blocked, before;
    /* The parent of mpirun may ignore signals that are to end a rank, or those of its end. */
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    for (size_t index = 0; index < sizeof signals / sizeof *signals; index++) signal(signals[index], SIG_DFL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    pid_t launcher = getppid(), self = getpid(), child = fork();
    if (child < 0) {
        fprintf(stderr, "clearstream-mpi: a process cannot be started: %s\n", strerror(errno));
        exit(1);
    }
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self) _exit(1);
        return;
    }
    for (;;) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) end_as(status);
        /* The launcher is gone: nobody else would end this rank. The child dies with this process. */
        if (getppid() != launcher) _exit(1);
        struct timespec limit = {.tv_nsec = PARENT_CHECK_NS};
        sigtimedwait(&blocked, NULL, &limit);
    }
}
