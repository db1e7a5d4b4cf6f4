/* test_coco.c -- annotation files: what is kept, what is listed, what is refused */
#include <stdio.h>
#include <string.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/text.h"
#include "coco/coco.h"

#define IMAGE    "{\"id\": 1, \"file_name\": \"a.jpg\", \"width\": 100, \"height\": 50}"
#define CATEGORY "{\"id\": 3, \"name\": \"cat\"}"

static const td_coco_opts plain = { 0 }, strict = { .is_strict = true },
                          odd = { .keeps_invalid = true };

static td_status parse(const char *text, const td_coco_opts *opts, td_coco **out)
{
    return td_coco_parse(text, strlen(text), "boxes.json", opts, out);
}

/* a file of these entries; lent until the next call */
static const char *file(const char *images, const char *categories, const char *annotations)
{
    static char text[8192];
    int n = snprintf(text, sizeof text,
                     "{\"images\": [%s], \"categories\": [%s],\n\"annotations\": [%s]}", images,
                     categories, annotations);
    assert_true(n > 0 && n < (int)sizeof text);
    return text;
}

static td_coco *read_good(const char *text)
{
    td_coco *c;
    expect_ok(parse(text, &plain, &c));
    return c;
}

static void reads_everything(void **state)
{
    (void)state;
    td_coco *c = read_good(
        "{\"annotations\": ["
        "{\"id\": 12, \"image_id\": 9, \"category_id\": 7, \"bbox\": [1.5, 2, 3.25, 4], "
        "\"area\": 6.5, \"iscrowd\": 1, \"segmentation\": {\"counts\": [1, 2], \"size\": [3, 4]}},"
        "{\"bbox\": [0, 0, 100, 50], \"category_id\": 90, \"image_id\": 5, \"id\": 11,"
        " \"segmentation\": [[1, 2.5, 3e1, 4]], \"extra\": null},"
        "{\"id\": 10, \"image_id\": 9, \"category_id\": 1, \"bbox\": [0, 0, 1, 1], "
        "\"iscrowd\": false}],"
        "\"info\": {\"year\": 2017}, \"licenses\": [{\"id\": 1}],"
        "\"categories\": [{\"id\": 90, \"name\": \"tooth\"}, {\"supercategory\": \"x\", "
        "\"name\": \"caf\\u00e9\", \"id\": 1}, {\"id\": 7, \"name\": \"cat\"}],"
        "\"images\": [{\"id\": 9, \"file_name\": \"sub/b.jpg\", \"width\": 64, \"height\": 48}, "
        "{\"id\": 5, \"height\": 50.0, \"width\": 100, \"file_name\": \"a.jpg\"}, "
        "{\"id\": 2, \"file_name\": \"none.jpg\", \"width\": 1, \"height\": 1}]}");
    assert_true(c->n_images == 3 && c->n_categories == 3 && c->n_annotations == 3);
    assert_int_equal(c->n_bad, 0);
    assert_int_equal(c->images[0].id, 9);
    assert_string_equal(c->images[0].file_name, "sub/b.jpg");
    assert_true(c->images[1].width == 100 && c->images[1].height == 50);
    assert_true(c->categories[0].id == 1 && c->categories[1].id == 7 && c->categories[2].id == 90);
    assert_string_equal(c->categories[0].name, "caf\303\251");
    assert_true(c->first[0] == 0 && c->first[1] == 2 && c->first[2] == 3 && c->first[3] == 3);
    const td_coco_annotation *a = c->annotations;
    assert_true(a[0].id == 12 && a[0].is_crowd && a[0].area == 6.5 && a[0].category == 1);
    assert_true(a[0].x == 1.5 && a[0].y == 2 && a[0].width == 3.25 && a[0].height == 4);
    assert_true(a[1].id == 10 && !a[1].is_crowd && a[1].area == 1 && a[1].category == 0);
    assert_true(a[2].id == 11 && a[2].area == 5000 && a[2].category == 2 && a[2].image == 1);
    td_coco_free(c);
}

/* --- bad ones --------------------------------------------------------------------------------- */

#define BOX(box) "{\"id\": 17, \"image_id\": 1, \"category_id\": 3, \"bbox\": " box "}"

