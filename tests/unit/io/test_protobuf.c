/*
 * test_protobuf.c -- what is written comes back; bytes that are no message are refused, in words
 */
#include "io/protobuf.h"

#include <math.h>

#include "support/expect.h"

static const int64_t numbers[] = { 0, 1, 127, 128, 300, -1, INT64_MAX, INT64_MIN, 1ll << 35 };

#define N_NUMBERS ((int)(sizeof numbers / sizeof *numbers))

static void test_numbers(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_pb_field f;
    int64_t v;
    float x;
    for (int i = 0; i < N_NUMBERS; i++)
        td_pb_put_int(&t, i + 1, numbers[i]);
    td_pb_put_float(&t, 536870911, -0.1f); /* the largest field number */
    expect_ok(td_text_status(&t));

    td_pb r = td_pb_open(t.data, t.len, "x");
    for (int i = 0; i < N_NUMBERS; i++) {
        assert_true(td_pb_more(&r));
        expect_ok(td_pb_next(&r, &f));
        assert_int_equal(f.number, i + 1);
        expect_ok(td_pb_int(&r, &f, &v));
        assert_true(v == numbers[i]);
        expect_error(td_pb_float(&r, &f, &x), TD_EFORMAT, "is not a float");
    }
    expect_ok(td_pb_next(&r, &f));
    assert_int_equal(f.number, 536870911);
    expect_ok(td_pb_float(&r, &f, &x));
    assert_true(x == -0.1f);
    expect_error(td_pb_int(&r, &f, &v), TD_EFORMAT, "536870911 is not a");
    assert_false(td_pb_more(&r));
    td_text_release(&t);
}

/* the bytes of the specification's examples: 150 in field 1, "testing" in field 2 */
static void test_published_bytes(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_pb_put_int(&t, 1, 150);
    td_pb_put_text(&t, 2, "testing");
    assert_int_equal(t.len, 12);
    assert_memory_equal(t.data, "\x08\x96\x01\x12\x07testing", 12);
    td_text_release(&t);

    td_pb_put_double(&t, 1, -2.5); /* 0xc004000000000000, lowest byte first */
    assert_int_equal(t.len, 9);
    assert_memory_equal(t.data, "\x09\0\0\0\0\0\0\x04\xc0", 9);
    td_text_release(&t);
}

static void test_messages_and_texts(void **state)
{
    (void)state;
    td_text outer = { 0 }, inner = { 0 };
    td_arena arena = { 0 };
    td_pb_field f;
    td_pb in;
    const char *text;
    int64_t list[4];
    size_t n = 0;
    td_pb_put_text(&inner, 1, "caf\xc3\xa9");
    td_pb_put_text(&inner, 1, "");
    td_pb_put_bytes(&inner, 1, "a\0b", 3);
    td_pb_put_bytes(&inner, 1, "\xff", 1);
    td_pb_put_bytes(&inner, 2, "\x01\x96\x01\x03", 4); /* packed 1, 150, 3 */
    td_pb_put_int(&inner, 2, 9);
    td_pb_put_int(&inner, 2, 10);
    td_pb_put_message(&outer, 7, &inner);

    td_pb r = td_pb_open(outer.data, outer.len, "x");
    expect_ok(td_pb_next(&r, &f));
    expect_ok(td_pb_enter(&r, &f, &in));
    expect_ok(td_pb_next(&in, &f));
    expect_ok(td_pb_text(&in, &f, &arena, &text));
    assert_string_equal(text, "caf\xc3\xa9");
    expect_ok(td_pb_next(&in, &f));
    expect_ok(td_pb_text(&in, &f, &arena, &text));
    assert_string_equal(text, "");
    for (int i = 0; i < 2; i++) {
        expect_ok(td_pb_next(&in, &f));
        expect_error(td_pb_text(&in, &f, &arena, &text), TD_EFORMAT, "UTF-8");
    }
    while (td_pb_more(&in)) {
        expect_ok(td_pb_next(&in, &f));
        expect_ok(td_pb_ints(&in, &f, list, 4, &n));
    }
    assert_int_equal(n, 5); /* counted beyond the room, not written */
    assert_true(list[0] == 1 && list[1] == 150 && list[2] == 3 && list[3] == 9);
    td_arena_release(&arena);
    td_text_release(&outer);
    td_text_release(&inner);
}

static void test_broken(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        { "\x08", 1, "byte 1: the message ends inside a number" },
        { "\x08\x80", 2, "byte 1: the message ends inside a number" },
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "more than 64 bits" },
        { "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 12, "more than 64 bits" },
        { "\x00\x01", 2, "'x': byte 0: an invalid field" },
        { "\x80\x80\x80\x80\x10\x01", 6, "an invalid field number" },
        { "\x0b\x0c", 2, "an invalid wire type" }, /* a group */
        { "\x0e", 1, "an invalid wire type" },
        { "\x12\x03xy", 4, "byte 1: a length of 3, 2 bytes are left" },
        { "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "a length of 18446744073709551615" },
        { "\x0d\x01\x02\x03", 4, "the message ends inside a number" },
        { "\x09\x01\x02\x03\x04\x05\x06\x07", 8, "the message ends inside a number" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_pb r = td_pb_open(cases[i].bytes, cases[i].n, "x");
        td_pb_field f;
        expect_error(td_pb_next(&r, &f), TD_EFORMAT, cases[i].says);
    }
}

static void test_depth(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_pb_field f;
    for (int i = 0; i < TD_PB_DEPTH_MAX + 1; i++) {
        td_text outer = { 0 };
        td_pb_put_message(&outer, 1, &t);
        td_text_release(&t);
        t = outer;
    }
    td_pb r = td_pb_open(t.data, t.len, "x");
    for (int i = 0; i < TD_PB_DEPTH_MAX; i++) {
        td_pb inner;
        expect_ok(td_pb_next(&r, &f));
        expect_ok(td_pb_enter(&r, &f, &inner));
        r = inner;
    }
    expect_ok(td_pb_next(&r, &f));
    expect_error(td_pb_enter(&r, &f, &r), TD_ELIMIT, "nested");
    td_text_release(&t);
}

static void test_nothing(void **state)
{
    (void)state;
    td_pb r = td_pb_open(NULL, 0, "x");
    assert_false(td_pb_more(&r));
}

/* a text that failed makes the message fail that it goes into */
static void test_failure_travels(void **state)
{
    (void)state;
    td_text outer = { 0 }, inner = { 0 };
    inner.st = TD_ENOMEM;
    td_pb_put_message(&outer, 1, &inner);
    assert_int_equal(td_text_status(&outer), TD_ENOMEM);
    td_text_release(&outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_published_bytes),
        cmocka_unit_test(test_messages_and_texts),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_failure_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
