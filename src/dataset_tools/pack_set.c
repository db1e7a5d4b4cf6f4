/*
 * pack_set.c -- tandem dataset pack: packs a folder of images into one file
 *
 * Images are copied one after the other in the order of the data set.  With --short-side, all
 * threads first decode, resize and encode a block of images; images that are small enough or cannot
 * be decoded are copied unchanged.  An unreadable image is therefore unreadable in the pack, too,
 * and the result does not depend on the number of threads.
 *
 * Memory: the index, one image per thread, and a block of JPEG files.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/signals.h"
#include "data/objects.h"
#include "data/parallel.h"
#include "dataset_tools/coco_text.h"
#include "dataset_tools/split_sets.h"
#include "io/atomic.h"
#include "tandem/dataset_tools.h"

enum { BLOCK = 256, QUALITY = 90, SIDE_MAX = 65500 };

/* One image of a block: the new file, or none if the image is copied. */
typedef struct {
    td_text jpeg;
    char *unreadable; /* why it could not be decoded */
} item;

typedef struct {
    td_pack_opts opts;
    td_split_sets splits;
    td_pack_writer *out;
    const td_dataset *ds;    /* the current split */
    int64_t first;           /* sample of the block's first item */
    item *items;             /* [BLOCK] */
    td_transformer *workers; /* [opts.threads] */
    td_pack_result result;
} packing;

static td_status check_signal(void)
{
    return td_signal_caught()
               ? td_error(TD_ESTOPPED, "interrupted by a signal; no pack was written")
               : TD_OK;
}

/* --- shrinking -------------------------------------------------------------------------------- */

static td_status shrink(const packing *p, td_transformer *w, int64_t i, td_text *jpeg)
{
    const void *bytes;
    size_t n_bytes;
    td_image_info info;
    TD_TRY(td_sample_read(p->ds, i, w, &bytes, &n_bytes));
    TD_TRY(td_image_probe(bytes, n_bytes, &info));
    if (info.width <= p->opts.short_side || info.height <= p->opts.short_side)
        return TD_OK;
    int width, height;
    const td_scene scene = td_dataset_scene(p->ds, i);
    const td_decode_opts opts = { .scratch = &w->stored,
                                  .stored_orientation = td_scene_is_stored(&scene, &info) };
    TD_TRY(td_image_decode(bytes, n_bytes, &opts, &w->decoded, NULL));
    td_short_side(TD_RULES_TORCHVISION, w->decoded.width, w->decoded.height, p->opts.short_side, 1,
                  &width, &height);
    if (width > SIDE_MAX || height > SIDE_MAX)
        return TD_OK;
    TD_TRY(td_image_resample(&w->resampler, &w->decoded, 0, 0, w->decoded.width, w->decoded.height,
                             TD_BILINEAR, width, height, &w->sized));
    return td_image_encode_jpeg(&w->sized, p->opts.quality, jpeg);
}

