/*
 * check.c -- tandem dataset check: decodes every image once and reports the findings
 *
 * Every image is decoded completely, as in evaluation.  Findings are kept per image and summed at
 * the end in the order of the data set, so that they do not depend on the number of threads.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/stats.h"
#include "data/objects.h"
#include "data/parallel.h"
#include "tandem/dataset_tools.h"

/* The findings in one image. */
typedef struct {
    char *reason; /* why it is bad; NULL: it is good */
    td_status st; /* failure of a bad image */
    int width, height;
    const char *format;
    bool is_gray, is_cmyk, is_progressive, is_rotated;
    char *other_size; /* if it differs from the annotated size: both sizes */
} finding;

typedef struct {
    const td_dataset *ds;
    td_transform transform;
    td_transformer *workers; /* [threads] */
    finding *found;          /* [n] */
    float *images;           /* [n, C, size, size], or NULL */
    size_t row_floats;
} check;

struct report {
    td_dataset_report report; /* must be first: the user has a pointer to it */
    int64_t *class_good, *class_bad, *class_boxes;
    td_bad_image *bad, *other_size;
};

/* --- one image ------------------------------------------------------------------------------ */

static void describe(const td_image_info *info, finding *f)
{
    f->width = info->width;
    f->height = info->height;
    f->format = info->format;
    f->is_gray = strncmp(info->colour, "gray", 4) == 0;
    f->is_cmyk = strcmp(info->colour, "CMYK") == 0 || strcmp(info->colour, "YCCK") == 0;
    f->is_progressive = info->is_progressive;
    f->is_rotated = info->orientation != 1;
}

/* Does the image's size match that of its annotations? */
static td_status compare_sizes(const check *c, int64_t i, const td_image_info *info)
{
    enum { BYTES = 128 };
    char text[BYTES];
    const td_scene s = td_dataset_scene(c->ds, i);
    int width, height;
    td_image_size(info, c->transform.stored_orientation, &width, &height);
    if ((s.width == width && s.height == height) || td_scene_is_stored(&s, info))
        return TD_OK;
    (void)snprintf(text, sizeof text, "%d x %d pixels, its annotations are for %d x %d", width,
                   height, s.width, s.height);
    c->found[i].other_size = td_copy_text(text);
    return c->found[i].other_size ? TD_OK : TD_ENOMEM;
}

static td_status make_row(check *c, td_transformer *w, int64_t i, const void *bytes, size_t n_bytes)
{
    int n;
    float *dst = c->images + c->row_floats * (size_t)i;
    const td_object_source from = {
        .bytes = bytes, .n_bytes = n_bytes, .scene = td_dataset_scene(c->ds, i), .sample = i
    };
    if (c->ds->objects)
        return td_object_row(w, &c->transform, &from, dst, &n);
    return td_transform_image(w, &c->transform, bytes, n_bytes, 0, i, dst);
}

static td_status decode_sample(check *c, td_transformer *w, int64_t i)
{
    td_image_info info;
    const void *bytes;
    size_t n_bytes;
    td_sample_read_ahead(c->ds, i + TD_SAMPLES_AHEAD);
    TD_TRY(td_sample_read(c->ds, i, w, &bytes, &n_bytes));
    if (c->images) {
        TD_TRY(make_row(c, w, i, bytes, n_bytes));
    } else {
        td_decode_opts opts = { .stored_orientation = c->transform.stored_orientation,
                                .scratch = &w->stored };
        TD_TRY(td_image_decode(bytes, n_bytes, &opts, &w->decoded, NULL));
    }
    TD_TRY(td_image_probe(bytes, n_bytes, &info));
    describe(&info, &c->found[i]);
    return c->ds->objects ? compare_sizes(c, i, &info) : TD_OK;
}

static td_status check_one(void *ctx, int worker, int64_t i)
{
    check *c = ctx;
    td_status st = decode_sample(c, &c->workers[worker], i);
    if (st == TD_OK || !td_is_bad_image(st))
        return st;
    c->found[i].st = st;
    c->found[i].reason = td_copy_text(td_error_message());
    return c->found[i].reason ? TD_OK : TD_ENOMEM;
}

/* --- statistics ------------------------------------------------------------------------------- */

static td_extent extent_of(double *values, int64_t n)
{
    if (n == 0)
        return (td_extent){ 0 };
    const double median = td_median(values, n); /* sorts `values` */
    return (td_extent){ .min = (int)values[0], .median = median, .max = (int)values[n - 1] };
}

