/*
 * test_emulate_half.c -- half precision by float32 kernels: what is emulated, what is refused, that
 * overflow is real, memory; and what moves half numbers about
 *
 * The last group runs in a second process, in which oneDNN may use no more than AVX2 and so has no
 * bf16 of its own: there bf16 must work by emulation.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/half.h"
#include "ops/ops.h"
#include "runtime/device.h"
#include "runtime/emulate_half.h"
#include "runtime/kernel_choice.h"
#include "support/graphs.h"
#include "tandem/program.h"

/* --- programs --------------------------------------------------------------------------------- */

typedef struct {
    td_graph *g;
    td_device *dev;
    td_program *p;
} fixture;

static fixture compiled(const char *text, const char *device)
{
    fixture f = { .g = td_test_graph(text) };
    expect_ok(td_device_open(device, &f.dev));
    expect_ok(td_compile(f.g, f.dev, &(td_compile_opts){ 0 }, &f.p));
    return f;
}

static void release(fixture *f)
{
    td_program_free(f->p);
    td_device_close(f->dev);
    td_graph_free(f->g);
}

/* the report of the first node of an op */
static td_node_report report_of(const td_program *p, const char *op)
{
    for (int i = 0; i < td_program_node_count(p); i++)
        if (strcmp(td_program_node(p, i).op, op) == 0)
            return td_program_node(p, i);
    fail_msg("no node %s", op);
    return (td_node_report){ 0 };
}

static void expect_emulated(const td_program *p, const char *op, const char *inner)
{
    char wanted[64];
    const td_node_report r = report_of(p, op);
    (void)snprintf(wanted, sizeof wanted, "emulated: %s", inner);
    if (strcmp(r.kernel, "widen") != 0 || strncmp(r.impl, wanted, strlen(wanted)) != 0)
        fail_msg("%s is run by %s (%s), wanted %s", op, r.kernel, r.impl, wanted);
}

#define X_COUNT (2 * 16 * 9 * 9)
#define W_COUNT (32 * 16 * 3 * 3)
#define Y_COUNT (2 * 32 * 9 * 9)

static const char convolutions[] = "%x:TYPE[2,16,9,9] = input\n"
                                   "%w:TYPE[32,16,3,3] = param\n"
                                   "%r:TYPE[2,32,9,9] = input\n"
                                   "%y = conv2d %x, %w {pad=1}\n"
                                   "%f = conv2d_fused %x, %w, %b, %r {pad=1, relu=true}\n"
                                   "%dx = conv2d_grad_x %r, %w, %x {pad=1}\n"
                                   "%dw = conv2d_grad_w %r, %x, %w {pad=1, wide=true}\n"
                                   "%narrow = conv2d_grad_w %r, %x, %w {pad=1}\n"
                                   "output y = %y\noutput f = %f\noutput dx = %dx\n"
                                   "output dw = %dw\noutput narrow = %narrow\n";

static void graph_text(const char *type, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "%%b:f32[32] = input\n");
    for (const char *s = convolutions; *s && n + 8 < room;) {
        const bool is_type = strncmp(s, "TYPE", 4) == 0;
        n += (size_t)snprintf(out + n, room - n, "%.*s", is_type ? 8 : 1, is_type ? type : s);
        s += is_type ? 4 : 1;
    }
}

static uint16_t narrow(const char *type, float x)
{
    return strcmp(type, "f16") == 0 ? td_f32_to_f16(x) : td_f32_to_bf16(x);
}

static float widened(const char *type, uint16_t u)
{
    return strcmp(type, "f16") == 0 ? td_f16_to_f32(u) : td_bf16_to_f32(u);
}

static float element(td_dtype d, const void *data, int64_t i)
{
    return d == TD_DT_F32 ? ((const float *)data)[i]
                          : widened(td_dtype_name(d), ((const uint16_t *)data)[i]);
}

static uint16_t x_data[X_COUNT], r_data[Y_COUNT];
static float w_data[W_COUNT], b_data[32]; /* parameters are float32 outside */

static void feed_and_run(td_program *p, const char *type)
{
    for (int i = 0; i < X_COUNT; i++)
        x_data[i] = narrow(type, (float)sin(0.37 * i));
    for (int i = 0; i < W_COUNT; i++)
        w_data[i] = (float)cos(0.61 * i) / 8;
    for (int i = 0; i < Y_COUNT; i++)
        r_data[i] = narrow(type, (float)sin(0.23 * i + 1));
    for (int i = 0; i < 32; i++)
        b_data[i] = (float)i * 0.0123f;
    expect_ok(td_program_bind(p, "x", x_data));
    expect_ok(td_program_bind(p, "r", r_data));
    expect_ok(td_program_bind(p, "b", b_data));
    expect_ok(td_program_set(p, "w", w_data));
    expect_ok(td_program_run(p));
}

