/*
 * onnx_read.c -- parses an ONNX file; shares only the table of types with the writer
 *
 * One function per message.  A message that contains arrays is read twice: first to count, then to
 * fill them.  All counts are charged to one budget, so that memory is bounded by the file's size
 * and by the budget.
 */
#include "onnx_file/onnx_read.h"

#include <string.h>

#include "base/file_io.h"
#include "io/foreign.h"
#include "io/protobuf.h"

/* the number of occurrences of each field 1 .. 15 in a message */
static td_status count_fields(td_pb pb, int n[16])
{
    td_pb_field f;
    memset(n, 0, 16 * sizeof *n);
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number < 16)
            n[f.number]++;
    }
    return TD_OK;
}

static void *new_array(td_onnx_reader *r, int n, size_t each)
{
    return td_arena_alloc(&r->m->arena, (size_t)n + 1, each);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static td_status add_tensor(td_onnx_reader *r, td_pb pb)
{
    td_onnx *m = r->m;
    td_tensor t;
    TD_TRY(td_onnx_read_tensor(r, pb, &t));
    TD_TRY(td_reserve(&m->tensors, &m->cap_tensors, m->n_tensors + 1, sizeof *m->tensors));
    m->tensors[m->n_tensors++] = t;
    return TD_OK;
}

/* --- attributes and nodes --------------------------------------------------------------------- */

static td_status count_ints(td_pb pb, int field, size_t *n)
{
    td_pb_field f;
    *n = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == field)
            TD_TRY(td_pb_ints(&pb, &f, NULL, 0, n));
    }
    return TD_OK;
}

static td_status read_attr_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f,
                                 size_t room, size_t *n, td_onnx_attr *a)
{
    int64_t kind;
    td_pb inner;
    switch (f->number) {
    case 1:
        return td_onnx_get_text(r, pb, f, &a->name);
    case 2:
        return td_pb_float(pb, f, &a->f);
    case 3:
        return td_pb_int(pb, f, &a->i);
    case 4:
        return td_onnx_get_text(r, pb, f, &a->text);
    case 8:
        return td_pb_ints(pb, f, a->ints, room, n);
    case 20:
        TD_TRY(td_pb_int(pb, f, &kind));
        if (kind != TD_ONNX_FLOAT && kind != TD_ONNX_INT && kind != TD_ONNX_TEXT &&
            kind != TD_ONNX_TENSOR && kind != TD_ONNX_INTS)
            return td_onnx_refuse(
                r, "an attribute that is not a number, text, tensor or list of integers");
        a->kind = (td_onnx_kind)kind;
        return TD_OK;
    case 5:
        a->tensor = td_arena_alloc(&r->m->arena, 1, sizeof *a->tensor);
        if (!a->tensor)
            return TD_ENOMEM;
        TD_TRY(td_pb_enter(pb, f, &inner));
        return td_onnx_read_tensor(r, inner, a->tensor);
    case 6:
    case 10:
    case 11:
        return td_onnx_refuse(r, "an attribute with a graph or several tensors inside");
    case 21:
        return td_onnx_refuse(r, "a function's attribute");
    default:
        return TD_OK;
    }
}

static td_status read_attr(td_onnx_reader *r, td_pb pb, td_onnx_attr *a)
{
    td_pb_field f;
    size_t room, n = 0;
    *a = (td_onnx_attr){ .name = "", .text = "" };
    TD_TRY(count_ints(pb, 8, &room));
    TD_TRY(
        td_onnx_count_items(r, room > TD_ONNX_ITEMS_MAX ? TD_ONNX_ITEMS_MAX + 1 : (int64_t)room));
    a->ints = new_array(r, (int)room, sizeof *a->ints);
    if (!a->ints)
        return TD_ENOMEM;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_attr_field(r, &pb, &f, room, &n, a));
    }
    a->n = (int)n;
    if (!a->kind || (a->kind == TD_ONNX_TENSOR) != (a->tensor != NULL))
        return td_error(TD_EFORMAT, "'%s': attribute '%s' has no type, or no value of its type",
                        r->what, a->name);
    return TD_OK;
}

static td_status read_node_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f,
                                 td_onnx_node *n)
{
    td_pb inner;
    const char *domain;
    switch (f->number) {
    case 1:
        return td_onnx_get_text(r, pb, f, &n->in[n->n_in++]);
    case 2:
        return td_onnx_get_text(r, pb, f, &n->out[n->n_out++]);
    case 3:
        return td_onnx_get_text(r, pb, f, &n->name);
    case 4:
        return td_onnx_get_text(r, pb, f, &n->op);
    case 5:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_attr(r, inner, &n->attr[n->n_attr++]);
    case 7:
        TD_TRY(td_onnx_get_text(r, pb, f, &domain));
        return *domain ? td_onnx_refuse(r, "a node of another domain") : TD_OK;
    case 8:
        return td_onnx_refuse(r, "a node with an overload");
    default:
        return TD_OK;
    }
}

