/* test_yaml.c -- trees from YAML, and what is refused: bombs, depth, size, tags, bad bytes */
#include <stdio.h>
#include <string.h>

#include "support/allocations.h"
#include "support/expect.h"

#include "base/arena.h"
#include "base/text.h"
#include "base/yaml.h"

static td_yaml *parse(const char *text)
{
    td_yaml *doc;
    expect_ok(td_yaml_parse(text, strlen(text), "in", &doc));
    return doc;
}

static void refuse(const char *text, td_status wanted, const char *message)
{
    td_yaml *doc;
    expect_error(td_yaml_parse(text, strlen(text), "in", &doc), wanted, message);
    assert_null(doc);
}

static const char *text_at(const td_yaml *map, const char *key)
{
    return td_yaml_text(td_yaml_get(map, key));
}

static void maps_lists_and_scalars(void **state)
{
    (void)state;
    td_yaml *doc = parse("# head\nlr: 0.1\nnet:\n  arch: 'resnet50'\n  sizes: [1, two]\nnone: ~\n"
                         "quoted: \"~\"\n");
    assert_int_equal(td_yaml_kind_of(doc), TD_YAML_MAP);
    assert_int_equal(td_yaml_count(doc), 4);
    assert_string_equal(td_yaml_key(doc, 1), "net");
    assert_int_equal(td_yaml_key_line(doc, 1), 3);
    assert_string_equal(text_at(doc, "lr"), "0.1");
    assert_int_equal(td_yaml_line(td_yaml_get(doc, "lr")), 2);
    const td_yaml *net = td_yaml_get(doc, "net"), *sizes = td_yaml_get(net, "sizes");
    assert_string_equal(text_at(net, "arch"), "resnet50");
    assert_int_equal(td_yaml_kind_of(sizes), TD_YAML_LIST);
    assert_string_equal(td_yaml_text(td_yaml_member(sizes, 1)), "two");
    assert_null(td_yaml_key(sizes, 0));
    assert_null(td_yaml_member(sizes, 2));
    assert_null(td_yaml_get(sizes, "0"));
    assert_null(td_yaml_text(sizes));
    assert_true(td_yaml_is_null(td_yaml_get(doc, "none")));
    assert_false(td_yaml_is_null(td_yaml_get(doc, "quoted")));
    td_yaml_free(doc);
    td_yaml_free(NULL);
}

static void json_is_read(void **state)
{
    (void)state;
    td_yaml *doc = parse("{\"a\": {\"b\": [1, \"x\\ty\"]},\n\t\"c\": true, \"d\": null}");
    assert_string_equal(td_yaml_text(td_yaml_member(td_yaml_get(td_yaml_get(doc, "a"), "b"), 1)),
                        "x\ty");
    assert_string_equal(text_at(doc, "c"), "true");
    assert_true(td_yaml_is_null(td_yaml_get(doc, "d")));
    td_yaml_free(doc);
}

static void nothing_is_an_empty_map(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "# only this\n", "---\n", "~\n", "{}" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        td_yaml *doc = parse(texts[i]);
        assert_int_equal(td_yaml_kind_of(doc), TD_YAML_MAP);
        assert_int_equal(td_yaml_count(doc), 0);
        td_yaml_free(doc);
    }
}

/* own members win over merged ones, earlier merged ones over later ones, as in PyYAML */
static void merges_are_followed(void **state)
{
    (void)state;
    td_yaml *doc = parse("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\n"
                         "c: {<<: *a, x: 3}\nd: {<<: [*a, *b], w: 4}\ne: {x: 5, <<: *b}\nf: *a\n");
    const td_yaml *c = td_yaml_get(doc, "c"), *d = td_yaml_get(doc, "d");
    assert_string_equal(text_at(c, "x"), "3");
    assert_string_equal(text_at(c, "y"), "1");
    assert_int_equal(td_yaml_count(c), 2);
    assert_string_equal(text_at(d, "y"), "1");
    assert_string_equal(text_at(d, "z"), "2");
    assert_string_equal(text_at(d, "w"), "4");
    assert_string_equal(text_at(td_yaml_get(doc, "e"), "z"), "2");
    assert_ptr_equal(td_yaml_get(doc, "f"), td_yaml_get(doc, "a"));
    td_yaml_free(doc);
}

