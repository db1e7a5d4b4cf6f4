/*
 * onnx_read.c -- parses an ONNX file; shares only the table of types with the writer
 *
 * One function per message.  A message that contains arrays is read twice: first to count, then to
 * fill them.  All counts are charged to one budget, so that memory is bounded by the file's size
 * and by the budget.
 */
#include <string.h>

#include "base/file_io.h"
#include "io/foreign.h"
#include "io/protobuf.h"
#include "onnx_file/onnx.h"

#define ITEMS_MAX 1000000 /* total of nodes, tensors, names, attributes and numbers */

typedef struct {
    td_onnx *m;
    const char *what;
    int64_t n_left; /* what remains of ITEMS_MAX */
    bool has_graph, has_opset;
} reader;

static td_status count_items(reader *r, int64_t n)
{
    r->n_left -= n;
    if (r->n_left < 0)
        return td_error(TD_ELIMIT, "'%s' has more than %d nodes, tensors, names and numbers",
                        r->what, ITEMS_MAX);
    return TD_OK;
}

static td_status refuse(const reader *r, const char *what)
{
    return td_error(TD_EUNSUPPORTED, "'%s' has %s, which is not supported", r->what, what);
}

static td_status get_text(reader *r, const td_pb *pb, const td_pb_field *f, const char **out)
{
    return td_pb_text(pb, f, &r->m->arena, out);
}

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

static void *new_array(reader *r, int n, size_t each)
{
    return td_arena_alloc(&r->m->arena, (size_t)n + 1, each);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static td_status read_dims(reader *r, const td_pb *pb, const td_pb_field *f, td_tensor *t)
{
    size_t n = (size_t)t->rank, first = n;
    TD_TRY(td_pb_ints(pb, f, t->dim, TD_ONNX_RANK_MAX, &n));
    if (n > TD_ONNX_RANK_MAX)
        return td_error(TD_ELIMIT, "'%s' has a tensor of more than %d dimensions", r->what,
                        TD_ONNX_RANK_MAX);
    t->rank = (int)n;
    for (size_t i = first; i < n; i++)
        if (t->dim[i] < 0)
            return td_error(TD_EFORMAT, "'%s' has a tensor with a dimension of %lld", r->what,
                            (long long)t->dim[i]);
    return TD_OK;
}

static td_status read_tensor_field(reader *r, const td_pb *pb, const td_pb_field *f, td_tensor *t)
{
    int64_t number;
    switch (f->number) {
    case 1:
        return read_dims(r, pb, f, t);
    case 2:
        TD_TRY(td_pb_int(pb, f, &number));
        t->dtype = td_onnx_dtype_of(number);
        return t->dtype ? TD_OK : refuse(r, "a tensor of an unsupported type");
    case 8:
        return get_text(r, pb, f, &t->name);
    case 9:
        if (f->wire != 2 || t->data)
            return td_error(TD_EFORMAT,
                            "'%s': a tensor's raw_data is not a byte string, or is repeated",
                            r->what);
        t->data = f->bytes;
        t->n_bytes = f->n_bytes;
        return TD_OK;
    case 13:
        return refuse(r, "a tensor in a file of its own (external data)");
    case 14:
        TD_TRY(td_pb_int(pb, f, &number));
        return number ? refuse(r, "a tensor in a file of its own (external data)") : TD_OK;
    case 3:
    case 6:
        return refuse(r, "a part of a tensor, or one of texts");
    default: /* 4, 5, 7, 10, 11: read_numbers */
        return TD_OK;
    }
}

/* the field of a tensor message that has the numbers of this type, if raw_data has not */
static int list_field(td_dtype d)
{
    switch (d) {
    case TD_DT_F32:
        return 4;
    case TD_DT_F64:
        return 10;
    case TD_DT_I64:
        return 7;
    default:
        return 5;
    }
}

/* appends the numbers of one field to `to`, or counts them if it is NULL */
static td_status read_list(reader *r, const td_pb *pb, const td_pb_field *f, td_dtype d, size_t *n,
                           char *to)
{
    const size_t each = td_dtype_bytes(d);
    const size_t first = *n;
    if (d != TD_DT_F32 && d != TD_DT_F64) {
        int64_t *ints = to ? td_alloc(f->n_bytes + 1, sizeof *ints) : NULL;
        size_t found = 0;
        if (to && !ints)
            return TD_ENOMEM;
        const td_status st = td_pb_ints(pb, f, ints, to ? f->n_bytes + 1 : 0, &found);
        for (size_t i = 0; st == TD_OK && to && i < found; i++) /* little-endian: the low bytes */
            memcpy(to + (first + i) * each, &ints[i], each);
        td_free(ints);
        *n += found;
        return st;
    }
    const bool is_one = f->wire == (each == 4 ? 5 : 1);
    if (!is_one && (f->wire != 2 || f->n_bytes % each))
        return td_error(TD_EFORMAT, "'%s': a tensor's list of numbers is malformed", r->what);
    if (to)
        memcpy(to + first * each, is_one ? (const void *)&f->value : f->bytes,
               is_one ? each : f->n_bytes);
    *n += is_one ? 1 : f->n_bytes / each;
    return TD_OK;
}

/* a tensor without raw_data: its numbers are in a list that its type selects */
static td_status read_numbers(reader *r, td_pb pb, td_tensor *t)
{
    const td_pb start = pb;
    td_pb_field f;
    size_t n = 0;
    char *to = NULL;
    for (int pass = 0; pass < 2; pass++) {
        pb = start;
        n = 0;
        while (td_pb_more(&pb)) {
            TD_TRY(td_pb_next(&pb, &f));
            const bool is_list =
                f.number == 4 || f.number == 5 || f.number == 7 || (f.number & ~1) == 10;
            if (is_list && (t->data || f.number != list_field(t->dtype)))
                return td_error(TD_EFORMAT, "'%s': tensor '%s' has numbers of two kinds", r->what,
                                t->name);
            if (is_list)
                TD_TRY(read_list(r, &pb, &f, t->dtype, &n, to));
        }
        if (n == 0)
            return TD_OK;
        if (!to)
            to = td_arena_alloc(&r->m->arena, n, 8);
        if (!to)
            return TD_ENOMEM;
    }
    t->data = to;
    t->n_bytes = n * td_dtype_bytes(t->dtype);
    return TD_OK;
}

static td_status read_tensor(reader *r, td_pb pb, td_tensor *out)
{
    const td_pb start = pb;
    td_pb_field f;
    *out = (td_tensor){ .name = "" };
    TD_TRY(count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_tensor_field(r, &pb, &f, out));
    }
    return read_numbers(r, start, out);
}

