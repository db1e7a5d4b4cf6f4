/* test_field.c -- a table with every kind: defaults, parsing, printing, comparing, JSON */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "options/field.h"

typedef struct {
    int stride;
    int64_t total;
    double eps;
    double any_real;
    bool nesterov;
    int mode;
    const char *path;
    const char *note;
    int64_t free_total;
} opts;

static const char *const mode_names[] = { "folder|pytorch|dali-cpu", "synthetic|syntetic",
                                          "tensors", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_INT    (opts, stride,   1, 1, 16,                          "pixels between windows"),
    TD_LONG_AS(opts, total,   "total_count", "t|count", 5, 0, 1e15, "N", "samples"),
    TD_REAL   (opts, eps,      1e-5, 0, 1,                        "added to the variance"),
    TD_REAL   (opts, any_real, 0, -INFINITY, INFINITY,            "no bounds"),
    TD_BOOL   (opts, nesterov, false,                             "look ahead"),
    TD_ENUM   (opts, mode,     0, mode_names,                     "how"),
    TD_TEXT   (opts, path,     NULL, "FILE",                      "where"),
    TD_TEXT   (opts, note,     "none", NULL,                      "what"),
    TD_LONG   (opts, free_total, 0, -0x1p63, 0x1p63,              "no bounds"),
    TD_END,
};
/* clang-format on */

static td_arena arena;

static int clear_arena(void **state)
{
    (void)state;
    td_alloc_fail_at(0);
    td_arena_release(&arena);
    return td_alloc_live() != 0;
}

static opts defaults(void)
{
    opts o;
    memset(&o, 0x5a, sizeof o);
    td_fields_default(fields, &o);
    return o;
}

static const td_field *row(const char *name)
{
    const td_field *f = td_field_find(fields, name);
    assert_non_null(f);
    return f;
}

static void set_ok(opts *o, const char *name, const char *value)
{
    td_status st = td_field_set(row(name), o, value, &arena);
    if (st != TD_OK)
        fail_msg("%s", td_error_message());
}

static void set_bad(const char *name, const char *value, const char *message)
{
    opts o = defaults(), before = o;
    assert_int_equal(td_field_set(row(name), &o, value, &arena), TD_EUSAGE);
    assert_string_equal(td_error_message(), message);
    assert_true(td_fields_equal(fields, &o, &before));
}

static void check_get(const opts *o, const char *name, const char *wanted)
{
    td_text t = { 0 };
    td_field_get(row(name), o, &t);
    assert_string_equal(td_text_get(&t), wanted);
    td_text_release(&t);
}

static void defaults_are_written(void **state)
{
    (void)state;
    opts o = defaults();
    assert_int_equal(o.stride, 1);
    assert_int_equal(o.total, 5);
    assert_true(o.eps == 1e-5 && o.any_real == 0);
    assert_false(o.nesterov);
    assert_int_equal(o.mode, 0);
    assert_null(o.path);
    assert_string_equal(o.note, "none");
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++)
        assert_true(td_field_is_default(f, &o));
    assert_int_equal(td_fields_check(fields, &o), TD_OK);
}

static void names_have_several_spellings(void **state)
{
    (void)state;
    assert_ptr_equal(td_field_find(fields, "total_count"), &fields[1]);
    assert_ptr_equal(td_field_find(fields, "total-count"), &fields[1]);
    assert_ptr_equal(td_field_find(fields, "count"), &fields[1]);
    assert_ptr_equal(td_field_find(fields, "t"), &fields[1]);
    assert_ptr_equal(td_field_find(fields, "any-real"), &fields[3]);
    assert_null(td_field_find(fields, "total"));
    assert_null(td_field_find(fields, "coun"));
    assert_null(td_field_find(fields, ""));
}

