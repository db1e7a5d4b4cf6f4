/*
 * loader_ring.c -- the workers and the ring of batches
 */
#include "data/loader_ring.h"

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "data/objects.h"

typedef struct {
    td_ring *ring;
    td_thread thread;
    td_transformer buffers;
} worker;

struct td_ring {
    td_load_plan *plan;
    td_slot *slots; /* [n_slots] */
    int n_slots;
    int64_t n_queued, n_released;     /* since the start */
    bool is_taken;                    /* the caller has slot n_released % n_slots */
    int64_t queue_epoch, queue_index; /* the next batch to queue */
    td_queue *work;
    worker *workers; /* [opts.workers] */
};

/* --- workers ---------------------------------------------------------------------------------- */

size_t td_slot_row_bytes(const td_load_plan *p, const td_slot *s)
{
    return (size_t)td_transform_channels(&p->transform) * (size_t)s->size * (size_t)s->size *
           p->value_bytes;
}

static td_status make_sample(worker *w, const td_row *r, int64_t sample, void *dst)
{
    const td_load_plan *p = w->ring->plan;
    const int64_t draw = r->slot->epoch + ((int64_t)r->copy << 32); /* epochs are fewer than 2^32 */
    td_transform t = p->transform;
    t.size = r->slot->size;
    const void *bytes;
    size_t n_bytes;
    TD_TRY(td_sample_read(p->ds, sample, &w->buffers, &bytes, &n_bytes));
    if (p->anchors) {
        int n;
        const td_object_source from = { .bytes = bytes,
                                        .n_bytes = n_bytes,
                                        .scene = td_dataset_scene(p->ds, sample),
                                        .epoch = draw,
                                        .sample = sample };
        TD_TRY(td_object_row(&w->buffers, &t, &from, dst, &n));
        return td_anchor_rows_fill(&r->slot->anchors, r->i, p->anchors, &w->buffers,
                                   w->buffers.ground_truths, n);
    }
    return td_transform_image(&w->buffers, &t, bytes, n_bytes, draw, sample, dst);
}

/* Fill the row with its sample or, in training, with the next good one. */
static td_status make_row(worker *w, td_row *r)
{
    const td_load_plan *p = w->ring->plan;
    char *dst = r->slot->images + td_slot_row_bytes(p, r->slot) * (size_t)r->i;
    r->used_sample = -1;
    for (int64_t k = 0; k < p->n_tries && k < p->ds->n; k++) {
        int64_t sample = (r->sample + k) % p->ds->n;
        td_status st = make_sample(w, r, sample, dst);
        if (st == TD_OK) {
            r->used_sample = sample;
            return TD_OK;
        }
        if (!td_is_bad_image(st))
            return td_error_context(st, "'%s'", p->ds->samples[sample].path);
        TD_TRY(td_bad_notes_add(&r->bad, p->ds, sample, st));
    }
    return TD_OK;
}

/* Count a finished row; the last one delivers the slot. */
static void finish_row(td_slot *s)
{
    if (atomic_fetch_sub_explicit(&s->n_left, 1, memory_order_acq_rel) == 1)
        TD_CHECK(td_queue_push(s->done, s));
}

static void work(void *ctx)
{
    worker *w = ctx;
    td_thread_be_nice(w->ring->plan->opts.nice);
    td_row *r;
    while ((r = td_queue_pop(w->ring->work))) {
        int64_t start_ns = td_now_ns();
        if (r->next_sample >= 0)
            td_sample_read_ahead(w->ring->plan->ds, r->next_sample);
        r->st = make_row(w, r);
        if (r->st != TD_OK)
            r->error = td_copy_text(td_error_message());
        atomic_fetch_add_explicit(&r->slot->work_ns, td_now_ns() - start_ns, memory_order_relaxed);
        finish_row(r->slot);
    }
}

/* --- queueing and taking ---------------------------------------------------------------------- */

static td_slot *slot_at(const td_ring *r, int64_t i)
{
    return &r->slots[i % r->n_slots];
}

void td_slot_clear_rows(td_slot *s)
{
    for (int i = 0; i < s->n; i++) {
        td_row *r = &s->rows[i];
        td_bad_notes_clear(&r->bad);
        td_free(r->error);
        r->error = NULL;
        r->st = TD_OK;
    }
}

static void queue_batch(td_ring *ring)
{
    td_load_plan *p = ring->plan;
    td_slot *s = slot_at(ring, ring->n_queued++);
    s->epoch = ring->queue_epoch;
    s->index = ring->queue_index;
    s->size = td_sizes_at(&p->sizes, s->epoch, p->opts.image_size);
    s->n = td_sampler_rows(&p->sampler, s->epoch, s->index, s->row_samples);
    bool is_last = s->index + 1 == p->n_batches; /* the next batch has another order */
    int n_ahead =
        is_last ? 0 : td_sampler_rows(&p->sampler, s->epoch, s->index + 1, s->next_samples);
    atomic_store_explicit(&s->work_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&s->n_left, s->n, memory_order_relaxed); /* the queue's lock orders it */
    for (int i = 0; i < s->n; i++) {
        s->rows[i].sample = s->row_samples[i];
        s->rows[i].copy = td_sampler_copy(&p->sampler, s->index, i);
        s->rows[i].next_sample = i < n_ahead ? s->next_samples[i] : -1;
        TD_CHECK(td_queue_push(ring->work, &s->rows[i])); /* the queue has room for every row */
    }
    if (s->n == 0)
        TD_CHECK(td_queue_push(s->done, s));
    ring->queue_index++;
}

