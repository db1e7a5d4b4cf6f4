/*
 * test_digest.c -- known values, and independence of how the bytes are cut
 */
#include "io/digest.h"

#include "support/expect.h"

static unsigned char bytes[5000];

/* XXH3_64bits of the official library and of `xxhsum -H3` */
static void known_values(void **state)
{
    (void)state;
    assert_true(td_digest_of("", 0) == 0x2d06800538d394c2u);
    assert_true(td_digest_of("a", 1) == 0xe6c632b61e964e1fu);
    assert_true(td_digest_of("abc", 3) == 0x78af5f94892f3950u);
}

static void pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 131 >> 3);
    for (size_t step = 1; step < 2000; step = step * 3 / 2 + 1) {
        td_digest d;
        td_digest_init(&d);
        for (size_t at = 0; at < sizeof bytes; at += step)
            td_digest_add(&d, bytes + at, at + step < sizeof bytes ? step : sizeof bytes - at);
        td_digest_add(&d, NULL, 0);
        assert_true(td_digest_value(&d) == td_digest_of(bytes, sizeof bytes));
    }
}

static void goes_on_after_value(void **state)
{
    (void)state;
    td_digest d;
    td_digest_init(&d);
    assert_true(td_digest_value(&d) == td_digest_of("", 0));
    td_digest_add(&d, "ab", 2);
    td_digest fork = d;
    assert_true(td_digest_value(&d) == td_digest_of("ab", 2));
    td_digest_add(&d, "c", 1);
    assert_true(td_digest_value(&d) == td_digest_of("abc", 3));
    td_digest_add(&fork, "d", 1);
    assert_true(td_digest_value(&fork) == td_digest_of("abd", 3));
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint64_t whole = td_digest_of(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
        assert_true(td_digest_of(bytes, sizeof bytes) != whole);
        bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(pieces),
        cmocka_unit_test(goes_on_after_value),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
