/* test_options.c -- command lines, config files, help pages */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file_io.h"
#include "options/field.h"

typedef struct {
    int batch_size;
    double lr;
    int schedule;
    int64_t prof;
    bool amp, nesterov, verbose, has_checkpoints;
    const char *out;
} train;

typedef struct {
    int workers;
    int arch;
    double lr_warmup;
    int hidden;
} data;

static const char *const schedules[] = { "step", "linear", "cosine", NULL };
static const char *const archs[] = { "resnet18", "resnet34", "resnet50", "resnext101-32x4d", NULL };

/* clang-format off */
static const td_field train_fields[] = {
    TD_INT_AS (train, batch_size, "batch-size", "b|bs", 256, 1, 65536, NULL, "images in a step"),
    TD_REAL   (train, lr,         0.1, 0, 1000,              "learning rate"),
    TD_ENUM_AS(train, schedule,   "lr-schedule", NULL, 2, schedules, "how the learning rate falls"),
    TD_LONG   (train, prof,       -1, -1, 1e9,               "steps to run before stopping early; "
               "-1 runs them all, and this sentence is long enough to be wrapped"),
    TD_BOOL   (train, amp,        false,                     "mixed precision"),
    TD_BOOL   (train, nesterov,   true,                      "look ahead"),
    TD_BOOL_AS(train, verbose,    "verbose", "v", false,     "say more"),
    TD_BOOL_NOT(train, has_checkpoints, "no-checkpoints", NULL, false, "write none"),
    TD_TEXT_AS(train, out,        "out", "o", NULL, "FILE",  "where the weights | the <state> go"),
    TD_END,
};
static const td_field data_fields[] = {
    TD_INT_AS (data, workers, "workers", "j", 2, 0, 256, NULL, "threads"),
    TD_ENUM   (data, arch,    0, archs,                      "which network"),
    TD_REAL   (data, lr_warmup, 0, 0, 100,                   "epochs of warm-up"),
    TD_INT    (data, hidden,  3, 0, 9,                       NULL),
    TD_END,
};
/* clang-format on */

static train t;
static data d;
static td_arena arena;
static const char *rest[32];
static int n_rest;
static char scratch[] = "/tmp/td-test-options-XXXXXX";

static const td_field_group groups[] = {
    { "Optimiser", train_fields, &t },
    { "Data", data_fields, &d },
    { NULL, NULL, NULL },
};

static int enter_scratch(void **state)
{
    (void)state;
    return !mkdtemp(scratch) || chdir(scratch) != 0;
}

static int leave_scratch(void **state)
{
    (void)state;
    return unlink("run.cfg") != 0 || chdir("/") != 0 || rmdir(scratch) != 0;
}

static int start(void **state)
{
    (void)state;
    td_fields_default(train_fields, &t);
    td_fields_default(data_fields, &d);
    return 0;
}

static int clear_arena(void **state)
{
    (void)state;
    td_alloc_fail_at(0);
    td_arena_release(&arena);
    return td_alloc_live() != 0;
}

/* `line` is split at blanks; '~' stands for a blank inside an argument */
static td_status parse(const char *line)
{
    char *argv[32];
    int argc = 0;
    char *copy = td_arena_text(&arena, line);
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        for (char *p = word; *p; p++)
            if (*p == '~')
                *p = ' ';
        argv[argc++] = word;
    }
    return td_options_parse(groups, argc, argv, rest, &n_rest, &arena);
}

static void good(const char *line)
{
    td_fields_default(train_fields, &t);
    td_fields_default(data_fields, &d);
    if (parse(line) != TD_OK)
        fail_msg("'%s': %s", line, td_error_message());
}

static void bad(const char *line, const char *message)
{
    td_fields_default(train_fields, &t);
    td_fields_default(data_fields, &d);
    assert_int_equal(parse(line), TD_EUSAGE);
    assert_string_equal(td_error_message(), message);
}

static void long_options(void **state)
{
    (void)state;
    good("--batch-size 8 --lr=0.5 --lr-schedule step --out a~b");
    assert_int_equal(t.batch_size, 8);
    assert_true(t.lr == 0.5);
    assert_int_equal(t.schedule, 0);
    assert_string_equal(t.out, "a b");
    assert_int_equal(n_rest, 0);
    good("--batch_size=8 --bs 9");
    assert_int_equal(t.batch_size, 9);
    good("--batch-size 2k");
    assert_int_equal(t.batch_size, 2000);
    good("--prof -1 --workers 0");
    assert_int_equal(t.prof, -1);
    good("--out=");
    assert_string_equal(t.out, "");
    good("--out=--lr");
    assert_string_equal(t.out, "--lr");
    good("--arch resnext101_32x4d");
    assert_int_equal(d.arch, 3);
}

