/*
 * compute_thread.c -- a thread that runs functions for other threads, one at a time
 */
#include "inference/compute_thread.h"

#include "base/arena.h"
#include "base/threads.h"

enum { WAITING = 64 }; /* further callers wait for a place */

typedef struct {
    td_status (*fn)(void *ctx);
    void *ctx;
    td_status st;
    char *error;
    bool is_done;
} task;

struct td_compute_thread {
    td_thread thread;
    td_queue *tasks;
    pthread_mutex_t lock; /* of is_done */
    pthread_cond_t done;
};

static void run(void *ctx)
{
    td_compute_thread *c = ctx;
    for (task *t; (t = td_queue_pop(c->tasks));) {
        t->st = t->fn(t->ctx);
        t->error = t->st == TD_OK ? NULL : td_copy_text(td_error_message());
        pthread_mutex_lock(&c->lock);
        t->is_done = true; /* the caller may free the task as soon as it has the lock */
        pthread_cond_broadcast(&c->done);
        pthread_mutex_unlock(&c->lock);
    }
}

td_status td_compute_thread_new(td_compute_thread **out)
{
    *out = NULL;
    td_compute_thread *c = TD_NEW(td_compute_thread);
    if (!c)
        return TD_ENOMEM;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->done, NULL);
    td_status st = td_queue_new(WAITING, &c->tasks);
    if (st == TD_OK)
        st = td_thread_start(&c->thread, "compute", run, c);
    if (st == TD_OK)
        *out = c;
    else
        td_compute_thread_free(c);
    return st;
}

void td_compute_thread_free(td_compute_thread *c)
{
    if (!c)
        return;
    if (c->tasks)
        td_queue_close(c->tasks);
    td_thread_join(&c->thread);
    td_queue_free(c->tasks);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    td_free(c);
}

td_status td_compute_thread_run(td_compute_thread *c, td_status (*fn)(void *ctx), void *ctx)
{
    task t = { .fn = fn, .ctx = ctx };
    if (!td_queue_push(c->tasks, &t))
        return td_error(TD_EARG, "the network has been closed");
    pthread_mutex_lock(&c->lock);
    while (!t.is_done)
        pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (t.st != TD_OK)
        td_error_set(t.st, t.error ? t.error : td_status_text(t.st));
    td_free(t.error);
    return t.st;
}
