/*
 * native_panels_grad_w.c -- gradients of the weights of fully connected layers of many rows, in
 * float32 with AVX-512
 *
 *     dw [K, C] = dyT x      dy [N, K]   x [N, C]      summed over rows n
 *
 *     x       packed first, by all threads: for each part of the rows, panels [C / 32][rows][32]
 *     jobs    blocks of outputs k x groups of panels, taken in turn by the threads
 *
 * For each part dy of a job's outputs is packed into tiles [rows][14] that stay in a core's cache.
 * oneDNN's kernels are slow where rows of x share a few sets of the cache; elsewhere they are used.
 * Threads wait for each other once: what disturbs one of them does not stop the others.  A sum is
 * one chain in the order of the rows: the same bits with any number of threads.
 */
#include <omp.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/linear/native_panels.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    ROWS_MIN = 512,
    OUTPUTS_MIN = 192,       /* fewer do not pay for the packing of x */
    DEPTH_MAX = 800,         /* rows of a part */
    TILES_BYTES = 640 << 10, /* limit of a job's tiles */
    PACKED_PANELS = 8,       /* together */
};

static td_status check_shape(const td_node *n)
{
    const int64_t N = td_in_type(n, 0)->dim[0], C = td_in_type(n, 1)->dim[1];
    if (N < ROWS_MIN)
        return td_error(TD_ENOKERNEL, "less than %d rows", ROWS_MIN);
    if (td_in_type(n, 0)->dim[1] < OUTPUTS_MIN)
        return td_error(TD_ENOKERNEL, "less than %d outputs", OUTPUTS_MIN);
    if (C % TD_PANEL_FAR)
        return td_error(TD_ENOKERNEL, "the library is as fast unless rows are a multiple of %d",
                        TD_PANEL_FAR);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(td_native_panels_check_types(n));
    TD_TRY(td_native_panels_check_factors(n));
    TD_TRY(check_shape(n));
    const td_node_layouts plain = { 0 };
    return td_native_check_layouts(n, &plain);
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    int64_t N, K, C, panels;
    int64_t depth;      /* rows of a part */
    td_panel_jobs jobs; /* blocks of outputs */
    int64_t parts;
    int64_t packed, tiles; /* floats: all panels, a thread's tiles */
    int threads;
    const td_panels_loops *loops;
} state;

static int64_t rounded(int64_t rows)
{
    return divide_up(rows, TD_PANEL_BLOCK) * TD_PANEL_BLOCK;
}

static state divide(const td_node *n, int threads)
{
    state s = { .N = td_in_type(n, 0)->dim[0],
                .K = td_in_type(n, 0)->dim[1],
                .C = td_in_type(n, 1)->dim[1],
                .threads = threads };
    s.panels = s.C / TD_PANEL;
    s.depth = rounded(divide_up(s.N, divide_up(s.N, DEPTH_MAX)));
    s.parts = divide_up(s.N, s.depth);
    const int64_t size = td_panel_tile_size(s.depth), tiles = td_panel_tiles(s.K);
    s.jobs = td_native_panels_divide(divide_up(tiles, TILES_BYTES / (int64_t)sizeof(float) / size),
                                     s.panels, threads);
    s.packed = s.parts * s.depth * s.C;
    s.tiles = td_panel_tiles(divide_up(s.K, s.jobs.blocks)) * size;
    return s;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    *s = divide(n, td_threads());
    s->loops = td_panels_loops_here();
    out->state = s;
    out->scratch_bytes = (size_t)(s->packed + s->threads * s->tiles) * sizeof(float);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

/* rows of a part, with those that fill its last block, and its panels */
typedef struct {
    int64_t from, rows, depth;
    float *panels;
} part;

static part part_at(const state *s, int64_t i, float *packed)
{
    const int64_t from = i * s->depth, rows = smaller(s->depth, s->N - from);
    return (part){ from, rows, rounded(rows), packed + from * s->C };
}

static void pack(const state *s, const float *x, float *packed)
{
#pragma omp for schedule(static) collapse(2)
    for (int64_t i = 0; i < s->parts; i++)
        for (int64_t k = 0; k < s->panels; k += PACKED_PANELS) {
            const part a = part_at(s, i, packed);
            s->loops->pack_panels(smaller(PACKED_PANELS, s->panels - k), a.rows, a.depth,
                                  x + a.from * s->C + k * TD_PANEL, s->C,
                                  a.panels + k * a.depth * TD_PANEL);
        }
}

/* j: its rows are outputs */
static void add_part(const state *s, const part *a, const td_panel_job *j, const float *dy,
                     float *dw, float *tiles)
{
    const td_panels v = { .rows = j->to - j->from,
                          .panels = j->panels,
                          .depth = a->depth,
                          .y_row = s->C,
                          .w_panel = a->depth * TD_PANEL,
                          .x = tiles,
                          .w = a->panels + j->first * a->depth * TD_PANEL,
                          .y = dw + j->from * s->C + j->first * TD_PANEL,
                          .is_first = a->from == 0,
                          .is_last = a->from + a->rows == s->N,
                          .is_tiled = true };
    s->loops->pack_tiles(v.rows, a->rows, a->depth, dy + a->from * s->K + j->from, s->K, tiles);
    s->loops->multiply(&v);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const float *dy = args[0], *x = args[1];
    float *dw = args[2], *packed = args[3], *tiles = packed + s->packed;
#pragma omp parallel num_threads(s->threads)
    {
        pack(s, x, packed);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < s->jobs.blocks * s->jobs.groups; i++) {
            const td_panel_job j = td_native_panels_job(&s->jobs, s->K, s->panels, i);
            for (int64_t k = 0; k < s->parts; k++) {
                const part a = part_at(s, k, packed);
                add_part(s, &a, &j, dy, dw, tiles + omp_get_thread_num() * s->tiles);
            }
        }
    }
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const state s = divide(n, threads);
    return td_native_panels_share(&s.jobs, s.K, s.panels, threads);
}

const td_kernel td_native_linear_grad_w = { .name = "native_linear_grad_w",
                                            .op = &td_op_linear_grad_w,
                                            .accepts = accepts,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = td_native_release_state,
                                            .share = share };
