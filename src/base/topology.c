/*
 * topology.c -- reads the topology and binds with hwloc, whose header only this file includes
 */
#include "base/topology.h"

#include <stdlib.h>

#include <hwloc.h>

#include "base/arena.h"

#if HWLOC_API_VERSION < 0x00020500
#error "hwloc 2.5 or newer is required"
#endif

/* --- reading ---------------------------------------------------------------------------------- */

static td_status no_bitmap(void)
{
    return td_error(TD_ENOMEM, "cannot allocate a set of processors");
}

/* all of the machine, so that a restricted process is recognized */
static td_status load(struct hwloc_topology **out)
{
    hwloc_topology_t h = NULL;
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 0); /* hwloc would print to stderr, without /sys */
    const unsigned long flags =
        HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
    if (hwloc_topology_init(&h) != 0)
        return td_error(TD_ENOMEM, "cannot allocate the processor topology");
    if (hwloc_topology_set_flags(h, flags) != 0 || hwloc_topology_load(h) != 0) {
        td_status st = td_error_errno(TD_EIO, "hwloc cannot read the processor topology");
        hwloc_topology_destroy(h);
        return st;
    }
    *out = h;
    return TD_OK;
}

static int group_of(hwloc_topology_t h, hwloc_obj_t pu, hwloc_obj_type_t type)
{
    hwloc_obj_t group = hwloc_get_ancestor_obj_by_type(h, type, pu);
    return group ? (int)group->logical_index : -1;
}

/*
 * The NUMA node with the fewest processors that include this one: a node can enclose others, and
 * nodes of different memory can have the same processors, which are then one group.  Nodes whose
 * memory the control group forbids do not count.
 */
static int node_of(hwloc_topology_t h, hwloc_obj_t pu)
{
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_nodeset(h);
    int best = -1, fewest = 0;
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        const int n = hwloc_bitmap_weight(node->cpuset);
        if (!hwloc_bitmap_isset(node->cpuset, pu->os_index) ||
            !hwloc_bitmap_isset(allowed, node->os_index) || (best >= 0 && n >= fewest))
            continue;
        best = (int)node->logical_index;
        fewest = n;
    }
    return best;
}

static td_processor locate(hwloc_topology_t h, hwloc_obj_t pu)
{
    const int package = group_of(h, pu, HWLOC_OBJ_PACKAGE), core = group_of(h, pu, HWLOC_OBJ_CORE);
    td_processor p = { .cpu = (int)pu->os_index };
    p.at[TD_LEVEL_PACKAGE] = package < 0 ? 0 : package;
    p.at[TD_LEVEL_NUMA_NODE] = node_of(h, pu);
    p.at[TD_LEVEL_L3_CACHE] = group_of(h, pu, HWLOC_OBJ_L3CACHE);
    p.at[TD_LEVEL_CORE] =
        core >= 0 ? core : hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) + (int)pu->logical_index;
    return p;
}

/* the processors that the calling thread may run on; of another machine, all that are allowed */
static td_status find_allowed(const td_topology *t, hwloc_bitmap_t set)
{
    if (!t->is_here)
        return hwloc_bitmap_copy(set, hwloc_topology_get_allowed_cpuset(t->handle)) == 0
                   ? TD_OK
                   : no_bitmap();
    if (hwloc_get_cpubind(t->handle, set, HWLOC_CPUBIND_THREAD) != 0)
        return td_error_errno(TD_EIO, "cannot read the set of available processors");
    return TD_OK;
}

static int count_allowed(hwloc_topology_t h)
{
    hwloc_const_bitmap_t set = hwloc_topology_get_allowed_cpuset(h);
    int n = 0;
    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_PU, pu)) != NULL;)
        n += hwloc_bitmap_isset(set, pu->os_index) != 0;
    return n;
}

static td_status list_processors(td_topology *t, hwloc_const_bitmap_t allowed)
{
    const int n_all = hwloc_get_nbobjs_by_type(t->handle, HWLOC_OBJ_PU);
    TD_TRY(TD_ALLOC(t->cpus, (size_t)(n_all > 0 ? n_all : 1)));
    t->n_allowed = count_allowed(t->handle);
    t->is_whole = hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(t->handle), allowed);
    for (hwloc_obj_t pu = NULL; t->n < TD_CPUS_MAX && (pu = hwloc_get_next_obj_by_type(
                                                           t->handle, HWLOC_OBJ_PU, pu)) != NULL;)
        if (hwloc_bitmap_isset(allowed, pu->os_index))
            t->cpus[t->n++] = locate(t->handle, pu);
    if (t->n == 0)
        return td_error(TD_EIO, "this process may run on none of the %d processors of the topology",
                        n_all);
    return TD_OK;
}

