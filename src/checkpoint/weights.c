/*
 * weights.c -- renames, checks and copies weights
 */
#include "checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weight_network.h"
#include "model/arch.h"
#include "model/own_graph.h"
#include "optim/freeze.h"
#include "optim/training_graph.h"

#define TRACKED ".num_batches_tracked"

/* Replace the first `from` in `s`, a buffer of 256 bytes, by `to`. */
static void replace(char *s, const char *from, const char *to)
{
    char rest[256];
    char *at = strstr(s, from);
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, 256 - (size_t)(at - s), "%s%s", to, rest);
}

size_t td_weight_prefix(const char *name)
{
    static const char *const prefixes[] = { TD_MOMENTUM_PREFIX,
                                            TD_SQUARE_PREFIX,
                                            TD_MEAN_PREFIX,
                                            TD_MEAN_SQ_PREFIX,
                                            TD_SUM_PREFIX,
                                            TD_EMA_PREFIX,
                                            TD_PENDING_PREFIX TD_EMA_PREFIX,
                                            TD_PENDING_PREFIX };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (td_text_starts(name, prefixes[i]))
            return strlen(prefixes[i]);
    return 0;
}

/* Is it optional in a file: an average, or state of an unfinished step? */
static bool is_optional(const char *name)
{
    return td_text_starts(name, TD_EMA_PREFIX) || td_text_starts(name, TD_SUM_PREFIX) ||
           td_text_starts(name, TD_PENDING_PREFIX);
}

/* State of an unfinished step, which loss scaling may still discard. */
static bool is_of_step(const char *name)
{
    return td_text_starts(name, TD_SUM_PREFIX) || td_text_starts(name, TD_PENDING_PREFIX);
}

/*
 * RetinaNet's towers before torchvision 0.13: a Sequential of convolutions and relus,
 * "head.regression_head.conv.2.weight"; now of modules with both, "...conv.1.0.weight".
 */
static void rename_tower(char *name, size_t n_prefix)
{
    char from[16], to[16];
    const char *head = name + n_prefix, *at = strstr(head, "_head.conv.");
    if (!at || !td_text_starts(head, "head."))
        return;
    at += strlen("_head.conv.");
    if (*at < '0' || *at > '6' || (*at - '0') % 2 ||
        (strcmp(at + 1, ".weight") != 0 && strcmp(at + 1, ".bias") != 0))
        return;
    snprintf(from, sizeof from, ".conv.%c.", *at);
    snprintf(to, sizeof to, ".conv.%d.0.", (*at - '0') / 2);
    replace(name, from, to);
}

/* A stage of NVIDIA's EfficientNet: "layers.0.block0.", in its first files "layer1.block0.". */
static void rename_stage(char *name, size_t n_prefix)
{
    char from[16], to[16];
    const char *stage = name + n_prefix;
    if (!td_text_starts(stage, "layer") || stage[5] < '1' || stage[5] > '7' ||
        !td_text_starts(stage + 6, ".block"))
        return;
    snprintf(from, sizeof from, "layer%c.", stage[5]);
    snprintf(to, sizeof to, "layers.%c.", stage[5] - 1);
    replace(name, from, to);
}

void td_weight_name(const char *name, char out[256])
{
    const int n_prefix = (int)td_weight_prefix(name);
    const char *prefix = name;
    name += n_prefix;
    if (td_text_starts(name, "module.1."))
        name += strlen("module.1.");
    else if (td_text_starts(name, "module."))
        name += strlen("module.");
    snprintf(out, 256, "%.*s%s", n_prefix, prefix, name);
    char *stage = strstr(out, "layers.");
    rename_stage(out, (size_t)n_prefix);
    if (stage == out + n_prefix && stage[7] >= '0' && stage[7] <= '3' && stage[8] == '.' &&
        !td_text_starts(stage + 9, "block")) {
        char from[10], to[10];
        snprintf(from, sizeof from, "layers.%c.", stage[7]);
        snprintf(to, sizeof to, "layer%c.", stage[7] + 1);
        replace(out, from, to);
    }
    rename_tower(out, (size_t)n_prefix);
    replace(out, ".squeeze.squeeze.", ".se.fc1.");
    replace(out, ".squeeze.expand.", ".se.fc2.");
    if (strstr(out, ".denselayer")) { /* torchvision's published files */
        replace(out, ".norm.1.", ".norm1.");
        replace(out, ".norm.2.", ".norm2.");
        replace(out, ".conv.1.", ".conv1.");
        replace(out, ".conv.2.", ".conv2.");
    }
}

