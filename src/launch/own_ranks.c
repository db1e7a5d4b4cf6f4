/*
 * own_ranks.c -- decides whether a job divides itself among ranks, one on each NUMA node
 *
 * One process on several NUMA nodes reads half of its memory and more from other nodes.  Nodes are
 * those of the processors that this process may use, and whose memory it may use.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "tandem/launch.h"
#include "transport/rank_env.h"

/* has a launcher started this process, alone or as one of several ranks? */
static td_status is_launched(bool *out)
{
    td_rank_place place;
    TD_TRY(td_ranks_here(&place));
    *out = place.by != TD_RANKS_ALONE || getenv(TD_ENV_AFFINITY_DONE);
    return TD_OK;
}

/* the cores of a node; the processors of a core are neighbors */
static int cores_of(const td_topology *t, int node)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const int *at = t->cpus[i].at;
        const bool is_same = i > 0 && t->cpus[i - 1].at[TD_LEVEL_CORE] == at[TD_LEVEL_CORE];
        n += at[TD_LEVEL_NUMA_NODE] == node && !is_same;
    }
    return n;
}

/* have all nodes as many cores as the first, and does every processor belong to one? */
static bool are_nodes_equal(const td_topology *t)
{
    const int cores = cores_of(t, t->cpus[0].at[TD_LEVEL_NUMA_NODE]);
    for (int i = 0; i < t->n; i++) {
        const int node = t->cpus[i].at[TD_LEVEL_NUMA_NODE];
        if (node < 0 || cores_of(t, node) != cores)
            return false;
    }
    return true;
}

/* why the job stays in one process although there are several nodes; NULL: it does not */
static const char *objection(const td_own_ranks *o, const td_topology *t, int n_nodes)
{
    if (!are_nodes_equal(t))
        return "they have different numbers of cores";
    return o->batch % n_nodes ? "their number does not divide the batch" : NULL;
}

static int choose(const td_own_ranks *o, const td_topology *t)
{
    const int n = td_topology_count(t, TD_LEVEL_NUMA_NODE);
    if (n < 2 || !t->is_here)
        return 1;
    const char *why_not = objection(o, t, n);
    if (why_not) {
        td_log(TD_LOG_INFO, o->module, "%d NUMA nodes, but one process: %s", n, why_not);
        return 1;
    }
    td_log(TD_LOG_INFO, o->module,
           "%d NUMA nodes: a rank on each, with %d of the %d images of a batch ('%s': one process)",
           n, o->batch / n, o->batch, o->to_prevent);
    return n;
}

td_status td_own_ranks_choose(const td_own_ranks *o, int *n)
{
    td_topology t;
    bool has_launcher;
    *n = 1;
    TD_TRY(td_log_configure(o->log));
    TD_TRY(is_launched(&has_launcher));
    if (has_launcher && o->wanted > 0 && o->is_named && !getenv(TD_ENV_SHARED_BATCH))
        return td_error(TD_EUSAGE, "--ranks %d: a launcher has started the ranks already",
                        o->wanted);
    if (has_launcher)
        return TD_OK;
    if (o->wanted > 0 && o->batch % o->wanted)
        return td_error(TD_EUSAGE, "--ranks %d cannot divide --batch-size %d", o->wanted, o->batch);
    if (o->wanted > 0) {
        *n = o->wanted;
        return TD_OK;
    }
    if (strcmp(o->device, "cpu") != 0 || o->threads > 0 || o->is_whole)
        return TD_OK;
    if (td_topology_here(&t) != TD_OK) {
        td_error_clear(); /* an unknown machine has one node */
        return TD_OK;
    }
    *n = choose(o, &t);
    td_topology_release(&t);
    return TD_OK;
}
