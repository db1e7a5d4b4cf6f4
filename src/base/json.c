/*
 * json.c -- parses with jansson and copies the result into an arena-allocated tree
 *
 * A copied node has a pointer to its parent, so that a message can name its path, and takes only 32
 * bytes, since a data set's annotations are tens of millions of numbers.  Objects with many members
 * also have an index of their members sorted by key.  jansson's tree is allocated in an arena that
 * is freed as a whole.
 *
 *     document { arena, what, root { children: [ node, node, ... ] } }
 *
 * jansson counts depth only up to 2048, so a scan before it, which skips strings, checks our limit.
 */
#include "base/json.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"

#define DEPTH_MAX   64
#define FEW_MEMBERS 8 /* up to this, a linear search is as fast as binary search */
#define PATH_BYTES  256

typedef struct document document;

struct td_json {
    const td_json *parent; /* NULL: the root */
    const char *key;       /* in an object; otherwise NULL */
    union {
        bool flag;
        int64_t whole;
        double real;
        const char *text;
        td_json *children; /* [n] in file order; large objects append uint32_t [n]: */
    } as;                  /* the members' numbers in the order of their keys */
    uint32_t n;
    td_json_kind kind;
};

struct document {
    td_json root; /* first, so that the root is the document */
    td_arena arena;
    const char *what;
};

static const char *const kind_names[] = { "null",     "true or false", "an integer", "a number",
                                          "a string", "an array",      "an object" };

/* --- jansson --------------------------------------------------------------------------------- */

/* the arena of the current parse, and whether it ran out: jansson does not always report it */
static _Thread_local td_arena *pool;
static _Thread_local bool is_out_of_memory;

/* jansson's allocator hooks are process-wide: outside our parsing they are called for other users
   of jansson */
static void *allocate(size_t bytes)
{
    if (!pool)
        return td_system_alloc(bytes);
    void *p = td_arena_alloc(pool, bytes, 1);
    if (!p)
        is_out_of_memory = true;
    return p;
}

static void free_unless_pooled(void *p)
{
    if (!pool)
        td_system_free(p);
}

static void set_allocators(void)
{
    json_set_alloc_funcs(allocate, free_unless_pooled);
}

/* Only brackets outside strings count; jansson reports all other errors. */
static td_status check_depth(const char *text, size_t n, const char *what)
{
    int depth = 0, line = 1;
    bool in_string = false;
    size_t line_start = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\n') {
            line++;
            line_start = i + 1;
        }
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{'))
            depth++;
        else if (!in_string && (c == ']' || c == '}'))
            depth--;
        if (depth > DEPTH_MAX)
            return td_error(TD_EFORMAT, "%s: line %d, column %zu: nested deeper than %d", what,
                            line, i - line_start + 1, DEPTH_MAX);
    }
    return TD_OK;
}

/* *out lives in `a` and is never passed to json_decref */
static td_status load(const char *text, size_t n, const char *what, td_arena *a, json_t **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t err = { 0 };
    pthread_once(&once, set_allocators);
    pool = a;
    is_out_of_memory = false;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
    pool = NULL;
    if (*out)
        return TD_OK;
    if (is_out_of_memory)
        return TD_ENOMEM;
    return td_error(TD_EFORMAT, "%s: line %d, column %d: %s", what, err.line, err.column, err.text);
}

/* --- copying to our tree --------------------------------------------------------------------- */

static uint32_t *order_of(const td_json *object)
{
    return (uint32_t *)(void *)(object->as.children + object->n);
}

static int by_key(const void *a, const void *b, void *children)
{
    const td_json *c = children;
    return strcmp(c[*(const uint32_t *)a].key, c[*(const uint32_t *)b].key);
}

static void sort_members(td_json *j)
{
    if (j->n <= FEW_MEMBERS)
        return;
    uint32_t *order = order_of(j);
    for (uint32_t i = 0; i < j->n; i++)
        order[i] = i;
    qsort_r(order, j->n, sizeof *order, by_key, j->as.children);
}

static td_status copy_node(td_arena *a, td_json *j, const json_t *from);

