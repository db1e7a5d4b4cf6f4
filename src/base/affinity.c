/*
 * affinity.c -- reads the processor topology and assigns processors to ranks
 */
#include "base/affinity.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

const char *const td_affinity_choices[] = { "auto",
                                            "none",
                                            "socket",
                                            "socket_single|single",
                                            "socket_single_unique|single_unique",
                                            "socket_unique_interleaved|unique_interleaved",
                                            "socket_unique_contiguous|unique_contiguous",
                                            NULL };

td_status td_affinity_parse(const char *name, td_affinity *out)
{
    const size_t n = strlen(name);
    for (int i = TD_AFFINITY_NONE; td_affinity_choices[i]; i++)
        for (const char *s = td_affinity_choices[i]; *s;) {
            const size_t len = strcspn(s, "|");
            if (len == n && strncmp(s, name, n) == 0) {
                *out = (td_affinity)i;
                return TD_OK;
            }
            s += len + (s[len] == '|');
        }
    return td_error(TD_EUSAGE,
                    "unknown GPU affinity '%s', wanted one of none, socket, socket_single, "
                    "socket_single_unique, socket_unique_interleaved, socket_unique_contiguous",
                    name);
}

/* --- topology --------------------------------------------------------------------------------- */

static int topology_number(int cpu, const char *file)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, file);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &value) != 1 || value < 0)
        value = 0;
    fclose(f);
    return value;
}

static bool has_topology(int cpu)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
    FILE *f = fopen(path, "r");
    if (f)
        fclose(f);
    return f != NULL;
}

td_status td_topology_here(td_topology *out)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    out->n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return td_error_errno(TD_EIO, "cannot read the set of available processors");
    for (int cpu = 0; cpu < TD_CPUS_MAX && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set))
            continue;
        out->cpu[out->n] = cpu;
        out->socket[out->n] = topology_number(cpu, "physical_package_id");
        out->core[out->n++] = has_topology(cpu) ? topology_number(cpu, "core_id") : cpu;
    }
    return TD_OK;
}

/* --- choosing --------------------------------------------------------------------------------- */

/* the distinct sockets in ascending order; returns how many */
static int list_sockets(const td_topology *t, int *sockets)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        int at = 0;
        while (at < n && sockets[at] < t->socket[i])
            at++;
        if (at < n && sockets[at] == t->socket[i])
            continue;
        memmove(sockets + at + 1, sockets + at, (size_t)(n - at) * sizeof *sockets);
        sockets[at] = t->socket[i];
        n++;
    }
    return n;
}

/* the first processor of each core of a socket, in the system's order */
static int list_cores(const td_topology *t, int socket, int *cores)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        bool is_new = t->socket[i] == socket;
        for (int k = 0; k < n; k++)
            is_new = is_new && cores[k] != t->core[i];
        if (is_new)
            cores[n++] = t->core[i];
    }
    return n;
}

/* adds the first processor of a core, or all of them */
static void add_core(const td_topology *t, int socket, int core, bool all, int *cpus, int *n)
{
    for (int i = 0; i < t->n; i++) {
        if (t->socket[i] != socket || t->core[i] != core)
            continue;
        cpus[(*n)++] = t->cpu[i];
        if (!all)
            return;
    }
}

/* the rank's position among the ranks of its socket */
typedef struct {
    int socket, k, of;
} seat;

static seat seat_of(int local, int of, const int *sockets, int n_sockets)
{
    const int s = (int)((long long)local * n_sockets / of);
    seat at = { .socket = sockets[s] };
    for (int r = 0; r < of; r++) {
        const bool is_here = (int)((long long)r * n_sockets / of) == s;
        at.of += is_here;
        at.k += is_here && r < local;
    }
    return at;
}

td_status td_affinity_choose(const td_topology *t, td_affinity mode, int local, int of, int *cpus,
                             int *n)
{
    int sockets[TD_CPUS_MAX], cores[TD_CPUS_MAX];
    const int n_sockets = list_sockets(t, sockets);
    *n = 0;
    if (n_sockets == 0 || local < 0 || local >= of)
        return td_error(TD_EARG, "affinity: rank %d of %d on %d processors", local, of, t->n);
    const seat at = seat_of(local, of, sockets, n_sockets);
    const int n_cores = list_cores(t, at.socket, cores);
    if (mode >= TD_AFFINITY_SINGLE_UNIQUE && at.of > n_cores)
        return td_error(TD_EARG,
                        "affinity: %d ranks on a socket of %d cores cannot have cores of their own",
                        at.of, n_cores);
    const int share = n_cores / (at.of > 0 ? at.of : 1);
    switch (mode) {
    case TD_AFFINITY_AUTO: /* the caller resolves it */
    case TD_AFFINITY_NONE:
        for (int i = 0; i < t->n; i++)
            cpus[(*n)++] = t->cpu[i];
        break;
    case TD_AFFINITY_SOCKET:
        for (int c = 0; c < n_cores; c++)
            add_core(t, at.socket, cores[c], true, cpus, n);
        break;
    case TD_AFFINITY_SINGLE:
        add_core(t, at.socket, cores[0], false, cpus, n);
        break;
    case TD_AFFINITY_SINGLE_UNIQUE:
        add_core(t, at.socket, cores[at.k], false, cpus, n);
        break;
    case TD_AFFINITY_INTERLEAVED:
        for (int c = 0; c < share; c++)
            add_core(t, at.socket, cores[at.k + c * at.of], true, cpus, n);
        break;
    case TD_AFFINITY_CONTIGUOUS:
        for (int c = 0; c < share; c++)
            add_core(t, at.socket, cores[at.k * share + c], true, cpus, n);
        break;
    }
    return TD_OK;
}

td_status td_affinity_apply(const int *cpus, int n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        if (cpus[i] >= 0 && cpus[i] < CPU_SETSIZE)
            CPU_SET((size_t)cpus[i], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return td_error_errno(TD_EIO, "cannot set the processor affinity");
    return TD_OK;
}
