/*
 * options.c -- parses command lines against several tables
 *
 * An option is looked up in this order: an exact spelling; "no-" before a BOOL's spelling; the only
 * option with this prefix.  An option named "no-checkpoints" in a table is found by the first rule.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "options/field_parts.h"

#define WORD_BYTES     TD_OPTION_BYTES
#define MAX_CANDIDATES 8

typedef td_option option;

static bool is_short(size_t n)
{
    return n == 1;
}

/* --- walking over every spelling of every row ------------------------------------------------ */

typedef struct {
    const td_field_group *group;
    const td_field *field;
    const char *rest;
    bool is_started, is_behind;
} walk;

/* the next spelling, the row's name before its aliases; NULL at the end */
static const char *next_spelling(walk *w, size_t *n)
{
    for (; w->group->fields; w->group++, w->field = NULL) {
        if (!w->field) {
            w->field = w->group->fields;
            w->is_started = w->is_behind = false;
        }
        for (; w->field->kind != TD_KIND_END; w->field++, w->is_started = false) {
            if (w->field->kind == TD_KIND_TITLE) {
                w->is_behind = w->field->def != 0;
                continue;
            }
            if (w->field->kind == TD_KIND_GIVEN)
                continue;
            if (!w->is_started) {
                w->is_started = true;
                w->rest = w->field->alias;
                *n = strlen(w->field->name);
                return w->field->name;
            }
            const char *piece = td_name_next(&w->rest, n);
            if (piece)
                return piece;
        }
    }
    return NULL;
}

void td_option_spell(const char *name, size_t n, bool is_negated, char out[TD_OPTION_BYTES])
{
    snprintf(out, WORD_BYTES, "%s%s%.*s", is_short(n) ? "-" : "--", is_negated ? "no-" : "", (int)n,
             name);
    for (char *p = out; *p; p++)
        if (*p == '_')
            *p = '-';
}

bool td_option_find(const td_field_group *groups, const char *name, size_t n, option *out)
{
    walk w = { .group = groups };
    size_t m;
    for (const char *s; (s = next_spelling(&w, &m));)
        if (td_name_equal(s, m, name, n)) {
            const char *target = w.field->kind == TD_KIND_ALIAS ? w.field->def_text : NULL;
            *out = (option){ .field = w.field, .base = w.group->base, .fields = w.group->fields };
            return !target || td_option_find(groups, target, strlen(target), out);
        }
    return false;
}

/* an option that needs no value */
static bool is_switch(const td_field *f)
{
    return f->kind == TD_KIND_BOOL || (f->kind == TD_KIND_ACCEPTED && !f->meta);
}

static bool is_no(const char *name, size_t n)
{
    return n > 3 && td_name_equal(name, 3, "no-", 3);
}

/* "no-amp", and, as in TensorFlow's flags, "noamp" */
static bool find_negated(const td_field_group *groups, const char *name, size_t n, option *out)
{
    size_t n_no = is_no(name, n) ? 3 : n > 3 && strncmp(name, "no", 2) == 0 ? 2 : 0;
    if (!n_no || !td_option_find(groups, name + n_no, n - n_no, out) || is_short(n - n_no) ||
        !is_switch(out->field))
        return false;
    out->is_negated = true;
    return true;
}

/* --- prefixes and suggestions ---------------------------------------------------------------- */

typedef struct {
    option options[MAX_CANDIDATES];
    char words[MAX_CANDIDATES][WORD_BYTES];
    int n; /* count; may exceed the array */
} candidates;

static void add_candidate(candidates *c, const walk *w, const char *name, size_t n, bool is_negated)
{
    for (int i = 0; i < c->n && i < MAX_CANDIDATES; i++)
        if (c->options[i].field == w->field && c->options[i].is_negated == is_negated)
            return; /* another spelling of the same option */
    if (c->n < MAX_CANDIDATES) {
        c->options[c->n] = (option){ w->field, w->group->base, is_negated, w->group->fields };
        td_option_spell(name, n, is_negated, c->words[c->n]);
    }
    c->n++;
}

static void find_prefix(const td_field_group *groups, const char *name, size_t n, bool is_behind,
                        candidates *c)
{
    walk w = { .group = groups };
    size_t m;
    for (const char *s; (s = next_spelling(&w, &m));) {
        if (is_short(m) || w.is_behind != is_behind || !td_field_has_member(w.field))
            continue;
        if (m > n && td_name_equal(s, n, name, n))
            add_candidate(c, &w, s, m, false);
        if (is_no(name, n) && w.field->kind == TD_KIND_BOOL && m > n - 3 &&
            td_name_equal(s, n - 3, name + 3, n - 3))
            add_candidate(c, &w, s, m, true);
    }
}