/* --- loading ---------------------------------------------------------------------------------- */

static bool is_skipped(const td_load_opts *o, const char *name)
{
    const size_t n_prefix = td_weight_prefix(name);
    if (n_prefix && !o->with_momentum)
        return true;
    name += n_prefix;
    return (o->skip[0] && strcmp(name, o->skip[0]) == 0) ||
           (o->skip[1] && strcmp(name, o->skip[1]) == 0);
}

/* Is `name` optimizer state of a weight frozen by `patterns`? */
static bool is_state_of(const char *patterns, const char *name)
{
    const size_t n_prefix = td_weight_prefix(name);
    return n_prefix && td_is_frozen(patterns, name + n_prefix);
}

static void print_shape(const int64_t *dim, int rank, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, i ? ",%lld" : "%lld", (long long)dim[i]);
    if (n < room)
        snprintf(out + n, room - n, "]");
}

/* Do the shapes agree, except for ones at the end, as [D, C] and [D, C, 1, 1]? */
static bool shape_fits(const td_tensor *t, const td_type *type)
{
    for (int i = 0; i < t->rank || i < type->rank; i++) {
        int64_t a = i < t->rank ? t->dim[i] : 1, b = i < type->rank ? type->dim[i] : 1;
        if (a != b)
            return false;
    }
    return true;
}

/* Count values of float types whose exponent bits are all ones; file data may be unaligned. */
static int64_t count_nonfinite(const td_tensor *t)
{
    int64_t n = 0;
#define COUNT(name, T, exponent)                                                                   \
    case TD_DT_##name:                                                                             \
        for (size_t i = 0; i < t->n_bytes / sizeof(T); i++) {                                      \
            T bits;                                                                                \
            memcpy(&bits, (const char *)t->data + i * sizeof bits, sizeof bits);                   \
            n += (bits & (T)(exponent)) == (T)(exponent);                                          \
        }                                                                                          \
        break;

    switch (t->dtype) {
        COUNT(F32, uint32_t, 0x7f800000)
        COUNT(F64, uint64_t, 0x7ff0000000000000)
        COUNT(BF16, uint16_t, 0x7f80)
        COUNT(F16, uint16_t, 0x7c00)
    default:
        break;
    }
#undef COUNT
    return n;
}

/* The smallest element if below zero, or 0; file data may be unaligned. */
static double least_of(const td_tensor *t)
{
    double least = 0, d;
    float f;
    for (size_t i = 0; t->dtype == TD_DT_F32 && i < t->n_bytes / sizeof f; i++) {
        memcpy(&f, (const char *)t->data + i * sizeof f, sizeof f);
        least = (double)f < least ? (double)f : least;
    }
    for (size_t i = 0; t->dtype == TD_DT_F64 && i < t->n_bytes / sizeof d; i++) {
        memcpy(&d, (const char *)t->data + i * sizeof d, sizeof d);
        least = d < least ? d : least;
    }
    return least;
}

/*
 * Refuse negative values: a norm divides by the root of its variance, RMSprop and Adam by that of
 * a mean square.
 */
