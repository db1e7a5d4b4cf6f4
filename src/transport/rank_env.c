/*
 * rank_env.c -- reads rank and size from the environment
 */
#include "transport/rank_env.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

enum { SIZE_MAX_RANKS = 4096 };

typedef struct {
    const char *(*get)(void *ctx, const char *name);
    void *ctx;
} environment;

static const char *value_of(const environment *e, const char *name)
{
    const char *v = e->get(e->ctx, name);
    return v && *v ? v : NULL;
}

static td_status read_int(const environment *e, const char *name, int min, int max, int *out)
{
    int64_t n;
    const char *v = value_of(e, name);
    if (!v)
        return td_error(TD_EUSAGE, "environment: %s is not set, but related variables are", name);
    if (!td_text_to_int(v, &n) || n < min || n > max)
        return td_error(TD_EUSAGE, "environment: %s is '%.40s', wanted %d .. %d", name, v, min,
                        max);
    *out = (int)n;
    return TD_OK;
}

/* an optional variable: if unset, *out is unchanged */
static td_status maybe_int(const environment *e, const char *name, int min, int max, int *out)
{
    return value_of(e, name) ? read_int(e, name, min, max, out) : TD_OK;
}

/* rank and size under these names */
static td_status read_pair(const environment *e, const char *rank, const char *size,
                           td_rank_place *out)
{
    TD_TRY(read_int(e, size, 1, SIZE_MAX_RANKS, &out->size));
    return read_int(e, rank, 0, out->size - 1, &out->rank);
}

static td_status read_locals(const environment *e, const char *rank, const char *size,
                             td_rank_place *out)
{
    TD_TRY(maybe_int(e, size, 1, SIZE_MAX_RANKS, &out->local_size));
    return maybe_int(e, rank, 0, SIZE_MAX_RANKS - 1, &out->local_rank);
}

static td_status detect_launch(const environment *e, td_rank_place *out)
{
    out->by = TD_RANKS_LAUNCH;
    out->fds = value_of(e, TD_ENV_RANK_FDS);
    TD_TRY(read_pair(e, "RANK", "WORLD_SIZE", out));
    return read_locals(e, "LOCAL_RANK", "LOCAL_WORLD_SIZE", out);
}

