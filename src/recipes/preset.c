/*
 * preset.c -- applies presets by name
 *
 *   1. The choice: --preset MODEL/PART/..., --model, --platform, --precision, --mode.
 *   2. The sections of the table that they name are merged; a missing one is an error that lists
 *      those that exist.
 *   3. The settings are applied by the same function as a configuration file's.
 */
#include "recipes/preset.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "amp/amp_opts.h"
#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"
#include "base/yaml.h"
#include "inference/inputs.h"
#include "model/arch.h"
#include "options/field.h"
#include "recipes/pipeline.h"
#include "recipes/train_options.h"
#include "tandem/recipes.h"

extern const char td_embedded_presets_yaml[];

#define TABLE_BYTES ((size_t)1 << 20)
#define EDITION     "2019-12"
#define PART_BYTES  64

/* The chosen parts of a preset; "" if not given. */
typedef struct {
    char model[PART_BYTES], platform[PART_BYTES], precision[PART_BYTES], mode[PART_BYTES];
    char epochs[PART_BYTES];
    bool is_2019;
} choice;

typedef struct {
    const char *path; /* of the table, for messages */
    bool is_builtin;
    td_yaml *doc;
} table;

/* --- the table -------------------------------------------------------------------------------- */

static td_status open_table(const char *cfg_file, table *out)
{
    char *text = NULL;
    size_t n = strlen(td_embedded_presets_yaml);
    out->path = cfg_file ? cfg_file : "presets";
    out->is_builtin = !cfg_file;
    if (!cfg_file)
        return td_yaml_parse(td_embedded_presets_yaml, n, out->path, &out->doc);
    TD_TRY(td_file_read(cfg_file, TABLE_BYTES, &text, &n));
    td_status st = td_yaml_parse(text, n, cfg_file, &out->doc);
    td_free(text);
    return st;
}

/* The key of an entry, or "-": a list where a map is expected has no keys. */
static const char *key_of(const td_yaml *map, size_t i)
{
    const char *key = td_yaml_key(map, i);
    return key ? key : "-";
}

static void add_names(const td_yaml *map, td_text *out)
{
    for (size_t i = 0; i < td_yaml_count(map); i++)
        td_text_add(out, "%s%s", i ? ", " : "", key_of(map, i));
}

static const td_yaml *find_any_case(const td_yaml *map, const char *name, const char **key)
{
    for (size_t i = 0; i < td_yaml_count(map); i++) {
        *key = td_yaml_key(map, i);
        if (*key && strcasecmp(*key, name) == 0)
            return td_yaml_member(map, i);
    }
    return NULL;
}

/* TD_EUSAGE: the name is not one of `names`, which is released. */
static td_status unknown(const table *t, const char *what, const char *name, const char *where,
                         td_text *names)
{
    td_status st = td_text_status(names);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "%s: unknown %s '%s'%s, wanted %s%s", t->path, what, name, where,
                      names->len ? names->data : "none",
                      t->is_builtin ? "; '--preset list' shows all presets" : "");
    td_text_release(names);
    return st;
}

/* Find the section of a name; TD_EUSAGE lists the names that exist. */
static td_status pick(const table *t, const td_yaml *map, const char *what, const char *name,
                      const char *where, const td_yaml **out)
{
    const char *key;
    td_text names = { 0 };
    *out = find_any_case(map, name, &key);
    if (*out)
        return TD_OK;
    add_names(map, &names);
    return unknown(t, what, name, where, &names);
}

/* Add the names of other programs' recipes, such as "timm/resnet50-a1", each between two texts. */
static void add_programs(const td_yaml *programs, const char *before, const char *after,
                         td_text *out)
{
    for (size_t i = 0; i < td_yaml_count(programs); i++)
        for (size_t k = 0; k < td_yaml_count(td_yaml_member(programs, i)); k++)
            td_text_add(out, "%s%s/%s%s", before, key_of(programs, i),
                        key_of(td_yaml_member(programs, i), k), after);
}

/* Find the section of a network; TD_EUSAGE also lists the other presets. */
static td_status pick_model(const table *t, const td_yaml *map, const char *name,
                            const td_yaml **out)
{
    const char *key;
    const td_yaml *detectors = td_yaml_get(t->doc, "detectors");
    td_text names = { 0 };
    *out = find_any_case(map, name, &key);
    if (*out)
        return TD_OK;
    add_names(map, &names);
    td_text_add(&names, names.len && td_yaml_count(detectors) ? ", " : "");
    add_names(detectors, &names);
    add_programs(td_yaml_get(t->doc, "recipes"), ", ", "", &names);
    return unknown(t, "model", name, "", &names);
}

