/*
 * restarts.c -- decides whether ranks are started again, on how many, and where they resume
 */
#include "launch/restarts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/signals.h"
#include "transport/restart.h"

enum { PAUSE_MS = 1000 }; /* before all restarts but the first */

typedef struct {
    const td_restart_plan *plan;
    int min;
    int record_fd;
    char record[64]; /* path, "": none */
    td_restart_record at;
    bool has_position;
} restarts;

/* --- the record ------------------------------------------------------------------------------- */

/*
 * On this machine the record is memory, which the ranks inherit as a descriptor, and nothing is
 * left behind.  Otherwise it is a file in the current folder, which all machines share.
 */
static td_status open_record(restarts *r)
{
    const bool is_here = r->plan->is_here;
    char *path = r->record;
    snprintf(path, sizeof r->record, ".tandem-restart-XXXXXX");
    r->record_fd = is_here ? memfd_create("tandem-restart", 0) : mkostemp(path, O_CLOEXEC);
    if (r->record_fd < 0) {
        *path = '\0';
        return td_error_errno(TD_EIO, "--restarts: cannot create %s",
                              is_here ? "a file in memory" : "a file in the current folder");
    }
    if (is_here)
        snprintf(path, sizeof r->record, "/proc/self/fd/%d", r->record_fd);
    return setenv(TD_ENV_RESTART_RECORD, path, 1) == 0 ? TD_OK : TD_ENOMEM;
}

static void close_record(restarts *r)
{
    if (r->record_fd >= 0)
        close(r->record_fd);
    if (!r->plan->is_here && *r->record)
        (void)unlink(r->record);
    td_restart_clear();
}

/* --- the next attempt ------------------------------------------------------------------------- */

int td_restart_ranks(int most, int min, int64_t images, int64_t batch)
{
    int n = most;
    while (n >= min && images && images % (batch * n))
        n--;
    return n >= min ? n : 0;
}

/* *next: ranks of the restart; 0: none, and the cause is logged with the reason */
static void choose_ranks(const restarts *r, int ranks, const td_attempt *a, int *next)
{
    const int fewer = a->n_left - a->n_suspect;
    const int most = fewer >= r->min ? fewer : a->n_left;
    *next = 0;
    if (most < r->min) {
        td_log(TD_LOG_ERROR, "launch", "%s; no restart: %d ranks remain, --min-ranks is %d",
               a->cause, a->n_left, r->min);
        return;
    }
    *next = most == ranks
                ? most
                : td_restart_ranks(most, r->min, r->has_position ? r->at.images : 0, r->at.batch);
    if (*next == 0)
        td_log(TD_LOG_ERROR, "launch",
               "%s; no restart: no number of ranks from %d to %d with --batch-size %lld divides "
               "the %lld images of an optimizer step",
               a->cause, r->min, most, (long long)r->at.batch, (long long)r->at.images);
}

static void announce(const restarts *r, int number, int next, const td_attempt *a)
{
    char where[PATH_MAX + 60] = "from the beginning";
    if (r->has_position && *r->at.checkpoint)
        snprintf(where, sizeof where, "at step %lld, from '%s'", (long long)r->at.steps,
                 r->at.checkpoint);
    else if (r->has_position && r->at.steps)
        snprintf(where, sizeof where, "at step %lld, where the run began", (long long)r->at.steps);
    td_log(TD_LOG_WARN, "launch", "restart %d of %d: %s; %d rank%s continue%s %s", number,
           r->plan->restarts, a->cause, next, next == 1 ? "" : "s", next == 1 ? "s" : "", where);
}

/* a restart follows unless *next is 0 */
static td_status prepare(restarts *r, int number, int ranks, const td_attempt *a, int *next)
{
    *next = 0;
    if (number > r->plan->restarts) {
        if (number == 1)
            td_log(TD_LOG_ERROR, "launch", "%s", a->cause);
        else
            td_log(TD_LOG_ERROR, "launch", "%s, after %d restarts", a->cause, number - 1);
        return TD_OK;
    }
    td_status st = td_restart_read(r->record, &r->at, &r->has_position);
    if (st != TD_OK) {
        td_log(TD_LOG_ERROR, "launch", "%s", a->cause);
        return st;
    }
    choose_ranks(r, ranks, a, next);
    if (*next == 0)
        return TD_OK;
    announce(r, number, *next, a);
    if (number > 1)
        (void)poll(NULL, 0, PAUSE_MS); /* a signal ends it */
    return td_restart_export(r->has_position ? &r->at : NULL, r->plan->ranks);
}

static td_status number_start(int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    return setenv(TD_ENV_RESTART_NUMBER, text, 1) == 0 ? TD_OK : TD_ENOMEM;
}

static td_status check_plan(const td_restart_plan *p)
{
    if (p->min_ranks && !p->restarts)
        return td_error(TD_EUSAGE, "--min-ranks requires --restarts");
    if (p->min_ranks > p->ranks)
        return td_error(TD_EUSAGE, "--min-ranks: %d is more than the %d ranks of the start",
                        p->min_ranks, p->ranks);
    return TD_OK;
}

td_status td_restarts_run(const td_restart_plan *plan, td_attempt_run *run, void *ctx, int *code)
{
    td_status st = TD_OK;
    int next = plan->ranks;
    TD_TRY(check_plan(plan));
    restarts *r = TD_NEW(restarts);
    if (!r)
        return TD_ENOMEM;
    r->plan = plan;
    r->min = plan->min_ranks ? plan->min_ranks : plan->ranks;
    r->record_fd = -1;
    td_restart_clear();
    td_signals_catch();
    TD_OUT(plan->restarts ? open_record(r) : TD_OK);
    for (int number = 1; next > 0; number++) {
        const int ranks = next;
        td_attempt a = { .n_left = ranks };
        next = 0;
        TD_OUT(number_start(number));
        TD_OUT(run(ctx, ranks, &a));
        *code = a.code;
        if (a.is_lost && !td_signal_caught())
            TD_OUT(prepare(r, number, ranks, &a, &next));
        else if (*a.cause)
            td_log(TD_LOG_ERROR, "launch", "%s", a.cause);
        if (td_signal_caught() && next) {
            *code = 128 + td_signal_caught();
            next = 0;
        }
    }
out:
    close_record(r);
    td_free(r);
    return st;
}
