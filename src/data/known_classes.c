/*
 * known_classes.c -- parses lines "ID NAME" of an embedded text into two lists
 */
#include "data/known_classes.h"

#include <string.h>

#include "base/arena.h"

/* generated from data/ by cmake/embed.cmake */
extern const char td_embedded_imagenet_classes_txt[], td_embedded_coco_classes_txt[];

static int count_lines(const char *text)
{
    int n = 0;
    for (const char *s = text; (s = strchr(s, '\n')); s++)
        n++;
    return n;
}

td_status td_known_classes_open(td_known_list list, td_known_classes *out)
{
    const char *text =
        list == TD_KNOWN_COCO ? td_embedded_coco_classes_txt : td_embedded_imagenet_classes_txt;
    const size_t n = (size_t)count_lines(text);
    *out = (td_known_classes){ .text = td_copy_text(text) };
    out->ids = td_alloc(n, sizeof *out->ids);
    out->names = td_alloc(n, sizeof *out->names);
    if (!out->text || !out->ids || !out->names) {
        td_known_classes_release(out);
        return TD_ENOMEM;
    }
    for (char *line = out->text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *space = strchr(line, ' ');
        TD_CHECK(space && space < end);
        *end = *space = '\0';
        out->ids[out->n] = line;
        out->names[out->n++] = space + 1;
    }
    return TD_OK;
}

void td_known_classes_release(td_known_classes *k)
{
    td_free((void *)k->ids);
    td_free((void *)k->names);
    td_free(k->text);
    *k = (td_known_classes){ 0 };
}

int td_known_classes_find(const td_known_classes *imagenet, const char *id)
{
    int low = 0, high = imagenet->n;
    while (low < high) {
        const int middle = low + (high - low) / 2, order = strcmp(id, imagenet->ids[middle]);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}