/* largest difference of an output over its largest entry */
static double gap_of(const td_program *a, const td_program *b, const char *name)
{
    td_type ta, tb;
    const void *da = td_program_output(a, name, &ta), *db = td_program_output(b, name, &tb);
    double worst = 0, most = 0;
    assert_true(da && db && ta.dtype == tb.dtype);
    for (int64_t i = 0; i < td_type_count(&ta); i++) {
        const double v = (double)element(ta.dtype, da, i), w = (double)element(ta.dtype, db, i);
        assert_true(isfinite(v) && isfinite(w));
        worst = fmax(worst, fabs(v - w));
        most = fmax(most, fabs(w));
    }
    assert_true(most > 0.1);
    return worst / most;
}

/* eps: from 1 to the next number of the type */
static void check_convolutions(const char *type, double eps)
{
    char text[1024];
    static const char *const halves[] = { "y", "f", "dx", "narrow" };
    graph_text(type, text, sizeof text);
    fixture cpu = compiled(text, "cpu"), ref = compiled(text, "ref");
    expect_emulated(cpu.p, "conv2d", "dnnl_conv ");
    expect_emulated(cpu.p, "conv2d_fused", "dnnl_conv_fused ");
    expect_emulated(cpu.p, "conv2d_grad_x", "dnnl_conv_grad_x ");
    expect_emulated(cpu.p, "conv2d_grad_w", "dnnl_conv_grad_w ");
    for (int i = 0; i < td_program_node_count(ref.p); i++)
        assert_true(strncmp(td_program_node(ref.p, i).kernel, "widen", 5) != 0);
    feed_and_run(cpu.p, type);
    feed_and_run(ref.p, type);
    for (int i = 0; i < 4; i++)
        assert_true(gap_of(cpu.p, ref.p, halves[i]) <= eps);
    td_type t;
    assert_non_null(td_program_output(cpu.p, "dw", &t));
    assert_int_equal(t.dtype, TD_DT_F32);
    assert_true(gap_of(cpu.p, ref.p, "dw") < 1e-5);
    release(&cpu);
    release(&ref);
}

static void f16_is_emulated(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    check_convolutions("f16", 0x1p-10);
}

/* --- range ------------------------------------------------------------------------------------ */

static void overflow_is_real(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    /* more rows than native_linear_fused takes */
    static const float x[12] = { 300, -300, 0x1p-12f, 0x1p-13f }, w[2] = { 300, 0x1p-12f };
    uint16_t xh[12];
    td_f32_to_f16_n(x, 12, xh);
    fixture f = compiled("%x:f16[12,1] = input\n%w:f16[2,1] = param\n"
                         "%y = linear %x, %w\noutput y = %y\n",
                         "cpu");
    expect_ok(td_program_bind(f.p, "x", xh));
    expect_ok(td_program_set(f.p, "w", w));
    expect_ok(td_program_run(f.p));
    expect_emulated(f.p, "linear_fused", "dnnl_linear_fused");
    const uint16_t *y = td_program_output(f.p, "y", NULL);
    assert_int_equal(y[0], 0x7c00); /* 90000 */
    assert_int_equal(y[2], 0xfc00);
    assert_int_equal(y[5], 0x0001); /* 2^-24, the smallest number */
    assert_int_equal(y[7], 0x0000); /* half of it, a tie */
    release(&f);
}

/* --- what is not emulated --------------------------------------------------------------------- */

static const td_node *node_of(const td_graph *g, const td_op *op)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == op)
            return g->nodes[i];
    fail_msg("no node %s", op->name);
    return NULL;
}

static void refusals_have_reasons(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(
        "%x:f16[4,6] = input\n%z:f32[4,6] = input\n%lr:f32[] = input\n%one:f32[] = input\n"
        "%w:f32[4,6] = param\n%v:f32[4,6] = param {role=momentum}\n%c:bf16[4,6] = param\n"
        "%i:i64[2] = input\n"
        "%a = relu %z\n%b = cast %x {to=bf16}\n%s = gather %x, %i {axis=1}\n"
        "sgd %w, %v, %z, %lr, %one, %one, %c\n"
        "output a = %a\noutput b = %b\noutput s = %s\n");
    expect_error(td_emulate_half.accepts(node_of(g, &td_op_relu)), TD_ENOKERNEL,
                 "no tensor is half");
    expect_error(td_emulate_half.accepts(node_of(g, &td_op_cast)), TD_ENOKERNEL,
                 "its attributes name the type of a result");
    expect_error(td_emulate_half.accepts(node_of(g, &td_op_gather)), TD_ENOKERNEL,
                 "no kernel computes it in float32");
    expect_error(td_emulate_half.accepts(node_of(g, &td_op_sgd)), TD_ENOKERNEL,
                 "operand 6 is half and overwritten");
    td_graph_free(g);
}

