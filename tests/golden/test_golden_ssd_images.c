/* test_golden_ssd_images.c -- SSD320's resize and normalisation, bit for bit as recorded */
#include <math.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"

#include "base/text.h"
#include "transforms/object_row.h"

static const td_tensor *get(td_tensors *f, const char *name, const char *part)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s_%s", name, part);
    const td_tensor *t = td_tensors_get(f, full);
    if (!t)
        fail_msg("no tensor '%s'", full);
    return t;
}

static void image_of(const td_tensor *t, td_image *img)
{
    const float *x = t->data;
    expect_ok(td_image_resize_buffer(img, (int)t->dim[1], (int)t->dim[0]));
    for (int64_t i = 0; i < t->dim[0] * t->dim[1] * 3; i++) {
        assert_true(x[i] >= 0 && x[i] <= 255 && x[i] == floorf(x[i]));
        img->px[i] = (uint8_t)x[i];
    }
}

static void resizes_as_recorded(void **state)
{
    (void)state;
    static const char *const names[] = { "down", "up", "mixed", "same" };
    td_golden_require("ssd320");
    td_tensors *f = td_golden_tensors("ssd320", "unit_resize.safetensors");
    td_image img = { 0 };
    td_taps taps = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const td_tensor *want = get(f, names[i], "output");
        int height = (int)want->dim[0], width = (int)want->dim[1];
        size_t n = 3 * (size_t)width * (size_t)height;
        image_of(get(f, names[i], "input"), &img);
        float *got = td_alloc(n, sizeof *got);
        assert_non_null(got);
        const td_sampling s = { .width = img.width,
                                .height = img.height,
                                .out_width = width,
                                .out_height = height,
                                .window = { .width = width, .height = height } };
        expect_ok(td_image_sample_legacy(&taps, &img, &s, got));
        assert_memory_equal(got, want->data, n * sizeof *got);
        td_free(got);
    }
    td_taps_release(&taps);
    td_image_release(&img);
    td_tensors_free(f);
}

/* the 213 x 380 image of the fill, as a file */
static void make_image(td_text *png)
{
    enum { WIDTH = 380, HEIGHT = 213 };
    td_image img = { 0 };
    uint64_t seed = td_fill_seed(td_fill_prefix(), "unit.preprocess");
    expect_ok(td_image_resize_buffer(&img, WIDTH, HEIGHT));
    for (int64_t i = 0; i < 3 * WIDTH * HEIGHT; i++)
        img.px[i] = (uint8_t)floor(256 * td_fill_u(seed, i));
    expect_ok(td_image_encode_png(&img, png));
    td_image_release(&img);
}

static void expect_close(double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fabs(want)))
        fail_msg("found %.9g, wanted %.9g", got, want);
}

static void preprocesses_as_recorded(void **state)
{
    (void)state;
    enum { S = 320, N = 3 * S * S };
    td_golden_require("ssd320");
    td_json *doc = td_golden_json("ssd320", "unit_preprocess.json");
    const td_json *out = td_json_get(doc, "output");
    td_tensors *f = td_golden_tensors("ssd320", "unit_resize.safetensors");
    td_text png = { 0 };
    td_transformer w = { 0 };
    const td_transform t = { .size = S, .detector = TD_DETECTOR_SSD320 };
    float *row = td_alloc(N, sizeof *row), *pixels = td_alloc(N, sizeof *pixels);
    int n;
    assert_non_null(row);
    assert_non_null(pixels);
    make_image(&png);
    const td_object_source from = { .bytes = png.data, .n_bytes = png.len };
    expect_ok(td_object_row(&w, &t, &from, row, &n));
    assert_int_equal(n, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) { /* [3, S, S] -> [S, S, 3], the order of the records */
        pixels[i] = row[(i % 3) * S * S + i / 3];
        sum += pixels[i];
        squares += (double)pixels[i] * pixels[i];
    }
    const td_tensor *at = get(f, "preprocess", "index"), *want = get(f, "preprocess", "samples");
    for (int64_t i = 0; i < at->dim[0]; i++)
        assert_memory_equal(&pixels[((const int64_t *)at->data)[i]],
                            &((const float *)want->data)[i], sizeof(float));
    expect_close(sum, td_golden_number(out, "sum"), 1e-8);
    expect_close(sqrt(squares), td_golden_number(out, "l2"), 1e-8);
    td_free(row);
    td_free(pixels);
    td_transformer_release(&w);
    td_text_release(&png);
    td_tensors_free(f);
    td_json_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizes_as_recorded),
        cmocka_unit_test(preprocesses_as_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
