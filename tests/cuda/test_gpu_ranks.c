/*
 * test_gpu_ranks.c -- sums over ranks by the plug-in, in a group of one rank: one GPU is enough
 *
 * Of the plug-in that TANDEM_GPU_PLUGIN names, on the stand-in or on a GPU.  What several ranks add
 * is in ranks.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "device/gpu_plugin.h"

enum { COUNT = 1 << 18 };

static float numbers[COUNT], starts[COUNT], found[COUNT];
static uint16_t halves[COUNT], found_halves[COUNT];
static int n_checks;

#define OK(call)                                                                                   \
    do {                                                                                           \
        const char *m_ = (call);                                                                   \
        if (m_)                                                                                    \
            fail_msg("%s: %s", #call, m_);                                                         \
    } while (0)

static const char *all_live(void *ctx)
{
    (void)ctx;
    return NULL;
}

static const char *one_is_lost(void *ctx)
{
    (void)ctx;
    return ++n_checks < 3 ? NULL : "rank 1 was lost";
}

static const char *join(int size, const char *(*check)(void *ctx))
{
    char id[TD_GPU_RANKS_ID];
    OK(td_gpu()->ranks_id(&(td_gpu_ranks_id){ id }));
    return td_gpu()->ranks_join(
        &(td_gpu_ranks_join){ .id = id, .rank = 0, .size = size, .check = check });
}

static void *filled(const void *from, size_t n)
{
    void *p;
    OK(td_gpu()->alloc(n, &p));
    if (from)
        OK(td_gpu()->copy_in(p, from, n));
    return p;
}

/* begins and waits, twice as a second step would; `a` has all but the data and the sum */
static void add(td_gpu_sum_begin a, const void *data, void *result, size_t n)
{
    OK(td_gpu()->sum_new(&(td_gpu_sum_new){ &a.sum }));
    a.count = COUNT;
    a.data = filled(NULL, n);
    for (int step = 0; step < 2; step++) {
        OK(td_gpu()->copy_in(a.data, data, n));
        OK(td_gpu()->sum_begin(&a));
        OK(td_gpu()->sum_wait(&(td_gpu_sum_wait){ a.sum }));
        OK(td_gpu()->copy_out(result, a.data, n));
    }
    td_gpu()->free(a.data);
    OK(td_gpu()->sum_free(&(td_gpu_sum_free){ a.sum }));
}

/* --- tests ------------------------------------------------------------------------------------ */

static void one_rank_in_order_adds_the_start(void **state)
{
    (void)state;
    OK(join(1, all_live));
    float *start = filled(starts, sizeof starts), *others = filled(NULL, sizeof numbers);
    add((td_gpu_sum_begin){ .dtype = TD_DT_F32, .in_order = true, .others = others }, numbers,
        found, sizeof numbers);
    assert_memory_equal(found, numbers, sizeof numbers);
    add(
        (td_gpu_sum_begin){
            .dtype = TD_DT_F32, .in_order = true, .others = others, .start = start },
        numbers, found, sizeof numbers);
    for (int i = 0; i < COUNT; i++)
        if (found[i] != starts[i] + numbers[i])
            fail_msg("number %d is %g, wanted %g", i, (double)found[i],
                     (double)(starts[i] + numbers[i]));
    td_gpu()->free(start);
    td_gpu()->free(others);
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ true }));
}

static void one_rank_in_any_order_changes_nothing(void **state)
{
    (void)state;
    OK(join(1, all_live));
    add((td_gpu_sum_begin){ .dtype = TD_DT_F32 }, numbers, found, sizeof numbers);
    assert_memory_equal(found, numbers, sizeof numbers);
    td_f32_to_f16_n(numbers, COUNT, halves);
    add((td_gpu_sum_begin){ .dtype = TD_DT_F16 }, halves, found_halves, sizeof halves);
    assert_memory_equal(found_halves, halves, sizeof halves);
    td_f32_to_bf16_n(numbers, COUNT, halves);
    add((td_gpu_sum_begin){ .dtype = TD_DT_BF16 }, halves, found_halves, sizeof halves);
    assert_memory_equal(found_halves, halves, sizeof halves);
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ true }));
}

/* the others never come: without the check it would wait for them */
static void a_lost_rank_ends_the_wait(void **state)
{
    (void)state;
    const char *m = join(2, one_is_lost);
    assert_non_null(m);
    assert_non_null(strstr(m, "rank 1 was lost"));
    m = td_gpu()->sync();
    assert_non_null(m);
    assert_non_null(strstr(m, "rank 1 was lost"));
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ false }));
    OK(td_gpu()->sync());
    OK(join(1, all_live)); /* and another group may follow */
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ false }));
}

static void sums_need_a_group(void **state)
{
    (void)state;
    void *sum;
    OK(td_gpu()->sum_new(&(td_gpu_sum_new){ &sum }));
    void *data = filled(numbers, sizeof numbers);
    assert_non_null(td_gpu()->sum_begin(
        &(td_gpu_sum_begin){ .sum = sum, .dtype = TD_DT_F32, .count = COUNT, .data = data }));
    OK(join(1, all_live));
    assert_non_null(td_gpu()->sum_wait(&(td_gpu_sum_wait){ sum })); /* not begun */
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ true }));
    OK(td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ true })); /* nothing to leave */
    td_gpu()->free(data);
    OK(td_gpu()->sum_free(&(td_gpu_sum_free){ sum }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_in_order_adds_the_start),
        cmocka_unit_test(one_rank_in_any_order_changes_nothing),
        cmocka_unit_test(a_lost_rank_ends_the_wait),
        cmocka_unit_test(sums_need_a_group),
    };
    const td_gpu_plugin *plugin;
    if (td_gpu_open(&plugin) != TD_OK) {
        fprintf(stderr, "test_gpu_ranks: %s\n", td_error_message());
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (float)(i % 1001 - 500) / 7;
        starts[i] = (float)(i % 313 - 156) / 3;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