static const td_yaml *edition(const table *t, const choice *c)
{
    return c->is_2019 ? td_yaml_get(t->doc, EDITION) : t->doc;
}

/* --- the choice ------------------------------------------------------------------------------- */

static bool is_number(const char *s)
{
    return *s && strspn(s, "0123456789") == strlen(s);
}

static bool has(const td_yaml *map, const char *name)
{
    const char *key;
    return find_any_case(map, name, &key) != NULL;
}

static void copy_part(char to[PART_BYTES], const char *word)
{
    snprintf(to, PART_BYTES, "%s", word);
}

/* Keep a part; a second one of its kind, as in "resnet50/AMP/FP32", is an error. */
static td_status set_part(char to[PART_BYTES], const char *part, const char *what)
{
    if (*to)
        return td_error(TD_EUSAGE, "--preset: '%s' and '%s' are both %s, wanted one", to, part,
                        what);
    copy_part(to, part);
    return TD_OK;
}

/* Parse a part of --preset after the model; its value determines its kind. */
static td_status parse_part(const table *t, const char *part, choice *c)
{
    const td_yaml *ed = edition(t, c);
    if (strcmp(part, EDITION) == 0 && td_yaml_get(t->doc, EDITION))
        return TD_OK; /* already handled by is_edition_named */
    if (is_number(part))
        return set_part(c->epochs, part, "numbers of epochs");
    if (has(td_yaml_get(ed, "platform"), part))
        return set_part(c->platform, part, "platforms");
    if (has(td_yaml_get(ed, "precision"), part))
        return set_part(c->precision, part, "precisions");
    if (has(td_yaml_get(ed, "mode"), part))
        return set_part(c->mode, part, "modes");
    return td_error(TD_EUSAGE,
                    "--preset: '%s' is not a platform, precision, mode or number of epochs; "
                    "'--preset list' shows what there is",
                    part);
}

static bool is_edition_named(const char *preset)
{
    return strstr(preset, "/" EDITION) != NULL;
}

static td_status parse_preset(const table *t, const char *preset, choice *c)
{
    char part[PART_BYTES];
    const char *s = preset;
    c->is_2019 = is_edition_named(preset);
    for (int i = 0; *s; i++) {
        size_t n = strcspn(s, "/");
        if (n == 0 || n >= sizeof part)
            return td_error(TD_EUSAGE, "--preset: '%.80s' has an empty or overlong part", preset);
        snprintf(part, sizeof part, "%.*s", (int)n, s);
        if (i == 0)
            copy_part(c->model, part);
        else
            TD_TRY(parse_part(t, part, c));
        s += n;
        if (*s == '/' && *++s == '\0')
            return td_error(TD_EUSAGE, "--preset: '%.80s' has an empty or overlong part", preset);
    }
    return *c->model ? TD_OK : td_error(TD_EUSAGE, "--preset: no model was given");
}

/* The launcher's name of --precision; bf16 and auto are mixed precision too. */
static const char *precision_word(const td_amp_opts *o)
{
    switch (o->precision) {
    case TD_PRECISION_FP32:
        return "FP32";
    case TD_PRECISION_TF32:
    case TD_PRECISION_TF32_EMULATED:
        return "TF32";
    case TD_PRECISION_FP16:
        return "FP16";
    case TD_PRECISION_BF16:
    case TD_PRECISION_AMP:
        return "AMP";
    default:
        return o->amp ? "AMP" : "";
    }
}

/* Is --model the name of a network in the table, not a file? */
static bool is_model_name(const table *t, const char *model)
{
    return model && (!td_path_exists(model) || td_path_is_folder(model)) &&
           (has(td_yaml_get(t->doc, "models"), model) ||
            td_text_starts(model, "efficientnet-quant"));
}

static td_status choose(const table *t, const td_train_opts *o, choice *c)
{
    *c = (choice){ .model = "" };
    if (o->launch.preset)
        TD_TRY(parse_preset(t, o->launch.preset, c));
    if (!*c->model && is_model_name(t, o->model.model))
        copy_part(c->model, o->model.model);
    if (!*c->platform && o->launch.platform)
        copy_part(c->platform, o->launch.platform);
    if (!*c->mode && o->launch.mode)
        copy_part(c->mode, o->launch.mode);
    if (!*c->precision)
        copy_part(c->precision, precision_word(&o->amp));
    if (strcmp(c->precision, "FP16") == 0 && !has(td_yaml_get(edition(t, c), "precision"), "FP16"))
        copy_part(c->precision, "AMP");
    return TD_OK;
}

