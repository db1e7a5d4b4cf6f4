/*
 * test_type.c -- shapes, sizes, layouts against a walk through memory, the text form, windows
 */
#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/type.h"

static td_type with_layout(int rank, const int64_t *dim, const char *layout)
{
    td_type t = td_type_of(TD_DT_F32, rank, dim);
    snprintf(t.layout, sizeof t.layout, "%s", layout);
    return t;
}

static void a_type_has_a_shape_and_a_size(void **state)
{
    (void)state;
    td_type t = td_type_4d(TD_DT_F32, 2, 3, 4, 5);
    assert_int_equal(t.rank, 4);
    assert_int_equal(td_type_count(&t), 120);
    assert_int_equal(td_type_bytes(&t), 480);
    assert_true(td_type_is_plain(&t));

    td_type scalar = td_type_scalar(TD_DT_I64), row = td_type_1d(TD_DT_U8, 7),
            matrix = td_type_2d(TD_DT_BF16, 3, 5);
    assert_int_equal(td_type_count(&scalar), 1);
    assert_int_equal(td_type_bytes(&scalar), 8);
    assert_int_equal(td_type_bytes(&row), 7);
    assert_int_equal(td_type_bytes(&matrix), 30);
    assert_true(td_dtype_is_float(TD_DT_F16));
    assert_false(td_dtype_is_float(TD_DT_U8));
    assert_false(td_dtype_is_float(TD_DT_NONE));
}

static void types_are_compared(void **state)
{
    (void)state;
    int64_t dim[4] = { 2, 16, 3, 3 };
    td_type a = td_type_of(TD_DT_F32, 4, dim), b = a, c = with_layout(4, dim, "aBcd16b");
    td_type d = td_type_of(TD_DT_F64, 4, dim), e = td_type_of(TD_DT_F32, 3, dim);
    assert_true(td_type_equal(&a, &b));
    assert_false(td_type_equal(&a, &c));
    assert_true(td_type_same_shape(&a, &c));
    assert_false(td_type_equal(&a, &d));
    assert_true(td_type_same_shape(&a, &d));
    assert_false(td_type_same_shape(&a, &e));
    td_type p = td_type_plain(&c);
    assert_true(td_type_equal(&a, &p));
    assert_false(td_type_is_plain(&c));
}

