/*
 * dnnl_reorder.c -- copies values to another memory layout and possibly another dtype: `reorder`
 * and `assign`
 *
 *     from --convert--> [in the layout of from] --move--> [in the layout of to] --convert--> to
 *
 * oneDNN only moves; base/half converts, because oneDNN's conversion to bf16 flushes subnormals.
 * Both half types are moved as 16-bit words, declared to oneDNN as bf16.  It preserves all bit
 * patterns, except when the layouts are equal: then this code copies.  Without AVX-512, oneDNN's
 * 16-bit loop takes 20 ns per element; there the values are moved as float32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "runtime/emulate_half.h"

/* the number of groups in a filter's layout; 1 if it has none */
static int groups_of(const td_type *t)
{
    char *end;
    long g = strtol(t->layout, &end, 10);
    return end != t->layout && *end == 'g' ? (int)g : 1;
}

static td_status refuse_slow(const_dnnl_primitive_desc_t pd, td_dtype d)
{
    const char *impl = "";
    DNNL_TRY(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl));
    if (d == TD_DT_BF16 && strncmp(impl, "simple", 6) == 0)
        return td_error(TD_ENOKERNEL, "oneDNN has only its general loop");
    return TD_OK;
}

static td_status make_pd(const td_type *x, const td_type *y, dnnl_primitive_desc_t *pd)
{
    int gx = groups_of(x), gy = groups_of(y), groups = gx > gy ? gx : gy;
    dnnl_memory_desc_t src = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = NULL;
    *pd = NULL;
    td_status st = td_dnnl_engine(&engine, NULL);
    if (st == TD_OK && ((gx == 1 && !td_type_is_plain(x)) || (gy == 1 && !td_type_is_plain(y))) &&
        groups > 1)
        st = td_error(TD_ENOKERNEL, "layouts with and without groups");
    if (st == TD_OK)
        st = td_dnnl_md(x, groups, false, &src);
    if (st == TD_OK)
        st = td_dnnl_md(y, groups, false, &dst);
    if (st == TD_OK)
        st = td_dnnl_attr(&attr);
    if (st == TD_OK)
        st = td_dnnl_check_primitive(
            dnnl_reorder_primitive_desc_create(pd, src, engine, dst, engine, attr), pd);
    if (st == TD_OK)
        st = refuse_slow(*pd, x->dtype);
    dnnl_memory_desc_destroy(src);
    dnnl_memory_desc_destroy(dst);
    dnnl_primitive_attr_destroy(attr);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

/* --- choosing a route ------------------------------------------------------------------------- */

typedef struct {
    td_dtype moved; /* the dtype during the move */
    bool is_converted_before, is_moved, is_converted_after;
} route;

static const td_type *from_type(const td_node *n)
{
    return td_in_type(n, n->op == &td_op_assign ? 1 : 0);
}

static const td_type *to_type(const td_node *n)
{
    return n->op == &td_op_assign ? td_in_type(n, 0) : &n->out[0]->type;
}

/* is every element at the same offset in both?  An offset is a sum over the dimensions. */
static bool has_equal_offsets(const td_type *a, const td_type *b)
{
    td_blocking ba, bb;
    if (strcmp(a->layout, b->layout) == 0)
        return true;
    if (!td_type_blocking(a, &ba) || !td_type_blocking(b, &bb) ||
        td_type_padded_count(a) != td_type_padded_count(b))
        return false;
    for (int d = 0; d < a->rank; d++)
        for (int64_t i = 1; i < a->dim[d]; i++) {
            int64_t at[TD_RANK_MAX] = { 0 };
            at[d] = i;
            if (td_blocking_offset(&ba, a, at) != td_blocking_offset(&bb, b, at))
                return false;
        }
    return true;
}

static td_status make_moving_pd(const td_node *n, td_dtype moved, dnnl_primitive_desc_t *pd)
{
    const td_dtype d = td_dtype_is_half(moved) ? TD_DT_BF16 : moved;
    const td_type from = td_type_as(from_type(n), d), to = td_type_as(to_type(n), d);
    return make_pd(&from, &to, pd);
}

/* equal types are moved unchanged; of two types, the half type if possible, otherwise float32 */
static td_dtype first_choice(td_dtype from, td_dtype to)
{
    if (from == to)
        return from;
    if (td_dtype_is_half(from) && td_dtype_is_half(to))
        return TD_DT_F32;
    return td_dtype_is_half(to) ? to : from;
}

/* *pd: the primitive that moves, or NULL if no element moves */
static td_status find_route(const td_node *n, route *r, dnnl_primitive_desc_t *pd)
{
    const td_dtype from = from_type(n)->dtype, to = to_type(n)->dtype;
    *r = (route){ .moved = first_choice(from, to),
                  .is_moved = !has_equal_offsets(from_type(n), to_type(n)) };
    *pd = NULL;
    if (from != to && !((td_dtype_is_half(from) || from == TD_DT_F32) &&
                        (td_dtype_is_half(to) || to == TD_DT_F32)))
        return td_error(TD_ENOKERNEL, "from %s to %s", td_dtype_name(from), td_dtype_name(to));
    if (r->is_moved && td_dtype_is_half(r->moved)) {
        td_status st = make_moving_pd(n, r->moved, pd);
        if (st == TD_ENOMEM)
            return st;
        if (st != TD_OK)
            r->moved = TD_DT_F32;
    }
    r->is_converted_before = from != r->moved;
    r->is_converted_after = to != r->moved;
    return r->is_moved && !*pd ? make_moving_pd(n, r->moved, pd) : TD_OK;
}

static td_status move_accepts(const td_node *n)
{
    route r;
    dnnl_primitive_desc_t pd;
    TD_TRY(find_route(n, &r, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_prepared primitive;
    route route;
    size_t before_at, after_at;   /* buffers after the primitive's scratch */
    int64_t from_count, to_count; /* elements, padding included */
} move_state;

static void move_release(td_prepared *p)
{
    move_state *s = p->state;
    if (!s)
        return;
    td_dnnl_release(&s->primitive);
    td_free(s);
    p->state = NULL;
}

static td_status make_primitive(const td_node *n, move_state *s)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_FROM, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_TO, dnnl_query_dst_md, 0, 1 },
    };
    TD_TRY(find_route(n, &s->route, &pd));
    return pd ? td_dnnl_prepare(pd, n, 2, binds, &s->primitive) : TD_OK;
}