/* --- merging ---------------------------------------------------------------------------------- */

typedef struct {
    td_map lines; /* name, with '_' -> the node that holds the value and its line */
    const table *table;
} settings;

static td_status put(settings *s, const char *name, const td_yaml *y)
{
    char plain[PART_BYTES];
    if (!td_yaml_text(y))
        return td_error(TD_EFORMAT, "%s: line %d: '%s' is not a single value", s->table->path,
                        td_yaml_line(y), name);
    snprintf(plain, sizeof plain, "%s", name);
    for (char *p = plain; *p; p++)
        if (*p == '-')
            *p = '_';
    union {
        const td_yaml *in;
        void *out;
    } node = { .in = y };
    return td_map_set(&s->lines, plain, node.out);
}

static td_status merge(settings *s, const td_yaml *section)
{
    if (td_yaml_kind_of(section) != TD_YAML_MAP)
        return td_error(TD_EFORMAT, "%s: line %d: found no settings", s->table->path,
                        td_yaml_line(section));
    for (size_t i = 0; i < td_yaml_count(section); i++)
        TD_TRY(put(s, td_yaml_key(section, i), td_yaml_member(section, i)));
    return TD_OK;
}

static td_status merge_named(settings *s, const td_yaml *ed, const char *kind, const char *name)
{
    const td_yaml *section;
    if (!*name)
        return TD_OK;
    TD_TRY(pick(s->table, td_yaml_get(ed, kind), kind, name, "", &section));
    return merge(s, section);
}

/* Merge the settings for a platform, or those of the learning rate rule if no platform is named. */
static td_status merge_model(settings *s, const choice *c)
{
    const td_yaml *ed = edition(s->table, c), *section = td_yaml_get(s->table->doc, "rule");
    char where[3 * PART_BYTES];
    if (*c->platform) {
        TD_TRY(pick_model(s->table, td_yaml_get(ed, "models"), c->model, &section));
        snprintf(where, sizeof where, " for '%s'", c->model);
        TD_TRY(pick(s->table, section, "platform", c->platform, where, &section));
        snprintf(where, sizeof where, " for '%s' on '%s'", c->model, c->platform);
        TD_TRY(pick(s->table, section, "precision", c->precision, where, &section));
    } else {
        TD_TRY(pick_model(s->table, section, c->model, &section));
    }
    return merge(s, section);
}

/* Does the model have a recipe of so many epochs?  Only resnet50 has one of 50. */
static bool has_epochs(const char *model, const char *epochs)
{
    return strcmp(epochs, "50") != 0 || strcasecmp(model, "resnet50") == 0;
}

static td_status merge_epochs(settings *s, const choice *c)
{
    const td_yaml *section, *all = td_yaml_get(s->table->doc, "epochs");
    if (!*c->epochs)
        return TD_OK;
    if (!has_epochs(c->model, c->epochs))
        return td_error(TD_EUSAGE, "'%s' has no preset with 50 epochs, wanted 90 or 250", c->model);
    TD_TRY(pick(s->table, all, "number of epochs", c->epochs,
                " for a preset (--epochs accepts any)", &section));
    return merge(s, section);
}

static td_status check_complete(const choice *c, const td_train_opts *o)
{
    if (td_text_starts(c->model, "efficientnet-quant"))
        return td_error(TD_EUSAGE,
                        "'%s': training of quantized networks is not supported; wanted "
                        "efficientnet-b0 or efficientnet-b4",
                        c->model);
    if (!*c->model && o->model.model)
        return td_error(
            TD_EUSAGE,
            "--model: '%s' is neither a file nor a preset network ('--preset list' shows those)",
            o->model.model);
    if (!*c->model)
        return td_error(TD_EUSAGE,
                        "--platform and --cfg_file require --model, for example resnet50");
    if (*c->platform && !*c->precision)
        return td_error(TD_EUSAGE,
                        "'%s' on '%s' requires a precision: --precision AMP, FP32 or TF32",
                        c->model, c->platform);
    if ((o->launch.cfg_file || c->is_2019) && !*c->platform)
        return td_error(TD_EUSAGE, "%s requires --platform, for example DGX1V",
                        c->is_2019 ? "a preset of 2019-12" : "--cfg_file");
    return TD_OK;
}

