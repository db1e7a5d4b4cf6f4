/*
 * test_native_winograd.c -- convolutions in tiles, of stride 1 and 2: what they cost in accuracy,
 * and what must not change a bit
 *
 * The inner loops of all instruction sets are compared with each other; the problem lines
 * (tests/ops) compare the best with the reference.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/native/winograd/native_winograd.h"
#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/machine.h"
#include "base/rng.h"
#include "support/graphs.h"
#include "support/programs.h"

static float *normal(int64_t n, uint64_t seed, double scale)
{
    float *x = td_alloc((size_t)n, sizeof *x);
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * td_rng_normal(&r));
    return x;
}

/* --- tiles ------------------------------------------------------------------------------------ */

static td_native_wino tiles_of(int64_t n, int64_t p, int64_t q, td_winograd_form form)
{
    td_native_wino w = { .N = n, .H = p, .W = q, .P = p, .Q = q, .form = form };
    td_native_wino_divide(&w);
    return w;
}

static bool has_point(const td_native_wino *w, const td_native_wino_place *at, int64_t p)
{
    return !(td_winograd_is_last(w->form, p / w->side) && at->row >= w->rows.whole) &&
           !(td_winograd_is_last(w->form, p % w->side) && at->col >= w->cols.whole);
}

/* each result is in one tile, and tiles that have a point follow each other */
static void check_tiles(const td_native_wino *w)
{
    enum { SIDE_MAX = 32 };
    static char seen[2 * SIDE_MAX * SIDE_MAX];
    const int64_t n = w->ends[TD_WINO_KINDS - 1];
    td_native_wino_place at = td_native_wino_place_of(w, 0);
    int64_t products = 0;
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++, td_native_wino_go_on(w, 1, &at)) {
        const td_native_wino_place same = td_native_wino_place_of(w, i);
        assert_int_equal(at.kind, same.kind);
        assert_int_equal(at.n, same.n);
        assert_int_equal(at.row, same.row);
        assert_int_equal(at.col, same.col);
        assert_int_equal(at.p, same.p);
        assert_int_equal(at.q, same.q);
        const int tile = td_winograd_tile(w->form);
        const int64_t rows = tile - (at.row >= w->rows.whole);
        const int64_t cols = tile - (at.col >= w->cols.whole);
        for (int64_t r = at.p; r < at.p + rows && r < w->P; r++)
            for (int64_t c = at.q; c < at.q + cols && c < w->Q; c++)
                assert_int_equal(seen[(at.n * w->P + r) * w->Q + c]++, 0);
        assert_int_equal(td_native_wino_products(w, i), products);
        for (int64_t p = 0; p < (int64_t)w->side * w->side; p++) {
            const td_native_wino_range all = td_native_wino_with_point(w, 0, n, p);
            const td_native_wino_range one = td_native_wino_with_point(w, i, 1, p);
            assert_int_equal(has_point(w, &at, p), i >= all.from && i < all.to);
            assert_int_equal(has_point(w, &at, p), one.to - one.from);
            products += has_point(w, &at, p);
        }
    }
    for (int64_t i = 0; i < w->N * w->P * w->Q; i++)
        assert_int_equal(seen[i], 1);
    for (int64_t parts = 1; parts <= n; parts++) {
        assert_int_equal(td_native_wino_part(w, 0, parts), 0);
        assert_int_equal(td_native_wino_part(w, parts, parts), n);
        for (int64_t i = 0; i < parts; i++)
            assert_true(td_native_wino_part(w, i, parts) <= td_native_wino_part(w, i + 1, parts));
    }
}

static void tiles_cover_each_result_once(void **state)
{
    (void)state;
    for (int64_t p = 1; p < 20; p++)
        for (int64_t q = 1; q < 20; q += 1 + q / 9) {
            const td_native_wino large = tiles_of(2, p, q, TD_WINO_LARGE);
            const td_native_wino small = tiles_of(1, p, q, TD_WINO_SMALL);
            const td_native_wino strided = tiles_of(1, p, q, TD_WINO_STRIDED);
            check_tiles(&large);
            check_tiles(&small);
            check_tiles(&strided);
        }
    const td_native_wino w = tiles_of(3, 14, 7, TD_WINO_LARGE);
    assert_int_equal(td_native_wino_products(&w, w.ends[TD_WINO_KINDS - 1]), 3 * 22 * 11);
    const td_native_wino strided = tiles_of(3, 14, 7, TD_WINO_STRIDED);
    assert_int_equal(td_native_wino_products(&strided, strided.ends[TD_WINO_KINDS - 1]),
                     3 * 32 * 16);
}

/* --- instruction sets ------------------------------------------------------------------------- */

#define IMAGES   2
#define CHANNELS 48
#define SIDE     10 /* tiles of 4 + 3 + 3 */
#define BIG      19 /* the side of the images that stride 2 makes SIDE of */
#define TILES    (IMAGES * 3 * 3)
#define COUNT    (IMAGES * CHANNELS * BIG * BIG) /* of the largest image */

#define V_STEP   (CHANNELS * TILES + TD_WINO_LANES) /* td_native_wino_step(CHANNELS, TILES) */
#define DW_BLOCK (9 * TD_WINO_LANES * TD_WINO_LANES)

/* aBcd16b, aBcd8b and acdb */
typedef enum { BLOCKS_16, BLOCKS_8, LAST } image_layout;

static td_native_wino_image image_of(image_layout layout, int64_t side)
{
    const int64_t area = side * side;
    return layout == BLOCKS_16
               ? (td_native_wino_image){ TD_WINO_LANES, TD_WINO_LANES * area, TD_WINO_HALF }
           : layout == BLOCKS_8
               ? (td_native_wino_image){ TD_WINO_HALF, TD_WINO_LANES * area, TD_WINO_HALF * area }
               : (td_native_wino_image){ CHANNELS, TD_WINO_LANES, TD_WINO_HALF };
}

