/*
 * threads.c -- starts POSIX threads; the queue is a ring buffer under one lock
 *
 *   items:  [ . . x x x x . . ]      head = oldest, n items, capacity fixed
 */
#include "base/threads.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/signals.h"

#define NAME_BYTES 16 /* the kernel's limit, with the NUL */

typedef struct {
    void (*run)(void *);
    void *ctx;
    char name[NAME_BYTES];
} start;

static void *thread_main(void *arg)
{
    start s = *(start *)arg;
    td_free(arg);
    pthread_setname_np(pthread_self(), s.name);
    s.run(s.ctx);
    return NULL;
}

td_status td_thread_start(td_thread *t, const char *name, void (*run)(void *), void *ctx)
{
    *t = (td_thread){ 0 };
    start *s = TD_NEW(start);
    if (!s)
        return TD_ENOMEM;
    s->run = run;
    s->ctx = ctx;
    strncpy(s->name, name, NAME_BYTES - 1);

    sigset_t before; /* the new thread inherits the mask */
    td_signals_block(&before);
    int failed = pthread_create(&t->id, NULL, thread_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        td_free(s);
        return td_error(TD_ELIMIT, "cannot start thread '%s': %s", name, strerror(failed));
    }
    t->is_running = true;
    return TD_OK;
}

void td_thread_join(td_thread *t)
{
    if (!t->is_running)
        return;
    TD_CHECK(pthread_join(t->id, NULL) == 0);
    t->is_running = false;
}

void td_thread_be_nice(int steps)
{
    /* on Linux, priorities belong to threads, and a thread is addressed like a process */
    id_t self = (id_t)gettid();
    int now = getpriority(PRIO_PROCESS, self);
    (void)setpriority(PRIO_PROCESS, self, now + steps);
}

/* --- the queue ------------------------------------------------------------------------------- */

struct td_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    void **items; /* guarded by lock, like all below */
    size_t head, n;
    size_t capacity; /* constant */
    bool is_closed;
};

td_status td_queue_new(size_t capacity, td_queue **out)
{
    *out = NULL;
    if (capacity == 0)
        return td_error(TD_EARG, "a queue has a capacity of 0 items, wanted 1 or more");
    td_queue *q = TD_NEW(td_queue);
    if (!q)
        return TD_ENOMEM;
    q->items = td_alloc(capacity, sizeof *q->items);
    if (!q->items) {
        td_free(q);
        return TD_ENOMEM;
    }
    q->capacity = capacity;
    TD_CHECK(pthread_mutex_init(&q->lock, NULL) == 0); /* cannot fail with default attributes */
    TD_CHECK(pthread_cond_init(&q->not_full, NULL) == 0);
    TD_CHECK(pthread_cond_init(&q->not_empty, NULL) == 0);
    *out = q;
    return TD_OK;
}

void td_queue_free(td_queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_mutex_destroy(&q->lock);
    td_free(q->items);
    td_free(q);
}

bool td_queue_push(td_queue *q, void *item)
{
    TD_CHECK(item != NULL); /* pop returns NULL for "closed" */
    pthread_mutex_lock(&q->lock);
    while (q->n == q->capacity && !q->is_closed)
        pthread_cond_wait(&q->not_full, &q->lock);
    bool is_open = !q->is_closed;
    if (is_open) {
        q->items[(q->head + q->n++) % q->capacity] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return is_open;
}

void td_queue_return(td_queue *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    TD_CHECK(q->n < q->capacity);
    q->head = (q->head + q->capacity - 1) % q->capacity;
    q->items[q->head] = item;
    q->n++;
    pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

/* the oldest item or NULL; the lock is held */
static void *pop_locked(td_queue *q)
{
    if (q->n == 0)
        return NULL;
    void *item = q->items[q->head];
    q->head = (q->head + 1) % q->capacity;
    q->n--;
    pthread_cond_signal(&q->not_full);
    return item;
}

void *td_queue_pop(td_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->is_closed)
        pthread_cond_wait(&q->not_empty, &q->lock);
    void *item = pop_locked(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *td_queue_try_pop(td_queue *q)
{
    pthread_mutex_lock(&q->lock);
    void *item = pop_locked(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *td_queue_pop_until(td_queue *q, int64_t until_ns)
{
    struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    int failed = 0;
    pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->is_closed && failed == 0)
        failed = pthread_cond_clockwait(&q->not_empty, &q->lock, CLOCK_MONOTONIC, &until);
    void *item = pop_locked(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void td_queue_close(td_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->is_closed = true;
    pthread_cond_broadcast(&q->not_full);
    pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

size_t td_queue_length(td_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}
