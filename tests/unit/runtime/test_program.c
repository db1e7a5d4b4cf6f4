/*
 * test_program.c -- compile and run: parameters in and out, setup, initial values, reports, every
 * error, and memory: none taken after the first run, none lost when there is none
 */
/* ctest: timeout 300 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "support/graphs.h"
#include "tandem/program.h"

static const char *const devices[] = { "ref", "cpu" };

typedef struct {
    td_graph *g;
    td_device *dev;
    td_program *p;
} fixture;

static fixture compiled(const char *text, const char *device, const char *skip)
{
    fixture f = { .g = td_test_graph(text) };
    expect_ok(td_device_open(device, &f.dev));
    expect_ok(td_compile(f.g, f.dev, &(td_compile_opts){ .skip = skip }, &f.p));
    return f;
}

static void release(fixture *f)
{
    td_program_free(f->p);
    td_device_close(f->dev);
    td_graph_free(f->g);
}

/* --- data for the two networks of support/graphs.c -------------------------------------------- */

static float images[4 * 3 * 8 * 8];
static const int64_t labels[4] = { 3, 0, 4, 1 };
static float lr = 0.1f;

static void bind_all(td_program *p, bool is_training)
{
    for (int i = 0; i < 4 * 3 * 8 * 8; i++)
        images[i] = (float)sin(0.37 * i) + 0.1f * (float)(i % 7);
    expect_ok(td_program_bind(p, "images", images));
    if (!is_training)
        return;
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_bind(p, "lr", &lr));
}

static float loss_of(td_program *p)
{
    expect_ok(td_program_run(p));
    return *(const float *)td_program_output(p, "loss", NULL);
}

/* --- what it does ----------------------------------------------------------------------------- */

static void a_network_learns(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        fixture f = compiled(td_test_training, devices[d], NULL);
        expect_ok(td_program_init(f.p, 1));
        bind_all(f.p, true);
        float first = loss_of(f.p), last = first;
        for (int i = 0; i < 20; i++)
            last = loss_of(f.p);
        assert_true(isfinite(first) && last < 0.8f * first);
        td_type t;
        assert_non_null(td_program_output(f.p, "logits", &t));
        assert_int_equal(t.rank, 2);
        assert_int_equal(t.dim[1], 5);
        assert_null(td_program_output(f.p, "nobody", &t));
        release(&f);
    }
}

static void devices_and_passes_agree(void **state)
{
    (void)state;
    static const char *const skips[] = { NULL, "layout", "fuse", "fold,fuse,layout,clean,order" };
    float wanted[10] = { 0 };
    for (int i = 0; i < 8; i++) {
        fixture f = compiled(td_test_inference, devices[i % 2], skips[i / 2]);
        expect_ok(td_program_init(f.p, 7));
        bind_all(f.p, false);
        expect_ok(td_program_run(f.p));
        const float *y = td_program_output(f.p, "logits", NULL);
        for (int k = 0; k < 10; k++) {
            if (i == 0)
                wanted[k] = y[k];
            assert_true(fabsf(y[k] - wanted[k]) < 1e-5f * (1 + fabsf(wanted[k])));
        }
        release(&f);
    }
}

static void parameters_come_back_as_they_were_set(void **state)
{
    (void)state;
    int n_blocked = 0;
    for (int d = 0; d < 2; d++) {
        fixture f = compiled(td_test_training, devices[d], NULL);
        char *text;
        expect_ok(td_program_print(f.p, &text));
        n_blocked += strstr(text, "@") != NULL;
        td_text_free(text);
        assert_int_equal(td_program_param_count(f.p), 11);
        for (int i = 0; i < td_program_param_count(f.p); i++) {
            td_type t = td_program_param_type(f.p, i);
            assert_string_equal(t.layout, "");
            int64_t n = td_type_count(&t);
            float *in = td_alloc((size_t)n, 4), *out = td_alloc((size_t)n, 4);
            assert_true(in && out);
            for (int64_t k = 0; k < n; k++)
                in[k] = (float)(1000 * i + k);
            expect_ok(td_program_set(f.p, td_program_param_name(f.p, i), in));
            expect_ok(td_program_get(f.p, td_program_param_name(f.p, i), out));
            assert_memory_equal(in, out, (size_t)n * 4);
            td_free(in);
            td_free(out);
        }
        release(&f);
    }
    assert_int_equal(n_blocked, TD_HAVE_DNNL);
}

