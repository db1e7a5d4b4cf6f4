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

/* rows of a job in a batch */
typedef struct {
    td_job *job;
    int from, n;
    int64_t since_ns; /* when the job entered the queue it was taken from */
    bool is_last;     /* all rows of the job are now in batches */
} part;

/* the batch of a stream; used by its thread only */
typedef struct {
    td_batcher *b;
    int stream;
    part *parts; /* [max_rows] */
    int n, n_rows;
    char *images; /* [max_rows] rows of row_values floats or bytes */
    td_row *rows; /* [max_rows] */
} batch;

struct td_batcher {
    td_batcher_opts o;
    td_queue *submitted, *large, *ready;
    worker *workers; /* [n_workers], workers for large images last */
    int n_workers;
    batch *batches; /* [n_streams] */
    int n_streams;
    size_t row_values;

    /* numbers of jobs.  Those on their way to a batch: load - n_taken; not yet computed, with those
       that streams gather: load - n_computing */
    atomic_int load, n_large;        /* between enter and done; large ones not yet read */
    atomic_int n_taken, n_computing; /* of `load`: all rows are in batches; in computed ones */
    atomic_int n_busy;               /* streams that compute */
    pthread_mutex_t lock;            /* guards results of jobs whose rows are in several batches */
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

static td_status set_up_batch(td_batcher *b, int stream)
{
    const size_t rows = (size_t)b->o.max_rows;
    batch *a = &b->batches[stream];
    *a = (batch){ .b = b, .stream = stream };
    TD_TRY(TD_ALLOC(a->parts, rows));
    TD_TRY(td_alloc_to(&a->images, rows, b->row_values * sizeof(float)));
    return TD_ALLOC(a->rows, rows);
}

static td_status set_up(td_batcher *b)
{
    const size_t jobs = (size_t)b->o.max_jobs;
    b->row_values = td_transform_values(td_predictor_transform(b->o.predictor));
    b->n_streams = td_predictor_streams(b->o.predictor);
    TD_TRY(TD_ALLOC(b->batches, (size_t)b->n_streams));
    for (int i = 0; i < b->n_streams; i++)
        TD_TRY(set_up_batch(b, i));
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
    TD_CHECK(pthread_mutex_init(&b->lock, NULL) == 0);
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
    for (int i = 0; b->batches && i < b->n_streams; i++) {
        td_free(b->batches[i].parts);
        td_free(b->batches[i].images);
        td_free(b->batches[i].rows);
    }
    td_free(b->batches);
    pthread_mutex_destroy(&b->lock);
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
    job->n_taken = job->n_computed = 0;
    job->st = TD_OK;
    job->error = NULL;
    enqueue(b->submitted, job);
}

int td_batcher_load(const td_batcher *b)
{
    return atomic_load(&b->load);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* number of a job's rows in its next batch; a request larger than a batch is computed in several */
static int rows_of(const td_batcher *b, const td_job *job)
{
    const int left = job->work.n - job->n_taken;
    return left < b->o.max_rows ? left : b->o.max_rows;
}

/* adds a job's next rows; the rest of them goes to other batches, perhaps of other streams */
static void add_part(batch *a, td_job *job)
{
    td_batcher *b = a->b;
    const int n = rows_of(b, job);
    part *p = &a->parts[a->n++];
    *p = (part){ .job = job, .from = job->n_taken, .n = n, .since_ns = job->since_ns };
    a->n_rows += n;
    job->n_taken += n;
    p->is_last = job->n_taken == job->work.n;
    if (p->is_last)
        atomic_fetch_add(&b->n_taken, 1);
    else
        enqueue(b->ready, job);
}

/* is waiting useless, because no other request is on its way, or unfair to the idle streams? */
static bool has_share(const batch *a)
{
    const td_batcher *b = a->b;
    const int load = atomic_load(&b->load), idle = b->n_streams - atomic_load(&b->n_busy);
    const int open = load - atomic_load(&b->n_computing);
    return load <= atomic_load(&b->n_taken) || a->n * idle >= open;
}

/* collects the first job, then others as long as they fit and waiting for them is useful */
static void gather(batch *a, td_job *first)
{
    td_batcher *b = a->b;
    const int64_t until_ns = td_now_ns() + b->o.max_delay_ns;
    a->n = a->n_rows = 0;
    for (td_job *job = first; job; job = td_queue_pop_until(b->ready, until_ns)) {
        if (a->n && a->n_rows + rows_of(b, job) > b->o.max_rows) {
            td_queue_return(b->ready, job);
            return;
        }
        add_part(a, job);
        if (a->n_rows >= b->o.max_rows || has_share(a))
            return;
    }
}

static td_status store_results(void *ctx, int from, int n, const float *const results[2])
{
    const batch *a = ctx;
    const td_batcher_opts *o = &a->b->o;
    return o->service->kind->store_results(o->service, o->nms ? o->nms[a->stream] : NULL,
                                           a->rows + from, n, results);
}

/* bytes if all jobs have them */
static td_dtype dtype_of(const batch *a)
{
    for (int i = 0; i < a->n; i++)
        if (!a->parts[i].job->work.pixels)
            return TD_DT_F32;
    return TD_DT_U8;
}

/* pixels u8[rows, S, S, C] -> f32[rows, C, S, S] */
static void normalize(const td_batcher *b, const uint8_t *pixels, int rows, float *out)
{
    const td_transform *t = td_predictor_transform(b->o.predictor);
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)i * b->row_values;
        td_transform_normalise(t, pixels + at, out + at);
    }
}