static void short_options(void **state)
{
    (void)state;
    good("-b8 -j 4 -o x");
    assert_int_equal(t.batch_size, 8);
    assert_int_equal(d.workers, 4);
    assert_string_equal(t.out, "x");
    good("-b=8 -o=x");
    assert_int_equal(t.batch_size, 8);
    assert_string_equal(t.out, "x");
    good("-v");
    assert_true(t.verbose);
    good("-vb 16");
    assert_true(t.verbose);
    assert_int_equal(t.batch_size, 16);
    good("-vofile");
    assert_string_equal(t.out, "file");
    good("-v=false");
    assert_false(t.verbose);
}

static void truth_values(void **state)
{
    (void)state;
    good("--amp --no-nesterov");
    assert_true(t.amp);
    assert_false(t.nesterov);
    good("--amp=false --nesterov=no");
    assert_false(t.amp || t.nesterov);
    good("--amp=True");
    assert_true(t.amp);
    good("--no_nesterov");
    assert_false(t.nesterov);
    good("--no-checkpoints");
    assert_false(t.has_checkpoints);
    good("--no-checkpoints --no-checkpoints=false");
    assert_true(t.has_checkpoints);
    good("--amp false"); /* an argument of its own */
    assert_true(t.amp);
    assert_string_equal(rest[0], "false");
    bad("--no-amp=true", "--no-amp: takes no value, found 'true'");
    bad("--amp=maybe", "--amp: 'maybe' is not a Boolean, wanted true or false");
    bad("--no-lr", "unknown option '--no-lr'");
}

/* a line for another command: options end at its name */
static void heads_end_at_the_first_argument(void **state)
{
    char words[8][8] = { "-b", "8", "train", "--lr", "x", "-b9", "--", "--bogus" };
    char others[4][8] = { "--amp", "--", "--lr", "y" };
    char *argv[8], *over[4], *wrong[2] = { words[7], words[2] };
    (void)state;
    for (int i = 0; i < 8; i++)
        argv[i] = words[i];
    for (int i = 0; i < 4; i++)
        over[i] = others[i];
    assert_int_equal(td_options_parse_head(groups, 8, argv, rest, &n_rest, &arena), TD_OK);
    assert_int_equal(t.batch_size, 8);
    assert_int_equal(n_rest, 6);
    for (int i = 0; i < 6; i++)
        assert_ptr_equal(rest[i], argv[i + 2]);
    assert_int_equal(td_options_parse_head(groups, 4, over, rest, &n_rest, &arena), TD_OK);
    assert_true(t.amp);
    assert_int_equal(n_rest, 2);
    assert_string_equal(rest[0], "--lr");
    assert_int_equal(td_options_parse_head(groups, 2, wrong, rest, &n_rest, &arena), TD_EUSAGE);
    assert_int_equal(td_options_parse_head(groups, 0, NULL, rest, &n_rest, &arena), TD_OK);
    assert_int_equal(n_rest, 0);
}

static void arguments_and_the_end_of_options(void **state)
{
    (void)state;
    good("FOLDER -b 8 other - -5 -.5 -- --lr -b");
    static const char *const wanted[] = { "FOLDER", "other", "-", "-5", "-.5", "--lr", "-b" };
    assert_int_equal(n_rest, 7);
    for (int i = 0; i < 7; i++)
        assert_string_equal(rest[i], wanted[i]);
    assert_int_equal(t.batch_size, 8);
    good("");
    assert_int_equal(n_rest, 0);
}

static void prefixes(void **state)
{
    (void)state;
    good("--batch 8 --work 3 --lr-s=linear --no-nest --verb");
    assert_int_equal(t.batch_size, 8);
    assert_int_equal(d.workers, 3);
    assert_int_equal(t.schedule, 1);
    assert_false(t.nesterov);
    assert_true(t.verbose);
    good("--lr 2"); /* exact before the longer ones */
    assert_true(t.lr == 2);
    good("--no-check");
    assert_false(t.has_checkpoints);
    bad("--lr- 1", "option '--lr-' is ambiguous: --lr-schedule, --lr-warmup");
    bad("--lr_=1", "option '--lr_' is ambiguous: --lr-schedule, --lr-warmup");
    bad("--n", "option '--n' is ambiguous: --nesterov, --no-checkpoints");
    good("--b 8"); /* --batch-size and --bs are one option */
    assert_int_equal(t.batch_size, 8);
}