static td_status check_squares(const td_tensor *t, const char *name, const char *path)
{
    const bool is_square = td_text_ends(name, "running_var") ||
                           td_text_starts(name, TD_SQUARE_PREFIX) ||
                           td_text_starts(name, TD_MEAN_SQ_PREFIX);
    const double least = is_square ? least_of(t) : 0;
    if (least < 0)
        return td_error(
            TD_EARG,
            "'%s': tensor '%s' has the value %g, which is not a valid %s: the file is damaged",
            path, name, least, td_text_ends(name, "running_var") ? "variance" : "mean of squares");
    return TD_OK;
}

/* Is it the first filter of a network for RGB images, [K, 3, R, S], in one for gray images? */
static bool is_rgb_stem(const td_load_opts *o, const td_tensor *t, const td_type *type,
                        const char *name)
{
    char stem[256];
    if (!o->model || o->with_momentum || t->rank != 4 || type->rank != 4 || t->dim[1] != 3 ||
        type->dim[1] != 1 || t->dtype != TD_DT_F32 || type->dtype != TD_DT_F32)
        return false;
    for (int i = 0; i < 4; i++)
        if (i != 1 && t->dim[i] != type->dim[i])
            return false;
    if (td_model_stem(o->model, stem) == TD_OK)
        return strcmp(stem, name) == 0;
    td_error_clear();
    return false;
}

/* Set the sums over the channels: with them three equal channels give what one gives. */
static td_status set_summed(td_program *p, const char *name, const td_tensor *t)
{
    const int64_t plane = t->dim[2] * t->dim[3], n = t->dim[0] * plane;
    float *sums, v;
    TD_TRY(TD_ALLOC(sums, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < 3; c++) {
            memcpy(&v, (const float *)t->data + (i / plane * 3 + c) * plane + i % plane, sizeof v);
            sums[i] += v;
        }
    const td_status st = td_program_set(p, name, sums);
    td_free(sums);
    return st;
}

static td_status check_tensor(const td_load_opts *o, const td_tensor *t, const td_type *type,
                              const char *name, const char *path)
{
    char has[96], wants[96];
    if (!shape_fits(t, type) && !is_rgb_stem(o, t, type, name)) {
        print_shape(t->dim, t->rank, has, sizeof has);
        print_shape(type->dim, type->rank, wants, sizeof wants);
        return td_error(TD_EFORMAT, "'%s': tensor '%s' is %s, the network expects %s", path, name,
                        has, wants);
    }
    if (t->dtype != type->dtype)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' is %s, the network expects %s", path, name,
                        td_dtype_name(t->dtype), td_dtype_name(type->dtype));
    /* check them here: a relu may hide them in the logits */
    const int64_t n = is_of_step(name) ? 0 : count_nonfinite(t);
    if (n)
        return td_error(TD_EARG,
                        "'%s': %lld of the %lld values of tensor '%s' are not finite: its training "
                        "diverged, or the file is damaged",
                        path, (long long)n, (long long)td_type_count(type), name);
    return check_squares(t, name, path);
}

/* The name of a tensor for `p`: its own if p has such a parameter, otherwise the canonical one. */
static void name_for(const td_map *params, const char *name, char out[256])
{
    if (td_map_has(params, name))
        snprintf(out, 256, "%s", name);
    else
        td_weight_name(name, out);
}

static td_status params_of(const td_program *p, td_map *out)
{
    for (int i = 0; i < td_program_param_count(p); i++)
        TD_TRY(td_map_set(out, td_program_param_name(p, i), out));
    return TD_OK;
}

/* Map names to tensors; with use_ema, averages replace the tensors of which they are averages. */
static td_status index_tensors(const td_tensors *t, const char *path, bool use_ema,
                               const td_map *params, td_map *map)
{
    char name[256];
    bool has_ema = false;
    if (td_weight_file_is_average(t))
        use_ema = false;
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        const bool is_ema = td_text_starts(x->name, TD_EMA_PREFIX);
        has_ema = has_ema || is_ema;
        if (use_ema && !is_ema && !td_text_ends(x->name, TRACKED))
            continue;
        name_for(params, x->name + (use_ema && is_ema ? strlen(TD_EMA_PREFIX) : 0), name);
        if (td_map_has(map, name))
            return td_error(TD_EFORMAT, "'%s': two tensors map to '%s'", path, name);
        TD_TRY(td_map_set(map, name, (void *)(uintptr_t)x));
    }
    if (use_ema && !has_ema)
        return td_error(TD_EFORMAT,
                        "'%s' has no averaged weights ('" TD_EMA_PREFIX
                        "...'): its training did not use --use-ema",
                        path);
    return TD_OK;
}

