/* test_json.c -- reading, walking, typed readers, limits, failing memory */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "support/leaks.h"

static td_json *parse(const char *text)
{
    td_json *doc;
    td_status st = td_json_parse(text, strlen(text), "t.json", &doc);
    if (st != TD_OK)
        fail_msg("%s", td_error_message());
    return doc;
}

static void check_bad(const char *text, size_t n, const char *message)
{
    td_json *doc = (td_json *)(void *)&doc;
    assert_int_equal(td_json_parse(text, n, "t.json", &doc), TD_EFORMAT);
    assert_null(doc);
    if (!strstr(td_error_message(), message))
        fail_msg("'%s' is not in '%s'", message, td_error_message());
}

static void every_kind_is_read(void **state)
{
    (void)state;
    td_json *doc =
        parse("{\"n\": null, \"b\": true, \"i\": -9007199254740993, \"r\": 1.5e3,\n"
              " \"t\": \"gr\\u00fc\\u00df \\ud83d\\ude00\", \"a\": [1, [2]], \"o\": {}}");
    static const td_json_kind kinds[] = { TD_JSON_NULL, TD_JSON_BOOL,  TD_JSON_INT,   TD_JSON_REAL,
                                          TD_JSON_TEXT, TD_JSON_ARRAY, TD_JSON_OBJECT };
    assert_int_equal(td_json_kind_of(doc), TD_JSON_OBJECT);
    assert_int_equal(td_json_count(doc), 7);
    static const char order[] = "nbirtao";
    for (size_t i = 0; i < 7; i++) {
        const char key[2] = { order[i], '\0' };
        assert_string_equal(td_json_key(doc, i), key);
        assert_ptr_equal(td_json_member(doc, i), td_json_get(doc, key));
        assert_int_equal(td_json_kind_of(td_json_member(doc, i)), kinds[i]);
    }
    bool flag = false;
    int64_t whole;
    double real;
    const char *text;
    assert_int_equal(td_json_bool(doc, "b", &flag), TD_OK);
    assert_true(flag);
    assert_int_equal(td_json_int(doc, "i", &whole), TD_OK);
    assert_true(whole == INT64_C(-9007199254740993));
    assert_int_equal(td_json_number(doc, "i", &real), TD_OK);
    assert_true(real == -9007199254740992.0);
    assert_int_equal(td_json_number(doc, "r", &real), TD_OK);
    assert_true(real == 1500);
    assert_int_equal(td_json_text(doc, "t", &text), TD_OK);
    assert_string_equal(text, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");

    const td_json *a = td_json_get(doc, "a");
    assert_int_equal(td_json_count(a), 2);
    assert_int_equal(td_json_as_int(td_json_at(a, 0), &whole), TD_OK);
    assert_int_equal(whole, 1);
    assert_int_equal(td_json_as_number(td_json_at(td_json_at(a, 1), 0), &real), TD_OK);
    assert_true(real == 2);
    /* beyond the end, and of the wrong kind */
    assert_null(td_json_at(a, 2));
    assert_null(td_json_at(doc, 0));
    assert_null(td_json_get(doc, "absent"));
    assert_null(td_json_get(a, "x"));
    assert_null(td_json_key(doc, 7));
    assert_null(td_json_member(doc, 7));
    assert_null(td_json_key(a, 0));
    assert_null(td_json_member(a, 0));
    assert_int_equal(td_json_count(td_json_get(doc, "o")), 0);
    assert_int_equal(td_json_count(td_json_get(doc, "i")), 0);
    assert_null(td_json_get(td_json_get(doc, "o"), "x"));
    td_json_free(doc);
    td_json_free(NULL);
}

static void messages_name_the_path(void **state)
{
    (void)state;
    td_json *doc =
        parse("{\"annotations\": [{}, {}, {}, {\"area\": \"big\", \"bbox\": [1, \"x\"]}]}");
    const td_json *a = td_json_at(td_json_get(doc, "annotations"), 3);
    int64_t whole = 5;
    double real = 5;
    const char *text = "kept";
    bool flag = true;
    assert_int_equal(td_json_number(a, "area", &real), TD_EFORMAT);
    assert_string_equal(td_error_message(),
                        "t.json: annotations[3].area: found a string, wanted a number");
    assert_int_equal(td_json_as_number(td_json_at(td_json_get(a, "bbox"), 1), &real), TD_EFORMAT);
    assert_string_equal(td_error_message(),
                        "t.json: annotations[3].bbox[1]: found a string, wanted a number");
    assert_int_equal(td_json_int(a, "area", &whole), TD_EFORMAT);
    assert_string_equal(td_error_message(),
                        "t.json: annotations[3].area: found a string, wanted an integer");
    assert_int_equal(td_json_bool(a, "area", &flag), TD_EFORMAT);
    assert_string_equal(td_error_message(),
                        "t.json: annotations[3].area: found a string, wanted true or false");
    assert_int_equal(td_json_text(doc, "annotations", &text), TD_EFORMAT);
    assert_string_equal(td_error_message(), "t.json: annotations: found an array, wanted a string");
    assert_int_equal(td_json_as_text(doc, &text), TD_EFORMAT);
    assert_string_equal(td_error_message(), "t.json: found an object, wanted a string");
    /* absent */
    assert_int_equal(td_json_int(a, "id", &whole), TD_ENOTFOUND);
    assert_string_equal(td_error_message(), "t.json: annotations[3]: 'id' is missing");
    assert_int_equal(td_json_number(a, "id", &real), TD_ENOTFOUND);
    assert_int_equal(td_json_text(a, "id", &text), TD_ENOTFOUND);
    assert_int_equal(td_json_bool(doc, "id", &flag), TD_ENOTFOUND);
    assert_string_equal(td_error_message(), "t.json: 'id' is missing");
    /* a member of what has none */
    assert_int_equal(td_json_int(td_json_get(a, "bbox"), "id", &whole), TD_EFORMAT);
    assert_string_equal(td_error_message(),
                        "t.json: annotations[3].bbox: found an array, wanted an object");
    assert_true(whole == 5 && real == 5 && flag && strcmp(text, "kept") == 0);
    td_json_free(doc);
}

static void a_real_is_no_whole_number(void **state)
{
    (void)state;
    int64_t whole;
    td_json *doc = parse("[1.0, true]");
    assert_int_equal(td_json_as_int(td_json_at(doc, 0), &whole), TD_EFORMAT);
    assert_int_equal(td_json_as_int(td_json_at(doc, 1), &whole), TD_EFORMAT);
    assert_string_equal(td_error_message(), "t.json: [1]: found true or false, wanted an integer");
    td_json_free(doc);
}

#define BAD(text, message) check_bad(text, sizeof text - 1, message)

static void malformed_text_is_refused(void **state)
{
    (void)state;
    BAD("", "t.json: line 1, column 0:");
    BAD("{\"a\": 1,\n \"b\": }", "t.json: line 2, column");
    BAD("{\"a\": 1, \"a\": 2}", "duplicate");
    BAD("[1, 2", "line 1");
    BAD("[1] x", "end of file expected");
    BAD("[01]", "line 1");
    BAD("[\"\xff\"]", "unable to decode byte 0xff");
    BAD("[\"\\ud800\"]", "line 1");
    BAD("[\"\\u0000\"]", "NUL");
    BAD("[\"a\0b\"]", "line 1");
    BAD("[1e999]", "overflow");
    BAD("[123456789012345678901234567890]", "big integer");
    BAD("'x'", "line 1");
    BAD("[NaN]", "line 1");
    BAD("3", "line 1");
    BAD("\"unclosed \\", "line 1");
    BAD("\xFF\xFE[\0]\0", "t.json is UTF-16, wanted UTF-8");
    BAD("\xFE\xFF\0[\0]", "t.json is UTF-16, wanted UTF-8");
}

static void depth_is_limited(void **state)
{
    (void)state;
    char text[200];
    for (int depth = 63; depth <= 66; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth <= 64)
            td_json_free(parse(text));
        else
            check_bad(text, 2 * (size_t)depth, "t.json: line 1, column 65: nested deeper than 64");
    }
    char *deep = td_alloc(1 << 20, 1);
    memset(deep, '[', 1 << 20);
    check_bad(deep, 1 << 20, "nested deeper than 64");
    td_free(deep);
    /* brackets inside strings, behind escaped quotes, do not count */
    char quoted[220] = "[\"\\\"";
    memset(quoted + 4, '{', 200);
    memcpy(quoted + 204, "\\\\\"]", 5);
    td_json *doc = parse(quoted);
    assert_int_equal(td_json_count(doc), 1);
    td_json_free(doc);
}

