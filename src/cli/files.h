/*
 * cli/files.h -- the files that classify and detect are asked about
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

#endif
