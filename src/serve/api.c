/*
 * api.c -- routes, errors, pictures, and what the server says of itself
 */
#include "serve/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "serve/kind.h"
#include "tandem/status.h"

#define JSON "application/json"

void td_work_release(td_work *w)
{
    td_free(w->images);
    td_free(w->results);
    td_free(w->is_wanted);
    td_free(w->found);
    td_free(w->n_found);
    td_text_release(&w->id);
    *w = (td_work){ 0 };
}

/* --- errors ----------------------------------------------------------------------------------- */

static void set_error(td_reply *reply, int status, const char *text)
{
    td_text_release(&reply->body);
    reply->status = status;
    reply->type = JSON;
    reply->json_bytes = 0;
    td_text_add(&reply->body, "{");
    td_json_add_text(&reply->body, "error", text);
    td_text_add(&reply->body, "}\n");
}

void td_reply_error(td_reply *reply, int status, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    set_error(reply, status, text);
}

void td_reply_failure(td_reply *reply, td_status st)
{
    bool is_ours = st == TD_ENOMEM || st == TD_EDEVICE || st == TD_ENUMERIC;
    const char *text = td_error_message();
    set_error(reply, is_ours ? 500 : 400, *text ? text : td_status_text(st));
}

/* --- routes ----------------------------------------------------------------------------------- */

static const struct {
    const char *path;
    td_route route;
    bool is_post;
} routes[] = {
    { "/", TD_ROUTE_PAGE, false },
    { "/favicon.ico", TD_ROUTE_ICON, false },
    { "/metrics", TD_ROUTE_METRICS, false },
    { "/v2", TD_ROUTE_SERVER, false },
    { "/v2/", TD_ROUTE_SERVER, false },
    { "/v2/health/live", TD_ROUTE_LIVE, false },
    { "/v2/health/ready", TD_ROUTE_READY, false },
};

/* below /v2/models/NAME and /v2/models/NAME/versions/1 */
static const struct {
    const char *path;
    td_route route;
    bool is_post;
} model_routes[] = {
    { "", TD_ROUTE_MODEL, false },
    { "/ready", TD_ROUTE_MODEL_READY, false },
    { "/infer", TD_ROUTE_INFER, true },
};

static td_route check_method(td_route route, bool is_post, const char *method, td_reply *reply)
{
    bool fits = is_post ? strcmp(method, "POST") == 0
                        : strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (fits)
        return route;
    td_reply_error(reply, 405, "this path takes %s", is_post ? "POST" : "GET");
    reply->allow = is_post ? "POST" : "GET, HEAD";
    return TD_ROUTE_NONE;
}

static td_route no_route(td_reply *reply, const char *path)
{
    td_reply_error(reply, 404, "there is nothing at '%.200s'", path);
    return TD_ROUTE_NONE;
}

/* `rest` follows "/v2/models/" */
static td_route model_route(const td_service *s, const char *method, const char *path,
                            const char *rest, td_reply *reply)
{
    static const char versions[] = "/versions/";
    size_t n = strcspn(rest, "/");
    if (n != strlen(s->name) || memcmp(rest, s->name, n) != 0) {
        td_reply_error(reply, 404, "there is no model '%.*s', there is '%s'",
                       (int)(n < 200 ? n : 200), rest, s->name);
        return TD_ROUTE_NONE;
    }
    rest += n;
    if (td_text_starts(rest, versions)) {
        rest += sizeof versions - 1;
        n = strcspn(rest, "/");
        if (n != 1 || *rest != '1') {
            td_reply_error(reply, 404, "model '%s' has no version '%.*s', it has 1", s->name,
                           (int)(n < 200 ? n : 200), rest);
            return TD_ROUTE_NONE;
        }
        rest += n;
    }
    for (size_t i = 0; i < sizeof model_routes / sizeof *model_routes; i++)
        if (strcmp(rest, model_routes[i].path) == 0)
            return check_method(model_routes[i].route, model_routes[i].is_post, method, reply);
    return no_route(reply, path);
}

/* where pictures go, here or in another server; NONE with no reply: neither */
static td_route picture_route(const td_service *s, const char *method, const char *path,
                              td_reply *reply)
{
    static const td_kind *const kinds[] = { &td_kind_classifier, &td_kind_detector };
    if (strcmp(path, s->kind->path) == 0)
        return check_method(TD_ROUTE_PICTURE, true, method, reply);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(path, kinds[i]->path) == 0)
            td_reply_error(reply, 404, "'%s' is %s, pictures for it go to %s, not to %s", s->name,
                           s->kind->what, s->kind->path, path);
    return TD_ROUTE_NONE;
}

td_route td_api_route(const td_service *s, const char *method, const char *path, td_reply *reply)
{
    static const char models[] = "/v2/models/";
    const td_route route = picture_route(s, method, path, reply);
    if (route != TD_ROUTE_NONE || reply->status)
        return route;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(path, routes[i].path) == 0)
            return check_method(routes[i].route, routes[i].is_post, method, reply);
    if (td_text_starts(path, models))
        return model_route(s, method, path, path + sizeof models - 1, reply);
    return no_route(reply, path);
}

/* --- what the server says of itself ----------------------------------------------------------- */

size_t td_output_row(const td_service *s, const td_work *w, int i)
{
    int dim[2];
    size_t n = 1;
    for (int k = s->kind->dims(s, w, i, dim); k > 0; k--)
        n *= (size_t)dim[k - 1];
    return n;
}

