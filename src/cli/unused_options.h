/*
 * cli/unused_options.h -- reports options that the job does not read
 *
 * An option on the command line that has no effect is not ignored silently: one log line reports it
 * before the job starts.  Tables: unused_options.c; every row of every verb is checked by
 * tests/e2e/never_ignored.sh.
 */
#ifndef TD_CLI_UNUSED_OPTIONS_H
#define TD_CLI_UNUSED_OPTIONS_H

#include "cli/verb.h"

/** Does no job of `verb` read this option?  The verb's page omits such options. */
bool td_unused_options_has(const td_verb *verb, const char *option);

/**
 * Log the options in argv[0 .. argc-1] that have no effect in `job` of `verb`; NULL: the default
 * job.  `groups` hold the options in effect.  TD_EUSAGE: --log is malformed.
 */
td_status td_unused_options_report(const td_verb *verb, const char *job,
                                   const td_field_group *groups, int argc, char **argv,
                                   td_arena *arena) TD_CHECKED;

#endif
