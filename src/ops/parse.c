/*
 * parse.c -- parses the text form of graphs
 *
 * One statement per line; '#' begins a comment.  Result types may be omitted ("%y = relu %x")
 * except for input and param; if given, they must agree with what the op infers, and their layout
 * is used. Errors name the source and the line.
 *
 * A text may come from an untrusted weight file, so it is limited to 20,000 nodes and names of 255
 * bytes; TD_ELIMIT otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "ir/build.h"
#include "ops/ops.h"

#define NAME_MAX_BYTES 256
#define LINES_MAX      1000000
/* the training step of ResNet-152 has about 6,000 nodes; memory planning takes quadratic time,
   which is a few seconds for this many nodes */
#define NODES_MAX 20000

typedef struct {
    char name[NAME_MAX_BYTES];
    bool has_type;
    td_type type;
} result;

typedef struct {
    td_builder *b;
    td_map values;
    const char *what;
    int line, n_nodes;
    bool has_statement;
    const char *s; /* the current position */
    td_arena scratch;
} parser;

static const char name_chars[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";

static void skip_space(parser *p)
{
    p->s += strspn(p->s, " \t\r");
}

static bool take(parser *p, char c)
{
    skip_space(p);
    if (*p->s != c)
        return false;
    p->s++;
    return true;
}

static td_status bad(const parser *p, const char *wanted)
{
    int n = (int)strcspn(p->s, "\r\n");
    if (n == 0)
        return td_error(TD_EFORMAT, "the line ends, wanted %s", wanted);
    return td_error(TD_EFORMAT, "found '%.*s', wanted %s", n < 40 ? n : 40, p->s, wanted);
}

static td_status word(parser *p, char *out, const char *wanted)
{
    skip_space(p);
    size_t n = strspn(p->s, name_chars);
    if (n == 0)
        return bad(p, wanted);
    if (n >= NAME_MAX_BYTES)
        return td_error(TD_ELIMIT, "'%.40s...' has %zu bytes, wanted at most %d in %s", p->s, n,
                        NAME_MAX_BYTES - 1, wanted);
    memcpy(out, p->s, n);
    out[n] = '\0';
    p->s += n;
    return TD_OK;
}

/* name, or "name" */
static td_status value_name(parser *p, char *out)
{
    if (*p->s != '"')
        return word(p, out, "a name");
    const size_t n = strcspn(p->s + 1, "\"\n");
    if (p->s[n + 1] != '"')
        return bad(p, "a name that ends with '\"'");
    if (n >= NAME_MAX_BYTES)
        return td_error(TD_ELIMIT, "a name has %zu bytes, wanted at most %d", n,
                        NAME_MAX_BYTES - 1);
    memcpy(out, p->s + 1, n);
    out[n] = '\0';
    if (!td_name_fits(out))
        return bad(p, "a name of letters, digits and " TD_NAME_MARKS);
    p->s += n + 2;
    return TD_OK;
}

static td_status operand(parser *p, td_value **out)
{
    char name[NAME_MAX_BYTES];
    if (!take(p, '%'))
        return bad(p, "an operand '%name'");
    TD_TRY(value_name(p, name));
    *out = td_map_get(&p->values, name);
    if (!*out)
        return td_error(TD_EFORMAT, "undefined value '%%%s'", name);
    return TD_OK;
}

static td_status parse_results(parser *p, result *r, int *n)
{
    do {
        if (*n == TD_OUT_MAX)
            return td_error(TD_EFORMAT, "more than %d results", TD_OUT_MAX);
        if (!take(p, '%'))
            return bad(p, "a result '%name'");
        TD_TRY(value_name(p, r[*n].name));
        if (td_map_has(&p->values, r[*n].name))
            return td_error(TD_EFORMAT, "value '%%%s' is already defined", r[*n].name);
        for (int i = 0; i < *n; i++)
            if (strcmp(r[i].name, r[*n].name) == 0)
                return td_error(TD_EFORMAT, "value '%%%s' is already defined", r[*n].name);
        r[*n].has_type = take(p, ':');
        if (r[*n].has_type) {
            const char *end;
            skip_space(p);
            if (!td_type_parse(p->s, &r[*n].type, &end))
                return bad(p, "a type like f32[8,3,32,32]");
            p->s = end;
        }
        (*n)++;
    } while (take(p, ','));
    return take(p, '=') ? TD_OK : bad(p, "'='");
}

/* the builder keeps its first error; returns it with this line's number */
static td_status builder_failure(parser *p)
{
    td_graph *g = NULL;
    td_status st = td_build_finish(p->b, &g);
    p->b = NULL;
    td_graph_free(g);
    return st;
}

static td_status parse_attr(parser *p, const td_op *op, void **out)
{
    *out = NULL;
    if (!take(p, '{'))
        return TD_OK;
    size_t n = strcspn(p->s, "}\n");
    if (p->s[n] != '}')
        return bad(p, "'}' at the end of the attributes");
    if (!op->fields)
        return td_error(TD_EFORMAT, "%s has no attributes", op->name);
    char *inside = td_arena_alloc(&p->scratch, n + 1, 1);
    if (!inside)
        return TD_ENOMEM;
    memcpy(inside, p->s, n);
    p->s += n + 1;
    *out = td_build_attr(p->b, op, inside);
    return td_build_ok(p->b) ? TD_OK : builder_failure(p);
}

static td_status at_end(parser *p)
{
    skip_space(p);
    return *p->s == '\0' || *p->s == '\n' || *p->s == '#' ? TD_OK : bad(p, "the end of the line");
}

static td_status check_result(const result *r, const td_value *v)
{
    if (!r->has_type || (r->type.dtype == v->type.dtype && td_type_same_shape(&r->type, &v->type)))
        return TD_OK;
    td_text is = { 0 };
    td_type_print(&v->type, &is);
    td_status st = td_error(TD_ESHAPE, "'%%%s' is %s", r->name, td_text_get(&is));
    td_text_release(&is);
    return st;
}

static td_status emit_statement(parser *p, const td_op *op, const void *attr, int n_in,
                                td_value **in, const result *r, int n_results)
{
    td_value *out[TD_OUT_MAX] = { 0 };
    if (++p->n_nodes > NODES_MAX)
        return td_error(TD_ELIMIT, "a graph of more than %d nodes", NODES_MAX);
    if (n_results != op->n_out)
        return td_error(TD_EFORMAT, "%s has %d results, %d are named", op->name, op->n_out,
                        n_results);
    if (op->is_leaf) {
        if (!r[0].has_type || n_in)
            return td_error(TD_EFORMAT, "%s: wanted '%%name:type = %s'", op->name, op->name);
        out[0] = td_emit_leaf(p->b, op, attr, r[0].name, &r[0].type);
    } else {
        td_emit_n(p->b, op, attr, n_in, in, out);
    }
    if (!td_build_ok(p->b))
        return builder_failure(p);

    for (int i = 0; i < n_results; i++) {
        TD_TRY(check_result(&r[i], out[i]));
        if (!op->is_leaf)
            td_build_set_name(p->b, out[i], r[i].name);
        if (r[i].has_type)
            td_build_set_layout(p->b, out[i], r[i].type.layout);
        if (!td_build_ok(p->b))
            return builder_failure(p);
        TD_TRY(td_map_set(&p->values, r[i].name, out[i]));
    }
    return TD_OK;
}

static td_status parse_output(parser *p)
{
    char name[NAME_MAX_BYTES];
    td_value *v;
    TD_TRY(word(p, name, "the output's name"));
    if (!take(p, '='))
        return bad(p, "'='");
    TD_TRY(operand(p, &v));
    TD_TRY(at_end(p));
    td_output(p->b, name, v);
    return td_build_ok(p->b) ? TD_OK : builder_failure(p);
}

static td_status parse_line(parser *p)
{
    result r[TD_OUT_MAX];
    td_value *in[TD_IN_MAX];
    char name[NAME_MAX_BYTES];
    int n_results = 0, n_in = 0;
    void *attr;

    skip_space(p);
    if (*p->s == '\0' || *p->s == '\n' || *p->s == '#')
        return TD_OK;
    p->has_statement = true;
    if (*p->s == '%')
        TD_TRY(parse_results(p, r, &n_results));
    TD_TRY(word(p, name, "an op"));
    if (n_results == 0 && strcmp(name, "output") == 0)
        return parse_output(p);

    const td_op *op = td_op_find(name);
    if (!op)
        return td_error(TD_EFORMAT, "unknown op '%s'", name);
    skip_space(p);
    if (*p->s == '%')
        do {
            if (n_in == TD_IN_MAX)
                return td_error(TD_EFORMAT, "more than %d operands", TD_IN_MAX);
            TD_TRY(operand(p, &in[n_in++]));
        } while (take(p, ','));
    TD_TRY(parse_attr(p, op, &attr));
    TD_TRY(at_end(p));
    return emit_statement(p, op, attr, n_in, in, r, n_results);
}

td_status td_graph_parse(const char *text, const char *what, td_graph **out)
{
    parser p = { .what = what, .b = td_build_begin(), .line = 1 };
    td_status st = p.b ? TD_OK : TD_ENOMEM;
    *out = NULL;

    for (const char *line = text; st == TD_OK && *line; p.line++) {
        p.s = line;
        st = p.line > LINES_MAX ? td_error(TD_ELIMIT, "more than %d lines", LINES_MAX)
                                : parse_line(&p);
        line += strcspn(line, "\n");
        line += *line == '\n';
        if (st != TD_OK || *line == '\0')
            break;
    }
    if (st != TD_OK) {
        st = td_error_context(st, "%s:%d", what, p.line);
    } else if (!p.has_statement) {
        st = td_error(TD_EFORMAT, "%s: it is empty, wanted a graph: a line for each operation",
                      what);
    } else {
        st = td_build_end(p.b, out);
        p.b = NULL;
        if (st != TD_OK)
            st = td_error_context(st, "%s", what);
    }
    td_build_abandon(p.b);
    td_map_release(&p.values);
    td_arena_release(&p.scratch);
    return st;
}
