/*
 * test_safetensors.c -- what is written comes back; what is malformed is refused, in words
 */
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"
#include "io/atomic.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

/* a file in memory */
typedef struct {
    char *bytes;
    size_t n;
} image;

static image load(const char *path)
{
    image f;
    expect_ok(td_file_read(path, (size_t)1 << 30, &f.bytes, &f.n));
    return f;
}

/* length, header, n_data bytes 1, 2, 3 ... */
static image build(const char *header, size_t n_header, size_t n_data)
{
    image f = { .n = 8 + n_header + n_data };
    f.bytes = td_alloc(f.n, 1);
    assert_non_null(f.bytes);
    for (int i = 0; i < 8; i++)
        f.bytes[i] = (char)(unsigned char)(n_header >> 8 * i);
    memcpy(f.bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        f.bytes[8 + n_header + i] = (char)(unsigned char)(i + 1);
    return f;
}

/* --- there and back -------------------------------------------------------------------------- */

static const int64_t shape_2x3[] = { 2, 3 }, shape_5[] = { 5 }, shape_0[] = { 4, 0, 7 },
                     shape_8[] = { 1, 2, 1, 2, 1, 1, 1, 1 };
static const float some_floats[] = { 1.5f, -0.0f, 3e-42f, 1e38f, -2, 7 };
static const uint8_t some_bytes[] = { 1, 2, 3, 250, 5 };
static const double some_double = 0.1;
static const uint16_t some_halves[] = { 0x3f80, 0x7fc1, 0, 0xffff };

static td_tensors *sample(void)
{
    td_tensors *t;
    int64_t *counts;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "bytes", TD_DT_U8, 1, shape_5, some_bytes));
    expect_ok(td_tensors_add(t, "layer1.0.conv1.weight", TD_DT_F32, 2, shape_2x3, some_floats));
    expect_ok(td_tensors_add(t, "half", TD_DT_BF16, 8, shape_8, some_halves));
    expect_ok(td_tensors_add(t, "scalar", TD_DT_F64, 0, NULL, &some_double));
    expect_ok(td_tensors_add(t, "nothing", TD_DT_F32, 3, shape_0, NULL));
    expect_ok(td_tensors_add_new(t, "counts", TD_DT_I64, 1, shape_5, (void **)&counts));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(counts[i], 0);
        counts[i] = INT64_MIN + i;
    }
    expect_ok(td_tensors_set_meta(t, "arch", "resnet18"));
    expect_ok(td_tensors_set_meta(t, "names \"\\\n\t\x01\x7f", "caf\xc3\xa9 {\"a\": [1]}\n"));
    expect_ok(td_tensors_set_meta(t, "arch", "resnet50"));
    return t;
}

