/*
 * base/plugin.h -- libraries that are loaded when they are needed
 */
#ifndef TD_BASE_PLUGIN_H
#define TD_BASE_PLUGIN_H

enum { TD_PLUGIN_PATH_BYTES = 600 };

/**
 * Load the library `file`, or else `name` from the program's folder, the installed one or the
 * system's path.  *path: the one that was tried last.  NULL: td_plugin_error says why.
 */
void *td_plugin_open(const char *file, const char *name, char path[TD_PLUGIN_PATH_BYTES]);
void td_plugin_close(void *library);

/** NULL: there is none. */
void *td_plugin_symbol(void *library, const char *symbol);

const char *td_plugin_error(void);

#endif
