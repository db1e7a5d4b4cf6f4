/*
 * optim/inference_program.h -- compiles a model's inference graph for a batch
 */
#ifndef TD_OPTIM_INFERENCE_PROGRAM_H
#define TD_OPTIM_INFERENCE_PROGRAM_H

#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    const td_model_opts *model;
    int batch;
    const td_norm *norm; /* images are bytes; NULL: floats */
    bool is_whole;       /* the batch is computed at once: the bits of an image do not depend on the
                            cache of the machine */
} td_inference_opts;

/**
 * The program for a whole batch, which on a CPU it computes in micro-batches where the cache makes
 * that faster (runtime/micro_batch.h).  `opts` as for td_compile, whose errors these are, and those
 * of the graph; its micro_batches and lanes have no effect.
 */
td_status td_inference_compile(const td_inference_opts *o, td_device *dev,
                               const td_compile_opts *opts, td_program **out) TD_CHECKED;

#endif
