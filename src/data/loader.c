/*
 * loader.c -- returns batches in order; checks the loader's options
 *
 * The workers of a ring fill rows from image files (loader_ring.h).  Ready rows point into the
 * file's memory, and noise is generated once.  Anything that depends on order (the list of bad
 * images, their limit) is done here, in the caller's thread, so that it does not depend on the
 * speed of workers.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "boxes/detector_rules.h"
#include "data/loader_ring.h"
#include "data/objects.h"
#include "data/parallel.h"
#include "data/source.h"

enum {
    BATCH = 32,
    SIZE = 224,
    PADDING = 32,
    PREFETCH = 2,
    BATCH_MAX = 1 << 20,
    SIZE_MAX_PIXELS = TD_SIZE_PIXELS_MAX,
    PREFETCH_MAX = 1024,
    THREADS_MAX = 1024
};

struct td_loader {
    td_load_plan plan;
    td_ring *ring;     /* for image files; NULL: ready rows */
    td_bad_images bad; /* bad images */

    int64_t epoch, index; /* the next batch to return */
    td_batch batch;       /* the batch that the caller has */

    /* for ready rows: one batch of noise, or NULL; and the targets of their anchors */
    td_anchor_rows ready;
    td_transformer ready_buffers;
    float *noise;
    int64_t *labels, *samples; /* [batch] */
    float *targets;            /* multi-label: [batch, classes] */

    td_status failed; /* set after a permanent failure */
};

/* --- finished slots --------------------------------------------------------------------------- */

static td_status keep_row(td_loader *ld, td_row *r)
{
    const td_loader_opts *o = &ld->plan.opts;
    if (r->st != TD_OK)
        return td_error_set(r->st, r->error ? r->error : td_status_text(r->st));
    TD_TRY(td_bad_images_add(&ld->bad, &r->bad));
    /* when several ranks train, they check the total after every step */
    const bool is_checked_later = o->is_training && o->world > 1;
    if (((int64_t)ld->bad.n > ld->bad.n_allowed && !is_checked_later) ||
        (o->is_training && r->used_sample < 0))
        return td_bad_images_refuse(&ld->bad);
    return TD_OK;
}

/* Check a finished slot; remove rows without an image. */
static td_status compact_rows(td_loader *ld, td_slot *s)
{
    const size_t n_bytes = td_slot_row_bytes(&ld->plan, s);
    td_status st = TD_OK;
    int n = 0;
    for (int i = 0; i < s->n && st == TD_OK; i++) {
        td_row *r = &s->rows[i];
        st = keep_row(ld, r);
        if (st != TD_OK || r->used_sample < 0)
            continue;
        if (n != i)
            memcpy(s->images + n_bytes * (size_t)n, s->images + n_bytes * (size_t)i, n_bytes);
        td_anchor_rows_move(&s->anchors, n, i);
        s->samples[n] = r->used_sample;
        s->labels[n++] = ld->plan.ds->samples[r->used_sample].label;
    }
    td_slot_clear_rows(s);
    s->n = n;
    return st;
}

int64_t td_loader_bad(const td_loader *ld, const td_bad_image **out)
{
    *out = ld->bad.list;
    return (int64_t)ld->bad.n;
}

int64_t td_loader_bad_allowed(const td_loader *ld)
{
    return ld->bad.n_allowed;
}

double td_loader_bad_share(const td_loader *ld)
{
    return ld->bad.share;
}

/* --- returning a batch ------------------------------------------------------------------------ */

static void return_anchors(td_batch *b, const td_anchor_rows *rows)
{
    b->n_anchors = rows->n_anchors;
    b->anchor_labels = rows->labels;
    b->anchor_targets = rows->deltas;
}

/* Compute the anchor targets of ready rows; noise is the same in every batch. */
static td_status fill_ready(td_loader *ld, const int64_t *samples, int n)
{
    for (int i = 0; i < n; i++) {
        int n_ground_truths;
        const td_ground_truth *t =
            td_dataset_ground_truths(ld->plan.ds, samples[i], &n_ground_truths);
        TD_TRY(td_anchor_rows_fill(&ld->ready, i, ld->plan.anchors, &ld->ready_buffers, t,
                                   n_ground_truths));
    }
    return TD_OK;
}

