/*
 * problem.c -- reading a problem line, building its graph, filling it with numbers
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
#include "ir/build.h"
#include "rt/device.h"

#define LINE_MAX_BYTES 1024

typedef struct {
    const td_op *op;
    td_dtype dtype;
    int n_in;
    char name[TD_IN_MAX][16];
    td_type type[TD_IN_MAX];
    char attrs[512];
} parsed;

/* --- reading ---------------------------------------------------------------------------------- */

static bool has_field(const td_op *op, const char *name)
{
    for (const td_field *f = op->fields; f && f->kind != TD_KIND_END; f++)
        if (strcmp(f->name, name) == 0)
            return true;
    return false;
}

/* "8x64x56x56"; "-" for no dimensions */
static bool parse_shape(const char *s, td_type *t)
{
    *t = (td_type){ 0 };
    if (strcmp(s, "-") == 0)
        return true;
    for (;;) {
        char digits[24];
        const size_t n = strspn(s, "0123456789");
        if (n == 0 || n >= sizeof digits || t->rank == TD_RANK_MAX)
            return false;
        memcpy(digits, s, n);
        digits[n] = '\0';
        if (!td_text_to_int(digits, &t->dim[t->rank++]))
            return false;
        if (s[n] == '\0')
            return true;
        if (s[n] != 'x')
            return false;
        s += n + 1;
    }
}

/* operands whose dtype is not the line's */
static td_dtype operand_dtype(const char *name, td_dtype line)
{
    static const char *const statistics[] = { "gamma", "beta", "mean", "var" };
    if (strcmp(name, "labels") == 0)
        return TD_DT_I64;
    if (strcmp(name, "mask") == 0)
        return TD_DT_U8;
    for (int i = 0; i < 4; i++)
        if (strcmp(name, statistics[i]) == 0 && td_dtype_bytes(line) == 2)
            return TD_DT_F32;
    return line;
}

static td_status parse_word(const char *key, const char *value, parsed *p)
{
    if (strcmp(key, "dtype") == 0) {
        p->dtype = td_dtype_parse(value);
        return p->dtype ? TD_OK : td_error(TD_EUSAGE, "'%s' is no dtype", value);
    }
    if (has_field(p->op, key)) {
        const size_t len = strlen(p->attrs);
        const int n =
            snprintf(p->attrs + len, sizeof p->attrs - len, "%s%s=%s", len ? ", " : "", key, value);
        return n < (int)(sizeof p->attrs - len) ? TD_OK : td_error(TD_EUSAGE, "line too long");
    }
    if (p->n_in == TD_IN_MAX || strlen(key) >= sizeof p->name[0] ||
        !parse_shape(value, &p->type[p->n_in]))
        return td_error(TD_EUSAGE, "'%s=%s' is neither an attribute nor a shape like 8x64x7x7", key,
                        value);
    memcpy(p->name[p->n_in++], key, strlen(key) + 1);
    return TD_OK;
}

static td_status parse(const char *line, td_dtype dtype, parsed *p)
{
    char text[LINE_MAX_BYTES], *save;
    if (strlen(line) >= sizeof text)
        return td_error(TD_EUSAGE, "line too long");
    memcpy(text, line, strlen(line) + 1);

    *p = (parsed){ .dtype = TD_DT_F32 };
    const char *word = strtok_r(text, " \n", &save);
    p->op = word ? td_op_find(word) : NULL;
    if (!p->op)
        return td_error(TD_EUSAGE, "'%s' is no op", word ? word : "");
    while ((word = strtok_r(NULL, " \n", &save))) {
        char *equals = strchr(word, '=');
        if (!equals)
            return td_error(TD_EUSAGE, "'%s' is not KEY=VALUE", word);
        *equals = '\0';
        TD_TRY(parse_word(word, equals + 1, p));
    }
    if (dtype)
        p->dtype = dtype;
    for (int i = 0; i < p->n_in; i++)
        p->type[i].dtype = operand_dtype(p->name[i], p->dtype);
    return TD_OK;
}

/* --- building --------------------------------------------------------------------------------- */

