/* test_pack.c -- a pack reads back as it was written; every lie in its index is named */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "io/digest.h"
#include "io/pack.h"

static const char *const two[] = { "cat", "dog" }, *const three[] = { "a", "b", "caf\351" };

static td_status write_sample(const char *path)
{
    td_pack_writer *w;
    td_pack_metadata metadata;
    td_status st;
    TD_TRY(td_pack_create(path, 256, 90, false, &w));
    TD_OUT(td_pack_begin_split(w, "train", 3, three));
    TD_OUT(td_pack_add(w, 0, "1.jpg", "one", 3));
    TD_OUT(td_pack_add(w, 0, "deep/2.jpg", "", 0));
    TD_OUT(td_pack_add(w, 1, "1.jpg", "three", 5));
    TD_OUT(td_pack_add(w, 2, "odd\nname.png", "f\0ur", 4));
    TD_OUT(td_pack_begin_split(w, "val", 2, two));
    TD_OUT(td_pack_add(w, 0, "x.jpg", "x", 1));
    TD_OUT(td_pack_add(w, 1, "y.jpg", "yy", 2));
    TD_OUT(td_pack_finish(w, &metadata));
    assert_true(metadata.n_splits == 2 && metadata.n_images == 6);
out:
    td_pack_writer_free(w);
    return st;
}

static td_pack_buffer buffer; /* of every read */

static void expect_image(const td_pack *p, uint64_t i, int label, const char *name,
                         const char *wanted, size_t n)
{
    const void *bytes;
    size_t n_bytes;
    td_pack_image x = td_pack_image_at(p, i);
    assert_string_equal(x.name, name);
    assert_int_equal(x.label, label);
    expect_ok(td_pack_read(p, i, &buffer, &bytes, &n_bytes));
    assert_int_equal(n_bytes, n);
    assert_int_equal(x.n_bytes, n);
    assert_memory_equal(bytes, wanted, n);
    td_pack_read_ahead(p, i);
    td_free(buffer.bytes); /* leaks would be seen by those who count */
    buffer = (td_pack_buffer){ 0 };
}

static void expect_sample(const td_pack *p)
{
    const td_pack_metadata *f = td_pack_metadata_of(p);
    assert_true(f->n_splits == 2 && f->n_images == 6 && f->short_side == 256 && f->quality == 90);
    const td_pack_split *s = td_pack_split_at(p, 0);
    assert_string_equal(s->name, "train");
    assert_true(s->first == 0 && s->n_images == 4 && s->n_classes == 3);
    assert_string_equal(s->classes[2], "caf\351");
    s = td_pack_split_at(p, 1);
    assert_string_equal(s->name, "val");
    assert_true(s->first == 4 && s->n_images == 2 && s->n_classes == 2);
    assert_string_equal(s->classes[0], "cat");
    expect_image(p, 0, 0, "1.jpg", "one", 3);
    expect_image(p, 1, 0, "deep/2.jpg", "", 0);
    expect_image(p, 2, 1, "1.jpg", "three", 5);
    expect_image(p, 3, 2, "odd\nname.png", "f\0ur", 4);
    expect_image(p, 4, 0, "x.jpg", "x", 1);
    expect_image(p, 5, 1, "y.jpg", "yy", 2);
}

static void reads_what_was_written(void **state)
{
    (void)state;
    td_pack *p, *q;
    char *bytes;
    size_t n;
    const char *path = td_scratch_path("sample.pack");
    expect_ok(write_sample(path));
    assert_int_equal(td_scratch_count(".tmp."), 0);
    expect_ok(td_pack_open(path, &p));
    expect_sample(p);
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    assert_int_equal(td_pack_metadata_of(p)->n_bytes, n);
    expect_ok(td_pack_parse(bytes, n, "memory", &q));
    expect_sample(q);
    assert_true(td_pack_metadata_of(p)->digest == td_pack_metadata_of(q)->digest);
    td_pack_close(p);
    td_pack_close(q);
    td_pack_close(NULL);
    td_free(bytes);
}

