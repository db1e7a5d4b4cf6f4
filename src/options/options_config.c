/*
 * options_config.c -- reads and writes config files (YAML, JSON, lines) for several tables
 *
 *     # a run                     network:                  {"arch": "resnet18",
 *     arch = resnet18               arch: resnet18           "lr": 0.1}
 *     lr = 0.1                    recipe: {lr: 0.1}
 */
#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "base/file_io.h"
#include "base/json.h"
#include "base/yaml.h"
#include "options/field_parts.h"

#define CONFIG_BYTES ((size_t)1 << 20)

/* --- names and values ------------------------------------------------------------------------ */

td_status td_options_set(const td_field_group *groups, const char *name, const char *value,
                         td_arena *arena)
{
    td_option o;
    if (!td_option_find(groups, name, strlen(name), &o))
        return td_option_unknown(groups, name, false);
    return td_option_set(&o, value, arena, name);
}

/* sets a TEXT to null */
static bool set_none(const td_field_group *groups, const char *name)
{
    td_option o;
    const char *none = NULL;
    if (!td_option_find(groups, name, strlen(name), &o) || o.field->kind != TD_KIND_TEXT)
        return false;
    memcpy((char *)o.base + o.field->offset, &none, sizeof none);
    return true;
}

/* --- lines "name = value" -------------------------------------------------------------------- */

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    s[n] = '\0';
    return s;
}

/* the value without quotes, or up to a '#' that follows a blank */
static char *bare_value(char *value)
{
    char *s = trim(value);
    char *end = *s == '"' ? strchr(s + 1, '"') : NULL;
    char *after = end ? trim(end + 1) : NULL;
    if (after && (*after == '\0' || *after == '#')) {
        *end = '\0';
        return s + 1;
    }
    for (char *p = s; *p; p++)
        if (*p == '#' && (p == s || isspace((unsigned char)p[-1]))) {
            *p = '\0';
            break;
        }
    return trim(s);
}

static td_status read_line(const td_field_group *groups, char *text, td_arena *arena)
{
    char *s = trim(text);
    if (*s == '\0' || *s == '#')
        return TD_OK;
    char *equals = strchr(s, '=');
    if (!equals || equals == s)
        return td_error(TD_EFORMAT, "found '%.60s', wanted name = value", s);
    *equals = '\0';
    return td_options_set(groups, trim(s), bare_value(equals + 1), arena);
}

