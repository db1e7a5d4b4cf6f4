/*
 * test_box_classes.c -- a detector's class names: of the weight file, of --classes FILE, of COCO
 */
#include "inference/box_classes.h"

#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "support/expect.h"
#include "support/scratch.h"

static const char *name_of(const td_box_classes *c, int label, int64_t category)
{
    static char room[24];
    const td_detection d = { .label = label };
    const td_found_box b = td_box_classes_found(c, &d, 10, 10, room);
    assert_int_equal(b.category, category);
    return b.name;
}

static void classes_without_names_may_be_cocos(void **state)
{
    td_tensors *t;
    td_box_classes c;
    (void)state;
    const int64_t live = td_alloc_live();
    expect_ok(td_tensors_new(&t));
    expect_ok(td_box_classes_read(t, "w", 80, NULL, &c));
    assert_int_equal(c.n_names, 80);
    assert_string_equal(name_of(&c, 1, 1), "person");
    assert_string_equal(name_of(&c, 12, 13), "stop sign"); /* ids have a gap at 12 */
    assert_string_equal(name_of(&c, 80, 90), "toothbrush");
    td_box_classes_release(&c);
    expect_ok(td_box_classes_read(t, "w", 90, NULL, &c));
    assert_string_equal(name_of(&c, 1, 1), "person");
    assert_string_equal(name_of(&c, 12, 12), "class 12");
    assert_string_equal(name_of(&c, 13, 13), "stop sign");
    assert_string_equal(name_of(&c, 90, 90), "toothbrush");
    td_box_classes_release(&c);
    expect_ok(td_box_classes_read(t, "w", 79, NULL, &c));
    assert_int_equal(c.n_names, 0);
    assert_string_equal(name_of(&c, 79, 79), "class 79");
    td_box_classes_release(&c);
    expect_ok(td_tensors_set_meta(t, "tandem.categories", "[7, 8]")); /* the file knows better */
    expect_ok(td_box_classes_read(t, "w", 80, NULL, &c));
    assert_int_equal(c.n_names, 0);
    td_box_classes_release(&c);
    td_tensors_free(t);
    assert_int_equal(td_alloc_live(), live);
}

static void a_file_names_them_all(void **state)
{
    static const char lines[] = "cat\ndog\n", numbers[] = "{\"2\": \"cat\", \"1\": \"dog\"}";
    const char *path = td_scratch_path("names");
    td_tensors *t;
    td_box_classes c;
    (void)state;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_set_meta(t, "tandem.classes", "[\"a\", \"b\"]"));
    expect_ok(td_tensors_set_meta(t, "tandem.categories", "[7, 9]"));
    expect_ok(td_file_write(path, lines, strlen(lines)));
    expect_ok(td_box_classes_read(t, "w", 2, path, &c));
    assert_string_equal(name_of(&c, 2, 9), "dog"); /* ids stay the file's */
    td_box_classes_release(&c);
    expect_error(td_box_classes_read(t, "w", 3, path, &c), TD_ESHAPE,
                 "has 2 names, the network of 'w' has 3");
    assert_int_equal(c.n_names, 0);
    expect_ok(td_file_write(path, numbers, strlen(numbers)));
    expect_ok(td_box_classes_read(t, "w", 2, path, &c));
    assert_string_equal(name_of(&c, 2, 9), "cat");
    td_box_classes_release(&c);
    td_tensors_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_without_names_may_be_cocos),
        cmocka_unit_test(a_file_names_them_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
