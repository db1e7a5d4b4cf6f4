/*
 * test_native_simd.c -- the inner loops give the same bits whatever the instruction set
 *
 * What is right is decided by the problem lines (tests/ops); here every variant this machine can
 * run must agree with the plain one of its dtype to the last bit, NaN, infinity, subnormals and
 * overflow included; and what is loaded and stored must be what base/half.h makes of it.
 */
#include <math.h>
#include <stdio.h>

#include "backend/native/simd/native_simd.h"
#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/rng.h"
#include "support/expect.h"

#define PIXELS  1500 /* more than one chunk, and no multiple of 4 after it */
#define FLOATS  (PIXELS * 16)
#define SIDE    21
#define WINDOWS 11 /* of 3 with stride 2 and pad 1 on 21 */

/* tensors of the loops' dtype; room for float32 */
typedef struct {
    float x[FLOATS], y[FLOATS], z[FLOATS]; /* in */
    float a[FLOATS], b[FLOATS];            /* out */
    float w[FLOATS], v[FLOATS], g[FLOATS]; /* always float32 */
    uint8_t mask_in[FLOATS / 8], mask[FLOATS / 8], where[FLOATS];
    double s[16], t[16];
    float lanes[16];
} area;

static void to_dtype(td_dtype d, float *x)
{
    double wide[FLOATS];
    for (int i = 0; i < FLOATS; i++)
        wide[i] = (double)x[i];
    td_ref_store(d, wide, FLOATS, x);
}

static area *new_area(td_dtype d)
{
    static const float special[] = { NAN,   INFINITY, -INFINITY, -0.0f,    0x1p-24f,
                                     6e-6f, 1e-39f,   -1e-45f,   65504.0f, -65519.0f };
    area *m = td_alloc(1, sizeof *m);
    assert_non_null(m);
    td_rng r = td_rng_make(3, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < FLOATS; i++) {
        m->x[i] = (float)(td_rng_normal(&r) + 3);
        m->y[i] = (float)td_rng_normal(&r);
        m->z[i] = (float)td_rng_normal(&r);
        m->w[i] = (float)td_rng_normal(&r);
        m->v[i] = (float)td_rng_normal(&r);
        m->g[i] = (float)td_rng_normal(&r);
        m->mask_in[i / 8] = (uint8_t)td_rng_u32(&r);
    }
    for (int i = 0; i < 10; i++)
        m->y[5 + 17 * i] = m->y[PIXELS * 4 + i] = m->w[FLOATS - 1 - 23 * i] = special[i];
    to_dtype(d, m->x);
    to_dtype(d, m->y);
    to_dtype(d, m->z);
    return m;
}

static td_native_coefs coefs(void)
{
    td_native_coefs c;
    for (int i = 0; i < 16; i++) {
        c.mean[i] = 3 + 0.01f * (float)i;
        c.scale[i] = 0.5f + 0.1f * (float)i;
        c.shift[i] = 0.3f * (float)i - 2;
        c.slope[i] = 0.02f * (float)i;
    }
    return c;
}

typedef void (*step)(const td_native_simd *f, area *m);

static td_native_plane plane_of(const td_native_simd *f, bool is_streamed)
{
    return (td_native_plane){ .n_pixels = PIXELS, .stride = f->lanes, .is_streamed = is_streamed };
}

/* planes of 5 pixels of 90 images */
static td_native_plane planes_of(const td_native_simd *f)
{
    return (
        td_native_plane){ .n_pixels = 5, .stride = f->lanes, .more = 89, .next = 16 * f->lanes };
}

static void stats(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    f->norm_stats(&v, m->x, m->s, m->t);
}

static void apply_each(const td_native_simd *f, area *m, bool is_streamed)
{
    const td_native_plane v = plane_of(f, is_streamed);
    const td_native_coefs c = coefs();
    f->norm_apply(&v, &c, m->y, m->z, m->a, INFINITY, m->mask);
    f->norm_apply(&v, &c, m->x, NULL, m->b, 0, NULL);
}

static void apply(const td_native_simd *f, area *m)
{
    apply_each(f, m, false);
}

