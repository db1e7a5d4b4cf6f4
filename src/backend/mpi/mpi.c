/*
 * mpi.c -- an MPI plug-in: exchanges of bytes and beats by MPI; built once for each MPI
 *
 * Exchanges and beats have communicators of their own, so that neither can match a message of the
 * other, or of a library.  See transport/mpi_plugin.h for which thread calls what.
 */
#include <mpi.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "transport/mpi_plugin.h"

enum { RANKS_MAX = 4096, N_REQUESTS = 4, TAG_DATA = 1, TAG_BEAT = 2, BEAT = 1, LAST_BEAT = 2 };

static const char too_large[] = "a message is larger than 2 GiB";
static char text[MPI_MAX_ERROR_STRING];
static char library[MPI_MAX_LIBRARY_VERSION_STRING];
static MPI_Comm data_comm, beat_comm;
static int own_rank, n_ranks;
static MPI_Request
    data[N_REQUESTS]; /* the exchange in flight uses them; the others are MPI_REQUEST_NULL */
static MPI_Request beat_out = MPI_REQUEST_NULL, beat_in = MPI_REQUEST_NULL;
static MPI_Op half_sum = MPI_OP_NULL;
static char sent, received;
static int counts[4][RANKS_MAX]; /* sizes and offsets of the exchange in flight */

/* NULL for success, or MPI's error text */
static const char *error_of(int code)
{
    int n;
    if (code == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    return text;
}

#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        const char *wrong_ = error_of(call);                                                       \
        if (wrong_)                                                                                \
            return wrong_;                                                                         \
    } while (0)

/* --- opening ---------------------------------------------------------------------------------- */

static const char *duplicate(MPI_Comm *out)
{
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, out));
    MPI_TRY(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return NULL;
}

static const char *receive_beat(void)
{
    MPI_TRY(MPI_Irecv(&received, 1, MPI_BYTE, (own_rank + n_ranks - 1) % n_ranks, TAG_BEAT,
                      beat_comm, &beat_in));
    return NULL;
}

static const char *open_world(td_mpi_world *out)
{
    int has, n, level;
    const char *wrong;
    MPI_TRY(MPI_Initialized(&has));
    if (!has)
        MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &n));
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Query_thread(&level));
    if (level < MPI_THREAD_SERIALIZED)
        return "this MPI supports calls from the first thread only, MPI_THREAD_SERIALIZED is "
               "needed";
    MPI_TRY(MPI_Get_library_version(library, &n));
    library[strcspn(library, "\n")] = '\0';
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &own_rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &n_ranks));
    *out = (td_mpi_world){ .rank = own_rank,
                           .size = n_ranks,
                           .is_concurrent = level == MPI_THREAD_MULTIPLE,
                           .library = library };
    if (n_ranks > RANKS_MAX)
        return "there are more than 4096 ranks";
    wrong = duplicate(&data_comm);
    if (!wrong)
        wrong = duplicate(&beat_comm);
    return wrong ? wrong : receive_beat();
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* sizes or offsets as MPI counts them, into row `row` of counts */
static const char *narrow(const size_t *from, int row, int **out)
{
    *out = counts[row];
    for (int r = 0; r < n_ranks; r++) {
        if (from[r] > INT_MAX)
            return too_large;
        (*out)[r] = (int)from[r];
    }
    return NULL;
}

#define NARROW(from, row, out)                                                                     \
    do {                                                                                           \
        const char *wrong_ = narrow(from, row, out);                                               \
        if (wrong_)                                                                                \
            return wrong_;                                                                         \
    } while (0)

static const char *all_to_all(const td_exchange *e)
{
    int *out_n, *out_at, *in_n, *in_at;
    NARROW(e->out_n, 0, &out_n);
    NARROW(e->out_at, 1, &out_at);
    NARROW(e->in_n, 2, &in_n);
    NARROW(e->in_at, 3, &in_at);
    out_n[own_rank] = in_n[own_rank] = 0;
    MPI_TRY(MPI_Ialltoallv(e->out, out_n, out_at, MPI_BYTE, e->in, in_n, in_at, MPI_BYTE, data_comm,
                           &data[0]));
    return NULL;
}

static const char *all_gather(const td_exchange *e)
{
    int *in_n, *in_at;
    NARROW(e->in_n, 0, &in_n);
    NARROW(e->in_at, 1, &in_at);
    MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, e->in, in_n, in_at, MPI_BYTE, data_comm,
                            &data[0]));
    return NULL;
}