static void unknown_options(void **state)
{
    (void)state;
    bad("--lrr 1", "unknown option '--lrr', did you mean '--lr'?");
    bad("--lrate 1", "unknown option '--lrate', did you mean '--lr'?");
    bad("--bach-size=8", "unknown option '--bach-size', did you mean '--batch-size'?");
    bad("--ampp", "unknown option '--ampp', did you mean '--amp'?");
    bad("--no-nestrov", "unknown option '--no-nestrov', did you mean '--no-nesterov'?");
    bad("--xyzzy", "unknown option '--xyzzy'");
    bad("--=3", "unknown option '--'");
    bad("-x", "unknown option '-x'");
    bad("-vx", "unknown option '-x'");
    bad("-lr 0.1", "unknown option '-lr', did you mean '--lr'?");
    bad("--amp-rule 1", "unknown option '--amp-rule', did you mean '--amp'?");
    bad("--worker-count 1", "unknown option '--worker-count', did you mean '--workers'?");
    bad("--num-workers 1", "unknown option '--num-workers', did you mean '--workers'?");
    bad("--n_workers 1", "unknown option '--n_workers', did you mean '--workers'?");
    bad("--num-worker 1", "unknown option '--num-worker', did you mean '--workers'?");
    bad("--schedule 1", "unknown option '--schedule', did you mean '--lr-schedule'?");
    bad("--size 1", "unknown option '--size', did you mean '--batch-size'?");
    bad("--lr-count 1", "unknown option '--lr-count', did you mean '--lr'?");
    bad("--no-amb", "unknown option '--no-amb', did you mean '--no-amp'?");
    bad("--no-arh", "unknown option '--no-arh'");           /* near --no-amp by its "no-" only */
    bad("--jit 1", "unknown option '--jit'");               /* two letters of three are not --out */
    bad("--work-count 1", "unknown option '--work-count'"); /* not a plural of "work" */
}

/* "-out FILE" is neither -o with the value "ut" nor a set of flags */
static void long_options_need_two_dashes(void **state)
{
    (void)state;
    bad("FOLDER -arch resnet18", "unknown option '-arch', did you mean '--arch'?");
    bad("-arch=resnet18", "unknown option '-arch', did you mean '--arch'?");
    bad("-out x", "unknown option '-out', did you mean '--out'?");
    bad("-batch_size 8", "unknown option '-batch_size', did you mean '--batch_size'?");
    bad("-no-amp", "unknown option '-no-amp', did you mean '--no-amp'?");
    bad("-v -verbose", "unknown option '-verbose', did you mean '--verbose'?");
    good("-ooutput -vb8 -j=3"); /* values that are no name of an option */
    assert_string_equal(t.out, "output");
    assert_int_equal(t.batch_size, 8);
    good("-o -arch"); /* a value after -o */
    assert_string_equal(t.out, "-arch");
}

static void bad_values(void **state)
{
    (void)state;
    bad("--lr abc", "--lr: 'abc' is not a number");
    bad("--batch-size 0", "--batch-size: 0 is out of range, wanted 1 to 65536");
    bad("--bs 0", "--batch-size: 0 is out of range, wanted 1 to 65536");
    bad("-b0", "--batch-size: 0 is out of range, wanted 1 to 65536");
    bad("--arch resnet51", "--arch: 'resnet51' is not one of resnet18, resnet34, resnet50, "
                           "resnext101-32x4d; did you mean 'resnet50'?");
    bad("--lr", "--lr: the value is missing, wanted 0 to 1000");
    bad("--lr --amp", "--lr: the value is missing, wanted 0 to 1000");
    bad("--lr -b 8", "--lr: the value is missing, wanted 0 to 1000");
    bad("--out", "--out: the value is missing");
    bad("-b", "--batch-size: the value is missing, wanted 1 to 65536");
    bad("--lr-schedule", "--lr-schedule: the value is missing, wanted step, linear, cosine");
    bad("--lr -1", "--lr: -1 is out of range, wanted 0 to 1000");
    bad("--lr=", "--lr: '' is not a number");
}

