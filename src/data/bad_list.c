/*
 * bad_list.c -- writes bad.list
 */
#include "data/bad_list.h"

#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"

#define LIST_BYTES ((size_t)1 << 30)

td_status td_bad_list_open(td_bad_list *l, const char *path, bool is_continued)
{
    size_t n;
    l->path = path;
    if (!path)
        return TD_OK;
    if (is_continued && td_path_exists(path))
        return td_file_read(path, LIST_BYTES, &l->known, &n);
    unlink(path); /* from another run */
    return TD_OK;
}

/* Collect the lines already written. */
static td_status collect_known_lines(const char *lines, td_map *known)
{
    td_text line = { 0 };
    td_status st = TD_OK;
    for (const char *s = lines ? lines : ""; *s && st == TD_OK;) {
        size_t n = strcspn(s, "\n");
        line.len = 0;
        td_text_add_bytes(&line, s, n);
        st = td_text_status(&line);
        if (st == TD_OK)
            st = td_map_set(known, td_text_get(&line), NULL);
        s += n + (s[n] == '\n');
    }
    td_text_release(&line);
    return st;
}

static void add_line(const td_map *known, const char *path, const char *reason, td_text *out)
{
    td_text line = { 0 };
    td_text_add_json(&line, path);
    td_text_add(&line, "\t");
    td_text_add_json(&line, reason);
    if (!td_map_has(known, td_text_get(&line)))
        td_text_add(out, "%s\n", td_text_get(&line));
    td_text_release(&line);
}

static void add_lines(const td_map *known, const td_loader *ld, td_text *out)
{
    const td_bad_image *bad;
    const td_bad_annotation *annotations;
    int64_t n = ld ? td_loader_bad(ld, &bad) : 0, n_annotations = 0;
    const td_dataset *ds = ld ? td_loader_dataset(ld) : NULL;
    if (ds)
        (void)td_dataset_bad_annotations(ds, &annotations, &n_annotations);
    for (int64_t i = 0; i < n_annotations; i++)
        add_line(known, td_dataset_annotation_file(ds), annotations[i].text, out);
    for (int64_t i = 0; i < n; i++)
        add_line(known, bad[i].path, bad[i].reason, out);
}

/* Add the lines not yet written. */
static td_status add_missing(const char *lines, td_map *known, td_text *out)
{
    td_text line = { 0 };
    td_status st = TD_OK;
    for (const char *s = lines; *s && st == TD_OK;) {
        size_t n = strcspn(s, "\n");
        line.len = 0;
        td_text_add_bytes(&line, s, n);
        st = td_text_status(&line);
        if (st == TD_OK && !td_map_has(known, td_text_get(&line))) {
            td_text_add(out, "%s\n", td_text_get(&line));
            st = td_map_set(known, td_text_get(&line), NULL);
        }
        s += n + (s[n] == '\n');
    }
    td_text_release(&line);
    return st;
}

td_status td_bad_list_write(td_bad_list *l, const td_loader *train, const td_loader *val)
{
    td_text own = { 0 }, all = { 0 };
    td_map known = { 0 };
    td_status st = TD_OK;
    if (!l->path)
        return TD_OK;
    TD_OUT(collect_known_lines(l->known, &known));
    add_lines(&known, train, &own);
    add_lines(&known, val, &own);
    if (l->other_ranks) {
        TD_OUT(collect_known_lines(td_text_get(&own), &known));
        TD_OUT(add_missing(l->other_ranks, &known, &own));
    }
    TD_OUT(td_text_status(&own));
    if (own.len > l->n_written) {
        td_text_add(&all, "%s%s", l->known ? l->known : "", td_text_get(&own));
        TD_OUT(td_text_status(&all));
        TD_OUT(td_file_write(l->path, td_text_get(&all), all.len));
        l->n_written = own.len;
    }
out:
    td_map_release(&known);
    td_text_release(&own);
    td_text_release(&all);
    return st;
}

/* On rank 0: receive the lines of another rank. */
static td_status take_lines(void *ctx, int rank, const void *bytes, size_t n)
{
    td_text *all = ctx;
    if (rank > 0)
        td_text_add_bytes(all, bytes, n);
    return td_text_status(all);
}

/* Replace the lines of the other ranks. */
static td_status set_other_ranks(td_bad_list *l, const char *lines)
{
    char *copy = td_copy_text(lines);
    if (!copy)
        return TD_ENOMEM;
    td_free(l->other_ranks);
    l->other_ranks = copy;
    return TD_OK;
}

td_status td_bad_list_gather(td_bad_list *l, td_comm *c, const td_loader *train,
                             const td_loader *val)
{
    const td_map none = { 0 };
    td_text own = { 0 }, all = { 0 };
    td_status st = TD_OK;
    if (!c)
        return TD_OK;
    add_lines(&none, train, &own);
    add_lines(&none, val, &own);
    TD_OUT(td_text_status(&own));
    TD_OUT(td_comm_collect(c, td_text_get(&own), own.len, take_lines, &all));
    if (td_comm_rank(c) == 0 && all.len)
        st = set_other_ranks(l, td_text_get(&all));
out:
    td_text_release(&own);
    td_text_release(&all);
    return st;
}

void td_bad_list_release(td_bad_list *l)
{
    td_free(l->known);
    td_free(l->other_ranks);
    *l = (td_bad_list){ 0 };
}
