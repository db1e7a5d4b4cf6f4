/*
 * profiler/trace.h -- records the last steps of a run, kernel by kernel, as a trace file
 *
 *     td_trace *t;
 *     TD_TRY(td_trace_open("trace.json", "train resnet50", program, &t));
 *     ...  td_program_run(program);  td_trace_step(t, &step);  ...
 *     return td_trace_close(t, st);
 *
 * The file is in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing
 * show; docs/formats/profiles.md lists the events.  It is written at the end, whole or not at all.
 */
#ifndef TD_PROFILER_TRACE_H
#define TD_PROFILER_TRACE_H

#include "tandem/program.h"

typedef struct td_trace td_trace;

/* A step that has just ended; its kernels ran between begin_ns and end_ns. */
typedef struct {
    int64_t step;             /* in this run, from 1; lower: warm-up */
    int64_t epoch, iteration; /* epoch -1: none */
    int64_t begin_ns, end_ns;
    int64_t wait_ns; /* wait for the batch, just before begin_ns; 0: none */
    double decode_s; /* total of all workers for the batch */
    double loss;     /* NaN: none */
} td_trace_place;

/**
 * Turn on the timing of `p` (borrowed) and prepare to record its last steps.  `what` names the run
 * and is copied.  *out is NULL if `path` is NULL.  TD_ENOMEM; TD_EIO: `path` cannot be written.
 */
td_status td_trace_open(const char *path, const char *what, td_program *p,
                        td_trace **out) TD_CHECKED;

/** The number of steps kept, limited by the size of the file. */
int td_trace_room(const td_trace *t);

/** Record the times of the run that has just ended.  Allocates nothing.  `t` may be NULL. */
void td_trace_step(td_trace *t, const td_trace_place *at);

/** Record another activity that has just ended; `name` is a literal, e.g. "validate".  `t` may be
    NULL. */
void td_trace_span(td_trace *t, const char *name, int64_t begin_ns);

/**
 * Write the file and free `t`, which may be NULL.  Returns `st`, the status of the run, with its
 * message, unless it is TD_OK and writing fails: TD_EIO, TD_ENOMEM.  A run that failed before its
 * first step leaves no file.
 */
td_status td_trace_close(td_trace *t, td_status st) TD_CHECKED;

#endif