static td_status index_file(const td_tensors *t, const char *path, bool use_ema,
                            const td_program *p, td_map *map)
{
    td_map params = { 0 };
    td_status st = params_of(p, &params);
    if (st == TD_OK)
        st = index_tensors(t, path, use_ema, &params, map);
    td_map_release(&params);
    return st;
}

static td_status check_all(const td_map *map, const char *path, const td_load_opts *o,
                           const td_program *p)
{
    td_map wanted = { 0 };
    td_status st = TD_OK;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type type = td_program_param_type(p, i);
        const td_tensor *t = td_map_get(map, name);
        TD_OUT(td_map_set(&wanted, name, NULL));
        if (is_skipped(o, name) ||
            (!t && (is_optional(name) || is_state_of(o->frozen_before, name))))
            continue;
        if (!t)
            TD_OUT(td_error(TD_EFORMAT, "'%s' has no tensor '%s'", path, name));
        TD_OUT(check_tensor(o, t, &type, name, path));
    }
    for (size_t i = 0; i < map->n; i++) {
        const char *name = map->entries[i].key;
        if (!td_map_has(&wanted, name) && !is_skipped(o, name) && !is_optional(name) &&
            !is_state_of(o->frozen_now, name) && !td_text_ends(name, TRACKED))
            TD_OUT(td_error(TD_EFORMAT, "'%s': the network has no parameter '%s'", path, name));
    }
out:
    td_map_release(&wanted);
    return st;
}

/* Add the usual reason: the file is for another network, or does not name one. */
static td_status other_network(const td_tensors *t, const td_model_opts *model)
{
    char name[64];
    const bool is_named = td_tensors_meta(t, "tandem.arch") || td_tensors_meta(t, "tandem.graph");
    const char *is = is_named ? NULL : td_weight_network(t);
    td_model_name(model, name, sizeof name);
    if (is && strcmp(is, name) != 0)
        return td_error_context(TD_EFORMAT,
                                "network '%s' (the file names none, its tensors are those of "
                                "'%s': add --arch %s)",
                                name, is, is);
    if (!is_named)
        return td_error_context(
            TD_EFORMAT, "network '%s' (the file names none: add --arch NAME, if it is of another)",
            name);
    return td_error_context(TD_EFORMAT, "loading into network '%s' (--arch selects another)", name);
}

static td_status check_file(const td_tensors *t, const char *path, const td_load_opts *o,
                            const td_program *p, td_map *map)
{
    TD_TRY(index_file(t, path, o->use_ema, p, map));
    const td_status st = check_all(map, path, o, p);
    return st == TD_EFORMAT && o->model ? other_network(t, o->model) : st;
}

td_status td_weights_check(const td_tensors *t, const char *path, const td_load_opts *opts,
                           const td_program *p)
{
    td_map map = { 0 };
    const td_status st = check_file(t, path, opts, p, &map);
    td_map_release(&map);
    return st;
}

