/*
 * test_zip.c -- archives that lie: each ends in a sentence
 */
#include "pth/zip.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "pth/pth.h"
#include "support/allocations.h"
#include "support/expect.h"

enum { ENTRIES_MAX = 8, ROW = 46, LOCAL = 30, END = 22 };

/* an archive in the making; tests overwrite single fields of it */
typedef struct {
    unsigned char bytes[4096];
    size_t n;
    size_t local[ENTRIES_MAX], row[ENTRIES_MAX]; /* where each entry's two headers are */
    size_t end;                                  /* the end record */
} archive;

typedef struct {
    const char *name;
    const void *data;
    size_t n;
} part;

static void put(archive *a, size_t at, int n, uint64_t x)
{
    for (int i = 0; i < n; i++)
        a->bytes[at + (size_t)i] = (unsigned char)(x >> 8 * i);
}

static void add_bytes(archive *a, const void *bytes, size_t n)
{
    assert_true(a->n + n <= sizeof a->bytes);
    if (n)
        memcpy(a->bytes + a->n, bytes, n);
    a->n += n;
}

static uint32_t crc32_of(const unsigned char *p, size_t n)
{
    uint32_t c = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
    }
    return ~c;
}

/* method, time, date, CRC, both sizes, length of the name: alike in both headers */
static void put_common(archive *a, size_t at, const part *p)
{
    put(a, at + 4, 4, 0x00210000);
    put(a, at + 8, 4, crc32_of(p->data, p->n));
    put(a, at + 12, 4, p->n);
    put(a, at + 16, 4, p->n);
    put(a, at + 20, 2, strlen(p->name));
}

static void build(archive *a, const part *parts, size_t n_parts)
{
    static const unsigned char zeros[ROW];
    *a = (archive){ .n = 0 };
    for (size_t i = 0; i < n_parts; i++) {
        a->local[i] = a->n;
        add_bytes(a, zeros, LOCAL);
        put(a, a->local[i], 4, 0x04034b50);
        put(a, a->local[i] + 4, 2, 20);
        put_common(a, a->local[i] + 6, &parts[i]);
        add_bytes(a, parts[i].name, strlen(parts[i].name));
        add_bytes(a, parts[i].data, parts[i].n);
    }
    size_t cd = a->n;
    for (size_t i = 0; i < n_parts; i++) {
        a->row[i] = a->n;
        add_bytes(a, zeros, ROW);
        put(a, a->row[i], 4, 0x02014b50);
        put(a, a->row[i] + 4, 4, 20 | 20 << 16);
        put_common(a, a->row[i] + 8, &parts[i]);
        put(a, a->row[i] + 42, 4, a->local[i]);
        add_bytes(a, parts[i].name, strlen(parts[i].name));
    }
    a->end = a->n;
    add_bytes(a, zeros, END);
    put(a, a->end, 4, 0x06054b50);
    put(a, a->end + 8, 2, n_parts);
    put(a, a->end + 10, 2, n_parts);
    put(a, a->end + 12, 4, a->end - cd);
    put(a, a->end + 16, 4, cd);
}

static const part two[] = { { "a/x", "hello", 5 }, { "a/y", "worlds", 6 } };

static td_status open_archive(const archive *a)
{
    td_zip *z;
    unsigned char *exact = malloc(a->n);
    assert_non_null(exact);
    memcpy(exact, a->bytes, a->n);
    td_blob b = td_blob_of(exact, a->n, "bad.zip");
    td_status st = td_zip_open(&b, &z);
    for (size_t i = 0; st == TD_OK && i < td_zip_count(z); i++) {
        char to[64];
        assert_true(td_zip_bytes(z, i) <= sizeof to);
        st = td_zip_read(z, i, to);
    }
    td_zip_close(z);
    free(exact);
    return st;
}

#define refuses(a, st, part) expect_error(open_archive(a), st, part)

static void test_good(void **state)
{
    archive a;
    td_zip *z;
    size_t i;
    char text[8] = { 0 };
    (void)state;
    build(&a, two, 2);
    td_blob b = td_blob_of(a.bytes, a.n, "good.zip");
    expect_ok(td_zip_open(&b, &z));
    assert_int_equal(td_zip_count(z), 2);
    assert_true(td_zip_find(z, "a/y", &i));
    assert_string_equal(td_zip_name(z, i), "a/y");
    assert_int_equal(td_zip_bytes(z, i), 6);
    expect_ok(td_zip_read(z, i, text));
    assert_string_equal(text, "worlds");
    assert_false(td_zip_find(z, "a/z", &i));
    td_zip_close(z);
    build(&a, two, 0);
    expect_ok(open_archive(&a));
}

