/*
 * detector_run.h -- checks of both detectors against their golden data
 */
#ifndef TD_TEST_DETECTOR_RUN_H
#define TD_TEST_DETECTOR_RUN_H

#include "support/detector.h"
#include "support/expect.h"
#include "support/golden.h"

/* The limit of names that begin with this; the first that fits, the last of a table has NULL. */
typedef struct {
    const char *prefix;
    double limit;
} td_detector_limit;

/** Names, shapes and numbers of the network's parameters; macs 0: not compared. */
void td_detector_check_variables(const char *part, int64_t parameters, int trainable, int tensors,
                                 int64_t macs);

/**
 * A pass with batch statistics: all summaries, stored heads (by absolute difference), and where
 * there are any the statistics.
 */
void td_detector_check_forward(const char *part, bool is_calm, const td_detector_limit *limits,
                               double heads_limit, double statistics_limit);

/** A pass with given statistics: those of the fill, or those stored in file `statistics`. */
void td_detector_check_eval(const char *part, bool is_calm, const char *file,
                            const char *statistics, const td_detector_limit *limits,
                            double heads_limit);

#endif
