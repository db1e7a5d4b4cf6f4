/*
 * problem.c -- the graph of a problem line filled with numbers, and its kernels run alone
 *
 * Numbers are a pure function of the operand's place, so that a line means the same everywhere.
 * Those of ops with kinks stay away from them, for the finite differences: relu's are not near 0,
 * and the values under a maximum are all different.
 */
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/rng.h"
#include "ops/problem_line.h"
#include "runtime/device.h"

/* --- numbers ---------------------------------------------------------------------------------- */

static double away_from(double x, double kink)
{
    return fabs(x - kink) < 0.05 ? x + 0.1 : x;
}

/* clang-format off */
static const struct {
    const td_op *op;
    double kink[2]; /* that of clip: lines set min=-1 max=2 */
} kinks[] = {
    { &td_op_relu,        { 0, 0 } },
    { &td_op_relu6,       { 0, 6 } },
    { &td_op_leaky_relu,  { 0, 0 } },
    { &td_op_elu,         { 0, 0 } },
    { &td_op_clip,        { -1, 2 } },
    { &td_op_hardsigmoid, { -3, 3 } },
    { &td_op_hardswish,   { -3, 3 } },
    { &td_op_abs,         { 0, 0 } },
};
/* clang-format on */

/* functions of positive numbers, or with a pole at 0 */
static bool is_of_positive(const td_op *op)
{
    return op == &td_op_log || op == &td_op_sqrt || op == &td_op_pow || op == &td_op_reciprocal;
}

/* an operand of an activation */
static double draw_argument(const td_op *op, double x)
{
    if (is_of_positive(op))
        return 0.3 + fabs(x);
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++)
        if (op == kinks[i].op)
            return away_from(away_from(3 * x, kinks[i].kink[0]), kinks[i].kink[1]);
    return x;
}

/* the numbers in tensors of a name */
typedef struct {
    const char *name; /* "_u8": that ends so */
    enum { CONSTANT, NORMAL, SQUARE, UNIFORM, BELOW, GAPS, SPARSE } what;
    double scale; /* of NORMAL; the CONSTANT; BELOW: integers from 0 to below this */
    double shift; /* added to UNIFORM and BELOW */
} filling;

/* clang-format off */
static const filling fillings[] = {
    { "var",       UNIFORM,  1,           0.5  },
    { "scale",     UNIFORM,  1,           0.5  },
    { "target",    UNIFORM,  1,           0    },
    { "lr",        CONSTANT, 0.1,         0    },
    { "rest1",     CONSTANT, 0.271,       0    },
    { "rest2",     CONSTANT, 0.002997001, 0    },
    { "finite",    CONSTANT, 1,           0    },
    { "overflow",  CONSTANT, 0,           0    },
    { "huge",      NORMAL,   4e4,         0    },
    { "tiny",      NORMAL,   1e-7,        0    },
    { "square",    SQUARE,   1,           0    },
    { "partner",   BELOW,    6,           0    }, /* a few are no partners: then the sample stays */
    { "index",     BELOW,    9,           -1   }, /* some select nothing */
    { "random",    BELOW,    1000000,     0    },
    { "box",       BELOW,    14,          -3   }, /* some are empty, some leave the image */
    { "pixels",    BELOW,    256,         0    },
    { "full_u8",   CONSTANT, 255,         0    }, /* with full_s8 or, for 7 bits, most_s8: */
    { "full_s8",   CONSTANT, 127,         0    }, /* the largest sums */
    { "narrow_s8", BELOW,    129,         -64  },
    { "most_s8",   CONSTANT, 64,          0    },
    { "gaps",      GAPS,     1,           0    },
    { "sparse",    SPARSE,   1,           0    },
    { "_u8",       BELOW,    256,         0    },
    { "_s8",       BELOW,    255,         -127 },
};
/* clang-format on */

/* NULL: a normal distribution */
static const filling *filling_of(const char *name)
{
    for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++)
        if (fillings[i].name[0] == '_' ? td_text_ends(name, fillings[i].name)
                                       : strcmp(name, fillings[i].name) == 0)
            return &fillings[i];
    return NULL;
}

static double draw(td_rng *r, const td_op *op, const filling *f)
{
    const double x = td_rng_normal(r);
    if (!f)
        return op == &td_op_cast ? 100 * x : draw_argument(op, x);
    switch (f->what) {
    case CONSTANT:
        return f->scale;
    case NORMAL:
        return f->scale * x;
    case SQUARE:
        return x * x;
    case UNIFORM:
        return f->shift + td_rng_uniform(r);
    case BELOW:
        return f->shift + (double)td_rng_below(r, (uint64_t)f->scale);
    case GAPS:
        return td_rng_below(r, 4) ? td_rng_uniform(r) : NAN;
    case SPARSE:
        return td_rng_below(r, 8) ? 0 : x;
    }
    return x;
}

