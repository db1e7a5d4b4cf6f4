/*
 * onnx_read_tensor.c -- a tensor of an ONNX file: its bytes are in the message, in a list of
 * numbers, or in a file beside the ONNX file
 */
#include <string.h>

#include "onnx_file/onnx_read.h"

td_status td_onnx_count_items(td_onnx_reader *r, int64_t n)
{
    r->n_left -= n;
    if (r->n_left < 0)
        return td_error(TD_ELIMIT, "'%s' has more than %d nodes, tensors, names and numbers",
                        r->what, TD_ONNX_ITEMS_MAX);
    return TD_OK;
}

td_status td_onnx_refuse(const td_onnx_reader *r, const char *what)
{
    const td_onnx_node *n = r->node;
    if (n)
        return td_error(TD_EUNSUPPORTED, "'%s': node '%s' (%s) has %s, which is not supported",
                        r->what, *n->name || !n->n_out ? n->name : n->out[0], n->op, what);
    return td_error(TD_EUNSUPPORTED, "'%s' has %s, which is not supported", r->what, what);
}

td_status td_onnx_get_text(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f,
                           const char **out)
{
    return td_pb_text(pb, f, &r->m->arena, out);
}

#define BOOL 9 /* TensorProto.DataType; such as Dropout's training_mode */

static td_status read_dims(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f, td_tensor *t)
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

/* where the bytes of a tensor are, if not in the file */
typedef struct {
    bool is_external, has_entries;
    td_external_place place;
} elsewhere;

static td_status read_place(td_onnx_reader *r, td_pb pb, elsewhere *e)
{
    td_pb_field f;
    const char *key = "", *value = "";
    TD_TRY(td_onnx_count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        if (f.number == 1)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &key));
        else if (f.number == 2)
            TD_TRY(td_onnx_get_text(r, &pb, &f, &value));
    }
    e->has_entries = true;
    return td_external_place_set(&e->place, key, value, r->what);
}

/* the bytes of the shape; false: more than a size_t counts */
static bool count_bytes(const td_tensor *t, size_t *n)
{
    *n = td_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (!td_mul_size(*n, (size_t)t->dim[i], n))
            return false;
    return true;
}

static td_status read_elsewhere(td_onnx_reader *r, const elsewhere *e, td_tensor *t)
{
    size_t n_bytes;
    if (e->has_entries && !e->is_external)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' has external data that it does not use",
                        r->what, t->name);
    if (!e->is_external)
        return TD_OK;
    if (!r->files)
        return td_onnx_refuse(r, "a tensor in a file of its own (external data)");
    if (t->data)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' has data in two places", r->what, t->name);
    if (!count_bytes(t, &n_bytes))
        return td_error(TD_EFORMAT, "'%s': the shape of tensor '%s' has too many elements", r->what,
                        t->name);
    t->n_bytes = n_bytes;
    return td_external_read(r->files, &e->place, t->name, n_bytes, &r->m->arena, &t->data);
}

static td_status read_tensor_field(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f,
                                   td_tensor *t, elsewhere *e)
{
    td_pb inner;
    int64_t number;
    switch (f->number) {
    case 1:
        return read_dims(r, pb, f, t);
    case 2:
        TD_TRY(td_pb_int(pb, f, &number));
        t->dtype = number == BOOL ? TD_DT_U8 : td_onnx_dtype_of(number); /* both: bytes */
        return t->dtype ? TD_OK : td_onnx_refuse(r, "a tensor of an unsupported type");
    case 8:
        return td_onnx_get_text(r, pb, f, &t->name);
    case 9:
        if (f->wire != 2 || t->data)
            return td_error(TD_EFORMAT,
                            "'%s': a tensor's raw_data is not a byte string, or is repeated",
                            r->what);
        t->data = f->bytes;
        t->n_bytes = f->n_bytes;
        return TD_OK;
    case 13:
        TD_TRY(td_pb_enter(pb, f, &inner));
        return read_place(r, inner, e);
    case 14:
        TD_TRY(td_pb_int(pb, f, &number));
        e->is_external = number == 1;
        return number == 0 || number == 1 ? TD_OK
                                          : td_onnx_refuse(r, "a tensor in an unknown place");
    case 3:
    case 6:
        return td_onnx_refuse(r, "a part of a tensor, or one of texts");
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
static td_status read_list(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f, td_dtype d,
                           size_t *n, char *to)
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
static td_status read_numbers(td_onnx_reader *r, td_pb pb, td_tensor *t)
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

td_status td_onnx_read_tensor(td_onnx_reader *r, td_pb pb, td_tensor *out)
{
    const td_pb start = pb;
    td_pb_field f;
    elsewhere e = { .place.length = -1 };
    *out = (td_tensor){ .name = "" };
    TD_TRY(td_onnx_count_items(r, 1));
    while (td_pb_more(&pb)) {
        TD_TRY(td_pb_next(&pb, &f));
        TD_TRY(read_tensor_field(r, &pb, &f, out, &e));
    }
    TD_TRY(read_numbers(r, start, out));
    return read_elsewhere(r, &e, out);
}
