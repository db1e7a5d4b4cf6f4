/* test_detections.c -- result files: what is written reads back, what is wrong is named */
#include "coco/detections.h"

#include <float.h>
#include <locale.h>
#include <math.h>

#include "base/rng.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#define GOOD "\"image_id\": 4, \"category_id\": 18, \"bbox\": [1.5, 2, 30, 4e1], \"score\": 0.236"

static td_status parse(const char *text, td_detections *out)
{
    return td_detections_parse(text, strlen(text), "found.json", out);
}

static void entries_are_read(void **state)
{
    (void)state;
    td_detections d;
    expect_ok(parse("[{" GOOD "},\n {\"segmentation\": {\"counts\": [1, {\"bbox\": 3}]}, " GOOD
                    ", \"id\": null}, {\"score\": -7, \"bbox\": [-1, -2, 0, 0], "
                    "\"image_id\": 9007199254740993, \"category_id\": -3.0}] ",
                    &d));
    assert_int_equal(d.n, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d.items[i].image, 4);
        assert_int_equal(d.items[i].category, 18);
        assert_true(d.items[i].box[0] == 1.5 && d.items[i].box[3] == 40);
        assert_true(d.items[i].score == 0.236);
    }
    assert_int_equal(d.items[2].image, 9007199254740993);
    assert_int_equal(d.items[2].category, -3);
    assert_true(d.items[2].score == -7 && d.items[2].box[1] == -2);
    td_detections_release(&d);
    expect_ok(parse("[]", &d));
    assert_int_equal(d.n, 0);
    td_detections_release(&d);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "", "'found.json' is empty" },
        { "{}", "it is an object, wanted a list of detections" },
        { "7", "it is the number 7, wanted a list" },
        { "[7]", "detection 0: it is the number 7, wanted an object" },
        { "[{" GOOD "}, {}]", "detection 1 has no image_id" },
        { "[{\"image_id\": 1, \"bbox\": [1,2,3,4], \"score\": 1}]", "detection 0 has no category" },
        { "[{\"image_id\": 1, \"category_id\": 1, \"score\": 1}]", "detection 0 has no bbox" },
        { "[{\"image_id\": 1, \"category_id\": 1, \"bbox\": [1,2,3,4]}]", "0 has no score" },
        { "[{" GOOD ", \"score\": 1}]", "detection 0 has score twice" },
        { "[{\"image_id\": \"4\"}]", "image_id is the string '4'" },
        { "[{\"image_id\": 4.5}]", "image_id is the number 4.5" },
        { "[{\"image_id\": 1e300}]", ", wanted an integer" },
        { "[{\"image_id\": NaN}]", ", wanted an integer" },
        { "[{\"category_id\": null}]", "detection 0: category_id is null" },
        { "[{\"score\": null}]", "score is null, wanted a number" },
        { "[{\"score\": NaN}]", "wanted a finite" },
        { "[{\"score\": 1e999}]", "wanted a finite" },
        { "[{\"bbox\": 1}]", "bbox is the number 1, wanted [x, y, width, height]" },
        { "[{\"bbox\": []}]", "bbox has 0 numbers, wanted 4" },
        { "[{\"bbox\": [1, 2, 3]}]", "bbox has 3 numbers, wanted 4" },
        { "[{\"bbox\": [1, 2, 3, 4, 5]}]", "bbox has more than 4 numbers" },
        { "[{\"bbox\": [1, 2, [3], 4]}]", "bbox[2] is a list, wanted a number" },
        { "[{\"bbox\": [1, 2, 3, Infinity]}]", "bbox[3] is" },
        { "[{" GOOD "}", "found.json" },
        { "[{" GOOD "}] 1", "found.json" },
        { "[{" GOOD "},]", "found.json" },
        { "[{" GOOD " \"x\": 1}]", "found.json" },
        { "[{'image_id': 1}]", "found.json" },
        { "[{\"image_id\": 01}]", "found.json" },
        { "\x89PNG\r\n", "found.json" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_detections d = { (td_coco_detection *)1, 1 };
        expect_error(parse(rows[i][0], &d), TD_EFORMAT, rows[i][1]);
        assert_null(d.items);
        assert_int_equal(d.n, 0);
    }
    td_detections d;
    expect_error(td_detections_read(td_scratch_path("absent.json"), &d), TD_ENOTFOUND, "absent");
    expect_error(td_detections_read(td_scratch_folder(), &d), TD_EIO, "not a regular file");
}