static td_status add_tensor(reader *r, td_pb pb)
{
    td_onnx *m = r->m;
    td_tensor t;
    TD_TRY(read_tensor(r, pb, &t));
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

static td_status read_attr_field(reader *r, const td_pb *pb, const td_pb_field *f, size_t room,
                                 size_t *n, td_onnx_attr *a)
{
    int64_t kind;
    td_pb inner;
    switch (f->number) {
    case 1:
        return get_text(r, pb, f, &a->name);
    case 2:
        return td_pb_float(pb, f, &a->f);
    case 3:
        return td_pb_int(pb, f, &a->i);
    case 4:
        return get_text(r, pb, f, &a->text);
    case 8:
        return td_pb_ints(pb, f, a->ints, room, n);
    case 20:
        TD_TRY(td_pb_int(pb, f, &kind));
        if (kind != TD_ONNX_FLOAT && kind != TD_ONNX_INT && kind != TD_ONNX_TEXT &&
            kind != TD_ONNX_TENSOR && kind != TD_ONNX_INTS)
            return refuse(r, "an attribute that is not a number, text, tensor or list of integers");
        a->kind = (td_onnx_kind)kind;
        return TD_OK;
    case 5:
        a->tensor = td_arena_alloc(&r->m->arena, 1, sizeof *a->tensor);
        if (!a->tensor)
            return TD_ENOMEM;
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_tensor(r, inner, a->tensor);
    case 6:
    case 10:
    case 11:
        return refuse(r, "an attribute with a graph or several tensors inside");
    case 21:
        return refuse(r, "a function's attribute");
    default:
        return TD_OK;
    }
}

static td_status read_attr(reader *r, td_pb pb, td_onnx_attr *a)
{
    td_pb_field f;
    size_t room, n = 0;
    *a = (td_onnx_attr){ .name = "", .text = "" };
    TD_TRY(count_ints(pb, 8, &room));
    TD_TRY(count_items(r, room > ITEMS_MAX ? ITEMS_MAX + 1 : (int64_t)room));
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

static td_status read_node_field(reader *r, const td_pb *pb, const td_pb_field *f, td_onnx_node *n)
{
    td_pb inner;
    const char *domain;
    switch (f->number) {
    case 1:
        return get_text(r, pb, f, &n->in[n->n_in++]);
    case 2:
        return get_text(r, pb, f, &n->out[n->n_out++]);
    case 3:
        return get_text(r, pb, f, &n->name);
    case 4:
        return get_text(r, pb, f, &n->op);
    case 5:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_attr(r, inner, &n->attr[n->n_attr++]);
    case 7:
        TD_TRY(get_text(r, pb, f, &domain));
        return *domain ? refuse(r, "a node of another domain") : TD_OK;
    case 8:
        return refuse(r, "a node with an overload");
    default:
        return TD_OK;
    }
}

static td_status read_node(reader *r, td_pb pb)
{
    int n[16];
    td_pb_field f;
    td_onnx *m = r->m;
    td_onnx_node node = { .op = "", .name = "" };
    TD_TRY(count_fields(pb, n));
    TD_TRY(count_items(r, 1 + (int64_t)n[1] + n[2] + n[5]));
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

static td_status read_dim(reader *r, td_pb pb, td_onnx_dim *d)
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
            TD_TRY(get_text(r, &pb, &f, &d->param));
        }
    }
    return TD_OK;
}