static void parameters_have_names_and_roles(void **state)
{
    (void)state;
    fixture f = compiled(td_test_training, "ref", NULL);
    assert_string_equal(td_program_param_name(f.p, 0), "conv.weight");
    assert_string_equal(td_program_param_role(f.p, 0), "weight");
    assert_string_equal(td_program_param_role(f.p, 1), "momentum");
    assert_string_equal(td_program_param_role(f.p, 4), "stat");
    assert_null(td_program_param_name(f.p, 11));
    assert_null(td_program_param_name(f.p, -1));
    assert_null(td_program_param_role(f.p, 11));
    assert_int_equal(td_program_param_type(f.p, 11).rank, 0);
    release(&f);
}

static void initial_values_depend_on_seed_and_name_only(void **state)
{
    (void)state;
    float ref[16 * 16 * 9], now[16 * 16 * 9];
    for (int i = 0; i < 5; i++) {
        fixture f = compiled(i < 4 ? td_test_training : td_test_inference, devices[i % 2],
                             i / 2 == 1 ? "layout" : NULL);
        expect_ok(td_program_init(f.p, 5));
        expect_ok(td_program_get(f.p, "conv2.weight", i ? now : ref));
        if (i > 0)
            assert_memory_equal(ref, now, sizeof ref);
        expect_ok(td_program_get(f.p, "bn.var", now));
        assert_true(now[0] == 1 && now[15] == 1);
        expect_ok(td_program_init(f.p, 6));
        expect_ok(td_program_get(f.p, "conv2.weight", now));
        assert_memory_not_equal(ref, now, sizeof ref);
        float bound[25 * 16];
        expect_ok(td_program_get(f.p, "fc.weight", bound));
        for (int k = 0; k < 80; k++)
            assert_true(fabsf(bound[k]) <= 0.25f);
        release(&f);
    }
    double sum = 0, squares = 0;
    for (int i = 0; i < 2304; i++) {
        sum += (double)ref[i];
        squares += (double)ref[i] * (double)ref[i];
    }
    assert_true(fabs(sum / 2304) < 0.01 && fabs(sqrt(squares / 2304) - 0.1) < 0.01);
}

static void float64_begins_with_the_same_numbers(void **state)
{
    (void)state;
    fixture f =
        compiled("%w:f32[9] = param {init=normal}\n%y = relu %w\noutput y = %y\n", "ref", NULL);
    fixture d =
        compiled("%w:f64[9] = param {init=normal}\n%y = relu %w\noutput y = %y\n", "ref", NULL);
    float a[9];
    double b[9];
    expect_ok(td_program_init(f.p, 3));
    expect_ok(td_program_init(d.p, 3));
    expect_ok(td_program_get(f.p, "w", a));
    expect_ok(td_program_get(d.p, "w", b));
    for (int i = 0; i < 9; i++)
        assert_true((double)a[i] == b[i]);
    release(&f);
    release(&d);
    fixture h =
        compiled("%w:bf16[9] = param {init=normal}\n%y = relu %w\noutput y = %y\n", "ref", NULL);
    float wide[9];
    expect_ok(td_program_init(h.p, 3)); /* half inside, float32 outside: the same numbers rounded */
    expect_ok(td_program_get(h.p, "w", wide));
    assert_int_equal(td_program_param_type(h.p, 0).dtype, TD_DT_F32);
    for (int i = 0; i < 9; i++)
        assert_true(wide[i] == td_bf16_to_f32(td_f32_to_bf16(a[i])));
    release(&h);
}

