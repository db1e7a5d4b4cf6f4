/* test_pth_write.c -- objects as files of PyTorch's: read back, aligned, whole or not at all */
#include "pth/pth_write.h"

#include <stdio.h>

#include "base/bytes.h"
#include "base/file_io.h"
#include "io/crc32.h"
#include "pth/pth.h"
#include "pth/pth_metadata.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/full_disk.h"
#include "support/scratch.h"

static const float weight[6] = { 1, -2, 3.5F, 0, 5, 6 };
static const int64_t count = INT64_C(-5000000000);
static const unsigned char octets[3] = { 1, 2, 255 };

/* {"epoch": 7, "best_prec1": 12.5, "arch": "own", "state_dict": {...}, "more": [...]} */
static void describe(td_pth_writer *w)
{
    const td_tensor tensors[] = {
        { "a.weight", TD_DT_F32, 2, { 2, 3 }, weight, sizeof weight },
        { "a.count", TD_DT_I64, 0, { 0 }, &count, sizeof count },
        { "a.octets", TD_DT_U8, 1, { 3 }, octets, sizeof octets },
        { "a.empty", TD_DT_F32, 2, { 0, 4 }, NULL, 0 },
    };
    td_pth_dict(w);
    td_pth_text(w, "epoch");
    td_pth_int(w, 7);
    td_pth_text(w, "best_prec1");
    td_pth_real(w, 12.5);
    td_pth_text(w, "arch");
    td_pth_text(w, "own");
    td_pth_text(w, "state_dict");
    td_pth_ordered_dict(w);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        td_pth_text(w, tensors[i].name);
        td_pth_tensor(w, &tensors[i]);
    }
    td_pth_end_dict(w);
    td_pth_text(w, "more");
    td_pth_list(w);
    td_pth_none(w);
    td_pth_bool(w, true);
    td_pth_int(w, INT64_C(1) << 40);
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static td_status save_as(const char *path)
{
    td_pth_writer w = { 0 };
    describe(&w);
    td_status st = td_pth_save(&w, path);
    td_pth_writer_release(&w);
    return st;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    td_tensors *t;
    const char *path = td_scratch_path("written.pth");
    expect_ok(save_as(path));
    expect_ok(td_pth_read(path, false, &t));
    assert_int_equal(td_tensors_count(t), 4);
    const td_tensor *x = td_tensors_get(t, "a.weight");
    assert_non_null(x);
    assert_int_equal(x->dtype, TD_DT_F32);
    assert_int_equal(x->rank, 2);
    assert_int_equal(x->dim[1], 3);
    assert_memory_equal(x->data, weight, sizeof weight);
    assert_memory_equal(td_tensors_get(t, "a.count")->data, &count, sizeof count);
    assert_int_equal(td_tensors_get(t, "a.count")->rank, 0);
    assert_memory_equal(td_tensors_get(t, "a.octets")->data, octets, sizeof octets);
    assert_int_equal(td_tensors_get(t, "a.empty")->n_bytes, 0);
    assert_string_equal(td_tensors_meta(t, "torch.container"), "zip");
    assert_string_equal(td_tensors_meta(t, "torch.epoch"), "7");
    assert_string_equal(td_tensors_meta(t, "torch.best_prec1"), "12.5");
    assert_string_equal(td_tensors_meta(t, "torch.arch"), "own");
    td_tensors_free(t);
}