static const struct {
    const char *entry, *sentence;
} bad[] = {
    { BOX("[1, 2, 0, 4]"), "annotation 17: its box is 0 x 4 pixels, wanted more than 0" },
    { BOX("[1, 2, 3, -4]"), "annotation 17: its box is 3 x -4 pixels" },
    { BOX("[-1, 2, 3, 4]"), "its box from -1, 2 to 2, 6 exceeds its image of 100 x 50" },
    { BOX("[1, -2, 3, 4]"), "its box from 1, -2 to 4, 2 exceeds" },
    { BOX("[98, 2, 3, 4]"), "its box from 98, 2 to 101, 6 exceeds" },
    { BOX("[1, 2, 3, 48.5]"), "exceeds its image" },
    { BOX("[1, 2, 1e308, 4]"), "to 1e+308, 6 exceeds its image" },
    { BOX("[1e308, 2, 1e308, 4]"), "to inf, 6 exceeds its image" },
    { BOX("[1, 2, 1e999, 4]"), "'bbox' is the number inf, wanted a list of 4 finite numbers" },
    { BOX("[NaN, 2, 3, 4]"), "'bbox' is the number nan, wanted a list of 4 finite numbers" },
    { BOX("[1, 2, -Infinity, 4]"), "'bbox' is the number -inf" },
    { BOX("[1, 2, 3]"), "'bbox' is a list of 3, wanted a list of 4" },
    { BOX("[1, 2, 3, 4, 5]"), "'bbox' is a list of 5" },
    { BOX("[]"), "'bbox' is a list of 0" },
    { BOX("[1, \"2\", 3, 4]"), "'bbox' is the string '2'" },
    { BOX("[1, [2, 3], 3, 4]"), "'bbox' is a list, wanted" },
    { BOX("\"1 2 3 4\""), "'bbox' is the string '1 2 3 4'" },
    { BOX("{\"x\": 1}"), "'bbox' is an object" },
    { BOX("null"), "'bbox' is null" },
    { "{\"id\": 17, \"image_id\": 1, \"category_id\": 3}", "annotation 17: it has no 'bbox'" },
    { "{\"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4]}",
      "annotation number 2: it has no 'id', wanted an integer" },
    { "{\"id\": \"x\", \"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4]}",
      "annotation number 2: 'id' is the string 'x'" },
    { "{\"id\": 17, \"category_id\": 3, \"bbox\": [1,2,3,4]}", "it has no 'image_id'" },
    { "{\"id\": 17, \"image_id\": 1.5, \"category_id\": 3, \"bbox\": [1,2,3,4]}",
      "'image_id' is the number 1.5, wanted an integer" },
    { "{\"id\": 17, \"image_id\": 1, \"bbox\": [1,2,3,4]}", "it has no 'category_id'" },
    { "{\"id\": 17, \"image_id\": 2, \"category_id\": 3, \"bbox\": [1,2,3,4]}",
      "its image 2 is not among the images" },
    { "{\"id\": 17, \"image_id\": 1, \"category_id\": 4, \"bbox\": [1,2,3,4]}",
      "its category 4 is not among the categories" },
    { "{\"id\": 1, \"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4]}",
      "annotation 1: its id is repeated" },
    { "{\"id\": 17, \"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4], \"iscrowd\": 2}",
      "'iscrowd' is the number 2, wanted 0 or 1" },
    { "{\"id\": 17, \"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4], \"area\": NaN}",
      "'area' is the number nan, wanted a finite number" },
    { "{\"id\": 17, \"image_id\": 1, \"category_id\": 3, \"bbox\": [1,2,3,4], \"area\": -1}",
      "'area' is -1, wanted 0 or more" },
    { "7", "annotation number 2: it is the number 7, wanted an object" },
    { "[1, [2]]", "annotation number 2: it is a list, wanted an object" },
};

/* each is one sentence with its place; the good one before it stays; strict makes it an error */
static void lists_bad_annotations(void **state)
{
    (void)state;
    static char entries[1024];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(entries, sizeof entries,
                       "{\"id\": 1, \"image_id\": 1, \"category_id\": 3, "
                       "\"bbox\": [0,0,100,50]},\n%s",
                       bad[i].entry);
        const char *text = file(IMAGE, CATEGORY, entries);
        td_coco *c = read_good(text);
        assert_true(c->n_bad == 1 && c->n_listed == 1 && c->n_annotations == 1);
        if (!strstr(c->bad[0].text, bad[i].sentence))
            fail_msg("found: %s\nwanted: %s", c->bad[0].text, bad[i].sentence);
        char place[64];
        (void)snprintf(place, sizeof place, "(byte %td, line 3)",
                       strstr(text, bad[i].entry) - text);
        assert_non_null(strstr(c->bad[0].text, place));
        td_coco_free(c);
        expect_error(parse(text, &strict, &c), TD_EFORMAT, bad[i].sentence);
        assert_non_null(strstr(td_error_message(), "'boxes.json': annotation"));
        assert_null(c);
    }
}