static void whole_numbers_are_set(void **state)
{
    (void)state;
    opts o = defaults();
    set_ok(&o, "stride", "16");
    assert_int_equal(o.stride, 16);
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        { "0", 0 },
        { "2k", 2000 },
        { "2K", 2000 },
        { "3M", 3000000 },
        { "1G", 1000000000 },
        { "2Ki", 2048 },
        { "1Mi", 1 << 20 },
        { "1Gi", 1 << 30 },
        { "4GB", 4000000000 },
        { "2MiB", 2 << 20 },
        { "3kb", 3000 },
        { "3KB", 3000 },
        { "2kib", 2048 },
        { "5g", 5000000000 },
        { "7TB", 7000000000000 },
        { "1Ti", INT64_C(1) << 40 },
        { "1.5G", 1500000000 },
        { "0.5KiB", 512 },
        { "+7", 7 },
        { "1000000000000000", INT64_C(1000000000000000) },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_ok(&o, "count", cases[i].text);
        assert_int_equal(o.total, cases[i].value);
    }
    set_ok(&o, "free_total", "-9223372036854775808");
    assert_true(o.free_total == INT64_MIN);
    set_ok(&o, "free_total", "9223372036854775807");
    assert_true(o.free_total == INT64_MAX);
    check_get(&o, "free_total", "9223372036854775807");

    set_bad("stride", "0", "--stride: 0 is out of range, wanted 1 to 16");
    set_bad("stride", "17", "--stride: 17 is out of range, wanted 1 to 16");
    set_bad("stride", "5000000000", "--stride: 5000000000 is out of range, wanted 1 to 16");
    set_bad("stride", "99999999999999999999",
            "--stride: 99999999999999999999 is out of range, wanted 1 to 16");
    set_bad("free_total", "9223372036854775808",
            "--free-total: 9223372036854775808 is out of range, wanted any");
    set_bad("free_total", "9223372036854775807k",
            "--free-total: 9223372036854775807k is out of range, wanted any");
    set_bad("stride", "abc", "--stride: 'abc' is not a number");
    set_bad("stride", "", "--stride: '' is not a number");
    set_bad("stride", " 1", "--stride: ' 1' is not a number");
    set_bad("stride", "1x", "--stride: '1x' is not a number");
    set_bad("stride", "1x.5k", "--stride: '1x.5k' is not a number");
    set_bad("stride", "1.5.5k", "--stride: '1.5.5k' is not a number");
    set_bad("t", "1.0005k", "--total-count: '1.0005k' is not a number");
    set_bad("t", "4GiBB", "--total-count: '4GiBB' is not a number");
    set_bad("stride", "1.5k", "--stride: 1.5k is out of range, wanted 1 to 16");
    set_bad("stride", "1.5", "--stride: 1.5 is not an integer");
    set_bad("t", "-1", "--total-count: -1 is out of range, wanted 0 to 1000000000000000");
}

static void reals_are_set(void **state)
{
    (void)state;
    opts o = defaults();
    set_ok(&o, "eps", "0.1");
    check_get(&o, "eps", "0.1");
    set_ok(&o, "any_real", "-inf");
    check_get(&o, "any_real", "-inf");
    static const double values[] = { 0.1,   1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308,
                                     0.256, 100,     -2.5,   1e22,   0.30000000000000004 };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        td_text t = { 0 };
        o.any_real = values[i];
        td_field_get(row("any_real"), &o, &t);
        o.any_real = 0;
        set_ok(&o, "any_real", td_text_get(&t));
        assert_true(o.any_real == values[i]);
        td_text_release(&t);
    }
    set_bad("eps", "1.5", "--eps: 1.5 is out of range, wanted 0 to 1");
    set_bad("eps", "-1", "--eps: -1 is out of range, wanted 0 to 1");
    set_bad("eps", "abc", "--eps: 'abc' is not a number");
    set_bad("eps", "nan", "--eps: 'nan' is not a number");
    set_bad("eps", "1,5", "--eps: '1,5' is not a number");
}

static void truth_values_are_set(void **state)
{
    (void)state;
    static const char *const yes[] = { "true", "True", "yes", "on", "1" };
    static const char *const no[] = { "false", "FALSE", "no", "off", "0" };
    opts o = defaults();
    for (int i = 0; i < 5; i++) {
        set_ok(&o, "nesterov", yes[i]);
        assert_true(o.nesterov);
        set_ok(&o, "nesterov", no[i]);
        assert_false(o.nesterov);
    }
    set_bad("nesterov", "maybe", "--nesterov: 'maybe' is not a Boolean, wanted true or false");
    set_bad("nesterov", "", "--nesterov: '' is not a Boolean, wanted true or false");
}

