/*
 * build.c -- emits nodes into a new graph; records the first failure
 *
 * The growing arrays of nodes and values live in plain blocks until td_build_end copies them into
 * the graph's arena.  After a failure every call returns the builder's dummy value, whose type is a
 * harmless float32 scalar.
 */
#include "ir/build.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "ir/leaf.h"

struct td_builder {
    td_arena arena; /* moves to the graph */
    td_node **nodes;
    td_value **values;
    td_value **params;
    td_graph_output *outputs;
    size_t n_nodes, cap_nodes, n_values, cap_values, n_params, cap_params, n_outputs, cap_outputs;
    td_map names;
    td_status st;
    char message[1024];
    td_value dummy;
    td_node dummy_node;
};

/* td_build_begin returns it if there is no memory for a builder: it has already failed, so no call
   changes it */
static const td_node no_node = { .op = &td_op_input };
static const td_builder no_builder = {
    .st = TD_ENOMEM,
    .message = "out of memory for a graph builder",
    .dummy = { .name = "", .type = { .dtype = TD_DT_F32 }, .producer = (td_node *)&no_node },
};

td_builder *td_build_begin(void)
{
    td_builder *b = TD_NEW(td_builder);
    if (!b)
        return (td_builder *)&no_builder;
    b->dummy_node.op = &td_op_input;
    b->dummy =
        (td_value){ .name = "", .type = td_type_scalar(TD_DT_F32), .producer = &b->dummy_node };
    return b;
}

void td_build_fail(td_builder *b, td_status st)
{
    if (!td_build_ok(b))
        return;
    b->st = st;
    snprintf(b->message, sizeof b->message, "%s", td_error_message());
}

bool td_build_ok(const td_builder *b)
{
    return b && b->st == TD_OK;
}

td_value *td_build_dummy(td_builder *b)
{
    return b ? &b->dummy : NULL;
}

void td_build_abandon(td_builder *b)
{
    if (!b || b == &no_builder)
        return;
    td_map_release(&b->names);
    td_free(b->nodes);
    td_free(b->values);
    td_free(b->params);
    td_free(b->outputs);
    td_arena_release(&b->arena);
    td_free(b);
}

/* --- values ----------------------------------------------------------------------------------- */

static td_status add_value(td_builder *b, td_node *n, int index, const td_type *type)
{
    TD_TRY(td_reserve(&b->values, &b->cap_values, b->n_values + 1, sizeof *b->values));
    td_value *v = td_arena_alloc(&b->arena, 1, sizeof *v);
    if (!v)
        return TD_ENOMEM;
    *v = (td_value){ .id = (int)b->n_values, .type = *type, .producer = n, .index = index };
    v->name = "";
    b->values[b->n_values++] = v;
    n->out[index] = v;
    return TD_OK;
}

static td_status set_name(td_builder *b, td_value *v, const char *name)
{
    char unique[256]; /* a name that the text form can parse */
    snprintf(unique, sizeof unique, "%s", name);
    for (int i = 2; td_map_has(&b->names, unique); i++)
        snprintf(unique, sizeof unique, "%.240s_%d", name, i);
    char *copy = td_arena_text(&b->arena, unique);
    if (!copy)
        return TD_ENOMEM;
    TD_TRY(td_map_set(&b->names, copy, v));
    v->name = copy;
    return TD_OK;
}

void td_build_set_name(td_builder *b, td_value *v, const char *name)
{
    if (td_build_ok(b) && v != &b->dummy) {
        td_status st = set_name(b, v, name);
        if (st != TD_OK)
            td_build_fail(b, st);
    }
}

void td_build_set_layout(td_builder *b, td_value *v, const char *layout)
{
    if (!td_build_ok(b) || v == &b->dummy)
        return;
    td_blocking bl;
    snprintf(v->type.layout, sizeof v->type.layout, "%s", layout);
    if (!td_type_blocking(&v->type, &bl))
        td_build_fail(b, td_error(TD_ESHAPE, "layout '%s' does not match '%%%s'", layout, v->name));
}

/* --- nodes ------------------------------------------------------------------------------------ */

void *td_build_attr(td_builder *b, const td_op *op, const char *text)
{
    if (!op->attr_bytes || !td_build_ok(b))
        return NULL;
    void *attr = td_arena_alloc(&b->arena, 1, op->attr_bytes);
    if (!attr) {
        td_build_fail(b, TD_ENOMEM);
        return NULL;
    }
    td_fields_default(op->fields, attr);
    if (text) {
        td_status st = td_fields_parse(op->fields, attr, text, &b->arena);
        if (st != TD_OK)
            td_build_fail(b, td_error_context(st, "%s", op->name));
    }
    return attr;
}

const char *td_build_type_text(td_builder *b, const td_type *t)
{
    td_text text = { 0 };
    if (!td_build_ok(b))
        return "";
    td_type_print(t, &text);
    char *copy =
        td_text_status(&text) == TD_OK ? td_arena_text(&b->arena, td_text_get(&text)) : NULL;
    td_text_release(&text);
    if (!copy)
        td_build_fail(b, TD_ENOMEM);
    return copy ? copy : "";
}

