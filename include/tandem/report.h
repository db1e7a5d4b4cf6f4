/*
 * tandem/report.h -- what finished runs came to: a page, a table, charts
 */
#ifndef TD_REPORT_H
#define TD_REPORT_H

#include <stdbool.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *output; /* file, written whole or not at all; NULL: *text */
    bool overwrite;     /* a file `output` is replaced; else it is TD_EARG */
    int format;         /* 0 auto, 1 html, 2 text, 3 markdown, 4 csv, 5 json */
    bool json;          /* the same as format json */
    const char *title;  /* of the page; NULL: made from the runs */
    const char
        *images; /* folder of the data, whose images of mistakes the page shows; NULL: none */
    const char *log;
} td_run_report_opts;

TD_API const struct td_field *td_run_report_fields(void);
TD_API void td_run_report_defaults(td_run_report_opts *opts);

/**
 * What runs came to; paths: workspaces or report files.  *text (td_text_free) is NULL where it went
 * to a file.  TD_EFORMAT: one is no report; a last line that is cut off is only warned of.
 */
TD_API TD_CHECKED td_status td_run_report(const td_run_report_opts *opts, int n,
                                          const char *const *paths, char **text);

#ifdef __cplusplus
}
#endif
#endif
