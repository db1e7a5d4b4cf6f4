/*
 * tensors.c -- pictures that are already tensors: one .safetensors with `images` and `labels`
 *
 *   images  f32 [N, C, H, W]   normalised, as the network gets them
 *   labels  i64 [N]            0 .. classes - 1
 *
 * Rows are lent straight from the file's memory: nothing is copied, shuffled or changed.  Values
 * that are not finite and labels without a class are found when the file is opened: in a step they
 * would only show as a loss that is none.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/os.h"
#include "data/source.h"

enum { SIDE_MAX = 65536, CLASSES_MAX = 1 << 24 };

/* names the first value that is not finite; rows are looked through fast, a bad one once more */
static td_status check_values(const td_dataset *ds, const char *path)
{
    int64_t row = (int64_t)ds->channels * ds->height * ds->width, plane = row / ds->channels;
    for (int64_t i = 0; i < ds->n; i++) {
        const float *x = ds->images + i * row;
        bool is_bad = false;
        for (int64_t k = 0; k < row; k++)
            is_bad |= !(fabsf(x[k]) <= FLT_MAX);
        for (int64_t k = 0; is_bad && k < row; k++)
            if (!(fabsf(x[k]) <= FLT_MAX))
                return td_error(TD_EFORMAT,
                                "'%s': row %" PRId64 " of images is %s at channel %" PRId64
                                ", y %" PRId64 ", x %" PRId64 ", wanted finite numbers",
                                path, i, isnan(x[k]) ? "nan" : "infinite", k / plane,
                                k % plane / ds->width, k % ds->width);
    }
    return TD_OK;
}

static td_status read_images(td_dataset *ds, const char *path)
{
    const td_tensor *t = td_tensors_get(ds->file, "images");
    if (!t)
        return td_error(TD_EFORMAT, "'%s' has no tensor 'images'", path);
    if (t->dtype != TD_DT_F32 || t->rank != 4)
        return td_error(TD_EFORMAT,
                        "'%s': images has dtype %s and rank %d, wanted f32 [N, C, H, W]", path,
                        td_dtype_name(t->dtype), t->rank);
    for (int i = 0; i < 4; i++) {
        if (t->dim[i] < 1 || (i > 0 && t->dim[i] > SIDE_MAX))
            return td_error(TD_EFORMAT, "'%s': dimension %d of images is %" PRId64, path, i,
                            t->dim[i]);
    }
    ds->images = t->data;
    ds->n = t->dim[0];
    ds->channels = (int)t->dim[1];
    ds->height = (int)t->dim[2];
    ds->width = (int)t->dim[3];
    return TD_OK;
}

static td_status read_labels(td_dataset *ds, const char *path, int n_classes)
{
    const td_tensor *t = td_tensors_get(ds->file, "labels");
    if (!t)
        return td_error(TD_EFORMAT, "'%s' has no tensor 'labels'", path);
    if (t->dtype != TD_DT_I64 || t->rank != 1)
        return td_error(TD_EFORMAT, "'%s': labels has dtype %s and rank %d, wanted i64 [N]", path,
                        td_dtype_name(t->dtype), t->rank);
    if (t->dim[0] != ds->n)
        return td_error(TD_EFORMAT, "'%s' has %" PRId64 " labels for %" PRId64 " images", path,
                        t->dim[0], ds->n);
    ds->labels = t->data;
    int64_t bound = n_classes ? n_classes : CLASSES_MAX, top = 0;
    for (int64_t i = 0; i < ds->n; i++) {
        if (ds->labels[i] < 0 || ds->labels[i] >= bound)
            return td_error(TD_EFORMAT,
                            "'%s': label of row %" PRId64 " is %" PRId64 ", wanted 0 .. %" PRId64,
                            path, i, ds->labels[i], bound - 1);
        top = ds->labels[i] > top ? ds->labels[i] : top;
    }
    return td_dataset_number_classes(ds, n_classes ? n_classes : (int)top + 1);
}

static td_status tensors_open(const td_dataset_opts *opts, td_dataset *ds)
{
    if (td_path_is_folder(opts->path))
        return td_error(TD_EFORMAT, "data set '%s' is a folder, back end tensors wants a file",
                        opts->path);
    ds->root = td_arena_text(&ds->arena, opts->path);
    if (!ds->root)
        return TD_ENOMEM;
    TD_TRY(td_tensors_read(opts->path, &ds->file));
    TD_TRY(read_images(ds, opts->path));
    TD_TRY(check_values(ds, opts->path));
    return read_labels(ds, opts->path, opts->n_classes);
}

static const char *const names[] = { "tensors", NULL };

const td_source td_source_tensors = { .names = names, .open = tensors_open };