static void apply_streamed(const td_native_simd *f, area *m)
{
    apply_each(f, m, true);
}

static void apply_relu(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    const td_native_coefs c = coefs();
    f->norm_apply(&v, &c, m->y, NULL, m->a, 6, m->mask);
}

static void grad_sums(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    const td_native_coefs c = coefs();
    f->norm_grad_sums(&v, &c, m->z, m->mask_in, m->x, m->s, m->t);
}

static void grad_sums_unmasked(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    const td_native_coefs c = coefs();
    f->norm_grad_sums(&v, &c, m->z, NULL, m->x, m->s, m->t);
}

static void grad_apply(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    const td_native_coefs c = coefs();
    f->norm_grad_apply(&v, &c, m->y, m->mask_in, m->x, m->a, m->b);
}

static void grad_apply_streamed(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, true);
    const td_native_coefs c = coefs();
    f->norm_grad_apply(&v, &c, m->z, m->mask_in, m->x, m->a, NULL);
    f->norm_grad_apply(&v, &c, m->z, NULL, m->x, m->b, NULL);
}

/* from the second pixel on, so that pairs of pixels begin at the third, and with prefetching */
static void from_second_pixel(const td_native_simd *f, area *m)
{
    td_native_plane v = plane_of(f, true);
    const td_native_coefs c = coefs();
    const int64_t pixel = f->lanes * (int64_t)td_dtype_bytes(f->dtype);
    v.n_pixels -= 1;
    v.ahead = 3 * f->lanes;
    const char *x = (const char *)m->x + pixel, *y = (const char *)m->y + pixel;
    f->norm_apply(&v, &c, y, x, (char *)m->a + pixel, INFINITY, m->mask);
    f->norm_grad_apply(&v, &c, y, m->mask_in, x, (char *)m->b + pixel, (char *)m->w + pixel);
}

static void small_planes(const td_native_simd *f, area *m)
{
    const td_native_plane v = planes_of(f);
    const td_native_coefs c = coefs();
    f->norm_stats(&v, m->x, m->s, m->t);
    f->norm_apply(&v, &c, m->x, m->z, m->a, 6, m->mask);
    f->norm_grad_sums(&v, &c, m->z, m->mask_in, m->x, m->s, m->t);
    f->norm_grad_apply(&v, &c, m->z, m->mask_in, m->x, m->b, NULL);
    f->add_masked(&v, m->x, m->z, m->mask_in, m->a);
}

/* several planes have the sums of one plane whose pixels are theirs, to rounding, and the same
   pixels are written */
static void check_small(const td_native_simd *f)
{
    area *m = new_area(f->dtype), *one = new_area(f->dtype);
    const td_native_plane v = planes_of(f);
    const td_native_coefs c = coefs();
    const size_t plane = 5 * (size_t)f->lanes * td_dtype_bytes(f->dtype);
    td_native_plane all = plane_of(f, false);
    all.n_pixels = 5 * 90;
    for (size_t i = 0; i < 90; i++)
        memcpy((char *)one->x + i * plane,
               (const char *)m->x + i * (size_t)v.next * td_dtype_bytes(f->dtype), plane);
    f->norm_stats(&v, m->x, m->s, m->t);
    f->norm_stats(&all, one->x, one->s, one->t);
    for (int i = 0; i < f->lanes; i++) {
        assert_true(fabs(m->s[i] - one->s[i]) < 1e-5);
        assert_true(fabs(m->t[i] - one->t[i]) < 1e-3);
    }
    f->norm_apply(&v, &c, m->x, NULL, m->a, 0, NULL);
    f->norm_apply(&all, &c, one->x, NULL, one->a, 0, NULL);
    for (size_t i = 0; i < 90; i++)
        assert_memory_equal((const char *)m->a + i * (size_t)v.next * td_dtype_bytes(f->dtype),
                            (const char *)one->a + i * plane, plane);
    td_free(m);
    td_free(one);
}

enum { BLOCKS = 3, ROWS = 4 * 37 + 3 };

static const void *element(const td_native_simd *f, const void *x, int64_t i)
{
    return (const char *)x + i * (int64_t)td_dtype_bytes(f->dtype);
}

