/* test_threads.c -- threads start, are named, ignore signals; queues hand over, block and close */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

typedef struct {
    char name[16];
    int n_blocked;
    int nice_before, nice_after;
} seen;

static void look_around(void *ctx)
{
    seen *s = ctx;
    sigset_t set;
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    s->n_blocked = sigismember(&set, SIGINT) + sigismember(&set, SIGTERM) +
                   sigismember(&set, SIGUSR1) + sigismember(&set, SIGALRM);
    s->nice_before = getpriority(PRIO_PROCESS, (id_t)gettid());
    td_thread_be_nice(3);
    s->nice_after = getpriority(PRIO_PROCESS, (id_t)gettid());
}

static void a_thread_runs_and_is_joined(void **state)
{
    (void)state;
    td_thread t, never = { 0 };
    seen s = { .n_blocked = 0 };
    int64_t live = td_alloc_live();
    int own_nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    sigset_t set;
    assert_int_equal(td_thread_start(&t, "a-rather-long-name", look_around, &s), TD_OK);
    td_thread_join(&t);
    assert_false(t.is_running);
    td_thread_join(&t);
    td_thread_join(&never);
    assert_string_equal(s.name, "a-rather-long-n");
    assert_int_equal(s.n_blocked, 4);
    int wanted = s.nice_before + 3 > 19 ? 19 : s.nice_before + 3;
    assert_int_equal(s.nice_after, wanted);
    assert_int_equal(td_alloc_live(), live);
    /* the starting thread is as it was */
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGINT));
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)gettid()), own_nice);
}