static td_status read_shape(reader *r, td_pb pb, td_onnx_value *v)
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

static td_status read_tensor_type(reader *r, td_pb pb, td_onnx_value *v)
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

static td_status read_type(reader *r, td_pb pb, td_onnx_value *v)
{
    td_pb_field f;
    td_pb inner;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number != 1)
            return refuse(r, "a value that is not a tensor");
        TD_TRY(td_pb_enter(&pb, &f, &inner));
        TD_TRY(read_tensor_type(r, inner, v));
    }
    return TD_OK;
}

static td_status read_value(reader *r, td_pb pb, td_onnx_values *list)
{
    td_pb_field f;
    td_pb inner;
    td_onnx_value v = { .name = "" };
    TD_TRY(count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1) {
            TD_TRY(get_text(r, &pb, &f, &v.name));
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

static td_status read_graph_field(reader *r, const td_pb *pb, const td_pb_field *f)
{
    td_pb inner;
    switch (f->number) {
    case 1:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_node(r, inner);
    case 2:
        return get_text(r, pb, f, &r->m->graph_name);
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
        return refuse(r, "sparse tensors or quantisation annotations");
    default:
        return TD_OK;
    }
}

static td_status read_graph(reader *r, td_pb pb)
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

static td_status read_opset(reader *r, td_pb pb)
{
    td_pb_field f;
    const char *domain = "";
    if (r->has_opset)
        return refuse(r, "operators of two domains");
    r->has_opset = true;
    r->m->opset = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(get_text(r, &pb, &f, &domain));
        else if (f.number == 2)
            TD_TRY(td_pb_int(&pb, &f, &r->m->opset));
    }
    if (*domain)
        return refuse(r, "operators of another domain");
    if (r->m->opset < TD_ONNX_OPSET_MIN || r->m->opset > TD_ONNX_OPSET_MAX)
        return td_error(TD_EUNSUPPORTED, "'%s' uses opset %lld, wanted %d to %d", r->what,
                        (long long)r->m->opset, TD_ONNX_OPSET_MIN, TD_ONNX_OPSET_MAX);
    return TD_OK;
}

static td_status read_meta(reader *r, td_pb pb)
{
    td_pb_field f;
    td_onnx *m = r->m;
    td_onnx_meta pair = { "", "" };
    TD_TRY(count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(get_text(r, &pb, &f, &pair.key));
        else if (f.number == 2)
            TD_TRY(get_text(r, &pb, &f, &pair.value));
    }
    TD_TRY(td_reserve(&m->meta, &m->cap_meta, m->n_meta + 1, sizeof *m->meta));
    m->meta[m->n_meta++] = pair;
    return TD_OK;
}

static td_status read_model_field(reader *r, const td_pb *pb, const td_pb_field *f)
{
    td_pb inner;
    switch (f->number) {
    case 1:
        return td_pb_int(pb, f, &r->m->ir_version);
    case 2:
        return get_text(r, pb, f, &r->m->producer);
    case 3:
        return get_text(r, pb, f, &r->m->producer_version);
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
        return refuse(r, "training information or local functions");
    default:
        return TD_OK;
    }
}

static td_status read_model(reader *r, td_pb pb)
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

td_status td_onnx_parse(const void *bytes, size_t n_bytes, const char *what, td_onnx **out)
{
    td_onnx *m;
    *out = NULL;
    if (n_bytes > (size_t)TD_ONNX_BYTES_MAX)
        return td_error(TD_ELIMIT, "'%s' has more than 2 GiB", what);
    TD_TRY(td_onnx_new(&m));
    reader r = { .m = m, .what = what, .n_left = ITEMS_MAX };
    td_status st = read_model(&r, td_pb_open(bytes, n_bytes, what));
    if (st == TD_OK)
        *out = m;
    else
        td_onnx_free(m);
    return st;
}

td_status td_onnx_read(const char *path, td_onnx **out)
{
    char *bytes;
    size_t n_bytes;
    *out = NULL;
    TD_TRY(td_file_read(path, (size_t)TD_ONNX_BYTES_MAX, &bytes, &n_bytes));
    td_status st = td_onnx_parse(bytes, n_bytes, path, out);
    if (st == TD_OK)
        (*out)->file = bytes;
    else
        td_free(bytes);
    return st;
}

bool td_onnx_is(const char *path)
{
    const char *kind = td_foreign_kind(path);
    return kind && strcmp(kind, TD_FOREIGN_ONNX) == 0;
}
