/*
 * join.c -- joins and leaves a run's ranks
 */
#include "comm/join.h"

#include <stdlib.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/log.h"
#include "transport/mpi_transport.h"

/* --- processors of ranks that mpirun or srun started ------------------------------------------ */

/* the mode of `launch --hosts`, otherwise the job's option, otherwise auto */
static td_status find_mode(const char *option, td_affinity *mode)
{
    const char *launcher = getenv(TD_ENV_AFFINITY_WANTED);
    *mode = TD_AFFINITY_AUTO;
    if (option)
        TD_TRY_MSG(td_affinity_parse(option, mode), "--gpu-affinity");
    if (launcher && *launcher)
        TD_TRY_MSG(td_affinity_parse(launcher, mode), TD_ENV_AFFINITY_WANTED);
    return TD_OK;
}

/* Open MPI binds up to two ranks to a core each, unless an option forbids it */
static void warn_if_narrow(const td_topology *t, const td_rank_place *place)
{
    if (place->local_rank == 0 && 2LL * t->n * place->local_size <= t->n_allowed)
        td_log(TD_LOG_WARN, "ranks",
               "mpirun or srun has bound each rank to %d of %d processors, and at least half are "
               "idle; 'mpirun --bind-to none' and 'srun --cpu-bind=none' leave the binding to "
               "tandem",
               t->n, t->n_allowed);
}

/* TD_EARG, TD_EDEVICE, TD_EIO: not bound, or not entirely, with the reason */
static td_status bind_in(const td_topology *t, td_affinity mode, const td_rank_place *place)
{
    td_binding b;
    char list[TD_CPU_LIST_BYTES];
    td_affinity resolved;
    if (!t->is_whole && mode == TD_AFFINITY_AUTO) {
        warn_if_narrow(t, place);
        return TD_OK;
    }
    if (!t->is_whole)
        return td_error(TD_EARG, "mpirun or srun has already bound the ranks");
    TD_TRY(td_affinity_resolve(t, mode, place->local_size, &resolved));
    if (resolved == TD_AFFINITY_NONE && place->local_size == 1)
        return TD_OK;
    if (resolved == TD_AFFINITY_NONE)
        return td_error(TD_EARG, "%d ranks share %d processors", place->local_size, t->n);
    TD_TRY(td_topology_require_here(t));
    TD_TRY(td_affinity_choose(t, resolved, place->local_rank, place->local_size, &b));
    TD_TRY(td_topology_bind(t, &b));
    td_binding_list(&b, list);
    td_log(TD_LOG_DEBUG, "ranks", "rank %d: processors %s%s", place->rank, list,
           b.binds_memory ? ", memory of their NUMA node" : "");
    return TD_OK;
}

static td_status bind_here(td_affinity mode, const td_rank_place *place)
{
    td_topology t;
    TD_TRY(td_topology_here(&t));
    td_status st = bind_in(&t, mode, place);
    td_topology_release(&t);
    return st;
}

/* keeps what `launch`, mpirun or srun has chosen; a rank that cannot be bound runs all the same */
static td_status choose_processors(const char *option, const td_rank_place *place)
{
    td_affinity mode;
    TD_TRY(find_mode(option, &mode));
    if (getenv(TD_ENV_AFFINITY_DONE) || mode == TD_AFFINITY_NONE ||
        (mode == TD_AFFINITY_AUTO && place->local_size == 0))
        return TD_OK;
    td_status st = TD_OK;
    if (place->local_size == 0 || place->local_rank >= place->local_size)
        st = td_error(TD_EARG, "the number of ranks on this machine is unknown");
    else
        st = bind_here(mode, place);
    if (st == TD_ENOMEM)
        return st;
    if (st != TD_OK && place->local_rank == 0)
        td_log(TD_LOG_WARN, "ranks", "%s%s",
               st == TD_EIO ? "" : "ranks are not bound: ", td_error_message());
    td_error_clear();
    return TD_OK;
}

/* --- joining and leaving ---------------------------------------------------------------------- */

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
    if (o->allreduce.mode == TD_ALLREDUCE_FAST && !o->has_device &&
        !td_transport_can_sum(td_comm_transport(*out)))
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
