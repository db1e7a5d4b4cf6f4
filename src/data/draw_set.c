/*
 * draw_set.c -- a labelled data set of drawn pictures, for demos and tests
 *
 *   <path>/train/circle/00000.jpg ...      class names are the names of the kinds
 *   <path>/val/circle/00000.jpg ...
 *
 * Picture i of a split shows kind i % classes and has random numbers of its own, so the bytes do
 * not depend on the threads.  Everything is made in <path>.part.<pid> and renamed when it is whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "base/text.h"
#include "data/loader.h"

enum {
    CLASSES = 8,
    TRAIN = 1600,
    VAL = 400,
    SIZE = 64,
    QUALITY = 90,
    SIZE_MIN = 16,
    SIZE_LIMIT = 4096,
    PATH_BYTES = 4096
};

static const char *const splits[] = { "train", "val" };

typedef struct {
    td_image picture;
    td_text jpeg;
} painter;

typedef struct {
    td_draw_opts opts;
    char folder[PATH_BYTES]; /* where it is made */
    painter *painters;       /* [threads] */
} drawing;

/* --- names ----------------------------------------------------------------------------------- */

static td_status too_long(const char *path)
{
    return td_error(TD_ELIMIT, "path '%s' is longer than %d bytes", path, PATH_BYTES);
}

static td_status class_folder(const drawing *d, int split, int kind, char *out)
{
    int n =
        snprintf(out, PATH_BYTES, "%s/%s/%s", d->folder, splits[split], td_draw_kind_name(kind));
    return n < PATH_BYTES ? TD_OK : too_long(d->folder);
}

/* picture i of all: train's come first */
static td_status picture_path(const drawing *d, int64_t i, char *out, int *kind, int *split,
                              int64_t *number)
{
    *split = i >= d->opts.train;
    *number = *split ? i - d->opts.train : i;
    *kind = (int)(*number % d->opts.classes);
    int n = snprintf(out, PATH_BYTES, "%s/%s/%s/%05" PRId64 ".jpg", d->folder, splits[*split],
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
    TD_TRY(picture_path(d, i, path, &kind, &split, &number));
    td_rng r = td_rng_make(d->opts.seed, TD_RNG_DRAW, (uint64_t)number, (uint64_t)split);
    TD_TRY(td_image_draw_sample(kind, &r, d->opts.size, d->opts.size, &p->picture));
    p->jpeg.len = 0;
    TD_TRY(td_image_encode_jpeg(&p->picture, d->opts.quality, &p->jpeg));
    return td_file_write(path, p->jpeg.data, p->jpeg.len);
}

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

/* Undo everything; what is not there does not matter. */
static void remove_all(const drawing *d)
{
    char path[PATH_BYTES];
    int kind, split;
    int64_t number;
    for (int64_t i = 0; i < d->opts.train + d->opts.val; i++) {
        if (picture_path(d, i, path, &kind, &split, &number) == TD_OK)
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
    }
    (void)rmdir(d->folder);
}

static td_status draw_all(drawing *d)
{
    int threads = d->opts.threads;
    td_status st;
    d->painters = td_alloc((size_t)threads, sizeof *d->painters);
    if (!d->painters)
        return TD_ENOMEM;
    TD_OUT(make_folders(d));
    TD_OUT(td_parallel(d->opts.train + d->opts.val, threads, draw_one, d));
out:
    for (int i = 0; i < threads; i++) {
        td_image_release(&d->painters[i].picture);
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
    o->classes = o->classes ? o->classes : CLASSES;
    o->train = o->train ? o->train : TRAIN;
    o->val = o->val ? o->val : VAL;
    o->size = o->size ? o->size : SIZE;
    o->quality = o->quality ? o->quality : QUALITY;
    TD_TRY(check_range("number of classes", o->classes, 2, td_draw_kinds()));
    TD_TRY(check_range("number of training pictures", o->train, o->classes, 100000000));
    TD_TRY(check_range("number of validation pictures", o->val, o->classes, 100000000));
    TD_TRY(check_range("size", o->size, SIZE_MIN, SIZE_LIMIT));
    TD_TRY(check_range("JPEG quality", o->quality, 1, 100));
    return td_threads_wanted(o->threads, &o->threads);
}

/* `path` must be absent or an empty folder */
static td_status check_free(const char *path)
{
    if (!td_path_exists(path))
        return TD_OK;
    if (!td_path_is_folder(path))
        return td_error(TD_EARG, "'%s' is there and no folder", path);
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
    if (!path || !*path)
        return td_error(TD_EARG, "the folder to draw into is missing");
    TD_TRY(take_opts(opts, &d.opts));
    TD_TRY(check_free(path));
    int len = (int)strnlen(path, PATH_BYTES);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (snprintf(d.folder, PATH_BYTES, "%.*s.part.%d", len, path, (int)getpid()) >= PATH_BYTES)
        return too_long(path);
    td_status st = draw_all(&d);
    if (st == TD_OK && rename(d.folder, path) != 0)
        st = td_error_errno(TD_EIO, "cannot rename '%s' to '%s'", d.folder, path);
    if (st != TD_OK)
        remove_all(&d);
    return st;
}