static td_status measure(const check *c, td_dataset_report *r)
{
    double *values = td_alloc((size_t)r->n_images, sizeof *values);
    if (!values)
        return TD_ENOMEM;
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_images; i++) {
        if (!c->found[i].reason)
            values[n++] = c->found[i].width;
    }
    r->width = extent_of(values, n);
    n = 0;
    for (int64_t i = 0; i < r->n_images; i++) {
        if (!c->found[i].reason)
            values[n++] = c->found[i].height;
    }
    r->height = extent_of(values, n);
    td_free(values);
    return TD_OK;
}

static void add_good(struct report *r, const finding *f)
{
    td_dataset_report *p = &r->report;
    p->n_good++;
    const struct {
        const char *format;
        int64_t *n;
    } counts[] = { { "JPEG", &p->n_jpeg }, { "PNG", &p->n_png }, { "WebP", &p->n_webp },
                   { "TIFF", &p->n_tiff }, { "GIF", &p->n_gif }, { "BMP", &p->n_bmp } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i].n += strcmp(f->format, counts[i].format) == 0;
    p->n_gray += f->is_gray;
    p->n_cmyk += f->is_cmyk;
    p->n_progressive += f->is_progressive;
    p->n_rotated += f->is_rotated;
}

/* Count the image for its class, or for each of its classes. */
static void add_labels(int64_t *counts, const td_sample *s)
{
    if (s->label >= 0)
        counts[s->label]++;
    for (int k = 0; k < s->n_labels; k++)
        counts[s->labels[k]]++;
}

/* --- boxes ------------------------------------------------------------------------------------ */

static void add_box(struct report *r, const td_annotation *a)
{
    td_dataset_report *p = &r->report;
    int i = 0;
    double side = sqrt(a->width * a->height);
    while (i + 1 < TD_BOX_SIDES && side >= (double)(2 << i))
        i++;
    p->side_boxes[i]++;
    p->n_boxes++;
    p->n_crowds += a->is_crowd;
    r->class_boxes[a->label - 1]++;
}

static td_status sum_up_boxes(check *c, struct report *r)
{
    td_dataset_report *p = &r->report;
    size_t cap = 0;
    TD_TRY(TD_ALLOC(r->class_boxes, (size_t)p->n_classes + 1));
    p->class_boxes = r->class_boxes;
    for (int64_t i = 0; i < c->ds->n; i++) {
        int n;
        const td_annotation *a = td_dataset_annotations(c->ds, i, &n);
        for (int k = 0; k < n; k++)
            add_box(r, &a[k]);
        p->n_empty += n == 0;
        if (!c->found[i].other_size)
            continue;
        TD_TRY(
            td_reserve(&r->other_size, &cap, (size_t)p->n_other_size + 1, sizeof *r->other_size));
        r->other_size[p->n_other_size++] =
            (td_bad_image){ c->ds->samples[i].path, c->found[i].other_size, i, TD_OK };
        c->found[i].other_size = NULL;
        p->other_size = r->other_size;
    }
    return TD_OK;
}

/* Sum the findings; the report takes ownership of their texts. */
static td_status sum_up(check *c, struct report *r)
{
    td_dataset_report *p = &r->report;
    p->n_images = c->ds->n;
    p->n_classes = c->ds->n_classes;
    p->is_multi_label = c->ds->is_multi_label;
    TD_TRY(TD_ALLOC(r->class_good, (size_t)p->n_classes + 1));
    TD_TRY(TD_ALLOC(r->class_bad, (size_t)p->n_classes + 1));
    p->class_good = r->class_good;
    p->class_bad = r->class_bad;
    TD_TRY(measure(c, p));
    size_t cap = 0;
    for (int64_t i = 0; i < c->ds->n; i++) {
        const td_sample *s = &c->ds->samples[i];
        const bool is_good = !c->found[i].reason;
        add_labels(is_good ? r->class_good : r->class_bad, s);
        p->n_unlabeled += p->is_multi_label && !s->n_labels;
        if (is_good) {
            add_good(r, &c->found[i]);
            continue;
        }
        TD_TRY(td_reserve(&r->bad, &cap, (size_t)p->n_bad + 1, sizeof *r->bad));
        r->bad[p->n_bad++] = (td_bad_image){ s->path, c->found[i].reason, i, c->found[i].st };
        c->found[i].reason = NULL;
        p->bad = r->bad;
    }
    return c->ds->objects ? sum_up_boxes(c, r) : TD_OK;
}

