/*
 * native_gated.c -- the projection of an inverted residual block with a squeeze-excite layer: a 1x1
 * convolution that reads x times its gate
 *
 * Jobs of some pixels, of all images, are taken in turn by the threads.  Each sum is one chain in
 * the order of the channels, so an image has the same bits in any batch and with any number of
 * threads.
 */
#include "backend/native/inverted_residual/native_gated.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

/* pixels of a job: whole tiles of 12, 6 and 4; their channels stay in an L2 cache */
#define PIXELS_MIN 12
#define PIXELS_MAX 96

static const td_node_layouts layouts = { .in = { "acdb", "", "Abcd8a", "", "acdb" },
                                         .out = "acdb" };
static const td_node_layouts layouts_bf16 = { .in = { "acdb", "", "ABcd8a2b", "", "acdb" },
                                              .out = "acdb" };

static bool is_bf16(const td_node *n)
{
    return td_in_type(n, 0)->dtype == TD_DT_BF16;
}

static td_gated_loops *loops_of(const td_node *n)
{
    return is_bf16(n)                             ? td_gated_loops_bf16()
           : td_in_type(n, 0)->dtype == TD_DT_F32 ? td_gated_loops_at(0)
                                                  : NULL;
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_gated *v)
{
    if (n->op != &td_op_conv2d_gated)
        return td_error(TD_ENOKERNEL, "not a convolution with a gate");
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (td_in_type(n, 3)->dtype != TD_DT_F32 || !loops_of(n))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    *v = (td_gated){ .pixels = x->dim[0] * x->dim[2] * x->dim[3],
                     .area = x->dim[2] * x->dim[3],
                     .C = x->dim[1],
                     .K = y->dim[1] };
    if (v->C % TD_GATED_LANES || v->K % TD_GATED_LANES)
        return td_error(TD_ENOKERNEL, "%lld or %lld channels do not fill lanes of %d",
                        (long long)v->C, (long long)v->K, TD_GATED_LANES);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    td_gated v;
    TD_TRY(shape_of(n, &v));
    return td_native_check_layouts(n, is_bf16(n) ? &layouts_bf16 : &layouts);
}

bool td_native_gated_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_gated v;
    if (shape_of(n, &v) != TD_OK)
        return false;
    *out = is_bf16(n) ? layouts_bf16 : layouts;
    return true;
}

static int64_t pixels_of_job(const td_gated *v, int threads)
{
    const int64_t pixels = v->pixels / threads / PIXELS_MIN * PIXELS_MIN;
    return pixels > PIXELS_MAX ? PIXELS_MAX : pixels > PIXELS_MIN ? pixels : PIXELS_MIN;
}

typedef struct {
    td_gated v;
    int threads;
    int64_t each;    /* pixels of a job */
    int64_t scratch; /* bytes of a thread */
    td_gated_loops *loops;
} state;

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    TD_CHECK(shape_of(n, &s->v) == TD_OK);
    s->threads = td_threads();
    s->each = pixels_of_job(&s->v, s->threads);
    s->loops = loops_of(n);
    s->scratch = s->each * (is_bf16(n) ? s->v.C * (int64_t)sizeof(uint16_t)
                                       : TD_GATED_DEPTH * (int64_t)sizeof(float));
    s->scratch = (int64_t)td_round_up((size_t)s->scratch, TD_HOST_ALIGN);
    out->state = s;
    out->scratch_bytes = (size_t)(s->threads * s->scratch) + td_native_turns_bytes(s->threads);
    return TD_OK;
}

/* what all jobs work with */
typedef struct {
    const state *s;
    td_gated_in in;
    void *y;
    char *scratch;
} call;

static void run_job(const void *context, int i, int thread)
{
    const call *c = context;
    const state *s = c->s;
    const int64_t from = i * s->each, to = smaller(from + s->each, s->v.pixels);
    s->loops(&s->v, &c->in, from, to, c->y, c->scratch + thread * s->scratch);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const int n_in = p->node->n_in, jobs = (int)divide_up(s->v.pixels, s->each);
    const call c = { .s = s,
                     .in = { .x = args[0],
                             .gate = args[1],
                             .w = args[2],
                             .bias = args[3],
                             .residual = n_in > 4 ? args[4] : NULL },
                     .y = args[n_in],
                     .scratch = args[n_in + 1] };
    td_native_take_turns(&(td_native_turns){ jobs, s->threads, run_job, &c },
                         c.scratch + s->threads * s->scratch);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    td_gated v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const int64_t each = pixels_of_job(&v, threads);
    return td_work_share_of((v.pixels + each - 1) / each, (double)(each * v.K), threads);
}

const td_kernel td_native_conv2d_gated = { .name = "native_conv2d_gated",
                                           .op = &td_op_conv2d_gated,
                                           .accepts = accepts,
                                           .prepare = prepare,
                                           .run = run,
                                           .release = td_native_release_state,
                                           .share = share };
