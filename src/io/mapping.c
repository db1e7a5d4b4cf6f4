/*
 * mapping.c -- maps files, and handles SIGBUS in them
 *
 *     SIGBUS at an address  ->  in a mapping of the table?  ->  map a zero page, record the failure
 *                               if not: call the previous handler
 *
 * The handler runs in the thread that touched the page and returns to the same instruction.  It
 * reads only a table of atomics.  To publish an entry, its address is stored last; to withdraw it,
 * its address is cleared first.
 */
#include "io/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "io/blob.h"

typedef struct {
    atomic_uintptr_t at; /* 0: free, or not published yet */
    atomic_size_t n;
    atomic_bool is_taken, is_broken;
} entry;

static entry table[TD_MAPPINGS_MAX];
static struct sigaction before_us;
static size_t page_size; /* sysconf is not async-signal-safe */

struct td_mapping {
    char *path;
    void *at;
    size_t n;
    entry *e;
};

/* --- the handler ------------------------------------------------------------------------------ */

static bool map_zero_page(uintptr_t address)
{
    for (size_t i = 0; i < TD_MAPPINGS_MAX; i++) {
        const uintptr_t at = atomic_load(&table[i].at);
        if (!at || address < at || address - at >= atomic_load(&table[i].n))
            continue;
        void *page = (void *)(address & ~(uintptr_t)(page_size - 1));
        atomic_store(&table[i].is_broken, true);
        return mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
               MAP_FAILED;
    }
    return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const int kept = errno;
    if (map_zero_page((uintptr_t)info->si_addr)) {
        errno = kept;
        return;
    }
    if (before_us.sa_flags & SA_SIGINFO)
        before_us.sa_sigaction(sig, info, context);
    else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN)
        before_us.sa_handler(sig);
    else
        sigaction(SIGBUS, &before_us,
                  NULL); /* the instruction faults again and the old handler runs */
}

/* a handler set since the last call becomes the previous handler */
static void install(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction now, ours = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&lock);
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_sigbus) {
        before_us = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&lock);
}

/* --- the table -------------------------------------------------------------------------------- */

static entry *take_entry(void)
{
    install();
    for (size_t i = 0; i < TD_MAPPINGS_MAX; i++)
        if (!atomic_exchange(&table[i].is_taken, true)) {
            atomic_store(&table[i].is_broken, false);
            return &table[i];
        }
    return NULL;
}

static void release_entry(entry *e)
{
    if (!e)
        return;
    atomic_store(&e->at, 0);
    atomic_store(&e->is_taken, false);
}

/* --- files ------------------------------------------------------------------------------------ */

static td_status map_file(td_mapping *m, const td_blob *file)
{
    if (file->n_bytes > SIZE_MAX / 2)
        return td_error(TD_ELIMIT, "cannot map '%s': %" PRIu64 " bytes is too large", m->path,
                        file->n_bytes);
    m->n = (size_t)file->n_bytes;
    if (m->n == 0)
        return TD_OK;
    m->e = take_entry();
    if (!m->e)
        return td_error(TD_ELIMIT, "cannot map '%s': %d files are already mapped", m->path,
                        TD_MAPPINGS_MAX);
    if (td_alloc_refused())
        return TD_ENOMEM;
    void *at = mmap(NULL, m->n, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (at == MAP_FAILED)
        return td_error_errno(errno == ENOMEM ? TD_ENOMEM : TD_EIO, "cannot map '%s'", m->path);
    m->at = at;
    atomic_store(&m->e->n, m->n);
    atomic_store(&m->e->at, (uintptr_t)at);
    return TD_OK;
}

td_status td_mapping_open(const char *path, td_mapping **out)
{
    td_status st;
    td_blob file = { .fd = -1 };
    td_mapping *m = TD_NEW(td_mapping);
    *out = NULL;
    if (!m)
        return TD_ENOMEM;
    m->path = td_copy_text(path);
    if (!m->path)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_blob_open(path, &file));
    TD_OUT(map_file(m, &file));
    *out = m;
    m = NULL;
out:
    td_mapping_close(m);
    td_blob_close(&file);
    return st;
}

const void *td_mapping_bytes(const td_mapping *m)
{
    return m->at;
}

size_t td_mapping_size(const td_mapping *m)
{
    return m->n;
}

void td_mapping_will_be_read(const td_mapping *m)
{
    if (m->at)
        (void)madvise(m->at, m->n,
                      MADV_POPULATE_READ); /* fails in older kernels: pages are read on access */
}

td_status td_mapping_check(const td_mapping *m)
{
    if (!m->e || !atomic_load(&m->e->is_broken))
        return TD_OK;
    return td_error(TD_EIO,
                    "cannot read '%s' to its end: the file was truncated, or its disk has failed",
                    m->path);
}

void td_mapping_close(td_mapping *m)
{
    if (!m)
        return;
    release_entry(m->e);
    if (m->at)
        TD_CHECK(munmap(m->at, m->n) == 0);
    td_free(m->path);
    td_free(m);
}
