/*
 * profiler/amp_stats.h -- statistics of the tensors of a training step
 *
 *     td_amp_stats *s;
 *     TD_TRY(td_amp_stats_open("stats.jsonl", 100, "fp16", program, &s));
 *     td_amp_stats_begin(s, program, &(td_amp_place){ .step = 1, .loss_scale = 32768 });
 *     TD_OUT(td_amp_stats_end(s, program, td_program_run(program)));
 *     st = td_amp_stats_close(s);
 *
 * One JSON object per line for every observed step; docs/formats/profiles.md has its members.
 * Numbers are those in memory: gradients of a scaled loss are multiplied by the loss scale S, which
 * the object contains; a true gradient's exponent is the stored one less log2 S.
 */
#ifndef TD_PROFILER_AMP_STATS_H
#define TD_PROFILER_AMP_STATS_H

#include "tandem/program.h"

typedef struct td_amp_stats td_amp_stats;

/* A step of a run.  Batches are counted from 1, as in the log, epochs from 0. */
typedef struct {
    int64_t step; /* in this run */
    int64_t epoch, iteration;
    double loss_scale; /* 1: none */
} td_amp_place;

/**
 * Prepare to observe every `every`-th step of `p` (borrowed) and the first.  Overwrites `path`;
 * if it is NULL, so is *out.  `precision` is copied.  TD_EIO, TD_ENOMEM.
 */
td_status td_amp_stats_open(const char *path, int64_t every, const char *precision, td_program *p,
                            td_amp_stats **out) TD_CHECKED;

/** Before a run of `p`: observe its tensors if the step is due.  `s` NULL: never. */
void td_amp_stats_begin(td_amp_stats *s, td_program *p, const td_amp_place *at);

/**
 * After that run: write the line of an observed step.  Returns `st`, the status of the run, unless
 * it is TD_OK and the statistics fail: TD_EIO, TD_ENOMEM.  `s` may be NULL.
 */
td_status td_amp_stats_end(td_amp_stats *s, td_program *p, td_status st) TD_CHECKED;

/** Close the file; `s` may be NULL.  TD_EIO: writing failed. */
td_status td_amp_stats_close(td_amp_stats *s) TD_CHECKED;

#endif
