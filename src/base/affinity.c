/*
 * affinity.c -- assigns processors to ranks
 */
#include "base/affinity.h"

#include <string.h>

#include "base/arena.h"

const char *const td_affinity_choices[] = { "auto",
                                            "none",
                                            "socket",
                                            "socket_single|single",
                                            "socket_single_unique|single_unique",
                                            "socket_unique_interleaved|unique_interleaved",
                                            "socket_unique_contiguous|unique_contiguous",
                                            "l3",
                                            "numa",
                                            NULL };

td_status td_affinity_parse(const char *name, td_affinity *out)
{
    const size_t n = strlen(name);
    for (int i = 0; td_affinity_choices[i]; i++)
        for (const char *s = td_affinity_choices[i]; *s;) {
            const size_t len = strcspn(s, "|");
            if (len == n && strncmp(s, name, n) == 0) {
                *out = (td_affinity)i;
                return TD_OK;
            }
            s += len + (s[len] == '|');
        }
    return td_error(TD_EUSAGE,
                    "unknown affinity '%s', wanted one of auto, none, socket, socket_single, "
                    "socket_single_unique, socket_unique_interleaved, socket_unique_contiguous, "
                    "l3, numa",
                    name);
}

void td_affinity_name(td_affinity mode, td_text *out)
{
    const char *names = td_affinity_choices[mode];
    td_text_add_bytes(out, names, strcspn(names, "|"));
}

/* --- the modes -------------------------------------------------------------------------------- */

typedef struct {
    td_level level; /* the groups over which ranks are spread */
    bool is_unique; /* no two ranks have a core in common */
    bool is_single; /* one processor */
    bool interleaves;
    bool spans; /* a rank can have several groups */
    bool binds_memory;
} rule;

static const rule rules[] = {
    [TD_AFFINITY_SOCKET] = { .level = TD_LEVEL_PACKAGE },
    [TD_AFFINITY_SINGLE] = { .level = TD_LEVEL_PACKAGE, .is_single = true },
    [TD_AFFINITY_SINGLE_UNIQUE] = { TD_LEVEL_PACKAGE, .is_unique = true, .is_single = true },
    [TD_AFFINITY_INTERLEAVED] = { TD_LEVEL_PACKAGE, .is_unique = true, .interleaves = true },
    [TD_AFFINITY_CONTIGUOUS] = { TD_LEVEL_PACKAGE, .is_unique = true },
    [TD_AFFINITY_L3] = { TD_LEVEL_L3_CACHE, .is_unique = true, .spans = true },
    [TD_AFFINITY_NUMA] = { TD_LEVEL_NUMA_NODE, .is_unique = true, .spans = true,
                           .binds_memory = true },
};

static const char *const level_names[TD_N_LEVELS] = { "socket", "NUMA node", "L3 cache", "core" };

/* --- choosing --------------------------------------------------------------------------------- */

/*
 * Add `id` to the distinct numbers in list[n]; returns how many there are now.  The newest come
 * first: in the topology's order equal ones are neighbors.
 */
static int add_id(int *list, int n, int id)
{
    for (int i = n - 1; i >= 0; i--)
        if (list[i] == id)
            return n;
    list[n] = id;
    return n + 1;
}

/* ranks are spread evenly: the first group of a rank */
static int first_group(int rank, int n_ranks, int n_groups)
{
    return (int)((long long)rank * n_groups / n_ranks);
}

/* a rank's position among the ranks that begin in the same group */
typedef struct {
    int k, n;
} seat;

static seat find_seat(int rank, int n_ranks, int n_groups)
{
    const int group = first_group(rank, n_ranks, n_groups);
    seat at = { 0 };
    for (int r = 0; r < n_ranks; r++) {
        const bool is_here = first_group(r, n_ranks, n_groups) == group;
        at.n += is_here;
        at.k += is_here && r < rank;
    }
    return at;
}

/* what one call of td_affinity_choose works with */
typedef struct {
    const td_topology *t;
    int n_groups, n_cores;
    int groups[TD_CPUS_MAX], cores[TD_CPUS_MAX]; /* the cores are those of the rank's groups */
} selection;

static td_status list_groups(selection *s, td_level level)
{
    for (int i = 0; i < s->t->n; i++) {
        const int id = s->t->cpus[i].at[level];
        if (id < 0)
            return td_error(TD_EARG, "affinity: the system reports no %s of processor %d",
                            level_names[level], s->t->cpus[i].cpu);
        s->n_groups = add_id(s->groups, s->n_groups, id);
    }
    return TD_OK;
}

