/*
 * record_walk.c -- visits the records of TFRecord files
 */
#include "data/record_walk.h"

#include <stdio.h>
#include <string.h>

#include "base/paths.h"

enum { NAME_BYTES_MAX = 1024 };

/* --- records ---------------------------------------------------------------------------------- */

td_status td_record_refuse(const td_record *r, const char *why)
{
    return td_error(TD_EFORMAT, "'%s': the record at byte %lld %s", r->file, (long long)r->at, why);
}

td_status td_record_int(const td_record *r, td_tf_feature f, int64_t *out)
{
    const td_tf_list *l = &r->x->lists[f];
    if (l->n == 1) {
        *out = l->ints[0];
        return TD_OK;
    }
    return td_error(TD_EFORMAT, "'%s': the record at byte %lld has %zu values of '%s', wanted one",
                    r->file, (long long)r->at, l->n, td_tf_feature_name(f));
}

const char *td_record_text(const td_record *r, td_tf_feature f, size_t i)
{
    const td_tf_list *l = &r->x->lists[f];
    const char *text = i < l->n ? td_tf_list_text(l, i) : "";
    if (!*text || strlen(text) > NAME_BYTES_MAX || !td_text_is_utf8(text))
        return NULL;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return NULL;
    return text;
}

/* --- walking ---------------------------------------------------------------------------------- */

typedef struct {
    td_dataset *ds;
    td_tfrecords t;
    td_tf_example x;
    const td_member_file *file;
    td_record_fn *fn;
    void *ctx;
} walk;

/* The base name of image/filename, or the record's number. */
static td_status name_record(walk *w, td_record *r, int64_t number)
{
    char digits[24];
    const char *name = td_record_text(r, TD_TF_FILENAME, 0);
    (void)snprintf(digits, sizeof digits, "%lld", (long long)number);
    name = name && *td_path_base(name) ? td_path_base(name) : digits;
    r->path = td_path_append(&w->ds->arena, r->file, name);
    if (!r->path)
        return TD_ENOMEM;
    r->name = r->path + strlen(r->file) + 1;
    return TD_OK;
}

static td_status visit(walk *w, const td_tfrecord *at, int64_t number)
{
    td_record r = { .file = w->file->path, .at = at->at, .x = &w->x };
    td_member *m = td_arena_alloc(&w->ds->arena, 1, sizeof *m);
    if (!m)
        return TD_ENOMEM;
    TD_TRY(td_tf_example_read(&w->t, at, &w->x));
    if (!w->x.image_at)
        return td_record_refuse(&r, "has no 'image/encoded'");
    TD_TRY(name_record(w, &r, number));
    *m = (td_member){ .file = w->file,
                      .offset = w->x.image_at,
                      .n_bytes = w->x.image_bytes,
                      .record = at->offset,
                      .record_bytes = at->n_bytes };
    r.member = m;
    return w->fn(w->ctx, &r);
}

static td_status visit_all(walk *w)
{
    td_tfrecord at;
    for (int64_t number = 0;; number++) {
        TD_TRY(td_tfrecords_next(&w->t, &at));
        if (!at.offset)
            return TD_OK;
        TD_TRY(visit(w, &at, number));
    }
}

static td_status walk_file(walk *w, const char *path)
{
    td_member_file *file = td_arena_alloc(&w->ds->arena, 1, sizeof *file);
    if (!file)
        return TD_ENOMEM;
    TD_TRY(td_member_file_init(path, file));
    w->file = file;
    td_status st = td_tfrecords_open(path, &w->t);
    if (st == TD_OK)
        st = visit_all(w);
    td_tfrecords_close(&w->t);
    return st;
}

static td_status walk_bytes(walk *w, const td_record_source *s)
{
    td_member_file *file = td_arena_alloc(&w->ds->arena, 1, sizeof *file);
    if (!file)
        return TD_ENOMEM;
    *file = (td_member_file){ .path = s->files[0] };
    w->file = file;
    td_tfrecords_from(s->bytes, s->n_bytes, s->files[0], &w->t);
    return visit_all(w);
}

td_status td_records_walk(const td_record_source *s, td_dataset *ds, td_record_fn *fn, void *ctx)
{
    walk w = { .ds = ds, .fn = fn, .ctx = ctx };
    td_status st = TD_OK;
    if (s->bytes)
        TD_OUT(walk_bytes(&w, s));
    for (size_t i = 0; !s->bytes && i < s->n_files; i++)
        TD_OUT(walk_file(&w, s->files[i]));
out:
    td_tf_example_release(&w.x);
    return st;
}
