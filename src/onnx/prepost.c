/*
 * prepost.c -- finds and runs the nodes before and after a network
 */
#include "onnx/prepost.h"

#include <stdio.h>
#include <string.h>

#include "onnx/onnx_export.h"

/* --- preparation ------------------------------------------------------------------------------ */

static bool is_cast_to_f32(const td_onnx_node *n)
{
    const td_onnx_attr *to = td_onnx_attr_find(n, "to");
    return strcmp(n->op, "Cast") == 0 && to && td_onnx_dtype_of(to->i) == TD_DT_F32;
}

static bool is_to_planes(const td_onnx_node *n)
{
    static const int64_t perm[4] = { 0, 3, 1, 2 };
    const td_onnx_attr *p = td_onnx_attr_find(n, "perm");
    return strcmp(n->op, "Transpose") == 0 && p && p->n == 4 &&
           memcmp(p->ints, perm, sizeof perm) == 0;
}

/* the f32 [1, C, 1, 1] operand of a Sub or Div, or NULL */
static const td_tensor *channels_of(const td_onnx *m, const td_onnx_node *n, int64_t channels)
{
    bool is_op = strcmp(n->op, "Sub") == 0 || strcmp(n->op, "Div") == 0;
    for (size_t i = 0; is_op && n->n_in == 2 && i < m->n_tensors; i++) {
        const td_tensor *t = &m->tensors[i];
        if (strcmp(t->name, n->in[1]) == 0)
            return t->dtype == TD_DT_F32 && t->rank == 4 && t->dim[0] == 1 &&
                           t->dim[1] == channels && t->dim[2] == 1 && t->dim[3] == 1
                       ? t
                       : NULL;
    }
    return NULL;
}

bool td_onnx_is_preparation(const td_onnx *m, const td_onnx_node *n, td_type *t)
{
    if (t->dtype != TD_DT_F32) {
        bool is_cast = is_cast_to_f32(n);
        t->dtype = TD_DT_F32;
        return is_cast;
    }
    if (is_to_planes(n)) {
        *t = td_type_4d(TD_DT_F32, t->dim[0], t->dim[3], t->dim[1], t->dim[2]);
        return true;
    }
    return channels_of(m, n, t->dim[1]) != NULL;
}

static td_status prepare(const td_onnx_graph *g, td_type *t, float *a, float *b)
{
    for (size_t i = 0; i < g->n_prepared; i++) {
        const td_onnx_node *n = &g->model->nodes[i];
        int64_t count = td_type_count(t), plane = t->dim[2] * t->dim[3];
        const td_tensor *c = channels_of(g->model, n, t->dim[1]);
        bool is_sub = strcmp(n->op, "Sub") == 0;
        for (int64_t k = 0; c && k < count; k++) {
            float by;
            memcpy(&by, (const char *)c->data + k / plane % t->dim[1] * 4, sizeof by);
            a[k] = is_sub ? a[k] - by : a[k] / by;
        }
        if (!is_to_planes(n))
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
    const td_onnx_value *v = g->model->inputs.at;
    td_type t = td_type_4d(TD_DT_F32, g->batch, v->dim[1].value, v->dim[2].value, v->dim[3].value);
    size_t count = (size_t)td_type_count(&t);
    float *other = td_alloc(count, sizeof *other);
    if (!other)
        return TD_ENOMEM;
    for (size_t i = 0; i < count; i++)
        out[i] = v->dtype == TD_DT_U8 ? (float)((const uint8_t *)in)[i] : ((const float *)in)[i];
    td_status st = prepare(g, &t, out, other);
    td_free(other);
    return st;
}

/* --- post-processing -------------------------------------------------------------------------- */

td_status td_onnx_each_post_input(const td_onnx *m, size_t first,
                                  td_status (*use)(void *ctx, int i, const char *name), void *ctx)
{
    td_map known = { 0 };
    td_status st = TD_OK;
    int n = 0;
    for (size_t i = 0; i < m->n_tensors && st == TD_OK; i++)
        st = td_map_set(&known, m->tensors[i].name, &known);
    for (size_t i = first; i < m->n_nodes && st == TD_OK; i++) {
        const td_onnx_node *node = &m->nodes[i];
        for (int k = 0; k < node->n_in && st == TD_OK; k++) {
            if (!*node->in[k] || td_map_has(&known, node->in[k]))
                continue;
            st = td_map_set(&known, node->in[k], &known);
            if (st == TD_OK)
                st = use(ctx, n++, node->in[k]);
        }
        for (int k = 0; k < node->n_out && st == TD_OK; k++)
            st = td_map_set(&known, node->out[k], &known);
    }
    td_map_release(&known);
    return st;
}

void td_onnx_post_input_name(int i, char out[24])
{
    snprintf(out, 24, "post_input.%d", i);
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
