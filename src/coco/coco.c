/*
 * coco.c -- reads the three sections of an annotation file
 *
 * Each entry of a section is read completely before it is checked: wanted members are kept as
 * tokens in a small record.  So members may come in any order.
 */
#include "coco/coco.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "coco/coco_reading.h"
#include "io/json_tokens.h"

enum { DESCRIBED = 96, SENTENCE = 512, FILE_SHOWN = 256, BOX = 4 };

/* --- bad entries ------------------------------------------------------------------------------ */

td_status td_coco_list(td_coco_reading *r, const td_coco_subject *about, const char *fmt, ...)
{
    char said[SENTENCE], name[64], text[SENTENCE + 160 + FILE_SHOWN];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    if (about->id >= 0)
        (void)snprintf(name, sizeof name, "%s %" PRId64, about->kind, about->id);
    else
        (void)snprintf(name, sizeof name, "%s number %" PRId64, about->kind, about->number + 1);
    if (about->at.file)
        (void)snprintf(text, sizeof text, "%s: %s ('%.*s', byte %" PRId64 ")", name, said,
                       FILE_SHOWN, about->at.file, about->at.byte);
    else
        (void)snprintf(text, sizeof text, "%s: %s (byte %" PRId64 ", line %" PRId64 ")", name, said,
                       about->at.byte, about->at.line);
    if (r->opts.is_strict)
        return td_error(TD_EFORMAT, "'%s': %s", r->what, text);
    td_coco *c = r->out;
    c->n_bad++;
    if (c->n_listed == TD_COCO_LISTED_MAX)
        return TD_OK;
    TD_TRY(td_reserve(&c->bad, &r->cap_bad, c->n_listed + 1, sizeof *c->bad));
    const char *kept = td_arena_text(&c->arena, text);
    if (!kept)
        return TD_ENOMEM;
    c->bad[c->n_listed++] = (td_coco_bad){ .text = kept, .id = about->id, .byte = about->at.byte };
    return TD_OK;
}

/* --- members ---------------------------------------------------------------------------------- */

/* A member of an entry: absent, valid, or invalid with a description. */
typedef struct {
    bool is_there, is_wrong;
    int64_t whole;
    double number;
    char found[DESCRIBED]; /* if invalid */
} member;

static void set_wrong(member *m, const td_token *v)
{
    m->is_wrong = true;
    td_token_describe(v, m->found, sizeof m->found);
}

/* reads a value; skips the contents of a list or object */
static td_status read_scalar(td_tokens *t, td_token *v)
{
    TD_TRY(td_tokens_value(t, v));
    return v->kind == TD_TOKEN_LIST || v->kind == TD_TOKEN_OBJECT ? td_tokens_leave(t) : TD_OK;
}

/* a whole number; 12.0 is accepted */
static td_status read_whole(td_tokens *t, member *m)
{
    td_token v;
    TD_TRY(read_scalar(t, &v));
    *m = (member){ .is_there = true };
    if (v.kind != TD_TOKEN_NUMBER || (!v.is_whole && !(fabs(v.number) < 9e15)) ||
        (!v.is_whole && v.number != floor(v.number)))
        set_wrong(m, &v);
    else
        m->whole = v.is_whole ? v.whole : (int64_t)v.number;
    return TD_OK;
}

static td_status read_real(td_tokens *t, member *m)
{
    td_token v;
    TD_TRY(read_scalar(t, &v));
    *m = (member){ .is_there = true };
    if (v.kind != TD_TOKEN_NUMBER || !isfinite(v.number))
        set_wrong(m, &v);
    else
        m->number = v.number;
    return TD_OK;
}

/* 0, 1, true or false */
static td_status read_flag(td_tokens *t, member *m)
{
    td_token v;
    TD_TRY(read_scalar(t, &v));
    *m = (member){ .is_there = true };
    if (v.kind == TD_TOKEN_BOOL)
        m->whole = v.is_true;
    else if (v.kind == TD_TOKEN_NUMBER && (v.number == 0 || v.number == 1))
        m->whole = v.number == 1;
    else
        set_wrong(m, &v);
    return TD_OK;
}

