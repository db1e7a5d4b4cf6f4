/* test_paths.c -- folders made and listed, paths joined */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/paths.h"
#include "support/allocations.h"
#include "support/leaks.h"
#include "support/scratch.h"

static int enter_scratch(void **state)
{
    (void)state;
    return chdir(td_scratch_folder()) != 0;
}

static void folders_are_made_with_parents(void **state)
{
    (void)state;
    assert_int_equal(td_make_folder("a/b//c/"), TD_OK);
    assert_true(td_path_is_folder("a/b/c"));
    assert_int_equal(td_make_folder("a/b/c"), TD_OK);
    char absolute[4096];
    snprintf(absolute, sizeof absolute, "%s/d/e", td_scratch_folder());
    assert_int_equal(td_make_folder(absolute), TD_OK);
    assert_true(td_path_is_folder("d/e"));
    assert_int_equal(td_make_folder("/"), TD_OK);
    assert_int_equal(td_make_folder(""), TD_EARG);
    assert_int_equal(td_file_write("plain", "", 0), TD_OK);
    assert_int_equal(td_make_folder("plain"), TD_EIO);
    assert_non_null(strstr(td_error_message(), "'plain' is a file, wanted a folder"));
    assert_int_equal(td_make_folder("plain/below"), TD_EIO);
    if (td_path_is_folder("/sys/kernel")) { /* nobody can, and not because it is not there */
        assert_int_equal(td_make_folder("/sys/tandem"), TD_EIO);
        assert_null(strstr(td_error_message(), "No such file"));
    }
    td_alloc_fail_at(1);
    assert_int_equal(td_make_folder("never"), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_false(td_path_exists("never"));
    assert_true(td_path_exists("plain"));
    assert_false(td_path_is_folder("plain"));
}

static void check_join(const char *a, const char *b, const char *wanted)
{
    char *path = td_path_join(a, b);
    assert_string_equal(path, wanted);
    td_free(path);
}

static void paths_are_joined(void **state)
{
    (void)state;
    check_join("a", "b", "a/b");
    check_join("a/", "b", "a/b");
    check_join("/", "b", "/b");
    check_join("", "b", "b");
    check_join("a", "/b", "/b");
    check_join("a", "", "a/");
    td_alloc_fail_at(1);
    assert_null(td_path_join("a", "b"));
    assert_string_equal(td_path_base("a/b.jpg"), "b.jpg");
    assert_string_equal(td_path_base("b.jpg"), "b.jpg");
    assert_string_equal(td_path_base("a/"), "");
}

static void a_folder_is_listed_in_order(void **state)
{
    (void)state;
    td_listing l;
    assert_int_equal(td_make_folder("list/zebra"), TD_OK);
    assert_int_equal(td_make_folder("list/.hidden"), TD_OK);
    assert_int_equal(td_file_write("list/b\xff.jpg", "", 0), TD_OK);
    assert_int_equal(td_file_write("list/B.jpg", "", 0), TD_OK);
    assert_int_equal(symlink("zebra", "list/link"), 0);
    assert_int_equal(symlink("nowhere", "list/broken"), 0);
    assert_int_equal(td_list_folder("list", &l), TD_OK);
    static const char *const names[] = {
        ".hidden", "B.jpg", "broken", "b\xff.jpg", "link", "zebra"
    };
    static const bool folders[] = { true, false, false, false, true, true };
    assert_int_equal(l.n, 6);
    for (size_t i = 0; i < l.n; i++)
        assert_string_equal(l.names[i], names[i]);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(l.is_folder[i], folders[i]);
    td_listing_release(&l);
    td_listing_release(&l);
    assert_int_equal(td_list_folder("list/zebra", &l), TD_OK);
    assert_int_equal(l.n, 0);
    td_listing_release(&l);
}

static td_status list_some(void)
{
    td_listing l;
    const td_status st = td_list_folder("some", &l);
    assert_int_equal(l.n, st == TD_OK);
    if (st == TD_OK)
        td_listing_release(&l);
    return st;
}

static void listing_can_fail(void **state)
{
    (void)state;
    td_listing l = { .n = 9 };
    assert_int_equal(td_list_folder("absent", &l), TD_ENOTFOUND);
    assert_int_equal(l.n, 0);
    assert_int_equal(td_file_write("file", "", 0), TD_OK);
    assert_int_equal(td_list_folder("file", &l), TD_EIO);
    assert_string_equal(td_error_message(), "'file' is not a folder");
    assert_int_equal(td_make_folder("some"), TD_OK);
    assert_int_equal(td_file_write("some/x", "", 0), TD_OK);
    assert_true(td_test_allocations(list_some, 20) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(folders_are_made_with_parents),
        leak_checked_test(paths_are_joined),
        leak_checked_test(a_folder_is_listed_in_order),
        leak_checked_test(listing_can_fail),
    };
    return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