static void setup_runs_again_after_a_parameter_was_set(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        fixture f = compiled(td_test_inference, devices[d], NULL);
        fixture plain = compiled(td_test_inference, "ref", "fold,fuse,layout,clean,order");
        int n_setup = 0;
        for (int i = 0; i < td_program_node_count(f.p); i++)
            n_setup += td_program_node(f.p, i).is_setup;
        assert_true(n_setup >= 10); /* two folded norms */
        for (int round = 0; round < 3; round++) {
            static const char *const changed[] = { "bn.weight", "bn.var", "bn2.mean" };
            float value[16];
            for (int k = 0; k < 16; k++)
                value[k] = 0.5f + 0.1f * (float)(k + round);
            if (round == 0) {
                expect_ok(td_program_init(f.p, 2));
                expect_ok(td_program_init(plain.p, 2));
            }
            bind_all(f.p, false);
            bind_all(plain.p, false);
            expect_ok(td_program_set(f.p, changed[round], value));
            expect_ok(td_program_set(plain.p, changed[round], value));
            for (int again = 0; again < 2; again++) {
                expect_ok(td_program_run(f.p));
                expect_ok(td_program_run(plain.p));
                const float *y = td_program_output(f.p, "logits", NULL);
                const float *z = td_program_output(plain.p, "logits", NULL);
                for (int k = 0; k < 10; k++)
                    assert_true(fabsf(y[k] - z[k]) < 1e-4f * (1 + fabsf(z[k])));
            }
        }
        release(&f);
        release(&plain);
    }
}

static void inputs_may_be_bound_anew_and_seen_through_reshapes(void **state)
{
    (void)state;
    fixture f = compiled("%x:f32[2,3] = input\n%y:f32[2] = input\n%r = reshape %x {shape=3:2}\n"
                         "%s = add %r, %y\noutput s = %s\noutput r = %r\noutput x = %x\n",
                         "cpu", NULL);
    float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 10, 20, 30, 40, 50, 60 }, y[2] = { 100, 200 };
    expect_error(td_program_run(f.p), TD_EARG, "input 'x' was never bound");
    expect_ok(td_program_bind(f.p, "x", a));
    expect_error(td_program_run(f.p), TD_EARG, "input 'y' was never bound");
    expect_ok(td_program_bind(f.p, "y", y));
    expect_ok(td_program_run(f.p));
    const float *s = td_program_output(f.p, "s", NULL);
    assert_true(s[0] == 101 && s[5] == 206);
    expect_ok(td_program_bind(f.p, "x", b));
    expect_ok(td_program_run(f.p));
    s = td_program_output(f.p, "s", NULL);
    assert_true(s[0] == 110 && s[5] == 260);
    assert_memory_equal(td_program_output(f.p, "r", NULL), b, sizeof b);
    assert_memory_equal(td_program_output(f.p, "x", NULL), b, sizeof b);
    release(&f);
}

static void a_program_needs_no_graph_once_compiled(void **state)
{
    (void)state;
    fixture f = compiled(td_test_inference, "cpu", NULL);
    td_graph_free(f.g);
    f.g = NULL;
    expect_ok(td_program_init(f.p, 1));
    bind_all(f.p, false);
    expect_ok(td_program_run(f.p));
    char *text;
    expect_ok(td_program_print(f.p, &text));
    assert_non_null(strstr(text, "conv2d_fused"));
    td_text_free(text);
    release(&f);
}