static td_status shrink_one(void *ctx, int worker, int64_t k)
{
    packing *p = ctx;
    item *it = &p->items[k];
    TD_TRY(check_signal());
    td_status st = shrink(p, &p->workers[worker], p->first + k, &it->jpeg);
    if (st != TD_EFORMAT && st != TD_EUNSUPPORTED && st != TD_ELIMIT)
        return st;
    td_text_release(&it->jpeg);
    it->unreadable = td_copy_text(td_error_message());
    return it->unreadable ? TD_OK : TD_ENOMEM;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The image's path relative to its class, root/class/NAME, or with boxes root/NAME. */
static const char *name_of(const td_dataset *ds, int64_t i)
{
    const td_sample *s = &ds->samples[i];
    if (ds->objects)
        return s->path + strlen(ds->root) + 1;
    return s->path + strlen(ds->root) + 1 + strlen(ds->class_names[s->label]) + 1;
}

static td_status add_one(packing *p, int64_t i, const item *it)
{
    const void *bytes = it->jpeg.data;
    size_t n_bytes = it->jpeg.len;
    td_sample_read_ahead(p->ds, i + TD_SAMPLES_AHEAD);
    if (n_bytes > 0)
        p->result.n_shrunk++;
    else
        TD_TRY_MSG(td_sample_read(p->ds, i, &p->workers[0], &bytes, &n_bytes), "image %" PRId64, i);
    if (it->unreadable) {
        p->result.n_unreadable++;
        td_log(TD_LOG_WARN, "data", "packing '%s' unchanged, because it cannot be read: %s",
               p->ds->samples[i].path, it->unreadable);
    }
    int label = p->ds->objects ? 1 : (int)p->ds->samples[i].label;
    return td_pack_add(p->out, label, name_of(p->ds, i), bytes, n_bytes);
}

static td_status pack_block(packing *p, int64_t n)
{
    if (p->opts.short_side > 0)
        TD_TRY(td_parallel(n, p->opts.threads, shrink_one, p));
    for (int64_t k = 0; k < n; k++) {
        item *it = &p->items[k];
        TD_TRY(check_signal());
        TD_TRY(add_one(p, p->first + k, it));
        td_text_release(&it->jpeg);
        td_free(it->unreadable);
        it->unreadable = NULL;
    }
    return TD_OK;
}

/* --- boxes ------------------------------------------------------------------------------------ */

static const char *file_name(const void *ctx, int64_t i)
{
    return name_of(ctx, i);
}

static void log_bad_annotations(const td_dataset *ds)
{
    const struct td_objects *o = ds->objects;
    if (o->n_bad > 0)
        td_log(TD_LOG_WARN, "data",
               "'%s': skipped %" PRId64 " invalid annotations or images, the first: %s", o->file,
               o->n_bad, o->bad[0].text);
}

static td_status pack_annotations(packing *p, const char *name)
{
    static const char *const classes[] = { TD_PACK_ANNOTATIONS, TD_PACK_IMAGES };
    td_text t = { 0 };
    td_status st;
    log_bad_annotations(p->ds);
    TD_OUT(td_pack_begin_split(p->out, name, 2, classes));
    td_coco_text_add(p->ds, file_name, p->ds, &t);
    TD_OUT(td_text_status(&t));
    TD_OUT(td_pack_add(p->out, 0, "instances.json", t.data, t.len));
out:
    td_text_release(&t);
    return st;
}

static td_status pack_split(packing *p, const char *name)
{
    const td_dataset *ds = p->ds;
    if (ds->objects)
        TD_TRY(pack_annotations(p, name));
    else
        TD_TRY(td_pack_begin_split(p->out, name, ds->n_classes, ds->class_names));
    for (p->first = 0; p->first < ds->n; p->first += BLOCK) {
        int64_t left = ds->n - p->first;
        TD_TRY(pack_block(p, left < BLOCK ? left : BLOCK));
    }
    return TD_OK;
}

/* --- the pack --------------------------------------------------------------------------------- */

/* Create the pack; one made from a pack keeps its properties. */
static td_status create(packing *p, const char *out)
{
    int side = p->opts.short_side, quality = side ? p->opts.quality : 0;
    if (!side && p->splits.sets[0]->pack) {
        side = td_pack_metadata_of(p->splits.sets[0]->pack)->short_side;
        quality = td_pack_metadata_of(p->splits.sets[0]->pack)->quality;
    }
    return td_pack_create(out, side, quality, td_dataset_has_boxes(p->splits.sets[0]), &p->out);
}

/* Read and check the input before anything is written. */
static td_status pack_all(packing *p, const char *path, const char *out)
{
    td_pack_metadata metadata;
    const td_dataset_opts o = { .path = path,
                                .split = p->opts.split,
                                .annotations = p->opts.annotations };
    TD_TRY(td_split_sets_open(&o, false, &p->splits));
    TD_TRY(create(p, out));
    for (int i = 0; i < p->splits.n; i++) {
        p->ds = p->splits.sets[i];
        TD_TRY(pack_split(p, p->splits.names[i]));
    }
    TD_TRY(td_pack_finish(p->out, &metadata));
    p->result.n_images = (int64_t)metadata.n_images - (p->splits.has_boxes ? p->splits.n : 0);
    p->result.n_bytes = (int64_t)metadata.n_bytes;
    p->result.digest = metadata.digest;
    return TD_OK;
}

/* --- packing ---------------------------------------------------------------------------------- */

static td_status take_opts(packing *p, const td_pack_opts *opts)
{
    td_pack_opts *o = &p->opts;
    *o = *opts;
    o->quality = o->quality ? o->quality : QUALITY;
    if (o->short_side < 0 || o->short_side > SIDE_MAX)
        return td_error(TD_EARG, "the short side is %d pixels, wanted 0 .. %d", o->short_side,
                        SIDE_MAX);
    if (o->quality < 1 || o->quality > 100)
        return td_error(TD_EARG, "JPEG quality is %d, wanted 1 to 100", o->quality);
    TD_TRY(td_threads_wanted(o->threads, &o->threads));
    TD_TRY(TD_ALLOC(p->workers, (size_t)o->threads));
    return TD_ALLOC(p->items, BLOCK);
}

static void release(packing *p)
{
    td_pack_writer_free(p->out);
    for (int i = 0; p->workers && i < p->opts.threads; i++)
        td_transformer_release(&p->workers[i]);
    for (int i = 0; p->items && i < BLOCK; i++) {
        td_text_release(&p->items[i].jpeg);
        td_free(p->items[i].unreadable);
    }
    td_split_sets_release(&p->splits);
    td_free(p->workers);
    td_free(p->items);
}

td_status td_dataset_pack(const char *path, const char *out, const td_pack_opts *opts,
                          td_pack_result *result)
{
    packing p = { 0 };
    td_status st;
    int64_t start_ns = td_now_ns();
    *result = (td_pack_result){ 0 };
    td_signals_catch();
    if (td_path_exists(out) && td_path_is_same(path, out))
        return td_error(TD_EARG, "'%s' cannot be packed into itself", path);
    TD_OUT(take_opts(&p, opts));
    TD_OUT(td_output_check_new(out, opts->overwrite));
    TD_OUT(pack_all(&p, path, out));
    p.result.seconds = (double)(td_now_ns() - start_ns) * 1e-9;
    *result = p.result;
out:
    release(&p);
    return st;
}