td_status td_weights_load(const td_tensors *t, const char *path, const td_load_opts *opts,
                          td_program *p)
{
    td_load_opts none = { 0 };
    const td_load_opts *o = opts ? opts : &none;
    td_map map = { 0 };
    td_status st = TD_OK;
    TD_OUT(check_file(t, path, o, p, &map));
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_tensor *x = td_map_get(&map, name);
        const td_type type = td_program_param_type(p, i);
        if (!x || is_skipped(o, name) || (o->keep_set && td_program_param_is_set(p, i)))
            continue;
        if (shape_fits(x, &type)) {
            TD_OUT(td_program_set(p, name, x->data));
            continue;
        }
        TD_OUT(set_summed(p, name, x));
        td_log(
            TD_LOG_INFO, "weights",
            "'%s' is for red, green and blue: its first filter '%s' is summed over them for gray "
            "images",
            path, name);
    }
    TD_OUT(td_tensors_check(t)); /* were all bytes readable? */
out:
    td_map_release(&map);
    return st;
}

/* --- loading the tensors that match ----------------------------------------------------------- */

/*
 * SSDLite's backbone is mobilenet_v3_large cut in two inside of block 13: 0.0 to 0.12 are the first
 * modules, 0.13 is the first one of block 13, 1.0 its others, and 1.1 on are modules 14 to 16.
 */
static void ssdlite_name(const char *rest, char out[256])
{
    const bool is_second = td_text_starts(rest, "1.");
    const char *at = rest + 2, *part = at + strcspn(at, ".");
    const int i = (int)strtol(at, NULL, 10);
    if (is_second && i == 0)
        snprintf(out, 256, "features.13.block%s", part);
    else if (!is_second && i == 13)
        snprintf(out, 256, "features.13.block.0%s", part);
    else
        snprintf(out, 256, "features.%d%s", is_second ? i + 13 : i, part);
}

/* The classifier's name of a backbone's parameter; false: it is not a backbone's. */
static bool classifier_name(const char *name, char out[256])
{
    static const char ssdlite[] = "backbone.features.", retinanet[] = "backbone.body.";
    if (td_text_starts(name, ssdlite)) {
        ssdlite_name(name + strlen(ssdlite), out);
        return true;
    }
    if (td_text_starts(name, retinanet)) {
        snprintf(out, 256, "%s", name + strlen(retinanet));
        return true;
    }
    if (td_text_starts(name, "backbone.extra.") || td_text_starts(name, "backbone.fpn."))
        return false;
    static const char ssd320[] = "backbone.", ssd300[] = "feature_extractor.feature_extractor.";
    if (td_text_starts(name, ssd320)) {
        snprintf(out, 256, "%s", name + strlen(ssd320));
        return true;
    }
    if (!td_text_starts(name, ssd300))
        return false;
    const char *layer = name + strlen(ssd300), *rest = strchr(layer, '.');
    const int i = *layer - '0';
    if (!rest || rest != layer + 1)
        return false;
    if (i <= 1)
        snprintf(out, 256, "%s%s", i ? "bn1" : "conv1", rest);
    else
        snprintf(out, 256, "layer%d%s", i - 3, rest); /* torchvision's children 4 to 6 */
    return true;
}

/* The tensor for a parameter; NULL: none with its name, shape and type. */
static const td_tensor *matching(const td_map *map, const td_program *p, int i)
{
    char name[256];
    const char *own = td_program_param_name(p, i);
    const td_type type = td_program_param_type(p, i);
    const td_tensor *t = td_map_get(map, own);
    if (!t && classifier_name(own, name))
        t = td_map_get(map, name);
    return t && shape_fits(t, &type) && t->dtype == type.dtype ? t : NULL;
}

/* Add a name to a list such as "fc.weight, fc.bias and 3 more". */
static void add_name(td_text *list, int n, const char *name)
{
    if (n < 3)
        td_text_add(list, n ? ", %s" : "%s", name);
}

/*
 * Warn of tensors whose names match but not their shapes, except for the last layers, whose shapes
 * depend on the classes.
 */
