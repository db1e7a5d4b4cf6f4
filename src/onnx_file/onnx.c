/*
 * onnx.c -- a model in memory; writes ONNX files
 *
 * Lengths precede their content, so the file is assembled from small texts and the tensors' bytes,
 * whose sizes are added before the first is written: the weights are not copied.
 */
#include "onnx_file/onnx.h"

#include <stdio.h>
#include <string.h>

#include "io/atomic.h"
#include "io/protobuf.h"

#define ATTR_MAX 8
#define OUT_MAX  2

td_status td_onnx_new(td_onnx **out)
{
    *out = TD_NEW(td_onnx);
    if (!*out)
        return TD_ENOMEM;
    td_arena_init(&(*out)->arena);
    (*out)->opset = TD_ONNX_OPSET_MIN;
    (*out)->ir_version = td_onnx_ir_version(TD_ONNX_OPSET_MIN);
    (*out)->producer = (*out)->producer_version = (*out)->graph_name = "";
    return TD_OK;
}

void td_onnx_free(td_onnx *m)
{
    if (!m)
        return;
    td_free(m->nodes);
    td_free(m->tensors);
    td_free(m->inputs.at);
    td_free(m->outputs.at);
    td_free(m->values.at);
    td_free(m->meta);
    td_free(m->file);
    td_arena_release(&m->arena);
    td_free(m);
}

/* --- tables ----------------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    td_dtype dtype;
    int number; /* TensorProto.DataType */
} dtypes[] = {
    { TD_DT_F32, 1 }, { TD_DT_U8, 2 }, { TD_DT_S8, 3 }, { TD_DT_I32, 6 }, { TD_DT_I64, 7 },
    { TD_DT_F16, 10 }, { TD_DT_F64, 11 }, { TD_DT_BF16, 16 },
};
/* clang-format on */

#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

int td_onnx_dtype_number(td_dtype d)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == d)
            return dtypes[i].number;
    return 0;
}

td_dtype td_onnx_dtype_of(int64_t number)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].number == number)
            return dtypes[i].dtype;
    return TD_DT_NONE;
}

int td_onnx_ir_version(int opset)
{
    static const int version[] = { 7, 7, 8, 8, 8, 8, 9, 9, 10 }; /* for opsets 13 .. 21 */
    TD_CHECK(opset >= TD_ONNX_OPSET_MIN && opset <= TD_ONNX_OPSET_MAX);
    return version[opset - TD_ONNX_OPSET_MIN];
}

/* --- building --------------------------------------------------------------------------------- */

static void fail(td_onnx *m, td_status st)
{
    if (m->st == TD_OK)
        m->st = st;
}

const char *td_onnx_text(td_onnx *m, const char *text)
{
    const char *copy = m->st == TD_OK ? td_arena_text(&m->arena, text) : NULL;
    if (!copy)
        fail(m, TD_ENOMEM);
    return copy ? copy : "";
}

static td_status add_node(td_onnx *m, td_onnx_node n, const char *const *in, const char *out)
{
    n.in = td_arena_alloc(&m->arena, (size_t)n.n_in + OUT_MAX, sizeof *n.in);
    n.attr = td_arena_alloc(&m->arena, ATTR_MAX, sizeof *n.attr);
    if (!n.in || !n.attr)
        return TD_ENOMEM;
    n.out = n.in + n.n_in;
    for (int i = 0; i < n.n_in; i++)
        n.in[i] = td_onnx_text(m, in[i]);
    n.out[0] = td_onnx_text(m, out);
    n.op = td_onnx_text(m, n.op);
    n.name = td_onnx_text(m, n.name);
    TD_TRY(td_reserve(&m->nodes, &m->cap_nodes, m->n_nodes + 1, sizeof *m->nodes));
    m->nodes[m->n_nodes++] = n;
    return TD_OK;
}

void td_onnx_add_node(td_onnx *m, const char *op, const char *name, int n_in, const char *const *in,
                      const char *out)
{
    if (m->st == TD_OK)
        fail(m, add_node(m, (td_onnx_node){ .op = op, .name = name, .n_in = n_in, .n_out = 1 }, in,
                         out));
}