/* ABcd16b16a and ABcd8b8a */
static const td_native_wino_dw dw_blocks = { 256, TD_WINO_LANES, 8 * TD_WINO_LANES, 8 };
static const td_native_wino_dw dw_halves = { 64, TD_WINO_HALF, 9 * 64, 9 * 8 * CHANNELS };

/* forms of the loops that are compiled for each instruction set */
static const td_winograd_form forms[] = { TD_WINO_LARGE, TD_WINO_STRIDED, TD_WINO_TRANSPOSED };

static td_native_wino geometry(td_winograd_form form, image_layout layout)
{
    const int64_t x = form == TD_WINO_STRIDED ? BIG : SIDE;
    const int64_t y = form == TD_WINO_TRANSPOSED ? BIG : SIDE;
    td_native_wino w = { .N = IMAGES,
                         .C = CHANNELS,
                         .H = x,
                         .W = x,
                         .K = CHANNELS,
                         .P = y,
                         .Q = y,
                         .pad = form == TD_WINO_TRANSPOSED ? 0 : 1,
                         .form = form,
                         .room = TILES,
                         .piece = TILES,
                         .v_step = V_STEP,
                         .d_step = V_STEP,
                         .x = image_of(layout, x),
                         .y = image_of(layout, y),
                         .relu = true,
                         .cap = INFINITY };
    td_native_wino_divide(&w);
    return w;
}

/* the elements of y */
static int64_t count_of(const td_native_wino *w)
{
    return w->N * w->K * w->P * w->Q;
}

/* a point's filter */
static int64_t filter_point(const td_native_wino *w, int64_t p)
{
    const int64_t row = p / w->side, col = p % w->side, last = w->filters - 1;
    return (row < last ? row : last) * w->filters + (col < last ? col : last);
}

/* a whole convolution, `piece` tiles at a time */
static void convolve(const td_native_wino_simd *f, td_native_wino w, int64_t piece, const void *x,
                     const float *u, const float *bias, const void *z, void *y)
{
    static float v[TD_WINO_STRIDED_POINTS * V_STEP];
    static float m[TD_WINO_STRIDED_POINTS * TD_WINO_LANES * TILES];
    const int64_t m_step = w.room * TD_WINO_LANES;
    for (int64_t first = 0; first < TILES; first += piece) {
        const int64_t n = TILES - first < piece ? TILES - first : piece;
        f->forms[w.form].input(&w, first, n, x, v);
        for (int64_t kb = 0; kb < CHANNELS / TD_WINO_LANES; kb++) {
            for (int64_t p = 0; p < (int64_t)w.side * w.side; p++)
                for (int64_t i = 0; i < n; i += f->tiles)
                    f->product(&w, (int)(n - i < f->tiles ? n - i : f->tiles), 1,
                               v + p * w.v_step + i * TD_WINO_LANES,
                               u + (kb * TD_WINO_POINTS + filter_point(&w, p)) * CHANNELS *
                                       TD_WINO_LANES,
                               0, m + p * m_step + i * TD_WINO_LANES);
            const float *norm = bias + kb * TD_WINO_LANES; /* scale and bias */
            const td_native_wino_end end = {
                .scale = norm, .bias = norm, .residual = z, .y = y, .block = kb
            };
            f->forms[w.form].output(&w, first, n, m, m_step, &end);
        }
    }
}

static double largest_gap(const float *a, const float *b, int64_t n)
{
    double gap = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        gap = fmax(gap, fabs((double)a[i] - (double)b[i]));
        most = fmax(most, fabs((double)a[i]));
    }
    return gap / most;
}

/* those that fuse multiplications and additions agree to the bit, whatever the runs of tiles */
static void check_instruction_sets(const td_native_wino *w, const float *x, const float *u,
                                   const float *bias, const float *z)
{
    const size_t n = (size_t)count_of(w);
    const td_native_wino_simd *f;
    float *y = normal(COUNT, 5, 1), *best = normal(COUNT, 6, 1);
    convolve(td_native_wino_simd_at(TD_DT_F32, 0), *w, TILES, x, u, bias, z, best);
    for (int i = 0; (f = td_native_wino_simd_at(TD_DT_F32, i)); i++)
        for (int piece = 1; piece <= TILES; piece += 4) {
            memset(y, 0xff, n * sizeof *y);
            convolve(f, *w, piece, x, u, bias, z, y);
            if (strcmp(f->isa, "plain") == 0)
                assert_true(largest_gap(best, y, (int64_t)n) < 1e-5);
            else
                assert_memory_equal(best, y, n * sizeof *y);
        }
    td_free(y);
    td_free(best);
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    float *x = normal(COUNT, 1, 1), *z = normal(COUNT, 2, 1), *bias = normal(CHANNELS, 3, 1);
    float *u = normal(TD_WINO_POINTS * CHANNELS * CHANNELS, 4, 0.1);
    assert_int_equal(V_STEP, td_native_wino_step(CHANNELS, TILES));
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const td_native_wino w = geometry(forms[i], BLOCKS_16), last = geometry(forms[i], LAST);
        check_instruction_sets(&w, x, u, bias, z);
        check_instruction_sets(&last, x, u, bias, z);
    }
    td_free(x);
    td_free(z);
    td_free(bias);
    td_free(u);
}

