/*
 * loggers/ticker.h -- a log line about the current work of a job that has logged nothing for a
 * while
 *
 *     td_ticker *t;  TD_TRY(td_ticker_start("train", &t));
 *     td_ticker_set(t, &(td_work){ .kind = TD_WORK_STEP, .epoch = 0, .at = 1, .n = 4 });
 *         -> 10 s later   "train: epoch 0: iteration 1 of 4 has run for 10 s"
 *         -> 30 s later   "train: epoch 0: iteration 1 of 4 has run for 40 s"
 *     td_ticker_note_line(t);           the job has logged a line itself
 *     td_ticker_stop(t);
 *
 * A thread waits for the time of the next line, because a long step returns to no code of ours.
 * Every function accepts a NULL ticker, which logs nothing.
 */
#ifndef TD_LOGGERS_TICKER_H
#define TD_LOGGERS_TICKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct td_ticker td_ticker;

typedef enum {
    TD_WORK_NONE,       /* logs nothing */
    TD_WORK_OPEN,       /* data sets are read, the network is compiled */
    TD_WORK_DATA,       /* waits for the images of iteration `at` */
    TD_WORK_STEP,       /* runs iteration `at` */
    TD_WORK_VALIDATION, /* `at` batches are done */
} td_work_kind;

typedef struct {
    td_work_kind kind;
    int64_t epoch;
    int64_t at, n;    /* of the iterations of the epoch, or of the batches of the validation */
    int64_t n_images; /* images of the iterations that this run has finished in the epoch ... */
    double seconds;   /* ... and their time */
} td_work;

/* When lines are due. */
typedef struct {
    int64_t line_ns;  /* the last line; before the first, the start */
    bool has_line;    /* there was a line since the start */
    int64_t first_ns; /* from the start to the first line */
    int64_t every_ns; /* between two lines */
} td_ticker_times;

/** The time at which a line is due, as td_now_ns(). */
int64_t td_ticker_due(const td_ticker_times *t);

/** Format the line about work that began `seconds` ago; "" for TD_WORK_NONE. */
void td_ticker_text(const td_work *w, double seconds, char *out, size_t n);

/**
 * Start the thread.  `module` of the log lines is borrowed.  TANDEM_PROGRESS_SECONDS in the
 * environment, for tests, sets both times; with 0 *out is NULL.
 *
 *   TD_EUSAGE  TANDEM_PROGRESS_SECONDS is not a number of seconds
 *   TD_ENOMEM, TD_ELIMIT  no memory, no thread
 */
td_status td_ticker_start(const char *module, td_ticker **out) TD_CHECKED;

/** Set the current work; its time begins now. */
void td_ticker_set(td_ticker *t, const td_work *w);

/** A validation has done `n` batches; nothing happens during other work. */
void td_ticker_count(td_ticker *t, int64_t n);

/** The job has logged or drawn a line about its work. */
void td_ticker_note_line(td_ticker *t);

/** The first line is due as if the ticker were started now. */
void td_ticker_restart(td_ticker *t);

/** End the thread; it logs nothing after this. */
void td_ticker_stop(td_ticker *t);

#endif
