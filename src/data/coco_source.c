/*
 * coco_source.c -- finds the annotation file and the folder of images of a data set
 *
 * COCO and similar sets are unpacked in a few layouts.  The annotation file is the first existing
 * one of the list below, the folder of images the first that holds one of the file's first images.
 */
#include <stdio.h>
#include <string.h>

#include "base/paths.h"
#include "base/text.h"
#include "data/objects.h"
#include "data/source.h"
#include "io/foreign.h"

enum {
    PATH_BYTES = 4096,
    LOOKED_AT = 16,
    LEVELS_ABOVE = 2, /* set/images/train: the annotations are in set/ */
};

/* %s: the split; the names without %s are for a data set without splits */
static const char *const files_of_split[] = {
    "annotations/instances_%s2017.json",
    "annotations/instances_%s.json",
    "annotations/%s.json",
    "%s/_annotations.coco.json",
    "%s/annotations.json",
    "%s.json",
    "instances_%s.json",
};
static const char *const files_of_all[] = { "annotations.json", "_annotations.coco.json",
                                            "annotations/annotations.json",
                                            "annotations/instances.json" };
static const char *const folders_of_split[] = { "%s2017", "%s", "images/%s2017", "images/%s" };
static const char *const folders_of_all[] = { "images", "." };

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Other names of a split, as used by export tools. */
static const char *other_split(const char *split)
{
    return strcmp(split, "val") == 0 ? "valid" : NULL;
}

/* Format "path/name" with the split inserted in `name`; false: too long to exist. */
static bool make_path(const char *path, const char *name, const char *split, char *out)
{
    const char *at = strstr(name, "%s");
    int n =
        at ? snprintf(out, PATH_BYTES, "%s/%.*s%s%s", path, (int)(at - name), name, split, at + 2)
           : snprintf(out, PATH_BYTES, "%s/%s", path, name);
    return n < PATH_BYTES;
}

static bool is_file(const char *path)
{
    return td_path_exists(path) && !td_path_is_folder(path);
}

/* Find the first existing annotation file with one of these names. */
static bool find_of(const char *path, const char *const *names, size_t n, const char *split,
                    char *out)
{
    for (size_t i = 0; i < n; i++)
        if (make_path(path, names[i], split, out) && is_file(out))
            return true;
    return false;
}

static bool find_file(const char *path, const char *split, bool allow_root, char *out)
{
    const char *other = split ? other_split(split) : NULL;
    if (split && find_of(path, files_of_split, COUNT(files_of_split), split, out))
        return true;
    if (other && find_of(path, files_of_split, COUNT(files_of_split), other, out))
        return true;
    return (!split || allow_root) && find_of(path, files_of_all, COUNT(files_of_all), "", out);
}

/* Remove the last name of a path, in place; false: it has none, as "/", "." and "..". */
static bool cut_name(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    const char *const name = td_path_base(path);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    if (name == path)
        (void)snprintf(path, PATH_BYTES, ".");
    else
        path[name - path > 1 ? name - path - 1 : 1] = '\0';
    return true;
}

bool td_annotated_find_parent(const char *path, const char *split, char *out, size_t room)
{
    char folder[PATH_BYTES], file[PATH_BYTES];
    if (!td_path_is_folder(path) || snprintf(folder, sizeof folder, "%s", path) >= PATH_BYTES)
        return false;
    for (int i = 0; i < LEVELS_ABOVE && cut_name(folder); i++)
        if (find_file(folder, split, false, file))
            return (size_t)snprintf(out, room, "%s", folder) < room;
    return false;
}

static td_status no_file(const td_dataset_opts *opts)
{
    td_text looked = { 0 };
    if (!td_path_exists(opts->path))
        return td_error(TD_ENOTFOUND, "data set '%s' does not exist", opts->path);
    TD_TRY(td_foreign_refuse_folder(opts->path, "images and COCO annotations, or a pack of them"));
    if (opts->split)
        for (size_t i = 0; i < COUNT(files_of_split); i++) {
            char name[PATH_BYTES];
            if (make_path("", files_of_split[i], opts->split, name))
                td_text_add(&looked, "%s%s", looked.len ? ", " : "", name + 1);
        }
    if (!opts->split || opts->allow_root)
        for (size_t i = 0; i < COUNT(files_of_all); i++)
            td_text_add(&looked, "%s%s", looked.len ? ", " : "", files_of_all[i]);
    char parent[PATH_BYTES];
    td_status st = td_text_status(&looked);
    if (st == TD_OK && td_annotated_find_parent(opts->path, opts->split, parent, sizeof parent))
        st = td_error(TD_ENOTFOUND,
                      "'%s' has no annotation file, the folder '%s' above it has one: use that as "
                      "DATA, or name a file with --annotations",
                      opts->path, parent);
    else if (st == TD_OK)
        st = td_error(TD_ENOTFOUND,
                      "'%s' has no annotation file: looked for %s; name one with --annotations",
                      opts->path, td_text_get(&looked));
    td_text_release(&looked);
    return st;
}

/* --- images --------------------------------------------------------------------------------- */

/* Is one of the file's first images in this folder? */
static bool holds_images(const char *folder, const td_coco *c)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < c->n_images && i < LOOKED_AT; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, c->images[i].file_name);
        if (n < PATH_BYTES && is_file(path))
            return true;
    }
    return false;
}

