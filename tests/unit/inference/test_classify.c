/*
 * test_classify.c -- td_classify and td_detect say of each image what kind of failure it was
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/convert.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"
#include "tandem/inference.h"
#include "tandem/model.h"

enum { FILES = 5 };

typedef struct {
    int n;
    td_status st[FILES];
    int n_classes[FILES];
} seen;

static td_status note_classes(void *ctx, const td_prediction *p)
{
    seen *s = ctx;
    assert_true(s->n < FILES);
    assert_true((p->st == TD_OK) == (p->message == NULL));
    s->st[s->n] = p->st;
    s->n_classes[s->n++] = p->n;
    return TD_OK;
}

static td_status note_boxes(void *ctx, const td_found *f)
{
    seen *s = ctx;
    assert_true(s->n < FILES);
    assert_true((f->st == TD_OK) == (f->message == NULL));
    s->st[s->n++] = f->st;
    return TD_OK;
}

/* a missing file, a good one, a text, a cut one, a missing one */
static void make_files(const char *files[FILES])
{
    static char path[FILES][1024], good[1024];
    char *bytes;
    size_t n;
    expect_ok(td_dataset_draw(td_scratch_path("set"),
                              &(td_draw_opts){ .classes = 2, .train = 2, .val = 2, .size = 32 }));
    td_dataset *ds;
    expect_ok(
        td_dataset_open(&(td_dataset_opts){ .path = td_scratch_path("set"), .split = "val" }, &ds));
    snprintf(good, sizeof good, "%s", td_dataset_path(ds, 0));
    td_dataset_free(ds);
    snprintf(path[0], sizeof path[0], "%s", td_scratch_path("absent.jpg"));
    snprintf(path[2], sizeof path[2], "%s", td_scratch_path("text.jpg"));
    snprintf(path[3], sizeof path[3], "%s", td_scratch_path("cut.jpg"));
    expect_ok(td_file_read(good, 1 << 20, &bytes, &n));
    expect_ok(td_file_write(path[2], "text", 4));
    expect_ok(td_file_write(path[3], bytes, n / 2));
    td_free(bytes);
    files[0] = files[4] = path[0];
    files[1] = good;
    files[2] = path[2];
    files[3] = path[3];
}

static const char *fresh_weights(const char *arch, int side)
{
    static char path[1024];
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = arch;
    m.backbone = "resnet18";
    m.num_classes = 2;
    m.image_size = side;
    snprintf(path, sizeof path, "%s", td_scratch_path("w.safetensors"));
    expect_ok(td_init_weights(&m, 3, path, true));
    return path;
}

static void check_seen(const seen *s)
{
    assert_int_equal(s->n, FILES);
    assert_int_equal(s->st[0], TD_ENOTFOUND);
    assert_int_equal(s->st[1], TD_OK);
    assert_int_equal(s->st[2], TD_EFORMAT);
    assert_int_equal(s->st[3], TD_EFORMAT);
    assert_int_equal(s->st[4], TD_ENOTFOUND);
}

static void every_image_says_what_failed(void **state)
{
    const char *files[FILES];
    seen classes = { 0 }, boxes = { 0 };
    td_classify_opts c;
    td_detect_opts d;
    (void)state;
    make_files(files);
    td_classify_defaults(&c);
    c.weights = fresh_weights("resnet18", 32);
    c.device.threads = 1;
    expect_ok(td_classify(&c, FILES, files, note_classes, &classes));
    check_seen(&classes);
    assert_int_equal(classes.n_classes[0], 0);
    assert_int_equal(classes.n_classes[1], 2);
    td_detect_defaults(&d);
    d.weights = fresh_weights("ssd320", 160);
    d.device.threads = 1;
    expect_ok(td_detect(&d, FILES, files, note_boxes, &boxes));
    check_seen(&boxes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_image_says_what_failed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
