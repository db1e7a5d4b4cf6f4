/*
 * data/bad_list.h -- bad.list in the workspace: the images a run could not use, and why; and
 * what of an annotation file it left out
 *
 * One line each, "path TAB reason", with the escapes of JSON strings; in the order in which they
 * were met.  A resumed run keeps what the run before it had found and adds to it.
 */
#ifndef TD_DATA_BAD_LIST_H
#define TD_DATA_BAD_LIST_H

#include "base/status.h"
#include "comm/comm.h"
#include "tandem/loader.h"

/* All zero is an empty list without a file. */
typedef struct {
    const char *path; /* kept */
    char *known;      /* what the run that is resumed left */
    size_t n_written; /* bytes of this run's own lines in the file */
    char *elsewhere;  /* lines of the other ranks; NULL: none */
} td_bad_list;

/** Read what is at `path` when the run goes on with another, else remove it.  TD_EIO. */
td_status td_bad_list_open(td_bad_list *l, const char *path, bool goes_on) TD_CHECKED;

/** Write what the loaders (NULL is fine) have found, when it is more than last time.  TD_EIO. */
td_status td_bad_list_write(td_bad_list *l, const td_loader *train,
                            const td_loader *val) TD_CHECKED;

/**
 * On rank 0: take what the loaders of all ranks have found; the next write leaves out what rank 0
 * has itself.  `c` NULL: one rank, nothing to do.  TD_ENOMEM; errors of td_comm_collect.
 */
td_status td_bad_list_gather(td_bad_list *l, td_comm *c, const td_loader *train,
                             const td_loader *val) TD_CHECKED;

void td_bad_list_release(td_bad_list *l);

#endif
