/*
 * parallel.c -- td_parallel: processes every item of a list once, on several threads
 */
#include "data/parallel.h"

#include <stdatomic.h>

#include "base/text.h"
#include "base/threads.h"

typedef struct {
    td_item_fn *fn;
    void *ctx;
    int64_t n;
    atomic_llong next; /* the next item to begin */
} parallel_loop;

typedef struct {
    parallel_loop *loop;
    int i;
    td_thread thread;
    td_status st; /* status of item `at`, at which this worker stopped */
    int64_t at;
    char *error;
} worker;

static void run_items(void *arg)
{
    worker *w = arg;
    parallel_loop *c = w->loop;
    for (;;) {
        int64_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n)
            return;
        w->st = c->fn(c->ctx, w->i, i);
        if (w->st == TD_OK)
            continue;
        w->at = i;
        w->error = td_copy_text(td_error_message());
        atomic_store(&c->next, c->n); /* no worker begins another item */
        return;
    }
}

static td_status first_failure(const worker *workers, int n)
{
    const worker *first = NULL;
    for (int i = 0; i < n; i++) {
        if (workers[i].st != TD_OK && (!first || workers[i].at < first->at))
            first = &workers[i];
    }
    if (!first)
        return TD_OK;
    return td_error_set(first->st, first->error ? first->error : td_status_text(first->st));
}

td_status td_parallel(int64_t n, int threads, td_item_fn *fn, void *ctx)
{
    parallel_loop loop = { .fn = fn, .ctx = ctx, .n = n };
    if (threads > n)
        threads = n > 0 ? (int)n : 1;
    worker *workers = td_alloc((size_t)threads, sizeof *workers);
    if (!workers)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (int i = 0; i < threads && st == TD_OK; i++) {
        workers[i].loop = &loop;
        workers[i].i = i;
        st = td_thread_start(&workers[i].thread, "data", run_items, &workers[i]);
    }
    if (st != TD_OK)
        atomic_store(&loop.next, n);
    for (int i = 0; i < threads; i++)
        td_thread_join(&workers[i].thread);
    if (st == TD_OK)
        st = first_failure(workers, threads);
    for (int i = 0; i < threads; i++)
        td_free(workers[i].error);
    td_free(workers);
    return st;
}
