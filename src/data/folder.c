/*
 * folder.c -- data sets <root>/<split>/<class>/.../<image>, as read by torchvision's ImageFolder
 *
 * The class index is the rank of the folder's name in byte order.  Within a class, images are
 * ordered by their folder, then by name: the order of sorted(os.walk(class)).  Links are
 * followed; hidden names are skipped (torchvision would take hidden folders for classes).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file_io.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/text.h"
#include "data/source.h"
#include "image/image.h"
#include "io/foreign.h"

enum {
    DEPTH_MAX = 32,  /* levels of folders below a class; ends cycles of links */
    NAMES_SHOWN = 8, /* folders listed in a message */
    PATH_BYTES = 4096
};

#define WANTED "a folder of images for each class, or a pack of them"
#define IMAGES TD_IMAGE_FORMATS " files"

static const char *const splits[] = { "train", "val", "test", "validation" };

/*
 * Does it have the extension of an image?  Then it counts as an image, and as a bad one if it is
 * not.
 */
static bool has_ending(const char *name)
{
    static const char *const endings[] = { ".jpg", ".jpeg", ".png", ".webp",
                                           ".tif", ".tiff", ".gif", ".bmp" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    }
    return false;
}

/* Do the first bytes identify an image?  Decides about files with other extensions. */
static bool begins_as_image(const char *path)
{
    unsigned char head[TD_IMAGE_HEAD_BYTES];
    return td_image_is_head(head, td_file_head(path, head, sizeof head));
}

/* --- messages -------------------------------------------------------------------------------- */

/* Add the folders (or the files) of a listing: "'a', 'b' and 12 more". */
static void add_names(td_text *t, const td_listing *l, bool folders)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->is_folder[i] != folders || l->names[i][0] == '.')
            continue;
        if (n++ < NAMES_SHOWN)
            td_text_add(t, "%s'%s'", n > 1 ? ", " : "", l->names[i]);
    }
    if (n > NAMES_SHOWN)
        td_text_add(t, " and %zu more", n - NAMES_SHOWN);
    if (n == 0)
        td_text_add(t, "none");
}

/* The folder of a path: "a" for "a/b/", "." for "b"; *name: "b", *n of its bytes. */
static void cut_name(const char *path, char *out, size_t room, const char **name, size_t *n)
{
    size_t end = strlen(path), first;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (first = end; first > 0 && path[first - 1] != '/'; first--)
        ;
    *name = path + first;
    *n = end - first;
    (void)snprintf(out, room, "%.*s", first > 1 ? (int)first - 1 : 1, first ? path : ".");
}

static bool is_split(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (n == strlen(splits[i]) && strncmp(name, splits[i], n) == 0)
            return true;
    return false;
}

/* The data set with the folder `split` of which "set/val" or "set/val/cat" is a part; "": none. */
static void find_set(const char *path, const char *split, char out[PATH_BYTES])
{
    enum { LEVELS = 2 };
    char at[PATH_BYTES];
    const char *name;
    size_t n;
    (void)snprintf(at, sizeof at, "%s", path);
    for (int i = 0; i < LEVELS; i++) {
        cut_name(at, out, PATH_BYTES, &name, &n);
        char *there = is_split(name, n) ? td_path_join(out, split) : NULL;
        const bool is_found = there && td_path_is_folder(there);
        td_free(there);
        if (is_found)
            return;
        memcpy(at, out, sizeof at);
    }
    *out = '\0';
}

/* Report a missing split folder, and the existing ones. */
static td_status no_split(const char *path, const char *split, const td_listing *l)
{
    td_text names = { 0 };
    char set[PATH_BYTES];
    TD_TRY(td_foreign_refuse_folder(path, WANTED));
    add_names(&names, l, true);
    find_set(path, split, set);
    td_status st = td_text_status(&names);
    if (st == TD_OK)
        st = td_error(TD_ENOTFOUND,
                      "'%s' has no folder '%s': folders found: %s; wanted "
                      "%s/<class>/<image>%s%s%s",
                      path, split, td_text_get(&names), split, *set ? "; did you mean '" : "", set,
                      *set ? "'?" : "");
    td_text_release(&names);
    return st;
}

static td_status no_classes(const char *root, const td_listing *l)
{
    size_t n_images = 0;
    for (size_t i = 0; i < l->n; i++)
        n_images += !l->is_folder[i] && l->names[i][0] != '.' && has_ending(l->names[i]);
    TD_TRY(td_foreign_refuse_folder(root, WANTED));
    if (n_images > 0)
        return td_error(TD_EFORMAT,
                        "'%s' contains %zu images but no class folders: put the images of each "
                        "class into a separate folder",
                        root, n_images);
    return td_error(TD_EFORMAT, "'%s' is %s, wanted one folder of images per class", root,
                    l->n ? "without class folders" : "empty");
}

