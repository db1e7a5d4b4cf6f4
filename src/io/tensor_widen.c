/*
 * tensor_widen.c -- converts tensors of a set to f32: halves, and integers with scales
 */
#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "base/half.h"
#include "base/text.h"
#include "io/tensor_set.h"

td_status td_tensors_widen(td_tensors *t)
{
    for (size_t i = 0; i < t->n; i++) {
        td_tensor *x = &t->items[i];
        const size_t n = x->n_bytes / sizeof(uint16_t);
        void *wide;
        if (x->dtype != TD_DT_F16 && x->dtype != TD_DT_BF16)
            continue;
        TD_TRY(td_tensors_new_block(t, n * sizeof(float), &wide));
        if (x->dtype == TD_DT_F16)
            td_f16_to_f32_n(x->data, n, wide);
        else
            td_bf16_to_f32_n(x->data, n, wide);
        x->dtype = TD_DT_F32;
        x->data = wide;
        x->n_bytes = n * sizeof(float);
    }
    return TD_OK;
}

/* the scales of s8 tensor `x` */
static td_status find_scales(td_tensors *t, const char *what, const td_tensor *x, td_tensor **out)
{
    td_text name = { 0 };
    td_text_add(&name, "%s" TD_SCALE_SUFFIX, x->name);
    td_status st = td_text_status(&name);
    const uintptr_t i = st == TD_OK ? (uintptr_t)td_map_get(&t->index, td_text_get(&name)) : 0;
    td_text_release(&name);
    TD_TRY(st);
    *out = i ? &t->items[i - 1] : NULL;
    if (!*out || (*out)->dtype != TD_DT_F32 || (*out)->rank != 1 || x->rank < 1 ||
        (*out)->dim[0] != x->dim[0])
        return td_error(TD_EFORMAT,
                        "'%s': tensor '" TD_NAME_IN_MESSAGE
                        "' is I8 and has no scales '" TD_NAME_IN_MESSAGE TD_SCALE_SUFFIX
                        "', F32 with an element for each row",
                        what, x->name, x->name);
    for (int64_t k = 0; k < x->dim[0]; k++) {
        float scale;
        memcpy(&scale, (const char *)(*out)->data + (size_t)k * sizeof scale, sizeof scale);
        if (!(scale > 0 && scale <= FLT_MAX))
            return td_error(TD_EFORMAT,
                            "'%s': scale %" PRId64 " of tensor '" TD_NAME_IN_MESSAGE
                            "' is %g, wanted a positive number",
                            what, k, x->name, (double)scale);
    }
    return TD_OK;
}

static td_status dequantize(td_tensors *t, td_tensor *x, const td_tensor *scales)
{
    const size_t n = x->n_bytes, n_rows = (size_t)x->dim[0], each = n_rows ? n / n_rows : 0;
    const int8_t *q = x->data;
    const float *scale = scales->data;
    void *block;
    TD_TRY(td_tensors_new_block(t, n * sizeof(float), &block));
    float *wide = block;
    for (size_t k = 0; k < n_rows; k++)
        for (size_t i = k * each; i < (k + 1) * each; i++)
            wide[i] = (float)q[i] * scale[k];
    x->dtype = TD_DT_F32;
    x->data = wide;
    x->n_bytes = n * sizeof(float);
    return TD_OK;
}

/* removes the tensors of rank -1 */
static td_status remove_marked(td_tensors *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].rank >= 0)
            t->items[n++] = t->items[i];
    t->n = n;
    td_map_release(&t->index);
    for (size_t i = 0; i < n; i++)
        TD_TRY(td_map_set(&t->index, t->items[i].name, (void *)(uintptr_t)(i + 1)));
    return TD_OK;
}

td_status td_tensors_dequantize(td_tensors *t, const char *what)
{
    for (size_t i = 0; i < t->n; i++) {
        td_tensor *scales;
        if (t->items[i].dtype != TD_DT_S8 || t->items[i].rank < 0)
            continue;
        TD_TRY(find_scales(t, what, &t->items[i], &scales));
        TD_TRY(dequantize(t, &t->items[i], scales));
        scales->rank = -1;
    }
    return remove_marked(t);
}