static void two_reshapes_and_a_residual_that_is_the_image(void **state)
{
    (void)state;
    /* the planner's two traps, through real kernels */
    static const char text[] =
        "%x:f32[1,16,6,6] = input\n%w:f32[16,16,3,3] = param {init=normal, scale=0.1}\n"
        "%c:f32[16] = param {init=ones}\n"
        "%a = scale %x {by=2}\n%b = conv2d_fused %a, %w, %c, %a {pad=1, relu=true}\n"
        "%r = reshape %b {shape=4:144}\n%s = reshape %b {shape=12:48}\n"
        "%u = softmax %r\n%v = softmax %s\noutput u = %u\noutput v = %v\n";
    float x[16 * 36], wanted[2][16 * 36];
    for (int i = 0; i < 16 * 36; i++)
        x[i] = (float)cos(0.7 * i);
    for (int d = 0; d < 4; d++) {
        fixture f = compiled(text, devices[d % 2], d < 2 ? "fold,fuse,layout,clean,order" : NULL);
        expect_ok(td_program_init(f.p, 1));
        expect_ok(td_program_bind(f.p, "x", x));
        expect_ok(td_program_run(f.p));
        for (int k = 0; k < 2; k++) {
            const float *y = td_program_output(f.p, k ? "v" : "u", NULL);
            for (int i = 0; i < 16 * 36; i++) {
                if (d == 0)
                    wanted[k][i] = y[i];
                assert_true(fabsf(y[i] - wanted[k][i]) < 1e-5f);
            }
        }
        release(&f);
    }
}

/* --- reports ---------------------------------------------------------------------------------- */

static void a_program_tells_about_its_nodes(void **state)
{
    (void)state;
    fixture f = compiled(td_test_inference, "ref", NULL);
    int64_t macs = 0;
    bool has_conv = false;
    for (int i = 0; i < td_program_node_count(f.p); i++) {
        td_node_report r = td_program_node(f.p, i);
        macs += r.macs;
        if (strcmp(r.op, "conv2d_fused") == 0) {
            has_conv = true;
            assert_string_equal(r.kernel, "ref_conv2d_fused");
            assert_non_null(strstr(r.text, " = conv2d_fused "));
        }
        if (strcmp(r.op, "param") == 0)
            assert_string_equal(r.kernel, "");
        assert_true(r.seconds == 0);
    }
    assert_true(has_conv);
    assert_true(macs == td_graph_macs(f.g));

    td_program_profile(f.p, true);
    expect_ok(td_program_init(f.p, 1));
    bind_all(f.p, false);
    expect_ok(td_program_run(f.p));
    expect_ok(td_program_run(f.p));
    assert_int_equal(td_program_run_count(f.p), 2);
    double seconds = 0;
    for (int i = 0; i < td_program_node_count(f.p); i++)
        seconds += td_program_node(f.p, i).seconds;
    assert_true(seconds > 0);
    double best = -1;
    expect_ok(td_program_time(f.p, td_program_node_count(f.p) - 1, 3, &best));
    assert_true(best >= 0);

    td_memory_report m = td_program_memory(f.p);
    assert_true(m.param_bytes > 0 && m.activation_bytes >= m.peak_live_bytes);
    assert_true(m.unplanned_bytes > 0 && m.peak_live_bytes >= m.scratch_bytes);
    release(&f);
}

typedef struct {
    int n;
    char names[32][24];
} dumps;

static void note(void *ctx, const char *pass, const char *text)
{
    dumps *d = ctx;
    td_graph *g;
    assert_true(d->n < (int)(sizeof d->names / sizeof d->names[0]));
    snprintf(d->names[d->n++], sizeof d->names[0], "%s", pass);
    expect_ok(td_graph_parse(text, pass, &g)); /* a dump is a graph again */
    td_graph_free(g);
}

