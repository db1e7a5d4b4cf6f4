/*
 * http.c -- one exchange per request, one peer per connection
 *
 *     READING   body arrives           -> (whole) WAITING, or DONE where it can be answered at once
 *     WAITING   connection suspended   -> DONE, resumed by whoever finished the job
 *     DONE      the reply is sent
 *
 * The library's thread alone touches an exchange while it is READING or DONE; between submit and
 * done it belongs to the batcher.  A peer that takes too long over a request, however busily it
 * trickles bytes, is found by td_http_sweep and its socket shut down; the library then cleans up.
 *
 * Bodies of all requests together may hold max(256 MiB, 2 * max_body).
 */
#include "serve/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/os.h"

enum { BACKLOG = 511, RETRY_AFTER_S = 1, BODIES_BYTES = 256 << 20, HEAD_BYTES = 32 * 1024 };

typedef struct peer peer;

struct peer {
    peer *next, *before; /* guarded by the server's lock, as all here */
    int fd;
    int64_t since_ns; /* of what it has to send */
    bool is_sending;
};

struct td_http {
    td_http_opts o;
    struct MHD_Daemon *daemon;
    int fd, port;
    atomic_bool is_draining;
    atomic_int n_requests, n_connections;
    atomic_llong bodies; /* bytes */
    int64_t bodies_max;
    pthread_mutex_t lock;
    peer *peers; /* guarded by lock */
};

typedef struct {
    td_job job; /* first: the batcher hands it back */
    td_http *h;
    struct MHD_Connection *connection;
    peer *peer;
    td_route route;
    int64_t begin_ns;
    char *body; /* grown */
    size_t n_body, cap_body;
    size_t n_dropped; /* bytes that came after an error was known */
    bool is_known, is_computed;
    td_reply reply;
    char what[128]; /* method and path, for the log */
} exchange;

/* --- peers ------------------------------------------------------------------------------------ */

static void set_peer(td_http *h, peer *p, bool is_sending)
{
    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    p->is_sending = is_sending;
    p->since_ns = td_now_ns();
    pthread_mutex_unlock(&h->lock);
}

static void add_peer(td_http *h, int fd, void **context)
{
    peer *p = TD_NEW(peer);
    *context = p;
    atomic_fetch_add(&h->n_connections, 1);
    if (!p)
        return; /* it lives without a deadline of its own */
    *p = (peer){ .fd = fd, .since_ns = td_now_ns(), .is_sending = true };
    pthread_mutex_lock(&h->lock);
    p->next = h->peers;
    if (h->peers)
        h->peers->before = p;
    h->peers = p;
    pthread_mutex_unlock(&h->lock);
}

static void drop_peer(td_http *h, peer *p)
{
    atomic_fetch_sub(&h->n_connections, 1);
    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    if (p->next)
        p->next->before = p->before;
    if (p->before)
        p->before->next = p->next;
    else
        h->peers = p->next;
    pthread_mutex_unlock(&h->lock);
    td_free(p);
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        add_peer(cls, i ? i->connect_fd : -1, context);
    } else {
        drop_peer(cls, *context);
        *context = NULL;
    }
}

static peer *peer_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

void td_http_sweep(td_http *h)
{
    int64_t now = td_now_ns(), limit_ns = (int64_t)(h->o.timeout_s * 1e9);
    pthread_mutex_lock(&h->lock);
    for (peer *p = h->peers; p; p = p->next)
        if (p->is_sending && p->fd >= 0 && now - p->since_ns > limit_ns) {
            shutdown(p->fd, SHUT_RDWR);
            p->is_sending = false;
        }
    pthread_mutex_unlock(&h->lock);
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
    enum MHD_Result done = MHD_queue_response(e->connection, (unsigned)r->status, response);
    MHD_destroy_response(response);
    double seconds = (double)(td_now_ns() - e->begin_ns) * 1e-9;
    td_metrics_answer(h->o.metrics, r->status, e->is_computed ? seconds : -1);
    if (td_log_wants(TD_LOG_DEBUG, "serve"))
        td_log(TD_LOG_DEBUG, "serve", "%s: %d, %zu bytes in, %zu out, %.1f ms", e->what, r->status,
               e->n_body, r->body.len, seconds * 1e3);
    return done;
}