/* a text into the arena; *out stays NULL if it is not a text */
static td_status read_text(td_tokens *t, td_arena *arena, member *m, const char **out)
{
    td_token v;
    TD_TRY(read_scalar(t, &v));
    *m = (member){ .is_there = true };
    *out = NULL;
    if (v.kind != TD_TOKEN_TEXT) {
        set_wrong(m, &v);
        return TD_OK;
    }
    *out = td_arena_text(arena, v.text);
    return *out ? TD_OK : TD_ENOMEM;
}

/* [x, y, width, height] */
static td_status read_box(td_tokens *t, member *m, double box[BOX])
{
    td_token v;
    int n = 0;
    bool more;
    *m = (member){ .is_there = true };
    TD_TRY(td_tokens_value(t, &v));
    if (v.kind != TD_TOKEN_LIST) {
        set_wrong(m, &v);
        return v.kind == TD_TOKEN_OBJECT ? td_tokens_leave(t) : TD_OK;
    }
    for (;; n++) {
        TD_TRY(td_tokens_item(t, &more));
        if (!more)
            break;
        TD_TRY(read_scalar(t, &v));
        if (v.kind != TD_TOKEN_NUMBER || !isfinite(v.number)) {
            set_wrong(m, &v);
            return td_tokens_leave(t);
        }
        if (n < BOX)
            box[n] = v.number;
    }
    if (n != BOX) {
        m->is_wrong = true;
        (void)snprintf(m->found, sizeof m->found, "a list of %d", n);
    }
    return TD_OK;
}

/* Is the member present and valid?  If not, lists it and sets *is_good to false. */
static td_status require_member(td_coco_reading *r, const td_coco_subject *about, const member *m,
                                const char *name, const char *wanted, bool *is_good)
{
    if (!*is_good || (m->is_there && !m->is_wrong))
        return TD_OK;
    *is_good = false;
    if (!m->is_there)
        return td_coco_list(r, about, "it has no '%s', wanted %s", name, wanted);
    return td_coco_list(r, about, "'%s' is %s, wanted %s", name, m->found, wanted);
}

/* the same for an optional member, which may be absent */
static td_status check_optional(td_coco_reading *r, const td_coco_subject *about, const member *m,
                                const char *name, const char *wanted, bool *is_good)
{
    return m->is_there ? require_member(r, about, m, name, wanted, is_good) : TD_OK;
}

/* messages name the id if it is known */
static td_coco_subject subject(const char *kind, const member *id, int64_t number, td_coco_place at)
{
    bool has_id = id->is_there && !id->is_wrong && id->whole >= 0;
    return (
        td_coco_subject){ .kind = kind, .id = has_id ? id->whole : -1, .number = number, .at = at };
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Read one entry, which has been entered; `number` counts the section's entries. */
typedef td_status entry_fn(td_coco_reading *r, td_tokens *t, int64_t number, td_coco_place at);

/* does the name stay inside its folder: relative, without ".."? */
static bool is_inside(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2]))
            return false;
    }
    return true;
}

static td_status check_side(td_coco_reading *r, const td_coco_subject *about, const member *m,
                            const char *name, bool *is_good)
{
    if (!*is_good || (m->whole >= 1 && m->whole <= TD_COCO_SIDE_MAX))
        return TD_OK;
    *is_good = false;
    return td_coco_list(r, about, "'%s' is %" PRId64 ", wanted 1 .. %d pixels", name, m->whole,
                        TD_COCO_SIDE_MAX);
}

td_status td_coco_keep_image(td_coco_reading *r, const td_coco_image *image, td_coco_place at)
{
    td_coco *c = r->out;
    TD_TRY(td_reserve(&c->images, &r->cap_images, c->n_images + 1, sizeof *c->images));
    TD_TRY(td_reserve(&r->image_at, &r->cap_image_at, c->n_images + 1, sizeof *r->image_at));
    r->image_at[c->n_images] = at;
    c->images[c->n_images++] = *image;
    return TD_OK;
}

