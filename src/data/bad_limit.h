/*
 * data/bad_limit.h -- --max-bad where ranks share a data set: is it too many on all of them?
 *
 * A loader counts what it met itself; in evaluation it fails where that alone is too much, in
 * training it leaves the question to all ranks.  What the ranks met together is counted here,
 * each image once, although ranks may meet the same one in different epochs.  Every rank fails or
 * none, with the same message.
 */
#ifndef TD_DATA_BAD_LIMIT_H
#define TD_DATA_BAD_LIMIT_H

#include "comm/comm.h"
#include "tandem/loader.h"

/**
 * May there be as many?  Every rank calls it; of one rank (NULL) it does nothing.
 *   TD_EFORMAT  there are too many: how many, and the first of the first rank that met any
 */
TD_CHECKED td_status td_bad_limit_check(td_comm *c, const td_loader *ld);

#endif
