/*
 * comm/rank_env.h -- which of how many ranks this process is, as whoever started it says
 *
 *     tandem launch, torchrun and the like   RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
 *     mpirun (Open MPI, MPICH, Intel)        OMPI_COMM_WORLD_RANK ..., PMI_RANK PMI_SIZE
 *     srun                                   SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID
 *
 * Without any of them, or with a size of 1, a process is alone.
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
    int local_rank, local_size; /* on this machine; size 0: not told */
    char addr[256];             /* where rank 0 listens; "" where MPI finds it out */
    int port;
    int listen_fd;  /* rank 0: its listening socket, made by `launch`; -1: none */
    char token[65]; /* what every rank of the run knows and nobody else */
} td_rank_place;

/** Variables that `tandem launch` sets beside RANK and its kin. */
#define TD_ENV_LISTEN_FD "TANDEM_LISTEN_FD"
#define TD_ENV_TOKEN     "TANDEM_TOKEN"

/**
 * A pipe to the launcher: a rank that fails because of another one writes that rank's number, an
 * int, so that the launcher can name the cause and not the first to notice.
 */
#define TD_ENV_CULPRIT_FD "TANDEM_CULPRIT_FD"

/** Write `rank` to the launcher's pipe, if there is one.  Never blocks; nothing can fail. */
void td_ranks_blame(int rank);

/**
 * Read the environment through `get` (getenv, in a test something else).  TD_EUSAGE: a variable is
 * no number, out of range, or one that belongs to it is missing.
 */
TD_CHECKED td_status td_ranks_detect(const char *(*get)(void *ctx, const char *name), void *ctx,
                                     td_rank_place *out);

/** From this process's own environment. */
TD_CHECKED td_status td_ranks_here(td_rank_place *out);

/** World of nodes that each have `nproc` ranks, as the reference's multiproc counts. */
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
