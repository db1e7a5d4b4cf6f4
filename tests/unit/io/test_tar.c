/* test_tar.c -- entries of tar files of every format, and damage */
#include "io/tar.h"

#include <stdio.h>
#include <string.h>

#include "support/expect.h"
#include "support/leaks.h"

enum { BLOCK = 512, BLOCKS = 64 };

/* a tar that is being written */
typedef struct {
    unsigned char bytes[BLOCKS * BLOCK];
    size_t n;
} archive;

static void finish_header(unsigned char *h)
{
    unsigned sum = 8 * ' ';
    for (int i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? 0 : h[i];
    (void)snprintf((char *)h + 148, 8, "%06o", sum);
    h[155] = ' ';
}

static unsigned char *add(archive *a, const char *name, char type, const void *content, size_t n)
{
    unsigned char *h = a->bytes + a->n;
    assert_true(a->n + BLOCK + n + BLOCK <= sizeof a->bytes);
    memset(h, 0, BLOCK);
    memcpy(h, name, strlen(name));
    (void)snprintf((char *)h + 124, 12, "%011o", (unsigned)n & 0xffff);
    h[156] = (unsigned char)type;
    memcpy(h + 257, "ustar\00000", 8);
    finish_header(h);
    memset(h + BLOCK, 0, (n + BLOCK - 1) / BLOCK * BLOCK);
    memcpy(h + BLOCK, content, n);
    a->n += BLOCK + (n + BLOCK - 1) / BLOCK * BLOCK;
    return h;
}

static void end(archive *a)
{
    memset(a->bytes + a->n, 0, 2 * BLOCK);
    a->n += 2 * BLOCK;
}

static void expect_entry(td_tar *t, const char *name, int64_t offset, int64_t n_bytes)
{
    td_tar_entry e;
    expect_ok(td_tar_next(t, &e));
    assert_non_null(e.name);
    assert_string_equal(e.name, name);
    assert_int_equal(e.offset, offset);
    assert_int_equal(e.n_bytes, n_bytes);
}

static void expect_end(td_tar *t)
{
    td_tar_entry e;
    expect_ok(td_tar_next(t, &e));
    assert_null(e.name);
    td_tar_close(t);
}

static void refuse(const archive *a, td_status st, const char *part)
{
    td_tar t;
    td_tar_entry e = { .name = "" };
    td_status got = TD_OK;
    td_tar_from(a->bytes, a->n, "a.tar", &t);
    while (got == TD_OK && e.name)
        got = td_tar_next(&t, &e);
    expect_error(got, st, part);
    expect_error(got, st, "'a.tar'");
    td_tar_close(&t);
}

static void files_are_listed(void **state)
{
    (void)state;
    static archive a;
    char content[3];
    td_tar t;
    td_tar_entry e;
    a.n = 0;
    add(&a, "a/1.jpg", '0', "abc", 3);
    add(&a, "folder/", '5', "", 0);
    add(&a, "old folder/", '\0', "", 0);
    add(&a, "2", '\0', "", 0);
    end(&a);
    td_tar_from(a.bytes, a.n, "a.tar", &t);
    expect_ok(td_tar_next(&t, &e));
    assert_string_equal(e.name, "a/1.jpg");
    expect_ok(td_tar_read(&t, &e, content));
    assert_memory_equal(content, "abc", 3);
    expect_entry(&t, "2", 5 * BLOCK, 0);
    expect_end(&t);
}

static void prefixes_are_prepended(void **state)
{
    (void)state;
    static archive a;
    td_tar t;
    a.n = 0;
    unsigned char *h = add(&a, "name", '0', "", 0);
    memcpy(h + 345, "pre/fix", 7);
    finish_header(h);
    h = add(&a, "name", '0', "", 0); /* GNU's has other values there */
    memcpy(h + 257, "ustar  ", 8);
    memcpy(h + 345, "12345", 5);
    finish_header(h);
    memset(add(&a, "", '0', "", 0), 'n', 100);
    finish_header(a.bytes + a.n - BLOCK);
    end(&a);
    td_tar_from(a.bytes, a.n, "a.tar", &t);
    expect_entry(&t, "pre/fix/name", BLOCK, 0);
    expect_entry(&t, "name", 2 * BLOCK, 0);
    char full[101] = { 0 };
    memset(full, 'n', 100);
    expect_entry(&t, full, 3 * BLOCK, 0);
    expect_end(&t);
}

static void long_names_are_read(void **state)
{
    (void)state;
    static archive a;
    char name[300] = { 0 }, record[400];
    td_tar t;
    memset(name, 'x', sizeof name - 1);
    a.n = 0;
    add(&a, "././@LongLink", 'L', name, sizeof name);
    add(&a, "cut", '0', "", 0);
    (void)snprintf(record, sizeof record, "309 path=%s\n", name);
    add(&a, "pax", 'x', record, 309);
    add(&a, "cut", '0', "", 0);
    add(&a, "global", 'g', "12 comment=\n", 12);
    add(&a, "short", '0', "", 0);
    end(&a);
    td_tar_from(a.bytes, a.n, "a.tar", &t);
    expect_entry(&t, name, 3 * BLOCK, 0);
    expect_entry(&t, name, 6 * BLOCK, 0);
    expect_entry(&t, "short", 9 * BLOCK, 0);
    expect_end(&t);
}

static void sizes_may_be_binary_or_in_records(void **state)
{
    (void)state;
    static archive a;
    td_tar t;
    a.n = 0;
    unsigned char *h = add(&a, "binary", '0', "12345", 5);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[135] = 5;
    finish_header(h);
    add(&a, "pax", 'x', "10 size=3\n", 10);
    h = add(&a, "record", '0', "123", 3);
    memset(h + 124, '0', 11);
    finish_header(h);
    end(&a);
    td_tar_from(a.bytes, a.n, "a.tar", &t);
    expect_entry(&t, "binary", BLOCK, 5);
    expect_entry(&t, "record", 5 * BLOCK, 3);
    expect_end(&t);
}

static void header_of(archive *a, int at, const void *bytes, size_t n)
{
    a->n = 0;
    unsigned char *h = add(a, "1.jpg", '0', "abc", 3);
    memcpy(h + at, bytes, n);
    finish_header(h);
    end(a);
}

static void headers_are_checked(void **state)
{
    (void)state;
    static archive a;
    header_of(&a, 124, "000000000x3", 11);
    refuse(&a, TD_EFORMAT, "byte 0");
    header_of(&a, 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    refuse(&a, TD_EFORMAT, "size");
    header_of(&a, 124, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
    refuse(&a, TD_EFORMAT, "size");
    header_of(&a, 124, "77777777777", 11);
    refuse(&a, TD_EFORMAT, "truncated");
    header_of(&a, 0, "\0\0\0\0\0", 5);
    refuse(&a, TD_EFORMAT, "name");
    const struct {
        char type;
        const char *part;
    } types[] = { { '2', "symbolic link" }, { '3', "device" }, { '4', "device" }, { '6', "fifo" } };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        header_of(&a, 156, &types[i].type, 1);
        refuse(&a, TD_EUNSUPPORTED, types[i].part);
    }
    a.n = 0;
    memcpy(add(&a, "link.jpg", '1', "", 0) + 157, "1.jpg", 5);
    finish_header(a.bytes);
    end(&a);
    refuse(&a, TD_EUNSUPPORTED, "hard link");
    header_of(&a, 0, "x", 1);
    a.bytes[0] = 'y';
    refuse(&a, TD_EFORMAT, "tar");
    memcpy(a.bytes, "\x1f\x8b", 2);
    refuse(&a, TD_EUNSUPPORTED, "gzip");
}

static void records_are_checked(void **state)
{
    (void)state;
    static archive a;
    static const char *const wrong[] = { "8 size=3\n",
                                         "11 size=3\n",
                                         "10 size=3x",
                                         "x size=3\n",
                                         "10 sizex3\n",
                                         "10",
                                         "99999999999999999999 size=3\n",
                                         "3 \n",
                                         "0 size=1\n" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        a.n = 0;
        add(&a, "pax", 'x', wrong[i], strlen(wrong[i]));
        add(&a, "1.jpg", '0', "", 0);
        end(&a);
        refuse(&a, TD_EFORMAT, "pax");
    }
    a.n = 0;
    add(&a, "pax", 'x', "13 path=a\tb\n\n", 13);
    add(&a, "1.jpg", '0', "", 0);
    end(&a);
    refuse(&a, TD_EFORMAT, "control character");
}

/* every beginning of a tar is refused, except the one that lacks only the second block of zeros */
static void cut_files_are_refused(void **state)
{
    (void)state;
    static archive a;
    a.n = 0;
    add(&a, "1.jpg", '0', "abc", 3);
    add(&a, "1.cls", '0', "0", 1);
    end(&a);
    const size_t n = a.n;
    for (a.n = 0; a.n < n - BLOCK; a.n++)
        refuse(&a, TD_EFORMAT, "");
    td_tar t;
    a.n = n - BLOCK;
    td_tar_from(a.bytes, a.n, "a.tar", &t);
    expect_entry(&t, "1.jpg", BLOCK, 3);
    expect_entry(&t, "1.cls", 3 * BLOCK, 1);
    expect_end(&t);
}

static void bytes_after_the_end_are_refused(void **state)
{
    (void)state;
    static archive a;
    a.n = 0;
    add(&a, "1.jpg", '0', "abc", 3);
    end(&a);
    add(&a, "2.jpg", '0', "abc", 3);
    end(&a);
    refuse(&a, TD_EFORMAT, "2048");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(files_are_listed),
        leak_checked_test(prefixes_are_prepended),
        leak_checked_test(long_names_are_read),
        leak_checked_test(sizes_may_be_binary_or_in_records),
        leak_checked_test(headers_are_checked),
        leak_checked_test(records_are_checked),
        leak_checked_test(cut_files_are_refused),
        leak_checked_test(bytes_after_the_end_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
