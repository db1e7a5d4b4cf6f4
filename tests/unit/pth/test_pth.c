/*
 * test_pth.c -- files that PyTorch wrote, bit for bit; and what damage does to them
 *
 * The files of tests/data/pth and the tensors that they must give come from tests/oracle/pth.py.
 */
#include "pth/pth.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "base/half.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

static const char *data_path(const char *name)
{
    static char path[8][256];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "tests/data/pth/%s", name);
    return p;
}

static td_tensors *read_file(const char *name, bool is_ema)
{
    td_tensors *t;
    expect_ok(td_pth_read(data_path(name), is_ema, &t));
    return t;
}

static td_tensors *read_wanted(const char *name)
{
    td_tensors *t;
    expect_ok(td_tensors_read(data_path(name), &t));
    return t;
}

static int64_t elements(const td_tensor *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++)
        n *= x->dim[i];
    return n;
}

/* every tensor of `wanted`, under the name that we give it, and no others */
static void expect_same(const td_tensors *t, const td_tensors *wanted, bool has_shapes)
{
    assert_int_equal(td_tensors_count(t), td_tensors_count(wanted));
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        char name[256];
        const td_tensor *x = td_tensors_at(t, i);
        td_weight_name(x->name, name);
        const td_tensor *w = td_tensors_get(wanted, name);
        assert_non_null(w);
        assert_int_equal(x->dtype, w->dtype);
        assert_int_equal(elements(x), elements(w));
        if (has_shapes) {
            assert_int_equal(x->rank, w->rank);
            for (int k = 0; k < x->rank; k++)
                assert_int_equal(x->dim[k], w->dim[k]);
        }
        assert_int_equal(x->n_bytes, w->n_bytes);
        if (x->n_bytes)
            assert_memory_equal(x->data, w->data, x->n_bytes);
    }
}

static void expect_file(const char *name, bool is_ema, const char *wanted_name, bool has_shapes)
{
    td_tensors *t = read_file(name, is_ema), *wanted = read_wanted(wanted_name);
    expect_same(t, wanted, has_shapes);
    td_tensors_free(t);
    td_tensors_free(wanted);
}

/* all types; scalars, empty ones, five dimensions; transposed, cut out, expanded, shared */
static void test_kinds(void **state)
{
    (void)state;
    expect_file("kinds-zip.pth", false, "kinds.safetensors", true);
    expect_file("kinds-legacy.pth", false, "kinds.safetensors", true);
}

static void test_checkpoints(void **state)
{
    static const char *const names[] = { "checkpoint-zip.pth.tar", "checkpoint-legacy.pth.tar" };
    (void)state;
    expect_file("tiny.pth", false, "tiny.safetensors", true);
    for (size_t i = 0; i < 2; i++) {
        expect_file(names[i], false, "tiny.safetensors", false);
        expect_file(names[i], true, "tiny-ema.safetensors", false);
        td_tensors *t = read_file(names[i], false);
        assert_string_equal(td_tensors_meta(t, "torch.container"), i ? "legacy" : "zip");
        assert_string_equal(td_tensors_meta(t, "torch.section"), "state_dict");
        assert_string_equal(td_tensors_meta(t, "torch.epoch"), "90");
        assert_string_equal(td_tensors_meta(t, "torch.best_prec1"), "77.125");
        assert_string_equal(td_tensors_meta(t, "torch.arch"), "tiny");
        td_tensors_free(t);
        t = read_file(names[i], true);
        assert_string_equal(td_tensors_meta(t, "torch.section"), "state_dict_ema");
        td_tensors_free(t);
    }
}

static void expect_widened(const char *name, td_dtype narrow)
{
    td_tensors *t = read_file(name, false), *wanted = read_wanted("tiny.safetensors");
    int n = 0;
    for (size_t i = 0; i < td_tensors_count(t); i++)
        n += td_tensors_at(t, i)->dtype == narrow;
    assert_int_equal(n, 16);
    expect_ok(td_tensors_widen(t));
    expect_same(t, wanted, true);
    td_tensors_free(t);
    td_tensors_free(wanted);
}

/* their numbers are exact in every type */
static void test_halves(void **state)
{
    (void)state;
    expect_widened("half-zip.pth", TD_DT_F16);
    expect_widened("half-legacy.pth", TD_DT_F16);
    expect_widened("bf16-protocol4.pt", TD_DT_BF16);
}

/* a network that the checkpoint names in its own words, and one that we do not have */
static void test_arch(void **state)
{
    td_tensors *t;
    (void)state;
    expect_ok(td_weight_file_open(data_path("arch.pth.tar"), &t));
    assert_string_equal(td_tensors_meta(t, "tandem.arch"), "resnet50");
    assert_string_equal(td_tensors_meta(t, "torch.best_prec1"), "76.5"); /* a tensor, best_acc1 */
    td_tensors_free(t);
    expect_ok(td_weight_file_open(data_path("checkpoint-zip.pth.tar"), &t));
    assert_string_equal(td_tensors_meta(t, "torch.arch"), "tiny");
    assert_null(td_tensors_meta(t, "tandem.arch"));
    td_tensors_free(t);
    expect_ok(td_weight_file_open(data_path("half-zip.pth"), &t));
    assert_int_equal(td_tensors_at(t, 0)->dtype, TD_DT_F32);
    td_tensors_free(t);
    expect_ok(td_weight_file_read(data_path("half-zip.pth"), false, &t));
    assert_int_equal(td_tensors_at(t, 0)->dtype, TD_DT_F16);
    td_tensors_free(t);
}

