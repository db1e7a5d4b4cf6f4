/*
 * tandem/report.h -- summarize finished runs: a page, tables, charts
 */
#ifndef TD_REPORT_H
#define TD_REPORT_H

#include <stdbool.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TD_RUN_REPORT_AUTO, /* as the ending of `output` says, or TEXT */
    TD_RUN_REPORT_HTML,
    TD_RUN_REPORT_TEXT,
    TD_RUN_REPORT_MARKDOWN,
    TD_RUN_REPORT_CSV,
    TD_RUN_REPORT_JSON
} td_run_report_format;

typedef struct {
    const char *output; /* output file, written atomically; NULL: *text */
    bool overwrite;     /* replace an existing output file; otherwise it is TD_EARG */
    td_run_report_format format;
    bool json;          /* the same as format json */
    const char *title;  /* title of the page; NULL: made from the runs */
    const char *images; /* data set, from which the page shows misclassified images; NULL: none */
    const char *log;
} td_run_report_opts;

TD_API const struct td_field *td_run_report_fields(void);
TD_API void td_run_report_defaults(td_run_report_opts *opts);

/**
 * Summarize runs; paths: workspaces or report files. *text (td_text_free) is NULL if the output
 * went to a file. TD_EFORMAT: a file is not a report; an incomplete last line is only a warning.
 */
TD_API TD_CHECKED td_status td_run_report(const td_run_report_opts *opts, int n,
                                          const char *const *paths, char **text);

#ifdef __cplusplus
}
#endif
#endif
