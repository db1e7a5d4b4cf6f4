/*
 * unpack_set.c -- tandem dataset unpack: writes the images of a data set of any kind as a folder of
 * images for each class, or with boxes as a folder of images and COCO annotations, or with several
 * labels for an image as a folder of images and a list
 *
 * Images are written unchanged.  A class folder has the class's name if the folders then have the
 * order of the classes; else, as for numbers, the number with as many digits as the largest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/signals.h"
#include "data/list.h"
#include "data/objects.h"
#include "dataset_tools/coco_text.h"
#include "dataset_tools/set_names.h"
#include "dataset_tools/split_sets.h"
#include "image/image.h"
#include "io/delimited.h"
#include "tandem/dataset_tools.h"

enum { NAME_BYTES_MAX = 200 };

typedef struct {
    const char *out;
    td_unpack_opts opts;
    td_split_sets splits;
    td_arena arena;
    td_transformer w;

    const td_dataset *ds; /* the current split */
    const char **folders; /* [n_classes] of the classes, below the split's folder */
    const char **names;   /* [ds->n] of the files */
    td_map taken;         /* "<folder>/<name>" of the files so far */
    bool has_begun;       /* a file was written, or tried to be */
    td_text list;         /* several labels: the file, with the splits so far */
    td_unpack_result result;
} unpacking;

