/* test_json_tokens.c -- JSON a value at a time: what is kept, what is refused, and where */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "io/json_tokens.h"

static td_tokens *parse(const char *text)
{
    td_tokens *t;
    expect_ok(td_tokens_parse(text, strlen(text), "text", &t));
    return t;
}

/* all of a text, skipped; with `keeps` a value at the top is read */
static td_status pass(const char *text, size_t n)
{
    td_tokens *t;
    td_status st;
    TD_TRY(td_tokens_parse(text, n, "text", &t));
    TD_OUT(td_tokens_skip(t));
    TD_OUT(td_tokens_end(t));
out:
    td_tokens_free(t);
    return st;
}

static td_status pass_text(const char *text)
{
    return pass(text, strlen(text));
}

static double number(const char *text)
{
    td_token v;
    td_tokens *t = parse(text);
    expect_ok(td_tokens_value(t, &v));
    assert_int_equal(v.kind, TD_TOKEN_NUMBER);
    expect_ok(td_tokens_end(t));
    td_tokens_free(t);
    return v.number;
}

static void reads_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = { "0",
                                         "-0",
                                         "473.07",
                                         "-17.5e-3",
                                         "1e308",
                                         "1.5E+10",
                                         "0.1",
                                         "12345678901234567890",
                                         "123456789012345.6",
                                         "5e-324",
                                         "2.2250738585072011e-308" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double want = strtod(texts[i], NULL), got = number(texts[i]);
        assert_memory_equal(&want, &got, sizeof want);
    }
    assert_true(isinf(number("1e999")) && number("-1e999") < 0 && number("1e-999") == 0);
    assert_true(isnan(number("NaN")) && number("Infinity") > 1e308 && number("-Infinity") < -1e308);
}

/* random decimals of every length: the quick way is strtod's */
static void numbers_are_nearest(void **state)
{
    (void)state;
    td_rng r = td_rng_make(3, TD_RNG_TEST, 0, 0);
    char text[64];
    for (int i = 0; i < 20000; i++) {
        int before = (int)td_rng_below(&r, 12), behind = 1 + (int)td_rng_below(&r, 12);
        int n = snprintf(text, sizeof text, "%s%d", i % 3 ? "" : "-", 1 + i % 9);
        for (int k = 0; k < before + behind; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", k == before ? "." : "",
                          (int)td_rng_below(&r, 10));
        double want = strtod(text, NULL), got = number(text);
        assert_memory_equal(&want, &got, sizeof want);
    }
}

static void knows_whole_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_whole;
        int64_t whole;
    } cases[] = { { "7", true, 7 },
                  { "-900100012345", true, -900100012345 },
                  { "9223372036854775807", true, INT64_MAX },
                  { "-9223372036854775808", true, INT64_MIN },
                  { "9223372036854775808", false, 0 },
                  { "7.0", false, 0 },
                  { "7e0", false, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_token v;
        td_tokens *t = parse(cases[i].text);
        expect_ok(td_tokens_value(t, &v));
        assert_int_equal(v.is_whole, cases[i].is_whole);
        if (v.is_whole)
            assert_true(v.whole == cases[i].whole);
        td_tokens_free(t);
    }
}

static void reads_texts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "\"\"", "" },
        { "\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\"", "a\"b\\c/d\b\f\n\r\t" },
        { "\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", "A\303\251\342\202\254\360\237\230\200" },
        { "\"\303\251\360\237\230\200\"", "\303\251\360\237\230\200" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_token v;
        td_tokens *t = parse(cases[i][0]);
        expect_ok(td_tokens_value(t, &v));
        assert_int_equal(v.kind, TD_TOKEN_TEXT);
        assert_string_equal(v.text, cases[i][1]);
        td_tokens_free(t);
    }
}

static void utf_16_is_named(void **state)
{
    (void)state;
    static const char *const texts[] = { "\xFF\xFE{\0}\0", "\xFE\xFF\0{\0}" };
    for (int i = 0; i < 2; i++) {
        td_tokens *t;
        expect_error(td_tokens_parse(texts[i], 6, "f.json", &t), TD_EFORMAT,
                     "'f.json' is UTF-16, wanted UTF-8");
        assert_null(t);
    }
}

