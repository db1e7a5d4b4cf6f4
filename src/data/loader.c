/*
 * loader.c -- batches made ahead by worker threads, handed over in order
 *
 *                 work queue: rows                    one queue of length 1 per slot
 *   caller  --- row row row row row --->  workers  --- "slot 0 is done" --->  caller
 *     |                                     |                                   |
 *     | names the samples of a batch        | read, decode, crop, resize        | lends slot 0,
 *     | and puts its rows into the queue    | straight into slot.images         | then 1, 2, 0 ...
 *
 *   slots:   [ lent ][ done ][ being made ]            prefetch + 1 of them
 *
 * A slot belongs to the workers from the moment its rows are queued until its `done` queue delivers
 * it, else to the caller.  Whoever finishes the last row of a slot (an atomic count) delivers it.
 * Before a worker begins a row, it has the system fetch the picture of that row in the next batch,
 * so that a disk works while the picture before is decoded.
 *
 * What depends on order (the permutation of an epoch, the list of bad pictures, their cap) is done
 * by the caller, so that it does not depend on who was faster.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/objects.h"
#include "data/sampler.h"
#include "data/sizes.h"
#include "data/source.h"
#include "transforms/anchor_rows.h"

enum {
    BATCH = 32,
    SIZE = 224,
    SIZE_SSD320 = 320,
    SIZE_SSD300 = 300,
    PADDING = 32,
    PREFETCH = 2,
    BATCH_MAX = 1 << 20,
    SIZE_MAX_PIXELS = TD_SIZE_PIXELS_MAX,
    PREFETCH_MAX = 1024,
    THREADS_MAX = 1024
};

static const double bad_share = 0.01;

/* A picture that could not be used, and why (td_alloc'ed). */
typedef struct {
    int64_t sample;
    char *reason;
    td_status st;
} bad_event;

typedef struct slot slot;

typedef struct {
    slot *home;
    int i;          /* row of the batch */
    int64_t wanted; /* sample */
    int64_t ahead;  /* the sample of this row in the batch after; -1: none */
    int64_t got;    /* the sample that is there; -1: none */
    bad_event *bad;
    size_t n_bad, cap_bad;
    td_status st; /* a failure that is no picture's fault */
    char *error;
} row;

struct slot {
    float *images; /* [batch, 3, size, size] with room for the largest, from td_pages_alloc */
    int size;
    td_anchor_rows anchors;                     /* of detectors */
    row *rows;                                  /* [batch] */
    int64_t *wanted, *ahead, *labels, *samples; /* [batch] */
    int n;
    int64_t epoch, index;
    atomic_int n_left; /* rows not yet finished */
    atomic_llong work_ns;
    td_queue *done;
};

typedef struct {
    td_loader *ld;
    td_thread thread;
    td_transformer buffers;
} worker;

struct td_loader {
    const td_dataset *ds;
    td_loader_opts opts;    /* with defaults filled in */
    td_transform transform; /* its size is the largest; a row's is its slot's */
    td_anchors *anchors;    /* NULL: no detector */
    td_sizes sizes;         /* by epoch */
    td_sampler sampler;
    int64_t n_batches;
    size_t slot_bytes;

    int64_t epoch, index; /* the next batch to lend */
    td_batch batch;       /* what is lent */

    /* pictures: the ring */
    slot *slots; /* [n_slots] */
    int n_slots;
    int64_t n_queued, n_lent;         /* batches ever queued; batches given back by the caller */
    bool is_lent;                     /* slot n_lent % n_slots is with the caller */
    int64_t queue_epoch, queue_index; /* the next batch to queue */
    td_queue *work;
    worker *workers; /* [opts.workers] */

    /* ready rows: one batch of noise, or nothing; and what their anchors should say */
    td_anchor_rows ready;
    td_transformer ready_buffers;
    float *noise;
    int64_t *labels, *samples; /* [batch] */