static void check_one(const td_tensors *t, const char *name, td_dtype dtype, int rank,
                      const int64_t *dim, const void *data, size_t n_bytes)
{
    const td_tensor *x = td_tensors_get(t, name);
    assert_non_null(x);
    assert_string_equal(x->name, name);
    assert_int_equal(x->dtype, dtype);
    assert_int_equal(x->rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(x->dim[i], dim[i]);
    assert_int_equal(x->n_bytes, n_bytes);
    if (n_bytes) {
        assert_int_equal((uintptr_t)x->data % 8, 0);
        assert_memory_equal(x->data, data, n_bytes);
    }
}

static void check_sample(const td_tensors *t)
{
    static const char *const order[] = { "scalar",  "counts", "layer1.0.conv1.weight",
                                         "nothing", "half",   "bytes" };
    int64_t counts[5];
    for (int i = 0; i < 5; i++)
        counts[i] = INT64_MIN + i;
    assert_int_equal(td_tensors_count(t), 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(td_tensors_at(t, i)->name, order[i]);
    assert_null(td_tensors_at(t, 6));
    assert_null(td_tensors_get(t, "absent"));
    check_one(t, "bytes", TD_DT_U8, 1, shape_5, some_bytes, 5);
    check_one(t, "layer1.0.conv1.weight", TD_DT_F32, 2, shape_2x3, some_floats, 24);
    check_one(t, "half", TD_DT_BF16, 8, shape_8, some_halves, 8);
    check_one(t, "scalar", TD_DT_F64, 0, NULL, &some_double, 8);
    check_one(t, "nothing", TD_DT_F32, 3, shape_0, NULL, 0);
    check_one(t, "counts", TD_DT_I64, 1, shape_5, counts, 40);

    assert_string_equal(td_tensors_meta(t, "arch"), "resnet50");
    assert_string_equal(td_tensors_meta(t, "names \"\\\n\t\x01\x7f"), "caf\xc3\xa9 {\"a\": [1]}\n");
    assert_null(td_tensors_meta(t, "absent"));
    assert_int_equal(td_tensors_meta_count(t), 4);
    assert_string_equal(td_tensors_meta_key(t, 0), "digest");
    assert_string_equal(td_tensors_meta_key(t, 1), "digest_of");
    assert_string_equal(td_tensors_meta_key(t, 2), "arch");
    assert_null(td_tensors_meta_key(t, 4));
}

static image sample_file(const char *name)
{
    td_tensors *t = sample();
    expect_ok(td_tensors_write(t, td_scratch_path(name)));
    td_tensors_free(t);
    return load(td_scratch_path(name));
}

static void round_trip(void **state)
{
    (void)state;
    td_tensors *t;
    image f = sample_file("sample");
    expect_ok(td_tensors_read(td_scratch_path("sample"), &t));
    check_sample(t);
    td_tensors_free(t);

    /* what the header of the contract says about the bytes */
    size_t n_header = (unsigned char)f.bytes[0] + 256u * (unsigned char)f.bytes[1];
    assert_int_equal((8 + n_header) % 64, 0);
    static const char start[] = "{\"__metadata__\":{\"digest\":\"xxh3:";
    assert_memory_equal(f.bytes + 8, start, sizeof start - 1);
    assert_int_equal(strspn(f.bytes + 8 + sizeof start - 1, "0123456789abcdef"), 16);
    assert_int_equal(f.n, 8 + n_header + 5 + 24 + 8 + 8 + 40);

    /* from memory, at any alignment */
    char *shifted = td_alloc(f.n + 8, 1);
    assert_non_null(shifted);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(shifted + shift, f.bytes, f.n);
        expect_ok(td_tensors_parse(shifted + shift, f.n, "memory", &t));
        check_sample(t);
        td_tensors_free(t);
    }
    td_free(shifted);
    td_free(f.bytes);
}

/* reading, adding and writing again makes a new digest, and the same set twice the same bytes */
static void write_what_was_read(void **state)
{
    (void)state;
    td_tensors *t;
    image a = sample_file("again");
    expect_ok(td_tensors_read(td_scratch_path("again"), &t));
    expect_ok(td_tensors_write(t, td_scratch_path("again")));
    image b = load(td_scratch_path("again"));
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);

    expect_ok(td_tensors_add(t, "more", TD_DT_U8, 1, shape_5, some_bytes));
    expect_ok(td_tensors_write(t, td_scratch_path("again")));
    td_tensors_free(t);
    expect_ok(td_tensors_read(td_scratch_path("again"), &t));
    assert_int_equal(td_tensors_count(t), 7);
    td_tensors_free(t);
    td_free(a.bytes);
    td_free(b.bytes);
}

static void empty_set(void **state)
{
    (void)state;
    td_tensors *t;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_write(t, td_scratch_path("empty")));
    td_tensors_free(t);
    expect_ok(td_tensors_read(td_scratch_path("empty"), &t));
    assert_int_equal(td_tensors_count(t), 0);
    td_tensors_free(t);

    image f = build("{}", 2, 0); /* the smallest there is */
    expect_ok(td_tensors_parse(f.bytes, f.n, "memory", &t));
    assert_int_equal(td_tensors_count(t), 0);
    assert_int_equal(td_tensors_meta_count(t), 0);
    td_tensors_free(t);
    td_free(f.bytes);
    td_tensors_free(NULL);
}

/* three bytes before a float: crooked in the file, straight in memory */
static void crooked_file(void **state)
{
    (void)state;
    static const char header[] =
        " {\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]},"
        "\"b\":{\"shape\":[3],\"dtype\":\"U8\",\"data_offsets\":[0,3]}} \n";
    td_tensors *t;
    image f = build(header + 1, sizeof header - 2, 11);

    for (int from_file = 0; from_file < 2; from_file++) {
        if (from_file) {
            expect_ok(td_file_write(td_scratch_path("crooked"), f.bytes, f.n));
            expect_ok(td_tensors_read(td_scratch_path("crooked"), &t));
        } else {
            expect_ok(td_tensors_parse(f.bytes, f.n, "memory", &t));
        }
        assert_int_equal(td_tensors_count(t), 2);
        assert_string_equal(td_tensors_at(t, 0)->name, "b");
        check_one(t, "b", TD_DT_U8, 1, (int64_t[]){ 3 }, "\1\2\3", 3);
        check_one(t, "f", TD_DT_F32, 1, (int64_t[]){ 2 }, "\4\5\6\7\10\11\12\13", 8);
        td_tensors_free(t);
    }
    td_free(f.bytes);
}

