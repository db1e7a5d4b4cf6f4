/*
 * exponent_stats.c -- counts exponents from the bits of float32
 *
 * Every half value is exact in float32, so one loop over blocks counts all types.  All bounds
 * except the largest numbers are powers of two, so their counts are sums over the histogram of
 * exponents.
 */
#include "profiler/exponent_stats.h"

#include <string.h>

#include "base/arena.h"
#include "base/half.h"
#include "ir/type.h"

enum { BLOCK = 4096, INFINITE = 0x7f800000, LARGEST_FP16 = 0x477fe000, LARGEST_BF16 = 0x7f7f0000 };

const td_half_range td_half_ranges[TD_N_HALF] = {
    [TD_HALF_FP16] = { "fp16", 65504, -14, -24 },
    [TD_HALF_BF16] = { "bf16", 0x1.fep127, -126, -133 },
};

/* --- a block of float32 ----------------------------------------------------------------------- */

/* the position of the highest bit of a subnormal float32 */
static int highest_bit(uint32_t u)
{
    return 31 - __builtin_clz(u);
}

static void count_finite(uint32_t u, td_magnitudes *m)
{
    if (u >= 1u << 23)
        m->exponent[(u >> 23) + 22]++;
    else if (u)
        m->exponent[highest_bit(u)]++;
    else
        m->n_zero++;
}

static void count_block(const float *x, int n, td_magnitudes *m)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7fffffffu;
        m->n_over[TD_HALF_FP16] += u > LARGEST_FP16;
        m->n_over[TD_HALF_BF16] += u > LARGEST_BF16;
        if (u < INFINITE) {
            count_finite(u, m);
            most = u > most ? u : most;
        } else {
            m->n_infinite += u == INFINITE;
            m->n_nan += u != INFINITE;
        }
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    m->largest = (double)largest > m->largest ? (double)largest : m->largest;
    m->n += n;
}

static void widen(td_dtype d, const char *from, int n, float *to)
{
    double wide;
    switch (d) {
    case TD_DT_BF16:
        td_bf16_to_f32_n((const uint16_t *)(const void *)from, (size_t)n, to);
        break;
    case TD_DT_F16:
        td_f16_to_f32_n((const uint16_t *)(const void *)from, (size_t)n, to);
        break;
    case TD_DT_F64:
        for (int i = 0; i < n; i++) {
            memcpy(&wide, from + 8 * i, sizeof wide);
            to[i] = (float)wide;
        }
        break;
    default:
        memcpy(to, from, (size_t)n * sizeof *to);
    }
}

static void count_any(td_dtype d, const char *data, int64_t n, td_magnitudes *m)
{
    float block[BLOCK];
    const size_t each = td_dtype_bytes(d);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int part = n - i < BLOCK ? (int)(n - i) : BLOCK;
        widen(d, data + (size_t)i * each, part, block);
        count_block(block, part, m);
    }
}

/* --- layouts ---------------------------------------------------------------------------------- */

static bool has_padding(const td_blocking *bl)
{
    for (int i = 0; i < bl->rank; i++)
        if (bl->padded[i] != bl->dim[i])
            return true;
    return false;
}

/* the offsets of the last dimension's indices, relative to the row */
static td_status row_offsets(const td_type *t, const td_blocking *bl, int64_t **out)
{
    int64_t at[TD_RANK_MAX] = { 0 };
    const int last = t->rank - 1;
    TD_TRY(TD_ALLOC(*out, (size_t)t->dim[last]));
    for (int64_t i = 0; i < t->dim[last]; i++) {
        at[last] = i;
        (*out)[i] = td_blocking_offset(bl, t, at);
    }
    return TD_OK;
}

/* one row of the last dimension, in blocks */
static void count_row(td_dtype d, const char *row, const int64_t *offset, int64_t n,
                      td_magnitudes *m)
{
    double aligned[BLOCK]; /* room for any type */
    char *block = (char *)aligned;
    const size_t each = td_dtype_bytes(d);
    int filled = 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(block + (size_t)filled * each, row + (size_t)offset[i] * each, each);
        if (++filled == BLOCK || i + 1 == n) {
            count_any(d, block, filled, m);
            filled = 0;
        }
    }
}

static td_status count_padded(const td_type *t, const td_blocking *bl, const char *data,
                              td_magnitudes *m)
{
    int64_t at[TD_RANK_MAX] = { 0 }, *offset;
    const int last = t->rank - 1;
    const int64_t n = td_type_count(t);
    TD_TRY(row_offsets(t, bl, &offset));
    for (int64_t i = 0; i < n; i += t->dim[last]) {
        int64_t row = td_blocking_offset(bl, t, at);
        count_row(t->dtype, data + (size_t)row * td_dtype_bytes(t->dtype), offset, t->dim[last], m);
        for (int d = last - 1; d >= 0 && ++at[d] == t->dim[d]; d--)
            at[d] = 0;
    }
    td_free(offset);
    return TD_OK;
}

/* --- counting a tensor ------------------------------------------------------------------------ */

static int64_t below(const td_magnitudes *m, int exponent)
{
    int64_t n = 0;
    for (int i = 0; i + TD_EXPONENT_MIN < exponent; i++)
        n += m->exponent[i];
    return n;
}

td_status td_magnitudes_count(const td_type *type, const void *data, td_magnitudes *out)
{
    td_blocking bl;
    td_status st = TD_OK;
    *out = (td_magnitudes){ 0 };
    if (!td_dtype_is_float(type->dtype) || !td_type_blocking(type, &bl))
        return td_error(TD_EARG, "dtype %s, layout '%s' cannot be counted",
                        td_dtype_name(type->dtype), type->layout);
    if (has_padding(&bl))
        st = count_padded(type, &bl, data, out);
    else /* the order does not matter */
        count_any(type->dtype, data, td_type_count(type), out);
    for (int h = 0; h < TD_N_HALF; h++) {
        out->n_lost[h] = below(out, td_half_ranges[h].subnormal);
        out->n_below_normal[h] = below(out, td_half_ranges[h].normal);
    }
    /* NaN is not above any bound */
    for (int h = 0; h < TD_N_HALF; h++)
        out->n_over[h] -= out->n_nan;
    return st;
}
