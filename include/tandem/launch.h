/*
 * tandem/launch.h -- start the ranks of a job on one machine or several
 */
#ifndef TD_LAUNCH_H
#define TD_LAUNCH_H

#include <stdbool.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Processors of a rank; base/affinity.h draws them. */
typedef enum {
    TD_AFFINITY_AUTO, /* NUMA on several nodes, CONTIGUOUS where there are enough cores */
    TD_AFFINITY_NONE,
    TD_AFFINITY_SOCKET,
    TD_AFFINITY_SINGLE,
    TD_AFFINITY_SINGLE_UNIQUE,
    TD_AFFINITY_INTERLEAVED,
    TD_AFFINITY_CONTIGUOUS,
    TD_AFFINITY_L3,
    TD_AFFINITY_NUMA
} td_affinity;

/** How `tandem launch` starts ranks. */
typedef struct {
    int nproc;         /* on this machine */
    bool shares_batch; /* the ranks divide --batch-size; not an option */
    int result_fd;     /* file descriptor for rank 0's standard output; 0: that of this process */
    td_affinity cpu_affinity;
    const char *log_dir;          /* folder for the output of all ranks but 0; NULL: none */
    const char *hosts, *hostfile; /* "a,b" or "a:2,b:2"; or a file of them; NULL: this machine */
    const char *mpirun;           /* for hosts; NULL: the one that is found */
    int restarts;                 /* at most so many after a lost rank */
    int min_ranks;                /* fewest ranks of a restart; 0: as many as at the start */
    int nnodes, node_rank, master_port; /* refused: mpirun and srun start several machines */
    const char *master_addr;
    const char *log;
} td_ranks_opts;

TD_API const struct td_field *td_ranks_fields(void);

/**
 * Start this program `nproc` times with the arguments `args`, and wait for all. If one fails, the
 * others are ended; signals are forwarded. *code: 0, or the exit code of the first that failed, 128
 * + signal if it was killed; the log then names its rank. With `restarts`, all are started again
 * if a rank was killed or stopped responding, or if a machine is lost; a training then resumes from
 * its last checkpoint, with the same images per optimizer step. A rank that exits by itself, with
 * an error or without, ends the run.
 *   TD_EUSAGE  an option contradicts another
 *   TD_EARG    fewer cores than ranks that need separate cores
 *   TD_EIO     a process or file cannot be created
 */
TD_API TD_CHECKED td_status td_ranks_run(const td_ranks_opts *opts, int n_args,
                                         const char *const *args, int *code);

/** A job of one process that may divide its batches among ranks on this machine. */
typedef struct {
    const char *module;     /* "train": the verb, for the log */
    const char *to_prevent; /* the option that keeps one process: "--ranks 1" */
    const char *device;     /* "cpu" may be divided */
    int batch;              /* images of a batch, of all ranks */
    int wanted;             /* ranks; 0: one on each NUMA node */
    bool is_named;          /* `wanted` is of the command line, and an error under a launcher */
    int threads;            /* of the process; 0: not given, and only then it may be divided */
    bool is_whole;          /* not divided unless `wanted` says so */
    const char *log;        /* value of --log, or NULL */
} td_own_ranks;

/**
 * The number of ranks to start with td_ranks_opts.shares_batch; 1: run in this process.  It is 1
 * under a launcher, on one NUMA node, on nodes with different numbers of cores, on nodes whose
 * number does not divide the batch, and if the topology is of another machine.
 *   TD_EUSAGE  `wanted` does not divide the batch; the environment contradicts itself
 */
TD_API TD_CHECKED td_status td_own_ranks_choose(const td_own_ranks *o, int *n);

/**
 * Log a command's own warnings, `lines` each ended by a newline, as messages of `module`; `spec` is
 * the value of --log, or NULL. With several ranks only rank 0 logs. TD_EUSAGE: `spec` is malformed.
 */
TD_API TD_CHECKED td_status td_command_warn(const char *spec, const char *module,
                                            const char *lines);

#ifdef __cplusplus
}
#endif
#endif
