/* test_norm_text.c -- constants of a normalisation to text and back */
#include "image/norm_text.h"

#include <string.h>

#include "support/expect.h"

#include "image/image.h"

static void imagenets_values_are_read(void **state)
{
    (void)state;
    float mean[3], std[3];
    expect_ok(td_norm_parse_mean("0.485,0.456,0.406", "--mean", 3, mean));
    expect_ok(td_norm_parse_std("0.229,0.224,0.225", "--std", 3, std));
    assert_memory_equal(mean, td_norm_torch.mean, sizeof mean);
    assert_memory_equal(std, td_norm_torch.std, sizeof std);
    char text[TD_NORM_TEXT];
    td_norm_print(mean, 3, text);
    assert_string_equal(text, "0.485,0.456,0.406");
}

static void limits_are_included(void **state)
{
    (void)state;
    float v[3];
    expect_ok(td_norm_parse_mean("0,1,1e-3", "--mean", 3, v));
    assert_true(v[0] == 0 && v[1] == 255);
    expect_ok(td_norm_parse_std("0.0001,1,+.5", "--std", 3, v));
    assert_true(v[1] == 255 && v[2] == 127.5F);
}

/* every float on the scale of pixels has a text that gives it again */
static void texts_give_the_same_values(void **state)
{
    (void)state;
    char text[TD_NORM_TEXT];
    uint32_t bits = 0x38d1b717;
    for (int i = 0; i < 20000; i++) {
        float v[3], back[3];
        for (int c = 0; c < 3; c++) {
            bits = bits * 1664525u + 1013904223u;
            v[c] = (float)(bits >> 8) / (float)(1 << 24) * 255;
        }
        td_norm_print(v, 3, text);
        expect_ok(td_norm_parse_mean(text, "mean", 3, back));
        assert_memory_equal(v, back, sizeof v);
    }
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = { "",
                                         "1",
                                         "0.1,0.2",
                                         "0.1,0.2,0.3,",
                                         "0.1,,0.3",
                                         "0.1 0.2 0.3",
                                         "0.1,0.2,1.01",
                                         "nan,0.1,0.1",
                                         "inf,0,0",
                                         "0.1,0.2,0.3,0.4",
                                         "-0.1,0.1,0.1",
                                         "a,b,c",
                                         "0.1,0.2,0.30000000000000000000000000000000000" };
    float v[3] = { 7, 8, 9 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_error(td_norm_parse_mean(wrong[i], "--mean", 3, v), TD_EUSAGE, "--mean");
        expect_error(td_norm_parse_std(wrong[i], "--std", 3, v), TD_EUSAGE, "--std");
    }
    expect_error(td_norm_parse_std("0.1,0,0.1", "--std", 3, v), TD_EUSAGE, "0.0001");
    assert_true(v[0] == 7 && v[1] == 8 && v[2] == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(imagenets_values_are_read),
        cmocka_unit_test(limits_are_included),
        cmocka_unit_test(texts_give_the_same_values),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
