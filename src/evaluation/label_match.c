/*
 * label_match.c -- maps a data set's classes to a network's outputs
 *
 * A map is JSON, {"folder": 7, "other": "name of an output"}, or lines "folder 7": the number
 * follows the last space, because a folder's name may contain spaces.
 */
#include "evaluation/label_match.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/known_classes.h"

#define MAP_BYTES ((size_t)64 << 20)

enum { NAMES_SHOWN = 5, ID_BYTES = 9 /* n01440764 */, OUTPUTS_MAX = 1 << 20 };

typedef struct {
    const td_label_match *m;   /* borrowed */
    const td_dataset *ds;      /* borrowed */
    td_known_classes imagenet; /* empty unless the network has at least as many outputs */
    bool is_imagenet;          /* the outputs' names are ImageNet's */
    bool trusts_names;         /* the names are known to be the outputs', not assumed */
    bool has_numbers;          /* the data's labels are numbers; some may have no image */
    td_map by_name;            /* an output's name -> its number + 1, or AMBIGUOUS */
    int64_t *label;            /* [classes of ds] output of each class; -1: none */
} matcher;

#define AMBIGUOUS ((void *)(uintptr_t)-1)

/* --- messages --------------------------------------------------------------------------------- */

/* clang-format off */
#define WAYS \
    "; 'tandem evaluate' takes --label-map FILE (the output of each class), --classes FILE (the " \
    "names of the outputs) or --labels-by-order"
/* clang-format on */

static void add_example(td_text *out, int n, const char *name)
{
    if (n < NAMES_SHOWN)
        td_text_add(out, "%s'%.100s'", n ? ", " : "", name);
    else if (n == NAMES_SHOWN)
        td_text_add(out, ", ...");
}

static td_status counts_differ(const matcher *x)
{
    return td_error(
        TD_ESHAPE, "'%s' has %d classes, the network of '%s' has %d classes without names%s",
        td_dataset_root(x->ds), td_dataset_classes(x->ds), x->m->weights, x->m->n_outputs, WAYS);
}

static td_status unknown_classes(const matcher *x)
{
    const td_class_names *names = x->m->names;
    td_text unknown = { 0 }, known = { 0 };
    int n = 0;
    for (int i = 0; i < td_dataset_classes(x->ds); i++)
        if (x->label[i] < 0)
            add_example(&unknown, n++, td_dataset_class_name(x->ds, i));
    for (int i = 0; i < names->n; i++)
        add_example(&known, i, names->names[i]);
    td_status st = td_error(TD_EFORMAT,
                            "'%s': %d of its %d classes are not among the %d classes of '%s': %s; "
                            "the network's classes are %s%s",
                            td_dataset_root(x->ds), n, td_dataset_classes(x->ds), x->m->n_outputs,
                            x->m->weights, td_text_get(&unknown), td_text_get(&known), WAYS);
    td_text_release(&unknown);
    td_text_release(&known);
    return st;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool is_wordnet_id(const char *s, size_t n)
{
    return n == ID_BYTES && *s == 'n' && strspn(s + 1, "0123456789") >= ID_BYTES - 1;
}

static td_status index_name(td_map *by_name, const char *name, int output)
{
    const void *is = td_map_get(by_name, name);
    void *value = (void *)(uintptr_t)(output + 1);
    return td_map_set(by_name, name, is && is != value ? AMBIGUOUS : value);
}

/*
 * Index the outputs' names; a line of a synset list, "n01440764 tench, Tinca tinca", also by its
 * id.
 */
static td_status index_names(matcher *x)
{
    const td_class_names *names = x->m->names;
    char id[ID_BYTES + 1];
    for (int i = 0; i < names->n; i++) {
        const char *name = names->names[i];
        const size_t n_word = strcspn(name, " \t,:");
        TD_TRY(index_name(&x->by_name, name, i));
        if (!name[n_word] || !is_wordnet_id(name, n_word))
            continue;
        snprintf(id, sizeof id, "%s", name);
        TD_TRY(index_name(&x->by_name, id, i));
    }
    return TD_OK;
}

/* Do nine of ten names begin like ImageNet's?  Lists differ in synonyms and spelling. */
static bool names_are_imagenets(const matcher *x)
{
    const td_class_names *names = x->m->names;
    int n_same = 0;
    for (int i = 0; i < names->n && i < x->imagenet.n; i++) {
        const char *name = names->names[i], *own = x->imagenet.names[i];
        const size_t n = strcspn(name, ",");
        n_same += strlen(own) == n && strncasecmp(name, own, n) == 0;
    }
    return n_same >= x->imagenet.n * 9 / 10;
}

/* Find the output with this name; -1: none.  TD_EFORMAT: several. */
static td_status find_name(const matcher *x, const char *name, int64_t *out)
{
    td_text changed = { 0 };
    const void *value = td_map_get(&x->by_name, name);
    td_status st = TD_OK;
    if (!value) {
        st = td_class_name_in_json(name, &changed);
        value = st == TD_OK ? td_map_get(&x->by_name, td_text_get(&changed)) : NULL;
    }
    td_text_release(&changed);
    if (value == AMBIGUOUS)
        return td_error(TD_EFORMAT,
                        "the name '%.100s' belongs to several of the %d classes of '%s'", name,
                        x->m->n_outputs, x->m->weights);
    *out = value ? (int64_t)(uintptr_t)value - 1 : -1;
    if (*out < 0 && x->is_imagenet)
        *out = td_known_classes_find(&x->imagenet, name);
    return st;
}

/* --- by order, by name ------------------------------------------------------------------------ */

/* Folder i is output i; `why`: the reason, for the log. */
static td_status match_by_order(matcher *x, const char *why)
{
    const int n = td_dataset_classes(x->ds);
    if (n > x->m->n_outputs)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network of '%s' has only %d",
                        td_dataset_root(x->ds), n, x->m->weights, x->m->n_outputs);
    for (int i = 0; i < n; i++)
        x->label[i] = i;
    td_log(TD_LOG_INFO, "classes",
           "matching the %d classes of '%s' to outputs 0 to %d in order: %s", n,
           td_dataset_root(x->ds), n - 1, why);
    return TD_OK;
}