static const char *with_peers(const td_exchange_peer *peers)
{
    for (int i = 0; i < 2; i++) {
        const td_exchange_peer *p = &peers[i];
        if (p->n_in > INT_MAX || p->n_out > INT_MAX)
            return too_large;
        if (p->n_in)
            MPI_TRY(MPI_Irecv(p->in, (int)p->n_in, MPI_BYTE, p->rank, TAG_DATA, data_comm,
                              &data[2 * i]));
        if (p->n_out)
            MPI_TRY(MPI_Isend(p->out, (int)p->n_out, MPI_BYTE, p->rank, TAG_DATA, data_comm,
                              &data[2 * i + 1]));
    }
    return NULL;
}

static void (*add_pairs)(const uint16_t *x, uint16_t *sum, size_t n);

/* an MPI_User_function */
static void add_halves(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    add_pairs(in, inout, (size_t)*n);
}

static const char *sum(const td_exchange *e)
{
    add_pairs = e->add;
    if (e->add && half_sum == MPI_OP_NULL)
        MPI_TRY(MPI_Op_create(add_halves, true, &half_sum));
    return error_of(MPI_Iallreduce(e->out, e->in, (int)e->n, e->add ? MPI_UINT16_T : MPI_FLOAT,
                                   e->add ? half_sum : MPI_SUM, data_comm, &data[0]));
}

static const char *begin(const td_exchange *e)
{
    for (int i = 0; i < N_REQUESTS; i++)
        data[i] = MPI_REQUEST_NULL;
    if (e->n > INT_MAX)
        return too_large;
    switch (e->kind) {
    case TD_EXCHANGE_ALL_TO_ALL:
        return all_to_all(e);
    case TD_EXCHANGE_ALL_GATHER:
        return all_gather(e);
    case TD_EXCHANGE_BROADCAST:
        return error_of(MPI_Ibcast(e->in, (int)e->n, MPI_BYTE, 0, data_comm, &data[0]));
    case TD_EXCHANGE_PEERS:
        return with_peers(e->peers);
    case TD_EXCHANGE_SUM:
        return sum(e);
    case TD_EXCHANGE_BARRIER:
        return error_of(MPI_Ibarrier(data_comm, &data[0]));
    }
    return "unknown exchange";
}

static const char *test(bool *is_done)
{
    int done = 0;
    MPI_Status statuses[N_REQUESTS];
    MPI_TRY(MPI_Testall(N_REQUESTS, data, &done, statuses));
    *is_done = done;
    return NULL;
}

/* --- beats ------------------------------------------------------------------------------------ */

static const char *send_beat(bool is_last)
{
    int done = 1;
    MPI_TRY(MPI_Test(&beat_out, &done, MPI_STATUS_IGNORE));
    if (!done && is_last)
        MPI_TRY(MPI_Wait(&beat_out, MPI_STATUS_IGNORE));
    else if (!done)
        return NULL;
    sent = is_last ? LAST_BEAT : BEAT;
    /* synchronous: complete when it has been taken */
    MPI_TRY(
        MPI_Issend(&sent, 1, MPI_BYTE, (own_rank + 1) % n_ranks, TAG_BEAT, beat_comm, &beat_out));
    return NULL;
}

static const char *beat(bool is_due, bool is_last, bool *has_arrived, bool *has_left)
{
    int done = 0;
    const char *wrong = is_due ? send_beat(is_last) : NULL;
    *has_arrived = *has_left = false;
    if (wrong || beat_in == MPI_REQUEST_NULL)
        return wrong;
    MPI_TRY(MPI_Test(&beat_in, &done, MPI_STATUS_IGNORE));
    if (!done)
        return NULL;
    *has_arrived = true;
    *has_left = received == LAST_BEAT;
    return *has_left ? NULL : receive_beat();
}

static bool is_quiet(void)
{
    int done = 0;
    return MPI_Test(&beat_out, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void abort_world(int code)
{
    (void)MPI_Abort(MPI_COMM_WORLD, code);
}

static void close_world(void)
{
    (void)MPI_Finalize();
}

/* found by name: TD_MPI_PLUGIN_SYMBOL */
extern const td_mpi_plugin td_mpi_plugin_v2;

__attribute__((visibility("default"))) const td_mpi_plugin td_mpi_plugin_v2 = {
    .version = TD_MPI_PLUGIN_VERSION,
    .open = open_world,
    .begin = begin,
    .test = test,
    .beat = beat,
    .is_quiet = is_quiet,
    .abort = abort_world,
    .close = close_world,
};
