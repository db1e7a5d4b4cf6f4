/*
 * files.c -- gathers the image files of classify and detect, and counts failures
 */
#include "cli/files.h"

#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 256 << 20 }; /* limit of a list on standard input */

static td_status read_list(td_text *list)
{
    char part[1 << 14];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) {
        td_text_add_bytes(list, part, n);
        TD_TRY(td_text_status(list));
        if (list->len > LIST_BYTES)
            return td_error(TD_ELIMIT, "the list on standard input is longer than %d MiB",
                            LIST_BYTES >> 20);
    }
    if (ferror(stdin))
        return td_error_errno(TD_EIO, "cannot read the list on standard input");
    return strlen(td_text_get(list)) == list->len
               ? TD_OK
               : td_error(TD_EFORMAT, "the list on standard input has a NUL byte, wanted a path "
                                      "on each line");
}

static td_status add_path(td_cli_files *p, const char *path)
{
    TD_TRY(td_reserve(&p->items, &p->cap, p->n + 1, sizeof *p->items));
    p->items[p->n++] = path;
    return TD_OK;
}

/* Remove the '\r' of a list from Windows, unless a file has that name. */
static void cut_return(char *line)
{
    const size_t n = strlen(line);
    FILE *f = NULL;
    if (n == 0 || line[n - 1] != '\r' || (f = fopen(line, "rb"))) {
        if (f)
            fclose(f);
        return;
    }
    line[n - 1] = '\0';
}

/* Split the list into lines, in place; empty lines are skipped. */
static td_status add_lines(td_cli_files *p, td_text *list)
{
    for (char *s = list->data, *end; s && *s; s = end) {
        end = s + strcspn(s, "\n");
        if (*end)
            *end++ = '\0';
        cut_return(s);
        if (*s)
            TD_TRY(add_path(p, s));
    }
    return TD_OK;
}

void td_cli_files_release(td_cli_files *f)
{
    td_free(f->items);
    td_text_release(&f->list);
}

td_status td_cli_files_gather(const td_call *call, const char *verb, const char *first,
                              td_cli_files *out)
{
    bool is_read = false;
    if (first)
        TD_TRY(add_path(out, first));
    for (int i = 0; i < call->n_args; i++) {
        if (strcmp(call->args[i], "-") != 0) {
            TD_TRY(add_path(out, call->args[i]));
            continue;
        }
        if (is_read)
            return td_error(TD_EUSAGE, "'-' is given twice");
        is_read = true;
        TD_TRY(read_list(&out->list));
        TD_TRY(add_lines(out, &out->list));
    }
    if (out->n == 0 && is_read)
        return td_error(TD_EARG, "the list on standard input is empty");
    if (out->n == 0)
        return td_error(TD_EUSAGE, "%s requires FILE|FOLDER|-...", verb);
    return out->n <= INT32_MAX ? TD_OK : td_error(TD_ELIMIT, "%zu files are too many", out->n);
}

/* --- outcome ---------------------------------------------------------------------------------- */

enum { SHOWN_BYTES = 1 << 16 }; /* results are buffered up to this size */

void td_cli_outcome_add(td_cli_outcome *o, const char *path, td_status st, const char *message)
{
    o->n++;
    if (st != TD_OK && o->n_bad++ == 0)
        td_text_add(&o->first_error, "'%s': %s", path, message ? message : td_status_text(st));
}

td_status td_cli_outcome_show(const td_cli_outcome *o, td_text *out)
{
    if (out->len < SHOWN_BYTES)
        return TD_OK;
    TD_TRY(td_text_status(out));
    if (td_verb_print(out, 0) != 0)
        return td_error(TD_EIO, "after %lld images", (long long)o->n);
    out->len = 0;
    return TD_OK;
}

td_status td_cli_outcome_end(td_cli_outcome *o, td_status st, bool is_json, td_text *out)
{
    const bool is_only_bad = o->n == 1 && o->n_bad == 1;
    if (o->n == 0 || (st == TD_OK && is_only_bad && !is_json))
        td_text_release(out);
    if (st == TD_OK && is_only_bad)
        st = td_error(TD_EFORMAT, "%s", td_text_get(&o->first_error));
    else if (st == TD_OK && o->n_bad == o->n)
        st = td_error(TD_EFORMAT, "none of %lld files can be read: %s", (long long)o->n,
                      td_text_get(&o->first_error));
    td_text_release(&o->first_error);
    return st;
}