static void return_targets(td_loader *ld)
{
    const size_t n = (size_t)ld->plan.ds->n_classes;
    for (int i = 0; ld->targets && i < ld->batch.n; i++)
        td_sample_targets(ld->plan.ds, ld->batch.samples[i], ld->targets + (size_t)i * n);
    ld->batch.targets = ld->targets;
}

/* Return ready rows: the file's memory, or the same noise in every batch. */
static td_status return_ready(td_loader *ld)
{
    td_batch *b = &ld->batch;
    b->n = td_sampler_rows(&ld->plan.sampler, ld->epoch, ld->index, ld->samples);
    b->images = ld->noise;
    b->labels = ld->labels;
    if (ld->plan.ds->images) {
        int64_t first = b->n ? ld->samples[0] : 0;
        b->images = ld->plan.ds->images + first * b->channels * b->height * b->width;
        b->labels = ld->plan.ds->labels ? ld->plan.ds->labels + first : ld->labels;
        if (ld->plan.anchors)
            TD_TRY(fill_ready(ld, ld->samples, b->n));
    }
    return_anchors(b, &ld->ready);
    b->samples = ld->samples;
    b->wait_s = b->decode_s = 0;
    return TD_OK;
}

static td_status return_slot(td_loader *ld)
{
    int64_t start_ns = td_now_ns();
    td_slot *s = td_ring_take_slot(ld->ring);
    TD_CHECK(s && s->epoch == ld->epoch && s->index == ld->index);
    double wait_s = (double)(td_now_ns() - start_ns) * 1e-9;
    TD_TRY_MSG(compact_rows(ld, s), "epoch %" PRId64 ", batch %" PRId64, s->epoch, s->index);
    td_batch *b = &ld->batch;
    b->pixels = ld->plan.transform.as_bytes ? (const uint8_t *)s->images : NULL;
    b->images = ld->plan.transform.as_bytes ? NULL : (const float *)s->images;
    b->labels = s->labels;
    b->samples = s->samples;
    return_anchors(b, &s->anchors);
    b->n = s->n;
    b->height = b->width = s->size;
    b->wait_s = wait_s;
    b->decode_s = (double)atomic_load_explicit(&s->work_ns, memory_order_relaxed) * 1e-9;
    return TD_OK;
}

static td_status return_batch(td_loader *ld)
{
    if (ld->ring) {
        td_ring_fill(ld->ring, ld->epoch);
        TD_TRY(return_slot(ld));
    } else {
        TD_TRY(return_ready(ld));
    }
    return_targets(ld);
    ld->batch.epoch = ld->epoch;
    ld->batch.index = ld->index++;
    return TD_OK;
}

td_status td_loader_next(td_loader *ld, const td_batch **out)
{
    *out = NULL;
    if (ld->failed != TD_OK)
        return td_error(ld->failed, "the loader of '%s' has already failed", ld->plan.ds->root);
    if (ld->ring)
        td_ring_release_slot(ld->ring);
    if (ld->index == ld->plan.n_batches) {
        ld->epoch++;
        ld->index = 0;
        return TD_EEND;
    }
    ld->failed = return_batch(ld);
    if (ld->failed == TD_OK)
        *out = &ld->batch;
    return ld->failed;
}

const void *td_loader_peek(td_loader *ld)
{
    if (ld->failed != TD_OK || !ld->ring || ld->index == ld->plan.n_batches)
        return NULL;
    const td_slot *s = td_ring_peek_slot(ld->ring);
    return s && s->epoch == ld->epoch && s->index == ld->index ? s->images : NULL;
}

td_status td_loader_start_epoch(td_loader *ld, int64_t epoch)
{
    if (epoch < 0)
        return td_error(TD_EARG, "epoch %" PRId64 ", wanted 0 or more", epoch);
    if (ld->failed != TD_OK)
        return td_error(ld->failed, "the loader of '%s' has already failed", ld->plan.ds->root);
    if (ld->ring)
        td_ring_release_slot(ld->ring);
    if (ld->epoch == epoch && ld->index == 0)
        return TD_OK; /* the prefetched batches are the right ones */
    if (ld->ring)
        td_ring_restart(ld->ring, epoch);
    ld->epoch = epoch;
    ld->index = 0;
    return TD_OK;
}