static td_status ambiguous(const char *word, const candidates *c)
{
    td_text list = { 0 };
    int shown = c->n < MAX_CANDIDATES ? c->n : MAX_CANDIDATES;
    for (int i = 0; i < shown; i++)
        td_text_add(&list, "%s%s", i ? ", " : "", c->words[i]);
    td_status st = td_text_status(&list);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "option '%s' is ambiguous: %s%s", word, td_text_get(&list),
                      c->n > shown ? ", ..." : "");
    td_text_release(&list);
    return st;
}

/* the length of the common prefix of two words; '-' and '_' are equal */
static size_t common_letters(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && b[n] && td_name_equal(a + n, 1, b + n, 1))
        n++;
    return n;
}

/* the similarity of a name to the word: first the common prefix, then the edit distance */
typedef struct {
    size_t n_common;
    int distance;
} similarity;

/* --epoch-count for --epochs: the first part of the word, but for the plural */
static bool is_first_part(const char *word, const char *name, size_t n_common)
{
    enum { PLURAL = 2 };
    const size_t n = strcspn(word, "-_");
    return word[n] && n > 2 && n_common >= n && strlen(name) <= n + PLURAL;
}

/* --num-epochs or --num-epoch for --epochs: the last parts of the word; nearer than --run-epochs */
static bool is_last_part(const char *word, const char *name, int *distance)
{
    enum { ALIKE = 2 };
    const size_t n = strlen(word);
    size_t m = strlen(name);
    if (m > 3 && name[m - 1] == 's' && n > 0 && word[n - 1] != 's')
        m--;
    if (m <= 2 || n <= m || !strchr("-_", word[n - m - 1]) ||
        !td_name_equal(word + n - m, m, name, m))
        return false;
    *distance = *distance < ALIKE ? *distance : ALIKE;
    return true;
}

/* false: not similar.  Similar also if one is a prefix of the other: the word of the name (in
   config files, which do not accept prefixes), or the name of the word: --lrate, --lr */
static bool is_similar(const char *word, const char *name, similarity *out)
{
    if (is_no(word, strlen(word)) && is_no(name, strlen(name))) { /* the rest must be similar */
        word += strlen("no-");
        name += strlen("no-");
    }
    bool is_near = td_name_is_near(word, name, &out->distance);
    out->n_common = common_letters(word, name);
    if (strlen(word) > 2 && td_text_starts(name, word)) {
        is_near = true;
        out->distance = 0;
    }
    is_near |= is_last_part(word, name, &out->distance);
    return is_near || (strlen(name) > 1 && !name[out->n_common]) ||
           is_first_part(word, name, out->n_common);
}

static bool is_more_similar(const similarity *a, const similarity *b)
{
    return a->n_common != b->n_common ? a->n_common > b->n_common : a->distance < b->distance;
}

/* The options whose last parts the word is: --smoothing for --label-smoothing */
static void find_ending(const td_field_group *groups, const char *word, candidates *c)
{
    walk w = { .group = groups };
    const size_t n = strlen(word);
    size_t m;
    for (const char *s; (s = next_spelling(&w, &m));)
        if (n > 2 && m > n && td_field_has_member(w.field) && strchr("-_", s[m - n - 1]) &&
            td_name_equal(s + m - n, n, word, n))
            add_candidate(c, &w, s, m, false);
}

td_status td_option_unknown(const td_field_group *groups, const char *word, bool dashes)
{
    walk w = { .group = groups };
    char best_word[WORD_BYTES] = "", full[WORD_BYTES];
    const char *bare = word + strspn(word, "-");
    similarity best = { 0, INT_MAX }, now;
    size_t n;
    for (const char *s; (s = next_spelling(&w, &n));)
        for (int is_negated = 0; is_negated <= (w.field->kind == TD_KIND_BOOL); is_negated++) {
            td_option_spell(s, n, is_negated, full);
            if (is_short(n) || w.field->kind == TD_KIND_REFUSED)
                continue;
            if (is_similar(bare, full + 2, &now) && is_more_similar(&now, &best)) {
                best = now;
                snprintf(best_word, sizeof best_word, "%s", dashes ? full : full + 2);
            }
        }
    candidates c = { .n = 0 };
    if (!*best_word)
        find_ending(groups, bare, &c);
    const char *shown = c.n == 1 ? c.words[0] + (dashes ? 0 : 2) : best_word;
    return td_error(TD_EUSAGE, "unknown option '%s'%s%s%s", word, *shown ? ", did you mean '" : "",
                    shown, *shown ? "'?" : "");
}

