/*
 * comm/mpi_plugin.h -- the interface of libtandem_mpi.so, and its use
 *
 * Under mpirun the environment does not name rank 0's address: MPI broadcasts it.  Everything else
 * works as without MPI: our own connections, which notice a lost rank, and shared memory on one
 * machine.  The library is loaded only when there are several ranks, so the program runs without
 * MPI installed.
 */
#ifndef TD_COMM_MPI_PLUGIN_H
#define TD_COMM_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/rank_env.h"

#define TD_MPI_PLUGIN_VERSION 1
#define TD_MPI_PLUGIN_SYMBOL  "td_mpi_plugin_v1"

/** Calls return NULL, or an error message. */
typedef struct {
    int version;
    const char *name; /* "Open MPI v4.1.4, ..." once it is open */
    const char *(*open)(int *rank, int *size);
    const char *(*broadcast)(void *data, size_t n); /* rank 0's */
    void (*close)(void);                            /* all ranks, in peace */
} td_mpi_plugin;

/**
 * Fill place->addr, port, token and rank 0's listen_fd for a process that mpirun started.
 * TD_ENOTFOUND: there is no libtandem_mpi.so here; TD_EDEVICE: an MPI error.
 */
TD_CHECKED td_status td_mpi_join(td_rank_place *place);

/** At the end of a run that went well; does nothing if td_mpi_join was not called. */
void td_mpi_leave(void);

/** For doctor: is the library there?  Its path, or why not. */
bool td_mpi_find(char *text, size_t room);

#endif