static void long_words_are_no_danger(void **state)
{
    (void)state;
    char line[600] = "--";
    memset(line + 2, 'a', sizeof line - 3);
    td_fields_default(train_fields, &t);
    assert_int_equal(parse(line), TD_EUSAGE);
    memcpy(line + 300, "=5", 2);
    assert_int_equal(parse(line), TD_EUSAGE);
    assert_true(td_text_starts(td_error_message(), "unknown option '--aaaa"));
}

/* --- config files ---------------------------------------------------------------------------- */

static td_status config(const char *text)
{
    assert_int_equal(td_file_write("run.cfg", text, strlen(text)), TD_OK);
    return td_options_config(groups, "run.cfg", &arena);
}

static void check_config(const char *text)
{
    start(NULL);
    t.amp = true;
    if (config(text) != TD_OK)
        fail_msg("%s", td_error_message());
    assert_int_equal(t.batch_size, 8);
    assert_true(t.lr == 0.25);
    assert_int_equal(d.workers, 3);
    assert_int_equal(t.schedule, 1);
    assert_false(t.nesterov);
    assert_string_equal(t.out, "a b#c");
    assert_true(t.amp); /* what is not named stays */
}

static void config_files_are_read(void **state)
{
    (void)state;
    check_config("# a run\nbatch_size = 8\n\n  lr=0.25 # small\nworkers = 3\nlr-schedule = linear\n"
                 "nesterov = false\r\nout = \"a b#c\" # quoted");
    check_config("batch-size=8\nlr = 0.25\nj = 3\nlr_schedule=linear\nnesterov=no\nout = a b#c\n");
    check_config(
        " {\"batch-size\": 8, \"lr\": 0.25, \"workers\": \"3\", \"lr_schedule\": \"linear\", "
        "\"nesterov\": false, \"out\": \"a b#c\"}");
    check_config("# a run\nbatch-size: 8\nlr: 0.25 # small\nworkers: 3\nlr_schedule: linear\n"
                 "nesterov: no\nout: \"a b#c\"\n");
    check_config("---\ndata: {j: 3}\noptimiser:\n  lr: 0.25\n  bs: 8\n  lr-schedule: LINEAR\n"
                 "  nesterov: False\n  out: a b#c\n");
    check_config("data: {workers: 3}\nOptimiser: &o {lr: 0.25, batch_size: 8}\n"
                 "optimiser:\n  <<: *o\n  lr_schedule: linear\n  nesterov: off\n  out: 'a b#c'\n");
    assert_int_equal(config("{\"out\": \"\\ud83d\\ude00\"}"), TD_OK); /* JSON's escapes */
    assert_string_equal(t.out, "\xf0\x9f\x98\x80");
    assert_int_equal(config("out: [a, b]"), TD_OK);
    assert_string_equal(t.out, "a,b");
    assert_int_equal(config("{\"out\": null}"), TD_OK);
    assert_null(t.out);
    assert_int_equal(config(""), TD_OK);
    assert_int_equal(config("{}"), TD_OK);
}

/* files of earlier versions; a typing error in the name or in a key is still an error */
static void former_section_names_are_read(void **state)
{
    (void)state;
    static const td_field fields[] = {
        TD_TITLE_SECONDARY_RENAMED("Speed", "how_fast|the_pace's"),
        TD_REAL(train, lr, 0.1, 0, 1000, "learning rate"),
        TD_END,
    };
    const td_field_group titled[] = { { "Optimiser", fields, &t }, { NULL, NULL, NULL } };
    static const char *const good[] = { "speed: {lr: 7}", "how_fast: {lr: 7}", "How fast: {lr: 7}",
                                        "the_pace's:\n  lr: 7\n" };
    static const char *const bad[] = { "how_slow: {lr: 7}", "how: {lr: 7}", "speed_: {lr: 7}",
                                       "how_fast: {lrr: 7}", "'': {lr: 7}" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        t.lr = 0;
        assert_int_equal(td_file_write("run.cfg", good[i], strlen(good[i])), TD_OK);
        assert_int_equal(td_options_config(titled, "run.cfg", &arena), TD_OK);
        assert_true(t.lr == 7);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(td_file_write("run.cfg", bad[i], strlen(bad[i])), TD_OK);
        assert_int_equal(td_options_config(titled, "run.cfg", &arena), TD_EUSAGE);
    }
    assert_null(td_field_find(fields, "how_fast")); /* it is no option */
}