static void not_a_number(void **state)
{
    (void)state;
    static const uint32_t bits[] = { 0x7fc00000, 0x7f800001, 0xffc12345, 0x7f800000, 0xff800000 };
    td_tensors *t;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "x", TD_DT_F32, 1, shape_5, bits));
    expect_ok(td_tensors_write(t, td_scratch_path("nan")));
    td_tensors_free(t);
    expect_ok(td_tensors_read(td_scratch_path("nan"), &t));
    check_one(t, "x", TD_DT_F32, 1, shape_5, bits, sizeof bits);
    td_tensors_free(t);
}

/* --- arguments ------------------------------------------------------------------------------- */

static void refused_arguments(void **state)
{
    (void)state;
    const int64_t bad[] = { 2, -1 }, huge[] = { INT64_MAX, 8 }, two[] = { (int64_t)1 << 62, 1 };
    td_tensors *t = sample();
    void *p;

#define REFUSED(part, ...) expect_error(td_tensors_add(t, __VA_ARGS__), TD_EARG, part)
    REFUSED("cannot name a tensor", "", TD_DT_F32, 0, NULL, some_floats);
    REFUSED("cannot name a tensor", "__metadata__", TD_DT_F32, 0, NULL, some_floats);
    REFUSED("cannot name a tensor", "\xff", TD_DT_F32, 0, NULL, some_floats);
    REFUSED("tensor 'half' is repeated", "half", TD_DT_F32, 0, NULL, some_floats);
    REFUSED("no element type", "x", TD_DT_NONE, 0, NULL, some_floats);
    REFUSED("9 dimensions", "x", TD_DT_F32, 9, shape_8, some_floats);
    REFUSED("-1 dimensions", "x", TD_DT_F32, -1, shape_8, some_floats);
    REFUSED("tensor 'x' has an invalid shape", "x", TD_DT_F32, 2, bad, some_floats);
    REFUSED("tensor 'x' has an invalid shape", "x", TD_DT_F32, 2, huge, some_floats);
    REFUSED("tensor 'x' has an invalid shape", "x", TD_DT_F32, 1, two, some_floats);
    REFUSED("no data", "x", TD_DT_F32, 0, NULL, NULL);
#undef REFUSED
    expect_error(td_tensors_add_new(t, "half", TD_DT_F32, 0, NULL, &p), TD_EARG,
                 "tensor 'half' is repeated");
    assert_null(p);
    expect_error(td_tensors_set_meta(t, "digest", "x"), TD_EARG, "set by the writer");
    expect_error(td_tensors_set_meta(t, "digest_of", "x"), TD_EARG, "set by the writer");
    expect_error(td_tensors_set_meta(t, "k", "\xc0\x80"), TD_EARG, "not UTF-8");
    expect_error(td_tensors_set_meta(t, "\xed\xa0\x80", "v"), TD_EARG, "not UTF-8");
    assert_int_equal(td_tensors_count(t), 6);
    assert_int_equal(td_tensors_meta_count(t), 2);
    td_tensors_free(t);
}

/* --- malformed headers ----------------------------------------------------------------------- */

/* an entry, and one of two floats */
#define E(dtype, shape, at)                                                                        \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" at "]}"
#define F(at) E("F32", "2", at)

typedef struct {
    const char *header;
    size_t n_data;
    td_status st;
    const char *part; /* of the message */
} bad_case;

