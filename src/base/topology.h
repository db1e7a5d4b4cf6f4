/*
 * base/topology.h -- the processors of this machine, where they are, and binding to them
 *
 *     td_topology t;
 *     TD_TRY(td_topology_here(&t));
 *     ... td_affinity_choose(&t, mode, rank, n_ranks, &binding) ...
 *     st = td_topology_bind(&t, &binding);
 *     td_topology_release(&t);
 *
 * The topology comes from hwloc and its variables apply: HWLOC_SYNTHETIC and HWLOC_XMLFILE describe
 * another machine, to which nothing can be bound unless HWLOC_THISSYSTEM=1.
 */
#ifndef TD_BASE_TOPOLOGY_H
#define TD_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { TD_CPUS_MAX = 4096, TD_CPU_LIST_BYTES = 256 };

/** Groups of processors that share something. */
typedef enum {
    TD_LEVEL_PACKAGE,
    TD_LEVEL_NUMA_NODE,
    TD_LEVEL_L3_CACHE,
    TD_LEVEL_CORE,
    TD_N_LEVELS
} td_level;

typedef struct {
    int cpu;             /* the system's number */
    int at[TD_N_LEVELS]; /* hwloc's logical number of the group, -1: none is known */
} td_processor;

typedef struct {
    int n;
    td_processor *cpus; /* [n] in the order of the topology: those of a core are neighbors */
    int n_allowed;      /* processors of the control group; n is less if the process is bound */
    bool is_here;       /* describes this machine */
    bool is_whole;      /* this process may run on all processors of the machine */
    struct hwloc_topology *handle;
} td_topology;

/** The processors that one rank is bound to. */
typedef struct {
    int n;
    int cpus[TD_CPUS_MAX]; /* the system's numbers */
    bool binds_memory;     /* to the NUMA nodes of these processors */
} td_binding;

/**
 * The processors that the calling thread may run on: those of its control group and its affinity
 * mask, at most TD_CPUS_MAX.  Without /sys they form one socket and one NUMA node.  TD_EIO: hwloc
 * cannot read the topology, or none is left.
 */
TD_CHECKED td_status td_topology_here(td_topology *out);

void td_topology_release(td_topology *t);

/** TD_EDEVICE: the topology describes another machine; the message names the variables. */
TD_CHECKED td_status td_topology_require_here(const td_topology *t);

/** The number of different groups of a level; processors without one do not count. */
int td_topology_count(const td_topology *t, td_level level);

/** The sizes of the processors' L3 caches, or where there are none of their L2 caches, in bytes; 0:
    not known. */
size_t td_topology_cache_bytes(const td_topology *t);

/** The sizes of the processors' L2 caches, in bytes; 0: not known. */
size_t td_topology_core_cache_bytes(const td_topology *t);

/**
 * Restrict the calling thread, and threads and programs it starts later, to the processors; with
 * `binds_memory` their NUMA nodes become the preferred ones for memory: others are used only when
 * these are full.  TD_EDEVICE: the topology describes another machine.  TD_EIO: the system refuses;
 * if it refuses the memory only, the processors are bound.
 */
TD_CHECKED td_status td_topology_bind(const td_topology *t, const td_binding *b);

/** Write "0-3,8-11"; a list that does not fit is cut. */
void td_binding_list(const td_binding *b, char text[TD_CPU_LIST_BYTES]);

#endif
