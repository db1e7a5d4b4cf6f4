/* ctest: labels threads */
/*
 * test_gather.c -- what images came to, gathered by rank 0 in the order of the data set
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"
#include "comm/gather.h"
#include "support/allocations.h"
#include "support/ranks.h"

/* in a rank's body: leave with the line where something is wrong */
#define WANT(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return __LINE__ % 120 + 1;                                                             \
    } while (0)

enum { BATCH = 2 };

/* what an image comes to: "17: 17 17 17", longer or shorter, every fourth nothing */
static td_status add_image(td_gather *s, int64_t sample)
{
    char text[32];
    TD_TRY(td_gather_begin(s, sample));
    for (int k = 0; k < sample % 4; k++) {
        snprintf(text, sizeof text, "%d ", (int)sample);
        TD_TRY(td_gather_put(s, text, strlen(text)));
    }
    return TD_OK;
}

/* as the loader deals n images: batches of two, one rank after the other; 5 cannot be read */
static td_status add_share(td_gather *s, int n, int rank, int world)
{
    for (int i = 0; i < n; i++)
        if (i / BATCH % world == rank && i != 5)
            TD_TRY(add_image(s, i));
    return TD_OK;
}

static int gather_all(const td_rank_place *place, void *ctx)
{
    const int n = *(const int *)ctx;
    td_comm *c;
    td_gather own = { 0 }, all = { 0 };
    WANT(td_comm_open(place, NULL, &c) == TD_OK);
    WANT(add_share(&all, n, 0, 1) == TD_OK);
    for (int round = 0; round < 2; round++) { /* it can be used again */
        td_gather_clear(&own);
        WANT(add_share(&own, n, place->rank, place->size) == TD_OK);
        WANT(td_gather_run(&own, c) == TD_OK);
        if (place->rank > 0) {
            WANT(own.n == 0 && own.n_bytes == 0);
            continue;
        }
        WANT(own.n == all.n && own.n_bytes == all.n_bytes);
        for (size_t i = 0; i < all.n; i++) {
            WANT(own.images[i].sample == all.images[i].sample);
            WANT(own.images[i].n_bytes == all.images[i].n_bytes);
        }
        WANT(all.n_bytes == 0 || memcmp(own.bytes, all.bytes, all.n_bytes) == 0);
    }
    td_gather_release(&own);
    td_gather_release(&all);
    td_comm_close(c, TD_OK);
    return 0;
}

static void gathered_samples_are_as_one_ranks(void **state)
{
    (void)state;
    const int sizes[] = { 0, 1, 3, 7, 101 }; /* fewer than ranks, too */
    int codes[5];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int world = 2; world <= 5; world += 3) {
            int n = sizes[i];
            td_test_ranks(world, gather_all, &n, codes);
            for (int r = 0; r < world; r++)
                assert_int_equal(codes[r], 0);
        }
}

static void one_rank_keeps_what_it_has(void **state)
{
    (void)state;
    td_gather s = { 0 };
    assert_int_equal(add_share(&s, 9, 0, 1), TD_OK);
    assert_int_equal(td_gather_run(&s, NULL), TD_OK);
    assert_int_equal(s.n, 8);
    assert_int_equal(s.images[7].sample, 8);
    assert_memory_equal(s.bytes, "1 2 2 3 3 3 6 6 7 7 7 ", s.n_bytes);
    td_gather_clear(&s);
    assert_int_equal(s.n, 0);
    td_gather_release(&s);
}

static td_status add_one_share(void)
{
    td_gather s = { 0 };
    const td_status st = add_share(&s, 40, 0, 1);
    td_gather_release(&s);
    return st;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    td_test_allocations(add_one_share, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathered_samples_are_as_one_ranks),
        cmocka_unit_test(one_rank_keeps_what_it_has),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
