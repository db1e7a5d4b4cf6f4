/*
 * mpi_plugin.c -- finds and loads an MPI plug-in
 */
#include "transport/mpi_plugin.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/plugin.h"

static const char *const openmpi = "libtandem_mpi_openmpi.so";
static const char *const mpich = "libtandem_mpi_mpich.so";

/* srun --mpi=pmix starts both; Open MPI is the one that usually is built with PMIx */
static void *open_any(td_ranks_by by, char *path)
{
    const char *named = getenv("TANDEM_MPI_PLUGIN");
    if (named)
        return td_plugin_open(named, NULL, path);
    if (by == TD_RANKS_MPICH)
        return td_plugin_open(NULL, mpich, path);
    void *library = td_plugin_open(NULL, openmpi, path);
    return library || by != TD_RANKS_PMIX ? library : td_plugin_open(NULL, mpich, path);
}

td_status td_mpi_plugin_load(td_ranks_by by, const td_mpi_plugin **out)
{
    char path[TD_PLUGIN_PATH_BYTES];
    void *library = open_any(by, path);
    if (!library)
        return td_error(TD_ENOTFOUND,
                        "several ranks were started by MPI, but its plug-in cannot be loaded (%s): "
                        "build with the headers of %s installed (scripts/setup --mpi), or use "
                        "'tandem launch' on one machine",
                        td_plugin_error(), by == TD_RANKS_MPICH ? "MPICH" : "Open MPI");
    const td_mpi_plugin *p = td_plugin_symbol(library, TD_MPI_PLUGIN_SYMBOL);
    if (!p || p->version != TD_MPI_PLUGIN_VERSION)
        return td_error(TD_ENOTFOUND, "'%s' was built for another version of this program", path);
    *out = p;
    return TD_OK;
}

bool td_mpi_is_installed(td_ranks_by by)
{
    char path[TD_PLUGIN_PATH_BYTES];
    void *library = open_any(by, path);
    if (library)
        td_plugin_close(library);
    return library != NULL;
}

bool td_mpi_find(char *text, size_t room)
{
    const char *const names[] = { openmpi, mpich };
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[TD_PLUGIN_PATH_BYTES];
        void *library = td_plugin_open(NULL, names[i], path);
        if (!library)
            continue;
        const int n = snprintf(text + used, room - used, "%s%s", used ? ", " : "", path);
        used = n > 0 && (size_t)n < room - used ? used + (size_t)n : room - 1;
        td_plugin_close(library);
    }
    if (used == 0)
        snprintf(text, room, "no %s, no %s", openmpi, mpich);
    return used > 0;
}