static void opposite_of_a_member_is_set(void **state)
{
    (void)state;
    struct saving {
        bool saves;
    } s, other;
    static const td_field saving_fields[] = {
        TD_BOOL_NOT(struct saving, saves, "no-save", NULL, false, "save nothing"),
        TD_END,
    };
    td_text text = { 0 };
    td_fields_default(saving_fields, &s);
    assert_true(s.saves);
    assert_true(td_field_is_default(saving_fields, &s));
    td_field_get(saving_fields, &s, &text);
    assert_string_equal(td_text_get(&text), "false");
    td_text_release(&text);

    other = s;
    assert_int_equal(td_field_set(saving_fields, &s, "true", &arena), TD_OK);
    assert_false(s.saves);
    assert_false(td_field_is_default(saving_fields, &s));
    assert_false(td_fields_equal(saving_fields, &s, &other));
    td_fields_json(saving_fields, &s, &text);
    assert_string_equal(td_text_get(&text), "{\"no-save\": true}");
    td_text_release(&text);
    assert_int_equal(td_field_set(saving_fields, &s, "false", &arena), TD_OK);
    assert_true(s.saves);
}

static void names_of_values_are_set(void **state)
{
    (void)state;
    opts o = defaults();
    static const char *const spellings[] = { "folder",    "pytorch",  "dali-cpu", "dali_cpu",
                                             "synthetic", "syntetic", "tensors" };
    static const int values[] = { 0, 0, 0, 0, 1, 1, 2 };
    for (int i = 0; i < 7; i++) {
        o.mode = -1;
        set_ok(&o, "mode", spellings[i]);
        assert_int_equal(o.mode, values[i]);
    }
    o.mode = 1;
    check_get(&o, "mode", "synthetic");
    set_bad("mode", "tensor",
            "--mode: 'tensor' is not one of folder, synthetic, tensors; did you mean 'tensors'?");
    set_bad(
        "mode", "dalli-cpu",
        "--mode: 'dalli-cpu' is not one of folder, synthetic, tensors; did you mean 'dali-cpu'?");
    set_bad("mode", "xyzzy", "--mode: 'xyzzy' is not one of folder, synthetic, tensors");
    set_bad("mode", "", "--mode: '' is not one of folder, synthetic, tensors");
    set_bad("mode", "folder|pytorch",
            "--mode: 'folder|pytorch' is not one of folder, synthetic, tensors");
}

static void texts_are_copied(void **state)
{
    (void)state;
    opts o = defaults();
    char value[] = "a b";
    set_ok(&o, "path", value);
    value[0] = 'X';
    assert_string_equal(o.path, "a b");
    check_get(&o, "path", "a b");
    assert_false(td_field_is_default(row("path"), &o));
    assert_true(td_field_is_default(row("note"), &o));
    td_arena full = { 0 };
    td_alloc_fail_at(1);
    assert_int_equal(td_field_set(row("path"), &o, "x", &full), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_string_equal(o.path, "a b");
}

static void structs_are_compared(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        { "stride", "2" },   { "count", "6" },    { "eps", "0.5" },
        { "any_real", "1" }, { "nesterov", "1" }, { "mode", "tensors" },
        { "path", "" },      { "note", "other" }, { "free_total", "1" },
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        opts a = defaults(), b = defaults();
        assert_true(td_fields_equal(fields, &a, &b));
        set_ok(&b, changes[i][0], changes[i][1]);
        assert_false(td_fields_equal(fields, &a, &b));
        assert_false(td_fields_equal(fields, &b, &a));
        assert_false(td_field_is_default(row(changes[i][0]), &b));
        set_ok(&a, changes[i][0], changes[i][1]);
        assert_true(td_fields_equal(fields, &a, &b));
    }
}

static void check_names(const opts *o, const char *message)
{
    assert_int_equal(td_fields_check(fields, o), TD_EUSAGE);
    assert_string_equal(td_error_message(), message);
}

