/*
 * arch.c -- the table of architectures: one row each, built by resnet.c
 *
 * To add a network of the family, add a row here; nothing else is needed (docs/howto-model.md).
 * The numbers are those of He et al. 2016 (table 1), Xie et al. 2017 (32x4d), torchvision (wide:
 * 3x3 convolutions with twice the channels; Zagoruyko and Komodakis 2016) and Hu et al. 2018;
 * timm's seresnet50 and seresnext101_32x4d have channels / 16 hidden units.
 */
#include "model/arch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/paths.h"
#include "base/text.h"

/* clang-format off */
#define BASIC      false
#define BOTTLENECK true
#define RESNET     { 64, 128, 256, 512 }
#define WIDE       { 128, 256, 512, 1024 }
#define NONE       TD_SE_NONE
#define CHOSEN     TD_SE_CHOSEN
#define RATIO      TD_SE_RATIO

static const td_arch table[] = {
    /* name                  block       layers           widths  expansion, groups, SE, size;
       detector, anchors */
    { "resnet18",            BASIC,      { 2, 2,  2, 2 }, RESNET, 1,  1, NONE, 224, 0, 0 },
    { "resnet34",            BASIC,      { 3, 4,  6, 3 }, RESNET, 1,  1, NONE, 224, 0, 0 },
    { "resnet50",            BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, NONE, 224, 0, 0 },
    { "resnet101",           BOTTLENECK, { 3, 4, 23, 3 }, RESNET, 4,  1, NONE, 224, 0, 0 },
    { "resnet152",           BOTTLENECK, { 3, 8, 36, 3 }, RESNET, 4,  1, NONE, 224, 0, 0 },
    { "resnext50-32x4d",     BOTTLENECK, { 3, 4,  6, 3 }, WIDE,   2, 32, NONE, 224, 0, 0 },
    { "resnext101-32x4d",    BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, NONE, 224, 0, 0 },
    { "wide_resnet50_2",     BOTTLENECK, { 3, 4,  6, 3 }, WIDE,   2,  1, NONE, 224, 0, 0 },
    { "se-resnet50",         BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, CHOSEN, 224, 0, 0 },
    { "se-resnext101-32x4d", BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, CHOSEN, 224, 0, 0 },
    { "seresnet50",          BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, RATIO, 224, 0, 0 },
    { "seresnext101_32x4d",  BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, RATIO, 224, 0, 0 },
    { "ssd320",              BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, NONE, 320,
      TD_DETECTOR_SSD320, 12804 },
    { "ssd300",              BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, NONE, 300,
      TD_DETECTOR_SSD300, 8732 },
};
/* clang-format on */

#define N_ARCHS ((int)(sizeof table / sizeof *table))

const char *td_arch_name_at(int i)
{
    return i >= 0 && i < N_ARCHS ? table[i].name : NULL;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(strchr("-_", *a) && strchr("-_", *b)))
            return false;
    return *a == *b;
}

const td_arch *td_arch_known(const char *name)
{
    for (int i = 0; name && i < N_ARCHS; i++)
        if (same_name(name, table[i].name))
            return &table[i];
    return NULL;
}

/* Does it name a file, of a network of the user's own? */
static bool is_file(const char *name)
{
    return td_text_ends(name, ".td") || (td_path_exists(name) && !td_path_is_folder(name));
}

static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    int best = INT_MAX;
    for (int i = 0; i < N_ARCHS; i++) {
        int distance = td_text_distance(name, table[i].name);
        if (distance < best && distance <= (int)strlen(table[i].name) / 2) {
            best = distance;
            nearest = table[i].name;
        }
    }
    return nearest;
}

td_status td_arch_row(const char *name, const td_arch **out)
{
    *out = td_arch_known(name);
    if (*out)
        return TD_OK;
    if (!name || !*name)
        return td_error(TD_EUSAGE, "no architecture was given");
    if (is_file(name))
        return td_error(TD_EUSAGE,
                        "unknown architecture '%s': --arch requires a name; use --model for the "
                        "graph file of a network",
                        name);
    const char *nearest = nearest_name(name);
    if (nearest)
        return td_error(TD_EUSAGE, "unknown architecture '%s', did you mean '%s'?", name, nearest);
    td_text all = { 0 };
    for (int i = 0; i < N_ARCHS; i++)
        td_text_add(&all, "%s%s", i ? ", " : "", table[i].name);
    const td_status st =
        td_error(TD_EUSAGE, "unknown architecture '%s', wanted %s", name, td_text_get(&all));
    td_text_release(&all);
    return st;
}

td_status td_arch_find(const char *name, td_arch_info *out)
{
    const td_arch *a;
    *out = (td_arch_info){ 0 };
    TD_TRY(td_arch_row(name, &a));
    *out = (td_arch_info){ .name = a->name,
                           .block = a->is_bottleneck ? "bottleneck" : "basic",
                           .expansion = a->expansion,
                           .groups = a->groups,
                           .has_se = a->se != TD_SE_NONE,
                           .image_size = a->image_size,
                           .detector = a->detector,
                           .n_anchors = a->n_anchors };
    memcpy(out->layers, a->layers, sizeof out->layers);
    memcpy(out->widths, a->widths, sizeof out->widths);
    return TD_OK;
}

void td_model_name(const td_model_opts *model, char *out, size_t n)
{
    const char *name = model->model_text ? "own graph" : model->arch;
    snprintf(out, n, "%s", model->model ? model->model : name);
}
