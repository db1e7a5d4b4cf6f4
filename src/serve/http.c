/*
 * http.c -- handles HTTP requests with libmicrohttpd
 *
 *     READING   body arrives           -> (complete) WAITING, or DONE if it can be answered at once
 *     WAITING   connection suspended   -> DONE, resumed by the thread that finished the job
 *     DONE      the reply is sent
 *
 * Only the library's thread uses an exchange while it is READING or DONE; between submit and done
 * it belongs to the batcher.  The listener shuts down the socket of a peer that takes too long to
 * send a request, even if it sends a byte now and then; the library then cleans up.
 *
 * The bodies of all requests and the rows decoded from them may take max(256 MiB, 4 * max_body) of
 * memory together; temporary allocations of the workers are not counted.
 *
 * A request that is rejected before its body arrived is answered after the body: otherwise a client
 * that is still sending would get a connection reset instead of the answer.
 */
#include "serve/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/encoding.h"
#include "serve/listener.h"
#include "serve/token.h"

enum {
    RETRY_AFTER_S = 1,
    BODIES_BYTES = 256 << 20,
    HEAD_BYTES = 32 * 1024,
    LIGHT_BYTES = 4 << 20,  /* a small request's decompressed size */
    CONNECTIONS_SPARE = 256 /* above the listener's limit: some are closing */
};

#define LAST_ANSWERS_NS INT64_C(1000000000) /* to send the last answers, after drain_timeout */

#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct td_http {
    td_http_opts o;
    struct MHD_Daemon *daemon;
    td_listener *listener;
    atomic_bool is_draining;
    atomic_int n_requests;
    atomic_llong bodies; /* bytes */
    int64_t bodies_max;
    char library_message[512]; /* the library's last log message */
    pthread_mutex_t lock;
    int n_jobs;      /* jobs in the batcher; lock guards it and the next member */
    bool is_closed;  /* no new job may start */
    int64_t done_ns; /* when the last job ended after is_closed; 0: not yet */
};

typedef struct {
    td_job job; /* first, so that a td_job * can be cast to exchange * */
    td_http *h;
    struct MHD_Connection *connection;
    td_peer *peer;
    td_route route;
    int64_t begin_ns;
    char *body; /* grown */
    size_t n_body, cap_body;
    size_t n_received; /* bytes of the body as it was sent */
    size_t n_held;     /* bytes, as counted in h->bodies */
    td_encoding encoding;
    bool drops_body; /* received bytes are discarded */
    bool is_known, is_computed, is_large;
    td_reply reply;
    char what[128]; /* method and path, for the log */
} exchange;

/* --- peers ------------------------------------------------------------------------------------ */

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    td_http *h = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = td_listener_add_peer(h->listener, i ? i->connect_fd : -1);
    } else {
        td_listener_remove_peer(h->listener, *context);
        *context = NULL;
    }
}

static td_peer *peer_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

static void set_peer(const exchange *e, td_peer_state state)
{
    td_listener_set(e->h->listener, e->peer, state);
}

/* --- memory for bodies ------------------------------------------------------------------------ */

/* updates the number of bytes that the exchange holds */
static void account_bytes(exchange *e, size_t bytes)
{
    atomic_fetch_add(&e->h->bodies, (int64_t)bytes - (int64_t)e->n_held);
    e->n_held = bytes;
}

/* memory left for bodies, in bytes */
static int64_t bodies_left(const td_http *h)
{
    const int64_t left = h->bodies_max - atomic_load(&h->bodies);
    return left > 0 ? left : 0;
}

static void reply_bodies_full(exchange *e)
{
    td_reply_error(&e->reply, 503, "requests of %lld bytes are waiting, try again in %d s",
                   (long long)e->h->bodies_max, RETRY_AFTER_S);
    td_listener_close_slowest(e->h->listener);
}

/* --- answers ---------------------------------------------------------------------------------- */

