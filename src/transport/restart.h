/*
 * transport/restart.h -- what `tandem launch --restarts` and the run it starts again exchange
 *
 *     run        td_restart_write      rank 0, at the beginning and after each checkpoint
 *     run        td_restart_report     any rank, when another one was lost; rank 0, when it stops
 *     launcher   td_restart_read       after a rank was lost: the last position of the run
 *                td_restart_export     into the environment of the next start
 *     run        td_restart_here       the position at which it begins
 *
 * The launcher names the record in TANDEM_RESTART_RECORD, a file that exists already.  It outlives
 * the ranks; on several machines it is in the current folder, as the run's own files may be.
 */
#ifndef TD_TRANSPORT_RESTART_H
#define TD_TRANSPORT_RESTART_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/** The file that rank 0 writes; set by the launcher if it may start the ranks again. */
#define TD_ENV_RESTART_RECORD "TANDEM_RESTART_RECORD"

/**
 * The number of the start, 1, 2, ...; set by the launcher with TANDEM_RESTART_RECORD.  0: the
 * record is only for events, and the ranks are not started again.
 */
#define TD_ENV_RESTART_NUMBER "TANDEM_RESTART_NUMBER"

/**
 * Exit code, under mpirun, of a rank that ends because another was lost, if the launcher may start
 * the ranks again; it distinguishes a lost rank from an error of the run.
 */
#define TD_EXIT_LOST 75

/** Exit code of a run that a signal has stopped, after saving. */
#define TD_EXIT_STOPPED 3

/** Written by rank 0. */
typedef struct {
    int64_t batch, images;             /* images per rank and batch; per optimizer step */
    int64_t steps;                     /* optimizer steps at `checkpoint`, or at the beginning */
    int64_t first_steps, first_epochs; /* where the first start began */
    bool is_fresh;                     /* the run has created its folder itself, runs/ARCH-N */
    char folder[PATH_MAX];
    char checkpoint[PATH_MAX]; /* "": not written yet */
} td_restart_record;

/** The position at which a restarted run begins; the texts are the environment's. */
typedef struct {
    int ranks;                         /* of the first start; 0: this is the first start */
    int64_t first_steps, first_epochs; /* -1: the earlier starts have recorded nothing */
    bool is_fresh;
    const char *folder;     /* NULL: not recorded */
    const char *checkpoint; /* NULL: begin as the command line demands */
} td_restart;

/** From the environment.  TD_EUSAGE: it is malformed. */
TD_CHECKED td_status td_restart_here(td_restart *out);

/** May the launcher start this run again? */
bool td_restart_is_possible(void);

/** Write the record if a launcher has named one.  TD_EIO. */
TD_CHECKED td_status td_restart_write(const td_restart_record *r);

/** What mpirun may not report: Open MPI's may hang after a loss, MPICH's exits with 0 at times. */
typedef enum {
    TD_RESTART_LOSS, /* a rank was lost */
    TD_RESTART_STOP, /* a signal has stopped the run, after saving: exit code 3 */
    TD_RESTART_EVENTS
} td_restart_event;

/** Note an event of this start in the record.  Without a launcher that may restart: nothing. */
void td_restart_report(td_restart_event event);

/** In the launcher: was the event reported by the start that its environment names? */
bool td_restart_has(td_restart_event event);

/** Read the record `path`; *has is false if it is empty.  TD_EIO; TD_EFORMAT. */
TD_CHECKED td_status td_restart_read(const char *path, td_restart_record *out, bool *has);

/** Into the environment of mpirun: ranks report events in `record`, and are not started again. */
TD_CHECKED td_status td_restart_export_watch(const char *record);

/**
 * Set the environment of the next start; `ranks` started first.  r NULL: nothing was recorded.
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_restart_export(const td_restart_record *r, int ranks);

/** Remove everything of an earlier launch from the environment. */
void td_restart_clear(void);

#endif
