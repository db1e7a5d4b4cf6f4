/*
 * base/child.h -- runs a function in a child process and returns the text it makes
 *
 *     td_text result = { 0 };
 *     TD_TRY(td_child_run(measure, &opts, &result));
 *
 * To measure properties of a whole process: its peak memory, which never decreases, or its start
 * time.
 */
#ifndef TD_BASE_CHILD_H
#define TD_BASE_CHILD_H

#include "base/text.h"

/**
 * Fork, run `work` in the child, append its text to `out`, and return its status and message.  The
 * child has ended when this returns.  A signal that this process catches in the meantime
 * (base/signals.h) is passed on to the child.
 *
 *   TD_EIO     no process or pipe; the child was killed (for example, by the system for its memory)
 *   any other  what `work` returned
 *
 * The child's resident size does not include library pages that it has not used itself, about 10
 * MB.  Call only before this process runs parallel OpenMP code or starts threads: a forked child
 * does not have them.
 */
TD_CHECKED td_status td_child_run(td_status (*work)(void *ctx, td_text *out), void *ctx,
                                  td_text *out);

#endif
