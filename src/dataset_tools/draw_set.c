/*
 * draw_set.c -- draws a labelled data set of synthetic images, for demos and tests
 *
 *   <path>/train/circle/00000.jpg ...      class names are the names of the kinds
 *   <path>/val/circle/00000.jpg ...
 *
 *   <path>/train/00000.jpg ...             with boxes: 1 .. 4 figures per image, and
 *   <path>/annotations/instances_train.json    their boxes (docs/formats/annotations.md)
 *
 * Image i of a split shows kind i % classes and has its own random numbers, so the bytes do not
 * depend on the threads.  Files are written to <path>.part.<pid>, which is renamed when complete;
 * those that killed runs have left are removed first.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "base/signals.h"
#include "base/text.h"
#include "data/parallel.h"
#include "dataset_tools/leftovers.h"
#include "tandem/dataset_tools.h"

enum {
    CLASSES = 8,
    TRAIN = 1600,
    VAL = 400,
    SIZE = 64,
    QUALITY = 90,
    OBJECT_CLASSES = 3,
    OBJECT_TRAIN = 800,
    OBJECT_VAL = 100,
    OBJECT_SIZE = 320,
    OBJECTS = 4, /* most objects per image */
    SIZE_MIN = 16,
    SIZE_LIMIT = 4096,
    PATH_BYTES = 4096
};

static const char *const splits[] = { "train", "val" };

typedef struct {
    td_image image;
    td_text jpeg;
} painter;

typedef struct {
    td_draw_opts opts;
    char folder[PATH_BYTES]; /* temporary folder */
    painter *painters;       /* [threads] */
    td_drawn *drawn;         /* with boxes: [train + val, OBJECTS] */
    int *n_drawn;            /* [train + val] */
} drawing;

/* --- names ----------------------------------------------------------------------------------- */

static td_status too_long(const char *path)
{
    return td_error(TD_ELIMIT, "path '%s' is longer than %d bytes", path, PATH_BYTES);
}

/* The folder of a class's images or, with boxes, of all images. */
static td_status class_folder(const drawing *d, int split, int kind, char *out)
{
    int n = d->opts.boxes ? snprintf(out, PATH_BYTES, "%s/%s", d->folder, splits[split])
                          : snprintf(out, PATH_BYTES, "%s/%s/%s", d->folder, splits[split],
                                     td_draw_kind_name(kind));
    return n < PATH_BYTES ? TD_OK : too_long(d->folder);
}

/* The path of image i; train's images come first. */
static td_status image_path(const drawing *d, int64_t i, char *out, int *kind, int *split,
                            int64_t *number)
{
    *split = i >= d->opts.train;
    *number = *split ? i - d->opts.train : i;
    *kind = (int)(*number % d->opts.classes);
    int n = d->opts.boxes
                ? snprintf(out, PATH_BYTES, "%s/%s/%05" PRId64 ".jpg", d->folder, splits[*split],
                           *number)
                : snprintf(out, PATH_BYTES, "%s/%s/%s/%05" PRId64 ".jpg", d->folder, splits[*split],
                           td_draw_kind_name(*kind), *number / d->opts.classes);
    return n < PATH_BYTES ? TD_OK : too_long(d->folder);
}

/* --- drawing --------------------------------------------------------------------------------- */

static td_status draw_one(void *ctx, int worker, int64_t i)
{
    drawing *d = ctx;
    painter *p = &d->painters[worker];
    char path[PATH_BYTES];
    int kind, split;
    int64_t number;
    if (td_signal_caught())
        return td_error(TD_ESTOPPED, "interrupted by a signal; no data set was written");
    TD_TRY(image_path(d, i, path, &kind, &split, &number));
    td_rng r = td_rng_make(d->opts.seed, TD_RNG_DRAW, (uint64_t)number, (uint64_t)split);
    if (d->opts.boxes)
        TD_TRY(td_image_draw_objects(d->opts.classes, OBJECTS, &r, d->opts.size, d->opts.size,
                                     &p->image, d->drawn + OBJECTS * i, &d->n_drawn[i]));
    else
        TD_TRY(td_image_draw_sample(kind, &r, d->opts.size, d->opts.size, &p->image));
    p->jpeg.len = 0;
    TD_TRY(td_image_encode_jpeg(&p->image, d->opts.quality, &p->jpeg));
    return td_file_write(path, p->jpeg.data, p->jpeg.len);
}

