/*
 * launch/hosts.h -- `tandem launch --hosts`: starts the ranks of several machines from one of them
 *
 *     tandem launch --hosts a,b --nproc 2 train set
 *     mpirun -np 4 --host a:2,b:2 ... tandem train set          Open MPI
 *     mpiexec -n 4 -hosts a:2,b:2 ... tandem train set          MPICH, Intel MPI
 *
 * The first line runs the second or the third, for the MPI that is installed and has a plug-in.
 */
#ifndef TD_LAUNCH_HOSTS_H
#define TD_LAUNCH_HOSTS_H

#include <stdbool.h>

#include "tandem/launch.h"

typedef struct {
    char name[256]; /* as mpirun accepts it */
    int slots;      /* ranks there; 0: not given */
} td_host;

typedef struct {
    td_host *at; /* owned, td_free */
    int n;
} td_hosts;

/**
 * Parse "a,b:4" or, with `is_file`, the text of a file with one machine per line, "a", "a:4",
 * "a slots=4", comments after '#'.  `from` names the source in messages.  TD_EUSAGE: a name or a
 * count is missing or invalid, or there is no machine.
 */
TD_CHECKED td_status td_hosts_parse(const char *text, bool is_file, const char *from,
                                    td_hosts *out);

/**
 * td_ranks_run for opts->hosts or opts->hostfile.  Without opts->restarts it becomes mpirun and
 * returns only after a failure; with it, mpirun is a child, and machines on which mpirun cannot
 * start a process are left out of a restart.  TD_ENOTFOUND: no mpirun, or no plug-in for its MPI.
 */
TD_CHECKED td_status td_hosts_run(const td_ranks_opts *opts, int n_args, const char *const *args,
                                  int *code);

#endif
