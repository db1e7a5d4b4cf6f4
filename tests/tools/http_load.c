/*
 * http_load.c -- a client for the tests of `tandem serve`: many connections, good and bad requests
 *
 *     http_load load PORT MODEL ANSWERS REQUESTS CONNECTIONS [PID STOP]
 *         ANSWERS has what `tandem classify --json-lines` says of images, or `tandem detect
 *         --json --min-score 0 --max-boxes 6`; they are posted in turn, 5 in 100 bodies malformed,
 *         5 in 100 requests broken off, and every answer is checked.  Once STOP requests were made,
 *         SIGTERM goes to PID and the client ends with what is then open.  Prints one JSON object;
 *         exit code 1: an answer was wrong or did not come.
 *     http_load ask PORT METHOD PATH [HEADER]...
 *         Sends standard input (of POST and PUT); prints the status, then the whole answer.
 *     http_load drip PORT
 *         Sends a header byte by byte, which never ends, until the server closes the connection.
 *     http_load hold PORT N
 *         Opens N connections, sends standard input on each, prints "held" and waits to be killed.
 *     http_load churn PORT STOP PID
 *         Many threads open a connection for each request; SIGTERM goes to PID once STOP requests
 *         were answered.  Ends when connections are refused; exit code 1: one that was accepted
 *         got no answer.
 *     http_load png WIDTH HEIGHT
 *         Writes an image of one colour to standard output: large, in few bytes.
 *     http_load has-tls
 *         Exit code 0: built with GnuTLS.  `ask` then speaks TLS where the environment's
 *         HTTP_LOAD_CA names a certificate, which the server's has to be.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/text.h"
#include "image/image.h"
#include "support/questions.h"

#if TD_HAVE_GNUTLS
#include <gnutls/gnutls.h>
#endif

enum { ANSWER_BYTES = 1 << 22, WAIT_S = 120, BAD_KINDS = 8, BAD_PERCENT = 5, BROKEN_PERCENT = 5 };

static const char image_type[] = "Content-Type: image/jpeg\r\n";

/* --- one connection --------------------------------------------------------------------------- */

typedef struct {
    int port, fd; /* -1: closed */
#if TD_HAVE_GNUTLS
    gnutls_session_t tls; /* NULL: plain */
    gnutls_certificate_credentials_t trusted;
#endif
    int n_answers; /* since it was opened */
    char *answer;  /* head and body, with a NUL */
    size_t n_answer;
    int status;
    const char *body;
} client;

static bool open_client(client *c)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)c->port) };
    struct timeval wait = { .tv_sec = WAIT_S };
    int on = 1;
    if (c->fd >= 0)
        return true;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->n_answers = 0;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a) != 0) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
        return false;
    }
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return true;
}

#if TD_HAVE_GNUTLS
/* TLS on an open connection, with a server that has this certificate */
static bool open_tls(client *c, const char *ca)
{
    if (gnutls_certificate_allocate_credentials(&c->trusted) < 0 ||
        gnutls_certificate_set_x509_trust_file(c->trusted, ca, GNUTLS_X509_FMT_PEM) < 1 ||
        gnutls_init(&c->tls, GNUTLS_CLIENT) < 0 || gnutls_set_default_priority(c->tls) < 0 ||
        gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, c->trusted) < 0)
        return false;
    gnutls_session_set_verify_cert(c->tls, "localhost", 0);
    gnutls_transport_set_int(c->tls, c->fd);
    int code;
    do
        code = gnutls_handshake(c->tls);
    while (code < 0 && !gnutls_error_is_fatal(code));
    if (code < 0)
        fprintf(stderr, "http_load: TLS: %s\n", gnutls_strerror(code));
    return code == 0;
}

static void close_tls(client *c)
{
    if (c->tls)
        gnutls_deinit(c->tls);
    if (c->trusted)
        gnutls_certificate_free_credentials(c->trusted);
    c->tls = NULL;
    c->trusted = NULL;
}

