/*
 * test_pipeline.c -- pipeline.config: the text form, the published configuration, overrides, and
 * what is refused with which words
 */
#include "base/file_io.h"
#include "io/prototext.h"
#include "recipes/pipeline.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "tandem/train.h"

#define PUBLISHED "tests/data/ssd320_full_8gpus.config"

typedef struct {
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena;
} options;

static void begin(options *s)
{
    td_arena_init(&s->arena);
    td_train_defaults(&s->o);
    td_train_groups(&s->o, s->groups);
}

static td_status apply(options *s, const char *text, const char *overrides)
{
    return td_pipeline_apply(text, strlen(text), "p.config", overrides, s->groups, &s->arena);
}

static char *published(void)
{
    char *text;
    size_t n;
    expect_ok(td_file_read(PUBLISHED, TD_PROTOTEXT_BYTES_MAX, &text, &n));
    return text;
}

/* --- the text form ---------------------------------------------------------------------------- */

static void fields_have_paths_and_lines(void **state)
{
    (void)state;
    static const char text[] = "a { b: 1 # c: 2\n  d <\n e: 'x' \"y\\n\" > }\n"
                               "f: [1.5, -2],\ng: RELU_6;\nh: { i: \"\\101\\x42\" }\nj: []";
    static const struct {
        const char *path, *value;
        int line;
    } wanted[] = { { "a", NULL, 1 },       { "a.b", "1", 1 }, { "a.d", NULL, 2 },
                   { "a.d.e", "xy\n", 3 }, { "f", "1.5", 4 }, { "f", "-2", 4 },
                   { "g", "RELU_6", 5 },   { "h", NULL, 6 },  { "h.i", "AB", 6 } };
    td_prototext p;
    expect_ok(td_prototext_parse(text, strlen(text), "t", &p));
    assert_int_equal(p.n, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < p.n; i++) {
        assert_string_equal(p.fields[i].path, wanted[i].path);
        assert_int_equal(p.fields[i].line, wanted[i].line);
        if (wanted[i].value)
            assert_string_equal(p.fields[i].value, wanted[i].value);
        else
            assert_null(p.fields[i].value);
    }
    td_prototext_release(&p);
}

static void what_is_malformed_has_a_line(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "a {", "line 1: found the end of the text, wanted '}'" },
        { "a\n 1", "line 2: found '1', wanted ':' or '{'" },
        { "a: 'x", "line 1: found the end of the text, wanted a closing quote" },
        { "a: }", "line 1: found '}', wanted a value" },
        { "a: 1 }", "line 1: found '}', wanted the name of a field" },
        { "a <\n}", "line 2: found '}', wanted the name of a field" },
        { "a: [1", "line 1: found the end of the text, wanted ',' or ']'" },
        { "a: '\\q'", "line 1: found 'q', wanted an escape" },
        { "a: 'x\ny'", "wanted the end of the text in quotes" },
        { "\x01: 1", "line 1: found byte 0x01, wanted the name of a field" },
    };
    td_prototext p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(td_prototext_parse(bad[i][0], strlen(bad[i][0]), "t", &p), TD_EFORMAT);
        if (!strstr(td_error_message(), bad[i][1]))
            fail_msg("'%s': '%s', wanted '%s'", bad[i][0], td_error_message(), bad[i][1]);
    }
}

static void texts_are_bounded(void **state)
{
    (void)state;
    td_prototext p;
    char *deep = td_alloc(200, 1), *many = td_alloc(5000, 4), *longest = td_alloc(6000, 1);
    for (int i = 0; i < 66; i++)
        memcpy(deep + 3 * i, "a{ ", 3);
    for (int i = 0; i < 4999; i++)
        memcpy(many + 4 * i, "a:1 ", 4);
    memset(longest, 'x', 5999);
    memcpy(longest, "a:", 2);
    assert_int_equal(td_prototext_parse(deep, strlen(deep), "t", &p), TD_ELIMIT);
    assert_int_equal(td_prototext_parse(many, strlen(many), "t", &p), TD_ELIMIT);
    assert_int_equal(td_prototext_parse(longest, strlen(longest), "t", &p), TD_ELIMIT);
    assert_int_equal(td_prototext_parse(longest, (size_t)2 << 20, "t", &p), TD_ELIMIT);
    td_free(deep);
    td_free(many);
    td_free(longest);
}

/* --- options ---------------------------------------------------------------------------------- */