/* the rows of a part, to be copied to `room` unless they can be used in place */
static const void *rows_in(const td_batcher *b, const part *p, td_dtype dtype, bool in_place,
                           char *room)
{
    const td_work *w = &p->job->work;
    const size_t from = (size_t)p->from * b->row_values;
    const void *own = w->pixels ? (const void *)(w->pixels + from) : w->images + from;
    if (w->pixels && dtype == TD_DT_F32)
        normalize(b, own, p->n, (float *)(void *)room);
    else if (in_place)
        return own;
    else
        memcpy(room, own, (size_t)p->n * b->row_values * td_dtype_bytes(dtype));
    return room;
}

/* gathers the images of all parts; those of a single one are used in place */
static const void *join_images(batch *a, td_dtype dtype)
{
    const size_t row_bytes = a->b->row_values * td_dtype_bytes(dtype);
    const void *from = NULL;
    size_t at = 0;
    for (int i = 0; i < a->n; i++) {
        const part *p = &a->parts[i];
        from = rows_in(a->b, p, dtype, a->n == 1, a->images + at * row_bytes);
        for (int k = 0; k < p->n; k++)
            a->rows[at++] = (td_row){ &p->job->work, p->from + k };
    }
    return a->n > 1 ? a->images : from;
}

/* notes the result of a part; true if it was the last of its job */
static bool note_part(td_batcher *b, const part *p, td_status st, const td_spans *spans)
{
    td_job *job = p->job;
    pthread_mutex_lock(&b->lock);
    job->n_computed += p->n;
    job->spans.queue_ns += spans->queue_ns - p->since_ns;
    job->spans.infer_ns += spans->infer_ns;
    if (st != TD_OK && job->st == TD_OK) {
        job->st = st;
        job->error = td_copy_text(td_error_message());
    }
    const bool is_over = job->n_computed == job->work.n;
    pthread_mutex_unlock(&b->lock);
    return is_over;
}

/* finishes a job all of whose rows were computed, the last ones by this thread */
static void finish_computed(td_batcher *b, td_job *job)
{
    const td_status st = job->st;
    if (st != TD_OK)
        (void)td_error_set(st, job->error ? job->error : td_status_text(st));
    td_free(job->error);
    job->error = NULL;
    finish(b, job, st);
    atomic_fetch_sub(&b->n_taken, 1);
    atomic_fetch_sub(&b->n_computing, 1);
}

static void compute(batch *a)
{
    td_batcher *b = a->b;
    const int64_t begin_ns = td_now_ns();
    const td_dtype dtype = dtype_of(a);
    const void *images = join_images(a, dtype);
    td_spans spans = { .queue_ns = begin_ns, .input_ns = td_now_ns() - begin_ns };
    const td_status st =
        td_predictor_each(b->o.predictor, a->stream, images, dtype, a->n_rows, store_results, a);
    const int64_t computed_ns = td_now_ns();
    spans.infer_ns = computed_ns - begin_ns - spans.input_ns;
    for (int i = 0; i < a->n; i++)
        if (note_part(b, &a->parts[i], st, &spans))
            finish_computed(b, a->parts[i].job);
    spans.queue_ns = 0;
    spans.output_ns = td_now_ns() - computed_ns;
    td_metrics_batch(b->o.metrics, a->n_rows, &spans);
}

void td_batcher_run_batch(td_batcher *b, int stream, int64_t wait_ns)
{
    batch *a = &b->batches[stream];
    td_job *first = td_queue_pop_until(b->ready, td_now_ns() + wait_ns);
    if (!first)
        return;
    gather(a, first);
    atomic_fetch_add(&b->n_busy, 1);
    for (int i = 0; i < a->n; i++)
        atomic_fetch_add(&b->n_computing, a->parts[i].is_last);
    compute(a);
    atomic_fetch_sub(&b->n_busy, 1);
}