/* --- annotations ------------------------------------------------------------------------------ */

static td_status annotation_path(const drawing *d, const char *name, char *out)
{
    int n = snprintf(out, PATH_BYTES, "%s/annotations%s%s%s", d->folder, *name ? "/instances_" : "",
                     name, *name ? ".json" : "");
    return n < PATH_BYTES ? TD_OK : too_long(d->folder);
}

static void add_objects(const drawing *d, int64_t first, int64_t n, td_text *t)
{
    int64_t id = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < d->n_drawn[first + i]; k++) {
            const td_drawn *x = &d->drawn[OBJECTS * (first + i) + k];
            id++;
            td_text_add(t,
                        "%s\n{\"id\": %" PRId64 ", \"image_id\": %" PRId64
                        ", \"category_id\": %d, \"bbox\": [%d, %d, %d, %d], \"area\": %" PRId64
                        ", \"iscrowd\": 0}",
                        id > 1 ? "," : "", id, i + 1, x->figure + 1, x->box.x, x->box.y,
                        x->box.width, x->box.height, x->area);
        }
    }
}

static td_status write_annotations(const drawing *d, int split)
{
    int64_t first = split ? d->opts.train : 0, n = split ? d->opts.val : d->opts.train;
    char path[PATH_BYTES];
    td_text t = { 0 };
    td_status st;
    TD_TRY(annotation_path(d, splits[split], path));
    td_text_add(&t,
                "{\"info\": {\"description\": \"drawn figures, seed %" PRIu64 "\"},\n\"images\": [",
                d->opts.seed);
    for (int64_t i = 0; i < n; i++)
        td_text_add(&t,
                    "%s\n{\"id\": %" PRId64 ", \"file_name\": \"%05" PRId64
                    ".jpg\", \"width\": %d, \"height\": %d}",
                    i ? "," : "", i + 1, i, d->opts.size, d->opts.size);
    td_text_add(&t, "],\n\"annotations\": [");
    add_objects(d, first, n, &t);
    td_text_add(&t, "],\n\"categories\": [");
    for (int k = 0; k < d->opts.classes; k++)
        td_text_add(&t, "%s\n{\"id\": %d, \"name\": \"%s\"}", k ? "," : "", k + 1,
                    td_draw_figure_name(k));
    td_text_add(&t, "]}\n");
    TD_OUT(td_text_status(&t));
    TD_OUT(td_file_write(path, t.data, t.len));
out:
    td_text_release(&t);
    return st;
}

static td_status write_boxes(const drawing *d)
{
    char path[PATH_BYTES];
    TD_TRY(annotation_path(d, "", path));
    TD_TRY(td_make_folder(path));
    TD_TRY(write_annotations(d, 0));
    return write_annotations(d, 1);
}

/* --- the whole set ---------------------------------------------------------------------------- */

static td_status make_folders(const drawing *d)
{
    char path[PATH_BYTES];
    for (int split = 0; split < 2; split++) {
        for (int kind = 0; kind < d->opts.classes; kind++) {
            TD_TRY(class_folder(d, split, kind, path));
            TD_TRY(td_make_folder(path));
        }
    }
    return TD_OK;
}

/* Remove all files; missing ones are ignored. */
static void remove_all(const drawing *d)
{
    char path[PATH_BYTES];
    int kind, split;
    int64_t number;
    for (int64_t i = 0; i < d->opts.train + d->opts.val; i++) {
        if (image_path(d, i, path, &kind, &split, &number) == TD_OK)
            (void)unlink(path);
    }
    for (split = 0; split < 2; split++) {
        for (kind = 0; kind < d->opts.classes; kind++) {
            if (class_folder(d, split, kind, path) == TD_OK)
                (void)rmdir(path);
        }
        int n = snprintf(path, sizeof path, "%s/%s", d->folder, splits[split]);
        if (n < PATH_BYTES)
            (void)rmdir(path);
        if (d->opts.boxes && annotation_path(d, splits[split], path) == TD_OK)
            (void)unlink(path);
    }
    if (d->opts.boxes && annotation_path(d, "", path) == TD_OK)
        (void)rmdir(path);
    (void)rmdir(d->folder);
}

