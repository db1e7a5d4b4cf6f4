/*
 * program_lanes.c -- micro-batches at the same time, each by one thread
 *
 *     thread 0   | 0 | 1 |     the program itself
 *     thread 1   | 2 | 3 |     another one of the same graph, with activations of its own
 *
 * What one layer writes stays in the caches of the core that reads it, and threads wait for each
 * other once a run, not once a layer.  All kernels are prepared for one thread, the setup's too.
 */
#include <stdio.h>

#include "runtime/process.h"
#include "runtime/program_parts.h"

struct td_lane {
    td_program *program;
    td_status st;
    char message[512]; /* of the last error */
};

int td_program_use_lane(const td_program *p)
{
    const int threads = td_threads();
    if (p->n_lanes > 1)
        td_threads_divide(p->n_lanes);
    return threads;
}

void td_program_leave_lane(const td_program *p, int threads)
{
    if (p->n_lanes > 1)
        td_threads_use(threads);
}

td_status td_program_add_lanes(td_program *p, const td_graph *g, const td_compile_opts *o)
{
    td_compile_opts of_lane = *o;
    of_lane.share = p;
    of_lane.own_activations = true;
    of_lane.planned_runs = 0;
    of_lane.micro_batches = of_lane.lanes = 0;
    of_lane.dump_after = NULL;
    TD_TRY(TD_ALLOC(p->lanes, (size_t)p->n_lanes));
    p->lanes[0].program = p;
    for (int i = 1; i < p->n_lanes; i++)
        TD_TRY(td_program_new(g, p->dev, &of_lane, &p->lanes[i].program));
    return TD_OK;
}

void td_program_free_lanes(td_program *p)
{
    for (int i = 1; p->lanes && i < p->n_lanes; i++)
        td_program_free(p->lanes[i].program);
    td_free(p->lanes);
}

td_program *td_program_lane(const td_program *p, int i)
{
    return p->lanes[i].program;
}

/* the setup has run */
static void run_lane(td_program *p, int i)
{
    td_lane *lane = &p->lanes[i];
    const int each = p->micro_batches / p->n_lanes;
    lane->st = TD_OK;
    for (int k = i * each; k < (i + 1) * each && lane->st == TD_OK; k++) {
        td_program_take_rows(p, lane->program, k);
        lane->st = td_program_run_batch(lane->program);
        if (lane->st == TD_OK)
            td_program_keep_rows(p, lane->program, k);
    }
    if (lane->st != TD_OK)
        (void)snprintf(lane->message, sizeof lane->message, "%s", td_error_message());
}

td_status td_program_run_lanes(td_program *p)
{
    for (int i = 0; i < p->n_lanes; i++) /* those after the first find it done */
        TD_TRY(td_program_set_up(p->lanes[i].program));
#pragma omp parallel for num_threads(p->n_lanes) schedule(static, 1)
    for (int i = 0; i < p->n_lanes; i++)
        run_lane(p, i);
    for (int i = 0; i < p->n_lanes; i++)
        if (p->lanes[i].st != TD_OK)
            return td_error_set(p->lanes[i].st, p->lanes[i].message);
    return TD_OK;
}