static void walks_lists_and_objects(void **state)
{
    (void)state;
    const char *key;
    bool more;
    td_token v;
    td_tokens *t =
        parse("\xEF\xBB\xBF {\"a\" : [1, [2, {\"x\": 3}], \"s\"],\n\"b\":{}, \"c\":[]}\n");
    expect_ok(td_tokens_value(t, &v));
    assert_int_equal(v.kind, TD_TOKEN_OBJECT);
    expect_ok(td_tokens_key(t, &key, &more));
    assert_true(more);
    assert_string_equal(key, "a");
    expect_ok(td_tokens_value(t, &v));
    assert_int_equal(v.kind, TD_TOKEN_LIST);
    expect_ok(td_tokens_item(t, &more));
    expect_ok(td_tokens_value(t, &v));
    assert_true(more && v.is_whole && v.whole == 1);
    expect_ok(td_tokens_item(t, &more));
    expect_ok(td_tokens_value(t, &v));
    assert_int_equal(v.kind, TD_TOKEN_LIST);
    expect_ok(td_tokens_leave(t)); /* out of [2, ...] */
    expect_ok(td_tokens_item(t, &more));
    expect_ok(td_tokens_value(t, &v));
    assert_string_equal(v.text, "s");
    expect_ok(td_tokens_item(t, &more));
    assert_false(more);
    expect_ok(td_tokens_key(t, &key, &more));
    assert_string_equal(key, "b");
    assert_int_equal(td_tokens_line(t), 2);
    expect_ok(td_tokens_skip(t));
    expect_ok(td_tokens_key(t, &key, &more));
    expect_ok(td_tokens_value(t, &v));
    expect_ok(td_tokens_item(t, &more));
    assert_false(more);
    expect_ok(td_tokens_key(t, &key, &more));
    assert_false(more);
    expect_ok(td_tokens_end(t));
    td_tokens_free(t);
}

static void refuses_what_is_no_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "empty" },
        { " ", "ends at byte 1 (line 1), wanted" },
        { "{", "ends at byte 1 (line 1), wanted a key in quotes" },
        { "[1, 2", "ends at byte 5 (line 1), wanted ',' or the end of a list" },
        { "[1,\n2,]", "byte 6 (line 2): found ']', wanted a JSON value" },
        { "[1}", "found '}', wanted ',' or the end of a list" },
        { "[}", "found '}', wanted a JSON value" },
        { "{]", "found ']', wanted a key in quotes" },
        { "{\"a\" 1}", "found '1', wanted ':'" },
        { "{\"a\":1,}", "found '}', wanted a key in quotes" },
        { "{\"a\":1 \"b\":2}", "found '\"', wanted ',' or the end of an object" },
        { "{a:1}", "found 'a', wanted a key" },
        { "01", "found '1', wanted the end of the file" },
        { "1.", "ends at byte 2" },
        { "-", "wanted a digit" },
        { "+1", "found '+', wanted a JSON value" },
        { ".5", "found '.', wanted a JSON value" },
        { "1e", "wanted a digit" },
        { "tru", "found 't', wanted a JSON value" },
        { "nullx", "found 'x', wanted the end" },
        { "\"abc", "at byte 4 (line 1), wanted" },
        { "\"a\nb\"", "byte 0x0a, wanted" },
        { "\"\\x\"", "found 'x', wanted one of" },
        { "\"\\u12g4\"", "found 'g', wanted a hexadecimal digit" },
        { "\"\\ud800\"", "the second half of a surrogate pair" },
        { "\"\\ud800\\u0041\"", "found half a surrogate pair" },
        { "\"\\udc00\"", "the second half of a surrogate pair" },
        { "\"\\u0000\"", "without zero bytes" },
        { "'a'", "wanted a JSON value" },
        { "<html>", "byte 0 (line 1): found '<', wanted a JSON value" },
        { "\x1f\x8b", "found a byte 0x1f" },
        { "1 2", "found '2', wanted the end of the file" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(pass_text(cases[i].text), TD_EFORMAT, cases[i].message);
    expect_error(pass("[1\0]", 4), TD_EFORMAT, "found a byte 0x00");
    td_token v;
    td_tokens *t = parse("\"caf\351\"");
    expect_error(td_tokens_value(t, &v), TD_EFORMAT, "-8 (byte 0, line 1");
    td_tokens_free(t);
}

static void has_limits(void **state)
{
    (void)state;
    enum { DEEP = 100000, LONG = 3 << 20 };
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, '[', DEEP);
    expect_error(pass(text, DEEP), TD_ELIMIT, "byte 64 (line 1): lists and objects are nested");
    memset(text + 64, ']', 64);
    expect_ok(pass(text, 128));
    memset(text, '1', 1025);
    expect_error(pass(text, 1025), TD_ELIMIT, "a number has more than 1024");
    expect_ok(pass(text, 1024));
    memset(text, 'a', LONG);
    text[0] = text[LONG - 1] = '"';
    expect_ok(pass(text, LONG)); /* what is not kept may be long */
    td_token v;
    td_tokens *t;
    expect_ok(td_tokens_parse(text, LONG, "text", &t));
    expect_error(td_tokens_value(t, &v), TD_ELIMIT, "longer than 1048576 bytes");
    td_tokens_free(t);
    free(text);
}

