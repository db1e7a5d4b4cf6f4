/*
 * tensors.c -- data sets of ready tensors: one .safetensors file with `images` and `labels`
 *
 *   images  f32 [N, C, H, W]   normalized, as the network reads them
 *   labels  i64 [N]            0 .. classes - 1; or
 *           f32 [N, K]         multi-label: 1 for the classes of an image, 0 for others
 *
 * For detectors, instead of `labels`:
 *
 *   boxes    f32 [N, G, 4]     ymin, xmin, ymax, xmax as fractions of the image
 *   labels   i64 [N, G]        1 .. classes
 *   n_boxes  i64 [N]           number of used boxes
 *
 * Rows point into the file's memory: nothing is copied, shuffled or changed.  Non-finite values and
 * labels without a class are reported when the file is opened: in a training step they would only
 * appear as a NaN loss.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/paths.h"
#include "data/objects.h"
#include "data/source.h"
#include "io/foreign.h"

enum { SIDE_MAX = 65536, CLASSES_MAX = 1 << 24 };

/* Report the first non-finite value: find its row, then search the row. */
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

/* Labels f32 [N, K] of 0 and 1: any number of classes for an image. */
static td_status read_several(td_dataset *ds, const td_tensor *t, const char *path, int n_classes)
{
    const int64_t k = t->dim[1];
    if (t->dim[0] != ds->n || k < 1 || k > CLASSES_MAX)
        return td_error(TD_EFORMAT,
                        "'%s' has labels [%" PRId64 ", %" PRId64 "] for %" PRId64 " images", path,
                        t->dim[0], k, ds->n);
    if (n_classes && n_classes != k)
        return td_error(TD_ESHAPE, "'%s' has labels of %" PRId64 " classes, wanted %d", path, k,
                        n_classes);
    ds->targets = t->data;
    ds->is_multi_label = true;
    for (int64_t i = 0; i < ds->n * k; i++)
        if (ds->targets[i] != 0 && ds->targets[i] != 1)
            return td_error(TD_EFORMAT,
                            "'%s': class %" PRId64 " of row %" PRId64 " is %g, wanted 0 or 1", path,
                            i % k, i / k, (double)ds->targets[i]);
    return td_dataset_number_classes(ds, (int)k);
}