/* clang-format off */
static const bad_case bad_cases[] = {
    /* tiling */
    { "{\"a\":" F("0,8") ",\"b\":" F("4,12") "}", 12, TD_EFORMAT, "'b' starts at 4 and overlaps" },
    { "{\"a\":" F("0,8") ",\"b\":" F("0,8") "}", 8, TD_EFORMAT, "overlaps" },
    { "{\"a\":" F("0,8") ",\"b\":" F("12,20") "}", 20, TD_EFORMAT,
      "'b' starts at 12 and leaves a hole" },
    { "{\"a\":" F("4,12") "}", 12, TD_EFORMAT, "leaves a hole" },
    { "{\"a\":" F("0,8") "}", 9, TD_EFORMAT, "1 bytes after the last tensor" },
    { "{}", 1, TD_EFORMAT, "1 bytes after the last tensor" },
    { "{\"a\":" F("0,8") "}", 7, TD_EFORMAT, "is at 0 to 8 of 7" },
    { "{\"a\":" F("8,0") "}", 8, TD_EFORMAT, "is at 8 to 0" },
    { "{\"a\":" F("-8,0") "}", 8, TD_EFORMAT, "is at -8" },
    { "{\"a\":" F("9223372036854775800,9223372036854775807") "}", 8, TD_EFORMAT, "is at 92" },
    { "{\"a\":" F("0,18446744073709551616") "}", 8, TD_EFORMAT, "too big" },
    { "{\"a\":" F("0,8.0") "}", 8, TD_EFORMAT, ", wanted an" },
    { "{\"a\":" F("0,\"8\"") "}", 8, TD_EFORMAT, ", wanted an" },
    { "{\"a\":" F("0") "}", 8, TD_EFORMAT, "no pair of data_offsets" },
    { "{\"a\":" F("0,4,8") "}", 8, TD_EFORMAT, "no pair of data_offsets" },
    { "{\"a\":" F("0,4") "}", 4, TD_EFORMAT, "4 bytes, its shape needs 8" },
    /* duplicates */
    { "{\"a\":" F("0,8") ",\"a\":" F("8,16") "}", 16, TD_EFORMAT, "duplicate" },
    { "{\"a\":" F("0,8") ",\"a\":" F("0,8") "}", 8, TD_EFORMAT, "duplicate" },
    { "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, TD_EFORMAT, "duplicate" },
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
      TD_EFORMAT, "duplicate" },
    /* shapes */
    { "{\"a\":" E("F32", "-1", "0,4") "}", 4, TD_EFORMAT, "negative or too large" },
    { "{\"a\":" E("F32", "-2,-1", "0,8") "}", 8, TD_EFORMAT, "negative or too large" },
    { "{\"a\":" E("F32", "4611686018427387904", "0,0") "}", 0, TD_EFORMAT, "too large" },
    { "{\"a\":" E("U8", "4294967296,4294967296", "0,0") "}", 0, TD_EFORMAT, "too large" },
    { "{\"a\":" E("U8", "4294967296,4294967297", "0,1") "}", 1, TD_EFORMAT, "too large" },
    { "{\"a\":" E("F32", "99999999999999999999", "0,8") "}", 8, TD_EFORMAT, "too big" },
    { "{\"a\":" E("F32", "1,1,1,1,1,1,1,1,1", "0,4") "}", 4, TD_ELIMIT, "9 dimensions, at most 8" },
    { "{\"a\":" E("F32", "2.0", "0,8") "}", 8, TD_EFORMAT, ", wanted an" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, TD_EFORMAT,
      "'a' has no shape" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,8]}}", 8, TD_EFORMAT,
      "'a' has no shape" },
    /* types */
    { "{\"a\":" E("F33", "2", "0,8") "}", 8, TD_EFORMAT, "'a' has the unknown type 'F33'" },
    { "{\"a\":" E("", "2", "0,8") "}", 8, TD_EFORMAT, "unknown type ''" },
    { "{\"a\":" E("f32", "2", "0,8") "}", 8, TD_EFORMAT, "unknown type 'f32'" },
    { "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TD_EFORMAT,
      "wanted a string" },
    { "{\"a\":" E("BOOL", "2", "0,2") "}", 2, TD_EUNSUPPORTED, "'a' is BOOL" },
    { "{\"a\":" E("I16", "1", "0,2") "}", 2, TD_EUNSUPPORTED, "'a' is I16" },
    { "{\"a\":" E("U64", "2", "0,16") "}", 16, TD_EUNSUPPORTED, "'a' is U64" },
    { "{\"a\":" E("F8_E4M3", "2", "0,2") "}", 2, TD_EUNSUPPORTED, "'a' is F8_E4M3" },
    /* entries */
    { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TD_EFORMAT,
      "wanted dtype, shape and data_offsets" },
    { "{\"a\":{\"type\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TD_EFORMAT,
      "'a' has no dtype" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":0}}", 8, TD_EFORMAT,
      "wanted dtype, shape" },
    { "{\"a\":[\"F32\",[2],[0,8]]}", 8, TD_EFORMAT, "wanted dtype, shape" },
    { "{\"a\":null}", 0, TD_EFORMAT, "wanted dtype, shape" },
    { "{\"__metadata__\":[]}", 0, TD_EFORMAT, "__metadata__ is not an object" },
    { "{\"__metadata__\":{\"epoch\":3}}", 0, TD_EFORMAT, "wanted a string" },
    { "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, TD_EFORMAT, "wanted a string" },
    /* JSON */
    { "[]", 0, TD_EFORMAT, "does not start with '{'" },
    { " {}", 0, TD_EFORMAT, "does not start with '{'" },
    { "\xef\xbb\xbf{}", 0, TD_EFORMAT, "does not start with '{'" },
    { "{", 0, TD_EFORMAT, "does not" }, /* one byte */
    { "{ ", 0, TD_EFORMAT, "header of 'x'" },
    { "{}x", 0, TD_EFORMAT, "header of 'x'" },
    { "{}{}", 0, TD_EFORMAT, "header of 'x'" },
    { "{\"a\":" F("0,8") ",}", 8, TD_EFORMAT, "header of 'x'" },
    { "{'a':1}", 0, TD_EFORMAT, "header of 'x'" },
    { "{\"\\u0000\":" F("0,8") "}", 8, TD_EFORMAT, "header of 'x'" },
    { "{\"\xff\":" F("0,8") "}", 8, TD_EFORMAT, "header of 'x'" },
    { "{\"a\":" F("0,1e1") "}", 10, TD_EFORMAT, ", wanted an" },
    /* digests */
    { "{\"__metadata__\":{\"digest\":\"xxh3:0123456789abcdef\"}}", 0, TD_EFORMAT,
      "'x' is damaged" },
    { "{\"__metadata__\":{\"digest_of\":\"header and data\"}}", 0, TD_EFORMAT, "'x' is damaged" },
    { "{\"__metadata__\":{\"digest\":\"xxh3:\"}}", 0, TD_EFORMAT, "'x' is damaged" },
    { "{\"__metadata__\":{\"a\":\"b\",\"digest\":\"xxh3:0123456789abcdef\"}}", 0, TD_EFORMAT,
      "'x' is damaged" },
};
/* clang-format on */

