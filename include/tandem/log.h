/*
 * tandem/log.h -- where the library's log goes
 *
 * Jobs and compilation log what they decide and how far they are: one line each, on stderr unless a
 * sink takes them.  Nothing else is printed.
 *
 *     static void keep(void *ctx, td_log_level level, const char *module, const char *text)
 *     {
 *         fprintf(ctx, "%s: %s\n", module, text);
 *     }
 *     td_log_set_sink(keep, file);
 *     td_status st = td_log_configure("warn,train=info");
 */
#ifndef TD_LOG_H
#define TD_LOG_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TD_LOG_ERROR, TD_LOG_WARN, TD_LOG_INFO, TD_LOG_DEBUG, TD_LOG_TRACE } td_log_level;

/**
 * Set log levels of the process: "info" or "warn,pass=debug,data=trace", a default level and the
 * levels of single modules; "info" until then.  NULL changes nothing.  TD_EUSAGE: no such level.
 */
TD_API TD_CHECKED td_status td_log_configure(const char *spec);

/**
 * Send lines to `sink` instead of stderr; NULL restores stderr.  `module` may be NULL, `text` has
 * no end of line.  Any thread of the library may call it, one at a time; it must call no function
 * of the library.
 */
TD_API void td_log_set_sink(void (*sink)(void *ctx, td_log_level level, const char *module,
                                         const char *text),
                            void *ctx);

#ifdef __cplusplus
}
#endif
#endif