static td_status make_children(td_arena *a, td_json *j, td_json_kind kind, size_t n)
{
    if (n > UINT32_MAX)
        return td_error(TD_ELIMIT, "a JSON value has %zu members", n);
    size_t each =
        sizeof(td_json) + (kind == TD_JSON_OBJECT && n > FEW_MEMBERS ? sizeof(uint32_t) : 0);
    j->kind = kind;
    j->as.children = td_arena_alloc(a, n, each);
    if (!j->as.children)
        return TD_ENOMEM;
    j->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        j->as.children[i].parent = j;
    return TD_OK;
}

static td_status copy_array(td_arena *a, td_json *j, const json_t *from)
{
    TD_TRY(make_children(a, j, TD_JSON_ARRAY, json_array_size(from)));
    for (size_t i = 0; i < j->n; i++)
        TD_TRY(copy_node(a, &j->as.children[i], json_array_get(from, i)));
    return TD_OK;
}

static td_status copy_object(td_arena *a, td_json *j, json_t *from)
{
    TD_TRY(make_children(a, j, TD_JSON_OBJECT, json_object_size(from)));
    td_json *child = j->as.children;
    for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it), child++) {
        child->key = td_arena_text(a, json_object_iter_key(it));
        if (!child->key)
            return TD_ENOMEM;
        TD_TRY(copy_node(a, child, json_object_iter_value(it)));
    }
    sort_members(j);
    return TD_OK;
}

/* recursive; check_depth limits the depth */
static td_status copy_node(td_arena *a, td_json *j, const json_t *from)
{
    switch (json_typeof(from)) {
    case JSON_ARRAY:
        return copy_array(a, j, from);
    case JSON_OBJECT:
        return copy_object(a, j, (json_t *)(uintptr_t)from); /* its iterators are not const */
    case JSON_STRING:
        j->kind = TD_JSON_TEXT;
        j->as.text = td_arena_text(a, json_string_value(from));
        return j->as.text ? TD_OK : TD_ENOMEM;
    case JSON_INTEGER:
        j->kind = TD_JSON_INT;
        j->as.whole = json_integer_value(from);
        return TD_OK;
    case JSON_REAL:
        j->kind = TD_JSON_REAL;
        j->as.real = json_real_value(from);
        return TD_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        j->kind = TD_JSON_BOOL;
        j->as.flag = json_is_true(from);
        return TD_OK;
    case JSON_NULL:
        break;
    }
    j->kind = TD_JSON_NULL;
    return TD_OK;
}

td_status td_json_parse(const char *text, size_t n, const char *what, td_json **out)
{
    *out = NULL;
    if (td_text_is_utf16(text, n))
        return td_error(TD_EFORMAT, "%s is UTF-16, wanted UTF-8", what);
    TD_TRY(check_depth(text, n, what));
    document *doc = TD_NEW(document);
    if (!doc)
        return TD_ENOMEM;
    td_status st;
    td_arena loaded = { 0 };
    json_t *tree = NULL;
    doc->what = td_arena_text(&doc->arena, what);
    TD_OUT(doc->what ? TD_OK : TD_ENOMEM);
    TD_OUT(load(text, n, what, &loaded, &tree));
    TD_OUT(copy_node(&doc->arena, &doc->root, tree));
    *out = &doc->root;
out:
    td_arena_release(&loaded);
    if (st != TD_OK)
        td_json_free(&doc->root);
    return st;
}

void td_json_free(td_json *doc)
{
    if (!doc)
        return;
    TD_CHECK(!doc->parent);
    document *d = (document *)(void *)doc;
    td_arena_release(&d->arena);
    td_free(d);
}

/* --- access ----------------------------------------------------------------------------------- */

td_json_kind td_json_kind_of(const td_json *j)
{
    return j->kind;
}

size_t td_json_count(const td_json *j)
{
    return j->n;
}

