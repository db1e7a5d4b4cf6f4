/*
 * train/meet.h -- how a job of several ranks begins: meet, and be alike
 *
 *     TD_TRY(td_meet("train", &(td_meet_opts){ o->log, o->gpu_affinity, o->threads }, &comm));
 *     ...open everything...
 *     td_describe_run(config, &text);  td_describe_data("data", ds, &text);
 *     TD_TRY(td_comm_agree(comm, "run", td_text_get(&text)));
 */
#ifndef TD_TRAIN_MEET_H
#define TD_TRAIN_MEET_H

#include "base/text.h"
#include "rt/comm.h"
#include "tandem/data.h"
#include "tandem/program.h"

typedef struct {
    const char *log;      /* the job's option; NULL: ranks but 0 say only warnings */
    const char *affinity; /* of processors, by name; NULL: none */
    int threads;          /* for the line in the log; 0: chosen */
} td_meet_opts;

/**
 * The other ranks, if whoever started this process says that there are any; else *out is NULL.
 * Before threads are started.  TD_EUSAGE: the environment, or no such affinity; TD_EDEVICE.
 */
TD_CHECKED td_status td_meet(const char *module, const td_meet_opts *o, td_comm **out);

/** Leave them: in peace, or with this thread's message.  NULL is fine. */
void td_part(td_comm *c, td_status st);

/**
 * Lines that are the same on ranks that do the same: the version and the program file, the options
 * (a flat JSON object) but for those that may differ, data, a file's content, a compiled program.
 */
TD_CHECKED td_status td_describe_run(const char *config, td_text *out);
TD_CHECKED td_status td_describe_data(const char *what, const td_dataset *ds, td_text *out);
TD_CHECKED td_status td_describe_file(const char *what, const char *path, td_text *out);
TD_CHECKED td_status td_describe_program(const char *what, const td_program *p, td_text *out);

#endif