/* --- the root -------------------------------------------------------------------------------- */

static bool has_folder(const td_listing *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->is_folder[i] && strcmp(l->names[i], name) == 0)
            return true;
    }
    return false;
}

/* Are all folders splits of a data set?  Then they are not classes. */
static bool holds_parts(const td_listing *l)
{
    size_t n_parts = 0, n_folders = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        n_parts += has_folder(l, splits[i]);
    for (size_t i = 0; i < l->n; i++)
        n_folders += l->is_folder[i] && l->names[i][0] != '.';
    return n_parts > 0 && n_folders == n_parts;
}

static td_status holds_parts_error(const char *path, const td_listing *l)
{
    td_text names = { 0 };
    add_names(&names, l, true);
    td_status st = td_text_status(&names);
    if (st == TD_OK)
        st = td_error(
            TD_EFORMAT,
            "'%s' contains the splits of a data set instead of class folders: %s; choose one", path,
            td_text_get(&names));
    td_text_release(&names);
    return st;
}

/* Find the folder of the class folders; *out is td_alloc'ed. */
static td_status find_root(const td_dataset_opts *opts, char **out)
{
    const char *path = opts->path;
    if (!td_path_exists(path))
        return td_error(TD_ENOTFOUND, "data set '%s' does not exist", path);
    if (!td_path_is_folder(path))
        TD_TRY(td_foreign_refuse(path, WANTED));
    if (!td_path_is_folder(path))
        return td_error(TD_EFORMAT, "data set '%s' is a file, wanted a folder%s", path,
                        td_text_ends(path, ".safetensors") ? " (--data-backend tensors reads files)"
                                                           : " or a pack");
    td_listing l;
    TD_TRY_MSG(td_list_folder(path, &l), "data set");
    td_status st = TD_OK;
    bool has_split = opts->split && has_folder(&l, opts->split);
    if (has_split)
        *out = td_path_join(path, opts->split);
    else if (opts->split && (!opts->allow_root || holds_parts(&l)))
        st = no_split(path, opts->split, &l);
    else if (holds_parts(&l))
        st = holds_parts_error(path, &l);
    else
        *out = td_copy_text(path);
    td_listing_release(&l);
    return st != TD_OK ? st : *out ? TD_OK : TD_ENOMEM;
}

/* --- samples --------------------------------------------------------------------------------- */

typedef struct {
    td_dataset *ds;
    size_t cap;
    int64_t label;
} walk;

static td_status add_sample(walk *w, const char *folder, const char *name)
{
    td_dataset *ds = w->ds;
    const char *path = td_path_append(&ds->arena, folder, name);
    if (!path)
        return TD_ENOMEM;
    TD_TRY(td_reserve(&ds->samples, &w->cap, (size_t)ds->n + 1, sizeof *ds->samples));
    ds->samples[ds->n++] = (td_sample){ .path = path, .label = w->label };
    return TD_OK;
}

static td_status add_other(walk *w, const char *folder, const char *name)
{
    td_dataset *ds = w->ds;
    if (ds->n_others >= TD_OTHERS_LISTED) {
        ds->n_others++;
        return TD_OK;
    }
    const char *path = td_path_append(&ds->arena, folder, name);
    if (!path)
        return TD_ENOMEM;
    ds->others[ds->n_others++] = path;
    return TD_OK;
}

/* Add a file if it is an image; files with an image extension are not opened. */
static td_status add_file(walk *w, const char *folder, const char *name)
{
    if (has_ending(name))
        return add_sample(w, folder, name);
    char *path = td_path_join(folder, name);
    if (!path)
        return TD_ENOMEM;
    const bool is_image = begins_as_image(path);
    td_free(path);
    return is_image ? add_sample(w, folder, name) : add_other(w, folder, name);
}

static td_status walk_folder(walk *w, const char *folder, int depth)
{
    if (depth > DEPTH_MAX)
        return td_error(
            TD_ELIMIT,
            "'%s' is more than %d folders deep: a symbolic link may point to a parent folder",
            folder, DEPTH_MAX);
    td_listing l;
    TD_TRY(td_list_folder(folder, &l));
    td_status st = TD_OK;
    for (size_t i = 0; i < l.n; i++) {
        if (l.names[i][0] == '.')
            continue;
        if (l.is_folder[i]) {
            char *inner = td_path_join(folder, l.names[i]);
            st = inner ? walk_folder(w, inner, depth + 1) : TD_ENOMEM;
            td_free(inner);
            TD_OUT(st);
        } else {
            TD_OUT(add_file(w, folder, l.names[i]));
        }
    }
out:
    td_listing_release(&l);
    return st;
}

