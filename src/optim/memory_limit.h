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

/* A training process, whose memory outside the step is measured and planned. */
typedef struct {
    int64_t limit;                  /* bytes of the process, or of the GPU; 0: no limit */
    const td_model_opts *model;     /* the network, resolved */
    const td_model_opts *evaluated; /* the validated network, if another image size; or NULL */
    const td_step_opts *step_opts;  /* of the step; NULL: as in td_step_graph */
    const td_amp_opts *amp;         /* resolved */
    td_device *dev;
    const char *device; /* name of `dev` */
    const char *skip_passes;
    int batch;
    int n_batches;  /* batches of images in memory, without the one that a program reads */
    bool evaluates; /* a validation with the same batch size is planned */
    bool saves;     /* all parameters are copied when a checkpoint is written */
} td_process_memory;

/**
 * Compile `g`, a training step, so that the process stays within m->limit: sets c->memory_limit to
 * the bytes left for the step, after measuring (with a step of one image) and planning everything
 * else.  TD_ENOMEM: it does not fit; the message gives the bytes needed and the largest batch that
 * fits.  Logs what the limit changes, if it does.
 */
td_status td_compile_within(const td_graph *g, const td_process_memory *m, td_compile_opts *c,
                            td_program **out) TD_CHECKED;

/**
 * Warn if `n` processes with `planned` bytes each need more than 90 % of the `available` bytes of
 * the machine, and name the options that help.
 */
void td_memory_warn(int64_t planned, int n, int64_t available);

/**
 * Log what a step within `limit` bytes recomputes, if it does: the bytes that it would need
 * without, and those it needs.  `others`: bytes of the process outside the step, which the limit
 * includes; 0: the limit is for the step alone.
 */
void td_log_recomputed(const td_program *p, int64_t limit, int64_t others);

#endif
