/*
 * data/bad_list.h -- bad.list in the workspace: the images and annotations a run could not use, and
 * the reasons
 *
 * One line each, "path TAB reason", with the escapes of JSON strings, in the order found.  A
 * resumed run keeps the lines of the run before it and adds to them.
 */
#ifndef TD_DATA_BAD_LIST_H
#define TD_DATA_BAD_LIST_H

#include "base/status.h"
#include "comm/comm.h"
#include "tandem/loader.h"

/* All zero is an empty list without a file. */
typedef struct {
    const char *path;  /* borrowed; NULL: no file is written */
    char *known;       /* lines from the resumed run */
    size_t n_written;  /* bytes of this run's own lines in the file */
    char *other_ranks; /* lines of the other ranks; NULL: none */
} td_bad_list;

/** Read `path` if the run resumes another, otherwise remove it; NULL: no list.  TD_EIO. */
td_status td_bad_list_open(td_bad_list *l, const char *path, bool is_continued) TD_CHECKED;

/** Write the bad images of the loaders (NULL is fine) if there are new ones.  TD_EIO. */
td_status td_bad_list_write(td_bad_list *l, const td_loader *train,
                            const td_loader *val) TD_CHECKED;

/**
 * On rank 0: collect the bad images of all ranks; the next write skips those that rank 0 has
 * itself.  `c` NULL: one rank, nothing to do.  TD_ENOMEM; errors of td_comm_collect.
 */
td_status td_bad_list_gather(td_bad_list *l, td_comm *c, const td_loader *train,
                             const td_loader *val) TD_CHECKED;

void td_bad_list_release(td_bad_list *l);

#endif
