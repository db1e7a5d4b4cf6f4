/*
 * test_external_data.c -- tensors in a file beside the ONNX file: read, and refused where the place
 * cannot be trusted
 */
#include "onnx_file/external_data.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "io/protobuf.h"
#include "onnx_file/onnx.h"
#include "support/expect.h"
#include "support/scratch.h"

static const float numbers[6] = { 1, 2, 3, -4, 5, 6 };

enum { BYTES = sizeof numbers, BEFORE = 8 };

/* the data file: 8 bytes, then the numbers */
static void write_data(const char *name)
{
    char bytes[BEFORE + BYTES] = "before..";
    memcpy(bytes + BEFORE, numbers, BYTES);
    expect_ok(td_file_write(td_scratch_path(name), bytes, sizeof bytes));
}

static void put_entry(td_text *tensor, const char *key, const char *value)
{
    td_text entry = { 0 };
    if (!value)
        return;
    td_pb_put_text(&entry, 1, key);
    td_pb_put_text(&entry, 2, value);
    td_pb_put_message(tensor, 13, &entry);
    td_text_release(&entry);
}

typedef struct {
    const char *location, *offset, *length; /* NULL: not given */
    int64_t place;                          /* data_location */
    int n_tensors;
    bool has_raw;
} written;

/* y = identity(w0), where the tensors w0, w1, ... f32[3, 2] have their data elsewhere */
static void write_model(const char *path, const written *w)
{
    static const int64_t dims[2] = { 3, 2 };
    td_text graph = { 0 }, node = { 0 }, opset = { 0 }, model = { 0 }, output = { 0 }, type = { 0 };
    td_text plain = { 0 };
    char name[16];
    td_pb_put_text(&node, 1, "w0");
    td_pb_put_text(&node, 2, "y");
    td_pb_put_text(&node, 4, "Identity");
    td_pb_put_message(&graph, 1, &node);
    for (int i = 0; i < w->n_tensors; i++) {
        td_text tensor = { 0 };
        snprintf(name, sizeof name, "w%d", i);
        td_pb_put_int(&tensor, 1, dims[0]);
        td_pb_put_int(&tensor, 1, dims[1]);
        td_pb_put_int(&tensor, 2, 1);
        td_pb_put_text(&tensor, 8, name);
        if (w->has_raw)
            td_pb_put_bytes(&tensor, 9, numbers, BYTES);
        put_entry(&tensor, "location", w->location);
        put_entry(&tensor, "offset", w->offset);
        put_entry(&tensor, "length", w->length);
        put_entry(&tensor, "checksum", "unread");
        td_pb_put_int(&tensor, 14, w->place);
        td_pb_put_message(&graph, 5, &tensor);
        td_text_release(&tensor);
    }
    td_pb_put_int(&plain, 1, 1);
    td_pb_put_message(&type, 1, &plain);
    td_pb_put_text(&output, 1, "y");
    td_pb_put_message(&output, 2, &type);
    td_pb_put_message(&graph, 12, &output);
    td_pb_put_int(&opset, 2, 17);
    td_pb_put_int(&model, 1, 8);
    td_pb_put_message(&model, 8, &opset);
    td_pb_put_message(&model, 7, &graph);
    expect_ok(td_file_write(path, model.data, model.len));
    td_text *const all[] = { &graph, &node, &opset, &model, &output, &type, &plain };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        td_text_release(all[i]);
}

static void expect_refused(const written *w, td_status st, const char *says)
{
    td_onnx *m;
    char path[1024];
    snprintf(path, sizeof path, "%s", td_scratch_path("net.onnx"));
    write_model(path, w);
    expect_error(td_onnx_read(path, &m), st, says);
    assert_null(m);
}

