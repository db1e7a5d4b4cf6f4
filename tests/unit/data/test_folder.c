/* test_folder.c -- class folders: order, names, what is left out, what is wrong with a folder */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/paths.h"
#include "tandem/dataset.h"

/* files are not opened by td_dataset_open, so any text does */
static void touch(const char *root, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    td_write_text(path, "x");
}

static td_status open_split(const char *root, const char *split, td_dataset **ds)
{
    return td_dataset_open(&(td_dataset_opts){ .path = root, .split = split }, ds);
}

static void order_is_torchvisions(void **state)
{
    (void)state;
    static const char *const files[] = {
        /* in no order */
        "train/b/2.JPG",      "train/b/10.png",      "train/a/z.jpeg",
        "train/a/sub/k.Jpeg", "train/a/sub-x/a.jpg", "train/a/sub/deep/no.avif",
        "train/B/1.png",      "train/a/.hidden.jpg", "train/a/notes.txt",
        "train/a/jpg",        "train/.cache/x.jpg",  "train/stray.jpg"
    };
    /* sorted(os.walk("a")) goes a, a/sub, a/sub-x, a/sub/deep: '-' comes before '/' */
    static const char *const wanted[] = { "B/1.png",       "a/z.jpeg",     "a/sub/k.Jpeg",
                                          "a/sub-x/a.jpg", "a/sub/deep/q", "b/10.png",
                                          "b/2.JPG" };
    static const int labels[] = { 0, 1, 1, 1, 1, 2, 2 };
    const char *root = td_scratch_path("order");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        touch(root, files[i]);
    char nameless[4096]; /* what it is, its first bytes say */
    (void)snprintf(nameless, sizeof nameless, "%s/train/a/sub/deep/q", root);
    td_write_text(nameless, "\xff\xd8 as a JPEG begins");

    td_dataset *ds;
    expect_ok(open_split(root, "train", &ds));
    assert_int_equal(td_dataset_classes(ds), 3);
    const char *const *others;
    int n_listed;
    assert_int_equal(td_dataset_other_files(ds, &others, &n_listed), 4);
    assert_int_equal(n_listed, 4);
    for (int i = 0; i < n_listed; i++)
        assert_true(strstr(others[i], "/jpg") || strstr(others[i], "/notes.txt") ||
                    strstr(others[i], "/no.avif") || strstr(others[i], "train/stray.jpg"));
    assert_string_equal(td_dataset_class_name(ds, 0), "B");
    assert_string_equal(td_dataset_class_name(ds, 1), "a");
    assert_string_equal(td_dataset_class_name(ds, 2), "b");
    assert_int_equal(td_dataset_count(ds), 7);
    for (int i = 0; i < 7; i++) {
        char path[8192];
        (void)snprintf(path, sizeof path, "%s/train/%s", root, wanted[i]);
        assert_string_equal(td_dataset_path(ds, i), path);
        assert_int_equal(td_dataset_label(ds, i), labels[i]);
    }
    assert_int_equal(td_dataset_backend(ds), TD_DATA_FOLDER);
    td_dataset_free(ds);
}

static void roots(void **state)
{
    (void)state;
    const char *root = td_scratch_path("roots");
    touch(root, "cat/1.jpg");
    touch(root, "dog/1.jpg");
    td_dataset *ds;
    expect_ok(open_split(root, NULL, &ds));
    assert_int_equal(td_dataset_count(ds), 2);
    td_dataset_free(ds);
    expect_ok(td_dataset_open(
        &(td_dataset_opts){ .path = root, .split = "val", .allow_root = true }, &ds));
    assert_string_equal(td_dataset_root(ds), root);
    td_dataset_free(ds);
    expect_error(open_split(root, "val", &ds), TD_ENOTFOUND,
                 "has no folder 'val': folders found: 'cat', 'dog'");
    assert_null(ds);

    root = td_scratch_path("halves");
    touch(root, "train/cat/1.jpg");
    touch(root, "train/dog/1.jpg");
    expect_error(td_dataset_open(
                     &(td_dataset_opts){ .path = root, .split = "val", .allow_root = true }, &ds),
                 TD_ENOTFOUND, "folders found: 'train'");
    expect_error(open_split(root, NULL, &ds), TD_EFORMAT, "'train'");

    /* a split in place of the data set */
    char split[4096], wanted[8192];
    (void)snprintf(split, sizeof split, "%s/train//", root);
    (void)snprintf(wanted, sizeof wanted, "did you mean '%s'?", root);
    expect_error(open_split(split, "train", &ds), TD_ENOTFOUND, wanted);
    expect_error(open_split(split, "val", &ds), TD_ENOTFOUND, "wanted val/<class>/<image>");
    assert_null(strstr(td_error_message(), "did you mean"));
    (void)snprintf(split, sizeof split, "%s/train/cat", root);
    expect_error(open_split(split, "train", &ds), TD_ENOTFOUND, wanted);
    (void)snprintf(split, sizeof split, "%s/train/cat/deep", root);
    expect_ok(td_make_folder(split));
    expect_error(open_split(split, "train", &ds), TD_ENOTFOUND, "folders found: none");
    assert_null(strstr(td_error_message(), "did you mean"));
}

