/*
 * checkpoint/weights_ranks.h -- exchanges the parameters of a program between ranks
 *
 * All ranks call these together.  `c` NULL: one rank, nothing to do.  Errors: TD_ENOMEM, those of
 * the collective operation, of td_program_get and of td_program_set.
 */
#ifndef TD_CHECKPOINT_WEIGHTS_RANKS_H
#define TD_CHECKPOINT_WEIGHTS_RANKS_H

#include "comm/comm.h"
#include "tandem/program.h"

/** Copy rank 0's parameters to all ranks, or only running statistics and their averages. */
td_status td_weights_broadcast(td_program *p, td_comm *c, bool only_statistics) TD_CHECKED;

/**
 * Compare the parameters of all ranks, without running statistics.  TD_EDEVICE: names a rank whose
 * parameters differ from rank 0's.
 */
td_status td_weights_compare(td_program *p, td_comm *c) TD_CHECKED;

/** Sum the gradient sums of the current optimizer step on rank 0; the others get zero. */
td_status td_weights_gather_sums(td_program *p, td_comm *c) TD_CHECKED;

/** Set the gradient sums of this rank to zero. */
td_status td_weights_clear_sums(td_program *p) TD_CHECKED;

#endif