static enum MHD_Result send_reply(exchange *e)
{
    td_reply *r = &e->reply;
    td_http *h = e->h;
    char number[24];
    bool has_body = r->status != 204;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        has_body ? r->body.len : 0, (void *)(uintptr_t)td_text_get(&r->body),
        MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    if (has_body && r->type)
        MHD_add_response_header(response, "Content-Type", r->type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (e->route == TD_ROUTE_PAGE)
        MHD_add_response_header(response, "Content-Security-Policy",
                                "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                "'unsafe-inline'; connect-src 'self'; img-src blob:");
    if (r->allow)
        MHD_add_response_header(response, "Allow", r->allow);
    if (r->status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"tandem\"");
    if (r->status == 415)
        MHD_add_response_header(response, "Accept-Encoding", "gzip, deflate");
    if (r->status == 503) {
        snprintf(number, sizeof number, "%d", RETRY_AFTER_S);
        MHD_add_response_header(response, "Retry-After", number);
    }
    if (r->json_bytes) {
        snprintf(number, sizeof number, "%zu", r->json_bytes);
        MHD_add_response_header(response, "Inference-Header-Content-Length", number);
    }
    if (atomic_load(&h->is_draining))
        MHD_add_response_header(response, "Connection", "close");
    set_peer(e, TD_PEER_RECEIVING);
    enum MHD_Result done = MHD_queue_response(e->connection, (unsigned)r->status, response);
    MHD_destroy_response(response);
    double seconds = (double)(td_now_ns() - e->begin_ns) * 1e-9;
    td_metrics_answer(h->o.metrics, r->status, e->is_computed ? seconds : -1);
    if (td_log_wants(TD_LOG_DEBUG, "serve"))
        td_log(TD_LOG_DEBUG, "serve", "%s: %d, %zu bytes in, %zu out, %.1f ms", e->what, r->status,
               e->n_received, r->body.len, seconds * 1e3);
    return done;
}

/* answers that need no computing */
static enum MHD_Result answer_now(exchange *e)
{
    td_http *h = e->h;
    e->is_known = true;
    if (e->route == TD_ROUTE_METRICS) {
        e->reply.status = 200;
        e->reply.type = "text/plain; version=0.0.4; charset=utf-8";
        td_metrics_print(h->o.metrics, h->o.service->name, td_batcher_load(h->o.batcher),
                         td_http_connections(h), &e->reply.body);
    } else if (e->route != TD_ROUTE_NONE) {
        td_api_describe(h->o.service, e->route, !atomic_load(&h->is_draining), &e->reply);
    }
    if (td_text_status(&e->reply.body) != TD_OK)
        td_reply_error(&e->reply, 500, "out of memory");
    return send_reply(e);
}

/* --- computing -------------------------------------------------------------------------------- */

static const char *header(const exchange *e, const char *name)
{
    return MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, name);
}

typedef struct {
    td_query at[TD_PARAMS_MAX];
    int n;
} params;

/* parameters above the limit are only counted */
static enum MHD_Result add_param(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    params *p = cls;
    (void)kind;
    if (p->n < TD_PARAMS_MAX)
        p->at[p->n] = (td_query){ name, value };
    return p->n++ < TD_PARAMS_MAX ? MHD_YES : MHD_NO;
}

/* sends slow requests to the workers for large images, if there is room */
static td_read_result defer_to_large(exchange *e)
{
    e->is_large = td_batcher_enter_large(e->h->o.batcher);
    if (e->is_large)
        return TD_READ_LARGE;
    td_reply_error(&e->reply, 503, "too many large requests are waiting, try again in %d s",
                   RETRY_AFTER_S);
    return TD_READ_NOTHING;
}

/* on a worker: decompresses the body; TD_READ_ROWS: success */
static td_read_result expand(exchange *e)
{
    td_http *h = e->h;
    const int64_t left = bodies_left(h), max = h->o.max_body < left ? h->o.max_body : left;
    const bool is_cautious = !e->is_large && max > LIGHT_BYTES;
    char *body;
    size_t n;
    td_status st =
        td_encoding_expand(e->body, e->n_body, is_cautious ? LIGHT_BYTES : (size_t)max, &body, &n);
    if (st == TD_ELIMIT && is_cautious)
        return defer_to_large(e);
    if (st == TD_ELIMIT && max < h->o.max_body)
        reply_bodies_full(e);
    else if (st != TD_OK)
        td_reply_failure(&e->reply, st);
    if (st == TD_ELIMIT && max == h->o.max_body)
        e->reply.status = 413;
    if (st != TD_OK)
        return TD_READ_NOTHING;
    td_free(e->body);
    e->body = body;
    e->n_body = n;
    e->encoding = TD_ENCODING_NONE;
    account_bytes(e, n);
    return TD_READ_ROWS;
}

/* on a worker */
static td_read_result read_job(td_job *job, td_transformer *buffers)
{
    exchange *e = (exchange *)job;
    td_http *h = e->h;
    params p = { .n = 0 };
    const td_read_result expanded = e->encoding == TD_ENCODING_DEFLATED ? expand(e) : TD_READ_ROWS;
    if (expanded != TD_READ_ROWS)
        return expanded;
    MHD_get_connection_values(e->connection, MHD_GET_ARGUMENT_KIND, add_param, &p);
    td_request rq = { .params = p.at,
                      .n_params = p.n,
                      .content_type = header(e, "Content-Type"),
                      .json_bytes = header(e, "Inference-Header-Content-Length"),
                      .body = e->body,
                      .n_body = e->n_body };
    const bool is_large =
        e->route == TD_ROUTE_IMAGE ? td_image_is_large(&rq) : td_infer_is_large(&rq);
    if (is_large && !e->is_large)
        return defer_to_large(e);
    e->is_computed = td_api_read(h->o.service, &rq, buffers, &job->work, &e->reply);
    td_free(e->body);
    e->body = NULL;
    const size_t row = td_transform_values(&h->o.service->transform);
    const size_t value = job->work.pixels ? 1 : sizeof(float);
    account_bytes(e, e->is_computed ? (size_t)job->work.n * row * value : 0);
    return e->is_computed ? TD_READ_ROWS : TD_READ_NOTHING;
}

static void done_job(td_job *job, td_status st)
{
    exchange *e = (exchange *)job;
    td_http *h = e->h;
    const int64_t begin_ns = td_now_ns();
    if (e->is_computed && st == TD_OK)
        td_api_write(h->o.service, &job->work, &e->reply);
    else if (st != TD_OK)
        td_reply_failure(&e->reply, st);
    if (st != TD_OK)
        td_log(TD_LOG_ERROR, "serve", "%s", td_error_message());
    job->spans.output_ns = td_now_ns() - begin_ns;
    td_metrics_request(h->o.metrics, e->reply.status == 200, &job->spans);
    MHD_resume_connection(e->connection); /* the exchange may be gone after it */
    pthread_mutex_lock(&h->lock);
    h->n_jobs--;
    pthread_mutex_unlock(&h->lock);
}

static bool enter(td_http *h)
{
    pthread_mutex_lock(&h->lock);
    const bool may = !h->is_closed && td_batcher_enter(h->o.batcher);
    h->n_jobs += may;
    pthread_mutex_unlock(&h->lock);
    return may;
}

/* called when the body is complete */
static enum MHD_Result begin_work(exchange *e)
{
    td_http *h = e->h;
    if (!enter(h)) {
        td_reply_error(&e->reply, 503, "too many requests are waiting, try again in %d s",
                       RETRY_AFTER_S);
        return send_reply(e);
    }
    set_peer(e, TD_PEER_WAITING);
    e->job.work.route = e->route;
    e->job.read = read_job;
    e->job.done = done_job;
    MHD_suspend_connection(e->connection);
    td_batcher_submit(h->o.batcher, &e->job); /* the batcher owns it from here on */
    return MHD_YES;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool is_computing(td_route route)
{
    return route == TD_ROUTE_IMAGE || route == TD_ROUTE_INFER;
}

static bool is_health(td_route route)
{
    return route == TD_ROUTE_LIVE || route == TD_ROUTE_READY;
}

/* before the body arrives: finds the route, or sets an error reply */
static void check_head(exchange *e, const char *method, const char *path)
{
    const td_http_opts *o = &e->h->o;
    const char *length = header(e, "Content-Length"), *encoding = header(e, "Content-Encoding");
    int64_t n = 0;
    e->route = td_api_route(o->service, method, path, &e->reply);
    e->encoding = td_encoding_of(encoding);
    if (o->token && !is_health(e->route) && !td_token_matches(o->token, header(e, "Authorization")))
        td_reply_error(&e->reply, 401,
                       "this server requires a token: 'Authorization: Bearer TOKEN'");
    else if (is_computing(e->route) && length && (!td_text_to_int(length, &n) || n > o->max_body))
        td_reply_error(&e->reply, 413, "the body has %.20s bytes, at most %lld are allowed", length,
                       (long long)o->max_body);
    else if (is_computing(e->route) && e->encoding == TD_ENCODING_UNKNOWN)
        td_reply_error(&e->reply, 415, "Content-Encoding is '%.40s', wanted gzip or deflate",
                       encoding);
    if (e->reply.status)
        e->route = TD_ROUTE_NONE;
    e->drops_body = !is_computing(e->route);
}

/* will the client send a body without waiting for an answer? */
static bool has_body(const exchange *e)
{
    const char *length = header(e, "Content-Length");
    int64_t n = 0;
    if (header(e, "Expect"))
        return false; /* with Expect: 100-continue the client waits */
    if (header(e, "Transfer-Encoding"))
        return true;
    return length && td_text_to_int(length, &n) && n > 0 && n <= e->h->o.max_body;
}

/* receives another part of the body */
static enum MHD_Result receive_body(exchange *e, const char *data, size_t n)
{
    td_http *h = e->h;
    const int64_t max = h->o.max_body;
    e->n_received += n;
    if (e->drops_body || e->reply.status)
        return (int64_t)e->n_received > 2 * max ? MHD_NO : MHD_YES;
    if ((int64_t)(e->n_body + n) > max) {
        td_reply_error(&e->reply, 413, "the body has more than %lld bytes, which is the limit",
                       (long long)max);
    } else if ((int64_t)n > bodies_left(h)) {
        reply_bodies_full(e);
    } else if (td_reserve(&e->body, &e->cap_body, e->n_body + n, 1) != TD_OK) {
        td_reply_error(&e->reply, 500, "out of memory");
    } else {
        memcpy(e->body + e->n_body, data, n);
        e->n_body += n;
        account_bytes(e, e->cap_body);
        return MHD_YES;
    }
    td_free(e->body);
    e->body = NULL;
    e->n_body = e->cap_body = 0;
    account_bytes(e, 0);
    return MHD_YES;
}

static exchange *begin(td_http *h, struct MHD_Connection *c, const char *method, const char *path)
{
    exchange *e = TD_NEW(exchange);
    if (!e)
        return NULL;
    e->h = h;
    e->connection = c;
    e->peer = peer_of(c);
    e->begin_ns = td_now_ns();
    if (td_log_wants(TD_LOG_DEBUG, "serve")) {
        td_text line = { 0 };
        td_text_add_json(&line, path);
        snprintf(e->what, sizeof e->what, "%.10s %s", method, td_text_get(&line));
        td_text_release(&line);
    }
    atomic_fetch_add(&h->n_requests, 1);
    return e;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **context)
{
    exchange *e = *context;
    (void)version;
    if (!e) {
        e = begin(cls, c, method, path);
        *context = e;
        if (!e)
            return MHD_NO;
        check_head(e, method, path);
        return is_computing(e->route) || has_body(e) ? MHD_YES : answer_now(e);
    }
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        return receive_body(e, data, n);
    }
    if (e->is_known)
        return send_reply(e); /* the job is done */
    e->is_known = true;
    if (e->reply.status)
        return send_reply(e);
    return is_computing(e->route) ? begin_work(e) : answer_now(e);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode code)
{
    exchange *e = *context;
    td_http *h = cls;
    (void)c;
    (void)code;
    if (!e)
        return;
    *context = NULL;
    set_peer(e, TD_PEER_IDLE);
    account_bytes(e, 0);
    atomic_fetch_sub(&h->n_requests, 1);
    td_work_release(&e->job.work);
    td_text_release(&e->reply.body);
    td_free(e->body);
    td_free(e);
}

/* a request line arrived: starts its timeout */
static void *on_line(void *cls, const char *uri, struct MHD_Connection *c)
{
    (void)uri;
    const td_http *h = cls;
    td_listener_set(h->listener, peer_of(c), TD_PEER_SENDING);
    return NULL;
}

static void on_log(void *cls, const char *format, va_list args)
{
    td_http *h = cls;
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    if (!h->daemon) /* MHD_start_daemon failed */
        memcpy(h->library_message, text, sizeof text);
    td_log(TD_LOG_DEBUG, "http", "%s", text);
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* on the listener's thread */
static bool add_connection(void *ctx, int fd, const struct sockaddr *address, socklen_t n)
{
    td_http *h = ctx;
    return MHD_add_connection(h->daemon, fd, address, n) == MHD_YES;
}

static td_status start(td_http *h)
{
    const bool is_tls = h->o.tls_cert != NULL;
    /* not epoll: it is edge-triggered, and the library misses the end of a connection that arrives
       with data */
    unsigned flags = MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET | (is_tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        { MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)h->o.tls_cert },
        { MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->o.tls_key },
        { MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES },
        { MHD_OPTION_END, 0, NULL }
    };
    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_URI_LOG_CALLBACK, on_line, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->o.max_connections * 2 + CONNECTIONS_SPARE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(h->o.timeout_s + 1),
        MHD_OPTION_ARRAY, is_tls ? tls : tls + 3, MHD_OPTION_END);
    if (h->daemon)
        return td_listener_start(h->listener);
    if (is_tls)
        return td_error(TD_EFORMAT, "cannot use the TLS certificate and key: %s",
                        h->library_message);
    return td_error_errno(TD_EIO, "cannot start the HTTP server");
}

