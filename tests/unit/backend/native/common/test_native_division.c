/*
 * test_native_division.c -- the work of every kernel of a training step is divided evenly among 1
 * to 128 threads: the shares come from the functions that the kernels divide their work with
 */
#include "support/expect.h"

#include <stdatomic.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/simd/native_simd.h"
#include "ops/ops.h"
#include "optim/synthetic_step.h"
#include "pass/pass.h"
#include "runtime/device.h"
#include "runtime/kernel_choice.h"
#include "tandem/program.h"

enum { THREADS_MAX = 128 };

/* --- elements and planes ---------------------------------------------------------------------- */

static void check_pieces(int64_t count, int64_t unit, int threads)
{
    const td_native_pieces p = td_native_divide(count, unit, threads);
    int64_t sum = 0, n = 0;
    assert_in_range(p.each, 1, TD_NATIVE_PIECE);
    assert_int_equal(p.each % unit, 0);
    for (int64_t i = 0; i < p.count; i += p.each, n++)
        sum += td_native_piece_at(&p, i);
    assert_int_equal(sum, count);
    assert_int_equal(n, p.n);
    if (count <= TD_NATIVE_PIECE)
        assert_true(p.n <= 1);
    const td_work_share s = td_native_pieces_share(&p, threads);
    assert_true(s.largest >= s.mean);
    const double step = (double)(unit > TD_NATIVE_PIECE_MIN ? unit : TD_NATIVE_PIECE_MIN);
    const double jobs = (double)((p.n + threads - 1) / threads); /* of one thread */
    if (p.n > 1 && s.largest > s.mean * 1.05)
        assert_true(s.largest - s.mean <= step * jobs + (double)unit);
}

static void pieces_cover_all_elements_evenly(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0,       1,       63,       2048,     16384,  16385,
                                      65536,   100352,  147456,   589824,   802816, 2359296,
                                      1605632, 3211264, 25690112, 102760448 };
    static const int64_t units[] = { 1, 64, 256, 4096 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int threads = 1; threads <= THREADS_MAX; threads++)
            for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
                if (counts[c] % units[u] == 0)
                    check_pieces(counts[c], units[u], threads);
}

/* every pixel in exactly one span, in order; spans begin at multiples of the grain */
static void check_planes(const td_native_planes *d)
{
    int64_t at = 0;
    double largest = 0;
    for (int t = 0; t < d->threads; t++) {
        int64_t share = 0;
        for (td_native_span s = td_native_span_first(d, t); td_native_span_next(d, &s);) {
            assert_int_equal(s.plane * d->area + s.from, at);
            assert_int_equal(s.from % d->grain, 0);
            assert_in_range(s.n, 1, d->area - s.from);
            at += s.n;
            share += s.n;
        }
        largest = (double)share > largest ? (double)share : largest;
    }
    const td_work_share s = td_native_planes_share(d);
    assert_int_equal(at, d->n_planes * d->area);
    assert_true(s.largest == largest);
    assert_true(s.largest - s.mean <= (double)d->grain);
}

static void spans_cover_all_pixels_evenly(void **state)
{
    (void)state;
    static const int64_t areas[] = { 1, 49, 196, 1024, 1600, 3136, 12544 };
    static const int64_t planes[] = { 1, 4, 13, 128, 512 };
    static const int64_t grains[] = { 1, TD_NATIVE_GRAIN, TD_NATIVE_CHUNK };
    for (size_t a = 0; a < sizeof areas / sizeof areas[0]; a++)
        for (size_t p = 0; p < sizeof planes / sizeof planes[0]; p++)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++)
                for (int threads = 1; threads <= THREADS_MAX; threads++)
                    check_planes(&(td_native_planes){ planes[p], areas[a], grains[g], threads });
}

/* --- tiles, blocks and jobs ------------------------------------------------------------------- */

static void check_cells(const td_native_grid *g, int threads)
{
    int64_t sum = 0, largest = 0;
    assert_in_range(g->tile_parts * g->block_parts, 1, threads);
    for (int t = 0; t < g->tile_parts * g->block_parts; t++) {
        const td_native_cell c = td_native_grid_cell(g, t);
        const int64_t n = (c.to - c.from) * (c.block_to - c.block_from);
        sum += n;
        largest = larger(largest, n);
    }
    assert_int_equal(sum, g->tiles * g->blocks);
    assert_int_equal((int64_t)td_native_grid_share(g, 1, threads).largest, largest);
}

