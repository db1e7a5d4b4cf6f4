/*
 * cli/scripts.h -- suggests a verb for the name of a script or a verb of other programs
 */
#ifndef TD_CLI_SCRIPTS_H
#define TD_CLI_SCRIPTS_H

/**
 * The replacement of a script or verb, as part of a sentence ("'tandem train', which ..."); NULL:
 * `name` is not a known name.  A folder before the name is ignored.
 */
const char *td_script_replacement(const char *name);

#endif