static td_status detect_open_mpi(const environment *e, td_rank_place *out)
{
    out->by = TD_RANKS_OPENMPI;
    TD_TRY(read_pair(e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out));
    return read_locals(e, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", out);
}

/* the count on node `node` of "2(x3),1": two on each of three nodes, one on the fourth; 0: none */
static int tasks_on_node(const char *list, int node)
{
    for (const char *s = list; *s;) {
        char *end;
        long times = 1;
        const long count = strtol(s, &end, 10);
        if (end == s || count < 1 || count > SIZE_MAX_RANKS)
            return 0;
        if (end[0] == '(' && end[1] == 'x') {
            s = end + 2;
            times = strtol(s, &end, 10);
            if (end == s || *end != ')' || times < 1 || times > SIZE_MAX_RANKS)
                return 0;
            end++;
        }
        if (*end && *end != ',')
            return 0;
        if (node < times)
            return (int)count;
        node -= (int)times;
        s = end + (*end == ',');
    }
    return 0;
}

/*
 * The place on this machine of a rank that is a task of srun.  The tasks are not the ranks where an
 * mpirun has started its helpers by srun.
 */
static td_status read_slurm_locals(const environment *e, td_rank_place *out)
{
    int n_tasks = 0, node = -1;
    TD_TRY(maybe_int(e, "SLURM_STEP_NUM_TASKS", 1, INT_MAX, &n_tasks));
    if (n_tasks != out->size || out->local_size > 0)
        return TD_OK;
    TD_TRY(maybe_int(e, "SLURM_LOCALID", 0, SIZE_MAX_RANKS - 1, &out->local_rank));
    TD_TRY(maybe_int(e, "SLURM_NODEID", 0, INT_MAX, &node));
    const char *list = value_of(e, "SLURM_STEP_TASKS_PER_NODE");
    if (list && node >= 0)
        out->local_size = tasks_on_node(list, node);
    return TD_OK;
}

static td_status detect_mpich(const environment *e, td_rank_place *out)
{
    out->by = TD_RANKS_MPICH;
    TD_TRY(read_pair(e, "PMI_RANK", "PMI_SIZE", out));
    TD_TRY(read_locals(e, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", out));
    return read_slurm_locals(e, out);
}

/* tasks of srun: the MPI that started them shows in the variables of its process manager */
static td_status detect_slurm(const environment *e, td_rank_place *out)
{
    TD_TRY(read_pair(e, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", out));
    if (out->size == 1)
        return TD_OK;
    TD_TRY(read_slurm_locals(e, out));
    out->by = value_of(e, "PMIX_RANK") ? TD_RANKS_PMIX : TD_RANKS_MPICH;
    if (!value_of(e, "PMIX_RANK") && !value_of(e, "PMI_FD"))
        return td_error(TD_EUSAGE,
                        "srun started %d tasks without MPI: use 'srun --mpi=pmix' (Open MPI) or "
                        "'srun --mpi=pmi2' (MPICH); 'srun --mpi=list' shows what there is",
                        out->size);
    return TD_OK;
}

/* the variables of torchrun and of the reference's launcher: nothing connects such ranks */
static td_status refuse_others(const environment *e, td_rank_place *out)
{
    TD_TRY(read_pair(e, "RANK", "WORLD_SIZE", out));
    if (out->size == 1)
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "environment: RANK and WORLD_SIZE name rank %d of %d, but nothing connects the "
                    "ranks: start them with 'tandem launch --nproc N', mpirun or srun",
                    out->rank, out->size);
}

td_status td_ranks_detect(const char *(*get)(void *ctx, const char *name), void *ctx,
                          td_rank_place *out)
{
    const environment e = { get, ctx };
    td_status st = TD_OK;
    *out = (td_rank_place){ .size = 1 };
    if (value_of(&e, TD_ENV_RANK_FDS))
        st = detect_launch(&e, out);
    else if (value_of(&e, "OMPI_COMM_WORLD_SIZE"))
        st = detect_open_mpi(&e, out);
    else if (value_of(&e, "PMI_RANK") && value_of(&e, "PMI_SIZE"))
        st = detect_mpich(&e, out); /* before srun: under Slurm, MPICH's mpirun starts by srun */
    else if (value_of(&e, "SLURM_PROCID") && value_of(&e, "SLURM_STEP_NUM_TASKS"))
        st = detect_slurm(&e, out);
    else if (value_of(&e, "RANK") && value_of(&e, "WORLD_SIZE"))
        st = refuse_others(&e, out);
    if (out->size == 1) {
        out->by = TD_RANKS_ALONE;
        out->rank = out->local_rank = 0;
    }
    return st;
}

void td_ranks_blame(int rank)
{
    const char *v = getenv(TD_ENV_CULPRIT_FD);
    struct stat s;
    int64_t fd;
    if (rank < 0 || !v || !td_text_to_int(v, &fd) || fd < 3 || fd > 1 << 20)
        return;
    if (fstat((int)fd, &s) == 0 && S_ISFIFO(s.st_mode))
        (void)!write((int)fd, &rank, sizeof rank);
}

static const char *from_process(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

td_status td_ranks_here(td_rank_place *out)
{
    return td_ranks_detect(from_process, NULL, out);
}

int td_ranks_sharing(void)
{
    td_rank_place place;
    if (!getenv(TD_ENV_SHARED_BATCH))
        return 1;
    if (td_ranks_here(&place) == TD_OK)
        return place.size;
    td_error_clear(); /* td_join reports it */
    return 1;
}
