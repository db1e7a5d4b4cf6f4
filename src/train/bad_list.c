/*
 * bad_list.c -- writing bad.list
 */
#include "train/bad_list.h"

#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/os.h"
#include "base/text.h"

#define LIST_BYTES ((size_t)1 << 30)

td_status td_bad_list_open(td_bad_list *l, const char *path, bool goes_on)
{
    size_t n;
    l->path = path;
    if (goes_on && td_path_exists(path))
        return td_file_read(path, LIST_BYTES, &l->known, &n);
    unlink(path); /* of another run */
    return TD_OK;
}

static void add_line(const td_bad_list *l, const td_bad_picture *bad, td_text *out)
{
    td_text line = { 0 };
    td_text_add_json(&line, bad->path);
    td_text_add(&line, "\t");
    td_text_add_json(&line, bad->reason);
    td_text_add(&line, "\n");
    if (!l->known || !strstr(l->known, td_text_get(&line)))
        td_text_add(out, "%s", td_text_get(&line));
    td_text_release(&line);
}

static void add_lines(const td_bad_list *l, const td_loader *ld, td_text *out)
{
    const td_bad_picture *bad;
    int64_t n = ld ? td_loader_bad(ld, &bad) : 0;
    for (int64_t i = 0; i < n; i++)
        add_line(l, &bad[i], out);
}

td_status td_bad_list_write(td_bad_list *l, const td_loader *train, const td_loader *val)
{
    td_text own = { 0 }, all = { 0 };
    td_status st = TD_OK;
    add_lines(l, train, &own);
    add_lines(l, val, &own);
    TD_OUT(td_text_status(&own));
    if (own.len > l->n_written) {
        td_text_add(&all, "%s%s", l->known ? l->known : "", td_text_get(&own));
        TD_OUT(td_text_status(&all));
        TD_OUT(td_file_write(l->path, td_text_get(&all), all.len));
        l->n_written = own.len;
    }
out:
    td_text_release(&own);
    td_text_release(&all);
    return st;
}

void td_bad_list_release(td_bad_list *l)
{
    td_free(l->known);
    *l = (td_bad_list){ 0 };
}