static void bad_folders(void **state)
{
    (void)state;
    td_dataset *ds;
    expect_error(td_dataset_open(&(td_dataset_opts){ 0 }, &ds), TD_EARG, "path");
    expect_error(open_split("/no/such/folder", "train", &ds), TD_ENOTFOUND,
                 "'/no/such/folder' does not exist");
    const char *root = td_scratch_path("bad");
    touch(root, "a.safetensors");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/a.safetensors", root);
    expect_error(open_split(path, "train", &ds), TD_EFORMAT, "--data-backend tensors reads files");

    root = td_scratch_path("empty");
    expect_ok(td_make_folder(root));
    expect_error(open_split(root, "train", &ds), TD_ENOTFOUND, "folders found: none");
    expect_error(open_split(root, NULL, &ds), TD_EFORMAT, "is empty");

    root = td_scratch_path("flat");
    touch(root, "1.jpg");
    touch(root, "2.jpg");
    expect_error(open_split(root, NULL, &ds), TD_EFORMAT, "2 images but no class folders");

    root = td_scratch_path("one");
    touch(root, "train/cat/1.jpg");
    expect_error(open_split(root, "train", &ds), TD_EFORMAT, "one class, 'cat'");

    root = td_scratch_path("hollow");
    touch(root, "train/cat/1.jpg");
    touch(root, "train/dog/readme.txt");
    expect_error(open_split(root, "train", &ds), TD_EFORMAT, "contains no images (JPEG, PNG");
    assert_null(ds);
}

static void links(void **state)
{
    (void)state;
    td_dataset *ds;
    const char *root = td_scratch_path("links");
    char path[4096], other[4096];
    touch(root, "a/1.jpg");
    touch(root, "b/1.jpg");
    (void)snprintf(path, sizeof path, "%s/b/2.jpg",
                   root); /* a link to itself is a file to be tried */
    assert_int_equal(symlink("2.jpg", path), 0);
    (void)snprintf(other, sizeof other, "%s/c", root); /* a link to a folder is a folder */
    assert_int_equal(symlink("a", other), 0);
    expect_ok(open_split(root, NULL, &ds));
    assert_int_equal(td_dataset_classes(ds), 3);
    assert_int_equal(td_dataset_count(ds), 4);
    td_dataset_free(ds);

    (void)snprintf(path, sizeof path, "%s/a/up", root);
    assert_int_equal(symlink("..", path), 0);
    expect_error(open_split(root, NULL, &ds), TD_ELIMIT, "deep: a symbolic link");
    assert_null(ds);
}

static void odd_names(void **state)
{
    (void)state;
    const char *root = td_scratch_path("odd");
    char name[300], path[600];
    memset(name, 'n', 251);
    memcpy(name + 251, ".jpg", 5); /* 255 bytes: the longest there is */
    (void)snprintf(path, sizeof path, "a/%s", name);
    touch(root, path);
    touch(root, "a/\xff\xfe not utf-8.jpg");
    touch(root, "b/two\nlines.jpg");
    td_dataset *ds;
    expect_ok(open_split(root, NULL, &ds));
    assert_int_equal(td_dataset_count(ds), 3);
    assert_true(td_path_exists(td_dataset_path(ds, 0)));
    assert_true(td_path_exists(td_dataset_path(ds, 1)));
    assert_true(td_path_exists(td_dataset_path(ds, 2)));
    td_dataset_free(ds);
}

