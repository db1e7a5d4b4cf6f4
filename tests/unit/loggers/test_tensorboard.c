/*
 * test_tensorboard.c -- check values, frames and protocol buffers, read back by a reader of its own
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/text.h"
#include "io/crc32c.h"
#include "loggers/tensorboard.h"

/* --- a reader that knows nothing of the writer ------------------------------------------------ */

typedef struct {
    const unsigned char *p, *end;
} span;

typedef struct {
    unsigned number, wire;
    uint64_t value; /* varint, fixed */
    span bytes;     /* length-delimited */
} field;

static uint64_t read_fixed(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

static uint64_t read_varint(span *s)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(s->p < s->end && shift < 64);
        x |= (uint64_t)(*s->p & 127) << shift;
        if (!(*s->p++ & 128))
            return x;
    }
}

static bool next_field(span *s, field *f)
{
    if (s->p == s->end)
        return false;
    const uint64_t key = read_varint(s);
    *f = (field){ .number = (unsigned)(key >> 3), .wire = (unsigned)(key & 7) };
    if (f->wire == 0) {
        f->value = read_varint(s);
        return true;
    }
    assert_true(f->wire == 1 || f->wire == 2 || f->wire == 5);
    const uint64_t n = f->wire == 1 ? 8 : f->wire == 5 ? 4 : read_varint(s);
    assert_true(n <= (uint64_t)(s->end - s->p));
    if (f->wire != 2)
        f->value = read_fixed(s->p, (int)n);
    f->bytes = (span){ s->p, s->p + n };
    s->p += n;
    return true;
}

/* the first field of that number; it must be there */
static field get(span s, unsigned number)
{
    field f;
    while (next_field(&s, &f))
        if (f.number == number)
            return f;
    fail_msg("no field %u", number);
    return f;
}

static bool has(span s, unsigned number)
{
    field f;
    while (next_field(&s, &f))
        if (f.number == number)
            return true;
    return false;
}

static bool is_text(span s, const char *text)
{
    return (size_t)(s.end - s.p) == strlen(text) && memcmp(s.p, text, strlen(text)) == 0;
}

static uint32_t unmask(uint32_t x)
{
    x -= 0xa282ead8u;
    return x << 15 | x >> 17;
}

/* the n-th event of a file: both check values are looked at */
static bool nth_event(const char *bytes, size_t n_bytes, int n, span *out)
{
    const unsigned char *p = (const unsigned char *)bytes, *end = p + n_bytes;
    for (int i = 0; p < end; i++) {
        assert_true(end - p >= 12);
        const uint64_t len = read_fixed(p, 8);
        assert_int_equal(unmask((uint32_t)read_fixed(p + 8, 4)), td_crc32c(p, 8));
        assert_true(len + 16 <= (uint64_t)(end - p));
        assert_int_equal(unmask((uint32_t)read_fixed(p + 12 + len, 4)), td_crc32c(p + 12, len));
        if (i == n) {
            *out = (span){ p + 12, p + 12 + len };
            return true;
        }
        p += 16 + len;
    }
    return false;
}

