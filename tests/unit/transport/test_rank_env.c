/*
 * test_rank_env.c -- the rank of a process, as `launch`, mpirun and srun set it
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/expect.h"
#include "transport/rank_env.h"

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

static void launch_is_understood(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4",
                         "TANDEM_RANK_FDS=5,6,7,-"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_LAUNCH);
    assert_int_equal(p.rank, 3);
    assert_int_equal(p.size, 4);
    assert_int_equal(p.local_rank, 3);
    assert_int_equal(p.local_size, 4);
    assert_string_equal(p.fds, "5,6,7,-");
    expect_error(detect(ENV("RANK=0", "TANDEM_RANK_FDS=-,5"), &p), TD_EUSAGE, "WORLD_SIZE");
}

static void mpirun_is_understood(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8",
                         "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_OPENMPI);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 8);
    assert_int_equal(p.local_size, 4);
    expect_ok(
        detect(ENV("PMI_RANK=2", "PMI_SIZE=3", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"), &p));
    assert_int_equal(p.by, TD_RANKS_MPICH);
    assert_int_equal(p.rank, 2);
    assert_int_equal(p.size, 3);
    assert_int_equal(p.local_size, 1);
    /* MPICH's mpirun starts its proxies by srun: one task on each machine */
    expect_ok(
        detect(ENV("PMI_RANK=5", "PMI_SIZE=8", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"), &p));
    assert_int_equal(p.by, TD_RANKS_MPICH);
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.size, 8);
}

static void srun_is_understood(void **state)
{
    (void)state;
    td_rank_place p;
    expect_ok(detect(ENV("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=16", "SLURM_LOCALID=1",
                         "PMIX_RANK=5", "PMIX_NAMESPACE=slurm.pmix.4711.0"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_PMIX);
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.size, 16);
    assert_int_equal(p.local_rank, 1);
    expect_ok(detect(ENV("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=16", "PMI_FD=7"), &p));
    assert_int_equal(p.by, TD_RANKS_MPICH);
    expect_ok(detect(ENV("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=16", "SLURM_LOCALID=1",
                         "PMI_RANK=5", "PMI_SIZE=16"),
                     &p));
    assert_int_equal(p.by, TD_RANKS_MPICH);
    assert_int_equal(p.local_rank, 1);
    /* a batch script inside an allocation is no step of several tasks */
    expect_ok(detect(ENV("SLURM_PROCID=0", "SLURM_NTASKS=16"), &p));
    assert_int_equal(p.size, 1);
    expect_error(detect(ENV("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"), &p), TD_EUSAGE,
                 "--mpi=pmix");
}

/* the local rank and size of task 5 of 16, on node `node` of a list of tasks */
static void expect_locals(const char *node, const char *list, int rank, int size)
{
    char at[64], tasks[64];
    td_rank_place p;
    snprintf(at, sizeof at, "SLURM_NODEID=%s", node);
    snprintf(tasks, sizeof tasks, "SLURM_STEP_TASKS_PER_NODE=%s", list);
    expect_ok(detect(ENV("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=16", "SLURM_LOCALID=1",
                         "PMIX_RANK=5", at, tasks),
                     &p));
    assert_int_equal(p.local_rank, rank);
    assert_int_equal(p.local_size, size);
}

static void tasks_of_a_node_are_counted(void **state)
{
    (void)state;
    td_rank_place p;
    expect_locals("0", "16", 1, 16);
    expect_locals("2", "2(x3),10", 1, 2);
    expect_locals("3", "2(x3),10", 1, 10);
    expect_locals("4", "2(x3),10", 1, 0);
    static const char *const odd[] = { "x",     "-2", "2(x",    "2(x0),3",    "2(y3)",
                                       "0(x3)", "2;", "2(x3)4", "99999999999" };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        expect_locals("1", odd[i], 1, 0);
    /* mpirun has started helpers by srun: the place is mpirun's, not the helper's */
    expect_ok(detect(ENV("PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4",
                         "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0",
                         "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=1(x2)"),
                     &p));
    assert_int_equal(p.local_rank, 1);
    assert_int_equal(p.local_size, 4);
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
    expect_error(detect(ENV("RANK=2", "WORLD_SIZE=2", "TANDEM_RANK_FDS=5,-"), &p), TD_EUSAGE,
                 "RANK is '2', wanted 0 .. 1");
    expect_error(detect(ENV("RANK=x", "WORLD_SIZE=2", "TANDEM_RANK_FDS=5,-"), &p), TD_EUSAGE,
                 "RANK is 'x'");
    expect_error(detect(ENV("RANK=0", "WORLD_SIZE=0"), &p), TD_EUSAGE, "WORLD_SIZE is '0'");
    expect_error(detect(ENV("OMPI_COMM_WORLD_SIZE=2"), &p), TD_EUSAGE,
                 "OMPI_COMM_WORLD_RANK is not set");
}

/* torchrun's variables name ranks, and nothing connects them */
static void ranks_without_a_transport_are_refused(void **state)
{
    (void)state;
    td_rank_place p;
    expect_error(detect(ENV("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"), &p),
                 TD_EUSAGE, "rank 1 of 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch_is_understood),
        cmocka_unit_test(mpirun_is_understood),
        cmocka_unit_test(srun_is_understood),
        cmocka_unit_test(tasks_of_a_node_are_counted),
        cmocka_unit_test(alone_without_or_with_one),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(ranks_without_a_transport_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
