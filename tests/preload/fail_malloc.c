/*
 * fail_malloc.c -- LD_PRELOAD: one allocation of the whole process fails, libraries' included
 *
 *   FAIL_AT=N         the N-th allocation returns no memory, the others do
 *   FAIL_COUNT=FILE   at exit the number of allocations goes into FILE
 *
 * Allocations before main do not count, nor those of the program's first start (td_process_setup
 * starts it over), where TANDEM_STARTED is not set yet.  Those of hwloc_topology_load do not
 * either: it (2.9) uses what it was not given.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* glibc's own, beneath the names that are replaced here */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t each);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

static atomic_long n_allocations;
static long fail_at;
static const char *count_file;
static atomic_int is_counting;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_AT");
    if (!getenv("TANDEM_STARTED"))
        return;
    fail_at = at ? atol(at) : 0;
    count_file = getenv("FAIL_COUNT");
    is_counting = 1;
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld\n", (long)n_allocations);
    const int fd = count_file ? open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0 && write(fd, text, (size_t)n) == n)
        close(fd);
}

static _Thread_local int is_in_hwloc;

static int fails(void)
{
    if (!is_counting || is_in_hwloc || atomic_fetch_add(&n_allocations, 1) + 1 != fail_at)
        return 0;
    errno = ENOMEM;
    return 1;
}

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int hwloc_topology_load(void *topology);
VISIBLE int hwloc_topology_load(void *topology)
{
    int (*load)(void *) = NULL;
    *(void **)&load = dlsym(RTLD_NEXT, "hwloc_topology_load");
    is_in_hwloc++;
    const int result = load ? load(topology) : -1;
    is_in_hwloc--;
    return result;
}

VISIBLE void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

VISIBLE void *calloc(size_t n, size_t each)
{
    return fails() ? NULL : __libc_calloc(n, each);
}

VISIBLE void *realloc(void *p, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(p, bytes);
}

VISIBLE void *memalign(size_t align, size_t bytes);
VISIBLE void *memalign(size_t align, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(align, bytes);
}

VISIBLE void *aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(align, bytes);
}

VISIBLE int posix_memalign(void **out, size_t align, size_t bytes)
{
    if (fails())
        return ENOMEM;
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}
