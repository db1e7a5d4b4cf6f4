/*
 * amp_env.c -- reads mixed precision's environment variables from a table
 */
#include "amp/amp_env.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define TF "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"

typedef struct {
    td_amp_getenv get;
    void *ctx;
} source;

static const char *process_value(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

/* NULL if unset or empty. */
static const char *value(const source *s, const char *name)
{
    const char *v = s->get(s->ctx, name);
    return v && *v ? v : NULL;
}

/* The index of `text` among n words, without regard to case; -1. */
static int word_index(const char *const *words, int n, const char *text)
{
    for (int i = 0; i < n; i++)
        if (strcasecmp(words[i], text) == 0)
            return i;
    return -1;
}

/* --- switches --------------------------------------------------------------------------------- */

/* Parses a boolean like TensorFlow: an unknown value counts as not set. */
static td_amp_switch tf_switch(const source *s, const char *name)
{
    static const char *const words[] = { "0", "false", "1", "true" };
    const char *v = value(s, name);
    int i = v ? word_index(words, 4, v) : -1;
    return i < 0 ? TD_AMP_UNSET : i < 2 ? TD_AMP_OFF : TD_AMP_ON;
}

static td_amp_switch first_set(td_amp_switch a, td_amp_switch b)
{
    return a != TD_AMP_UNSET ? a : b;
}

static td_status read_amp(const source *s, td_amp_env *e)
{
    static const char *const words[] = { "0", "1", "bf16", "fp16" };
    static const td_dtype half[] = { TD_DT_NONE, TD_DT_NONE, TD_DT_BF16, TD_DT_F16 };
    td_amp_switch both = tf_switch(s, "TF_ENABLE_AUTO_MIXED_PRECISION");
    e->amp = first_set(tf_switch(s, "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE"), both);
    e->loss_scaling = first_set(tf_switch(s, "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"), both);
    e->emulate = tf_switch(s, TF "EMULATE_FP16");
    e->half = TD_DT_NONE;
    const char *v = value(s, "TANDEM_AMP");
    if (!v)
        return TD_OK;
    int i = word_index(words, 4, v);
    if (i < 0)
        return td_error(TD_EUSAGE, "TANDEM_AMP is '%s', wanted 0, 1, bf16 or fp16", v);
    e->amp = i ? TD_AMP_ON : TD_AMP_OFF;
    e->half = half[i];
    return TD_OK;
}

/* --- level and rule --------------------------------------------------------------------------- */

static td_status read_level(const source *s, td_amp_env *e)
{
    static const char *const words[] = {
        [TD_AMP_LEVEL_DEFAULT] = "default",
        [TD_AMP_LEVEL_TENSOR_CORES_ONLY] = "tensor_cores_only",
        [TD_AMP_LEVEL_UNSAFE_FORCE_ALL] = "unsafe_force_all",
        [TD_AMP_LEVEL_TREAT_INFER_AS_DENY] = "treat_infer_as_deny",
    };
    const char *own = value(s, "TANDEM_AMP_LEVEL"), *tf = value(s, TF "LEVEL");
    int i = own || tf ? word_index(words, 4, own ? own : tf) : -1;
    if (own && i < 0)
        return td_error(TD_EUSAGE,
                        "TANDEM_AMP_LEVEL is '%s', wanted default, tensor_cores_only, "
                        "unsafe_force_all or treat_infer_as_deny",
                        own);
    e->has_level = i >= 0;
    e->level = i >= 0 ? (td_amp_level)i : TD_AMP_LEVEL_DEFAULT;
    return TD_OK;
}

static td_status read_rule(const source *s, td_amp_env *e)
{
    static const char *const words[] = {
        [TD_AMP_RULE_CURRENT] = "current",
        [TD_AMP_RULE_2_15] = "2.15",
        [TD_AMP_RULE_CLASSIC] = "classic",
    };
    const char *v = value(s, "TANDEM_AMP_RULE");
    int i = v ? word_index(words, 3, v) : -1;
    if (v && i < 0)
        return td_error(TD_EUSAGE, "TANDEM_AMP_RULE is '%s', wanted current, 2.15 or classic", v);
    e->has_rule = i >= 0;
    e->rule = i >= 0 ? (td_amp_rule)i : TD_AMP_RULE_CURRENT;
    return TD_OK;
}

/* --- list edits ------------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    size_t offset; /* offset of the td_amp_edit */
    const char *own, *newer, *older; /* older: NULL for the clear list */
} edits[] = {
    { offsetof(td_amp_env, allow), "ALLOW", "ALLOWLIST", "WHITELIST" },
    { offsetof(td_amp_env, infer), "INFER", "INFERLIST", "GRAYLIST"  },
    { offsetof(td_amp_env, deny),  "DENY",  "DENYLIST",  "BLACKLIST" },
    { offsetof(td_amp_env, clear), "CLEAR", "CLEARLIST", NULL        },
};
/* clang-format on */

static const char *joined_value(const source *s, const char *prefix, const char *list,
                                const char *verb)
{
    char name[96];
    int n = snprintf(name, sizeof name, "%s%s_%s", prefix, list, verb);
    return n > 0 && (size_t)n < sizeof name ? value(s, name) : NULL;
}

/* texts[0], texts[1]: Tandem's and NULL, or TensorFlow's two spellings. */
static void read_edit(const source *s, size_t row, const char *verb, const char **texts)
{
    const char *own = joined_value(s, "TANDEM_AMP_", edits[row].own, verb);
    texts[0] = own ? own : joined_value(s, TF, edits[row].newer, verb);
    texts[1] = !own && edits[row].older ? joined_value(s, TF, edits[row].older, verb) : NULL;
}

static void read_edits(const source *s, td_amp_env *e)
{
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        td_amp_edit *edit = (td_amp_edit *)(void *)((char *)e + edits[i].offset);
        read_edit(s, i, "ADD", edit->add);
        read_edit(s, i, "REMOVE", edit->remove);
    }
}

td_status td_amp_env_read(td_amp_getenv get, void *ctx, td_amp_env *out)
{
    source s = { .get = get ? get : process_value, .ctx = ctx };
    td_amp_env e = { .amp = TD_AMP_UNSET };
    *out = e;
    TD_TRY(read_amp(&s, &e));
    TD_TRY(read_level(&s, &e));
    TD_TRY(read_rule(&s, &e));
    read_edits(&s, &e);
    const char *own = value(&s, "TANDEM_AMP_LOG_PATH");
    e.log_path = own ? own : value(&s, TF "LOG_PATH");
    *out = e;
    return TD_OK;
}
