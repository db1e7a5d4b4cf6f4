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

/* appends the numbers of one field, or counts them if there is no room */
static td_status read_floats(td_onnx_reader *r, const td_pb_field *f, size_t room, size_t *n,
                             float *out)
{
    const bool is_one = f->wire == 5;
    const size_t found = is_one ? 1 : f->n_bytes / sizeof *out;
    if (!is_one && (f->wire != 2 || f->n_bytes % sizeof *out))
        return td_error(TD_EFORMAT, "'%s': a list of numbers is malformed", r->what);
    if (found <= room && *n <= room - found && found)
        memcpy(out + *n, is_one ? (const void *)&f->value : f->bytes, found * sizeof *out);
    *n += found;
    return TD_OK;
}

static td_status count_floats(td_onnx_reader *r, td_pb pb, size_t *n)
{
    td_pb_field f;
    *n = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 7)
            TD_TRY(read_floats(r, &f, 0, n, NULL));
    }
    return TD_OK;
}

/* memory for the numbers of both kinds that an attribute has */
typedef struct {
    size_t ints, floats, n_ints, n_floats;
} lists;

static td_status make_lists(td_onnx_reader *r, td_pb pb, lists *l, td_onnx_attr *a)
{
    const size_t most = TD_ONNX_ITEMS_MAX;
    *l = (lists){ 0 };
    TD_TRY(count_ints(pb, 8, &l->ints));
    TD_TRY(count_floats(r, pb, &l->floats));
    TD_TRY(td_onnx_count_items(r, l->ints > most ? TD_ONNX_ITEMS_MAX + 1 : (int64_t)l->ints));
    TD_TRY(td_onnx_count_items(r, l->floats > most ? TD_ONNX_ITEMS_MAX + 1 : (int64_t)l->floats));
    a->ints = new_array(r, (int)l->ints, sizeof *a->ints);
    a->floats = new_array(r, (int)l->floats, sizeof *a->floats);
    return a->ints && a->floats ? TD_OK : TD_ENOMEM;
}

static td_status read_attr_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f, lists *l,
                                 td_onnx_attr *a)
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
    case 7:
        return read_floats(r, f, l->floats, &l->n_floats, a->floats);
    case 8:
        return td_pb_ints(pb, f, a->ints, l->ints, &l->n_ints);
    case 20:
        TD_TRY(td_pb_int(pb, f, &kind));
        if (kind != TD_ONNX_FLOAT && kind != TD_ONNX_INT && kind != TD_ONNX_TEXT &&
            kind != TD_ONNX_TENSOR && kind != TD_ONNX_FLOATS && kind != TD_ONNX_INTS)
            return td_onnx_refuse(
                r, "an attribute that is not a number, text, tensor or list of numbers");
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
    lists l;
    *a = (td_onnx_attr){ .name = "", .text = "" };
    TD_TRY(make_lists(r, pb, &l, a));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_attr_field(r, &pb, &f, &l, a));
    }
    a->n = (int)(a->kind == TD_ONNX_FLOATS ? l.n_floats : l.n_ints);
    if (!a->kind || (a->kind == TD_ONNX_TENSOR) != (a->tensor != NULL))
        return td_error(TD_EFORMAT, "'%s': attribute '%s' has no type, or no value of its type",
                        r->what, a->name);
    return TD_OK;
}

/* both are names of the domain of ONNX's own operators */
static bool is_onnx(const char *domain)
{
    return !*domain || strcmp(domain, "ai.onnx") == 0;
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
        return is_onnx(domain) ? TD_OK : td_onnx_refuse(r, "an operator of another domain");
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
    r->node = &node;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_node_field(r, &pb, &f, &node));
    }
    r->node = NULL;
    TD_TRY(td_reserve(&m->nodes, &m->cap_nodes, m->n_nodes + 1, sizeof *m->nodes));
    m->nodes[m->n_nodes++] = node;
    return TD_OK;
}

/* --- types ------------------------------------------------------------------------------------ */

/* a name and a text */
static td_status read_pair(td_onnx_reader *r, td_pb pb, td_onnx_meta *out)
{
    td_pb_field f;
    *out = (td_onnx_meta){ "", "" };
    TD_TRY(td_onnx_count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &out->key));
        else if (f.number == 2)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &out->value));
    }
    return TD_OK;
}

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

/* an entry of metadata, of which one says what PyTorch's exporter wrote */
static td_status read_kind(td_onnx_reader *r, td_pb pb, td_onnx_value *v)
{
    td_onnx_meta pair;
    TD_TRY(read_pair(r, pb, &pair));
    if (strcmp(pair.key, "pkg.torch.export.graph_signature.InputSpec.kind") == 0)
        v->kind = pair.value;
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
        } else if (f.number == 4) {
            TD_TRY(td_pb_enter(&pb, &f, &inner));
            TD_TRY(read_kind(r, inner, &v));
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

/* before IR version 4 all tensors were inputs, too: values from outside could replace them */
static td_status drop_tensors(td_onnx_values *inputs, const td_onnx *m)
{
    td_map names = { 0 };
    td_status st = TD_OK;
    size_t n = 0;
    for (size_t i = 0; i < m->n_tensors && st == TD_OK; i++)
        if (*m->tensors[i].name)
            st = td_map_set(&names, m->tensors[i].name, inputs);
    for (size_t i = 0; i < inputs->n; i++)
        if (!td_map_has(&names, inputs->at[i].name))
            inputs->at[n++] = inputs->at[i];
    inputs->n = n;
    td_map_release(&names);
    return st;
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
    return drop_tensors(&r->m->inputs, r->m);
}

static td_status read_opset(td_onnx_reader *r, td_pb pb)
{
    td_pb_field f;
    const char *domain = "";
    int64_t version = 0;
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &domain));
        else if (f.number == 2)
            TD_TRY(td_pb_int(&pb, &f, &version));
    }
    if (!is_onnx(domain)) /* many files name domains of which they have no operator */
        return TD_OK;
    if (r->has_opset)
        return td_error(TD_EFORMAT, "'%s' has two opsets", r->what);
    r->has_opset = true;
    r->m->opset = version;
    if (r->m->opset < TD_ONNX_OPSET_READ_MIN || r->m->opset > TD_ONNX_OPSET_MAX)
        return td_error(TD_EUNSUPPORTED, "'%s' uses opset %lld, wanted %d to %d", r->what,
                        (long long)r->m->opset, TD_ONNX_OPSET_READ_MIN, TD_ONNX_OPSET_MAX);
    return TD_OK;
}

static td_status read_meta(td_onnx_reader *r, td_pb pb)
{
    td_onnx *m = r->m;
    td_onnx_meta pair;
    TD_TRY(read_pair(r, pb, &pair));
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
