/*
 * optim/memory_limit.h -- a training step such that the whole process stays within a limit
 */
#ifndef TD_OPTIM_MEMORY_LIMIT_H
#define TD_OPTIM_MEMORY_LIMIT_H

#include "optim/training_graph.h"
#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

/* What a process that trains holds beside its step. */
typedef struct {
    int64_t limit;                  /* bytes of the process; 0: none */
    const td_model_opts *model;     /* that trains, completed */
    const td_model_opts *evaluated; /* that validates, where its size is another; or NULL */
    const td_sgd_opts *sgd;         /* that the step has; or NULL: the benchmark's */
    const td_amp_opts *amp;         /* resolved */
    td_device *dev;
    const char *device; /* its name */
    const char *skip_passes;
    int batch;
    int n_batches;  /* batches of images beside the one that a program reads */
    bool evaluates; /* the network that validates, at the same batch */
    bool saves;     /* copies of all parameters while a checkpoint is written */
} td_memory_share;

/**
 * Compile `g`, a training step, so that the process stays within m->limit: c->memory_limit is what
 * the rest leaves, which is measured (a step of one image runs) and planned.  TD_ENOMEM: it
 * cannot be done; the message says what would be needed, and the largest batch that fits.
 */
td_status td_compile_within(const td_graph *g, const td_memory_share *m, td_compile_opts *c,
                            td_program **out) TD_CHECKED;

/** Log what a limit cost, where it cost something. */
void td_log_recomputed(const td_program *p);

#endif