static void test_refused(void **state)
{
    td_tensors *t;
    (void)state;
    expect_error(td_pth_read(data_path("float8.pth"), false, &t), TD_EUNSUPPORTED,
                 "tensor 'f8' is float8_e4m3fn, which is not supported");
    expect_error(td_pth_read(data_path("int16.pth"), false, &t), TD_EUNSUPPORTED,
                 "tensor 'short' is ShortStorage");
    expect_error(td_pth_read(data_path("tiny.pth"), true, &t), TD_EFORMAT,
                 "has no averaged weights");
    expect_error(td_pth_read(data_path("tiny.safetensors"), false, &t), TD_EFORMAT,
                 "neither a zip archive nor a pickle");
    expect_error(td_pth_read(data_path("absent.pth"), false, &t), TD_ENOTFOUND, "cannot open");
    expect_error(td_pth_read("tests", false, &t), TD_EIO, "it is a folder");
    assert_null(t);
}

static void test_content_decides(void **state)
{
    const char zip[16] = "PK\3\4", no_zip[16] = "PK\1\2";
    const unsigned char pickle[16] = { 0x80, 2, 0x8a }, header[16] = { 0x80, 2, [8] = '{' };
    (void)state;
    assert_true(td_pth_is(zip, 16));
    assert_false(td_pth_is(no_zip, 16));
    assert_true(td_pth_is(pickle, 16));
    assert_false(td_pth_is(header, 16)); /* a safetensors header of 640 bytes */
    assert_false(td_pth_is(zip, 3));
    assert_false(td_pth_is(zip, 0));
}

/* --- damage ----------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t n;
} image;

static image load(const char *name)
{
    image f;
    expect_ok(td_file_read(data_path(name), 1 << 20, &f.bytes, &f.n));
    return f;
}

/* in a block of its exact size, so that a sanitizer sees a read past the end */
static td_status parse(const void *bytes, size_t n, td_tensors **t)
{
    char *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    td_status st = td_pth_parse(exact, n, "cut.pth", false, t);
    free(exact);
    return st;
}

static void test_truncated(void **state)
{
    static const char *const names[] = { "small-zip.pth", "small-legacy.pth" };
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        image f = load(names[k]);
        for (size_t n = 0; n < f.n; n++) {
            td_tensors *t;
            expect_error(parse(f.bytes, n, &t), TD_EFORMAT, "cut.pth");
            assert_null(t);
        }
        td_free(f.bytes);
    }
}

/* one bit: an error, or the same tensors (it hit padding, a date, a flag that says nothing) */
static void test_flipped(void **state)
{
    image f = load("small-zip.pth");
    td_tensors *wanted = read_file("small-zip.pth", false), *t;
    int n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < f.n * 8; i++) {
        f.bytes[i / 8] = (char)(f.bytes[i / 8] ^ 1 << i % 8);
        if (parse(f.bytes, f.n, &t) == TD_OK) {
            for (size_t k = 0; k < td_tensors_count(t); k++) {
                const td_tensor *x = td_tensors_at(t, k), *w = td_tensors_get(wanted, x->name);
                assert_non_null(w);
                assert_int_equal(x->n_bytes, w->n_bytes);
                assert_memory_equal(x->data, w->data, x->n_bytes);
            }
            td_tensors_free(t);
        } else {
            assert_non_null(strstr(td_error_message(), "cut.pth"));
            n_wrong++;
        }
        f.bytes[i / 8] = (char)(f.bytes[i / 8] ^ 1 << i % 8);
    }
    assert_true(n_wrong > 2000);
    td_tensors_free(wanted);
    td_free(f.bytes);
}

/* the legacy format has no check values: any result, but no fault */
static void test_flipped_legacy(void **state)
{
    image f = load("small-legacy.pth");
    td_tensors *t;
    (void)state;
    for (size_t i = 0; i < f.n * 8; i++) {
        f.bytes[i / 8] = (char)(f.bytes[i / 8] ^ 1 << i % 8);
        if (parse(f.bytes, f.n, &t) == TD_OK)
            td_tensors_free(t);
        else
            assert_non_null(strstr(td_error_message(), "cut.pth"));
        f.bytes[i / 8] = (char)(f.bytes[i / 8] ^ 1 << i % 8);
    }
    td_free(f.bytes);
}

static void test_trailing(void **state)
{
    image f = load("small-legacy.pth");
    td_tensors *t;
    (void)state;
    f.bytes = td_resize(f.bytes, f.n + 1, 1);
    assert_non_null(f.bytes);
    f.bytes[f.n] = 0;
    expect_error(parse(f.bytes, f.n + 1, &t), TD_EFORMAT, "1 bytes after the last storage");
    td_free(f.bytes);
}

/* --- memory ----------------------------------------------------------------------------------- */

static const char *swept;

static td_status open_swept(void)
{
    td_tensors *t;
    td_status st = td_weight_file_open(data_path(swept), &t);
    td_tensors_free(t);
    return st;
}

static td_status read_swept(void)
{
    td_tensors *t;
    td_status st = td_pth_read(data_path(swept), false, &t);
    if (st == TD_OK)
        st = td_tensors_widen(t);
    td_tensors_free(t);
    return st;
}

static void test_allocations(void **state)
{
    (void)state;
    swept = "kinds-zip.pth";
    td_test_allocations(read_swept, 2000);
    swept = "half-legacy.pth";
    td_test_allocations(read_swept, 2000);
    swept = "checkpoint-zip.pth.tar";
    td_test_allocations(read_swept, 2000);
    swept = "arch.pth.tar";
    td_test_allocations(open_swept, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),          cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_halves),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_arch),           cmocka_unit_test(test_content_decides),
        cmocka_unit_test(test_truncated),      cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_flipped_legacy), cmocka_unit_test(test_trailing),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