static void what_is_refused(void **state)
{
    (void)state;
    refuse("a: 1\nb: 2\na: 3\n", TD_EFORMAT, "3: key 'a' is repeated, first used in line 1");
    refuse("{a: 1, a: 2}", TD_EFORMAT, "key 'a' is");
    refuse("a: *b", TD_EFORMAT, "1: undefined anchor 'b'");
    refuse("a: &a [1, *a]", TD_EFORMAT, "an alias is inside the node that it names, 'a'");
    refuse("&a {x: *a}", TD_EFORMAT, "an alias is inside the node that it names, 'a'");
    refuse("<<: 3", TD_EFORMAT, "only maps can be merged by '<<'");
    refuse("<<: [{a: 1}, 2]", TD_EFORMAT, "only maps can be merged by '<<'");
    refuse("? [1]\n: 2", TD_EFORMAT, "a key is a map or a list, wanted a");
    refuse("{{a: 1}: 2}", TD_EFORMAT, "a key is a map or a list, wanted a");
    refuse("a: &x [1]\nb: {*x : 1}", TD_EFORMAT, "a key is a map or a list, wanted a");
    refuse("a: 1\n---\nb: 2\n", TD_EFORMAT, "in: line 2: a second document");
    refuse("a: !!python/object/apply:os.system [x]", TD_EFORMAT,
           "the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not supported");
    refuse("a: [1, 2", TD_EFORMAT, "line ");
    refuse("a: \"x\\0y\"", TD_EFORMAT, "string contains a zero byte");
    refuse("a: \xff\xfe", TD_EFORMAT, "UTF-8");
    refuse("a: b: c", TD_EFORMAT, "mapping values are not allowed");
    refuse("\ta: 1", TD_EFORMAT, "line 1: ");
    td_yaml *doc;
    expect_error(td_yaml_parse("a\0b", 3, "in", &doc), TD_EFORMAT, "control characters");
}

static void bombs_are_defused(void **state)
{
    (void)state;
    td_text bomb = { 0 }, merges = { 0 };
    td_text_add(&bomb, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 10; i++) {
        td_text_add(&bomb, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            td_text_add(&bomb, "%s*a%d", k ? ", " : "", i - 1);
        td_text_add(&bomb, "]\n");
    }
    refuse(td_text_get(&bomb), TD_ELIMIT, "aliases expand to too many nodes, the limit is 100000");

    td_text_add(&merges, "a: &a {");
    for (int k = 0; k < 900; k++)
        td_text_add(&merges, "k%d: 1, ", k);
    td_text_add(&merges, "z: 1}\nb:\n");
    for (int k = 0; k < 200; k++)
        td_text_add(&merges, "- <<: [*a, *a, *a]\n");
    refuse(td_text_get(&merges), TD_ELIMIT, "too many");
    td_text_release(&bomb);
    td_text_release(&merges);
}

static void depth_and_size_are_limited(void **state)
{
    (void)state;
    td_text deep = { 0 }, wide = { 0 };
    td_yaml *doc;
    for (int i = 0; i < 20000; i++)
        td_text_add(&deep, "[");
    refuse(td_text_get(&deep), TD_ELIMIT, "nested too deep, the limit is 32");
    for (int i = 0; i < 1001; i++)
        td_text_add(&wide, "k%d: 1\n", i);
    refuse(td_text_get(&wide), TD_ELIMIT, "too many members in one map, the limit is 1000");
    size_t n = ((size_t)1 << 20) + 1;
    char *large = td_alloc(n, 1);
    assert_non_null(large);
    memset(large, ' ', n);
    expect_error(td_yaml_parse(large, n, "in", &doc), TD_ELIMIT, "in: 1048577 bytes");
    td_free(large);
    td_text_release(&deep);
    td_text_release(&wide);
}

static td_status parse_and_free(void)
{
    const char *text = "a: &a {x: 1, y: [1, 2]}\nb: {<<: *a, z: 3}\n";
    td_yaml *doc;
    const td_status st = td_yaml_parse(text, strlen(text), "in", &doc);
    td_yaml_free(doc);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_test_allocations(parse_and_free, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_lists_and_scalars),
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(nothing_is_an_empty_map),
        cmocka_unit_test(merges_are_followed),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(bombs_are_defused),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