/* fused ops get their gradient from the fuse pass: (dy, mask, x, gamma, mean, var) */
static void fused_norm_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_op *op = n->n_in > 3 ? &td_op_batch_norm_add_relu_grad : &td_op_batch_norm_relu_grad;
    td_emit_n(b, op, n->attr, 6,
              TD_ARGS(dy[0], n->out[3], n->in[0], n->in[1], n->out[1], n->out[2]), dx);
}

static void emit_gradient(td_builder *b, const td_node *n)
{
    void (*grad)(td_builder *, const td_node *, td_value *const *, td_value **) = n->op->grad;
    if (n->op == &td_op_batch_norm_relu || n->op == &td_op_batch_norm_add_relu)
        grad = fused_norm_grad;
    if (!grad || !td_dtype_is_float(n->out[0]->type.dtype))
        return;

    td_value *dy[TD_OUT_MAX] = { NULL }, *dx[TD_IN_MAX] = { NULL };
    dy[0] = td_input(b, "dy", td_type_plain(&n->out[0]->type));
    grad(b, n, dy, dx);
    for (int i = 0; i < n->n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "d%d", i);
        if (dx[i])
            td_output(b, name, dx[i]);
    }
}

static td_status build(const parsed *p, td_graph **out)
{
    td_value *in[TD_IN_MAX], *y[TD_OUT_MAX];
    td_builder *b = td_build_begin();
    if (!b)
        return TD_ENOMEM;
    for (int i = 0; i < p->n_in; i++)
        in[i] = p->op->writes >> i & 1
                    ? td_emit_leaf(b, &td_op_param, NULL, p->name[i], &p->type[i])
                    : td_input(b, p->name[i], p->type[i]);
    td_emit_n(b, p->op, td_build_attr(b, p->op, p->attrs[0] ? p->attrs : NULL), p->n_in, in, y);
    if (p->op == &td_op_reorder)
        td_build_set_layout(b, y[0], ""); /* the driver puts the layouts in */
    if (td_build_ok(b) && p->op->n_out)
        emit_gradient(b, y[0]->producer);
    return td_build_end(b, out);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static double away_from(double x, double kink)
{
    return fabs(x - kink) < 0.05 ? x + 0.1 : x;
}

static double draw(td_rng *r, const td_op *op, const char *name)
{
    const double x = td_rng_normal(r);
    if (strcmp(name, "var") == 0)
        return 0.5 + td_rng_uniform(r);
    if (strcmp(name, "lr") == 0)
        return 0.1;
    if (strcmp(name, "target") == 0)
        return td_rng_uniform(r);
    if (op == &td_op_relu || op == &td_op_relu6)
        return away_from(away_from(3 * x, 0), 6);
    if (op == &td_op_cast)
        return 100 * x;
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

    for (int64_t i = 0; i < count; i++)
        x[i] = draw(&r, op, v->name);
    if (op == &td_op_max_pool2d && v != p->dy)
        fill_different(&r, count, x);
    if (strcmp(v->name, "labels") == 0)
        for (int64_t i = 0; i < count; i++)
            x[i] = (double)td_rng_below(
                &r, (uint64_t)((const td_one_hot_attr *)p->forward->attr)->classes);
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

td_status td_kernel_run_once(const td_kernel *k, const td_node *n, void *const *args)
{
    td_prepared prepared = { .kernel = k, .node = n };
    void *all[TD_IN_MAX + TD_OUT_MAX + 1];
    void *scratch = NULL;
    td_status st = TD_OK;
    memcpy(all, args, (size_t)(n->n_in + n->n_out) * sizeof all[0]);
    if (k->prepare)
        TD_TRY(k->prepare(n, &prepared));
    if (prepared.scratch_bytes && !(scratch = td_alloc(prepared.scratch_bytes, 1)))
        st = TD_ENOMEM;
    if (scratch)
        memset(scratch, 0xa5, prepared.scratch_bytes); /* nobody may count on zeros */
    all[n->n_in + n->n_out] = scratch;
    if (st == TD_OK)
        st = k->run(&prepared, all);
    if (k->release)
        k->release(&prepared);
    td_free(scratch);
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
        return td_kernel_run_once(k, n, args);
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
    parsed parts;
    td_status st;
    *out = (td_problem){ 0 };
    TD_TRY(parse(line, dtype, &parts));
    TD_TRY(build(&parts, &out->graph));
    find_parts(out, parts.op);
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
