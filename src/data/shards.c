/*
 * shards.c -- opens data sets of tar shards (WebDataset)
 *
 * Opening reads the headers of every tar and the small files with labels; images are read by their
 * place later, so that samples are shuffled and resumed as those of folders.
 */
#include "data/shards.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/paths.h"
#include "data/labels.h"
#include "data/members.h"
#include "data/shard_names.h"
#include "io/tar.h"

enum { CLS_BYTES_MAX = 1024, JSON_BYTES_MAX = 1 << 20 };

static const char *const image_endings[] = { "jpg",  "jpeg", "png", "webp", "tif",
                                             "tiff", "gif",  "bmp", NULL };

/* The sample whose files are being read. */
typedef struct {
    td_text key;   /* name up to the first dot */
    bool is_begun; /* a file with this key was read */
    const char *image;
    int64_t header, offset, n_bytes;
    td_text cls, json; /* labels */
    bool has_cls, has_json;
} current;

typedef struct {
    td_dataset *ds;
    size_t cap; /* allocated elements of ds->samples */
    td_labels labels;
    td_map keys; /* base names of the samples already read from this shard */
    current now;
    char *content; /* buffer for a label file */
    size_t cap_content;
    const char *shard;
    const td_member_file *file;
} shards;

bool td_shards_is(const char *path)
{
    return td_shard_names_are(path, TD_SHARDS_TAR);
}

/* --- labels ----------------------------------------------------------------------------------- */

static td_status wrong(const shards *s, int64_t header, const char *why)
{
    return td_error(TD_EFORMAT, "'%s': sample '%s' %s (byte %lld)", s->shard,
                    td_text_get(&s->now.key), why, (long long)header);
}

static td_status read_content(shards *s, td_tar *t, const td_tar_entry *e, int64_t max)
{
    if (e->n_bytes > max)
        return wrong(s, e->header, "has a label file with too many bytes");
    TD_TRY(td_reserve(&s->content, &s->cap_content, (size_t)e->n_bytes + 1, 1));
    TD_TRY(td_tar_read(t, e, s->content));
    s->content[e->n_bytes] = '\0';
    return TD_OK;
}

static td_status set_label(shards *s, const td_tar_entry *e, const char *bytes, size_t n,
                           td_text *out)
{
    while (n && strchr(" \t\r\n", bytes[n - 1]) && bytes[n - 1])
        n--;
    for (; n && strchr(" \t\r\n", *bytes) && *bytes; n--)
        bytes++;
    out->len = 0;
    td_text_add_bytes(out, bytes, n);
    TD_TRY(td_text_status(out));
    if (!n)
        return wrong(s, e->header, "has an empty label");
    if (n > CLS_BYTES_MAX || !td_text_is_utf8(td_text_get(out)))
        return wrong(s, e->header, "has a label that is no text");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] < ' ' || bytes[i] == 127)
            return wrong(s, e->header, "has a label that is no text");
    return TD_OK;
}

static td_status read_cls(shards *s, td_tar *t, const td_tar_entry *e)
{
    if (s->now.has_cls)
        return wrong(s, e->header, "has two .cls files");
    TD_TRY(read_content(s, t, e, CLS_BYTES_MAX));
    TD_TRY(set_label(s, e, s->content, (size_t)e->n_bytes, &s->now.cls));
    s->now.has_cls = true;
    return TD_OK;
}

static td_status label_of(shards *s, const td_tar_entry *e, const td_json *doc)
{
    const td_json *label = td_json_get(doc, "label");
    const char *text;
    char digits[24];
    int64_t number;
    if (!label)
        return TD_OK; /* captions and the like; the label may be in .cls */
    s->now.has_json = true;
    if (td_json_kind_of(label) == TD_JSON_TEXT) {
        TD_TRY(td_json_as_text(label, &text));
        return set_label(s, e, text, strlen(text), &s->now.json);
    }
    if (td_json_as_int(label, &number) != TD_OK || number < 0)
        return wrong(s, e->header, "has a \"label\" that is neither a number nor a text");
    (void)snprintf(digits, sizeof digits, "%lld", (long long)number);
    return set_label(s, e, digits, strlen(digits), &s->now.json);
}