const td_dataset *td_loader_dataset(const td_loader *ld)
{
    return ld->plan.ds;
}

const td_norm *td_loader_pixel_norm(const td_loader *ld)
{
    const td_transform *t = &ld->plan.transform;
    return t->as_bytes ? td_transform_norm(t) : NULL;
}

int64_t td_loader_batches(const td_loader *ld)
{
    return ld->plan.n_batches;
}

/* --- creating a loader ------------------------------------------------------------------------ */

td_status td_threads_wanted(int threads, int *out)
{
    if (threads < 0 || threads > THREADS_MAX)
        return td_error(TD_EARG, "%d threads, wanted 0 .. %d", threads, THREADS_MAX);
    *out = threads ? threads : td_cpu_count();
    return TD_OK;
}

/* 8: the decoding of 3,000 to 4,000 images/s, which 8 cores cannot train with */
int td_loader_workers(int n_processors, int n_cores)
{
    enum { FEW = 8, CORES_EACH = 4 };
    const int siblings = n_processors - n_cores;
    if (n_processors <= FEW)
        return n_processors;
    const int n = siblings > 0 ? siblings : n_cores / CORES_EACH;
    return n > FEW ? n : FEW;
}

static td_status check_range(const char *what, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return TD_OK;
    return td_error(TD_EARG, "loader: %s is %" PRId64 ", wanted %" PRId64 " .. %" PRId64, what,
                    value, min, max);
}

/*
 * Parse the size schedule, which requires training on images; slots have room for the largest size.
 */
static td_status take_sizes(td_loader *ld)
{
    td_loader_opts *o = &ld->plan.opts;
    TD_TRY(td_sizes_parse(o->image_sizes, &ld->plan.sizes));
    o->image_sizes = NULL; /* borrowed only during the call */
    if (!ld->plan.sizes.n)
        return TD_OK;
    if (!o->is_training || !td_dataset_decodes(ld->plan.ds))
        return td_error(TD_EARG, "image sizes by epoch require training on image files");
    o->image_size = td_sizes_largest(&ld->plan.sizes, o->image_size);
    return TD_OK;
}

/* Set up a detector's rows, which have other transforms and require images with boxes. */
static td_status take_detector(td_loader *ld)
{
    const td_loader_opts *o = &ld->plan.opts;
    const td_dataset *ds = ld->plan.ds;
    if (!o->detector)
        return TD_OK;
    if (o->is_training && !td_dataset_has_boxes(ds))
        return td_error(TD_EARG, "'%s' has no boxes, which training a detector requires", ds->root);
    const char *unfit = o->autoaugment        ? "autoaugment"
                        : o->auto_augment     ? "an automatic augmentation"
                        : o->timm_augment     ? "timm's augmentation"
                        : o->random_erase > 0 ? "random erasing"
                        : ld->plan.sizes.n    ? "an image size by epoch"
                                              : NULL;
    if (unfit)
        return td_error(TD_EUSAGE,
                        "%s is not supported for detectors, because it does not transform boxes",
                        unfit);
    if (ds->images && ds->channels != 3)
        return td_error(TD_ESHAPE, "'%s' contains images of %d channels, a detector requires 3",
                        ds->root, ds->channels);
    if (ds->images && ds->width != ds->height)
        return td_error(TD_ESHAPE,
                        "'%s' contains images of %d x %d, a detector requires square ones",
                        ds->root, ds->width, ds->height);
    ld->plan.transform.detector = o->detector;
    ld->plan.transform.is_jittered = o->color_jitter && o->is_training;
    return td_anchors_new(o->detector, o->image_size, &ld->plan.anchors);
}

static int usual_size(td_detector detector)
{
    return detector ? td_detector_rules_of(detector)->image_size : SIZE;
}

