/*
 * arch.c -- finds architectures by name, in the tables of all families
 */
#include "model/arch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/paths.h"
#include "base/text.h"

static const td_family *const families[] = {
#define FAMILY(name) &td_family_##name,
#include "model/families.def"
#undef FAMILY
};

static const td_arch *row_at(int i)
{
    for (size_t f = 0; i >= 0 && f < sizeof families / sizeof *families; f++) {
        if (i < families[f]->n_rows)
            return &families[f]->rows[i];
        i -= families[f]->n_rows;
    }
    return NULL;
}

const char *td_arch_name_at(int i)
{
    const td_arch *a = row_at(i);
    return a ? a->name : NULL;
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
    const td_arch *alike = NULL, *a;
    for (int i = 0; name && (a = row_at(i)); i++) {
        if (strcmp(name, a->name) == 0) /* efficientnet-b0 and efficientnet_b0 are two */
            return a;
        if (!alike && same_name(name, a->name))
            alike = a;
    }
    return alike;
}

/* Does it name a file, of a network of the user's own? */
static bool is_file(const char *name)
{
    return td_text_ends(name, ".td") || (td_path_exists(name) && !td_path_is_folder(name));
}

static const char *nearest_name(const char *name)
{
    const char *nearest = NULL, *own;
    int best = INT_MAX;
    for (int i = 0; (own = td_arch_name_at(i)); i++) {
        int distance = td_text_distance(name, own);
        if (distance < best && distance <= (int)strlen(own) / 2) {
            best = distance;
            nearest = own;
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
    for (int i = 0; td_arch_name_at(i); i++)
        td_text_add(&all, "%s%s", i ? ", " : "", td_arch_name_at(i));
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
                           .family = a->family->name,
                           .image_size = a->image_size,
                           .detector = a->detector,
                           .n_anchors = a->n_anchors };
    if (a->family->describe)
        a->family->describe(a, out);
    return TD_OK;
}

const char *td_arch_head(const td_model_opts *model)
{
    const td_arch *arch = model->model || model->model_text ? NULL : td_arch_known(model->arch);
    return arch && arch->family->head ? arch->family->head : "fc";
}

void td_model_name(const td_model_opts *model, char *out, size_t n)
{
    const char *name = model->model_text ? "own graph" : model->arch;
    snprintf(out, n, "%s", model->model ? model->model : name);
}
