/*
 * test_encoding.c -- gzip and zlib bodies, cut, damaged, longer than allowed
 */
#include <string.h>
#include <zlib.h>

#include "base/arena.h"
#include "serve/encoding.h"
#include "support/expect.h"

enum { GZIP = 16 + MAX_WBITS, ZLIB = MAX_WBITS, TEXT = 100000 };

static uint8_t text[TEXT], packed[TEXT];

static size_t pack(int format, size_t n)
{
    z_stream z = {
        .next_in = text, .avail_in = (unsigned)n, .next_out = packed, .avail_out = sizeof packed
    };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, format, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return sizeof packed - z.avail_out;
}

static void names_are_known(void **state)
{
    (void)state;
    assert_int_equal(td_encoding_of(NULL), TD_ENCODING_NONE);
    assert_int_equal(td_encoding_of("identity"), TD_ENCODING_NONE);
    assert_int_equal(td_encoding_of("GZip"), TD_ENCODING_DEFLATED);
    assert_int_equal(td_encoding_of("deflate"), TD_ENCODING_DEFLATED);
    assert_int_equal(td_encoding_of("br"), TD_ENCODING_UNKNOWN);
    assert_int_equal(td_encoding_of("gzip, gzip"), TD_ENCODING_UNKNOWN);
}

static void streams_are_expanded(void **state)
{
    const int formats[] = { GZIP, ZLIB };
    char *out;
    size_t n_out;
    (void)state;
    for (size_t i = 0; i < TEXT; i++)
        text[i] = (uint8_t)(i * i >> 7);
    for (int f = 0; f < 2; f++) {
        const size_t n = pack(formats[f], TEXT);
        expect_ok(td_encoding_expand(packed, n, TEXT, &out, &n_out));
        assert_int_equal(n_out, TEXT);
        assert_memory_equal(out, text, TEXT);
        td_free(out);
        expect_error(td_encoding_expand(packed, n, TEXT - 1, &out, &n_out), TD_ELIMIT,
                     "expands to more than 99999 bytes");
        assert_null(out);
        packed[n] = 0;
        expect_error(td_encoding_expand(packed, n + 1, TEXT, &out, &n_out), TD_EFORMAT,
                     "compressed body has 1 bytes after its");
    }
    expect_ok(td_encoding_expand(packed, pack(GZIP, 0), 0, &out, &n_out));
    assert_int_equal(n_out, 0);
    td_free(out);
    expect_error(td_encoding_expand("", 0, 10, &out, &n_out), TD_EFORMAT, "ends early");
    expect_error(td_encoding_expand("{\"inputs\"", 9, 10, &out, &n_out), TD_EFORMAT, "damaged");
}

/* a thousandfold; the room it gets stays near what is allowed */
static void bombs_are_bounded(void **state)
{
    char *out;
    size_t n_out;
    (void)state;
    memset(text, 0, sizeof text);
    const size_t n = pack(GZIP, TEXT);
    assert_true(n < 300);
    expect_error(td_encoding_expand(packed, n, 10, &out, &n_out), TD_ELIMIT, "more than 10 bytes");
    for (size_t cut = 0; cut < n; cut++)
        expect_error(td_encoding_expand(packed, cut, TEXT, &out, &n_out), TD_EFORMAT, "ends early");
    for (size_t at = 0; at < n; at++) {
        packed[at] ^= 0x55;
        if (td_encoding_expand(packed, n, TEXT, &out, &n_out) == TD_OK)
            td_free(out); /* a byte of gzip's header that says nothing */
        packed[at] ^= 0x55;
    }
    assert_int_equal(td_alloc_live(), 0);
}

static void memory_may_run_out(void **state)
{
    char *out;
    size_t n_out;
    td_status st;
    int n = 0;
    (void)state;
    const size_t n_packed = pack(ZLIB, TEXT);
    do {
        td_alloc_fail_at(++n);
        st = td_encoding_expand(packed, n_packed, TEXT, &out, &n_out);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
    } while (st != TD_OK && n < 20);
    assert_int_equal(st, TD_OK);
    assert_true(n > 2);
    td_free(out);
    assert_int_equal(td_alloc_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_known),
        cmocka_unit_test(streams_are_expanded),
        cmocka_unit_test(bombs_are_bounded),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