    /* bad pictures */
    uint8_t *is_bad;     /* one bit per sample */
    td_bad_picture *bad; /* reasons are td_alloc'ed */
    size_t n_bad, cap_bad;
    int64_t n_bad_allowed;
    td_status failed; /* after a failure that cannot be mended */
};

/* --- workers --------------------------------------------------------------------------------- */

bool td_is_bad_picture(td_status st)
{
    return st == TD_EFORMAT || st == TD_EUNSUPPORTED || st == TD_ELIMIT || st == TD_EIO ||
           st == TD_ENOTFOUND || st == TD_EARG;
}

/* the list names the picture already: "cannot open 'a.jpg': no" -> "cannot open: no" */
static void cut_path(char *reason, const char *path)
{
    size_t n = strlen(path);
    char *at = strstr(reason, path);
    if (!at || at == reason || at[-1] != '\'' || at[n] != '\'')
        return;
    char *from = at - 1, *rest = at + n + 1;
    if (from > reason)
        from--; /* the space before it */
    else if (*rest == ' ')
        rest++;
    memmove(from, rest, strlen(rest) + 1);
}

static td_status note_bad(row *r, int64_t sample, const char *path, td_status why)
{
    TD_TRY(td_reserve(&r->bad, &r->cap_bad, r->n_bad + 1, sizeof *r->bad));
    char *reason = td_copy_text(td_error_message());
    if (!reason)
        return TD_ENOMEM;
    cut_path(reason, path);
    r->bad[r->n_bad++] = (bad_event){ sample, reason, why };
    return TD_OK;
}

static size_t row_floats(const slot *s)
{
    return 3 * (size_t)s->size * (size_t)s->size;
}

static td_status make_sample(worker *w, const row *r, int64_t sample, float *dst)
{
    const td_loader *ld = w->ld;
    td_transform t = ld->transform;
    t.size = r->home->size;
    const void *bytes;
    size_t n_bytes;
    TD_TRY(td_sample_read(ld->ds, sample, &w->buffers, &bytes, &n_bytes));
    if (ld->anchors) {
        int n;
        const td_object_source from = { .bytes = bytes,
                                        .n_bytes = n_bytes,
                                        .scene = td_dataset_scene(ld->ds, sample),
                                        .epoch = r->home->epoch,
                                        .sample = sample };
        TD_TRY(td_object_row(&w->buffers, &t, &from, dst, &n));
        return td_anchor_rows_fill(&r->home->anchors, r->i, ld->anchors, &w->buffers,
                                   w->buffers.truths, n);
    }
    return td_transform_picture(&w->buffers, &t, bytes, n_bytes, r->home->epoch, sample, dst);
}

/* Fill the row with the wanted sample or, in training, with the next good one. */
static td_status make_row(worker *w, row *r)
{
    const td_loader *ld = w->ld;
    float *dst = r->home->images + row_floats(r->home) * (size_t)r->i;
    int64_t n_tries = ld->opts.is_training ? ld->n_bad_allowed + 1 : 1;
    r->got = -1;
    for (int64_t k = 0; k < n_tries && k < ld->ds->n; k++) {
        int64_t sample = (r->wanted + k) % ld->ds->n;
        td_status st = make_sample(w, r, sample, dst);
        if (st == TD_OK) {
            r->got = sample;
            return TD_OK;
        }
        if (!td_is_bad_picture(st))
            return td_error_context(st, "'%s'", ld->ds->samples[sample].path);
        TD_TRY(note_bad(r, sample, ld->ds->samples[sample].path, st));
    }
    return TD_OK;
}

/* one row less to do; the last one delivers the slot */
static void finish_row(slot *s)
{
    if (atomic_fetch_sub_explicit(&s->n_left, 1, memory_order_acq_rel) == 1)
        TD_CHECK(td_queue_push(s->done, s));
}

