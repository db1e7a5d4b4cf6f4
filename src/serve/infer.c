/*
 * infer.c -- POST /v2/models/NAME/infer: KServe's inference protocol, version 2
 *
 * One input, `images` FP32 [n, C, S, S], normalised, as JSON numbers or as bytes after the JSON
 * (parameter binary_data_size, header Inference-Header-Content-Length).  Outputs are those of the
 * kind of network (kind.h), all of them if the request names none; as JSON or as bytes
 * (binary_data).  A classifier's outputs with the parameter `classification` are BYTES [n, k] of
 * "value:index:name"; in binary form each is preceded by its length in 4 bytes, little-endian.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/stats.h"
#include "serve/kind.h"

enum {
    ID_BYTES = 256,
    LARGE_JSON_BYTES = 8 << 20 /* parsed in about 0.1 s; an image of 224 x 224 has 3 MB at most */
};

/* the state while a request is parsed into a td_work */
typedef struct {
    const td_service *s;
    td_json *doc;
    const char *binary; /* the bytes after the JSON */
    size_t n_binary;
    float *numbers; /* numbers in the JSON; moved to the work */
    size_t n_numbers;
} reading;

/* the member `name` if it is an array; *n: its elements.  Otherwise NULL */
static const td_json *array(const td_json *object, const char *key, size_t n)
{
    const td_json *a = td_json_get(object, key);
    return a && td_json_kind_of(a) == TD_JSON_ARRAY && td_json_count(a) == n ? a : NULL;
}

/* --- the input -------------------------------------------------------------------------------- */

static td_status read_shape(const reading *r, const td_json *input, int64_t *rows)
{
    const td_json *shape = array(input, "shape", 4);
    const int channels = td_transform_channels(&r->s->transform);
    int64_t dim[4], size = r->s->transform.size;
    if (!shape)
        return td_error(TD_ESHAPE, "input 'images' has no shape of 4 numbers, wanted [n,%d,%d,%d]",
                        channels, (int)size, (int)size);
    for (size_t i = 0; i < 4; i++)
        TD_TRY(td_json_as_int(td_json_at(shape, i), &dim[i]));
    if (dim[1] != channels || dim[2] != size || dim[3] != size)
        return td_error(TD_ESHAPE, "input 'images' is [%lld,%lld,%lld,%lld], wanted [n,%d,%d,%d]",
                        (long long)dim[0], (long long)dim[1], (long long)dim[2], (long long)dim[3],
                        channels, (int)size, (int)size);
    if (dim[0] < 1 || dim[0] > TD_ROWS_MAX)
        return td_error(TD_ELIMIT, "input 'images' has %lld images, wanted 1 .. %d",
                        (long long)dim[0], TD_ROWS_MAX);
    *rows = dim[0];
    return TD_OK;
}

/* takes the input from the bytes after the JSON, little-endian like this machine */
static td_status take_binary(const reading *r, int64_t declared, size_t wanted, td_work *w)
{
    if (r->n_numbers)
        return td_error(TD_EFORMAT, "input 'images' has both data and binary_data_size");
    if (declared < 0 || (uint64_t)declared != r->n_binary)
        return td_error(TD_EFORMAT,
                        "binary_data_size is %lld, %zu bytes follow the JSON (check "
                        "Inference-Header-Content-Length)",
                        (long long)declared, r->n_binary);
    if (r->n_binary != wanted * sizeof(float))
        return td_error(TD_ESHAPE, "input 'images' has %zu bytes, its shape needs %zu", r->n_binary,
                        wanted * sizeof(float));
    w->images = td_alloc(wanted, sizeof(float));
    if (!w->images)
        return TD_ENOMEM;
    memcpy(w->images, r->binary, r->n_binary);
    for (size_t i = 0; i < wanted; i++)
        if (!isfinite(w->images[i]))
            return td_error(TD_EFORMAT, "number %zu of input 'images' is not finite", i);
    return TD_OK;
}