static td_status read_json(shards *s, td_tar *t, const td_tar_entry *e)
{
    td_json *doc;
    if (s->now.has_json)
        return wrong(s, e->header, "has two .json files");
    TD_TRY(read_content(s, t, e, JSON_BYTES_MAX));
    td_status st = td_json_parse(s->content, (size_t)e->n_bytes, e->name, &doc);
    if (st != TD_OK)
        return td_error_context(st, "'%s'", s->shard);
    st = label_of(s, e, doc);
    td_json_free(doc);
    return st;
}

/* --- samples ---------------------------------------------------------------------------------- */

static td_status add_sample(shards *s)
{
    td_dataset *ds = s->ds;
    const current *now = &s->now;
    td_member *m = td_arena_alloc(&ds->arena, 1, sizeof *m);
    int64_t number;
    if (!m)
        return TD_ENOMEM;
    *m = (td_member){ .file = s->file, .offset = now->offset, .n_bytes = now->n_bytes };
    TD_TRY_MSG(td_labels_add(&s->labels, &ds->arena,
                             td_text_get(now->has_cls ? &now->cls : &now->json), &number),
               "'%s'", s->shard);
    TD_TRY(td_reserve(&ds->samples, &s->cap, (size_t)ds->n + 1, sizeof *ds->samples));
    ds->samples[ds->n++] = (td_sample){ .path = now->image, .label = number, .member = m };
    return TD_OK;
}

/* Files without image and label, such as an index, are no samples. */
static td_status note_other(shards *s)
{
    td_dataset *ds = s->ds;
    if (ds->n_others < TD_OTHERS_LISTED) {
        const char *path = td_path_append(&ds->arena, s->shard, td_text_get(&s->now.key));
        if (!path)
            return TD_ENOMEM;
        ds->others[ds->n_others] = path;
    }
    ds->n_others++;
    return TD_OK;
}

/* The sample's files have all been read. */
static td_status finish_sample(shards *s)
{
    current *now = &s->now;
    if (!now->is_begun)
        return TD_OK;
    const bool has_label = now->has_cls || now->has_json;
    now->is_begun = false;
    if (!now->image && !now->has_cls)
        return note_other(s);
    if (!now->image)
        return wrong(s, now->header, "has no image");
    if (!has_label)
        return wrong(s, now->header, "has no label, in .cls or as \"label\" in .json");
    if (td_map_has(&s->keys, td_text_get(&now->key)))
        return wrong(s, now->header, "occurs twice: the files of a sample follow each other");
    TD_TRY(td_map_set(&s->keys, td_text_get(&now->key), s));
    return add_sample(s);
}

static void begin_sample(current *now, const td_tar_entry *e, size_t n_key)
{
    now->key.len = 0;
    td_text_add_bytes(&now->key, e->name, n_key);
    now->is_begun = true;
    now->image = NULL;
    now->header = e->header;
    now->has_cls = now->has_json = false;
}

static bool is_image_ending(const char *ending)
{
    for (int i = 0; image_endings[i]; i++)
        if (strcasecmp(ending, image_endings[i]) == 0)
            return true;
    return false;
}

static td_status keep_image(shards *s, const td_tar_entry *e)
{
    current *now = &s->now;
    if (now->image)
        return wrong(s, e->header, "has two images");
    now->image = td_path_append(&s->ds->arena, s->shard, e->name);
    now->offset = e->offset;
    now->n_bytes = e->n_bytes;
    return now->image ? TD_OK : TD_ENOMEM;
}

/* Names that begin with a dot or two underscores describe the tar, not a sample. */
static bool is_sample_name(const char *base)
{
    return base[0] != '.' && strncmp(base, "__", 2) != 0 && strchr(base, '.');
}