/* texts, escapes and numbers that straddle the window's end, wherever it falls */
static void windows_do_not_show(void **state)
{
    (void)state;
    enum { ITEMS = 20000 };
    td_text json = { 0 };
    td_text_add(&json, "[");
    for (int i = 0; i < ITEMS; i++)
        td_text_add(&json, "%s%*s\"n\\u00e9\\ud83d\\ude00 %d\", %d.25", i ? "," : "", i % 7, "", i,
                    i);
    td_text_add(&json, "]");
    const char *path = td_scratch_path("windows.json");
    expect_ok(td_file_write(path, json.data, json.len));
    td_tokens *t;
    td_token v;
    bool more;
    char want[64];
    expect_ok(td_tokens_open(path, &t));
    expect_ok(td_tokens_value(t, &v));
    for (int i = 0; i < ITEMS; i++) {
        expect_ok(td_tokens_item(t, &more));
        expect_ok(td_tokens_value(t, &v));
        (void)snprintf(want, sizeof want, "n\303\251\360\237\230\200 %d", i);
        assert_string_equal(v.text, want);
        expect_ok(td_tokens_item(t, &more));
        expect_ok(td_tokens_value(t, &v));
        assert_true(v.number == i + 0.25);
    }
    expect_ok(td_tokens_item(t, &more));
    assert_false(more);
    expect_ok(td_tokens_end(t));
    td_tokens_free(t);
    expect_error(pass(json.data, json.len - 1), TD_EFORMAT, "wanted ',' or the end of a list");
    td_text_release(&json);
}

/* what the tree reader takes is taken, and what it refuses is refused, but for Python's words */
static void agrees_with_the_tree(void **state)
{
    (void)state;
    static const char alphabet[] = "[]{}\",:0123.-eE \\untrfalse\n";
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    char text[16];
    int n_good = 0;
    for (int i = 0; i < 300000; i++) {
        size_t n = 1 + (size_t)td_rng_below(&r, 8);
        for (size_t k = 0; k < n; k++)
            text[k] = alphabet[td_rng_below(&r, sizeof alphabet - 1)];
        text[0] = "[{"[i % 2]; /* the tree takes nothing else at the top */
        td_json *doc;
        bool is_good = td_json_parse(text, n, "text", &doc) == TD_OK;
        td_json_free(doc);
        if (!is_good &&
            (strstr(td_error_message(), "duplicate") || strstr(td_error_message(), "too big") ||
             strstr(td_error_message(), "overflow")))
            continue; /* the tree's own limits */
        n_good += is_good;
        if ((pass(text, n) == TD_OK) != is_good)
            fail_msg("'%.*s': %s", (int)n, text, td_error_message());
    }
    assert_true(n_good > 1000);
}

static void files_that_are_none(void **state)
{
    (void)state;
    td_tokens *t;
    expect_error(td_tokens_open(td_scratch_path("absent.json"), &t), TD_ENOTFOUND, "absent.json");
    expect_error(td_tokens_open(td_scratch_folder(), &t), TD_EIO, "not a regular file");
    assert_int_equal(mkfifo(td_scratch_path("pipe"), 0600), 0);
    expect_error(td_tokens_open(td_scratch_path("pipe"), &t), TD_EIO, "not a regular file");
    expect_ok(td_file_write(td_scratch_path("empty.json"), "", 0));
    expect_error(td_tokens_open(td_scratch_path("empty.json"), &t), TD_EFORMAT, "is empty");
    assert_null(t);
}

static td_status run_once(void)
{
    static const char text[] = "{\"a\": [1, \"text\", {\"b\": 2.5}]}";
    td_tokens *t;
    td_token v;
    const char *key;
    bool more;
    td_status st;
    TD_TRY(td_tokens_parse(text, sizeof text - 1, "text", &t));
    TD_OUT(td_tokens_value(t, &v));
    TD_OUT(td_tokens_key(t, &key, &more));
    TD_OUT(td_tokens_skip(t));
    TD_OUT(td_tokens_leave(t));
    TD_OUT(td_tokens_end(t));
out:
    td_tokens_free(t);
    return st;
}

static void survives_no_memory(void **state)
{
    (void)state;
    assert_true(td_test_allocations(run_once, 100) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_numbers),           cmocka_unit_test(numbers_are_nearest),
        cmocka_unit_test(knows_whole_numbers),     cmocka_unit_test(reads_texts),
        cmocka_unit_test(utf_16_is_named),         cmocka_unit_test(walks_lists_and_objects),
        cmocka_unit_test(refuses_what_is_no_json), cmocka_unit_test(has_limits),
        cmocka_unit_test(windows_do_not_show),     cmocka_unit_test(agrees_with_the_tree),
        cmocka_unit_test(files_that_are_none),     cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
