/*
 * base/affinity.h -- chooses the processors for each rank on a machine
 *
 *                                   two sockets of cores 0 1 2 3 | 4 5 6 7, ranks 0 1 | 2 3
 *     socket                        all of the rank's socket       0123 0123 4567 4567
 *     socket_single                 the first core of it           0    0    4    4
 *     socket_single_unique          one core for each rank         0    1    4    5
 *     socket_unique_interleaved     equal parts, interleaved       02   13   46   57
 *     socket_unique_contiguous      equal parts, contiguous        01   23   45   67
 *     l3                            whole L3 caches, or equal contiguous parts of one
 *     numa                          whole NUMA nodes, or equal contiguous parts of one; a rank of
 *                                   one node has its memory there, too
 *
 * Ranks are spread over the sockets, caches or nodes in order.  The multi-core modes use all
 * threads of each core; the `single` modes use one processor.  Only processors that this process
 * may run on count.  The names that begin with socket are those of the reference's --gpu-affinity,
 * where socket means that of the GPU.
 */
#ifndef TD_BASE_AFFINITY_H
#define TD_BASE_AFFINITY_H

#include "base/status.h"
#include "base/text.h"
#include "base/topology.h"
#include "tandem/launch.h"

/** Names of td_affinity, each followed by its aliases; ends with NULL. */
extern const char *const td_affinity_choices[];

/** Parse a name.  TD_EUSAGE if it is unknown; the message lists the names. */
TD_CHECKED td_status td_affinity_parse(const char *name, td_affinity *out);

/** Add the name of a mode, without aliases. */
void td_affinity_name(td_affinity mode, td_text *out);

/**
 * Resolve TD_AFFINITY_AUTO for `n_ranks` ranks on this machine: one rank is not bound; on several
 * NUMA nodes, whose number divides that of the ranks, NUMA; otherwise CONTIGUOUS; NONE if there are
 * not enough cores.  Another mode is only checked.  TD_EARG: it does not fit the machine.
 */
TD_CHECKED td_status td_affinity_resolve(const td_topology *t, td_affinity mode, int n_ranks,
                                         td_affinity *out);

/**
 * Choose the processors of rank `rank` of `n_ranks` ranks on this machine; `mode` is not AUTO.
 * TD_EARG: more ranks than cores, or the system does not report what the mode is about.
 */
TD_CHECKED td_status td_affinity_choose(const td_topology *t, td_affinity mode, int rank,
                                        int n_ranks, td_binding *out);

#endif