static void lists_bad_images_and_categories(void **state)
{
    (void)state;
    static const struct {
        const char *image, *category, *sentence;
    } cases[] = {
        { "{\"id\": 2, \"width\": 1, \"height\": 1}", NULL, "image 2: it has no 'file_name'" },
        { "{\"id\": 2, \"file_name\": 5, \"width\": 1, \"height\": 1}", NULL,
          "'file_name' is the number 5, wanted a text" },
        { "{\"id\": 2, \"file_name\": \"../b.jpg\", \"width\": 1, \"height\": 1}", NULL,
          "'file_name' is '../b.jpg', wanted a path" },
        { "{\"id\": 2, \"file_name\": \"a/../../b.jpg\", \"width\": 1, \"height\": 1}", NULL,
          "wanted a path" },
        { "{\"id\": 2, \"file_name\": \"/b.jpg\", \"width\": 1, \"height\": 1}", NULL,
          "'file_name' is '/b.jpg'" },
        { "{\"id\": 2, \"file_name\": \"\", \"width\": 1, \"height\": 1}", NULL,
          "'file_name' is ''" },
        { "{\"id\": 2, \"file_name\": \"b.jpg\", \"height\": 1}", NULL, "it has no 'width'" },
        { "{\"id\": 2, \"file_name\": \"b.jpg\", \"width\": 0, \"height\": 1}", NULL,
          "'width' is 0, wanted 1 .. 1000000 pixels" },
        { "{\"id\": 2, \"file_name\": \"b.jpg\", \"width\": 1, \"height\": 99999999999}", NULL,
          "'height' is 99999999999" },
        { "{\"id\": 2, \"file_name\": \"b.jpg\", \"width\": 1, \"height\": null}", NULL,
          "'height' is null, wanted an integer" },
        { "{\"file_name\": \"b.jpg\", \"width\": 1, \"height\": 1}", NULL,
          "image number 2: it has no 'id'" },
        { "{\"id\": 1, \"file_name\": \"b.jpg\", \"width\": 1, \"height\": 1}", NULL,
          "image 1: its id is repeated; this one is 'b.jpg'" },
        { NULL, "{\"id\": 4}", "category 4: it has no 'name'" },
        { NULL, "{\"name\": \"dog\"}", "category number 2: it has no 'id'" },
        { NULL, "{\"id\": 4, \"name\": \"\"}", "category 4: its name is empty" },
        { NULL, "{\"id\": 3, \"name\": \"dog\"}",
          "category 3: its id is repeated; this one is 'dog'" },
    };
    static char images[512], categories[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(images, sizeof images, "%s%s%s", IMAGE, cases[i].image ? "," : "",
                       cases[i].image ? cases[i].image : "");
        (void)snprintf(categories, sizeof categories, "%s%s%s", CATEGORY,
                       cases[i].category ? "," : "", cases[i].category ? cases[i].category : "");
        td_coco *c = read_good(file(images, categories, BOX("[0, 0, 1, 1]")));
        assert_true(c->n_bad == 1 && c->n_images == 1 && c->n_categories == 1);
        assert_int_equal(c->n_annotations, 1);
        if (!strstr(c->bad[0].text, cases[i].sentence))
            fail_msg("found: %s\nwanted: %s", c->bad[0].text, cases[i].sentence);
        td_coco_free(c);
    }
}

static void tells_equal_names_apart(void **state)
{
    (void)state;
    td_coco *c = read_good(file(IMAGE,
                                "{\"id\": 8, \"name\": \"a\"}, {\"id\": 0, \"name\": \"a\"}, "
                                "{\"id\": 2, \"name\": \"a (8)\"}",
                                ""));
    assert_string_equal(c->categories[0].name, "a");
    assert_string_equal(c->categories[1].name, "a (8)");
    assert_string_equal(c->categories[2].name, "a (8) (8)");
    td_coco_free(c);
}

/* what pycocotools keeps is kept for those who compare with it */
static void keeps_invalid_boxes_on_request(void **state)
{
    (void)state;
    td_coco *c;
    static const char *const boxes[] = { BOX("[1, 2, 0, 4]"), BOX("[-1, 2, 300, 4]"),
                                         BOX("[1, 2, -3, 1e308]") };
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        expect_ok(parse(file(IMAGE, CATEGORY, boxes[i]), &odd, &c));
        assert_true(c->n_annotations == 1 && c->n_bad == 0);
        td_coco_free(c);
    }
    expect_ok(parse(file(IMAGE, CATEGORY, BOX("[NaN, 2, 1, 4]")), &odd, &c));
    assert_true(c->n_annotations == 0 && c->n_bad == 1);
    td_coco_free(c);

    expect_ok(parse(file("{\"id\": 1}", "{\"id\": 3}", BOX("[1, 2, 3, 4]")), &odd, &c));
    assert_true(c->n_images == 1 && c->n_categories == 1 && c->n_annotations == 1 && !c->n_bad);
    assert_string_equal(c->images[0].file_name, "");
    assert_string_equal(c->categories[0].name, "3");
    td_coco_free(c);
    expect_error(parse(file("{\"id\": 1}", CATEGORY, BOX("[1, 2, 3, 4]")), &plain, &c), TD_EFORMAT,
                 "has no usable image");
}

