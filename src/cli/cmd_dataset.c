/*
 * cmd_dataset.c -- tandem dataset draw, check and stats FOLDER, pack FOLDER OUT.pack, unpack DATA
 * FOLDER
 */
#include <string.h>

#include "cli/dataset_report.h"

typedef struct {
    td_draw_opts draw;
    td_check_opts check;
    td_pack_opts pack;
    const char *split, *annotations, *list_delimiter;
    bool strict, list_outside;
    int label_offset;
    double max_bad;
    int quality;
    int threads;
} options;

static const char *const interpolations[] = { "bilinear", "bicubic", NULL };

/* clang-format off */
static const td_field draw_fields[] = {
    TD_BOOL(td_draw_opts, boxes, false,
            "draw 1 to 4 objects per image and write COCO annotations, for detectors"),
    TD_INT (td_draw_opts, classes, 0, 0, 1000, "number of classes; 0: 8, or 3 with --boxes"),
    TD_LONG(td_draw_opts, train, 0, 0, 1e9,
               "number of training images; 0: 1600, or 800 with --boxes"),
    TD_LONG(td_draw_opts, val, 0, 0, 1e9,
               "number of validation images; 0: 400, or 100 with --boxes"),
    TD_INT (td_draw_opts, size, 0, 0, 4096, "image size in pixels; 0: 64, or 320 with --boxes"),
    TD_LONG(td_draw_opts, seed, 0, 0, 9e15,
               "random seed; the same options always give the same files"),
    TD_END,
};

static const td_field check_fields[] = {
    TD_TEXT(td_check_opts, dump_tensors, NULL, "FILE",
            "write the preprocessed evaluation inputs to a .safetensors file"),
    TD_INT (td_check_opts, channels, 0, 0, 3,
               "channels of --dump-tensors, and of stats; 0 or 3: red, green, blue; 1: gray"),
    TD_INT (td_check_opts, image_size, 0, 0, 8192,
               "image size of --dump-tensors in pixels; 0: 224, or 320 with annotations; stats: "
               "size of the center crop, 0: whole images"),
    TD_ENUM(td_check_opts, interpolation, 0, interpolations,
               "interpolation of the resize, with antialiasing"),
    TD_BOOL_AS(td_check_opts, stored_orientation, "ignore_orientation", NULL, false,
            "ignore the EXIF orientation of images"),
    TD_END,
};

static const td_field pack_fields[] = {
    TD_INT (td_pack_opts, short_side, 0, 0, 65500,
            "shrink larger images to a shorter side of N pixels, as JPEG; 0: keep all images "
            "unchanged"),
    TD_BOOL(td_pack_opts, overwrite, false, "replace OUT.pack if it exists"),
    TD_END,
};

static const td_field option_fields[] = {
    TD_TEXT(options, split, NULL, "NAME",
            "check, stats, pack, unpack: only FOLDER/NAME; default: train and val (stats: train), "
            "or FOLDER itself"),
    TD_TEXT(options, annotations, NULL, "FILE",
            "check, pack, unpack: COCO annotation file; default: "
            "annotations/instances_SPLIT.json or a similar name in FOLDER"),
    TD_BOOL(options, strict, false, "check: fail on invalid annotations instead of listing them"),
    TD_BOOL(options, list_outside, false,
            "check, stats, unpack: allow a list to name files outside of its folder"),
    TD_TEXT(options, list_delimiter, NULL, "C",
            "check, stats, unpack: the character between the labels of an image in a list"),
    TD_INT (options, label_offset, 1, 0, 1,
            "check, stats, unpack: number of the first class in TFRecords; 0: no label is the "
            "background"),
    TD_REAL(options, max_bad, 0.01, 0, 1,
            "check, stats: exit with code 1 if a larger fraction of the images is unreadable"),
    TD_INT (options, quality, 90, 1, 100, "draw, pack: JPEG quality of drawn and shrunk images"),
    TD_INT (options, threads, 0, 0, 4096, "number of threads; 0: one per processor"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    options *o = opts;
    out[0] = (td_field_group){ "draw", draw_fields, &o->draw };
    out[1] = (td_field_group){ "check", check_fields, &o->check };
    out[2] = (td_field_group){ "pack", pack_fields, &o->pack };
    out[3] = (td_field_group){ "All", option_fields, o };
}

/* --- draw ------------------------------------------------------------------------------------- */

/* Replace 0 by the default, which the result reports. */
static void resolve_draw(td_draw_opts *d)
{
    d->classes = d->classes ? d->classes : d->boxes ? 3 : 8;
    d->train = d->train ? d->train : d->boxes ? 800 : 1600;
    d->val = d->val ? d->val : d->boxes ? 100 : 400;
    d->size = d->size ? d->size : d->boxes ? 320 : 64;
}

static td_status draw(const td_call *call)
{
    options *o = call->opts;
    o->draw.threads = o->threads;
    o->draw.quality = o->quality;
    resolve_draw(&o->draw);
    TD_TRY(td_dataset_draw(call->args[1], &o->draw));
    if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "path", call->args[1]);
        td_json_add(call->out, "classes", o->draw.classes);
        td_json_add(call->out, "train", (double)o->draw.train);
        td_json_add(call->out, "val", (double)o->draw.val);
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "%s\n", call->args[1]);
    }
    return TD_OK;
}

