/*
 * mpirun_watch.c -- the process that ends an mpirun after a machine was lost
 *
 *   launch --- exec ---> mpirun ---> ranks --- a rank was lost ---> [ record ]
 *      \                   ^                                           |
 *       --- fork ---> this process  <------------------------- read ---
 *
 * The mpirun of Open MPI waits for a machine that it cannot reach, although all ranks of the
 * others have ended.  It is watched by its child, not by its parent, so that it replaces `launch`:
 * signals, the terminal and the exit code are its own.
 */
#include "launch/mpirun_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "transport/restart.h"

#define SECOND INT64_C(1000000000)
enum { TURN_NS = 500000000, KILL_S = 7 /* MPI_Abort takes 1 to 2 s */ };

/* SIGTERM would not do: Open MPI's mpirun is ending already, and then prints a stack trace */
static void end_mpirun(pid_t mpirun)
{
    td_log(TD_LOG_ERROR, "launch",
           "mpirun was still running %d s after a rank was lost: it may be waiting for a machine "
           "that it cannot reach, and is killed",
           KILL_S);
    (void)kill(mpirun, SIGKILL);
}

/* All signals are blocked; the kernel sends SIGTERM when mpirun ends.  SIGTERM from elsewhere, as
   to all processes of a job, ends the watch. */
static _Noreturn void watch(pid_t mpirun, const char *record)
{
    int64_t lost_ns = 0;
    bool is_overdue = false;
    sigset_t ended;
    const struct timespec turn = { .tv_nsec = TURN_NS };
    (void)sigemptyset(&ended);
    (void)sigaddset(&ended, SIGTERM);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)setsid();
    while (!is_overdue && getppid() == mpirun && sigtimedwait(&ended, NULL, &turn) != SIGTERM) {
        const int64_t now = td_now_ns();
        if (!lost_ns && td_restart_has(TD_RESTART_LOSS))
            lost_ns = now;
        is_overdue = lost_ns && now - lost_ns >= KILL_S * SECOND;
    }
    (void)unlink(record); /* first: a process that waits for mpirun finds no file */
    if (is_overdue && getppid() == mpirun)
        end_mpirun(mpirun);
    _exit(0);
}

td_status td_mpirun_watch(void)
{
    char record[] = ".tandem-launch-XXXXXX";
    sigset_t before;
    const int fd = mkostemp(record, O_CLOEXEC);
    if (fd < 0)
        return td_error_errno(TD_EIO, "cannot create a file in the current folder");
    close(fd);
    td_status st = td_restart_export_watch(record);
    if (st != TD_OK) {
        (void)unlink(record);
        return st;
    }
    (void)fflush(NULL);
    td_signals_block(&before);
    const pid_t self = getpid(), pid = fork();
    if (pid == 0)
        watch(self, record);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid > 0)
        return TD_OK;
    st = td_error_errno(TD_EIO, "cannot start a process");
    (void)unlink(record);
    td_restart_clear();
    return st;
}
