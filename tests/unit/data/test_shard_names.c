/* test_shard_names.c -- patterns of tar files, and which belong to a split */
#include "data/shard_names.h"

#include <stdio.h>
#include <string.h>

#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"
#include "support/tf_records.h"

#include "base/file_io.h"
#include "base/paths.h"

/* The names of a pattern, separated by blanks. */
static void expect_names(const char *pattern, const char *wanted)
{
    td_arena arena = { 0 };
    td_shard_names s = { .arena = &arena };
    td_text t = { 0 };
    expect_ok(td_shard_names_expand(pattern, &s));
    for (size_t i = 0; i < s.n; i++)
        td_text_add(&t, "%s%s", i ? " " : "", s.paths[i]);
    assert_string_equal(td_text_get(&t), wanted);
    td_text_release(&t);
    td_free(s.paths);
    td_arena_release(&arena);
}

static void refuse(const char *pattern, td_status st, const char *part)
{
    td_arena arena = { 0 };
    td_shard_names s = { .arena = &arena };
    expect_error(td_shard_names_expand(pattern, &s), st, part);
    td_free(s.paths);
    td_arena_release(&arena);
}

static void patterns_are_expanded(void **state)
{
    (void)state;
    expect_names("a.tar", "a.tar");
    expect_names("t-{000..003}.tar", "t-000.tar t-001.tar t-002.tar t-003.tar");
    expect_names("{8..11}.tar", "8.tar 9.tar 10.tar 11.tar");
    expect_names("{08..11}.tar", "08.tar 09.tar 10.tar 11.tar");
    expect_names("{a,bc,}{1..2}.tar", "a1.tar a2.tar bc1.tar bc2.tar 1.tar 2.tar");
    expect_names("{1..x}.tar", "1..x.tar");
    expect_names("{}.tar", ".tar");
    expect_names("a}.tar", "a}.tar");
}

static void wrong_patterns_are_refused(void **state)
{
    (void)state;
    refuse("{1..2.tar", TD_EFORMAT, "'{1..2.tar'");
    refuse("{3..1}.tar", TD_EFORMAT, "3");
    refuse("{0..999999999}.tar", TD_ELIMIT, "1000000");
    refuse("{0..9999}{0..9999}.tar", TD_ELIMIT, "1000000");
    refuse("{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}.tar", TD_EFORMAT, "braces");
}

static void write_shards(const char *name, const char *const *names, char *root, size_t room)
{
    char path[8192];
    assert_true(snprintf(root, room, "%s", td_scratch_path(name)) > 0);
    for (; *names; names++) {
        assert_true(snprintf(path, sizeof path, "%s/%s", root, *names) > 0);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        expect_ok(td_make_folder(path));
        *slash = '/';
        expect_ok(td_file_write(path, "", 0));
    }
}

static td_shard_kind expect_kind;

static void join(char *out, size_t room, const char *folder, const char *name)
{
    assert_true((size_t)snprintf(out, room, "%s/%s", folder, name) < room);
}

/* The shards of a split, or "none". */
static void expect_split(const char *root, const char *split, bool allow_root, const char *wanted)
{
    const td_dataset_opts o = { .path = root, .split = split, .allow_root = allow_root };
    td_arena arena = { 0 };
    td_shard_names s = { .arena = &arena, .kind = expect_kind };
    td_text t = { 0 };
    bool is_unsplit;
    const td_status st = td_shard_names_find(&o, &s, &is_unsplit);
    for (size_t i = 0; st == TD_OK && i < s.n; i++)
        td_text_add(&t, "%s%s", i ? " " : "", s.paths[i] + strlen(root) + 1);
    if (st == TD_ENOTFOUND)
        td_text_add(&t, "none");
    else
        expect_ok(st);
    assert_string_equal(td_text_get(&t), wanted);
    td_text_release(&t);
    td_free(s.paths);
    td_arena_release(&arena);
    td_error_clear();
}

static void splits_are_words_of_names(void **state)
{
    (void)state;
    static const char *const names[] = { "in1k-train-00.tar",
                                         "in1k-train-01.tar",
                                         "in1k-validation-00.tar",
                                         ".train-09.tar",
                                         "x.txt",
                                         NULL };
    char root[4096];
    write_shards("words", names, root, sizeof root);
    assert_true(td_shard_names_are(root, TD_SHARDS_TAR));
    expect_split(root, "train", false, "in1k-train-00.tar in1k-train-01.tar");
    expect_split(root, "val", false, "in1k-validation-00.tar");
    expect_split(root, "val", true, "in1k-validation-00.tar");
    expect_split(root, NULL, false, "in1k-train-00.tar in1k-train-01.tar in1k-validation-00.tar");
}

