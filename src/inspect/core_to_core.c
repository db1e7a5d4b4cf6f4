/*
 * core_to_core.c -- two threads pass a number to and fro in one cache line
 */
#include "inspect/core_to_core.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/threads.h"

enum { BATCH = 500, LIMIT_NS = 50000000, SPINS = 1000 };

typedef struct {
    _Alignas(64) atomic_int number; /* even: the first thread's turn */
    _Alignas(64) int64_t end;       /* when to stop */
} line;

/* false: it is over */
static bool wait_for_turn(const line *l, int odd)
{
    for (int i = 1; atomic_load_explicit(&l->number, memory_order_acquire) % 2 != odd; i++) {
        if (i % SPINS != 0)
            continue;
        if (td_now_ns() >= l->end)
            return false;
        (void)sched_yield(); /* the other one may be waiting for this processor */
    }
    return true;
}

static void pass_on(line *l)
{
    atomic_fetch_add_explicit(&l->number, 1, memory_order_release);
}

static void answer(void *ctx)
{
    line *l = ctx;
    while (wait_for_turn(l, 1))
        pass_on(l);
}

/* nanoseconds of a batch, to and fro; 0: it is over */
static int64_t run_batch(line *l)
{
    const int64_t start = td_now_ns();
    for (int i = 0; i < BATCH; i++) {
        pass_on(l);
        if (!wait_for_turn(l, 0))
            return 0;
    }
    return td_now_ns() - start;
}

double td_core_to_core_ns(void)
{
    line l = { .end = td_now_ns() + LIMIT_NS };
    td_thread other = { 0 };
    int64_t least = 0;
    if (td_cpu_count() < 2 || td_thread_start(&other, "core_to_core", answer, &l) != TD_OK)
        return 0;
    for (int64_t ns; td_now_ns() < l.end && (ns = run_batch(&l)) > 0;)
        if (least == 0 || ns < least)
            least = ns;
    td_thread_join(&other);
    return (double)least / (2 * BATCH);
}
