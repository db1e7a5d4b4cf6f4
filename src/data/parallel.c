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
} crowd;

typedef struct {
    crowd *all;
    int i;
    td_thread thread;
    td_status st; /* status of item `at`, at which this worker stopped */
    int64_t at;
    char *error;
} helper;

static void help(void *arg)
{
    helper *h = arg;
    crowd *c = h->all;
    for (;;) {
        int64_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n)
            return;
        h->st = c->fn(c->ctx, h->i, i);
        if (h->st == TD_OK)
            continue;
        h->at = i;
        h->error = td_copy_text(td_error_message());
        atomic_store(&c->next, c->n); /* no worker begins another item */
        return;
    }
}

static td_status first_failure(const helper *helpers, int n)
{
    const helper *first = NULL;
    for (int i = 0; i < n; i++) {
        if (helpers[i].st != TD_OK && (!first || helpers[i].at < first->at))
            first = &helpers[i];
    }
    if (!first)
        return TD_OK;
    return td_error_set(first->st, first->error ? first->error : td_status_text(first->st));
}

td_status td_parallel(int64_t n, int threads, td_item_fn *fn, void *ctx)
{
    crowd all = { .fn = fn, .ctx = ctx, .n = n };
    if (threads > n)
        threads = n > 0 ? (int)n : 1;
    helper *helpers = td_alloc((size_t)threads, sizeof *helpers);
    if (!helpers)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (int i = 0; i < threads && st == TD_OK; i++) {
        helpers[i].all = &all;
        helpers[i].i = i;
        st = td_thread_start(&helpers[i].thread, "data", help, &helpers[i]);
    }
    if (st != TD_OK)
        atomic_store(&all.next, n);
    for (int i = 0; i < threads; i++)
        td_thread_join(&helpers[i].thread);
    if (st == TD_OK)
        st = first_failure(helpers, threads);
    for (int i = 0; i < threads; i++)
        td_free(helpers[i].error);
    td_free(helpers);
    return st;
}