static ssize_t send_some(const client *c, const char *bytes, size_t n)
{
    return c->tls ? gnutls_record_send(c->tls, bytes, n) : send(c->fd, bytes, n, MSG_NOSIGNAL);
}

static ssize_t receive_some(const client *c, char *room, size_t n)
{
    return c->tls ? gnutls_record_recv(c->tls, room, n) : recv(c->fd, room, n, 0);
}
#else
static bool open_tls(client *c, const char *ca)
{
    (void)c;
    fprintf(stderr, "http_load: no TLS for '%s'\n", ca);
    return false;
}

static void close_tls(client *c)
{
    (void)c;
}

static ssize_t send_some(const client *c, const char *bytes, size_t n)
{
    return send(c->fd, bytes, n, MSG_NOSIGNAL);
}

static ssize_t receive_some(const client *c, char *room, size_t n)
{
    return recv(c->fd, room, n, 0);
}
#endif

static void close_client(client *c)
{
    close_tls(c);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static bool send_all(const client *c, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send_some(c, bytes + at, n - at);
        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

/* a header's value in the answer's head, or NULL */
static const char *answer_header(const client *c, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = strstr(c->answer, "\r\n"); s && s + 2 < c->body; s = strstr(s, "\r\n")) {
        s += 2;
        if (strncasecmp(s, name, n) == 0 && s[n] == ':')
            return s + n + 1 + (s[n + 1] == ' ');
    }
    return NULL;
}

/* read one answer; false: the connection ended before it was whole */
static bool read_answer(client *c)
{
    size_t wanted = 0;
    c->n_answer = 0;
    c->body = NULL;
    while (!c->body || c->n_answer < wanted) {
        ssize_t n = receive_some(c, c->answer + c->n_answer, ANSWER_BYTES - 1 - c->n_answer);
        if (n <= 0)
            return false;
        c->n_answer += (size_t)n;
        c->answer[c->n_answer] = '\0';
        char *end = c->body ? NULL : strstr(c->answer, "\r\n\r\n");
        if (!end)
            continue;
        c->body = end + 4;
        c->status = (int)strtol(c->answer + 9, NULL, 10); /* "HTTP/1.1 200" */
        const char *length = answer_header(c, "Content-Length");
        wanted = (size_t)(c->body - c->answer) + (length ? strtoul(length, NULL, 10) : 0);
    }
    c->n_answers++;
    const char *connection = answer_header(c, "Connection");
    if (connection && strncasecmp(connection, "close", 5) == 0)
        close_client(c);
    return true;
}

static bool post(client *c, const char *path, const char *headers, const char *body, size_t n)
{
    char head[1024];
    int len = snprintf(head, sizeof head,
                       "POST %s HTTP/1.1\r\nHost: test\r\n%sContent-Length: %zu\r\n\r\n", path,
                       headers, n);
    return open_client(c) && send_all(c, head, (size_t)len) && send_all(c, body, n);
}

/* --- what is asked ---------------------------------------------------------------------------- */

typedef struct {
    int port;
    const char *model;
    const char *path, *query; /* where images go */
    td_questions asked;
    int64_t n_requests, stop_at;
    pid_t pid;
    atomic_llong next, n_right, n_wrong, n_lost, n_busy, n_refused, n_accepted_bad, n_broken,
        n_late;
    atomic_llong stopped_ns; /* 0: not yet */
    double *latency;         /* [n_requests], ms; 0: no answer was wanted */
} load;

static void die(const char *text)
{
    fprintf(stderr, "http_load: %s: %s\n", text, td_error_message());
    exit(2);
}

static void read_questions(load *l, const char *path)
{
    if (!td_questions_read(&l->asked, path))
        die("the answers");
    l->path = l->asked.detects ? "/detect" : "/classify";
    l->query = l->asked.detects ? "/detect?min_score=0&max_boxes=6" : "/classify?topk=3";
}

/* --- requests --------------------------------------------------------------------------------- */

typedef struct {
    load *l;
    client c;
    pthread_t id;
} user;

/* a request did not end well: whose fault is it? */
static void count_lost(user *u, bool was_sent)
{
    load *l = u->l;
    /* a server that ends refuses connections and closes idle ones, and answers what it accepted */
    bool is_refused = u->c.fd < 0, is_idle_closed = !was_sent && u->c.n_answers > 0;
    bool is_fine = atomic_load(&l->stopped_ns) && (is_refused || is_idle_closed);
    atomic_fetch_add(is_fine ? &l->n_late : &l->n_lost, 1);
    close_client(&u->c);
}

/* the question of request `at` */
static int question_of(const load *l, int64_t at)
{
    return (int)(at % l->asked.n);
}

static void check_answers(user *u, int i)
{
    const td_question *q = &u->l->asked.list[i];
    bool is_right = u->c.status == 200 && td_questions_is_right(&u->l->asked, i, u->c.body);
    if (!is_right)
        fprintf(stderr, "http_load: wanted %lld (%.6f), or %zu boxes: %d %s", (long long)q->label,
                q->probability, q->n_boxes, u->c.status, u->c.body);
    atomic_fetch_add(is_right ? &u->l->n_right : &u->l->n_wrong, 1);
}

static bool post_form(client *c, const char *path, const td_question *q)
{
    static const char head[] =
        "--XyZ\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n"
        "--XyZ\r\nContent-Disposition: form-data; name=\"image\"; "
        "filename=\"a.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n";
    static const char tail[] = "\r\n--XyZ--\r\n";
    td_text body = { 0 };
    td_text_add(&body, "%s", head);
    td_text_add_bytes(&body, q->bytes, q->n);
    td_text_add(&body, "%s", tail);
    bool done = td_text_status(&body) == TD_OK &&
                post(c, path, "Content-Type: multipart/form-data; boundary=XyZ\r\n",
                     td_text_get(&body), body.len);
    td_text_release(&body);
    return done;
}

static void ask_good(user *u, td_rng *r, int64_t i)
{
    const td_question *q = &u->l->asked.list[question_of(u->l, i)];
    bool is_form = td_rng_below(r, 4) == 0;
    for (;;) {
        int64_t t0 = td_now_ns();
        bool was_sent = is_form ? post_form(&u->c, u->l->query, q)
                                : post(&u->c, u->l->query, image_type, q->bytes, q->n);
        if (!was_sent || !read_answer(&u->c)) {
            count_lost(u, was_sent);
            return;
        }
        u->l->latency[i] = (double)(td_now_ns() - t0) * 1e-6;
        if (u->c.status != 503) {
            check_answers(u, question_of(u->l, i));
            return;
        }
        atomic_fetch_add(&u->l->n_busy, 1);
        usleep(50000);
    }
}

static bool post_bad(user *u, td_rng *r, int kind, const td_question *q)
{
    char path[200], noise[300];
    static const char form[] = "--XyZ\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nabc";
    static const char json[] = "{\"inputs\": [{\"name\": \"images\", \"datatype\": \"FP32\", ";
    static const char shape[] = "{\"inputs\": [{\"name\": \"images\", \"datatype\": \"FP32\", "
                                "\"shape\": [1,3,2,2], \"data\": [1,2,3,4,5,6,7,8,9,10,11,12]}]}";
    char broken[200];
    client *c = &u->c;
    snprintf(path, sizeof path, "/v2/models/%s/infer", u->l->model);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)td_rng_below(r, 256);
    switch (kind) {
    case 0:
        return post(c, u->l->path, image_type, q->bytes, q->n / 2);
    case 1:
        return post(c, u->l->path, image_type, noise, sizeof noise);
    case 2:
        return post(c, u->l->path, image_type, "", 0);
    case 3:
        return post(c, path, "", json, sizeof json - 1);
    case 4:
        return post(c, path, "", shape, sizeof shape - 1);
    case 5:
        return post(c, u->l->path, "Content-Type: multipart/form-data; boundary=XyZ\r\n", form,
                    sizeof form - 1);
    case 6:
        return post(c, "/v2/models/absent/infer", "", "{}", 2);
    default:
        snprintf(broken, sizeof broken,
                 "POST %s HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\nabc"
                 "\r\n0\r\n\r\n",
                 u->l->path);
        return open_client(c) && send_all(c, broken, strlen(broken));
    }
}

