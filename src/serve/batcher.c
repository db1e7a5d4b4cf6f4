/*
 * batcher.c -- batches rows of requests; the queues have room for all jobs, so no push waits
 *
 * Where images are decoded to bytes, for a GPU to normalize, a batch of them is run as bytes.  In a
 * batch with the floats of an infer request they are normalized here: the numbers are the same.
 */
#include "serve/batcher.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"

enum { KEPT_BYTES = 8 << 20 }; /* of buffers that a worker keeps between images */

typedef struct {
    td_batcher *b;
    td_queue *from;
    td_thread thread;
    td_transformer buffers;
} worker;

struct td_batcher {
    td_batcher_opts o;
    td_queue *submitted, *large, *ready;
    atomic_int load, n_large; /* jobs between enter and done; large jobs not yet read */
    worker *workers;          /* [n_workers], workers for large images last */
    int n_workers;
    td_job *left; /* taken from `ready`, but did not fit into the last batch */

    /* used by td_batcher_run_batch */
    td_job **jobs; /* [max_rows] */
    char *images;  /* [max_rows] rows of row_values floats or bytes */
    td_row *rows;  /* [max_rows] */
    size_t row_values;
};

static void finish(td_batcher *b, td_job *job, td_status st)
{
    atomic_fetch_sub(&b->load, 1); /* before `done`: the job may be gone after it */
    job->done(job, st);
}

/* pushes a job to a queue, which has room for all jobs */
static void enqueue(td_queue *q, td_job *job)
{
    job->since_ns = td_now_ns();
    TD_CHECK(td_queue_push(q, job));
}

/* returns the memory of a large request to the system */
static void shrink(td_transformer *w, bool was_large)
{
    const size_t held =
        w->stored.cap_bytes + w->decoded.cap_bytes + w->cut.cap_bytes + w->sized.cap_bytes;
    if (held > KEPT_BYTES)
        td_transformer_release(w);
    if (held > KEPT_BYTES || was_large)
        td_memory_trim();
}

static void read_jobs(void *ctx)
{
    worker *w = ctx;
    td_batcher *b = w->b;
    td_job *job;
    td_thread_be_nice(1);
    while ((job = td_queue_pop(w->from))) {
        const int64_t begin_ns = td_now_ns();
        job->spans.queue_ns += begin_ns - job->since_ns;
        const td_read_result result = job->read(job, &w->buffers);
        job->spans.input_ns += td_now_ns() - begin_ns;
        shrink(&w->buffers, w->from == b->large);
        if (w->from == b->large)
            atomic_fetch_sub(&b->n_large, 1);
        if (result == TD_READ_NOTHING)
            finish(b, job, TD_OK);
        else
            enqueue(result == TD_READ_LARGE ? b->large : b->ready, job);
    }
}

static td_status start_workers(td_batcher *b)
{
    const int n = b->o.workers + b->o.large_workers;
    TD_TRY(TD_ALLOC(b->workers, (size_t)n));
    for (; b->n_workers < n; b->n_workers++) {
        worker *w = &b->workers[b->n_workers];
        const bool is_large = b->n_workers >= b->o.workers;
        *w = (worker){ .b = b, .from = is_large ? b->large : b->submitted };
        TD_TRY(td_thread_start(&w->thread, is_large ? "decode-large" : "decode", read_jobs, w));
    }
    return TD_OK;
}

static td_status set_up(td_batcher *b)
{
    size_t rows = (size_t)b->o.max_rows, jobs = (size_t)b->o.max_jobs,
           size = (size_t)td_predictor_transform(b->o.predictor)->size;
    b->row_values = 3 * size * size;
    TD_TRY(TD_ALLOC(b->jobs, rows));
    TD_TRY(td_alloc_to(&b->images, rows, b->row_values * sizeof(float)));
    TD_TRY(TD_ALLOC(b->rows, rows));
    TD_TRY(td_queue_new(jobs, &b->submitted));
    TD_TRY(td_queue_new(jobs, &b->large));
    TD_TRY(td_queue_new(jobs, &b->ready));
    return start_workers(b);
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
    if (b->large)
        td_queue_close(b->large);
    for (int i = 0; i < b->n_workers; i++) {
        td_thread_join(&b->workers[i].thread);
        td_transformer_release(&b->workers[i].buffers);
    }
    td_queue_free(b->submitted);
    td_queue_free(b->large);
    td_queue_free(b->ready);
    td_free(b->workers);
    td_free(b->jobs);
    td_free(b->images);
    td_free(b->rows);
    td_free(b);
}

/* --- admission -------------------------------------------------------------------------------- */

bool td_batcher_enter(td_batcher *b)
{
    if (atomic_fetch_add(&b->load, 1) < b->o.max_jobs)
        return true;
    td_batcher_leave(b);
    return false;
}

bool td_batcher_enter_large(td_batcher *b)
{
    if (atomic_fetch_add(&b->n_large, 1) < b->o.max_large)
        return true;
    atomic_fetch_sub(&b->n_large, 1);
    return false;
}

