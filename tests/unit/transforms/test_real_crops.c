/*
 * test_real_crops.c -- 334 real images: crops against the whole, fast decoding against exact
 */
/* ctest: timeout 300 */
#include <math.h>

#include "support/expect.h"
#include "support/imagenet_sample.h"
#include "support/images.h"

#include "data/dataset.h"
#include "transforms/augment.h"

enum { IMAGES = TD_TEST_SAMPLE_IMAGES, S = 224, ROW = 3 * S * S };

static td_dataset *ds;

/* a crop decoded alone is that part of the whole image, bit for bit */
static void crops_equal_the_whole(void **state)
{
    (void)state;
    enum { CROPS = 8 };
    td_transformer w = { 0 };
    td_image whole = { 0 }, part = { 0 };
    td_rng r = td_rng_make(1, TD_RNG_TEST, 0, 0);
    for (int64_t i = 0; i < IMAGES; i++) {
        const void *bytes;
        size_t n;
        expect_ok(td_sample_read(ds, i, &w, &bytes, &n));
        expect_ok(td_image_decode(bytes, n, &(td_decode_opts){ 0 }, &whole, NULL));
        for (int k = 0; k < CROPS; k++) {
            td_box b = td_random_crop(TD_RULES_TORCHVISION, &r, whole.width, whole.height);
            td_decoded where;
            expect_ok(td_image_decode(bytes, n, &(td_decode_opts){ .region = b }, &part, &where));
            if (!td_test_region_equal(&whole, &part, &where, b))
                fail_msg("%s: crop %d x %d at (%d, %d)", td_dataset_path(ds, i), b.width, b.height,
                         b.x, b.y);
        }
    }
    td_transformer_release(&w);
    td_image_release(&whole);
    td_image_release(&part);
}

/* docs/formats/transforms.md states these, of 255: found 0.13 in the mean, 3.0 in the worst row */
static void fast_decoding_is_close(void **state)
{
    (void)state;
    static float exact[ROW], fast[ROW];
    const double steps = 57.12, mean_wanted = 0.2, row_wanted = 4;
    td_transform t = { .is_training = true, .size = S, .filter = TD_BILINEAR, .seed = 3 };
    td_transformer w = { 0 };
    double all = 0, worst = 0;
    for (int64_t i = 0; i < IMAGES; i++) {
        double sum = 0;
        t.is_fast = false;
        expect_ok(td_transform_file(&w, &t, td_dataset_path(ds, i), 0, i, exact));
        t.is_fast = true;
        expect_ok(td_transform_file(&w, &t, td_dataset_path(ds, i), 0, i, fast));
        for (int k = 0; k < ROW; k++)
            sum += fabs((double)exact[k] - fast[k]) * steps;
        all += sum / ROW;
        worst = fmax(worst, sum / ROW);
    }
    print_message("fast differs from exact by %.3f of 255 in the mean, %.3f in the worst row\n",
                  all / IMAGES, worst);
    assert_true(all > 0); /* it does something */
    assert_true(all / IMAGES < mean_wanted && worst < row_wanted);
    td_transformer_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_equal_the_whole),
        cmocka_unit_test(fast_decoding_is_close),
    };
    int rc = td_test_sample_open(&ds);
    if (!rc)
        rc = cmocka_run_group_tests(tests, NULL, NULL);
    td_dataset_free(ds);
    return rc;
}