static void malformed_headers(void **state)
{
    (void)state;
    int64_t live = td_alloc_live();
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *c = &bad_cases[i];
        td_tensors *t = NULL;
        image f = build(c->header, strlen(c->header), c->n_data);
        /* one byte of '{' is told apart by its length already */
        const char *part = strlen(c->header) == 1 ? "header of 1 bytes" : c->part;
        td_status st = td_tensors_parse(f.bytes, f.n, "x", &t);
        if (st != c->st || !strstr(td_error_message(), part))
            print_error("case %zu: %s\n", i, c->header);
        expect_error(st, c->st, part);
        assert_null(t);

        const char *path = td_scratch_path("bad");
        expect_ok(td_file_write(path, f.bytes, f.n));
        assert_int_equal(td_tensors_read(path, &t), c->st);
        assert_non_null(strstr(td_error_message(), path));
        assert_null(t);
        td_free(f.bytes);
    }
    assert_int_equal(td_alloc_live(), live);
}

/* a digest of somebody else's kind is theirs */
static void foreign_digest(void **state)
{
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"digest\":\"sha256:00\",\"format\":\"pt\"}}";
    td_tensors *t;
    image f = build(header, sizeof header - 1, 0);
    expect_ok(td_tensors_parse(f.bytes, f.n, "x", &t));
    assert_string_equal(td_tensors_meta(t, "digest"), "sha256:00");
    td_tensors_free(t);
    td_free(f.bytes);
}

static void header_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        td_status st;
    } cases[] = {
        { 0, TD_EFORMAT },
        { 1, TD_EFORMAT },
        { 66, TD_EFORMAT },
        { 100000000, TD_EFORMAT },
        { 100000001, TD_ELIMIT },
        { (uint64_t)1 << 40, TD_ELIMIT },
        { (uint64_t)1 << 63, TD_ELIMIT },
        { UINT64_MAX, TD_ELIMIT },
        { UINT64_MAX - 7, TD_ELIMIT },
    };
    unsigned char bytes[73];
    td_tensors *t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(bytes, ' ', sizeof bytes);
        memcpy(bytes + 8, "{}", 2);
        for (int k = 0; k < 8; k++)
            bytes[k] = (unsigned char)(cases[i].length >> 8 * k);
        expect_error(td_tensors_parse(bytes, sizeof bytes, "x", &t), cases[i].st, "'x'");
        expect_ok(td_file_write(td_scratch_path("length"), bytes, sizeof bytes));
        expect_error(td_tensors_read(td_scratch_path("length"), &t), cases[i].st, "header of");
    }
    bytes[0] = 65;
    memset(bytes + 1, 0, 7);
    expect_ok(td_tensors_parse(bytes, sizeof bytes, "x", &t));
    td_tensors_free(t);
    for (size_t n = 0; n < 8; n++) {
        expect_error(td_tensors_parse(bytes, n, "x", &t), TD_EFORMAT, n ? "too short" : "is empty");
        expect_ok(td_file_write(td_scratch_path("length"), bytes, n));
        expect_error(td_tensors_read(td_scratch_path("length"), &t), TD_EFORMAT,
                     n ? "too short" : "is empty");
    }
}

