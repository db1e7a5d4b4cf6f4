/*
 * cli/scope.h -- reports options that the job does not read
 *
 * An option on the command line that has no effect is not ignored silently: one log line reports it
 * before the job starts.  Tables: scope.c; every row of every verb is checked by
 * tests/e2e/never_ignored.sh.
 */
#ifndef TD_CLI_SCOPE_H
#define TD_CLI_SCOPE_H

#include "cli/verb.h"

/** Does no job of `verb` read this option?  The verb's page omits such options. */
bool td_scope_is_unread(const td_verb *verb, const char *option);

/**
 * Log the options in argv[0 .. argc-1] that have no effect in `job` of `verb`; NULL: the default
 * job.  `groups` hold the options in effect.  TD_EUSAGE: --log is malformed.
 */
td_status td_scope_report(const td_verb *verb, const char *job, const td_field_group *groups,
                          int argc, char **argv, td_arena *arena) TD_CHECKED;

#endif