static const td_json *search(const td_json *object, const char *key)
{
    const uint32_t *order = order_of(object);
    for (uint32_t low = 0, high = object->n; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        const td_json *j = &object->as.children[order[middle]];
        int side = strcmp(key, j->key);
        if (side == 0)
            return j;
        if (side < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const td_json *td_json_get(const td_json *j, const char *key)
{
    if (j->kind != TD_JSON_OBJECT)
        return NULL;
    if (j->n > FEW_MEMBERS)
        return search(j, key);
    for (uint32_t i = 0; i < j->n; i++)
        if (strcmp(j->as.children[i].key, key) == 0)
            return &j->as.children[i];
    return NULL;
}

const td_json *td_json_at(const td_json *j, size_t i)
{
    return j->kind == TD_JSON_ARRAY && i < j->n ? &j->as.children[i] : NULL;
}

const td_json *td_json_member(const td_json *object, size_t i)
{
    return object->kind == TD_JSON_OBJECT && i < object->n ? &object->as.children[i] : NULL;
}

const char *td_json_key(const td_json *object, size_t i)
{
    const td_json *j = td_json_member(object, i);
    return j ? j->key : NULL;
}

/* --- typed readers --------------------------------------------------------------------------- */

/* "annotations[3].bbox: " before a message; nothing for the root */
static void add_path(const td_json *j, char path[PATH_BYTES])
{
    if (!j->parent)
        return;
    add_path(j->parent, path);
    size_t n = strlen(path);
    if (j->key)
        snprintf(path + n, PATH_BYTES - n, "%s%s", n ? "." : "", j->key);
    else
        snprintf(path + n, PATH_BYTES - n, "[%zu]", (size_t)(j - j->parent->as.children));
}

static td_status fail_at(const td_json *j, td_status st, const char *sentence)
{
    char path[PATH_BYTES] = "";
    const td_json *root = j;
    while (root->parent)
        root = root->parent;
    add_path(j, path);
    return td_error(st, "%s: %s%s%s", ((const document *)(const void *)root)->what, path,
                    *path ? ": " : "", sentence);
}

static td_status is_other(const td_json *j, const char *wanted)
{
    char sentence[80];
    snprintf(sentence, sizeof sentence, "found %s, wanted %s", kind_names[j->kind], wanted);
    return fail_at(j, TD_EFORMAT, sentence);
}

static td_status find(const td_json *object, const char *key, const td_json **out)
{
    char sentence[PATH_BYTES];
    if (object->kind != TD_JSON_OBJECT)
        return is_other(object, "an object");
    *out = td_json_get(object, key);
    if (*out)
        return TD_OK;
    snprintf(sentence, sizeof sentence, "'%s' is missing", key);
    return fail_at(object, TD_ENOTFOUND, sentence);
}

td_status td_json_as_int(const td_json *j, int64_t *out)
{
    if (j->kind != TD_JSON_INT)
        return is_other(j, "an integer");
    *out = j->as.whole;
    return TD_OK;
}

td_status td_json_as_number(const td_json *j, double *out)
{
    if (j->kind != TD_JSON_INT && j->kind != TD_JSON_REAL)
        return is_other(j, "a number");
    *out = j->kind == TD_JSON_INT ? (double)j->as.whole : j->as.real;
    return TD_OK;
}

td_status td_json_as_text(const td_json *j, const char **out)
{
    if (j->kind != TD_JSON_TEXT)
        return is_other(j, "a string");
    *out = j->as.text;
    return TD_OK;
}

td_status td_json_as_bool(const td_json *j, bool *out)
{
    if (j->kind != TD_JSON_BOOL)
        return is_other(j, "true or false");
    *out = j->as.flag;
    return TD_OK;
}

td_status td_json_int(const td_json *object, const char *key, int64_t *out)
{
    const td_json *j;
    TD_TRY(find(object, key, &j));
    return td_json_as_int(j, out);
}

td_status td_json_number(const td_json *object, const char *key, double *out)
{
    const td_json *j;
    TD_TRY(find(object, key, &j));
    return td_json_as_number(j, out);
}

td_status td_json_text(const td_json *object, const char *key, const char **out)
{
    const td_json *j;
    TD_TRY(find(object, key, &j));
    return td_json_as_text(j, out);
}

td_status td_json_bool(const td_json *object, const char *key, bool *out)
{
    const td_json *j;
    TD_TRY(find(object, key, &j));
    return td_json_as_bool(j, out);
}
