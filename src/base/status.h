/*
 * base/status.h -- error messages: one sentence per thread, with context added by callers
 *
 *     static td_status read_header(FILE *f, const char *path)
 *     {
 *         if (n < 8)
 *             return td_error(TD_EFORMAT, "'%s' ends after %zu bytes, a header has 8", path, n);
 *         TD_TRY_MSG(check(f), "header of '%s'", path);   -> "header of 'x': <inner sentence>"
 *     }
 *
 * Only three macros change control flow.  Use TD_TRY and TD_TRY_MSG only in functions that own
 * nothing yet; TD_OUT needs a local `td_status st` and a label `out:` below it.
 */
#ifndef TD_BASE_STATUS_H
#define TD_BASE_STATUS_H

#include <stdarg.h>

#include "tandem/status.h"

#define TD_TRY(expr)                                                                               \
    do {                                                                                           \
        td_status st_ = (expr);                                                                    \
        if (st_ != TD_OK)                                                                          \
            return st_;                                                                            \
    } while (0)

#define TD_TRY_MSG(expr, ...)                                                                      \
    do {                                                                                           \
        td_status st_ = (expr);                                                                    \
        if (st_ != TD_OK)                                                                          \
            return td_error_context(st_, __VA_ARGS__);                                             \
    } while (0)

#define TD_OUT(expr)                                                                               \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != TD_OK)                                                                           \
            goto out;                                                                              \
    } while (0)

/** Abort with file and line when an invariant is broken.  Active in release builds too. */
#define TD_CHECK(cond) ((cond) ? (void)0 : td_bug(__FILE__, __LINE__, #cond))

/** Set this thread's message and return `st`. */
td_status td_error(td_status st, const char *fmt, ...) TD_PRINTF(2, 3);

/** As td_error, and append ": <strerror(errno)>". */
td_status td_error_errno(td_status st, const char *fmt, ...) TD_PRINTF(2, 3);

/** Put "context: " before this thread's message and return `st`. */
td_status td_error_context(td_status st, const char *fmt, ...) TD_PRINTF(2, 3);

/*
 * An error is never TD_OK.  The compiler cannot see that across files and would warn of variables
 * that are set only on success, so the macros above state it at the call.
 */
static inline td_status td_failed(td_status st)
{
    return st == TD_OK ? TD_EARG : st;
}

#define td_error(...)         td_failed(td_error(__VA_ARGS__))
#define td_error_errno(...)   td_failed(td_error_errno(__VA_ARGS__))
#define td_error_context(...) td_failed(td_error_context(__VA_ARGS__))

/** Set the message to a copy of `text` (an error carried over from another thread). */
td_status td_error_set(td_status st, const char *text);

/** Clear this thread's message. */
void td_error_clear(void);

_Noreturn void td_bug(const char *file, int line, const char *cond);

#endif
