/*
 * onnx_weights.c -- the numbers of a model's tensors: halves, integers with a scale for each row
 */
#include <string.h>

#include "base/half.h"
#include "ir/type.h"
#include "onnx/onnx_export.h"

const td_tensor *td_onnx_scales(const td_onnx *m, const td_tensor *t)
{
    const td_onnx_node *n = NULL;
    for (size_t i = 0; i < m->n_nodes && !n; i++)
        if (strcmp(m->nodes[i].op, "DequantizeLinear") == 0 && m->nodes[i].n_in > 1 &&
            strcmp(m->nodes[i].in[0], t->name) == 0)
            n = &m->nodes[i];
    for (size_t i = 0; n && i < m->n_tensors; i++) {
        const td_tensor *s = &m->tensors[i];
        if (strcmp(s->name, n->in[1]) == 0)
            return s->dtype == TD_DT_F32 && s->rank == 1 && t->rank > 0 && s->dim[0] == t->dim[0]
                       ? s
                       : NULL;
    }
    return NULL;
}

static float integer_at(const td_tensor *t, size_t i)
{
    int32_t wide;
    if (t->dtype == TD_DT_S8)
        return (float)((const int8_t *)t->data)[i];
    memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
    return (float)wide;
}

static void widen_integers(const td_tensor *t, const td_tensor *scales, size_t n, float *out)
{
    const size_t each = n / (size_t)t->dim[0];
    for (size_t i = 0; i < n; i++) {
        float scale;
        memcpy(&scale, (const char *)scales->data + i / each * sizeof scale, sizeof scale);
        out[i] = integer_at(t, i) * scale;
    }
}

static void widen_halves(const td_tensor *t, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, (const char *)t->data + 2 * i, sizeof half);
        out[i] = t->dtype == TD_DT_F16 ? td_f16_to_f32(half) : td_bf16_to_f32(half);
    }
}

void *td_onnx_numbers(const td_onnx *m, const td_tensor *t)
{
    const bool is_half = td_dtype_is_half(t->dtype);
    const bool is_integer = t->dtype == TD_DT_S8 || t->dtype == TD_DT_I32;
    const td_tensor *scales = is_integer ? td_onnx_scales(m, t) : NULL;
    const size_t n = t->n_bytes / td_dtype_bytes(t->dtype);
    void *out = td_alloc(n + 1, is_half || scales ? sizeof(float) : td_dtype_bytes(t->dtype));
    if (!out)
        return NULL;
    if (scales && n)
        widen_integers(t, scales, n, out);
    else if (is_half)
        widen_halves(t, n, out);
    else if (t->n_bytes)
        memcpy(out, t->data, t->n_bytes);
    return out;
}

td_status td_onnx_set_weights(const td_onnx_graph *g, td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        for (size_t k = 0; k < g->model->n_tensors; k++) {
            const td_tensor *t = &g->model->tensors[k];
            if (strcmp(t->name, name) != 0)
                continue;
            void *numbers = td_onnx_numbers(g->model, t);
            if (!numbers)
                return TD_ENOMEM;
            td_status st = td_program_set(p, name, numbers);
            td_free(numbers);
            TD_TRY(st);
        }
    }
    return TD_OK;
}