td_status td_topology_here(td_topology *out)
{
    td_status st = TD_OK;
    td_topology t = { 0 };
    *out = t;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    TD_OUT(allowed ? TD_OK : no_bitmap());
    TD_OUT(load(&t.handle));
    t.is_here = hwloc_topology_is_thissystem(t.handle) == 1;
    TD_OUT(find_allowed(&t, allowed));
    TD_OUT(list_processors(&t, allowed));
    *out = t;
    t = (td_topology){ 0 };
out:
    td_topology_release(&t);
    hwloc_bitmap_free(allowed);
    return st;
}

void td_topology_release(td_topology *t)
{
    td_free(t->cpus);
    if (t->handle)
        hwloc_topology_destroy(t->handle);
    *t = (td_topology){ 0 };
}

td_status td_topology_require_here(const td_topology *t)
{
    if (t->is_here)
        return TD_OK;
    return td_error(TD_EDEVICE, "the processor topology describes another machine "
                                "(HWLOC_SYNTHETIC, HWLOC_XMLFILE)");
}

int td_topology_count(const td_topology *t, td_level level)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        bool is_new = t->cpus[i].at[level] >= 0;
        for (int k = i - 1; k >= 0 && is_new; k--)
            is_new = t->cpus[k].at[level] != t->cpus[i].at[level];
        n += is_new;
    }
    return n;
}

/* the sum of the sizes of all caches of a type that serve at least one of the processors */
static size_t cache_bytes(const td_topology *t, hwloc_obj_type_t type)
{
    size_t sum = 0;
    for (hwloc_obj_t cache = NULL;
         (cache = hwloc_get_next_obj_by_type(t->handle, type, cache)) != NULL;) {
        bool serves = false;
        for (int i = 0; i < t->n && !serves; i++)
            serves = hwloc_bitmap_isset(cache->cpuset, (unsigned)t->cpus[i].cpu) != 0;
        sum += serves ? (size_t)cache->attr->cache.size : 0;
    }
    return sum;
}

size_t td_topology_cache_bytes(const td_topology *t)
{
    const size_t third = cache_bytes(t, HWLOC_OBJ_L3CACHE);
    return third ? third : cache_bytes(t, HWLOC_OBJ_L2CACHE);
}

size_t td_topology_core_cache_bytes(const td_topology *t)
{
    return cache_bytes(t, HWLOC_OBJ_L2CACHE);
}

/* --- binding ---------------------------------------------------------------------------------- */

/* NULL: no memory */
static hwloc_bitmap_t to_bitmap(const td_binding *b)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    for (int i = 0; set && i < b->n; i++)
        if (hwloc_bitmap_set(set, (unsigned)b->cpus[i]) != 0) {
            hwloc_bitmap_free(set);
            return NULL;
        }
    return set;
}

void td_binding_list(const td_binding *b, char text[TD_CPU_LIST_BYTES])
{
    hwloc_bitmap_t set = to_bitmap(b);
    text[0] = '\0';
    if (set)
        hwloc_bitmap_list_snprintf(text, TD_CPU_LIST_BYTES, set);
    hwloc_bitmap_free(set);
}

td_status td_topology_bind(const td_topology *t, const td_binding *b)
{
    td_status st = TD_OK;
    char list[TD_CPU_LIST_BYTES];
    TD_TRY(td_topology_require_here(t));
    hwloc_bitmap_t set = to_bitmap(b);
    TD_OUT(set ? TD_OK : no_bitmap());
    td_binding_list(b, list);
    if (hwloc_set_cpubind(t->handle, set, HWLOC_CPUBIND_THREAD) != 0)
        TD_OUT(td_error_errno(TD_EIO, "cannot bind to processors %s", list));
    /* without HWLOC_MEMBIND_STRICT, a full node is no failed allocation */
    if (b->binds_memory &&
        hwloc_set_membind(t->handle, set, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD) != 0)
        TD_OUT(td_error_errno(
            TD_EIO,
            "memory is not bound to the NUMA node of processors %s, only the processors are",
            list));
out:
    hwloc_bitmap_free(set);
    return st;
}
