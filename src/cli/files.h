/*
 * cli/files.h -- the image files of classify and detect, and the results of reading them
 */
#ifndef TD_CLI_FILES_H
#define TD_CLI_FILES_H

#include "cli/verb.h"

/* All zero is empty. */
typedef struct {
    const char **items;
    size_t n, cap;
    td_text list; /* the list from standard input, split into lines */
} td_cli_files;

/**
 * Collect `first`, if not NULL, then the call's arguments; "-" is replaced by the list on standard
 * input, one path per line.  `verb` is for messages.
 */
td_status td_cli_files_gather(const td_call *call, const char *verb, const char *first,
                              td_cli_files *out) TD_CHECKED;
void td_cli_files_release(td_cli_files *f);

/* The results of the files so far; all zero is the initial state. */
typedef struct {
    int64_t n, n_bad;
    td_text first_error; /* of the first bad file */
} td_cli_outcome;

/** Record the result `st` of a file; `message` (NULL: the status's own) if it is not TD_OK. */
void td_cli_outcome_add(td_cli_outcome *o, const char *path, td_status st, const char *message);

/** Print the text in `out` when it is long.  TD_EIO, TD_ENOMEM. */
td_status td_cli_outcome_show(const td_cli_outcome *o, td_text *out) TD_CHECKED;

/**
 * End a job with status `st` and release the outcome.  Clears `out` if the job failed before the
 * first file or, without `is_json`, if the only file could not be read: the error gives the reason.
 * TD_EFORMAT: no file could be read.
 */
td_status td_cli_outcome_end(td_cli_outcome *o, td_status st, bool is_json,
                             td_text *out) TD_CHECKED;

#endif
