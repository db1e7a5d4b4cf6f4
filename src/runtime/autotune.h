/*
 * runtime/autotune.h -- chooses kernels and layouts by timing them on this machine
 *
 * A node's problem is its computation: op, attributes, types with their layouts, no names.  Two
 * things are stored by problem: the time of each kernel that accepts it and, for each graph, which
 * of the backends' candidate layouts it gets.  Both are kept in a file (tune_cache.h).
 *
 *     compile:  passes ... -> td_tune_layouts(graph) -> layout, clean, ...
 *               kernels:     td_tune_choose(node)
 *
 * cached: uses stored times, measures nothing.  full: measures missing times and stores them.
 * Choices depend on the numbers in the file alone, so the same file gives the same program.
 */
#ifndef TD_RUNTIME_AUTOTUNE_H
#define TD_RUNTIME_AUTOTUNE_H

#include "runtime/kernel.h"
#include "tandem/program.h"

typedef struct td_tuner td_tuner;

/**
 * `dev` is kept.  path NULL: the default place.  *out is NULL if there are no measurements:
 * cached, and nothing was measured.
 */
td_status td_tuner_new(td_device *dev, td_tune_mode mode, const char *path,
                       td_tuner **out) TD_CHECKED;
void td_tuner_free(td_tuner *t);

/**
 * Resolve the layout choices for `g`, which is about to go through pass layout; `skip` as in
 * td_compile_opts.  cached: those in the file.  full and none there: searched for, which compiles
 * variants of the graph and times their nodes.
 */
td_status td_tune_layouts(td_tuner *t, const td_graph *g, const char *skip) TD_CHECKED;

/** Which of the candidate layouts, 0 the first, node `n` gets in the graph last tuned. */
int td_tune_layout(td_tuner *t, const td_node *n);

/**
 * The fastest of the kernels that accept `n`, "kernel 1.60 ms, ..." of all in `why` (may be NULL).
 * *out is NULL where the times are not known, there is one kernel only, or what the node does must
 * not be tried out (updates, labels): then the order of the backends decides.
 */
td_status td_tune_choose(td_tuner *t, const td_node *n, const td_kernel **out,
                         td_text *why) TD_CHECKED;

/** Keep what was measured; a failure is a warning. */
void td_tune_save(td_tuner *t);

#endif
