/*
 * graph.c -- queries on graphs, and the verifier
 */
#include "ir/graph.h"

#include <string.h>

#include "base/text.h"
#include "ir/op.h"

void td_graph_free(td_graph *g)
{
    if (!g)
        return;
    td_arena a = g->arena; /* the graph itself lives in its arena */
    td_arena_release(&a);
}

bool td_is_wide_operand(const td_node *n, int i)
{
    return (n->op->wide_in >> i & 1) && td_in_type(n, i)->dtype == TD_DT_F32 &&
           td_dtype_is_half(td_in_type(n, 0)->dtype);
}

bool td_value_is_param(const td_value *v)
{
    return v->producer && strcmp(v->producer->op->name, "param") == 0;
}

bool td_value_is_input(const td_value *v)
{
    return v->producer && strcmp(v->producer->op->name, "input") == 0;
}

bool td_value_is_output(const td_graph *g, const td_value *v)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == v)
            return true;
    return false;
}

const td_value *td_value_root(const td_value *v)
{
    while (v->producer->op->is_alias)
        v = v->producer->in[0];
    return v;
}

bool td_node_has_effect(const td_node *n)
{
    return n->op->writes != 0 || n->op->is_collective;
}

td_value *td_graph_find(const td_graph *g, const char *name)
{
    for (int i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i]->name, name) == 0)
            return g->values[i];
    return NULL;
}

td_value *td_graph_output_value(const td_graph *g, const char *name)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, name) == 0)
            return g->outputs[i].value;
    return NULL;
}

td_type td_value_type(const td_value *v)
{
    return v->type;
}

const char *td_value_name(const td_value *v)
{
    return v->name;
}

/* the i-th parameter's value; NULL past the end */
static const td_value *param_at(const td_graph *g, int i)
{
    for (int k = 0; k < g->n_values; k++)
        if (td_value_is_param(g->values[k]) && i-- == 0)
            return g->values[k];
    return NULL;
}

int td_graph_param_count(const td_graph *g)
{
    int n = 0;
    for (int k = 0; k < g->n_values; k++)
        n += td_value_is_param(g->values[k]);
    return n;
}

const char *td_graph_param_name(const td_graph *g, int i)
{
    const td_value *v = param_at(g, i);
    return v ? v->name : NULL;
}

td_type td_graph_param_type(const td_graph *g, int i)
{
    const td_value *v = param_at(g, i);
    return v ? v->type : (td_type){ 0 };
}

int64_t td_graph_macs(const td_graph *g)
{
    int64_t sum = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->macs)
            sum += g->nodes[i]->op->macs(g->nodes[i]);
    return sum;
}

const char *td_node_label(const td_node *n)
{
    static _Thread_local char label[128];
    const char *name = n->out && n->n_out ? n->out[0]->name : n->op->name;
    for (int i = 0; i < n->n_in; i++)
        if (td_value_is_param(n->in[i])) {
            name = n->in[i]->name;
            break;
        }
    const char *dot = strrchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : strlen(name);
    len = len < sizeof label - 1 ? len : sizeof label - 1;
    memcpy(label, name, len);
    label[len] = '\0';
    return label;
}

/* --- checks ----------------------------------------------------------------------------------- */

/* an overwritten operand must be a parameter, and be an operand only once */
static td_status check_written(const td_node *n, int i)
{
    if (!(n->op->writes >> i & 1))
        return TD_OK;
    if (!td_value_is_param(n->in[i]))
        return td_error(TD_ESHAPE, "%s: operand %d is overwritten and must be a parameter",
                        n->op->name, i);
    for (int k = 0; k < i; k++)
        if (n->in[k] == n->in[i])
            return td_error(TD_ESHAPE, "%s: operands %d and %d are both '%s', which is overwritten",
                            n->op->name, k, i, n->in[i]->name);
    return TD_OK;
}

