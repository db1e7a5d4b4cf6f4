/*
 * ticker.c -- the thread that logs the current work of a silent job
 */
#include "loggers/ticker.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"

#define SECOND_NS INT64_C(1000000000)

enum { FIRST_S = 10, EVERY_S = 30, LINE_BYTES = 200 };

struct td_ticker {
    const char *module;
    td_thread thread;
    td_queue *end; /* is empty until it is closed, at the end */
    pthread_mutex_t lock;
    td_ticker_times times; /* under the lock, as are all below */
    td_work work;
    int64_t work_ns; /* when the work began */
    bool is_over;
};

/* --- when and what ---------------------------------------------------------------------------- */

int64_t td_ticker_due(const td_ticker_times *t)
{
    return t->line_ns + (t->has_line ? t->every_ns : t->first_ns);
}

/* ", 25.3 images/s so far", or "" before the first iteration has finished */
static const char *rate_text(const td_work *w, char *out, size_t n)
{
    *out = '\0';
    if (w->n_images > 0 && w->seconds > 0)
        snprintf(out, n, ", %.1f images/s so far", (double)w->n_images / w->seconds);
    return out;
}

void td_ticker_text(const td_work *w, double seconds, char *out, size_t n)
{
    char rate[64];
    const long long epoch = w->epoch, at = w->at, of = w->n;
    *out = '\0';
    switch (w->kind) {
    case TD_WORK_OPEN:
        snprintf(out, n, "opening the data and compiling the network has taken %.0f s so far",
                 seconds);
        break;
    case TD_WORK_DATA:
        snprintf(out, n,
                 "epoch %lld: waiting for the images of iteration %lld of %lld for %.0f s%s", epoch,
                 at, of, seconds, rate_text(w, rate, sizeof rate));
        break;
    case TD_WORK_STEP:
        snprintf(out, n, "epoch %lld: iteration %lld of %lld has run for %.0f s%s", epoch, at, of,
                 seconds, rate_text(w, rate, sizeof rate));
        break;
    case TD_WORK_VALIDATION:
        snprintf(out, n, "epoch %lld: the validation has run for %.0f s, %lld of %lld batches",
                 epoch, seconds, at, of);
        break;
    case TD_WORK_NONE:
        break;
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

/* If a line is due at `now`, format it; *due_ns: when the next one is.  False: the job is over. */
static bool look(td_ticker *t, int64_t now, char *line, int64_t *due_ns)
{
    *line = '\0';
    pthread_mutex_lock(&t->lock);
    const bool is_over = t->is_over;
    if (now >= td_ticker_due(&t->times)) {
        td_ticker_text(&t->work, (double)(now - t->work_ns) * 1e-9, line, LINE_BYTES);
        t->times.line_ns = now;
        t->times.has_line = true;
    }
    *due_ns = td_ticker_due(&t->times);
    pthread_mutex_unlock(&t->lock);
    return !is_over;
}

static void tick(void *ctx)
{
    td_ticker *t = ctx;
    char line[LINE_BYTES];
    int64_t due_ns;
    while (look(t, td_now_ns(), line, &due_ns)) {
        if (*line)
            td_log(TD_LOG_INFO, t->module, "%s", line);
        td_queue_pop_until(t->end, due_ns);
    }
}

/* --- the job ---------------------------------------------------------------------------------- */

static td_status read_times(td_ticker_times *out)
{
    double seconds;
    const char *v = getenv("TANDEM_PROGRESS_SECONDS");
    *out = (td_ticker_times){ .line_ns = td_now_ns(),
                              .first_ns = FIRST_S * SECOND_NS,
                              .every_ns = EVERY_S * SECOND_NS };
    if (!v)
        return TD_OK;
    if (!td_text_to_real(v, &seconds) || !(seconds >= 0 && seconds <= 1e6))
        return td_error(TD_EUSAGE,
                        "TANDEM_PROGRESS_SECONDS is '%s', wanted a number of seconds, 0 to 1000000",
                        v);
    out->first_ns = out->every_ns = (int64_t)(seconds * (double)SECOND_NS);
    return TD_OK;
}

td_status td_ticker_start(const char *module, td_ticker **out)
{
    td_status st = TD_OK;
    td_ticker_times times;
    *out = NULL;
    TD_TRY(read_times(&times));
    if (times.every_ns == 0)
        return TD_OK;
    td_ticker *t = TD_NEW(td_ticker);
    if (!t)
        return TD_ENOMEM;
    t->module = module;
    t->times = times;
    pthread_mutex_init(&t->lock, NULL);
    TD_OUT(td_queue_new(1, &t->end));
    TD_OUT(td_thread_start(&t->thread, "ticker", tick, t));
    *out = t;
    t = NULL;
out:
    td_ticker_stop(t);
    return st;
}

void td_ticker_set(td_ticker *t, const td_work *w)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->work = *w;
    t->work_ns = td_now_ns();
    pthread_mutex_unlock(&t->lock);
}

void td_ticker_count(td_ticker *t, int64_t n)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    if (t->work.kind == TD_WORK_VALIDATION)
        t->work.at = n;
    pthread_mutex_unlock(&t->lock);
}

static void set_line(td_ticker *t, bool has_line)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->times.line_ns = td_now_ns();
    t->times.has_line = has_line;
    pthread_mutex_unlock(&t->lock);
}

void td_ticker_note_line(td_ticker *t)
{
    set_line(t, true);
}

void td_ticker_restart(td_ticker *t)
{
    set_line(t, false);
}

void td_ticker_stop(td_ticker *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->is_over = true;
    pthread_mutex_unlock(&t->lock);
    if (t->end)
        td_queue_close(t->end);
    td_thread_join(&t->thread);
    td_queue_free(t->end);
    pthread_mutex_destroy(&t->lock);
    td_free(t);
}