/* --- bombs ------------------------------------------------------------------------------------ */

static void test_compressed(void **state)
{
    archive a;
    (void)state;
    static const part program[] = { { "a/code/x.py", "hello", 5 } };
    build(&a, program, 1);
    refuses(&a, TD_EUNSUPPORTED, "is a TorchScript program, wanted weights");
    build(&a, two, 2);
    put(&a, a.local[0] + 8, 2, 8); /* deflated */
    put(&a, a.row[0] + 10, 2, 8);
    refuses(&a, TD_EUNSUPPORTED, "entry 'a/x' is compressed, 5 to 5 bytes; only stored");
    put(&a, a.local[0] + 22, 4, 0xfffffff0); /* to four gigabytes */
    put(&a, a.row[0] + 24, 4, 0xfffffff0);
    refuses(&a, TD_EUNSUPPORTED, "entry 'a/x' is compressed, 4294967280 to 5 bytes");
    build(&a, two, 2); /* "stored", and yet more than there is */
    put(&a, a.local[0] + 22, 4, 0xfffffff0);
    put(&a, a.row[0] + 24, 4, 0xfffffff0);
    expect_error(open_archive(&a), open_archive(&a), "bad.zip");
    assert_int_not_equal(open_archive(&a), TD_OK);
    /* encrypted: 12 bytes more than its text, as libzip >= 1.10 demands of such an entry */
    static const part secret[] = { { "a/x", "twelve bytes hello", 17 } };
    build(&a, secret, 1);
    put(&a, a.local[0] + 6, 2, 1);
    put(&a, a.row[0] + 8, 2, 1);
    put(&a, a.local[0] + 22, 4, 5);
    put(&a, a.row[0] + 24, 4, 5);
    refuses(&a, TD_EUNSUPPORTED, "entry 'a/x' is encrypted");
}

static void test_overlapping(void **state)
{
    archive a, inner;
    (void)state;
    build(&a, two, 2); /* both entries are the first one's bytes */
    put(&a, a.row[1] + 42, 4, a.local[0]);
    refuses(&a, TD_EFORMAT, "the entry at 0 overlaps the one that ends at 38");

    /* an entry within an entry's data: how a bomb of quoted headers is made */
    build(&inner, &two[1], 1);
    const part quoted[] = { { "a/x", inner.bytes, LOCAL + 9 }, { "a/y", "worlds", 6 } };
    build(&a, quoted, 2);
    put(&a, a.row[1] + 42, 4, a.local[0] + LOCAL + 3);
    refuses(&a, TD_EFORMAT, "the entry at 33 overlaps the one that ends at");

    build(&a, two, 2);
    put(&a, a.row[1] + 20, 4, 7);
    refuses(&a, TD_EFORMAT, "entry 1 of 7 bytes at 38 reaches into the directory at");
    build(&a, two, 2);
    put(&a, a.local[1] + 28, 2, 9); /* a longer extra field */
    refuses(&a, TD_EFORMAT, "reaches into the directory");
    build(&a, two, 2);
    put(&a, a.row[1] + 42, 4, 0x7fffffff);
    refuses(&a, TD_EFORMAT, "1 begins at 2147483647");
    build(&a, two, 2);
    put(&a, a.row[1] + 42, 4, a.local[1] + 1);
    refuses(&a, TD_EFORMAT, "no entry begins at 39");
}

/* --- the directory ---------------------------------------------------------------------------- */