td_status td_http_open(const td_http_opts *opts, td_http **out)
{
    *out = NULL;
    if (opts->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return td_error(TD_EUNSUPPORTED, "--tls-cert: this libmicrohttpd was built without TLS");
    td_http *h = TD_NEW(td_http);
    if (!h)
        return TD_ENOMEM;
    h->o = *opts;
    h->bodies_max = 4 * opts->max_body > BODIES_BYTES ? 4 * opts->max_body : BODIES_BYTES;
    TD_CHECK(pthread_mutex_init(&h->lock, NULL) == 0);
    const td_listener_opts lo = { .host = opts->host,
                                  .port = opts->port,
                                  .max_connections = opts->max_connections,
                                  .timeout_s = opts->timeout_s,
                                  .add_connection = add_connection,
                                  .ctx = h };
    td_status st = td_listener_open(&lo, &h->listener);
    if (st == TD_OK)
        st = start(h);
    if (st == TD_OK)
        *out = h;
    else
        td_http_close(h);
    return st;
}

int td_http_port(const td_http *h)
{
    return td_listener_port(h->listener);
}

void td_http_drain(td_http *h)
{
    atomic_store(&h->is_draining, true);
    td_listener_drain(h->listener);
}

int td_http_requests(const td_http *h)
{
    return atomic_load(&h->n_requests);
}

int td_http_connections(const td_http *h)
{
    return td_listener_connections(h->listener);
}

bool td_http_is_over(td_http *h, bool is_late)
{
    const bool is_quiet = is_late || td_listener_is_quiet(h->listener);
    pthread_mutex_lock(&h->lock);
    h->is_closed = h->is_closed || is_late || (is_quiet && h->n_jobs == 0);
    const bool is_done = h->is_closed && h->n_jobs == 0;
    pthread_mutex_unlock(&h->lock);
    if (is_done && !h->done_ns)
        h->done_ns = td_now_ns();
    return is_done &&
           (!td_listener_is_answering(h->listener) || td_now_ns() - h->done_ns > LAST_ANSWERS_NS);
}

void td_http_close(td_http *h)
{
    if (!h)
        return;
    td_listener_stop(h->listener);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    td_listener_free(h->listener);
    pthread_mutex_destroy(&h->lock);
    td_free(h);
}