static void work(void *ctx)
{
    worker *w = ctx;
    td_thread_be_nice(w->ld->opts.nice);
    row *r;
    while ((r = td_queue_pop(w->ld->work))) {
        int64_t start_ns = td_now_ns();
        if (r->ahead >= 0)
            td_sample_read_ahead(w->ld->ds, r->ahead);
        r->st = make_row(w, r);
        if (r->st != TD_OK)
            r->error = td_copy_text(td_error_message());
        atomic_fetch_add_explicit(&r->home->work_ns, td_now_ns() - start_ns, memory_order_relaxed);
        finish_row(r->home);
    }
}

/* --- the ring -------------------------------------------------------------------------------- */

static slot *slot_at(td_loader *ld, int64_t i)
{
    return &ld->slots[i % ld->n_slots];
}

static void clear_rows(slot *s, int n)
{
    for (int i = 0; i < n; i++) {
        row *r = &s->rows[i];
        for (size_t k = 0; k < r->n_bad; k++)
            td_free(r->bad[k].reason);
        r->n_bad = 0;
        td_free(r->error);
        r->error = NULL;
        r->st = TD_OK;
    }
}

static void queue_batch(td_loader *ld)
{
    slot *s = slot_at(ld, ld->n_queued++);
    s->epoch = ld->queue_epoch;
    s->index = ld->queue_index;
    s->size = td_sizes_at(&ld->sizes, s->epoch, ld->opts.image_size);
    s->n = td_sampler_rows(&ld->sampler, s->epoch, s->index, s->wanted);
    bool is_last = s->index + 1 == ld->n_batches; /* what comes then has another order */
    int n_ahead = is_last ? 0 : td_sampler_rows(&ld->sampler, s->epoch, s->index + 1, s->ahead);
    atomic_store_explicit(&s->work_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&s->n_left, s->n, memory_order_relaxed); /* the queue's lock orders it */
    for (int i = 0; i < s->n; i++) {
        s->rows[i].wanted = s->wanted[i];
        s->rows[i].ahead = i < n_ahead ? s->ahead[i] : -1;
        TD_CHECK(td_queue_push(ld->work, &s->rows[i])); /* there is room for every row */
    }
    if (s->n == 0)
        TD_CHECK(td_queue_push(s->done, s));
    ld->queue_index++;
}

/* Keep the workers busy.  Training runs on into the next epoch; an evaluation may be the last. */
static void fill(td_loader *ld)
{
    while (ld->n_queued - ld->n_lent < ld->n_slots) {
        if (ld->queue_index == ld->n_batches) {
            if (!ld->opts.is_training && ld->queue_epoch == ld->epoch)
                return;
            ld->queue_epoch++;
            ld->queue_index = 0;
        }
        if (!ld->opts.is_training && ld->queue_epoch != ld->epoch)
            return;
        queue_batch(ld);
    }
}

static void give_back(td_loader *ld)
{
    if (!ld->is_lent)
        return;
    ld->is_lent = false;
    ld->n_lent++;
}

/* Take back every batch that was queued: unbegun rows are dropped, begun ones waited for. */
static void cancel(td_loader *ld)
{
    give_back(ld);
    row *r;
    while ((r = td_queue_try_pop(ld->work)))
        finish_row(r->home);
    for (; ld->n_lent < ld->n_queued; ld->n_lent++) {
        slot *s = td_queue_pop(slot_at(ld, ld->n_lent)->done);
        TD_CHECK(s == slot_at(ld, ld->n_lent));
        clear_rows(s, s->n);
    }
}

/* --- bad pictures ---------------------------------------------------------------------------- */

static td_status too_many_bad(const td_loader *ld)
{
    return td_error(TD_EFORMAT,
                    "'%s': %zu of %" PRId64 " pictures are bad, at most %" PRId64
                    " may be: the first is '%s': %s",
                    ld->ds->root, ld->n_bad, ld->ds->n, ld->n_bad_allowed, ld->bad[0].path,
                    ld->bad[0].reason);
}

