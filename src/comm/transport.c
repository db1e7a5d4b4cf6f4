/*
 * transport.c -- frames over sockets between ranks, with liveness checks
 *
 * Sockets are non-blocking; one poll watches all of them.  A frame of data that arrives before it
 * is expected stays in the socket: the sender is ahead, and waits.  Bodies are transferred directly
 * from and to the caller's memory.
 */
#include "comm/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/rendezvous.h"

#define SECOND INT64_C(1000000000)
#define MAGIC  0x4d44u
enum { BEAT_MS = 1000, OWN_STOP_S = 2, WHY_BYTES = 600, LEAVE_MS = 1000, DRAIN_MS = 300 };

static const double default_wait_s = 60, default_stall_s = 6;

typedef enum { DATA = 1, BEAT, BYE, ABORT } frame_kind;

typedef struct {
    uint32_t magic, kind;
    uint64_t n;
} frame_head;

typedef struct {
    int fd; /* -1: this rank, or closed */
    char name[TD_HOST_BYTES + 48];
    int64_t heard_ns;
    bool said_bye;

    frame_head in_head; /* of the frame being read */
    size_t in_head_got, in_got;
    char why[WHY_BYTES];
    bool is_wanted; /* a frame of n_in bytes is expected, into `in` */
    bool is_held;   /* a frame arrived that is not expected yet */
    bool has_left;  /* said BYE; earlier frames may remain unread */
    void *in;
    size_t n_in;

    frame_head out_head; /* of the frame being sent */
    bool is_sending;
    size_t out_head_sent, out_sent;
    const void *out;
    bool is_due; /* a frame of data waits for another frame to be sent */
    const void *due;
    size_t n_due;
} peer;

struct td_transport {
    int rank, size;
    peer *peers; /* [size] */
    struct pollfd *polls;
    int *polled; /* [size] rank of each polled socket */
    int wake_fd;
    int64_t stall_ns, pumped_ns, beat_ns;
    td_status st;
    int culprit; /* the rank that `message` names; -1: unknown */
    char message[WHY_BYTES + 200];
};

/* --- failing ---------------------------------------------------------------------------------- */

/* records the first failure; the text begins with the name of a rank, "rank 3 (..." */
static void fail(td_transport *m, const char *who, const char *what)
{
    if (m->st != TD_OK)
        return;
    m->st = TD_EDEVICE;
    snprintf(m->message, sizeof m->message, "%s%s", who, what);
    td_text_make_printable(m->message);
    if (sscanf(m->message, "rank %d (", &m->culprit) != 1 || m->culprit < 0 ||
        m->culprit >= m->size)
        m->culprit = -1;
}

static td_status outcome(const td_transport *m)
{
    return m->st == TD_OK ? TD_OK : td_error_set(m->st, m->message);
}

static void lose(td_transport *m, peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    if (!p->said_bye)
        fail(m, p->name, " is gone: its connection was closed");
    else if (p->is_wanted || p->is_due || p->is_sending)
        fail(m, p->name, " has already finished, but this rank has not");
}

/* --- sending ---------------------------------------------------------------------------------- */

static void begin_frame(peer *p, frame_kind kind, const void *body, size_t n)
{
    p->out_head = (frame_head){ MAGIC, kind, n };
    p->out = body;
    p->out_head_sent = p->out_sent = 0;
    p->is_sending = true;
}