/* the filter's gradient, in two groups of tiles; `to`: the strides of blocks, block_step apart */
static void sum_gradient(const td_native_wino_simd *f, const td_native_wino *w, const void *x,
                         const void *dy, const td_native_wino_dw *to, int64_t block_step, float *dw)
{
    enum { BLOCK = TD_WINO_LANES * TD_WINO_LANES, BLOCKS = CHANNELS / TD_WINO_LANES };
    static float v[TD_WINO_STRIDED_POINTS * V_STEP], d[TD_WINO_STRIDED_POINTS * V_STEP];
    static float m[BLOCKS * BLOCKS * TD_WINO_POINTS * BLOCK];
    const int64_t line = w->room * TD_WINO_LANES, m_step = BLOCKS * TD_WINO_POINTS * BLOCK;
    td_winograd matrices;
    const td_native_wino_transforms *by = &f->forms[w->form];
    td_winograd_matrices(w->form, &matrices);
    for (int64_t first = 0, n = TILES / 3; first < TILES; first += n, n = TILES - first) {
        by->input(w, first, n, x, v);
        by->gradient(w, first, n, dy, d);
        for (int64_t kb = 0; kb < BLOCKS; kb += 2)
            for (int64_t cb = 0; cb < BLOCKS; cb++)
                for (int64_t p = 0; p < (int64_t)w->side * w->side; p++) {
                    const td_native_wino_range at = td_native_wino_with_point(w, first, n, p);
                    const int64_t from = at.from * TD_WINO_LANES, point = filter_point(w, p);
                    const bool is_first =
                        first == 0 && p / w->side < w->filters && p % w->side < w->filters;
                    f->gradient_product(at.to - at.from, BLOCKS - kb < 2 ? 1 : 2,
                                        v + p * w->v_step + cb * line + from,
                                        d + p * w->d_step + kb * line + from, line,
                                        m + kb * m_step + (cb * TD_WINO_POINTS + point) * BLOCK,
                                        m_step, !is_first);
                }
    }
    for (int64_t i = 0; i < BLOCKS * BLOCKS; i++)
        by->gradient_end(&matrices, m + i * TD_WINO_POINTS * BLOCK, to,
                         dw + i / BLOCKS * 9 * BLOCK * BLOCKS + i % BLOCKS * block_step);
}

static void check_filter_gradients(const td_native_wino *w, const float *x, const float *dy)
{
    const int64_t n_w = 9 * CHANNELS * CHANNELS;
    const td_native_wino_simd *f;
    float *dw = normal(n_w, 3, 1), *best = normal(n_w, 4, 1);
    sum_gradient(td_native_wino_simd_at(TD_DT_F32, 0), w, x, dy, &dw_blocks, DW_BLOCK, best);
    for (int i = 0; (f = td_native_wino_simd_at(TD_DT_F32, i)); i++) {
        memset(dw, 0xff, (size_t)n_w * sizeof *dw);
        sum_gradient(f, w, x, dy, &dw_blocks, DW_BLOCK, dw);
        if (strcmp(f->isa, "plain") == 0)
            assert_true(largest_gap(best, dw, n_w) < 1e-5);
        else
            assert_memory_equal(best, dw, (size_t)n_w * sizeof *dw);
    }
    td_free(dw);
    td_free(best);
}

static void instruction_sets_agree_on_filter_gradients(void **state)
{
    (void)state;
    float *x = normal(COUNT, 1, 1), *dy = normal(COUNT, 2, 1);
    const td_native_wino w = geometry(TD_WINO_LARGE, BLOCKS_16);
    const td_native_wino strided = geometry(TD_WINO_STRIDED, BLOCKS_16);
    check_filter_gradients(&w, x, dy);
    check_filter_gradients(&strided, x, dy);
    td_free(x);
    td_free(dy);
}

/* --- bfloat16 --------------------------------------------------------------------------------- */

static uint16_t *narrowed(float *x, int64_t n)
{
    uint16_t *y = td_alloc((size_t)n, sizeof *y);
    assert_non_null(y);
    td_f32_to_bf16_n(x, (size_t)n, y);
    td_bf16_to_f32_n(y, (size_t)n, x);
    return y;
}

/* images in bfloat16 give the bits of the same images in float32, results rounded once; some of
   them are subnormal, which one instruction would take for zeros */
static void check_bfloat16(const td_native_wino *w)
{
    enum { N_W = 9 * CHANNELS * CHANNELS };
    const int64_t n = count_of(w);
    const td_native_wino_simd *f;
    float *x = normal(COUNT, 1, 1), *z = normal(COUNT, 2, 1), *bias = normal(CHANNELS, 3, 1);
    float *u = normal(TD_WINO_POINTS * CHANNELS * CHANNELS, 4, 0.1), *y = normal(COUNT, 5, 1);
    float *dw = normal(N_W, 6, 1), *wanted_dw = normal(N_W, 7, 1);
    uint16_t *y_half = td_alloc(COUNT, sizeof *y_half), *wanted = td_alloc(COUNT, sizeof *wanted);
    assert_non_null(y_half);
    assert_non_null(wanted);
    bias[5] = 1e-40f; /* as scale too: channel 5 is subnormal but for the residual */
    for (int64_t i = 0; i < COUNT; i++)
        z[i] = i % TD_WINO_LANES == 5 ? 0 : z[i];
    uint16_t *x_half = narrowed(x, COUNT), *z_half = narrowed(z, COUNT);
    for (int i = 0; (f = td_native_wino_simd_at(TD_DT_BF16, i)); i++) {
        const bool is_plain = strcmp(f->isa, "plain") == 0;
        const td_native_wino_simd *f32 = td_native_wino_simd_at(TD_DT_F32, 0);
        for (int k = 0; is_plain && td_native_wino_simd_at(TD_DT_F32, k); k++)
            f32 = td_native_wino_simd_at(TD_DT_F32, k);
        convolve(f32, *w, 5, x, u, bias, z, y);
        td_f32_to_bf16_n(y, (size_t)n, wanted);
        memset(y_half, 0xff, (size_t)n * sizeof *y_half);
        convolve(f, *w, 5, x_half, u, bias, z_half, y_half);
        assert_memory_equal(y_half, wanted, (size_t)n * sizeof *wanted);
        if (w->form == TD_WINO_TRANSPOSED)
            continue;
        sum_gradient(f32, w, x, z, &dw_blocks, DW_BLOCK, wanted_dw);
        sum_gradient(f, w, x_half, z_half, &dw_blocks, DW_BLOCK, dw);
        assert_memory_equal(dw, wanted_dw, N_W * sizeof *dw);
    }
    void *all[] = { x, z, bias, u, y, dw, wanted_dw, y_half, wanted, x_half, z_half };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        td_free(all[i]);
}