static void fill_different(td_rng *r, int64_t count, double *x)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = 4.0 * (double)i / (double)count - 2;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = (int64_t)td_rng_below(r, (uint64_t)i + 1);
        const double t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

/* -1 to the number of classes; of a detector's loss, three quarters are no class, and all in every
   third image */
static void fill_labels(td_rng *r, const td_node *n, int64_t count, double *x)
{
    const bool is_one_hot = n->op == &td_op_one_hot;
    const td_type *t = td_in_type(n, 0);
    const int64_t classes = is_one_hot ? ((const td_one_hot_attr *)n->attr)->classes : t->dim[2];
    for (int64_t i = 0; i < count; i++) {
        x[i] = (double)td_rng_below(r, (uint64_t)classes + 2) - 1;
        if (!is_one_hot && (i / t->dim[1] % 3 == 1 || td_rng_below(r, 4) != 0))
            x[i] = -(double)td_rng_below(r, 2);
    }
}

static td_status fill(const td_problem *p, const td_value *v, void **out)
{
    const td_op *op = p->forward->op;
    const int64_t count = td_type_count(&v->type);
    td_rng r = td_rng_make(1, TD_RNG_TEST, (uint64_t)v->id, (uint64_t)count);
    double *x = td_alloc((size_t)count, sizeof *x);
    *out = td_alloc((size_t)td_type_bytes(&v->type), 1);
    if (!x || !*out) {
        td_free(x);
        return TD_ENOMEM;
    }

    const filling *f = filling_of(v->name);
    for (int64_t i = 0; i < count; i++)
        x[i] = draw(&r, op, f);
    if (op == &td_op_max_pool2d && v != p->dy)
        fill_different(&r, count, x);
    if (strcmp(v->name, "spoiled") == 0)
        x[count - 1] = INFINITY;
    if (strcmp(v->name, "labels") == 0)
        fill_labels(&r, p->forward, count, x);
    td_ref_store(v->type.dtype, x, count, *out);
    td_free(x);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

const td_backend *td_backend_named(const char *name)
{
    const td_backend *b = NULL;
    for (int i = 0; (b = td_backend_at(i)); i++)
        if (strcmp(b->name, name) == 0)
            break;
    return b;
}

/* bytes of tensor i and of the fence after it */
static size_t fenced_bytes(const td_node *n, int i)
{
    const td_type *t = i < n->n_in ? &n->in[i]->type : &n->out[i - n->n_in]->type;
    return (size_t)td_type_bytes(t) + TD_PROBLEM_FENCE;
}

/* the argument before `i` that is the same memory, or i */
static int first_of(void *const *args, int i)
{
    int k = 0;
    while (k < i && args[k] != args[i])
        k++;
    return k;
}

static td_status copy_args(const td_node *n, const td_device_memory *m, void *const *host,
                           void **own)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const int first = first_of(host, i);
        own[i] = first < i ? own[first] : m->alloc(fenced_bytes(n, i));
        if (!own[i])
            return TD_ENOMEM;
        if (first == i)
            TD_TRY(m->copy_in(own[i], host[i], fenced_bytes(n, i)));
    }
    return TD_OK;
}

static td_status return_args(const td_node *n, const td_device_memory *m, void *const *host,
                             void *const *own)
{
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (first_of(host, i) == i)
            TD_TRY(m->copy_out(host[i], own[i], fenced_bytes(n, i)));
    return TD_OK;
}

static void free_args(const td_node *n, const td_device_memory *m, void *const *own)
{
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (own[i] && first_of(own, i) == i)
            m->free(own[i], fenced_bytes(n, i));
}

/* the scratch memory of a prepared call, full of NaN; NULL: none is needed */
static td_status make_scratch(const td_device_memory *m, size_t n, void **out)
{
    *out = NULL;
    if (n == 0)
        return TD_OK;
    void *garbage = td_alloc(n, 1);
    *out = garbage ? m->alloc(n) : NULL;
    td_status st = *out ? TD_OK : TD_ENOMEM;
    if (st == TD_OK)
        st = m->copy_in(*out, memset(garbage, 0xff, n), n);
    td_free(garbage);
    return st;
}

