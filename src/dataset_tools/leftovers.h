/*
 * dataset_tools/leftovers.h -- folders <path>.part.<pid> that a killed process has left
 */
#ifndef TD_DATASET_TOOLS_LEFTOVERS_H
#define TD_DATASET_TOOLS_LEFTOVERS_H

#include "base/status.h"

/** Create the folder and hold its lock, which tells others that it is in use: *fd, to be closed. */
td_status td_part_open(const char *folder, int *fd) TD_CHECKED;

/**
 * Remove the folders <path>.part.<pid> whose process has ended, or has this one's pid, and that no
 * process holds: the images and annotations of a drawn data set, and the folders that then are
 * empty.  Best effort: what cannot be listed or removed stays.
 */
void td_parts_remove(const char *path);

#endif
