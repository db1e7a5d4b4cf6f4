/*
 * test_tf32.c -- TF32 emulated: rounding by hand, and that convolutions and linear layers multiply
 * rounded numbers while everything else keeps its digits
 */
#include "support/expect.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "pass/amp.h"
#include "runtime/device.h"
#include "support/graphs.h"
#include "tandem/program.h"

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* --- rounding --------------------------------------------------------------------------------- */

static void numbers_are_rounded_as_by_hand(void **state)
{
    (void)state;
    /* clang-format off */
    static const float cases[][2] = {
        { 0, 0 }, { 1, 1 }, { -1.5f, -1.5f },
        { 0x1.004p0f, 0x1.004p0f },              /* 1 + 2^-10: the last bit there is */
        { 0x1.002p0f, 1 },                       /* 1 + 2^-11: a tie, 1 is even */
        { 0x1.006p0f, 0x1.008p0f },              /* 1 + 3 2^-11: a tie, 1 + 2^-9 is even */
        { 0x1.002002p0f, 0x1.004p0f },            /* just above the tie: up */
        { 0x1.001ffep0f, 1 },                    /* just below: down */
        { -0x1.006p0f, -0x1.008p0f },
        { 0x1.ffep0f, 2 },                       /* a tie, into the next power of two */
        { 0x1.555556p-2f, 0x1.554p-2f },         /* a third */
        { 0.1f, 0x1.998p-4f },                   /* 0x1.99999ap-4 */
        { 3.14159274f, 0x1.92p1f },              /* 0x1.921fb6p1 */
        { 123456.789f, 123456 },                 /* steps of 64 there: 123456 = 1929 * 64 */
        { 0x1p-126f, 0x1p-126f },
        { 0x1p-136f, 0x1p-136f },                /* subnormals keep steps of 2^-136 */
        { 0x1.8p-136f, 0x1p-135f },              /* a tie, to even */
        { 0x1p-137f, 0 },
        { 0x1.ffcp127f, 0x1.ffcp127f },          /* the largest */
        { 0x1.fffffep127f, INFINITY },
        { INFINITY, INFINITY }, { -INFINITY, -INFINITY },
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bits(td_f32_round_tf32(cases[i][0])) != bits(cases[i][1]))
            fail_msg("%a gives %a, wanted %a", (double)cases[i][0],
                     (double)td_f32_round_tf32(cases[i][0]), (double)cases[i][1]);
    assert_int_equal(bits(td_f32_round_tf32(-0.0f)), 0x80000000);
    assert_int_equal(bits(td_f32_round_tf32(of_bits(0x7f800001))), 0x7fc00000); /* quiet */
    assert_int_equal(bits(td_f32_round_tf32(of_bits(0xffffffff))), 0xffffe000);
}

/* --- programs --------------------------------------------------------------------------------- */

enum { N = 2, C = 3, SIDE = 5, K = 4, X = N * C * SIDE * SIDE, W = K * C * 9 };

static const char step_text[] = "%x:f32[2,3,5,5] = input\n"
                                "%dy:f32[2,4,5,5] = input\n"
                                "%lr:f32[] = input\n"
                                "%w:f32[4,3,3,3] = param\n"
                                "%v:f32[4,3,3,3] = param {role=momentum}\n"
                                "%b:f32[4] = input\n"
                                "%y = conv2d_fused %x, %w, %b {pad=1}\n"
                                "%dx = conv2d_grad_x %dy, %w, %x {pad=1}\n"
                                "%dw = conv2d_grad_w %dy, %x, %w {pad=1}\n"
                                "sgd %w, %v, %dw, %lr\n"
                                "output y = %y\noutput dx = %dx\noutput dw = %dw\n";

typedef struct {
    float x[X], w[W], b[K], dy[N * K * SIDE * SIDE], lr;
} numbers;

static numbers made_up(void)
{
    numbers m = { .lr = 0 };
    for (int i = 0; i < X; i++)
        m.x[i] = sinf((float)i * 1.7f) * 3;
    for (int i = 0; i < W; i++)
        m.w[i] = sinf((float)i * 2.3f + 1);
    for (int i = 0; i < K; i++)
        m.b[i] = 0x1.23456p0f; /* more digits than TF32 has */
    for (int i = 0; i < N * K * SIDE * SIDE; i++)
        m.dy[i] = sinf((float)i * 0.9f + 2);
    return m;
}

static numbers rounded(numbers m)
{
    for (int i = 0; i < X; i++)
        m.x[i] = td_f32_round_tf32(m.x[i]);
    for (int i = 0; i < W; i++)
        m.w[i] = td_f32_round_tf32(m.w[i]);
    for (int i = 0; i < N * K * SIDE * SIDE; i++)
        m.dy[i] = td_f32_round_tf32(m.dy[i]);
    return m;
}

