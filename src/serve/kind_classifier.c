/*
 * kind_classifier.c -- images to /classify give the best classes; tensors are logits and
 * probabilities
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/stats.h"
#include "serve/kind.h"

static const char *const params[] = { "topk", "threshold", NULL };

static td_status read_topk(const char *value, int64_t *out)
{
    if (td_text_to_int(value, out) && *out >= 1 && *out <= TD_TOPK_MAX)
        return TD_OK;
    return td_error(TD_EARG, "topk is '%.30s', wanted 1 .. %d", value, TD_TOPK_MAX);
}

static td_status read_threshold(const td_service *s, const char *value, double *out)
{
    if (!s->is_multi_label)
        return td_error(TD_EARG, "threshold requires a multi-label network");
    if (td_text_to_real(value, out) && *out >= 0 && *out <= 1)
        return TD_OK;
    return td_error(TD_EARG, "threshold is '%.30s', wanted 0 .. 1", value);
}

static td_status options(const td_service *s, const td_request *rq, td_work *w)
{
    int64_t topk = s->topk;
    w->threshold = s->threshold;
    for (int i = 0; i < rq->n_params; i++) {
        const char *value = rq->params[i].value;
        if (strcmp(rq->params[i].name, "topk") == 0)
            TD_TRY(read_topk(value, &topk));
        else
            TD_TRY(read_threshold(s, value, &w->threshold));
    }
    w->topk = (int)(topk < s->n_classes ? topk : s->n_classes);
    return TD_OK;
}

static td_status read_row(const td_service *s, td_transformer *buffers, const void *bytes, size_t n,
                          td_work *w, void *row)
{
    (void)w;
    return td_transform_image(buffers, &s->transform, bytes, n, 0, 0, row);
}

static td_status make_room(const td_service *s, td_work *w)
{
    w->results = td_alloc(2 * (size_t)w->n * (size_t)s->n_classes, sizeof(float));
    return w->results ? TD_OK : TD_ENOMEM;
}

static td_status store_results(const td_service *s, td_nms_pool *nms, const td_row *rows, int n,
                               const float *const results[2])
{
    (void)nms;
    const size_t k = (size_t)s->n_classes, bytes = k * sizeof(float);
    for (int i = 0; i < n; i++) {
        const td_work *w = rows[i].work;
        float *to = w->results + (size_t)rows[i].i * k;
        memcpy(to, results[0] + (size_t)i * k, bytes);
        memcpy(to + (size_t)w->n * k, results[1] + (size_t)i * k, bytes);
    }
    return TD_OK;
}

static bool is_finite(const td_service *s, const td_work *w)
{
    size_t n = (size_t)w->n * (size_t)s->n_classes;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(w->results[n + i]))
            return false;
    return true;
}

static void write_classes(const td_service *s, const td_work *w, td_text *out)
{
    const float *probability = w->results + s->n_classes;
    int best[TD_TOPK_MAX];
    char room[24];
    td_top_k(probability, s->n_classes, w->topk, best);
    td_text_add(out, "{");
    td_json_add_text(out, "model", s->name);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < w->topk; i++) {
        if (s->is_multi_label && (double)probability[best[i]] < w->threshold)
            break;
        td_text_add(out, i ? ", {" : "{");
        td_json_add(out, "label", best[i]);
        td_json_add_text(out, "name", s->class_name(s->ctx, best[i], room));
        td_json_add(out, "probability", (double)probability[best[i]]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}\n");
}

static int dims(const td_service *s, const td_work *w, int i, int dim[2])
{
    (void)w;
    (void)i;
    dim[0] = s->n_classes;
    return 1;
}

static void fill(const td_service *s, const td_work *w, int i, void *out)
{
    size_t n = (size_t)w->n * (size_t)s->n_classes;
    memcpy(out, w->results + (size_t)i * n, n * sizeof(float));
}

static void describe(const td_service *s, td_text *out)
{
    if (s->is_multi_label)
        td_json_add(out, "threshold", s->threshold);
}

const td_kind td_kind_classifier = {
    .what = "a classifier",
    .path = "/classify",
    .missing_output = "finite probabilities",
    .page = td_page_of_classes,
    .params = params,
    .outputs = { { .name = "logits" }, { .name = "probabilities" } },
    .n_outputs = 2,
    .has_classes = true,
    .options = options,
    .read_row = read_row,
    .make_room = make_room,
    .store_results = store_results,
    .is_finite = is_finite,
    .write = write_classes,
    .dims = dims,
    .fill = fill,
    .describe = describe,
};
