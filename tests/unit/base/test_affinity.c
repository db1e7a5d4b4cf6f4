/* test_affinity.c -- processors of ranks on synthetic machines */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/affinity.h"
#include "support/expect.h"

#define TWO_SOCKETS "pack:2 core:4 pu:1"
#define TWO_THREADS                                                                                \
    "pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)" /* threads of core i: i and i + 4 */
#define EPYC       "pack:2 numa:1 l3:2 core:4 pu:2"
#define FOUR_NODES "numa:4 core:8 pu:1"

/* the topology of a description of hwloc, without the processors of `without` ("0 1") */
static td_topology machine(const char *description, const char *without)
{
    td_topology t;
    int n = 0;
    assert_int_equal(setenv("HWLOC_SYNTHETIC", description, 1), 0);
    expect_ok(td_topology_here(&t));
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC"), 0);
    assert_false(t.is_here);
    for (int i = 0; i < t.n; i++) {
        char name[16], list[64];
        snprintf(name, sizeof name, " %d ", t.cpus[i].cpu);
        snprintf(list, sizeof list, " %s ", without);
        if (!strstr(list, name))
            t.cpus[n++] = t.cpus[i];
    }
    t.n = n;
    return t;
}

/* "0-1 | 2-3" of all ranks; m: with memory */
static void write_shares(const td_topology *t, td_affinity mode, int ranks, char *text, size_t room)
{
    text[0] = '\0';
    for (int r = 0; r < ranks; r++) {
        td_binding b;
        char list[TD_CPU_LIST_BYTES];
        expect_ok(td_affinity_choose(t, mode, r, ranks, &b));
        td_binding_list(&b, list);
        snprintf(text + strlen(text), room - strlen(text), "%s%s%s", r ? " | " : "", list,
                 b.binds_memory ? "m" : "");
    }
}

typedef struct {
    const char *machine, *without, *mode;
    int ranks;
    const char *want;
} share;

static void expect_share(const share *s)
{
    td_topology t = machine(s->machine, s->without);
    td_affinity mode;
    char text[512];
    expect_ok(td_affinity_parse(s->mode, &mode));
    expect_ok(td_affinity_resolve(&t, mode, s->ranks, &mode));
    write_shares(&t, mode, s->ranks, text, sizeof text);
    if (strcmp(text, s->want) != 0)
        print_error("%s without %s, %s, %d ranks\n", s->machine, s->without, s->mode, s->ranks);
    assert_string_equal(text, s->want);
    td_topology_release(&t);
}