static void list_cores(selection *s, td_level level, int group)
{
    for (int i = 0; i < s->t->n; i++)
        if (s->t->cpus[i].at[level] == group)
            s->n_cores = add_id(s->cores, s->n_cores, s->t->cpus[i].at[TD_LEVEL_CORE]);
}

/* adds the first processor of a core, or all of them */
static void add_core(const td_topology *t, int core, bool is_single, td_binding *out)
{
    for (int i = 0; i < t->n; i++) {
        if (t->cpus[i].at[TD_LEVEL_CORE] != core)
            continue;
        out->cpus[out->n++] = t->cpus[i].cpu;
        if (is_single)
            return;
    }
}

static td_status add_cores(const selection *s, const rule *r, seat at, td_binding *out)
{
    if (r->is_unique && at.n > s->n_cores)
        return td_error(TD_EARG,
                        "affinity: %d ranks on a %s of %d cores cannot have cores of their own",
                        at.n, level_names[r->level], s->n_cores);
    const int share = r->is_unique ? s->n_cores / at.n : s->n_cores;
    const int n = r->is_single ? 1 : share;
    const int step = r->interleaves ? at.n : 1;
    const int first = !r->is_unique ? 0 : r->interleaves || r->is_single ? at.k : at.k * share;
    for (int c = 0; c < n; c++)
        add_core(s->t, s->cores[first + c * step], r->is_single, out);
    return TD_OK;
}

static td_status choose(selection *s, const rule *r, int rank, int n_ranks, td_binding *out)
{
    TD_TRY(list_groups(s, r->level));
    const int first = first_group(rank, n_ranks, s->n_groups);
    const int next = r->spans ? first_group(rank + 1, n_ranks, s->n_groups) : first + 1;
    const int end = next > first ? next : first + 1;
    for (int g = first; g < end; g++)
        list_cores(s, r->level, s->groups[g]);
    /* threads on several nodes: the system places memory where it is first written */
    out->binds_memory = r->binds_memory && end == first + 1;
    return add_cores(s, r, find_seat(rank, n_ranks, s->n_groups), out);
}

td_status td_affinity_choose(const td_topology *t, td_affinity mode, int rank, int n_ranks,
                             td_binding *out)
{
    out->n = 0;
    out->binds_memory = false;
    if (t->n == 0 || rank < 0 || rank >= n_ranks)
        return td_error(TD_EARG, "affinity: rank %d of %d on %d processors", rank, n_ranks, t->n);
    if (mode == TD_AFFINITY_AUTO || mode == TD_AFFINITY_NONE) {
        for (int i = 0; i < t->n; i++)
            out->cpus[out->n++] = t->cpus[i].cpu;
        return TD_OK;
    }
    selection *s = TD_NEW(selection);
    if (!s)
        return TD_ENOMEM;
    s->t = t;
    td_status st = choose(s, &rules[mode], rank, n_ranks, out);
    td_free(s);
    return st;
}

/* --- auto ------------------------------------------------------------------------------------- */

/* does every rank get processors? */
static td_status check_ranks(const td_topology *t, td_affinity mode, int n_ranks)
{
    td_status st = TD_OK;
    td_binding *b = TD_NEW(td_binding);
    if (!b)
        return TD_ENOMEM;
    for (int r = 0; st == TD_OK && r < n_ranks; r++)
        st = td_affinity_choose(t, mode, r, n_ranks, b);
    td_free(b);
    return st;
}

td_status td_affinity_resolve(const td_topology *t, td_affinity mode, int n_ranks, td_affinity *out)
{
    static const td_affinity candidates[] = { TD_AFFINITY_NUMA, TD_AFFINITY_CONTIGUOUS };
    *out = mode;
    if (mode != TD_AFFINITY_AUTO)
        return check_ranks(t, mode, n_ranks);
    const int n_nodes = td_topology_count(t, TD_LEVEL_NUMA_NODE);
    *out = TD_AFFINITY_NONE;
    for (int i = n_nodes > 1 && n_ranks % n_nodes == 0 ? 0 : 1; n_ranks > 1 && i < 2; i++) {
        const td_status st = check_ranks(t, candidates[i], n_ranks);
        if (st == TD_OK)
            *out = candidates[i];
        if (st != TD_EARG)
            return st;
        td_error_clear();
    }
    return TD_OK;
}
