/*
 * base/child.h -- some work in a process of its own, and the text that it makes
 *
 *     td_text result = { 0 };
 *     TD_TRY(td_child_run(measure, &opts, &result));
 *
 * For what is a property of a whole process: the peak of its memory, which never falls again, or
 * how long it takes to begin.
 */
#ifndef TD_BASE_CHILD_H
#define TD_BASE_CHILD_H

#include "base/text.h"

/**
 * Fork, run `work` there, append what it adds to its text to `out`, and return its status with its
 * message.  The child is gone when this returns.  A signal that this process catches meanwhile
 * (base/signals.h) goes to the child, too.
 *
 *   TD_EIO     no process or pipe; the child was killed (by the system for its memory, say)
 *   any other  what `work` returned
 *
 * What the child counts as resident lacks the pages of libraries that it has not used itself, some
 * 10 MB.  Only before this process runs parallel OpenMP code or has threads of its own: those are
 * not in the child.
 */
TD_CHECKED td_status td_child_run(td_status (*work)(void *ctx, td_text *out), void *ctx,
                                  td_text *out);

#endif