static td_status take_opts(td_loader *ld, const td_loader_opts *opts)
{
    td_loader_opts *o = &ld->plan.opts;
    const td_dataset *ds = ld->plan.ds;
    *o = *opts;
    if (ds->images && o->image_size && (o->image_size != ds->height || o->image_size != ds->width))
        return td_error(TD_ESHAPE, "'%s' contains images of %d x %d, wanted %d x %d", ds->root,
                        ds->width, ds->height, o->image_size, o->image_size);
    TD_TRY(td_channels_check(o->channels));
    if (ds->images && o->channels && o->channels != ds->channels)
        return td_error(TD_ESHAPE, "'%s' contains images of %d channels, wanted %d", ds->root,
                        ds->channels, o->channels);
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
    if (o->workers == 0)
        o->workers = td_loader_workers(td_cpu_count(), td_core_count());
    TD_TRY(td_threads_wanted(o->workers, &o->workers));
    if (!(o->max_bad <= 1))
        return td_error(TD_EARG, "loader: share of bad images is %g, wanted 0 .. 1", o->max_bad);
    ld->plan.transform = (td_transform){ .is_training = o->is_training,
                                         .size = o->image_size,
                                         .padding = o->eval_padding,
                                         .stored_orientation = o->stored_orientation,
                                         .is_fast = o->fast_decode,
                                         .seed = o->seed };
    if ((unsigned)o->order > TD_ORDER_BUFFER)
        return td_error(TD_EARG, "unknown order %d", (int)o->order);
    TD_TRY(td_transform_choose(&ld->plan.transform, o));
    o->jitter_strength = o->timm_augment = NULL; /* borrowed only during the call */
    TD_TRY(take_detector(ld));
    ld->plan.transform.as_bytes =
        o->as_bytes && td_dataset_decodes(ds) && td_transform_gives_bytes(&ld->plan.transform);
    return TD_OK;
}

static td_status check_balanced(const td_loader *ld)
{
    const td_loader_opts *o = &ld->plan.opts;
    const td_dataset *ds = ld->plan.ds;
    if (ds->is_multi_label)
        return td_error(TD_EUSAGE,
                        "balanced sampling requires one label for each image, '%s' has "
                        "several",
                        ds->root);
    if (!o->is_training || !td_dataset_decodes(ds) || ds->objects)
        return td_error(TD_EARG, "balanced sampling requires training on image files with classes");
    if (o->order == TD_ORDER_BUFFER || o->repeats > 1)
        return td_error(TD_EARG, "balanced sampling excludes a buffer and repeats");
    return TD_OK;
}

static td_status init_sampler(td_loader *ld)
{
    const td_dataset *ds = ld->plan.ds;
    int64_t *classes;
    if (!ld->plan.opts.balanced)
        return td_sampler_init(&ld->plan.sampler);
    TD_TRY(check_balanced(ld));
    TD_TRY(TD_ALLOC(classes, (size_t)ds->n));
    for (int64_t i = 0; i < ds->n; i++)
        classes[i] = ds->samples[i].label;
    ld->plan.sampler.classes = classes;
    const td_status st = td_sampler_init(&ld->plan.sampler);
    td_free(classes);
    return st;
}

static td_status set_up_order(td_loader *ld)
{
    const td_loader_opts *o = &ld->plan.opts;
    ld->plan.sampler = (td_sampler){ .n = ld->plan.ds->n,
                                     .batch = o->batch_size,
                                     .rank = o->rank,
                                     .world = o->world,
                                     .order_kind = o->order,
                                     .shuffles = o->is_training && td_dataset_decodes(ld->plan.ds),
                                     .drops_last = o->is_training,
                                     .repeats = o->repeats,
                                     .seed = o->seed };
    TD_TRY(init_sampler(ld));
    ld->plan.n_batches = td_sampler_batches(&ld->plan.sampler);
    if (ld->plan.n_batches == 0)
        return td_error(TD_EARG,
                        "'%s' has %" PRId64 " images, fewer than one batch of %" PRId64
                        ": use a smaller --batch-size (-b)",
                        ld->plan.ds->root, ld->plan.ds->n, (int64_t)o->batch_size * o->world);
    TD_TRY(check_range("first batch", o->start_batch, 0, ld->plan.n_batches));
    ld->epoch = o->start_epoch;
    ld->index = o->start_batch;
    return TD_OK;
}

