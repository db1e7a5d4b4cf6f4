/*
 * profiler/amp_stats.h -- writing down what a training step's tensors hold
 *
 *     td_amp_stats *s;
 *     TD_TRY(td_amp_stats_open("stats.jsonl", 100, "fp16", program, &s));
 *     TD_OUT(td_amp_stats_run(s, program, &(td_amp_place){ .step = 1, .loss_scale = 32768 }));
 *     st = td_amp_stats_close(s);
 *
 * One JSON object a line for every observed step; docs/formats.md has its members.  Numbers are
 * those in memory: gradients of a scaled loss are multiplied by the loss scale S, which stands
 * beside them; a true gradient's exponent is the stored one less log2 S.
 */
#ifndef TD_PROFILER_AMP_STATS_H
#define TD_PROFILER_AMP_STATS_H

#include "tandem/program.h"

typedef struct td_amp_stats td_amp_stats;

/* A step of a run: batches counted from 1, as the log does; epochs from 0. */
typedef struct {
    int64_t step; /* of this run */
    int64_t epoch, iteration;
    double loss_scale; /* 1: none */
} td_amp_place;

/**
 * Ready to observe every `every`-th step of `p` (borrowed) and the first.  `path` is created anew;
 * where it is NULL so is *out.  `precision` is copied.  TD_EIO, TD_ENOMEM.
 */
td_status td_amp_stats_open(const char *path, int64_t every, const char *precision, td_program *p,
                            td_amp_stats **out) TD_CHECKED;

/** td_program_run, observed when it is the step's turn; `s` NULL: never. */
td_status td_amp_stats_run(td_amp_stats *s, td_program *p, const td_amp_place *at) TD_CHECKED;

/** NULL is fine.  TD_EIO: not everything reached the file. */
td_status td_amp_stats_close(td_amp_stats *s) TD_CHECKED;

#endif
