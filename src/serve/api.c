/*
 * api.c -- routes and error replies
 */
#include "serve/api.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "serve/kind.h"
#include "tandem/status.h"

void td_work_release(td_work *w)
{
    td_free(w->images);
    td_free(w->pixels);
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
    reply->type = TD_JSON_TYPE;
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
    { "/v2/models/stats", TD_ROUTE_STATISTICS, false },
    { "/v2/repository/index", TD_ROUTE_INDEX, true },
};

/* paths below /v2/models/NAME and /v2/models/NAME/versions/1 */
static const struct {
    const char *path;
    td_route route;
    bool is_post;
} model_routes[] = {
    { "", TD_ROUTE_MODEL, false },         { "/ready", TD_ROUTE_MODEL_READY, false },
    { "/config", TD_ROUTE_CONFIG, false }, { "/stats", TD_ROUTE_STATISTICS, false },
    { "/infer", TD_ROUTE_INFER, true },
};

static td_route check_method(td_route route, bool is_post, const char *method, td_reply *reply)
{
    bool fits = is_post ? strcmp(method, "POST") == 0
                        : strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (fits)
        return route;
    td_reply_error(reply, 405, "method not allowed, wanted %s", is_post ? "POST" : "GET");
    reply->allow = is_post ? "POST" : "GET, HEAD";
    return TD_ROUTE_NONE;
}

static td_route no_route(td_reply *reply, const char *path)
{
    td_reply_error(reply, 404, "unknown path '%.200s'", path);
    return TD_ROUTE_NONE;
}

/* `rest` is the part of the path after "/v2/models/" */
static td_route model_route(const td_service *s, const char *method, const char *path,
                            const char *rest, td_reply *reply)
{
    static const char versions[] = "/versions/";
    size_t n = strcspn(rest, "/");
    if (n != strlen(s->name) || memcmp(rest, s->name, n) != 0) {
        td_reply_error(reply, 404, "unknown model '%.*s', wanted '%s'", (int)(n < 200 ? n : 200),
                       rest, s->name);
        return TD_ROUTE_NONE;
    }
    rest += n;
    if (td_text_starts(rest, versions)) {
        rest += sizeof versions - 1;
        n = strcspn(rest, "/");
        if (n != 1 || *rest != '1') {
            td_reply_error(reply, 404, "model '%s' has no version '%.*s', wanted 1", s->name,
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

/* the route of a kind's image path; a path of the other kind is an error in `reply`.  NONE without
   a reply: it is neither path */
static td_route image_route(const td_service *s, const char *method, const char *path,
                            td_reply *reply)
{
    static const td_kind *const kinds[] = { &td_kind_classifier, &td_kind_detector };
    if (strcmp(path, s->kind->path) == 0)
        return check_method(TD_ROUTE_IMAGE, true, method, reply);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(path, kinds[i]->path) == 0)
            td_reply_error(reply, 404, "'%s' is %s, send images to %s instead of %s", s->name,
                           s->kind->what, s->kind->path, path);
    return TD_ROUTE_NONE;
}

static bool loads_models(const char *path)
{
    return td_text_starts(path, "/v2/repository/models/") &&
           (td_text_ends(path, "/load") || td_text_ends(path, "/unload"));
}

td_route td_api_route(const td_service *s, const char *method, const char *path, td_reply *reply)
{
    static const char models[] = "/v2/models/";
    const td_route route = image_route(s, method, path, reply);
    if (route != TD_ROUTE_NONE || reply->status)
        return route;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(path, routes[i].path) == 0)
            return check_method(routes[i].route, routes[i].is_post, method, reply);
    if (td_text_starts(path, models))
        return model_route(s, method, path, path + sizeof models - 1, reply);
    if (loads_models(path) && check_method(TD_ROUTE_INDEX, true, method, reply) == TD_ROUTE_NONE)
        return TD_ROUTE_NONE;
    if (loads_models(path))
        td_reply_error(reply, 501,
                       "this server has one model, '%s', and does not support loading or unloading",
                       s->name);
    return loads_models(path) ? TD_ROUTE_NONE : no_route(reply, path);
}

/* --- requests --------------------------------------------------------------------------------- */

bool td_api_read(const td_service *s, const td_request *rq, td_transformer *buffers, td_work *w,
                 td_reply *reply)
{
    const bool is_image = w->route == TD_ROUTE_IMAGE;
    td_status st = is_image ? td_image_read(s, rq, buffers, w) : td_infer_read(s, rq, w);
    const bool is_too_large = is_image && st == TD_ELIMIT;
    if (st == TD_OK)
        st = s->kind->make_room(s, w);
    if (st != TD_OK)
        td_reply_failure(reply, st);
    if (is_too_large)
        reply->status = 413;
    return st == TD_OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

void td_api_write(const td_service *s, const td_work *w, td_reply *reply)
{
    if (!s->kind->is_finite(s, w)) {
        td_reply_error(reply, 500, "the network gives no %s for it (%s)", s->kind->missing_output,
                       s->precision);
        return;
    }
    reply->status = 200;
    reply->type = TD_JSON_TYPE;
    if (w->route == TD_ROUTE_INFER)
        td_infer_write(s, w, reply);
    else
        s->kind->write(s, w, &reply->body);
    if (td_text_status(&reply->body) != TD_OK)
        td_reply_error(reply, 500, "out of memory");
}