/* Put one event on the list, unless that picture is there already. */
static td_status keep_bad(td_loader *ld, bad_event *e)
{
    uint8_t bit = (uint8_t)(1 << (e->sample & 7));
    if (ld->is_bad[e->sample >> 3] & bit)
        return TD_OK;
    TD_TRY(td_reserve(&ld->bad, &ld->cap_bad, ld->n_bad + 1, sizeof *ld->bad));
    ld->is_bad[e->sample >> 3] |= bit;
    ld->bad[ld->n_bad++] = (td_bad_picture){ .path = ld->ds->samples[e->sample].path,
                                             .reason = e->reason,
                                             .sample = e->sample,
                                             .st = e->st };
    e->reason = NULL;
    td_log(TD_LOG_WARN, "data", "bad picture '%s': %s", ld->bad[ld->n_bad - 1].path,
           ld->bad[ld->n_bad - 1].reason);
    return TD_OK;
}

static td_status keep_row(td_loader *ld, row *r)
{
    if (r->st != TD_OK)
        return td_error_set(r->st, r->error ? r->error : td_status_text(r->st));
    for (size_t k = 0; k < r->n_bad; k++)
        TD_TRY(keep_bad(ld, &r->bad[k]));
    /* ranks that train ask after every step, all at once: so all of them know what all have met */
    const bool is_asked = ld->opts.is_training && ld->opts.world > 1;
    if (((int64_t)ld->n_bad > ld->n_bad_allowed && !is_asked) ||
        (ld->opts.is_training && r->got < 0))
        return too_many_bad(ld);
    return TD_OK;
}

/* Check what the workers made of a slot; rows without a picture are closed up. */
static td_status settle(td_loader *ld, slot *s)
{
    size_t n_floats = row_floats(s);
    td_status st = TD_OK;
    int n = 0;
    for (int i = 0; i < s->n && st == TD_OK; i++) {
        row *r = &s->rows[i];
        st = keep_row(ld, r);
        if (st != TD_OK || r->got < 0)
            continue;
        if (n != i)
            memcpy(s->images + n_floats * (size_t)n, s->images + n_floats * (size_t)i,
                   n_floats * sizeof(float));
        td_anchor_rows_move(&s->anchors, n, i);
        s->samples[n] = r->got;
        s->labels[n++] = ld->ds->samples[r->got].label;
    }
    clear_rows(s, s->n);
    s->n = n;
    return st;
}

int64_t td_loader_bad(const td_loader *ld, const td_bad_picture **out)
{
    *out = ld->bad;
    return (int64_t)ld->n_bad;
}

int64_t td_loader_bad_allowed(const td_loader *ld)
{
    return ld->n_bad_allowed;
}

/* --- lending --------------------------------------------------------------------------------- */

static void lend_anchors(td_batch *b, const td_anchor_rows *rows)
{
    b->n_anchors = rows->n_anchors;
    b->anchor_labels = rows->labels;
    b->anchor_targets = rows->codes;
}

/* what the anchors of ready rows should say; noise is the same in every batch */
static td_status fill_ready(td_loader *ld, const int64_t *samples, int n)
{
    for (int i = 0; i < n; i++) {
        int n_truths;
        const td_truth *t = td_dataset_truths(ld->ds, samples[i], &n_truths);
        TD_TRY(td_anchor_rows_fill(&ld->ready, i, ld->anchors, &ld->ready_buffers, t, n_truths));
    }
    return TD_OK;
}

/* ready rows: the file's own memory, or the same noise again */
static td_status lend_ready(td_loader *ld)
{
    td_batch *b = &ld->batch;
    b->n = td_sampler_rows(&ld->sampler, ld->epoch, ld->index, ld->samples);
    b->images = ld->noise;
    b->labels = ld->labels;
    if (ld->ds->images) {
        int64_t first = b->n ? ld->samples[0] : 0;
        b->images = ld->ds->images + first * b->channels * b->height * b->width;
        b->labels = ld->ds->labels ? ld->ds->labels + first : ld->labels;
        if (ld->anchors)
            TD_TRY(fill_ready(ld, ld->samples, b->n));
    }
    lend_anchors(b, &ld->ready);
    b->samples = ld->samples;
    b->wait_s = b->decode_s = 0;
    return TD_OK;
}