static void sizes_beyond_reason_have_no_bytes(void **state)
{
    (void)state;
    td_type t = td_type_2d(TD_DT_U8, 1ll << 20, 1ll << 20);
    assert_int_equal(td_type_bytes(&t), 1ll << 40);
    t = td_type_2d(TD_DT_U8, 1ll << 20, (1ll << 20) + 1);
    assert_int_equal(td_type_bytes(&t), 0);
    t = td_type_2d(TD_DT_F32, 1ll << 40, 1ll << 40);
    assert_int_equal(td_type_bytes(&t), 0);
    assert_true(td_type_count(&t) == INT64_MAX);
    t = td_type_2d(TD_DT_F32, -3, -3);
    assert_int_equal(td_type_bytes(&t), 0);
    t = td_type_1d(TD_DT_F32, 0);
    assert_int_equal(td_type_bytes(&t), 0);
    t = td_type_1d(TD_DT_NONE, 3);
    assert_int_equal(td_type_bytes(&t), 0);
    t = with_layout(1, (int64_t[]){ INT64_MAX }, "A16a");
    assert_int_equal(td_type_bytes(&t), 0);
    assert_true(td_mul_capped(1ll << 40, 1ll << 40) == INT64_MAX);
    assert_true(td_mul_capped(3, 5) == 15);
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* one loop over memory: dimension (groups first) and extent, slowest first */
typedef struct {
    int dim;
    int64_t extent;
} loop;

/* the loops in the order of the layout's text, read a second time and in another way */
static int loops_of(const char *layout, const int64_t *dims, int rank, loop *out)
{
    int64_t block[6] = { 1, 1, 1, 1, 1, 1 };
    int n = 0, outer;
    const char *s = layout + strspn(layout, "0123456789");
    s = *s == 'g' ? s + 1 : layout;
    for (; *s && !(*s >= '0' && *s <= '9'); s++)
        out[n++].dim = (*s | 32) - 'a';
    for (outer = n; *s; s++) {
        int64_t extent = 0;
        for (; *s >= '0' && *s <= '9'; s++)
            extent = 10 * extent + (*s - '0');
        out[n++] = (loop){ *s - 'a', extent };
        block[*s - 'a'] *= extent;
    }
    assert_int_equal(outer, rank);
    for (int i = 0; i < outer; i++)
        out[i].extent = (dims[out[i].dim] + block[out[i].dim] - 1) / block[out[i].dim];
    return n;
}

/* walk memory: each place holds one index or padding, and each index has one place */
static void check_layout(int rank, const int64_t *dim, const char *layout)
{
    loop loops[16];
    int64_t at[16] = { 0 }, dims[6], n_seen = 0, place = 0;
    td_type t = with_layout(rank, dim, layout);
    td_blocking bl;
    assert_true(td_type_blocking(&t, &bl));
    int64_t groups = strchr(layout, 'g') ? strtoll(layout, NULL, 10) : 0;
    int inner_rank = rank + (groups != 0);
    memcpy(dims + (groups != 0), dim, (size_t)rank * sizeof *dim);
    if (groups) {
        dims[0] = groups;
        dims[1] /= groups;
    }
    int n = loops_of(layout, dims, inner_rank, loops);
    for (bool done = false; !done; place++) {
        int64_t index[6] = { 0 }, user[6];
        bool is_inside = true;
        for (int i = 0; i < n; i++)
            index[loops[i].dim] = index[loops[i].dim] * loops[i].extent + at[i];
        for (int d = 0; d < inner_rank; d++)
            is_inside = is_inside && index[d] < dims[d];
        memcpy(user, index + (groups != 0), (size_t)rank * sizeof *user);
        if (groups)
            user[0] = index[0] * dims[1] + index[1];
        if (is_inside) {
            assert_int_equal(td_blocking_offset(&bl, &t, user), place);
            n_seen++;
        }
        int k = n - 1;
        for (; k >= 0 && ++at[k] == loops[k].extent; k--)
            at[k] = 0;
        done = k < 0;
    }
    assert_int_equal(n_seen, td_type_count(&t));
    assert_int_equal(place * 4, td_type_bytes(&t));
}

static void offsets_agree_with_a_walk_through_memory(void **state)
{
    (void)state;
    const int64_t image[4] = { 2, 20, 3, 5 }, filter[4] = { 24, 18, 3, 2 };
    const int64_t grouped[4] = { 32, 5, 3, 3 }, small[4] = { 6, 1, 3, 3 },
                  five[5] = { 2, 3, 4, 5, 6 };
    static const char *const image_layouts[] = { "abcd", "acdb",     "aBcd16b", "aBcd8b",
                                                 "cdba", "ABcd2a4b", "aBcd4b2b" };
    for (size_t i = 0; i < sizeof image_layouts / sizeof *image_layouts; i++)
        check_layout(4, image, image_layouts[i]);
    static const char *const filter_layouts[] = { "ABcd16b16a", "ABcd16a16b", "ABcd8b16a2b",
                                                  "AcdB16a4b",  "Acdb16a",    "cdba",
                                                  "BAcd4a4b4a" };
    for (size_t i = 0; i < sizeof filter_layouts / sizeof *filter_layouts; i++)
        check_layout(4, filter, filter_layouts[i]);
    static const char *const group_layouts[] = { "4gabcde",     "4gaBCde4c4b", "8gaBcde16b",
                                                 "32gabdec",    "32gAbcde16a", "2gaBdec8b",
                                                 "16gABcde4a2b" };
    for (size_t i = 0; i < sizeof group_layouts / sizeof *group_layouts; i++)
        check_layout(4, grouped, group_layouts[i]);
    check_layout(4, small, "6gAbcde8a");
    check_layout(4, small, "6gAbcde16a");
    check_layout(5, five, "aBcde2b");
    check_layout(5, five, "2gabcedf");
    check_layout(1, five, "a");
}

static void plain_order_is_c_order(void **state)
{
    (void)state;
    td_type t = td_type_4d(TD_DT_F32, 2, 3, 4, 5);
    td_blocking bl;
    assert_true(td_type_blocking(&t, &bl));
    int64_t i = 0;
    for (int64_t a = 0; a < 2; a++)
        for (int64_t b = 0; b < 3; b++)
            for (int64_t c = 0; c < 4; c++)
                for (int64_t d = 0; d < 5; d++)
                    assert_int_equal(td_blocking_offset(&bl, &t, (int64_t[]){ a, b, c, d }), i++);
}

static void broken_layouts_are_refused(void **state)
{
    (void)state;
    const int64_t dim[4] = { 32, 16, 3, 3 };
    static const char *const broken[] = {
        "abc",       /* a letter short */
        "abcde",     /* one too many */
        "abca",      /* one twice */
        "aBcd",      /* a capital without a block */
        "abcd16b",   /* a block without its capital */
        "aBcd16",    /* a block without a letter */
        "aBcd16e",   /* of a dimension that is not there */
        "aBcd1b",    /* a block of one */
        "aBcd8192b", /* a block too long */
        "aBcd+16b",  /* only digits */
        "aBcd 16b",
        "aBcd-16b",
        "aBcd16B",
        "3gabcde", /* 32 does not divide into 3 groups */
        "0gabcde",
        "4habcde",
        "4abcd",
        "4gabcd", /* groups want a letter more */
        "16b",
        "99999999999999999999gabcde",
        "A99a99a99a99a99abcd",    /* a product beyond reason */
        "aBcd2b2b2b2b2b2b2b2b2b", /* more than 8 blocks */
    };
    td_blocking bl;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        td_type t = with_layout(4, dim, broken[i]);
        if (td_type_blocking(&t, &bl))
            fail_msg("layout '%s' was taken", broken[i]);
        assert_int_equal(td_type_bytes(&t), 0);
    }
    td_type scalar = with_layout(0, NULL, "2g");
    assert_false(td_type_blocking(&scalar, &bl));
}

