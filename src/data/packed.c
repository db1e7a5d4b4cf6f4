/*
 * packed.c -- a pack (io/pack.h) in the place of a folder: the same classes, samples and order
 *
 * Paths are made up for messages and lists, as if the pack were a folder:
 * flowers.pack/train/daisy/1.jpg.
 */
#include <string.h>

#include "base/text.h"
#include "data/source.h"

static const td_pack_split *find_split(const td_pack *p, const char *name)
{
    for (int i = 0; i < td_pack_facts_of(p)->n_splits; i++) {
        if (strcmp(td_pack_split_at(p, i)->name, name) == 0)
            return td_pack_split_at(p, i);
    }
    return NULL;
}

/* the wanted split is absent, or none is named and there are several */
static td_status no_split(const td_pack *p, const td_dataset_opts *opts)
{
    td_text names = { 0 };
    for (int i = 0; i < td_pack_facts_of(p)->n_splits; i++)
        td_text_add(&names, "%s'%s'", i ? ", " : "", td_pack_split_at(p, i)->name);
    td_status st = td_text_status(&names);
    if (st == TD_OK && opts->split && find_split(p, ""))
        st = td_error(TD_ENOTFOUND, "pack '%s' has no '%s': it was made of one folder of classes",
                      opts->path, opts->split);
    else if (st == TD_OK && opts->split)
        st = td_error(TD_ENOTFOUND, "pack '%s' has no '%s': it holds %s", opts->path, opts->split,
                      td_text_get(&names));
    else if (st == TD_OK)
        st = td_error(TD_EFORMAT, "pack '%s' holds parts of a data set: %s; choose one", opts->path,
                      td_text_get(&names));
    td_text_release(&names);
    return st;
}

static td_status choose_split(const td_pack *p, const td_dataset_opts *opts,
                              const td_pack_split **out)
{
    *out = opts->split ? find_split(p, opts->split) : NULL;
    if (!*out && (!opts->split || opts->allow_root))
        *out = find_split(p, "");
    return *out ? TD_OK : no_split(p, opts);
}

/* "a/b" in the data set's arena */
static char *joined(td_dataset *ds, const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    char *path = td_arena_alloc(&ds->arena, n + m + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, a, n);
    path[n] = '/';
    memcpy(path + n + 1, b, m);
    return path;
}

static td_status add_classes(td_dataset *ds, const td_pack_split *s, const char ***folders)
{
    ds->class_names = td_alloc((size_t)s->n_classes, sizeof *ds->class_names);
    *folders = td_alloc((size_t)s->n_classes, sizeof **folders);
    if (!ds->class_names || !*folders)
        return TD_ENOMEM;
    for (int i = 0; i < s->n_classes; i++) {
        ds->class_names[i] = td_arena_text(&ds->arena, s->classes[i]);
        (*folders)[i] = joined(ds, ds->root, s->classes[i]);
        if (!ds->class_names[i] || !(*folders)[i])
            return TD_ENOMEM;
    }
    ds->n_classes = s->n_classes;
    ds->has_class_names = true;
    return TD_OK;
}

static td_status add_samples(td_dataset *ds, const td_pack_split *s, const char *const *folders)
{
    ds->samples = td_alloc((size_t)s->n_pictures, sizeof *ds->samples);
    if (!ds->samples)
        return TD_ENOMEM;
    for (uint64_t i = 0; i < s->n_pictures; i++) {
        td_pack_picture x = td_pack_picture_at(ds->pack, s->first + i);
        ds->samples[i] = (td_sample){ joined(ds, folders[x.label], x.name), x.label };
        if (!ds->samples[i].path)
            return TD_ENOMEM;
    }
    ds->n = (int64_t)s->n_pictures;
    ds->pack_first = s->first;
    return TD_OK;
}

td_status td_packed_open(const td_dataset_opts *opts, td_dataset *ds)
{
    const td_pack_split *s;
    const char **folders = NULL;
    td_status st;
    TD_OUT(td_pack_open(opts->path, &ds->pack));
    TD_OUT(choose_split(ds->pack, opts, &s));
    ds->root = *s->name ? joined(ds, opts->path, s->name) : td_arena_text(&ds->arena, opts->path);
    TD_OUT(ds->root ? TD_OK : TD_ENOMEM);
    TD_OUT(add_classes(ds, s, &folders));
    TD_OUT(add_samples(ds, s, folders));
out:
    td_free(folders);
    return st;
}
