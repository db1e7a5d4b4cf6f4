/*
 * amp_lists.c -- builds the four lists: a column of the table, then the edits, then a search for
 * duplicates
 *
 * The order is TensorFlow's: level tensor_cores_only skips three lists, so that edits of those are
 * ignored; treat_infer_as_deny applies after the edits, so that it changes the meaning of a class
 * and not the contents of the lists.
 */
#include "amp/amp_lists.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { ALLOW, INFER, DENY, CLEAR, N_LISTS };

typedef struct {
    const char **names; /* sorted when done; borrowed from the table or the arena */
    size_t n, cap;
} list;

struct td_amp_lists {
    list of[N_LISTS];
    list conflict;
    bool infer_denies;
    td_arena texts;
};

static const char *const list_names[N_LISTS] = { "allow", "infer", "deny", "clear" };
static const char letters[] = "AIDC"; /* the letters of these in the table */

/* clang-format off */
static const struct {
    const char *half;     /* one letter for each rule: 1.15, 2.15, current */
    const char *bfloat16; /* 2.15, current */
    const char *name;
} table[] = {
#define OP(half, bfloat16, name) { half, bfloat16, name },
#include "amp/amp_lists.def"
#undef OP
};
/* clang-format on */

#define N_TABLE (sizeof table / sizeof table[0])

/* Half on the CPU by the vector library: infer ops in addition to those in the half column. */
static const char *const infer_on_cpu[] = { "Rsqrt", "Square", "SquaredDifference" };

static int list_index(td_amp c)
{
    switch (c) {
    case TD_AMP_ALLOW:
        return ALLOW;
    case TD_AMP_INFER:
        return INFER;
    case TD_AMP_DENY:
        return DENY;
    case TD_AMP_CLEAR:
        return CLEAR;
    default:
        return -1;
    }
}

static char letter_of(size_t row, const td_amp_list_opts *o)
{
    bool is_current = o->rule == TD_AMP_RULE_CURRENT;
    if (o->mode == TD_AMP_MODE_BF16)
        return table[row].bfloat16[is_current]; /* the classic rule uses the list of 2.15 */
    if (o->mode == TD_AMP_MODE_FP16_CPU)
        for (size_t i = 0; i < sizeof infer_on_cpu / sizeof infer_on_cpu[0]; i++)
            if (strcmp(table[row].name, infer_on_cpu[i]) == 0)
                return 'I';
    return table[row].half[is_current ? 2 : o->rule == TD_AMP_RULE_2_15];
}

/* --- names in a list -------------------------------------------------------------------------- */

static size_t find(const list *l, const char *name)
{
    size_t i = 0;
    while (i < l->n && strcmp(l->names[i], name) != 0)
        i++;
    return i;
}

static td_status put(list *l, const char *name)
{
    TD_TRY(td_reserve(&l->names, &l->cap, l->n + 1, sizeof *l->names));
    l->names[l->n++] = name;
    return TD_OK;
}

static td_status put_text(td_amp_lists *ls, list *l, const char *name)
{
    if (find(l, name) < l->n)
        return TD_OK;
    const char *copy = td_arena_text(&ls->texts, name);
    return copy ? put(l, copy) : TD_ENOMEM;
}