static bool is_natural_order(const matcher *x)
{
    const int n = td_dataset_classes(x->ds);
    for (int i = 0; i < n; i++)
        if (x->label[i] != i)
            return false;
    return n == x->m->n_outputs;
}

static void log_match(const matcher *x, int n_ids)
{
    const int n = td_dataset_classes(x->ds);
    if (n_ids == n)
        td_log(TD_LOG_INFO, "classes",
               "the %d classes of '%s' are WordNet ids of ILSVRC 2012: matching them to outputs by "
               "their sorted list",
               n, td_dataset_root(x->ds));
    else if (!is_natural_order(x))
        td_log(TD_LOG_INFO, "classes", "matching the %d classes of '%s' to %d outputs by name", n,
               td_dataset_root(x->ds), x->m->n_outputs);
}

/* Match by name.  Assumed names may not match the data at all: then match by order. */
static td_status match_by_name(matcher *x)
{
    const int n = td_dataset_classes(x->ds);
    int n_found = 0, n_ids = 0;
    TD_TRY(index_names(x));
    x->is_imagenet = names_are_imagenets(x);
    for (int i = 0; i < n; i++) {
        TD_TRY(find_name(x, td_dataset_class_name(x->ds, i), &x->label[i]));
        n_found += x->label[i] >= 0;
        n_ids += x->label[i] >= 0 && !td_map_has(&x->by_name, td_dataset_class_name(x->ds, i));
    }
    const bool is_presumed = x->m->names->source == TD_NAMES_IMAGENET;
    if (is_presumed && n_found == 0 && n == x->m->n_outputs)
        return match_by_order(x, "the weight file has no class names");
    if (is_presumed && n_found == 0)
        return counts_differ(x);
    if (n_found < n)
        return unknown_classes(x);
    x->trusts_names = true;
    log_match(x, n_ids);
    return TD_OK;
}

/* --- a map ------------------------------------------------------------------------------------ */

static td_status check_output(const matcher *x, const char *folder, int64_t output)
{
    if (output >= 0 && output < x->m->n_outputs)
        return TD_OK;
    return td_error(TD_EFORMAT, "--label-map: '%s' assigns output %lld to '%.100s', wanted 0 .. %d",
                    x->m->label_map, (long long)output, folder, x->m->n_outputs - 1);
}

static td_status add_to_map(const matcher *x, td_map *map, const char *folder, int64_t output)
{
    if (!*folder)
        return td_error(TD_EFORMAT, "--label-map: '%s' contains an empty folder name",
                        x->m->label_map);
    if (td_map_has(map, folder))
        return td_error(TD_EFORMAT, "--label-map: '%s' names '%.100s' twice", x->m->label_map,
                        folder);
    TD_TRY(check_output(x, folder, output));
    return td_map_set(map, folder, (void *)(intptr_t)(output + 1));
}