static void warn_of_shapes(const td_map *map, const td_map *used, const char *path,
                           const td_program *p)
{
    char name[256];
    td_text list = { 0 };
    int n = 0;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *own = td_program_param_name(p, i);
        const td_tensor *t = td_map_get(map, own);
        if (!t && classifier_name(own, name))
            t = td_map_get(map, name);
        if (t && t->rank == 4 && td_text_ends(own, "conv1.weight") && !td_map_has(used, t->name))
            add_name(&list, n++, t->name);
    }
    if (n)
        td_log(TD_LOG_WARN, "train",
               "'%s': tensors with the network's names have other shapes, %s%s: they belong to "
               "another --arch or --backbone",
               path, td_text_get(&list), n > 3 ? ", ..." : "");
    td_text_release(&list);
}

static void log_matched(const char *path, int n_taken, int n_left, int n_unused,
                        const td_text *left, const td_text *unused)
{
    td_log(TD_LOG_INFO, "train", "loaded %d tensors from '%s'; %d keep their initial values%s%s%s",
           n_taken, path, n_left, n_left ? ": " : "", td_text_get(left), n_left > 3 ? ", ..." : "");
    if (n_unused)
        td_log(TD_LOG_INFO, "train",
               "'%s': ignoring %d tensors that the network does not have: %s%s", path, n_unused,
               td_text_get(unused), n_unused > 3 ? ", ..." : "");
}

td_status td_weights_load_matching(const td_tensors *t, const char *path, td_program *p)
{
    td_map map = { 0 }, used = { 0 };
    td_text left = { 0 }, unused = { 0 };
    int n_taken = 0, n_left = 0, n_unused = 0;
    td_status st;
    TD_OUT(index_file(t, path, false, p, &map));
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        if (td_weight_prefix(name))
            continue;
        const td_tensor *x = matching(&map, p, i);
        if (!x) {
            add_name(&left, n_left++, name);
            continue;
        }
        const td_type type = td_program_param_type(p, i);
        /* also checks the values */
        TD_OUT(check_tensor(&(td_load_opts){ 0 }, x, &type, x->name, path));
        TD_OUT(td_program_set(p, name, x->data));
        TD_OUT(td_map_set(&used, x->name, NULL));
        n_taken++;
    }
    for (size_t i = 0; i < map.n; i++) {
        const td_tensor *x = map.entries[i].value;
        if (!td_map_has(&used, x->name) && !td_text_ends(x->name, TRACKED) &&
            !td_weight_prefix(x->name))
            add_name(&unused, n_unused++, x->name);
    }
    if (!n_taken)
        TD_OUT(td_error(TD_EFORMAT,
                        "'%s' has no tensor that matches the network's names and shapes", path));
    TD_OUT(td_tensors_check(t));
    log_matched(path, n_taken, n_left, n_unused, &left, &unused);
    warn_of_shapes(&map, &used, path, p);
out:
    td_text_release(&left);
    td_text_release(&unused);
    td_map_release(&used);
    td_map_release(&map);
    return st;
}

int64_t td_weights_batches(const td_tensors *t)
{
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        int64_t n = 0;
        if (td_text_ends(x->name, TRACKED) && x->dtype == TD_DT_I64 && x->n_bytes == sizeof n) {
            memcpy(&n, x->data, sizeof n);
            return n;
        }
    }
    return 0;
}

/* the tensor with this one of our names; NULL: the file does not have it */
static const td_tensor *find_own(const td_tensors *t, const char *wanted)
{
    char name[256];
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        td_weight_name(td_tensors_at(t, i)->name, name);
        if (strcmp(name, wanted) == 0)
            return td_tensors_at(t, i);
    }
    return NULL;
}

int td_weights_rows(const td_tensors *t, const char *wanted)
{
    const td_tensor *x = find_own(t, wanted);
    return x && x->rank >= 2 && x->dim[0] <= 1 << 24 ? (int)x->dim[0] : 0;
}

int td_weights_side(const td_tensors *t, const td_model_opts *model)
{
    const td_arch *arch = model->model || model->model_text ? NULL : td_arch_known(model->arch);
    const char *positions = arch ? arch->family->positions : NULL;
    const td_tensor *x = positions ? find_own(t, positions) : NULL;
    return x && x->rank == 3 ? arch->family->side_of(arch, x->dim[1]) : 0;
}