/* every local header is followed by a name, an extra field, and data at a multiple of 64 */
static void storages_are_aligned_and_bytes_repeat(void **state)
{
    (void)state;
    char *a, *b;
    size_t n, n_again;
    int n_entries = 0;
    expect_ok(save_as(td_scratch_path("once.pth")));
    expect_ok(save_as(td_scratch_path("twice.pth")));
    expect_ok(td_file_read(td_scratch_path("once.pth"), 1 << 20, &a, &n));
    expect_ok(td_file_read(td_scratch_path("twice.pth"), 1 << 20, &b, &n_again));
    assert_int_equal(n, n_again);
    assert_memory_equal(a, b, n);
    for (size_t at = 0; td_get_le((const unsigned char *)a + at, 4) == 0x04034b50;) {
        const unsigned char *p = (const unsigned char *)a + at;
        const size_t data = at + 30 + (size_t)td_get_le(p + 26, 2) + (size_t)td_get_le(p + 28, 2);
        const size_t n_bytes = (size_t)td_get_le(p + 18, 4);
        assert_int_equal(data % 64, 0);
        assert_int_equal(td_crc32(a + data, n_bytes), td_get_le(p + 14, 4));
        at = data + n_bytes;
        n_entries++;
    }
    assert_int_equal(n_entries, 7); /* data.pkl, byteorder, four storages, version */
    td_free(a);
    td_free(b);
}

static void check_values_are_the_standards(void **state)
{
    (void)state;
    assert_int_equal(td_crc32("123456789", 9), 0xcbf43926);
    assert_int_equal(td_crc32("", 0), 0);
    assert_int_equal(td_crc32("a", 1), 0xe8b7be43);
}

static void a_full_disk_leaves_what_there_was(void **state)
{
    (void)state;
    char *text;
    size_t n;
    const char *path = td_scratch_path("kept.pth");
    expect_ok(td_file_write(path, "old", 3));
    td_atomic_set_calls(&td_test_full_disk);
    expect_error(save_as(path), TD_EIO, "kept.pth");
    td_atomic_set_calls(NULL);
    expect_ok(td_file_read(path, 100, &text, &n));
    assert_int_equal(n, 3);
    td_free(text);
}

/* --- what is known of the network ------------------------------------------------------------- */

/* a bare state_dict of one tensor, its attribute "tandem" as `value` writes it */
static td_status save_own(const char *path, void (*value)(td_pth_writer *w))
{
    const td_tensor x = { "w", TD_DT_F32, 1, { 6 }, weight, sizeof weight };
    td_pth_writer w = { 0 };
    td_pth_ordered_dict(&w);
    td_pth_text(&w, x.name);
    td_pth_tensor(&w, &x);
    td_pth_end_dict(&w);
    td_pth_dict(&w);
    td_pth_text(&w, "tandem");
    value(&w);
    td_pth_end_dict(&w);
    td_pth_attributes(&w);
    td_status st = td_pth_save(&w, path);
    td_pth_writer_release(&w);
    return st;
}

static td_status copy_metadata(td_tensors *t, td_tensors **out)
{
    const td_tensor x = { "w", TD_DT_F32, 1, { 6 }, weight, sizeof weight };
    td_pth_writer w = { 0 };
    td_status st = TD_OK;
    const char *path = td_scratch_path("own.pth");
    td_pth_ordered_dict(&w);
    td_pth_text(&w, x.name);
    td_pth_tensor(&w, &x);
    td_pth_end_dict(&w);
    td_pth_dict(&w);
    td_pth_text(&w, "tandem");
    TD_OUT(td_pth_metadata_write(t, "own", &w));
    td_pth_end_dict(&w);
    td_pth_attributes(&w);
    TD_OUT(td_pth_save(&w, path));
    TD_OUT(td_pth_read(path, false, out));
out:
    td_pth_writer_release(&w);
    return st;
}