void td_ring_fill(td_ring *r, int64_t epoch)
{
    const bool is_training = r->plan->opts.is_training;
    while (r->n_queued - r->n_released < r->n_slots) {
        if (r->queue_index == r->plan->n_batches) {
            if (!is_training && r->queue_epoch == epoch)
                return;
            r->queue_epoch++;
            r->queue_index = 0;
        }
        if (!is_training && r->queue_epoch != epoch)
            return;
        queue_batch(r);
    }
}

td_slot *td_ring_take_slot(td_ring *r)
{
    td_slot *s = td_queue_pop(slot_at(r, r->n_released)->done);
    r->is_taken = true;
    return s;
}

void td_ring_release_slot(td_ring *r)
{
    if (!r->is_taken)
        return;
    r->is_taken = false;
    r->n_released++;
}

static bool is_whole(const td_slot *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->rows[i].st != TD_OK || s->rows[i].used_sample < 0)
            return false;
    return true;
}

const td_slot *td_ring_peek_slot(td_ring *r)
{
    const int64_t next = r->n_released + r->is_taken;
    td_slot *s = slot_at(r, next);
    const bool is_done = next < r->n_queued && td_queue_length(s->done) > 0;
    return is_done && is_whole(s) ? s : NULL;
}

/* Cancel all queued batches: drop rows not begun, wait for those begun. */
static void cancel(td_ring *ring)
{
    td_ring_release_slot(ring);
    td_row *r;
    while ((r = td_queue_try_pop(ring->work)))
        finish_row(r->slot);
    for (; ring->n_released < ring->n_queued; ring->n_released++) {
        td_slot *s = td_queue_pop(slot_at(ring, ring->n_released)->done);
        TD_CHECK(s == slot_at(ring, ring->n_released));
        td_slot_clear_rows(s);
    }
}

void td_ring_restart(td_ring *r, int64_t epoch)
{
    cancel(r);
    r->queue_epoch = epoch;
    r->queue_index = 0;
}

/* --- creating a ring -------------------------------------------------------------------------- */

static td_status set_up_slot(const td_load_plan *p, td_slot *s)
{
    size_t batch = (size_t)p->opts.batch_size;
    TD_TRY(TD_ALLOC(s->rows, batch));
    TD_TRY(TD_ALLOC(s->row_samples, batch));
    TD_TRY(TD_ALLOC(s->next_samples, batch));
    TD_TRY(TD_ALLOC(s->labels, batch));
    TD_TRY(TD_ALLOC(s->samples, batch));
    s->images = td_pages_alloc(p->images_bytes);
    if (!s->images)
        return TD_ENOMEM;
    for (size_t i = 0; i < batch; i++)
        s->rows[i] = (td_row){ .slot = s, .i = (int)i };
    if (p->anchors)
        TD_TRY(td_anchor_rows_init(&s->anchors, p->anchors, p->opts.batch_size));
    return td_queue_new(1, &s->done);
}

static td_status start_workers(td_ring *r)
{
    int n = r->plan->opts.workers;
    TD_TRY(TD_ALLOC(r->workers, (size_t)n));
    for (int i = 0; i < n; i++) {
        r->workers[i].ring = r;
        TD_TRY(td_thread_start(&r->workers[i].thread, "loader", work, &r->workers[i]));
    }
    return TD_OK;
}

static td_status set_up(td_ring *r)
{
    const td_loader_opts *o = &r->plan->opts;
    int n_slots = o->prefetch + 1;
    TD_TRY(TD_ALLOC(r->slots, (size_t)n_slots));
    r->n_slots = n_slots;
    for (int i = 0; i < n_slots; i++)
        TD_TRY(set_up_slot(r->plan, &r->slots[i]));
    TD_TRY(td_queue_new((size_t)n_slots * (size_t)o->batch_size, &r->work));
    return start_workers(r);
}

td_status td_ring_new(td_load_plan *plan, td_ring **out)
{
    *out = NULL;
    td_ring *r = TD_NEW(td_ring);
    if (!r)
        return TD_ENOMEM;
    r->plan = plan;
    r->queue_epoch = plan->opts.start_epoch;
    r->queue_index = plan->opts.start_batch;
    td_status st = set_up(r);
    if (st == TD_OK)
        *out = r;
    else
        td_ring_free(r);
    return st;
}

static void release_slot(const td_load_plan *p, td_slot *s)
{
    for (int i = 0; s->rows && i < p->opts.batch_size; i++)
        td_bad_notes_release(&s->rows[i].bad);
    td_free(s->rows);
    td_free(s->row_samples);
    td_free(s->next_samples);
    td_free(s->labels);
    td_free(s->samples);
    if (s->images)
        td_pages_free(s->images, p->images_bytes);
    td_anchor_rows_release(&s->anchors);
    td_queue_free(s->done);
}

static void stop_workers(td_ring *r)
{
    if (!r->workers)
        return;
    if (r->workers[0].thread.is_running)
        cancel(r);
    td_queue_close(r->work);
    for (int i = 0; i < r->plan->opts.workers; i++) {
        td_thread_join(&r->workers[i].thread);
        td_transformer_release(&r->workers[i].buffers);
    }
    td_free(r->workers);
}

void td_ring_free(td_ring *r)
{
    if (!r)
        return;
    stop_workers(r);
    td_queue_free(r->work);
    for (int i = 0; i < r->n_slots; i++)
        release_slot(r->plan, &r->slots[i]);
    td_free(r->slots);
    td_free(r);
}