static void ask_bad(user *u, td_rng *r, int64_t i)
{
    load *l = u->l;
    int kind = (int)td_rng_below(r, BAD_KINDS);
    bool was_sent = post_bad(u, r, kind, &l->asked.list[question_of(l, i)]);
    bool is_answered = was_sent && read_answer(&u->c);
    if (is_answered) {
        bool is_refused = (u->c.status >= 400 && u->c.status < 500) || u->c.status == 503;
        if (!is_refused)
            fprintf(stderr, "http_load: malformed (%d): %d %s", kind, u->c.status, u->c.body);
        atomic_fetch_add(is_refused ? &l->n_refused : &l->n_accepted_bad, 1);
    } else if (kind == BAD_KINDS - 1) {
        atomic_fetch_add(&l->n_refused, 1); /* no protocol, no answer */
        close_client(&u->c);
    } else {
        count_lost(u, was_sent);
    }
}

static void break_off(user *u, td_rng *r, int64_t i)
{
    const td_question *q = &u->l->asked.list[question_of(u->l, i)];
    char head[200];
    int n =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %zu\r\n\r\n",
                 u->l->path, q->n);
    if (open_client(&u->c)) {
        size_t sent = td_rng_below(r, 2) ? q->n : (size_t)td_rng_below(r, q->n);
        if (send_all(&u->c, head, (size_t)n))
            (void)send_all(&u->c, q->bytes, sent);
    }
    atomic_fetch_add(&u->l->n_broken, 1);
    close_client(&u->c);
}

