/*
 * status.c -- the per-thread error message
 *
 * The storage is fixed, so that reporting "out of memory" needs no memory.
 */
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* this file defines the function, not the macro */
#undef td_error
#undef td_error_errno
#undef td_error_context

#define MESSAGE_BYTES 1024 /* room for two paths of 255 bytes and a sentence */

static _Thread_local char message[MESSAGE_BYTES];

static const char *const names[TD_N_STATUS] = { "OK",
#define NAME(name, text) #name,
                                                TD_STATUS_LIST(NAME)
#undef NAME
};

static const char *const texts[TD_N_STATUS] = { "ok",
#define TEXT(name, text) text,
                                                TD_STATUS_LIST(TEXT)
#undef TEXT
};

const char *td_status_text(td_status st)
{
    return (unsigned)st < TD_N_STATUS ? texts[st] : "unknown status";
}

const char *td_status_name(td_status st)
{
    return (unsigned)st < TD_N_STATUS ? names[st] : "UNKNOWN";
}

const char *td_error_message(void)
{
    return message;
}

void td_error_clear(void)
{
    message[0] = '\0';
}

td_status td_error_set(td_status st, const char *text)
{
    snprintf(message, sizeof message, "%s", text);
    return st;
}

td_status td_error(td_status st, const char *fmt, ...)
{
    char text[MESSAGE_BYTES]; /* arguments may point into `message` */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return td_error_set(st, text);
}

td_status td_error_errno(td_status st, const char *fmt, ...)
{
    int saved = errno;
    char text[MESSAGE_BYTES - 128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return td_error(st, "%s: %s", text, strerror(saved));
}

/* appends as much of `text` as fits after the n bytes of `message`; returns the new length */
static size_t append(size_t n, const char *text)
{
    while (*text && n < sizeof message - 1)
        message[n++] = *text++;
    message[n] = '\0';
    return n;
}

td_status td_error_context(td_status st, const char *fmt, ...)
{
    char inner[MESSAGE_BYTES], text[MESSAGE_BYTES];
    va_list ap;

    memcpy(inner, message, sizeof inner);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = append(append(0, text), ": ");
    append(n, inner[0] ? inner : td_status_text(st));
    return st;
}

_Noreturn void td_bug(const char *file, int line, const char *cond)
{
    fprintf(stderr, "tandem: bug at %s:%d: %s\n", file, line, cond);
    abort();
}