static td_status lend_slot(td_loader *ld)
{
    int64_t start_ns = td_now_ns();
    slot *s = td_queue_pop(slot_at(ld, ld->n_lent)->done);
    TD_CHECK(s && s->epoch == ld->epoch && s->index == ld->index);
    double wait_s = (double)(td_now_ns() - start_ns) * 1e-9;
    ld->is_lent = true;
    TD_TRY_MSG(settle(ld, s), "epoch %" PRId64 ", batch %" PRId64, s->epoch, s->index);
    td_batch *b = &ld->batch;
    b->images = s->images;
    b->labels = s->labels;
    b->samples = s->samples;
    lend_anchors(b, &s->anchors);
    b->n = s->n;
    b->height = b->width = s->size;
    b->wait_s = wait_s;
    b->decode_s = (double)atomic_load_explicit(&s->work_ns, memory_order_relaxed) * 1e-9;
    return TD_OK;
}

static td_status lend(td_loader *ld)
{
    if (td_dataset_decodes(ld->ds)) {
        fill(ld);
        TD_TRY(lend_slot(ld));
    } else {
        TD_TRY(lend_ready(ld));
    }
    ld->batch.epoch = ld->epoch;
    ld->batch.index = ld->index++;
    return TD_OK;
}

td_status td_loader_next(td_loader *ld, const td_batch **out)
{
    *out = NULL;
    if (ld->failed != TD_OK)
        return td_error(ld->failed, "the loader of '%s' has failed before", ld->ds->root);
    give_back(ld);
    if (ld->index == ld->n_batches) {
        ld->epoch++;
        ld->index = 0;
        return TD_EEND;
    }
    ld->failed = lend(ld);
    if (ld->failed == TD_OK)
        *out = &ld->batch;
    return ld->failed;
}

td_status td_loader_start_epoch(td_loader *ld, int64_t epoch)
{
    if (epoch < 0)
        return td_error(TD_EARG, "epoch %" PRId64 ", wanted 0 or more", epoch);
    if (ld->failed != TD_OK)
        return td_error(ld->failed, "the loader of '%s' has failed before", ld->ds->root);
    give_back(ld);
    if (ld->epoch == epoch && ld->index == 0)
        return TD_OK; /* what was made ahead is what is wanted */
    if (ld->work)
        cancel(ld);
    ld->epoch = ld->queue_epoch = epoch;
    ld->index = ld->queue_index = 0;
    return TD_OK;
}

const td_dataset *td_loader_dataset(const td_loader *ld)
{
    return ld->ds;
}

int64_t td_loader_batches(const td_loader *ld)
{
    return ld->n_batches;
}

/* --- making one ------------------------------------------------------------------------------ */

td_status td_threads_wanted(int threads, int *out)
{
    if (threads < 0 || threads > THREADS_MAX)
        return td_error(TD_EARG, "%d threads, wanted 0 .. %d", threads, THREADS_MAX);
    *out = threads ? threads : td_cpu_count();
    return TD_OK;
}

static td_status check_range(const char *what, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return TD_OK;
    return td_error(TD_EARG, "loader: %s is %" PRId64 ", wanted %" PRId64 " .. %" PRId64, what,
                    value, min, max);
}

/* the schedule is of training on pictures; slots have room for the largest */
static td_status take_sizes(td_loader *ld)
{
    td_loader_opts *o = &ld->opts;
    TD_TRY(td_sizes_parse(o->image_sizes, &ld->sizes));
    o->image_sizes = NULL; /* lent for the call */
    if (!ld->sizes.n)
        return TD_OK;
    if (!o->is_training || !td_dataset_decodes(ld->ds))
        return td_error(TD_EARG, "image sizes by epoch are of training on pictures");
    o->image_size = td_sizes_largest(&ld->sizes, o->image_size);
    return TD_OK;
}

