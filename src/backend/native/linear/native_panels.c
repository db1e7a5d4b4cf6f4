/*
 * native_panels.c -- fully connected layers of many rows and 1x1 convolutions with channels last,
 * whose pixels are rows, in float32 with AVX-512
 *
 * In inference filters are in panels.  In training they change with every step: the forward layer
 * and the gradient of its input, dx = dy w, pack them first, in every run.
 *
 *     jobs    blocks of rows x groups of panels (native_panels.h), taken in turn by the threads
 *
 * Some channels of a block of rows stay in a core's cache while all of a job's panels are
 * multiplied with them.  Rows whose distance makes them share a few sets of the cache are copied
 * apart first, which pays if there are many outputs.  A row's sums do not depend on the division:
 * the same bits in any batch and with any number of threads.
 */
#include "backend/native/linear/native_panels.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    ROWS_MIN = 9,            /* fewer: native_linear.c */
    DEPTH_MAX = 768,         /* channels at a time */
    BLOCK_BYTES = 640 << 10, /* limit of the rows of a block */
    BLOCK_ROWS = 448,
    FILTER_BYTES = 256 << 10, /* limit of a job's filters that stay in the cache */
    JOBS = 4,                 /* per thread; where there are fewer, all threads get equally many */
    GAP = 16,                 /* floats by which rows TD_PANEL_FAR apart are copied further apart */
    PACKED_ROWS_MIN = 512,    /* fewer: to pack the filters takes too long */
    PACKED_PANELS = 4,        /* together */
};

/* --- supported nodes -------------------------------------------------------------------------- */

static const td_node_layouts layouts_plain = { 0 };
static const td_node_layouts layouts_linear = { .in = { "", "AB16b32a", "", "" }, .out = "" };
static const td_node_layouts layouts_conv = { .in = { "acdb", "Acdb32a", "", "acdb" },
                                              .out = "acdb" };

static td_status check_conv(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    if (w->dim[2] != 1 || w->dim[3] != 1 || a->pad || a->pad_extra || a->stride != 1 ||
        a->groups != 1)
        return td_error(TD_ENOKERNEL, "not 1 x 1 without padding and with stride 1");
    if (a->relu6 || a->act != TD_CONV_LINEAR || a->tf32)
        return td_error(TD_ENOKERNEL, "another activation than relu, or TF32");
    return TD_OK;
}

static int64_t rows_of(const td_node *n)
{
    const td_type *y = &n->out[0]->type;
    return y->rank == 4 ? y->dim[0] * y->dim[2] * y->dim[3] : y->dim[0];
}

static int64_t channels_of(const td_node *n)
{
    return td_in_type(n, 1)->dim[n->op == &td_op_linear_grad_x ? 0 : 1];
}

static int64_t outputs_of(const td_node *n)
{
    return td_in_type(n, 1)->dim[n->op == &td_op_linear_grad_x ? 1 : 0];
}

/* in training */
static bool is_packed(const td_node *n)
{
    return n->op == &td_op_linear || n->op == &td_op_linear_grad_x;
}

/* must rows of so many channels be copied? */
static bool is_far(int64_t channels)
{
    return channels % TD_PANEL_FAR == 0;
}

td_status td_native_panels_check_types(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32 || !td_panels_loops_here())
            return td_error(TD_ENOKERNEL, "no loops in %s for this machine",
                            td_dtype_name(td_in_type(n, i)->dtype));
    return TD_OK;
}

td_status td_native_panels_check_factors(const td_node *n)
{
    return ((const td_linear_attr *)n->attr)->tf32 ? td_error(TD_ENOKERNEL, "factors are TF32")
                                                   : TD_OK;
}