static td_status set_up_ready(td_loader *ld)
{
    const td_loader_opts *o = &ld->plan.opts;
    const td_dataset *ds = ld->plan.ds;
    int64_t batch = o->batch_size;
    td_batch *b = &ld->batch;
    TD_TRY(TD_ALLOC(ld->samples, (size_t)batch));
    TD_TRY(TD_ALLOC(ld->labels, (size_t)batch));
    if (ld->plan.anchors)
        TD_TRY(td_anchor_rows_init(&ld->ready, ld->plan.anchors, o->batch_size));
    if (ds->images) {
        b->channels = ds->channels;
        b->height = ds->height;
        b->width = ds->width;
        for (int64_t i = 0; i < batch; i++)
            ld->labels[i] = -1; /* without label */
        return TD_OK;
    }
    b->channels = td_transform_channels(&ld->plan.transform);
    b->height = b->width = o->image_size;
    ld->noise = td_pages_alloc(ld->plan.images_bytes);
    if (!ld->noise)
        return TD_ENOMEM;
    td_synthetic_fill(ds, o->seed, (int64_t)o->rank * batch, o->batch_size,
                      td_transform_values(&ld->plan.transform), ld->noise, ld->labels);
    for (int64_t i = 0; i < batch; i++)
        ld->samples[i] = ((int64_t)o->rank * batch + i) % ds->n;
    return ld->plan.anchors ? fill_ready(ld, ld->samples, o->batch_size) : TD_OK;
}

static td_status set_up_ring(td_loader *ld)
{
    const td_loader_opts *o = &ld->plan.opts;
    ld->batch.channels = td_transform_channels(&ld->plan.transform);
    ld->batch.height = ld->batch.width = o->image_size;
    TD_TRY(td_bad_images_init(&ld->bad, ld->plan.ds, o->max_bad));
    ld->plan.n_tries = o->is_training ? ld->bad.n_allowed + 1 : 1;
    TD_TRY(td_ring_new(&ld->plan, &ld->ring));
    td_ring_fill(ld->ring, ld->epoch);
    return TD_OK;
}

static td_status set_up(td_loader *ld, const td_loader_opts *opts)
{
    TD_TRY(take_opts(ld, opts));
    TD_TRY(set_up_order(ld));
    size_t size = (size_t)ld->plan.opts.image_size;
    ld->plan.value_bytes = ld->plan.transform.as_bytes ? 1 : sizeof(float);
    ld->plan.images_bytes = (size_t)ld->plan.opts.batch_size *
                            td_transform_values(&ld->plan.transform) * ld->plan.value_bytes;
    if (ld->plan.ds->is_multi_label)
        TD_TRY(td_alloc_to(&ld->targets, (size_t)ld->plan.opts.batch_size,
                           (size_t)ld->plan.ds->n_classes * sizeof *ld->targets));
    td_status st = td_dataset_decodes(ld->plan.ds) ? set_up_ring(ld) : set_up_ready(ld);
    if (st != TD_ENOMEM)
        return st;
    return td_error_context(st, "a batch of %d images of %zu x %zu", ld->plan.opts.batch_size, size,
                            size);
}

td_status td_loader_new(const td_dataset *ds, const td_loader_opts *opts, td_loader **out)
{
    *out = NULL;
    td_loader *ld = TD_NEW(td_loader);
    if (!ld)
        return TD_ENOMEM;
    ld->plan.ds = ds;
    td_status st = set_up(ld, opts);
    if (st == TD_OK)
        *out = ld;
    else
        td_loader_free(ld);
    return st;
}

void td_loader_free(td_loader *ld)
{
    if (!ld)
        return;
    td_ring_free(ld->ring);
    if (ld->noise)
        td_pages_free(ld->noise, ld->plan.images_bytes);
    td_free(ld->labels);
    td_free(ld->samples);
    td_free(ld->targets);
    td_bad_images_release(&ld->bad);
    td_sampler_release(&ld->plan.sampler);
    td_anchor_rows_release(&ld->ready);
    td_transformer_release(&ld->ready_buffers);
    td_anchors_free(ld->plan.anchors);
    td_free(ld);
}
