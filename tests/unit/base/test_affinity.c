/* test_affinity.c -- processors of ranks, on made-up machines and on this one */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/affinity.h"
#include "support/expect.h"

/* sockets of 4 cores; with `twins`, processor i + 4 sockets is the second thread of core i */
static td_topology machine(int sockets, bool twins)
{
    td_topology t = { .n = 0 };
    for (int twin = 0; twin < (twins ? 2 : 1); twin++)
        for (int c = 0; c < 4 * sockets; c++) {
            t.cpu[t.n] = twin * 4 * sockets + c;
            t.socket[t.n] = c / 4;
            t.core[t.n++] = c % 4;
        }
    return t;
}

/* "0 1 | 2 3" of all ranks */
static void expect_shares(const td_topology *t, const char *mode, int ranks, const char *want)
{
    td_affinity a;
    char text[256] = "";
    expect_ok(td_affinity_parse(mode, &a));
    for (int r = 0; r < ranks; r++) {
        int cpus[TD_CPUS_MAX], n;
        expect_ok(td_affinity_choose(t, a, r, ranks, cpus, &n));
        for (int i = 0; i < n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
                     i   ? " "
                     : r ? " | "
                         : "",
                     cpus[i]);
    }
    assert_string_equal(text, want);
}

static void ranks_share_as_their_mode_says(void **state)
{
    (void)state;
    const td_topology two = machine(2, false), twins = machine(1, true);
    expect_shares(&two, "none", 2, "0 1 2 3 4 5 6 7 | 0 1 2 3 4 5 6 7");
    expect_shares(&two, "socket", 4, "0 1 2 3 | 0 1 2 3 | 4 5 6 7 | 4 5 6 7");
    expect_shares(&two, "socket_single", 4, "0 | 0 | 4 | 4");
    expect_shares(&two, "single", 4, "0 | 0 | 4 | 4");
    expect_shares(&two, "socket_single_unique", 4, "0 | 1 | 4 | 5");
    expect_shares(&two, "socket_unique_interleaved", 4, "0 2 | 1 3 | 4 6 | 5 7");
    expect_shares(&two, "socket_unique_contiguous", 4, "0 1 | 2 3 | 4 5 | 6 7");
    expect_shares(&two, "unique_contiguous", 3, "0 1 | 2 3 | 4 5 6 7"); /* a rank and a half each */
    expect_shares(&two, "socket_unique_contiguous", 1, "0 1 2 3");
    expect_shares(&twins, "socket_unique_contiguous", 2, "0 4 1 5 | 2 6 3 7");
    expect_shares(&twins, "socket_unique_interleaved", 2, "0 4 2 6 | 1 5 3 7");
    expect_shares(&twins, "socket_single_unique", 2, "0 | 1");
}

static void too_many_ranks_are_refused(void **state)
{
    (void)state;
    const td_topology t = machine(1, true), none = { .n = 0 };
    td_affinity a;
    int cpus[TD_CPUS_MAX], n;
    for (int m = TD_AFFINITY_SINGLE_UNIQUE; m <= TD_AFFINITY_CONTIGUOUS; m++)
        expect_error(td_affinity_choose(&t, (td_affinity)m, 0, 5, cpus, &n), TD_EARG,
                     "5 ranks on a socket of 4 cores");
    expect_ok(td_affinity_choose(&t, TD_AFFINITY_SOCKET, 4, 5, cpus, &n));
    assert_int_equal(n, 8);
    expect_error(td_affinity_choose(&none, TD_AFFINITY_SOCKET, 0, 1, cpus, &n), TD_EARG,
                 "0 processors");
    expect_error(td_affinity_choose(&t, TD_AFFINITY_SOCKET, 2, 2, cpus, &n), TD_EARG,
                 "rank 2 of 2");
    expect_error(td_affinity_parse("sockets", &a), TD_EUSAGE, "'sockets'");
    expect_error(td_affinity_parse("", &a), TD_EUSAGE, "affinity '', wanted");
}

static void this_machine_is_understood(void **state)
{
    (void)state;
    static td_topology t;
    int cpus[TD_CPUS_MAX], n;
    cpu_set_t set;
    expect_ok(td_topology_here(&t));
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(t.n, CPU_COUNT(&set));
    expect_ok(td_affinity_choose(&t, TD_AFFINITY_SINGLE, 0, 1, cpus, &n));
    assert_int_equal(n, 1);
    expect_ok(td_affinity_apply(cpus, n));
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(CPU_COUNT(&set), 1);
    assert_true(CPU_ISSET((size_t)cpus[0], &set));
    expect_ok(td_topology_here(&t)); /* what is not allowed is not counted */
    assert_int_equal(t.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_as_their_mode_says),
        cmocka_unit_test(too_many_ranks_are_refused),
        cmocka_unit_test(this_machine_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
