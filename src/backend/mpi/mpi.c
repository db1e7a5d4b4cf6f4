/*
 * mpi.c -- libtandem_mpi.so: gets rank, size and rank 0's address from MPI
 *
 * All calls come from one thread, the program's first.  A run that fails does not call close():
 * mpirun then ends the remaining processes.
 */
#include <mpi.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi_plugin.h"

static char text[MPI_MAX_ERROR_STRING];
static char library[MPI_MAX_LIBRARY_VERSION_STRING];

/* MPI's error text for a return code; NULL for success */
static const char *said(int code)
{
    int n;
    if (code == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    return text;
}

#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        const char *wrong_ = said(call);                                                           \
        if (wrong_)                                                                                \
            return wrong_;                                                                         \
    } while (0)

static const char *open_world(int *rank, int *size)
{
    int has, n;
    MPI_TRY(MPI_Initialized(&has));
    if (!has)
        MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &n));
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Get_library_version(library, &n));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, size));
    return NULL;
}

static const char *broadcast(void *data, size_t n)
{
    if (n > INT_MAX)
        return "the message is too large to broadcast";
    MPI_TRY(MPI_Bcast(data, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD));
    return NULL;
}

static void close_world(void)
{
    (void)MPI_Finalize();
}

/* loaded by its name, TD_MPI_PLUGIN_SYMBOL */
extern const td_mpi_plugin td_mpi_plugin_v1;

__attribute__((visibility("default"))) const td_mpi_plugin td_mpi_plugin_v1 = {
    .version = TD_MPI_PLUGIN_VERSION,
    .name = library,
    .open = open_world,
    .broadcast = broadcast,
    .close = close_world,
};