/* --- check ------------------------------------------------------------------------------------ */

static td_status check_bad_share(const options *o, const td_dataset *ds, const td_dataset_report *r)
{
    if ((double)r->n_bad <= o->max_bad * (double)r->n_images)
        return TD_OK;
    return td_error(TD_EFORMAT,
                    "'%s': %lld of %lld images cannot be read, more than --max-bad %g allows",
                    td_dataset_root(ds), (long long)r->n_bad, (long long)r->n_images, o->max_bad);
}

static td_dataset_opts source_of(const td_call *call, const char *split)
{
    const options *o = call->opts;
    return (td_dataset_opts){ .path = call->args[1],
                              .split = split,
                              .annotations = o->annotations,
                              .allow_outside = o->list_outside,
                              .labels_from_zero = o->label_offset == 0,
                              .label_delimiter = o->list_delimiter ? *o->list_delimiter : '\0',
                              .has_boxes = td_dataset_is_annotated(call->args[1], split),
                              .strict = o->strict };
}

/* Check one open set and print what was found. */
static td_status check_one(const td_call *call, const td_dataset *ds, int *n_done)
{
    options *o = call->opts;
    td_dataset_report *r = NULL;
    o->check.threads = o->threads;
    td_status st = td_dataset_check(ds, &o->check, &r);
    if (st == TD_OK) {
        if (call->json && (*n_done)++ > 0)
            td_text_add(call->out, ", ");
        if (call->json)
            td_cli_report_json(ds, r, call->out);
        else
            td_cli_report_text(ds, r, call->out);
        st = check_bad_share(o, ds, r);
    }
    td_dataset_report_free(r);
    return st;
}

/* Open a split; *out is NULL if it does not exist. */
static td_status open_split(const td_call *call, const char *split, td_dataset **out)
{
    const td_dataset_opts source = source_of(call, split);
    const char *other = strcmp(split, "train") == 0 ? "val" : "train";
    if (!source.has_boxes && td_dataset_is_annotated(call->args[1], other))
        return TD_OK; /* a set with boxes, without this split */
    td_status st = td_dataset_open(&source, out);
    return st == TD_ENOTFOUND && !source.has_boxes ? TD_OK : st;
}

/* Is this a data set with boxes without splits: one annotation file or one pack? */
static bool is_one_set(const char *path)
{
    return td_dataset_is_annotated(path, NULL) && !td_dataset_is_annotated(path, "train") &&
           !td_dataset_is_annotated(path, "val");
}

/* What the check reads: the splits that exist, or one set. */
typedef struct {
    bool is_part; /* the command line selects one set, or there are no splits to look for */
    td_dataset *train, *val, *one;
} sets;

