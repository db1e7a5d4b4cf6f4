/* test_topology.c -- the processors of synthetic machines and of this one; binding */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/topology.h"
#include "support/expect.h"

static td_status describe(const char *description, td_topology *t)
{
    assert_int_equal(setenv("HWLOC_SYNTHETIC", description, 1), 0);
    td_status st = td_topology_here(t);
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC"), 0);
    return st;
}

static void groups_are_counted(void **state)
{
    static const struct {
        const char *description;
        int n, packages, nodes, l3, cores;
    } rows[] = {
        { "pack:2 numa:1 l3:2 core:4 pu:2", 32, 2, 2, 4, 16 },
        { "numa:4 core:8 pu:1", 32, 1, 4, 0, 32 },
        { "pack:1 core:1 pu:1", 1, 1, 1, 0, 1 },
        { "pu:3", 3, 1, 1, 0, 3 },                                    /* no cores are known */
        { "[numa] pack:2 [numa] [numa] core:2 pu:1", 4, 2, 2, 0, 4 }, /* two kinds of memory */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_topology t;
        expect_ok(describe(rows[i].description, &t));
        assert_int_equal(t.n, rows[i].n);
        assert_int_equal(td_topology_count(&t, TD_LEVEL_PACKAGE), rows[i].packages);
        assert_int_equal(td_topology_count(&t, TD_LEVEL_NUMA_NODE), rows[i].nodes);
        assert_int_equal(td_topology_count(&t, TD_LEVEL_L3_CACHE), rows[i].l3);
        assert_int_equal(td_topology_count(&t, TD_LEVEL_CORE), rows[i].cores);
        assert_false(t.is_here);
        td_topology_release(&t);
        assert_null(t.cpus);
    }
}

/* the processors beyond the limit are left out, the others used */
static void large_machines_are_cut(void **state)
{
    (void)state;
    td_topology t;
    expect_ok(describe("pack:8 l3:16 core:64 pu:1", &t));
    assert_int_equal(t.n, TD_CPUS_MAX);
    td_topology_release(&t);
}

static void another_machine_is_never_bound(void **state)
{
    (void)state;
    td_topology t;
    td_binding b = { .n = 1, .cpus = { 31 } };
    cpu_set_t before, after;
    expect_ok(describe("pack:2 numa:1 l3:2 core:4 pu:2", &t));
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    expect_error(td_topology_require_here(&t), TD_EDEVICE, "HWLOC_SYNTHETIC");
    expect_error(td_topology_bind(&t, &b), TD_EDEVICE, "HWLOC_SYNTHETIC");
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    td_topology_release(&t);
}

static void this_machine_is_bound(void **state)
{
    (void)state;
    td_topology t;
    td_binding b = { .n = 1 };
    cpu_set_t all, set;
    char list[TD_CPU_LIST_BYTES];
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    expect_ok(td_topology_here(&t));
    assert_true(t.is_here);
    assert_int_equal(t.n, CPU_COUNT(&all));
    for (int i = 0; i < t.n; i++)
        assert_true(CPU_ISSET((size_t)t.cpus[i].cpu, &all));
    b.cpus[0] = t.cpus[t.n - 1].cpu;
    expect_ok(td_topology_bind(&t, &b));
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(CPU_COUNT(&set), 1);
    assert_true(CPU_ISSET((size_t)b.cpus[0], &set));
    td_binding_list(&b, list);
    assert_int_equal(atoi(list), b.cpus[0]);
    b.cpus[0] = TD_CPUS_MAX - 1; /* no such processor */
    expect_error(td_topology_bind(&t, &b), TD_EIO, "processors 4095");
    td_topology_release(&t);

    expect_ok(td_topology_here(&t)); /* what is not allowed is not counted */
    assert_int_equal(t.n, 1);
    assert_in_range(t.n_allowed, CPU_COUNT(&all), sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(t.is_whole, CPU_COUNT(&all) == 1 && sysconf(_SC_NPROCESSORS_ONLN) == 1);
    td_topology_release(&t);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* a description that is declared true of this machine: only real processors are left */
static void a_false_description_is_restricted(void **state)
{
    (void)state;
    td_topology t;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    expect_ok(describe("pack:8 l3:16 core:64 pu:1", &t));
    assert_int_equal(unsetenv("HWLOC_THISSYSTEM"), 0);
    assert_true(t.is_here);
    assert_false(t.is_whole);
    assert_int_equal(t.n, CPU_COUNT(&set));
    td_topology_release(&t);
}

static void memory_is_bound(void **state)
{
    (void)state;
    td_topology t;
    td_binding b = { .n = 1, .binds_memory = true };
    int policy = -1;
    cpu_set_t all, set;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    expect_ok(td_topology_here(&t));
    b.cpus[0] = t.cpus[0].cpu;
    td_status st = td_topology_bind(&t, &b);
    if (st == TD_OK) {
        assert_int_equal(syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0), 0);
        assert_int_not_equal(policy, 0); /* not the default */
    } else {
        expect_error(st, TD_EIO, "memory"); /* the container refuses it: the processor is bound */
    }
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(CPU_COUNT(&set), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    td_topology_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_counted),
        cmocka_unit_test(large_machines_are_cut),
        cmocka_unit_test(another_machine_is_never_bound),
        cmocka_unit_test(this_machine_is_bound),
        cmocka_unit_test(a_false_description_is_restricted),
        cmocka_unit_test(memory_is_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