void td_dataset_report_free(td_dataset_report *report)
{
    struct report *r = (struct report *)report;
    if (!r)
        return;
    for (int64_t i = 0; i < report->n_bad; i++)
        td_free((char *)(uintptr_t)r->bad[i].reason);
    for (int64_t i = 0; i < report->n_other_size; i++)
        td_free((char *)(uintptr_t)r->other_size[i].reason);
    td_free(r->bad);
    td_free(r->other_size);
    td_free(r->class_boxes);
    td_free(r->class_good);
    td_free(r->class_bad);
    td_free(r);
}

/* --- the dump --------------------------------------------------------------------------------- */

/* The boxes of the good rows.  The file's tensors borrow them until it is written. */
typedef struct {
    float *boxes;    /* [n, slots, 4] */
    int64_t *labels; /* [n, slots] */
    int64_t *n_boxes;
    int64_t slots;
} box_rows;

static void release_boxes(box_rows *b)
{
    td_free(b->boxes);
    td_free(b->labels);
    td_free(b->n_boxes);
}

static td_status gather_boxes(const check *c, int64_t n, box_rows *b)
{
    int k;
    for (int64_t i = 0; i < c->ds->n; i++) {
        (void)td_dataset_ground_truths(c->ds, i, &k);
        b->slots = k > b->slots ? k : b->slots;
    }
    b->slots = b->slots ? b->slots : 1;
    TD_TRY(td_alloc_to(&b->boxes, (size_t)n, (size_t)b->slots * 4 * sizeof *b->boxes));
    TD_TRY(td_alloc_to(&b->labels, (size_t)n, (size_t)b->slots * sizeof *b->labels));
    TD_TRY(TD_ALLOC(b->n_boxes, (size_t)n));
    for (int64_t i = 0, row = 0; i < c->ds->n; i++) {
        const td_ground_truth *t = td_dataset_ground_truths(c->ds, i, &k);
        if (c->found[i].reason)
            continue;
        b->n_boxes[row] = k;
        for (int64_t at = row++ * b->slots, j = 0; j < k; j++, at++) {
            b->labels[at] = t[j].label;
            memcpy(b->boxes + 4 * at, &t[j].box, sizeof t[j].box);
        }
    }
    return TD_OK;
}

static td_status add_boxes(const check *c, td_tensors *t, int64_t n, box_rows *b)
{
    TD_TRY(gather_boxes(c, n, b));
    TD_TRY(td_tensors_add(t, "boxes", TD_DT_F32, 3, (int64_t[]){ n, b->slots, 4 }, b->boxes));
    TD_TRY(td_tensors_add(t, "labels", TD_DT_I64, 2, (int64_t[]){ n, b->slots }, b->labels));
    return td_tensors_add(t, "n_boxes", TD_DT_I64, 1, &n, b->n_boxes);
}

/* [n, K] of 0 and 1; the caller frees it */
static td_status gather_targets(const check *c, int64_t n, float **out)
{
    const size_t k = (size_t)c->ds->n_classes;
    TD_TRY(td_alloc_to(out, (size_t)n, k * sizeof **out));
    for (int64_t i = 0, row = 0; i < c->ds->n; i++)
        if (!c->found[i].reason)
            td_sample_targets(c->ds, i, *out + (size_t)row++ * k);
    return TD_OK;
}

static td_status write_tensors(const check *c, const char *path, const int64_t *labels, int64_t n)
{
    box_rows b = { 0 };
    float *targets = NULL;
    td_tensors *t;
    TD_TRY(td_tensors_new(&t));
    td_status st;
    const int64_t size = c->transform.size, channels = td_transform_channels(&c->transform);
    TD_OUT(td_tensors_add(t, "images", TD_DT_F32, 4, (int64_t[]){ n, channels, size, size },
                          c->images));
    if (c->ds->objects) {
        TD_OUT(add_boxes(c, t, n, &b));
    } else if (c->ds->is_multi_label) {
        TD_OUT(gather_targets(c, n, &targets));
        TD_OUT(
            td_tensors_add(t, "labels", TD_DT_F32, 2, (int64_t[]){ n, c->ds->n_classes }, targets));
    } else {
        TD_OUT(td_tensors_add(t, "labels", TD_DT_I64, 1, &n, labels));
    }
    TD_OUT(td_tensors_write(t, path));
out:
    td_tensors_free(t);
    td_free(targets);
    release_boxes(&b);
    return st;
}