static void test_ends(void **state)
{
    archive a;
    (void)state;
    build(&a, two, 2);
    a.n++;
    refuses(&a, TD_EFORMAT, "the end of the");
    a.n -= 2;
    refuses(&a, TD_EFORMAT, "the end of the");
    a.n = 21;
    refuses(&a, TD_EFORMAT, "too short");
    build(&a, two, 2);
    put(&a, a.end + 8, 4, 1 | 1 << 16);
    refuses(&a, TD_EFORMAT, "after the last entry of its directory");
    put(&a, a.end + 8, 4, 3 | 3 << 16);
    refuses(&a, TD_EFORMAT, "its directory has 2 entries, wanted 3");
    put(&a, a.end + 8, 4, 2 | 3 << 16);
    refuses(&a, TD_EFORMAT, "in several parts");
    build(&a, two, 2);
    put(&a, a.end + 12, 4, 5);
    refuses(&a, TD_EFORMAT, "a zip directory of 5 bytes at");
    build(&a, two, 2);
    put(&a, a.row[1] + 28, 2, 0xffff);
    refuses(&a, TD_EFORMAT, "'bad.zip': entry 1 of its directory");
    build(&a, two, 2);
    put(&a, a.end + 20, 2, 3); /* a comment is fine */
    add_bytes(&a, "abc", 3);
    expect_ok(open_archive(&a));
}

/* replace the end record by zip64's, its locator and a saturated end record */
static size_t add_zip64(archive *a, uint64_t n, uint64_t cd_bytes, uint64_t cd_at)
{
    static const unsigned char zeros[56 + 20 + END];
    size_t at = a->end;
    a->n = at;
    add_bytes(a, zeros, sizeof zeros);
    put(a, at, 4, 0x06064b50);
    put(a, at + 4, 8, 44);
    put(a, at + 12, 4, 45 | 45 << 16);
    put(a, at + 24, 8, n);
    put(a, at + 32, 8, n);
    put(a, at + 40, 8, cd_bytes);
    put(a, at + 48, 8, cd_at);
    put(a, at + 56, 4, 0x07064b50);
    put(a, at + 64, 8, at);
    put(a, at + 72, 4, 1);
    a->end = at + 76;
    put(a, a->end, 4, 0x06054b50);
    put(a, a->end + 8, 4, 0xffffffff);
    put(a, a->end + 12, 8, UINT64_MAX);
    return at;
}

static void test_zip64(void **state)
{
    archive a;
    (void)state;
    build(&a, two, 2);
    const size_t cd = a.row[0], cd_bytes = a.end - cd;
    add_zip64(&a, 2, cd_bytes, cd);
    expect_ok(open_archive(&a));
    put(&a, a.end + 10, 2, 1);
    put(&a, a.end + 8, 2, 1);
    refuses(&a, TD_EFORMAT, "zip64 record and its end record disagree");

    build(&a, two, 2);
    add_zip64(&a, 200000, cd_bytes, cd);
    refuses(&a, TD_ELIMIT, "a zip directory of 200000 entries");
    build(&a, two, 2);
    add_zip64(&a, (uint64_t)1 << 62, cd_bytes, cd);
    refuses(&a, TD_ELIMIT, "entries and");
    build(&a, two, 2);
    add_zip64(&a, 2, UINT64_MAX, cd);
    refuses(&a, TD_EFORMAT, "a zip directory of 18446744073709551615 bytes");
    build(&a, two, 2);
    add_zip64(&a, 2, cd_bytes, UINT64_MAX - 5);
    refuses(&a, TD_EFORMAT, "bytes at 18446744073709551610");
    build(&a, two, 2);
    size_t at = add_zip64(&a, 2, cd_bytes, cd);
    put(&a, at + 64, 8, 3);
    refuses(&a, TD_EFORMAT, "zip64 record is 3, wanted 175");
    put(&a, at + 64, 8, at);
    put(&a, at + 4, 8, 45);
    refuses(&a, TD_EFORMAT, "zip64 record is malformed");
    put(&a, at + 56, 4, 0);
    refuses(&a, TD_EFORMAT, "zip64 record is missing");

    build(&a, two, 2); /* a size that is elsewhere, and is not */
    put(&a, a.row[0] + 20, 4, 0xffffffff);
    refuses(&a, TD_EFORMAT, "entry 0 has a malformed extra field");
}

static void test_zip64_sizes(void **state)
{
    static const unsigned char extra[] = { 1,    0,    8,    0,    0xff, 0xff,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0x7f };
    archive a;
    (void)state;
    build(&a, two, 1);
    const size_t cd = a.row[0]; /* the row grows by an extra field that claims 2^63 - 1 bytes */
    a.n = a.end;
    add_bytes(&a, extra, sizeof extra);
    put(&a, cd + 20, 4, 0xffffffff);
    put(&a, cd + 30, 2, sizeof extra);
    a.end = a.n;
    add_zip64(&a, 1, a.end - cd, cd);
    refuses(&a, TD_EFORMAT, "entry 0 of 9223372036854775807 bytes at 0 reaches into the directory");
}