static void classes_are_numbered_as_wanted(void **state)
{
    (void)state;
    const char *root = td_scratch_path("classes");
    touch(root, "train/bee/1.jpg");
    touch(root, "train/cat/1.jpg");
    touch(root, "train/cat/2.jpg");
    static const char *const same[] = { "bee", "cat" }, *const more[] = { "ant", "cat", "bee" },
                             *const other[] = { "bee", "dog" };
    td_dataset *ds;
    expect_ok(open_split(root, "train", &ds));
    expect_ok(td_dataset_use_classes(ds, 2, same, false));
    assert_int_equal(td_dataset_label(ds, 2), 1);
    expect_error(td_dataset_use_classes(ds, 3, more, false), TD_EFORMAT, "no class 'ant'");
    expect_error(td_dataset_use_classes(ds, 2, other, true), TD_EFORMAT, "a class 'cat'");
    assert_int_equal(td_dataset_label(ds, 2), 1); /* failure changes nothing */
    assert_int_equal(td_dataset_classes(ds), 2);

    expect_ok(td_dataset_use_classes(ds, 3, more, true));
    assert_int_equal(td_dataset_classes(ds), 3);
    assert_string_equal(td_dataset_class_name(ds, 0), "ant");
    assert_int_equal(td_dataset_label(ds, 0), 2);
    assert_int_equal(td_dataset_label(ds, 1), 1);
    td_dataset_free(ds);
}

static void single_files(void **state)
{
    (void)state;
    static const char *const files[] = { "x.jpg", "y" };
    td_dataset *ds;
    expect_error(td_dataset_from_files(files, 0, &ds), TD_EARG, "no files");
    expect_ok(td_dataset_from_files(files, 2, &ds));
    assert_int_equal(td_dataset_count(ds), 2);
    assert_string_equal(td_dataset_path(ds, 1), "y");
    assert_int_equal(td_dataset_label(ds, 0), -1);
    assert_int_equal(td_dataset_classes(ds), 0);
    td_dataset_free(ds);
}

static void backends_have_names(void **state)
{
    (void)state;
    td_data_backend b;
    expect_ok(td_data_backend_parse("pytorch", &b));
    assert_int_equal(b, TD_DATA_FOLDER);
    expect_ok(td_data_backend_parse("dali-gpu", &b));
    assert_int_equal(b, TD_DATA_DALI_GPU);
    expect_ok(td_data_backend_parse("syntetic", &b));
    assert_int_equal(b, TD_DATA_SYNTHETIC);
    expect_ok(td_data_backend_parse("tensors", &b));
    assert_int_equal(b, TD_DATA_TENSORS);
    expect_error(td_data_backend_parse("dali", &b), TD_EUSAGE, "folder, pytorch, synth");
}

static void synthetic_needs_nothing(void **state)
{
    (void)state;
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .backend = TD_DATA_SYNTHETIC }, &ds));
    assert_int_equal(td_dataset_classes(ds), 1000);
    assert_int_equal(td_dataset_count(ds), 1024);
    assert_string_equal(td_dataset_class_name(ds, 999), "999");
    assert_null(td_dataset_path(ds, 0));
    td_dataset_free(ds);
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    const char *root = td_scratch_path("alloc");
    touch(root, "train/a/sub/1.jpg");
    touch(root, "train/a/2.jpg");
    touch(root, "train/b/1.jpg");
    td_dataset *ds = NULL;
    td_status st = TD_ENOMEM;
    int n = 0;
    for (; st != TD_OK && n < 1000; n++) {
        td_alloc_fail_at(n + 1);
        st = open_split(root, "train", &ds);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || (st == TD_ENOMEM && !ds));
    }
    assert_in_range(n, 10, 999);
    static const char *const wanted[] = { "b", "a", "c" };
    st = TD_ENOMEM;
    for (n = 0; st != TD_OK && n < 1000; n++) {
        td_alloc_fail_at(n + 1);
        st = td_dataset_use_classes(ds, 3, wanted, true);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
    }
    assert_int_equal(td_dataset_label(ds, 0), 1);
    td_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(order_is_torchvisions),
        leak_checked_test(roots),
        leak_checked_test(bad_folders),
        leak_checked_test(links),
        leak_checked_test(odd_names),
        leak_checked_test(classes_are_numbered_as_wanted),
        leak_checked_test(single_files),
        leak_checked_test(backends_have_names),
        leak_checked_test(synthetic_needs_nothing),
        leak_checked_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