int td_weights_channels(const td_tensors *t, const td_model_opts *model)
{
    char stem[256];
    int64_t n;
    const char *text = td_tensors_meta(t, "tandem.channels");
    td_model_opts rgb = *model;
    if (text)
        return td_text_to_int(text, &n) && (n == 1 || n == 3) ? (int)n : 0;
    if (td_tensors_meta(t, "tandem.kind"))
        return 3;
    rgb.channels = 0;
    if (model->model || model->model_text || td_model_detector(model))
        return 0;
    if (td_model_stem(&rgb, stem) != TD_OK) {
        td_error_clear();
        return 0;
    }
    const td_tensor *x = find_own(t, stem);
    return x && x->rank == 4 && (x->dim[1] == 1 || x->dim[1] == 3) ? (int)x->dim[1] : 0;
}

int td_weights_classes(const td_tensors *t, const td_model_opts *model)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", td_arch_head(model));
    return td_weights_rows(t, name);
}

/* --- saving ----------------------------------------------------------------------------------- */

td_status td_tracked_read(const td_tensors *t, int64_t batches_at_start, td_tracked *out)
{
    char name[256];
    int64_t n;
    out->batches_at_start = batches_at_start;
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        if (!td_text_ends(x->name, TRACKED) || x->dtype != TD_DT_I64 || x->n_bytes != sizeof n)
            continue;
        memcpy(&n, x->data, sizeof n);
        td_weight_name(x->name, name);
        if (n > 0 && n < INT64_MAX)
            TD_TRY(td_map_set(&out->from_file, name, (void *)(uintptr_t)(n + 1)));
    }
    return TD_OK;
}

void td_tracked_release(td_tracked *k)
{
    td_map_release(&k->from_file);
}

/* Do the patterns match scale and shift of this norm? */
static bool is_norm_frozen(const char *patterns, const char *norm, int n)
{
    char name[300];
    snprintf(name, sizeof name, "%.*s.weight", n, norm);
    if (!patterns || !td_is_frozen(patterns, name))
        return false;
    snprintf(name, sizeof name, "%.*s.bias", n, norm);
    return td_is_frozen(patterns, name);
}

/* The count of the norm whose counter is `name`; a detector may have started from a classifier. */
static int64_t batches_of(const td_tracked *k, const char *name, int n_norm, int64_t batches)
{
    char classifiers[256];
    const void *in_file = td_map_get(&k->from_file, name);
    if (!in_file && classifier_name(name, classifiers))
        in_file = td_map_get(&k->from_file, classifiers);
    const int64_t before = in_file ? (int64_t)(uintptr_t)in_file - 1 : 0;
    return before +
           (is_norm_frozen(k->frozen_norms, name, n_norm) ? 0 : batches - k->batches_at_start);
}

static td_status save_tracked(td_tensors *t, const char *running_var, int64_t batches,
                              const td_tracked *tracked)
{
    char name[300];
    void *data;
    int n = (int)(strlen(running_var) - strlen(".running_var"));
    snprintf(name, sizeof name, "%.*s" TRACKED, n, running_var);
    if (tracked)
        batches = batches_of(tracked, name, n, batches);
    TD_TRY(td_tensors_add_new(t, name, TD_DT_I64, 0, NULL, &data));
    memcpy(data, &batches, sizeof batches);
    return TD_OK;
}

/* Does `what` include a parameter with this name? */
static bool is_saved(const char *name, unsigned what)
{
    if (td_weight_prefix(name) == 0)
        return true;
    if (td_text_starts(name, TD_EMA_PREFIX))
        return what & TD_SAVE_EMA;
    return what & (unsigned)(is_optional(name) ? TD_SAVE_STEP : TD_SAVE_STATE);
}