static const char *only_file(const char *folder)
{
    static char path[4096];
    td_listing l;
    expect_ok(td_list_folder(folder, &l));
    assert_int_equal(l.n, 1);
    assert_true(td_text_starts(l.names[0], "events.out.tfevents."));
    snprintf(path, sizeof path, "%s/%s", folder, l.names[0]);
    td_listing_release(&l);
    return path;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void check_values_are_castagnolis(void **state)
{
    unsigned char zeros[32] = { 0 }, ones[32], up[32];
    (void)state;
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (unsigned char)i;
    }
    assert_int_equal(td_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(td_crc32c("", 0), 0);
    assert_int_equal(td_crc32c(zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(td_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(td_crc32c(up, 32), 0x46dd794e);
    assert_int_equal(unmask(td_crc32c_masked("123456789", 9)), 0xe3069283);
    assert_int_not_equal(td_crc32c_masked("123456789", 9), 0xe3069283);
}

static void events_read_back(void **state)
{
    td_tensorboard *t;
    char *bytes;
    size_t n;
    span e;
    float x;
    const char *folder = td_scratch_path("events/inside");
    (void)state;
    const double begin_s = td_wall_s();
    expect_ok(td_tensorboard_open(folder, &t));
    expect_ok(td_tensorboard_restart(t, 41));
    expect_ok(td_tensorboard_scalar(t, "epoch/val.top1", 300, 71.5));
    expect_ok(td_tensorboard_scalar(t, "first", 0, -0.25));
    expect_ok(td_tensorboard_text(t, "options", "| a | b |\n"));
    expect_ok(td_tensorboard_close(t));
    expect_ok(td_file_read(only_file(folder), 1 << 20, &bytes, &n));

    assert_true(nth_event(bytes, n, 0, &e));
    assert_true(is_text(get(e, 3).bytes, "brain.Event:2"));
    const uint64_t bits = get(e, 1).value;
    double wall;
    memcpy(&wall, &bits, sizeof wall);
    assert_true(wall >= begin_s && wall <= td_wall_s());

    assert_true(nth_event(bytes, n, 1, &e));
    assert_int_equal(get(e, 2).value, 41);
    assert_int_equal(get(get(e, 7).bytes, 1).value, 1); /* START */

    assert_true(nth_event(bytes, n, 2, &e));
    assert_int_equal(get(e, 2).value, 300);
    span value = get(get(e, 5).bytes, 1).bytes;
    assert_true(is_text(get(value, 1).bytes, "epoch/val.top1"));
    const uint32_t of_float = (uint32_t)get(value, 2).value;
    memcpy(&x, &of_float, sizeof x);
    assert_true(x == 71.5f);

    assert_true(nth_event(bytes, n, 3, &e));
    assert_false(has(e, 2)); /* step 0 is not written */

    assert_true(nth_event(bytes, n, 4, &e));
    value = get(get(e, 5).bytes, 1).bytes;
    const span tensor = get(value, 8).bytes;
    assert_int_equal(get(tensor, 1).value, 7); /* DT_STRING */
    assert_int_equal(get(get(get(tensor, 2).bytes, 2).bytes, 1).value, 1);
    assert_true(is_text(get(tensor, 8).bytes, "| a | b |\n"));
    assert_true(is_text(get(get(get(value, 9).bytes, 1).bytes, 1).bytes, "text"));
    assert_false(nth_event(bytes, n, 5, &e));
    td_free(bytes);
}

static void every_opening_is_a_new_file(void **state)
{
    td_tensorboard *t;
    td_listing l;
    const char *folder = td_scratch_path("many");
    (void)state;
    for (int i = 0; i < 3; i++) {
        expect_ok(td_tensorboard_open(folder, &t));
        expect_ok(td_tensorboard_close(t));
    }
    expect_ok(td_list_folder(folder, &l));
    assert_int_equal(l.n, 3);
    td_listing_release(&l);
}

static void bad_folders_are_told(void **state)
{
    td_tensorboard *t;
    const char *file = td_scratch_path("file");
    (void)state;
    expect_ok(td_file_write(file, "x", 1));
    expect_error(td_tensorboard_open(file, &t), TD_EIO, file);
    assert_null(t);
    expect_error(td_tensorboard_open("/proc/none", &t), TD_EIO, "/proc/none");
}

static td_status write_some(void)
{
    td_tensorboard *t;
    TD_TRY(td_tensorboard_open(td_scratch_path("failing"), &t));
    td_status st = td_tensorboard_scalar(t, "a", 1, 2);
    if (st == TD_OK)
        st = td_tensorboard_text(t, "b", "c");
    const td_status closed = td_tensorboard_close(t);
    return st != TD_OK ? st : closed;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(write_some, 5000) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values_are_castagnolis), cmocka_unit_test(events_read_back),
        cmocka_unit_test(every_opening_is_a_new_file),  cmocka_unit_test(bad_folders_are_told),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
