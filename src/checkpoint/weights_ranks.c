/*
 * weights_ranks.c -- broadcasts and sums parameters over ranks
 */
#include "checkpoint/weights_ranks.h"

#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "io/digest.h"
#include "optim/training_graph.h"

/* --- parameters ------------------------------------------------------------------------------- */

/* Broadcast one parameter through a buffer. */
static td_status broadcast_param(td_program *p, td_comm *c, int i, float **room, size_t *cap)
{
    const char *name = td_program_param_name(p, i);
    const td_type t = td_program_param_type(p, i);
    const size_t bytes = (size_t)td_type_count(&t) * td_dtype_bytes(t.dtype);
    TD_TRY(td_reserve(room, cap, bytes / sizeof **room + 1, sizeof **room));
    if (td_comm_rank(c) == 0)
        TD_TRY(td_program_get(p, name, *room));
    TD_TRY(td_comm_broadcast(c, *room, bytes));
    return td_comm_rank(c) == 0 ? TD_OK : td_program_set(p, name, *room);
}

static bool is_statistic(const td_program *p, int i)
{
    const char *name = td_program_param_name(p, i);
    if (strcmp(td_program_param_role(p, i), "stat") == 0)
        return true;
    if (!td_text_starts(name, TD_EMA_PREFIX))
        return false;
    for (int k = 0; k < td_program_param_count(p); k++)
        if (strcmp(td_program_param_name(p, k), name + strlen(TD_EMA_PREFIX)) == 0)
            return strcmp(td_program_param_role(p, k), "stat") == 0;
    return false;
}

td_status td_weights_broadcast(td_program *p, td_comm *c, bool only_statistics)
{
    float *room = NULL;
    size_t cap = 0;
    td_status st = TD_OK;
    for (int i = 0; st == TD_OK && c && i < td_program_param_count(p); i++)
        if (!only_statistics || is_statistic(p, i))
            st = broadcast_param(p, c, i, &room, &cap);
    td_free(room);
    return st;
}

static td_status digest_param(td_program *p, int i, td_digest *d, float **room, size_t *cap)
{
    const td_type t = td_program_param_type(p, i);
    const size_t bytes = (size_t)td_type_count(&t) * td_dtype_bytes(t.dtype);
    TD_TRY(td_reserve(room, cap, bytes / sizeof **room + 1, sizeof **room));
    TD_TRY(td_program_get(p, td_program_param_name(p, i), *room));
    td_digest_add(d, *room, bytes);
    return TD_OK;
}

td_status td_weights_compare(td_program *p, td_comm *c)
{
    td_digest d;
    float *room = NULL;
    size_t cap = 0;
    uint64_t own, *all = NULL;
    td_status st = TD_OK;
    td_digest_init(&d);
    for (int i = 0; st == TD_OK && i < td_program_param_count(p); i++)
        if (!is_statistic(p, i))
            st = digest_param(p, i, &d, &room, &cap);
    own = td_digest_value(&d);
    TD_OUT(st);
    TD_OUT(TD_ALLOC(all, (size_t)td_comm_size(c)));
    TD_OUT(td_comm_gather(c, &own, sizeof own, all));
    for (int r = 1; r < td_comm_size(c); r++)
        if (all[r] != all[0])
            TD_OUT(td_error(TD_EDEVICE,
                            "%s has other weights than rank 0: MPI's sums differ between ranks, "
                            "use --allreduce exact",
                            td_comm_name(c, r)));
out:
    td_free(all);
    td_free(room);
    return st;
}

/* --- gradient sums of an unfinished step ------------------------------------------------------ */

static td_status gather_sum(td_comm *c, float *x, int64_t n)
{
    const int n_ranks = td_comm_size(c);
    float *all = td_alloc((size_t)n, (size_t)n_ranks * sizeof *all);
    td_status st = all ? td_comm_gather(c, x, (size_t)n * sizeof *x, all) : TD_ENOMEM;
    for (int64_t i = 0; st == TD_OK && i < n; i++) {
        x[i] = 0;
        for (int r = 0; r < n_ranks && td_comm_rank(c) == 0; r++)
            x[i] += all[r * n + i];
    }
    td_free(all);
    return st;
}

static td_status clear_sum(td_comm *c, float *x, int64_t n)
{
    (void)c;
    memset(x, 0, (size_t)n * sizeof *x);
    return TD_OK;
}

/* Apply `change` to every gradient sum. */
static td_status each_sum(td_program *p, td_comm *c,
                          td_status (*change)(td_comm *c, float *x, int64_t n))
{
    td_status st = TD_OK;
    for (int i = 0; st == TD_OK && i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type t = td_program_param_type(p, i);
        if (!td_text_starts(name, TD_SUM_PREFIX))
            continue;
        float *x = td_alloc((size_t)td_type_count(&t), sizeof *x);
        st = x ? td_program_get(p, name, x) : TD_ENOMEM;
        if (st == TD_OK)
            st = change(c, x, td_type_count(&t));
        if (st == TD_OK)
            st = td_program_set(p, name, x);
        td_free(x);
    }
    return st;
}

td_status td_weights_gather_sums(td_program *p, td_comm *c)
{
    return c ? each_sum(p, c, gather_sum) : TD_OK;
}

td_status td_weights_clear_sums(td_program *p)
{
    return each_sum(p, NULL, clear_sum);
}
