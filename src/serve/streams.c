/*
 * streams.c -- several batches at the same time
 *
 * A stream is a thread with programs and compute threads of its own.  With n streams of T/n threads
 * fewer threads wait for each other at the end of each kernel than with one of T, and what a kernel
 * does not divide runs n times at once.  A single batch takes longer.
 */
#include "serve/streams.h"

#include <stdatomic.h>

#include "base/arena.h"
#include "base/threads.h"

#define TICK_NS INT64_C(100000000) /* between two checks for the end */

typedef struct {
    td_streams *all;
    int i;
    td_thread thread;
    td_status st; /* of the start */
    char *error;
} stream;

struct td_streams {
    td_predictor *predictor;
    td_batcher *batcher;
    td_queue *started; /* streams that have timed their programs */
    atomic_bool is_over;
    int n;
    stream list[]; /* [n - 1] streams 1 .. n - 1 */
};

static void run(void *ctx)
{
    stream *s = ctx;
    td_streams *all = s->all;
    td_predictor_enter(all->predictor, s->i);
    s->st = td_predictor_time(all->predictor, s->i);
    if (s->st != TD_OK)
        s->error = td_copy_text(td_error_message());
    TD_CHECK(td_queue_push(all->started, s)); /* it has room for all */
    while (s->st == TD_OK && !atomic_load(&all->is_over))
        td_batcher_run_batch(all->batcher, s->i, TICK_NS);
}

static td_status start_threads(td_streams *all)
{
    td_status first = TD_OK;
    int n_started = 0;
    for (; n_started < all->n - 1 && first == TD_OK; n_started += first == TD_OK) {
        stream *s = &all->list[n_started];
        *s = (stream){ .all = all, .i = n_started + 1 };
        first = td_thread_start(&s->thread, "compute", run, s);
    }
    if (first == TD_OK)
        first = td_predictor_time(all->predictor, 0);
    for (int i = 0; i < n_started; i++) {
        const stream *s = td_queue_pop(all->started);
        if (s->st != TD_OK && first == TD_OK)
            first = td_error_set(s->st, s->error ? s->error : td_status_text(s->st));
    }
    return first;
}

td_status td_streams_start(td_predictor *p, td_batcher *b, td_streams **out)
{
    const int n = td_predictor_streams(p);
    td_streams *all = td_alloc(1, sizeof *all + (size_t)(n - 1) * sizeof all->list[0]);
    *out = NULL;
    if (!all)
        return TD_ENOMEM;
    *all = (td_streams){ .predictor = p, .batcher = b, .n = n };
    td_status st = td_queue_new((size_t)n, &all->started);
    if (st == TD_OK)
        st = start_threads(all);
    if (st == TD_OK)
        *out = all;
    else
        td_streams_stop(all);
    return st;
}

void td_streams_stop(td_streams *s)
{
    if (!s)
        return;
    atomic_store(&s->is_over, true);
    for (int i = 0; i < s->n - 1; i++) {
        td_thread_join(&s->list[i].thread);
        td_free(s->list[i].error);
    }
    td_queue_free(s->started);
    td_free(s);
}
