/*
 * test_outcomes.c -- what a classifier confused: counted, written, read back and shown
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "evaluation/outcomes.h"
#include "image/image.h"
#include "report/run_confusion.h"
#include "report/run_mistakes.h"
#include "report/thumbnail.h"

enum { IMAGES = 60, MANY = 100 };

static td_dataset *open_set(int n_classes)
{
    td_dataset *ds;
    const td_dataset_opts o = { .backend = TD_DATA_SYNTHETIC,
                                .n_classes = n_classes,
                                .n_images = IMAGES };
    expect_ok(td_dataset_open(&o, &ds));
    return ds;
}

/* image i of class i % 3 is taken for class 1, the later the surer */
static void fill(td_gather *s, int classes)
{
    float *logits = td_alloc((size_t)IMAGES * (size_t)classes, sizeof *logits);
    int64_t labels[IMAGES], samples[IMAGES];
    assert_non_null(logits);
    for (int i = 0; i < IMAGES; i++) {
        labels[i] = i == 7 ? -1 : i % 3;
        samples[i] = i;
        logits[i * classes + 1] = 0.1f * (float)(i + 1);
    }
    const td_batch b = { .labels = labels, .samples = samples, .n = IMAGES };
    expect_ok(td_outcomes_add(s, &b, logits, classes));
    td_free(logits);
}

static const char *written;

static td_status write_outcomes(const td_gather *s, int classes)
{
    td_report *r;
    td_dataset *ds = open_set(classes);
    const int64_t step = 4;
    written = td_scratch_path("report.json");
    expect_ok(td_report_open(&(td_run_logger_opts){ .path = written }, &r));
    td_report_begin(r, 1, &step);
    td_report_add(r, "val.top1", 30);
    expect_ok(td_report_end(r));
    const td_outcome_metadata f = { .ds = ds, .n_classes = classes, .epoch = step };
    const td_status st = td_outcomes_report(s, &f, r);
    expect_ok(td_report_close(r));
    td_dataset_free(ds);
    return st;
}

static void few_classes_have_a_matrix(void **state)
{
    td_gather s = { 0 };
    td_run_log run;
    (void)state;
    fill(&s, 4);
    assert_int_equal(s.n, IMAGES - 1); /* one has no label */
    expect_ok(write_outcomes(&s, 4));
    expect_ok(td_run_log_read(written, &run));
    const td_run_confusion *c = run.confusion;
    assert_non_null(c);
    assert_int_equal(c->epoch, 4);
    assert_int_equal(c->n_images, IMAGES - 1);
    assert_int_equal(c->n_wrong, 40);
    assert_int_equal(c->n_classes, 4);
    const int64_t counts[16] = { 0, 20, 0, 0, 0, 19, 0, 0, 0, 20 };
    assert_memory_equal(c->counts, counts, sizeof counts);
    assert_int_equal(c->n_pairs, 0);
    assert_int_equal(c->n_mistakes, TD_CONFUSION_MISTAKES);
    assert_int_equal(c->mistakes[0].sample, 59);
    assert_int_equal(c->mistakes[1].sample, 57);
    assert_float_equal((float)c->mistakes[0].probability, 0.992619f, 1e-4); /* 1/(1 + 3 e^-6) */
    assert_string_equal(c->mistakes[0].path, "");
    td_run_log_release(&run);
    td_gather_release(&s);
}

static void many_classes_have_pairs(void **state)
{
    td_gather s = { 0 };
    td_run_log run;
    (void)state;
    fill(&s, MANY);
    expect_ok(write_outcomes(&s, MANY));
    expect_ok(td_run_log_read(written, &run));
    const td_run_confusion *c = run.confusion;
    assert_non_null(c);
    assert_int_equal(c->n_classes, 0);
    assert_int_equal(c->n_pairs, 2);
    assert_string_equal(c->pairs[0].actual, "0");
    assert_string_equal(c->pairs[0].predicted, "1");
    assert_int_equal(c->pairs[0].count, 20);
    assert_string_equal(c->pairs[1].actual, "2");
    td_text page = { 0 };
    expect_ok(td_run_mistakes_html(&run, 1, NULL, &page));
    assert_non_null(strstr(td_text_get(&page), "<th scope=\"row\">0</th><td>1</td><td>20</td>"));
    td_text_release(&page);
    td_run_log_release(&run);
    td_gather_release(&s);
}