/* --- text ------------------------------------------------------------------------------------- */

static void what_is_printed_parses_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "f32[]",
        "i64[7]",
        "bf16[8,3,32,32]",
        "f32[8,20,7,7]@aBcd16b",
        "f64[32,4,3,3]@32gAbcde16a",
        "u8[1,2,3,4,5]",
        "f32[1099511627776]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        td_type t;
        const char *end;
        td_text out = { 0 };
        assert_true(td_type_parse(texts[i], &t, &end));
        assert_int_equal(*end, '\0');
        td_type_print(&t, &out);
        assert_string_equal(td_text_get(&out), texts[i]);
        td_text_release(&out);
    }
    td_type t;
    const char *end, *line = "f32[2,3] = relu";
    assert_true(td_type_parse(line, &t, &end));
    assert_ptr_equal(end, line + 8);
}

static void malformed_types_are_refused(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "",
        "f32",
        "f32[",
        "f32[2",
        "f32[2,",
        "f32[2,]",
        "f32[,2]",
        "f33[2]",
        "F32[2]",
        "f32[-2]",
        "f32[2 ,3]",
        "f32[2;3]",
        "f32[a]",
        "f32[1,2,3,4,5,6]",
        "f32[2]@",
        "f32[2,3]@abc",
        "f32[99999999999999999999]",
        "f32[1099511627777]",
        "none[2]",
        "f32 [2]",
        "f32[2,3]@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "abcdefgh[2]",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        td_type t;
        const char *end;
        if (td_type_parse(broken[i], &t, &end))
            fail_msg("'%s' was taken for a type", broken[i]);
    }
}

/* --- windows ---------------------------------------------------------------------------------- */

static void windows_are_counted_one_by_one(void **state)
{
    (void)state;
    for (int64_t in = 1; in < 12; in++)
        for (int64_t kernel = 1; kernel < 5; kernel++)
            for (int64_t stride = 1; stride < 4; stride++)
                for (int64_t pad = 0, end = 0; pad < 3; pad += end == 2, end = (end + 1) % 3)
                    for (int64_t dilation = 1; dilation < 4; dilation++) {
                        int64_t n = 0;
                        for (int64_t at = -pad; at + dilation * (kernel - 1) < in + end;
                             at += stride)
                            n++;
                        assert_int_equal(td_windows(in, kernel, stride, pad + end, dilation), n);
                    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_type_has_a_shape_and_a_size),
        cmocka_unit_test(types_are_compared),
        cmocka_unit_test(sizes_beyond_reason_have_no_bytes),
        cmocka_unit_test(offsets_agree_with_a_walk_through_memory),
        cmocka_unit_test(plain_order_is_c_order),
        cmocka_unit_test(broken_layouts_are_refused),
        cmocka_unit_test(what_is_printed_parses_back),
        cmocka_unit_test(malformed_types_are_refused),
        cmocka_unit_test(windows_are_counted_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
