/*
 * network_predict.c -- images to predictions, by a loaded network
 *
 *     sources -- decoded, in parallel --> rows -- the compute thread --> predictions
 *
 * A call takes as many images at a time as the largest batch.  Buffers for decoding are kept by the
 * network between calls.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "inference/network_parts.h"
#include "transforms/object_row.h"

struct td_predictions {
    int n;
    td_arena memory;        /* of texts and boxes */
    td_prediction *classes; /* [n] of a classifier */
    td_found *boxes;        /* [n] of a detector */
};

/* an image of a call */
typedef struct {
    td_status st;
    char *error;
    int width, height;
} decoded_image;

/* some of the images of a call, at most the largest batch */
typedef struct {
    td_network *net;
    const td_image_source *sources;
    td_predictions *out;
    int first, n;          /* images */
    decoded_image *images; /* [batch] */
    char *rows;            /* [batch] rows of row_bytes */
    size_t row_bytes;
    int *at;                    /* [batch] the image of a row that is run */
    td_spare_buffers **workers; /* [n_workers] */
} portion;

/* --- buffers ---------------------------------------------------------------------------------- */

static td_spare_buffers *take_buffers(td_network *net)
{
    pthread_mutex_lock(&net->lock);
    td_spare_buffers *b = net->spare;
    if (b)
        net->spare = b->next;
    pthread_mutex_unlock(&net->lock);
    return b ? b : TD_NEW(td_spare_buffers);
}

static void return_buffers(td_network *net, td_spare_buffers *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&net->lock);
    b->next = net->spare;
    net->spare = b;
    pthread_mutex_unlock(&net->lock);
}

void td_network_free_spare(td_network *net)
{
    while (net->spare) {
        td_spare_buffers *b = net->spare;
        net->spare = b->next;
        td_transformer_release(&b->buffers);
        td_free(b);
    }
}

/* --- decoding --------------------------------------------------------------------------------- */

static td_status decode_bytes(const td_transform *t, td_transformer *w, const void *bytes, size_t n,
                              decoded_image *image, void *row)
{
    td_image_info info;
    int n_ground_truths;
    if (!t->detector)
        return td_transform_image(w, t, bytes, n, 0, 0, row);
    TD_TRY(td_image_probe(bytes, n, &info));
    td_image_size(&info, t->stored_orientation, &image->width, &image->height);
    return td_object_row(w, t, &(td_object_source){ .bytes = bytes, .n_bytes = n }, row,
                         &n_ground_truths);
}

static td_status decode_pixels(const td_transform *t, td_transformer *w, const td_image_source *s,
                               decoded_image *image, void *row)
{
    const td_pixels px = { s->pixels, s->width, s->height, s->row_bytes };
    if (t->max_pixels && (int64_t)s->width * s->height > t->max_pixels)
        return td_error(TD_ELIMIT, "image of %d x %d pixels, the limit is %lld", s->width,
                        s->height, (long long)t->max_pixels);
    image->width = s->width;
    image->height = s->height;
    return t->detector ? td_object_pixels(w, t, &px, row) : td_transform_pixels(w, t, &px, row);
}

static td_status decode(const td_transform *t, td_transformer *w, const td_image_source *s,
                        decoded_image *image, void *row)
{
    const int n_kinds = (s->path != NULL) + (s->bytes != NULL) + (s->pixels != NULL);
    if (n_kinds != 1)
        return td_error(TD_EARG, "an image has %d of path, bytes and pixels, wanted 1", n_kinds);
    if (s->pixels)
        return decode_pixels(t, w, s, image, row);
    if (s->bytes)
        return decode_bytes(t, w, s->bytes, s->n_bytes, image, row);
    TD_TRY(td_transform_read(w, s->path));
    return decode_bytes(t, w, w->bytes, w->n_bytes, image, row);
}