static td_status read_node(td_onnx_reader *r, td_pb pb)
{
    int n[16];
    td_pb_field f;
    td_onnx *m = r->m;
    td_onnx_node node = { .op = "", .name = "" };
    TD_TRY(count_fields(pb, n));
    TD_TRY(td_onnx_count_items(r, 1 + (int64_t)n[1] + n[2] + n[5]));
    node.in = new_array(r, n[1], sizeof *node.in);
    node.out = new_array(r, n[2], sizeof *node.out);
    node.attr = new_array(r, n[5], sizeof *node.attr);
    if (!node.in || !node.out || !node.attr)
        return TD_ENOMEM;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_node_field(r, &pb, &f, &node));
    }
    TD_TRY(td_reserve(&m->nodes, &m->cap_nodes, m->n_nodes + 1, sizeof *m->nodes));
    m->nodes[m->n_nodes++] = node;
    return TD_OK;
}

/* --- types ------------------------------------------------------------------------------------ */

static td_status read_dim(td_onnx_reader *r, td_pb pb, td_onnx_dim *d)
{
    td_pb_field f;
    *d = (td_onnx_dim){ .value = -1 };
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1) {
            TD_TRY(td_pb_int(&pb, &f, &d->value));
            if (d->value < 0)
                return td_error(TD_EFORMAT, "'%s' has an invalid dimension of %lld", r->what,
                                (long long)d->value);
        } else if (f.number == 2) {
            TD_TRY(td_onnx_get_text(r, &pb, &f, &d->param));
        }
    }
    return TD_OK;
}

static td_status read_shape(td_onnx_reader *r, td_pb pb, td_onnx_value *v)
{
    td_pb_field f;
    td_pb inner;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number != 1)
            continue;
        if (v->rank == TD_ONNX_RANK_MAX)
            return td_error(TD_ELIMIT, "'%s': '%s' has more than %d dimensions", r->what, v->name,
                            TD_ONNX_RANK_MAX);
        TD_TRY(td_pb_enter(&pb, &f, &inner));
        TD_TRY(read_dim(r, inner, &v->dim[v->rank++]));
    }
    return TD_OK;
}

static td_status read_tensor_type(td_onnx_reader *r, td_pb pb, td_onnx_value *v)
{
    td_pb_field f;
    td_pb inner;
    int64_t number;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1) {
            TD_TRY(td_pb_int(&pb, &f, &number));
            v->dtype = td_onnx_dtype_of(number);
        } else if (f.number == 2) {
            TD_TRY(td_pb_enter(&pb, &f, &inner));
            TD_TRY(read_shape(r, inner, v));
        }
    }
    return TD_OK;
}

static td_status read_type(td_onnx_reader *r, td_pb pb, td_onnx_value *v)
{
    td_pb_field f;
    td_pb inner;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number != 1)
            return td_onnx_refuse(r, "a value that is not a tensor");
        TD_TRY(td_pb_enter(&pb, &f, &inner));
        TD_TRY(read_tensor_type(r, inner, v));
    }
    return TD_OK;
}

static td_status read_value(td_onnx_reader *r, td_pb pb, td_onnx_values *list)
{
    td_pb_field f;
    td_pb inner;
    td_onnx_value v = { .name = "" };
    TD_TRY(td_onnx_count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1) {
            TD_TRY(td_onnx_get_text(r, &pb, &f, &v.name));
        } else if (f.number == 2) {
            TD_TRY(td_pb_enter(&pb, &f, &inner));
            TD_TRY(read_type(r, inner, &v));
        }
    }
    TD_TRY(td_reserve(&list->at, &list->cap, list->n + 1, sizeof *list->at));
    list->at[list->n++] = v;
    return TD_OK;
}

/* --- graph and model -------------------------------------------------------------------------- */

static td_status read_graph_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f)
{
    td_pb inner;
    switch (f->number) {
    case 1:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_node(r, inner);
    case 2:
        return td_onnx_get_text(r, pb, f, &r->m->graph_name);
    case 5:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return add_tensor(r, inner);
    case 11:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_value(r, inner, &r->m->inputs);
    case 12:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_value(r, inner, &r->m->outputs);
    case 13:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_value(r, inner, &r->m->values);
    case 14:
    case 15:
        return td_onnx_refuse(r, "sparse tensors or quantisation annotations");
    default:
        return TD_OK;
    }
}

