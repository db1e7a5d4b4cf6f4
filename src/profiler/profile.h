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
 *     GFLOP/s     two for a multiply-accumulate, over the time of the kernels that have any
 *     GB/s        bytes of operands and results, each counted once, over the time of all of them
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
 * The layer that node `i` belongs to: that of the first parameter it reads, as it is, as a half
 * copy, cast or reordered, "layer2.0.conv1" of "layer2.0.conv1.weight"; otherwise its report's
 * label.
 */
void td_profile_layer(const td_program *p, int i, char *out, size_t room);

/**
 * Switch the timing of `p` on (borrowed) and get ready to note its steps.  With `drops_first` the
 * first one does not count unless it stays the only one: it touches memory for the first time.
 */
td_status td_profile_new(td_program *p, bool drops_first, td_profile **out) TD_CHECKED;

/** Switch the timing of `p` off and free `pr`.  NULL is fine. */
void td_profile_free(td_profile *pr);

/**
 * Record the run that has just ended, and the wait for its input (negative: unknown).
 * An observed run, whose time is not its own, does not count.  Allocates nothing.  NULL is fine.
 */
void td_profile_step(td_profile *pr, double wait_s);

/** Steps that count. */
int64_t td_profile_steps(const td_profile *pr);

/**
 * Run every multiply-accumulate kernel of a step by itself, on what memory holds: the sum of their
 * best times is the least that any step of these kernels can take.  The outputs of `p` are
 * undefined afterwards.  `pr`, of the same program, may be NULL.  TD_ESTOPPED: a signal
 * came; nothing is known then.
 */
td_status td_profile_bound(td_program *p, td_profile *pr, double *bound_s) TD_CHECKED;

/**
 * The tables as text, the slowest rows of each; or all of them as a JSON object.  Failures stay in
 * the text.
 */
void td_profile_text(td_profile *pr, td_text *out);
void td_profile_json(td_profile *pr, td_text *out);

#endif