static void a_saved_config_comes_back(void **state)
{
    (void)state;
    good("-b 7 --lr 0.3 --no-nesterov --out a\"b\\c --lr-schedule step");
    train saved = t;
    td_text text = { 0 };
    td_fields_json(train_fields, &t, &text);
    td_fields_default(train_fields, &t);
    assert_int_equal(config(td_text_get(&text)), TD_OK);
    assert_true(td_fields_equal(train_fields, &t, &saved));
    td_text_release(&text);
}

static void a_printed_config_comes_back(void **state)
{
    (void)state;
    good("-b 7 --lr 0.3 --no-nesterov --out a\"b\\c~# --lr-schedule step -j 9 --hidden 4");
    train saved = t;
    data saved_data = d;
    td_text text = { 0 };
    td_options_yaml(groups, &text);
    assert_non_null(strstr(td_text_get(&text), "data:\n  workers: 9\n"));
    assert_non_null(strstr(td_text_get(&text), "  hidden: 4\n"));
    td_fields_default(train_fields, &t);
    td_fields_default(data_fields, &d);
    if (config(td_text_get(&text)) != TD_OK)
        fail_msg("%s", td_error_message());
    assert_true(td_fields_equal(train_fields, &t, &saved));
    assert_true(td_fields_equal(data_fields, &d, &saved_data));
    td_text_release(&text);
}

/* --- rows without a member ------------------------------------------------------------------- */

static void other_programs_names(void **state)
{
    (void)state;
    static const td_field others[] = {
        TD_ALIAS("wd", "lr"),
        TD_ACCEPTED("dali", NULL, "one loader"),
        TD_ACCEPTED("gpu_id", "N", "no GPU"),
        TD_REFUSED("quantize", "it is not there"),
        TD_END,
    };
    const td_field_group all[] = { { "Optimiser", train_fields, &t },
                                   { "Others", others, NULL },
                                   { NULL, NULL, NULL } };
    static const char *const lines[][2] = {
        { "--quantize", "--quantize is not supported: it is not there" },
        { "--quantize=1", "--quantize is not supported: it is not there" },
        { "--gpu-id", "--gpu-id: the value is missing" },
        { "--quant", "unknown option '--quant'" },
        { "--wd=x", "--lr: 'x' is not a number" },
    };
    static const char *const words[] = { "--wd",     "0.5", "--dali",  "--nodali",
                                         "--gpu-id", "3",   "--noamp", "--ver" };
    char *argv[8];
    for (int i = 0; i < 8; i++)
        argv[i] = td_arena_text(&arena, words[i]);
    td_fields_default(train_fields, &t);
    td_fields_default(others, NULL);
    t.amp = true;
    assert_int_equal(td_options_parse(all, 8, argv, rest, &n_rest, &arena), TD_OK);
    assert_true(t.lr == 0.5 && !t.amp && t.verbose);
    assert_int_equal(n_rest, 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *one = td_arena_text(&arena, lines[i][0]);
        assert_int_equal(td_options_parse(all, 1, &one, rest, &n_rest, &arena), TD_EUSAGE);
        assert_string_equal(td_error_message(), lines[i][1]);
    }
    td_text json = { 0 };
    td_fields_json(others, NULL, &json);
    assert_string_equal(td_text_get(&json), "{}");
    td_text_release(&json);
}

static void bad_config(const char *text, td_status wanted, const char *message)
{
    assert_int_equal(config(text), wanted);
    assert_string_equal(td_error_message(), message);
}

