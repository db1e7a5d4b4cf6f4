/*
 * data/bad_limit.h -- --max-bad for ranks that share a data set
 *
 * A loader counts the bad images it finds itself; in evaluation it fails if they alone are too
 * many, in training it leaves the check to all ranks.  The images found by all ranks are counted
 * here, each once, although ranks may find the same one in different epochs.  All ranks fail with
 * the same message, or none.
 */
#ifndef TD_DATA_BAD_LIMIT_H
#define TD_DATA_BAD_LIMIT_H

#include "comm/comm.h"
#include "tandem/loader.h"

/**
 * Check the limit.  Every rank calls it; with one rank (NULL) it does nothing.
 *   TD_EFORMAT  too many: their number, and the first of the first rank that found any
 */
TD_CHECKED td_status td_bad_limit_check(td_comm *c, const td_loader *ld);

#endif