/* --- applying the settings -------------------------------------------------------------------- */

static bool is_true(const settings *s, const char *name)
{
    const char *text = td_yaml_text(td_map_get(&s->lines, name));
    return text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0 ||
                    strcasecmp(text, "on") == 0);
}

static td_status set(const settings *s, const td_field_group *groups, const char *name,
                     const td_yaml *y, td_arena *arena)
{
    const char *value = td_yaml_text(y);
    if (td_yaml_is_null(y))
        return TD_OK; /* None: not set */
    if (strcmp(name, "save_checkpoints") == 0) {
        name = "no_checkpoints";
        value = is_true(s, "save_checkpoints") ? "false" : "true";
    }
    TD_TRY_MSG(td_options_set(groups, name, value, arena), "%s: line %d", s->table->path,
               td_yaml_line(y));
    return TD_OK;
}

/* Since 2022 the reference's loss scale is always dynamic and starts at --static-loss-scale. */
static td_status set_scaler(const settings *s, const td_field_group *groups, td_arena *arena)
{
    if (!is_true(s, "amp") || !td_map_has(&s->lines, "static_loss_scale") ||
        td_map_has(&s->lines, "dynamic_loss_scale"))
        return TD_OK;
    TD_TRY(td_options_set(groups, "dynamic_loss_scale", "true", arena));
    return td_options_set(groups, "loss_scaler", "nvidia", arena);
}

/* With "amp: false" alone, the environment would decide about the precision. */
static td_status set_precision(const choice *c, const td_field_group *groups, td_arena *arena)
{
    if (strcasecmp(c->precision, "FP32") == 0 || strcasecmp(c->precision, "TF32") == 0)
        return td_options_set(groups, "precision", c->precision, arena);
    return TD_OK;
}

/* A recipe that saves no checkpoints is a benchmark, which writes a report anyway. */
static void note_report(td_train_opts *o, const settings *s)
{
    o->launch.keeps_report =
        td_map_has(&s->lines, "save_checkpoints") && !is_true(s, "save_checkpoints");
}

/* Scale the learning rate linearly with the batch size: 0.256 for 256 images. */
static td_status set_rule(td_train_opts *o, double batch, const td_field_group *groups,
                          td_arena *arena)
{
    char text[40];
    o->launch.rule_lr = 0.256 * batch / 256;
    snprintf(text, sizeof text, "%.17g", o->launch.rule_lr);
    return td_options_set(groups, "lr", text, arena);
}

/*
 * The command line selects float32: discard the preset's mixed precision and loss scaling.  Options
 * of the command line are applied again later.
 */
static td_status set_float32(const td_field_group *groups, td_arena *arena)
{
    static const char *const values[][2] = { { "amp", "false" },
                                             { "fp16", "false" },
                                             { "static_loss_scale", "-1" },
                                             { "dynamic_loss_scale", "false" },
                                             { "loss_scaler", "auto" } };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        TD_TRY(td_options_set(groups, values[i][0], values[i][1], arena));
    return TD_OK;
}

static td_status apply(td_train_opts *o, const settings *s, const choice *c,
                       const td_field_group *groups, td_arena *arena)
{
    const double batch = td_train_step_images(o);
    /* only the command line has been applied yet */
    const bool wants_float32 = td_amp_is_off(&o->amp);
    for (size_t i = 0; i < s->lines.n; i++)
        TD_TRY(set(s, groups, s->lines.entries[i].key, s->lines.entries[i].value, arena));
    note_report(o, s);
    TD_TRY(set_scaler(s, groups, arena));
    TD_TRY(set_precision(c, groups, arena));
    if (wants_float32)
        TD_TRY(set_float32(groups, arena));
    if (*c->model && !*c->platform)
        TD_TRY(set_rule(o, batch, groups, arena));
    snprintf(o->launch.name, sizeof o->launch.name, "%s%s%s%s%s%s%s%s", c->model,
             *c->platform ? "/" : "", c->platform, *c->precision ? "/" : "", c->precision,
             *c->epochs ? "/" : "", c->epochs, c->is_2019 ? "/" EDITION : "");
    return TD_OK;
}