static void describe_output(const td_service *s, int i, td_text *out)
{
    const td_kind_output *o = &s->kind->outputs[i];
    int dim[2], n = s->kind->dims(s, NULL, i, dim);
    td_text_add(out, "%s{\"name\": \"%s\", \"datatype\": \"%s\", \"shape\": [-1", i ? ", " : "",
                o->name, o->is_int ? "INT64" : "FP32");
    for (int k = 0; k < n; k++)
        td_text_add(out, ",%d", dim[k]);
    td_text_add(out, "]}");
}

static void describe_model(const td_service *s, td_text *out)
{
    int size = s->transform.size;
    td_text_add(out, "{");
    td_json_add_text(out, "name", s->name);
    td_text_add(out, ", \"versions\": [\"1\"], \"platform\": \"tandem\", \"inputs\": [");
    td_text_add(out, "{\"name\": \"images\", \"datatype\": \"FP32\", \"shape\": [-1,3,%d,%d]}], ",
                size, size);
    td_text_add(out, "\"outputs\": [");
    for (int i = 0; i < s->kind->n_outputs; i++)
        describe_output(s, i, out);
    td_text_add(out, "], \"parameters\": {");
    td_json_add_text(out, "precision", s->precision);
    s->kind->describe(s, out);
    td_text_add(out, "}}\n");
}

void td_api_describe(const td_service *s, td_route route, bool is_ready, td_reply *reply)
{
    td_text *out = &reply->body;
    reply->status = 200;
    reply->type = JSON;
    switch (route) {
    case TD_ROUTE_PAGE:
        reply->type = "text/html; charset=utf-8";
        s->kind->page(s, out);
        break;
    case TD_ROUTE_ICON:
        reply->status = 204;
        reply->type = NULL;
        break;
    case TD_ROUTE_SERVER:
        td_text_add(out,
                    "{\"name\": \"tandem\", \"version\": \"%s\", \"extensions\": "
                    "[\"binary_tensor_data\"%s]}\n",
                    td_version(), s->kind->has_classes ? ", \"classification\"" : "");
        break;
    case TD_ROUTE_LIVE:
        td_text_add(out, "{\"live\": true}\n");
        break;
    case TD_ROUTE_READY:
        reply->status = is_ready ? 200 : 503;
        td_text_add(out, "{\"ready\": %s}\n", is_ready ? "true" : "false");
        break;
    case TD_ROUTE_MODEL_READY:
        reply->status = is_ready ? 200 : 503;
        td_text_add(out, "{\"name\": \"%s\", \"ready\": %s}\n", s->name,
                    is_ready ? "true" : "false");
        break;
    default:
        describe_model(s, out);
        break;
    }
}

/* --- pictures --------------------------------------------------------------------------------- */

static td_status read_picture(const td_service *s, const td_request *rq, td_transformer *buffers,
                              td_work *w)
{
    const char *bytes = rq->body;
    size_t n = rq->n_body, size = (size_t)s->transform.size;
    if (rq->content_type && strncasecmp(rq->content_type, "multipart/form-data", 19) == 0)
        TD_TRY(td_multipart_find(rq->content_type, rq->body, rq->n_body, &bytes, &n));
    w->n = 1;
    w->images = td_alloc(3 * size * size, sizeof(float));
    if (!w->images)
        return TD_ENOMEM;
    return s->kind->read_row(s, buffers, n ? bytes : "", n, w);
}

/* '-' and '_' are the same, as on the command line */
static bool is_name(const char *a, const char *b)
{
    while (*a && (*a == *b || (strchr("-_", *a) && *b && strchr("-_", *b))))
        a++, b++;
    return !*a && !*b;
}

/* every parameter is one that the kind knows */
static td_status check_params(const td_service *s, const td_request *rq)
{
    if (rq->n_params > TD_PARAMS_MAX)
        return td_error(TD_ELIMIT, "there are more than %d parameters", TD_PARAMS_MAX);
    for (int i = 0; i < rq->n_params; i++) {
        const td_query *p = &rq->params[i];
        const char *const *known = s->kind->params;
        while (*known && !is_name(*known, p->name))
            known++;
        if (*known && p->value)
            continue;
        if (*known)
            return td_error(TD_EARG, "parameter '%s' has no value", p->name);
        td_text names = { 0 };
        for (known = s->kind->params; *known; known++)
            td_text_add(&names, "%s%s", known > s->kind->params ? ", " : "", *known);
        td_status st = td_error(TD_EARG, "there is no parameter '%.100s', there is %s", p->name,
                                td_text_get(&names));
        td_text_release(&names);
        return st;
    }
    return TD_OK;
}

bool td_api_read(const td_service *s, const td_request *rq, td_transformer *buffers, td_work *w,
                 td_reply *reply)
{
    const bool is_picture = w->route == TD_ROUTE_PICTURE;
    td_status st = is_picture ? check_params(s, rq) : TD_OK;
    if (st == TD_OK && is_picture)
        st = s->kind->options(s, rq, w);
    if (st == TD_OK)
        st = is_picture ? read_picture(s, rq, buffers, w) : td_infer_read(s, rq, w);
    if (st == TD_OK)
        st = s->kind->make_room(s, w);
    if (st != TD_OK)
        td_reply_failure(reply, st);
    return st == TD_OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

void td_api_write(const td_service *s, const td_work *w, td_reply *reply)
{
    if (!s->kind->is_finite(s, w)) {
        td_reply_error(reply, 500, "the network gives no %s for it (%s)", s->kind->lack,
                       s->precision);
        return;
    }
    reply->status = 200;
    reply->type = JSON;
    if (w->route == TD_ROUTE_INFER)
        td_infer_write(s, w, reply);
    else
        s->kind->write(s, w, &reply->body);
    if (td_text_status(&reply->body) != TD_OK)
        td_reply_error(reply, 500, "out of memory");
}