void td_batcher_leave(td_batcher *b)
{
    atomic_fetch_sub(&b->load, 1);
}

void td_batcher_submit(td_batcher *b, td_job *job)
{
    job->spans = (td_spans){ 0 };
    job->n_computed = 0;
    enqueue(b->submitted, job);
}

int td_batcher_load(const td_batcher *b)
{
    return atomic_load(&b->load);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* number of a job's rows in this batch; a request larger than a batch is computed in several */
static int rows_of(const td_batcher *b, const td_job *job)
{
    const int left = job->work.n - job->n_computed;
    return left < b->o.max_rows ? left : b->o.max_rows;
}

/* collects the first job, then others as long as they fit and waiting for them is useful; returns
   the number of jobs */
static int gather(td_batcher *b, td_job *first, int *rows)
{
    int64_t until_ns = td_now_ns() + b->o.max_delay_ns;
    int n = 0;
    *rows = 0;
    for (td_job *job = first; job; job = td_queue_pop_until(b->ready, until_ns)) {
        if (n && *rows + rows_of(b, job) > b->o.max_rows) {
            b->left = job;
            break;
        }
        b->jobs[n++] = job;
        *rows += rows_of(b, job);
        if (*rows >= b->o.max_rows)
            break;
        if (n >= td_batcher_load(b))
            until_ns = 0; /* no other request is on its way */
    }
    return n;
}

static td_status store_results(void *ctx, int from, int n, const float *const results[2])
{
    const td_batcher *b = ctx;
    return b->o.service->kind->store_results(b->o.service, b->rows + from, n, results);
}

/* bytes if all jobs have them */
static td_dtype dtype_of(const td_batcher *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!b->jobs[i]->work.pixels)
            return TD_DT_F32;
    return TD_DT_U8;
}

/* pixels u8[rows, S, S, 3] -> f32[rows, 3, S, S] */
static void normalize(const td_batcher *b, const uint8_t *pixels, int rows, float *out)
{
    const td_transform *t = td_predictor_transform(b->o.predictor);
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)i * b->row_values;
        const td_image image = { .px = (uint8_t *)pixels + at,
                                 .width = t->size,
                                 .height = t->size };
        td_image_normalise_by(&image, td_transform_norm(t), false, out + at);
    }
}

/* the next rows of a job, to be copied to `room` unless they can be used in place */
static const void *rows_in(td_batcher *b, const td_job *job, td_dtype dtype, bool in_place,
                           char *room)
{
    const td_work *w = &job->work;
    const int rows = rows_of(b, job);
    const size_t from = (size_t)job->n_computed * b->row_values;
    const void *own = w->pixels ? (const void *)(w->pixels + from) : w->images + from;
    if (w->pixels && dtype == TD_DT_F32)
        normalize(b, own, rows, (float *)(void *)room);
    else if (in_place)
        return own;
    else
        memcpy(room, own, (size_t)rows * b->row_values * td_dtype_bytes(dtype));
    return room;
}

/* gathers the images of n jobs; a single job's images are used in place */
static const void *join_images(td_batcher *b, int n, td_dtype dtype)
{
    const void *from = NULL;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        td_job *job = b->jobs[i];
        const int rows = rows_of(b, job);
        from =
            rows_in(b, job, dtype, n == 1, b->images + at * b->row_values * td_dtype_bytes(dtype));
        for (int k = 0; k < rows; k++)
            b->rows[at++] = (td_row){ &job->work, job->n_computed + k };
    }
    return n > 1 ? b->images : from;
}

/* finishes complete jobs; the others are queued again */
static void finish_jobs(td_batcher *b, int n, td_status st, int64_t infer_ns)
{
    for (int i = 0; i < n; i++) {
        td_job *job = b->jobs[i];
        job->n_computed += rows_of(b, job);
        job->spans.infer_ns += infer_ns;
        if (st != TD_OK || job->n_computed == job->work.n)
            finish(b, job, st);
        else
            enqueue(b->ready, job);
    }
}

void td_batcher_run_batch(td_batcher *b, int64_t wait_ns)
{
    td_job *first = b->left;
    int rows;
    b->left = NULL;
    if (!first)
        first = td_queue_pop_until(b->ready, td_now_ns() + wait_ns);
    if (!first)
        return;
    const int n = gather(b, first, &rows);
    const int64_t begin_ns = td_now_ns();
    for (int i = 0; i < n; i++)
        b->jobs[i]->spans.queue_ns += begin_ns - b->jobs[i]->since_ns;
    const td_dtype dtype = dtype_of(b, n);
    const void *images = join_images(b, n, dtype);
    td_spans spans = { .input_ns = td_now_ns() - begin_ns };
    td_status st = td_predictor_each(b->o.predictor, images, dtype, rows, store_results, b);
    const int64_t computed_ns = td_now_ns();
    spans.infer_ns = computed_ns - begin_ns - spans.input_ns;
    finish_jobs(b, n, st, spans.infer_ns);
    spans.output_ns = td_now_ns() - computed_ns;
    td_metrics_batch(b->o.metrics, rows, &spans);
}