static void bfloat16_rounds_results_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const td_native_wino w = geometry(forms[i], BLOCKS_16);
        check_bfloat16(&w);
    }
}

/* --- blocks of 8 channels --------------------------------------------------------------------- */

/* copies `n` pixels or taps of `rows` blocks of 16 to blocks of 8, [rows][2][n][8] */
static void halve(const float *from, int64_t rows, int64_t n, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t l = 0; l < TD_WINO_LANES; l++)
                to[((r * 2 + l / 8) * n + i) * 8 + l % 8] = from[(r * n + i) * TD_WINO_LANES + l];
}

static float *halved_image(const float *x, int64_t area)
{
    float *y = td_alloc(COUNT, sizeof *y);
    assert_non_null(y);
    halve(x, IMAGES * CHANNELS / TD_WINO_LANES, area, y);
    return y;
}

/* ABcd16b16a to ABcd8b8a */
static void halve_filter(const float *from, float *to)
{
    enum { C = CHANNELS };
    for (int64_t k = 0; k < C; k++)
        for (int64_t c = 0; c < C; c++)
            for (int64_t t = 0; t < 9; t++) {
                const int64_t a = ((k / 16 * (C / 16) + c / 16) * 9 + t) * 256 + c % 16 * 16;
                const int64_t b = ((k / 8 * (C / 8) + c / 8) * 9 + t) * 64 + c % 8 * 8;
                to[b + k % 8] = from[a + k % 16];
            }
}

/* the number of loops that compute the same bits as with blocks of 16 */
static int check_halves(td_winograd_form form)
{
    enum { N_W = 9 * CHANNELS * CHANNELS };
    const td_native_wino_simd *f;
    const td_native_wino w16 = geometry(form, BLOCKS_16), w8 = geometry(form, BLOCKS_8);
    const int64_t n = count_of(&w16), area = w16.P * w16.Q;
    float *x = normal(COUNT, 1, 1), *z = normal(COUNT, 2, 1), *bias = normal(CHANNELS, 3, 1);
    float *u = normal(TD_WINO_POINTS * CHANNELS * CHANNELS, 4, 0.1);
    float *x8 = halved_image(x, w16.H * w16.W), *z8 = halved_image(z, area);
    float *y8 = normal(COUNT, 5, 1), *y = normal(COUNT, 6, 1);
    float *dw = normal(N_W, 7, 1), *dw8 = normal(N_W, 8, 1);
    float *wanted = normal(COUNT > N_W ? COUNT : N_W, 9, 1);
    int checked = 0;
    for (int i = 0; (f = td_native_wino_simd_at(TD_DT_F32, i)); i++) {
        if (f->lanes > TD_WINO_HALF)
            continue;
        checked++;
        convolve(f, w16, 5, x, u, bias, z, y);
        convolve(f, w8, 5, x8, u, bias, z8, y8);
        halve(y, IMAGES * CHANNELS / TD_WINO_LANES, area, wanted);
        assert_memory_equal(y8, wanted, (size_t)n * sizeof *y);
        if (form == TD_WINO_TRANSPOSED)
            continue;
        sum_gradient(f, &w16, x, z, &dw_blocks, DW_BLOCK, dw);
        sum_gradient(f, &w8, x8, z8, &dw_halves, DW_BLOCK / 2, dw8);
        halve_filter(dw, wanted);
        assert_memory_equal(dw8, wanted, N_W * sizeof *dw);
    }
    float *all[] = { x, z, bias, u, x8, z8, y8, y, dw, dw8, wanted };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        td_free(all[i]);
    return checked;
}

static void blocks_of_8_channels_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        assert_true(check_halves(forms[i]) > 0);
}

/* longer registers than 8 lanes: aBcd8b is refused, and not preferred */
static void only_short_registers_take_blocks_of_8(void **state)
{
    (void)state;
    const bool is_short = td_native_wino_simd_at(TD_DT_F32, 0)->lanes <= TD_WINO_HALF;
    td_type t = td_type_4d(TD_DT_F32, 2, 32, 8, 8);
    assert_int_equal(td_native_wino_check_halves(), is_short ? TD_OK : TD_ENOKERNEL);
    assert_int_equal(td_native_wino_prefers_halves(&t), is_short);
    strcpy(t.layout, "aBcd8b");
    assert_int_equal(td_native_wino_prefers_halves(&t), is_short);
    strcpy(t.layout, "aBcd16b");
    assert_false(td_native_wino_prefers_halves(&t));
}

/* --- programs --------------------------------------------------------------------------------- */

/* y = relu(conv(x, w) + b + x) */
static td_graph *layer(int batch, int channels, int side, const char *dtype)
{
    char text[1024];
    snprintf(text, sizeof text,
             "%%x:%s[%d,%d,%d,%d] = input\n%%w:%s[%d,%d,3,3] = param\n%%b:%s[%d] = param\n"
             "%%y = conv2d_fused %%x, %%w, %%b, %%x {pad=1, relu=true}\noutput y = %%y\n",
             dtype, batch, channels, side, side, dtype, channels, channels, dtype, channels);
    return td_test_graph(text);
}