static void remove_name(list *l, const char *name)
{
    size_t i = find(l, name);
    if (i < l->n)
        l->names[i] = l->names[--l->n];
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort(list *l)
{
    if (l->n)
        qsort(l->names, l->n, sizeof *l->names, by_text);
}

static bool holds(const list *l, const char *name)
{
    return l->n && bsearch(&name, l->names, l->n, sizeof *l->names, by_text);
}

/* --- edits ------------------------------------------------------------------------------------ */

static td_status edit(td_amp_lists *ls, list *l, const char *texts, bool is_add,
                      const td_amp_list_opts *o)
{
    if (!texts)
        return TD_OK;
    char *name = td_copy_text(texts);
    if (!name)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (char *s = name, *next; s; s = next) {
        next = strchr(s, ',');
        if (next)
            *next++ = '\0';
        const char *full = o->resolve && *s ? o->resolve(s) : s;
        if (!*s)
            continue;
        if (is_add)
            TD_OUT(put_text(ls, l, full));
        else
            remove_name(l, full);
    }
out:
    td_free(name);
    return st;
}

static td_status edit_all(td_amp_lists *ls, const td_amp_list_opts *o, bool allow_only)
{
    const td_amp_edit *edits[N_LISTS] = { &o->allow, &o->infer, &o->deny, &o->clear };
    for (int k = 0; k < (allow_only ? 1 : N_LISTS); k++)
        for (int spelling = 0; spelling < 2; spelling++) {
            TD_TRY(edit(ls, &ls->of[k], edits[k]->add[spelling], true, o));
            TD_TRY(edit(ls, &ls->of[k], edits[k]->remove[spelling], false, o));
        }
    return TD_OK;
}

static int times_listed(const td_amp_lists *ls, const char *name)
{
    int n = 0;
    for (int k = 0; k < N_LISTS; k++)
        n += holds(&ls->of[k], name);
    return n;
}

static td_status find_conflicts(td_amp_lists *ls)
{
    for (int k = 0; k < N_LISTS; k++)
        for (size_t i = 0; i < ls->of[k].n; i++)
            if (times_listed(ls, ls->of[k].names[i]) > 1)
                TD_TRY(put(&ls->conflict, ls->of[k].names[i]));
    sort(&ls->conflict);
    return TD_OK;
}

static td_status fill(td_amp_lists *ls, const td_amp_list_opts *o)
{
    bool allow_only = o->level == TD_AMP_LEVEL_TENSOR_CORES_ONLY && o->mode != TD_AMP_MODE_BF16;
    for (size_t i = 0; i < N_TABLE; i++) {
        const char *at = strchr(letters, letter_of(i, o));
        if (at && (*at == 'A' || !allow_only))
            TD_TRY(put(&ls->of[at - letters], table[i].name));
    }
    TD_TRY(edit_all(ls, o, allow_only));
    for (int k = 0; k < N_LISTS; k++)
        sort(&ls->of[k]);
    ls->infer_denies =
        o->level == TD_AMP_LEVEL_TREAT_INFER_AS_DENY && o->rule != TD_AMP_RULE_CLASSIC;
    return find_conflicts(ls);
}

/* --- public functions ------------------------------------------------------------------------- */

td_status td_amp_lists_new(const td_amp_list_opts *opts, td_amp_lists **out)
{
    *out = NULL;
    td_amp_lists *ls = TD_NEW(td_amp_lists);
    if (!ls)
        return TD_ENOMEM;
    td_status st = fill(ls, opts);
    if (st == TD_OK)
        *out = ls;
    else
        td_amp_lists_free(ls);
    return st;
}

void td_amp_lists_free(td_amp_lists *ls)
{
    if (!ls)
        return;
    for (int k = 0; k < N_LISTS; k++)
        td_free(ls->of[k].names);
    td_free(ls->conflict.names);
    td_arena_release(&ls->texts);
    td_free(ls);
}

td_status td_amp_lists_check(const td_amp_lists *ls)
{
    if (!ls->conflict.n)
        return TD_OK;
    const char *name = ls->conflict.names[0];
    int first = -1, second = -1;
    for (int k = 0; k < N_LISTS; k++)
        if (holds(&ls->of[k], name)) {
            if (first < 0)
                first = k;
            else
                second = k;
        }
    return td_error(TD_EARG, "amp: op '%s' is in the %s list and in the %s list", name,
                    list_names[first], list_names[second]);
}

td_amp td_amp_lists_class(const td_amp_lists *ls, const char *op)
{
    if (!op)
        return TD_AMP_NONE;
    if (holds(&ls->of[ALLOW], op))
        return TD_AMP_ALLOW;
    if (holds(&ls->of[DENY], op))
        return TD_AMP_DENY;
    if (holds(&ls->of[INFER], op))
        return ls->infer_denies ? TD_AMP_DENY : TD_AMP_INFER;
    return holds(&ls->of[CLEAR], op) ? TD_AMP_CLEAR : TD_AMP_NONE;
}

const char *const *td_amp_lists_names(const td_amp_lists *ls, td_amp which, int *n)
{
    int k = list_index(which);
    *n = k < 0 ? 0 : (int)ls->of[k].n;
    return k < 0 ? NULL : (const char *const *)ls->of[k].names;
}

const char *const *td_amp_lists_conflicts(const td_amp_lists *ls, int *n)
{
    *n = (int)ls->conflict.n;
    return (const char *const *)ls->conflict.names;
}

const char *td_amp_class_name(td_amp c)
{
    int k = list_index(c);
    return k < 0 ? "unlisted" : list_names[k];
}