static void deep_nesting(void **state)
{
    (void)state;
    enum { depth = 100000 };
    td_text h = { 0 };
    td_tensors *t;
    td_text_add(&h, "{\"a\":");
    for (int i = 0; i < depth; i++)
        td_text_add(&h, "[");
    for (int i = 0; i < depth; i++)
        td_text_add(&h, "]");
    td_text_add(&h, "}");
    expect_ok(td_text_status(&h));
    image f = build(h.data, h.len, 0);
    expect_error(td_tensors_parse(f.bytes, f.n, "x", &t), TD_EFORMAT, "header of 'x'");
    td_free(f.bytes);
    td_text_release(&h);
}

/* small on disk, gigabytes as a tree */
static void too_many_values(void **state)
{
    (void)state;
    enum { n = 2000001 };
    char *h = td_alloc(2 * n + 8, 1);
    td_tensors *t;
    assert_non_null(h);
    memcpy(h, "{\"a\":[", 6);
    for (int i = 0; i < n; i++)
        memcpy(h + 6 + 2 * i, "0,", 2);
    image f = build(h, 6 + 2 * n, 0);
    expect_error(td_tensors_parse(f.bytes, f.n, "x", &t), TD_ELIMIT, "more than 2000000 values");
    td_free(f.bytes);
    td_free(h);
}

/* the second reading of a file must not fit: a zip archive finds its directory at the end */
static void polyglots(void **state)
{
    (void)state;
    static const char zip[] = "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const size_t n_zip = sizeof zip - 1;
    td_tensors *t;
    image f = sample_file("polyglot");
    char *both = td_alloc(f.n + n_zip, 1);
    assert_non_null(both);

    memcpy(both, f.bytes, f.n);
    memcpy(both + f.n, zip, n_zip);
    expect_error(td_tensors_parse(both, f.n + n_zip, "x", &t), TD_EFORMAT, "after the last tensor");
    memcpy(both, zip, n_zip);
    memcpy(both + n_zip, f.bytes, f.n);
    expect_error(td_tensors_parse(both, f.n + n_zip, "x", &t), TD_ELIMIT, "header of");
    td_free(both);
    td_free(f.bytes);

    static const char padded[] = "{}                \0PK\5\6";
    f = build(padded, sizeof padded - 1, 0);
    expect_error(td_tensors_parse(f.bytes, f.n, "x", &t), TD_EFORMAT, "header of 'x'");
    td_free(f.bytes);
}

/* a search through all of them for each would not end within the time limit */
static void many_tensors(void **state)
{
    (void)state;
    enum { n = 100000 };
    td_text h = { 0 };
    td_tensors *t;
    char name[64];
    for (int i = 0; i < n; i++)
        td_text_add(&h,
                    "%c\"model.layer.%d.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1],"
                    "\"data_offsets\":[%d,%d]}",
                    i ? ',' : '{', i, 4 * i, 4 * i + 4);
    td_text_add(&h, "}");
    expect_ok(td_text_status(&h));
    image f = build(h.data, h.len, 4 * n);
    td_text_release(&h);

    expect_ok(td_tensors_parse(f.bytes, f.n, "x", &t));
    assert_int_equal(td_tensors_count(t), n);
    for (int i = 0; i < n; i += 997) {
        snprintf(name, sizeof name, "model.layer.%d.weight", i);
        assert_int_equal(td_tensors_get(t, name) - td_tensors_at(t, 0), i);
    }

    expect_ok(td_tensors_write(t, td_scratch_path("many")));
    td_tensors_free(t);
    expect_ok(td_tensors_read(td_scratch_path("many"), &t));
    assert_int_equal(td_tensors_count(t), n);
    td_tensors_free(t);
    unlink(td_scratch_path("many"));
    td_free(f.bytes);
}

/* --- damage ---------------------------------------------------------------------------------- */

static void truncated_anywhere(void **state)
{
    (void)state;
    image f = sample_file("whole");
    td_tensors *t;
    const char *path = td_scratch_path("cut");
    for (size_t n = 0; n < f.n; n++) {
        assert_int_equal(td_tensors_parse(f.bytes, n, "x", &t), TD_EFORMAT);
        expect_ok(td_file_write(path, f.bytes, n));
        expect_error(td_tensors_read(path, &t), TD_EFORMAT, path);
    }
    td_free(f.bytes);
}