static void other_ranks_may_send_anything(void **state)
{
    const struct {
        int32_t label, best;
        float probability;
        int64_t sample;
        size_t n;
    } cases[] = { { 4, 0, 0.5f, 0, 12 },  { -1, 0, 0.5f, 0, 12 },     { 0, 4, 0.5f, 0, 12 },
                  { 0, -1, 0.5f, 0, 12 }, { 0, 1, 2, 0, 12 },         { 0, 1, -1, 0, 12 },
                  { 0, 1, 0.5f, -1, 12 }, { 0, 1, 0.5f, IMAGES, 12 }, { 0, 1, 0.5f, 0, 8 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_gather s = { 0 };
        expect_ok(td_gather_begin(&s, cases[i].sample));
        expect_ok(td_gather_put(&s, &cases[i], cases[i].n));
        expect_error(write_outcomes(&s, 4), TD_EDEVICE, "a rank sent");
        td_gather_release(&s);
    }
}

/* --- read back -------------------------------------------------------------------------------- */

#define EPOCH "DLLL {\"type\": \"LOG\", \"step\": [0], \"data\": {\"val.top1\": 50}}\n"
#define RECORD(members)                                                                            \
    EPOCH "DLLL {\"type\": \"CONFUSION\", \"step\": [0], \"data\": {\"images\": 4, \"wrong\": "    \
          "1" members "}}\n" EPOCH
#define NAMES "\"actual\": \"a<b>\", \"predicted\": \"c&\""

static void bad_records_are_refused(void **state)
{
    static const char *const cases[][2] = {
        { RECORD(", \"classes\": [\"a\"]"), "found 0 rows of counts for 1 classes" },
        { RECORD(", \"classes\": [\"a\"], \"counts\": [[1, 2]]"), "a row of 2 counts" },
        { RECORD(", \"classes\": [\"a\"], \"counts\": [1]"), "'counts'" },
        { RECORD(", \"classes\": [\"a\"], \"counts\": [[-1]]"), "'counts'" },
        { RECORD(", \"classes\": [\"a\"], \"counts\": [[1e300]]"), "'counts'" },
        { RECORD(", \"classes\": [1], \"counts\": [[1]]"), "'classes'" },
        { RECORD(", \"pairs\": {}"), "'pairs' is not a list of at most 50" },
        { RECORD(", \"pairs\": [{" NAMES "}]"), "'count'" },
        { RECORD(", \"pairs\": [1]"), "'actual'" },
        { RECORD(", \"mistakes\": [{" NAMES ", \"path\": \"x\", \"sample\": 1}]"), "probability" },
        { RECORD(", \"mistakes\": [{" NAMES
                 ", \"path\": \"x\", \"sample\": 1, \"probability\": 2}]"),
          "probability" },
        { RECORD(", \"mistakes\": [{" NAMES ", \"path\": 1}]"), "'path'" },
        { EPOCH "DLLL {\"type\": \"CONFUSION\", \"step\": [0], \"data\": {}}\n" EPOCH,
          "2: 'images'" },
        { EPOCH "DLLL {\"type\": \"CONFUSION\"}\n" EPOCH, "the record has no step and data" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_run_log run;
        expect_error(td_run_log_parse(cases[i][0], strlen(cases[i][0]), "r", &run), TD_EFORMAT,
                     cases[i][1]);
        td_run_log_release(&run);
    }
}

static void no_list_is_longer_than_its_limit(void **state)
{
    td_text t = { 0 };
    td_run_log run;
    (void)state;
    td_text_add(&t, EPOCH "DLLL {\"type\": \"CONFUSION\", \"step\": [], \"data\": {\"images\": 1, "
                          "\"wrong\": 1, \"mistakes\": [");
    for (int i = 0; i <= TD_CONFUSION_MISTAKES; i++)
        td_text_add(&t,
                    "%s{" NAMES ", \"path\": \"\", \"sample\": 0, "
                    "\"probability\": 1}",
                    i ? ", " : "");
    td_text_add(&t, "]}}\n" EPOCH);
    expect_error(td_run_log_parse(td_text_get(&t), t.len, "r", &run), TD_EFORMAT,
                 "'mistakes' is not a list of at most 24");
    td_run_log_release(&run);
    td_text_release(&t);
}

static const char *const shown =
    RECORD(", \"classes\": [\"a<b>\", \"c&\"], \"counts\": [[3, 1], [0, 0]], "
           "\"mistakes\": [{" NAMES ", \"path\": \"in/a.jpg\", \"sample\": 1, "
           "\"probability\": 0.75}, {" NAMES ", \"path\": \"../out.jpg\", \"sample\": 2, "
           "\"probability\": 0.5}, {" NAMES ", \"path\": \"<script>\", \"sample\": 3, "
           "\"probability\": 0.25}]");

static const char *folder;

static td_status show(void)
{
    td_run_log run;
    td_text page = { 0 };
    td_status st = td_run_log_parse(shown, strlen(shown), "a", &run);
    if (st == TD_OK)
        st = td_run_mistakes_html(&run, 1, folder, &page);
    if (st == TD_OK)
        st = td_text_status(&page);
    if (st == TD_OK) { /* one image is there; the other is outside the folder */
        const char *html = td_text_get(&page);
        const char *first = strstr(html, "src=\"data:image/jpeg;base64,/9j/");
        assert_non_null(first);
        assert_null(strstr(first + 1, "src="));
        assert_null(strstr(html, "<script>"));
        assert_non_null(strstr(html, "<th scope=\"row\">a&lt;b&gt;</th>"));
        assert_non_null(strstr(html, "<b>a&lt;b&gt;</b> taken for <b>c&amp;</b>, 75.0 %"));
    }
    td_text_release(&page);
    td_run_log_release(&run);
    return st;
}

static void images_come_from_the_folder_alone(void **state)
{
    td_text jpeg = { 0 };
    td_image img = { 0 };
    char path[4096];
    (void)state;
    folder = td_scratch_path("data");
    expect_ok(td_image_resize_buffer(&img, 200, 100));
    memset(img.px, 90, (size_t)200 * 100 * 3);
    expect_ok(td_image_encode_jpeg(&img, 90, &jpeg));
    (void)snprintf(path, sizeof path, "%s/in", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof path, "%s/in/a.jpg", folder);
    expect_ok(td_file_write(path, jpeg.data, jpeg.len));
    expect_ok(td_file_write(td_scratch_path("out.jpg"), jpeg.data, jpeg.len));
    expect_ok(show());
    assert_true(td_test_allocations(show, 20000) > 20);
    td_text_release(&jpeg);
    td_image_release(&img);
}

static void only_files_are_read(void **state)
{
    static const char *const outside[] = { "",     "/",    "/etc/passwd", "..",
                                           "../a", "a/..", "a/../b",      "a//../b" };
    char path[4096];
    td_text none = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_false(td_thumbnail_is_below(outside[i]));
    assert_true(td_thumbnail_is_below("a/b.jpg"));
    assert_true(td_thumbnail_is_below("..a/b..jpg"));
    (void)snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0666), 0);
    (void)snprintf(path, sizeof path, "%s/text", folder);
    expect_ok(td_file_write(path, "text", 4));
    static const char *const others[] = { "fifo", "in", "text", "none" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        expect_ok(td_thumbnail_add(folder, others[i], &none));
        assert_int_equal(none.len, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_classes_have_a_matrix),
        cmocka_unit_test(many_classes_have_pairs),
        cmocka_unit_test(other_ranks_may_send_anything),
        cmocka_unit_test(bad_records_are_refused),
        cmocka_unit_test(no_list_is_longer_than_its_limit),
        cmocka_unit_test(images_come_from_the_folder_alone),
        cmocka_unit_test(only_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