static void counts_more_than_it_lists(void **state)
{
    (void)state;
    td_text text = { 0 };
    td_coco *c;
    td_text_add(&text, "{\"annotations\": [");
    for (int i = 0; i < TD_COCO_LISTED_MAX + 5; i++)
        td_text_add(&text, "%snull", i ? "," : "");
    td_text_add(&text, "], \"images\": [" IMAGE "], \"categories\": [" CATEGORY "]}");
    expect_ok(td_coco_parse(text.data, text.len, "many", &plain, &c));
    assert_int_equal(c->n_listed, TD_COCO_LISTED_MAX);
    assert_int_equal(c->n_bad, TD_COCO_LISTED_MAX + 5);
    td_coco_free(c);
    td_text_release(&text);
}

static void holds_very_many_in_one_image(void **state)
{
    (void)state;
    enum { MANY = 1000000 };
    td_text text = { 0 };
    td_coco *c;
    td_text_add(&text, "{\"images\": [" IMAGE "], \"categories\": [" CATEGORY "], "
                       "\"annotations\": [");
    for (int i = 0; i < MANY; i++)
        td_text_add(&text, "%s{\"id\":%d,\"image_id\":1,\"category_id\":3,\"bbox\":[0,0,9,9]}",
                    i ? "," : "", i);
    td_text_add(&text, "]}");
    expect_ok(td_text_status(&text));
    expect_ok(td_coco_parse(text.data, text.len, "many", &plain, &c));
    assert_int_equal(c->first[1], MANY);
    assert_int_equal(c->annotations[MANY - 1].id, MANY - 1);
    td_coco_free(c);
    td_text_release(&text);
}

/* --- files ------------------------------------------------------------------------------------ */

static void refuses_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "'boxes.json' is empty" },
        { "not json", "byte 0 (line 1): found 'n', wanted a JSON value" },
        { "[{\"image_id\": 1}]", "found a list, wanted COCO instances" },
        { "{}", "has no 'images', 'categories', 'annotations'" },
        { "{\"images\": [], \"categories\": []}", "has no 'annotations'" },
        { "{\"images\": 1}", "'images' is the number 1, wanted a list" },
        { "{\"images\": {\"a\": 1}}", "'images' is an object, wanted a list" },
        { "{\"images\": [], \"images\": []}", "there are two 'images'" },
        { "{\"images\": [], \"categories\": [], \"annotations\": []}", "has no usable image" },
        { "{\"images\": [" IMAGE "], \"categories\": [], \"annotations\": []}",
          "'boxes.json' has no usable category" },
        { "{\"images\": [" IMAGE "], \"categories\": [" CATEGORY "], \"annotations\": []} x",
          "found 'x', wanted the end of the file" },
    };
    td_coco *c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_error(parse(cases[i].text, &plain, &c), TD_EFORMAT, cases[i].message);
        assert_null(c);
    }
    expect_error(td_coco_read(td_scratch_path("absent.json"), &plain, &c), TD_ENOTFOUND, "absent");
}

/* every prefix of a file is an error that names the byte where it ends */
static void refuses_every_prefix(void **state)
{
    (void)state;
    const char *text = file(IMAGE, CATEGORY, BOX("[1, 2.5, 3, 4]"));
    size_t n = strlen(text);
    char place[64];
    td_coco *c;
    for (size_t i = 1; i < n; i++) {
        (void)snprintf(place, sizeof place, "byte %zu", i);
        expect_error(td_coco_parse(text, i, "cut", &plain, &c), TD_EFORMAT, "'cut'");
        if (!strstr(td_error_message(), "byte"))
            fail_msg("%zu: %s", i, td_error_message());
    }
    expect_ok(parse(text, &plain, &c));
    td_coco_free(c);
}

static td_status run_once(void)
{
    td_coco *c;
    TD_TRY(parse("{\"images\": [" IMAGE "], \"categories\": [" CATEGORY ", {\"id\": 4, \"name\": "
                 "\"cat\"}], \"annotations\": [" BOX("[1, 2, 3, 4]") ", 7]}",
                 &plain, &c));
    td_coco_free(c);
    return TD_OK;
}

static void survives_no_memory(void **state)
{
    (void)state;
    assert_true(td_test_allocations(run_once, 100) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything),
        cmocka_unit_test(lists_bad_annotations),
        cmocka_unit_test(lists_bad_images_and_categories),
        cmocka_unit_test(tells_equal_names_apart),
        cmocka_unit_test(keeps_invalid_boxes_on_request),
        cmocka_unit_test(counts_more_than_it_lists),
        cmocka_unit_test(holds_very_many_in_one_image),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
