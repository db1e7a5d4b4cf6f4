/*
 * native_panels_bf16.c -- fully connected layers of many rows, for inference in bfloat16 with
 * AVX-512: native_panels.c with pairs of channels
 *
 * A job is a block of rows, which stay in a core's cache, and a group of panels.  A row's sums do
 * not depend on the division: the same bits in any batch and with any number of threads.
 */
#include "backend/native/linear/native_panels_bf16.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/linear/native_panels.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    ROWS_MIN = 9,            /* fewer: native_linear.c */
    CHANNELS = 32,           /* a multiple of it */
    BLOCK_BYTES = 640 << 10, /* limit of the rows of a block */
    BLOCK_ROWS = 200,
};

static const td_node_layouts layouts = { .in = { "", "AB16b32a2b", "", "" }, .out = "" };

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    if (x->dtype != TD_DT_BF16 || !td_half_panels_loops_here())
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    TD_TRY(td_native_check_no_amx());
    if (n->n_in > 2 && td_in_type(n, 2)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the bias is %s", td_dtype_name(td_in_type(n, 2)->dtype));
    if (x->dim[0] < ROWS_MIN)
        return td_error(TD_ENOKERNEL, "less than %d rows", ROWS_MIN);
    if (w->dim[0] % TD_PANEL || w->dim[1] % CHANNELS)
        return td_error(TD_ENOKERNEL, "%lld x %lld does not fill panels of %d x %d",
                        (long long)w->dim[0], (long long)w->dim[1], TD_PANEL, CHANNELS);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    return td_native_check_layouts(n, &layouts);
}

bool td_native_panels_bf16_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if (n->op != &td_op_linear_fused || check(n) != TD_OK)
        return false;
    *out = layouts;
    return true;
}

static td_panel_jobs divide(const td_node *n, int threads)
{
    const int64_t N = td_in_type(n, 0)->dim[0], K = td_in_type(n, 1)->dim[0];
    const int64_t row = td_in_type(n, 1)->dim[1] * (int64_t)sizeof(uint16_t);
    const int64_t room = larger(smaller(BLOCK_BYTES / row, BLOCK_ROWS), 1);
    return td_native_panels_divide(divide_up(N, room), K / TD_PANEL, threads);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    (void)n;
    out->scratch_bytes = td_native_turns_bytes(td_threads());
    return TD_OK;
}

/* what all jobs work with */
typedef struct {
    const td_node *n;
    const td_panel_jobs *jobs;
    void *const *args;
} call;

static void run_job(const void *context, int i, int thread)
{
    const call *c = context;
    const td_node *n = c->n;
    void *const *args = c->args;
    (void)thread;
    const int64_t N = td_in_type(n, 0)->dim[0], C = td_in_type(n, 1)->dim[1];
    const int64_t K = td_in_type(n, 1)->dim[0];
    const td_panel_job j = td_native_panels_job(c->jobs, N, K / TD_PANEL, i);
    const int64_t at = j.from * K + j.first * TD_PANEL;
    const td_half_panels v = {
        .rows = j.to - j.from,
        .panels = j.panels,
        .depth = C,
        .x_row = C,
        .y_row = K,
        .x = (const uint16_t *)args[0] + j.from * C,
        .w = (const uint16_t *)args[1] + j.first * TD_PANEL * C,
        .bias = n->n_in > 2 ? (const float *)args[2] + j.first * TD_PANEL : NULL,
        .rest = n->n_in > 3 ? (const uint16_t *)args[3] + at : NULL,
        .y = (uint16_t *)args[n->n_in] + at,
        .gelu = ((const td_linear_fused_attr *)n->attr)->gelu,
    };
    td_half_panels_loops_here()(&v);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const int threads = td_threads();
    const td_panel_jobs jobs = divide(p->node, threads);
    const call c = { p->node, &jobs, args };
    td_native_take_turns(
        &(td_native_turns){ (int)(jobs.blocks * jobs.groups), threads, run_job, &c },
        args[p->node->n_in + 1]);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_panel_jobs jobs = divide(n, threads);
    return td_native_panels_share(&jobs, td_in_type(n, 0)->dim[0],
                                  td_in_type(n, 1)->dim[0] / TD_PANEL, threads);
}

const td_kernel td_native_linear_panels_bf16 = { .name = "native_linear_panels_bf16",
                                                 .op = &td_op_linear_fused,
                                                 .accepts = accepts,
                                                 .prepare = prepare,
                                                 .run = run,
                                                 .share = share };