static void ranges_are_checked(void **state)
{
    (void)state;
    opts o = defaults();
    o.stride = 17;
    check_names(&o, "--stride: 17 is out of range, wanted 1 to 16");
    o = defaults();
    o.total = -1;
    check_names(&o, "--total-count: -1 is out of range, wanted 0 to 1000000000000000");
    o = defaults();
    o.eps = 2;
    check_names(&o, "--eps: 2 is out of range, wanted 0 to 1");
    o = defaults();
    o.any_real = NAN;
    check_names(&o, "--any-real: nan is out of range, wanted any");
    o = defaults();
    o.mode = 3;
    check_names(&o, "--mode: 3 is out of range, wanted folder, synthetic, tensors");
    o.mode = -1;
    check_names(&o, "--mode: -1 is out of range, wanted folder, synthetic, tensors");
}

static void open_ranges_are_described(void **state)
{
    (void)state;
    int a = 0;
    double b = 1;
    const td_field from_zero = { "a", NULL, TD_KIND_INT, 0, 0, 0, INT_MAX, NULL, NULL, NULL, "" };
    const td_field up_to = { "b", NULL, TD_KIND_REAL, 0, 0, -INFINITY, 0.5, NULL, NULL, NULL, "" };
    const td_field more = { "c", NULL, TD_KIND_REAL, 0, 0, 0.25, INFINITY, NULL, NULL, NULL, "" };
    assert_int_equal(td_field_set(&from_zero, &a, "-1", &arena), TD_EUSAGE);
    assert_string_equal(td_error_message(), "--a: -1 is out of range, wanted 0 or more");
    assert_int_equal(td_field_set(&from_zero, &a, "2147483647", &arena), TD_OK);
    assert_int_equal(td_field_set(&from_zero, &a, "2147483648", &arena), TD_EUSAGE);
    assert_int_equal(td_field_set(&up_to, &b, "1", &arena), TD_EUSAGE);
    assert_string_equal(td_error_message(), "--b: 1 is out of range, wanted at most 0.5");
    assert_int_equal(td_field_set(&more, &b, "0", &arena), TD_EUSAGE);
    assert_string_equal(td_error_message(), "--c: 0 is out of range, wanted 0.25 or more");
}

/* --- text form ------------------------------------------------------------------------------- */

static void check_print(const opts *o, const char *wanted)
{
    td_text t = { 0 };
    td_fields_print(fields, o, &t);
    assert_string_equal(td_text_get(&t), wanted);

    /* and back: the inside of the braces */
    opts again = defaults();
    if (t.len > 0) {
        t.data[t.len - 1] = '\0';
        td_status st = td_fields_parse(fields, &again, t.data + 1, &arena);
        if (st != TD_OK)
            fail_msg("%s", td_error_message());
    }
    assert_true(td_fields_equal(fields, o, &again));
    td_text_release(&t);
}

static void the_text_form_comes_back(void **state)
{
    (void)state;
    opts o = defaults();
    check_print(&o, "");
    o.stride = 2;
    check_print(&o, "{stride=2}");
    o.eps = 0.1;
    o.nesterov = true;
    o.mode = 1;
    o.total = 1 << 20;
    check_print(&o, "{stride=2, total_count=1048576, eps=0.1, nesterov=true, mode=synthetic}");
    o = defaults();
    o.path = "a/b-c_d.jpg";
    check_print(&o, "{path=a/b-c_d.jpg}");
    o.path = "";
    check_print(&o, "{path=\"\"}");
    o.path = "a b, c={\"x\\y\"}";
    check_print(&o, "{path=\"a b, c={\\\"x\\\\y\\\"}\"}");
    o.path = "\xff\n\xc3\xbc";
    check_print(&o, "{path=\"\\u00ff\\u000a\xc3\xbc\"}");
    o = defaults();
    o.note = NULL;
    check_print(&o, "{note=}");
    o = defaults();
    o.any_real = -INFINITY;
    check_print(&o, "{any_real=-inf}");
}

static void parse_bad(const char *text, const char *message)
{
    opts o = defaults(), before;
    o.stride = 3;
    before = o;
    assert_int_equal(td_fields_parse(fields, &o, text, &arena), TD_EFORMAT);
    assert_string_equal(td_error_message(), message);
    assert_true(td_fields_equal(fields, &o, &before)); /* also what stood before the mistake */
}

