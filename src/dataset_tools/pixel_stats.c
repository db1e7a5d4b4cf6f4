/*
 * pixel_stats.c -- tandem dataset stats: mean and deviation of the pixels of all images
 *
 * Sums of bytes and of their squares are whole numbers, so they do not depend on the order of the
 * images: any number of threads gives the same bits.
 */
#include <math.h>

#include "data/parallel.h"
#include "tandem/dataset_tools.h"

enum { SIDE_MAX = 8192, PADDING = 32 };

/* of one thread, over all of its images */
typedef struct {
    td_transformer buffers;
    uint8_t *row; /* [size, size, C] */
    uint64_t sum[3], squares[3], n_pixels;
    int64_t n_bad;
} worker;

typedef struct {
    const td_dataset *ds;
    td_transform transform; /* size 0: whole images */
    worker *workers;
} job;

/* of n pixels, `stride` bytes apart, the first `channels` bytes */
static void add_pixels(worker *w, const uint8_t *px, size_t n, size_t stride, size_t channels)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < channels; c++) {
            const uint64_t v = px[stride * i + c];
            w->sum[c] += v;
            w->squares[c] += v * v;
        }
    w->n_pixels += n;
}

static td_status add_image(const job *j, worker *w, int64_t i)
{
    const td_transform *t = &j->transform;
    const size_t channels = (size_t)td_transform_channels(t);
    const void *bytes;
    size_t n_bytes;
    td_sample_read_ahead(j->ds, i + TD_SAMPLES_AHEAD);
    TD_TRY(td_sample_read(j->ds, i, &w->buffers, &bytes, &n_bytes));
    if (t->size) {
        TD_TRY(td_transform_image(&w->buffers, t, bytes, n_bytes, 0, i, w->row));
        add_pixels(w, w->row, (size_t)t->size * (size_t)t->size, channels, channels);
        return TD_OK;
    }
    const td_decode_opts opts = { .stored_orientation = t->stored_orientation,
                                  .scratch = &w->buffers.stored };
    td_image *img = &w->buffers.decoded;
    TD_TRY(td_image_decode(bytes, n_bytes, &opts, img, NULL));
    if (channels == 1)
        td_image_to_gray(img);
    add_pixels(w, img->px, (size_t)img->width * (size_t)img->height, 3, channels);
    return TD_OK;
}

static td_status add_one(void *ctx, int thread, int64_t i)
{
    const job *j = ctx;
    worker *w = &j->workers[thread];
    const td_status st = add_image(j, w, i);
    if (st == TD_OK || !td_is_bad_image(st))
        return st;
    w->n_bad++;
    td_error_clear();
    return TD_OK;
}

static td_status prepare(job *j, const td_stats_opts *o, int threads)
{
    TD_TRY(td_channels_check(o->channels));
    if (o->image_size < 0 || o->image_size > SIDE_MAX)
        return td_error(TD_EARG, "image size is %d, wanted 0 .. %d", o->image_size, SIDE_MAX);
    j->transform = (td_transform){ .channels = o->channels,
                                   .size = o->image_size,
                                   .padding = PADDING,
                                   .stored_orientation = o->stored_orientation,
                                   .as_bytes = true };
    TD_TRY(td_filter_of(o->interpolation, &j->transform.filter));
    TD_TRY(TD_ALLOC(j->workers, (size_t)threads));
    for (int i = 0; o->image_size && i < threads; i++)
        TD_TRY(TD_ALLOC(j->workers[i].row, td_transform_values(&j->transform)));
    return TD_OK;
}

static td_status sum_up(const job *j, int threads, td_pixel_stats *r)
{
    uint64_t sum[3] = { 0 }, squares[3] = { 0 }, n = 0;
    const int channels = td_transform_channels(&j->transform);
    r->n_images = j->ds->n;
    for (int i = 0; i < threads; i++) {
        const worker *w = &j->workers[i];
        n += w->n_pixels;
        r->n_bad += w->n_bad;
        for (int c = 0; c < channels; c++) {
            sum[c] += w->sum[c];
            squares[c] += w->squares[c];
        }
    }
    if (!n)
        return td_error(TD_EFORMAT, "'%s' has no readable image", j->ds->root);
    r->n_pixels = (int64_t)n;
    for (int c = 0; c < channels; c++) {
        const double mean = (double)sum[c] / (double)n;
        const double variance = (double)squares[c] / (double)n - mean * mean;
        r->mean[c] = mean / 255;
        r->std[c] = variance > 0 ? sqrt(variance) / 255 : 0;
    }
    return TD_OK;
}

static void release(job *j, int threads)
{
    for (int i = 0; j->workers && i < threads; i++) {
        td_transformer_release(&j->workers[i].buffers);
        td_free(j->workers[i].row);
    }
    td_free(j->workers);
}

td_status td_dataset_pixel_stats(const td_dataset *ds, const td_stats_opts *opts,
                                 td_pixel_stats *out)
{
    int threads;
    td_status st = TD_OK;
    job j = { .ds = ds };
    *out = (td_pixel_stats){ 0 };
    TD_TRY(td_threads_wanted(opts->threads, &threads));
    if (!td_dataset_decodes(ds))
        return td_error(TD_EARG, "'%s' is not a folder of images, wanted one", ds->root);
    TD_OUT(prepare(&j, opts, threads));
    TD_OUT(td_parallel(ds->n, threads, add_one, &j));
    TD_OUT(sum_up(&j, threads, out));
out:
    release(&j, threads);
    return st;
}