/* --- command lines --------------------------------------------------------------------------- */

typedef struct {
    const td_field_group *groups;
    int argc, next;
    char **argv;
    td_arena *arena;
    td_option_visit visit; /* NULL: set the options */
    void *ctx;
} line;

static bool looks_numeric(const char *s)
{
    s += *s == '-' || *s == '+';
    s += *s == '.';
    return isdigit((unsigned char)*s) || strcmp(s, "inf") == 0;
}

/* is the argument an option rather than a value? */
static bool looks_like_option(const td_field_group *groups, const char *arg)
{
    option found;
    if (arg[0] != '-' || arg[1] == '\0')
        return false;
    return arg[1] == '-' || (!looks_numeric(arg) && td_option_find(groups, arg + 1, 1, &found));
}

td_status td_option_set(const td_option *o, const char *value, td_arena *arena, const char *subject)
{
    if (o->field->kind == TD_KIND_REFUSED)
        return td_error(TD_EUSAGE, "%s is not supported: %s", subject, o->field->def_text);
    if (o->field->kind == TD_KIND_ACCEPTED)
        return TD_OK;
    TD_TRY(td_field_set_as(o->field, o->base, value, arena, subject));
    td_given_note(o->fields, o->field, o->base, false);
    return TD_OK;
}

static td_status set(line *l, const option *o, const char *value, const char *subject)
{
    if (l->visit) {
        l->visit(l->ctx, o->field, subject);
        return TD_OK;
    }
    TD_TRY(td_option_set(o, value, l->arena, subject));
    if (td_field_has_member(o->field))
        td_given_note(o->fields, o->field, o->base, true);
    return TD_OK;
}

static bool is_whole_number(const char *s)
{
    return *s && strspn(s, "0123456789") == strlen(s);
}

/* "--multistep 43 54" of a list of numbers is "43,54" */
static td_status set_list(line *l, const option *o, const char *subject)
{
    td_text list = { 0 };
    td_text_add(&list, "%s", l->argv[l->next++]);
    while (l->next < l->argc && is_whole_number(l->argv[l->next]))
        td_text_add(&list, ",%s", l->argv[l->next++]);
    td_status st = td_text_status(&list);
    if (st == TD_OK)
        st = set(l, o, td_text_get(&list), subject);
    td_text_release(&list);
    return st;
}

static bool is_list_of_numbers(const line *l, const td_field *f)
{
    return f->kind == TD_KIND_TEXT && f->meta && strcmp(f->meta, TD_META_NUMBERS) == 0 &&
           is_whole_number(l->argv[l->next]);
}

static td_status set_from_next(line *l, const option *o, const char *subject)
{
    const bool has_value = l->next < l->argc && !looks_like_option(l->groups, l->argv[l->next]);
    if (has_value && is_list_of_numbers(l, o->field))
        return set_list(l, o, subject);
    if (has_value)
        return set(l, o, l->argv[l->next++], subject);
    td_text range = { 0 };
    td_field_range(o->field, &range);
    td_status st = td_text_status(&range);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "%s: the value is missing%s%s", subject,
                      range.len ? ", wanted " : "", td_text_get(&range));
    td_text_release(&range);
    return st;
}

static td_status find_long(const td_field_group *groups, const char *name, size_t n,
                           const char *word, option *out)
{
    if (!is_short(n) &&
        (td_option_find(groups, name, n, out) || find_negated(groups, name, n, out)))
        return TD_OK;
    candidates c = { .n = 0 };
    if (n > 0)
        find_prefix(groups, name, n, false, &c);
    if (n > 0 && c.n == 0)
        find_prefix(groups, name, n, true, &c);
    if (c.n > 1)
        return ambiguous(word, &c);
    if (c.n == 0)
        return td_option_unknown(groups, word, true);
    *out = c.options[0];
    return TD_OK;
}

/* is it an INT option given without a number: "--gather-checkpoints DIR"? */
static bool is_bare(const line *l, const td_field *f)
{
    return f->kind == TD_KIND_INT && f->def_text &&
           (l->next == l->argc || !looks_numeric(l->argv[l->next]));
}