static void ranks_share_as_their_mode_defines(void **state)
{
    static const share shares[] = {
        { TWO_SOCKETS, "", "none", 2, "0-7 | 0-7" },
        { TWO_SOCKETS, "", "socket", 4, "0-3 | 0-3 | 4-7 | 4-7" },
        { TWO_SOCKETS, "", "socket_single", 4, "0 | 0 | 4 | 4" },
        { TWO_SOCKETS, "", "single", 4, "0 | 0 | 4 | 4" },
        { TWO_SOCKETS, "", "socket_single_unique", 4, "0 | 1 | 4 | 5" },
        { TWO_SOCKETS, "", "socket_unique_interleaved", 4, "0,2 | 1,3 | 4,6 | 5,7" },
        { TWO_SOCKETS, "", "socket_unique_contiguous", 4, "0-1 | 2-3 | 4-5 | 6-7" },
        { TWO_SOCKETS, "", "unique_contiguous", 3, "0-1 | 2-3 | 4-7" }, /* a rank and a half each */
        { TWO_SOCKETS, "", "socket_unique_contiguous", 1, "0-3" },
        { TWO_THREADS, "", "socket_unique_contiguous", 2, "0-1,4-5 | 2-3,6-7" },
        { TWO_THREADS, "", "socket_unique_interleaved", 2, "0,2,4,6 | 1,3,5,7" },
        { TWO_THREADS, "", "socket_single_unique", 2, "0 | 1" },
        { TWO_THREADS, "0 1 5", "socket_unique_contiguous", 2, "4 | 2,6" },
        /* L3 caches: of all packages, in order; parts of one if there are more ranks */
        { EPYC, "", "l3", 1, "0-31" },
        { EPYC, "", "l3", 2, "0-15 | 16-31" },
        { EPYC, "", "l3", 4, "0-7 | 8-15 | 16-23 | 24-31" },
        { EPYC, "", "l3", 3, "0-7 | 8-15 | 16-31" },
        { EPYC, "", "l3", 8, "0-3 | 4-7 | 8-11 | 12-15 | 16-19 | 20-23 | 24-27 | 28-31" },
        { EPYC, "0 1 2 3 4 5 6 7", "l3", 3, "8-15 | 16-23 | 24-31" },
        /* NUMA nodes: memory is bound if it is one node */
        { EPYC, "", "numa", 2, "0-15m | 16-31m" },
        { EPYC, "", "numa", 1, "0-31" },
        { EPYC, "", "numa", 4, "0-7m | 8-15m | 16-23m | 24-31m" },
        { FOUR_NODES, "", "numa", 3, "0-7m | 8-15m | 16-31" },
        { FOUR_NODES, "", "numa", 2, "0-15 | 16-31" },
        { "pack:1 core:1 pu:1", "", "numa", 1, "0m" },
        { "pack:1 core:1 pu:1", "", "socket", 3, "0 | 0 | 0" },
        { "pack:1 core:1 pu:1", "", "socket_unique_contiguous", 1, "0" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        expect_share(&shares[i]);
}

static void auto_follows_the_nodes(void **state)
{
    static const share shares[] = {
        { EPYC, "", "auto", 1, "0-31" }, /* not bound */
        { EPYC, "", "auto", 2, "0-15m | 16-31m" },
        { EPYC, "", "auto", 4, "0-7m | 8-15m | 16-23m | 24-31m" },
        { EPYC, "", "auto", 3, "0-7 | 8-15 | 16-31" }, /* not a multiple: cores of the sockets */
        { FOUR_NODES, "", "auto", 4, "0-7m | 8-15m | 16-23m | 24-31m" },
        { FOUR_NODES, "", "auto", 2, "0-15 | 16-31" },
        { FOUR_NODES, "0 1 2 3 4 5 6 7", "auto", 3, "8-15m | 16-23m | 24-31m" },
        { FOUR_NODES, "0 1 2 3 4 5 6", "auto", 8,
          "7-9 | 10-12 | 13-15 | 16-18 | 19-21 | 22-24 | 25-27 | 28-30" },
        { TWO_SOCKETS, "4 5 6 7", "auto", 2, "0-1 | 2-3" },
        { "pack:1 core:1 pu:1", "", "auto", 2, "0 | 0" }, /* more ranks than cores: shared */
        { "pack:1 core:4 pu:1", "", "auto", 5, "0-3 | 0-3 | 0-3 | 0-3 | 0-3" },
        { "pack:1 core:4 pu:1", "", "auto", 4, "0 | 1 | 2 | 3" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        expect_share(&shares[i]);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    td_topology t = machine("pack:1 core:4 pu:2", ""), none = { .n = 0 };
    td_affinity a;
    td_binding b;
    for (int m = TD_AFFINITY_SINGLE_UNIQUE; m <= TD_AFFINITY_CONTIGUOUS; m++) {
        expect_error(td_affinity_choose(&t, (td_affinity)m, 0, 5, &b), TD_EARG,
                     "5 ranks on a socket of 4 cores");
        expect_error(td_affinity_resolve(&t, (td_affinity)m, 5, &a), TD_EARG, "5 ranks");
    }
    expect_error(td_affinity_choose(&t, TD_AFFINITY_NUMA, 0, 5, &b), TD_EARG,
                 "5 ranks on a NUMA node of 4 cores");
    expect_error(td_affinity_choose(&t, TD_AFFINITY_L3, 0, 1, &b), TD_EARG, "no L3 cache");
    expect_ok(td_affinity_choose(&t, TD_AFFINITY_SOCKET, 4, 5, &b));
    assert_int_equal(b.n, 8);
    expect_error(td_affinity_choose(&none, TD_AFFINITY_SOCKET, 0, 1, &b), TD_EARG, "0 processors");
    expect_error(td_affinity_choose(&t, TD_AFFINITY_SOCKET, 2, 2, &b), TD_EARG, "rank 2 of 2");
    expect_error(td_affinity_parse("sockets", &a), TD_EUSAGE, "'sockets'");
    expect_error(td_affinity_parse("", &a), TD_EUSAGE, "affinity '', wanted");
    expect_error(td_affinity_parse("socket_single|single", &a), TD_EUSAGE, "wanted");
    td_topology_release(&t);
}

static void allocation_failures_are_errors(void **state)
{
    (void)state;
    td_topology t = machine(EPYC, "");
    td_affinity a;
    td_status st = TD_ENOMEM;
    for (int n = 1; st == TD_ENOMEM; n++) {
        td_alloc_fail_at(n);
        st = td_affinity_resolve(&t, TD_AFFINITY_AUTO, 2, &a);
    }
    td_alloc_fail_at(0);
    expect_ok(st);
    assert_int_equal(a, TD_AFFINITY_NUMA);
    td_topology_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_as_their_mode_defines),
        cmocka_unit_test(auto_follows_the_nodes),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(allocation_failures_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
