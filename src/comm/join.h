/*
 * comm/join.h -- joins the other ranks of a run, and leaves them
 *
 *     TD_TRY(td_join("train", &(td_join_opts){ o->log, o->gpu_affinity, o->threads }, &comm));
 *     ...
 *     td_leave(comm, st);
 */
#ifndef TD_COMM_JOIN_H
#define TD_COMM_JOIN_H

#include "comm/comm.h"
#include "tandem/allreduce.h"

typedef struct {
    const char *log;      /* the job's option; NULL: ranks other than 0 log only warnings */
    const char *affinity; /* of processors, by name; NULL: auto */
    int threads;          /* for the line in the log; 0: chosen */
    td_allreduce_opts allreduce;
    bool has_device; /* that may add by itself: td_device_join follows */
} td_join_opts;

/**
 * Join the other ranks, if the environment names any; otherwise *out is NULL.  Call before threads
 * are started.  TD_EUSAGE: the environment is invalid, or the affinity unknown; TD_EDEVICE.
 */
TD_CHECKED td_status td_join(const char *module, const td_join_opts *o, td_comm **out);

/** Leave: normally if `st` is TD_OK, otherwise sending this thread's message.  NULL is fine. */
void td_leave(td_comm *c, td_status st);

#endif
