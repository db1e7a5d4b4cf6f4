/*
 * transport/mpi_transport.h -- ranks that mpirun or srun has started
 *
 * Exchanges are MPI_Ialltoallv, MPI_Iallgatherv, MPI_Ibcast and MPI_Ibarrier, progressed by the
 * communication thread.  MPI notices ranks that die.  For ranks that hang, each rank sends a beat
 * to the next one every second, on a communicator of its own, and a watchdog thread ends the run
 * when a call of MPI does not return.
 */
#ifndef TD_TRANSPORT_MPI_TRANSPORT_H
#define TD_TRANSPORT_MPI_TRANSPORT_H

#include "transport/transport.h"

/**
 * Initialize MPI.  *out: free it, also after a failure.  TD_ENOTFOUND: no plug-in for this MPI;
 * TD_EDEVICE: an MPI error, or the environment and MPI disagree about the number of ranks.
 */
TD_CHECKED td_status td_mpi_transport_open(const td_rank_place *place,
                                           const td_transport_opts *opts, td_transport **out);

/** Finalize MPI after a run that went well; by the first thread.  Does nothing without MPI. */
void td_mpi_finalize(void);

#endif