/* the layer's result; `x`, `w` and `b` are float, or double where dtype is f64 */
static void *run_layer(const char *device, const char *skip, int batch, int channels, int side,
                       const char *dtype, const void *x, const void *w, const void *b)
{
    td_device *dev;
    td_program *p;
    td_graph *g = layer(batch, channels, side, dtype);
    expect_ok(td_device_open(device, &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = skip }, &p));
    assert_int_equal(td_test_count_ops(p, "conv2d_winograd"), strcmp(device, "cpu") == 0 && !skip);
    expect_ok(td_program_set(p, "w", w));
    expect_ok(td_program_set(p, "b", b));
    expect_ok(td_program_bind(p, "x", x));
    void *y = td_test_run(p, "y", NULL);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return y;
}

static double *widened(const float *x, int64_t n)
{
    double *y = td_alloc((size_t)n, sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

/* largest and root mean square error over the root mean square of the true result */
static void measure(const float *y, const double *truth, int64_t n, double *most, double *rms)
{
    double squares = 0, errors = 0;
    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = (double)y[i] - truth[i];
        squares += truth[i] * truth[i];
        errors += e * e;
        *most = fmax(*most, fabs(e));
    }
    *most /= sqrt(squares / (double)n);
    *rms = sqrt(errors / squares);
}

/* what docs/numerics.md states; TANDEM_WINOGRAD_PRINT=1 shows the figures */
static void accuracy_is_as_stated(void **state)
{
    (void)state;
    static const int layers[][3] = { { 1, 64, 56 }, { 1, 128, 28 }, { 1, 256, 14 }, { 2, 512, 7 } };
    for (int l = 0; l < 4; l++) {
        const int batch = layers[l][0], channels = layers[l][1], side = layers[l][2];
        const int64_t n = (int64_t)batch * channels * side * side;
        const int64_t n_w = 9 * (int64_t)channels * channels;
        float *x = normal(n, 1, 1), *w = normal(n_w, 2, sqrt(2.0 / (9 * channels)));
        float *b = normal(channels, 3, 0.1);
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] > 0 ? x[i] : 0;
        double *x64 = widened(x, n), *w64 = widened(w, n_w), *b64 = widened(b, channels);
        double *truth = run_layer("ref", NULL, batch, channels, side, "f64", x64, w64, b64);
        for (int i = 0; i < 2; i++) {
            double most, rms;
            float *y =
                run_layer("cpu", i ? "winograd" : NULL, batch, channels, side, "f32", x, w, b);
            measure(y, truth, n, &most, &rms);
            if (getenv("TANDEM_WINOGRAD_PRINT"))
                print_message("%d channels, %s: largest %.2g, rms %.2g\n", channels,
                              i ? "direct" : "winograd", most, rms);
            assert_true(most < 2e-5 && rms < 1.5e-6);
            td_free(y);
        }
        td_free(x);
        td_free(w);
        td_free(b);
        td_free(x64);
        td_free(w64);
        td_free(b64);
        td_free(truth);
    }
}

/* odd sides; an image's bits are the same alone and in a batch, with one, two and three threads */
static void neither_threads_nor_batch_matter(void **state)
{
    (void)state;
    const int before = td_threads();
    for (int side = 7; side <= 14; side++) {
        const int64_t image = 64 * (int64_t)side * side;
        float *x = normal(11 * image, 1, 1), *w = normal(9 * 64 * 64, 2, 0.1);
        float *b = normal(64, 3, 1);
        td_set_threads(1);
        float *y = run_layer("cpu", NULL, 11, 64, side, "f32", x, w, b);
        for (int threads = 1; threads <= 3; threads++) {
            td_set_threads(threads);
            float *all = run_layer("cpu", NULL, 11, 64, side, "f32", x, w, b);
            float *few = run_layer("cpu", NULL, 3, 64, side, "f32", x + 4 * image, w, b);
            assert_memory_equal(all, y, (size_t)(11 * image) * sizeof *y);
            assert_memory_equal(few, y + 4 * image, (size_t)(3 * image) * sizeof *y);
            td_free(all);
            td_free(few);
        }
        td_free(x);
        td_free(w);
        td_free(b);
        td_free(y);
    }
    td_set_threads(before);
}

/* NaN is not clipped away, and infinity does not vanish */
static void what_is_not_finite_shows(void **state)
{
    (void)state;
    const float bad[] = { NAN, INFINITY };
    for (int i = 0; i < 2; i++) {
        float *x = normal(2 * 32 * 12 * 12, 1, 1), *w = normal(9 * 32 * 32, 2, 0.1);
        float *b = normal(32, 3, 1);
        x[5 * 144 + 17] = bad[i];
        float *y = run_layer("cpu", NULL, 2, 32, 12, "f32", x, w, b);
        int n = 0;
        for (int k = 0; k < 2 * 32 * 144; k++) {
            n += !isfinite(y[k]);
            assert_true(k < 32 * 144 || isfinite(y[k])); /* the other image */
        }
        assert_true(n >= 32 * 4);
        td_free(x);
        td_free(w);
        td_free(b);
        td_free(y);
    }
}

/* --- training --------------------------------------------------------------------------------- */

enum { FORWARD, GRAD_X, GRAD_W, N_PARTS };
static const char *const parts[N_PARTS] = { "y", "dx", "dw" };

typedef struct {
    int batch, in, out, side, pad, stride;
} shape;

static int result_side(const shape *s)
{
    return (s->side + 2 * s->pad - 3) / s->stride + 1;
}