static bool has_param(const td_program *p, const char *name)
{
    for (int i = 0; i < td_program_param_count(p); i++)
        if (strcmp(td_program_param_name(p, i), name) == 0)
            return true;
    return false;
}

static bool has_averages(const td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++)
        if (td_text_starts(td_program_param_name(p, i), TD_EMA_PREFIX))
            return true;
    return false;
}

static td_status save_as(td_program *p, int i, const char *name, td_tensors *t)
{
    const td_type type = td_program_param_type(p, i);
    void *data;
    TD_TRY(td_tensors_add_new(t, name, type.dtype, type.rank, type.dim, &data));
    return td_program_get(p, td_program_param_name(p, i), data);
}

/* Write each frozen weight as its own average, so that the set of averages is complete. */
static td_status save_frozen_averages(td_program *p, td_tensors *t)
{
    char average[300];
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        snprintf(average, sizeof average, TD_EMA_PREFIX "%s", name);
        if (td_weight_prefix(name) == 0 && !has_param(p, average))
            TD_TRY(save_as(p, i, average, t));
    }
    return TD_OK;
}

td_status td_weights_save(td_program *p, unsigned what, int64_t batches_tracked,
                          const td_tracked *tracked, td_tensors *t)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        if (!is_saved(name, what))
            continue;
        TD_TRY(save_as(p, i, name, t));
        if (td_text_ends(name, ".running_var") && td_weight_prefix(name) == 0)
            TD_TRY(save_tracked(t, name, batches_tracked, tracked));
    }
    if (what & TD_SAVE_EMA && has_averages(p))
        TD_TRY(save_frozen_averages(p, t));
    return TD_OK;
}

td_status td_weights_check_finite(const td_tensors *t, bool with_step)
{
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        int64_t n, of = 1;
        if (!with_step && is_of_step(x->name))
            continue;
        n = count_nonfinite(x);
        for (int k = 0; k < x->rank; k++)
            of *= x->dim[k];
        if (n)
            return td_error(
                TD_ENUMERIC,
                "%lld of the %lld values of tensor '%s' are not finite: the training diverged",
                (long long)n, (long long)of, x->name);
    }
    return TD_OK;
}

/* A buffer for the largest parameter of a program. */
static void *room_for(const td_program *p)
{
    int64_t most = 0;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const td_type t = td_program_param_type(p, i);
        int64_t bytes = td_type_count(&t) * (int64_t)td_dtype_bytes(t.dtype);
        most = bytes > most ? bytes : most;
    }
    return td_alloc((size_t)most, 1);
}

td_status td_weights_copy(td_program *from, const char *prefix, td_program *to)
{
    td_status st = TD_OK;
    char source[300];
    void *buffer = room_for(to);
    if (!buffer)
        return TD_ENOMEM;
    for (int i = 0; i < td_program_param_count(to); i++) {
        const char *name = td_program_param_name(to, i);
        snprintf(source, sizeof source, "%s%s", prefix, name);
        if (*prefix && !has_param(from, source))
            snprintf(source, sizeof source, "%s", name);
        TD_OUT(td_program_get(from, source, buffer));
        TD_OUT(td_program_set(to, name, buffer));
    }
out:
    td_free(buffer);
    return st;
}

/* Initialize averages first: pending values may belong to an average. */
td_status td_weights_init_missing(td_program *p, const td_tensors *file)
{
    static const char *const prefixes[] = { TD_EMA_PREFIX, TD_PENDING_PREFIX };
    td_status st = TD_OK;
    void *buffer = room_for(p);
    if (!buffer)
        return TD_ENOMEM;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < td_program_param_count(p); i++) {
            const char *name = td_program_param_name(p, i);
            if (!td_text_starts(name, prefixes[k]) || (file && td_tensors_get(file, name)))
                continue;
            TD_OUT(td_program_get(p, name + strlen(prefixes[k]), buffer));
            TD_OUT(td_program_set(p, name, buffer));
        }
out:
    td_free(buffer);
    return st;
}
