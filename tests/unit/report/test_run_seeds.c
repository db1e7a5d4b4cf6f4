/*
 * test_run_seeds.c -- runs grouped by what they have in common, and the numbers of the groups
 */
#include <math.h>
#include <stdio.h>

#include "support/allocations.h"
#include "support/expect.h"

#include "report/run_page.h"
#include "report/run_seeds.h"

enum { MAX_RUNS = 12 };

#define expect_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

typedef struct {
    td_run_log runs[MAX_RUNS];
    int n;
} set;

/* a detector's run of two validations: AP50 is AP + 0.25; `more` are settings */
static td_status add(set *s, const char *label, const char *more, double first, double last,
                     bool has_ended)
{
    char text[2000];
    const int n = snprintf(
        text, sizeof text,
        "{\"type\": \"LOG\", \"step\": \"PARAMETER\", \"data\": {\"arch\": \"ssd320\", \"lr\": "
        "0.1, "
        "\"workspace\": \"%s\", \"threads\": %d, %s}}\n"
        "{\"type\": \"LOG\", \"step\": [0], \"data\": {\"train.loss\": 2, \"val.AP\": %.17g, "
        "\"val.AP50\": %.17g}}\n"
        "{\"type\": \"LOG\", \"step\": [1], \"data\": {\"train.loss\": 1, \"val.AP\": %.17g, "
        "\"val.AP50\": %.17g}}\n%s",
        label, s->n + 1, more, first, first + 0.25, last, last + 0.25,
        has_ended ? "{\"type\": \"LOG\", \"step\": [], \"data\": {\"train.loss\": 1}}\n" : "");
    assert_true(n > 0 && (size_t)n < sizeof text && s->n < MAX_RUNS);
    return td_run_log_parse(text, (size_t)n, label, &s->runs[s->n++]);
}

static void release(set *s)
{
    for (int i = 0; i < s->n; i++)
        td_run_log_release(&s->runs[i]);
}

#define FP32(seed) "\"seed\": " #seed ", \"precision\": \"default\", \"run.precision\": \"fp32\""
#define BF16(seed) "\"seed\": " #seed ", \"precision\": \"bf16\", \"run.precision\": \"bf16\""

static void numbers_are_students(void **state)
{
    double none[1], one[] = { 3 }, four[] = { 4, 1, 3, 2 };
    (void)state;
    td_spread s = td_spread_of(none, 0);
    assert_int_equal(s.n, 0);
    assert_true(isnan(s.mean) && isnan(s.sd) && isnan(s.median));
    s = td_spread_of(one, 1);
    expect_near(s.mean, 3, 0);
    assert_true(isnan(s.sd));
    s = td_spread_of(four, 4);
    expect_near(s.mean, 2.5, 1e-15);
    expect_near(s.sd, sqrt(5.0 / 3), 1e-15);
    expect_near(s.min, 1, 0);
    expect_near(s.max, 4, 0);
    expect_near(s.median, 2.5, 0);
}

/* three seeds in float32 and two in bf16, mixed up; one that has not ended, one of another lr */
static td_status sample(set *s)
{
    *s = (set){ .n = 0 };
    TD_TRY(add(s, "b1", BF16(1), 0.375, 0.5, true));
    TD_TRY(add(s, "f1", FP32(1), 0.5, 0.25, true));
    TD_TRY(add(s, "other", "\"seed\": 1, \"nesterov\": true, \"run.precision\": \"fp32\"", 0.9, 0.9,
               true));
    TD_TRY(add(s, "f2", FP32(2), 0.25, 0.5, true));
    TD_TRY(add(s, "f3", FP32(3), 0.25, 0.75, true));
    TD_TRY(add(s, "f4", FP32(4), 0.125, 0.125, false));
    return add(s, "b2", BF16(2), 0.375, 0.75, true);
}

static void seeds_make_groups(void **state)
{
    set s;
    td_seeds found;
    td_text label = { 0 };
    (void)state;
    expect_ok(sample(&s));
    expect_ok(td_seeds_find(s.runs, s.n, &found));
    assert_int_equal(found.n_groups, 3);
    assert_true(td_seeds_any(&found));
    const td_seed_group *f = &found.groups[1], *other = &found.groups[2];
    assert_int_equal(f->n_runs, 4);
    assert_int_equal(f->runs[0], 1);
    assert_int_equal(f->runs[3], 5);
    assert_true(f->is_left_out[3] && !f->is_left_out[0]);
    assert_true(f->is_shown && !other->is_shown);
    /* AP: best 0.5 0.5 0.75, final 0.25 0.5 0.75 */
    assert_int_equal(f->spread[0][0].n, 3);
    expect_near(f->spread[0][0].mean, 1.75 / 3, 1e-15);
    expect_near(f->spread[0][0].sd, 0.25 / sqrt(3), 1e-15);
    expect_near(f->spread[0][1].mean, 0.5, 1e-15);
    expect_near(f->spread[0][1].sd, 0.25, 1e-15);
    expect_near(f->spread[1][1].max, 1, 1e-15);
    /* against bf16, final 0.5 0.75: pooled over 2 + 1 degrees of freedom */
    assert_int_equal(found.n_pairs, 1);
    const td_seed_pair *p = &found.pairs[0];
    assert_int_equal(p->base, 1);
    assert_int_equal(p->group, 0);
    expect_near(p->difference[0][1], 0.125, 1e-15);
    expect_near(p->sd[0][1], sqrt((2 * 0.0625 + 0.03125) / 3), 1e-15);
    assert_true(td_seed_is_within(p, 0, 1));
    td_seeds_label(&found, 0, &label);
    assert_string_equal(td_text_get(&label), "ssd320, bf16");
    td_text_release(&label);
    td_seeds_release(&found);
    release(&s);
}

