/*
 * memory_fit.c -- compiles a program within a memory limit, by recomputing results
 *
 *     plan -> too large -> goal = limit -> drop results until live memory <= goal -> plan
 *                              ^                                                           |
 *                              +------ lower by what the plan takes beyond the limit ------+
 *
 * The peak of live memory is known before the plan; the plan adds gaps between buffers, so a goal
 * may have to be lowered a few times.
 */
#include "base/log.h"
#include "runtime/program_parts.h"

enum { TRIES = 8 };

/* replaces the program's graph and plans the new one; the old graph is freed */
static td_status plan_graph(td_program *p, td_graph *g)
{
    td_program_unplan(p);
    td_graph_free(p->graph);
    p->graph = g;
    return td_program_plan(p);
}

/* *scratch: the scratch bytes of every node's kernel in `full`, which recomputation does not
   save */
static td_status find_scratch(td_program *p, const td_graph *full, size_t **scratch)
{
    td_program probe = { .dev = p->dev, .graph = (td_graph *)(uintptr_t)full };
    *scratch = td_alloc((size_t)full->n_nodes + 1, sizeof **scratch);
    td_status st = *scratch ? td_program_plan(&probe) : TD_ENOMEM;
    for (int i = 0; st == TD_OK && i < full->n_nodes; i++)
        (*scratch)[i] = probe.calls[i].prepared.scratch_bytes;
    td_program_unplan(&probe);
    return st;
}

/* *least: the smallest plan so far */
static td_status reduce_memory(td_program *p, const td_graph *full, const size_t *scratch,
                               int64_t limit, int64_t *least)
{
    int64_t goal = limit > p->plan.persistent_bytes ? limit - p->plan.persistent_bytes : 0;
    for (int i = 0; i < TRIES && td_program_planned_bytes(p) > limit; i++) {
        td_graph *g;
        if (i == TRIES - 1)
            goal = 0;
        TD_TRY(td_recompute_within(full, scratch, goal, &g, &p->recomputed));
        TD_TRY(plan_graph(p, g));
        const int64_t bytes = td_program_planned_bytes(p);
        td_log(TD_LOG_DEBUG, "memory",
               "goal %.1f MB: %d results recomputed, %.1f MB alive, %.1f MB", (double)goal / 1e6,
               p->recomputed.n_results, (double)p->recomputed.alive_bytes / 1e6,
               (double)bytes / 1e6);
        *least = bytes < *least ? bytes : *least;
        if (p->recomputed.alive_bytes > goal)
            break;
        goal = p->recomputed.alive_bytes - (bytes - limit);
        goal = goal > 0 ? goal : 0;
    }
    return TD_OK;
}

td_status td_program_fit(td_program *p, const td_graph *full, const td_compile_opts *o)
{
    size_t *scratch = NULL;
    int64_t least = td_program_planned_bytes(p);
    td_status st = TD_OK;
    p->unlimited_bytes = least;
    if (full) {
        st = find_scratch(p, full, &scratch);
        if (st == TD_OK)
            st = reduce_memory(p, full, scratch, o->memory_limit, &least);
        td_free(scratch);
    }
    if (st != TD_OK)
        return st;
    if (td_program_planned_bytes(p) <= o->memory_limit)
        return TD_OK;
    if (o->least_bytes)
        *o->least_bytes = least;
    return td_error(TD_ENOMEM,
                    "the program needs at least %.1f MB, the memory limit is %.1f MB: use a higher "
                    "limit or a smaller batch",
                    (double)least / 1e6, (double)o->memory_limit / 1e6);
}