static void bad_config_files_are_refused(void **state)
{
    (void)state;
    assert_int_equal(td_options_config(groups, "absent", &arena), TD_ENOTFOUND);
    assert_int_equal(td_options_config(groups, ".", &arena), TD_EIO);
    bad_config("lr = 1\nlrr = 0.1", TD_EUSAGE,
               "'run.cfg', line 2: unknown option 'lrr', did you mean 'lr'?");
    bad_config("lr = abc", TD_EUSAGE, "'run.cfg', line 1: lr: 'abc' is not a number");
    bad_config("\n\nlr 1", TD_EFORMAT, "'run.cfg', line 3: found 'lr 1', wanted name = value");
    bad_config("= 1", TD_EFORMAT, "'run.cfg', line 1: found '= 1', wanted name = value");
    bad_config("batch = 1", TD_EUSAGE,
               "'run.cfg', line 1: unknown option 'batch', did you mean 'batch-size'?");
    bad_config("{\"lrr\": 1}", TD_EUSAGE,
               "'run.cfg', line 1: unknown option 'lrr', did you mean 'lr'?");
    bad_config("{\"lr\": -1}", TD_EUSAGE,
               "'run.cfg', line 1: lr: -1 is out of range, wanted 0 to 1000");
    bad_config("{\"lr\": [1, 2]}", TD_EUSAGE, "'run.cfg', line 1: lr: '1,2' is not a number");
    bad_config("{\"lr\": null}", TD_EUSAGE, "'run.cfg', line 1: lr: 'null' is not a number");
    bad_config("lr: .nan", TD_EUSAGE, "'run.cfg', line 1: lr: '.nan' is not a number");
    bad_config("lr: 1\nbatch_size: 8\nlrr: 2", TD_EUSAGE,
               "'run.cfg', line 3: unknown option 'lrr', did you mean 'lr'?");
    bad_config("dat:\n  lr: 1", TD_EUSAGE,
               "'run.cfg', line 1: unknown section 'dat', did you mean 'data'?");
    bad_config("data:\n  data:\n    lr: 1", TD_EFORMAT,
               "'run.cfg', line 2: 'data' is a nested section, which is not supported");
    bad_config("- lr", TD_EFORMAT, "'run.cfg', line 1: found no 'name: value'");
    bad_config("lr: 1\nlr: 2", TD_EFORMAT,
               "run.cfg: line 2: key 'lr' is repeated, first used in line 1");
    bad_config("out: [[1]]", TD_EFORMAT,
               "'run.cfg', line 1: 'out' contains a list or a map, wanted a single value");
    assert_int_equal(config("{\"lr\": "), TD_EFORMAT);
    assert_non_null(strstr(td_error_message(), "run.cfg: line 1"));
    assert_int_equal(td_file_write("run.cfg", "lr\0= 1", 6), TD_OK);
    assert_int_equal(td_options_config(groups, "run.cfg", &arena), TD_EFORMAT);
    assert_string_equal(td_error_message(), "'run.cfg' is not a text file");
    char *large = td_alloc((1 << 20) + 1, 1);
    assert_int_equal(td_file_write("run.cfg", large, (1 << 20) + 1), TD_OK);
    td_free(large);
    assert_int_equal(td_options_config(groups, "run.cfg", &arena), TD_ELIMIT);
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    static const char *const texts[] = { "lr = 1\nout = x\nlrr = 1\n", "out = x\nlr = 2000",
                                         "{\"lr\": 1, \"out\": \"x\", \"j\": 999}",
                                         "out: [a, b]\ndata: {j: 999}" };
    for (int i = 0; i < 4; i++) {
        td_status st = TD_ENOMEM;
        assert_int_equal(td_file_write("run.cfg", texts[i], strlen(texts[i])), TD_OK);
        for (int n = 1; st == TD_ENOMEM; n++) {
            td_arena a = { 0 };
            td_alloc_fail_at(n);
            st = td_options_config(groups, "run.cfg", &a);
            td_alloc_fail_at(0);
            assert_true(n > 1 || st == TD_ENOMEM);
            td_arena_release(&a);
            assert_int_equal(td_alloc_live(), 0);
        }
        assert_int_equal(st, TD_EUSAGE);
    }
    static const char *const lines[] = { "--lr-=1", "--lr 2000", "--lr", "--out x --lrr" };
    for (int i = 0; i < 4; i++) {
        td_status st = TD_ENOMEM;
        for (int n = 1; st == TD_ENOMEM; n++) {
            char copy[32], *argv[4];
            int argc = 0;
            td_arena a = { 0 };
            snprintf(copy, sizeof copy, "%s", lines[i]);
            for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
                argv[argc++] = w;
            td_alloc_fail_at(n);
            st = td_options_parse(groups, argc, argv, rest, &n_rest, &a);
            td_alloc_fail_at(0);
            assert_true(n > 1 || st == TD_ENOMEM);
            td_arena_release(&a);
            assert_int_equal(td_alloc_live(), 0);
        }
        assert_int_equal(st, TD_EUSAGE);
    }
}

/* --- pages ----------------------------------------------------------------------------------- */