static void a_tensor_is_read_from_the_file_beside(void **state)
{
    (void)state;
    static const written ways[] = {
        { "net.data", "8", "24", 1, 1, false },
        { "net.data", "8", NULL, 1, 1, false }, /* as long as the shape */
        { "plain.data", NULL, NULL, 1, 1, false },
    };
    char path[1024];
    td_onnx *m;
    write_data("net.data");
    expect_ok(td_file_write(td_scratch_path("plain.data"), numbers, BYTES));
    snprintf(path, sizeof path, "%s", td_scratch_path("net.onnx"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        write_model(path, &ways[i]);
        expect_ok(td_onnx_read(path, &m));
        assert_int_equal(m->tensors[0].n_bytes, BYTES);
        assert_memory_equal(m->tensors[0].data, numbers, BYTES);
        td_onnx_free(m);
    }
    /* the model alone, as of a fuzz target or a server */
    char *bytes;
    size_t n;
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    expect_error(td_onnx_parse(bytes, n, "x", &m), TD_EUNSUPPORTED, "external data");
    td_free(bytes);
}

static void places_outside_the_folder_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "../net.data", "/etc/passwd", "a/net.data", "./net.data", "..", ".", ""
    };
    write_data("net.data");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_refused(&(written){ names[i], "8", "24", 1, 1, false }, TD_EUNSUPPORTED,
                       "wanted the name of a file in the same folder");
    expect_refused(&(written){ NULL, "8", "24", 1, 1, false }, TD_EFORMAT, "'w0' has no location");
    expect_refused(&(written){ "absent", "8", "24", 1, 1, false }, TD_ENOTFOUND, "absent");
    expect_refused(&(written){ "net.data", "8", "24", 2, 1, false }, TD_EUNSUPPORTED,
                   "unknown place");
    expect_refused(&(written){ "net.data", "8", "24", 1, 1, true }, TD_EFORMAT,
                   "'w0' has data in two places");
    expect_refused(&(written){ "net.data", "8", "24", 0, 1, true }, TD_EFORMAT,
                   "external data that it does not use");
}

static void sizes_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *offset, *length, *says;
    } cases[] = {
        { "9", "24", "has 32 bytes, but tensor 'w0' 24 from byte 9 on" },
        { "33", NULL, "has 32 bytes" },
        { "9223372036854775807", NULL, "has 32 bytes" },
        { "8", "23", "'w0' has 23 bytes in 'net.data', its shape needs 24" },
        { "8", "9223372036854775807", "its shape needs 24" },
        { "-1", "24", "the offset of external data is '-1'" },
        { "8", "-24", "the length of external data is '-24'" },
        { "8", "24x", "the length of external data is '24x'" },
        { "99999999999999999999", NULL, "the offset of external data" },
    };
    write_data("net.data");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(&(written){ "net.data", cases[i].offset, cases[i].length, 1, 1, false },
                       TD_EFORMAT, cases[i].says);
    /* memory is bounded by the file: the same bytes cannot be taken again and again */
    expect_refused(&(written){ "net.data", "8", "24", 1, 2, false }, TD_EFORMAT,
                   "the tensors in 'net.data' overlap: it has 32 bytes");
}

static void links_holes_and_other_kinds_are_refused(void **state)
{
    (void)state;
    char target[1024], other[1024];
    const written w = { "other.data", NULL, NULL, 1, 1, false };
    write_data("net.data");
    snprintf(target, sizeof target, "%s", td_scratch_path("net.data"));
    snprintf(other, sizeof other, "%s", td_scratch_path("other.data"));
    assert_int_equal(symlink("net.data", other), 0);
    expect_refused(&w, TD_EUNSUPPORTED, "other.data' is a link");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(link(target, other), 0);
    expect_refused(&w, TD_EUNSUPPORTED, "other.data' has 2 names");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    expect_refused(&w, TD_EIO, "is not a regular file");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    expect_refused(&w, TD_EIO, "is not a regular file");
    assert_int_equal(rmdir(other), 0);

    const int fd = open(other, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    const bool knows_holes = lseek(fd, 0, SEEK_HOLE) == 0;
    close(fd);
    if (knows_holes)
        expect_refused(&w, TD_EFORMAT, "other.data' has a hole at byte 0");
    assert_int_equal(unlink(other), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_read_from_the_file_beside),
        cmocka_unit_test(places_outside_the_folder_are_refused),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(links_holes_and_other_kinds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