static void stop_server(load *l)
{
    long long none = 0;
    if (atomic_compare_exchange_strong(&l->stopped_ns, &none, td_now_ns()))
        kill(l->pid, SIGTERM);
}

static void *use(void *arg)
{
    user *u = arg;
    load *l = u->l;
    for (;;) {
        int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n_requests || (l->pid && atomic_load(&l->n_late) > 0))
            break;
        td_rng r = td_rng_make(1, TD_RNG_TEST, (uint64_t)i, 0);
        uint64_t dice = td_rng_below(&r, 100);
        if (l->pid && i >= l->stop_at)
            stop_server(l);
        if (dice < BAD_PERCENT)
            ask_bad(u, &r, i);
        else if (dice < BAD_PERCENT + BROKEN_PERCENT)
            break_off(u, &r, i);
        else
            ask_good(u, &r, i);
    }
    close_client(&u->c);
    return NULL;
}

/* --- the load --------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int print_load(load *l, double seconds)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_requests; i++)
        if (l->latency[i] > 0)
            l->latency[n++] = l->latency[i];
    qsort(l->latency, (size_t)n, sizeof *l->latency, ascending);
    double *x = l->latency;
    printf(
        "{\"right\": %lld, \"wrong\": %lld, \"lost\": %lld, \"malformed_refused\": %lld, "
        "\"malformed_accepted\": %lld, \"broken_off\": %lld, \"busy\": %lld, \"too_late\": %lld, "
        "\"seconds\": %.2f, \"answers_per_s\": %.1f, \"p50_ms\": %.1f, \"p99_ms\": %.1f, "
        "\"max_ms\": %.1f}\n",
        atomic_load(&l->n_right), atomic_load(&l->n_wrong), atomic_load(&l->n_lost),
        atomic_load(&l->n_refused), atomic_load(&l->n_accepted_bad), atomic_load(&l->n_broken),
        atomic_load(&l->n_busy), atomic_load(&l->n_late), seconds, (double)n / seconds,
        n ? x[n / 2] : 0, n ? x[(n * 99) / 100] : 0, n ? x[n - 1] : 0);
    bool is_good = !atomic_load(&l->n_wrong) && !atomic_load(&l->n_lost) &&
                   !atomic_load(&l->n_accepted_bad) && atomic_load(&l->n_right) > 0;
    return is_good ? 0 : 1;
}

static int run_load(int argc, char **argv)
{
    load l = { 0 };
    if (argc < 7)
        return 2;
    l.port = (int)strtol(argv[2], NULL, 10);
    l.model = argv[3];
    read_questions(&l, argv[4]);
    l.n_requests = strtoll(argv[5], NULL, 10);
    int n_users = (int)strtol(argv[6], NULL, 10);
    l.pid = argc > 8 ? (pid_t)strtol(argv[7], NULL, 10) : 0;
    l.stop_at = argc > 8 ? strtoll(argv[8], NULL, 10) : 0;
    l.latency = td_alloc((size_t)l.n_requests, sizeof *l.latency);
    user *users = td_alloc((size_t)n_users, sizeof *users);
    if (!l.latency || !users)
        die("memory");
    int64_t t0 = td_now_ns();
    for (int i = 0; i < n_users; i++) {
        users[i] = (user){ .l = &l, .c = { .port = l.port, .fd = -1 } };
        users[i].c.answer = td_alloc(ANSWER_BYTES, 1);
        if (!users[i].c.answer || pthread_create(&users[i].id, NULL, use, &users[i]) != 0)
            die("threads");
    }
    for (int i = 0; i < n_users; i++) {
        pthread_join(users[i].id, NULL);
        td_free(users[i].c.answer);
    }
    int code = print_load(&l, (double)(td_now_ns() - t0) * 1e-9);
    td_questions_release(&l.asked);
    td_free(l.latency);
    td_free(users);
    return code;
}

/* --- single requests -------------------------------------------------------------------------- */