static td_status read_file(shards *s, td_tar *t, const td_tar_entry *e)
{
    const char *base = td_path_base(e->name);
    if (!is_sample_name(base))
        return TD_OK;
    const char *dot = strchr(base, '.'), *ending = dot + 1;
    const size_t n_key = (size_t)(dot - e->name);
    current *now = &s->now;
    if (!now->is_begun || now->key.len != n_key || memcmp(now->key.data, e->name, n_key) != 0) {
        TD_TRY(finish_sample(s));
        begin_sample(now, e, n_key);
        TD_TRY(td_text_status(&now->key));
    }
    if (is_image_ending(ending))
        return keep_image(s, e);
    if (strcasecmp(ending, "cls") == 0)
        return read_cls(s, t, e);
    return strcasecmp(ending, "json") == 0 ? read_json(s, t, e) : TD_OK;
}

static td_status read_tar(shards *s, td_tar *t)
{
    td_tar_entry e;
    td_map_release(&s->keys);
    s->keys = (td_map){ 0 };
    for (;;) {
        TD_TRY(td_tar_next(t, &e));
        if (!e.name)
            return finish_sample(s);
        TD_TRY(read_file(s, t, &e));
    }
}

/* --- the data set ----------------------------------------------------------------------------- */

static td_status finish(shards *s)
{
    int64_t *class_of = NULL;
    td_dataset *ds = s->ds;
    if (!ds->n)
        return td_error(TD_EFORMAT, "'%s' has no samples: images with .cls or .json beside them",
                        ds->root);
    td_status st = td_labels_finish(&s->labels, ds->root, ds, &class_of);
    for (int64_t i = 0; i < ds->n && st == TD_OK; i++)
        ds->samples[i].label = class_of[ds->samples[i].label];
    td_free(class_of);
    return st;
}

static void release(shards *s)
{
    td_labels_release(&s->labels);
    td_map_release(&s->keys);
    td_text_release(&s->now.key);
    td_text_release(&s->now.cls);
    td_text_release(&s->now.json);
    td_free(s->content);
}

static td_status set_root(td_dataset *ds, const char *path)
{
    ds->is_list = true;
    ds->root = td_arena_text(&ds->arena, path);
    return ds->root ? TD_OK : TD_ENOMEM;
}

td_status td_shards_parse(const void *bytes, size_t n_bytes, const char *what, td_dataset *ds)
{
    static const td_member_file file = { .path = "memory" };
    shards s = { .ds = ds, .shard = what, .file = &file };
    td_tar t;
    td_status st;
    td_tar_from(bytes, n_bytes, what, &t);
    TD_OUT(set_root(ds, what));
    TD_OUT(read_tar(&s, &t));
    st = finish(&s);
out:
    td_tar_close(&t);
    release(&s);
    return st;
}

static td_status read_shard(shards *s, const char *path)
{
    td_tar t;
    td_member_file *file = td_arena_alloc(&s->ds->arena, 1, sizeof *file);
    if (!file)
        return TD_ENOMEM;
    TD_TRY(td_member_file_init(path, file));
    s->file = file;
    s->shard = path;
    td_status st = td_tar_open(path, &t);
    if (st == TD_OK)
        st = read_tar(s, &t);
    td_tar_close(&t);
    return st;
}

td_status td_shards_open(const td_dataset_opts *opts, td_dataset *ds)
{
    shards s = { .ds = ds };
    td_shard_names names = { .arena = &ds->arena };
    td_status st;
    if (opts->has_boxes || opts->annotations)
        return td_error(TD_EFORMAT,
                        "'%s' is a data set of tar shards with classes, wanted images with boxes",
                        opts->path);
    TD_OUT(set_root(ds, opts->path));
    TD_OUT(td_shard_names_find(opts, &names, &ds->is_unsplit));
    for (size_t i = 0; i < names.n; i++)
        TD_OUT(read_shard(&s, names.paths[i]));
    st = finish(&s);
out:
    release(&s);
    td_free(names.paths);
    return st;
}
