/*
 * base/log.h -- log messages: one line each on stderr, module first
 *
 *     td_log(TD_LOG_INFO, "pass", "fuse: %d norm+relu, %d norm+add+relu", n, m);
 *     -> "pass: fuse: 33 norm+relu, 16 norm+add+relu"
 *
 * Errors and warnings are printed with "tandem: error: " / "warning: " in front.  Colour only on a
 * terminal.  The sink is one of the process's three mutable globals; it is thread-safe.
 */
#ifndef TD_BASE_LOG_H
#define TD_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"
#include "tandem/log.h"

bool td_log_wants(td_log_level level, const char *module);

void td_log(td_log_level level, const char *module, const char *fmt, ...) TD_PRINTF(3, 4);

/** Is stderr a terminal that supports the progress line? */
bool td_log_has_terminal(void);

/**
 * Draw `text` as the terminal's last line, overwriting what was drawn before; nothing happens when
 * stderr is not a terminal.  NULL clears it.  Log lines scroll above it.
 */
void td_log_progress(const char *text);

#endif