static void is_known_by_its_beginning_or_name(void **state)
{
    (void)state;
    expect_ok(write_sample(td_scratch_path("other")));
    expect_ok(td_file_write(td_scratch_path("text"), "text", 4));
    expect_ok(td_file_write(td_scratch_path("text.pack"), "", 0));
    assert_true(td_pack_is(td_scratch_path("other")));
    assert_true(td_pack_is(td_scratch_path("text.pack")));
    assert_false(td_pack_is(td_scratch_path("text")));
    assert_false(td_pack_is(td_scratch_path("absent.pack")));
    assert_false(td_pack_is(td_scratch_folder()));
}

static void files_that_cannot_be_opened(void **state)
{
    (void)state;
    td_pack *p;
    expect_error(td_pack_open(td_scratch_path("absent.pack"), &p), TD_ENOTFOUND, "absent.pack");
    assert_null(p);
    expect_error(td_pack_open(td_scratch_folder(), &p), TD_EIO, "not a regular file");
}

/* --- lies ------------------------------------------------------------------------------------- */

enum { TAIL = 64, RECORD = 32, RECORDS = 6, SPLITS = 2 };

typedef struct {
    unsigned char *bytes;
    size_t n, index; /* where the index begins */
} image;

static uint64_t get(const unsigned char *p, int n_bytes)
{
    uint64_t x = 0;
    for (int i = n_bytes - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static void put(unsigned char *p, uint64_t x, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        p[i] = (unsigned char)(x >> 8 * i);
}

static image load(void)
{
    image f;
    char *bytes;
    const char *path = td_scratch_path("lies.pack");
    expect_ok(write_sample(path));
    expect_ok(td_file_read(path, 1 << 20, &bytes, &f.n));
    f.bytes = (unsigned char *)bytes;
    f.index = (size_t)get(f.bytes + f.n - TAIL, 8);
    return f;
}

/* the check values that belong to the bytes */
static void mend(image *f)
{
    unsigned char *tail = f->bytes + f->n - TAIL;
    td_digest d;
    put(tail + 40, td_digest_of(f->bytes + f->index, f->n - TAIL - f->index), 8);
    td_digest_init(&d);
    td_digest_add(&d, f->bytes, 16);
    td_digest_add(&d, tail, 48);
    put(tail + 48, td_digest_value(&d), 8);
}

typedef struct {
    const char *name;
    enum { IN_TAIL, IN_RECORD, IN_SPLIT, IN_CLASS } where;
    int i, at, n_bytes; /* item, and the number in it */
    uint64_t value;
    const char *message;
} lie;

/* clang-format off */
static const lie lies[] = {
    { "index before the images", IN_TAIL,   0,  0, 8, 3,          "index of" },
    { "index behind the end",      IN_TAIL,   0,  0, 8, UINT64_MAX, "index of" },
    { "index too long",            IN_TAIL,   0,  8, 8, 1 << 20,    "index of" },
    { "index length wraps",        IN_TAIL,   0,  8, 8, UINT64_MAX, "index of" },
    { "too many images",         IN_TAIL,   0, 16, 8, 10000,      "5 classes do not match an" },
    { "images wrap",             IN_TAIL,   0, 16, 8, UINT64_MAX, "5 classes do not match an" },
    { "no split",                  IN_TAIL,   0, 24, 4, 0,          "5 classes do not match an" },
    { "splits without end",        IN_TAIL,   0, 24, 4, UINT32_MAX, "5 classes do not match an" },
    { "classes without end",       IN_TAIL,   0, 28, 4, UINT32_MAX, "5 classes do not match an" },
    { "no image",                IN_TAIL,   0, 16, 8, 0,          "lies.pack" },
    { "image in the head",       IN_RECORD, 2,  0, 8, 0,          "image 2 of 5 bytes at" },
    { "image in the index",      IN_RECORD, 2,  0, 8, 31,         "image 2 of 5 bytes" },
    { "image behind the end",    IN_RECORD, 0,  0, 8, UINT64_MAX, "image 0 of 3 bytes" },
    { "image too long",          IN_RECORD, 5,  8, 4, UINT32_MAX, "image 5 of 4294967295" },
    { "class left out",            IN_RECORD, 2, 12, 4, 2,          "has class 2, after class 0" },
    { "class back",                IN_RECORD, 3, 12, 4, 0,          "has class 0, after class 1" },
    { "class beyond",              IN_RECORD, 5, 12, 4, 7,          "has class 7, after class 0" },
    { "first class left out",      IN_RECORD, 4, 12, 4, 1,          "has class 1, after class 0" },
    { "last class empty",          IN_RECORD, 5, 12, 4, 0,          "'val' has classes without" },
    { "name beyond",               IN_RECORD, 1, 24, 4, 100000,     "image name at" },
    { "split takes too many",      IN_SPLIT,  1,  0, 8, 3,          "images that the pack" },
    { "split wraps",               IN_SPLIT,  1,  0, 8, UINT64_MAX, "images that the pack" },
    { "split leaves some",         IN_SPLIT,  1,  0, 8, 1,          "images or classes" },
    { "one class",                 IN_SPLIT,  1,  8, 4, 1,          "images that the pack" },
    { "classes beyond",            IN_SPLIT,  1,  8, 4, 3,          "images that the pack" },
    { "split's name beyond",       IN_SPLIT,  0, 12, 4, 100000,     "split name at" },
    { "splits of one name",        IN_SPLIT,  1, 12, 4, 0,          "two splits have" },
    { "class's name beyond",       IN_CLASS,  0,  0, 4, 100000,     "class name at" },
    { "class twice",               IN_CLASS,  1,  0, 4, 6,          "not in order" },
    { "class without a name",      IN_CLASS,  0,  0, 4, 5,          "name that is not" },
};
/* clang-format on */

static void lies_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const lie *l = &lies[i];
        image f = load();
        size_t splits = f.index + RECORDS * RECORD, classes = splits + SPLITS * 16;
        size_t from[] = { f.n - TAIL, f.index + (size_t)l->i * RECORD, splits + (size_t)l->i * 16,
                          classes + (size_t)l->i * 4 };
        put(f.bytes + from[l->where] + l->at, l->value, l->n_bytes);
        mend(&f);
        td_pack *p;
        td_status st = td_pack_parse(f.bytes, f.n, "lies.pack", &p);
        if (st != TD_EFORMAT || !strstr(td_error_message(), l->message))
            fail_msg("%s: %s: %s", l->name, td_status_name(st),
                     st == TD_OK ? "accepted" : td_error_message());
        assert_null(p);
        td_free(f.bytes);
    }
}