/* Compare by folder, then by name. */
static int by_place(const void *a, const void *b)
{
    const char *p = ((const td_sample *)a)->path, *q = ((const td_sample *)b)->path;
    size_t n = (size_t)(td_path_base(p) - p), m = (size_t)(td_path_base(q) - q);
    int order = memcmp(p, q, (n < m ? n : m) - 1); /* without the slash: "a" before "a-b" */
    if (order == 0 && n != m)
        order = n < m ? -1 : 1;
    return order ? order : strcmp(p + n, q + m);
}

td_status td_folder_add(td_dataset *ds, size_t *cap, const char *folder)
{
    walk w = { .ds = ds, .cap = *cap, .label = -1 };
    int64_t first = ds->n;
    td_status st = walk_folder(&w, folder, 0);
    *cap = w.cap;
    TD_TRY(st);
    if (ds->n == first)
        return td_error(TD_EFORMAT, "folder '%s' contains no images (" IMAGES ")", folder);
    qsort(ds->samples + first, (size_t)(ds->n - first), sizeof *ds->samples, by_place);
    return TD_OK;
}

static td_status read_class(td_dataset *ds, walk *w, const char *name)
{
    int64_t first = ds->n;
    char *folder = td_path_join(ds->root, name);
    if (!folder)
        return TD_ENOMEM;
    td_status st;
    TD_OUT(walk_folder(w, folder, 0));
    if (ds->n == first)
        TD_OUT(td_error(TD_EFORMAT, "class folder '%s' contains no images (" IMAGES ")", folder));
    qsort(ds->samples + first, (size_t)(ds->n - first), sizeof *ds->samples, by_place);
out:
    td_free(folder);
    return st;
}

/* Files next to the class folders belong to no class. */
static td_status add_files_without_class(walk *w, const td_listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!l->is_folder[i] && l->names[i][0] != '.')
            TD_TRY(add_other(w, w->ds->root, l->names[i]));
    return TD_OK;
}

static void log_others(const td_dataset *ds)
{
    if (ds->n_others == 1)
        td_log(TD_LOG_INFO, "data", "ignoring 1 file in '%s' that is not an image of a class: '%s'",
               ds->root, ds->others[0]);
    else if (ds->n_others > 1)
        td_log(TD_LOG_INFO, "data",
               "ignoring %lld files in '%s' that are not images of a class, the first is '%s'",
               (long long)ds->n_others, ds->root, ds->others[0]);
}

static td_status read_classes(td_dataset *ds, const td_listing *l)
{
    TD_TRY(TD_ALLOC(ds->class_names, l->n + 1));
    for (size_t i = 0; i < l->n; i++) {
        if (!l->is_folder[i] || l->names[i][0] == '.')
            continue;
        const char *name = td_arena_text(&ds->arena, l->names[i]);
        if (!name)
            return TD_ENOMEM;
        ds->class_names[ds->n_classes++] = name;
    }
    if (ds->n_classes == 0)
        return no_classes(ds->root, l);
    if (ds->n_classes == 1)
        return td_error(TD_EFORMAT, "'%s' contains one class, '%s', wanted at least two", ds->root,
                        ds->class_names[0]);
    walk w = { .ds = ds };
    TD_TRY(add_files_without_class(&w, l));
    for (int i = 0; i < ds->n_classes; i++) {
        w.label = i;
        TD_TRY(read_class(ds, &w, ds->class_names[i]));
    }
    log_others(ds);
    return TD_OK;
}

/* Extend the message if there are boxes, but no class folders; the path may name one split. */
static td_status add_detector_hint(td_status st, const td_dataset_opts *opts)
{
    char parent[PATH_BYTES] = "";
    if (st != TD_EFORMAT && st != TD_ENOTFOUND)
        return st;
    if (!td_annotated_exists(opts->path, opts->split) &&
        !td_annotated_find_parent(opts->path, opts->split, parent, sizeof parent))
        return st;
    char *message = td_copy_text(td_error_message());
    if (!message)
        return TD_ENOMEM;
    if (*parent)
        st = td_error(st,
                      "%s; the folder '%s' above it has COCO annotations, which train a detector: "
                      "use that as DATA, with --arch ssd320 or ssd300",
                      message, parent);
    else
        st = td_error(
            st, "%s; it has COCO annotations, which train a detector: --arch ssd320 or ssd300",
            message);
    td_free(message);
    return st;
}

static td_status open_folder(const td_dataset_opts *opts, td_dataset *ds)
{
    char *root = NULL;
    TD_TRY(find_root(opts, &root));
    ds->root = td_arena_text(&ds->arena, root);
    td_free(root);
    if (!ds->root)
        return TD_ENOMEM;
    ds->has_class_names = true;
    td_listing l;
    TD_TRY_MSG(td_list_folder(ds->root, &l), "data set");
    td_status st = read_classes(ds, &l);
    td_listing_release(&l);
    return st;
}

td_status td_folder_open(const td_dataset_opts *opts, td_dataset *ds)
{
    return add_detector_hint(open_folder(opts, ds), opts);
}
