/*
 * pack_set.c -- tandem dataset pack: packs a data set into one file
 *
 * Images are copied one after the other in the order of the data set, or, if that is not by class,
 * as in lists, tar files and TFRecords, class after class.  With --short-side, all
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
#include "dataset_tools/set_names.h"
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
    td_arena arena;          /* holds the names of a split that is a list */
    td_map taken;            /* "<class>/<name>" of the images so far */
    const char **folders;    /* [n_classes] of the classes */
    int64_t *order;          /* [ds->n] samples, class after class; NULL: as they are */
    const char **names;      /* [ds->n] of the images, of data with boxes; NULL: made when packed */
    int64_t first;           /* place of the block's first item */
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

/* The sample at a place of the split. */
static int64_t sample_at(const packing *p, int64_t place)
{
    return p->order && place < p->ds->n ? p->order[place] : place;
}

static td_status shrink_one(void *ctx, int worker, int64_t k)
{
    packing *p = ctx;
    item *it = &p->items[k];
    TD_TRY(check_signal());
    td_status st = shrink(p, &p->workers[worker], sample_at(p, p->first + k), &it->jpeg);
    if (st != TD_EFORMAT && st != TD_EUNSUPPORTED && st != TD_ELIMIT)
        return st;
    td_text_release(&it->jpeg);
    it->unreadable = td_copy_text(td_error_message());
    return it->unreadable ? TD_OK : TD_ENOMEM;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The image's path relative to its class, root/class/NAME, or with boxes root/NAME; of a list its
   own name. */
static td_status name_of(packing *p, int64_t i, const char **name)
{
    const td_dataset *ds = p->ds;
    const td_sample *s = &ds->samples[i];
    *name = s->path + strlen(ds->root) + 1;
    if (!ds->is_list && !ds->objects)
        *name += strlen(ds->class_names[s->label]) + 1;
    if (!ds->is_list)
        return TD_OK;
    const char *base = td_file_name(&p->arena, td_path_base(s->path));
    if (!base)
        return TD_ENOMEM;
    return td_unique_name(&p->arena, &p->taken, ds->objects ? "" : p->folders[s->label], base, "",
                          i, name);
}

static td_status add_one(packing *p, int64_t place, const item *it)
{
    const void *bytes = it->jpeg.data;
    size_t n_bytes = it->jpeg.len;
    const char *name;
    const int64_t i = sample_at(p, place);
    td_sample_read_ahead(p->ds, sample_at(p, place + TD_SAMPLES_AHEAD));
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
    if (p->names)
        name = p->names[i];
    else
        TD_TRY(name_of(p, i, &name));
    return td_pack_add(p->out, label, name, bytes, n_bytes);
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
    const packing *p = ctx;
    return p->names[i];
}

/* The annotations, which come first, have the names of the images. */
static td_status name_images(packing *p)
{
    p->names = td_arena_alloc(&p->arena, (size_t)p->ds->n + 1, sizeof *p->names);
    if (!p->names)
        return TD_ENOMEM;
    for (int64_t i = 0; i < p->ds->n; i++)
        TD_TRY(name_of(p, i, &p->names[i]));
    return TD_OK;
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
    TD_OUT(name_images(p));
    TD_OUT(td_pack_begin_split(p->out, name, 2, classes));
    td_coco_text_add(p->ds, file_name, p, &t);
    TD_OUT(td_text_status(&t));
    TD_OUT(td_pack_add(p->out, 0, "instances.json", t.data, t.len));
out:
    td_text_release(&t);
    return st;
}

/* --- lists ------------------------------------------------------------------------------------ */

static td_status no_image(const packing *p, int label)
{
    return td_error(TD_EUNSUPPORTED,
                    "'%s' has no image of class '%s', and a pack, like a folder of classes, has "
                    "only classes with images",
                    p->ds->root, td_named_set(&p->splits, p->ds)->class_names[label]);
}

/* The samples by class, those of a class in their order. */
static td_status sort_by_class(packing *p, int n_classes)
{
    const td_dataset *ds = p->ds;
    int64_t *next, at = 0;
    td_status st = TD_OK;
    TD_TRY(TD_ALLOC(next, (size_t)n_classes));
    p->order = td_arena_alloc(&p->arena, (size_t)ds->n + 1, sizeof *p->order);
    TD_OUT(p->order ? TD_OK : TD_ENOMEM);
    for (int64_t i = 0; i < ds->n; i++)
        next[ds->samples[i].label]++;
    for (int k = 0; k < n_classes; k++) {
        const int64_t n = next[k];
        if (!n)
            TD_OUT(no_image(p, k));
        next[k] = at;
        at += n;
    }
    for (int64_t i = 0; i < ds->n; i++)
        p->order[next[ds->samples[i].label]++] = i;
out:
    td_free(next);
    return st;
}

static td_status begin_list(packing *p, const char *name)
{
    const int n = td_named_set(&p->splits, p->ds)->n_classes;
    TD_TRY(td_class_folders(&p->arena, &p->splits, p->ds, &p->folders));
    TD_TRY(sort_by_class(p, n));
    return td_pack_begin_split(p->out, name, n, p->folders);
}

static td_status begin_split(packing *p, const char *name)
{
    const td_dataset *ds = p->ds;
    td_map_release(&p->taken);
    p->taken = (td_map){ 0 };
    p->order = NULL;
    p->names = NULL;
    if (ds->objects)
        return pack_annotations(p, name);
    return ds->is_list ? begin_list(p, name)
                       : td_pack_begin_split(p->out, name, ds->n_classes, ds->class_names);
}

static td_status pack_split(packing *p, const char *name)
{
    TD_TRY(begin_split(p, name));
    for (p->first = 0; p->first < p->ds->n; p->first += BLOCK) {
        int64_t left = p->ds->n - p->first;
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

static td_status check_labels(const packing *p)
{
    for (int i = 0; i < p->splits.n; i++)
        if (p->splits.sets[i]->is_multi_label)
            return td_error(TD_EUNSUPPORTED,
                            "'%s' has several labels for an image, and a pack has one: 'tandem "
                            "dataset unpack' writes it as images and a list",
                            p->splits.sets[i]->root);
    return TD_OK;
}

/* Read and check the input before anything is written. */
static td_status pack_all(packing *p, const char *path, const char *out)
{
    td_pack_metadata metadata;
    const td_dataset_opts o = { .path = path,
                                .split = p->opts.split,
                                .annotations = p->opts.annotations,
                                .allow_outside = p->opts.allow_outside,
                                .labels_from_zero = p->opts.labels_from_zero,
                                .label_delimiter = p->opts.label_delimiter };
    if (td_path_is_file(path) && td_text_ends(path, ".safetensors"))
        return td_error(TD_EUNSUPPORTED, "'%s' holds tensors, and a pack holds image files", path);
    TD_TRY(td_split_sets_open(&o, &p->splits));
    TD_TRY(check_labels(p));
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
    td_map_release(&p->taken);
    td_arena_release(&p->arena);
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