static void passes_are_dumped_and_skipped(void **state)
{
    (void)state;
    td_device *dev;
    td_program *p;
    td_graph *g = td_test_graph(td_test_training);
    expect_ok(td_device_open("cpu", &dev));
    dumps all = { 0 }, some = { 0 };
    expect_ok(td_compile(
        g, dev, &(td_compile_opts){ .dump_after = "all", .dump = note, .dump_ctx = &all }, &p));
    td_program_free(p);
    const char *name, *summary;
    int n = 0;
    for (; (name = td_pass_name_at(n, &summary)); n++) {
        assert_string_equal(all.names[n], name);
        assert_true(*summary);
    }
    assert_int_equal(all.n, n);
    expect_ok(td_compile(g, dev,
                         &(td_compile_opts){ .skip = "fuse,clean",
                                             .dump_after = "order,fuse,grad",
                                             .dump = note,
                                             .dump_ctx = &some },
                         &p));
    td_program_free(p);
    assert_int_equal(some.n, 2);
    assert_string_equal(some.names[0], "grad");
    assert_string_equal(some.names[1], "order");
    td_device_close(dev);
    td_graph_free(g);
}

/* --- errors ----------------------------------------------------------------------------------- */

static void expect_no_program(const char *text, td_compile_opts opts, td_status st,
                              const char *part)
{
    td_device *dev;
    td_program *p = (td_program *)&p;
    td_graph *g = td_test_graph(text);
    int64_t live = td_alloc_live();
    expect_ok(td_device_open("cpu", &dev));
    expect_error(td_compile(g, dev, &opts, &p), st, part);
    assert_null(p);
    td_device_close(dev);
    assert_int_equal(td_alloc_live(), live);
    td_graph_free(g);
}

static void what_cannot_be_compiled_says_why(void **state)
{
    (void)state;
    const td_compile_opts none = { 0 };
    expect_no_program(td_test_inference, (td_compile_opts){ .skip = "fuze" }, TD_EUSAGE, "'fuze'");
    expect_no_program(td_test_inference, (td_compile_opts){ .skip = "fuse,grad" }, TD_EUSAGE,
                      "'grad'");
    expect_no_program(td_test_inference, (td_compile_opts){ .skip = "all" }, TD_EUSAGE,
                      "--skip-passes: 'all' is");
    expect_no_program(td_test_inference, (td_compile_opts){ .dump_after = "fuse,,layout" },
                      TD_EUSAGE, "--dump-after: '' is not");
    expect_no_program("%x:f32[2,20,4,4]@aBcd16b = input\n%y:f32[2,20,1,1]@aBcd16b = input\n"
                      "%z = add %x, %y\noutput z = %z\n",
                      (td_compile_opts){ .skip = "layout" }, TD_ENOKERNEL,
                      "no kernel for '%z:f32[2,20,4,4]@aBcd16b = add %x, %y' (");
    expect_no_program("%x:f32[4] = input\n%w:f32[4] = param\n%l = mean %x\n%g = gradient %l, %w\n"
                      "output g = %g\n",
                      none, TD_EARG, "gradient: '%l' does not depend on '%w'");
    expect_no_program("%x:f32[1,4,4,4] = input\n%w:f32[4,4,1,1] = param\n%y = conv2d_fused %x, %w\n"
                      "%l = mean %y\n%g = gradient %l, %w\noutput g = %g\n",
                      none, TD_EUNSUPPORTED, "pass grad: conv2d_fused has no gradient");
    expect_no_program(
        "%x:f32[1,4,4,4] = param\n%w:f32[4] = param\n%y, %m, %v = batch_norm %x, %w, %w\n"
        "%l = mean %m\n%g = gradient %l, %x\noutput g = %g\n",
        none, TD_EUNSUPPORTED, "through its mean and variance");
}

static void what_no_machine_holds_is_refused(void **state)
{
    (void)state;
    td_text text = { 0 };
    td_text_add(&text, "%%x:u8[1099511627776] = input\n");
    for (int i = 0; i < 200; i++) /* 200 TiB at once: more than there are addresses */
        td_text_add(&text, "%%y%d = slice %%x {axis=0, size=1099511627776}\noutput y%d = %%y%d\n",
                    i, i, i);
    expect_no_program(td_text_get(&text), (td_compile_opts){ .skip = "clean" }, TD_ENOMEM,
                      "219902325.6");
    td_text_release(&text);
}

