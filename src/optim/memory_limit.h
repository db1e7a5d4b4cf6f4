/*
 * optim/memory_limit.h -- compiles a training step so that the whole process stays within a limit
 */
#ifndef TD_OPTIM_MEMORY_LIMIT_H
#define TD_OPTIM_MEMORY_LIMIT_H

#include "optim/training_graph.h"
#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

/* What a training process holds in memory besides its step. */
typedef struct {
    int64_t limit;                  /* bytes of the process; 0: none */
    const td_model_opts *model;     /* that trains, completed */
    const td_model_opts *evaluated; /* the validated one, if its image size differs; or NULL */
    const td_sgd_opts *sgd;         /* that the step has; or NULL: the benchmark's */
    const td_amp_opts *amp;         /* resolved */
    td_device *dev;
    const char *device; /* its name */
    const char *skip_passes;
    int batch;
    int n_batches;  /* batches of images besides the one that a program reads */
    bool evaluates; /* the network that validates, at the same batch */
    bool saves;     /* copies of all parameters while a checkpoint is written */
} td_memory_share;

/**
 * Compile `g`, a training step, so that the process stays within m->limit: c->memory_limit is the
 * remainder after everything else, which is measured (by a step of one image) and planned.
 * TD_ENOMEM: it does not fit; the message has the bytes needed and the largest batch that fits.
 */
td_status td_compile_within(const td_graph *g, const td_memory_share *m, td_compile_opts *c,
                            td_program **out) TD_CHECKED;

/** Log the cost of a limit, if any. */
void td_log_recomputed(const td_program *p);

#endif