void td_onnx_add_result(td_onnx *m, const char *out)
{
    if (m->st != TD_OK)
        return;
    TD_CHECK(m->n_nodes > 0 && m->nodes[m->n_nodes - 1].n_out < OUT_MAX);
    td_onnx_node *n = &m->nodes[m->n_nodes - 1];
    n->out[n->n_out++] = td_onnx_text(m, out);
}

static td_onnx_attr *new_attr(td_onnx *m, const char *name, td_onnx_kind kind)
{
    if (m->st != TD_OK)
        return NULL;
    TD_CHECK(m->n_nodes > 0 && m->nodes[m->n_nodes - 1].n_attr < ATTR_MAX);
    td_onnx_node *n = &m->nodes[m->n_nodes - 1];
    td_onnx_attr *a = &n->attr[n->n_attr++];
    *a = (td_onnx_attr){ .name = td_onnx_text(m, name), .kind = kind };
    return a;
}

void td_onnx_attr_int(td_onnx *m, const char *name, int64_t value)
{
    td_onnx_attr *a = new_attr(m, name, TD_ONNX_INT);
    if (a)
        a->i = value;
}

void td_onnx_attr_float(td_onnx *m, const char *name, float value)
{
    td_onnx_attr *a = new_attr(m, name, TD_ONNX_FLOAT);
    if (a)
        a->f = value;
}

void td_onnx_attr_text(td_onnx *m, const char *name, const char *value)
{
    td_onnx_attr *a = new_attr(m, name, TD_ONNX_TEXT);
    if (a)
        a->text = td_onnx_text(m, value);
}

void td_onnx_attr_ints(td_onnx *m, const char *name, int n, const int64_t *values)
{
    td_onnx_attr *a = new_attr(m, name, TD_ONNX_INTS);
    if (!a)
        return;
    a->ints = td_arena_alloc(&m->arena, (size_t)n + 1, sizeof *a->ints);
    if (!a->ints) {
        fail(m, TD_ENOMEM);
        return;
    }
    memcpy(a->ints, values, (size_t)n * sizeof *values);
    a->n = n;
}

void td_onnx_add_tensor(td_onnx *m, const char *name, td_dtype dtype, int rank, const int64_t *dim,
                        const void *data)
{
    size_t n_bytes = td_dtype_bytes(dtype);
    td_tensor t = { .name = td_onnx_text(m, name), .dtype = dtype, .rank = rank, .data = data };
    TD_CHECK(rank >= 0 && rank <= TD_ONNX_RANK_MAX);
    for (int i = 0; i < rank; i++) {
        t.dim[i] = dim[i];
        n_bytes *= (size_t)dim[i];
    }
    t.n_bytes = n_bytes;
    if (m->st == TD_OK)
        fail(m, td_reserve(&m->tensors, &m->cap_tensors, m->n_tensors + 1, sizeof *m->tensors));
    if (m->st == TD_OK)
        m->tensors[m->n_tensors++] = t;
}

void td_onnx_add_value(td_onnx *m, td_onnx_values *list, const td_onnx_value *v)
{
    td_onnx_value copy = *v;
    copy.name = td_onnx_text(m, v->name);
    for (int i = 0; i < v->rank; i++)
        if (v->dim[i].param)
            copy.dim[i].param = td_onnx_text(m, v->dim[i].param);
    if (m->st == TD_OK)
        fail(m, td_reserve(&list->at, &list->cap, list->n + 1, sizeof *list->at));
    if (m->st == TD_OK)
        list->at[list->n++] = copy;
}

void td_onnx_set_meta(td_onnx *m, const char *key, const char *value)
{
    td_onnx_meta pair = { td_onnx_text(m, key), td_onnx_text(m, value) };
    if (m->st == TD_OK)
        fail(m, td_reserve(&m->meta, &m->cap_meta, m->n_meta + 1, sizeof *m->meta));
    if (m->st == TD_OK)
        m->meta[m->n_meta++] = pair;
}

