/*
 * tandem/report_opts.h -- the JSON lines that a job writes while it runs, and the form of its log
 */
#ifndef TD_REPORT_OPTS_H
#define TD_REPORT_OPTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Lines of progress in the log. */
typedef enum {
    TD_LOG_FORMAT_PLAIN,
    TD_LOG_FORMAT_DLL, /* as the reference programs print them */
} td_log_format;

/** Names of the results in the report. */
typedef enum {
    TD_REPORT_NAMING_PYTORCH,
    TD_REPORT_NAMING_TF, /* TensorFlow's names in addition */
} td_report_naming;

typedef struct {
    const char *file; /* JSON lines; NULL: the job's default name, or no report */
    td_log_format log_format;
    bool is_compat; /* the reference's own arithmetic: means of rates, waits include logging */
    td_report_naming naming;
    int warmup; /* steps that TensorFlow's times leave out; -1: as its program does, 20 */
} td_report_opts;

#ifdef __cplusplus
}
#endif
#endif
