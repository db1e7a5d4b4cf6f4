/*
 * launch/hosts.h -- `tandem launch --hosts`: starts the ranks of several machines from one of them
 *
 *     here     tandem launch --hosts a,b --nproc 2 train set
 *        ssh a   cd FOLDER && tandem launch --nnodes 2 --node-rank 0 --master-addr a ... train set
 *        ssh b   cd FOLDER && tandem launch --nnodes 2 --node-rank 1 --master-addr a ... train set
 *
 * Each remote `launch` reads the run's secret from its stdin, so that it appears in no process
 * list, and later "stop" for Ctrl-C; the end of its stdin means that the starting machine is gone.
 */
#ifndef TD_LAUNCH_HOSTS_H
#define TD_LAUNCH_HOSTS_H

#include <stdbool.h>

#include "tandem/launch.h"

/** Set for a `launch` started by another one: its stdin is a lifeline. */
#define TD_ENV_LIFELINE "TANDEM_LIFELINE"

typedef struct {
    char name[256]; /* as ssh accepts it: host, user@host */
    int slots;      /* ranks on this machine; 0: not given */
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

/** Implements td_ranks_run if opts->hosts or opts->hostfile is set. */
TD_CHECKED td_status td_hosts_run(const td_ranks_opts *opts, int n_args, const char *const *args,
                                  int *code);

/** Generate 32 random hexadecimal digits.  TD_EIO. */
TD_CHECKED td_status td_launch_token(char out[65]);

#endif