/* a detector's rows are made by its own rules, for pictures with boxes */
static td_status take_detector(td_loader *ld)
{
    const td_loader_opts *o = &ld->opts;
    const td_dataset *ds = ld->ds;
    if (!o->detector)
        return TD_OK;
    if (o->is_training && !td_dataset_has_boxes(ds))
        return td_error(TD_EARG, "'%s' has no boxes, which a detector is trained with", ds->root);
    if (o->autoaugment || ld->sizes.n)
        return td_error(TD_EUSAGE, "%s is not for detectors: boxes would not follow",
                        o->autoaugment ? "autoaugment" : "an image size by epoch");
    if (ds->images && ds->channels != 3)
        return td_error(TD_ESHAPE, "'%s' holds images of %d channels, a detector wants 3", ds->root,
                        ds->channels);
    if (ds->images && ds->width != ds->height)
        return td_error(TD_ESHAPE, "'%s' holds images of %d x %d, a detector wants squares",
                        ds->root, ds->width, ds->height);
    ld->transform.detector = (td_detector)o->detector;
    ld->transform.is_jittered = o->color_jitter && o->is_training;
    return td_anchors_new((td_detector)o->detector, o->image_size, &ld->anchors);
}

static int usual_size(int detector)
{
    return detector == TD_DETECTOR_SSD320   ? SIZE_SSD320
           : detector == TD_DETECTOR_SSD300 ? SIZE_SSD300
                                            : SIZE;
}

static td_status take_opts(td_loader *ld, const td_loader_opts *opts)
{
    td_loader_opts *o = &ld->opts;
    const td_dataset *ds = ld->ds;
    *o = *opts;
    if (ds->images && o->image_size && (o->image_size != ds->height || o->image_size != ds->width))
        return td_error(TD_ESHAPE, "'%s' holds images of %d x %d, wanted %d x %d", ds->root,
                        ds->width, ds->height, o->image_size, o->image_size);
    o->batch_size = o->batch_size ? o->batch_size : BATCH;
    o->image_size = o->image_size ? o->image_size
                    : ds->images  ? ds->height
                                  : usual_size(o->detector);
    o->eval_padding = o->eval_padding ? o->eval_padding : PADDING;
    if (o->eval_padding < 0)
        o->eval_padding = 0;
    o->prefetch = o->prefetch ? o->prefetch : PREFETCH;
    o->world = o->world ? o->world : 1;
    TD_TRY(check_range("batch size", o->batch_size, 1, BATCH_MAX));
    TD_TRY(check_range("image size", o->image_size, 1, SIZE_MAX_PIXELS));
    TD_TRY(take_sizes(ld));
    TD_TRY(check_range("padding", o->eval_padding, 0, SIZE_MAX_PIXELS));
    TD_TRY(check_range("prefetch", o->prefetch, 1, PREFETCH_MAX));
    TD_TRY(check_range("world", o->world, 1, INT32_MAX));
    TD_TRY(check_range("rank", o->rank, 0, o->world - 1));
    TD_TRY(check_range("first epoch", o->start_epoch, 0, INT64_MAX));
    TD_TRY(td_threads_wanted(o->workers, &o->workers));
    if (!(o->max_bad <= 1))
        return td_error(TD_EARG, "loader: share of bad pictures is %g, wanted 0 .. 1", o->max_bad);
    ld->transform = (td_transform){ .is_training = o->is_training,
                                    .size = o->image_size,
                                    .padding = o->eval_padding,
                                    .ignore_orientation = o->ignore_orientation,
                                    .is_fast = o->fast_decode,
                                    .seed = o->seed };
    if ((unsigned)o->order > TD_ORDER_BUFFER)
        return td_error(TD_EARG, "order %d is unknown", (int)o->order);
    TD_TRY(td_transform_choose(&ld->transform, o));
    return take_detector(ld);
}

static int64_t bad_allowed(double share, int64_t n)
{
    if (share < 0)
        return 0;
    int64_t allowed = (int64_t)floor((share > 0 ? share : bad_share) * (double)n);
    return share == 0 && allowed == 0 ? 1 : allowed;
}

