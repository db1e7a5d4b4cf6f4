/*
 * test_rank_env.c -- whose rank a process is, as launchers, mpirun and srun say; Slurm's host
 * lists
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/rank_env.h"
#include "support/expect.h"

/* "NAME=value" texts, NULL at the end */
static const char *from_list(void *ctx, const char *name)
{
    const char *const *list = ctx;
    const size_t n = strlen(name);
    for (int i = 0; list[i]; i++)
        if (strncmp(list[i], name, n) == 0 && list[i][n] == '=')
            return list[i] + n + 1;
    return NULL;
}

static td_status detect(const char *const *list, td_rank_place *out)
{
    return td_ranks_detect(from_list, (void *)(uintptr_t)list, out);
}

#define ENV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void launchers_are_understood(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                         "MASTER_ADDR=node7", "MASTER_PORT=29500", "TANDEM_TOKEN=abc"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_LAUNCH);
    assert_int_equal(p.rank, 3);
    assert_int_equal(p.size, 4);
    assert_int_equal(p.local_rank, 1);
    assert_int_equal(p.local_size, 2);
    assert_string_equal(p.addr, "node7");
    assert_int_equal(p.port, 29500);
    assert_string_equal(p.token, "abc");
    assert_int_equal(p.listen_fd, -1);
    expect_ok(detect(
        ENV("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1", "TANDEM_LISTEN_FD=5"), &p));
    assert_int_equal(p.listen_fd, 5);
    assert_int_equal(p.local_size, 0);
}

static void mpirun_is_understood(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8",
                         "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_MPI);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 8);
    assert_int_equal(p.local_size, 4);
    expect_ok(detect(ENV("PMI_RANK=2", "PMI_SIZE=3"), &p));
    assert_int_equal(p.by, TD_RANKS_MPI);
    assert_int_equal(p.rank, 2);
}

static void srun_is_understood(void **state)
{
    (void)state;
    td_rank_place p, q;
    expect_ok(
        detect(ENV("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=16", "SLURM_LOCALID=1",
                   "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=gpu[003-006]"),
               &p));
    assert_int_equal(p.by, TD_RANKS_SLURM);
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.size, 16);
    assert_int_equal(p.local_rank, 1);
    assert_string_equal(p.addr, "gpu003");
    assert_in_range(p.port, 1024, 65535);
    expect_ok(detect(ENV("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=16", "SLURM_JOB_ID=4711",
                         "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=gpu[003-006]"),
                     &q));
    assert_int_equal(p.port, q.port); /* the same for all tasks */
    expect_ok(detect(
        ENV("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "MASTER_ADDR=n", "MASTER_PORT=77"), &q));
    assert_string_equal(q.addr, "n");
    assert_int_equal(q.port, 77);
    /* a batch script inside an allocation is no step of several tasks */
    expect_ok(detect(ENV("SLURM_PROCID=0", "SLURM_NTASKS=16"), &q));
    assert_int_equal(q.size, 1);
    expect_error(detect(ENV("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"), &q), TD_EUSAGE,
                 "SLURM_STEP_NODELIST");
}

static void alone_without_or_with_one(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("PATH=/bin"), &p));
    assert_int_equal(p.by, TD_RANKS_ALONE);
    assert_int_equal(p.size, 1);
    expect_ok(detect(ENV("RANK=0", "WORLD_SIZE=1"), &p));
    assert_int_equal(p.by, TD_RANKS_ALONE);
    expect_ok(detect(ENV("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"), &p));
    assert_int_equal(p.size, 1);
    expect_ok(detect(ENV("WORLD_SIZE=4"), &p)); /* somebody else's variable */
    assert_int_equal(p.size, 1);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    td_rank_place p;
    expect_error(detect(ENV("RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"), &p),
                 TD_EUSAGE, "RANK is '2', wanted 0 .. 1");
    expect_error(detect(ENV("RANK=x", "WORLD_SIZE=2"), &p), TD_EUSAGE, "RANK is 'x'");
    expect_error(detect(ENV("RANK=0", "WORLD_SIZE=0"), &p), TD_EUSAGE, "WORLD_SIZE is '0'");
    expect_error(detect(ENV("RANK=0", "WORLD_SIZE=2"), &p), TD_EUSAGE, "MASTER_ADDR is not set");
    expect_error(detect(ENV("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"), &p), TD_EUSAGE,
                 "MASTER_PORT is not set");
    expect_error(detect(ENV("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=0"), &p),
                 TD_EUSAGE, "MASTER_PORT is '0'");
    expect_error(detect(ENV("OMPI_COMM_WORLD_SIZE=2"), &p), TD_EUSAGE,
                 "OMPI_COMM_WORLD_RANK is not set");
}

static void hosts_are_found_in_lists(void **state)
{
    (void)state;
    char host[16];
    static const struct {
        const char *list, *first;
    } rows[] = { { "gpu[003-007,9],login1", "gpu003" },
                 { "node1", "node1" },
                 { "a,b", "a" },
                 { "n[12]", "n12" },
                 { "rack2-n[7,9]", "rack2-n7" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(td_first_host(rows[i].list, host, sizeof host));
        assert_string_equal(host, rows[i].first);
    }
    assert_false(td_first_host("", host, sizeof host));
    assert_false(td_first_host("[1-2]", host, sizeof host));
    assert_false(td_first_host("n[", host, sizeof host));
    assert_false(td_first_host("n[12", host, sizeof host));
    assert_false(td_first_host("averyveryverylongname", host, sizeof host));
    assert_false(td_first_host("eleven-long[12345]", host, sizeof host));
}

static void ranks_are_counted_over_machines(void **state)
{
    (void)state;
    /* the reference: world = nnodes nproc, rank = nproc node_rank + local */
    assert_int_equal(td_rank_of(0, 8, 0), 0);
    assert_int_equal(td_rank_of(0, 8, 7), 7);
    assert_int_equal(td_rank_of(3, 8, 2), 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_understood),
        cmocka_unit_test(mpirun_is_understood),
        cmocka_unit_test(srun_is_understood),
        cmocka_unit_test(alone_without_or_with_one),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(hosts_are_found_in_lists),
        cmocka_unit_test(ranks_are_counted_over_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
