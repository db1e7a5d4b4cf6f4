/* test_mirrored.c -- mirror images, and the mean and the loss of logits */
#include <math.h>

#include "evaluation/mirrored.h"
#include "support/expect.h"

enum { B = 2, S = 3, K = 3 };

static void images_are_mirrored(void **state)
{
    (void)state;
    float floats[B * 3 * S * S];
    uint8_t pixels[B * S * S * 3];
    td_mirrored m;
    for (int i = 0; i < B * 3 * S * S; i++) {
        floats[i] = (float)i;
        pixels[i] = (uint8_t)i;
    }
    td_mirrored_shape shape = { .batch = B, .classes = K, .channels = 3, .size = S };
    expect_ok(td_mirrored_init(&m, &shape));
    const float *f = td_mirrored_images(&m, floats);
    for (int row = 0; row < B * 3 * S; row++)
        for (int x = 0; x < S; x++)
            assert_true(f[row * S + x] == floats[row * S + S - 1 - x]);
    td_mirrored_release(&m);

    shape.is_pixels = true;
    expect_ok(td_mirrored_init(&m, &shape));
    const uint8_t *p = td_mirrored_images(&m, pixels);
    for (int row = 0; row < B * S; row++)
        for (int x = 0; x < S; x++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(p[(row * S + x) * 3 + c], pixels[(row * S + S - 1 - x) * 3 + c]);
    td_mirrored_release(&m);
}

/* numbers worked out by hand: means (1, 0, 0) and (0, ln 2, 0) */
static void logits_are_averaged(void **state)
{
    (void)state;
    const float ln2 = (float)log(2);
    const float first[B * K] = { 2, 0, -1, 0, ln2, 0 }, second[B * K] = { 0, 0, 1, 0, ln2, 0 };
    const int64_t labels[B] = { 0, 1 }, absent[B] = { -1, K };
    td_mirrored m;
    expect_ok(td_mirrored_init(
        &m, &(td_mirrored_shape){ .batch = B, .classes = K, .channels = 3, .size = S }));
    td_mirrored_keep(&m, first);
    td_mirrored_finish(&m, second, labels, 0);
    const float means[B * K] = { 1, 0, 0, 0, ln2, 0 };
    for (int i = 0; i < B * K; i++)
        assert_true(m.logits[i] == means[i]);
    assert_true(fabs(m.losses[0] - log(1 + 2 * exp(-1))) < 1e-6);
    assert_true(fabs(m.losses[1] - log(2)) < 1e-6); /* 2 of 1 + 2 + 1 */
    td_mirrored_keep(&m, first);
    td_mirrored_finish(&m, second, labels, 0.3);
    assert_true(fabs(m.losses[1] - (log(4) - 0.7 * log(2) - 0.1 * log(2))) < 1e-6);
    td_mirrored_keep(&m, first);
    td_mirrored_finish(&m, second, absent, 0);
    assert_true(m.losses[0] == 0 && m.losses[1] == 0);
    const float targets[B * K] = { 1, 0, 1, 0, 1, 0 }; /* several labels for an image */
    td_mirrored_keep(&m, first);
    td_mirrored_finish_targets(&m, second, targets);
    assert_true(m.logits[0] == 1 && m.logits[4] == ln2);
    assert_true(fabs(m.losses[0] - (log(1 + exp(-1)) + 2 * log(2)) / 3) < 1e-6);
    assert_true(fabs(m.losses[1] - (log(1.5) + 2 * log(2)) / 3) < 1e-6);
    td_mirrored_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_mirrored),
        cmocka_unit_test(logits_are_averaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