/* the program once; results in y, dx, dw, and the weight afterwards in w */
typedef struct {
    float y[N * K * SIDE * SIDE], dx[X], dw[W], w[W];
} results;

static void take(const td_program *p, const char *name, float *out, size_t n_bytes)
{
    memcpy(out, td_program_output(p, name, NULL), n_bytes);
}

static results run_step(const char *device, int precision, const numbers *m)
{
    results r;
    td_device *dev;
    td_program *p;
    td_graph *g = td_test_graph(step_text);
    const td_amp_opts amp = { .precision = (td_precision)precision, .is_silent = true };
    expect_ok(td_device_open(device, &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    expect_ok(td_program_init(p, 1));
    expect_ok(td_program_set(p, "w", m->w));
    expect_ok(td_program_bind(p, "x", m->x));
    expect_ok(td_program_bind(p, "dy", m->dy));
    expect_ok(td_program_bind(p, "b", m->b));
    expect_ok(td_program_bind(p, "lr", &m->lr));
    expect_ok(td_program_run(p));
    take(p, "y", r.y, sizeof r.y);
    take(p, "dx", r.dx, sizeof r.dx);
    take(p, "dw", r.dw, sizeof r.dw);
    expect_ok(td_program_get(p, "w", r.w));
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return r;
}

/* the bits of the float32 step with factors rounded beforehand, and not those with all digits */
static void convolutions_multiply_rounded_numbers(void **state)
{
    (void)state;
    static const char *const devices[] = { "cpu", "ref" };
    const numbers m = made_up(), by_hand = rounded(m);
    for (int i = 0; i < 2; i++) {
        const results emulated = run_step(devices[i], TD_PRECISION_TF32_EMULATED, &m);
        const results wanted = run_step(devices[i], TD_PRECISION_FP32, &by_hand);
        const results all_digits = run_step(devices[i], TD_PRECISION_FP32, &m);
        const results asked_only = run_step(devices[i], TD_PRECISION_TF32, &m);
        assert_memory_equal(emulated.y, wanted.y, sizeof wanted.y);
        assert_memory_equal(emulated.dx, wanted.dx, sizeof wanted.dx);
        assert_memory_equal(emulated.dw, wanted.dw, sizeof wanted.dw);
        assert_memory_not_equal(emulated.y, all_digits.y, sizeof wanted.y);
        assert_memory_not_equal(emulated.dx, all_digits.dx, sizeof wanted.dx);
        assert_memory_not_equal(emulated.dw, all_digits.dw, sizeof wanted.dw);
        assert_memory_equal(emulated.w, m.w, sizeof m.w); /* the weight keeps its digits */
        assert_memory_equal(asked_only.y, all_digits.y, sizeof wanted.y);
    }
}

static void a_sum_by_hand(void **state)
{
    (void)state;
    /* (1 + 2^-11) (3 + 2^-12) -> 1 * 3; (1 + 3 2^-11) 0.1 -> (1 + 2^-9) 0x1.998p-4; bias exact */
    static const float x[] = { 0x1.002p0f, 0x1.006p0f }, w[] = { 3 + 0x1p-12f, 0.1f },
                       b[] = { 0.1f };
    td_device *dev;
    td_program *p;
    td_graph *g = td_test_graph("%x:f32[1,2] = input\n%w:f32[1,2] = input\n%b:f32[1] = input\n"
                                "%y = linear %x, %w, %b\noutput y = %y\n");
    const td_amp_opts amp = { .precision = TD_PRECISION_TF32_EMULATED, .is_silent = true };
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_bind(p, "w", w));
    expect_ok(td_program_bind(p, "b", b));
    expect_ok(td_program_run(p));
    const float wanted = (float)(3.0 + 0x1.008p0 * 0x1.998p-4 + (double)0.1f);
    assert_int_equal(bits(*(const float *)td_program_output(p, "y", NULL)), bits(wanted));
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    td_amp_opts o = { .precision = TD_PRECISION_TF32_EMULATED };
    expect_ok(td_amp_check(&o));
    assert_string_equal(td_amp_precision_name(&o), "tf32-emulated");
    assert_int_equal(td_amp_dtype(&o), TD_DT_F32);
    o.amp = true;
    expect_error(td_amp_check(&o), TD_EUSAGE, "--amp and --precision tf32-emulated");
    o.amp = false;
    o.force_float32 = true;
    expect_error(td_amp_check(&o), TD_EUSAGE, "--no-amp and --precision tf32-emulated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_rounded_as_by_hand),
        cmocka_unit_test(convolutions_multiply_rounded_numbers),
        cmocka_unit_test(a_sum_by_hand),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