static void metadata_comes_back_as_it_was(void **state)
{
    (void)state;
    static const char *const values[][2] = {
        { "tandem.graph", "graph \"g\"\n%x = input\n" },
        { "tandem.image_size", "64" },
        { "tandem.classes", "[\"a \\\"b\\\"\", \"\xc3\xa4\", \"\"]" },
        { "tandem.categories", "[1, 90]" },
        { "tandem.backbone", "resnet18" },
    };
    const size_t n = sizeof values / sizeof *values;
    td_tensors *t, *back;
    expect_ok(td_tensors_new(&t));
    for (size_t i = 0; i < n; i++)
        expect_ok(td_tensors_set_meta(t, values[i][0], values[i][1]));
    expect_ok(td_tensors_set_meta(t, "tandem.state", "{}"));
    assert_false(td_pth_metadata_holds("tandem.state"));
    expect_ok(copy_metadata(t, &back));
    for (size_t i = 0; i < n; i++)
        assert_string_equal(td_tensors_meta(back, values[i][0]), values[i][1]);
    assert_null(td_tensors_meta(back, "tandem.state"));
    assert_int_equal(td_tensors_count(back), 1);
    td_tensors_free(back);
    expect_ok(td_tensors_set_meta(t, "tandem.image_size", "many"));
    expect_error(copy_metadata(t, &back), TD_EFORMAT, "tandem.image_size");
    td_tensors_free(t);
}

static void put_none(td_pth_writer *w)
{
    td_pth_none(w); /* another program's: left alone */
}

static void put_size_text(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "image_size");
    td_pth_text(w, "64");
    td_pth_end_dict(w);
}

static void put_size_negative(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "image_size");
    td_pth_int(w, -64);
    td_pth_end_dict(w);
}

static void put_arch_list(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "arch");
    td_pth_list(w);
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static void put_classes_numbers(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "classes");
    td_pth_list(w);
    td_pth_int(w, 1);
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static void put_bad_utf8(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "arch");
    td_pth_text(w, "\xff\xfe");
    td_pth_end_dict(w);
}

static void put_state(td_pth_writer *w)
{
    td_pth_dict(w);
    td_pth_text(w, "state");
    td_pth_text(w, "{}");
    td_pth_text(w, "kind");
    td_pth_text(w, "checkpoint");
    td_pth_text(w, "config");
    td_pth_text(w, "{}");
    td_pth_end_dict(w);
}

/* names that one text in the file's memo stands for take memory as often as they are named */
static void put_many_names(td_pth_writer *w)
{
    char name[1025];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    td_pth_dict(w);
    td_pth_text(w, "classes");
    td_pth_list(w);
    td_pth_text(w, name);
    td_text_add_bytes(&w->pickle, "q\0", 2); /* BINPUT 0 */
    for (int i = 0; i < 1 << 16; i++)
        td_text_add_bytes(&w->pickle, "h\0", 2); /* BINGET 0 */
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static void metadata_of_a_foreign_file_is_checked(void **state)
{
    (void)state;
    static const struct {
        void (*value)(td_pth_writer *w);
        td_status st;
        const char *part;
    } rows[] = { { put_none, TD_OK, "" },
                 { put_state, TD_OK, "" },
                 { put_size_text, TD_EFORMAT, "image_size" },
                 { put_size_negative, TD_EFORMAT, "image_size" },
                 { put_arch_list, TD_EFORMAT, "arch" },
                 { put_classes_numbers, TD_EFORMAT, "classes" },
                 { put_bad_utf8, TD_EFORMAT, "arch" },
                 { put_many_names, TD_ELIMIT, "67108864" } };
    const char *path = td_scratch_path("foreign.pth");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_tensors *t = NULL;
        expect_ok(save_own(path, rows[i].value));
        if (rows[i].st != TD_OK) {
            expect_error(td_pth_read(path, false, &t), rows[i].st, rows[i].part);
            assert_null(t);
            continue;
        }
        expect_ok(td_pth_read(path, false, &t));
        for (size_t k = 0; k < td_tensors_meta_count(t); k++)
            assert_memory_not_equal(td_tensors_meta_key(t, k), "tandem", 6);
        td_tensors_free(t);
    }
}

static td_status save_swept(void)
{
    return save_as(td_scratch_path("swept.pth"));
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(save_swept, 2000) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(storages_are_aligned_and_bytes_repeat),
        cmocka_unit_test(check_values_are_the_standards),
        cmocka_unit_test(a_full_disk_leaves_what_there_was),
        cmocka_unit_test(metadata_comes_back_as_it_was),
        cmocka_unit_test(metadata_of_a_foreign_file_is_checked),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
