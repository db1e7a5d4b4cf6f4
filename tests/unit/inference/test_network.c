/*
 * test_network.c -- a network that stays loaded: the same predictions from files, bytes, pixels and
 * rows, in any batch and from several threads
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/threads.h"
#include "image/image.h"
#include "inference/network.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/convert.h"

enum { SIZE = 32, CLASSES = 5, IMAGES = 5, DETECTOR_SIZE = 160 };

static const char *make_weights(const char *arch, int side, int classes)
{
    static char path[1024];
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = arch;
    m.backbone = "resnet18";
    m.num_classes = classes;
    m.image_size = side;
    snprintf(path, sizeof path, "%s", td_scratch_path(arch));
    expect_ok(td_init_weights(&m, 3, path, true));
    return path;
}

/* images of several sizes: as PNG files, their bytes, and their pixels with 5 bytes after a row */
typedef struct {
    char path[IMAGES][1024];
    td_text bytes[IMAGES];
    uint8_t *pixels[IMAGES];
    int width[IMAGES], height[IMAGES];
} pictures;

static size_t row_bytes(const pictures *p, int i)
{
    return 3 * (size_t)p->width[i] + 5;
}

static void make_pictures(pictures *p)
{
    *p = (pictures){ 0 };
    for (int i = 0; i < IMAGES; i++) {
        td_image img = { 0 };
        char name[16];
        p->width[i] = 40 + 7 * i;
        p->height[i] = 61 - 5 * i;
        expect_ok(td_image_resize_buffer(&img, p->width[i], p->height[i]));
        const size_t row = 3 * (size_t)img.width;
        p->pixels[i] = td_alloc((size_t)img.height, row_bytes(p, i));
        assert_non_null(p->pixels[i]);
        for (size_t k = 0; k < row * (size_t)img.height; k++)
            img.px[k] = (uint8_t)(k * (size_t)(i + 3) >> (i + 1));
        for (int y = 0; y < img.height; y++)
            memcpy(p->pixels[i] + (size_t)y * row_bytes(p, i), img.px + (size_t)y * row, row);
        expect_ok(td_image_encode_png(&img, &p->bytes[i]));
        snprintf(name, sizeof name, "%d.png", i);
        snprintf(p->path[i], sizeof p->path[i], "%s", td_scratch_path(name));
        expect_ok(td_file_write(p->path[i], p->bytes[i].data, p->bytes[i].len));
        td_image_release(&img);
    }
}

static void release_pictures(pictures *p)
{
    for (int i = 0; i < IMAGES; i++) {
        td_free(p->pixels[i]);
        td_text_release(&p->bytes[i]);
    }
}

typedef enum { BY_PATH, BY_BYTES, BY_PIXELS } source_kind;

static td_image_source source(const pictures *p, int i, source_kind kind)
{
    if (kind == BY_PATH)
        return (td_image_source){ .path = p->path[i] };
    if (kind == BY_BYTES)
        return (td_image_source){ .bytes = p->bytes[i].data, .n_bytes = p->bytes[i].len };
    return (td_image_source){ .pixels = p->pixels[i],
                              .width = p->width[i],
                              .height = p->height[i],
                              .row_bytes = row_bytes(p, i) };
}

static td_network *open_network(const char *weights, int batch, int other)
{
    td_network_opts o;
    td_network *net;
    td_network_defaults(&o);
    o.weights = weights;
    o.device.tune = TD_TUNE_OFF;
    o.batch_sizes[1] = batch;
    o.batch_sizes[3] = other;
    o.workers = 2;
    o.boxes.min_score = 0;
    expect_ok(td_network_open(&o, &net));
    return net;
}

/* --- classifiers ------------------------------------------------------------------------------ */

static void expect_same_classes(const td_prediction *a, const td_prediction *b)
{
    assert_int_equal(a->st, TD_OK);
    assert_int_equal(b->st, TD_OK);
    assert_int_equal(a->n, CLASSES);
    assert_int_equal(b->n, CLASSES);
    for (int i = 0; i < CLASSES; i++) {
        assert_int_equal(a->label[i], b->label[i]);
        assert_string_equal(a->name[i], b->name[i]);
        assert_true(fabs(a->probability[i] - b->probability[i]) < 1e-5);
    }
}

