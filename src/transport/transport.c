/*
 * transport.c -- what all transports have in common
 */
#include "transport/transport.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

enum { SLICE_MS = 1000 };

static const double default_wait_s = 60, default_stall_s = 6, default_reason_s = 0.5;

/* --- failing ---------------------------------------------------------------------------------- */

void td_transport_fail(td_transport *t, const char *who, const char *what)
{
    if (t->st != TD_OK)
        return;
    t->st = TD_EDEVICE;
    snprintf(t->message, sizeof t->message, "%s%s", who, what);
    td_text_make_printable(t->message);
    if (sscanf(t->message, "rank %d (", &t->culprit) != 1 || t->culprit < 0 ||
        t->culprit >= t->size)
        t->culprit = -1;
}

static td_status outcome(const td_transport *t)
{
    return t->st == TD_OK ? TD_OK : td_error_set(t->st, t->message);
}

int td_transport_culprit(const td_transport *t)
{
    return t->culprit;
}

bool td_transport_can_sum(const td_transport *t)
{
    return t->type->can_sum;
}

const char *td_transport_name(const td_transport *t, int rank)
{
    return t->names[rank];
}

/* --- exchanges -------------------------------------------------------------------------------- */

td_status td_transport_exchange(td_transport *t, const td_exchange *e)
{
    if (t->st == TD_OK)
        t->type->begin(t, e);
    while (t->st == TD_OK && t->type->is_busy(t))
        t->type->progress(t, SLICE_MS);
    return outcome(t);
}

td_status td_transport_gather(td_transport *t, void *all, size_t n)
{
    const size_t size = (size_t)t->size;
    size_t *at; /* [size] offsets, [size] sizes */
    TD_TRY(TD_ALLOC(at, 2 * size));
    for (size_t r = 0; r < size; r++) {
        at[r] = r * n;
        at[size + r] = n;
    }
    td_status st = td_transport_exchange(
        t, &(td_exchange){
               .kind = TD_EXCHANGE_ALL_GATHER, .in = all, .in_at = at, .in_n = at + size });
    td_free(at);
    return st;
}

td_status td_transport_progress(td_transport *t, int ms)
{
    if (t->st == TD_OK)
        t->type->progress(t, ms);
    return outcome(t);
}

void td_transport_wake(td_transport *t)
{
    const uint64_t one = 1;
    (void)!write(t->wake_fd, &one, sizeof one);
}

void td_transport_sleep(td_transport *t, int ms)
{
    uint64_t count;
    struct pollfd w = { .fd = t->wake_fd, .events = POLLIN };
    if (poll(&w, 1, ms) > 0)
        (void)!read(t->wake_fd, &count, sizeof count);
}

void td_transport_leave(td_transport *t, const char *why)
{
    t->type->leave(t, why);
}

/* --- opening ---------------------------------------------------------------------------------- */

#define IDENTITY_MAGIC UINT64_C(0x324b4e41524454) /* "TDRANK2" */

/* what the ranks tell each other first */
typedef struct {
    uint64_t magic;
    int32_t rank, size, pid;
    char version[20], host[64];
} identity;

static void describe_self(const td_transport *t, identity *out)
{
    *out = (identity){
        .magic = IDENTITY_MAGIC, .rank = t->rank, .size = t->size, .pid = (int32_t)getpid()
    };
    snprintf(out->version, sizeof out->version, "%s", td_version());
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        snprintf(out->host, sizeof out->host, "?");
}

static td_status take_names(td_transport *t, identity *all)
{
    for (int r = 0; r < t->size; r++) {
        identity *i = &all[r];
        i->host[sizeof i->host - 1] = i->version[sizeof i->version - 1] = '\0';
        td_text_make_printable(i->host);
        td_text_make_printable(i->version);
        if (i->magic != IDENTITY_MAGIC || i->rank != r || i->size != t->size)
            return td_error(TD_EDEVICE, "rank %d sent an invalid message", r);
        if (strcmp(i->version, td_version()) != 0)
            return td_error(TD_EDEVICE, "rank %d on '%s' runs version %s, rank %d runs %s", r,
                            i->host, i->version, t->rank, td_version());
        snprintf(t->names[r], sizeof t->names[r], "rank %d (%s, process %d)", r, i->host,
                 (int)i->pid);
    }
    return TD_OK;
}

td_status td_transport_exchange_names(td_transport *t)
{
    identity *all;
    TD_TRY(TD_ALLOC(all, (size_t)t->size));
    describe_self(t, &all[t->rank]);
    td_status st = td_transport_gather(t, all, sizeof *all);
    if (st == TD_OK)
        st = take_names(t, all);
    td_free(all);
    return st;
}

td_status td_transport_init(td_transport *t, const td_transport_type *type,
                            const td_rank_place *place, const td_transport_opts *opts)
{
    const td_transport_opts o = opts ? *opts : (td_transport_opts){ 0 };
    t->type = type;
    t->rank = place->rank;
    t->size = place->size;
    t->culprit = -1;
    t->wait_ns = (int64_t)((o.wait_s > 0 ? o.wait_s : default_wait_s) * 1e9);
    t->stall_ns = (int64_t)((o.stall_s > 0 ? o.stall_s : default_stall_s) * 1e9);
    t->reason_ns = (int64_t)((o.reason_s > 0 ? o.reason_s : default_reason_s) * 1e9);
    t->names = td_alloc((size_t)t->size, sizeof *t->names);
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd < 0)
        return td_error_errno(TD_EIO, "ranks: cannot create an event descriptor");
    for (int r = 0; t->names && r < t->size; r++)
        snprintf(t->names[r], sizeof t->names[r], "rank %d", r);
    return t->names ? TD_OK : TD_ENOMEM;
}

void td_transport_free(td_transport *t)
{
    if (!t)
        return;
    char(*names)[TD_RANK_NAME] = t->names;
    const int wake_fd = t->wake_fd;
    t->type->free(t); /* its threads may use both until here */
    td_free(names);
    if (wake_fd >= 0)
        close(wake_fd);
}
