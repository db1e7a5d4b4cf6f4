/* test_map.c -- order, replacing, growth, failing memory */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/map.h"

static void an_empty_map_has_nothing(void **state)
{
    (void)state;
    td_map m = { 0 };
    assert_null(td_map_get(&m, "x"));
    assert_false(td_map_has(&m, "x"));
    td_map_release(&m);
}

static void keys_are_copied_and_values_replaced(void **state)
{
    (void)state;
    td_map m = { 0 };
    int one, two;
    char key[] = "weight";
    assert_int_equal(td_map_set(&m, key, &one), TD_OK);
    key[0] = 'X';
    assert_ptr_equal(td_map_get(&m, "weight"), &one);
    assert_false(td_map_has(&m, key));
    assert_int_equal(td_map_set(&m, "weight", &two), TD_OK);
    assert_int_equal(m.n, 1);
    assert_ptr_equal(td_map_get(&m, "weight"), &two);
    assert_int_equal(td_map_set(&m, "", NULL), TD_OK);
    assert_true(td_map_has(&m, ""));
    assert_null(td_map_get(&m, ""));
    td_map_release(&m);
    assert_int_equal(m.n, 0);
}

static void many_keys_keep_their_order(void **state)
{
    (void)state;
    enum { N = 5000 };
    static int values[N];
    td_map m = { 0 };
    char key[32];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "layer%d.conv", i);
        assert_int_equal(td_map_set(&m, key, &values[i]), TD_OK);
    }
    assert_int_equal(m.n, N);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "layer%d.conv", i);
        assert_string_equal(m.entries[i].key, key);
        assert_ptr_equal(td_map_get(&m, key), &values[i]);
    }
    assert_false(td_map_has(&m, "layer5000.conv"));
    td_map_release(&m);
}

static void the_hash_is_fnv_1a(void **state)
{
    (void)state;
    /* from the authors' test vectors */
    assert_true(td_hash_text("") == UINT64_C(0xcbf29ce484222325));
    assert_true(td_hash_text("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(td_hash_text("foobar") == UINT64_C(0x85944171f73967e8));
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    int64_t live = td_alloc_live();
    for (int64_t n = 1, failed = 1; failed; n++) {
        td_map m = { 0 };
        char key[16];
        int value;
        td_status st = TD_OK;
        td_alloc_fail_at(n);
        for (int i = 0; i < 40 && st == TD_OK; i++) {
            snprintf(key, sizeof key, "k%d", i);
            size_t before = m.n;
            st = td_map_set(&m, key, &value);
            assert_int_equal(m.n, before + (st == TD_OK));
            assert_int_equal(td_map_has(&m, key), st == TD_OK);
        }
        td_alloc_fail_at(0);
        failed = st != TD_OK;
        if (failed) {
            assert_int_equal(st, TD_ENOMEM);
            assert_int_equal(td_map_set(&m, "after", &value), TD_OK);
            assert_ptr_equal(td_map_get(&m, "after"), &value);
        }
        td_map_release(&m);
        assert_int_equal(td_alloc_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_has_nothing),
        cmocka_unit_test(keys_are_copied_and_values_replaced),
        cmocka_unit_test(many_keys_keep_their_order),
        cmocka_unit_test(the_hash_is_fnv_1a),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