static td_status open_sets(const td_call *call, sets *s)
{
    const options *o = call->opts;
    s->is_part = o->split || o->annotations || is_one_set(call->args[1]);
    if (!s->is_part) {
        TD_TRY(open_split(call, "train", &s->train));
        TD_TRY(open_split(call, "val", &s->val));
    }
    if (o->check.dump_tensors && s->train && s->val)
        return td_error(TD_EUSAGE,
                        "--dump-tensors: the data set has two splits, choose one with --split");
    const td_dataset_opts source = source_of(call, o->split);
    return s->train || s->val ? TD_OK : td_dataset_open(&source, &s->one);
}

/* Check that both splits have the same classes, as training requires; boxes are not checked. */
static td_status check_classes(const sets *s)
{
    if (!s->train || !s->val || td_dataset_has_boxes(s->train) || td_dataset_has_boxes(s->val))
        return TD_OK;
    const int n = td_dataset_classes(s->train);
    td_arena arena;
    td_arena_init(&arena);
    const char **names = td_arena_alloc(&arena, (size_t)n + 1, sizeof *names);
    for (int i = 0; names && i < n; i++)
        names[i] = td_dataset_class_name(s->train, i);
    td_status st = names ? td_dataset_use_classes(s->val, n, names, false) : TD_ENOMEM;
    td_arena_release(&arena);
    return st == TD_OK ? st : td_error_context(st, "train and val have different classes");
}

/* Check all of them, also after a failure, and return the first failure. */
static td_status check_sets(const td_call *call, const sets *s)
{
    const td_dataset *const all[] = { s->train, s->val, s->one };
    td_status st = TD_OK;
    int n_done = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) {
            td_status one = check_one(call, all[i], &n_done);
            st = st == TD_OK ? one : st;
        }
    return st == TD_OK ? check_classes(s) : st;
}

/* Print the splits that exist, and what the missing ones are required for. */
static void splits_text(const sets *s, td_text *out)
{
    if (s->train && s->val)
        td_text_add(out, "splits        train, val\n");
    else if (s->train)
        td_text_add(out, "splits        train; no val: training requires --training-only\n");
    else if (s->val)
        td_text_add(out, "splits        val; no train: for evaluation only\n");
    else
        td_text_add(out, "splits        no train, no val: for evaluation only\n");
}

static void splits_json(const sets *s, td_text *out)
{
    td_text_add(out, ", \"missing_splits\": [%s%s%s]", s->train ? "" : "\"train\"",
                s->train || s->val ? "" : ", ", s->val ? "" : "\"val\"");
}

static td_status check(const td_call *call)
{
    sets s = { 0 };
    td_status st;
    TD_OUT(open_sets(call, &s));
    if (call->json)
        td_text_add(call->out, "{\"sets\": [");
    st = check_sets(call, &s);
    if (call->json)
        td_text_add(call->out, "]");
    if (call->json && !s.is_part)
        splits_json(&s, call->out);
    if (call->json)
        td_text_add(call->out, "}\n");
    else if (!s.is_part)
        splits_text(&s, call->out);
out:
    td_dataset_free(s.train);
    td_dataset_free(s.val);
    td_dataset_free(s.one);
    return st;
}

/* --- pack ------------------------------------------------------------------------------------- */

static void pack_json(const char *path, const td_pack_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", path);
    td_json_add(out, "pictures", (double)r->n_images);
    td_json_add(out, "shrunk", (double)r->n_shrunk);
    td_json_add(out, "unreadable", (double)r->n_unreadable);
    td_json_add(out, "bytes", (double)r->n_bytes);
    td_text_add(out, ", \"digest\": \"xxh3:%016llx\"", (unsigned long long)r->digest);
    td_json_add(out, "seconds", r->seconds);
    td_text_add(out, "}\n");
}

static void pack_text(const char *path, const td_pack_result *r, td_text *out)
{
    td_text_add(out, "%s\n  images      %lld, %lld shrunk\n", path, (long long)r->n_images,
                (long long)r->n_shrunk);
    if (r->n_unreadable)
        td_text_add(out, "  unreadable  %lld, packed as they are\n", (long long)r->n_unreadable);
    td_text_add(out, "  bytes       %lld\n  digest      xxh3:%016llx\n", (long long)r->n_bytes,
                (unsigned long long)r->digest);
}

