/*
 * dataset.c -- operations on a data set of any kind: samples, classes, freeing
 */
#include "data/dataset.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"
#include "data/members.h"
#include "data/objects.h"

void td_dataset_free(td_dataset *ds)
{
    if (!ds)
        return;
    td_objects_free(ds->objects);
    td_tensors_free(ds->file);
    td_pack_close(ds->pack);
    td_free(ds->places);
    td_free(ds->samples);
    td_free(ds->class_names);
    td_arena_release(&ds->arena);
    td_free(ds);
}

/* The index of a sample's image in the pack. */
static uint64_t place_in_pack(const td_dataset *ds, int64_t sample)
{
    return ds->pack_first + (uint64_t)(ds->places ? ds->places[sample] : sample);
}

td_status td_sample_read(const td_dataset *ds, int64_t sample, td_transformer *w,
                         const void **bytes, size_t *n_bytes)
{
    if (ds->pack)
        return td_pack_read(ds->pack, place_in_pack(ds, sample), &w->packed, bytes, n_bytes);
    const td_sample *s = &ds->samples[sample];
    if (s->member)
        return td_member_read(s->member, w, bytes, n_bytes);
    TD_TRY(td_transform_read(w, s->path));
    *bytes = w->bytes;
    *n_bytes = w->n_bytes;
    return TD_OK;
}

/* Prefetch a file.  O_NONBLOCK: opening a pipe must not block. */
static void read_file_ahead(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode))
        (void)posix_fadvise(fd, 0, s.st_size, POSIX_FADV_WILLNEED);
    (void)close(fd);
}

void td_sample_read_ahead(const td_dataset *ds, int64_t sample)
{
    if (sample >= ds->n)
        return;
    if (ds->pack)
        td_pack_read_ahead(ds->pack, place_in_pack(ds, sample));
    else if (ds->samples[sample].member)
        td_member_read_ahead(ds->samples[sample].member);
    else
        read_file_ahead(ds->samples[sample].path);
}

const char *td_sample_name(const td_dataset *ds, int64_t sample)
{
    const char *path = td_dataset_path(ds, sample), *root = ds->root;
    const size_t n = strlen(root), folder = (size_t)(td_path_base(root) - root);
    if (!path)
        return "";
    if (strncmp(path, root, n) == 0)
        return path + n;
    return strncmp(path, root, folder) == 0 ? path + folder : path;
}

/* --- questions ------------------------------------------------------------------------------- */

int64_t td_dataset_count(const td_dataset *ds)
{
    return ds->n;
}

int td_dataset_classes(const td_dataset *ds)
{
    return ds->n_classes;
}

const char *td_dataset_class_name(const td_dataset *ds, int i)
{
    TD_CHECK(i >= 0 && i < ds->n_classes);
    return ds->class_names[i];
}

int64_t td_dataset_label(const td_dataset *ds, int64_t sample)
{
    TD_CHECK(sample >= 0 && sample < ds->n);
    if (ds->samples)
        return ds->samples[sample].label;
    return ds->labels ? ds->labels[sample] : -1;
}

bool td_dataset_is_multi_label(const td_dataset *ds)
{
    return ds->is_multi_label;
}

void td_sample_targets(const td_dataset *ds, int64_t sample, float *row)
{
    const size_t n = (size_t)ds->n_classes;
    TD_CHECK(ds->is_multi_label && sample >= 0 && sample < ds->n);
    if (ds->targets) {
        memcpy(row, ds->targets + (size_t)sample * n, n * sizeof *row);
        return;
    }
    const td_sample *s = &ds->samples[sample];
    memset(row, 0, n * sizeof *row);
    for (int k = 0; k < s->n_labels; k++)
        row[s->labels[k]] = 1;
}

const char *td_dataset_path(const td_dataset *ds, int64_t sample)
{
    TD_CHECK(sample >= 0 && sample < ds->n);
    return ds->samples ? ds->samples[sample].path : NULL;
}

const char *td_dataset_root(const td_dataset *ds)
{
    return ds->root;
}

td_data_backend td_dataset_backend(const td_dataset *ds)
{
    return ds->backend;
}

void td_dataset_shape(const td_dataset *ds, int *channels, int *height, int *width)
{
    *channels = ds->channels;
    *height = ds->height;
    *width = ds->width;
}

int64_t td_dataset_other_files(const td_dataset *ds, const char *const **out, int *n_listed)
{
    *out = ds->others;
    *n_listed = (int)(ds->n_others < TD_OTHERS_LISTED ? ds->n_others : TD_OTHERS_LISTED);
    return ds->n_others;
}

/* --- classes --------------------------------------------------------------------------------- */

