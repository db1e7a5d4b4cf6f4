/*
 * comm/rank_env.h -- this process's rank and the number of ranks, from the environment
 *
 *     tandem launch, torchrun and the like   RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
 *     mpirun (Open MPI, MPICH, Intel)        OMPI_COMM_WORLD_RANK ..., PMI_RANK PMI_SIZE
 *     srun                                   SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID
 *
 * Without any of them, or with a size of 1, the process is the only rank.
 */
#ifndef TD_COMM_RANK_ENV_H
#define TD_COMM_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum { TD_RANKS_ALONE, TD_RANKS_LAUNCH, TD_RANKS_MPI, TD_RANKS_SLURM } td_ranks_by;

typedef struct {
    td_ranks_by by;
    int rank, size;
    int local_rank, local_size; /* on this machine; size 0: unknown */
    char addr[256];             /* rank 0's address; "" if MPI provides it */
    int port;
    int listen_fd;  /* rank 0: its listening socket, made by `launch`; -1: none */
    char token[65]; /* a secret shared by the ranks of the run */
} td_rank_place;

/** Variables that `tandem launch` sets in addition to RANK etc. */
#define TD_ENV_LISTEN_FD "TANDEM_LISTEN_FD"
#define TD_ENV_TOKEN     "TANDEM_TOKEN"

/**
 * A pipe to the launcher: a rank that fails because of another one writes that rank's number, an
 * int, so that the launcher can name the cause instead of the first rank that noticed.
 */
#define TD_ENV_CULPRIT_FD "TANDEM_CULPRIT_FD"

/** Write `rank` to the launcher's pipe, if there is one.  Never blocks; nothing can fail. */
void td_ranks_blame(int rank);

/**
 * Read the environment through `get` (getenv; another function in tests).  TD_EUSAGE: a variable is
 * not a number, out of range, or a related one is missing.
 */
TD_CHECKED td_status td_ranks_detect(const char *(*get)(void *ctx, const char *name), void *ctx,
                                     td_rank_place *out);

/** From this process's own environment. */
TD_CHECKED td_status td_ranks_here(td_rank_place *out);

/** The rank among nodes that each have `nproc` ranks, as in the reference's multiproc. */
static inline int td_rank_of(int node_rank, int nproc, int local_rank)
{
    return node_rank * nproc + local_rank;
}

/**
 * The first name of a list as Slurm writes it: "gpu[003-007,9],login1" -> "gpu003".  false: `room`
 * is too small or the list is malformed.
 */
bool td_first_host(const char *list, char *out, size_t room);

#endif
