/*
 * serve_page.c -- the pages to try an image in a browser: each is one self-contained document
 *
 * serve_classes.html and serve_boxes.html, in the folder page/, are the documents; a line {{NAME}}
 * in them is replaced by an embedded file or by a line that depends on the options.
 *
 * They post the image that was chosen, dropped or pasted.  A classifier's page draws the
 * probabilities as bars; a detector's page draws the boxes over the image, as SVG with relative
 * coordinates.  /?demo posts a generated image of a disc automatically, which is how the pages are
 * tested.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "inference/detector.h"
#include "serve/kind.h"

extern const char td_embedded_serve_classes_html[], td_embedded_serve_classes_js[];
extern const char td_embedded_serve_boxes_html[], td_embedded_serve_boxes_css[];
extern const char td_embedded_serve_boxes_js[], td_embedded_serve_page_css[];
extern const char td_embedded_serve_page_js[], td_embedded_serve_input_js[];

typedef struct {
    const char *name, *text;
} slot;

static const char *find_slot(const slot *slots, const char *name, size_t n)
{
    while (slots->name && (strlen(slots->name) != n || strncmp(slots->name, name, n) != 0))
        slots++;
    TD_CHECK(slots->name);
    return slots->text;
}

static void add_page(const char *html, const slot *slots, td_text *out)
{
    for (const char *mark; (mark = strstr(html, "{{"));) {
        const char *name = mark + 2, *end = strstr(name, "}}\n");
        TD_CHECK(end);
        td_text_add_bytes(out, html, (size_t)(mark - html));
        td_text_add(out, "%s", find_slot(slots, name, (size_t)(end - name)));
        html = end + 3;
    }
    td_text_add(out, "%s", html);
}

void td_page_of_classes(const td_service *s, td_text *out)
{
    const slot slots[] = { { "serve_page.css", td_embedded_serve_page_css },
                           { "serve_page.js", td_embedded_serve_page_js },
                           { "serve_classes.js", td_embedded_serve_classes_js },
                           { "serve_input.js", td_embedded_serve_input_js },
                           { NULL, NULL } };
    (void)s;
    add_page(td_embedded_serve_classes_html, slots, out);
}

/* boxes are relative to the network's input, which may be the image without EXIF rotation */
void td_page_of_boxes(const td_service *s, td_text *out)
{
    const td_nms_opts nms = td_boxes_nms_display(&s->boxes, s->transform.detector);
    const bool as_stored = s->transform.stored_orientation;
    char score[64];
    const slot slots[] = { { "serve_page.css", td_embedded_serve_page_css },
                           { "serve_boxes.css", td_embedded_serve_boxes_css },
                           { "orientation",
                             as_stored ? "#preview { image-orientation: none; }\n" : "" },
                           { "serve_page.js", td_embedded_serve_page_js },
                           { "score", score },
                           { "serve_boxes.js", td_embedded_serve_boxes_js },
                           { "serve_input.js", td_embedded_serve_input_js },
                           { NULL, NULL } };
    snprintf(score, sizeof score, "$('score').value = %g;\n", nms.score_min);
    add_page(td_embedded_serve_boxes_html, slots, out);
}