const td_onnx_node *td_onnx_producer(const td_onnx *m, const char *name)
{
    for (size_t i = 0; i < m->n_nodes; i++)
        for (int k = 0; k < m->nodes[i].n_out; k++)
            if (strcmp(m->nodes[i].out[k], name) == 0)
                return &m->nodes[i];
    return NULL;
}

const td_onnx_attr *td_onnx_attr_find(const td_onnx_node *n, const char *name)
{
    for (int i = 0; i < n->n_attr; i++)
        if (strcmp(n->attr[i].name, name) == 0)
            return &n->attr[i];
    return NULL;
}

const char *td_onnx_meta_find(const td_onnx *m, const char *key)
{
    for (size_t i = 0; i < m->n_meta; i++)
        if (strcmp(m->meta[i].key, key) == 0)
            return m->meta[i].value;
    return NULL;
}

/* --- messages --------------------------------------------------------------------------------- */

static void put_attr(td_text *node, const td_onnx_attr *a)
{
    td_text t = { 0 };
    td_pb_put_text(&t, 1, a->name);
    if (a->kind == TD_ONNX_FLOAT)
        td_pb_put_float(&t, 2, a->f);
    else if (a->kind == TD_ONNX_INT)
        td_pb_put_int(&t, 3, a->i);
    else if (a->kind == TD_ONNX_TEXT)
        td_pb_put_text(&t, 4, a->text);
    for (int i = 0; i < a->n; i++)
        td_pb_put_int(&t, 8, a->ints[i]);
    td_pb_put_int(&t, 20, a->kind);
    td_pb_put_message(node, 5, &t);
    td_text_release(&t);
}

static void put_node(td_text *graph, const td_onnx_node *n)
{
    td_text t = { 0 };
    for (int i = 0; i < n->n_in; i++)
        td_pb_put_text(&t, 1, n->in[i]);
    for (int i = 0; i < n->n_out; i++)
        td_pb_put_text(&t, 2, n->out[i]);
    td_pb_put_text(&t, 3, n->name);
    td_pb_put_text(&t, 4, n->op);
    for (int i = 0; i < n->n_attr; i++)
        put_attr(&t, &n->attr[i]);
    td_pb_put_message(graph, 1, &t);
    td_text_release(&t);
}

/* TypeProto { tensor_type { elem_type, shape { dim { dim_value | dim_param } } } } */
static void put_value(td_text *graph, int field, const td_onnx_value *v)
{
    td_text info = { 0 }, type = { 0 }, tensor = { 0 }, shape = { 0 };
    for (int i = 0; i < v->rank; i++) {
        td_text dim = { 0 };
        if (v->dim[i].param)
            td_pb_put_text(&dim, 2, v->dim[i].param);
        else if (v->dim[i].value >= 0)
            td_pb_put_int(&dim, 1, v->dim[i].value);
        td_pb_put_message(&shape, 1, &dim);
        td_text_release(&dim);
    }
    td_pb_put_int(&tensor, 1, td_onnx_dtype_number(v->dtype));
    td_pb_put_message(&tensor, 2, &shape);
    td_pb_put_message(&type, 1, &tensor);
    td_pb_put_text(&info, 1, v->name);
    td_pb_put_message(&info, 2, &type);
    td_pb_put_message(graph, field, &info);
    td_text_release(&info);
    td_text_release(&type);
    td_text_release(&tensor);
    td_text_release(&shape);
}

static void put_values(td_text *graph, int field, const td_onnx_values *list)
{
    for (size_t i = 0; i < list->n; i++)
        put_value(graph, field, &list->at[i]);
}

/* all fields of a tensor except its bytes, which follow */
static void put_tensor_head(td_text *graph, const td_tensor *x)
{
    td_text t = { 0 };
    for (int i = 0; i < x->rank; i++)
        td_pb_put_int(&t, 1, x->dim[i]);
    td_pb_put_int(&t, 2, td_onnx_dtype_number(x->dtype));
    td_pb_put_text(&t, 8, x->name);
    td_pb_put_head(&t, 9, x->n_bytes);
    td_pb_put_head(graph, 5, t.len + x->n_bytes);
    td_text_add_bytes(graph, td_text_get(&t), t.len);
    if (t.st != TD_OK && graph->st == TD_OK)
        graph->st = t.st;
    td_text_release(&t);
}

