/*
 * device_memory.c -- host memory, and guarded memory
 *
 * The regions of guarded memory are in a list.  All are accessible while a kernel runs on any
 * thread, the pages of a copy's bytes while it runs, and nothing otherwise.
 */
#include "device/device_memory.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/machine.h"
#include "options/env_switch.h"

/* --- host memory ------------------------------------------------------------------------------ */

static td_status host_copy(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return TD_OK;
}

static td_status host_fill(void *p, int byte, size_t n)
{
    memset(p, byte, n);
    return TD_OK;
}

/* kernels and copies are finished when they return */
static td_status is_finished(void)
{
    return TD_OK;
}

static void nothing(void)
{
}

/* copies are finished when they return, so every memory is good enough */
static void *host_alloc(size_t n)
{
    return td_alloc(n, 1);
}

static void host_free(void *p, size_t n)
{
    (void)n;
    td_free(p);
}

static td_status has_arrived(int slot)
{
    (void)slot;
    return TD_OK;
}

static td_status host_copy_ahead(int slot, void *to, const void *from, size_t n)
{
    (void)slot;
    memcpy(to, from, n);
    return TD_OK;
}

const td_device_memory td_host_memory = { .name = "host",
                                          .is_host = true,
                                          .alloc = td_pages_alloc,
                                          .free = td_pages_free,
                                          .copy_in = host_copy,
                                          .copy_out = host_copy,
                                          .fill = host_fill,
                                          .host_alloc = host_alloc,
                                          .host_free = host_free,
                                          .queue_in = host_copy,
                                          .queue_out = host_copy,
                                          .wait_ahead = has_arrived,
                                          .send_ahead = host_copy_ahead,
                                          .take_ahead = host_copy_ahead,
                                          .sync = is_finished,
                                          .begin_kernels = nothing,
                                          .end_kernels = nothing };

/* --- guarded memory --------------------------------------------------------------------------- */

enum { PAGE = 1 << 16 }; /* a multiple of every system's page size */

typedef struct region region;
struct region {
    void *p;
    size_t n;
    region *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static region *regions; /* under the lock */
static int n_users;     /* likewise: kernels and copies in progress */

static void protect(void *p, size_t n, bool is_open)
{
    TD_CHECK(mprotect(p, n, is_open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

static void protect_all(bool is_open)
{
    for (const region *r = regions; r; r = r->next)
        protect(r->p, r->n, is_open);
}

static void begin_use(void)
{
    pthread_mutex_lock(&lock);
    if (n_users++ == 0)
        protect_all(true);
    pthread_mutex_unlock(&lock);
}

static void end_use(void)
{
    pthread_mutex_lock(&lock);
    if (--n_users == 0)
        protect_all(false);
    pthread_mutex_unlock(&lock);
}

static void *guarded_alloc(size_t n)
{
    region *r = TD_NEW(region);
    void *p = r ? td_pages_alloc(n) : NULL;
    if (!p) {
        td_free(r);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    *r = (region){ p, n, regions };
    regions = r;
    protect(p, n, n_users > 0);
    pthread_mutex_unlock(&lock);
    return p;
}

static void guarded_free(void *p, size_t n)
{
    pthread_mutex_lock(&lock);
    for (region **at = &regions; *at; at = &(*at)->next)
        if ((*at)->p == p) {
            region *r = *at;
            *at = r->next;
            td_free(r);
            break;
        }
    pthread_mutex_unlock(&lock);
    td_pages_free(p, n);
}

/* the page where `p` begins, which [p, p + n) of one region must follow; under the lock */
static char *page_of(const char *p, size_t n)
{
    const region *r = regions;
    while (r && (p < (char *)r->p || p >= (char *)r->p + r->n))
        r = r->next;
    TD_CHECK(r && n <= (size_t)((char *)r->p + r->n - p));
    const size_t at = (size_t)(p - (char *)r->p);
    return (char *)r->p + at / PAGE * PAGE;
}

/* copies n bytes to or from `guarded`, only whose pages are accessible for this time */
static td_status guarded_copy(void *to, const void *from, size_t n, const char *guarded)
{
    if (n == 0)
        return TD_OK;
    pthread_mutex_lock(&lock);
    char *page = page_of(guarded, n);
    const size_t room = (size_t)(guarded + n - page);
    if (n_users == 0)
        protect(page, room, true);
    memcpy(to, from, n);
    if (n_users == 0)
        protect(page, room, false);
    pthread_mutex_unlock(&lock);
    return TD_OK;
}

static td_status guarded_copy_in(void *to, const void *from_host, size_t n)
{
    return guarded_copy(to, from_host, n, to);
}

static td_status guarded_copy_out(void *to_host, const void *from, size_t n)
{
    return guarded_copy(to_host, from, n, from);
}

static td_status guarded_fill(void *p, int byte, size_t n)
{
    begin_use();
    memset(p, byte, n);
    end_use();
    return TD_OK;
}

static td_status guarded_send_ahead(int slot, void *to, const void *from_host, size_t n)
{
    (void)slot;
    return guarded_copy(to, from_host, n, to);
}

static td_status guarded_take_ahead(int slot, void *to, const void *from, size_t n)
{
    (void)slot;
    begin_use();
    memcpy(to, from, n);
    end_use();
    return TD_OK;
}

const td_device_memory td_guarded_memory = { .name = "guarded",
                                             .alloc = guarded_alloc,
                                             .free = guarded_free,
                                             .copy_in = guarded_copy_in,
                                             .copy_out = guarded_copy_out,
                                             .fill = guarded_fill,
                                             .host_alloc = host_alloc,
                                             .host_free = host_free,
                                             .queue_in = guarded_copy_in,
                                             .queue_out = guarded_copy_out,
                                             .wait_ahead = has_arrived,
                                             .send_ahead = guarded_send_ahead,
                                             .take_ahead = guarded_take_ahead,
                                             .sync = is_finished,
                                             .begin_kernels = begin_use,
                                             .end_kernels = end_use };

td_status td_device_memory_choose(const td_device_memory **out)
{
    bool guards;
    TD_TRY(td_env_switch("TANDEM_GUARD_MEMORY", false, &guards));
    *out = guards ? &td_guarded_memory : &td_host_memory;
    return TD_OK;
}
