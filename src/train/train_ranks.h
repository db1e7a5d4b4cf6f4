/*
 * train/train_ranks.h -- the exchanges between the ranks of a training job
 *
 *     open    join the other ranks; agree on seed, configuration, program; copy rank 0's parameters
 *     step    average the losses; a signal to one rank stops all
 *     epoch   copy rank 0's running statistics to all; add up the sums of an unfinished step
 *     close   leave, and send the reason
 *
 * In a run with one rank (no comm) these functions do nothing.  Only rank 0 writes files.
 */
#ifndef TD_TRAIN_TRAIN_RANKS_H
#define TD_TRAIN_TRAIN_RANKS_H

#include "train/train_job.h"

/** Join the other ranks if the environment defines any. */
td_status td_train_join(td_train_job *j) TD_CHECKED;

/** Make batch.size that of one rank, if the ranks share the batches of --batch-size images. */
void td_train_divide_batch(td_train_job *j);

/** The options with --batch-size as it was given, to be stored. */
td_train_opts td_train_undivided(const td_train_job *j);

/** Copy rank 0's seed, and the precision it has chosen, to all ranks. */
td_status td_train_share_seed(td_train_job *j) TD_CHECKED;
td_status td_train_share_precision(td_train_job *j) TD_CHECKED;

/**
 * Check that all ranks have the same program file, options, data, position and compiled step
 * (TD_EARG names a rank that differs), then copy rank 0's parameters to all.
 */
td_status td_train_agree(td_train_job *j) TD_CHECKED;

/** Does this rank write checkpoints? */
bool td_train_writes(const td_train_job *j);

/**
 * Replace `loss` by the mean of all ranks; set j->ranks.is_stop_wanted if one of them received a
 * signal.  TD_EFORMAT: all ranks together found more bad images than allowed.
 */
td_status td_train_share_step(td_train_job *j, double *loss) TD_CHECKED;

/**
 * After an optimizer step with --allreduce fast, every --allreduce-check steps: do all ranks have
 * the same weights?  TD_EDEVICE names one that has not.
 */
td_status td_train_compare_weights(td_train_job *j) TD_CHECKED;

/** Was the validation stopped, on any rank? */
td_status td_train_share_stop(td_train_job *j, bool *was_stopped) TD_CHECKED;

/** Did some rank receive a signal, and can the run end at this step? */
bool td_train_may_stop(const td_train_job *j);

/**
 * Copy rank 0's running statistics and their averages to all ranks, so that the validated weights
 * are the saved ones; td_train_share_sums adds up the ranks' gradient sums of an unfinished step on
 * rank 0.
 */
td_status td_train_share_statistics(td_train_job *j) TD_CHECKED;
td_status td_train_share_sums(td_train_job *j) TD_CHECKED;

/** After resuming inside a step: rank 0 keeps the gradient sums, the others clear theirs. */
td_status td_train_clear_sums_on_other_ranks(td_train_job *j) TD_CHECKED;

/**
 * Convert the position in an epoch of a run with another number of ranks or batch size (`batch`) to
 * batches of this run.  TD_EARG: it is between two batches.
 */
td_status td_train_convert_position(td_train_job *j, const char *path, int64_t batch) TD_CHECKED;

/** Log one line if a rank keeps the others waiting. */
td_status td_train_log_stragglers(td_train_job *j) TD_CHECKED;

#endif