static void every_bit_flipped(void **state)
{
    (void)state;
    image f = sample_file("whole");
    int64_t live = td_alloc_live();
    td_tensors *t;
    for (size_t bit = 0; bit < 8 * f.n; bit++) {
        char *at = &f.bytes[bit / 8];
        *at = (char)(*at ^ 1 << bit % 8);
        td_status st = td_tensors_parse(f.bytes, f.n, "x", &t);
        if (st == TD_OK)
            print_error("bit %zu of byte %zu goes unnoticed\n", bit % 8, bit / 8);
        assert_int_not_equal(st, TD_OK);
        assert_null(t);
        *at = (char)(*at ^ 1 << bit % 8);
    }
    assert_int_equal(td_alloc_live(), live);

    /* and from a file, for some of the header and all of the data */
    for (size_t i = 0; i < f.n; i += i < f.n - 100 ? 13 : 1) {
        f.bytes[i] = (char)(f.bytes[i] ^ 4);
        expect_ok(td_file_write(td_scratch_path("flipped"), f.bytes, f.n));
        assert_int_not_equal(td_tensors_read(td_scratch_path("flipped"), &t), TD_OK);
        f.bytes[i] = (char)(f.bytes[i] ^ 4);
    }
    expect_ok(td_tensors_parse(f.bytes, f.n, "x", &t));
    td_tensors_free(t);
    td_free(f.bytes);
}

static void damage_is_named(void **state)
{
    (void)state;
    image f = sample_file("whole");
    td_tensors *t;
    f.bytes[f.n - 1] = (char)(f.bytes[f.n - 1] ^ 1);
    const char *path = td_scratch_path("flipped");
    expect_ok(td_file_write(path, f.bytes, f.n));
    expect_error(td_tensors_read(path, &t), TD_EFORMAT, "is damaged: its digest");
    assert_non_null(strstr(td_error_message(), path));
    td_free(f.bytes);
}

/* --- files that are none, calls that fail ---------------------------------------------------- */

static void not_files(void **state)
{
    (void)state;
    td_tensors *t;
    const char *fifo = td_scratch_path("fifo");
    expect_error(td_tensors_read(td_scratch_path("absent"), &t), TD_ENOTFOUND, "absent");
    assert_null(t);
    expect_error(td_tensors_read(td_scratch_folder(), &t), TD_EIO, "a folder");
    expect_error(td_tensors_read("/dev/zero", &t), TD_EIO, "not a regular file");
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_error(td_tensors_read(fifo, &t), TD_EIO, "not a regular file");
    unlink(fifo);
    const char *loop = td_scratch_path("loop");
    assert_int_equal(symlink("loop", loop), 0);
    expect_error(td_tensors_read(loop, &t), TD_EIO, "cannot open");
    unlink(loop);
    expect_error(td_tensors_read("/proc/self/status", &t), TD_EFORMAT, "is empty");
}

static void unwritable(void **state)
{
    (void)state;
    td_tensors *t = sample();
    expect_error(td_tensors_write(t, td_scratch_path("absent/x")), TD_EIO, "absent/x");
    expect_error(td_tensors_write(t, "/dev/null"), TD_EIO, "not a regular file");
    td_tensors_free(t);
}

static int n_writes, fail_write;

static int shim_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static ssize_t shim_write(int fd, const void *bytes, size_t n)
{
    if (++n_writes == fail_write) {
        errno = ENOSPC;
        return -1;
    }
    return write(fd, bytes, n);
}

static void full_disk(void **state)
{
    (void)state;
    static const td_atomic_calls shim = {
        .open = shim_open, .write = shim_write, .fsync = fsync, .rename = rename, .close = close
    };
    image old = sample_file("kept");
    td_tensors *t = sample(), *back;
    expect_ok(td_tensors_set_meta(t, "epoch", "2"));
    td_atomic_set_calls(&shim);
    for (fail_write = 1;; fail_write++) {
        n_writes = 0;
        td_status st = td_tensors_write(t, td_scratch_path("kept"));
        if (st == TD_OK)
            break;
        expect_error(st, TD_EIO, "No space left");
        image now = load(td_scratch_path("kept"));
        assert_int_equal(now.n, old.n);
        assert_memory_equal(now.bytes, old.bytes, old.n);
        td_free(now.bytes);
        assert_int_equal(td_scratch_count(".tmp."), 0);
    }
    td_atomic_set_calls(NULL);
    assert_int_equal(fail_write, 8); /* length, header, five tensors that are not empty */
    expect_ok(td_tensors_read(td_scratch_path("kept"), &back));
    assert_string_equal(td_tensors_meta(back, "epoch"), "2");
    td_tensors_free(back);
    td_tensors_free(t);
    td_free(old.bytes);
}

/* --- memory ---------------------------------------------------------------------------------- */

static td_status try_read(void)
{
    td_tensors *t;
    td_status st = td_tensors_read(td_scratch_path("sample"), &t);
    td_tensors_free(t);
    return st;
}