/* the sums of every block have the bits of its sums alone */
static void check_sums_of_rows(const td_native_simd *f, const area *m, area *out)
{
    enum { STEP = 2 * TD_NATIVE_LANES_MAX };
    static float room[BLOCKS * TD_NATIVE_NORM_ROOM];
    double sums[3][BLOCKS * STEP];
    float mean[BLOCKS * TD_NATIVE_LANES_MAX];
    td_native_coefs c = coefs();
    td_native_norm_rows v = {
        .n_pixels = ROWS, .blocks = BLOCKS, .stride = BLOCKS * f->lanes, .piece = 8, .step = STEP
    };
    const td_native_plane one = { .n_pixels = ROWS, .stride = v.stride };
    v.room = room;
    for (int i = 0; i < BLOCKS * f->lanes; i++)
        mean[i] = c.mean[i % f->lanes];
    for (int i = 0; i < 3; i++)
        memset(sums[i], 7, sizeof sums[i]);
    v.sums = sums[0];
    f->norm_stats_rows(&v, m->x);
    v.sums = sums[1];
    f->norm_grad_sums_rows(&v, mean, m->z, NULL, m->mask_in, m->x, NULL);
    v.sums = sums[2];
    f->norm_grad_sums_rows(&v, mean, m->z, m->y, m->mask_in, m->x, out->a);
    for (int k = 0; k < BLOCKS; k++) {
        const int64_t at = k * f->lanes;
        const size_t bytes = (size_t)f->lanes * sizeof(double);
        const void *x = element(f, m->x, at), *z = element(f, m->z, at), *y = element(f, m->y, at);
        void *both = (char *)out->b + at * (int64_t)td_dtype_bytes(f->dtype);
        double s[TD_NATIVE_LANES_MAX], t[TD_NATIVE_LANES_MAX];
        f->norm_stats(&one, x, s, t);
        assert_memory_equal(s, sums[0] + k * STEP, bytes);
        assert_memory_equal(t, sums[0] + k * STEP + TD_NATIVE_LANES_MAX, bytes);
        f->norm_grad_sums(&one, &c, z, m->mask_in + at / 8, x, s, t);
        assert_memory_equal(s, sums[1] + k * STEP, bytes);
        assert_memory_equal(t, sums[1] + k * STEP + TD_NATIVE_LANES_MAX, bytes);
        f->add_masked(&one, z, y, m->mask_in + at / 8, both);
        f->norm_grad_sums(&one, &c, both, NULL, x, s, t);
        assert_memory_equal(s, sums[2] + k * STEP, bytes);
        assert_memory_equal(t, sums[2] + k * STEP + TD_NATIVE_LANES_MAX, bytes);
    }
    assert_memory_equal(out->a, out->b, (size_t)(ROWS * v.stride) * td_dtype_bytes(f->dtype));
}

/* so have the results, stored in pairs or not */
static void check_results_of_rows(const td_native_simd *f, const area *m, int blocks,
                                  bool is_streamed)
{
    area *rows = new_area(f->dtype), *each = new_area(f->dtype);
    td_native_coefs c[BLOCKS] = { coefs(), coefs(), coefs() };
    const td_native_norm_rows v = {
        .n_pixels = ROWS, .blocks = blocks, .stride = blocks * f->lanes, .is_streamed = is_streamed
    };
    const td_native_plane one = { .n_pixels = ROWS, .stride = v.stride };
    for (int k = 0; k < BLOCKS; k++)
        for (int i = 0; i < f->lanes; i++)
            c[k].scale[i] += (float)k;
    for (int kind = 0; kind < 4; kind++) {
        const float cap = kind == 3 ? 0 : 6;
        const void *z = kind == 1 ? m->z : NULL; /* there is none without relu */
        memset(rows->mask, 0, sizeof rows->mask);
        memset(each->mask, 0, sizeof each->mask);
        f->norm_apply_rows(&v, c, sizeof *c, m->y, z, rows->a, cap, kind < 2 ? rows->mask : NULL);
        f->norm_grad_apply_rows(&v, c, sizeof *c, m->y, kind < 3 ? m->mask_in : NULL, m->x, rows->b,
                                kind % 2 ? rows->z : NULL);
        for (int k = 0; k < blocks; k++) {
            const size_t at = (size_t)(k * f->lanes), byte = at * td_dtype_bytes(f->dtype);
            f->norm_apply(&one, &c[k], (const char *)m->y + byte, z ? (const char *)z + byte : NULL,
                          (char *)each->a + byte, cap, kind < 2 ? each->mask + at / 8 : NULL);
            f->norm_grad_apply(&one, &c[k], (const char *)m->y + byte,
                               kind < 3 ? m->mask_in + at / 8 : NULL, (const char *)m->x + byte,
                               (char *)each->b + byte, kind % 2 ? (char *)each->z + byte : NULL);
        }
        assert_memory_equal(rows, each, sizeof *rows);
    }
    td_free(rows);
    td_free(each);
}

