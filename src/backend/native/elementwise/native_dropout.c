/*
 * native_dropout.c -- dropout of elements in plain order, of samples in any order of a sample
 *
 * Draws are made in vectors as they are used, four elements to a block of Philox4x32-10
 * (native_act.inc), and not stored.  Halves are widened in pieces that stay in the first cache.
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/elementwise/native_act.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define PIECE 1024 /* elements */
#define LINE  16   /* floats in a cache line; whole blocks of draws */

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_native_knows(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    if (n->n_in < 2)
        return td_error(TD_ENOKERNEL, "there are no random numbers");
    if (td_type_is_plain(x))
        return TD_OK;
    if (((const td_dropout_attr *)n->attr)->mode == TD_DROPOUT_ELEMENT)
        return td_error(TD_ENOKERNEL, "draws are in plain order, the layout is %s", x->layout);
    return x->layout[0] == 'a' ? TD_OK
                               : td_error(TD_ENOKERNEL, "layout %s divides samples", x->layout);
}

/* the elements of every row, padding included, in pieces; threads share the pieces of all rows */
static td_native_pieces divide_rows(const td_type *t, int threads)
{
    const int64_t rows = t->dim[0] ? t->dim[0] : 1;
    const int64_t each = (threads + rows - 1) / rows; /* threads for a row */
    return td_native_divide(td_type_padded_count(t) / rows, LINE, each > 1 ? (int)each : 1);
}

static td_work_share share(const td_node *n, int threads)
{
    const td_type *t = td_in_type(n, 0);
    const td_native_pieces d = divide_rows(t, threads);
    return td_work_share_of(t->dim[0] * d.n, (double)d.count / (double)(d.n ? d.n : 1), threads);
}

typedef struct {
    const td_native_simd *simd;
    td_dtype dtype;
    int64_t size; /* bytes of an element */
    td_dropout_mode mode;
    const td_native_act_simd *loops;
    td_native_draws draws; /* for this row */
} job;

static void run_floats(const job *j, int64_t n, int64_t at, const float *x, float *y)
{
    if (j->mode == TD_DROPOUT_ELEMENT)
        j->loops->dropout(n, &j->draws, at / 4, x, y);
    else
        j->loops->binary[TD_BINARY_mul](n, x, false, &j->draws.scale, true, y);
}

/* elements `at` to at + n of a row */
static void run_piece(const job *j, int64_t n, int64_t at, const char *x, char *y)
{
    float wide[PIECE];
    if (j->dtype == TD_DT_F32) {
        run_floats(j, n, at, (const float *)x, (float *)y);
        return;
    }
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t some = n - i < PIECE ? n - i : PIECE;
        j->simd->widen(some, x + i * j->size, wide, false);
        run_floats(j, some, at + i, wide, wide);
        j->simd->narrow(some, wide, y + i * j->size, false);
    }
}

static td_native_draws draws_of(const td_node *n, const int64_t *random, int64_t row)
{
    const td_dropout_rule rule = td_dropout_rule_of(n);
    const td_rng r = td_dropout_stream(n->attr, random, row);
    td_native_draws d = { .least = rule.least, .scale = (float)rule.scale };
    memcpy(d.key, r.key, sizeof d.key);
    memcpy(d.ctr, r.ctr, sizeof d.ctr);
    return d;
}

/* mode row, batch: is the row made 0? */
static bool is_dropped(const td_native_draws *d)
{
    uint32_t draw[4];
    td_philox4x32(d->ctr, d->key, draw);
    return draw[0] < d->least;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *t = td_in_type(n, 0);
    const td_native_pieces d = divide_rows(t, td_threads());
    const int64_t rows = t->dim[0];
    job all = { .simd = td_native_simd_for(t->dtype, 16),
                .dtype = t->dtype,
                .size = (int64_t)td_dtype_bytes(t->dtype),
                .mode = (td_dropout_mode)((const td_dropout_attr *)n->attr)->mode,
                .loops = td_native_act_simd_at(0) };
#pragma omp parallel for collapse(2) if (rows * d.count > TD_NATIVE_PIECE)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < d.n; k++) {
            job j = all;
            const int64_t at = k * d.each, some = td_native_piece_at(&d, at);
            const char *x = (const char *)args[0] + (row * d.count + at) * j.size;
            char *y = (char *)args[2] + (row * d.count + at) * j.size;
            j.draws = draws_of(n, args[1], row);
            if (j.mode != TD_DROPOUT_ELEMENT && is_dropped(&j.draws))
                memset(y, 0, (size_t)(some * j.size));
            else
                run_piece(&j, some, at, x, y);
        }
    return TD_OK;
}

TD_NATIVE_KERNEL(dropout, accepts, NULL, run, share);