static void names_must_end(void **state)
{
    (void)state;
    td_pack *p;
    image f = load();
    f.bytes[f.n - TAIL - 1] = 'x';
    mend(&f);
    expect_error(td_pack_parse(f.bytes, f.n, "x", &p), TD_EFORMAT, "names in the index");
    td_free(f.bytes);
}

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    image f = load();
    for (size_t at = 0; at < f.n; at++) {
        td_pack *p;
        f.bytes[at] ^= 0x10;
        td_status st = td_pack_parse(f.bytes, f.n, "x", &p);
        if (at < 16 || at >= f.index) {
            assert_int_not_equal(st, TD_OK);
        } else { /* an image: only that one is refused */
            int n_bad = 0;
            expect_ok(st);
            for (uint64_t i = 0; i < RECORDS; i++) {
                const void *bytes;
                size_t n;
                n_bad += td_pack_read(p, i, &buffer, &bytes, &n) == TD_EFORMAT;
            }
            assert_int_equal(n_bad, 1);
            td_pack_close(p);
        }
        f.bytes[at] ^= 0x10;
    }
    td_free(f.bytes);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    image f = load();
    for (size_t n = 0; n < f.n; n++) {
        td_pack *p;
        unsigned char *exact = malloc(n + 1); /* sanitizers see a read past the end */
        assert_non_null(exact);
        memcpy(exact, f.bytes, n);
        td_status st = td_pack_parse(exact, n, "x", &p);
        assert_int_equal(st, TD_EFORMAT);
        free(exact);
    }
    td_free(f.bytes);
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    td_pack *p;
    const void *bytes;
    size_t n;
    const char *path = td_scratch_path("shrinks.pack");
    expect_ok(write_sample(path));
    expect_ok(td_pack_open(path, &p));
    expect_ok(td_pack_read(p, 0, &buffer, &bytes, &n));
    assert_int_equal(truncate(path, 20), 0);
    expect_ok(td_pack_read(p, 0, &buffer, &bytes, &n));
    expect_error(td_pack_read(p, 2, &buffer, &bytes, &n), TD_EIO, "truncated while in use");
    td_pack_close(p);
    td_free(buffer.bytes);
    buffer = (td_pack_buffer){ 0 };
}