/* a kernel for the type itself, then emulation, the reference at last */
static void native_comes_first(void **state)
{
    (void)state;
    td_device *cpu, *ref;
    td_graph *g =
        td_test_graph("%x:f16[4,6] = input\n%i:i64[2] = input\n%w:f16[3,6] = param\n%r = relu %x\n"
                      "%y = linear %r, %w\n%s = gather %y, %i {axis=1}\noutput s = %s\n");
    expect_ok(td_device_open("cpu", &cpu));
    expect_ok(td_device_open("ref", &ref));
    static const struct {
        const td_op *op;
        const char *kernel;
    } rows[] = { { &td_op_relu, "native_relu" },
                 { &td_op_linear, TD_HAVE_DNNL ? "widen" : "ref_linear" },
                 { &td_op_gather, "ref_gather" } };
    for (int i = 0; i < 3; i++) {
        const td_node *n = node_of(g, rows[i].op);
        assert_string_equal(td_device_select(cpu, n, NULL)->name, rows[i].kernel);
        assert_int_equal(strncmp(td_device_select(ref, n, NULL)->name, "ref_", 4), 0);
    }
    td_text why = { 0 };
    assert_non_null(td_device_select(cpu, node_of(g, &td_op_gather), &why));
    assert_non_null(strstr(td_text_get(&why), "widen: no kernel computes it in float32"));
    td_text_release(&why);
    td_device_close(cpu);
    td_device_close(ref);
    td_graph_free(g);
}

static void preferred_layouts_are_those_of_float32(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    td_node_layouts half, wide;
    td_device *dev;
    char text[1024];
    expect_ok(td_device_open("cpu", &dev));
    graph_text("f16", text, sizeof text);
    td_graph *f16 = td_test_graph(text);
    graph_text("f32", text, sizeof text);
    td_graph *f32 = td_test_graph(text);
    const td_op *const ops[] = { &td_op_conv2d, &td_op_conv2d_fused, &td_op_conv2d_grad_x,
                                 &td_op_conv2d_grad_w };
    for (int i = 0; i < 4; i++) {
        assert_true(dev->target.preferred_layout(dev->target.ctx, node_of(f16, ops[i]), &half));
        assert_true(dev->target.preferred_layout(dev->target.ctx, node_of(f32, ops[i]), &wide));
        assert_memory_equal(&half, &wide, sizeof half);
        assert_true(half.out[0] != '\0');
    }
    td_graph_free(f16);
    td_graph_free(f32);
    td_device_close(dev);
}

/* --- memory ----------------------------------------------------------------------------------- */

#define SUM_TEXT(T)                                                                                \
    "%x:" T "[2,16,8,8] = input\n%r:" T "[2,16,8,8] = input\n%w:" T "[16,16,1,1] = param\n"        \
    "%b:" T "[16] = param\n%y = conv2d_fused %x, %w, %b, %r\noutput y = %y\n"

/* what the float32 kernel behind it asks for: oneDNN's versions differ */
static size_t inner_scratch(void)
{
    td_device *dev;
    td_graph *g = td_test_graph(SUM_TEXT("f32"));
    expect_ok(td_device_open("cpu", &dev));
    td_prepared p = { .node = node_of(g, &td_op_conv2d_fused) };
    p.kernel = td_device_select(dev, p.node, NULL);
    assert_non_null(p.kernel);
    expect_ok(p.kernel->prepare(p.node, &p));
    const size_t bytes = p.scratch_bytes;
    p.kernel->release(&p);
    td_graph_free(g);
    td_device_close(dev);
    return bytes;
}

/* the result takes the residual's place */
static void buffers_are_shared(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    td_graph *g = td_test_graph(SUM_TEXT("f16"));
    td_prepared p = { .kernel = &td_emulate_half, .node = node_of(g, &td_op_conv2d_fused) };
    expect_ok(td_emulate_half.prepare(p.node, &p));
    const size_t operands = 4 * (2 * 2048 + 256 + 16);
    assert_true(p.scratch_bytes >= operands);
    assert_true(p.scratch_bytes < operands + inner_scratch() + 4 * 2048);
    td_emulate_half.release(&p);
    td_graph_free(g);
}

static void preparing_survives_failed_allocations(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    td_graph *g = td_test_graph(SUM_TEXT("f16"));
    const int64_t before = td_alloc_live();
    td_status st = TD_ENOMEM;
    for (int64_t i = 1; st == TD_ENOMEM; i++) {
        td_prepared p = { .kernel = &td_emulate_half, .node = node_of(g, &td_op_conv2d_fused) };
        td_alloc_fail_at(i);
        st = td_emulate_half.prepare(p.node, &p);
        td_alloc_fail_at(0);
        if (st == TD_OK)
            td_emulate_half.release(&p);
        assert_int_equal(td_alloc_live(), before);
    }
    expect_ok(st);
    td_graph_free(g);
}