td_status td_dataset_number_classes(td_dataset *ds, int n_classes)
{
    enum { DIGITS = 12 };
    char digits[DIGITS];
    const char **names = td_alloc((size_t)n_classes, sizeof *names);
    if (!names)
        return TD_ENOMEM;
    for (int i = 0; i < n_classes; i++) {
        (void)snprintf(digits, sizeof digits, "%d", i);
        names[i] = td_arena_text(&ds->arena, digits);
        if (!names[i]) {
            td_free(names);
            return TD_ENOMEM;
        }
    }
    td_free(ds->class_names);
    ds->class_names = names;
    ds->n_classes = n_classes;
    return TD_OK;
}

td_status td_class_name_in_json(const char *name, td_text *out)
{
    td_text text = { 0 };
    td_json *doc = NULL;
    const char *back;
    td_status st;
    td_text_add(&text, "[\"");
    td_text_add_json(&text, name);
    td_text_add(&text, "\"]");
    TD_OUT(td_text_status(&text));
    TD_OUT(td_json_parse(td_text_get(&text), text.len, "class name", &doc));
    TD_OUT(td_json_as_text(td_json_at(doc, 0), &back));
    td_text_add(out, "%s", back);
    st = td_text_status(out);
out:
    td_json_free(doc);
    td_text_release(&text);
    return st;
}

/* Set new_label[i] to the index of class i of the data set in the wanted names. */
static td_status match(const td_dataset *ds, int n, const char *const *names, bool allow_subset,
                       int64_t *new_label)
{
    td_map own = { 0 }, wanted = { 0 };
    td_text changed = { 0 };
    td_status st = TD_OK;
    for (int i = 0; i < n; i++)
        TD_OUT(td_map_set(&wanted, names[i], (void *)(intptr_t)(i + 1)));
    for (int i = 0; i < ds->n_classes; i++) {
        const char *name = ds->class_names[i];
        td_text_release(&changed);
        if (!td_map_has(&wanted, name)) {
            TD_OUT(td_class_name_in_json(name, &changed));
            name = td_text_get(&changed);
        }
        TD_OUT(td_map_set(&own, name, (void *)(intptr_t)(i + 1)));
        new_label[i] = (intptr_t)td_map_get(&wanted, name) - 1;
        if (new_label[i] < 0)
            TD_OUT(td_error(TD_EFORMAT,
                            "'%s' has a class '%s', which is not among the %d expected classes",
                            ds->root, ds->class_names[i], n));
    }
    for (int i = 0; i < n && !allow_subset; i++) {
        if (!td_map_has(&own, names[i]))
            TD_OUT(td_error(TD_EFORMAT,
                            "'%s' has no class '%s', which is one of the %d expected classes",
                            ds->root, names[i], n));
    }
out:
    td_text_release(&changed);
    td_map_release(&own);
    td_map_release(&wanted);
    return st;
}

static td_status copy_names(td_dataset *ds, int n, const char *const *names, const char ***out)
{
    const char **copy = td_alloc((size_t)n, sizeof *copy);
    if (!copy)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++) {
        copy[i] = td_arena_text(&ds->arena, names[i]);
        if (!copy[i]) {
            td_free(copy);
            return TD_ENOMEM;
        }
    }
    *out = copy;
    return TD_OK;
}

static void renumber(td_dataset *ds, const int64_t *new_label)
{
    for (int64_t i = 0; i < ds->n; i++) {
        td_sample *s = &ds->samples[i];
        if (!ds->is_multi_label)
            s->label = new_label[s->label];
        for (int k = 0; k < s->n_labels; k++)
            s->labels[k] = (int)new_label[s->labels[k]];
    }
}

td_status td_dataset_use_classes(td_dataset *ds, int n, const char *const *names, bool allow_subset)
{
    if (n < 1)
        return td_error(TD_EARG, "the number of classes is %d, wanted 1 or more", n);
    if (!ds->has_class_names && ds->n_classes > n)
        return td_error(TD_EFORMAT, "'%s' has %d classes, wanted %d at most", ds->root,
                        ds->n_classes, n);
    int64_t *new_label = NULL;
    const char **copy = NULL;
    td_status st = TD_OK;
    if (ds->has_class_names) {
        TD_TRY(TD_ALLOC(new_label, (size_t)ds->n_classes));
        TD_OUT(match(ds, n, names, allow_subset, new_label));
    }
    TD_OUT(copy_names(ds, n, names, &copy));
    if (ds->objects)
        TD_OUT(td_objects_renumber(ds, ds->n_classes, n, new_label));
    if (new_label && !ds->objects)
        renumber(ds, new_label);
    td_free(ds->class_names);
    ds->class_names = copy;
    ds->n_classes = n;
    copy = NULL;
out:
    td_free(copy);
    td_free(new_label);
    return st;
}

td_status td_dataset_relabel(td_dataset *ds, int n, const char *const *names,
                             const int64_t *new_label)
{
    const char **copy;
    TD_CHECK(ds->samples && !ds->objects);
    TD_TRY(copy_names(ds, n, names, &copy));
    renumber(ds, new_label);
    td_free(ds->class_names);
    ds->class_names = copy;
    ds->n_classes = n;
    return TD_OK;
}