static td_status check_signal(const unpacking *u)
{
    return td_signal_caught()
               ? td_error(TD_ESTOPPED, "interrupted by a signal; '%s' is incomplete", u->out)
               : TD_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Is there a folder for each class? */
static bool has_folders(const td_dataset *ds)
{
    return !ds->objects && !ds->is_multi_label;
}

static const char *ending_of(const void *bytes, size_t n)
{
    static const char *const formats[][2] = { { "JPEG", ".jpg" },  { "PNG", ".png" },
                                              { "WebP", ".webp" }, { "TIFF", ".tif" },
                                              { "GIF", ".gif" },   { "BMP", ".bmp" } };
    td_image_info info;
    if (td_image_probe(bytes, n, &info) != TD_OK) {
        td_error_clear();
        return ".jpg"; /* counts as an image, and as a bad one, as before */
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(info.format, formats[i][0]) == 0)
            return formats[i][1];
    return "";
}

static td_status name_file(unpacking *u, const char *folder, int64_t i, const void *bytes, size_t n)
{
    const char *base = td_file_name(&u->arena, td_path_base(td_dataset_path(u->ds, i)));
    if (!base)
        return TD_ENOMEM;
    const char *ending = td_has_image_ending(base) ? "" : ending_of(bytes, n);
    return td_unique_name(&u->arena, &u->taken, folder, base, ending, i, &u->names[i]);
}

/* --- a list of several labels ----------------------------------------------------------------- */

/* The first line: "image,split," and the classes. */
static td_status begin_list(unpacking *u)
{
    const td_dataset *ds = u->ds;
    if (ds->n_classes > TD_DELIMITED_FIELDS - 2)
        return td_error(TD_EUNSUPPORTED, "'%s' has %d classes, a list has at most %d as columns",
                        ds->root, ds->n_classes, TD_DELIMITED_FIELDS - 2);
    td_text_add(&u->list, "image,split");
    for (int k = 0; k < ds->n_classes; k++) {
        const char *name = ds->class_names[k];
        if (td_list_is_label_column(name))
            return td_error(TD_EUNSUPPORTED,
                            "'%s': the class '%s' cannot be a column of a list, where this names "
                            "the column of labels",
                            ds->root, name);
        td_text_add(&u->list, ",");
        td_delimited_add(&u->list, name);
    }
    td_text_add(&u->list, "\n");
    return td_text_status(&u->list);
}

static td_status list_images(unpacking *u, const char *split)
{
    const td_dataset *ds = u->ds;
    td_text path = { 0 };
    float *row;
    TD_TRY(TD_ALLOC(row, (size_t)ds->n_classes));
    for (int64_t i = 0; i < ds->n; i++) {
        path.len = 0;
        td_text_add(&path, "%s/%s", split, u->names[i]);
        td_delimited_add(&u->list, td_text_get(&path));
        td_text_add(&u->list, ",%s", split);
        td_sample_targets(ds, i, row);
        for (int k = 0; k < ds->n_classes; k++)
            td_text_add(&u->list, row[k] > 0 ? ",1" : ",0");
        td_text_add(&u->list, "\n");
    }
    td_status st = td_text_status(&path);
    td_text_release(&path);
    td_free(row);
    return st == TD_OK ? td_text_status(&u->list) : st;
}

static td_status write_list(const unpacking *u)
{
    char *path;
    if (!u->list.len)
        return TD_OK;
    path = td_path_join(u->out, "labels.csv");
    if (!path)
        return TD_ENOMEM;
    const td_status st = td_file_write(path, td_text_get(&u->list), u->list.len);
    td_free(path);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

static td_status write_image(unpacking *u, const char *split_folder, int64_t i)
{
    const void *bytes;
    size_t n;
    const td_dataset *ds = u->ds;
    const char *class_folder = has_folders(ds) ? u->folders[ds->samples[i].label] : "";
    TD_TRY(check_signal(u));
    td_sample_read_ahead(ds, i + TD_SAMPLES_AHEAD);
    TD_TRY_MSG(td_sample_read(ds, i, &u->w, &bytes, &n), "image %" PRId64, i);
    TD_TRY(name_file(u, class_folder, i, bytes, n));
    char *folder =
        *class_folder ? td_path_join(split_folder, class_folder) : td_copy_text(split_folder);
    char *path = folder ? td_path_join(folder, u->names[i]) : NULL;
    td_status st = path ? td_make_folder(folder) : TD_ENOMEM;
    u->has_begun = true;
    if (st == TD_OK)
        st = td_file_write(path, bytes, n);
    if (st != TD_OK && path)
        (void)unlink(path); /* a part of an image, on a full disk */
    td_free(folder);
    td_free(path);
    u->result.n_images++;
    u->result.n_bytes += (int64_t)n;
    return st;
}

static const char *file_name(const void *ctx, int64_t i)
{
    const unpacking *u = ctx;
    return u->names[i];
}

static td_status write_annotations(const unpacking *u, const char *split)
{
    td_text text = { 0 }, path = { 0 };
    td_status st;
    td_text_add(&path, "%s/annotations", u->out);
    TD_OUT(td_text_status(&path));
    TD_OUT(td_make_folder(td_text_get(&path)));
    td_text_add(&path, *split ? "/instances_%s.json" : "/instances%s.json", split);
    td_coco_text_add(u->ds, file_name, u, &text);
    TD_OUT(td_text_status(&path));
    TD_OUT(td_text_status(&text));
    st = td_file_write(td_text_get(&path), td_text_get(&text), text.len);
out:
    td_text_release(&text);
    td_text_release(&path);
    return st;
}

/* The names of the classes, one a line, if the folders are numbers. */
static td_status write_names(const unpacking *u)
{
    const td_dataset *named = td_named_set(&u->splits, u->ds);
    td_text text = { 0 };
    td_status st = TD_OK;
    char *path = td_path_join(u->out, "classes.txt");
    if (!path)
        return TD_ENOMEM;
    if (strcmp(u->folders[0], named->class_names[0]) != 0) {
        for (int i = 0; i < named->n_classes; i++)
            td_text_add(&text, "%s\n", named->class_names[i]);
        st = td_text_status(&text);
        if (st == TD_OK)
            st = td_file_write(path, td_text_get(&text), text.len);
    }
    td_text_release(&text);
    td_free(path);
    return st;
}

static td_status unpack_split(unpacking *u, const char *split)
{
    const td_dataset *ds = u->ds;
    td_status st;
    const char *below = *split ? split : ds->objects ? "images" : "";
    char *folder = *below ? td_path_join(u->out, below) : td_copy_text(u->out);
    if (!folder)
        return TD_ENOMEM;
    u->names = td_arena_alloc(&u->arena, (size_t)ds->n + 1, sizeof *u->names);
    TD_OUT(u->names ? TD_OK : TD_ENOMEM);
    td_map_release(&u->taken);
    u->taken = (td_map){ 0 };
    if (ds->is_multi_label && !u->list.len)
        TD_OUT(begin_list(u));
    TD_OUT(td_make_folder(folder));
    if (has_folders(ds)) {
        TD_OUT(td_class_folders(&u->arena, &u->splits, ds, &u->folders));
        TD_OUT(write_names(u));
    }
    for (int64_t i = 0; i < ds->n; i++)
        TD_OUT(write_image(u, folder, i));
    if (ds->objects)
        TD_OUT(write_annotations(u, split));
    if (ds->is_multi_label)
        TD_OUT(list_images(u, split));
out:
    td_free(folder);
    return st;
}

/* --- all splits ------------------------------------------------------------------------------- */

static td_status check_free(const char *path)
{
    td_listing l;
    if (!td_path_exists(path))
        return TD_OK;
    if (!td_path_is_folder(path))
        return td_error(TD_EARG, "'%s' exists and is not a folder", path);
    TD_TRY(td_list_folder(path, &l));
    const size_t n = l.n;
    td_listing_release(&l);
    return n ? td_error(TD_EARG, "folder '%s' is not empty, wanted a new or empty one", path)
             : TD_OK;
}

td_status td_dataset_unpack(const char *path, const char *out, const td_unpack_opts *opts,
                            td_unpack_result *result)
{
    unpacking u = { .out = out, .opts = *opts };
    const td_dataset_opts o = { .path = path,
                                .split = opts->split,
                                .annotations = opts->annotations,
                                .allow_outside = opts->allow_outside,
                                .labels_from_zero = opts->labels_from_zero,
                                .label_delimiter = opts->label_delimiter };
    td_status st;
    *result = (td_unpack_result){ 0 };
    td_signals_catch();
    TD_OUT(check_free(out));
    TD_OUT(td_split_sets_open(&o, &u.splits));
    for (int i = 0; i < u.splits.n; i++) {
        u.ds = u.splits.sets[i];
        TD_OUT(unpack_split(&u, u.splits.names[i]));
    }
    TD_OUT(write_list(&u));
    *result = u.result;
out:
    td_split_sets_release(&u.splits);
    td_map_release(&u.taken);
    td_text_release(&u.list);
    td_transformer_release(&u.w);
    td_arena_release(&u.arena);
    if (st != TD_OK && st != TD_ESTOPPED && u.has_begun)
        return td_error_context(st, "'%s' is incomplete", out);
    return st;
}
