/* test_arena.c -- blocks, arrays that grow, arenas, counters and the failing allocator */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "support/leaks.h"

static void blocks_are_zero_and_aligned(void **state)
{
    (void)state;
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = td_alloc(n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % TD_HOST_ALIGN, 0);
        for (size_t i = 0; i < 3 * n; i++)
            assert_int_equal(p[i], 0);
        if (n > 0)
            memset(p, 0xff, 3 * n);
        td_free(p);
    }
    td_free(NULL);
}

static void counters_count(void **state)
{
    (void)state;
    const int64_t live_before = td_alloc_live();
    const int64_t bytes_before = td_alloc_live_bytes();
    int64_t calls = td_alloc_count();
    void *p = td_alloc(10, 100);
    assert_int_equal(td_alloc_count(), calls + 1);
    assert_int_equal(td_alloc_live(), live_before + 1);
    assert_int_equal(td_alloc_live_bytes(), bytes_before + 1000);
    td_free(p);
    assert_int_equal(td_alloc_live(), live_before);
}

static void overflow_is_an_error(void **state)
{
    (void)state;
    assert_null(td_alloc(SIZE_MAX / 2, 3));
    assert_null(td_alloc(SIZE_MAX, 1));
    assert_null(td_alloc(SIZE_MAX - 100, 1));
    assert_non_null(strstr(td_error_message(), "cannot allocate"));
    size_t v = 0;
    assert_false(td_mul_size(SIZE_MAX / 2 + 1, 2, &v));
    assert_true(td_mul_size(1000, 1000, &v));
    assert_int_equal(v, 1000000);
    assert_false(td_add_size(SIZE_MAX, 1, &v));
    assert_true(td_add_size(SIZE_MAX - 1, 1, &v));
    assert_true(v == SIZE_MAX);
    assert_int_equal(td_round_up(65, 64), 128);
    assert_int_equal(td_round_up(64, 64), 64);
}

static void resizing_keeps_the_content(void **state)
{
    (void)state;
    char *p = td_resize(NULL, 4, 1);
    assert_non_null(p);
    memcpy(p, "abc", 4);
    p = td_resize(p, 1000, 1);
    assert_non_null(p);
    assert_string_equal(p, "abc");
    p = td_resize(p, 2, 1);
    assert_non_null(p);
    assert_memory_equal(p, "ab", 2);
    td_alloc_fail_at(1);
    assert_null(td_resize(p, 4000, 1));
    td_alloc_fail_at(0);
    assert_memory_equal(p, "ab", 2);
    td_free(p);
}