static int ask(int argc, char **argv)
{
    client c = { .fd = -1, .port = (int)strtol(argv[2], NULL, 10) };
    td_text all = { 0 }, body = { 0 };
    char part[1 << 14];
    size_t n;
    bool has_body = strcmp(argv[3], "POST") == 0 || strcmp(argv[3], "PUT") == 0;
    while (has_body && (n = fread(part, 1, sizeof part, stdin)) > 0)
        td_text_add_bytes(&body, part, n);
    td_text_add(&all, "%s %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n", argv[3], argv[4]);
    for (int i = 5; i < argc; i++)
        td_text_add(&all, "%s\r\n", argv[i]);
    if (has_body)
        td_text_add(&all, "Content-Length: %zu\r\n", body.len);
    td_text_add(&all, "\r\n");
    td_text_add_bytes(&all, td_text_get(&body), body.len);
    c.answer = td_alloc(ANSWER_BYTES, 1);
    const char *ca = getenv("HTTP_LOAD_CA");
    bool done = c.answer && open_client(&c) && (!ca || open_tls(&c, ca)) &&
                send_all(&c, td_text_get(&all), all.len);
    done = c.answer && c.fd >= 0 && read_answer(&c);
    if (done) {
        printf("%d\n", c.status);
        fwrite(c.answer, 1, c.n_answer, stdout);
    } else {
        printf("no answer\n");
    }
    close_client(&c);
    td_free(c.answer);
    td_text_release(&all);
    td_text_release(&body);
    return done ? 0 : 1;
}