static void check_grid(int64_t tiles, int64_t blocks, int threads)
{
    const td_native_grid_bytes bytes = { 1e6, 1e5, 1e6 };
    const td_native_grid g = td_native_grid_divide(tiles, blocks, 1e6, 1e5, threads);
    const td_native_grid h = td_native_grid_divide_by_time(tiles, blocks, 64, &bytes, threads);
    check_cells(&g, threads);
    check_cells(&h, threads);
}

static void grids_cover_all_blocks(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads++) {
        check_grid(1, 1, threads);
        check_grid(7, 64, threads);
        check_grid(3136, 2, threads);
        check_grid(49, 16, threads);
    }
}

/* a 1x1 convolution of 8-bit integers: pixels by blocks of 64 channels */
static td_native_grid pointwise(int64_t pixels, int64_t C, int64_t K, int threads)
{
    const td_native_grid_bytes bytes = { (double)(pixels * C), (double)(C * K),
                                         (double)(pixels * K) };
    return td_native_grid_divide_by_time(pixels, K / 64, (double)C, &bytes, threads);
}

static void expect_parts(td_native_grid g, int tile_parts, int block_parts)
{
    assert_int_equal(g.tile_parts, tile_parts);
    assert_int_equal(g.block_parts, block_parts);
}

static void threads_keep_their_pixels(void **state)
{
    (void)state;
    /* large planes, odd ones too, by pixels; small ones with many channels by channels */
    expect_parts(pointwise(56 * 56, 64, 256, 2), 2, 1);
    expect_parts(pointwise(57 * 57, 64, 256, 2), 2, 1);
    expect_parts(pointwise(14 * 14, 256, 1024, 2), 2, 1);
    expect_parts(pointwise(7 * 7, 512, 2048, 2), 1, 2);
    expect_parts(pointwise(32 * 7 * 7, 512, 2048, 2), 2, 1);
    /* where threads are many, both */
    expect_parts(pointwise(7 * 7, 512, 2048, 1), 1, 1);
    const td_native_grid many = pointwise(7 * 7, 512, 2048, 64);
    assert_true(many.tile_parts > 1 && many.block_parts > 1);
}

typedef struct {
    atomic_int n_runs[100];
} runs;

static void count_run(const void *context, int job, int thread)
{
    runs *r = *(runs *const *)context;
    assert_in_range(thread, 0, 7);
    atomic_fetch_add(&r->n_runs[job], 1);
}

static void jobs_run_once(void **state)
{
    (void)state;
    static _Alignas(64) char scratch[8 * 64];
    for (int threads = 1; threads <= 8; threads++)
        for (int jobs = 0; jobs <= 100; jobs += 1 + jobs / 3) {
            runs r = { { 0 } }, *context = &r;
            assert_in_range(td_native_turns_bytes(threads), 0, sizeof scratch);
            td_native_take_turns(&(td_native_turns){ jobs, threads, count_run, &context }, scratch);
            for (int i = 0; i < 100; i++)
                assert_int_equal(r.n_runs[i], i < jobs);
        }
}

/* --- networks --------------------------------------------------------------------------------- */

/*
 * The busiest thread may have a quarter more than the mean, or what one more barrier would cost: a
 * chunk of a plane.
 */
#define RATIO_MAX  1.25
#define EXCESS_MAX (TD_NATIVE_CHUNK * 16)

/* Filter gradients in bf16 are divided into whole images and blocks of 16 channels: 8 images of 64
   channels are 32 jobs.  From this on oneDNN's own division is used. */
#define CONV_MAX 2

/* Grouped convolutions are divided into whole images of 16 or 32 channels, and their filter
   gradients into 64 jobs, whose number decides the order of the sums.  So do the images' parts of
   gradients with AMX, and jobs that differ by one block of channels. */
#define GROUPED_MAX 2

typedef struct {
    int n_nodes, n_divided;
    double worst, worst_conv;
} outcome;

static const char conv_parts[] = "dnnl_conv_grad_w_parts", grouped[] = "native_grouped_conv",
                  amx[] = "native_amx_conv_grad_w";