static td_status merge_all(settings *s, const choice *c)
{
    const td_yaml *ed = edition(s->table, c);
    TD_TRY(merge_named(s, ed, "precision", c->precision));
    TD_TRY(merge_named(s, ed, "platform", c->platform));
    TD_TRY(merge_model(s, c));
    TD_TRY(merge_named(s, ed, "mode", *c->mode ? c->mode : "convergence"));
    return merge_epochs(s, c);
}

/* --- detectors -------------------------------------------------------------------------------- */

/* The section of the detector named by --preset or --arch; *parts: the rest of --preset. */
static const td_yaml *find_detector(const table *t, const td_train_opts *o, const char **parts)
{
    const td_yaml *all = td_yaml_get(t->doc, "detectors");
    const char *name = o->launch.preset ? o->launch.preset : o->model.arch, *key;
    char model[PART_BYTES];
    snprintf(model, sizeof model, "%.*s", (int)strcspn(name, "/"), name);
    if (td_arch_known(model)) /* "-" for "_" */
        snprintf(model, sizeof model, "%s", td_arch_known(model)->name);
    *parts = o->launch.preset ? name + strcspn(name, "/") : "";
    return o->model.model ? NULL : find_any_case(all, model, &key);
}

/* Merge the parts of a preset, "/8gpus/AMP". */
static td_status merge_parts(settings *s, const td_yaml *detector, const char *parts, choice *c)
{
    while (*parts) {
        char part[PART_BYTES];
        const td_yaml *config;
        const size_t n = strcspn(++parts, "/");
        if (n == 0 || n >= sizeof part)
            return td_error(TD_EUSAGE, "--preset has an empty or overlong part");
        snprintf(part, sizeof part, "%.*s", (int)n, parts);
        parts += n;
        if (has(td_yaml_get(s->table->doc, "precision"), part)) {
            TD_TRY(set_part(c->precision, part, "precisions"));
            continue;
        }
        TD_TRY(pick(s->table, detector, "configuration", part, "", &config));
        TD_TRY(set_part(c->platform, part, "configurations"));
        TD_TRY(merge(s, config));
    }
    return TD_OK;
}

/* A configuration's number of steps replaces its recipe's number of epochs. */
static void count_steps(td_train_opts *o, bool counts_steps)
{
    o->launch.counts_steps = counts_steps;
    if (counts_steps)
        o->length.epochs = TD_PRESET_OPEN;
}

/*
 * Leave open what depends on all options: without a configuration, the learning rate is for the
 * images of a step; --epochs replaces a configuration's number of steps.
 */
static void defer_defaults(td_train_opts *o, const settings *s)
{
    if (!td_map_has(&s->lines, "lr"))
        o->lr.peak = TD_PRESET_OPEN;
    count_steps(o, td_map_has(&s->lines, "num_train_steps"));
}

/* Apply the merged settings, and a precision that is a part of the name. */
static td_status apply_named(td_train_opts *o, const settings *s, const choice *c,
                             const td_field_group *groups, td_arena *arena)
{
    const bool wants_float32 = td_amp_is_off(&o->amp);
    for (size_t i = 0; i < s->lines.n; i++)
        TD_TRY(set(s, groups, s->lines.entries[i].key, s->lines.entries[i].value, arena));
    if (strcasecmp(c->precision, "AMP") == 0 && !wants_float32)
        TD_TRY(td_options_set(groups, "amp", "true", arena));
    TD_TRY(set_precision(c, groups, arena));
    note_report(o, s);
    if (o->launch.preset)
        snprintf(o->launch.name, sizeof o->launch.name, "%s", o->launch.preset);
    return TD_OK;
}

static td_status apply_detector(td_train_opts *o, settings *s, const td_yaml *detector,
                                const char *parts, const td_field_group *groups, td_arena *arena)
{
    choice c = { .model = "" };
    TD_TRY(merge(s, td_yaml_get(detector, "recipe")));
    TD_TRY(merge_parts(s, detector, parts, &c));
    TD_TRY(apply_named(o, s, &c, groups, arena));
    defer_defaults(o, s);
    return TD_OK;
}

/* --- recipes of other programs ---------------------------------------------------------------- */