/* the error of an image is its own; the call fails only for want of memory */
static td_status decode_one(void *ctx, int worker, int64_t i)
{
    portion *p = ctx;
    decoded_image *image = &p->images[i];
    td_spare_buffers **b = &p->workers[worker];
    *b = *b ? *b : take_buffers(p->net);
    if (!*b)
        return TD_ENOMEM;
    *image = (decoded_image){ 0 };
    image->st = decode(&p->net->transform, &(*b)->buffers, &p->sources[p->first + i], image,
                       p->rows + (size_t)i * p->row_bytes);
    if (image->st == TD_ENOMEM)
        return TD_ENOMEM;
    image->error = image->st == TD_OK ? NULL : td_copy_text(td_error_message());
    return TD_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

static td_status store_classes(portion *p, int image, const float *probabilities)
{
    char room[TD_NETWORK_TOPK][24];
    td_prediction *to = &p->out->classes[p->first + image];
    td_network_classes(p->net->predictor, probabilities, p->net->topk, p->net->threshold, to, room);
    if (to->message && !(to->message = td_arena_text(&p->out->memory, to->message)))
        return TD_ENOMEM;
    for (int i = 0; i < to->n; i++)
        if (!(to->name[i] = td_arena_text(&p->out->memory, to->name[i])))
            return TD_ENOMEM;
    return TD_OK;
}

static td_status store_boxes(portion *p, int image, const td_nms_pool_row *row)
{
    char room[24];
    td_found *to = &p->out->boxes[p->first + image];
    const td_box_classes *classes = td_predictor_box_classes(p->net->predictor);
    td_found_box *boxes = td_arena_alloc(&p->out->memory, (size_t)row->n_found + 1, sizeof *boxes);
    if (!boxes)
        return TD_ENOMEM;
    td_box_classes_describe(classes, to);
    to->width = p->images[image].width;
    to->height = p->images[image].height;
    if (!row->is_finite) {
        to->st = td_error(TD_EARG, "the network gives no finite boxes and scores for it (%s)",
                          p->net->about.precision);
        to->message = td_arena_text(&p->out->memory, td_error_message());
        return to->message ? TD_OK : TD_ENOMEM;
    }
    for (int i = 0; i < row->n_found; i++) {
        boxes[i] = td_box_classes_found(classes, &row->found[i], to->width, to->height, room);
        if (!(boxes[i].name = td_arena_text(&p->out->memory, boxes[i].name)))
            return TD_ENOMEM;
    }
    to->n = row->n_found;
    to->boxes = boxes;
    return TD_OK;
}

static td_status find_boxes(portion *p, int from, int n, const float *const results[2])
{
    td_status st = TD_OK;
    const size_t total = (size_t)p->net->nms.total;
    td_detection *found = td_alloc((size_t)n, total * sizeof *found);
    td_nms_pool_row *rows = td_alloc((size_t)n, sizeof *rows);
    if (!found || !rows)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < n; i++)
        rows[i] = (td_nms_pool_row){ .opts = &p->net->nms,
                                     .found = found + (size_t)i * total,
                                     .wants_finite = true };
    TD_OUT(td_nms_pool_run(p->net->nms_pool, results[0], results[1], n, rows));
    for (int i = 0; i < n; i++)
        TD_OUT(store_boxes(p, p->at[from + i], &rows[i]));
out:
    td_free(rows);
    td_free(found);
    return st;
}

/* in the compute thread, while the caller waits */
static td_status take_results(void *ctx, int from, int n, const float *const results[2])
{
    portion *p = ctx;
    const size_t k = (size_t)p->net->about.n_classes;
    if (p->net->about.is_detector)
        return find_boxes(p, from, n, results);
    for (int i = 0; i < n; i++)
        TD_TRY(store_classes(p, p->at[from + i], results[1] + (size_t)i * k));
    return TD_OK;
}

/* --- calls ------------------------------------------------------------------------------------ */

static td_status store_error(portion *p, int image)
{
    const decoded_image *d = &p->images[image];
    const int i = p->first + image;
    const char *message =
        td_arena_text(&p->out->memory, d->error ? d->error : td_status_text(d->st));
    if (!message)
        return TD_ENOMEM;
    if (p->out->boxes) {
        p->out->boxes[i].st = d->st;
        p->out->boxes[i].message = message;
    } else {
        p->out->classes[i].st = d->st;
        p->out->classes[i].message = message;
    }
    return TD_OK;
}