static td_status read_input(reading *r, td_work *w)
{
    const td_json *inputs = array(r->doc, "inputs", 1);
    const td_json *input = inputs ? td_json_at(inputs, 0) : NULL;
    const char *name, *type;
    int64_t rows, declared;
    if (!input)
        return td_error(TD_EFORMAT, "wanted one input, 'images'");
    TD_TRY(td_json_text(input, "name", &name));
    TD_TRY(td_json_text(input, "datatype", &type));
    if (strcmp(name, "images") != 0)
        return td_error(TD_ENOTFOUND, "unknown input '%.100s', wanted 'images'", name);
    if (strcmp(type, "FP32") != 0)
        return td_error(TD_EUNSUPPORTED, "input 'images' is '%.20s', wanted FP32", type);
    TD_TRY(read_shape(r, input, &rows));
    const size_t wanted = (size_t)rows * td_transform_values(&r->s->transform);
    w->n = (int)rows;
    const td_json *parameters = td_json_get(input, "parameters");
    if (parameters && td_json_get(parameters, "binary_data_size")) {
        TD_TRY(td_json_int(parameters, "binary_data_size", &declared));
        return take_binary(r, declared, wanted, w);
    }
    if (r->n_binary)
        return td_error(TD_EFORMAT, "%zu bytes follow the JSON, but no input has binary_data_size",
                        r->n_binary);
    if (r->n_numbers != wanted)
        return td_error(TD_ESHAPE, "input 'images' has %zu numbers, its shape needs %zu",
                        r->n_numbers, wanted);
    w->images = r->numbers;
    r->numbers = NULL;
    return TD_OK;
}

/* --- the outputs ------------------------------------------------------------------------------ */

static td_status flag(const td_json *parameters, const char *name, bool *out)
{
    if (!parameters || !td_json_get(parameters, name))
        return TD_OK;
    return td_json_bool(parameters, name, out);
}

static td_status find_output(const td_kind *kind, const char *name, int *out)
{
    td_text known = { 0 };
    for (int i = 0; i < kind->n_outputs; i++) {
        *out = i;
        if (strcmp(name, kind->outputs[i].name) == 0)
            break;
        td_text_add(&known, "%s'%s'",
                    !i                        ? ""
                    : i + 1 < kind->n_outputs ? ", "
                                              : " and ",
                    kind->outputs[i].name);
        *out = -1;
    }
    td_status st = *out >= 0 ? TD_OK
                             : td_error(TD_ENOTFOUND, "unknown output '%.100s', wanted %s", name,
                                        td_text_get(&known));
    td_text_release(&known);
    return st;
}

static td_status read_classes(const reading *r, const td_json *parameters, td_wanted *out)
{
    int64_t classes;
    if (!parameters || !td_json_get(parameters, "classification"))
        return TD_OK;
    if (!r->s->kind->has_classes)
        return td_error(TD_EUNSUPPORTED, "classification requires a classifier, '%s' is %s",
                        r->s->name, r->s->kind->what);
    TD_TRY(td_json_int(parameters, "classification", &classes));
    if (classes < 1)
        return td_error(TD_EARG, "classification is %lld, wanted 1 or more", (long long)classes);
    out->classes = (int)(classes < r->s->n_classes ? classes : r->s->n_classes);
    if (out->classes > TD_ROWS_MAX)
        return td_error(TD_ELIMIT, "classification is %d, wanted %d at most", out->classes,
                        TD_ROWS_MAX);
    return TD_OK;
}

static td_status read_output(const reading *r, const td_json *output, td_wanted *out)
{
    const char *name;
    TD_TRY(td_json_text(output, "name", &name));
    TD_TRY(find_output(r->s->kind, name, &out->output));
    const td_json *parameters = td_json_get(output, "parameters");
    TD_TRY(flag(parameters, "binary_data", &out->is_binary));
    return read_classes(r, parameters, out);
}

static td_status read_outputs(const reading *r, td_work *w)
{
    const td_json *outputs = td_json_get(r->doc, "outputs");
    bool is_binary = false;
    const int most = r->s->kind->n_outputs;
    TD_TRY(flag(td_json_get(r->doc, "parameters"), "binary_data_output", &is_binary));
    for (int i = 0; i < most; i++)
        w->wanted[i] = (td_wanted){ .output = i, .is_binary = is_binary };
    w->n_wanted = most;
    if (!outputs)
        return TD_OK;
    size_t n = td_json_count(outputs);
    if (td_json_kind_of(outputs) != TD_JSON_ARRAY || n < 1 || n > (size_t)most)
        return td_error(TD_EFORMAT, "outputs: wanted an array of 1 to %d", most);
    for (size_t i = 0; i < n; i++)
        TD_TRY(read_output(r, td_json_at(outputs, i), &w->wanted[i]));
    w->n_wanted = (int)n;
    return TD_OK;
}

static td_status read_id(const reading *r, td_work *w)
{
    const char *id;
    if (!td_json_get(r->doc, "id"))
        return TD_OK;
    TD_TRY(td_json_text(r->doc, "id", &id));
    if (strlen(id) > ID_BYTES)
        return td_error(TD_ELIMIT, "id is longer than %d bytes", ID_BYTES);
    td_text_add(&w->id, "%s", id);
    return td_text_status(&w->id);
}

