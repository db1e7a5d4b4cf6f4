/*
 * emulate_half.c -- runs a half precision node in float32 between conversions
 *
 *     args:     x f16 ----.                                     .----> y f16
 *                       widen                                round
 *     scratch:            '--> x f32 --> [ float32 kernel ] --> y f32
 *
 * The shadow is a copy of the node with float32 in place of half; layouts and attributes are kept,
 * so that a buffer is converted as a whole, including padding (zeros stay zeros).  Tensors that are
 * float32 already, masks and indices are passed through.  All operands are read before a result is
 * written, so a result may use an operand's memory whatever the op's may_overwrite.  In the
 * scratch, result 0 reuses a widened operand's buffer if the op allows it.
 */
#include "runtime/emulate_half.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/half.h"
#include "ir/probe.h"
#include "runtime/backends.h"

#define MAX_TENSORS (TD_IN_MAX + TD_OUT_MAX)
#define PART        32768 /* elements that a thread converts at once */

/* --- the node in float32 ---------------------------------------------------------------------- */

static const td_value *tensor(const td_node *n, int i)
{
    return i < n->n_in ? n->in[i] : n->out[i - n->n_in];
}

/* does the op give float32 results for float32 operands? */
static td_status check_results(const td_node *n)
{
    td_type y[TD_OUT_MAX] = { 0 };
    if (!n->op->infer)
        return td_error(TD_ENOKERNEL, "it computes nothing");
    if (n->op->infer(n, y) != TD_OK)
        return td_error(TD_ENOKERNEL, "it has no float32 form");
    for (int i = 0; i < n->n_out; i++)
        if (y[i].dtype != n->out[i]->type.dtype)
            return td_error(TD_ENOKERNEL, "its attributes name the type of a result");
    return TD_OK;
}

static td_status make_shadow(const td_node *n, td_probe *s)
{
    bool any = false;
    td_probe_init(s, n);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        if (!td_dtype_is_half(s->value[i].type.dtype))
            continue;
        if (i < n->n_in && (n->op->writes >> i & 1))
            return td_error(TD_ENOKERNEL, "operand %d is half and overwritten", i);
        s->value[i].type.dtype = TD_DT_F32;
        any = any || !td_is_shape_only(n, i);
    }
    if (!any)
        return td_error(TD_ENOKERNEL, "no tensor is half");
    return check_results(&s->node);
}

static const td_kernel *inner_kernel(const td_probe *s)
{
    return td_direct_select(&s->node, NULL);
}

static td_status emulate_accepts(const td_node *n)
{
    td_probe s;
    TD_TRY(make_shadow(n, &s));
    return inner_kernel(&s) ? TD_OK : td_error(TD_ENOKERNEL, "no kernel computes it in float32");
}

bool td_emulate_half_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_probe s;
    return make_shadow(n, &s) == TD_OK && td_direct_preferred_layout(&s.node, out);
}

/* --- conversion ------------------------------------------------------------------------------- */

static void convert_part(td_dtype from, const char *src, td_dtype to, char *dst, size_t n)
{
    if (from == TD_DT_BF16 && to == TD_DT_F32)
        td_bf16_to_f32_n((const uint16_t *)(const void *)src, n, (float *)(void *)dst);
    else if (from == TD_DT_F16 && to == TD_DT_F32)
        td_f16_to_f32_n((const uint16_t *)(const void *)src, n, (float *)(void *)dst);
    else if (from == TD_DT_F32 && to == TD_DT_BF16)
        td_f32_to_bf16_n((const float *)(const void *)src, n, (uint16_t *)(void *)dst);
    else if (from == TD_DT_F32 && to == TD_DT_F16)
        td_f32_to_f16_n((const float *)(const void *)src, n, (uint16_t *)(void *)dst);
    else
        TD_CHECK(false && "not float32 and half");
}

void td_emulate_half_convert(td_dtype from, const void *src, td_dtype to, void *dst, int64_t n)
{
    const int64_t from_bytes = (int64_t)td_dtype_bytes(from);
    const int64_t to_bytes = (int64_t)td_dtype_bytes(to);
#pragma omp parallel for if (n > PART)
    for (int64_t i = 0; i < n; i += PART)
        convert_part(from, (const char *)src + i * from_bytes, to, (char *)dst + i * to_bytes,
                     (size_t)(n - i < PART ? n - i : PART));
}