/* one image at a time, then all in batches of 2 and 1, from every kind of source */
static void files_bytes_and_pixels_are_the_same(void **state)
{
    (void)state;
    pictures p;
    td_predictions *one[IMAGES], *all;
    td_image_source sources[IMAGES];
    make_pictures(&p);
    td_network *net = open_network(make_weights("resnet18", SIZE, CLASSES), 2, 1);
    const td_network_info *about = td_network_about(net);
    assert_string_equal(about->name, "resnet18");
    assert_string_equal(about->precision, "fp32");
    assert_true(!about->is_detector && about->n_classes == CLASSES && about->image_size == SIZE);
    for (int i = 0; i < IMAGES; i++) {
        sources[i] = source(&p, i, BY_PATH);
        expect_ok(td_network_predict(net, 1, &sources[i], &one[i]));
        assert_string_equal(td_predictions_classes(one[i], 0)->path, p.path[i]);
        assert_null(td_predictions_boxes(one[i], 0));
    }
    assert_true(fabs(td_predictions_classes(one[0], 0)->probability[0] -
                     td_predictions_classes(one[1], 0)->probability[0]) > 1e-5);
    for (source_kind kind = BY_PATH; kind <= BY_PIXELS; kind++) {
        for (int i = 0; i < IMAGES; i++)
            sources[i] = source(&p, i, kind);
        expect_ok(td_network_predict(net, IMAGES, sources, &all));
        for (int i = 0; i < IMAGES; i++)
            expect_same_classes(td_predictions_classes(one[i], 0), td_predictions_classes(all, i));
        td_predictions_free(all);
    }
    for (int i = 0; i < IMAGES; i++)
        td_predictions_free(one[i]);
    td_network_close(net);
    release_pictures(&p);
}

/* an image that cannot be read has its own error and does not move the others */
static void errors_are_an_images_own(void **state)
{
    (void)state;
    pictures p;
    td_predictions *good, *all;
    make_pictures(&p);
    td_network_opts o;
    td_network *net;
    td_network_defaults(&o);
    o.weights = make_weights("resnet18", SIZE, CLASSES);
    o.max_pixels = 5000;
    o.batch_sizes[0] = 4;
    expect_ok(td_network_open(&o, &net));
    const td_image_source fine = source(&p, 1, BY_BYTES);
    const td_image_source sources[] = {
        { .path = "absent.jpg" },
        { .bytes = "text", .n_bytes = 4 },
        fine,
        { .path = p.path[0], .bytes = p.bytes[0].data, .n_bytes = p.bytes[0].len },
        { 0 },
        { .pixels = p.pixels[0], .width = 100, .height = 51 },
        { .pixels = p.pixels[0], .width = 10, .height = 2, .row_bytes = 29 },
        { .pixels = p.pixels[0], .width = 0, .height = 2 },
        fine,
    };
    static const struct {
        td_status st;
        const char *part;
    } wanted[] = { { TD_ENOTFOUND, "absent.jpg" },
                   { TD_EFORMAT, "text" },
                   { TD_OK, NULL },
                   { TD_EARG, "2 of path, bytes and pixels" },
                   { TD_EARG, "0 of path" },
                   { TD_ELIMIT, "100 x 51 pixels, the limit is 5000" },
                   { TD_EARG, "29 bytes" },
                   { TD_EARG, "0 x 2" },
                   { TD_OK, NULL } };
    const int n = sizeof sources / sizeof *sources;
    expect_ok(td_network_predict(net, 1, &fine, &good));
    expect_ok(td_network_predict(net, n, sources, &all));
    for (int i = 0; i < n; i++) {
        const td_prediction *c = td_predictions_classes(all, i);
        assert_int_equal(c->st, wanted[i].st);
        if (c->st == TD_OK)
            expect_same_classes(td_predictions_classes(good, 0), c);
        else
            assert_non_null(strstr(c->message, wanted[i].part));
    }
    assert_null(td_predictions_classes(good, -1));
    assert_null(td_predictions_classes(good, INT_MAX));
    assert_null(td_predictions_boxes(good, 0));
    td_predictions_free(all);
    td_predictions_free(good);
    expect_error(td_network_predict(net, 0, sources, &all), TD_EARG, "0 images");
    assert_null(all);
    td_network_close(net);
    td_network_close(NULL);
    td_predictions_free(NULL);
    release_pictures(&p);
}

static void options_are_checked(void **state)
{
    (void)state;
    td_network *net;
    td_network_opts o;
    td_network_defaults(&o);
    expect_error(td_network_open(&o, &net), TD_EUSAGE, "names no weight file");
    assert_null(net);
    o.weights = "absent.safetensors";
    expect_error(td_network_open(&o, &net), TD_ENOTFOUND, "absent.safetensors");
    o.batch_sizes[2] = -1;
    expect_error(td_network_open(&o, &net), TD_EARG, "batch size -1, wanted 0 .. 4096");
    o.topk = 11;
    expect_error(td_network_open(&o, &net), TD_EARG, "topk is 11, wanted 1 .. 10");
    o.topk = 1;
    o.batch_sizes[2] = 0;
    o.threshold = NAN;
    expect_error(td_network_open(&o, &net), TD_EARG, "threshold is");
    o.threshold = 1.5;
    expect_error(td_network_open(&o, &net), TD_EARG, "threshold is 1.5, wanted 0 .. 1");
    o.threshold = 0;
    o.device.threads = -1;
    expect_error(td_network_open(&o, &net), TD_EARG, "-1 threads, wanted 0 .. 4096");
    o.device.threads = 0;
    o.weights = make_weights("ssd320", DETECTOR_SIZE, 2);
    expect_error(td_network_open_classifier(&o, &net), TD_EUSAGE, "weights of ssd320, a detector");
}

/* --- several threads -------------------------------------------------------------------------- */