static td_status read_image(td_coco_reading *r, td_tokens *t, int64_t number, td_coco_place at)
{
    member id = { 0 }, name = { 0 }, width = { 0 }, height = { 0 };
    const char *key, *file_name = NULL;
    bool more, is_good = true;
    for (;;) {
        TD_TRY(td_tokens_key(t, &key, &more));
        if (!more)
            break;
        if (strcmp(key, "id") == 0)
            TD_TRY(read_whole(t, &id));
        else if (strcmp(key, "width") == 0)
            TD_TRY(read_whole(t, &width));
        else if (strcmp(key, "height") == 0)
            TD_TRY(read_whole(t, &height));
        else if (strcmp(key, "file_name") == 0)
            TD_TRY(read_text(t, &r->out->arena, &name, &file_name));
        else
            TD_TRY(td_tokens_skip(t));
    }
    td_coco_subject about = subject("image", &id, number, at);
    TD_TRY(require_member(r, &about, &id, "id", "an integer", &is_good));
    if (r->opts.keeps_invalid) {
        if (!is_good)
            return TD_OK;
        return td_coco_keep_image(
            r, &(td_coco_image){ .id = id.whole, .file_name = file_name ? file_name : "" }, at);
    }
    TD_TRY(require_member(r, &about, &name, "file_name", "a text", &is_good));
    TD_TRY(require_member(r, &about, &width, "width", "an integer", &is_good));
    TD_TRY(require_member(r, &about, &height, "height", "an integer", &is_good));
    TD_TRY(check_side(r, &about, &width, "width", &is_good));
    TD_TRY(check_side(r, &about, &height, "height", &is_good));
    if (is_good && !is_inside(file_name))
        return td_coco_list(r, &about, "'file_name' is '%s', wanted a path inside the image folder",
                            file_name);
    if (!is_good)
        return TD_OK;
    return td_coco_keep_image(r,
                              &(td_coco_image){ .id = id.whole,
                                                .file_name = file_name,
                                                .width = (int)width.whole,
                                                .height = (int)height.whole },
                              at);
}

td_status td_coco_keep_category(td_coco_reading *r, int64_t id, const char *name, td_coco_place at)
{
    td_coco *c = r->out;
    TD_TRY(
        td_reserve(&c->categories, &r->cap_categories, c->n_categories + 1, sizeof *c->categories));
    TD_TRY(td_reserve(&r->category_at, &r->cap_category_at, c->n_categories + 1,
                      sizeof *r->category_at));
    r->category_at[c->n_categories] = at;
    c->categories[c->n_categories++] = (td_coco_category){ .id = id, .name = name };
    return TD_OK;
}

static td_status name_by_id(td_coco *c, int64_t id, member *name, const char **text)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRId64, id);
    *text = td_arena_text(&c->arena, number);
    *name = (member){ .is_there = true };
    return *text ? TD_OK : TD_ENOMEM;
}

static td_status read_category(td_coco_reading *r, td_tokens *t, int64_t number, td_coco_place at)
{
    member id = { 0 }, name = { 0 };
    const char *key, *text = NULL;
    bool more, is_good = true;
    for (;;) {
        TD_TRY(td_tokens_key(t, &key, &more));
        if (!more)
            break;
        if (strcmp(key, "id") == 0)
            TD_TRY(read_whole(t, &id));
        else if (strcmp(key, "name") == 0)
            TD_TRY(read_text(t, &r->out->arena, &name, &text));
        else
            TD_TRY(td_tokens_skip(t));
    }
    td_coco_subject about = subject("category", &id, number, at);
    TD_TRY(require_member(r, &about, &id, "id", "an integer", &is_good));
    if (is_good && r->opts.keeps_invalid && (!text || !*text))
        TD_TRY(name_by_id(r->out, id.whole, &name, &text));
    TD_TRY(require_member(r, &about, &name, "name", "a text", &is_good));
    if (is_good && !*text) {
        is_good = false;
        TD_TRY(td_coco_list(r, &about, "its name is empty"));
    }
    return is_good ? td_coco_keep_category(r, id.whole, text, at) : TD_OK;
}

/* the members of an annotation */
typedef struct {
    member id, image, category, crowd, area, box;
    double xywh[BOX];
} annotation;