static td_status pack(const td_call *call)
{
    options *o = call->opts;
    td_pack_result r;
    o->pack.split = o->split;
    o->pack.annotations = o->annotations;
    o->pack.quality = o->quality;
    o->pack.threads = o->threads;
    o->pack.allow_outside = o->list_outside;
    o->pack.labels_from_zero = o->label_offset == 0;
    o->pack.label_delimiter = o->list_delimiter ? *o->list_delimiter : '\0';
    TD_TRY(td_dataset_pack(call->args[1], call->args[2], &o->pack, &r));
    if (call->json)
        pack_json(call->args[2], &r, call->out);
    else
        pack_text(call->args[2], &r, call->out);
    return TD_OK;
}

/* --- unpack ----------------------------------------------------------------------------------- */

static td_status unpack(const td_call *call)
{
    const options *o = call->opts;
    const td_unpack_opts how = { .split = o->split,
                                 .annotations = o->annotations,
                                 .allow_outside = o->list_outside,
                                 .labels_from_zero = o->label_offset == 0,
                                 .label_delimiter = o->list_delimiter ? *o->list_delimiter : '\0' };
    td_unpack_result r;
    TD_TRY(td_dataset_unpack(call->args[1], call->args[2], &how, &r));
    if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "path", call->args[2]);
        td_json_add(call->out, "pictures", (double)r.n_images);
        td_json_add(call->out, "bytes", (double)r.n_bytes);
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "%s\n  images      %lld\n  bytes       %lld\n", call->args[2],
                    (long long)r.n_images, (long long)r.n_bytes);
    }
    return TD_OK;
}

/* --- stats ------------------------------------------------------------------------------------ */

static void stats_json(const td_dataset *ds, int channels, const td_pixel_stats *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", td_dataset_root(ds));
    td_json_add(out, "images", (double)r->n_images);
    td_json_add(out, "unreadable", (double)r->n_bad);
    td_json_add(out, "pixels", (double)r->n_pixels);
    if (channels == 1)
        td_text_add(out, ", \"mean\": [%.9g], \"std\": [%.9g]}\n", r->mean[0], r->std[0]);
    else
        td_text_add(out, ", \"mean\": [%.9g, %.9g, %.9g], \"std\": [%.9g, %.9g, %.9g]}\n",
                    r->mean[0], r->mean[1], r->mean[2], r->std[0], r->std[1], r->std[2]);
}

/* What the options take, and nothing else: $(tandem dataset stats FOLDER). */
static void stats_text(int channels, const td_pixel_stats *r, td_text *out)
{
    if (channels == 1)
        td_text_add(out, "--channels 1 --mean %.6f --std %.6f\n", r->mean[0], r->std[0]);
    else
        td_text_add(out, "--mean %.6f,%.6f,%.6f --std %.6f,%.6f,%.6f\n", r->mean[0], r->mean[1],
                    r->mean[2], r->std[0], r->std[1], r->std[2]);
}

static td_status measure(const td_call *call, const td_dataset *ds)
{
    const options *o = call->opts;
    const td_stats_opts so = { .threads = o->threads,
                               .channels = o->check.channels,
                               .image_size = o->check.image_size,
                               .interpolation = o->check.interpolation,
                               .stored_orientation = o->check.stored_orientation };
    td_pixel_stats r;
    TD_TRY(td_dataset_pixel_stats(ds, &so, &r));
    if (call->json)
        stats_json(ds, so.channels, &r, call->out);
    else
        stats_text(so.channels, &r, call->out);
    if ((double)r.n_bad <= o->max_bad * (double)r.n_images)
        return TD_OK;
    return td_error(TD_EFORMAT,
                    "'%s': %lld of %lld images cannot be read, more than --max-bad %g allows",
                    td_dataset_root(ds), (long long)r.n_bad, (long long)r.n_images, o->max_bad);
}

/* The training images: FOLDER/train, or FOLDER itself. */
static td_status stats(const td_call *call)
{
    const options *o = call->opts;
    td_dataset *ds = NULL;
    td_dataset_opts source = source_of(call, o->split ? o->split : "train");
    source.allow_root = !o->split;
    TD_TRY(td_dataset_open(&source, &ds));
    const td_status st = measure(call, ds);
    td_dataset_free(ds);
    return st;
}