static td_status set_up_order(td_loader *ld)
{
    const td_loader_opts *o = &ld->opts;
    ld->sampler = (td_sampler){ .n = ld->ds->n,
                                .batch = o->batch_size,
                                .rank = o->rank,
                                .world = o->world,
                                .order_kind = o->order,
                                .shuffles = o->is_training && td_dataset_decodes(ld->ds),
                                .drops = o->is_training,
                                .seed = o->seed };
    TD_TRY(td_sampler_init(&ld->sampler));
    ld->n_batches = td_sampler_batches(&ld->sampler);
    if (ld->n_batches == 0)
        return td_error(TD_EARG,
                        "'%s' has %" PRId64 " pictures, fewer than one batch of %" PRId64
                        ": use a smaller batch size",
                        ld->ds->root, ld->ds->n, (int64_t)o->batch_size * o->world);
    TD_TRY(check_range("first batch", o->start_batch, 0, ld->n_batches));
    ld->epoch = ld->queue_epoch = o->start_epoch;
    ld->index = ld->queue_index = o->start_batch;
    return TD_OK;
}

static td_status set_up_ready(td_loader *ld)
{
    const td_loader_opts *o = &ld->opts;
    const td_dataset *ds = ld->ds;
    int64_t batch = o->batch_size;
    td_batch *b = &ld->batch;
    ld->samples = td_alloc((size_t)batch, sizeof *ld->samples);
    if (!ld->samples)
        return TD_ENOMEM;
    ld->labels = td_alloc((size_t)batch, sizeof *ld->labels);
    if (!ld->labels)
        return TD_ENOMEM;
    if (ld->anchors)
        TD_TRY(td_anchor_rows_init(&ld->ready, ld->anchors, o->batch_size));
    if (ds->images) {
        b->channels = ds->channels;
        b->height = ds->height;
        b->width = ds->width;
        for (int64_t i = 0; i < batch; i++)
            ld->labels[i] = -1; /* where the pictures have boxes */
        return TD_OK;
    }
    b->channels = 3;
    b->height = b->width = o->image_size;
    ld->noise = td_pages_alloc(ld->slot_bytes);
    if (!ld->noise)
        return TD_ENOMEM;
    td_synthetic_fill(ds, o->seed, (int64_t)o->rank * batch, o->batch_size, o->image_size,
                      ld->noise, ld->labels);
    for (int64_t i = 0; i < batch; i++)
        ld->samples[i] = ((int64_t)o->rank * batch + i) % ds->n;
    return ld->anchors ? fill_ready(ld, ld->samples, o->batch_size) : TD_OK;
}

static td_status set_up_slot(td_loader *ld, slot *s)
{
    size_t batch = (size_t)ld->opts.batch_size;
    s->rows = td_alloc(batch, sizeof *s->rows);
    s->wanted = s->rows ? td_alloc(batch, sizeof *s->wanted) : NULL;
    s->ahead = s->wanted ? td_alloc(batch, sizeof *s->ahead) : NULL;
    s->labels = s->ahead ? td_alloc(batch, sizeof *s->labels) : NULL;
    s->samples = s->labels ? td_alloc(batch, sizeof *s->samples) : NULL;
    s->images = s->samples ? td_pages_alloc(ld->slot_bytes) : NULL;
    if (!s->images)
        return TD_ENOMEM;
    for (size_t i = 0; i < batch; i++)
        s->rows[i] = (row){ .home = s, .i = (int)i };
    if (ld->anchors)
        TD_TRY(td_anchor_rows_init(&s->anchors, ld->anchors, ld->opts.batch_size));
    return td_queue_new(1, &s->done);
}

static td_status start_workers(td_loader *ld)
{
    int n = ld->opts.workers;
    ld->workers = td_alloc((size_t)n, sizeof *ld->workers);
    if (!ld->workers)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++) {
        ld->workers[i].ld = ld;
        TD_TRY(td_thread_start(&ld->workers[i].thread, "loader", work, &ld->workers[i]));
    }
    return TD_OK;
}

