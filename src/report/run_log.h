/*
 * report/run_log.h -- reads a run's report: its settings, curves and results
 *
 *     td_run_log run;
 *     TD_TRY(td_run_log_read("runs/a", &run));
 *     const td_run_series *s = td_run_log_series(&run, TD_RUN_EPOCHS, "val.top1");
 *     td_run_log_release(&run);
 *
 * Reads our reports and those of the reference programs, which have the same records.  If a resumed
 * run repeated steps, the later record counts.
 */
#ifndef TD_REPORT_RUN_LOG_H
#define TD_REPORT_RUN_LOG_H

#include "base/arena.h"

typedef enum { TD_RUN_ITERATIONS, TD_RUN_EPOCHS, TD_RUN_END, TD_RUN_LEVELS } td_run_level;

typedef struct {
    int64_t epoch, iteration; /* iteration 0: the end of the epoch */
    double value;             /* finite */
} td_run_point;

typedef struct {
    const char *metric;
    td_run_point *points; /* in order */
    size_t n, cap;
} td_run_series;

typedef struct {
    const char *name, *value; /* a text unchanged, a number as Python prints it */
} td_run_setting;

typedef struct {
    const char *path, *label; /* the label is unique only if the paths are */
    const char *file;         /* path of the report file; NULL: parsed from memory */
    td_run_series *series[TD_RUN_LEVELS];
    size_t n_series[TD_RUN_LEVELS], cap_series[TD_RUN_LEVELS];
    td_run_setting *settings;
    size_t n_settings, cap_settings;
    double seconds;        /* from the first record to the last, without pauses before resuming */
    const char *began;     /* "2020-01-01 00:00:00", or "" */
    int64_t epoch_batches; /* most iterations of an epoch; at least 1 */
    bool is_cut;           /* the last line was incomplete and is ignored */
    bool has_ended;        /* the final record exists, and the run was not resumed */
    struct td_run_confusion *confusion; /* of a classifier, the last one recorded; or NULL */
    td_arena arena;                     /* memory of all texts */
} td_run_log;

/**
 * Read a report, or the report of a workspace folder.  Release *out even after a failure.
 *
 *   TD_ENOTFOUND, TD_EIO   no such file; unreadable
 *   TD_EFORMAT             empty, or a line is not a record (the message has its number), or there
 *                          are no metrics
 *   TD_ELIMIT              larger than a report can be
 */
td_status td_run_log_read(const char *path, td_run_log *out) TD_CHECKED;

/** The same from memory; `path` names it in messages. */
td_status td_run_log_parse(const char *text, size_t n, const char *path,
                           td_run_log *out) TD_CHECKED;

void td_run_log_release(td_run_log *run);

/** The points of a metric; NULL: none. */
const td_run_series *td_run_log_series(const td_run_log *run, td_run_level level,
                                       const char *metric);

/**
 * The name of the top-K metric, "val.top5" for K = 5; NULL: none.  `prefix`: "val." or "val_ema.".
 */
const char *td_run_log_topk(const td_run_log *run, const char *prefix);

/** A setting's value, or NULL. */
const char *td_run_log_setting(const td_run_log *run, const char *name);

#endif
