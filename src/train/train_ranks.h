/*
 * train/train_ranks.h -- the exchanges between the ranks of a training job
 *
 *     open    join the others; one seed, one configuration, one program, rank 0's parameters
 *     step    losses averaged; a signal to one is a signal to all
 *     epoch   rank 0's running statistics everywhere; sums of a step under way put together
 *     close   leave, and say why
 *
 * Of one rank (no comm) every function here does nothing.  Rank 0 alone writes files.
 */
#ifndef TD_TRAIN_TRAIN_RANKS_H
#define TD_TRAIN_TRAIN_RANKS_H

#include "train/train_job.h"

/** Join the other ranks, if the environment names any. */
td_status td_train_join(td_train_job *j) TD_CHECKED;

/** One seed, rank 0's, and the precision that it has chosen. */
td_status td_train_share_seed(td_train_job *j) TD_CHECKED;
td_status td_train_share_precision(td_train_job *j) TD_CHECKED;

/**
 * Have all ranks the same program file, options, data, place and compiled step?  TD_EARG names the
 * rank that has not.  Then rank 0's parameters go to all.
 */
td_status td_train_agree(td_train_job *j) TD_CHECKED;

/** Does this rank write checkpoints? */
bool td_train_writes(const td_train_job *j);

/**
 * The mean of the ranks' losses; j->ranks.is_stop_wanted, if a signal came to one of them.
 * TD_EFORMAT: all ranks together met more bad images than may be.
 */
td_status td_train_share_step(td_train_job *j, double *loss) TD_CHECKED;

/** Was the validation stopped, on any rank? */
td_status td_train_share_stop(td_train_job *j, bool *was_stopped) TD_CHECKED;

/** May the run end here, because a signal came to some rank? */
bool td_train_may_stop(const td_train_job *j);

/**
 * Rank 0's running statistics, and averages of them, to all: what is validated is what is saved.
 * And of a step of several batches that goes on in the next epoch: its sums, to rank 0.
 */
td_status td_train_share_statistics(td_train_job *j) TD_CHECKED;
td_status td_train_share_sums(td_train_job *j) TD_CHECKED;

/** After resuming inside a step: rank 0 has the sums, the others nothing. */
td_status td_train_split_sums(td_train_job *j) TD_CHECKED;

/**
 * The place inside an epoch of a run of other ranks, in batches of this one's.  TD_EARG: there is
 * none.
 */
td_status td_train_move_place(td_train_job *j, const char *path, int64_t batch) TD_CHECKED;

/** One line where a rank keeps the others waiting. */
td_status td_train_log_stragglers(td_train_job *j) TD_CHECKED;

#endif