/* adds a parameter as it would be in a query */
static td_status add_param(const td_json *value, const char *name, td_text *room, td_request *rq,
                           td_query *params)
{
    const td_json_kind kind = td_json_kind_of(value);
    const char *text = "";
    double number = 0;
    if (kind == TD_JSON_TEXT)
        TD_TRY(td_json_as_text(value, &text));
    else if (kind == TD_JSON_INT || kind == TD_JSON_REAL)
        TD_TRY(td_json_as_number(value, &number));
    else
        return td_error(TD_EFORMAT, "parameter '%s' is neither a number nor a string", name);
    if (kind == TD_JSON_TEXT)
        td_text_add(room, "%s", text);
    else
        td_text_add(room, "%.17g", number);
    TD_TRY(td_text_status(room));
    params[rq->n_params++] = (td_query){ name, td_text_get(room) };
    return TD_OK;
}

/* reads the request's parameters that are also the kind's query parameters; others are ignored */
static td_status read_params(const reading *r, td_work *w)
{
    td_status st = TD_OK;
    td_query params[TD_PARAMS_MAX];
    td_text room[TD_PARAMS_MAX] = { { 0 } };
    td_request rq = { .params = params };
    const td_kind *kind = r->s->kind;
    const td_json *given = td_json_get(r->doc, "parameters");
    for (int i = 0; given && kind->are_for_tensors && kind->params[i]; i++) {
        const td_json *value = td_json_get(given, kind->params[i]);
        if (value)
            TD_OUT(add_param(value, kind->params[i], &room[i], &rq, params));
    }
    TD_OUT(kind->options(r->s, &rq, w));
out:
    for (int i = 0; i < TD_PARAMS_MAX; i++)
        td_text_release(&room[i]);
    return st;
}

/* finds the end of the JSON, where the bytes begin */
static td_status split(const td_request *rq, size_t *n_json)
{
    int64_t n;
    *n_json = rq->n_body;
    if (!rq->json_bytes)
        return TD_OK;
    if (!td_text_to_int(rq->json_bytes, &n) || n < 0 || (uint64_t)n > rq->n_body)
        return td_error(TD_EFORMAT,
                        "Inference-Header-Content-Length is '%.30s', the body has %zu bytes",
                        rq->json_bytes, rq->n_body);
    *n_json = (size_t)n;
    return TD_OK;
}

bool td_infer_is_large(const td_request *rq)
{
    size_t n_json;
    return split(rq, &n_json) == TD_OK && n_json > LARGE_JSON_BYTES;
}

td_status td_infer_read(const td_service *s, const td_request *rq, td_work *w)
{
    td_status st = TD_OK;
    td_text rest = { 0 };
    reading r = { .s = s };
    size_t n_json;
    TD_TRY(split(rq, &n_json));
    r.binary = n_json < rq->n_body ? (const char *)rq->body + n_json : NULL;
    r.n_binary = rq->n_body - n_json;
    TD_OUT(td_tensor_json_read(rq->body, n_json, TD_ROWS_MAX * td_transform_values(&s->transform),
                               &rest, &r.numbers, &r.n_numbers));
    TD_OUT(td_json_parse(td_text_get(&rest), rest.len, "request", &r.doc));
    if (td_json_kind_of(r.doc) != TD_JSON_OBJECT)
        TD_OUT(td_error(TD_EFORMAT, "the request is not a JSON object"));
    TD_OUT(read_id(&r, w));
    TD_OUT(read_params(&r, w));
    TD_OUT(read_input(&r, w));
    TD_OUT(read_outputs(&r, w));
out:
    td_free(r.numbers);
    td_json_free(r.doc);
    td_text_release(&rest);
    return st;
}

/* --- the answer ------------------------------------------------------------------------------- */

/* the numbers of an output, [n, dims]; NULL: out of memory, which is set in `out` */
static void *numbers(const td_service *s, const td_work *w, int i, size_t *n, size_t *bytes,
                     td_text *out)
{
    const size_t each = s->kind->outputs[i].is_int ? sizeof(int64_t) : sizeof(float);
    *n = (size_t)w->n * td_output_row(s, w, i);
    *bytes = *n * each;
    void *x = td_alloc(*n, each);
    if (x)
        s->kind->fill(s, w, i, x);
    else
        out->st = TD_ENOMEM;
    return x;
}

static void add_tensor(const td_service *s, const td_work *w, int i, td_text *out)
{
    size_t n, bytes;
    void *x = numbers(s, w, i, &n, &bytes, out);
    const float *real = x;
    const int64_t *whole = x;
    td_text_add(out, ", \"data\": [");
    for (size_t k = 0; k < n && x; k++)
        if (s->kind->outputs[i].is_int)
            td_text_add(out, "%s%lld", k ? "," : "", (long long)whole[k]);
        else
            td_text_add(out, isfinite(real[k]) ? "%s%.9g" : "%snull", k ? "," : "",
                        (double)real[k]);
    td_text_add(out, "]}");
    td_free(x);
}