static void splits_are_folders(void **state)
{
    (void)state;
    static const char *const names[] = { "train/1.tar", "train/0.tar", "val/0.tar", NULL };
    char root[4096];
    write_shards("folders", names, root, sizeof root);
    assert_true(td_shard_names_are(root, TD_SHARDS_TAR));
    expect_split(root, "train", false, "train/0.tar train/1.tar");
    expect_split(root, "val", true, "val/0.tar");
}

static void undivided_shards_are_for_training(void **state)
{
    (void)state;
    static const char *const names[] = { "0.tar", "retrain.tar", NULL };
    char root[4096];
    write_shards("undivided", names, root, sizeof root);
    expect_split(root, "train", false, "0.tar retrain.tar");
    expect_split(root, "val", false, "none");
    expect_split(root, "val", true, "0.tar retrain.tar");
}

static void classes_are_no_shards(void **state)
{
    (void)state;
    static const char *const names[] = { "train/cat/0.tar", "train/x.tar", "all.tar", NULL };
    char root[4096];
    write_shards("classes", names, root, sizeof root);
    assert_false(td_shard_names_are(root, TD_SHARDS_TAR));
    assert_false(td_shard_names_are("absent.tar", TD_SHARDS_TAR));
}

static void stars_match_names(void **state)
{
    (void)state;
    static const char *const names[] = { "train-1.tar", "train-0.tar", "val-0.tar", "train-2.txt",
                                         NULL };
    char root[4096], pattern[4200];
    td_arena arena = { 0 };
    td_shard_names s = { .arena = &arena };
    bool is_unsplit;
    write_shards("stars", names, root, sizeof root);
    snprintf(pattern, sizeof pattern, "%s/train-*", root);
    assert_true(td_shard_names_are(pattern, TD_SHARDS_TAR));
    assert_false(td_shard_names_are(pattern, TD_SHARDS_RECORD));
    expect_ok(td_shard_names_find(&(td_dataset_opts){ .path = pattern }, &s, &is_unsplit));
    assert_int_equal(s.n, 2);
    assert_string_equal(td_path_base(s.paths[0]), "train-0.tar");
    td_free(s.paths);
    s = (td_shard_names){ .arena = &arena };
    snprintf(pattern, sizeof pattern, "%s/test-*", root);
    expect_error(td_shard_names_find(&(td_dataset_opts){ .path = pattern }, &s, &is_unsplit),
                 TD_ENOTFOUND, "test-*");
    td_free(s.paths);
    td_arena_release(&arena);
}

static void records_are_found_by_their_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {
        "r/validation-00000-of-00001",  "r/idx/a", "r/notes.txt", "r/train",
        "e/events.out.tfevents.7.host", NULL
    };
    char root[4096], path[4200];
    td_text record = { 0 };
    write_shards("records", names, root, sizeof root);
    join(path, sizeof path, root, "r");
    assert_false(td_shard_names_are(path, TD_SHARDS_RECORD));
    td_record_write("", 0, &record);
    join(path, sizeof path, root, "r/train");
    expect_ok(td_file_write(path, record.data, record.len));
    assert_true(td_shard_names_are(path, TD_SHARDS_RECORD));
    join(path, sizeof path, root, "r");
    assert_true(td_shard_names_are(path, TD_SHARDS_RECORD));
    expect_kind = TD_SHARDS_RECORD;
    expect_split(path, "train", false, "train");
    expect_split(path, "val", false, "validation-00000-of-00001");
    expect_kind = TD_SHARDS_TAR;
    join(path, sizeof path, root, "e/events.out.tfevents.7.host"); /* TensorBoard's */
    expect_ok(td_file_write(path, record.data, record.len));
    join(path, sizeof path, root, "e");
    assert_false(td_shard_names_are(path, TD_SHARDS_RECORD));
    td_text_release(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(patterns_are_expanded),
        leak_checked_test(wrong_patterns_are_refused),
        leak_checked_test(splits_are_words_of_names),
        leak_checked_test(splits_are_folders),
        leak_checked_test(undivided_shards_are_for_training),
        leak_checked_test(classes_are_no_shards),
        leak_checked_test(stars_match_names),
        leak_checked_test(records_are_found_by_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