static void check_rows(const td_native_simd *f)
{
    area *m = new_area(f->dtype), *out = new_area(f->dtype);
    check_sums_of_rows(f, m, out);
    check_results_of_rows(f, m, BLOCKS, false);
    check_results_of_rows(f, m, 2, false);
    check_results_of_rows(f, m, 2, true);
    td_free(m);
    td_free(out);
}

static void test_several_planes_are_one(void **state)
{
    const td_native_simd *f;
    (void)state;
    for (int i = 0; (f = td_native_simd_at(i)); i++)
        check_small(f);
}

static void test_rows_have_the_bits_of_planes(void **state)
{
    const td_native_simd *f;
    (void)state;
    for (int i = 0; (f = td_native_simd_at(i)); i++)
        check_rows(f);
}

static void sum(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    f->sum(&v, m->x, 1.0 / 3, m->lanes);
}

static void dot(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, false);
    f->dot(&v, m->x, m->z, m->lanes);
}

static void mul_and_fill(const td_native_simd *f, area *m)
{
    const td_native_plane v = plane_of(f, true), w = plane_of(f, false);
    f->mul(&v, m->y, m->z, m->a);
    f->fill(&w, m->z, 0.25f, m->b);
}

/* every number of columns of taps; whole planes of several images, and parts of planes */
static void depthwise(const td_native_simd *f, area *m)
{
    static const td_native_depthwise all[] = {
        { .H = 1, .P = 1, .side = 3, .stride = 1, .pad = 1, .first_row = 1, .rows = 1 },
        { .H = 2, .P = 1, .side = 3, .stride = 2, .pad = 1, .first_row = 1, .rows = 2 },
        { .H = 6, .P = 6, .side = 3, .stride = 1, .pad = 1, .rows = 3 },
        { .H = 11, .P = 11, .side = 5, .stride = 1, .pad = 2, .rows = 5 },
        { .H = 8, .P = 4, .side = 7, .stride = 2, .pad = 3, .rows = 7 },
    };
    for (int i = 0; i < 2 * (int)(sizeof all / sizeof all[0]); i++) {
        td_native_depthwise v = all[i / 2];
        const bool is_whole = i % 2 == 0;
        v.W = v.H;
        v.Q = v.P;
        v.first_col = v.first_row;
        v.cols = v.rows;
        v.pixel = f->lanes;
        v.x_image = v.H * v.W * f->lanes;
        v.y_image = v.P * v.Q * f->lanes;
        v.images = is_whole && v.H < 8 ? 3 : 1;
        v.tile_P = is_whole ? v.P : (v.P + 2) / 3;
        v.tile_Q = is_whole ? v.Q : (v.Q + 1) / 2;
        f->depthwise_grad_w(&v, 5, m->z, m->x, m->v + i * 49 * 16);
    }
}

