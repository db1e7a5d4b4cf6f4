/*
 * test_native_tiles.c -- filters from one blocked layout to another, tile by tile
 */
#include "support/expect.h"

#include <stdlib.h>
#include <string.h>

#include "backend/native/elementwise/native_tiles.h"

typedef struct {
    int rank;
    int64_t dim[4];
    const char *from, *to;
} row;

static const row rows[] = {
    { 4, { 48, 32, 3, 3 }, "ABcd8b16a2b", "ABcd8a16b2a" },
    { 4, { 32, 64, 1, 1 }, "ABcd8b16a2b", "BAcd8a16b2a" },
    { 4, { 32, 48, 3, 3 }, "ABcd16b16a", "ABcd8b16a2b" },
    { 4, { 64, 16, 3, 3 }, "2gaBCde16c16b", "2gaBCde8c16b2c" },
    { 4, { 24, 16, 2, 1 }, "ABcd8b8a", "ABcd8a8b" },
};

static td_type type_of(const row *r, const char *layout)
{
    td_type t = { .dtype = TD_DT_BF16, .rank = r->rank };
    memcpy(t.dim, r->dim, sizeof r->dim);
    strcpy(t.layout, layout);
    return t;
}

/* every element is where the other layout's own formula has it */
static void check(const row *r, const td_native_tiles *t)
{
    const td_type from = type_of(r, r->from), to = type_of(r, r->to);
    const int64_t n = td_type_count(&from);
    uint16_t *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
    td_blocking bf, bt;
    assert_true(x && y && td_type_blocking(&from, &bf) && td_type_blocking(&to, &bt));
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)(i * 40503 + 7);
    for (int64_t k = 0; k < t->n_tiles; k += 3)
        td_native_tiles_put(t, k, t->n_tiles - k < 3 ? t->n_tiles - k : 3, x + k * t->tile, y);
    for (int64_t i = 0; i < n; i++) {
        int64_t at[TD_RANK_MAX], rest = i;
        for (int d = r->rank - 1; d >= 0; d--) {
            at[d] = rest % r->dim[d];
            rest /= r->dim[d];
        }
        assert_int_equal(y[td_blocking_offset(&bt, &to, at)],
                         x[td_blocking_offset(&bf, &from, at)]);
    }
    free(x);
    free(y);
}

static void every_element_finds_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const td_type from = type_of(&rows[i], rows[i].from), to = type_of(&rows[i], rows[i].to);
        td_native_tiles t;
        expect_ok(td_native_tiles_check(&from, &to));
        expect_ok(td_native_tiles_make(&from, &to, &t));
        check(&rows[i], &t);
        td_free(t.shuffle); /* and as on a machine without AVX-512 */
        t.shuffle = NULL;
        check(&rows[i], &t);
        td_native_tiles_release(&t);
    }
}

static void other_tiles_are_refused(void **state)
{
    (void)state;
    static const row odd[] = {
        { 4, { 32, 32, 1, 1 }, "ABcd16b16a", "ABcd8b8a" },
        { 4, { 24, 32, 1, 1 }, "ABcd16b16a", "ABcd8b16a2b" },
        { 4, { 32, 32, 1, 1 }, "ABcd16b16a", "" },
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const td_type from = type_of(&odd[i], odd[i].from), to = type_of(&odd[i], odd[i].to);
        assert_int_equal(td_native_tiles_check(&from, &to), TD_ENOKERNEL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_finds_its_place),
        cmocka_unit_test(other_tiles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
