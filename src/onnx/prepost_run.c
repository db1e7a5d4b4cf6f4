/*
 * prepost_run.c -- runs the nodes before and after a network
 */
#include <string.h>

#include "onnx/onnx_export.h"
#include "onnx_import/prepost.h"

static td_status prepare(const td_onnx_graph *g, td_type *t, float *a, float *b)
{
    for (size_t i = 0; i < g->n_prepared; i++) {
        const td_onnx_node *n = &g->model->nodes[i];
        int64_t count = td_type_count(t), plane = t->dim[2] * t->dim[3];
        const td_tensor *c = td_onnx_channels_of(g->model, n, t->dim[1]);
        bool is_sub = strcmp(n->op, "Sub") == 0;
        for (int64_t k = 0; c && k < count; k++) {
            float by;
            memcpy(&by, (const char *)c->data + k / plane % t->dim[1] * 4, sizeof by);
            a[k] = is_sub ? a[k] - by : a[k] / by;
        }
        if (!td_onnx_is_to_planes(n))
            continue;
        int64_t pixels = t->dim[1] * t->dim[2], channels = t->dim[3];
        for (int64_t k = 0; k < count; k++)
            b[k / (pixels * channels) * pixels * channels + k % channels * pixels +
              k / channels % pixels] = a[k];
        memcpy(a, b, (size_t)count * sizeof *a);
        *t = td_type_4d(TD_DT_F32, t->dim[0], channels, t->dim[1], t->dim[2]);
    }
    return TD_OK;
}

td_status td_onnx_prepare(const td_onnx_graph *g, const void *in, float *out)
{
    const bool is_bytes = g->input.dtype == TD_DT_U8;
    td_type t = td_type_as(&g->input, TD_DT_F32);
    size_t count = (size_t)td_type_count(&t);
    float *other = td_alloc(count, sizeof *other);
    if (!other)
        return TD_ENOMEM;
    for (size_t i = 0; i < count; i++)
        out[i] = is_bytes ? (float)((const uint8_t *)in)[i] : ((const float *)in)[i];
    td_status st = prepare(g, &t, out, other);
    td_free(other);
    return st;
}

typedef struct {
    td_onnx_eval *e;
    const td_program *p;
} reading;

static td_status set_post_input(void *ctx, int i, const char *name)
{
    const reading *r = ctx;
    char output[24];
    td_type t;
    td_onnx_post_input_name(i, output);
    const void *data = td_program_output(r->p, output, &t);
    if (!data)
        return td_error(TD_EARG, "the program has no output '%s'", output);
    td_onnx_array a = { .dtype = t.dtype, .rank = t.rank, .data = (void *)(uintptr_t)data };
    memcpy(a.dim, t.dim, (size_t)t.rank * sizeof *t.dim);
    return td_onnx_eval_set(r->e, name, &a);
}

td_status td_onnx_finish(const td_onnx_graph *g, const char *what, const td_program *p,
                         td_onnx_eval **out)
{
    reading r = { .p = p };
    *out = NULL;
    TD_TRY(td_onnx_eval_new(g->model, what, g->batch, &r.e));
    td_status st = td_onnx_each_post_input(g->model, g->first_post, set_post_input, &r);
    if (st == TD_OK)
        st = td_onnx_eval_run(r.e, g->first_post);
    if (st == TD_OK)
        *out = r.e;
    else
        td_onnx_eval_free(r.e);
    return st;
}