static void the_published_configuration_is_read(void **state)
{
    (void)state;
    options s;
    char *text = published();
    begin(&s);
    expect_ok(apply(&s, text, NULL));
    assert_int_equal(s.o.model.num_classes, 90);
    assert_int_equal(s.o.model.image_size, 320);
    assert_string_equal(s.o.model.backbone, "resnet50");
    assert_int_equal(s.o.batch.size, 32);
    assert_int_equal(s.o.length.num_steps, 12500);
    assert_int_equal(s.o.lr.total_steps, 12500);
    assert_int_equal(s.o.lr.warmup, 1000);
    assert_true(s.o.lr.peak == 0.16 && s.o.lr.warmup_start == 0.0693312 &&
                s.o.optimizer.momentum == 0.9);
    assert_true(s.o.optimizer.weight_decay == 0.0004);
    assert_true(s.o.boxes.min_score == 1e-8 && s.o.boxes.nms_iou == 0.6);
    assert_int_equal(s.o.boxes.max_per_class, 100);
    assert_int_equal(s.o.boxes.max_boxes, 100);
    assert_null(s.o.start.pretrained_weights); /* TensorFlow's */
    td_arena_release(&s.arena);
    td_free(text);
}

static void overrides_come_last(void **state)
{
    (void)state;
    options s;
    char *text = published();
    begin(&s);
    expect_ok(apply(&s, text,
                    "learning_rate=0.02,train_steps=100,train_config.batch_size=8,num_classes=3,"
                    "iou_threshold=0.5,fixed_shape_resizer.height=320"));
    assert_true(s.o.lr.peak == 0.02 && s.o.boxes.nms_iou == 0.5);
    assert_int_equal(s.o.length.num_steps, 100);
    assert_int_equal(s.o.lr.total_steps, 12500); /* when to stop changes no learning rate */
    assert_int_equal(s.o.batch.size, 8);
    assert_int_equal(s.o.model.num_classes, 3);
    td_arena_release(&s.arena);
    td_free(text);
}

/* in either order of the two fields */
static void the_two_numbers_of_steps_are_apart(void **state)
{
    (void)state;
#define RATE                                                                                       \
    "optimizer { momentum_optimizer { learning_rate { cosine_decay_learning_rate { "               \
    "total_steps: 300 } } } }"
    static const char *const texts[] = { "train_config { num_steps: 20 " RATE " }",
                                         "train_config { " RATE " num_steps: 20 }" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        options s;
        begin(&s);
        expect_ok(apply(&s, texts[i], NULL));
        assert_int_equal(s.o.length.num_steps, 20);
        assert_int_equal(s.o.lr.total_steps, 300);
        td_arena_release(&s.arena);
    }
}

static void other_values_are_refused_in_words(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        { "model { ssd { matcher { argmax_matcher {\n matched_threshold: 0.7 } } } }", NULL,
          "p.config: line 2: 'model.ssd.matcher.argmax_matcher.matched_threshold' is '0.7'" },
        { "model { faster_rcnn { } }", NULL, "1: 'model.faster_rcnn'" },
        { "model { ssd { feature_extractor { type: 'ssd_mobilenet_v2' } } }", NULL,
          "'ssd_mobilenet_v2', wanted ssd_resnet50_v1_fpn" },
        { "model: 3", NULL, "'model'" },
        { "train_config { batch_size: 0 }", NULL, "line 1: 'train_config.batch_size'" },
        { "train_config { batch_size: x }", NULL, "line 1: 'train_config.batch_size'" },
        { "model { ssd { image_resizer { fixed_shape_resizer { height: 320 width: 300 } } } }",
          NULL, "'300', wanted 320" },
        { "", "nothing", "'nothing'" },
        { "", "decay_steps=1", "'decay_steps'" },
        { "", "min_level=3", "'min_level'" },
        { "", "gamma=1",
          "--hparams-overrides: line 1: "
          "'model.ssd.loss.classification_loss.weighted_sigmoid_focal.gamma' is "
          "'1', wanted 2" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options s;
        begin(&s);
        assert_int_equal(apply(&s, bad[i][0], bad[i][1]), TD_EUSAGE);
        if (!strstr(td_error_message(), bad[i][2]))
            fail_msg("'%s': '%s', wanted '%s'", bad[i][0], td_error_message(), bad[i][2]);
        td_arena_release(&s.arena);
    }
}

static char *text_of_run;

static td_status read_published(void)
{
    options s;
    begin(&s);
    const td_status st = apply(&s, text_of_run, "learning_rate=0.02");
    td_arena_release(&s.arena);
    return st;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    text_of_run = published();
    td_test_allocations(read_published, 2000);
    td_free(text_of_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_have_paths_and_lines),
        cmocka_unit_test(what_is_malformed_has_a_line),
        cmocka_unit_test(texts_are_bounded),
        cmocka_unit_test(the_published_configuration_is_read),
        cmocka_unit_test(overrides_come_last),
        cmocka_unit_test(the_two_numbers_of_steps_are_apart),
        cmocka_unit_test(other_values_are_refused_in_words),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
