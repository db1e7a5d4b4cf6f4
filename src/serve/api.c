/*
 * api.c -- routes, errors, POST /classify, and what the server says of itself
 */
#include "serve/api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "tandem/status.h"
#include "train/metrics.h"

#define JSON "application/json"

void td_work_release(td_work *w)
{
    td_free(w->images);
    td_free(w->results);
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
    { "/classify", TD_ROUTE_CLASSIFY, true },
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

td_route td_api_route(const td_service *s, const char *method, const char *path, td_reply *reply)
{
    static const char models[] = "/v2/models/";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(path, routes[i].path) == 0)
            return check_method(routes[i].route, routes[i].is_post, method, reply);
    if (td_text_starts(path, models))
        return model_route(s, method, path, path + sizeof models - 1, reply);
    return no_route(reply, path);
}

/* --- what the server says of itself ----------------------------------------------------------- */

static void describe_model(const td_service *s, td_text *out)
{
    int size = s->transform.size, k = s->n_classes;
    td_text_add(out, "{");
    td_json_add_text(out, "name", s->name);
    td_text_add(out, ", \"versions\": [\"1\"], \"platform\": \"tandem\", \"inputs\": [");
    td_text_add(out, "{\"name\": \"images\", \"datatype\": \"FP32\", \"shape\": [-1,3,%d,%d]}], ",
                size, size);
    td_text_add(out, "\"outputs\": [");
    td_text_add(out, "{\"name\": \"logits\", \"datatype\": \"FP32\", \"shape\": [-1,%d]}, ", k);
    td_text_add(out, "{\"name\": \"probabilities\", \"datatype\": \"FP32\", \"shape\": [-1,%d]}]",
                k);
    td_text_add(out, ", \"parameters\": {");
    td_json_add_text(out, "precision", s->precision);
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
        td_text_add(out, "%s", td_page_html);
        break;
    case TD_ROUTE_ICON:
        reply->status = 204;
        reply->type = NULL;
        break;
    case TD_ROUTE_SERVER:
        td_text_add(out,
                    "{\"name\": \"tandem\", \"version\": \"%s\", \"extensions\": "
                    "[\"binary_tensor_data\", \"classification\"]}\n",
                    td_version());
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
    int64_t topk = s->topk;
    if (rq->topk && (!td_text_to_int(rq->topk, &topk) || topk < 1 || topk > TD_TOPK_MAX))
        return td_error(TD_EARG, "topk is '%.30s', wanted 1 .. %d", rq->topk, TD_TOPK_MAX);
    w->topk = (int)(topk < s->n_classes ? topk : s->n_classes);
    if (rq->content_type && strncasecmp(rq->content_type, "multipart/form-data", 19) == 0)
        TD_TRY(td_multipart_find(rq->content_type, rq->body, rq->n_body, &bytes, &n));
    w->n = 1;
    w->images = td_alloc(3 * size * size, sizeof(float));
    if (!w->images)
        return TD_ENOMEM;
    return td_transform_picture(buffers, &s->transform, n ? bytes : "", n, 0, 0, w->images);
}

bool td_api_read(const td_service *s, const td_request *rq, td_transformer *buffers, td_work *w,
                 td_reply *reply)
{
    td_status st =
        w->route == TD_ROUTE_INFER ? td_infer_read(s, rq, w) : read_picture(s, rq, buffers, w);
    if (st == TD_OK) {
        w->results = td_alloc(2 * (size_t)w->n * (size_t)s->n_classes, sizeof(float));
        st = w->results ? TD_OK : TD_ENOMEM;
    }
    if (st != TD_OK)
        td_reply_failure(reply, st);
    return st == TD_OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

static void write_classes(const td_service *s, const td_work *w, td_reply *reply)
{
    const float *probability = w->results + s->n_classes;
    int best[TD_TOPK_MAX];
    char room[24];
    td_text *out = &reply->body;
    td_top_k(probability, s->n_classes, w->topk, best);
    td_text_add(out, "{");
    td_json_add_text(out, "model", s->name);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < w->topk; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add(out, "label", best[i]);
        td_json_add_text(out, "name", s->class_name(s->ctx, best[i], room));
        td_json_add(out, "probability", (double)probability[best[i]]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}\n");
}

void td_api_write(const td_service *s, const td_work *w, td_reply *reply)
{
    size_t n = (size_t)w->n * (size_t)s->n_classes;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(w->results[n + i]))
            continue;
        td_reply_error(reply, 500, "the network gives no finite probabilities for it (%s)",
                       s->precision);
        return;
    }
    reply->status = 200;
    reply->type = JSON;
    if (w->route == TD_ROUTE_INFER)
        td_infer_write(s, w, reply);
    else
        write_classes(s, w, reply);
    if (td_text_status(&reply->body) != TD_OK)
        td_reply_error(reply, 500, "out of memory");
}