td_status td_kernel_run_once(const td_kernel *k, const td_node *n, const td_device_memory *m,
                             void *const *args)
{
    td_prepared prepared = { .kernel = k, .node = n };
    void *all[TD_IN_MAX + TD_OUT_MAX + 1] = { NULL };
    td_status st;
    if (k->prepare)
        TD_TRY(k->prepare(n, &prepared));
    const int last = n->n_in + n->n_out;
    if (m->is_host)
        memcpy(all, args, (size_t)last * sizeof all[0]);
    else
        TD_OUT(copy_args(n, m, args, all));
    TD_OUT(make_scratch(m, prepared.scratch_bytes, &all[last]));
    TD_OUT(k->run(&prepared, all));
    st = m->is_host ? TD_OK : return_args(n, m, args, all);
out:
    if (k->release)
        k->release(&prepared);
    if (all[last])
        m->free(all[last], prepared.scratch_bytes);
    if (!m->is_host)
        free_args(n, m, all);
    return st;
}

static td_status run_multi(const td_kernel *k, const td_multi_node *nodes, int n_nodes)
{
    void *state = NULL;
    TD_TRY(k->multi->prepare(nodes, n_nodes, &state));
    td_status st = k->multi->run(state);
    k->multi->release(state);
    return st;
}

td_status td_kernel_run_multi(const td_kernel *k, const td_node *n, const td_device_memory *m,
                              void *const *const *args, int n_nodes)
{
    td_prepared prepared = { .kernel = k, .node = n };
    void *own[TD_PROBLEM_NODES][TD_IN_MAX + TD_OUT_MAX + 1] = { { NULL } };
    td_multi_node nodes[TD_PROBLEM_NODES];
    td_status st = TD_OK;
    TD_CHECK(n_nodes <= TD_PROBLEM_NODES); /* a call uses neither a node's state nor its scratch */
    for (int i = 0; i < n_nodes; i++) {
        TD_OUT(copy_args(n, m, args[i], own[i]));
        nodes[i] = (td_multi_node){ &prepared, own[i] };
    }
    TD_OUT(run_multi(k, nodes, n_nodes));
    for (int i = 0; i < n_nodes; i++)
        TD_OUT(return_args(n, m, args[i], own[i]));
out:
    for (int i = 0; i < n_nodes; i++)
        free_args(n, m, own[i]);
    return st;
}

void td_problem_args(const td_problem *p, const td_node *n, void **args)
{
    for (int i = 0; i < n->n_in; i++)
        args[i] = p->data[n->in[i]->id];
    for (int i = 0; i < n->n_out; i++)
        args[n->n_in + i] = p->data[n->out[i]->id];
}

td_status td_problem_run(const td_problem *p, const td_node *n)
{
    const td_backend *ref = td_backend_named("ref");
    for (int i = 0; ref && i < ref->n_kernels; i++) {
        const td_kernel *k = ref->kernels[i];
        void *args[TD_IN_MAX + TD_OUT_MAX];
        if (k->op != n->op || k->accepts(n) != TD_OK)
            continue;
        td_problem_args(p, n, args);
        return td_kernel_run_once(k, n, &td_host_memory, args);
    }
    return td_error(TD_ENOKERNEL, "%s: no reference kernel", n->op->name);
}

static td_status work_out(td_problem *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        const td_node *n = p->graph->nodes[i];
        for (int j = 0; j < n->n_out; j++) {
            void **data = &p->data[n->out[j]->id];
            if (n->op->is_leaf)
                TD_TRY(fill(p, n->out[j], data));
            else if (!(*data = td_alloc((size_t)td_type_bytes(&n->out[j]->type), 1)))
                return TD_ENOMEM;
        }
        if (!n->op->is_leaf &&
            n->n_out) /* what changes its operands runs on copies, in the driver */
            TD_TRY(td_problem_run(p, n));
    }
    return TD_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

static void find_parts(td_problem *p, const td_op *op)
{
    for (int i = p->graph->n_nodes - 1; i >= 0; i--)
        if (p->graph->nodes[i]->op == op)
            p->forward = p->graph->nodes[i];
    p->dy = td_graph_find(p->graph, "dy");
    for (int i = 0; i < p->forward->n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "d%d", i);
        p->dx[i] = td_graph_output_value(p->graph, name);
    }
}

td_status td_problem_make(const char *line, td_dtype dtype, td_problem *out)
{
    const td_op *op;
    td_status st;
    *out = (td_problem){ 0 };
    TD_TRY(td_problem_graph(line, dtype, &out->graph, &op));
    find_parts(out, op);
    out->data = td_alloc((size_t)out->graph->n_values, sizeof *out->data);
    if (!out->data)
        TD_OUT(TD_ENOMEM);
    TD_OUT(work_out(out));
    return TD_OK;
out:
    td_problem_release(out);
    return st;
}

void td_problem_release(td_problem *p)
{
    for (int i = 0; p->data && i < p->graph->n_values; i++)
        td_free(p->data[i]);
    td_free(p->data);
    td_graph_free(p->graph);
    *p = (td_problem){ 0 };
}
