/*
 * comm/join.h -- how a job joins the other ranks of its run, and leaves them
 *
 *     TD_TRY(td_join("train", &(td_join_opts){ o->log, o->gpu_affinity, o->threads }, &comm));
 *     ...
 *     td_leave(comm, st);
 */
#ifndef TD_COMM_JOIN_H
#define TD_COMM_JOIN_H

#include "comm/comm.h"

typedef struct {
    const char *log;      /* the job's option; NULL: ranks but 0 say only warnings */
    const char *affinity; /* of processors, by name; NULL: none */
    int threads;          /* for the line in the log; 0: chosen */
} td_join_opts;

/**
 * The other ranks, if whoever started this process says that there are any; else *out is NULL.
 * Before threads are started.  TD_EUSAGE: the environment, or no such affinity; TD_EDEVICE.
 */
TD_CHECKED td_status td_join(const char *module, const td_join_opts *o, td_comm **out);

/** Leave them: in peace, or with this thread's message.  NULL is fine. */
void td_leave(td_comm *c, td_status st);

#endif