static td_status try_parse(void)
{
    static image f;
    td_tensors *t;
    if (!f.bytes) {
        td_alloc_fail_at(0);
        image whole = load(td_scratch_path("sample"));
        f = (image){ .bytes = malloc(whole.n + 1), .n = whole.n };
        assert_non_null(f.bytes);
        memcpy(f.bytes + 1, whole.bytes, f.n);
        td_free(whole.bytes);
        return TD_ENOMEM;
    }
    td_status st = td_tensors_parse(f.bytes + 1, f.n, "x", &t); /* crooked: the copy fails too */
    td_tensors_free(t);
    return st;
}

static td_status try_write(void)
{
    td_tensors *t;
    void *p;
    td_status st = td_tensors_new(&t);
    if (st == TD_OK)
        st = td_tensors_add(t, "a", TD_DT_F32, 2, shape_2x3, some_floats);
    if (st == TD_OK)
        st = td_tensors_add_new(t, "b", TD_DT_F32, 2, shape_2x3, &p);
    if (st == TD_OK)
        st = td_tensors_set_meta(t, "k", "v");
    if (st == TD_OK)
        st = td_tensors_write(t, td_scratch_path("memory"));
    td_tensors_free(t);
    return st;
}

static void allocation_failures(void **state)
{
    (void)state;
    td_status (*const runs[])(void) = { try_read, try_parse, try_write };
    td_free(sample_file("sample").bytes);
    for (size_t i = 0; i < 3; i++)
        assert_true(td_test_allocations(runs[i], 9999) > 10);
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

/* a failed add leaves the set as it was */
static void failed_add(void **state)
{
    (void)state;
    td_tensors *t;
    void *p;
    expect_ok(td_tensors_new(&t));
    for (int n = 1;; n++) {
        td_alloc_fail_at(n);
        td_status st = td_tensors_add_new(t, "a", TD_DT_F32, 2, shape_2x3, &p);
        td_alloc_fail_at(0);
        if (st == TD_OK)
            break;
        assert_int_equal(st, TD_ENOMEM);
        assert_null(p);
        assert_int_equal(td_tensors_count(t), 0);
        assert_null(td_tensors_get(t, "a"));
    }
    assert_int_equal(td_tensors_count(t), 1);
    td_tensors_free(t);
}

/* names, types, shapes and bytes of two sets */
static void assert_same(const td_tensors *a, const td_tensors *b)
{
    assert_int_equal(td_tensors_count(a), td_tensors_count(b));
    for (size_t i = 0; i < td_tensors_count(a); i++) {
        const td_tensor *x = td_tensors_at(a, i), *y = td_tensors_at(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
    }
}

static void a_mapped_file_is_what_is_read(void **state)
{
    (void)state;
    td_tensors *read, *mapped;
    static float big[1 << 14];
    expect_ok(td_tensors_new(&read));
    expect_ok(td_tensors_add(read, "big", TD_DT_F32, 1, (int64_t[]){ 1 << 14 }, big));
    expect_ok(td_tensors_write(read, td_scratch_path("big")));
    td_tensors_free(read);
    expect_ok(td_tensors_read(td_scratch_path("big"), &read));
    expect_ok(td_tensors_map(td_scratch_path("big"), &mapped));
    assert_same(read, mapped);
    expect_ok(td_tensors_check(read));
    expect_ok(td_tensors_check(mapped));

    assert_int_equal(truncate(td_scratch_path("big"), 4096), 0);
    const volatile float *x = td_tensors_get(mapped, "big")->data;
    assert_true(x[(1 << 14) - 1] == 0);
    expect_error(td_tensors_check(mapped), TD_EIO, "the file was truncated, or its disk has");
    td_tensors_free(mapped);
    td_tensors_free(read);
    expect_error(td_tensors_map(td_scratch_path("big"), &mapped), TD_EFORMAT, "big");
    expect_error(td_tensors_map(td_scratch_path("absent"), &mapped), TD_ENOTFOUND, "absent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),        cmocka_unit_test(write_what_was_read),
        cmocka_unit_test(empty_set),         cmocka_unit_test(crooked_file),
        cmocka_unit_test(not_a_number),      cmocka_unit_test(refused_arguments),
        cmocka_unit_test(malformed_headers), cmocka_unit_test(foreign_digest),
        cmocka_unit_test(header_lengths),    cmocka_unit_test(deep_nesting),
        cmocka_unit_test(too_many_values),   cmocka_unit_test(polyglots),
        cmocka_unit_test(many_tensors),      cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(every_bit_flipped), cmocka_unit_test(damage_is_named),
        cmocka_unit_test(not_files),         cmocka_unit_test(unwritable),
        cmocka_unit_test(full_disk),         cmocka_unit_test(allocation_failures),
        cmocka_unit_test(failed_add),        cmocka_unit_test(a_mapped_file_is_what_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