static td_status read_graph(td_onnx_reader *r, td_pb pb)
{
    td_pb_field f;
    if (r->has_graph)
        return td_error(TD_EFORMAT, "'%s' has two graphs", r->what);
    r->has_graph = true;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_graph_field(r, &pb, &f));
    }
    return TD_OK;
}

static td_status read_opset(td_onnx_reader *r, td_pb pb)
{
    td_pb_field f;
    const char *domain = "";
    if (r->has_opset)
        return td_onnx_refuse(r, "operators of two domains");
    r->has_opset = true;
    r->m->opset = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &domain));
        else if (f.number == 2)
            TD_TRY(td_pb_int(&pb, &f, &r->m->opset));
    }
    if (*domain)
        return td_onnx_refuse(r, "operators of another domain");
    if (r->m->opset < TD_ONNX_OPSET_READ_MIN || r->m->opset > TD_ONNX_OPSET_MAX)
        return td_error(TD_EUNSUPPORTED, "'%s' uses opset %lld, wanted %d to %d", r->what,
                        (long long)r->m->opset, TD_ONNX_OPSET_READ_MIN, TD_ONNX_OPSET_MAX);
    return TD_OK;
}

static td_status read_meta(td_onnx_reader *r, td_pb pb)
{
    td_pb_field f;
    td_onnx *m = r->m;
    td_onnx_meta pair = { "", "" };
    TD_TRY(td_onnx_count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &pair.key));
        else if (f.number == 2)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &pair.value));
    }
    TD_TRY(td_reserve(&m->meta, &m->cap_meta, m->n_meta + 1, sizeof *m->meta));
    m->meta[m->n_meta++] = pair;
    return TD_OK;
}

static td_status read_model_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f)
{
    td_pb inner;
    switch (f->number) {
    case 1:
        return td_pb_int(pb, f, &r->m->ir_version);
    case 2:
        return td_onnx_get_text(r, pb, f, &r->m->producer);
    case 3:
        return td_onnx_get_text(r, pb, f, &r->m->producer_version);
    case 7:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_graph(r, inner);
    case 8:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_opset(r, inner);
    case 14:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_meta(r, inner);
    case 20:
    case 25:
        return td_onnx_refuse(r, "training information or local functions");
    default:
        return TD_OK;
    }
}

static td_status read_model(td_onnx_reader *r, td_pb pb)
{
    td_pb_field f;
    r->m->ir_version = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_model_field(r, &pb, &f));
    }
    if (!r->has_graph || !r->has_opset)
        return td_error(TD_EFORMAT, "'%s' is not an ONNX model: it has no %s", r->what,
                        r->has_graph ? "opset" : "graph");
    return td_onnx_check(r->m, r->what);
}

static td_status parse(const void *bytes, size_t n_bytes, const char *what,
                       td_external_files *files, td_onnx **out)
{
    td_onnx *m;
    *out = NULL;
    if (n_bytes > (size_t)TD_ONNX_BYTES_MAX)
        return td_error(TD_ELIMIT, "'%s' has more than 2 GiB", what);
    TD_TRY(td_onnx_new(&m));
    td_onnx_reader r = { .m = m, .what = what, .n_left = TD_ONNX_ITEMS_MAX, .files = files };
    td_status st = read_model(&r, td_pb_open(bytes, n_bytes, what));
    if (st == TD_OK)
        *out = m;
    else
        td_onnx_free(m);
    return st;
}

td_status td_onnx_parse(const void *bytes, size_t n_bytes, const char *what, td_onnx **out)
{
    return parse(bytes, n_bytes, what, NULL, out);
}

td_status td_onnx_read(const char *path, td_onnx **out)
{
    char *bytes;
    size_t n_bytes;
    td_external_files files = { .model = path };
    *out = NULL;
    TD_TRY(td_file_read(path, (size_t)TD_ONNX_BYTES_MAX, &bytes, &n_bytes));
    td_status st = parse(bytes, n_bytes, path, &files, out);
    if (st == TD_OK)
        (*out)->file = bytes;
    else
        td_free(bytes);
    td_external_files_release(&files);
    return st;
}

bool td_onnx_is(const char *path)
{
    const char *kind = td_foreign_kind(path);
    return kind && strcmp(kind, TD_FOREIGN_ONNX) == 0;
}
