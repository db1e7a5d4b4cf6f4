/*
 * batcher.c -- two queues with room for every job there may be, so that no push ever waits
 */
#include "serve/batcher.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/os.h"
#include "base/threads.h"

typedef struct {
    td_batcher *b;
    td_thread thread;
    td_transformer buffers;
} worker;

struct td_batcher {
    td_batcher_opts o;
    td_queue *submitted, *ready;
    atomic_int load; /* jobs between enter and done */
    worker *workers;
    td_job *left; /* was taken from `ready`, and did not fit into the last batch */

    /* of td_batcher_turn */
    td_job **jobs; /* [max_rows] */
    float *images; /* [max_rows, 3, S, S] */
    td_row *rows;  /* [max_rows], or as many as a request may have */
    size_t row_floats;
};

static void finish(td_batcher *b, td_job *job, td_status st)
{
    atomic_fetch_sub(&b->load, 1); /* before `done`: the job may be gone after it */
    job->done(job, st);
}

static void work(void *ctx)
{
    worker *w = ctx;
    td_job *job;
    td_thread_be_nice(1);
    while ((job = td_queue_pop(w->b->submitted))) {
        if (job->read(job, &w->buffers))
            TD_CHECK(td_queue_push(w->b->ready, job));
        else
            finish(w->b, job, TD_OK);
    }
}

static td_status set_up(td_batcher *b)
{
    size_t rows = (size_t)b->o.max_rows,
           size = (size_t)td_predictor_transform(b->o.predictor)->size;
    b->row_floats = 3 * size * size;
    b->jobs = td_alloc(rows, sizeof *b->jobs);
    b->images = b->jobs ? td_alloc(rows, b->row_floats * sizeof(float)) : NULL;
    b->rows = td_alloc(rows > TD_ROWS_MAX ? rows : TD_ROWS_MAX, sizeof *b->rows);
    b->workers = b->images && b->rows ? td_alloc((size_t)b->o.workers, sizeof *b->workers) : NULL;
    if (!b->workers)
        return TD_ENOMEM;
    TD_TRY(td_queue_new((size_t)b->o.max_jobs, &b->submitted));
    TD_TRY(td_queue_new((size_t)b->o.max_jobs, &b->ready));
    for (int i = 0; i < b->o.workers; i++) {
        b->workers[i].b = b;
        TD_TRY(td_thread_start(&b->workers[i].thread, "decode", work, &b->workers[i]));
    }
    return TD_OK;
}

td_status td_batcher_new(const td_batcher_opts *opts, td_batcher **out)
{
    *out = NULL;
    td_batcher *b = TD_NEW(td_batcher);
    if (!b)
        return TD_ENOMEM;
    b->o = *opts;
    td_status st = set_up(b);
    if (st == TD_OK)
        *out = b;
    else
        td_batcher_free(b);
    return st;
}

void td_batcher_free(td_batcher *b)
{
    if (!b)
        return;
    if (b->submitted)
        td_queue_close(b->submitted);
    for (int i = 0; b->workers && i < b->o.workers; i++) {
        td_thread_join(&b->workers[i].thread);
        td_transformer_release(&b->workers[i].buffers);
    }
    td_queue_free(b->submitted);
    td_queue_free(b->ready);
    td_free(b->workers);
    td_free(b->jobs);
    td_free(b->images);
    td_free(b->rows);
    td_free(b);
}

/* --- places ----------------------------------------------------------------------------------- */

bool td_batcher_enter(td_batcher *b)
{
    if (atomic_fetch_add(&b->load, 1) < b->o.max_jobs)
        return true;
    td_batcher_leave(b);
    return false;
}

void td_batcher_leave(td_batcher *b)
{
    atomic_fetch_sub(&b->load, 1);
}

void td_batcher_submit(td_batcher *b, td_job *job)
{
    TD_CHECK(td_queue_push(b->submitted, job));
}

int td_batcher_load(const td_batcher *b)
{
    return atomic_load(&b->load);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* the first job, then others while they fit and are worth waiting for; returns how many */
static int gather(td_batcher *b, td_job *first, int *rows)
{
    int64_t until_ns = td_now_ns() + b->o.max_delay_ns;
    int n = 0;
    *rows = 0;
    for (td_job *job = first; job; job = td_queue_pop_until(b->ready, until_ns)) {
        if (n && *rows + job->work.n > b->o.max_rows) {
            b->left = job;
            break;
        }
        b->jobs[n++] = job;
        *rows += job->work.n;
        if (*rows >= b->o.max_rows)
            break;
        if (n >= td_batcher_load(b))
            until_ns = 0; /* nobody else is on the way */
    }
    return n;
}

static td_status take(void *ctx, int from, int n, const float *const results[2])
{
    const td_batcher *b = ctx;
    return b->o.service->kind->take(b->o.service, b->rows + from, n, results);
}

/* the pictures of n jobs; one job's own stay where they are, and may be as many as it likes */
static const float *lay_out(td_batcher *b, int n)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        td_work *w = &b->jobs[i]->work;
        if (n > 1)
            memcpy(b->images + at * b->row_floats, w->images,
                   (size_t)w->n * b->row_floats * sizeof(float));
        for (int k = 0; k < w->n; k++)
            b->rows[at++] = (td_row){ w, k };
    }
    return n > 1 ? b->images : b->jobs[0]->work.images;
}

void td_batcher_turn(td_batcher *b, int64_t wait_ns)
{
    td_job *first = b->left;
    int rows;
    b->left = NULL;
    if (!first)
        first = td_queue_pop_until(b->ready, td_now_ns() + wait_ns);
    if (!first)
        return;
    int n = gather(b, first, &rows);
    td_status st = td_predictor_each(b->o.predictor, lay_out(b, n), rows, take, b);
    td_metrics_batch(b->o.metrics, rows);
    for (int i = 0; i < n; i++)
        finish(b, b->jobs[i], st);
}
