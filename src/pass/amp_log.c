/*
 * amp_log.c -- writes the graph before and after the rewrite, and the lists, to files
 */
#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"
#include "pass/amp.h"

static td_status write_file(const td_amp_opts *o, uint64_t id, const char *what, const char *text,
                            size_t len)
{
    char name[64];
    snprintf(name, sizeof name, "amp-%016llx-%s", (unsigned long long)id, what);
    char *path = td_path_join(o->log_path, name);
    td_status st = path ? td_file_write(path, text, len) : TD_ENOMEM;
    td_free(path);
    return st;
}

static td_status lists_text(const td_amp_opts *o, td_text *out)
{
    static const td_amp classes[] = { TD_AMP_ALLOW, TD_AMP_INFER, TD_AMP_DENY, TD_AMP_CLEAR };
    td_amp_lists *lists;
    TD_TRY(td_amp_lists_of(o, &lists));
    for (int c = 0; c < 4; c++) {
        int n;
        const char *const *names = td_amp_lists_names(lists, classes[c], &n);
        td_text_add(out, "%s:\n", td_amp_class_name(classes[c]));
        for (int i = 0; i < n; i++)
            td_text_add(out, "    %s\n", names[i]);
    }
    td_amp_lists_free(lists);
    return td_text_status(out);
}

td_status td_amp_write_log(const td_graph *before, const td_graph *after, const td_amp_opts *o)
{
    td_status st = TD_OK;
    char *old = NULL, *new = NULL;
    td_text lists = { 0 };
    if (!o || !o->log_path || o->is_silent || td_amp_dtype(o) == TD_DT_F32 ||
        o->level >= TD_AMP_LEVEL_AUTOCAST)
        return TD_OK;
    TD_OUT(td_make_folder(o->log_path));
    TD_OUT(td_graph_print(before, &old));
    TD_OUT(td_graph_print(after, &new));
    TD_OUT(lists_text(o, &lists));
    const uint64_t id = td_hash_text(old);
    TD_OUT(write_file(o, id, "before.td", old, strlen(old)));
    TD_OUT(write_file(o, id, "after.td", new, strlen(new)));
    TD_OUT(write_file(o, id, "lists.txt", td_text_get(&lists), lists.len));
out:
    td_text_free(old);
    td_text_free(new);
    td_text_release(&lists);
    return st == TD_OK ? TD_OK : td_error_context(st, "--amp-log-path");
}