static int drip(char **argv)
{
    static const char line[] = "GET / HTTP/1.1\r\nX-Slow: ";
    client c = { .fd = -1, .port = (int)strtol(argv[2], NULL, 10) };
    char got;
    if (!open_client(&c))
        return 1;
    bool is_open = send_all(&c, line, sizeof line - 1);
    while (is_open) {
        usleep(100000);
        is_open =
            send_all(&c, "a", 1) && (recv(c.fd, &got, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    }
    close_client(&c);
    return 0;
}

/* --- connections in the way ------------------------------------------------------------------- */

static client *open_clients(const char *port, int n)
{
    client *c = td_alloc((size_t)n, sizeof *c);
    if (!c)
        die("memory");
    for (int i = 0; i < n; i++) {
        c[i] = (client){ .port = (int)strtol(port, NULL, 10), .fd = -1 };
        if (!open_client(&c[i]))
            die("a connection");
    }
    return c;
}

static int hold(char **argv)
{
    const int n = (int)strtol(argv[3], NULL, 10);
    char bytes[4096];
    const size_t n_bytes = fread(bytes, 1, sizeof bytes, stdin);
    client *c = open_clients(argv[2], n);
    for (int i = 0; i < n; i++)
        (void)send_all(&c[i], bytes, n_bytes);
    printf("held\n");
    fflush(stdout);
    pause();
    for (int i = 0; i < n; i++)
        close_client(&c[i]);
    td_free(c);
    return 0;
}

static struct {
    int port, stop_at;
    pid_t pid;
    atomic_int n_answered, n_lost;
} churn;

/* a connection for each request, until one is refused */
static void *churn_on(void *arg)
{
    static const char request[] =
        "GET /v2/health/live HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    client c = { .port = churn.port, .fd = -1, .answer = arg };
    while (open_client(&c)) {
        bool is_answered =
            send_all(&c, request, sizeof request - 1) && read_answer(&c) && c.status == 200;
        close_client(&c);
        if (!is_answered)
            atomic_fetch_add(&churn.n_lost, 1);
        else if (atomic_fetch_add(&churn.n_answered, 1) == churn.stop_at)
            kill(churn.pid, SIGTERM);
    }
    return NULL;
}

static int run_churn(char **argv)
{
    enum { THREADS = 48 };
    pthread_t id[THREADS];
    char *room[THREADS];
    churn.port = (int)strtol(argv[2], NULL, 10);
    churn.stop_at = (int)strtol(argv[3], NULL, 10);
    churn.pid = (pid_t)strtol(argv[4], NULL, 10);
    for (int i = 0; i < THREADS; i++) {
        room[i] = td_alloc(ANSWER_BYTES, 1);
        if (!room[i] || pthread_create(&id[i], NULL, churn_on, room[i]) != 0)
            die("threads");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        td_free(room[i]);
    }
    const int n = atomic_load(&churn.n_answered), n_lost = atomic_load(&churn.n_lost);
    printf("{\"answered\": %d, \"lost\": %d}\n", n, n_lost);
    return n > churn.stop_at && n_lost == 0 ? 0 : 1;
}

static int write_png(char **argv)
{
    td_image image = { 0 };
    td_text out = { 0 };
    if (td_image_resize_buffer(&image, (int)strtol(argv[2], NULL, 10),
                               (int)strtol(argv[3], NULL, 10)) != TD_OK ||
        td_image_encode_png(&image, &out) != TD_OK)
        die("the image");
    const bool done = fwrite(td_text_get(&out), 1, out.len, stdout) == out.len;
    td_text_release(&out);
    td_image_release(&image);
    return done ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "hold") == 0)
        return hold(argv);
    if (argc > 4 && strcmp(argv[1], "churn") == 0)
        return run_churn(argv);
    if (argc > 3 && strcmp(argv[1], "png") == 0)
        return write_png(argv);
    if (argc > 1 && strcmp(argv[1], "has-tls") == 0)
        return TD_HAVE_GNUTLS ? 0 : 1;
    if (argc > 6 && strcmp(argv[1], "load") == 0)
        return run_load(argc, argv);
    if (argc > 4 && strcmp(argv[1], "ask") == 0)
        return ask(argc, argv);
    if (argc > 2 && strcmp(argv[1], "drip") == 0)
        return drip(argv);
    fprintf(stderr, "usage: http_load load|ask|drip|hold|churn|png|has-tls ...\n");
    return 2;
}
