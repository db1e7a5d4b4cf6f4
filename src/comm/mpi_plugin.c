/*
 * mpi_plugin.c -- loads the MPI plug-in and gets rank 0's address by it
 */
#include "comm/mpi_plugin.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libtandem_mpi.so"
#ifndef TD_PRIVATE_DIR
#define TD_PRIVATE_DIR "../lib/tandem" /* from the program to where it is installed */
#endif

static const td_mpi_plugin *opened; /* between td_mpi_join and td_mpi_leave */

/* --- the library ------------------------------------------------------------------------------ */

/* searches the program's folder, the installed folder, then the system's path */
static void *open_library(char *path, size_t room)
{
    static const char *const places[] = { "%.*s/" LIBRARY, "%.*s/" TD_PRIVATE_DIR "/" LIBRARY,
                                          "%.*s/../lib/tandem/" LIBRARY };
    char exe[512];
    const char *named = getenv("TANDEM_MPI_PLUGIN");
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    void *library = NULL;
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/');
    if (named) {
        snprintf(path, room, "%s", named);
        return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    for (size_t i = 0; slash && !library && i < sizeof places / sizeof *places; i++) {
        snprintf(path, room, places[i], (int)(slash - exe), exe);
        library = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    }
    if (library)
        return library;
    snprintf(path, room, "%s", LIBRARY);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static td_status load(const td_mpi_plugin **out)
{
    char path[600];
    void *library = open_library(path, sizeof path);
    if (!library)
        return td_error(TD_ENOTFOUND,
                        "mpirun started several ranks, but %s cannot be loaded (%s): build with "
                        "MPI's headers installed, or use 'tandem launch'",
                        LIBRARY, dlerror());
    const td_mpi_plugin *p = dlsym(library, TD_MPI_PLUGIN_SYMBOL);
    if (!p || p->version != TD_MPI_PLUGIN_VERSION)
        return td_error(TD_ENOTFOUND, "'%s' was built for another version of this program", path);
    *out = p;
    return TD_OK;
}

bool td_mpi_find(char *text, size_t room)
{
    char path[600];
    void *library = open_library(path, sizeof path);
    snprintf(text, room, "%s", library ? path : "no " LIBRARY);
    if (library)
        dlclose(library);
    return library != NULL;
}

/* --- rank 0's address ------------------------------------------------------------------------- */

typedef struct {
    char addr[64];
    int port;
    char token[65];
} announcement;

/* an address that other machines can reach: the first that is not a loopback */
static void find_own_address(char *out, size_t room)
{
    struct ifaddrs *list;
    snprintf(out, room, "127.0.0.1");
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        struct sockaddr_in at;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&at, i->ifa_addr, sizeof at);
        if (ntohl(at.sin_addr.s_addr) >> 24 == 127)
            continue;
        (void)inet_ntop(AF_INET, &at.sin_addr, out, (socklen_t)room);
        break;
    }
    freeifaddrs(list);
}

static td_status announce(td_rank_place *place, announcement *a)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    unsigned char bytes[16];
    const char *named = getenv("MASTER_ADDR");
    const bool is_one_machine = place->local_size == place->size;
    if (named && strlen(named) < sizeof a->addr)
        snprintf(a->addr, sizeof a->addr, "%s", named);
    else if (is_one_machine)
        snprintf(a->addr, sizeof a->addr, "127.0.0.1");
    else
        find_own_address(a->addr, sizeof a->addr);
    at.sin_addr.s_addr = htonl(is_one_machine && !named ? INADDR_LOOPBACK : INADDR_ANY);
    place->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (place->listen_fd < 0 || bind(place->listen_fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(place->listen_fd, place->size + 8) != 0 ||
        getsockname(place->listen_fd, (struct sockaddr *)&at, &n) != 0)
        return td_error_errno(TD_EDEVICE, "ranks: cannot listen");
    a->port = ntohs(at.sin_port);
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_errno(TD_EIO, "cannot read random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(a->token + 2 * i, 3, "%02x", bytes[i]);
    return TD_OK;
}

td_status td_mpi_join(td_rank_place *place)
{
    const td_mpi_plugin *p;
    announcement a = { .port = 0 };
    TD_TRY(load(&p));
    const char *wrong = p->open(&place->rank, &place->size);
    if (wrong)
        return td_error(TD_EDEVICE, "MPI: %s", wrong);
    opened = p;
    td_status st = place->rank == 0 ? announce(place, &a) : TD_OK;
    wrong = p->broadcast(&a, sizeof a); /* port 0: rank 0 failed */
    if (wrong)
        return td_error(TD_EDEVICE, "MPI: %s", wrong);
    TD_TRY(st);
    if (a.port == 0)
        return td_error(TD_EDEVICE, "rank 0 cannot listen for connections");
    a.addr[sizeof a.addr - 1] = a.token[sizeof a.token - 1] = '\0';
    snprintf(place->addr, sizeof place->addr, "%s", a.addr);
    snprintf(place->token, sizeof place->token, "%s", a.token);
    place->port = a.port;
    return TD_OK;
}

void td_mpi_leave(void)
{
    if (opened)
        opened->close();
    opened = NULL;
}