/* --- writing ---------------------------------------------------------------------------------- */

static void the_writer_refuses_disorder(void **state)
{
    (void)state;
    td_pack_writer *w;
    td_pack_metadata metadata;
    const char *const back[] = { "b", "a" }, *const same[] = { "a", "a" },
                      *const dot[] = { ".a", "b" }, *const slash[] = { "a", "b/c" },
                      *const none[] = { "", "b" };
    const char *const *const bad[] = { back, same, dot, slash, none };
    expect_error(td_pack_create("/nowhere/x.pack", 0, 0, false, &w), TD_EIO, "/nowhere");
    expect_ok(td_pack_create(td_scratch_path("never.pack"), 0, 0, false, &w));
    expect_error(td_pack_finish(w, &metadata), TD_EARG, "no image");
    expect_error(td_pack_add(w, 0, "1", "x", 1), TD_EARG, "' of class");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(td_pack_begin_split(w, "train", 2, bad[i]), TD_EARG,
                     "' of split 'train' is repeated");
    expect_error(td_pack_begin_split(w, "train", 1, two), TD_EARG, "1 classes");
    expect_ok(td_pack_begin_split(w, "train", 3, three));
    expect_error(td_pack_add(w, 1, "1", "x", 1), TD_EARG, "comes after class 0");
    expect_ok(td_pack_add(w, 0, "1", "x", 1));
    expect_error(td_pack_add(w, 2, "1", "x", 1), TD_EARG, "comes after class 0");
    expect_error(td_pack_add(w, 3, "1", "x", 1), TD_EARG, "' of class");
    expect_error(td_pack_add(w, 0, "", "x", 1), TD_EARG, "' of class");
    expect_error(td_pack_add(w, 0, "1", "x", TD_PACK_IMAGE_BYTES_MAX + 1), TD_ELIMIT, "at most");
    expect_ok(td_pack_add(w, 1, "1", "x", 1));
    expect_error(td_pack_add(w, 0, "1", "x", 1), TD_EARG, "comes after class 1");
    expect_error(td_pack_begin_split(w, "val", 2, two), TD_EARG, "without images");
    expect_error(td_pack_finish(w, &metadata), TD_EARG, "without images");
    expect_ok(td_pack_add(w, 2, "1", "x", 1));
    expect_error(td_pack_begin_split(w, "train", 2, two), TD_EARG, "split 'train' is repeated");
    td_pack_writer_free(w);
    td_pack_writer_free(NULL);
    assert_int_equal(td_scratch_count("never.pack"), 0);
}

static td_status try_write(void)
{
    return write_sample(td_scratch_path("alloc.pack"));
}

static td_status try_open(void)
{
    td_pack *p;
    td_status st = td_pack_open(td_scratch_path("sample.pack"), &p);
    td_pack_close(p);
    return st;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    td_status (*const runs[])(void) = { try_write, try_open };
    for (size_t i = 0; i < 2; i++)
        assert_in_range(td_test_allocations(runs[i], 1000), 5, 1000);
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(is_known_by_its_beginning_or_name),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(lies_are_named),
        cmocka_unit_test(names_must_end),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(the_writer_refuses_disorder),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