static td_status read_labels(td_dataset *ds, const char *path, int n_classes)
{
    const td_tensor *t = td_tensors_get(ds->file, "labels");
    if (!t)
        return td_error(TD_EFORMAT, "'%s' has no tensor 'labels'", path);
    if (t->dtype == TD_DT_F32 && t->rank == 2)
        return read_several(ds, t, path, n_classes);
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

/* --- boxes ------------------------------------------------------------------------------------ */

static td_status want_tensor(const td_dataset *ds, const char *name, td_dtype dtype, int rank,
                             const int64_t *dim, const td_tensor **out)
{
    const td_tensor *t = td_tensors_get(ds->file, name);
    *out = t;
    if (!t)
        return td_error(TD_EFORMAT, "'%s' has no tensor '%s'", ds->root, name);
    if (t->dtype != dtype || t->rank != rank)
        return td_error(TD_EFORMAT, "'%s': %s has dtype %s and rank %d, wanted %s and rank %d",
                        ds->root, name, td_dtype_name(t->dtype), t->rank, td_dtype_name(dtype),
                        rank);
    for (int i = 0; i < rank; i++)
        if (dim[i] >= 0 && t->dim[i] != dim[i])
            return td_error(TD_EFORMAT, "'%s': dimension %d of %s is %" PRId64 ", wanted %" PRId64,
                            ds->root, i, name, t->dim[i], dim[i]);
    return TD_OK;
}

typedef struct {
    const float *boxes;
    const int64_t *labels, *n_boxes;
    int64_t n_slots; /* G */
} box_tensors;

static td_status read_boxes(const td_dataset *ds, box_tensors *b)
{
    const td_tensor *boxes, *labels, *n;
    TD_TRY(want_tensor(ds, "boxes", TD_DT_F32, 3, (int64_t[]){ ds->n, -1, 4 }, &boxes));
    b->n_slots = boxes->dim[1];
    TD_TRY(want_tensor(ds, "labels", TD_DT_I64, 2, (int64_t[]){ ds->n, b->n_slots }, &labels));
    TD_TRY(want_tensor(ds, "n_boxes", TD_DT_I64, 1, &ds->n, &n));
    b->boxes = boxes->data;
    b->labels = labels->data;
    b->n_boxes = n->data;
    return TD_OK;
}

static td_status check_box(const td_dataset *ds, const box_tensors *b, int64_t row, int64_t k,
                           int64_t most)
{
    const float *x = b->boxes + 4 * (row * b->n_slots + k);
    int64_t label = b->labels[row * b->n_slots + k];
    for (int i = 0; i < 4; i++)
        if (!(fabsf(x[i]) <= FLT_MAX))
            return td_error(TD_EFORMAT, "'%s': box %" PRId64 " of row %" PRId64 " is not finite",
                            ds->root, k, row);
    if (label >= 1 && label <= most)
        return TD_OK;
    return td_error(TD_EFORMAT,
                    "'%s': label of box %" PRId64 " of row %" PRId64 " is %" PRId64
                    ", wanted 1 .. %" PRId64,
                    ds->root, k, row, label, most);
}

/* Count the boxes and find the largest label. */
static td_status check_boxes(const td_dataset *ds, const box_tensors *b, int n_classes, int64_t *n,
                             int64_t *top)
{
    int64_t most = n_classes ? n_classes : CLASSES_MAX;
    *n = 0;
    *top = 1;
    for (int64_t i = 0; i < ds->n; i++) {
        if (b->n_boxes[i] < 0 || b->n_boxes[i] > b->n_slots)
            return td_error(TD_EFORMAT,
                            "'%s': n_boxes of row %" PRId64 " is %" PRId64 ", wanted 0 .. %" PRId64,
                            ds->root, i, b->n_boxes[i], b->n_slots);
        for (int64_t k = 0; k < b->n_boxes[i]; k++) {
            TD_TRY(check_box(ds, b, i, k, most));
            int64_t label = b->labels[i * b->n_slots + k];
            *top = label > *top ? label : *top;
        }
        *n += b->n_boxes[i];
    }
    return TD_OK;
}

static void take_box(const td_dataset *ds, const box_tensors *b, int64_t at, int64_t id)
{
    const float *x = b->boxes + 4 * at;
    td_ground_truth *t = &ds->objects->ground_truths[id];
    td_annotation *a = &ds->objects->annotations[id];
    *t = (td_ground_truth){ .box = { x[0], x[1], x[2], x[3] }, .label = b->labels[at] };
    *a = (td_annotation){ .x = (double)x[1] * ds->width,
                          .y = (double)x[0] * ds->height,
                          .width = ((double)x[3] - (double)x[1]) * ds->width,
                          .height = ((double)x[2] - (double)x[0]) * ds->height,
                          .id = id + 1,
                          .label = (int)b->labels[at] };
    t->area = a->area = a->width * a->height;
}

static td_status take_boxes(td_dataset *ds, int n_classes)
{
    box_tensors b;
    int64_t n, top;
    TD_TRY(read_boxes(ds, &b));
    TD_TRY(check_boxes(ds, &b, n_classes, &n, &top));
    TD_TRY(td_dataset_number_classes(ds, n_classes ? n_classes : (int)top));
    TD_TRY(td_objects_new(ds->n, n, ds->n_classes, &ds->objects));
    struct td_objects *o = ds->objects;
    o->file = ds->root;
    for (int i = 0; i < ds->n_classes; i++)
        o->categories[i] = i + 1;
    for (int64_t i = 0, id = 0; i < ds->n; i++) {
        o->images[i] = (td_annotated){ .id = i, .width = ds->width, .height = ds->height };
        for (int64_t k = 0; k < b.n_boxes[i]; k++)
            take_box(ds, &b, i * b.n_slots + k, id++);
        o->first[i + 1] = id;
    }
    return TD_OK;
}

td_status td_tensor_rows_open(const td_dataset_opts *opts, td_dataset *ds)
{
    if (td_path_is_folder(opts->path))
        return td_error(TD_EFORMAT,
                        "data set '%s' is a folder, --data-backend tensors requires a file",
                        opts->path);
    ds->root = td_arena_text(&ds->arena, opts->path);
    if (!ds->root)
        return TD_ENOMEM;
    TD_TRY(td_foreign_refuse(opts->path, "a .safetensors file of images and labels"));
    TD_TRY(td_tensors_read(opts->path, &ds->file));
    TD_TRY(read_images(ds, opts->path));
    TD_TRY(check_values(ds, opts->path));
    if (opts->has_boxes)
        return take_boxes(ds, opts->n_classes);
    return read_labels(ds, opts->path, opts->n_classes);
}