/* "--name", "--name=value", "--no-name" */
static td_status parse_long(line *l, const char *arg)
{
    option o;
    char word[WORD_BYTES], subject[WORD_BYTES];
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;

    snprintf(word, sizeof word, "%.*s", n + 2 < WORD_BYTES ? (int)n + 2 : WORD_BYTES - 1, arg);
    TD_TRY(find_long(l->groups, name, n, word, &o));
    td_option_spell(o.field->name, strlen(o.field->name), o.is_negated, subject);
    if (o.is_negated && value)
        return td_error(TD_EUSAGE, "%s: takes no value, found '%s'", subject, value);
    if (value)
        return set(l, &o, value, subject);
    if (is_switch(o.field) || o.field->kind == TD_KIND_REFUSED)
        return set(l, &o, o.is_negated ? "false" : "true", subject);
    if (is_bare(l, o.field))
        return set(l, &o, o.field->def_text, subject);
    return set_from_next(l, &o, subject);
}

/*
 * Refuse "-arch": a long option after one dash.  Otherwise it would be read as -a with the value
 * "rch".
 */
static td_status check_dashes(const td_field_group *groups, const char *arg)
{
    option o;
    char word[WORD_BYTES];
    const size_t n = strcspn(arg + 1, "=");
    if (is_short(n) || (!td_option_find(groups, arg + 1, n, &o) &&
                        !(is_no(arg + 1, n) && find_negated(groups, arg + 1, n, &o))))
        return TD_OK;
    snprintf(word, sizeof word, "%.*s", (int)n, arg + 1);
    return td_error(TD_EUSAGE, "unknown option '-%s', did you mean '--%s'?", word, word);
}

/* "-b8", "-b=8", "-b 8", and flags together, "-xv" */
static td_status parse_short(line *l, const char *arg)
{
    TD_TRY(check_dashes(l->groups, arg));
    for (const char *p = arg + 1; *p; p++) {
        option o;
        char subject[WORD_BYTES], letter[3] = { '-', *p, '\0' };
        if (!td_option_find(l->groups, p, 1, &o))
            return td_option_unknown(l->groups, p == arg + 1 ? arg : letter, true);
        td_option_spell(o.field->name, strlen(o.field->name), false, subject);
        bool has_equals = p[1] == '=';
        if (has_equals || (o.field->kind != TD_KIND_BOOL && p[1]))
            return set(l, &o, p + 1 + has_equals, subject);
        if (o.field->kind != TD_KIND_BOOL)
            return set_from_next(l, &o, subject);
        TD_TRY(set(l, &o, "true", subject));
    }
    return TD_OK;
}

static td_status parse_line(line *start, const char **rest, int *n_rest, bool is_head)
{
    line l = *start;
    const td_field_group *groups = l.groups;
    const int argc = l.argc;
    char **argv = l.argv;
    bool is_over = false;
    *n_rest = 0;
    while (l.next < argc) {
        const char *arg = argv[l.next++];
        bool is_plain = is_over || arg[0] != '-' || arg[1] == '\0';
        option digit;
        if (!is_plain && arg[1] != '-' && looks_numeric(arg))
            is_plain = !td_option_find(groups, arg + 1, 1, &digit);
        if (is_plain)
            rest[(*n_rest)++] = arg;
        else if (strcmp(arg, "--") == 0)
            is_over = true;
        if (is_head && (is_plain || is_over)) {
            while (l.next < argc)
                rest[(*n_rest)++] = argv[l.next++];
            return TD_OK;
        }
        if (is_plain || is_over)
            continue;
        if (arg[1] == '-')
            TD_TRY(parse_long(&l, arg));
        else
            TD_TRY(parse_short(&l, arg));
    }
    return TD_OK;
}

td_status td_options_parse(const td_field_group *groups, int argc, char **argv, const char **rest,
                           int *n_rest, td_arena *arena)
{
    line l = { .groups = groups, .argc = argc, .argv = argv, .arena = arena };
    return parse_line(&l, rest, n_rest, false);
}

td_status td_options_parse_head(const td_field_group *groups, int argc, char **argv,
                                const char **rest, int *n_rest, td_arena *arena)
{
    line l = { .groups = groups, .argc = argc, .argv = argv, .arena = arena };
    return parse_line(&l, rest, n_rest, true);
}

td_status td_options_visit(const td_field_group *groups, int argc, char **argv, bool is_head,
                           td_option_visit visit, void *ctx, td_arena *arena)
{
    int n_rest;
    const char **rest = td_arena_alloc(arena, (size_t)argc + 1, sizeof *rest);
    line l = { .groups = groups, .argc = argc, .argv = argv, .visit = visit, .ctx = ctx };
    l.arena = arena;
    return rest ? parse_line(&l, rest, &n_rest, is_head) : TD_ENOMEM;
}
