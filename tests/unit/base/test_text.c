/* test_text.c -- growing strings, JSON escapes, globs, distances, numbers */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/text.h"

static void texts_grow(void **state)
{
    (void)state;
    td_text t = { 0 };
    assert_string_equal(td_text_get(&t), "");
    td_text_add(&t, "%s=%d", "pad", 1);
    td_text_add(&t, "%s", "");
    td_text_add_bytes(&t, ";xyz", 1);
    assert_string_equal(td_text_get(&t), "pad=1;");
    assert_int_equal(t.len, 6);
    td_text_release(&t);

    char long_text[700];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    for (int i = 0; i < 10; i++)
        td_text_add(&t, "%s", long_text);
    assert_int_equal(t.len, 10 * 699);
    assert_int_equal(strlen(td_text_get(&t)), t.len);
    assert_int_equal(strspn(td_text_get(&t), "a"), t.len);
    assert_int_equal(td_text_status(&t), TD_OK);
    td_text_release(&t);
}

static void the_first_failure_is_kept(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_text_add(&t, "before");
    td_alloc_fail_at(1);
    td_text_add(&t, "%300d", 1);
    td_alloc_fail_at(0);
    assert_int_equal(td_text_status(&t), TD_ENOMEM);
    td_text_add(&t, "after");
    td_text_add_bytes(&t, "x", 1);
    assert_string_equal(td_text_get(&t), "before");
    assert_int_equal(td_text_status(&t), TD_ENOMEM);
    td_text_release(&t);
    assert_int_equal(td_text_status(&t), TD_OK);
}

static void check_json(const char *from, const char *wanted)
{
    td_text t = { 0 };
    td_text_add_json(&t, from);
    assert_string_equal(td_text_get(&t), wanted);
    td_text_release(&t);
}