static td_status read_members(td_tokens *t, annotation *a)
{
    const char *key;
    bool more;
    for (;;) {
        TD_TRY(td_tokens_key(t, &key, &more));
        if (!more)
            return TD_OK;
        if (strcmp(key, "id") == 0)
            TD_TRY(read_whole(t, &a->id));
        else if (strcmp(key, "image_id") == 0)
            TD_TRY(read_whole(t, &a->image));
        else if (strcmp(key, "category_id") == 0)
            TD_TRY(read_whole(t, &a->category));
        else if (strcmp(key, "iscrowd") == 0)
            TD_TRY(read_flag(t, &a->crowd));
        else if (strcmp(key, "area") == 0)
            TD_TRY(read_real(t, &a->area));
        else if (strcmp(key, "bbox") == 0)
            TD_TRY(read_box(t, &a->box, a->xywh));
        else
            TD_TRY(td_tokens_skip(t));
    }
}

td_status td_coco_keep_annotation(td_coco_reading *r, const td_coco_raw *x)
{
    if (r->n_raw == INT32_MAX)
        return td_error(TD_ELIMIT, "'%s' has more than %d annotations", r->what, INT32_MAX);
    TD_TRY(td_reserve(&r->raw, &r->cap_raw, r->n_raw + 1, sizeof *r->raw));
    r->raw[r->n_raw++] = *x;
    return TD_OK;
}

static td_status keep_annotation(td_coco_reading *r, const annotation *a, td_coco_place at)
{
    const double *b = a->xywh;
    const td_coco_raw x = {
        .a = { .id = a->id.whole,
               .x = b[0],
               .y = b[1],
               .width = b[2],
               .height = b[3],
               .area = a->area.is_there ? a->area.number : b[2] * b[3],
               .is_crowd = a->crowd.whole != 0 },
        .image_id = a->image.whole,
        .category_id = a->category.whole,
        .at = at,
    };
    return td_coco_keep_annotation(r, &x);
}

static td_status read_annotation(td_coco_reading *r, td_tokens *t, int64_t number, td_coco_place at)
{
    annotation a = { 0 };
    bool is_good = true;
    TD_TRY(read_members(t, &a));
    td_coco_subject about = subject("annotation", &a.id, number, at);
    TD_TRY(require_member(r, &about, &a.id, "id", "an integer", &is_good));
    TD_TRY(require_member(r, &about, &a.image, "image_id", "an integer", &is_good));
    TD_TRY(require_member(r, &about, &a.category, "category_id", "an integer", &is_good));
    TD_TRY(require_member(r, &about, &a.box, "bbox", "a list of 4 finite numbers", &is_good));
    TD_TRY(check_optional(r, &about, &a.crowd, "iscrowd", "0 or 1", &is_good));
    TD_TRY(check_optional(r, &about, &a.area, "area", "a finite number", &is_good));
    if (is_good && a.area.is_there && a.area.number < 0) {
        is_good = false;
        TD_TRY(td_coco_list(r, &about, "'area' is %g, wanted 0 or more", a.area.number));
    }
    return is_good ? keep_annotation(r, &a, at) : TD_OK;
}

/* --- sections --------------------------------------------------------------------------------- */

typedef struct {
    const char *name, *one;
    entry_fn *read;
} section;

enum { IMAGES, CATEGORIES, ANNOTATIONS, SECTIONS };

static const section sections[SECTIONS] = {
    [IMAGES] = { "images", "image", read_image },
    [CATEGORIES] = { "categories", "category", read_category },
    [ANNOTATIONS] = { "annotations", "annotation", read_annotation },
};

static td_status read_entry(td_coco_reading *r, td_tokens *t, const section *s, int64_t number)
{
    td_token v;
    char found[DESCRIBED];
    TD_TRY(td_tokens_value(t, &v));
    td_coco_place at = { .byte = td_tokens_byte(t), .line = td_tokens_line(t) };
    if (v.kind == TD_TOKEN_OBJECT)
        return s->read(r, t, number, at);
    td_token_describe(&v, found, sizeof found);
    if (v.kind == TD_TOKEN_LIST)
        TD_TRY(td_tokens_leave(t));
    const td_coco_subject about = { .kind = s->one, .id = -1, .number = number, .at = at };
    return td_coco_list(r, &about, "it is %s, wanted an object", found);
}