static void help_is_aligned(void **state)
{
    (void)state;
    td_text out = { 0 };
    td_options_help(groups, NULL, 100, &out);
    assert_string_equal(
        td_text_get(&out),
        "Optimiser:\n"
        "  -b, --batch-size, --bs N      images in a step (default 256, 1 to 65536)\n"
        "      --lr X                    learning rate (default 0.1, 0 to 1000)\n"
        "      --lr-schedule NAME        how the learning rate falls (default cosine; step, "
        "linear, cosine)\n"
        "      --prof N                  steps to run before stopping early; -1 runs them all, and "
        "this\n"
        "                                sentence is long enough to be wrapped (default -1, -1 to "
        "1000000000)\n"
        "      --[no-]amp                mixed precision\n"
        "      --[no-]nesterov           look ahead (default true)\n"
        "  -v, --[no-]verbose            say more\n"
        "      --no-checkpoints          write none\n"
        "  -o, --out FILE                where the weights | the <state> go\n"
        "\n"
        "Data:\n"
        "  -j, --workers N               threads (default 2, 0 to 256)\n"
        "      --arch NAME               which network (default resnet18; resnet18, resnet34, "
        "resnet50,\n"
        "                                resnext101-32x4d)\n"
        "      --lr-warmup X             epochs of warm-up (default 0, 0 to 100)\n");
    td_text_release(&out);
}

static void usual_rows_come_first_and_once(void **state)
{
    (void)state;
    td_text out = { 0 };
    td_options_help(groups, "arch,lr,absent", 60, &out);
    assert_string_equal(td_text_get(&out),
                        "Usual options:\n"
                        "      --arch NAME               which network (default\n"
                        "                                resnet18; resnet18,\n"
                        "                                resnet34, resnet50,\n"
                        "                                resnext101-32x4d)\n"
                        "      --lr X                    learning rate (default 0.1,\n"
                        "                                0 to 1000)\n"
                        "\n"
                        "Optimiser:\n"
                        "  -b, --batch-size, --bs N      images in a step (default\n"
                        "                                256, 1 to 65536)\n"
                        "      --lr-schedule NAME        how the learning rate falls\n"
                        "                                (default cosine; step,\n"
                        "                                linear, cosine)\n"
                        "      --prof N                  steps to run before stopping\n"
                        "                                early; -1 runs them all, and\n"
                        "                                this sentence is long enough\n"
                        "                                to be wrapped (default -1,\n"
                        "                                -1 to 1000000000)\n"
                        "      --[no-]amp                mixed precision\n"
                        "      --[no-]nesterov           look ahead (default true)\n"
                        "  -v, --[no-]verbose            say more\n"
                        "      --no-checkpoints          write none\n"
                        "  -o, --out FILE                where the weights | the\n"
                        "                                <state> go\n"
                        "\n"
                        "Data:\n"
                        "  -j, --workers N               threads (default 2, 0 to\n"
                        "                                256)\n"
                        "      --lr-warmup X             epochs of warm-up (default\n"
                        "                                0, 0 to 100)\n");
    td_text_release(&out);
}

static void lines_are_wrapped_at_words(void **state)
{
    (void)state;
    const td_wrap w = { .indent = 2, .columns = 12, .mark = " \\" };
    td_text out = { 0 };
    td_text_add_wrapped(&out, "aaaa bbb\n  cccc a_very_long_word d", 34, &w);
    assert_string_equal(td_text_get(&out), "aaaa bbb \\\n  cccc \\\n  a_very_long_word \\\n  d\n");
    td_text_release(&out);
    td_text_add_wrapped(&out, "", 0, &w);
    assert_string_equal(td_text_get(&out), "\n");
    td_text_release(&out);
    assert_int_equal(td_help_columns() >= 60 && td_help_columns() <= 120, 1);
}

