/*
 * checkpoint/weight_suggest.h -- suggests weight files when the named one does not exist
 */
#ifndef TD_CHECKPOINT_WEIGHT_SUGGEST_H
#define TD_CHECKPOINT_WEIGHT_SUGGEST_H

#include "base/status.h"

/**
 * Returns `st`, the failure of opening `path`.  Where `path` is a folder, or is not there, the
 * error message gets the names of the newest weight files in that folder, or in the folder that
 * `path` should be in; files are known by their endings and not opened.
 */
td_status td_weight_suggest(td_status st, const char *path) TD_CHECKED;

#endif