static td_status read_lines(const td_field_group *groups, char *text, const char *path,
                            td_arena *arena)
{
    int number = 1;
    for (char *s = text, *next; s; s = next, number++) {
        next = strchr(s, '\n');
        if (next)
            *next++ = '\0';
        TD_TRY_MSG(read_line(groups, s, arena), "'%s', line %d", path, number);
    }
    return TD_OK;
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* a JSON value in the form that td_field_set reads */
static td_status json_value(const td_json *j, const char *path, const char *name, td_text *out)
{
    int64_t whole = 0;
    double real = 0;
    const char *text = NULL;
    bool flag = false;
    switch (td_json_kind_of(j)) {
    case TD_JSON_INT:
        TD_TRY(td_json_as_int(j, &whole));
        td_text_add(out, "%lld", (long long)whole);
        break;
    case TD_JSON_REAL:
        TD_TRY(td_json_as_number(j, &real));
        td_real_print(real, out);
        break;
    case TD_JSON_TEXT:
        TD_TRY(td_json_as_text(j, &text));
        td_text_add(out, "%s", text);
        break;
    case TD_JSON_BOOL:
        TD_TRY(td_json_as_bool(j, &flag));
        td_text_add(out, "%s", flag ? "true" : "false");
        break;
    case TD_JSON_NULL:
    case TD_JSON_ARRAY:
    case TD_JSON_OBJECT:
        return td_error(TD_EFORMAT, "'%s': '%s' is not a number, a string or a Boolean", path,
                        name);
    }
    return td_text_status(out);
}

static td_status read_member(const td_field_group *groups, const char *name, const td_json *j,
                             const char *path, td_arena *arena)
{
    if (td_json_kind_of(j) == TD_JSON_NULL && set_none(groups, name))
        return TD_OK;
    td_text value = { 0 };
    td_status st = json_value(j, path, name, &value);
    if (st == TD_OK)
        st = td_options_set(groups, name, td_text_get(&value), arena);
    td_text_release(&value);
    return st;
}

static td_status read_json(const td_field_group *groups, const char *text, size_t n,
                           const char *path, td_arena *arena)
{
    td_json *doc;
    TD_TRY(td_json_parse(text, n, path, &doc));
    td_status st = TD_OK;
    for (size_t i = 0; i < td_json_count(doc) && st == TD_OK; i++) {
        st = read_member(groups, td_json_key(doc, i), td_json_member(doc, i), path, arena);
        if (st == TD_EUSAGE)
            st = td_error_context(st, "'%s'", path);
    }
    td_json_free(doc);
    return st;
}

td_status td_options_config_json(const td_field_group *groups, const char *json, const char *what,
                                 td_arena *arena)
{
    return read_json(groups, json, strlen(json), what, arena);
}

/* --- YAML ------------------------------------------------------------------------------------ */

/* the section's name for a title: "Mixed precision" is mixed_precision */
static void section_name(const char *title, char out[TD_OPTION_BYTES])
{
    size_t i = 0;
    for (; title[i] && i < TD_OPTION_BYTES - 1; i++)
        out[i] = title[i] == ' ' ? '_' : (char)tolower((unsigned char)title[i]);
    out[i] = '\0';
}

/* Is it a section's name in an earlier version? */
static bool is_former_section(const td_field_group *groups, const char *name)
{
    for (const td_field_group *g = groups; g->fields; g++)
        for (const td_field *f = g->fields; f->kind != TD_KIND_END; f++) {
            const char *former, *rest = f->kind == TD_KIND_TITLE ? f->def_text : NULL;
            for (size_t n; (former = td_name_next(&rest, &n));)
                if (td_name_equal(former, n, name, strlen(name)))
                    return true;
        }
    return false;
}

static td_status check_section(const td_field_group *groups, const char *name)
{
    char wanted[TD_OPTION_BYTES], section[TD_OPTION_BYTES], best_name[TD_OPTION_BYTES] = "";
    int best = INT_MAX, distance;
    td_row_walk w = { .group = groups };
    section_name(name, wanted);
    if (is_former_section(groups, wanted))
        return TD_OK;
    while (td_row_next(&w)) {
        section_name(w.title, section);
        if (td_name_equal(section, strlen(section), wanted, strlen(wanted)))
            return TD_OK;
        if (td_name_is_near(wanted, section, &distance) && distance < best) {
            best = distance;
            memcpy(best_name, section, sizeof best_name);
        }
    }
    return td_error(TD_EUSAGE, "unknown section '%s'%s%s%s", name,
                    *best_name ? ", did you mean '" : "", best_name, *best_name ? "'?" : "");
}

/* [conv2d, relu] as the text "conv2d,relu" */
static td_status join_list(const td_yaml *list, const char *name, td_text *out)
{
    for (size_t i = 0; i < td_yaml_count(list); i++) {
        const char *word = td_yaml_text(td_yaml_member(list, i));
        if (!word)
            return td_error(TD_EFORMAT, "'%s' contains a list or a map, wanted a single value",
                            name);
        td_text_add(out, "%s%s", i ? "," : "", word);
    }
    return td_text_status(out);
}

static td_status set_from_yaml(const td_field_group *groups, const char *name, const td_yaml *y,
                               td_arena *arena)
{
    td_text list = { 0 };
    if (td_yaml_kind_of(y) == TD_YAML_TEXT) {
        if (td_yaml_is_null(y) && set_none(groups, name))
            return TD_OK;
        return td_options_set(groups, name, td_yaml_text(y), arena);
    }
    td_status st = join_list(y, name, &list);
    if (st == TD_OK)
        st = td_options_set(groups, name, td_text_get(&list), arena);
    td_text_release(&list);
    return st;
}

static td_status read_map(const td_field_group *groups, const td_yaml *map, bool is_section,
                          const char *path, td_arena *arena)
{
    for (size_t i = 0; i < td_yaml_count(map); i++) {
        const td_yaml *y = td_yaml_member(map, i);
        const char *key = td_yaml_key(map, i);
        int number = td_yaml_key_line(map, i);
        if (td_yaml_kind_of(y) != TD_YAML_MAP) {
            TD_TRY_MSG(set_from_yaml(groups, key, y, arena), "'%s', line %d", path, number);
        } else if (is_section) {
            return td_error(TD_EFORMAT,
                            "'%s', line %d: '%s' is a nested section, which is not supported", path,
                            number, key);
        } else {
            TD_TRY_MSG(check_section(groups, key), "'%s', line %d", path, number);
            TD_TRY(read_map(groups, y, true, path, arena));
        }
    }
    return TD_OK;
}

static td_status read_yaml(const td_field_group *groups, const td_yaml *doc, const char *path,
                           td_arena *arena)
{
    if (td_yaml_kind_of(doc) != TD_YAML_MAP)
        return td_error(TD_EFORMAT, "'%s', line %d: found no 'name: value'", path,
                        td_yaml_line(doc));
    return read_map(groups, doc, false, path, arena);
}

/* --- choosing the format --------------------------------------------------------------------- */

/* Is the first line with content "name = value" rather than YAML? */
static bool is_in_lines(const char *text)
{
    const char *s = text;
    for (s += strspn(s, " \t\r\n"); *s == '#'; s += strspn(s, " \t\r\n"))
        s += strcspn(s, "\n");
    size_t n = strcspn(s, "=:\n");
    return *s && !strchr("{[-%&!\"'?", *s) && s[n] != ':';
}

static td_status read_any(const td_field_group *groups, char *text, size_t n, const char *path,
                          td_arena *arena)
{
    td_yaml *doc;
    if (td_text_is_utf16(text, n))
        return td_error(TD_EFORMAT, "'%s' is UTF-16, wanted UTF-8", path);
    if (memchr(text, '\0', n))
        return td_error(TD_EFORMAT, "'%s' is not a text file", path);
    if (is_in_lines(text))
        return read_lines(groups, text, path, arena);
    td_status st = td_yaml_parse(text, n, path, &doc);
    if (st == TD_EFORMAT && text[strspn(text, " \t\r\n")] == '{')
        return read_json(groups, text, n, path, arena); /* some escapes exist only in JSON */
    if (st == TD_OK)
        st = read_yaml(groups, doc, path, arena);
    td_yaml_free(doc);
    return st;
}

td_status td_options_config(const td_field_group *groups, const char *path, td_arena *arena)
{
    char *text;
    size_t n;
    TD_TRY(td_file_read(path, CONFIG_BYTES, &text, &n));
    td_status st = read_any(groups, text, n, path, arena);
    td_free(text);
    return st;
}

/* --- writing --------------------------------------------------------------------------------- */

static bool is_kept(const td_row_walk *w)
{
    return w->field->help || !td_field_is_default(w->field, w->group->base);
}

/* is it a word that other YAML readers parse as a boolean? */
static bool is_loaded(const char *word)
{
    static const char *const words[] = { "no", "off", "yes", "on", "n", "y", "null", "~" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static void add_value(const td_field *f, const void *base, td_text *out)
{
    td_text value = { 0 };
    const char *text = NULL;
    if (f->kind == TD_KIND_TEXT)
        memcpy(&text, (const char *)base + f->offset, sizeof text);
    td_field_get(f, base, &value);
    if (f->kind == TD_KIND_TEXT && !text) {
        td_text_add(out, "null");
    } else if (f->kind == TD_KIND_TEXT || is_loaded(td_text_get(&value))) {
        td_text_add(out, "\"");
        td_text_add_json(out, td_text_get(&value));
        td_text_add(out, "\"");
    } else {
        td_text_add(out, "%s", td_text_get(&value));
    }
    if (td_text_status(&value) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&value);
    td_text_release(&value);
}

/* "  batch_size: 8" */
static void add_row(const td_row_walk *r, td_text *out)
{
    td_text_add(out, "  ");
    for (const char *p = r->field->name; *p; p++)
        td_text_add_bytes(out, *p == '-' ? "_" : p, 1);
    td_text_add(out, ": ");
    add_value(r->field, r->group->base, out);
    td_text_add(out, "\n");
}

void td_options_yaml(const td_field_group *groups, td_text *out)
{
    char section[TD_OPTION_BYTES];
    td_row_walk w = { .group = groups };
    while (td_row_next(&w)) {
        if (!is_kept(&w) || !td_row_opens_title(groups, &w, is_kept))
            continue;
        section_name(w.title, section);
        td_text_add(out, "%s:\n", section);
        td_row_walk r = { .group = groups };
        while (td_row_next(&r))
            if (strcmp(r.title, w.title) == 0 && is_kept(&r))
                add_row(&r, out);
    }
}
