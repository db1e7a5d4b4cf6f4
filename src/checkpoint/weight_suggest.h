/*
 * checkpoint/weight_suggest.h -- suggests weight files when the named one does not exist
 */
#ifndef TD_CHECKPOINT_WEIGHT_SUGGEST_H
#define TD_CHECKPOINT_WEIGHT_SUGGEST_H

#include "base/status.h"

/**
 * Return `st`, the failure of opening `path`.  If `path` is a folder or does not exist, add the
 * names of the newest weight files in that folder or in the parent folder of `path` to the error
 * message; files are recognized by their endings and not opened.
 */
td_status td_weight_suggest(td_status st, const char *path) TD_CHECKED;

#endif