/* returns the bytes of scratch */
static size_t place_buffers(const td_node *n, move_state *s)
{
    const route *r = &s->route;
    const size_t each = td_dtype_bytes(r->moved);
    s->from_count = td_type_padded_count(from_type(n));
    s->to_count = td_type_padded_count(to_type(n));
    s->before_at = td_round_up(s->primitive.scratch_bytes, TD_HOST_ALIGN);
    s->after_at = s->before_at;
    if (r->is_converted_before && (r->is_moved || r->is_converted_after))
        s->after_at += td_round_up((size_t)s->from_count * each, TD_HOST_ALIGN);
    return s->after_at + (r->is_converted_after && r->is_moved ? (size_t)s->to_count * each : 0);
}

static td_status move_prepare(const td_node *n, td_prepared *out)
{
    move_state *s = TD_NEW(move_state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    td_status st = make_primitive(n, s);
    if (st != TD_OK) {
        move_release(out);
        return st;
    }
    const route *r = &s->route;
    out->scratch_bytes = place_buffers(n, s);
    const char *before = r->is_converted_before ? "convert" : "";
    const char *impl = r->is_moved ? s->primitive.impl : r->is_converted_before ? "" : "copy";
    (void)snprintf(out->impl, sizeof out->impl, "%s%s%.40s%s", before, *before && *impl ? " " : "",
                   impl, r->is_converted_after ? " convert" : "");
    return TD_OK;
}

static td_status run_route(const td_prepared *p, void *in, void *out, char *scratch)
{
    const move_state *s = p->state;
    const route *r = &s->route;
    const td_type *from = from_type(p->node), *to = to_type(p->node);
    void *before = in, *after = out;
    if (r->is_converted_before)
        before = r->is_moved || r->is_converted_after ? scratch + s->before_at : out;
    if (r->is_converted_after)
        after = r->is_moved ? scratch + s->after_at : before;
    if (r->is_converted_before)
        td_emulate_half_convert(from->dtype, in, r->moved, before, s->from_count);
    void *const args[] = { before, after, scratch };
    if (r->is_moved)
        TD_TRY(td_dnnl_run(&s->primitive, args));
    else if (!r->is_converted_before && !r->is_converted_after)
        memcpy(out, in, (size_t)td_type_bytes(to));
    if (r->is_converted_after)
        td_emulate_half_convert(r->moved, after, to->dtype, out, s->to_count);
    return TD_OK;
}

static td_status reorder_run(const td_prepared *p, void *const *args)
{
    return run_route(p, args[0], args[1], args[2]);
}

static td_status assign_run(const td_prepared *p, void *const *args)
{
    return run_route(p, args[1], args[0], args[2]);
}

const td_kernel td_dnnl_reorder = {
    .name = "dnnl_reorder",
    .op = &td_op_reorder,
    .accepts = move_accepts,
    .prepare = move_prepare,
    .run = reorder_run,
    .release = move_release,
};

const td_kernel td_dnnl_assign = {
    .name = "dnnl_assign",
    .op = &td_op_assign,
    .accepts = move_accepts,
    .prepare = move_prepare,
    .run = assign_run,
    .release = move_release,
};