static void max_pool(const td_native_simd *f, area *m)
{
    const td_native_window v = { SIDE, SIDE, WINDOWS, WINDOWS, 3, 2, 1, false };
    const td_native_window small = { SIDE, SIDE, SIDE - 1, SIDE - 1, 2, 1, 0, true };
    const size_t pixel = (size_t)f->lanes * td_dtype_bytes(f->dtype);
    char *a = (char *)m->a, *b = (char *)m->b;
    for (int p = 0; p < WINDOWS; p++)
        f->max_pool_row(&v, m->y, p, a + (size_t)p * WINDOWS * pixel,
                        m->where + p * WINDOWS * f->lanes);
    for (int h = 0; h < SIDE; h++)
        f->max_pool_grad_row(&v, m->z, m->where, h, b + (size_t)h * SIDE * pixel);
    b += SIDE * SIDE * pixel;
    for (int h = 0; h < SIDE; h++)
        f->max_pool_grad_row(&small, m->z, m->where, h, b + (size_t)h * SIDE * pixel);
}

static void flat(const td_native_simd *f, area *m)
{
    f->add(FLOATS - 3, m->x, m->y, m->a, true);
    f->relu(FLOATS - 3, m->y, m->b, false);
    f->relu_grad(FLOATS - 5, m->x, m->y, m->a, false);
}

static void sgd(const td_native_simd *f, area *m)
{
    const td_native_step plain = { .momentum = 0.875, .decay = 3e-5, .lr = 0.1f, .inverse = 1 };
    const td_native_step nesterov = {
        .momentum = 0.9, .decay = 1e-4, .lr = 0.1f, .inverse = 0x1p-10f, .nesterov = true
    };
    f->sgd(FLOATS - 3, &plain, m->w, m->v, m->g, m->a);
    f->sgd(FLOATS - 3, &nesterov, m->w, m->v, m->g, m->b);
    f->sgd(100, &plain, m->w, m->v, m->g, NULL);
}

/* adam, lamb, and limits; sums are stored as floats */
static void moments(const td_native_simd *f, area *m)
{
    const td_native_step a = { .momentum = 0.9,
                               .alpha = 0.99,
                               .decay = 1e-2,
                               .lr = 0.1f,
                               .inverse = 0x1p-3f,
                               .eps = 0.01,
                               .rest1 = 0.1f,
                               .root2 = 0.1f,
                               .ratio = 0.7f,
                               .decoupled = true };
    double sums[2];
    f->adam(FLOATS - 3, &a, m->w, m->v, m->g, m->a);
    f->lamb_moments(FLOATS - 3, &a, m->w, m->v, m->g, m->a, sums);
    f->lamb_apply(FLOATS - 3, &a, m->w, m->v, m->a);
    m->b[0] = (float)sums[0];
    m->b[1] = (float)sums[1];
    m->b[2] = (float)f->squares(FLOATS - 3, 0.5f, m->g);
    f->limit_grad(FLOATS - 5, 0.5f, 0.1f, m->g, m->v);
}

static void recipe(const td_native_simd *f, area *m)
{
    const td_native_step a = {
        .momentum = 0.9, .decay = 1e-4, .lr = 0.1f, .inverse = 0x1p-3f, .alpha = 0.9, .eps = 0.01
    };
    if (f->dtype != TD_DT_F32)
        return;
    f->ema(FLOATS - 3, 0.9f, 0.1f, m->g, m->v);
    f->blend(FLOATS - 5, 0.3f, m->w, m->g, m->b);
    memset(m->a, 0, sizeof(float) * FLOATS);
    f->rmsprop(FLOATS - 3, &a, m->w, m->v, m->g, m->a);
    f->rmsprop(100, &a, m->w, m->v, m->g, m->a);
    moments(f, m);
}

static void casts(const td_native_simd *f, area *m)
{
    if (f->dtype == TD_DT_F32)
        return;
    f->widen(FLOATS - 3, m->y, m->a, false);
    f->widen(64, m->y, m->a, true);
    f->narrow(FLOATS - 3, m->w, m->b, false);
    f->narrow(64, m->w, m->b, true);
}

static const td_native_simd *plain_simd(td_dtype dtype, int lanes)
{
    const td_native_simd *f = NULL;
    for (int i = 0; (f = td_native_simd_at(i)); i++)
        if (strcmp(f->isa, "plain") == 0 && f->lanes == lanes && f->dtype == dtype)
            return f;
    fail_msg("no plain loops");
    return NULL;
}

