/*
 * cli/scripts.h -- suggests a verb for a script name of the reference programs
 */
#ifndef TD_CLI_SCRIPTS_H
#define TD_CLI_SCRIPTS_H

/**
 * The replacement of a script, as part of a sentence ("'tandem train', which ..."); NULL: `name` is
 * not a known script.  A folder before the name is ignored.
 */
const char *td_script_replacement(const char *name);

#endif
