/*
 * native_planes.c -- tensors as planes and as pieces: which are, and their division among threads
 */
#include "backend/native/common/native_planes.h"

#include <string.h>

#include "backend/native/common/native_kernel.h"

td_status td_native_shape_of(const td_type *t, td_native_shape *s)
{
    if (!td_native_knows(t->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(t->dtype));
    if (t->rank != 4)
        return td_error(TD_ENOKERNEL, "rank is %d", t->rank);

    const bool is_last = strcmp(t->layout, "acdb") == 0;
    *s = (td_native_shape){ .dtype = t->dtype,
                            .each = (int64_t)td_dtype_bytes(t->dtype),
                            .N = t->dim[0],
                            .C = t->dim[1],
                            .H = t->dim[2],
                            .W = t->dim[3] };
    if (strcmp(t->layout, "aBcd16b") == 0 || (is_last && s->C % 16 == 0))
        s->lanes = 16;
    else if (strcmp(t->layout, "aBcd8b") == 0 || is_last)
        s->lanes = 8;
    else
        return td_error(TD_ENOKERNEL, "layout is %s", *t->layout ? t->layout : "plain");
    if (s->C % s->lanes)
        return td_error(TD_ENOKERNEL, "%lld channels do not fill lanes of %d", (long long)s->C,
                        s->lanes);

    const int64_t area = s->H * s->W;
    s->channels = s->lanes;
    s->CB = s->C / s->lanes;
    s->plane.n_pixels = area;
    s->plane.stride = is_last ? s->C : s->lanes;
    s->image = s->C * area;
    s->block = is_last ? s->lanes : s->lanes * area;
    return TD_OK;
}

td_status td_native_padded_shape_of(const td_type *t, td_native_shape *s)
{
    td_type padded = *t;
    const int64_t lanes = strcmp(t->layout, "aBcd16b") == 0  ? 16
                          : strcmp(t->layout, "aBcd8b") == 0 ? 8
                                                             : 1;
    if (t->rank == 4)
        padded.dim[1] = divide_up(t->dim[1], lanes) * lanes;
    TD_TRY(td_native_shape_of(&padded, s));
    s->C = t->dim[1];
    return TD_OK;
}

/* [N, C, 1, 1] is stored like [N, C] in plain order and in every layout whose lanes C fills */
static bool is_stored_plain(const td_type *t)
{
    return t->rank != 4 || (t->dim[2] == 1 && t->dim[3] == 1);
}

td_status td_native_check_alike(const td_node *n, const td_type *t)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *u = i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type;
        if (td_is_shape_only(n, i))
            continue;
        if (td_dtype_is_float(u->dtype) && u->dtype != (u->rank == 1 ? TD_DT_F32 : t->dtype))
            return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(u->dtype));
        if (strcmp(u->layout, t->layout) != 0 && !(is_stored_plain(u) && td_type_is_plain(u)))
            return td_error(TD_ENOKERNEL, "tensor %d has another layout", i);
    }
    return TD_OK;
}

td_status td_native_accepts(const td_node *n, const td_type *t)
{
    td_native_shape s;
    TD_TRY(td_native_shape_of(t, &s));
    return td_native_check_alike(n, t);
}

td_status td_native_accepts_padded(const td_node *n, const td_type *t)
{
    td_native_shape s;
    TD_TRY(td_native_padded_shape_of(t, &s));
    return td_native_check_alike(n, t);
}

/* elements before those of block cb and image n */
static int64_t block_offset(const td_native_shape *s, const td_type *t, int64_t n, int64_t cb)
{
    return n * (td_type_is_plain(t) ? s->C : s->CB * s->lanes) + cb * s->lanes;
}

const void *td_native_block_at(const td_native_shape *s, const td_type *t, const void *tensor,
                               int64_t n, int64_t cb, td_native_room *room)
{
    const char *at = (const char *)tensor + block_offset(s, t, n, cb) * s->each;
    const int lanes = td_native_lanes_in(s, cb);
    if (lanes == s->lanes || !td_type_is_plain(t))
        return at;
    memset(room, 0, sizeof *room);
    memcpy(room, at, (size_t)(lanes * s->each));
    return room;
}

void td_native_block_put(const td_native_shape *s, const td_type *t, void *tensor, int64_t n,
                         int64_t cb, const td_native_room *lanes)
{
    const int64_t count = td_type_is_plain(t) ? td_native_lanes_in(s, cb) : s->lanes;
    memcpy((char *)tensor + block_offset(s, t, n, cb) * s->each, lanes, (size_t)(count * s->each));
}

bool td_native_is_plane_streamed(const td_native_shape *s)
{
    const bool fills_lines = s->plane.stride == s->lanes || s->lanes * s->each >= 64;
    return fills_lines && td_native_is_streamed(s->N * s->image * s->each);
}

/* --- division --------------------------------------------------------------------------------- */

td_native_planes td_native_planes_of(const td_native_shape *s, int64_t grain, int threads)
{
    return (td_native_planes){ s->N * s->CB, s->plane.n_pixels, grain, threads };
}

td_work_share td_native_shape_share(const td_native_shape *s, int64_t grain, int threads)
{
    const td_native_planes d = td_native_planes_of(s, grain, threads);
    const td_work_share pixels = td_native_planes_share(&d);
    return (td_work_share){ pixels.largest * s->lanes, pixels.mean * s->lanes };
}

td_native_part td_native_part_of(const td_native_shape *s, const td_native_span *span)
{
    td_native_part p = { span->plane / s->CB, span->plane % s->CB, 0, s->plane };
    p.at = td_native_offset(s, p.n, p.cb) + span->from * s->plane.stride;
    p.plane.n_pixels = span->n;
    return p;
}

/* --- flat tensors ----------------------------------------------------------------------------- */

td_status td_native_accepts_flat(const td_node *n)
{
    const td_type *t = td_in_type(n, 0);
    if (!td_native_knows(t->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(t->dtype));
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_type_equal(i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type, t))
            return td_error(TD_ENOKERNEL, "tensors 0 and %d differ in type or layout", i);
    return TD_OK;
}

#define LINE 64 /* elements in whole cache lines, whatever their type is */

td_native_pieces td_native_divide_tensor(const td_type *t, int threads)
{
    return td_native_divide(td_type_padded_count(t), LINE, threads);
}

td_work_share td_native_share_flat(const td_node *n, int threads)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(n, 0), threads);
    return td_native_pieces_share(&d, threads);
}
