/*
 * tandem/launch.h -- start the ranks of a job on one machine or several
 */
#ifndef TD_LAUNCH_H
#define TD_LAUNCH_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How `tandem launch` starts ranks. */
typedef struct {
    int nproc;               /* on this machine */
    int result_fd;           /* where rank 0's standard output goes; 0: to this process's own */
    int nnodes, node_rank;   /* machines, and which of them this is */
    const char *master_addr; /* where rank 0 listens; of one machine: NULL */
    int master_port;         /* 0: of one machine chosen, else 29500 */
    int cpu_affinity;    /* 0: shares of the cores where there are enough, else td_affinity + 1 */
    const char *log_dir; /* a file for every rank but 0; NULL: none */
    const char *hosts, *hostfile; /* "a,b" or "a:2,b:2"; or a file of them; NULL: this machine */
    const char *ssh, *remote_program; /* how the others are reached, and `tandem` there */
    const char *log;
} td_ranks_opts;

TD_API const struct td_field *td_ranks_fields(void);

/**
 * Start this program `nproc` times with `args` as its line, and wait for all.  One that fails ends
 * the others; signals are handed on.  *code: 0, or what the first that failed ended with, 128 +
 * signal where it was killed; then the log says which.
 *   TD_EUSAGE  an option contradicts another
 *   TD_EARG    fewer cores than ranks that want their own
 *   TD_EIO     no process, no file
 */
TD_API TD_CHECKED td_status td_ranks_run(const td_ranks_opts *opts, int n_args,
                                         const char *const *args, int *code);

/**
 * Log a command's own warnings, `lines` each ended by a newline, as messages of `module`; `spec` is
 * the value of --log, or NULL.  Of several ranks only 0 logs.  TD_EUSAGE: `spec` is malformed.
 */
TD_API TD_CHECKED td_status td_command_warn(const char *spec, const char *module,
                                            const char *lines);

#ifdef __cplusplus
}
#endif
#endif