static void add_bytes(const td_service *s, const td_work *w, int i, td_text *out)
{
    size_t n, bytes;
    void *x = numbers(s, w, i, &n, &bytes, out);
    if (x)
        td_text_add_bytes(out, x, bytes);
    td_free(x);
}

/* calls `add` with "value:index:name" of the best classes, row by row, best first */
static void each_class(const td_service *s, const td_work *w, const td_wanted *o,
                       void (*add)(td_text *out, int i, const char *label), td_text *out)
{
    int best[TD_ROWS_MAX];
    char room[24];
    td_text label = { 0 };
    const float *x = w->results + (size_t)o->output * (size_t)w->n * (size_t)s->n_classes;
    for (int i = 0; i < w->n; i++) {
        const float *row = x + (size_t)i * (size_t)s->n_classes;
        td_top_k(row, s->n_classes, o->classes, best);
        for (int j = 0; j < o->classes; j++) {
            label.len = 0;
            td_text_add(&label, "%.9g:%d:%s", (double)row[best[j]], best[j],
                        s->class_name(s->ctx, best[j], room));
            add(out, i * o->classes + j, td_text_get(&label));
        }
    }
    if (td_text_status(&label) != TD_OK)
        out->st = TD_ENOMEM;
    td_text_release(&label);
}

static void add_class_json(td_text *out, int i, const char *label)
{
    td_text_add(out, i ? ", \"" : "\"");
    td_text_add_json(out, label);
    td_text_add(out, "\"");
}

static void add_class_bytes(td_text *out, int i, const char *label)
{
    const uint32_t n = (uint32_t)strlen(label);
    (void)i;
    td_text_add_bytes(out, (const char *)&n, sizeof n);
    td_text_add_bytes(out, label, n);
}

/* appends the bytes of an output to `out` */
static void add_binary(const td_service *s, const td_work *w, const td_wanted *o, td_text *out)
{
    if (o->classes)
        each_class(s, w, o, add_class_bytes, out);
    else
        add_bytes(s, w, o->output, out);
}

/* adds an output's JSON; *n_binary: its bytes after the JSON */
static void add_output(const td_service *s, const td_work *w, const td_wanted *o, size_t n_binary,
                       td_text *out)
{
    const td_kind_output *output = &s->kind->outputs[o->output];
    int dim[2] = { o->classes }, n = 1;
    if (!o->classes)
        n = s->kind->dims(s, w, o->output, dim);
    td_text_add(out, "{");
    td_json_add_text(out, "name", output->name);
    td_json_add_text(out, "datatype", o->classes ? "BYTES" : output->is_int ? "INT64" : "FP32");
    td_text_add(out, ", \"shape\": [%d", w->n);
    for (int i = 0; i < n; i++)
        td_text_add(out, ",%d", dim[i]);
    td_text_add(out, "]");
    if (o->is_binary) {
        td_text_add(out, ", \"parameters\": {\"binary_data_size\": %zu}}", n_binary);
    } else if (o->classes) {
        td_text_add(out, ", \"data\": [");
        each_class(s, w, o, add_class_json, out);
        td_text_add(out, "]}");
    } else {
        add_tensor(s, w, o->output, out);
    }
}

void td_infer_write(const td_service *s, const td_work *w, td_reply *reply)
{
    td_text *out = &reply->body, binary = { 0 };
    bool has_binary = false;
    td_text_add(out, "{");
    td_json_add_text(out, "model_name", s->name);
    td_json_add_text(out, "model_version", "1");
    if (w->id.len)
        td_json_add_text(out, "id", td_text_get(&w->id));
    td_text_add(out, ", \"outputs\": [");
    for (int i = 0; i < w->n_wanted; i++) {
        const size_t before = binary.len;
        if (w->wanted[i].is_binary)
            add_binary(s, w, &w->wanted[i], &binary);
        td_text_add(out, i ? ", " : "");
        add_output(s, w, &w->wanted[i], binary.len - before, out);
        has_binary = has_binary || w->wanted[i].is_binary;
    }
    td_text_add(out, "]}");
    if (has_binary) {
        reply->type = "application/octet-stream";
        reply->json_bytes = out->len;
        td_text_add_bytes(out, td_text_get(&binary), binary.len);
    }
    if (td_text_status(&binary) != TD_OK)
        out->st = TD_ENOMEM;
    td_text_release(&binary);
}
