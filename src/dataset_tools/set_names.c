/*
 * set_names.c -- see set_names.h
 */
#include "dataset_tools/set_names.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { NAME_BYTES_MAX = 200 };

char *td_file_name(td_arena *a, const char *text)
{
    char *copy = td_arena_text(a, text);
    if (!copy)
        return NULL;
    if (strlen(copy) > NAME_BYTES_MAX)
        copy[NAME_BYTES_MAX] = '\0';
    for (char *c = copy; *c; c++)
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 127)
            *c = '_';
    if (*copy == '.')
        *copy = '_';
    return copy;
}

bool td_has_image_ending(const char *name)
{
    static const char *const endings[] = {
        "jpg", "jpeg", "png", "webp", "tif", "tiff", "gif", "bmp"
    };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strlen(dot + 1) == strlen(endings[i])) {
            size_t k = 0;
            while (endings[i][k] && tolower((unsigned char)dot[1 + k]) == endings[i][k])
                k++;
            if (!endings[i][k])
                return true;
        }
    return false;
}

static bool has_order(const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!*names[i] || (i > 0 && strcmp(names[i - 1], names[i]) >= 0))
            return false;
    return true;
}

const td_dataset *td_named_set(const td_split_sets *s, const td_dataset *ds)
{
    const td_dataset *largest = ds;
    for (int i = 0; i < s->n && !ds->has_class_names; i++)
        if (s->sets[i]->n_classes > largest->n_classes)
            largest = s->sets[i];
    return largest;
}

td_status td_class_folders(td_arena *a, const td_split_sets *s, const td_dataset *ds,
                           const char ***out)
{
    const td_dataset *named = td_named_set(s, ds);
    const int n = named->n_classes;
    const char **folders = td_arena_alloc(a, (size_t)n + 1, sizeof *folders);
    *out = folders;
    if (!folders)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++) {
        folders[i] = td_file_name(a, named->class_names[i]);
        if (!folders[i])
            return TD_ENOMEM;
    }
    if (has_order(folders, n))
        return TD_OK;
    const int digits = snprintf(NULL, 0, "%d", n - 1);
    for (int i = 0; i < n; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%0*d", digits, i);
        folders[i] = td_arena_text(a, number);
        if (!folders[i])
            return TD_ENOMEM;
    }
    return TD_OK;
}

td_status td_unique_name(td_arena *a, td_map *taken, const char *folder, const char *base,
                         const char *ending, int64_t i, const char **out)
{
    td_text name = { 0 };
    td_status st = TD_OK;
    for (int tries = 0; st == TD_OK; tries++) {
        name.len = 0;
        td_text_add(&name, "%s/", folder);
        if (tries)
            td_text_add(&name, "%" PRId64 "-%d-", i, tries);
        td_text_add(&name, "%s%s", base, ending);
        st = td_text_status(&name);
        if (st == TD_OK && !td_map_has(taken, td_text_get(&name)))
            break;
    }
    if (st == TD_OK)
        st = td_map_set(taken, td_text_get(&name), taken);
    if (st == TD_OK) {
        *out = td_arena_text(a, td_text_get(&name) + strlen(folder) + 1);
        st = *out ? TD_OK : TD_ENOMEM;
    }
    td_text_release(&name);
    return st;
}
