/*
 * programs.h -- what a compiled program contains and computes
 */
#ifndef TD_TEST_PROGRAMS_H
#define TD_TEST_PROGRAMS_H

#include "tandem/program.h"

/** The number of nodes with this op. */
int td_test_count_ops(const td_program *p, const char *op);

/** Runs the program; fails the running test when that fails.  A copy of the output, of *count
    elements (NULL: not asked for).  td_free. */
void *td_test_run(td_program *p, const char *output, int64_t *count);

/** A copy of an output of the last run.  td_free. */
void *td_test_output(const td_program *p, const char *name, int64_t *count);

#endif
