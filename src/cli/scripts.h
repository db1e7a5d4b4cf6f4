/*
 * cli/scripts.h -- scripts of the reference programs, whose names people type where a verb stands
 */
#ifndef TD_CLI_SCRIPTS_H
#define TD_CLI_SCRIPTS_H

/**
 * What does the work of a script here, as part of a sentence ("'tandem train', which ..."); NULL:
 * `name` is no script's.  A folder in front of the name does not matter.
 */
const char *td_script_replacement(const char *name);

#endif