/* the same in mixed precision: images in bfloat16, weights in float32 */
static td_graph *mixed_step(const shape *s)
{
    char text[2048];
    const int p = result_side(s);
    snprintf(text, sizeof text,
             "%%x:f32[%d,%d,%d,%d] = input\n%%dy:f32[%d,%d,%d,%d] = input\n"
             "%%w:f32[%d,%d,3,3] = param\n%%m:f32[%d,%d,3,3] = param {role=momentum}\n"
             "%%xh = cast %%x {to=bf16}\n%%dyh = cast %%dy {to=bf16}\n%%wh = cast %%w {to=bf16}\n"
             "%%yh = conv2d %%xh, %%wh {pad=%d, stride=%d}\n"
             "%%dw = conv2d_grad_w %%dyh, %%xh, %%w {pad=%d, stride=%d, wide=true}\n"
             "%%dxh = conv2d_grad_x %%dyh, %%wh, %%xh {pad=%d, stride=%d}\n"
             "%%y = cast %%yh\n%%dx = cast %%dxh\n%%lr:f32[] = input\n"
             "sgd %%w, %%m, %%dw, %%lr {momentum=0.9}\n"
             "output y = %%y\noutput dx = %%dx\noutput dw = %%dw\n",
             s->batch, s->in, s->side, s->side, s->batch, s->out, p, p, s->out, s->in, s->out,
             s->in, s->pad, s->stride, s->pad, s->stride, s->pad, s->stride);
    return td_test_graph(text);
}

/* a convolution and its gradients, with a filter that changes in every run; "bf16" is mixed */
static td_graph *step(const shape *s, const char *dtype)
{
    char text[1024];
    const int p = result_side(s);
    if (strcmp(dtype, "bf16") == 0)
        return mixed_step(s);
    snprintf(text, sizeof text,
             "%%x:%s[%d,%d,%d,%d] = input\n%%dy:%s[%d,%d,%d,%d] = input\n"
             "%%w:%s[%d,%d,3,3] = param\n%%m:%s[%d,%d,3,3] = param {role=momentum}\n"
             "%%y = conv2d %%x, %%w {pad=%d, stride=%d}\n"
             "%%dw = conv2d_grad_w %%dy, %%x, %%w {pad=%d, stride=%d}\n"
             "%%dx = conv2d_grad_x %%dy, %%w, %%x {pad=%d, stride=%d}\n%%lr:f32[] = input\n"
             "sgd %%w, %%m, %%dw, %%lr {momentum=0.9}\n"
             "output y = %%y\noutput dx = %%dx\noutput dw = %%dw\n",
             dtype, s->batch, s->in, s->side, s->side, dtype, s->batch, s->out, p, p, dtype, s->out,
             s->in, dtype, s->out, s->in, s->pad, s->stride, s->pad, s->stride, s->pad, s->stride);
    return td_test_graph(text);
}

/* copies of the results */
static void run_step(const char *device, td_winograd_mode mode, const shape *s, const char *dtype,
                     const void *x, const void *w, const void *dy, void *result[N_PARTS])
{
    const bool in_tiles = mode == TD_WINOGRAD_AUTO && strcmp(device, "cpu") == 0;
    td_device *dev;
    td_program *p;
    const float lr = 0;
    td_graph *g = step(s, dtype);
    expect_ok(td_device_open(device, &dev));
    td_device_winograd(dev, mode);
    expect_ok(td_compile(g, dev, NULL, &p));
    assert_int_equal(td_test_count_ops(p, "conv2d_winograd"), in_tiles ? 3 - s->stride : 0);
    assert_int_equal(td_test_count_ops(p, "conv2d_winograd_grad_x"), in_tiles && s->stride == 2);
    assert_int_equal(td_test_count_ops(p, "winograd_filter"), in_tiles ? 2 : 0);
    /* with pad 2 and AVX-512 oneDNN prefers other layouts for the direct gradient */
    const bool has_blocks =
        s->pad < 2 || td_native_wino_simd_at(TD_DT_F32, 0)->lanes <= TD_WINO_HALF;
    assert_int_equal(td_test_count_ops(p, "conv2d_winograd_grad_w"), in_tiles && has_blocks);
    expect_ok(td_program_set(p, "w", w));
    expect_ok(td_program_bind(p, "lr", &lr));
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_bind(p, "dy", dy));
    expect_ok(td_program_run(p));
    for (int i = 0; i < N_PARTS; i++)
        result[i] = td_test_output(p, parts[i], NULL);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void free_results(void *result[N_PARTS])
{
    for (int i = 0; i < N_PARTS; i++)
        td_free(result[i]);
}

static int64_t result_count(const shape *s, int part)
{
    const int64_t p = result_side(s);
    return part == FORWARD  ? s->batch * s->out * p * p
           : part == GRAD_X ? (int64_t)s->batch * s->in * s->side * s->side
                            : (int64_t)9 * s->out * s->in;
}

/* the largest and the rms error of training in docs/numerics.md; is_half: bfloat16 images */
typedef struct {
    double most, rms;
} limits;

static limits limits_of(bool is_half, bool is_direct, int part)
{
    if (!is_half || part == GRAD_W)
        return (limits){ 4e-5, 3e-6 };
    if (!is_direct && td_native_wino_pairs())
        return (limits){ 3e-2, 5e-3 };
    return (limits){ 2e-2, is_direct ? 3e-3 : 1.8e-3 };
}

