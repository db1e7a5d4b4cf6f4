/*
 * serve_page.c -- the pages for trying an image in a browser: each one document, nothing else is
 * loaded
 *
 * serve_classes.html and serve_boxes.html, in the folder page/, are the documents; a line {{NAME}}
 * of them is replaced by an embedded file or by a line that depends on the options.
 *
 * They post the image that was chosen, dropped or pasted.  A classifier's page draws the
 * probabilities as bars, a detector's the boxes on the image, as SVG in shares of its size.  /?demo
 * posts a drawn disc by itself, which is how the pages are tested.
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

/* boxes are relative to the image as the network saw it, which may be as it is stored */
void td_page_of_boxes(const td_service *s, td_text *out)
{
    const td_nms_opts nms = td_boxes_nms_shown(&s->boxes, s->transform.detector);
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
