/*
 * tandem/status.h -- status codes and error messages
 *
 * A function that can fail returns td_status: TD_OK (0) or a code of the list below. On failure it
 * sets the calling thread's error message, one sentence. The library never exits and prints nothing
 * but its log (tandem/log.h).
 *
 *     td_status st = td_graph_parse(text, "net.td", &g);
 *     if (st != TD_OK)
 *         fprintf(stderr, "%s: %s\n", td_status_text(st), td_error_message());
 */
#ifndef TD_STATUS_H
#define TD_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define TD_API               __attribute__((visibility("default")))
#define TD_CHECKED           __attribute__((warn_unused_result))
#define TD_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* clang-format off */
#define TD_STATUS_LIST(STATUS)                                                                     \
    STATUS(ENOMEM,       "out of memory")                                                          \
    STATUS(EARG,         "bad argument")                                                           \
    STATUS(EUSAGE,       "usage")                                                                  \
    STATUS(EIO,          "input or output failed")                                                 \
    STATUS(ENOTFOUND,    "not found")                                                              \
    STATUS(EFORMAT,      "malformed data")                                                         \
    STATUS(ELIMIT,       "beyond a limit")                                                         \
    STATUS(EUNSUPPORTED, "not supported")                                                          \
    STATUS(ESHAPE,       "shapes do not fit")                                                      \
    STATUS(ENOKERNEL,    "no kernel")                                                              \
    STATUS(EDEVICE,      "device failed")                                                          \
    STATUS(ENUMERIC,     "not a finite number")                                                    \
    STATUS(ESTOPPED,     "stopped")                                                                \
    STATUS(EREQUIRED,    "below what was required")                                                \
    STATUS(EEND,         "no more")
/* clang-format on */

/** Status codes.  TD_OK is 0; TD_EEND ends an iteration and is not a failure. */
typedef enum {
    TD_OK = 0,
#define TD_STATUS_ENUM(name, text) TD_##name,
    TD_STATUS_LIST(TD_STATUS_ENUM)
#undef TD_STATUS_ENUM
        TD_N_STATUS
} td_status;

/** The fixed text of a code, "shapes do not fit". */
TD_API const char *td_status_text(td_status st);

/** The code's name, "ESHAPE". */
TD_API const char *td_status_name(td_status st);

/**
 * The message of the last failure in this thread; "" if there was none. Valid until the next call.
 */
TD_API const char *td_error_message(void);

/** Free a text that a function returned to the caller. NULL is allowed. */
TD_API void td_text_free(char *text);

/** The library's version, "0.1.0". */
TD_API const char *td_version(void);

#ifdef __cplusplus
}
#endif
#endif