static td_status read_json_map(matcher *x, const td_json *doc, td_map *map)
{
    const char *name;
    int64_t output;
    if (td_json_kind_of(doc) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT,
                        "--label-map: '%s' is not a JSON object from folders to outputs",
                        x->m->label_map);
    TD_TRY(index_names(x));
    for (size_t i = 0; i < td_json_count(doc); i++) {
        const td_json *value = td_json_member(doc, i);
        if (td_json_kind_of(value) == TD_JSON_TEXT) {
            TD_TRY(td_json_as_text(value, &name));
            TD_TRY_MSG(find_name(x, name, &output), "--label-map: '%s'", x->m->label_map);
            if (output < 0)
                return td_error(TD_EFORMAT,
                                "--label-map: '%s' contains '%.100s' for '%.100s', which is not "
                                "the name of a class of '%s'",
                                x->m->label_map, name, td_json_key(doc, i), x->m->weights);
        } else {
            TD_TRY(td_json_as_int(value, &output));
        }
        TD_TRY(add_to_map(x, map, td_json_key(doc, i), output));
    }
    return TD_OK;
}

static td_status read_line_map(const matcher *x, char *text, td_map *map)
{
    int n_lines = 0;
    for (char *line = text, *end; line; line = end) {
        int64_t output;
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        n_lines++;
        size_t n = strlen(line);
        while (n > 0 && strchr(" \t\r", line[n - 1]))
            line[--n] = '\0';
        if (n == 0)
            continue;
        char *last = line + n;
        while (last > line && !strchr(" \t", last[-1]))
            last--;
        if (last == line + strspn(line, " \t") || !td_text_to_int(last, &output))
            return td_error(
                TD_EFORMAT,
                "--label-map: '%s': line %d is '%.100s', wanted a class name and an output number",
                x->m->label_map, n_lines, line);
        do
            *--last = '\0';
        while (last > line && strchr(" \t", last[-1]));
        TD_TRY(add_to_map(x, map, line, output));
    }
    return TD_OK;
}

static td_status read_map(matcher *x, td_map *map)
{
    const char *path = x->m->label_map;
    char *text;
    size_t n;
    td_json *doc = NULL;
    TD_TRY_MSG(td_file_read(path, MAP_BYTES, &text, &n), "--label-map");
    td_status st = TD_OK;
    if (memchr(text, '\0', n) || td_text_is_utf16(text, n))
        TD_OUT(td_error(TD_EFORMAT, "--label-map: '%s' is not a UTF-8 text file", path));
    const char *begin = text + strspn(text, " \t\r\n");
    if (*begin == '{' || *begin == '[') {
        TD_OUT(td_json_parse(text, n, path, &doc));
        TD_OUT(read_json_map(x, doc, map));
    } else {
        TD_OUT(read_line_map(x, text, map));
    }
out:
    td_json_free(doc);
    td_free(text);
    return st;
}

/* The output of class i + 1, by its name as it is or in JSON, or by its number; 0: none. */
static td_status look_up(const matcher *x, const td_map *map, int i, intptr_t *output)
{
    char number[16];
    td_text changed = { 0 };
    const char *name = td_dataset_class_name(x->ds, i);
    td_status st = TD_OK;
    snprintf(number, sizeof number, "%d", i);
    *output = (intptr_t)td_map_get(map, name);
    if (!*output && x->has_numbers)
        *output = (intptr_t)td_map_get(map, number);
    if (!*output) {
        st = td_class_name_in_json(name, &changed);
        if (st == TD_OK)
            *output = (intptr_t)td_map_get(map, td_text_get(&changed));
    }
    td_text_release(&changed);
    return st;
}

static void note_used(const td_dataset *ds, bool *is_used)
{
    for (int64_t i = 0; i < ds->n; i++) {
        const td_sample *s = &ds->samples[i];
        if (s->label >= 0)
            is_used[s->label] = true;
        for (int k = 0; k < s->n_labels; k++)
            is_used[s->labels[k]] = true;
    }
}

static td_status match_by_map(matcher *x)
{
    const int n = td_dataset_classes(x->ds);
    td_map map = { 0 };
    bool *is_used = NULL;
    td_status st = TD_OK;
    TD_OUT(read_map(x, &map));
    TD_OUT(TD_ALLOC(is_used, (size_t)n));
    note_used(x->ds, is_used);
    for (int i = 0; i < n; i++) {
        intptr_t output;
        TD_OUT(look_up(x, &map, i, &output));
        if (!output && (is_used[i] || !x->has_numbers))
            TD_OUT(td_error(TD_EFORMAT, "--label-map: '%s' does not contain the class '%s' of '%s'",
                            x->m->label_map, td_dataset_class_name(x->ds, i),
                            td_dataset_root(x->ds)));
        x->label[i] = output - 1;
    }
    td_log(TD_LOG_INFO, "classes", "matching the %d classes of '%s' to %d outputs with '%s'", n,
           td_dataset_root(x->ds), x->m->n_outputs, x->m->label_map);
out:
    td_free(is_used);
    td_map_release(&map);
    return st;
}