static void compare_all(step run)
{
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++) {
        area *wanted = new_area(f->dtype), *found = new_area(f->dtype);
        run(plain_simd(f->dtype, f->lanes), wanted);
        run(f, found);
        if (memcmp(wanted, found, sizeof *wanted) != 0)
            fail_msg("%s %s with %d lanes: other bits than the plain loops", f->isa,
                     td_dtype_name(f->dtype), f->lanes);
        td_free(wanted);
        td_free(found);
    }
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        compare_all(name);                                                                         \
    }

TEST(stats)
TEST(apply)
TEST(apply_streamed)
TEST(apply_relu)
TEST(grad_sums)
TEST(grad_sums_unmasked)
TEST(grad_apply)
TEST(grad_apply_streamed)
TEST(from_second_pixel)
TEST(small_planes)
TEST(sum)
TEST(dot)
TEST(mul_and_fill)
TEST(depthwise)
TEST(max_pool)
TEST(flat)
TEST(sgd)
TEST(recipe)
TEST(casts)

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* every 16-bit pattern, as base/half.h widens it */
static void check_widen(const td_native_simd *f)
{
    enum { N = 65536 };
    uint16_t *x = td_alloc(N, sizeof *x);
    float *y = td_alloc(N, sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++)
        x[i] = (uint16_t)i;
    f->widen(N, x, y, false);
    for (int i = 0; i < N; i++)
        if (bits_of(y[i]) !=
            bits_of(f->dtype == TD_DT_BF16 ? td_bf16_to_f32(x[i]) : td_f16_to_f32(x[i])))
            fail_msg("%s %s: %04x widened", f->isa, td_dtype_name(f->dtype), (unsigned)x[i]);
    td_free(x);
    td_free(y);
}

/* every sign, exponent and upper fraction, with what decides the rounding below it, as base/half.h
   narrows it; runs of subnormals, of zeros and of others come side by side */
static void check_narrow(const td_native_simd *f)
{
    static const uint16_t low[] = { 0,      1,      0x0fff, 0x1000, 0x1001, 0x2fff,
                                    0x3000, 0x7fff, 0x8000, 0x8001, 0xefff, 0xffff };
    enum { N = 12 * 65536 };
    float *x = td_alloc(N, sizeof *x);
    uint16_t *y = td_alloc(N, sizeof *y);
    assert_true(x && y);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t u = (i / 12) << 16 | low[i % 12];
        memcpy(&x[i], &u, sizeof u);
    }
    f->narrow(N, x, y, false);
    for (int i = 0; i < N; i++)
        if (y[i] != (f->dtype == TD_DT_BF16 ? td_f32_to_bf16(x[i]) : td_f32_to_f16(x[i])))
            fail_msg("%s %s: %08x narrowed", f->isa, td_dtype_name(f->dtype),
                     (unsigned)bits_of(x[i]));
    td_free(x);
    td_free(y);
}

static void test_elements_are_those_of_half_h(void **state)
{
    (void)state;
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++)
        if (f->dtype != TD_DT_F32) {
            check_widen(f);
            check_narrow(f);
        }
}

/* sums overflow to infinity in f16 alone, and small ones are subnormal */
static void test_the_range_is_the_dtypes(void **state)
{
    (void)state;
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++) {
        double v[32];
        uint32_t x[32], y[32], z[32];
        for (int k = 0; k < 32; k++)
            v[k] = k % 2 ? 40000 : 0x1p-24;
        td_ref_store(f->dtype, v, 32, x);
        td_ref_store(f->dtype, v, 32, y);
        f->add(31, x, y, z, false);
        td_ref_load(f->dtype, z, 31, v);
        for (int k = 0; k < 31; k++)
            assert_true(k % 2 == 0              ? v[k] == 0x1p-23
                        : f->dtype == TD_DT_F16 ? isinf(v[k])
                                                : fabs(v[k] - 80000) < 400);
    }
}

static void expect_finite(const td_native_simd *f, const void *x, int64_t n, bool wanted,
                          int64_t at)
{
    if (f->all_finite(n, x) != wanted)
        fail_msg("%s %s, %d lanes: %lld elements, special at %lld", f->isa, td_dtype_name(f->dtype),
                 f->lanes, (long long)n, (long long)at);
}