static void reserving_doubles(void **state)
{
    (void)state;
    int *items = NULL;
    size_t cap = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(td_reserve(&items, &cap, (size_t)i + 1, sizeof *items), TD_OK);
        items[i] = i;
    }
    assert_in_range(cap, 1000, 2000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    int *kept = items;
    size_t kept_cap = cap;
    td_alloc_fail_at(1);
    assert_int_equal(td_reserve(&items, &cap, 5000, sizeof *items), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_ptr_equal(items, kept);
    assert_int_equal(cap, kept_cap);
    assert_int_equal(td_reserve(&items, &cap, SIZE_MAX / 8, sizeof *items), TD_ENOMEM);
    assert_int_equal(td_reserve(&items, &cap, SIZE_MAX - 2, sizeof *items), TD_ENOMEM);
    assert_int_equal(cap, kept_cap);
    td_free(items);
}

static td_status allocate(double **p, size_t n)
{
    TD_TRY(TD_ALLOC(*p, n));
    return TD_OK;
}

static void arrays_are_allocated_in_place(void **state)
{
    (void)state;
    double *p = NULL;
    assert_int_equal(allocate(&p, 100), TD_OK);
    for (int i = 0; i < 100; i++)
        assert_true(p[i] == 0);
    td_free(p);
    assert_int_equal(allocate(&p, 0), TD_OK);
    assert_non_null(p);
    td_free(p);
    assert_int_equal(allocate(&p, SIZE_MAX / 4), TD_ENOMEM);
    assert_null(p); /* not the block that was freed */
    assert_string_not_equal(td_error_message(), "");
    td_error_clear();
}

static void arrays_are_copied(void **state)
{
    (void)state;
    const int items[] = { 3, 1, 2 };
    int *copy = td_copy_array(items, 3, sizeof *copy);
    assert_non_null(copy);
    assert_memory_equal(copy, items, sizeof items);
    td_free(copy);
    copy = td_copy_array(NULL, 0, sizeof *copy);
    assert_non_null(copy);
    td_free(copy);
    assert_null(td_copy_array(items, SIZE_MAX / 2, sizeof *items));
    td_error_clear();
}

static void texts_are_freed_together(void **state)
{
    (void)state;
    const int64_t live = td_alloc_live();
    char **texts = td_alloc(3, sizeof *texts);
    assert_non_null(texts);
    texts[0] = td_copy_text("a");
    texts[2] = td_copy_text("b"); /* the second was not reached */
    td_texts_free(texts, 3);
    td_texts_free(NULL, 3);
    assert_int_equal(td_alloc_live(), live);
}

static void texts_are_copied(void **state)
{
    (void)state;
    const char *from = "layer1.0";
    char *copy = td_copy_text(from);
    assert_string_equal(copy, from);
    assert_ptr_not_equal(copy, from);
    td_free(copy);
    td_alloc_fail_at(1);
    assert_null(td_copy_text(from));
}

static void an_arena_gives_many_blocks(void **state)
{
    (void)state;
    const int64_t live_before = td_alloc_live();
    td_arena a;
    td_arena_init(&a);
    unsigned char *blocks[2000];
    for (int i = 0; i < 2000; i++) {
        size_t n = (size_t)(i % 97);
        blocks[i] = td_arena_alloc(&a, n, 2);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < 2 * n; k++)
            assert_int_equal(blocks[i][k], 0);
        if (n > 0)
            memset(blocks[i], i & 0xff, 2 * n);
    }
    for (int i = 0; i < 2000; i++) /* nothing overlaps */
        for (int k = 0; k < 2 * (i % 97); k++)
            assert_int_equal(blocks[i][k], i & 0xff);
    char *large = td_arena_alloc(&a, 1 << 20, 1);
    assert_non_null(large);
    large[(1 << 20) - 1] = 'x';
    assert_string_equal(td_arena_text(&a, "conv1"), "conv1");
    assert_in_range(td_alloc_live() - live_before, 2, 20);
    td_arena_release(&a);
    assert_null(a.head);
    td_arena_release(&a);
}

static void an_arena_can_fail(void **state)
{
    (void)state;
    td_arena a = { 0 };
    td_alloc_fail_at(1);
    assert_null(td_arena_alloc(&a, 1, 1));
    assert_null(td_arena_text(&a, "x"));
    td_alloc_fail_at(0);
    assert_null(td_arena_alloc(&a, SIZE_MAX, 2));
    assert_null(td_arena_alloc(&a, SIZE_MAX / 2 + 1, 1));
    assert_null(td_arena_alloc(&a, SIZE_MAX / 2, 1));
    assert_non_null(td_arena_alloc(&a, 1, 1));
    td_arena_release(&a);
}

static void the_nth_call_fails_and_all_after(void **state)
{
    (void)state;
    void *p[4];
    td_alloc_fail_at(3);
    for (int i = 0; i < 4; i++) {
        p[i] = td_alloc(1, 8);
        assert_int_equal(p[i] != NULL, i < 2);
    }
    assert_string_equal(td_error_message(), "cannot allocate 8 bytes");
    td_alloc_fail_at(0);
    for (int i = 0; i < 2; i++)
        td_free(p[i]);
    assert_false(td_alloc_refused());
    td_alloc_fail_at(1);
    assert_true(td_alloc_refused());
}

static void other_memory_is_noted(void **state)
{
    (void)state;
    const int64_t live_before = td_alloc_live();
    const int64_t bytes_before = td_alloc_live_bytes();
    td_alloc_note(1, 4096);
    assert_int_equal(td_alloc_live(), live_before + 1);
    assert_int_equal(td_alloc_live_bytes(), bytes_before + 4096);
    td_alloc_note(-1, -4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(blocks_are_zero_and_aligned),
        leak_checked_test(counters_count),
        leak_checked_test(overflow_is_an_error),
        leak_checked_test(resizing_keeps_the_content),
        leak_checked_test(reserving_doubles),
        leak_checked_test(arrays_are_allocated_in_place),
        leak_checked_test(arrays_are_copied),
        leak_checked_test(texts_are_copied),
        leak_checked_test(texts_are_freed_together),
        leak_checked_test(an_arena_gives_many_blocks),
        leak_checked_test(an_arena_can_fail),
        leak_checked_test(the_nth_call_fails_and_all_after),
        leak_checked_test(other_memory_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
