/*
 * onnx_check.c -- checks that a model is a complete, acyclic graph
 */
#include <string.h>

#include "onnx_file/onnx.h"

/* the names of all values defined so far -> themselves */
typedef struct {
    const td_onnx *m;
    const char *what;
    td_map names;
} checker;

static td_status define(checker *c, const char *name, const char *as)
{
    if (!*name)
        return td_error(TD_EFORMAT, "'%s': %s has no name", c->what, as);
    if (td_map_has(&c->names, name))
        return td_error(TD_EFORMAT, "'%s': the name '%s' is used twice", c->what, name);
    return td_map_set(&c->names, name, c);
}

static td_status check_tensor(const checker *c, const td_tensor *t)
{
    size_t n_bytes = td_dtype_bytes(t->dtype);
    if (!n_bytes)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' has no type", c->what, t->name);
    for (int i = 0; i < t->rank; i++)
        if (!td_mul_size(n_bytes, (size_t)t->dim[i], &n_bytes))
            return td_error(TD_EFORMAT, "'%s': the shape of tensor '%s' has too many elements",
                            c->what, t->name);
    if (n_bytes != t->n_bytes)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' has %zu bytes, its shape needs %zu", c->what,
                        t->name, t->n_bytes, n_bytes);
    return TD_OK;
}

static td_status check_attrs(const checker *c, const td_onnx_node *n)
{
    for (int i = 0; i < n->n_attr; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(n->attr[i].name, n->attr[k].name) == 0)
                return td_error(TD_EFORMAT, "'%s': node '%s' has the attribute '%s' twice", c->what,
                                n->name, n->attr[i].name);
    for (int i = 0; i < n->n_attr; i++)
        if (n->attr[i].tensor)
            TD_TRY(check_tensor(c, n->attr[i].tensor));
    return TD_OK;
}

static td_status check_node(checker *c, const td_onnx_node *n)
{
    if (!*n->op)
        return td_error(TD_EFORMAT, "'%s': node '%s' has no operator", c->what, n->name);
    if (n->n_out < 1)
        return td_error(TD_EFORMAT, "'%s': node '%s' has no result", c->what, n->name);
    if (n->n_attr > 64)
        return td_error(TD_ELIMIT, "'%s': node '%s' has %d attributes, wanted at most 64", c->what,
                        n->name, n->n_attr);
    TD_TRY(check_attrs(c, n));
    for (int i = 0; i < n->n_in; i++)
        if (*n->in[i] && !td_map_has(&c->names, n->in[i]))
            return td_error(TD_EFORMAT,
                            "'%s': node '%s' reads '%s', which no earlier node produces: it is "
                            "missing, or the graph has a cycle",
                            c->what, n->name, n->in[i]);
    for (int i = 0; i < n->n_out; i++)
        TD_TRY(define(c, n->out[i], "a result"));
    return TD_OK;
}

static td_status add_unique(const checker *c, td_map *seen, const char *name, const char *what)
{
    if (td_map_has(seen, name))
        return td_error(TD_EFORMAT, "'%s': two %s are named '%s'", c->what, what, name);
    return td_map_set(seen, name, seen);
}

static td_status check_list(const checker *c, const td_onnx_values *list, const char *what)
{
    td_map seen = { 0 };
    td_status st = TD_OK;
    for (size_t i = 0; i < list->n && st == TD_OK; i++)
        st = add_unique(c, &seen, list->at[i].name, what);
    td_map_release(&seen);
    return st;
}

/* outputs must exist and have a type; a declared type must belong to an existing value */
static td_status check_values(checker *c)
{
    const td_onnx *m = c->m;
    if (!m->outputs.n)
        return td_error(TD_EFORMAT, "'%s' has no output", c->what);
    for (size_t i = 0; i < m->outputs.n; i++) {
        const td_onnx_value *v = &m->outputs.at[i];
        if (!td_map_has(&c->names, v->name))
            return td_error(TD_EFORMAT, "'%s': no node produces the output '%s'", c->what, v->name);
        if (!v->dtype)
            return td_error(TD_EFORMAT, "'%s': output '%s' has an unsupported type", c->what,
                            v->name);
    }
    for (size_t i = 0; i < m->values.n; i++)
        if (!td_map_has(&c->names, m->values.at[i].name))
            return td_error(TD_EFORMAT,
                            "'%s': a shape is declared for '%s', but there is no such value",
                            c->what, m->values.at[i].name);
    return TD_OK;
}

static td_status check(checker *c)
{
    const td_onnx *m = c->m;
    for (size_t i = 0; i < m->inputs.n; i++) {
        TD_TRY(define(c, m->inputs.at[i].name, "an input"));
        if (!m->inputs.at[i].dtype)
            return td_error(TD_EFORMAT, "'%s': input '%s' has an unsupported type", c->what,
                            m->inputs.at[i].name);
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        TD_TRY(define(c, m->tensors[i].name, "a tensor"));
        TD_TRY(check_tensor(c, &m->tensors[i]));
    }
    for (size_t i = 0; i < m->n_nodes; i++)
        TD_TRY(check_node(c, &m->nodes[i]));
    TD_TRY(check_list(c, &m->outputs, "outputs"));
    TD_TRY(check_list(c, &m->values, "shapes"));
    return check_values(c);
}

td_status td_onnx_check(const td_onnx *m, const char *what)
{
    checker c = { .m = m, .what = what };
    td_status st = check(&c);
    td_map_release(&c.names);
    return st;
}