static td_status check_operands(const td_node *n)
{
    const td_op *op = n->op;
    int most = op->n_in_max ? op->n_in_max : op->n_in;
    if (n->n_in < op->n_in || n->n_in > most)
        return td_error(TD_ESHAPE, "%s: has %d operands, wanted %d%s", op->name, n->n_in, op->n_in,
                        most > op->n_in ? " or more" : "");
    for (int i = 0; i < n->n_in; i++) {
        int want = op->in_rank[i];
        if (want && n->in[i]->type.rank != want)
            return td_error(TD_ESHAPE, "%s: operand %d has %d dimensions, wanted %d", op->name, i,
                            n->in[i]->type.rank, want);
        if (!(op->any_dtype >> i & 1) && !td_dtype_is_float(n->in[i]->type.dtype))
            return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted a float type", op->name, i,
                            td_dtype_name(n->in[i]->type.dtype));
        TD_TRY(check_written(n, i));
    }
    return TD_OK;
}

td_status td_node_infer(const td_node *n, td_type *y)
{
    TD_TRY(n->op->infer(n, y));
    for (int i = 0; i < n->n_out; i++) {
        if (n->op->layout != TD_LAYOUT_CHOOSES)
            memset(y[i].layout, 0, sizeof y[i].layout);
        if (n->op->layout == TD_LAYOUT_FOLLOWS && n->n_in && y[i].rank == n->in[0]->type.rank)
            memcpy(y[i].layout, n->in[0]->type.layout, sizeof y[i].layout);
        for (int d = 0; d < y[i].rank; d++)
            if (y[i].dim[d] < 1)
                return td_error(TD_ESHAPE, "%s: dimension %d of the result would be %lld",
                                n->op->name, d, (long long)y[i].dim[d]);
        if (td_type_bytes(&y[i]) == 0)
            return td_error(TD_ESHAPE, "%s: the result is too large, or does not match layout '%s'",
                            n->op->name, y[i].layout);
    }
    return TD_OK;
}

td_status td_node_check(const td_node *n)
{
    TD_TRY(check_operands(n));
    if (n->op->fields)
        TD_TRY_MSG(td_fields_check(n->op->fields, n->attr), "%s", n->op->name);
    return TD_OK;
}

const char *td_memory_order(const td_value *v)
{
    const td_node *from = v->producer;
    return from->op->layout == TD_LAYOUT_FOLLOWS && from->n_in ? from->in[0]->type.layout : "";
}

/* the layout that operand or result i must have; NULL: any */
static const char *wanted_layout(const td_node *n, int i, const td_type *t)
{
    if (n->op->is_leaf || (i < n->n_in && ((n->op->shape_only | n->op->own_layout) >> i & 1)))
        return NULL;
    if (n->op->layout == TD_LAYOUT_PLAIN)
        return "";
    if (n->op->layout != TD_LAYOUT_FOLLOWS)
        return NULL;
    if (n->n_in && t->rank == n->in[0]->type.rank)
        return n->in[0]->type.layout;
    return i < n->n_in ? NULL : "";
}

static td_status check_layouts(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type;
        const char *wanted = wanted_layout(n, i, t);
        if (wanted && strcmp(t->layout, wanted) != 0)
            return td_error(TD_ESHAPE, "%s: %s %d has layout '%s', wanted '%s'", n->op->name,
                            i < n->n_in ? "operand" : "result", i < n->n_in ? i : i - n->n_in,
                            t->layout, wanted);
        if (i < n->n_in && (n->op->memory_order >> i & 1) &&
            strcmp(td_memory_order(n->in[i]), n->in[0]->type.layout) != 0)
            return td_error(TD_ESHAPE, "%s: operand %d has layout '%s', operand 0 has '%s'",
                            n->op->name, i, td_memory_order(n->in[i]), n->in[0]->type.layout);
    }
    return TD_OK;
}

static td_status bad_result(const td_node *n, int i, const td_type *is)
{
    td_text said = { 0 }, found = { 0 };
    td_type_print(&n->out[i]->type, &said);
    td_type_print(is, &found);
    td_status st = td_error(TD_ESHAPE, "%s: '%%%s' is declared as %s, but is %s", n->op->name,
                            n->out[i]->name, td_text_get(&said), td_text_get(&found));
    td_text_release(&said);
    td_text_release(&found);
    return st;
}