/* errors of one layer against float64 with the same images, by Winograd's algorithm and directly */
static void check_layer(const shape *s, bool is_half)
{
    const int64_t n_x = result_count(s, GRAD_X), n_y = result_count(s, FORWARD);
    const int64_t n_w = result_count(s, GRAD_W);
    const char *dtype = is_half ? "bf16" : "f32";
    float *x = normal(n_x, 1, 1), *w = normal(n_w, 2, sqrt(2.0 / (9 * s->in)));
    float *dy = normal(n_y, 3, 1);
    for (int64_t i = 0; i < n_x; i++)
        x[i] = x[i] > 0 ? x[i] : 0;
    if (is_half) {
        td_free(narrowed(x, n_x));
        td_free(narrowed(dy, n_y));
    }
    double *x64 = widened(x, n_x), *w64 = widened(w, n_w), *dy64 = widened(dy, n_y);
    void *truth[N_PARTS], *y[N_PARTS];
    run_step("ref", TD_WINOGRAD_AUTO, s, "f64", x64, w64, dy64, truth);
    for (int i = 0; i < 2; i++) {
        run_step("cpu", i ? TD_WINOGRAD_OFF : TD_WINOGRAD_AUTO, s, dtype, x, w, dy, y);
        for (int part = 0; part < N_PARTS; part++) {
            const limits limit = limits_of(is_half, i, part);
            double most, rms;
            measure(y[part], truth[part], result_count(s, part), &most, &rms);
            if (getenv("TANDEM_WINOGRAD_PRINT"))
                print_message("%s, %d -> %d channels, side %d, batch %d, %s, %s: largest %.2g, "
                              "rms %.2g\n",
                              dtype, s->in, s->out, s->side, s->batch, parts[part],
                              i ? "direct" : "winograd", most, rms);
            assert_true(most < limit.most && rms < limit.rms);
        }
        free_results(y);
    }
    free_results(truth);
    void *all[] = { x, w, dy, x64, w64, dy64 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        td_free(all[i]);
}

static void gradients_are_as_accurate_as_stated(void **state)
{
    (void)state;
    static const shape layers[] = {
        { 1, 64, 64, 56, 1, 1 },   { 2, 128, 128, 28, 1, 1 }, { 4, 256, 256, 14, 1, 1 },
        { 12, 512, 512, 7, 1, 1 }, { 12, 64, 48, 18, 0, 1 },  { 12, 32, 64, 18, 2, 1 },
        { 4, 128, 128, 56, 1, 2 }, { 8, 256, 256, 28, 1, 2 }, { 32, 512, 512, 14, 1, 2 },
        { 12, 96, 128, 27, 1, 2 },
    };
    for (size_t l = 0; l < sizeof layers / sizeof layers[0]; l++)
        check_layer(&layers[l], false);
}

/*
 * In mixed precision results have the one rounding of bfloat16, filter gradients none, and weights
 * are not rounded, which they are for direct convolutions; in tiles of 2 x 2 transforms of images
 * and weights are rounded
 */
static void bfloat16_is_as_accurate_as_stated(void **state)
{
    (void)state;
    if (td_cpu_bf16_rate() > TD_BF16_RATE_PAIRS)
        skip(); /* all convolutions are direct */
    static const shape layers[] = { { 1, 64, 64, 56, 1, 1 },
                                    { 4, 128, 128, 28, 1, 1 },
                                    { 16, 256, 256, 14, 1, 1 },
                                    { 6, 128, 96, 30, 0, 1 } };
    for (size_t l = 0; l < sizeof layers / sizeof layers[0]; l++)
        check_layer(&layers[l], true);
}

/* --- small tiles ------------------------------------------------------------------------------ */

/* y = conv(x, w) + b with fixed weights: in bfloat16, and widened, or all in float64 */
static td_graph *fixed_layer(const shape *s, bool is_half)
{
    char text[1024];
    const char *half = "%wh = cast %w {to=bf16}\n%yh = conv2d_fused %xh, %wh, %b {pad=1}\n"
                       "%y = cast %yh\noutput y = %y\n";
    const char *exact = "%y = conv2d_fused %x, %w, %b {pad=1}\noutput y = %y\n";
    const char *dtype = is_half ? "f32" : "f64";
    snprintf(text, sizeof text,
             "%%x:%s[%d,%d,%d,%d] = input\n%%w:%s[%d,%d,3,3] = param\n%%b:%s[%d] = param\n%s%s",
             dtype, s->batch, s->in, s->side, s->side, dtype, s->out, s->in, dtype, s->out,
             is_half ? "%xh = cast %x {to=bf16}\n" : "", is_half ? half : exact);
    return td_test_graph(text);
}

static bool has_small_tiles(const td_program *p)
{
    for (int i = 0; i < td_program_node_count(p); i++)
        if (strncmp(td_program_node(p, i).impl, "F(2x2,3x3)", 10) == 0)
            return true;
    return false;
}

static void *run_fixed(const char *device, td_winograd_mode mode, const shape *s, bool is_half,
                       const void *x, const void *w, const void *b)
{
    td_device *dev;
    td_program *p;
    td_graph *g = fixed_layer(s, is_half);
    expect_ok(td_device_open(device, &dev));
    td_device_winograd(dev, mode);
    expect_ok(td_compile(g, dev, NULL, &p));
    assert_int_equal(has_small_tiles(p), is_half && mode == TD_WINOGRAD_AUTO);
    expect_ok(td_program_set(p, "w", w));
    expect_ok(td_program_set(p, "b", b));
    expect_ok(td_program_bind(p, "x", x));
    void *y = td_test_run(p, "y", NULL);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return y;
}

/* inference in bfloat16: what docs/numerics.md states of F(2 x 2, 3 x 3) */
static void small_tiles_are_as_accurate_as_stated(void **state)
{
    (void)state;
    static const shape layers[] = { { 1, 64, 64, 56, 1, 1 },
                                    { 1, 128, 128, 28, 1, 1 },
                                    { 1, 256, 256, 14, 1, 1 },
                                    { 2, 512, 512, 7, 1, 1 } };
    if (!td_native_wino_pairs())
        skip();
    for (size_t l = 0; l < sizeof layers / sizeof layers[0]; l++) {
        const shape *s = &layers[l];
        const int64_t n = result_count(s, FORWARD), n_w = result_count(s, GRAD_W);
        float *x = normal(n, 1, 1), *b = normal(s->out, 3, 0.1);
        float *w = normal(n_w, 2, sqrt(2.0 / (9 * s->in)));
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] > 0 ? x[i] : 0;
        td_free(narrowed(x, n));
        double *x64 = widened(x, n), *w64 = widened(w, n_w), *b64 = widened(b, s->out);
        double *truth = run_fixed("ref", TD_WINOGRAD_OFF, s, false, x64, w64, b64);
        for (int i = 0; i < 2; i++) {
            double most, rms;
            float *y = run_fixed("cpu", i ? TD_WINOGRAD_OFF : TD_WINOGRAD_AUTO, s, true, x, w, b);
            measure(y, truth, n, &most, &rms);
            if (getenv("TANDEM_WINOGRAD_PRINT"))
                print_message("bf16, %d channels, %s: largest %.2g, rms %.2g\n", s->in,
                              i ? "direct" : "tiles of 2x2", most, rms);
            assert_true(most < (i ? 2e-2 : 3e-2) && rms < (i ? 3e-3 : 4.5e-3));
            td_free(y);
        }
        void *all[] = { x, w, b, x64, w64, b64, truth };
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            td_free(all[i]);
    }
}