/* whatever is not finite is seen wherever it stands, and nothing else is */
static void test_all_finite(void **state)
{
    (void)state;
    const double bad[] = { INFINITY, -INFINITY, NAN };
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++) {
        const size_t each = td_dtype_bytes(f->dtype);
        const double most = f->dtype == TD_DT_F16 ? 65504 : 3.38e38;
        double v[70];
        uint32_t x[70];
        for (int k = 0; k < 70; k++)
            v[k] = k % 3 == 0 ? most : k % 3 == 1 ? -most : 0;
        for (int at = 0; at < 70; at++) {
            const double kept = v[at];
            td_ref_store(f->dtype, v, 70, x);
            expect_finite(f, x, at, true, -1);
            v[at] = bad[at % 3];
            td_ref_store(f->dtype, v, 70, x);
            expect_finite(f, x, 70, false, at);
            expect_finite(f, x, at + 1, false, at);
            expect_finite(f, x, at, true, at);
            expect_finite(f, (char *)x + (size_t)(at + 1) * each, 69 - at, true, at);
            v[at] = kept;
        }
    }
}

/* the copy is the new weight, rounded; without one nothing else changes */
static void test_sgd_copies(void **state)
{
    (void)state;
    const td_native_step a = { .momentum = 0.9, .decay = 1e-4, .lr = 0.1f, .inverse = 0x1p-7f };
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++) {
        area *m = new_area(f->dtype), *alone = new_area(f->dtype);
        const uint16_t *copy = (const uint16_t *)m->a;
        f->sgd(FLOATS - 3, &a, m->w, m->v, m->g, m->a);
        f->sgd(FLOATS - 3, &a, alone->w, alone->v, alone->g, NULL);
        assert_memory_equal(m->w, alone->w, sizeof m->w);
        assert_memory_equal(m->v, alone->v, sizeof m->v);
        for (int k = 0; k < FLOATS - 3; k++) {
            if (f->dtype == TD_DT_F32)
                assert_memory_equal(&m->a[k], &m->w[k], sizeof m->w[k]);
            else if (copy[k] !=
                     (f->dtype == TD_DT_BF16 ? td_f32_to_bf16(m->w[k]) : td_f32_to_f16(m->w[k])))
                fail_msg("%s %s: copy %d", f->isa, td_dtype_name(f->dtype), k);
        }
        td_free(m);
        td_free(alone);
    }
}

/* statistics of numbers far from zero lose nothing to cancellation */
static void test_stats_far_from_zero(void **state)
{
    (void)state;
    const td_native_simd *f = td_native_simd_for(TD_DT_F32, 16);
    const td_native_plane v = plane_of(f, false);
    area *m = new_area(TD_DT_F32);
    for (int i = 0; i < FLOATS; i++)
        m->x[i] = 4096 + (float)(i / 16 % 4); /* variance 1.25 */
    f->norm_stats(&v, m->x, m->s, m->t);
    assert_true(fabs(m->s[7] - 4097.5) < 1e-9);
    assert_true(fabs(m->t[7] / PIXELS - 1.25) < 1e-6);
    td_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_apply_streamed),
        cmocka_unit_test(test_apply_relu),
        cmocka_unit_test(test_grad_sums),
        cmocka_unit_test(test_grad_sums_unmasked),
        cmocka_unit_test(test_grad_apply),
        cmocka_unit_test(test_grad_apply_streamed),
        cmocka_unit_test(test_from_second_pixel),
        cmocka_unit_test(test_small_planes),
        cmocka_unit_test(test_several_planes_are_one),
        cmocka_unit_test(test_rows_have_the_bits_of_planes),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_mul_and_fill),
        cmocka_unit_test(test_depthwise),
        cmocka_unit_test(test_max_pool),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_recipe),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_elements_are_those_of_half_h),
        cmocka_unit_test(test_the_range_is_the_dtypes),
        cmocka_unit_test(test_all_finite),
        cmocka_unit_test(test_sgd_copies),
        cmocka_unit_test(test_stats_far_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
