/*
 * transport/mpi_plugin.h -- the interface of the MPI plug-ins, and loading them
 *
 * A plug-in is a small library linked with one MPI: libtandem_mpi_openmpi.so with Open MPI,
 * libtandem_mpi_mpich.so with MPICH, whose ABI Intel MPI and Cray MPICH share.  The one that
 * started the ranks is loaded, and only when there are several, so the program runs without MPI.
 */
#ifndef TD_TRANSPORT_MPI_PLUGIN_H
#define TD_TRANSPORT_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/transport.h"

#define TD_MPI_PLUGIN_VERSION 2
#define TD_MPI_PLUGIN_SYMBOL  "td_mpi_plugin_v2"

typedef struct {
    int rank, size;
    bool is_concurrent;  /* MPI_THREAD_MULTIPLE was granted: abort may be called any time */
    const char *library; /* "Open MPI v4.1.4, ..." */
} td_mpi_world;

/**
 * Calls return NULL, or an error message that is valid until the next call.  After `open` one
 * thread at a time makes them, except `abort` in a concurrent world; `close` is the first thread's.
 */
typedef struct {
    int version;
    const char *(*open)(td_mpi_world *out);
    /** One exchange at a time; sizes and offsets are at most INT_MAX. */
    const char *(*begin)(const td_exchange *e);
    const char *(*test)(bool *is_done);
    /**
     * Send a beat to the next rank, or with `is_last` the last one, unless the previous one is
     * still on its way; *has_arrived: one has come from the rank before; *has_left: its last one.
     * is_due false: only receive.
     */
    const char *(*beat)(bool is_due, bool is_last, bool *has_arrived, bool *has_left);
    bool (*is_quiet)(void); /* all beats that were sent have been taken */
    void (*abort)(int code);
    void (*close)(void); /* every rank calls it */
} td_mpi_plugin;

/**
 * Load the plug-in for ranks that `by` has started.  TD_ENOTFOUND: it is not installed, or its MPI
 * is not.
 */
TD_CHECKED td_status td_mpi_plugin_load(td_ranks_by by, const td_mpi_plugin **out);

/** Can the plug-in be loaded? */
bool td_mpi_is_installed(td_ranks_by by);

/** For doctor: the plug-ins that can be loaded; *text: their paths, or why there is none. */
bool td_mpi_find(char *text, size_t room);

#endif
