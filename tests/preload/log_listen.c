/*
 * log_listen.c -- LD_PRELOAD: appends a line to $LISTEN_LOG for every socket that a process makes a
 * listening one, and for those that it inherited
 *
 *   PID inherited INODE -        open and listening when the process started
 *   PID program INODE OBJECT     by code of the program or of a library that it is linked with
 *   PID loaded INODE OBJECT      by code of a library that was loaded later, such as an MPI
 *
 * OBJECT is the path of the program or library whose code called listen(), which the kernel's
 * tables do not have.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

enum { OBJECTS_MAX = 256, FDS_MAX = 1024, LINE_BYTES = 4096 };

static int (*real_listen)(int, int);
static ElfW(Addr) first[OBJECTS_MAX]; /* where the objects of the start are mapped */
static int n_first;

static void note(const char *kind, int fd, const char *object)
{
    char line[LINE_BYTES];
    struct stat s;
    const char *path = getenv("LISTEN_LOG");
    const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0 || fstat(fd, &s) != 0)
        _exit(125); /* a test without its log must not pass */
    const int n = snprintf(line, sizeof line, "%d %s %lu %s\n", (int)getpid(), kind,
                           (unsigned long)s.st_ino, object);
    if (n < 0 || n >= (int)sizeof line || write(file, line, (size_t)n) != n)
        _exit(125);
    close(file);
}

static int keep_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    if (n_first < OBJECTS_MAX)
        first[n_first++] = info->dlpi_addr;
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    *(void **)&real_listen = dlsym(RTLD_NEXT, "listen");
    dl_iterate_phdr(keep_object, NULL);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        int is_listening = 0;
        socklen_t n = sizeof is_listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n) == 0 && is_listening)
            note("inherited", fd, "-");
    }
}

VISIBLE int listen(int fd, int backlog)
{
    Dl_info info;
    struct link_map *map = NULL;
    const char *kind = "loaded";
    const int code = real_listen(fd, backlog);
    if (code != 0)
        return code;
    if (!dladdr1(__builtin_return_address(0), &info, (void **)&map, RTLD_DL_LINKMAP) || !map) {
        note("program", fd, "unknown");
        return code;
    }
    for (int i = 0; i < n_first; i++)
        if (first[i] == map->l_addr)
            kind = "program";
    note(kind, fd, info.dli_fname);
    return code;
}