static void markdown_has_a_row_for_each(void **state)
{
    (void)state;
    td_text out = { 0 };
    td_options_markdown(groups, NULL, &out);
    assert_string_equal(
        td_text_get(&out),
        "### Optimiser\n"
        "\n"
        "| option | default | range | meaning |\n"
        "|---|---|---|---|\n"
        "| `-b, --batch-size, --bs N` | `256` | 1 to 65536 | images in a step |\n"
        "| `--lr X` | `0.1` | 0 to 1000 | learning rate |\n"
        "| `--lr-schedule NAME` | `cosine` | step, linear, cosine | how the learning "
        "rate falls |\n"
        "| `--prof N` | `-1` | -1 to 1000000000 | steps to run before stopping early; "
        "-1 runs them all, and this sentence is long enough to be wrapped |\n"
        "| `--[no-]amp` |  |  | mixed precision |\n"
        "| `--[no-]nesterov` | `true` |  | look ahead |\n"
        "| `-v, --[no-]verbose` |  |  | say more |\n"
        "| `--no-checkpoints` |  |  | write none |\n"
        "| `-o, --out FILE` |  |  | where the weights \\| the \\<state> go |\n"
        "\n"
        "### Data\n"
        "\n"
        "| option | default | range | meaning |\n"
        "|---|---|---|---|\n"
        "| `-j, --workers N` | `2` | 0 to 256 | threads |\n"
        "| `--arch NAME` | `resnet18` | resnet18, resnet34, resnet50, "
        "resnext101-32x4d | which network |\n"
        "| `--lr-warmup X` | `0` | 0 to 100 | epochs of warm-up |\n");
    td_text_release(&out);
}

static void help(const td_field_group *g, td_text *out)
{
    td_options_help(g, "lr", 80, out);
}

static void markdown(const td_field_group *g, td_text *out)
{
    td_options_markdown(g, "lr", out);
}

static void man(const td_field_group *g, td_text *out)
{
    td_options_man(g, "lr", out);
}

static void pages_report_failing_memory(void **state)
{
    (void)state;
    void (*const pages[])(const td_field_group *, td_text *) = { help, markdown, man,
                                                                 td_options_yaml };
    t.out = "x";
    for (int i = 0; i < 4; i++) {
        td_status st = TD_ENOMEM;
        for (int n = 1; st != TD_OK; n++) {
            td_text out = { 0 };
            td_alloc_fail_at(n);
            pages[i](groups, &out);
            td_alloc_fail_at(0);
            st = td_text_status(&out);
            assert_true(n > 1 || st == TD_ENOMEM);
            td_text_release(&out);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, clear_arena)

/* the default's text on a line is a choice; in a file too, but no demand; defaults are neither */
static void given_options_are_known(void **state)
{
    (void)state;
    struct chosen {
        td_given given;
        const char *arch;
        int topk;
    } o;
    static const td_field fields[] = {
        TD_GIVEN(struct chosen, given),
        TD_TEXT(struct chosen, arch, "resnet50", "NAME", "network"),
        TD_INT(struct chosen, topk, 5, 1, 10, "classes"),
        TD_END,
    };
    const td_field_group tables[] = { { "Network", fields, &o }, { NULL, NULL, NULL } };
    char *line[] = { (char *)(uintptr_t) "--arch", (char *)(uintptr_t) "resnet50" };
    const char *args[2];
    int n_args;
    td_fields_default(fields, &o);
    assert_false(td_options_chosen(fields, &o, "arch"));
    assert_int_equal(td_options_set(tables, "topk", "5", &arena), TD_OK);
    assert_true(td_options_given(fields, &o, "topk"));
    assert_false(td_options_given_on_line(fields, &o, "topk"));
    assert_false(td_field_is_given(fields, &fields[2], &o));
    assert_int_equal(td_options_parse(tables, 2, line, args, &n_args, &arena), TD_OK);
    assert_true(td_options_given_on_line(fields, &o, "arch"));
    assert_true(td_field_is_given(fields, &fields[1], &o));
    td_options_unmark(fields, &o, "topk");
    assert_false(td_options_given(fields, &o, "topk"));
    td_fields_default(fields, &o);
    assert_false(td_options_given(fields, &o, "arch"));
    o.topk = 3;
    assert_true(td_options_chosen(fields, &o, "topk"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(long_options),
        TEST(short_options),
        TEST(truth_values),
        TEST(heads_end_at_the_first_argument),
        TEST(arguments_and_the_end_of_options),
        TEST(prefixes),
        TEST(unknown_options),
        TEST(long_options_need_two_dashes),
        TEST(bad_values),
        TEST(long_words_are_no_danger),
        TEST(config_files_are_read),
        TEST(former_section_names_are_read),
        TEST(a_saved_config_comes_back),
        TEST(a_printed_config_comes_back),
        TEST(other_programs_names),
        TEST(bad_config_files_are_refused),
        TEST(memory_may_fail_at_every_call),
        TEST(help_is_aligned),
        TEST(usual_rows_come_first_and_once),
        TEST(lines_are_wrapped_at_words),
        TEST(markdown_has_a_row_for_each),
        TEST(given_options_are_known),
        TEST(pages_report_failing_memory),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
