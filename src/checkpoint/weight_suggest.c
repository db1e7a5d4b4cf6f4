/*
 * weight_suggest.c -- lists existing weight files in an error message
 */
#include "checkpoint/weight_suggest.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"

enum { N_NAMED = 3, MESSAGE_BYTES = 1024 };

typedef struct {
    const char *name; /* borrowed */
    struct timespec written;
} weight_file;

/* The newest weight files, the newest first. */
typedef struct {
    weight_file at[N_NAMED];
    int n;
} newest;

static bool is_weight_name(const char *name)
{
    static const char *const endings[] = { ".safetensors", ".pth", ".pth.tar", ".pt" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (name[0] != '.' && td_text_ends(name, endings[i]))
            return true;
    return false;
}

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static void keep_newest(newest *l, const weight_file *f)
{
    int at = l->n;
    while (at > 0 && is_newer(&f->written, &l->at[at - 1].written))
        at--;
    if (at == N_NAMED)
        return;
    l->n += l->n < N_NAMED;
    memmove(&l->at[at + 1], &l->at[at], (size_t)(l->n - 1 - at) * sizeof *l->at);
    l->at[at] = *f;
}

/* Find the newest files; `out` borrows their names from `names`. */
static td_status find_newest(const char *folder, td_listing *names, newest *out)
{
    *out = (newest){ .n = 0 };
    TD_TRY(td_list_folder(folder, names));
    for (size_t i = 0; i < names->n; i++) {
        struct stat s;
        if (names->is_folder[i] || !is_weight_name(names->names[i]))
            continue;
        char *path = td_path_join(folder, names->names[i]);
        if (!path)
            return TD_ENOMEM;
        const bool is_file = stat(path, &s) == 0 && S_ISREG(s.st_mode);
        td_free(path);
        if (is_file)
            keep_newest(out, &(weight_file){ names->names[i], s.st_mtim });
    }
    return TD_OK;
}

/* Add "'run/checkpoint.safetensors', 'run/model_best.safetensors'". */
static void add_paths(const newest *l, const char *folder, td_text *out)
{
    const bool has_slash = !*folder || td_text_ends(folder, "/");
    for (int i = 0; i < l->n; i++)
        td_text_add(out, "%s'%s%s%s'", i ? ", " : "", folder, has_slash ? "" : "/", l->at[i].name);
}

/* Add the files in `folder`, if any, to the error message. */
static td_status add_files(const char *path, const char *folder, td_text *out)
{
    newest l;
    td_listing names = { 0 };
    const bool is_folder = folder == path;
    td_status st = find_newest(*folder ? folder : ".", &names, &l);
    if (st == TD_OK && l.n > 0) {
        td_text_add(out, "; %s newest weight file%s ", is_folder ? "its" : "the folder's",
                    l.n > 1 ? "s are" : " is");
        add_paths(&l, folder, out);
    } else if (st == TD_OK && is_folder) {
        td_text_add(out, "; it has no weight file (.safetensors, .pth, .pth.tar, .pt)");
    }
    td_listing_release(&names);
    return st == TD_OK ? td_text_status(out) : st;
}

td_status td_weight_suggest(td_status st, const char *path)
{
    char message[MESSAGE_BYTES];
    td_text more = { 0 };
    snprintf(message, sizeof message, "%s", td_error_message());
    const bool is_folder = td_path_is_folder(path);
    if (!is_folder && td_path_exists(path))
        return st;
    char *parent = td_copy_text(path);
    if (parent)
        parent[td_path_base(path) - path] = '\0';
    const bool is_found =
        parent && add_files(path, is_folder ? path : parent, &more) == TD_OK && more.len > 0;
    st = is_found ? td_error(st, "%s%s", message, td_text_get(&more)) : td_error_set(st, message);
    td_text_release(&more);
    td_free(parent);
    return st;
}
