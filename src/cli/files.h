/*
 * cli/files.h -- the files that classify and detect are asked about, and what became of them
 */
#ifndef TD_CLI_FILES_H
#define TD_CLI_FILES_H

#include "cli/verb.h"

/* All zero is empty. */
typedef struct {
    const char **items;
    size_t n, cap;
    td_text list; /* of standard input, cut at its lines' ends */
} td_cli_files;

/**
 * The call's arguments, before them `first` where it is not NULL, and in the place of "-" what the
 * list on standard input says, a path on each line.  `verb` is for the messages.
 */
td_status td_cli_files_gather(const td_call *call, const char *verb, const char *first,
                              td_cli_files *out) TD_CHECKED;
void td_cli_files_release(td_cli_files *f);

/* What became of the files so far; all zero to begin with. */
typedef struct {
    int64_t n, n_bad;
    td_text first_error; /* of the first bad one */
} td_cli_outcome;

/** One more file is done, with `st`; `message` (NULL: the status's own) when that is not TD_OK. */
void td_cli_outcome_add(td_cli_outcome *o, const char *path, td_status st, const char *message);

/** Print what waits in `out` when it is much.  TD_EIO, TD_ENOMEM. */
td_status td_cli_outcome_show(const td_cli_outcome *o, td_text *out) TD_CHECKED;

/**
 * The end of a job that came to `st`: nothing stays in `out` when it failed before the first file;
 * TD_EFORMAT when no file could be read.  Releases the outcome.
 */
td_status td_cli_outcome_end(td_cli_outcome *o, td_status st, td_text *out) TD_CHECKED;

#endif