/* false: the socket accepts no more now */
static bool send_part(td_transport *m, peer *p, const void *from, size_t n, size_t *sent)
{
    while (*sent < n) {
        ssize_t k = send(p->fd, (const char *)from + *sent, n - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (k <= 0) {
            lose(m, p);
            return false;
        }
        *sent += (size_t)k;
    }
    return true;
}

static void send_more(td_transport *m, peer *p)
{
    while (p->fd >= 0 && (p->is_sending || p->is_due)) {
        if (!p->is_sending) {
            begin_frame(p, DATA, p->due, p->n_due);
            p->is_due = false;
        }
        if (!send_part(m, p, &p->out_head, sizeof p->out_head, &p->out_head_sent) ||
            !send_part(m, p, p->out, (size_t)p->out_head.n, &p->out_sent))
            return;
        p->is_sending = false;
    }
}

static void send_beats(td_transport *m, int64_t now)
{
    if (now - m->beat_ns < (int64_t)BEAT_MS * 1000000)
        return;
    m->beat_ns = now;
    for (int r = 0; r < m->size; r++) {
        peer *p = &m->peers[r];
        if (p->fd < 0 || p->is_sending || p->is_due || p->has_left)
            continue;
        begin_frame(p, BEAT, NULL, 0);
        send_more(m, p);
    }
}

/* --- hearing ---------------------------------------------------------------------------------- */

/* the destination of the frame's body; NULL: it has none, or is not expected yet */
static void *body_of(td_transport *m, peer *p)
{
    const frame_head *h = &p->in_head;
    if (h->magic != MAGIC || h->kind < DATA || h->kind > ABORT ||
        (h->kind == ABORT && h->n >= WHY_BYTES) || ((h->kind == BEAT || h->kind == BYE) && h->n)) {
        fail(m, p->name, " sent an invalid message");
        return NULL;
    }
    if (h->kind == ABORT)
        return p->why;
    if (h->kind != DATA)
        return NULL;
    p->is_held = !p->is_wanted;
    if (p->is_held)
        return NULL;
    if (h->n != p->n_in) {
        char what[100];
        snprintf(what, sizeof what,
                 " sent %llu bytes, wanted %zu: it may run another program or other options",
                 (unsigned long long)h->n, p->n_in);
        fail(m, p->name, what);
        return NULL;
    }
    return p->in;
}

static void end_frame(td_transport *m, peer *p)
{
    const frame_kind kind = (frame_kind)p->in_head.kind;
    p->in_head_got = p->in_got = 0;
    if (kind == DATA)
        p->is_wanted = false;
    else if (kind == BYE)
        p->said_bye = true;
    else if (kind == ABORT) {
        fail(m, p->why, "");
        close(p->fd); /* it waits for that */
        p->fd = -1;
    }
}

/* false: no more data now */
static bool hear_part(td_transport *m, peer *p, void *to, size_t n, size_t *got)
{
    while (*got < n) {
        ssize_t k = recv(p->fd, (char *)to + *got, n - *got, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (k <= 0) {
            lose(m, p);
            return false;
        }
        p->heard_ns = td_now_ns();
        *got += (size_t)k;
    }
    return true;
}

static void hear_more(td_transport *m, peer *p)
{
    while (p->fd >= 0 && m->st == TD_OK) {
        if (!hear_part(m, p, &p->in_head, sizeof p->in_head, &p->in_head_got))
            return;
        void *body = body_of(m, p);
        if (p->is_held || m->st != TD_OK)
            return;
        if (!hear_part(m, p, body, (size_t)p->in_head.n, &p->in_got))
            return;
        end_frame(m, p);
    }
}

/* parses the frames in `at`, the first without its head: is the last one BYE? */
static bool is_farewell(td_transport *m, const peer *p, const char *at, size_t n)
{
    frame_head h = p->in_head;
    size_t from = 0;
    while (h.n <= n - from && n - from - (size_t)h.n >= sizeof h) {
        from += (size_t)h.n;
        memcpy(&h, at + from, sizeof h);
        from += sizeof h;
        if (h.kind == BYE)
            return true;
        if (h.kind == ABORT && h.n < WHY_BYTES && h.n <= n - from) {
            char why[WHY_BYTES] = "";
            memcpy(why, at + from, (size_t)h.n);
            fail(m, why, "");
            return false;
        }
    }
    return false;
}

/*
 * The other end is closed, and a frame not expected yet precedes its last one: all data has
 * arrived, so peek at it without consuming.
 */
static void look_behind(td_transport *m, peer *p)
{
    int n = 0;
    char *at = ioctl(p->fd, FIONREAD, &n) == 0 && n > 0 ? td_alloc((size_t)n, 1) : NULL;
    const ssize_t got = at ? recv(p->fd, at, (size_t)n, MSG_PEEK | MSG_DONTWAIT) : 0;
    p->has_left = got > 0 && is_farewell(m, p, at, (size_t)got);
    td_free(at);
    if (!p->has_left)
        lose(m, p);
}

static void check_peers(td_transport *m, int64_t now)
{
    for (int r = 0; r < m->size; r++) {
        peer *p = &m->peers[r];
        if (p->fd < 0 || p->said_bye || p->is_held || now - p->heard_ns < m->stall_ns)
            continue;
        char what[80];
        snprintf(what, sizeof what, " has stopped responding: no message for %.0f s",
                 (double)(now - p->heard_ns) / (double)SECOND);
        fail(m, p->name, what);
    }
}

/* --- one turn --------------------------------------------------------------------------------- */

static int watch(td_transport *m)
{
    int n = 0;
    for (int r = 0; r < m->size; r++) {
        const peer *p = &m->peers[r];
        if (p->fd < 0 || (p->has_left && p->is_held))
            continue;
        short events = p->is_held ? POLLRDHUP : POLLIN;
        if (p->is_sending || p->is_due)
            events |= POLLOUT;
        m->polls[n] = (struct pollfd){ .fd = p->fd, .events = events };
        m->polled[n++] = r;
    }
    m->polls[n] = (struct pollfd){ .fd = m->wake_fd, .events = POLLIN };
    return n + 1;
}

static void serve(td_transport *m, int n)
{
    uint64_t count;
    for (int i = 0; i < n - 1; i++) {
        peer *p = &m->peers[m->polled[i]];
        const short got = m->polls[i].revents;
        if (p->is_held && (got & (POLLRDHUP | POLLHUP | POLLERR)))
            look_behind(m, p);
        else if (!p->is_held && (got & (POLLIN | POLLHUP | POLLERR)))
            hear_more(m, p);
        if (p->fd >= 0 && (got & POLLOUT))
            send_more(m, p);
    }
    if (m->polls[n - 1].revents & POLLIN)
        (void)!read(m->wake_fd, &count, sizeof count);
}

/* this process was stopped for a while: restart the stall timers */
static void forgive(td_transport *m, int64_t now)
{
    if (now - m->pumped_ns < OWN_STOP_S * SECOND)
        return;
    for (int r = 0; r < m->size; r++)
        m->peers[r].heard_ns = now;
}

static void turn(td_transport *m, int ms)
{
    const int64_t before = td_now_ns();
    if (before - m->pumped_ns >= OWN_STOP_S * SECOND)
        forgive(m, before);
    m->pumped_ns = before;
    send_beats(m, before);
    const int64_t to_beat = (m->beat_ns + (int64_t)BEAT_MS * 1000000 - before) / 1000000 + 1;
    const int n = watch(m);
    if (poll(m->polls, (nfds_t)n, to_beat < ms ? (int)to_beat : ms) > 0)
        serve(m, n);
    const int64_t now = td_now_ns();
    forgive(m, now);
    m->pumped_ns = now;
    check_peers(m, now);
}

td_status td_transport_pump(td_transport *m, int ms)
{
    if (m->st == TD_OK)
        turn(m, ms);
    return outcome(m);
}

void td_transport_wake(td_transport *m)
{
    const uint64_t one = 1;
    (void)!write(m->wake_fd, &one, sizeof one);
}

/* --- exchange --------------------------------------------------------------------------------- */

static bool is_busy(const td_transport *m)
{
    for (int r = 0; r < m->size; r++) {
        const peer *p = &m->peers[r];
        if (p->fd >= 0 &&
            (p->is_wanted || p->is_due || (p->is_sending && p->out_head.kind == DATA)))
            return true;
    }
    return false;
}

static void begin_piece(td_transport *m, peer *p, const td_piece *w)
{
    if (w->n_in) {
        p->in = w->in;
        p->n_in = w->n_in;
        p->is_wanted = true;
    }
    if (w->n_out) {
        p->due = w->out;
        p->n_due = w->n_out;
        p->is_due = true;
    }
    if (p->fd < 0 && (w->n_in || w->n_out)) {
        lose(m, p);
        return;
    }
    send_more(m, p);
    if (p->is_held && w->n_in) {
        p->is_held = false;
        p->heard_ns = td_now_ns();
        hear_more(m, p);
    }
}

td_status td_transport_exchange(td_transport *m, const td_piece *with)
{
    for (int r = 0; r < m->size && m->st == TD_OK; r++)
        if (r != m->rank)
            begin_piece(m, &m->peers[r], &with[r]);
    while (m->st == TD_OK && is_busy(m))
        turn(m, BEAT_MS);
    return outcome(m);
}

/* --- beginning and end ------------------------------------------------------------------------ */

int td_transport_culprit(const td_transport *m)
{
    return m->culprit;
}

const char *td_transport_name(const td_transport *m, int rank)
{
    return m->peers[rank].name;
}

static td_status set_up(td_transport *m, const td_rank_place *place, const td_transport_opts *o,
                        td_connected_rank *met)
{
    const size_t n = (size_t)place->size;
    TD_TRY(TD_ALLOC(m->peers, n));
    TD_TRY(TD_ALLOC(m->polls, n + 1));
    TD_TRY(TD_ALLOC(m->polled, n));
    for (int r = 0; r < place->size; r++)
        m->peers[r].fd = -1;
    m->rank = place->rank;
    m->size = place->size;
    m->culprit = -1;
    m->stall_ns = (int64_t)((o->stall_s > 0 ? o->stall_s : default_stall_s) * 1e9);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0)
        return td_error_errno(TD_EIO, "ranks: cannot create an event descriptor");
    TD_TRY(td_transport_join(place, o->wait_s > 0 ? o->wait_s : default_wait_s, met));
    m->pumped_ns = m->beat_ns = td_now_ns();
    for (int r = 0; r < place->size; r++) {
        peer *p = &m->peers[r];
        p->fd = met[r].fd;
        p->heard_ns = m->pumped_ns;
        snprintf(p->name, sizeof p->name, "rank %d (%s, process %d)", r, met[r].host, met[r].pid);
    }
    return TD_OK;
}

td_status td_transport_open(const td_rank_place *place, const td_transport_opts *opts,
                            td_transport **out)
{
    const td_transport_opts none = { 0 };
    *out = NULL;
    td_transport *m = TD_NEW(td_transport);
    td_connected_rank *met = td_alloc((size_t)place->size, sizeof *met);
    td_status st = m && met ? TD_OK : TD_ENOMEM;
    if (m)
        m->wake_fd = -1;
    if (st == TD_OK)
        st = set_up(m, place, opts ? opts : &none, met);
    td_free(met);
    if (st == TD_OK)
        *out = m;
    else
        td_transport_free(m);
    return st;
}

static bool is_sending(const td_transport *m)
{
    for (int r = 0; r < m->size; r++)
        if (m->peers[r].fd >= 0 && m->peers[r].is_sending)
            return true;
    return false;
}

/*
 * Read until the others have closed: closing a socket with unread data discards what was sent last,
 * here BYE.
 */
static void drain(td_transport *m, int64_t until)
{
    char bytes[4096];
    for (int r = 0; r < m->size; r++)
        if (m->peers[r].fd >= 0)
            (void)shutdown(m->peers[r].fd, SHUT_WR);
    for (int r = 0; r < m->size; r++) {
        const int fd = m->peers[r].fd;
        while (fd >= 0 && td_now_ns() < until) {
            struct pollfd w = { .fd = fd, .events = POLLIN };
            if (poll(&w, 1, (int)((until - td_now_ns()) / 1000000) + 1) <= 0)
                continue;
            const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                break;
        }
    }
}

void td_transport_leave(td_transport *m, const char *why)
{
    const int64_t until = td_now_ns() + (int64_t)LEAVE_MS * 1000000;
    const size_t n = why ? strnlen(why, WHY_BYTES - 1) : 0;
    for (int r = 0; r < m->size; r++) {
        peer *p = &m->peers[r];
        if (p->fd < 0 || (p->is_sending && p->out_head.kind == DATA))
            continue; /* in the middle of a frame: closing the connection must signal it */
        if (p->is_sending)
            send_more(m, p);
        if (p->fd < 0 || p->is_sending)
            continue;
        begin_frame(p, why ? ABORT : BYE, why, n);
        send_more(m, p);
    }
    while (is_sending(m) && td_now_ns() < until) {
        for (int r = 0; r < m->size; r++)
            if (m->peers[r].fd >= 0 && m->peers[r].is_sending)
                send_more(m, &m->peers[r]);
        (void)poll(NULL, 0, 5);
    }
    drain(m, td_now_ns() + (int64_t)DRAIN_MS * 1000000);
    for (int r = 0; r < m->size; r++) { /* no rank can be lost any more */
        if (m->peers[r].fd >= 0)
            close(m->peers[r].fd);
        m->peers[r].fd = -1;
    }
}

void td_transport_free(td_transport *m)
{
    if (!m)
        return;
    for (int r = 0; m->peers && r < m->size; r++)
        if (m->peers[r].fd >= 0)
            close(m->peers[r].fd);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    td_free(m->peers);
    td_free(m->polls);
    td_free(m->polled);
    td_free(m);
}
