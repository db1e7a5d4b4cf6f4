/*
 * mpi_plugin.c -- finds and loads an MPI plug-in
 */
#include "transport/mpi_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TD_PRIVATE_DIR
#define TD_PRIVATE_DIR "../lib/tandem" /* from the program to where it is installed */
#endif

enum { PATH_BYTES = 600 };

static const char *const openmpi = "libtandem_mpi_openmpi.so";
static const char *const mpich = "libtandem_mpi_mpich.so";

/* searches the program's folder, the installed folder, then the system's path */
static void *open_library(const char *name, char *path)
{
    static const char *const places[] = { "%.*s/%s", "%.*s/" TD_PRIVATE_DIR "/%s",
                                          "%.*s/../lib/tandem/%s" };
    char exe[PATH_BYTES - 100];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, PATH_BYTES, places[i], (int)(slash - exe), exe, name);
        if (access(path, R_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    snprintf(path, PATH_BYTES, "%s", name);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* srun --mpi=pmix starts both; Open MPI is the one that usually is built with PMIx */
static void *open_any(td_ranks_by by, char *path)
{
    const char *named = getenv("TANDEM_MPI_PLUGIN");
    if (named) {
        snprintf(path, PATH_BYTES, "%s", named);
        return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    if (by == TD_RANKS_MPICH)
        return open_library(mpich, path);
    void *library = open_library(openmpi, path);
    return library || by != TD_RANKS_PMIX ? library : open_library(mpich, path);
}

td_status td_mpi_plugin_load(td_ranks_by by, const td_mpi_plugin **out)
{
    char path[PATH_BYTES];
    void *library = open_any(by, path);
    if (!library)
        return td_error(TD_ENOTFOUND,
                        "several ranks were started by MPI, but its plug-in cannot be loaded (%s): "
                        "build with the headers of %s installed (scripts/setup --mpi), or use "
                        "'tandem launch' on one machine",
                        dlerror(), by == TD_RANKS_MPICH ? "MPICH" : "Open MPI");
    const td_mpi_plugin *p = dlsym(library, TD_MPI_PLUGIN_SYMBOL);
    if (!p || p->version != TD_MPI_PLUGIN_VERSION)
        return td_error(TD_ENOTFOUND, "'%s' was built for another version of this program", path);
    *out = p;
    return TD_OK;
}

bool td_mpi_is_installed(td_ranks_by by)
{
    char path[PATH_BYTES];
    void *library = open_any(by, path);
    if (library)
        dlclose(library);
    return library != NULL;
}

bool td_mpi_find(char *text, size_t room)
{
    const char *const names[] = { openmpi, mpich };
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_BYTES];
        void *library = open_library(names[i], path);
        if (!library)
            continue;
        const int n = snprintf(text + used, room - used, "%s%s", used ? ", " : "", path);
        used = n > 0 && (size_t)n < room - used ? used + (size_t)n : room - 1;
        dlclose(library);
    }
    if (used == 0)
        snprintf(text, room, "no %s, no %s", openmpi, mpich);
    return used > 0;
}
