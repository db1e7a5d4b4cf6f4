/* test_shards.c -- samples of tar shards: places, labels, classes; every allocation may fail */
#include "data/shards.h"

#include <stdio.h>
#include <string.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "data/members.h"

enum { BLOCK = 512, BLOCKS = 64 };

static unsigned char bytes[BLOCKS * BLOCK];
static size_t n;

static void add(const char *name, const char *content)
{
    unsigned char *h = bytes + n;
    const size_t length = strlen(content);
    unsigned sum = 0;
    assert_true(n + 4 * BLOCK + length <= sizeof bytes);
    memset(h, 0, BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK);
    memcpy(h, name, strlen(name));
    (void)snprintf((char *)h + 124, 12, "%011o", (unsigned)length & 0xffff);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    for (int i = 0; i < BLOCK; i++)
        sum += h[i];
    (void)snprintf((char *)h + 148, 8, "%06o", sum);
    memcpy(h + BLOCK, content, length);
    n += BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK;
    memset(bytes + n, 0, 2 * BLOCK);
}

static td_status parse(td_dataset **out)
{
    td_dataset *ds = TD_NEW(td_dataset);
    *out = NULL;
    if (!ds)
        return TD_ENOMEM;
    const td_status st = td_shards_parse(bytes, n + 2 * BLOCK, "s.tar", ds);
    if (st == TD_OK)
        *out = ds;
    else
        td_dataset_free(ds);
    return st;
}

static void refuse(td_status st, const char *part)
{
    td_dataset *ds;
    expect_error(parse(&ds), st, part);
    expect_error(st, st, "'s.tar'");
}

static void numbers_are_classes(void **state)
{
    (void)state;
    td_dataset *ds;
    n = 0;
    add("__index__.json", "{}");
    add("a/1.cls", " 3\n");
    add("a/1.txt", "ignored");
    add("a/1.JPG", "image");
    add("a/.hidden.jpg", "x");
    add("b/1.json", "{\"label\": 7, \"cls\": 1}");
    add("b/1.cls", "0"); /* counts more than json */
    add("b/1.png", "");
    add("notes.txt", "no sample");
    expect_ok(parse(&ds));
    assert_int_equal(ds->n, 2);
    assert_int_equal(ds->n_classes, 4);
    assert_int_equal(td_dataset_label(ds, 0), 3);
    assert_int_equal(td_dataset_label(ds, 1), 0);
    assert_string_equal(td_dataset_path(ds, 0), "s.tar/a/1.JPG");
    assert_string_equal(td_sample_name(ds, 1), "/b/1.png");
    assert_memory_equal(bytes + ds->samples[0].member->offset, "image", 5);
    assert_int_equal(ds->samples[0].member->n_bytes, 5);
    assert_int_equal(ds->samples[1].member->n_bytes, 0);
    assert_int_equal(ds->n_others, 1);
    td_dataset_free(ds);
}

static void texts_are_classes_in_byte_order(void **state)
{
    (void)state;
    td_dataset *ds;
    n = 0;
    add("1.jpg", "x");
    add("1.json", "{\"label\": \"tulip\"}");
    add("2.jpg", "x");
    add("2.cls", "rose");
    add("3.jpg", "x");
    add("3.cls", "5");
    expect_ok(parse(&ds));
    assert_int_equal(ds->n_classes, 3);
    assert_string_equal(td_dataset_class_name(ds, 0), "5");
    assert_string_equal(td_dataset_class_name(ds, 1), "rose");
    assert_int_equal(td_dataset_label(ds, 0), 2);
    td_dataset_free(ds);
}

/* two good samples, then these files */
static void begin(void)
{
    n = 0;
    add("1.jpg", "x");
    add("1.cls", "0");
    add("2.jpg", "x");
    add("2.cls", "1");
}

static void wrong_samples_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][5] = {
        { "'3' has no label", "3.jpg", "x" },
        { "'3' has no image", "3.cls", "0" },
        { "'3' has two images", "3.jpg", "x", "3.png", "x" },
        { "'3' has two .cls", "3.cls", "0", "3.cls", "0" },
        { "'3' has an empty label", "3.cls", " \n" },
        { "'3' has a label that is no text", "3.cls", "a\tb" },
        { "'3' has a label that is no text", "3.cls", "\xff" },
        { "label", "3.json", "{\"label\": -1}" },
        { "label", "3.json", "{\"label\": []}" },
        { "line 1", "3.json", "{\"label\": 1" },
        { "'1' occurs twice", "1.jpg", "x", "1.cls", "0" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin();
        add(wrong[i][1], wrong[i][2]);
        if (wrong[i][3])
            add(wrong[i][3], wrong[i][4]);
        refuse(TD_EFORMAT, wrong[i][0]);
    }
    n = 0; /* one number, written in two ways */
    add("1.jpg", "x");
    add("1.cls", "0");
    add("2.jpg", "x");
    add("2.cls", "00");
    refuse(TD_EFORMAT, "one class");
    n = 0;
    memset(bytes, 0, sizeof bytes);
    refuse(TD_EFORMAT, "no samples");
    add("1.jpg", "x");
    add("1.cls", "0");
    refuse(TD_EFORMAT, "classes");
}

static td_status parse_once(void)
{
    td_dataset *ds;
    const td_status st = parse(&ds);
    td_dataset_free(ds);
    return st;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    begin();
    add("3.jpg", "x");
    add("3.json", "{\"label\": \"tulip\"}");
    add("x.json", "{}");
    assert_true(td_test_allocations(parse_once, 500) > 10);
}

static void members_are_read_in_place(void **state)
{
    (void)state;
    const char *path = td_scratch_path("m.bin");
    td_member_file file;
    td_transformer w = { 0 };
    char head[8];
    const void *in;
    size_t n_in;
    expect_ok(td_file_write(path, "0123456789", 10));
    expect_ok(td_member_file_init(path, &file));
    td_member m = { .file = &file, .offset = 3, .n_bytes = 4 };
    expect_ok(td_member_read(&m, &w, &in, &n_in));
    assert_int_equal(n_in, 4);
    assert_memory_equal(in, "3456", 4);
    assert_int_equal(td_member_head(&m, head, 2), 2);
    assert_memory_equal(head, "34", 2);
    td_member_read_ahead(&m);
    m.n_bytes = 8;
    expect_error(td_member_read(&m, &w, &in, &n_in), TD_EIO, "shorter");
    m.n_bytes = INT64_MAX;
    expect_error(td_member_read(&m, &w, &in, &n_in), TD_ELIMIT, "9223372036854775807");
    m.n_bytes = 4;
    expect_ok(td_file_write(path, "0123456789x", 11));
    expect_error(td_member_read(&m, &w, &in, &n_in), TD_EIO, "changed");
    assert_int_equal(td_member_head(&m, head, 2), 0);
    expect_error(td_member_file_init("absent", &file), TD_ENOTFOUND, "'absent'");
    td_transformer_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(numbers_are_classes),
        leak_checked_test(texts_are_classes_in_byte_order),
        leak_checked_test(wrong_samples_are_refused),
        cmocka_unit_test(allocations_may_fail),
        leak_checked_test(members_are_read_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