/* --- which ------------------------------------------------------------------------------------ */

static td_status run(const td_call *call)
{
    static const struct {
        const char *name, *arguments;
        int n_args;
        td_status (*run)(const td_call *);
    } tasks[] = {
        { "draw", "FOLDER", 2, draw },          { "check", "FOLDER", 2, check },
        { "stats", "FOLDER", 2, stats },        { "pack", "DATA OUT.pack", 3, pack },
        { "unpack", "DATA FOLDER", 3, unpack },
    };
    char delimiter;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (strcmp(call->args[0], tasks[i].name) != 0)
            continue;
        TD_TRY(td_list_delimiter(((const options *)call->opts)->list_delimiter, &delimiter));
        if (call->n_args < tasks[i].n_args)
            return td_error(TD_EUSAGE, "dataset %s requires %s", tasks[i].name, tasks[i].arguments);
        if (call->n_args > tasks[i].n_args)
            return td_error(TD_EUSAGE, "dataset %s: unexpected argument '%s'; it requires %s",
                            tasks[i].name, call->args[tasks[i].n_args], tasks[i].arguments);
        return tasks[i].run(call);
    }
    return td_error(TD_EUSAGE,
                    "unknown command '%s' of dataset, wanted draw, check, stats, pack or unpack",
                    call->args[0]);
}

static const char *job(const td_call *call)
{
    return call->args[0];
}

const td_verb td_verb_dataset = {
    .name = "dataset",
    .arguments = "draw|check|stats FOLDER | pack|unpack DATA OUT",
    .summary = "draw a labeled data set, or check, measure, pack or unpack one",
    .about =
        "draw writes FOLDER/train and FOLDER/val with images of shapes, textures and letters,\n"
        "one class per kind: an easy task that shows whether training works.\n"
        "With --boxes it also writes FOLDER/annotations/instances_train.json and\n"
        "instances_val.json.\n\n"
        "check decodes every image and lists formats, sizes, classes and unreadable files.\n"
        "For data with boxes it also lists the annotations that are skipped, with the reason.\n"
        "The last line names the splits that were found: a data set without val requires\n"
        "train --training-only, and one without train is for evaluation; neither is an error.\n"
        "The exit code is 1 if FOLDER cannot be used for either, if train and val have\n"
        "different classes, or if more images than --max-bad are unreadable in a split.\n\n"
        "stats prints mean and standard deviation of the training images (FOLDER/train, or\n"
        "FOLDER itself) as the options --mean and --std take them. Every pixel of every image\n"
        "counts the same; with --image-size the pixels of the center crop that evaluation\n"
        "takes of that size.\n\n"
        "pack puts the images of DATA, which may be a folder with or without train and val,\n"
        "TFRecords, tar files or a list, into one file. Images are stored unchanged unless\n"
        "--short-side shrinks them. The pack can be used in place of DATA, here and in train,\n"
        "evaluate and benchmark. Several labels for an image are refused: a pack has one.\n\n"
        "unpack writes the images of DATA, which may be TFRecords, tar files, a list or a\n"
        "pack, unchanged to FOLDER, one folder for each class; with boxes it writes the\n"
        "images and FOLDER/annotations, with several labels for an image the images and\n"
        "the list FOLDER/labels.csv, a column of 0 and 1 for each class.",
    .examples = "tandem dataset draw drawn --classes 8 --train 1600 --val 400\n"
                "tandem dataset draw figures --boxes\n"
                "tandem dataset check flowers\n"
                "tandem dataset check coco --split val --annotations "
                "coco/annotations/instances_val2017.json\n"
                "tandem dataset check flowers --split val --dump-tensors val.safetensors\n"
                "tandem train flowers $(tandem dataset stats flowers)\n"
                "tandem dataset pack flowers flowers.pack --short-side 256 --quality 90\n"
                "tandem dataset unpack 'coco/coco_*.record-*' coco-folder",
    .n_args_min = 1,
    .n_args_max = 3,
    .has_json = true,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .job = job,
    .run = run,
};
