/*
 * join.c -- joins and leaves a run's ranks
 */
#include "comm/join.h"

#include <stdlib.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/log.h"
#include "comm/mpi_transport.h"

/* keeps what `launch` has chosen; under mpirun and srun, chooses here */
static td_status choose_processors(const char *name, const td_rank_place *place)
{
    static const char *const done = "TANDEM_AFFINITY";
    td_affinity mode;
    int cpus[TD_CPUS_MAX], n;
    if (!name)
        return TD_OK;
    TD_TRY_MSG(td_affinity_parse(name, &mode), "--gpu-affinity");
    if (getenv(done) || mode == TD_AFFINITY_NONE)
        return TD_OK;
    if (place->local_size == 0) {
        td_log(TD_LOG_WARN, "train",
               "--gpu-affinity: the number of ranks on this machine is unknown");
        return TD_OK;
    }
    td_topology *t = TD_NEW(td_topology);
    td_status st = t ? td_topology_here(t) : TD_ENOMEM;
    if (st == TD_OK)
        st = td_affinity_choose(t, mode, place->local_rank, place->local_size, cpus, &n);
    if (st == TD_EARG) { /* mpirun has chosen already, or there are too few processors */
        td_log(TD_LOG_WARN, "train", "--gpu-affinity: %s: affinity not changed",
               td_error_message());
        td_free(t);
        return TD_OK;
    }
    if (st == TD_OK)
        st = td_affinity_apply(cpus, n);
    td_free(t);
    return st;
}

td_status td_join(const char *module, const td_join_opts *o, td_comm **out)
{
    td_rank_place place;
    *out = NULL;
    TD_TRY(td_ranks_here(&place));
    if (place.size == 1)
        return TD_OK;
    TD_TRY(choose_processors(o->affinity, &place));
    TD_TRY(td_comm_open(&place, NULL, out));
    td_comm_set_allreduce(*out, &o->allreduce);
    if (place.rank > 0 && !o->log && !getenv("TANDEM_RANK_LOGS"))
        TD_TRY(td_log_configure("warn"));
    td_log(TD_LOG_INFO, module, "%d ranks, %d of them on this machine, %d threads each", place.size,
           td_comm_local_size(*out), o->threads ? o->threads : td_comm_threads(*out));
    if (o->allreduce.mode == TD_ALLREDUCE_FAST && !td_transport_can_sum(td_comm_transport(*out)))
        td_log(TD_LOG_WARN, module,
               "--allreduce fast has no effect: only ranks started by MPI use it");
    return TD_OK;
}

void td_leave(td_comm *c, td_status st)
{
    const bool is_peace = c && st == TD_OK && td_comm_check(c) == TD_OK;
    td_comm_close(c, st);
    if (is_peace)
        td_mpi_finalize();
}