static void json_is_escaped(void **state)
{
    (void)state;
    check_json("plain", "plain");
    check_json("a\"b\\c", "a\\\"b\\\\c");
    check_json("\n\t\x01\x7f", "\\u000a\\u0009\\u0001\\u007f");
    check_json("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
               "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    check_json("\xff", "\\u00ff");
    check_json("\xc3", "\\u00c3");                                  /* cut off */
    check_json("\xc0\x80", "\\u00c0\\u0080");                       /* too long a form */
    check_json("\xe0\x80\x80", "\\u00e0\\u0080\\u0080");            /* the same */
    check_json("\xed\xa0\x80", "\\u00ed\\u00a0\\u0080");            /* a surrogate */
    check_json("\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"); /* beyond the last */
    assert_true(td_text_is_utf8("gr\xc3\xbc\xc3\x9f"));
    assert_false(td_text_is_utf8("a\xc3"));
}

static void starts_and_ends(void **state)
{
    (void)state;
    assert_true(td_text_starts("conv1.weight", "conv1"));
    assert_true(td_text_starts("x", ""));
    assert_false(td_text_starts("con", "conv1"));
    assert_true(td_text_ends("conv1.weight", ".weight"));
    assert_true(td_text_ends("x", ""));
    assert_false(td_text_ends("weight", "conv1.weight"));
    assert_false(td_text_ends("conv1.bias", ".weight"));
}

static void globs_match(void **state)
{
    (void)state;
    assert_true(td_text_glob("*", ""));
    assert_true(td_text_glob("", ""));
    assert_false(td_text_glob("", "a"));
    assert_true(td_text_glob("a?c", "abc"));
    assert_false(td_text_glob("a?c", "ac"));
    assert_true(td_text_glob("*.conv*", "layer1.0.conv2"));
    assert_true(td_text_glob("*a*b", "aabab"));
    assert_false(td_text_glob("*a*b", "aaba"));
    assert_true(td_text_glob("a**b", "ab"));
    assert_false(td_text_glob("a", "ab"));
    /* no blow-up */
    assert_false(
        td_text_glob("*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void words_of_a_list_are_found(void **state)
{
    (void)state;
    assert_true(td_text_in_list("fuse,layout", "fuse"));
    assert_true(td_text_in_list("fuse,layout", "layout"));
    assert_false(td_text_in_list("fuse,layout", "lay"));
    assert_false(td_text_in_list("fuse,layout", "fuse,layout"));
    assert_false(td_text_in_list("", "fuse"));
    assert_false(td_text_in_list(NULL, "fuse"));
}

static void distances_are_edits(void **state)
{
    (void)state;
    assert_int_equal(td_text_distance("", ""), 0);
    assert_int_equal(td_text_distance("lr", "lr"), 0);
    assert_int_equal(td_text_distance("", "abc"), 3);
    assert_int_equal(td_text_distance("epohcs", "epochs"), 1);
    assert_int_equal(td_text_distance("kitten", "sitting"), 3);
    assert_int_equal(td_text_distance("lrr", "lr"), 1);
    char long_word[100];
    memset(long_word, 'a', 99);
    long_word[99] = '\0';
    assert_true(td_text_distance(long_word, long_word) >= 64);
}

static void what_a_terminal_would_obey_is_visible(void **state)
{
    (void)state;
    const struct {
        const char *in, *out;
        bool keeps_lines;
    } rows[] = {
        { "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \\ '",
          "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \\ '", false },
        { "\033[2J\a\r\x7f", "\\x1b[2J\\x07\\x0d\\x7f", true },
        { "a\nb\tc", "a\\nb\tc", false },
        { "a\nb\tc", "a\nb\tc", true },
        { "\xe9 \xc3 \x80", "\\xe9 \\xc3 \\x80", false },
        { "\xc2\x9b \xc2\xa0", "\\u009b \xc2\xa0", false },
        { "\xe2\x80\xae \xe2\x81\xa6 \xe2\x80\xa8 \xd8\x9c", "\\u202e \\u2066 \\u2028 \\u061c",
          true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_text t = { 0 };
        td_text_add_visible(&t, rows[i].in, rows[i].keeps_lines);
        assert_string_equal(td_text_get(&t), rows[i].out);
        td_text_release(&t);
    }
}

static void integers_are_whole_words(void **state)
{
    (void)state;
    int64_t v = 7;
    assert_true(td_text_to_int("-42", &v));
    assert_int_equal(v, -42);
    assert_true(td_text_to_int("9223372036854775807", &v));
    assert_true(v == INT64_MAX);
    static const char *const bad[] = { "", " 1", "1 ", "1.5", "x", "0x10", "9223372036854775808",
                                       "-" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(td_text_to_int(bad[i], &v));
    assert_true(v == INT64_MAX);
}

static void reals_are_whole_words(void **state)
{
    (void)state;
    double v = 7;
    assert_true(td_text_to_real("1e-5", &v));
    assert_true(v == 1e-5);
    assert_true(td_text_to_real("-.5", &v));
    assert_true(v == -0.5);
    assert_true(td_text_to_real("inf", &v));
    assert_true(isinf(v));
    static const char *const bad[] = { "", " 1", "1 ", "1,5", "nan", "x", "1e", "--1" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(td_text_to_real(bad[i], &v));
    assert_true(isinf(v));
}

static void json_members_are_joined(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_text_add(&t, "{");
    td_json_add_text(&t, "a", "x\"y");
    td_json_add(&t, "b", 0.5);
    td_json_add(&t, "c", NAN);
    td_json_add(&t, "bytes", 11295421500);
    td_json_add_text(&t, "d", NULL);
    td_text_add(&t, "}");
    assert_string_equal(
        td_text_get(&t),
        "{\"a\": \"x\\\"y\", \"b\": 0.5, \"c\": null, \"bytes\": 11295421500, \"d\": null}");
    td_text_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_grow),
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(json_is_escaped),
        cmocka_unit_test(json_members_are_joined),
        cmocka_unit_test(starts_and_ends),
        cmocka_unit_test(globs_match),
        cmocka_unit_test(words_of_a_list_are_found),
        cmocka_unit_test(distances_are_edits),
        cmocka_unit_test(what_a_terminal_would_obey_is_visible),
        cmocka_unit_test(integers_are_whole_words),
        cmocka_unit_test(reals_are_whole_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