static void bad_text_forms_are_refused(void **state)
{
    (void)state;
    parse_bad("strid=2", "unknown name 'strid', did you mean 'stride'?");
    parse_bad("xyzzy=2", "unknown name 'xyzzy'");
    parse_bad("stride", "found 'stride', wanted name=value");
    parse_bad("=2", "found '=2', wanted name=value");
    parse_bad("stride 2", "found 'stride 2', wanted name=value");
    parse_bad("stride=2 eps=1", "found 'eps=1', wanted ',' or the end");
    parse_bad("stride=2,", "a name is missing after the last ','");
    parse_bad("stride=2,,eps=1", "found ',eps=1', wanted name=value");
    parse_bad("stride=2, stride=99", "stride: 99 is out of range, wanted 1 to 16");
    parse_bad("stride=", "stride: '' is not a number");
    parse_bad("total_count=x", "total_count: 'x' is not a number");
    parse_bad("path=\"abc", "path: bad quoted text \"abc");
    parse_bad("path=\"a\\n\"", "path: bad quoted text \"a\\n\"");
    parse_bad("path=\"\\u0000\"", "path: bad quoted text \"\\u0000\"");
    parse_bad("path=\"\\u01", "path: bad quoted text \"\\u01");
    parse_bad("path=\"\\", "path: bad quoted text \"\\");
    opts o = defaults();
    assert_int_equal(td_fields_parse(fields, &o, " stride = 2 ,\n eps=0.5 ", &arena), TD_OK);
    assert_int_equal(o.stride, 2);
    assert_true(o.eps == 0.5);
    assert_int_equal(td_fields_parse(fields, &o, "  ", &arena), TD_OK);
    assert_int_equal(o.stride, 2); /* over the present values */
}

static void parsing_survives_failing_memory(void **state)
{
    (void)state;
    td_status st = TD_ENOMEM;
    for (int n = 1; st != TD_OK; n++) {
        td_arena a = { 0 };
        opts o = defaults();
        int64_t live = td_alloc_live();
        td_alloc_fail_at(n);
        st = td_fields_parse(fields, &o, "path=\"a b\", stride=2", &a);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_true(n > 1 || st == TD_ENOMEM);
        td_arena_release(&a);
        assert_int_equal(td_alloc_live(), live);
    }
}

static void messages_survive_failing_memory(void **state)
{
    (void)state;
    opts o = defaults();
    td_alloc_fail_at(1);
    assert_int_equal(td_field_set(row("stride"), &o, "0", &arena), TD_ENOMEM);
    assert_int_equal(td_field_set(row("mode"), &o, "x", &arena), TD_ENOMEM);
    o.stride = 0;
    assert_int_equal(td_fields_check(fields, &o), TD_ENOMEM);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void the_json_form_is_json(void **state)
{
    (void)state;
    opts o = defaults();
    o.any_real = INFINITY;
    o.note = "a \"b\"";
    o.eps = 0.25;
    td_text t = { 0 };
    td_fields_json(fields, &o, &t);
    assert_string_equal(td_text_get(&t),
                        "{\"stride\": 1, \"total_count\": 5, \"eps\": 0.25, \"any_real\": \"inf\", "
                        "\"nesterov\": false, \"mode\": \"folder\", \"path\": null, "
                        "\"note\": \"a \\\"b\\\"\", \"free_total\": 0}");
    td_json *doc;
    assert_int_equal(td_json_parse(t.data, t.len, "x", &doc), TD_OK);
    assert_int_equal(td_json_count(doc), 9);
    td_json_free(doc);
    td_text_release(&t);
}

#define TEST(f) cmocka_unit_test_teardown(f, clear_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_written),
        TEST(names_have_several_spellings),
        TEST(whole_numbers_are_set),
        TEST(reals_are_set),
        TEST(truth_values_are_set),
        TEST(opposite_of_a_member_is_set),
        TEST(names_of_values_are_set),
        TEST(texts_are_copied),
        TEST(structs_are_compared),
        TEST(ranges_are_checked),
        TEST(open_ranges_are_described),
        TEST(the_text_form_comes_back),
        TEST(bad_text_forms_are_refused),
        TEST(parsing_survives_failing_memory),
        TEST(messages_survive_failing_memory),
        TEST(the_json_form_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