/* Write the good rows. */
static td_status dump(check *c, const char *path)
{
    int64_t *labels = td_alloc((size_t)c->ds->n, sizeof *labels), n = 0;
    if (!labels)
        return TD_ENOMEM;
    for (int64_t i = 0; i < c->ds->n; i++) {
        if (c->found[i].reason)
            continue;
        if (n != i)
            memcpy(c->images + c->row_floats * (size_t)n, c->images + c->row_floats * (size_t)i,
                   c->row_floats * sizeof(float));
        labels[n++] = c->ds->samples[i].label;
    }
    td_status st =
        n ? write_tensors(c, path, labels, n)
          : td_error(TD_EFORMAT, "'%s' has no readable image to write to '%s'", c->ds->root, path);
    td_free(labels);
    return st;
}

/* --- the check -------------------------------------------------------------------------------- */

static td_status prepare(check *c, const td_check_opts *opts, int threads)
{
    enum { SIZE = 224, OBJECT_SIZE = 320, PADDING = 32, SIDE_MAX = 8192 };
    int usual = c->ds->objects ? OBJECT_SIZE : SIZE;
    TD_TRY(td_channels_check(opts->channels));
    if (opts->channels == 1 && c->ds->objects)
        return td_error(TD_EUSAGE,
                        "--channels 1 requires images without boxes: detectors read RGB");
    c->transform =
        (td_transform){ .size = opts->image_size ? opts->image_size : usual,
                        .detector = c->ds->objects ? TD_DETECTOR_SSD320 : TD_DETECTOR_NONE,
                        .channels = opts->channels,
                        .padding = opts->eval_padding ? opts->eval_padding : PADDING,
                        .stored_orientation = opts->stored_orientation };
    if (c->transform.padding < 0)
        c->transform.padding = 0;
    if (c->transform.size < 1 || c->transform.size > SIDE_MAX || c->transform.padding > SIDE_MAX)
        return td_error(TD_EARG, "image size is %d with padding %d, wanted 1 .. %d",
                        c->transform.size, c->transform.padding, SIDE_MAX);
    TD_TRY(td_filter_of(opts->interpolation, &c->transform.filter));
    TD_TRY(TD_ALLOC(c->workers, (size_t)threads));
    TD_TRY(TD_ALLOC(c->found, (size_t)c->ds->n));
    if (!opts->dump_tensors)
        return TD_OK;
    c->row_floats = td_transform_values(&c->transform);
    c->images = td_alloc((size_t)c->ds->n, c->row_floats * sizeof(float));
    return c->images ? TD_OK : TD_ENOMEM;
}

static void release(check *c, int threads)
{
    for (int i = 0; c->workers && i < threads; i++)
        td_transformer_release(&c->workers[i]);
    for (int64_t i = 0; c->found && i < c->ds->n; i++)
        td_free(c->found[i].reason);
    for (int64_t i = 0; c->found && i < c->ds->n; i++)
        td_free(c->found[i].other_size);
    td_free(c->workers);
    td_free(c->found);
    td_free(c->images);
}

td_status td_dataset_check(const td_dataset *ds, const td_check_opts *opts, td_dataset_report **out)
{
    int threads;
    *out = NULL;
    TD_TRY(td_threads_wanted(opts->threads, &threads));
    if (!td_dataset_decodes(ds))
        return td_error(TD_EARG, "'%s' is not a folder of images, wanted one", ds->root);
    int64_t start_ns = td_now_ns();
    check c = { .ds = ds };
    struct report *r = TD_NEW(struct report);
    if (!r)
        return TD_ENOMEM;
    td_status st;
    TD_OUT(prepare(&c, opts, threads));
    TD_OUT(td_parallel(ds->n, threads, check_one, &c));
    if (opts->dump_tensors)
        TD_OUT(dump(&c, opts->dump_tensors));
    TD_OUT(sum_up(&c, r));
    r->report.seconds = (double)(td_now_ns() - start_ns) * 1e-9;
    *out = &r->report;
    r = NULL;
out:
    td_dataset_report_free(r ? &r->report : NULL);
    release(&c, threads);
    return st;
}