/* what is shown is told apart; a run stopped early by a signal is left out */
static void groups_have_names(void **state)
{
    set s = { .n = 0 };
    td_seeds found;
    td_text text = { 0 };
    (void)state;
    expect_ok(add(&s, "a1", "\"seed\": 1, \"momentum\": 0.9", 0.1, 0.2, true));
    expect_ok(add(&s, "a2", "\"seed\": 2, \"momentum\": 0.9", 0.1, 0.3, true));
    expect_ok(add(&s, "c1", "\"seed\": 1, \"momentum\": \"|0.5\\n\"", 0.1, 0.2, true));
    expect_ok(add(&s, "c2", "\"seed\": -1, \"momentum\": \"|0.5\\n\"", 0.1, 0.3, true));
    s.runs[1].series[TD_RUN_EPOCHS][0].n = 1; /* train.loss of one epoch */
    expect_ok(td_seeds_find(s.runs, s.n, &found));
    assert_int_equal(found.n_groups, 2);
    assert_int_equal(found.n_pairs, 0);
    assert_true(found.groups[0].is_left_out[1]);
    assert_int_equal(found.groups[1].spread[0][0].n, 2);
    td_seeds_text(&found, TD_RUN_MARKDOWN, &text);
    assert_non_null(strstr(td_text_get(&text), "| ssd320, fp32, momentum  0.5  | AP "));
    assert_non_null(strstr(td_text_get(&text), "left out: 'a2'"));
    assert_null(strstr(td_text_get(&text), "precision;"));
    td_text_release(&text);
    td_seeds_release(&found);
    release(&s);
}

static void one_seed_is_no_group(void **state)
{
    set s = { .n = 0 };
    td_seeds found;
    td_text text = { 0 };
    (void)state;
    expect_ok(add(&s, "a", FP32(7), 0.1, 0.2, true));
    expect_ok(add(&s, "a", FP32(7), 0.1, 0.2, true));
    expect_ok(add(&s, "b", BF16(7), 0.1, 0.2, true));
    expect_ok(td_seeds_find(s.runs, s.n, &found));
    assert_false(td_seeds_any(&found));
    td_seeds_text(&found, TD_RUN_TEXT, &text);
    td_seeds_html(&found, &text);
    assert_int_equal(text.len, 0);
    td_seeds_json(&found, &text);
    assert_string_equal(td_text_get(&text), "\"seeds\": [], \"precisions\": []");
    td_text_release(&text);
    td_seeds_release(&found);
    release(&s);
}

static void tables_show_them(void **state)
{
    set s;
    td_seeds found;
    td_text text = { 0 };
    (void)state;
    expect_ok(sample(&s));
    expect_ok(td_seeds_find(s.runs, s.n, &found));
    td_seeds_text(&found, TD_RUN_TEXT, &text);
    assert_non_null(
        strstr(td_text_get(&text), "\nssd320, fp32  AP      final  3  0.50000  0.25000"));
    assert_non_null(strstr(td_text_get(&text), "left out: 'f4'\n"));
    assert_non_null(strstr(td_text_get(&text),
                           "ssd320, bf16  AP      final  bf16 - fp32    +0.12500  0.22822   0.55"));
    td_text_release(&text);
    text = (td_text){ 0 };
    td_seeds_json(&found, &text);
    assert_non_null(strstr(td_text_get(&text), "{\"run\": \"f4\", \"seed\": \"4\", "
                                               "\"is_left_out\": true}]"));
    assert_non_null(strstr(td_text_get(&text), "\"is_within\": true}"));
    td_text_release(&text);
    td_seeds_release(&found);
    release(&s);
}

static td_status read_and_write(void)
{
    set s;
    td_text page = { 0 };
    td_status st = sample(&s);
    if (st == TD_OK)
        st = td_run_page(s.runs, s.n, "seeds", NULL, &page);
    if (st == TD_OK)
        assert_non_null(strstr(td_text_get(&page), "Spread over seeds"));
    td_text_release(&page);
    release(&s);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(read_and_write, 20000) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_students), cmocka_unit_test(seeds_make_groups),
        cmocka_unit_test(groups_have_names),    cmocka_unit_test(one_seed_is_no_group),
        cmocka_unit_test(tables_show_them),     cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
