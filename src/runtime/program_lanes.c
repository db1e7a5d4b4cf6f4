/*
 * program_lanes.c -- micro-batches at the same time, each by one thread
 *
 *     thread 0   | 0 | 1 |     the program itself
 *     thread 1   | 2 | 3 |     another one of the same graph, with activations of its own
 *
 * What one layer writes stays in the caches of the core that reads it, and threads wait for each
 * other once a run, not once a layer.  All kernels are prepared for one thread, but those of the
 * setup, which the first lane runs for all of them.
 */
#include <stdio.h>

#include "runtime/process.h"
#include "runtime/program_parts.h"

int td_program_use_lane(const td_program *p)
{
    const int threads = td_threads();
    if (p->n_lanes > 1)
        td_threads_divide(p->n_lanes);
    return threads;
}

void td_program_use_all_lanes(const td_program *p)
{
    if (p->n_lanes > 1)
        td_threads_use(p->n_lanes);
}

void td_program_leave_lane(const td_program *p, int threads)
{
    if (p->n_lanes > 1)
        td_threads_use(threads);
}

static void run_lane(td_program *p, int i, td_status (*run)(td_program *p))
{
    td_lane *lane = &p->lanes[i];
    const int each = td_program_lane_batches(p);
    lane->st = TD_OK;
    for (int k = i * each; k < (i + 1) * each && lane->st == TD_OK; k++) {
        td_program_take_rows(p, lane->program, k);
        lane->st = run(lane->program);
        if (lane->st == TD_OK)
            td_program_keep_rows(p, lane->program, k);
    }
    if (lane->st != TD_OK)
        (void)snprintf(lane->message, sizeof lane->message, "%s", td_error_message());
}

td_status td_program_run_lanes(td_program *p, td_status (*run)(td_program *p))
{
#pragma omp parallel for num_threads(p->n_lanes) schedule(static, 1)
    for (int i = 0; i < p->n_lanes; i++)
        run_lane(p, i, run);
    for (int i = 0; i < p->n_lanes; i++)
        if (p->lanes[i].st != TD_OK)
            return td_error_set(p->lanes[i].st, p->lanes[i].message);
    return TD_OK;
}