static td_status read_section(td_coco_reading *r, td_tokens *t, const section *s)
{
    td_token v;
    char found[DESCRIBED];
    bool more;
    TD_TRY(td_tokens_value(t, &v));
    td_token_describe(&v, found, sizeof found);
    if (v.kind != TD_TOKEN_LIST)
        return td_tokens_error(t, "'%s' is %s, wanted a list", s->name, found);
    for (int64_t i = 0;; i++) {
        TD_TRY(td_tokens_item(t, &more));
        if (!more)
            return TD_OK;
        TD_TRY(read_entry(r, t, s, i));
    }
}

static td_status check_sections(const td_tokens *t, const bool *is_there)
{
    td_text missing = { 0 };
    for (int i = 0; i < SECTIONS; i++)
        if (!is_there[i])
            td_text_add(&missing, "%s'%s'", missing.len ? ", " : "", sections[i].name);
    td_status st = td_text_status(&missing);
    if (st == TD_OK && missing.len > 0)
        st = td_error(TD_EFORMAT,
                      "'%s' has no %s: wanted COCO instances, an object with images, annotations "
                      "and categories",
                      td_tokens_what(t), td_text_get(&missing));
    td_text_release(&missing);
    return st;
}

static td_status read_all(td_coco_reading *r, td_tokens *t)
{
    bool is_there[SECTIONS] = { false }, more;
    char found[DESCRIBED];
    const char *key;
    td_token v;
    TD_TRY(td_tokens_value(t, &v));
    td_token_describe(&v, found, sizeof found);
    if (v.kind != TD_TOKEN_OBJECT)
        return td_tokens_error(t,
                               "found %s, wanted COCO instances, an object with images, "
                               "annotations and categories",
                               found);
    for (;;) {
        int i = 0;
        TD_TRY(td_tokens_key(t, &key, &more));
        if (!more)
            break;
        while (i < SECTIONS && strcmp(key, sections[i].name) != 0)
            i++;
        if (i == SECTIONS) {
            TD_TRY(td_tokens_skip(t));
            continue;
        }
        if (is_there[i])
            return td_tokens_error(t, "there are two '%s'", sections[i].name);
        is_there[i] = true;
        TD_TRY(read_section(r, t, &sections[i]));
    }
    TD_TRY(td_tokens_end(t));
    return check_sections(t, is_there);
}

/* --- entry points ----------------------------------------------------------------------------- */

void td_coco_reading_release(td_coco_reading *r)
{
    td_coco_free(r->out);
    td_free(r->image_at);
    td_free(r->category_at);
    td_free(r->raw);
}

static td_status read_from(td_tokens *t, const td_coco_opts *opts, td_coco **out)
{
    td_status st;
    td_coco_reading r = { .out = TD_NEW(td_coco), .what = td_tokens_what(t), .opts = *opts };
    if (!r.out)
        return TD_ENOMEM;
    TD_OUT(read_all(&r, t));
    TD_OUT(td_coco_resolve(&r));
    *out = r.out;
    r.out = NULL;
out:
    td_coco_reading_release(&r);
    return st;
}

td_status td_coco_read(const char *path, const td_coco_opts *opts, td_coco **out)
{
    td_tokens *t;
    *out = NULL;
    TD_TRY(td_tokens_open(path, &t));
    td_status st = read_from(t, opts, out);
    td_tokens_free(t);
    return st;
}

td_status td_coco_parse(const void *bytes, size_t n_bytes, const char *what,
                        const td_coco_opts *opts, td_coco **out)
{
    td_tokens *t;
    *out = NULL;
    TD_TRY(td_tokens_parse(bytes, n_bytes, what, &t));
    td_status st = read_from(t, opts, out);
    td_tokens_free(t);
    return st;
}

void td_coco_free(td_coco *c)
{
    if (!c)
        return;
    td_free(c->images);
    td_free(c->categories);
    td_free(c->annotations);
    td_free(c->first);
    td_free(c->bad);
    td_arena_release(&c->arena);
    td_free(c);
}
