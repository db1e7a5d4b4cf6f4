/*
 * loggers/progress.h -- the progress of a pass over a data set, in training or validation: a line
 * in the log every so many batches, and on a terminal its last line, ten times a second
 */
#ifndef TD_LOGGERS_PROGRESS_H
#define TD_LOGGERS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "tandem/loader.h"

typedef struct {
    const char *module; /* of the lines; NULL: logs nothing */
    const char *what;   /* is counted: "batch" */
    int every;          /* batches between two lines; 0: none */
    double rest_s;      /* and seconds, at least */
    int64_t n_batches;  /* of this rank */
    int64_t before;     /* batches of the pass that an earlier run has done */
    int64_t later;      /* batches of the passes that follow; 0: this is the last */
    td_comm *comm;      /* NULL: one rank */
    int64_t begin_ns;
    int64_t logged_ns; /* time of the last line; at first begin_ns */
    int64_t drawn_ns;  /* time the terminal's line was last drawn; 0: not drawn */
    bool has_terminal;
} td_progress;

/** Begin a pass over `ld` of at most `max_batches`; -1: all. */
void td_progress_begin(td_progress *p, const td_loader *ld, int64_t max_batches);

/**
 * `done` batches, `n_images` images of this rank are done, without `before`.  If there is
 * neither a terminal nor a line due, no text is made.
 */
void td_progress_step(td_progress *p, int64_t done, int64_t n_images);

/** Clear the terminal's line.  Always call it; may be called twice. */
void td_progress_end(td_progress *p);

/**
 * "batch 10/25: 31.4 images/s, about 12 s left", after so many seconds; with `later` also
 * ", 5 min in all".
 */
void td_progress_text(const td_progress *p, int64_t done, int64_t n_images, double seconds,
                      char *out, size_t n);

#endif