/* --- the call --------------------------------------------------------------------------------- */

typedef struct {
    td_prepared inner;
    td_probe shadow;
    bool is_widened[MAX_TENSORS];
    size_t offset[MAX_TENSORS]; /* of their buffers in the scratch */
    int64_t count[MAX_TENSORS]; /* elements, padding included */
} widened;

/* the widened operand whose buffer result 0 may use; -1: none */
static int overwritten(const widened *w, const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if ((n->op->may_overwrite >> i & 1) && w->is_widened[i] && n->n_out > 0 &&
            td_type_equal(td_in_type(&w->shadow.node, i), &w->shadow.node.out[0]->type))
            return i;
    return -1;
}

/* places buffers after the inner kernel's scratch */
static void place_buffers(widened *w, const td_node *n, size_t *scratch_bytes)
{
    size_t end = td_round_up(w->inner.scratch_bytes, TD_HOST_ALIGN);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const size_t n_bytes = (size_t)td_type_bytes(&w->shadow.value[i].type);
        w->is_widened[i] = td_dtype_is_half(tensor(n, i)->type.dtype) && !td_is_shape_only(n, i);
        w->count[i] = (int64_t)(n_bytes / sizeof(float));
        if (!w->is_widened[i])
            continue;
        const int shared = i == n->n_in ? overwritten(w, n) : -1;
        w->offset[i] = shared < 0 ? end : w->offset[shared];
        if (shared < 0)
            end += td_round_up(n_bytes, TD_HOST_ALIGN);
    }
    *scratch_bytes = end;
}

static void emulate_release(td_prepared *p)
{
    widened *w = p->state;
    if (!w)
        return;
    if (w->inner.kernel && w->inner.kernel->release)
        w->inner.kernel->release(&w->inner);
    td_free(w);
    p->state = NULL;
}

static td_status prepare_inner(widened *w, const td_node *n)
{
    TD_TRY(make_shadow(n, &w->shadow));
    const td_kernel *k = inner_kernel(&w->shadow);
    if (!k)
        return td_error(TD_ENOKERNEL, "no kernel computes it in float32");
    w->inner = (td_prepared){ .kernel = k, .node = &w->shadow.node };
    td_status st = k->prepare ? k->prepare(&w->shadow.node, &w->inner) : TD_OK;
    if (st != TD_OK)
        w->inner.kernel = NULL;
    return st;
}

static td_status emulate_prepare(const td_node *n, td_prepared *out)
{
    widened *w = TD_NEW(widened);
    if (!w)
        return TD_ENOMEM;
    out->state = w;
    td_status st = prepare_inner(w, n);
    if (st != TD_OK) {
        emulate_release(out);
        return st;
    }
    place_buffers(w, n, &out->scratch_bytes);
    (void)snprintf(out->impl, sizeof out->impl, "emulated: %s%s%.40s", w->inner.kernel->name,
                   w->inner.impl[0] ? " " : "", w->inner.impl);
    return TD_OK;
}

static td_status emulate_run(const td_prepared *p, void *const *args)
{
    const widened *w = p->state;
    const td_node *n = p->node;
    const int n_tensors = n->n_in + n->n_out;
    char *scratch = args[n_tensors];
    void *wide[MAX_TENSORS + 1];
    for (int i = 0; i < n_tensors; i++) {
        wide[i] = w->is_widened[i] ? scratch + w->offset[i] : args[i];
        if (w->is_widened[i] && i < n->n_in)
            td_emulate_half_convert(n->in[i]->type.dtype, args[i], TD_DT_F32, wide[i], w->count[i]);
    }
    wide[n_tensors] = w->inner.scratch_bytes ? scratch : NULL;
    TD_TRY(w->inner.kernel->run(&w->inner, wide));
    for (int i = n->n_in; i < n_tensors; i++)
        if (w->is_widened[i])
            td_emulate_half_convert(TD_DT_F32, wide[i], tensor(n, i)->type.dtype, args[i],
                                    w->count[i]);
    return TD_OK;
}

const td_kernel td_emulate_half = {
    .name = "widen",
    .accepts = emulate_accepts,
    .prepare = emulate_prepare,
    .run = emulate_run,
    .release = emulate_release,
};