/* The program that --preset begins with, as in "torchvision/resnet50-v2"; *parts: the rest. */
static const td_yaml *find_program(const table *t, const td_train_opts *o, const char **parts)
{
    const char *preset = o->launch.preset ? o->launch.preset : "", *key;
    const size_t n = strcspn(preset, "/");
    char program[PART_BYTES];
    snprintf(program, sizeof program, "%.*s", (int)n, preset);
    *parts = preset + n;
    return find_any_case(td_yaml_get(t->doc, "recipes"), program, &key);
}

static td_status apply_program(td_train_opts *o, settings *s, const td_yaml *program,
                               const char *parts, const td_field_group *groups, td_arena *arena)
{
    choice c = { .model = "" };
    const char *mode = o->launch.mode;
    if (o->launch.platform)
        return td_error(TD_EUSAGE, "--preset '%.80s' and --platform exclude each other",
                        o->launch.preset);
    TD_TRY(merge_parts(s, program, parts, &c));
    if (!*c.platform) {
        td_text names = { 0 };
        add_programs(td_yaml_get(s->table->doc, "recipes"), " ", "", &names);
        td_status st = td_text_status(&names);
        if (st == TD_OK)
            st = td_error(TD_EUSAGE, "--preset: '%.80s' is no recipe, wanted one of%s",
                          o->launch.preset, names.data);
        td_text_release(&names);
        return st;
    }
    if (mode && has(td_yaml_get(s->table->doc, "mode"), mode))
        TD_TRY(merge_named(s, s->table->doc, "mode", mode));
    TD_TRY(apply_named(o, s, &c, groups, arena));
    o->launch.sizes.image_size = o->model.image_size;
    o->launch.sizes.val_resize = o->model.val_resize;
    o->launch.sizes.schedule = o->batch.image_size_schedule;
    return TD_OK;
}

static bool is_tf_mode(const char *mode)
{
    static const char *const modes[] = { "train", "train_and_evaluate", "predict",
                                         "training_benchmark", "inference_benchmark" };
    for (size_t i = 0; mode && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(mode, modes[i]) == 0)
            return true;
    return false;
}

static bool is_ssd300_mode(const char *mode)
{
    return strcmp(mode, "training") == 0 || strcmp(mode, "evaluation") == 0 ||
           strcmp(mode, "benchmark-training") == 0 || strcmp(mode, "benchmark-inference") == 0;
}

/* Modes without a section in the table are left to the job. */
static td_status ignore_job_mode(const td_train_opts *o, choice *c)
{
    if (is_ssd300_mode(c->mode) && td_model_is_default(&o->model))
        return td_error(TD_EUSAGE, "--mode %s requires --arch ssd300", c->mode);
    if (is_tf_mode(c->mode) || is_ssd300_mode(c->mode))
        *c->mode = '\0';
    return TD_OK;
}

static td_status run(const table *t, td_train_opts *o, const td_field_group *groups,
                     td_arena *arena)
{
    choice c;
    settings s = { .table = t };
    const char *parts;
    const td_yaml *detector = find_detector(t, o, &parts);
    if (detector) {
        const td_status st = apply_detector(o, &s, detector, parts, groups, arena);
        td_map_release(&s.lines);
        return st;
    }
    const td_yaml *program = find_program(t, o, &parts);
    if (program) {
        const td_status st = apply_program(o, &s, program, parts, groups, arena);
        td_map_release(&s.lines);
        return st;
    }
    TD_TRY(choose(t, o, &c));
    bool is_launch = o->launch.preset || o->launch.cfg_file || *c.platform || *c.model;
    TD_TRY(ignore_job_mode(o, &c));
    if (!is_launch && !*c.mode)
        return TD_OK;
    td_status st = is_launch ? check_complete(&c, o) : TD_OK;
    if (st == TD_OK)
        st = is_launch ? merge_all(&s, &c) : merge_named(&s, edition(t, &c), "mode", c.mode);
    if (st == TD_OK)
        st = apply(o, &s, &c, groups, arena);
    td_map_release(&s.lines);
    return st;
}

/* A pipeline.config always configures SSD320, whatever network other options name. */
static td_status run_pipeline(const table *t, td_train_opts *o, const td_field_group *groups,
                              td_arena *arena)
{
    const char *const path = o->launch.pipeline_config_path, *key;
    const td_launch_opts requested = o->launch;
    settings s = { .table = t };
    const td_yaml *d = find_any_case(td_yaml_get(t->doc, "detectors"), "ssd320", &key);
    td_status st = apply_detector(o, &s, d, "", groups, arena);
    td_map_release(&s.lines);
    if (st == TD_OK)
        st = td_options_set(groups, "label_ids", "keep", arena);
    if (st == TD_OK)
        st = td_pipeline_read(path, requested.hparams_overrides, groups, arena);
    if (o->length.num_steps <= 0) /* the training is as long as the learning rate's schedule */
        o->length.num_steps = o->lr.total_steps;
    count_steps(o, st == TD_OK && o->length.num_steps > 0);
    return st;
}

