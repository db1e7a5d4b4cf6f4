/* test_tfrecord.c -- records of TFRecord files, and damage */
#include "io/tfrecord.h"

#include <string.h>

#include "support/expect.h"
#include "support/leaks.h"
#include "support/tf_records.h"

#include "io/crc32c.h"

static void records_are_listed(void **state)
{
    (void)state;
    td_text file = { 0 };
    td_tfrecords t;
    td_tfrecord r;
    char large[3 * TD_TFRECORD_WINDOW], bytes[4];
    memset(large, 'x', sizeof large);
    td_record_write("abc", 3, &file);
    td_record_write("", 0, &file);
    td_record_write(large, sizeof large, &file);
    td_record_write("last", 4, &file);
    td_tfrecords_from(td_text_get(&file), file.len, "a", &t);
    expect_ok(td_tfrecords_next(&t, &r));
    assert_int_equal(r.at, 0);
    assert_int_equal(r.offset, 12);
    assert_int_equal(r.n_bytes, 3);
    expect_ok(td_tfrecord_check(td_text_get(&file) + r.offset, 3, "a", 0));
    expect_ok(td_tfrecords_next(&t, &r));
    assert_int_equal(r.n_bytes, 0);
    expect_ok(td_tfrecords_next(&t, &r));
    assert_int_equal(r.n_bytes, sizeof large);
    expect_ok(td_tfrecords_next(&t, &r));
    expect_ok(td_tfrecords_read(&t, r.offset, 4, bytes));
    assert_memory_equal(bytes, "last", 4);
    expect_ok(td_tfrecords_next(&t, &r));
    assert_int_equal(r.offset, 0);
    td_tfrecords_close(&t);
    td_text_release(&file);
}

static td_status walk(const char *bytes, size_t n)
{
    td_tfrecords t;
    td_tfrecord r = { .offset = 1 };
    td_status st = TD_OK;
    td_tfrecords_from(bytes, n, "a.record", &t);
    while (st == TD_OK && r.offset)
        st = td_tfrecords_next(&t, &r);
    td_tfrecords_close(&t);
    return st;
}

static void damage_is_refused(void **state)
{
    (void)state;
    td_text file = { 0 };
    td_record_write("abc", 3, &file);
    td_record_write("defgh", 5, &file);
    expect_ok(walk(file.data, file.len));
    expect_ok(walk(file.data, 19));
    expect_ok(walk(file.data, 0));
    expect_error(walk(file.data, 18), TD_EFORMAT, "truncated: the record at byte 0");
    expect_error(walk(file.data, 30), TD_EFORMAT, "truncated: the record at byte 19");
    expect_error(walk(file.data, file.len - 1), TD_EFORMAT, "the record at byte 19");
    for (int i = 0; i < 12; i++) {
        file.data[i] ^= 1;
        expect_error(walk(file.data, file.len), TD_EFORMAT, "'a.record' is not a TFRecord file");
        file.data[i] ^= 1;
        file.data[19 + i] ^= 1;
        expect_error(walk(file.data, file.len), TD_EFORMAT, "length of the record at byte 19");
        file.data[19 + i] ^= 1;
    }
    expect_ok(td_tfrecord_check(file.data + 31, 5, "a", 19));
    file.data[33] ^= 4;
    expect_error(td_tfrecord_check(file.data + 31, 5, "a", 19), TD_EFORMAT, "at byte 19");
    memcpy(file.data, "\x1f\x8b", 2);
    expect_error(walk(file.data, file.len), TD_EUNSUPPORTED, "compressed");
    memcpy(file.data, "\x78\x9c", 2);
    expect_error(walk(file.data, file.len), TD_EUNSUPPORTED, "compressed");
    td_text_release(&file);
}

/* every length up to some words, at every alignment, against a loop of single bits */
static void crcs_are_those_of_the_polynomial(void **state)
{
    (void)state;
    unsigned char bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(37 * i + 11);
    assert_int_equal(td_crc32c("123456789", 9), 0xe3069283);
    for (size_t from = 0; from < 8; from++)
        for (size_t n = 0; n < 40; n++) {
            uint32_t crc = 0xffffffff;
            for (size_t i = 0; i < 8 * n; i++) {
                const uint32_t bit = (crc ^ (bytes[from + i / 8] >> i % 8)) & 1;
                crc = crc >> 1 ^ (bit ? 0x82f63b78 : 0);
            }
            assert_int_equal(td_crc32c(bytes + from, n), (uint32_t)~crc);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(records_are_listed),
        leak_checked_test(damage_is_refused),
        leak_checked_test(crcs_are_those_of_the_polynomial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