static void starting_can_fail(void **state)
{
    (void)state;
    td_thread t = { .is_running = true };
    td_alloc_fail_at(1);
    assert_int_equal(td_thread_start(&t, "x", look_around, NULL), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_false(t.is_running);
    td_thread_join(&t);
}

static void a_queue_needs_room(void **state)
{
    (void)state;
    td_queue *q = (td_queue *)(void *)&q;
    assert_int_equal(td_queue_new(0, &q), TD_EARG);
    assert_null(q);
    int64_t live = td_alloc_live();
    for (int n = 1; n <= 2; n++) {
        q = (td_queue *)(void *)&q;
        td_alloc_fail_at(n);
        assert_int_equal(td_queue_new(4, &q), TD_ENOMEM);
        td_alloc_fail_at(0);
        assert_null(q);
        assert_int_equal(td_alloc_live(), live);
    }
    td_queue_free(NULL);
}

static void items_come_in_order(void **state)
{
    (void)state;
    td_queue *q;
    int items[7];
    assert_int_equal(td_queue_new(3, &q), TD_OK);
    assert_null(td_queue_try_pop(q));
    int64_t until_ns = td_now_ns() + 20000000;
    assert_null(td_queue_pop_until(q, until_ns));
    assert_true(td_now_ns() >= until_ns);
    for (int i = 0; i < 7; i++) {
        assert_true(td_queue_push(q, &items[i]));
        assert_int_equal(td_queue_length(q), i == 0 ? 1 : 2);
        if (i > 0)
            assert_ptr_equal(td_queue_pop(q), &items[i - 1]);
    }
    td_queue_return(q, &items[5]); /* before the item that is there */
    assert_ptr_equal(td_queue_pop(q), &items[5]);
    td_queue_close(q);
    assert_false(td_queue_push(q, &items[0]));
    assert_ptr_equal(td_queue_pop(q), &items[6]); /* closed, but not yet drained */
    assert_null(td_queue_pop(q));
    assert_null(td_queue_try_pop(q));
    td_queue_free(q);
}

/* --- many threads ---------------------------------------------------------------------------- */

enum { N_PRODUCERS = 3, N_CONSUMERS = 3, N_EACH = 2000 };

typedef struct {
    td_queue *q;
    int *items; /* [N_EACH] of this producer */
    atomic_int *n_taken;
} worker;

static void produce(void *ctx)
{
    worker *w = ctx;
    for (int i = 0; i < N_EACH; i++)
        if (!td_queue_push(w->q, &w->items[i]))
            return;
}

static void consume(void *ctx)
{
    worker *w = ctx;
    for (int *item; (item = td_queue_pop(w->q));) {
        *item += 1; /* no lock: each item has one owner */
        atomic_fetch_add(w->n_taken, 1);
    }
}

static void every_item_is_handed_over_once(void **state)
{
    (void)state;
    static int items[N_PRODUCERS][N_EACH];
    td_thread threads[N_PRODUCERS + N_CONSUMERS];
    worker workers[N_PRODUCERS + N_CONSUMERS];
    atomic_int n_taken = 0;
    td_queue *q;
    assert_int_equal(td_queue_new(5, &q), TD_OK);
    for (int i = 0; i < N_PRODUCERS + N_CONSUMERS; i++) {
        bool is_producer = i < N_PRODUCERS;
        workers[i] = (worker){ q, is_producer ? items[i] : NULL, &n_taken };
        assert_int_equal(
            td_thread_start(&threads[i], "worker", is_producer ? produce : consume, &workers[i]),
            TD_OK);
    }
    for (int i = 0; i < N_PRODUCERS; i++)
        td_thread_join(&threads[i]);
    td_queue_close(q);
    for (int i = N_PRODUCERS; i < N_PRODUCERS + N_CONSUMERS; i++)
        td_thread_join(&threads[i]);
    assert_int_equal(n_taken, N_PRODUCERS * N_EACH);
    for (int i = 0; i < N_PRODUCERS; i++)
        for (int k = 0; k < N_EACH; k++)
            assert_int_equal(items[i][k], 1);
    td_queue_free(q);
}

typedef struct {
    td_queue *q;
    bool want_push;
    bool pushed;
    void *popped;
} waiter;

static void wait_on_queue(void *ctx)
{
    waiter *w = ctx;
    if (w->want_push)
        w->pushed = td_queue_push(w->q, w);
    else
        w->popped = td_queue_pop(w->q);
}

static void closing_wakes_those_who_wait(void **state)
{
    (void)state;
    for (int want_push = 0; want_push <= 1; want_push++) {
        td_queue *q;
        td_thread threads[2];
        waiter w[2];
        int item;
        assert_int_equal(td_queue_new(1, &q), TD_OK);
        if (want_push)
            assert_true(td_queue_push(q, &item)); /* full: pushes wait */
        for (int i = 0; i < 2; i++) {
            w[i] = (waiter){ .q = q, .want_push = want_push != 0, .pushed = true, .popped = &item };
            assert_int_equal(td_thread_start(&threads[i], "waiter", wait_on_queue, &w[i]), TD_OK);
        }
        pause_ms(20);
        td_queue_close(q);
        for (int i = 0; i < 2; i++)
            td_thread_join(&threads[i]);
        for (int i = 0; i < 2; i++)
            if (want_push)
                assert_false(w[i].pushed);
            else
                assert_null(w[i].popped);
        assert_int_equal(td_queue_length(q), want_push);
        td_queue_free(q);
    }
}

static void a_full_queue_blocks_until_there_is_room(void **state)
{
    (void)state;
    td_queue *q;
    td_thread t;
    int item;
    assert_int_equal(td_queue_new(1, &q), TD_OK);
    assert_true(td_queue_push(q, &item));
    waiter w = { .q = q, .want_push = true };
    assert_int_equal(td_thread_start(&t, "pusher", wait_on_queue, &w), TD_OK);
    pause_ms(20);
    assert_int_equal(td_queue_length(q), 1);
    assert_ptr_equal(td_queue_pop(q), &item);
    td_thread_join(&t);
    assert_true(w.pushed);
    assert_ptr_equal(td_queue_pop(q), &w);
    td_queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_runs_and_is_joined),
        cmocka_unit_test(starting_can_fail),
        cmocka_unit_test(a_queue_needs_room),
        cmocka_unit_test(items_come_in_order),
        cmocka_unit_test(every_item_is_handed_over_once),
        cmocka_unit_test(closing_wakes_those_who_wait),
        cmocka_unit_test(a_full_queue_blocks_until_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