/* Every prefix of a good file is refused. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    static const char text[] = "[{" GOOD "}, {" GOOD ", \"more\": [true, \"\\u00e9\"]}]";
    td_detections d;
    for (size_t n = 0; n + 1 < sizeof text; n++)
        expect_error(td_detections_parse(text, n, "found.json", &d), TD_EFORMAT, "found.json");
    expect_ok(td_detections_parse(text, sizeof text - 1, "found.json", &d));
    td_detections_release(&d);
}

/* --- writing ---------------------------------------------------------------------------------- */

static td_coco_detection draw(td_rng *r)
{
    static const double odd[] = { 0,
                                  -0.0,
                                  0.1,
                                  1.0 / 3,
                                  DBL_MIN,
                                  DBL_MAX,
                                  -DBL_MAX,
                                  5e-324,
                                  1e15,
                                  1e16,
                                  123456789012345678.0,
                                  0.1f,
                                  1e-5f,
                                  640,
                                  479.99999999999994 };
    td_coco_detection d = { .image = (int64_t)td_rng_u64(r), .category = (int64_t)td_rng_u64(r) };
    for (int i = 0; i < 5; i++) {
        uint64_t k = td_rng_below(r, 2 * sizeof odd / sizeof *odd);
        double v = k < sizeof odd / sizeof *odd ? odd[k] : td_rng_normal(r) * 1e3;
        *(i < 4 ? &d.box[i] : &d.score) = k % 2 ? v : (double)(float)fmin(fmax(v, -1e38), 1e38);
    }
    return d;
}

static bool same_bits(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

/* Written under `locale`, read where a point is a point, as all of the program is. */
static void round_trip(const char *locale)
{
    enum { N = 900 };
    static td_coco_detection made[N];
    td_rng r = td_rng_make(3, TD_RNG_TEST, 0, 0);
    const char *path = td_scratch_path("found.json");
    for (int n = 0; n <= N; n = n ? n * 30 : 1) {
        td_detections_file *f;
        td_detections d;
        setlocale(LC_ALL, locale);
        expect_ok(td_detections_create(path, &f));
        for (int i = 0; i < n; i++) {
            made[i] = draw(&r);
            expect_ok(td_detections_add(f, &made[i]));
        }
        expect_ok(td_detections_commit(f));
        td_detections_close(f);
        setlocale(LC_ALL, "C");
        expect_ok(td_detections_read(path, &d));
        assert_int_equal(d.n, n);
        for (int i = 0; i < n; i++) {
            assert_int_equal(d.items[i].image, made[i].image);
            assert_int_equal(d.items[i].category, made[i].category);
            assert_true(same_bits(d.items[i].box, made[i].box, sizeof made[i].box));
            assert_true(same_bits(&d.items[i].score, &made[i].score, sizeof made[i].score));
        }
        td_detections_release(&d);
    }
}

static void written_is_read_back(void **state)
{
    (void)state;
    round_trip("C");
}

static void a_locale_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8" };
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!setlocale(LC_ALL, names[i]))
            continue;
        round_trip(names[i]);
        n++;
    }
    if (!n) {
        print_message("no locale with a comma here\n");
        skip();
    }
}

static void nothing_is_there_before_the_commit(void **state)
{
    (void)state;
    const char *path = td_scratch_path("kept.json");
    td_coco_detection good = { 1, 2, { 3, 4, 5, 6 }, 0.5 }, bad = good;
    td_detections_file *f;
    bad.box[2] = NAN;
    expect_ok(td_detections_create(path, &f));
    expect_ok(td_detections_add(f, &good));
    expect_error(td_detections_add(f, &bad), TD_ENUMERIC, "detection 1 in image 1");
    td_detections_close(f);
    assert_int_equal(td_scratch_count("kept.json"), 0);
    expect_error(td_detections_create(td_scratch_path("no/such/folder.json"), &f), TD_EIO, "no");
    assert_null(f);
}

static td_status write_and_read(void)
{
    static const char path[] = "alloc.json";
    td_coco_detection one = { 1, 2, { 3, 4, 5, 6 }, 0.5 };
    td_detections_file *f;
    td_detections d = { 0 };
    td_status st = td_detections_create(td_scratch_path(path), &f);
    for (int i = 0; st == TD_OK && i < 20; i++)
        st = td_detections_add(f, &one);
    if (st == TD_OK)
        st = td_detections_commit(f);
    td_detections_close(f);
    if (st == TD_OK)
        st = td_detections_read(td_scratch_path(path), &d);
    td_detections_release(&d);
    return st;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    assert_true(td_test_allocations(write_and_read, 200) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_read),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(written_is_read_back),
        cmocka_unit_test(a_locale_changes_nothing),
        cmocka_unit_test(nothing_is_there_before_the_commit),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