static void answer_now(exchange *e)
{
    td_http *h = e->h;
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

/* those above the limit are counted */
static enum MHD_Result add_param(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    params *p = cls;
    (void)kind;
    if (p->n < TD_PARAMS_MAX)
        p->at[p->n] = (td_query){ name, value };
    return p->n++ < TD_PARAMS_MAX ? MHD_YES : MHD_NO;
}

/* on a worker */
static bool read_job(td_job *job, td_transformer *buffers)
{
    exchange *e = (exchange *)job;
    params p = { .n = 0 };
    MHD_get_connection_values(e->connection, MHD_GET_ARGUMENT_KIND, add_param, &p);
    td_request rq = { .params = p.at,
                      .n_params = p.n,
                      .content_type = header(e, "Content-Type"),
                      .json_bytes = header(e, "Inference-Header-Content-Length"),
                      .body = e->body,
                      .n_body = e->n_body };
    e->is_computed = td_api_read(e->h->o.service, &rq, buffers, &job->work, &e->reply);
    return e->is_computed;
}

static void done_job(td_job *job, td_status st)
{
    exchange *e = (exchange *)job;
    if (e->is_computed && st == TD_OK)
        td_api_write(e->h->o.service, &job->work, &e->reply);
    else if (st != TD_OK)
        td_reply_failure(&e->reply, st);
    if (st != TD_OK)
        td_log(TD_LOG_ERROR, "serve", "%s", td_error_message());
    MHD_resume_connection(e->connection);
}

/* the body is whole */
static enum MHD_Result begin_work(exchange *e)
{
    td_http *h = e->h;
    if (!td_batcher_enter(h->o.batcher)) {
        td_reply_error(&e->reply, 503, "too many requests are waiting, try again in %d s",
                       RETRY_AFTER_S);
        return send_reply(e);
    }
    e->job.work.route = e->route;
    e->job.read = read_job;
    e->job.done = done_job;
    MHD_suspend_connection(e->connection);
    td_batcher_submit(h->o.batcher, &e->job); /* from here on it is the batcher's */
    return MHD_YES;
}

/* --- requests --------------------------------------------------------------------------------- */

/* what is known before the body comes: an answer, or that the body is wanted */
static bool wants_body(exchange *e, const char *method, const char *path)
{
    const td_http_opts *o = &e->h->o;
    const char *length = header(e, "Content-Length");
    int64_t n = 0;
    e->route = td_api_route(o->service, method, path, &e->reply);
    if (e->route != TD_ROUTE_PICTURE && e->route != TD_ROUTE_INFER)
        return false;
    if (length && (!td_text_to_int(length, &n) || n > o->max_body)) {
        td_reply_error(&e->reply, 413, "the body has %.20s bytes, %lld are allowed", length,
                       (long long)o->max_body);
        e->route = TD_ROUTE_NONE;
        return false;
    }
    return true;
}

/* more of the body; what comes after an error is read and forgotten, for a while */
static enum MHD_Result take(exchange *e, const char *data, size_t n)
{
    td_http *h = e->h;
    int64_t max = h->o.max_body;
    if (e->reply.status) {
        e->n_dropped += n;
        return (int64_t)e->n_dropped > max ? MHD_NO : MHD_YES;
    }
    if ((int64_t)(e->n_body + n) > max) {
        td_reply_error(&e->reply, 413, "the body has more than %lld bytes", (long long)max);
    } else if (atomic_load(&h->bodies) + (int64_t)n > h->bodies_max) {
        td_reply_error(&e->reply, 503, "requests of %lld bytes are waiting, try again in %d s",
                       (long long)h->bodies_max, RETRY_AFTER_S);
    } else if (td_reserve(&e->body, &e->cap_body, e->n_body + n, 1) != TD_OK) {
        td_reply_error(&e->reply, 500, "out of memory");
    } else {
        memcpy(e->body + e->n_body, data, n);
        e->n_body += n;
        atomic_fetch_add(&h->bodies, (int64_t)n);
    }
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
        e->is_known = !wants_body(e, method, path);
        if (!e->is_known)
            return MHD_YES;
        set_peer(e->h, e->peer, false);
        answer_now(e);
        return send_reply(e);
    }
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        return take(e, data, n);
    }
    if (e->is_known)
        return send_reply(e); /* the job is done */
    e->is_known = true;
    set_peer(e->h, e->peer, false);
    return e->reply.status ? send_reply(e) : begin_work(e);
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
    set_peer(h, e->peer, true);
    atomic_fetch_sub(&h->bodies, (int64_t)e->n_body);
    atomic_fetch_sub(&h->n_requests, 1);
    td_work_release(&e->job.work);
    td_text_release(&e->reply.body);
    td_free(e->body);
    td_free(e);
}

