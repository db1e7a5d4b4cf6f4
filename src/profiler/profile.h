/*
 * profiler/profile.h -- profiles a step's time by op, by kernel, by layer
 *
 *     td_profile *pr;
 *     TD_TRY(td_profile_new(program, true, &pr));      from now on every run is timed
 *     ...  td_program_run(program);  td_profile_step(pr, wait_s);  ...
 *     TD_OUT(td_profile_bound(program, pr, &bound_s));
 *     td_profile_text(pr, &out);
 *     td_profile_free(pr);
 *
 * The columns of a row:
 *
 *     calls       kernels in a step
 *     ms/step     mean over the profiled steps
 *     %           of the mean step
 *     GFLOP/s     two per multiply-accumulate, divided by the time of the kernels that have any
 *     GB/s        bytes of operands and results, each counted once, divided by the time of all
 *                 kernels
 *     of bound    time of the convolutions and matrix products alone, over their time in the step
 *
 * Kernels that run once after parameters change are not part of a step.
 */
#ifndef TD_PROFILER_PROFILE_H
#define TD_PROFILER_PROFILE_H

#include "base/text.h"
#include "tandem/program.h"

typedef struct td_profile td_profile;

/**
 * The layer of node `i`: "layer2.0.conv1" if "layer2.0.conv1.weight" is the first parameter that it
 * reads, directly or as a half copy, cast or reordered; otherwise td_node_label.
 */
void td_profile_layer(const td_program *p, int i, char *out, size_t room);

/** The same of a node that is launched by itself; otherwise the number of nodes of its launch. */
void td_profile_launch(const td_program *p, int i, char *out, size_t room);

/**
 * Turn on the timing of `p` (borrowed) and prepare to record its steps.  With `drops_first` the
 * first step does not count unless it is the only one: it touches memory for the first time.
 */
td_status td_profile_new(td_program *p, bool drops_first, td_profile **out) TD_CHECKED;

/** Turn off the timing of `p` and free `pr`, which may be NULL. */
void td_profile_free(td_profile *pr);

/**
 * Record the run that has just ended, and the wait for its input (negative: unknown).
 * An observed run does not count, because observing takes time.  Allocates nothing.  `pr` may be
 * NULL.
 */
void td_profile_step(td_profile *pr, double wait_s);

/** The number of steps that count. */
int64_t td_profile_steps(const td_profile *pr);

enum { TD_BOUND_RUNS = 4 }; /* runs of a kernel: the best counts, the first is a warm-up */

/**
 * Run every multiply-accumulate kernel of a step by itself, on the current contents of memory: the
 * sum of their best times is a lower bound for a step with these kernels.  The outputs of `p` are
 * undefined afterwards.  `pr`, of the same program, may be NULL.  TD_ESTOPPED: a signal was
 * received; there is no result.
 */
td_status td_profile_bound(td_program *p, td_profile *pr, double *bound_s) TD_CHECKED;

/**
 * The tables as text with the slowest rows of each, or with all rows as a JSON object.  Failures
 * are kept in the td_text.
 */
void td_profile_text(td_profile *pr, td_text *out);
void td_profile_json(td_profile *pr, td_text *out);

#endif