/* --- choosing the method ---------------------------------------------------------------------- */

static td_status choose_method(matcher *x)
{
    const td_label_match *m = x->m;
    if (m->n_outputs >= TD_IMAGENET_CLASSES)
        TD_TRY(td_known_classes_open(TD_KNOWN_IMAGENET, &x->imagenet));
    if (m->label_map)
        return match_by_map(x);
    if (m->by_order)
        return match_by_order(x, "--labels-by-order");
    if (m->names->n)
        return match_by_name(x);
    if (td_dataset_classes(x->ds) != m->n_outputs)
        return counts_differ(x);
    return match_by_order(x, "the weight file has no class names");
}

/* Renumber the classes; an output without a known name gets the matching class's name. */
static td_status relabel(const matcher *x, td_dataset *ds)
{
    const int n = x->m->n_outputs;
    const td_class_names *names = x->m->names;
    td_status st = TD_OK;
    const char **called = td_alloc((size_t)n, sizeof *called);
    char(*room)[24] = td_alloc((size_t)n, sizeof *room);
    if (!called || !room)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < n; i++) {
        snprintf(room[i], sizeof room[i], "class %d", i);
        called[i] = i < names->n && x->trusts_names ? names->names[i] : room[i];
    }
    for (int i = 0; i < td_dataset_classes(ds); i++) {
        const char *name = td_dataset_class_name(ds, i);
        const int64_t output = x->label[i];
        const bool is_number = x->has_numbers && !name[strspn(name, "0123456789")];
        if (output >= 0 && called[output] == room[output] && !is_number)
            called[output] = name;
    }
    st = td_dataset_relabel(ds, n, called, x->label);
out:
    td_free((void *)called);
    td_free(room);
    return st;
}

/* Labels that are numbers are output numbers, unless files of images have a map of them. */
static td_status check_numbers(const td_label_match *m, const td_dataset *ds)
{
    if (m->label_map || m->by_order)
        return td_error(TD_EUSAGE, "%s: the labels of '%s' are already output numbers",
                        m->by_order ? "--labels-by-order" : "--label-map", td_dataset_root(ds));
    if (td_dataset_classes(ds) > m->n_outputs)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network of '%s' has only %d",
                        td_dataset_root(ds), td_dataset_classes(ds), m->weights, m->n_outputs);
    return TD_OK;
}

/* Files with numbers as labels: the classes get the names of the outputs. */
static td_status name_numbers(const td_label_match *m, td_dataset *ds)
{
    const int n = m->n_outputs;
    td_status st = TD_OK;
    char(*room)[24] = td_alloc((size_t)n, sizeof *room);
    const char **called = td_alloc((size_t)n, sizeof *called);
    if (!called || !room)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < n; i++) {
        snprintf(room[i], sizeof room[i], "%d", i);
        called[i] = i < m->names->n ? m->names->names[i] : room[i];
    }
    st = td_dataset_use_classes(ds, n, called, true);
out:
    td_free((void *)called);
    td_free(room);
    return st;
}

td_status td_label_match_apply(const td_label_match *m, td_dataset *ds)
{
    td_status st = TD_OK;
    if (m->n_outputs > OUTPUTS_MAX)
        return td_error(TD_ELIMIT, "the network of '%s' has %d classes, at most %d are supported",
                        m->weights, m->n_outputs, OUTPUTS_MAX);
    matcher x = { .m = m, .ds = ds, .trusts_names = m->names->source != TD_NAMES_IMAGENET };
    if (td_dataset_backend(ds) != TD_DATA_FOLDER)
        return check_numbers(m, ds);
    x.has_numbers = !ds->has_class_names;
    if (x.has_numbers && (m->by_order || !m->label_map)) {
        TD_TRY(check_numbers(m, ds));
        return name_numbers(m, ds);
    }
    if (m->label_map && m->by_order)
        return td_error(TD_EUSAGE, "--label-map and --labels-by-order exclude each other");
    TD_TRY(TD_ALLOC(x.label, (size_t)td_dataset_classes(ds)));
    TD_OUT(choose_method(&x));
    TD_OUT(relabel(&x, ds));
out:
    td_free(x.label);
    td_map_release(&x.by_name);
    td_known_classes_release(&x.imagenet);
    return st;
}