static td_status set_up_ring(td_loader *ld)
{
    ld->batch.channels = 3;
    ld->batch.height = ld->batch.width = ld->opts.image_size;
    ld->n_bad_allowed = bad_allowed(ld->opts.max_bad, ld->ds->n);
    ld->is_bad = td_alloc((size_t)ld->ds->n / 8 + 1, 1);
    if (!ld->is_bad)
        return TD_ENOMEM;
    int n_slots = ld->opts.prefetch + 1;
    ld->slots = td_alloc((size_t)n_slots, sizeof *ld->slots);
    if (!ld->slots)
        return TD_ENOMEM;
    ld->n_slots = n_slots;
    for (int i = 0; i < n_slots; i++)
        TD_TRY(set_up_slot(ld, &ld->slots[i]));
    TD_TRY(td_queue_new((size_t)n_slots * (size_t)ld->opts.batch_size, &ld->work));
    TD_TRY(start_workers(ld));
    fill(ld);
    return TD_OK;
}

static td_status set_up(td_loader *ld, const td_loader_opts *opts)
{
    TD_TRY(take_opts(ld, opts));
    TD_TRY(set_up_order(ld));
    size_t size = (size_t)ld->opts.image_size;
    ld->slot_bytes = (size_t)ld->opts.batch_size * 3 * size * size * sizeof(float);
    td_status st = td_dataset_decodes(ld->ds) ? set_up_ring(ld) : set_up_ready(ld);
    if (st != TD_ENOMEM)
        return st;
    return td_error_context(st, "a batch of %d pictures of %zu x %zu", ld->opts.batch_size, size,
                            size);
}

td_status td_loader_new(const td_dataset *ds, const td_loader_opts *opts, td_loader **out)
{
    *out = NULL;
    td_loader *ld = TD_NEW(td_loader);
    if (!ld)
        return TD_ENOMEM;
    ld->ds = ds;
    td_status st = set_up(ld, opts);
    if (st == TD_OK)
        *out = ld;
    else
        td_loader_free(ld);
    return st;
}

static void release_slot(td_loader *ld, slot *s)
{
    for (int i = 0; s->rows && i < ld->opts.batch_size; i++)
        td_free(s->rows[i].bad);
    td_free(s->rows);
    td_free(s->wanted);
    td_free(s->ahead);
    td_free(s->labels);
    td_free(s->samples);
    if (s->images)
        td_pages_free(s->images, ld->slot_bytes);
    td_anchor_rows_release(&s->anchors);
    td_queue_free(s->done);
}

static void stop_workers(td_loader *ld)
{
    if (!ld->workers)
        return;
    if (ld->workers[0].thread.is_running)
        cancel(ld);
    td_queue_close(ld->work);
    for (int i = 0; i < ld->opts.workers; i++) {
        td_thread_join(&ld->workers[i].thread);
        td_transformer_release(&ld->workers[i].buffers);
    }
    td_free(ld->workers);
}

void td_loader_free(td_loader *ld)
{
    if (!ld)
        return;
    stop_workers(ld);
    td_queue_free(ld->work);
    for (int i = 0; i < ld->n_slots; i++)
        release_slot(ld, &ld->slots[i]);
    td_free(ld->slots);
    if (ld->noise)
        td_pages_free(ld->noise, ld->slot_bytes);
    td_free(ld->labels);
    td_free(ld->samples);
    for (size_t i = 0; i < ld->n_bad; i++)
        td_free((char *)(uintptr_t)ld->bad[i].reason);
    td_free(ld->bad);
    td_free(ld->is_bad);
    td_sampler_release(&ld->sampler);
    td_anchor_rows_release(&ld->ready);
    td_transformer_release(&ld->ready_buffers);
    td_anchors_free(ld->anchors);
    td_free(ld);
}