static void large_objects_find_every_key(void **state)
{
    (void)state;
    for (int n = 7; n <= 500; n += n < 12 ? 1 : 163) {
        td_text t = { 0 };
        for (int i = 0; i < n; i++) /* not in the order of the keys */
            td_text_add(&t, "%s\"k%d\": %d", i ? ", " : "{", i * 7919 % 1000, i);
        td_text_add(&t, "}");
        td_json *doc = parse(td_text_get(&t));
        assert_int_equal(td_json_count(doc), n);
        for (int i = 0; i < n; i++) {
            char key[24];
            int64_t v;
            snprintf(key, sizeof key, "k%d", i * 7919 % 1000);
            assert_string_equal(td_json_key(doc, (size_t)i), key);
            assert_int_equal(td_json_int(doc, key, &v), TD_OK);
            assert_int_equal(v, i);
        }
        assert_null(td_json_get(doc, "k"));
        assert_null(td_json_get(doc, ""));
        assert_null(td_json_get(doc, "zzz"));
        td_json_free(doc);
        td_text_release(&t);
    }
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_text_add(&t, "{\"categories\": [");
    for (int i = 0; i < 3000; i++) /* enough for several chunks of the arenas */
        td_text_add(&t, "%s{\"id\": %d, \"name\": \"thing %d\", \"size\": 0.5}", i ? "," : "", i,
                    i);
    td_text_add(
        &t, "], \"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8}");
    assert_int_equal(td_text_status(&t), TD_OK);
    int64_t live = td_alloc_live();
    td_status st = TD_ENOMEM;
    int n = 0;
    while (st != TD_OK) {
        td_json *doc = NULL;
        td_alloc_fail_at(++n);
        st = td_json_parse(t.data, t.len, "t.json", &doc);
        td_alloc_fail_at(0);
        assert_int_equal(doc != NULL, st == TD_OK);
        if (st != TD_OK) {
            assert_int_equal(st, TD_ENOMEM);
            assert_non_null(strstr(td_error_message(), "cannot allocate"));
        }
        td_json_free(doc);
        assert_int_equal(td_alloc_live(), live);
    }
    assert_true(n > 5);
    td_text_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(every_kind_is_read),
        leak_checked_test(messages_name_the_path),
        leak_checked_test(a_real_is_no_whole_number),
        leak_checked_test(malformed_text_is_refused),
        leak_checked_test(depth_is_limited),
        leak_checked_test(large_objects_find_every_key),
        leak_checked_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