static td_status check_op(const td_node *n)
{
    if (n->op == &td_op_conv2d_fused)
        return check_conv(n);
    if (is_packed(n))
        return td_native_panels_check_factors(n);
    if (n->op == &td_op_linear_fused && ((const td_linear_fused_attr *)n->attr)->gelu &&
        n->n_in > 3)
        return td_error(TD_ENOKERNEL, "gelu and a residual");
    return TD_OK;
}

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const int64_t C = channels_of(n), K = outputs_of(n);
    const int least = is_packed(n) ? PACKED_ROWS_MIN : ROWS_MIN;
    TD_TRY(td_native_panels_check_types(n));
    TD_TRY(check_op(n));
    if (rows_of(n) < least)
        return td_error(TD_ENOKERNEL, "less than %d rows", least);
    if (K % TD_PANEL || C % TD_PANEL_BLOCK)
        return td_error(TD_ENOKERNEL, "%lld x %lld does not fill panels of %d x %d", (long long)K,
                        (long long)C, TD_PANEL, TD_PANEL_BLOCK);
    if (!is_packed(n) && is_far(C) && K < 2 * C)
        return td_error(TD_ENOKERNEL, "the library is as fast as with a copy of the rows");
    return TD_OK;
}

static const td_node_layouts *layouts_of(const td_node *n)
{
    return is_packed(n)                   ? &layouts_plain
           : n->op == &td_op_conv2d_fused ? &layouts_conv
                                          : &layouts_linear;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    return td_native_check_layouts(n, layouts_of(n));
}

bool td_native_panels_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if ((n->op != &td_op_linear_fused && n->op != &td_op_conv2d_fused) || check(n) != TD_OK)
        return false;
    *out = *layouts_of(n);
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    int64_t N, C, panels;
    int64_t depth;      /* channels at a time */
    td_panel_jobs jobs; /* blocks of rows */
    bool relu, gelu;
    bool is_copied, by_rows;
    int64_t packed;  /* floats of the filters' panels; 0: they are in panels */
    int64_t scratch; /* floats of a thread, after the panels */
    int threads;
    const td_panels_loops *loops;
} state;

td_panel_jobs td_native_panels_divide(int64_t blocks, int64_t panels, int threads)
{
    const int64_t groups = blocks < threads ? smaller(divide_up(threads, blocks), panels) : 1;
    if (groups == 1 && blocks < JOBS * threads)
        blocks = divide_up(blocks, threads) * threads;
    return (td_panel_jobs){ blocks, groups };
}

td_work_share td_native_panels_share(const td_panel_jobs *j, int64_t rows, int64_t panels,
                                     int threads)
{
    const double each = (double)divide_up(rows, j->blocks) * (double)divide_up(panels, j->groups);
    return td_work_share_of(j->blocks * j->groups, each, threads);
}

td_panel_job td_native_panels_job(const td_panel_jobs *j, int64_t rows, int64_t panels, int64_t i)
{
    const int64_t block = i / j->groups, group = i % j->groups, first = panels * group / j->groups;
    return (td_panel_job){ rows * block / j->blocks, rows * (block + 1) / j->blocks, first,
                           panels * (group + 1) / j->groups - first };
}

static state divide(const td_node *n, int threads)
{
    const bool is_conv = n->op == &td_op_conv2d_fused, is_linear = n->op == &td_op_linear_fused;
    state s = { .N = rows_of(n),
                .C = channels_of(n),
                .panels = outputs_of(n) / TD_PANEL,
                .relu = is_conv && ((const td_conv_attr *)n->attr)->relu,
                .gelu = is_linear && ((const td_linear_fused_attr *)n->attr)->gelu,
                .is_copied = is_far(channels_of(n)),
                .threads = threads };
    s.packed = is_packed(n) ? s.panels * TD_PANEL * s.C : 0;
    const int64_t parts = divide_up(s.C, DEPTH_MAX);
    s.depth = divide_up(s.C, parts * TD_PANEL_BLOCK) * TD_PANEL_BLOCK;
    const int64_t room = smaller(BLOCK_BYTES / (int64_t)sizeof(float) / s.depth, BLOCK_ROWS);
    s.jobs = td_native_panels_divide(divide_up(s.N, room), s.panels, threads);
    s.by_rows = s.depth == s.C &&
                divide_up(s.panels, s.jobs.groups) * TD_PANEL * s.C * (int64_t)sizeof(float) <=
                    FILTER_BYTES;
    s.scratch = s.is_copied ? divide_up(s.N, s.jobs.blocks) * (s.depth + GAP) : 0;
    return s;
}