td_status td_train_preset(td_train_opts *o, const td_field_group *groups, td_arena *arena)
{
    table t;
    const td_launch_opts *l = &o->launch;
    if (l->pipeline_config_path && l->preset)
        return td_error(TD_EUSAGE, "--preset and --pipeline-config-path exclude each other");
    if (l->hparams_overrides && !l->pipeline_config_path)
        return td_error(TD_EUSAGE, "--hparams-overrides requires --pipeline-config-path");
    if (o->launch.preset && strcmp(o->launch.preset, "list") == 0)
        return TD_OK;
    TD_TRY(open_table(o->launch.cfg_file, &t));
    const td_given given = o->given;
    td_status st =
        l->pipeline_config_path ? run_pipeline(&t, o, groups, arena) : run(&t, o, groups, arena);
    o->given = given; /* the user did not give what a preset sets */
    td_yaml_free(t.doc);
    return st;
}

void td_train_log_preset(const td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const double batch = td_train_step_images(o);
    if (!*l->name)
        return;
    if (l->rule_lr > 0 && o->lr.peak == l->rule_lr)
        td_log(TD_LOG_INFO, "train", "preset %s: lr %g, 0.256 for every 256 images of a step of %g",
               l->name, o->lr.peak, batch);
    else
        td_log(TD_LOG_INFO, "train", "preset %s: lr %g, step of %g images", l->name, o->lr.peak,
               batch);
}

/* --- the list --------------------------------------------------------------------------------- */

static const char *value_of(const td_yaml *row, const char *name)
{
    const char *text = td_yaml_text(td_yaml_get(row, name));
    return text ? text : "-";
}

/* Add a line such as "resnet50/T4/AMP   256   2048   2.048 ...". */
static void add_row(const char *name, const td_yaml *row, td_text *out)
{
    td_text_add(out, "%-44s %6s %6s %7s %-16s %4s\n", name, value_of(row, "batch_size"),
                value_of(row, "optimizer_batch_size"), value_of(row, "lr"),
                value_of(row, "weight_decay"), value_of(row, "warmup"));
}

static void add_recipe(const char *model, const char *platform, const char *precision,
                       const char *tail, const td_yaml *row, td_text *out)
{
    td_text name = { 0 };
    td_text_add(&name, "%s/%s/%s%s", model, platform, precision, tail);
    add_row(td_text_get(&name), row, out);
    if (td_text_status(&name) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&name);
    td_text_release(&name);
}

static void add_models(const td_yaml *models, const char *tail, td_text *out)
{
    for (size_t m = 0; m < td_yaml_count(models); m++) {
        const td_yaml *model = td_yaml_member(models, m);
        for (size_t p = 0; p < td_yaml_count(model); p++)
            for (size_t q = 0; q < td_yaml_count(td_yaml_member(model, p)); q++)
                add_recipe(key_of(models, m), key_of(model, p), key_of(td_yaml_member(model, p), q),
                           tail, td_yaml_member(td_yaml_member(model, p), q), out);
    }
}

/* Add the names, such as "ssd320/8gpus", each between `before` and `after`. */
static void add_detectors(const td_yaml *detectors, const char *before, const char *after,
                          td_text *out)
{
    for (size_t m = 0; m < td_yaml_count(detectors); m++) {
        const td_yaml *configs = td_yaml_member(detectors, m);
        for (size_t i = 0; i < td_yaml_count(configs); i++)
            if (strcmp(key_of(configs, i), "recipe") == 0)
                td_text_add(out, "%s%s%s", before, key_of(detectors, m), after);
            else
                td_text_add(out, "%s%s/%s%s", before, key_of(detectors, m), key_of(configs, i),
                            after);
    }
}

/* Add lines such as "timm/resnet50-a1   512   2048   0.005 ...". */
static void add_program_rows(const td_yaml *programs, td_text *out)
{
    for (size_t i = 0; i < td_yaml_count(programs); i++) {
        const td_yaml *recipes = td_yaml_member(programs, i);
        for (size_t k = 0; k < td_yaml_count(recipes); k++) {
            char name[2 * PART_BYTES];
            snprintf(name, sizeof name, "%s/%s", key_of(programs, i), key_of(recipes, k));
            add_row(name, td_yaml_member(recipes, k), out);
        }
    }
}