static bool try_folders(const char *path, const char *const *names, size_t n, const char *split,
                        const td_coco *c, char *out)
{
    for (size_t i = 0; i < n; i++)
        if (make_path(path, names[i], split, out) && holds_images(out, c))
            return true;
    return false;
}

/* The split named in a file's name: "annotations/instances_val2017.json" -> "val". */
static bool split_of_file(const char *file, char *out, size_t n)
{
    const char *name = td_path_base(file);
    if (td_text_starts(name, "instances_"))
        name += strlen("instances_");
    size_t len = strlen(name);
    if (td_text_ends(name, ".json"))
        len -= strlen(".json");
    if (len > 4 && strncmp(name + len - 4, "2017", 4) == 0)
        len -= 4;
    return len > 0 && (size_t)snprintf(out, n, "%.*s", (int)len, name) < n;
}

static bool find_folder(const td_dataset_opts *opts, const char *root, const char *file,
                        const td_coco *c, char *out)
{
    const char *split = opts->split, *other = split ? other_split(split) : NULL;
    char named[PATH_BYTES];
    size_t n = COUNT(folders_of_split);
    if (split && try_folders(root, folders_of_split, n, split, c, out))
        return true;
    if (other && try_folders(root, folders_of_split, n, other, c, out))
        return true;
    if (split_of_file(file, named, sizeof named) &&
        try_folders(root, folders_of_split, n, named, c, out))
        return true;
    if (holds_images(root, c))
        return snprintf(out, PATH_BYTES, "%s", root) < PATH_BYTES;
    if (try_folders(root, folders_of_all, COUNT(folders_of_all), "", c, out))
        return true;
    int beside = (int)(td_path_base(file) - file) - 1;
    if (beside < 0)
        (void)snprintf(out, PATH_BYTES, ".");
    else if (snprintf(out, PATH_BYTES, "%.*s", beside, file) >= PATH_BYTES)
        return false;
    return holds_images(out, c);
}

static td_status no_images(const td_dataset_opts *opts, const char *root, const char *file,
                           const td_coco *c)
{
    const char *s = opts->split;
    if (s)
        return td_error(
            TD_ENOTFOUND,
            "'%s' names '%s' first, but neither it nor the following images are in '%s': searched "
            "%s2017, %s, images/%s2017, images/%s, images, and the folder of the annotation file",
            file, c->images[0].file_name, root, s, s, s, s);
    return td_error(TD_ENOTFOUND,
                    "'%s' names '%s' first, but neither it nor the following images are in '%s', "
                    "its folder 'images', or the folder of the annotation file",
                    file, c->images[0].file_name, root);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* The folder of an annotation file; if it is called annotations, its parent. */
static td_status root_of_file(const char *path, char *root)
{
    int n = (int)(td_path_base(path) - path) - 1;
    if (snprintf(root, PATH_BYTES, "%.*s", n > 0 ? n : 1, n > 0 ? path : ".") >= PATH_BYTES)
        return td_error(TD_ELIMIT, "path '%s' is longer than %d bytes", path, PATH_BYTES);
    char *last = root + (td_path_base(root) - root);
    if (strcmp(last, "annotations") != 0)
        return TD_OK;
    if (last == root)
        (void)snprintf(root, PATH_BYTES, ".");
    else
        last[-1] = '\0';
    return TD_OK;
}

/* Choose the annotation file; the path itself may be one. */
static td_status choose_file(const td_dataset_opts *opts, char *file, char *root)
{
    const char *path = opts->path;
    bool is_json = is_file(path) && td_text_ends(path, ".json");
    const char *given = opts->annotations ? opts->annotations : is_json ? path : NULL;
    if (is_json)
        TD_TRY(root_of_file(path, root));
    else if (snprintf(root, PATH_BYTES, "%s", path) >= PATH_BYTES)
        return td_error(TD_ELIMIT, "path '%s' is longer than %d bytes", path, PATH_BYTES);
    if (given && snprintf(file, PATH_BYTES, "%s", given) >= PATH_BYTES)
        return td_error(TD_ELIMIT, "path '%s' is longer than %d bytes", given, PATH_BYTES);
    if (given)
        return TD_OK;
    return find_file(path, opts->split, opts->allow_root, file) ? TD_OK : no_file(opts);
}

td_status td_annotated_open(const td_dataset_opts *opts, td_dataset *ds)
{
    char file[PATH_BYTES], root[PATH_BYTES], folder[PATH_BYTES];
    const td_coco_opts how = { .is_strict = opts->strict };
    td_coco *c = NULL;
    td_status st;
    TD_TRY(choose_file(opts, file, root));
    TD_OUT(td_coco_read(file, &how, &c));
    if (!find_folder(opts, root, file, c, folder))
        TD_OUT(no_images(opts, root, file, c));
    ds->root = td_arena_text(&ds->arena, folder);
    TD_OUT(ds->root ? TD_OK : TD_ENOMEM);
    TD_OUT(td_objects_take(ds, opts, c, file, folder, NULL));
out:
    td_coco_free(c);
    return st;
}

bool td_annotated_exists(const char *path, const char *split)
{
    char file[PATH_BYTES];
    if (is_file(path) && td_text_ends(path, ".json"))
        return !split;
    return find_file(path, split, false, file);
}