static td_status draw_all(drawing *d)
{
    int threads = d->opts.threads;
    td_status st;
    TD_TRY(TD_ALLOC(d->painters, (size_t)threads));
    if (d->opts.boxes) {
        d->drawn = td_alloc((size_t)(d->opts.train + d->opts.val), OBJECTS * sizeof *d->drawn);
        d->n_drawn = td_alloc((size_t)(d->opts.train + d->opts.val), sizeof *d->n_drawn);
        TD_OUT(d->drawn && d->n_drawn ? TD_OK : TD_ENOMEM);
    }
    TD_OUT(make_folders(d));
    TD_OUT(td_parallel(d->opts.train + d->opts.val, threads, draw_one, d));
    if (d->opts.boxes)
        TD_OUT(write_boxes(d));
out:
    td_free(d->drawn);
    td_free(d->n_drawn);
    for (int i = 0; i < threads; i++) {
        td_image_release(&d->painters[i].image);
        td_text_release(&d->painters[i].jpeg);
    }
    td_free(d->painters);
    return st;
}

/* --- options --------------------------------------------------------------------------------- */

static td_status check_range(const char *what, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return TD_OK;
    return td_error(TD_EARG, "drawn data set: %s is %" PRId64 ", wanted %" PRId64 " .. %" PRId64,
                    what, value, min, max);
}

static td_status take_opts(const td_draw_opts *opts, td_draw_opts *o)
{
    *o = *opts;
    o->classes = o->classes ? o->classes : o->boxes ? OBJECT_CLASSES : CLASSES;
    o->train = o->train ? o->train : o->boxes ? OBJECT_TRAIN : TRAIN;
    o->val = o->val ? o->val : o->boxes ? OBJECT_VAL : VAL;
    o->size = o->size ? o->size : o->boxes ? OBJECT_SIZE : SIZE;
    o->quality = o->quality ? o->quality : QUALITY;
    int min_classes = o->boxes ? 1 : 2,
        max_classes = o->boxes ? td_draw_figures() : td_draw_kinds();
    int64_t min_images = o->boxes ? 1 : o->classes;
    TD_TRY(check_range("number of classes", o->classes, min_classes, max_classes));
    TD_TRY(check_range("number of training images", o->train, min_images, 100000000));
    TD_TRY(check_range("number of validation images", o->val, min_images, 100000000));
    TD_TRY(check_range("size", o->size, SIZE_MIN, SIZE_LIMIT));
    TD_TRY(check_range("JPEG quality", o->quality, 1, 100));
    return td_threads_wanted(o->threads, &o->threads);
}

/* Check that `path` does not exist or is an empty folder. */
static td_status check_free(const char *path)
{
    if (!td_path_exists(path))
        return TD_OK;
    if (!td_path_is_folder(path))
        return td_error(TD_EARG, "'%s' exists and is not a folder", path);
    td_listing l;
    TD_TRY(td_list_folder(path, &l));
    size_t n = l.n;
    td_listing_release(&l);
    if (n > 0)
        return td_error(TD_EARG, "folder '%s' is not empty, wanted a new or empty one", path);
    return TD_OK;
}

td_status td_dataset_draw(const char *path, const td_draw_opts *opts)
{
    drawing d = { 0 };
    int fd = -1;
    if (!path || !*path)
        return td_error(TD_EARG, "no output folder was given");
    TD_TRY(take_opts(opts, &d.opts));
    TD_TRY(check_free(path));
    int len = (int)strnlen(path, PATH_BYTES);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (snprintf(d.folder, PATH_BYTES, "%.*s.part.%d", len, path, (int)getpid()) >= PATH_BYTES)
        return too_long(path);
    d.folder[len] = '\0'; /* without the ending */
    td_parts_remove(d.folder);
    d.folder[len] = '.';
    td_signals_catch(); /* an incomplete folder is removed */
    td_status st = td_part_open(d.folder, &fd);
    if (st == TD_OK)
        st = draw_all(&d);
    if (st == TD_OK && rename(d.folder, path) != 0)
        st = td_error_errno(TD_EIO, "cannot rename '%s' to '%s'", d.folder, path);
    if (st != TD_OK)
        remove_all(&d);
    if (fd >= 0)
        (void)close(fd);
    return st;
}
