/*
 * base/affinity.h -- chooses the processors for each rank on a machine
 *
 *                                   two sockets of cores 0 1 2 3 | 4 5 6 7, ranks 0 1 | 2 3
 *     socket                        all of the rank's socket       0123 0123 4567 4567
 *     socket_single                 the first core of it           0    0    4    4
 *     socket_single_unique          one core for each rank         0    1    4    5
 *     socket_unique_interleaved     equal parts, interleaved       02   13   46   57
 *     socket_unique_contiguous      equal parts, contiguous        01   23   45   67
 *
 * Ranks are spread over the sockets in order.  The multi-core modes use all threads of each core;
 * the `single` modes use one processor.  Only processors that this process may run on count.  The
 * names are those of the reference's --gpu-affinity, where socket means that of the GPU.
 */
#ifndef TD_BASE_AFFINITY_H
#define TD_BASE_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tandem/launch.h"

enum { TD_CPUS_MAX = 1024 };

/** Names of td_affinity, each followed by its aliases; ends with NULL. */
extern const char *const td_affinity_choices[];

/** Parse a name; "auto" is not one.  TD_EUSAGE if the name is unknown; the message lists the
    names. */
TD_CHECKED td_status td_affinity_parse(const char *name, td_affinity *out);

typedef struct {
    int n;
    int cpu[TD_CPUS_MAX];
    int socket[TD_CPUS_MAX], core[TD_CPUS_MAX]; /* per processor, in the system's numbering */
} td_topology;

/** The processors this process may run on; without topology data, all form one socket. */
TD_CHECKED td_status td_topology_here(td_topology *out);

/**
 * Write the processors of rank `local` of `of` ranks on this machine to cpus[TD_CPUS_MAX] and *n.
 * TD_EARG: more ranks than cores.
 */
TD_CHECKED td_status td_affinity_choose(const td_topology *t, td_affinity mode, int local, int of,
                                        int *cpus, int *n);

/** Restrict the calling thread, and threads it starts later, to these processors. */
TD_CHECKED td_status td_affinity_apply(const int *cpus, int n);

#endif
