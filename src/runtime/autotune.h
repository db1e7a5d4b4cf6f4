/*
 * runtime/autotune.h -- chooses kernels and layouts by timing them on this machine
 *
 * A node's problem is its computation: op, attributes, types with their layouts, no names.  Two
 * things are stored for each problem: the time of each kernel that accepts it and, for each graph,
 * which of the backends' candidate layouts it uses.  Both are kept in a file (tune_cache.h).
 *
 *     compile:  passes ... -> td_tune_layouts(graph) -> layout, clean, ...
 *               td_tune_kernels(graph), then for each node td_tune_choose(node)
 *
 *     cached   uses stored times, measures nothing
 *     quick    times kernels of the costliest nodes that give the same bits (quick_tune.h); on a
 *              GPU, whose libraries do not say which of their engines do, it is cached
 *     full     measures all missing times, searches for layouts
 *
 * Choices depend only on the numbers in the file, so the same file gives the same program.  The
 * choices of quick do not change a bit of the results.
 */
#ifndef TD_RUNTIME_AUTOTUNE_H
#define TD_RUNTIME_AUTOTUNE_H

#include "runtime/kernel.h"
#include "tandem/program.h"

typedef struct td_tuner td_tuner;

/**
 * `dev` must outlive it.  path NULL: the default file.  *out is NULL if the mode is cached and the
 * file has no measurements.
 */
td_status td_tuner_new(td_device *dev, td_tune_mode mode, const char *path,
                       td_tuner **out) TD_CHECKED;
void td_tuner_free(td_tuner *t);

/**
 * Find the layout choices for `g` before pass layout runs on it; `skip` as in td_compile_opts.
 * Mode cached takes the choices in the file.  Mode full searches if there are none in the file: it
 * compiles variants of the graph and times their nodes.
 */
td_status td_tune_layouts(td_tuner *t, const td_graph *g, const char *skip) TD_CHECKED;

/** The index of the candidate layout, from 0, that node `n` gets in the graph last tuned. */
int td_tune_layout(td_tuner *t, const td_node *n);

/**
 * The fastest of the kernels that accept `n`; `why`, unless NULL, gets the times of all: "kernel
 * 1.60 ms, ...".  *out is NULL if the times are not known, if there is only one kernel, or if the
 * node cannot be timed on arbitrary data (updates, labels): then the order of the backends decides.
 */
td_status td_tune_choose(td_tuner *t, const td_node *n, const td_kernel **out,
                         td_text *why) TD_CHECKED;

/**
 * Mode quick: time kernels of `g`, after all passes, for a program that will run `runs` times; 0:
 * not known, nothing is timed.  The other modes do nothing.
 */
td_status td_tune_kernels(td_tuner *t, const td_graph *g, int64_t runs) TD_CHECKED;

/** The clock of mode quick, for tests. */
void td_tuner_set_clock(td_tuner *t, int64_t (*now_ns)(void));

/** Save the measurements; a failure is only logged. */
void td_tune_save(td_tuner *t);

#endif