static void names_are_checked(void **state)
{
    (void)state;
    fixture f = compiled(td_test_inference, "ref", NULL);
    float data[16];
    expect_error(td_program_bind(f.p, "nobody", data), TD_ENOTFOUND,
                 "the program has no input 'nobody'");
    expect_error(td_program_bind(f.p, "bn.bias", data), TD_ENOTFOUND, "no input 'bn.bias'");
    expect_error(td_program_bind(f.p, "images", NULL), TD_EARG, "input 'images': no data");
    expect_error(td_program_get(f.p, "images", data), TD_ENOTFOUND, "no parameter 'images'");
    expect_error(td_program_set(f.p, "nobody", data), TD_ENOTFOUND, "no parameter 'nobody'");
    release(&f);
    td_program_free(NULL);
}

static void broken_graphs_are_not_compiled(void **state)
{
    (void)state;
    td_device *dev;
    td_program *p;
    td_graph *g = td_test_graph("%x:f32[2,3] = input\n%y = relu %x\noutput y = %y\n");
    g->values[1]->type.dim[0] = 3;
    expect_ok(td_device_open("ref", &dev));
    expect_error(td_compile(g, dev, NULL, &p), TD_ESHAPE, "node 1: relu: '%y' is declared");
    assert_null(p);
    td_device_close(dev);
    td_graph_free(g);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void runs_take_no_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture f = compiled(i < 2 ? td_test_training : td_test_inference, devices[i % 2], NULL);
        expect_ok(td_program_init(f.p, 1));
        bind_all(f.p, i < 2);
        expect_ok(td_program_run(f.p));
        int64_t count = td_alloc_count();
        td_alloc_fail_at(1);
        td_status st = TD_OK;
        for (int k = 2; k <= 5 && st == TD_OK; k++)
            st = td_program_run(f.p);
        td_alloc_fail_at(0);
        expect_ok(st);
        assert_int_equal(td_alloc_count(), count);
        release(&f);
    }
}

static td_status compile_once(const char *text, const char *device)
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_status st = td_graph_parse(text, "text", &g);
    if (st == TD_OK)
        st = td_device_open(device, &dev);
    if (st == TD_OK)
        st = td_compile(g, dev, NULL, &p);
    if (st == TD_OK)
        st = td_program_init(p, 1);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *text = i < 2 ? td_test_training : td_test_inference;
        expect_ok(compile_once(text, devices[i % 2])); /* what a library keeps is there now */
        int64_t live = td_alloc_live();
        int n = 1;
        for (;; n++) {
            td_alloc_fail_at(n);
            td_status st = compile_once(text, devices[i % 2]);
            td_alloc_fail_at(0);
            if (td_alloc_live() != live)
                fail_msg("%s, call %d: %lld blocks left", devices[i % 2], n,
                         (long long)(td_alloc_live() - live));
            if (st == TD_OK)
                break;
            expect_error(st, TD_ENOMEM, "");
        }
        assert_true(n > 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_learns),
        cmocka_unit_test(devices_and_passes_agree),
        cmocka_unit_test(parameters_come_back_as_they_were_set),
        cmocka_unit_test(parameters_have_names_and_roles),
        cmocka_unit_test(initial_values_depend_on_seed_and_name_only),
        cmocka_unit_test(float64_begins_with_the_same_numbers),
        cmocka_unit_test(setup_runs_again_after_a_parameter_was_set),
        cmocka_unit_test(inputs_may_be_bound_anew_and_seen_through_reshapes),
        cmocka_unit_test(a_program_needs_no_graph_once_compiled),
        cmocka_unit_test(two_reshapes_and_a_residual_that_is_the_image),
        cmocka_unit_test(a_program_tells_about_its_nodes),
        cmocka_unit_test(passes_are_dumped_and_skipped),
        cmocka_unit_test(what_cannot_be_compiled_says_why),
        cmocka_unit_test(what_no_machine_holds_is_refused),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(broken_graphs_are_not_compiled),
        cmocka_unit_test(runs_take_no_memory),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
