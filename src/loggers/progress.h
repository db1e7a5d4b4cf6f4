/*
 * loggers/progress.h -- the progress of a pass over a data set, in training or validation: a log
 * line every `every` batches, and on a terminal its last line, updated ten times a second
 */
#ifndef TD_LOGGERS_PROGRESS_H
#define TD_LOGGERS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "loggers/ticker.h"
#include "tandem/loader.h"

typedef struct {
    const char *module;     /* module of the log lines; NULL: logs nothing */
    const char *what;       /* the unit counted, "batch" */
    int every;              /* batches between two lines; 0: no lines */
    double min_interval_s;  /* least seconds between two lines */
    int64_t n_batches;      /* batches of this rank */
    int64_t batches_before; /* batches of the pass done by an earlier run */
    int64_t batches_after;  /* batches of the following passes; 0: this is the last pass */
    td_comm *comm;          /* NULL: one rank */
    td_ticker *ticker;      /* learns of batches and lines; may be NULL */
    int64_t begin_ns;
    int64_t logged_ns; /* time of the last line; initially begin_ns */
    int64_t drawn_ns;  /* time of the last update of the terminal; 0: none */
    bool has_terminal;
} td_progress;

/** Begin a pass over `ld` of at most `max_batches`; -1: all. */
void td_progress_begin(td_progress *p, const td_loader *ld, int64_t max_batches);

/**
 * Report that this rank has processed `done` batches with `n_images` images, not counting
 * `batches_before`.
 * Formats no text unless a line or an update of the terminal is due.
 */
void td_progress_step(td_progress *p, int64_t done, int64_t n_images);

/** Clear the terminal's line.  Always call it; may be called twice. */
void td_progress_end(td_progress *p);

/**
 * Format "batch 10/25: 31.4 images/s, about 12 s left" after `seconds`; with `batches_after` also
 * ", 5 min in all".
 */
void td_progress_text(const td_progress *p, int64_t done, int64_t n_images, double seconds,
                      char *out, size_t n);

#endif
