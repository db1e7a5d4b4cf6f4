/*
 * base/affinity.h -- which processors the ranks on a machine get
 *
 *                                   two sockets of cores 0 1 2 3 | 4 5 6 7, ranks 0 1 | 2 3
 *     socket                        all of the rank's socket       0123 0123 4567 4567
 *     socket_single                 the first core of it           0    0    4    4
 *     socket_single_unique          a core of its own              0    1    4    5
 *     socket_unique_interleaved     equal shares, by turns         02   13   46   57
 *     socket_unique_contiguous      equal shares, in one piece     01   23   45   67
 *
 * Ranks are spread over the sockets in order.  A share of cores has all threads of theirs; `single`
 * ones are one processor each.  Only processors that this process may run on are counted.  The
 * names are those of the reference's --gpu-affinity, where the socket is a GPU's.
 */
#ifndef TD_BASE_AFFINITY_H
#define TD_BASE_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { TD_CPUS_MAX = 1024 };

typedef enum {
    TD_AFFINITY_NONE,
    TD_AFFINITY_SOCKET,
    TD_AFFINITY_SINGLE,
    TD_AFFINITY_SINGLE_UNIQUE,
    TD_AFFINITY_INTERLEAVED,
    TD_AFFINITY_CONTIGUOUS
} td_affinity;

/** "auto", then the names in the enum's order, each with its other spellings; NULL ends it. */
extern const char *const td_affinity_choices[];

/** TD_EUSAGE lists them. */
TD_CHECKED td_status td_affinity_parse(const char *name, td_affinity *out);

typedef struct {
    int n;
    int cpu[TD_CPUS_MAX];
    int socket[TD_CPUS_MAX], core[TD_CPUS_MAX]; /* of each; numbers of the system's */
} td_topology;

/** What this process may run on; what the system does not tell counts as one socket. */
TD_CHECKED td_status td_topology_here(td_topology *out);

/**
 * The processors of rank `local` of `of` on this machine: cpus[TD_CPUS_MAX], *n.  TD_EARG: more
 * ranks than cores.
 */
TD_CHECKED td_status td_affinity_choose(const td_topology *t, td_affinity mode, int local, int of,
                                        int *cpus, int *n);

/** Let the calling thread, and those it starts from now on, run on these only. */
TD_CHECKED td_status td_affinity_apply(const int *cpus, int n);

#endif