/* where in the scratch memory turns are, in bytes */
static size_t turns_at(const state *s)
{
    const size_t before = (size_t)(s->packed + s->threads * s->scratch) * sizeof(float);
    return td_round_up(before, TD_HOST_ALIGN);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    *s = divide(n, td_threads());
    s->loops = td_panels_loops_here();
    out->state = s;
    out->scratch_bytes = turns_at(s) + td_native_turns_bytes(s->threads);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

static void copy_rows(const state *s, td_panels *v, float *to)
{
    const int64_t row = v->depth + GAP;
    s->loops->copy(v->rows, v->depth, v->x, v->x_row, to, row);
    v->x = to;
    v->x_row = row;
}

static void pack(const td_node *n, const state *s, const float *w, float *to)
{
    const int64_t K = s->panels * TD_PANEL, panel = TD_PANEL * s->C;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < s->panels; k += PACKED_PANELS) {
        const int64_t panels = smaller(PACKED_PANELS, s->panels - k);
        if (n->op == &td_op_linear_grad_x)
            s->loops->pack_panels(panels, s->C, s->C, w + k * TD_PANEL, K, to + k * panel);
        else
            s->loops->pack_transposed(panels, s->C, w + k * panel, to + k * panel);
    }
}

/* what all jobs work with */
typedef struct {
    const td_node *n;
    const state *s;
    void *const *args;
    const float *w;
    float *scratch;
} call;

static void run_job(const void *context, int i, int thread)
{
    const call *all = context;
    const state *s = all->s;
    const td_node *n = all->n;
    void *const *args = all->args;
    float *scratch = all->scratch + thread * s->scratch;
    const td_panel_job j = td_native_panels_job(&s->jobs, s->N, s->panels, i);
    const int64_t K = s->panels * TD_PANEL, at = j.from * K + j.first * TD_PANEL;
    const float *bias = n->n_in > 2 ? args[2] : NULL, *rest = n->n_in > 3 ? args[3] : NULL;
    for (int64_t c = 0; c < s->C; c += s->depth) {
        td_panels v = { .rows = j.to - j.from,
                        .panels = j.panels,
                        .depth = smaller(s->C - c, s->depth),
                        .x_row = s->C,
                        .y_row = K,
                        .w_panel = s->C * TD_PANEL,
                        .x = (const float *)args[0] + j.from * s->C + c,
                        .w = all->w + (j.first * s->C + c) * TD_PANEL,
                        .bias = bias ? bias + j.first * TD_PANEL : NULL,
                        .rest = rest ? rest + at : NULL,
                        .y = (float *)args[n->n_in] + at,
                        .is_first = c == 0,
                        .is_last = c + s->depth >= s->C,
                        .relu = s->relu,
                        .gelu = s->gelu,
                        .by_rows = s->by_rows };
        if (s->is_copied)
            copy_rows(s, &v, scratch);
        s->loops->multiply(&v);
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    float *packed = args[p->node->n_in + 1];
    const call c = { p->node, s, args, s->packed ? packed : args[1], packed + s->packed };
    if (s->packed)
        pack(p->node, s, args[1], packed);
    td_native_take_turns(
        &(td_native_turns){ (int)(s->jobs.blocks * s->jobs.groups), s->threads, run_job, &c },
        (char *)packed + turns_at(s));
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const state s = divide(n, threads);
    return td_native_panels_share(&s.jobs, s.N, s.panels, threads);
}

const td_kernel td_native_linear_panels = { .name = "native_linear_panels",
                                            .op = &td_op_linear_fused,
                                            .accepts = accepts,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = td_native_release_state,
                                            .share = share };

const td_kernel td_native_pointwise_conv = { .name = "native_pointwise_conv",
                                             .op = &td_op_conv2d_fused,
                                             .accepts = accepts,
                                             .prepare = prepare,
                                             .run = run,
                                             .release = td_native_release_state,
                                             .share = share };

const td_kernel td_native_linear_packed = { .name = "native_linear_packed",
                                            .op = &td_op_linear,
                                            .accepts = accepts,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = td_native_release_state,
                                            .share = share };

const td_kernel td_native_linear_grad_x = { .name = "native_linear_grad_x",
                                            .op = &td_op_linear_grad_x,
                                            .accepts = accepts,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = td_native_release_state,
                                            .share = share };
