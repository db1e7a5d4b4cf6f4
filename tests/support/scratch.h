/*
 * scratch.h -- a folder for the files of one test
 */
#ifndef TD_TEST_SCRATCH_H
#define TD_TEST_SCRATCH_H

/** $WORK, which tests/run.sh empties before each test; where not set, a new folder under /tmp. */
const char *td_scratch_folder(void);

/** "<folder>/<name>", valid for the next seven calls. */
const char *td_scratch_path(const char *name);

/** Number of entries of the scratch folder whose name contains `part`. */
int td_scratch_count(const char *part);

#endif
