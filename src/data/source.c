/*
 * source.c -- opens a data set: the table of all kinds
 */
#include "data/source.h"

#include <inttypes.h>
#include <string.h>

#include "base/paths.h"
#include "base/text.h"
#include "data/list.h"
#include "data/records.h"
#include "data/shards.h"

/* Fills a data set from a path. */
typedef td_status (*opener)(const td_dataset_opts *opts, td_dataset *ds);

/* One value of --data-backend. */
typedef struct {
    const char *names[3]; /* NULL-terminated; [0] is the canonical one */
    opener open;          /* NULL: what `find` finds at the path */
    opener (*find)(const td_dataset_opts *opts);
} source;

static opener find_images(const td_dataset_opts *opts)
{
    if (td_pack_is(opts->path))
        return td_packed_open;
    if (td_list_is(opts->path))
        return td_list_open;
    if (td_shards_is(opts->path))
        return td_shards_open;
    if (td_records_is(opts->path))
        return td_records_open;
    return opts->has_boxes || opts->annotations ? td_annotated_open : td_folder_open;
}

/* A list; validation data are named in this way, too. */
static opener find_list(const td_dataset_opts *opts)
{
    if (td_shards_is(opts->path))
        return td_shards_open;
    return td_records_is(opts->path) ? td_records_open : td_list_open;
}

/* clang-format off */
static const source sources[] = {
    [TD_DATA_FOLDER]    = { { "folder", "pytorch" },     NULL, find_images },
    [TD_DATA_SYNTHETIC] = { { "synthetic", "syntetic" }, td_synthetic_open, NULL },
    [TD_DATA_TENSORS]   = { { "tensors" },               td_tensor_rows_open, NULL },
    [TD_DATA_DALI_CPU]  = { { "dali-cpu" },              NULL, find_images },
    [TD_DATA_DALI_GPU]  = { { "dali-gpu" },              NULL, find_images },
    [TD_DATA_LIST]      = { { "list" },                  NULL, find_list },
    [TD_DATA_SHARDS]    = { { "webdataset" },            td_shards_open, NULL },
    [TD_DATA_RECORDS]   = { { "tfrecord" },              td_records_open, NULL },
};
/* clang-format on */

enum { N_SOURCES = sizeof sources / sizeof *sources };

static td_status unknown_backend(const char *name)
{
    td_text known = { 0 };
    for (int i = 0; i < N_SOURCES; i++) {
        for (const char *const *s = sources[i].names; *s; s++)
            td_text_add(&known, "%s%s", known.len ? ", " : "", *s);
    }
    td_status st = td_text_status(&known);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "unknown data backend '%s', wanted one of %s", name,
                      td_text_get(&known));
    td_text_release(&known);
    return st;
}

td_status td_data_backend_parse(const char *name, td_data_backend *out)
{
    for (int i = 0; i < N_SOURCES; i++) {
        for (const char *const *s = sources[i].names; *s; s++) {
            if (strcmp(name, *s) == 0) {
                *out = (td_data_backend)i;
                return TD_OK;
            }
        }
    }
    return unknown_backend(name);
}

static opener find_opener(const td_dataset_opts *opts)
{
    const source *s = &sources[opts->backend];
    return s->open ? s->open : s->find(opts);
}

bool td_dataset_is_list(td_data_backend backend, const char *path)
{
    return path &&
           find_opener(&(td_dataset_opts){ .backend = backend, .path = path }) == td_list_open;
}

bool td_dataset_is_records(td_data_backend backend, const char *path)
{
    return path &&
           find_opener(&(td_dataset_opts){ .backend = backend, .path = path }) == td_records_open;
}

static td_status refuse(const td_dataset_opts *opts, const char *option, const char *wanted)
{
    return td_error(TD_EUSAGE, "%s requires %s, which '%s' is not", option, wanted,
                    opts->path ? opts->path : "--data-backend synthetic");
}

/* Options that only one kind of data reads. */
static td_status check_kind(const td_dataset_opts *opts, opener open)
{
    if (opts->label_delimiter && open != td_list_open)
        return refuse(opts, "--list-delimiter", "a list of images");
    if (opts->allow_outside && open != td_list_open)
        return refuse(opts, "--list-outside", "a list of images");
    if (opts->labels_from_zero && (open != td_records_open || opts->has_boxes))
        return refuse(opts, "--label-offset 0", "a set of TFRecords with classes");
    return TD_OK;
}

td_status td_dataset_open(const td_dataset_opts *opts, td_dataset **out)
{
    *out = NULL;
    if ((unsigned)opts->backend >= N_SOURCES)
        return td_error(TD_EARG, "unknown data backend %d", (int)opts->backend);
    if (opts->n_classes < 0 || opts->n_images < 0)
        return td_error(TD_EARG, "%d classes and %" PRId64 " images, wanted 0 or more",
                        opts->n_classes, opts->n_images);
    if (opts->backend != TD_DATA_SYNTHETIC && (!opts->path || !*opts->path))
        return td_error(TD_EARG, "the path of the data set is missing");
    td_dataset *ds = TD_NEW(td_dataset);
    if (!ds)
        return TD_ENOMEM;
    bool is_ready = opts->backend == TD_DATA_SYNTHETIC || opts->backend == TD_DATA_TENSORS;
    ds->backend = is_ready ? opts->backend : TD_DATA_FOLDER;
    const opener open = find_opener(opts);
    td_status st = open(opts, ds);
    if (st == TD_OK)
        st = check_kind(opts, open);
    if (st == TD_OK)
        *out = ds;
    else
        td_dataset_free(ds);
    return st;
}

static td_status add_files(td_dataset *ds, const char *const *paths, int64_t n)
{
    size_t cap = 0;
    ds->root = "files";
    for (int64_t i = 0; i < n; i++) {
        if (td_path_is_folder(paths[i])) {
            TD_TRY(td_folder_add(ds, &cap, paths[i]));
            continue;
        }
        TD_TRY(td_reserve(&ds->samples, &cap, (size_t)ds->n + 1, sizeof *ds->samples));
        const char *path = td_arena_text(&ds->arena, paths[i]);
        if (!path)
            return TD_ENOMEM;
        ds->samples[ds->n++] = (td_sample){ .path = path, .label = -1 };
    }
    return TD_OK;
}

td_status td_dataset_from_files(const char *const *paths, int64_t n, td_dataset **out)
{
    *out = NULL;
    if (n < 1)
        return td_error(TD_EARG, "no files were given");
    td_dataset *ds = TD_NEW(td_dataset);
    if (!ds)
        return TD_ENOMEM;
    td_status st = add_files(ds, paths, n);
    if (st == TD_OK)
        *out = ds;
    else
        td_dataset_free(ds);
    return st;
}

bool td_dataset_is_annotated(const char *path, const char *split)
{
    if (td_pack_is(path))
        return td_packed_is_annotated(path, split);
    return td_annotated_exists(path, split) ||
           (td_records_is(path) && td_records_is_annotated(path, split));
}