/* copies texts too: `attr` may belong to a graph that is freed before this one */
static td_status copy_attr(td_builder *b, const td_op *op, const void *attr, void *out)
{
    memcpy(out, attr, op->attr_bytes);
    for (const td_field *f = op->fields; f->kind != TD_KIND_END; f++) {
        const char *text;
        if (f->kind != TD_KIND_TEXT)
            continue;
        memcpy(&text, (const char *)attr + f->offset, sizeof text);
        if (text && !(text = td_arena_text(&b->arena, text)))
            return TD_ENOMEM;
        memcpy((char *)out + f->offset, &text, sizeof text);
    }
    return TD_OK;
}

static td_status new_node(td_builder *b, const td_op *op, const void *attr, int n_in,
                          td_value *const *in, td_node **out)
{
    TD_TRY(td_reserve(&b->nodes, &b->cap_nodes, b->n_nodes + 1, sizeof *b->nodes));
    td_node *n = td_arena_alloc(&b->arena, 1, sizeof *n);
    td_value **ends = td_arena_alloc(&b->arena, (size_t)(n_in + op->n_out) + 1, sizeof *ends);
    if (!n || !ends)
        return TD_ENOMEM;
    *n = (td_node){ .id = (int)b->n_nodes, .op = op, .n_in = n_in, .n_out = op->n_out };
    n->in = ends;
    n->out = ends + n_in;
    if (n_in)
        memcpy(n->in, in, (size_t)n_in * sizeof *in);
    if (op->attr_bytes) {
        n->attr = td_arena_alloc(&b->arena, 1, op->attr_bytes);
        if (!n->attr)
            return TD_ENOMEM;
        if (attr)
            TD_TRY(copy_attr(b, op, attr, n->attr));
        else
            td_fields_default(op->fields, n->attr);
    }
    *out = n;
    return TD_OK;
}

static td_status emit(td_builder *b, const td_op *op, const void *attr, int n_in,
                      td_value *const *in, td_node **out)
{
    td_node *n;
    td_type y[TD_OUT_MAX] = { 0 };
    TD_TRY(new_node(b, op, attr, n_in, in, &n));
    TD_TRY(td_node_check(n));
    TD_TRY(td_node_infer(n, y));
    for (int i = 0; i < op->n_out; i++)
        TD_TRY(add_value(b, n, i, &y[i]));
    for (int i = 0; i < n_in; i++)
        in[i]->n_uses++;
    b->nodes[b->n_nodes++] = n;
    *out = n;
    return TD_OK;
}

td_value *td_emit_n(td_builder *b, const td_op *op, const void *attr, int n_in, td_value *const *in,
                    td_value **out)
{
    for (int i = 0; out && b && i < op->n_out; i++)
        out[i] = &b->dummy;
    if (!td_build_ok(b))
        return b ? &b->dummy : NULL;
    if (n_in < 0) {
        td_build_fail(b, td_error(TD_EARG, "%s: %d operands", op->name, n_in));
        return &b->dummy;
    }
    while (n_in > op->n_in && !in[n_in - 1])
        n_in--;
    for (int i = 0; i < n_in; i++)
        if (!in[i] || in[i] == &b->dummy) {
            td_build_fail(b, td_error(TD_EARG, "%s: operand %d is missing", op->name, i));
            return &b->dummy;
        }

    td_node *n;
    td_status st = emit(b, op, attr, n_in, in, &n);
    if (st != TD_OK) {
        td_build_fail(b, st);
        return &b->dummy;
    }
    for (int i = 0; out && i < op->n_out; i++)
        out[i] = n->out[i];
    return op->n_out ? n->out[0] : &b->dummy;
}

static td_status emit_leaf(td_builder *b, const td_op *op, const void *attr, const char *name,
                           const td_type *type, td_value **out)
{
    td_node *n;
    if (!td_name_fits(name))
        return td_error(TD_EARG,
                        "%s: '%.80s' is not a valid name, wanted at most 255 letters, digits "
                        "and " TD_NAME_MARKS,
                        op->name, name);
    if (td_map_has(&b->names, name))
        return td_error(TD_EARG, "%s: the value name '%s' is already used", op->name, name);
    if (type->rank < 0 || type->rank > TD_RANK_MAX)
        return td_error(TD_ESHAPE, "%s: '%s' has %d dimensions, wanted at most %d", op->name, name,
                        type->rank, TD_RANK_MAX);
    for (int d = 0; d < type->rank; d++)
        if (type->dim[d] < 1)
            return td_error(TD_ESHAPE, "%s: dimension %d of '%s' is %lld, wanted 1 or more",
                            op->name, d, name, (long long)type->dim[d]);
    if (td_type_bytes(type) == 0)
        return td_error(TD_ESHAPE,
                        "%s: '%s' is too large, or has an unknown dtype or layout '%.27s'",
                        op->name, name, type->layout);
    TD_TRY(new_node(b, op, attr, 0, NULL, &n));
    TD_TRY(td_node_check(n));
    TD_TRY(add_value(b, n, 0, type));
    TD_TRY(set_name(b, n->out[0], name));
    if (op == &td_op_param) {
        TD_TRY(td_reserve(&b->params, &b->cap_params, b->n_params + 1, sizeof *b->params));
        b->params[b->n_params++] = n->out[0];
    }
    b->nodes[b->n_nodes++] = n;
    *out = n->out[0];
    return TD_OK;
}