static void add_line(const char *head, const td_yaml *map, td_text *out)
{
    td_text_add(out, "%s", head);
    add_names(map, out);
    td_text_add(out, "\n");
}

static void add_list(const table *t, td_text *out)
{
    const td_yaml *old = td_yaml_get(t->doc, EDITION), *rule = td_yaml_get(t->doc, "rule");
    const td_yaml *epochs = td_yaml_get(t->doc, "epochs");
    if (rule)
        td_text_add(out, "MODEL or MODEL/EPOCHS: for any machine, lr 0.256 for every 256 images\n");
    for (size_t i = 0; i < td_yaml_count(rule); i++)
        td_text_add(out, "%s\n", key_of(rule, i));
    td_text_add(out, "\n%-44s %6s %6s %7s %-16s %4s\n", "MODEL/PLATFORM/PRECISION", "batch", "step",
                "lr", "weight decay", "warm-up");
    add_models(td_yaml_get(t->doc, "models"), "", out);
    if (old)
        add_models(td_yaml_get(old, "models"), "/" EDITION, out);
    add_program_rows(td_yaml_get(t->doc, "recipes"), out);
    add_detectors(td_yaml_get(t->doc, "detectors"), "", "\n", out);
    td_text_add(out, "\nbatch: images at a time; step: images in an optimizer step\n");
    add_line(has(epochs, "50") ? "further parts, epochs (50: resnet50 only): "
                               : "further parts, epochs: ",
             epochs, out);
    add_line("further parts, modes: ", td_yaml_get(t->doc, "mode"), out);
}

/* Add names such as " resnet50/T4/AMP ...". */
static void add_recipe_names(const td_yaml *models, const char *tail, td_text *out)
{
    for (size_t m = 0; m < td_yaml_count(models); m++) {
        const td_yaml *model = td_yaml_member(models, m);
        for (size_t p = 0; p < td_yaml_count(model); p++)
            for (size_t q = 0; q < td_yaml_count(td_yaml_member(model, p)); q++)
                td_text_add(out, " %s/%s/%s%s", key_of(models, m), key_of(model, p),
                            key_of(td_yaml_member(model, p), q), tail);
    }
}

td_status td_train_preset_names(char **text)
{
    table t;
    td_text out = { 0 };
    *text = NULL;
    TD_TRY(open_table(NULL, &t));
    const td_yaml *old = td_yaml_get(t.doc, EDITION), *rule = td_yaml_get(t.doc, "rule");
    const td_yaml *epochs = td_yaml_get(t.doc, "epochs");
    td_text_add(&out, "list");
    for (size_t i = 0; i < td_yaml_count(rule); i++) {
        td_text_add(&out, " %s", key_of(rule, i));
        for (size_t k = 0; k < td_yaml_count(epochs); k++)
            if (has_epochs(key_of(rule, i), key_of(epochs, k)))
                td_text_add(&out, " %s/%s", key_of(rule, i), key_of(epochs, k));
    }
    add_recipe_names(td_yaml_get(t.doc, "models"), "", &out);
    if (old)
        add_recipe_names(td_yaml_get(old, "models"), "/" EDITION, &out);
    add_programs(td_yaml_get(t.doc, "recipes"), " ", "", &out);
    add_detectors(td_yaml_get(t.doc, "detectors"), " ", "", &out);
    td_yaml_free(t.doc);
    return td_text_take(&out, TD_OK, text);
}

td_status td_train_presets(const char *cfg_file, char **text)
{
    table t;
    td_text out = { 0 };
    *text = NULL;
    TD_TRY(open_table(cfg_file, &t));
    add_list(&t, &out);
    td_yaml_free(t.doc);
    return td_text_take(&out, TD_OK, text);
}

const char *td_train_preset_yaml(void)
{
    return td_embedded_presets_yaml;
}

bool td_train_is_preset_model(const td_train_opts *o)
{
    table t;
    if (!o->model.model)
        return false;
    if (open_table(o->launch.cfg_file, &t) != TD_OK)
        return false;
    bool is_name = is_model_name(&t, o->model.model);
    td_yaml_free(t.doc);
    return is_name;
}