static td_status predict_portion(portion *p)
{
    td_status st = TD_OK;
    int n_rows = 0;
    memset(p->images, 0, (size_t)p->n * sizeof *p->images);
    if (p->n == 1)
        TD_OUT(decode_one(p, 0, 0));
    else
        TD_OUT(td_parallel(p->n, p->net->n_workers, decode_one, p));
    for (int i = 0; i < p->n; i++) {
        if (p->images[i].st != TD_OK) {
            TD_OUT(store_error(p, i));
            continue;
        }
        if (n_rows < i)
            memcpy(p->rows + (size_t)n_rows * p->row_bytes, p->rows + (size_t)i * p->row_bytes,
                   p->row_bytes);
        p->at[n_rows++] = i;
    }
    if (n_rows)
        st = td_network_rows(p->net, p->rows, td_network_dtype(p->net), n_rows, take_results, p);
out:
    for (int i = 0; i < p->n; i++)
        td_free(p->images[i].error);
    return st;
}

static td_status make_results(const td_network *net, int n, const td_image_source *images,
                              td_predictions **out)
{
    td_predictions *r = *out = TD_NEW(td_predictions);
    if (!r)
        return TD_ENOMEM;
    r->n = n;
    td_arena_init(&r->memory);
    if (net->about.is_detector)
        TD_TRY(TD_ALLOC(r->boxes, (size_t)n));
    else
        TD_TRY(TD_ALLOC(r->classes, (size_t)n));
    for (int i = 0; i < n; i++) {
        const char *path = images[i].path ? td_arena_text(&r->memory, images[i].path) : NULL;
        if (images[i].path && !path)
            return TD_ENOMEM;
        if (r->boxes)
            r->boxes[i].path = path;
        else
            r->classes[i].path = path;
    }
    return TD_OK;
}

static td_status make_portion(portion *p, int n)
{
    const size_t batch = (size_t)(p->n < n ? p->n : n);
    p->row_bytes =
        td_transform_values(&p->net->transform) * td_dtype_bytes(td_network_dtype(p->net));
    TD_TRY(td_alloc_to(&p->rows, batch, p->row_bytes));
    TD_TRY(TD_ALLOC(p->images, batch));
    TD_TRY(TD_ALLOC(p->at, batch));
    return TD_ALLOC(p->workers, (size_t)p->net->n_workers);
}

static void release(portion *p)
{
    for (int i = 0; p->workers && i < p->net->n_workers; i++)
        return_buffers(p->net, p->workers[i]);
    td_free(p->workers);
    td_free(p->at);
    td_free(p->images);
    td_free(p->rows);
}

td_status td_network_predict(td_network *net, int n, const td_image_source *images,
                             td_predictions **out)
{
    td_status st = TD_OK;
    portion p = { .net = net, .sources = images, .n = net->batch };
    *out = NULL;
    if (n < 1)
        return td_error(TD_EARG, "%d images, wanted 1 or more", n);
    TD_OUT(make_results(net, n, images, &p.out));
    TD_OUT(make_portion(&p, n));
    for (; p.first < n; p.first += p.n) {
        p.n = n - p.first < net->batch ? n - p.first : net->batch;
        TD_OUT(predict_portion(&p));
    }
    *out = p.out;
    p.out = NULL;
out:
    release(&p);
    td_predictions_free(p.out);
    return st;
}

const td_prediction *td_predictions_classes(const td_predictions *p, int i)
{
    return p->classes && i >= 0 && i < p->n ? &p->classes[i] : NULL;
}

const td_found *td_predictions_boxes(const td_predictions *p, int i)
{
    return p->boxes && i >= 0 && i < p->n ? &p->boxes[i] : NULL;
}

void td_predictions_free(td_predictions *p)
{
    if (!p)
        return;
    td_arena_release(&p->memory);
    td_free(p->classes);
    td_free(p->boxes);
    td_free(p);
}