/* an image's bits are the same alone and in a batch, with one, two and three threads */
static void small_tiles_depend_on_neither_threads_nor_batch(void **state)
{
    (void)state;
    const int before = td_threads();
    if (!td_native_wino_pairs())
        skip();
    for (int side = 7; side <= 16; side += 3) {
        const shape many = { 11, 64, 64, side, 1, 1 }, few = { 3, 64, 64, side, 1, 1 };
        const int64_t image = 64 * (int64_t)side * side;
        float *x = normal(11 * image, 1, 1), *w = normal(9 * 64 * 64, 2, 0.1);
        float *b = normal(64, 3, 1);
        td_set_threads(1);
        float *y = run_fixed("cpu", TD_WINOGRAD_AUTO, &many, true, x, w, b);
        for (int threads = 1; threads <= 3; threads++) {
            td_set_threads(threads);
            float *all = run_fixed("cpu", TD_WINOGRAD_AUTO, &many, true, x, w, b);
            float *part = run_fixed("cpu", TD_WINOGRAD_AUTO, &few, true, x + 4 * image, w, b);
            assert_memory_equal(all, y, (size_t)(11 * image) * sizeof *y);
            assert_memory_equal(part, y + 4 * image, (size_t)(3 * image) * sizeof *y);
            td_free(all);
            td_free(part);
        }
        td_free(x);
        td_free(w);
        td_free(b);
        td_free(y);
    }
    td_set_threads(before);
}

/* results and gradients do not depend on the number of threads, an image's not on the batch */
static void check_independence(const shape *all, const char *dtype)
{
    const int before = td_threads();
    shape few = *all;
    few.batch = 5;
    const int64_t image = result_count(all, GRAD_X) / all->batch;
    const int64_t result = result_count(all, FORWARD) / all->batch;
    float *x = normal(all->batch * image, 1, 1), *w = normal(result_count(all, GRAD_W), 2, 0.1);
    float *dy = normal(all->batch * result, 3, 1);
    void *first[N_PARTS], *y[N_PARTS];
    td_set_threads(1);
    run_step("cpu", TD_WINOGRAD_AUTO, all, dtype, x, w, dy, first);
    for (int threads = 1; threads <= 3; threads++) {
        td_set_threads(threads);
        run_step("cpu", TD_WINOGRAD_AUTO, all, dtype, x, w, dy, y);
        for (int part = 0; part < N_PARTS; part++)
            assert_memory_equal(y[part], first[part], (size_t)result_count(all, part) * sizeof *x);
        free_results(y);
        run_step("cpu", TD_WINOGRAD_AUTO, &few, dtype, x + 4 * image, w, dy + 4 * result, y);
        assert_memory_equal(y[FORWARD], (float *)first[FORWARD] + 4 * result,
                            (size_t)(5 * result) * sizeof *x);
        assert_memory_equal(y[GRAD_X], (float *)first[GRAD_X] + 4 * image,
                            (size_t)(5 * image) * sizeof *x);
        free_results(y);
    }
    td_set_threads(before);
    free_results(first);
    td_free(x);
    td_free(w);
    td_free(dy);
}

static void training_depends_on_neither_threads_nor_batch(void **state)
{
    (void)state;
    check_independence(&(shape){ 11, 64, 48, 15, 1, 1 }, "f32");
    check_independence(&(shape){ 11, 96, 128, 29, 1, 2 }, "f32");
    /* four chains of tiles, which one and two threads divide, and three do not */
    check_independence(&(shape){ 11, 64, 48, 57, 1, 1 }, "f32");
    if (td_cpu_bf16_rate() <= 2)
        check_independence(&(shape){ 11, 128, 96, 28, 1, 1 }, "bf16");
}

static td_status compile_once(const char *text)
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_status st = td_graph_parse(text, "text", &g);
    if (st == TD_OK)
        st = td_device_open("cpu", &dev);
    if (st == TD_OK)
        st = td_compile(g, dev, NULL, &p);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    const char *text = "%x:f32[2,64,8,8] = input\n%w:f32[64,64,3,3] = param\n"
                       "%y = conv2d_fused %x, %w {pad=1}\noutput y = %y\n";
    expect_ok(compile_once(text)); /* what a library keeps is there now */
    const int64_t live = td_alloc_live();
    td_status st = TD_ENOMEM;
    int n = 1;
    for (; st != TD_OK; n++) {
        td_alloc_fail_at(n);
        st = compile_once(text);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_int_equal(td_alloc_live(), live);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_cover_each_result_once),
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(instruction_sets_agree_on_filter_gradients),
        cmocka_unit_test(bfloat16_rounds_results_once),
        cmocka_unit_test(blocks_of_8_channels_change_no_bit),
        cmocka_unit_test(only_short_registers_take_blocks_of_8),
        cmocka_unit_test(accuracy_is_as_stated),
        cmocka_unit_test(neither_threads_nor_batch_matter),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(gradients_are_as_accurate_as_stated),
        cmocka_unit_test(bfloat16_is_as_accurate_as_stated),
        cmocka_unit_test(small_tiles_are_as_accurate_as_stated),
        cmocka_unit_test(small_tiles_depend_on_neither_threads_nor_batch),
        cmocka_unit_test(training_depends_on_neither_threads_nor_batch),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
