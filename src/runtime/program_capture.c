/*
 * program_capture.c -- launches of a program's kernels, captured once and then replayed together
 *
 *     nodes:     conv bn relu ... wgrad | all_reduce_begin | dgrad ... | all_reduce_end | sgd sgd
 *     segments:  [     captured       ] [      plain      ] [ captured ] [    plain    ] [captured]
 *
 * The first run launches every kernel by itself, so that libraries have loaded what they need; the
 * second one captures each segment and runs it; later ones replay them.  Pointers do not change:
 * the plan's addresses are fixed, inputs are copied to fixed addresses, and what differs between
 * steps (the learning rate, the loss scale) is an input.  The same kernels run in the same order,
 * so results have the same bits.
 *
 * A node that decides something on the host is never captured.  Observed and profiled runs launch
 * each kernel by itself.  If a segment cannot be captured, all later launches are plain.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "runtime/program_parts.h"

enum { LEAST_KERNELS = 4 }; /* fewer are launched as fast by themselves */

struct td_segment {
    int first, end; /* nodes [first, end) */
    int n_kernels;
    bool may_capture;
    void *graph; /* NULL: not yet captured */
};

/* several nodes may run as one call */
static bool begins_call(const td_program *p, int i)
{
    return !p->is_setup[i] && p->calls[i].prepared.kernel && p->call_of[i] == i;
}

static bool may_capture(const td_program *p, int i)
{
    const td_kernel *k = p->calls[i].prepared.kernel;
    if (!k || !k->decides_on_host)
        return !k || !k->is_host;
    return !k->decides_on_host(p->graph->nodes[i]);
}

/* nodes that are captured together, or not captured */
static td_status make_segments(td_program *p)
{
    const int n = p->graph->n_nodes;
    TD_TRY(TD_ALLOC(p->segments, (size_t)n + 1));
    for (int i = 0; i < n; i++) {
        const bool may = may_capture(p, i);
        if (p->n_segments == 0 || p->segments[p->n_segments - 1].may_capture != may)
            p->segments[p->n_segments++] = (td_segment){ .first = i, .may_capture = may };
        td_segment *s = &p->segments[p->n_segments - 1];
        s->end = i + 1;
        s->n_kernels += begins_call(p, i);
    }
    return TD_OK;
}

static td_status capture(td_program *p, td_segment *s)
{
    TD_TRY(p->memory->begin_capture());
    td_status st = td_program_run_nodes(p, s->first, s->end);
    if (st == TD_OK)
        return p->memory->end_capture(&s->graph);
    p->memory->end_capture_failed();
    return st;
}

/* one line, in each process once */
static void log_refusal(void)
{
    static atomic_flag is_logged = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_logged))
        td_log(TD_LOG_WARN, "device",
               "kernels are launched one by one, not as a CUDA graph, which is slower: %s",
               td_error_message());
    td_error_clear();
}

static td_status run_segment(td_program *p, td_segment *s)
{
    const bool wants = s->may_capture && s->n_kernels >= LEAST_KERNELS;
    if (wants && !s->graph && !p->is_refused && capture(p, s) != TD_OK) {
        p->is_refused = true;
        log_refusal();
    }
    return s->graph ? p->memory->run_captured(s->graph) : td_program_run_nodes(p, s->first, s->end);
}

bool td_program_captures(const td_program *p)
{
    return p->dev->captures && p->n_plain_runs > 0 && !p->observe && !p->is_profiled;
}

td_status td_program_run_segments(td_program *p)
{
    if (!p->segments)
        TD_TRY(make_segments(p));
    for (int i = 0; i < p->n_segments; i++)
        TD_TRY(run_segment(p, &p->segments[i]));
    return TD_OK;
}

void td_program_free_segments(td_program *p)
{
    for (int i = 0; i < p->n_segments; i++)
        if (p->segments[i].graph)
            p->memory->free_captured(p->segments[i].graph);
    td_free(p->segments);
}