td_value *td_emit_leaf(td_builder *b, const td_op *op, const void *attr, const char *name,
                       const td_type *type)
{
    td_value *v;
    if (!td_build_ok(b))
        return b ? &b->dummy : NULL;
    td_status st = emit_leaf(b, op, attr, name, type, &v);
    if (st == TD_OK)
        return v;
    td_build_fail(b, st);
    return &b->dummy;
}

td_value *td_input(td_builder *b, const char *name, td_type type)
{
    return td_emit_leaf(b, &td_op_input, NULL, name, &type);
}

td_value *td_param(td_builder *b, const char *name, td_dtype dtype, int rank, const int64_t *dim,
                   const char *attrs)
{
    if (!td_build_ok(b))
        return b ? &b->dummy : NULL;
    td_type type = td_type_of(dtype, rank, dim);
    td_value *old = td_map_get(&b->names, name);
    if (old && td_value_is_param(old) && td_type_equal(&old->type, &type))
        return old;
    return td_emit_leaf(b, &td_op_param, td_build_attr(b, &td_op_param, attrs), name, &type);
}

void td_output(td_builder *b, const char *name, td_value *v)
{
    if (!td_build_ok(b))
        return;
    td_status st = TD_OK;
    if (!v || v == &b->dummy || !td_name_is_bare(name) || !td_name_fits(name))
        st = td_error(TD_EARG, "output '%s' has no value or an invalid name", name);
    for (size_t i = 0; st == TD_OK && i < b->n_outputs; i++)
        if (strcmp(b->outputs[i].name, name) == 0)
            st = td_error(TD_EARG, "the output name '%s' is already used", name);
    if (st == TD_OK)
        st = td_reserve(&b->outputs, &b->cap_outputs, b->n_outputs + 1, sizeof *b->outputs);
    char *copy = st == TD_OK ? td_arena_text(&b->arena, name) : NULL;
    if (!copy) {
        td_build_fail(b, st == TD_OK ? TD_ENOMEM : st);
        return;
    }
    b->outputs[b->n_outputs++] = (td_graph_output){ copy, v };
    v->n_uses++;
}

int td_build_param_count(const td_builder *b)
{
    return td_build_ok(b) ? (int)b->n_params : 0;
}

td_value *td_build_param(const td_builder *b, int i)
{
    return i >= 0 && i < td_build_param_count(b) ? b->params[i] : NULL;
}

/* --- finishing -------------------------------------------------------------------------------- */

/* numbers the values without a name; skips numbers used as names */
static td_status number_values(td_builder *b)
{
    char number[16];
    int next = 1;
    for (size_t i = 0; i < b->n_values; i++) {
        if (b->values[i]->name[0])
            continue;
        do
            snprintf(number, sizeof number, "%d", next++);
        while (td_map_has(&b->names, number));
        b->values[i]->name = td_arena_text(&b->arena, number);
        if (!b->values[i]->name)
            return TD_ENOMEM;
    }
    return TD_OK;
}

static void *keep(td_builder *b, const void *items, size_t n, size_t each)
{
    void *copy = td_arena_alloc(&b->arena, n + 1, each);
    if (copy && n)
        memcpy(copy, items, n * each);
    return copy;
}

static td_status finish(td_builder *b, td_graph **out)
{
    if (b->st != TD_OK)
        return td_error_set(b->st, b->message);
    TD_TRY(number_values(b));
    td_graph *g = td_arena_alloc(&b->arena, 1, sizeof *g);
    if (!g)
        return TD_ENOMEM;
    g->nodes = keep(b, b->nodes, b->n_nodes, sizeof *b->nodes);
    g->values = keep(b, b->values, b->n_values, sizeof *b->values);
    g->outputs = keep(b, b->outputs, b->n_outputs, sizeof *b->outputs);
    if (!g->nodes || !g->values || !g->outputs)
        return TD_ENOMEM;
    g->n_nodes = (int)b->n_nodes;
    g->n_values = (int)b->n_values;
    g->n_outputs = (int)b->n_outputs;
    g->arena = b->arena;
    b->arena = (td_arena){ 0 };
    *out = g;
    return TD_OK;
}

td_status td_build_finish(td_builder *b, td_graph **out)
{
    *out = NULL;
    if (!b)
        return TD_ENOMEM;
    td_status st = finish(b, out);
    td_build_abandon(b);
    return st;
}

td_status td_build_end(td_builder *b, td_graph **out)
{
    td_graph *g;
    *out = NULL;
    TD_TRY(td_build_finish(b, &g));
    td_status st = td_graph_verify(g);
    if (st == TD_OK)
        *out = g;
    else
        td_graph_free(g);
    return st;
}