typedef struct {
    const td_graph *g;
    const td_value **root; /* [values] the value whose memory it uses, after its node was visited */
    bool *overwritten;     /* [values] parameters that an earlier node overwrote */
} verifier;

static td_status verify_operands(const verifier *vf, const td_node *n)
{
    const td_graph *g = vf->g;
    for (int i = 0; i < n->n_in; i++) {
        const td_value *v = n->in[i];
        if (v->id < 0 || v->id >= g->n_values || g->values[v->id] != v)
            return td_error(TD_ESHAPE, "%s: operand %d belongs to another graph", n->op->name, i);
        if (!v->producer || v->producer->id >= n->id)
            return td_error(TD_ESHAPE, "%s: operand %d is used before it exists", n->op->name, i);
        if (vf->overwritten[vf->root[v->id]->id] && !(n->op->after_update >> i & 1))
            return td_error(TD_ESHAPE, "%s: operand '%s' was overwritten before", n->op->name,
                            vf->root[v->id]->name);
    }
    return TD_OK;
}

static td_status verify_node(const verifier *vf, const td_node *n)
{
    td_type y[TD_OUT_MAX];
    TD_TRY(verify_operands(vf, n));
    TD_TRY(td_node_check(n));
    if (n->op->is_leaf)
        return TD_OK;
    TD_TRY(td_node_infer(n, y));
    for (int i = 0; i < n->n_out; i++)
        if (y[i].dtype != n->out[i]->type.dtype || !td_type_same_shape(&y[i], &n->out[i]->type))
            return bad_result(n, i, &y[i]);
    if (n->op->is_alias && strcmp(y[0].layout, n->out[0]->type.layout) != 0)
        return bad_result(n, 0, &y[0]);
    return check_layouts(n);
}

static void note_node(verifier *vf, const td_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        vf->root[n->out[i]->id] = n->op->is_alias ? vf->root[n->in[0]->id] : n->out[i];
    for (int i = 0; i < n->n_in; i++)
        if (n->op->writes >> i & 1)
            vf->overwritten[n->in[i]->id] = true;
}

static td_status verify_outputs(const verifier *vf)
{
    const td_graph *g = vf->g;
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *v = g->outputs[i].value;
        if (v->id < 0 || v->id >= g->n_values || g->values[v->id] != v)
            return td_error(TD_ESHAPE, "output '%s' belongs to another graph", g->outputs[i].name);
        if (vf->overwritten[vf->root[v->id]->id])
            return td_error(TD_ESHAPE, "output '%s' is parameter '%s', which the graph overwrites",
                            g->outputs[i].name, vf->root[v->id]->name);
    }
    return TD_OK;
}

td_status td_graph_verify(const td_graph *g)
{
    size_t n_values = (size_t)g->n_values + 1;
    verifier vf = { g, td_alloc(n_values, sizeof *vf.root),
                    td_alloc(n_values, sizeof *vf.overwritten) };
    td_status st = vf.root && vf.overwritten ? TD_OK : TD_ENOMEM;

    for (int i = 0; st == TD_OK && i < g->n_nodes; i++) {
        TD_CHECK(g->nodes[i]->id == i);
        st = verify_node(&vf, g->nodes[i]);
        if (st == TD_OK)
            note_node(&vf, g->nodes[i]);
        else
            st = td_error_context(st, "node %d", i);
    }
    if (st == TD_OK)
        st = verify_outputs(&vf);
    td_free((void *)vf.root);
    td_free(vf.overwritten);
    return st;
}

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool consists_of(const char *name, const char *chars)
{
    const size_t n = strspn(name, chars);
    return n > 0 && name[n] == '\0';
}

bool td_name_fits(const char *name)
{
    return consists_of(name, ALNUM TD_NAME_MARKS) && strlen(name) < 256;
}

bool td_name_is_bare(const char *name)
{
    return consists_of(name, ALNUM "_.-/");
}
