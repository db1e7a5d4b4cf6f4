/*
 * packed.c -- opens a pack (io/pack.h) like a folder: the same classes, samples and order
 *
 * Paths in messages and lists are formed as if the pack were a folder:
 * flowers.pack/train/daisy/1.jpg.
 */
#include <string.h>

#include "base/paths.h"
#include "base/text.h"
#include "data/objects.h"
#include "data/source.h"

static const td_pack_split *find_split(const td_pack *p, const char *name)
{
    for (int i = 0; i < td_pack_metadata_of(p)->n_splits; i++) {
        if (strcmp(td_pack_split_at(p, i)->name, name) == 0)
            return td_pack_split_at(p, i);
    }
    return NULL;
}

/* Report a missing split, or that there are several and none is given. */
static td_status no_split(const td_pack *p, const td_dataset_opts *opts)
{
    td_text names = { 0 };
    for (int i = 0; i < td_pack_metadata_of(p)->n_splits; i++)
        td_text_add(&names, "%s'%s'", i ? ", " : "", td_pack_split_at(p, i)->name);
    td_status st = td_text_status(&names);
    if (st == TD_OK && opts->split && find_split(p, ""))
        st = td_error(TD_ENOTFOUND,
                      "pack '%s' has no '%s': it was made from a single folder of classes",
                      opts->path, opts->split);
    else if (st == TD_OK && opts->split)
        st = td_error(TD_ENOTFOUND, "pack '%s' has no '%s': it contains %s", opts->path,
                      opts->split, td_text_get(&names));
    else if (st == TD_OK)
        st = td_error(TD_EFORMAT, "pack '%s' contains several splits: %s; choose one", opts->path,
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

/* --- classes ---------------------------------------------------------------------------------- */

static td_status add_classes(td_dataset *ds, const td_pack_split *s, const char ***folders)
{
    TD_TRY(TD_ALLOC(ds->class_names, (size_t)s->n_classes));
    TD_TRY(TD_ALLOC(*folders, (size_t)s->n_classes));
    for (int i = 0; i < s->n_classes; i++) {
        ds->class_names[i] = td_arena_text(&ds->arena, s->classes[i]);
        (*folders)[i] = td_path_append(&ds->arena, ds->root, s->classes[i]);
        if (!ds->class_names[i] || !(*folders)[i])
            return TD_ENOMEM;
    }
    ds->n_classes = s->n_classes;
    ds->has_class_names = true;
    return TD_OK;
}

static td_status add_samples(td_dataset *ds, const td_pack_split *s, const char *const *folders)
{
    TD_TRY(TD_ALLOC(ds->samples, (size_t)s->n_images));
    for (uint64_t i = 0; i < s->n_images; i++) {
        td_pack_image x = td_pack_image_at(ds->pack, s->first + i);
        ds->samples[i] = (td_sample){ .path = td_path_append(&ds->arena, folders[x.label], x.name),
                                      .label = x.label };
        if (!ds->samples[i].path)
            return TD_ENOMEM;
    }
    ds->n = (int64_t)s->n_images;
    ds->pack_first = s->first;
    return TD_OK;
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* Check that the annotations and the images have the same order. */
static td_status check_annotated(const td_dataset *ds, const td_pack_split *s, const td_coco *c)
{
    if (c->n_images != s->n_images - 1 || c->n_bad > 0)
        return td_error(TD_EFORMAT,
                        "pack '%s': its annotations describe %zu images, the pack has %llu; %lld "
                        "annotations are invalid",
                        ds->root, c->n_images, (unsigned long long)s->n_images - 1,
                        (long long)c->n_bad);
    for (size_t i = 0; i < c->n_images; i++) {
        td_pack_image x = td_pack_image_at(ds->pack, s->first + 1 + i);
        if (strcmp(x.name, c->images[i].file_name) != 0)
            return td_error(TD_EFORMAT, "pack '%s': image %zu is '%s', its annotations name '%s'",
                            ds->root, i, x.name, c->images[i].file_name);
    }
    return TD_OK;
}

static bool is_annotated_split(const td_pack *p, const td_pack_split *s)
{
    return td_pack_metadata_of(p)->is_annotated && s->n_classes == 2 && s->n_images >= 2 &&
           strcmp(s->classes[0], TD_PACK_ANNOTATIONS) == 0 &&
           strcmp(s->classes[1], TD_PACK_IMAGES) == 0 &&
           td_pack_image_at(p, s->first + 1).label == 1;
}

/* Add samples with boxes; sample i is image number places[i] after the annotations. */
static td_status add_annotated(td_dataset *ds, const td_dataset_opts *opts, const td_pack_split *s)
{
    const void *bytes;
    size_t n_bytes;
    td_pack_buffer buffer = { 0 };
    td_coco *c = NULL;
    td_status st;
    if (!is_annotated_split(ds->pack, s))
        return td_error(TD_EFORMAT, "pack '%s' is damaged: its annotations are not the first entry",
                        ds->root);
    TD_OUT(td_pack_read(ds->pack, s->first, &buffer, &bytes, &n_bytes));
    TD_OUT(td_coco_parse(bytes, n_bytes, ds->root, &(td_coco_opts){ 0 }, &c));
    TD_OUT(check_annotated(ds, s, c));
    ds->places = td_alloc(c->n_images + 1, sizeof *ds->places);
    TD_OUT(ds->places ? TD_OK : TD_ENOMEM);
    TD_OUT(td_objects_take(ds, opts, c, ds->root, ds->root, ds->places));
    ds->pack_first = s->first + 1;
out:
    td_coco_free(c);
    td_free(buffer.bytes);
    return st;
}

bool td_packed_is_annotated(const char *path, const char *split)
{
    td_pack *p;
    if (td_pack_open(path, &p) != TD_OK)
        return false;
    bool is_so = td_pack_metadata_of(p)->is_annotated && find_split(p, split ? split : "");
    td_pack_close(p);
    return is_so;
}

/* Check that boxes are present if and only if they are needed. */
static td_status check_kind(const td_dataset *ds, const td_dataset_opts *opts)
{
    bool is_annotated = td_pack_metadata_of(ds->pack)->is_annotated, wanted = opts->has_boxes;
    if (opts->annotations)
        return td_error(TD_EARG,
                        "pack '%s' contains its own annotations: no annotation file can be given",
                        opts->path);
    if (is_annotated == wanted)
        return TD_OK;
    return td_error(TD_EFORMAT,
                    wanted ? "pack '%s' contains images with classes, wanted images with boxes"
                           : "pack '%s' contains images with boxes, wanted images with classes",
                    opts->path);
}

td_status td_packed_open(const td_dataset_opts *opts, td_dataset *ds)
{
    const td_pack_split *s;
    const char **folders = NULL;
    td_status st;
    TD_OUT(td_pack_open(opts->path, &ds->pack));
    TD_OUT(check_kind(ds, opts));
    TD_OUT(choose_split(ds->pack, opts, &s));
    ds->root = *s->name ? td_path_append(&ds->arena, opts->path, s->name)
                        : td_arena_text(&ds->arena, opts->path);
    TD_OUT(ds->root ? TD_OK : TD_ENOMEM);
    if (opts->has_boxes) {
        TD_OUT(add_annotated(ds, opts, s));
    } else {
        TD_OUT(add_classes(ds, s, &folders));
        TD_OUT(add_samples(ds, s, folders));
    }
out:
    td_free(folders);
    return st;
}
