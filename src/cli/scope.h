/*
 * cli/scope.h -- options of the line that its job does not read
 *
 * An option that is named and changes nothing is not passed over in silence: the log says so in one
 * line before the job starts.  tables: scope.c; every row of every verb is walked by
 * tests/e2e/never_ignored.sh.
 */
#ifndef TD_CLI_SCOPE_H
#define TD_CLI_SCOPE_H

#include "cli/verb.h"

/** Does no job of `verb` read the row of this name?  The verb's page leaves such rows out. */
bool td_scope_is_unread(const td_verb *verb, const char *option);

/**
 * Log what is named in argv[0 .. argc-1] and has no effect in `job` of `verb`; NULL: its usual job.
 * `groups` hold the options in effect.  TD_EUSAGE: --log is malformed.
 */
td_status td_scope_report(const td_verb *verb, const char *job, const td_field_group *groups,
                          int argc, char **argv, td_arena *arena) TD_CHECKED;

#endif