static double ratio_max(const td_kernel *k)
{
    return strncmp(k->name, grouped, strlen(grouped)) == 0 || strcmp(k->name, amx) == 0
               ? GROUPED_MAX
               : RATIO_MAX;
}

static void check_refused(const td_kernel *k, const td_node *n, int threads)
{
    if (threads < THREADS_MAX) /* it takes milliseconds */
        return;
    const int before = td_threads();
    td_set_threads(threads);
    const td_status st = k->accepts(n);
    td_set_threads(before);
    assert_int_equal(st, TD_ENOKERNEL);
}

static void check_node(const td_kernel *k, const td_node *n, int i, outcome *o)
{
    o->n_nodes++;
    if (!k->share)
        return;
    o->n_divided++;
    for (int threads = 1; threads <= THREADS_MAX; threads++) {
        const td_work_share s = k->share(n, threads);
        const double ratio = s.mean > 0 ? s.largest / s.mean : 1;
        assert_true(ratio > 0.999);
        if (s.largest - s.mean <= EXCESS_MAX)
            continue;
        if (s.largest >= CONV_MAX * s.mean && strcmp(k->name, conv_parts) == 0) {
            check_refused(k, n, threads);
            continue;
        }
        const bool is_conv = strcmp(k->name, conv_parts) == 0;
        double *worst = is_conv ? &o->worst_conv : &o->worst;
        *worst = ratio > *worst ? ratio : *worst;
        if (ratio > ratio_max(k) && !is_conv)
            fail_msg("%s, node %d, %d threads: the busiest has %.0f elements, the mean is %.0f",
                     k->name, i, threads, s.largest, s.mean);
    }
}

/* libraries divide the work of their kernels */
static bool is_exempt(const td_kernel *k)
{
    return strncmp(k->name, "native_", 7) != 0;
}

static void check_network(const char *arch, int batch, td_precision precision)
{
    td_device *dev;
    td_graph *g, *out;
    td_model_opts model;
    td_amp_opts amp;
    outcome o = { 0 };
    td_amp_defaults(&amp);
    td_model_defaults(&model);
    amp.precision = precision;
    amp.is_silent = true;
    model.arch = arch;
    expect_ok(td_model_resolve(&model));
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_step_graph(&model, batch, &amp, 1, NULL, &g));
    expect_ok(td_pass_run_all(g, &dev->target, &(td_pass_opts){ .amp = &amp }, &out));
    for (int i = 0; i < out->n_nodes; i++) {
        const td_node *n = out->nodes[i];
        if (n->op->is_leaf || n->op->is_alias)
            continue;
        const td_kernel *k = td_device_select(dev, n, NULL);
        assert_non_null(k);
        if (!k->share && !is_exempt(k))
            fail_msg("%s does not tell how it divides its work", k->name);
        check_node(k, n, i, &o);
    }
    print_message("%s, batch %d: %d of %d nodes divide their work, worst %.2f; bf16 filters %.2f\n",
                  arch, batch, o.n_divided, o.n_nodes, o.worst, o.worst_conv);
    assert_true(o.n_divided > 100);
    td_graph_free(out);
    td_graph_free(g);
    td_device_close(dev);
}

static void the_nodes_of_resnet50_are_divided_evenly(void **state)
{
    (void)state;
    check_network("resnet50", 32, TD_PRECISION_FP32);
    check_network("resnet50", 32, TD_PRECISION_BF16);
}

/* with AVX-512 or AVX2 it has grouped kernels of ours */
static void the_nodes_of_resnext50_are_divided_evenly(void **state)
{
    (void)state;
    check_network("resnext50-32x4d", 32, TD_PRECISION_FP32);
}

static void the_nodes_of_ssd320_are_divided_evenly(void **state)
{
    (void)state;
    check_network("ssd320", 8, TD_PRECISION_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_all_elements_evenly),
        cmocka_unit_test(spans_cover_all_pixels_evenly),
        cmocka_unit_test(grids_cover_all_blocks),
        cmocka_unit_test(threads_keep_their_pixels),
        cmocka_unit_test(jobs_run_once),
        cmocka_unit_test(the_nodes_of_resnet50_are_divided_evenly),
        cmocka_unit_test(the_nodes_of_resnext50_are_divided_evenly),
        cmocka_unit_test(the_nodes_of_ssd320_are_divided_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