/* --- names and content ------------------------------------------------------------------------ */

static void test_names(void **state)
{
    static const char *const bad[] = { "../x", "/x", "a/../b", "a/..", "..", "a\\b", "" };
    archive a;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[64];
        const part p = { bad[i], "hello", 5 };
        snprintf(want, sizeof want, "an entry with the name '%s'", bad[i]);
        build(&a, &p, 1);
        refuses(&a, TD_EFORMAT, want);
    }
    const part odd = { "a/..b/...", "hello", 5 };
    build(&a, &odd, 1);
    expect_ok(open_archive(&a));
    const part twins[] = { two[0], two[0] };
    build(&a, twins, 2);
    refuses(&a, TD_EFORMAT, "two entries with the same name");
    build(&a, two, 2); /* the headers disagree */
    a.bytes[a.local[0] + LOCAL] = 'b';
    assert_int_not_equal(open_archive(&a), TD_OK);
}

static void test_damage(void **state)
{
    archive a;
    (void)state;
    build(&a, two, 2);
    a.bytes[a.local[1] + LOCAL + 3] ^= 1;
    refuses(&a, TD_EFORMAT, "entry 'a/y' is");
    for (size_t n = 0; n < a.n; n++) {
        archive cut;
        build(&cut, two, 2);
        cut.n = n;
        if (n > 0)
            refuses(&cut, TD_EFORMAT, "bad.zip");
    }
}

static const archive *swept;

static td_status open_swept(void)
{
    return open_archive(swept);
}

static void test_allocations(void **state)
{
    archive a;
    (void)state;
    build(&a, two, 2);
    swept = &a;
    td_test_allocations(open_swept, 200);
}

/* --- archives that are none of PyTorch's ------------------------------------------------------ */

static td_status parse(const archive *a)
{
    td_tensors *t;
    td_status st = td_pth_parse(a->bytes, a->n, "bad.pth", false, &t);
    td_tensors_free(t);
    return st;
}

static const char tensor[] =
    "\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
    "X\1\0\0\0000X\3\0\0\0cpuK\1tQK\0K\1\x85K\1\x85\x89}tRs.";

static void test_pth(void **state)
{
    static const char odd[] = "\x80\2}.x", shell[] = "\x80\2cos\nsystem\nX\2\0\0\0ls\x85R.";
    const part good[] = { { "a/data.pkl", tensor, sizeof tensor - 1 },
                          { "a/data/0", "\0\0\x80\x3f", 4 },
                          { "a/byteorder", "little", 6 } };
    archive a;
    (void)state;
    build(&a, good, 3);
    expect_ok(parse(&a));
    const part big[] = { good[0], good[1], { "a/byteorder", "big", 3 } };
    build(&a, big, 3);
    expect_error(parse(&a), TD_EUNSUPPORTED, "its byte order is 'big'");
    build(&a, good, 1);
    expect_error(parse(&a), TD_EFORMAT, "tensor 'w': there is no storage '0'");
    const part small[] = { good[0], { "a/data/0", "\0\0\0", 3 } };
    build(&a, small, 2);
    expect_error(parse(&a), TD_EFORMAT, "1 elements of 4 bytes, but has 3");
    const part other[] = { good[0], { "b/data.pkl", tensor, sizeof tensor - 1 } };
    build(&a, other, 2);
    expect_error(parse(&a), TD_EFORMAT, "with 2 entries FOLDER/data.pkl");
    build(&a, two, 2);
    expect_error(parse(&a), TD_EFORMAT, "with 0 entries FOLDER/data.pkl");
    const part trailing = { "a/data.pkl", odd, 5 };
    build(&a, &trailing, 1);
    expect_error(parse(&a), TD_EFORMAT, "1 bytes after the end of its pickle");
    const part code = { "a/data.pkl", shell, sizeof shell - 1 };
    build(&a, &code, 1);
    expect_error(parse(&a), TD_EUNSUPPORTED, "2: the name 'os.system'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_overlapping), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_zip64),       cmocka_unit_test(test_zip64_sizes),
        cmocka_unit_test(test_names),       cmocka_unit_test(test_damage),
        cmocka_unit_test(test_allocations), cmocka_unit_test(test_pth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