/* --- moving ----------------------------------------------------------------------------------- */

#define N_PATTERNS 65536

/* each upper half of a float32 with a lower one that rounds down, up, or is a tie */
static float pattern(uint32_t i)
{
    static const uint32_t low[] = { 0, 0x8000, 0x8001, 0x7fff };
    const uint32_t u = i << 16 | low[i % 4];
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void check_moved(const char *type, const char *shape, const char *layout)
{
    static float x[N_PATTERNS], back[N_PATTERNS], moved[N_PATTERNS];
    char text[512];
    (void)snprintf(text, sizeof text,
                   "%%x:f32[%s] = input\n%%c:%s[%s]@%s = param\n"
                   "%%f:f32[%s]@ABcd16b16a = param\n%%a = reorder %%x {dtype=%s}\n"
                   "%%b = reorder %%a {layout=%s}\n%%d = reorder %%b {layout=aBcd16b}\n"
                   "%%h = reorder %%d\nassign %%f, %%h\nassign %%c, %%x\noutput h = %%h\n",
                   shape, type, shape, layout, shape, type, layout);
    fixture f = compiled(text, "cpu");
    for (uint32_t i = 0; i < N_PATTERNS; i++)
        x[i] = pattern(i);
    expect_ok(td_program_bind(f.p, "x", x));
    expect_ok(td_program_run(f.p));
    expect_ok(td_program_get(f.p, "c", moved));
    expect_ok(td_program_get(f.p, "f", back));
    const uint16_t *h = td_program_output(f.p, "h", NULL);
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        const uint16_t wanted = narrow(type, x[i]);
        const float wide = widened(type, wanted);
        if (h[i] != wanted || memcmp(&moved[i], &wide, sizeof wide) != 0 ||
            memcmp(&back[i], &wide, sizeof wide) != 0)
            fail_msg(
                "%a became %s %04x (%a) by reorder, %a by assign, came back as %a, wanted %04x",
                (double)x[i], type, h[i], (double)widened(type, h[i]), (double)moved[i],
                (double)back[i], wanted);
    }
    if (TD_HAVE_DNNL)
        assert_string_equal(report_of(f.p, "assign").kernel, "dnnl_assign");
    release(&f);
}

static void moving_rounds_every_pattern(void **state)
{
    (void)state;
    static const char *const shapes[] = { "256,256,1,1", "64,64,4,4" };
    static const char *const layouts[] = { "ABcd8b16a2b", "ABcd8a16b2a", "BAcd8a16b2a",
                                           "ABcd16b16a",  "acdb",        "Acdb16a" };
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 6; k++) {
            check_moved("bf16", shapes[i], layouts[k]);
            check_moved("f16", shapes[i], layouts[k]);
        }
}

/* --- without bf16 in oneDNN ------------------------------------------------------------------- */

static void bf16_is_emulated(void **state)
{
    (void)state;
    check_convolutions("bf16", 0x1p-7);
}

static void bf16_is_moved_by_float32(void **state)
{
    (void)state;
    check_moved("bf16", "64,64,4,4", "ABcd8b16a2b");
    fixture f = compiled("%x:bf16[2,32,8,8] = input\n%y = reorder %x {layout=aBcd16b}\n"
                         "%z = relu %y\n%p = reorder %z\noutput p = %p\n",
                         "cpu");
    const td_node_report r = report_of(f.p, "reorder");
    assert_string_equal(r.kernel, "dnnl_reorder");
    assert_null(strstr(r.impl, "simple"));
    assert_int_equal(strncmp(r.impl, "convert jit", 11), 0);
    release(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest here[] = {
        cmocka_unit_test(f16_is_emulated),
        cmocka_unit_test(overflow_is_real),
        cmocka_unit_test(refusals_have_reasons),
        cmocka_unit_test(native_comes_first),
        cmocka_unit_test(preferred_layouts_are_those_of_float32),
        cmocka_unit_test(buffers_are_shared),
        cmocka_unit_test(preparing_survives_failed_allocations),
        cmocka_unit_test(moving_rounds_every_pattern),
    };
    static const struct CMUnitTest without_bf16[] = {
        cmocka_unit_test(bf16_is_emulated),
        cmocka_unit_test(bf16_is_moved_by_float32),
    };
    if (argc > 1)
        return cmocka_run_group_tests(without_bf16, NULL, NULL);
    const int n_failed = cmocka_run_group_tests(here, NULL, NULL);
    if (n_failed || !TD_HAVE_DNNL)
        return n_failed;
    char without[] = "without-bf16", *const again[] = { argv[0], without, NULL };
    if (setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1) != 0)
        return 1;
    (void)execv("/proc/self/exe", again);
    return 1; /* not reached */
}