typedef struct {
    td_network *net;
    const pictures *p;
    const td_predictions *wanted;
    td_thread thread;
    int first;
    bool is_same;
} caller;

static void call(void *ctx)
{
    caller *c = ctx;
    c->is_same = true;
    for (int k = 0; k < 6 && c->is_same; k++) {
        const int i = (c->first + k) % IMAGES;
        td_predictions *got;
        const td_image_source s = source(c->p, i, (source_kind)(k % 3));
        c->is_same = td_network_predict(c->net, 1, &s, &got) == TD_OK;
        if (!c->is_same)
            return;
        const td_prediction *a = td_predictions_classes(got, 0),
                            *b = td_predictions_classes(c->wanted, i);
        c->is_same = memcmp(a->probability, b->probability, sizeof a->probability) == 0;
        td_predictions_free(got);
    }
}

static void threads_share_a_network(void **state)
{
    enum { CALLERS = 4 };
    (void)state;
    pictures p;
    caller callers[CALLERS];
    td_image_source sources[IMAGES];
    td_predictions *wanted;
    make_pictures(&p);
    td_network *net = open_network(make_weights("resnet18", SIZE, CLASSES), 1, 0);
    for (int i = 0; i < IMAGES; i++)
        sources[i] = source(&p, i, BY_PATH);
    expect_ok(td_network_predict(net, IMAGES, sources, &wanted));
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){ .net = net, .p = &p, .wanted = wanted, .first = i };
        expect_ok(td_thread_start(&callers[i].thread, "caller", call, &callers[i]));
    }
    for (int i = 0; i < CALLERS; i++) {
        td_thread_join(&callers[i].thread);
        assert_true(callers[i].is_same);
    }
    td_predictions_free(wanted);
    td_network_close(net);
    release_pictures(&p);
}

/* --- rows and boxes --------------------------------------------------------------------------- */

static void rows_give_logits_and_probabilities(void **state)
{
    (void)state;
    static float rows[3 * 3 * SIZE * SIZE], logits[3 * CLASSES], probabilities[3 * CLASSES];
    td_network *net = open_network(make_weights("resnet18", SIZE, CLASSES), 2, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rows[i] = (float)sin((double)i);
    expect_ok(td_network_run(net, 3, rows, logits, probabilities));
    for (int i = 0; i < 3; i++) {
        double sum = 0, of_p = 0;
        for (int k = 0; k < CLASSES; k++)
            sum += exp((double)logits[i * CLASSES + k]);
        for (int k = 0; k < CLASSES; k++) {
            const double p = (double)probabilities[i * CLASSES + k];
            assert_true(fabs(p - exp((double)logits[i * CLASSES + k]) / sum) < 1e-5);
            of_p += p;
        }
        assert_true(fabs(of_p - 1) < 1e-5);
    }
    expect_ok(td_network_run(net, 1, rows, NULL, NULL));
    expect_error(td_network_run(net, 0, rows, logits, NULL), TD_EARG, "0 images");
    td_network_close(net);
}

static void a_detector_finds_the_same_boxes(void **state)
{
    (void)state;
    pictures p;
    td_predictions *by[3];
    make_pictures(&p);
    td_network *net = open_network(make_weights("ssd320", DETECTOR_SIZE, 2), 2, 0);
    const td_network_info *about = td_network_about(net);
    assert_true(about->is_detector && about->n_classes == 2 && about->n_anchors > 0);
    for (source_kind kind = BY_PATH; kind <= BY_PIXELS; kind++) {
        const td_image_source s[3] = { source(&p, 0, kind),
                                       { .bytes = "", .n_bytes = 0 },
                                       source(&p, 3, kind) };
        expect_ok(td_network_predict(net, 3, s, &by[kind]));
        assert_null(td_predictions_classes(by[kind], 0));
        assert_int_equal(td_predictions_boxes(by[kind], 1)->st, TD_EFORMAT);
        for (int i = 0; i < 3; i += 2) {
            const td_found *f = td_predictions_boxes(by[kind], i),
                           *first = td_predictions_boxes(by[BY_PATH], i);
            assert_int_equal(f->st, TD_OK);
            assert_int_equal(f->width, p.width[i == 0 ? 0 : 3]);
            assert_int_equal(f->height, p.height[i == 0 ? 0 : 3]);
            assert_true(f->n > 0 && f->n == first->n);
            for (int k = 0; k < f->n; k++) {
                assert_string_equal(f->boxes[k].name, first->boxes[k].name);
                assert_true(f->boxes[k].score == first->boxes[k].score &&
                            f->boxes[k].x == first->boxes[k].x &&
                            f->boxes[k].height == first->boxes[k].height);
            }
        }
    }
    td_network_close(net);
    for (int i = 0; i < 3; i++)
        td_predictions_free(by[i]);
    release_pictures(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_bytes_and_pixels_are_the_same),
        cmocka_unit_test(errors_are_an_images_own),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(threads_share_a_network),
        cmocka_unit_test(rows_give_logits_and_probabilities),
        cmocka_unit_test(a_detector_finds_the_same_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