/* a request line came: its time begins */
static void *on_line(void *cls, const char *uri, struct MHD_Connection *c)
{
    (void)uri;
    set_peer(cls, peer_of(c), true);
    return NULL;
}

static void on_log(void *cls, const char *format, va_list args)
{
    char text[512];
    (void)cls;
    if (!td_log_wants(TD_LOG_DEBUG, "http"))
        return;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    td_log(TD_LOG_DEBUG, "http", "%s", text);
}

/* --- listening -------------------------------------------------------------------------------- */

static bool parse_address(const char *host, int port, struct sockaddr_storage *out, socklen_t *n)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *n = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *n = sizeof *v6;
    return true;
}

static td_status listen_at(td_http *h)
{
    struct sockaddr_storage address;
    socklen_t n;
    int on = 1;
    if (!parse_address(h->o.host, h->o.port, &address, &n))
        return td_error(TD_EARG, "'%s' is no address, wanted one like 127.0.0.1 or ::1", h->o.host);
    h->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->fd < 0)
        return td_error_errno(TD_EIO, "cannot make a socket");
    (void)setsockopt(h->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(h->fd, (struct sockaddr *)&address, n) != 0 || listen(h->fd, BACKLOG) != 0)
        return td_error_errno(TD_EIO, "cannot listen at %s port %d", h->o.host, h->o.port);
    if (getsockname(h->fd, (struct sockaddr *)&address, &n) != 0)
        return td_error_errno(TD_EIO, "cannot find the port");
    h->port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                 : ((struct sockaddr_in6 *)&address)->sin6_port);
    return TD_OK;
}

static td_status start(td_http *h)
{
    /* not epoll: edge-triggered, the library misses the end of a connection that comes with data */
    unsigned flags = MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG;
    TD_TRY(listen_at(h));
    h->daemon = MHD_start_daemon(
        flags, (uint16_t)h->port, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
        MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_URI_LOG_CALLBACK, on_line, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->o.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(h->o.timeout_s + 1), MHD_OPTION_END);
    if (!h->daemon)
        h->fd = -1; /* the library has closed it */
    return h->daemon ? TD_OK : td_error_errno(TD_EIO, "the HTTP server does not start");
}

td_status td_http_open(const td_http_opts *opts, td_http **out)
{
    *out = NULL;
    td_http *h = TD_NEW(td_http);
    if (!h)
        return TD_ENOMEM;
    h->o = *opts;
    h->fd = -1;
    h->bodies_max = 2 * opts->max_body > BODIES_BYTES ? 2 * opts->max_body : BODIES_BYTES;
    TD_CHECK(pthread_mutex_init(&h->lock, NULL) == 0);
    td_status st = start(h);
    if (st == TD_OK)
        *out = h;
    else
        td_http_close(h);
    return st;
}

int td_http_port(const td_http *h)
{
    return h->port;
}

void td_http_drain(td_http *h)
{
    atomic_store(&h->is_draining, true);
    MHD_quiesce_daemon(h->daemon);
    close(h->fd);
    h->fd = -1;
}

int td_http_requests(const td_http *h)
{
    return atomic_load(&h->n_requests);
}

int td_http_connections(const td_http *h)
{
    return atomic_load(&h->n_connections);
}

void td_http_close(td_http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon); /* closes the socket, unless td_http_drain did */
    else if (h->fd >= 0)
        close(h->fd);
    pthread_mutex_destroy(&h->lock);
    td_free(h);
}
