/*
 * transport/rank_env.h -- this process's rank and the number of ranks, from the environment
 *
 *     tandem launch                       TANDEM_RANK_FDS RANK WORLD_SIZE LOCAL_RANK
 *     mpirun of Open MPI                  OMPI_COMM_WORLD_RANK ...
 *     mpirun of MPICH, Intel MPI, Cray    PMI_RANK PMI_SIZE
 *     srun --mpi=pmix, --mpi=pmi2         PMIX_RANK or PMI_RANK, and SLURM_PROCID
 *                                         SLURM_STEP_NUM_TASKS SLURM_LOCALID
 *
 * Without any of them, or with a size of 1, the process is the only rank.  Several ranks that were
 * started in another way (srun without MPI, torchrun) are refused: they have no transport.
 */
#ifndef TD_TRANSPORT_RANK_ENV_H
#define TD_TRANSPORT_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum {
    TD_RANKS_ALONE,
    TD_RANKS_LAUNCH,  /* socket pairs */
    TD_RANKS_OPENMPI, /* started by mpirun of Open MPI */
    TD_RANKS_MPICH,   /* by mpirun of MPICH or one with its ABI, or srun --mpi=pmi2 */
    TD_RANKS_PMIX     /* srun --mpi=pmix: either of them */
} td_ranks_by;

typedef struct {
    td_ranks_by by;
    int rank, size;
    int local_rank, local_size; /* on this machine; size 0: unknown */
    const char *fds;            /* LAUNCH: TD_ENV_RANK_FDS, as the environment holds it */
} td_rank_place;

/** The descriptors of a rank's sockets; `tandem launch` sets it, as well as RANK etc. */
#define TD_ENV_RANK_FDS "TANDEM_RANK_FDS"

/**
 * A pipe to the launcher: a rank that fails because of another one writes that rank's number, an
 * int, so that the launcher can name the cause instead of the first rank that noticed.
 */
#define TD_ENV_CULPRIT_FD "TANDEM_CULPRIT_FD"

/** `launch` has bound this rank; the value is the mode. */
#define TD_ENV_AFFINITY_DONE "TANDEM_AFFINITY"

/** The mode that ranks of `launch --hosts` bind themselves by. */
#define TD_ENV_AFFINITY_WANTED "TANDEM_CPU_AFFINITY"

/** Set for ranks among which a job has divided its own batches. */
#define TD_ENV_SHARED_BATCH "TANDEM_SHARED_BATCH"

/** The number of ranks that share each batch of --batch-size images; 1: none. */
int td_ranks_sharing(void);

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

#endif
