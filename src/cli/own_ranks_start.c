/*
 * own_ranks_start.c -- starts a verb's command line again on several ranks
 */
#include "cli/own_ranks_start.h"

#include "tandem/launch.h"

td_status td_cli_own_ranks(const td_call *call, const td_own_ranks *o, bool *is_done)
{
    int n;
    td_arena arena;
    td_ranks_opts ranks = { .shares_batch = true, .nnodes = 1, .log = o->log };
    TD_TRY(td_own_ranks_choose(o, &n));
    if (n < 2)
        return TD_OK;
    td_arena_init(&arena);
    const char **words = td_arena_alloc(&arena, (size_t)call->n_line + 1, sizeof *words);
    td_status st = words ? TD_OK : TD_ENOMEM;
    if (st == TD_OK) {
        words[0] = o->module;
        for (int i = 0; i < call->n_line; i++)
            words[1 + i] = call->line[i];
        ranks.nproc = n;
        *is_done = true;
        st = td_ranks_run(&ranks, call->n_line + 1, words, call->code);
    }
    td_arena_release(&arena);
    return st;
}