static void put_model_head(td_text *file, const td_onnx *m)
{
    td_text opset = { 0 };
    td_pb_put_int(file, 1, m->ir_version);
    td_pb_put_text(file, 2, m->producer);
    td_pb_put_text(file, 3, m->producer_version);
    td_pb_put_text(&opset, 1, "");
    td_pb_put_int(&opset, 2, m->opset);
    td_pb_put_message(file, 8, &opset);
    for (size_t i = 0; i < m->n_meta; i++) {
        td_text pair = { 0 };
        td_pb_put_text(&pair, 1, m->meta[i].key);
        td_pb_put_text(&pair, 2, m->meta[i].value);
        td_pb_put_message(file, 14, &pair);
        td_text_release(&pair);
    }
    td_text_release(&opset);
}

/* --- the file --------------------------------------------------------------------------------- */

/* | model's head, key and length of the graph | graph without tensors | head, bytes | head, ... */
typedef struct {
    td_text head, graph;
    td_text tensors; /* concatenated heads */
    size_t *end;     /* [n_tensors]: the end of each head */
} parts;

static td_status make_parts(const td_onnx *m, parts *p)
{
    size_t n_bytes = 0;
    TD_TRY(TD_ALLOC(p->end, m->n_tensors + 1));
    for (size_t i = 0; i < m->n_nodes; i++)
        put_node(&p->graph, &m->nodes[i]);
    td_pb_put_text(&p->graph, 2, m->graph_name);
    put_values(&p->graph, 11, &m->inputs);
    put_values(&p->graph, 12, &m->outputs);
    put_values(&p->graph, 13, &m->values);
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (!td_add_size(n_bytes, m->tensors[i].n_bytes, &n_bytes))
            return td_error(TD_ELIMIT, "the size of the weights overflows");
        put_tensor_head(&p->tensors, &m->tensors[i]);
        p->end[i] = p->tensors.len;
    }
    put_model_head(&p->head, m);
    n_bytes += p->graph.len + p->tensors.len;
    if ((int64_t)n_bytes > TD_ONNX_BYTES_MAX - (int64_t)p->head.len - 16)
        return td_error(
            TD_ELIMIT,
            "the weights have %.2f GiB, but an ONNX file without external data holds at most 2",
            (double)n_bytes / (1 << 30));
    td_pb_put_head(&p->head, 7, n_bytes);
    TD_TRY(td_text_status(&p->head));
    TD_TRY(td_text_status(&p->graph));
    return td_text_status(&p->tensors);
}

static td_status write_parts(const td_onnx *m, const parts *p, td_atomic *a)
{
    size_t from = 0;
    TD_TRY(td_atomic_write(a, td_text_get(&p->head), p->head.len));
    TD_TRY(td_atomic_write(a, td_text_get(&p->graph), p->graph.len));
    for (size_t i = 0; i < m->n_tensors; i++) {
        TD_TRY(td_atomic_write(a, td_text_get(&p->tensors) + from, p->end[i] - from));
        TD_TRY(td_atomic_write(a, m->tensors[i].data, m->tensors[i].n_bytes));
        from = p->end[i];
    }
    return TD_OK;
}

td_status td_onnx_write(const td_onnx *m, const char *path,
                        td_status (*check)(void *ctx, const char *written), void *ctx)
{
    td_status st = TD_OK;
    td_atomic *a = NULL;
    parts p = { 0 };
    TD_OUT(m->st);
    TD_OUT(make_parts(m, &p));
    TD_OUT(td_atomic_open(path, &a));
    TD_OUT(write_parts(m, &p, a));
    if (check)
        TD_OUT(check(ctx, td_atomic_temporary(a)));
    TD_OUT(td_atomic_commit(a));
out:
    td_atomic_close(a);
    td_text_release(&p.head);
    td_text_release(&p.graph);
    td_text_release(&p.tensors);
    td_free(p.end);
    return st;
}
