/*
 * questions.c -- makes requests for `tandem serve` and checks the answers
 */
#include "support/questions.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"

#define IMAGE_BYTES ((size_t)1 << 26)
#define FILE_BYTES  ((size_t)1 << 28)

/* --- reading ---------------------------------------------------------------------------------- */

static bool read_class(const char *line, size_t n, td_question *q)
{
    td_json *doc = NULL;
    const char *path;
    bool done = td_json_parse(line, n, "answers", &doc) == TD_OK &&
                td_json_text(doc, "path", &path) == TD_OK;
    const td_json *best = done ? td_json_at(td_json_get(doc, "classes"), 0) : NULL;
    done = best && td_json_int(best, "label", &q->label) == TD_OK &&
           td_json_number(best, "probability", &q->probability) == TD_OK &&
           td_file_read(path, IMAGE_BYTES, &q->bytes, &q->n) == TD_OK;
    td_json_free(doc);
    return done;
}

static bool read_box(const td_json *j, td_answer_box *b)
{
    const td_json *place = td_json_get(j, "bbox");
    bool done = td_json_int(j, "category_id", &b->category) == TD_OK &&
                td_json_number(j, "score", &b->score) == TD_OK && td_json_count(place) == 4;
    for (size_t i = 0; i < 4 && done; i++)
        done = td_json_as_number(td_json_at(place, i), &b->place[i]) == TD_OK;
    return done;
}

/* an answer's boxes, or those of image `id` of many (0: of all) */
static bool read_boxes(const td_json *doc, int64_t id, td_question *q)
{
    const td_json *all = td_json_get(doc, "detections");
    q->n_boxes = 0;
    if (!all)
        return false;
    for (size_t i = 0; i < td_json_count(all); i++) {
        int64_t of;
        if (td_json_int(td_json_at(all, i), "image_id", &of) != TD_OK)
            return false;
        if (id && of != id)
            continue;
        if (td_reserve(&q->boxes, &q->cap_boxes, q->n_boxes + 1, sizeof *q->boxes) != TD_OK ||
            !read_box(td_json_at(all, i), &q->boxes[q->n_boxes++]))
            return false;
    }
    return true;
}

/* NULL: no memory */
static td_question *add(td_questions *all)
{
    if (td_reserve(&all->list, &all->cap, (size_t)all->n + 1, sizeof *all->list) != TD_OK)
        return NULL;
    all->list[all->n] = (td_question){ 0 };
    return &all->list[all->n++];
}

static bool read_detections(td_questions *all, const td_json *doc)
{
    const td_json *images = td_json_get(doc, "images");
    const char *path;
    for (size_t i = 0; i < td_json_count(images); i++) {
        td_question *q = add(all);
        if (!q || td_json_text(td_json_at(images, i), "file_name", &path) != TD_OK ||
            td_file_read(path, IMAGE_BYTES, &q->bytes, &q->n) != TD_OK ||
            !read_boxes(doc, (int64_t)i + 1, q))
            return false;
    }
    return true;
}

static bool read_lines(td_questions *all, const char *text)
{
    for (const char *s = text, *end; *s; s = end + 1) {
        end = strchr(s, '\n');
        if (!end)
            break;
        td_question *q = add(all);
        if (!q || !read_class(s, (size_t)(end - s), q))
            return false;
    }
    return true;
}

bool td_questions_read(td_questions *all, const char *path)
{
    char *text;
    size_t n;
    td_json *doc = NULL;
    *all = (td_questions){ 0 };
    if (td_file_read(path, FILE_BYTES, &text, &n) != TD_OK)
        return false;
    /* detect prints one object; lines of several are no JSON text */
    all->detects =
        td_json_parse(text, n, "answers", &doc) == TD_OK && td_json_get(doc, "detections");
    const bool done = all->detects ? read_detections(all, doc) : read_lines(all, text);
    td_json_free(doc);
    td_free(text);
    return done && all->n > 0;
}

void td_questions_release(td_questions *all)
{
    for (int i = 0; i < all->n; i++) {
        td_free(all->list[i].bytes);
        td_free(all->list[i].boxes);
    }
    td_free(all->list);
    *all = (td_questions){ 0 };
}

/* --- checking --------------------------------------------------------------------------------- */

static bool is_class_right(const td_json *doc, const td_question *q)
{
    int64_t label = -1;
    double probability = -1;
    const td_json *best = td_json_at(td_json_get(doc, "classes"), 0);
    return best && td_json_int(best, "label", &label) == TD_OK &&
           td_json_number(best, "probability", &probability) == TD_OK && label == q->label &&
           fabs(probability - q->probability) < 2e-3;
}

static bool is_same_box(const td_answer_box *a, const td_answer_box *b)
{
    bool is_same = a->category == b->category && fabs(a->score - b->score) < 1e-5;
    for (int i = 0; i < 4; i++)
        is_same = is_same && fabs(a->place[i] - b->place[i]) < 0.05;
    return is_same;
}

/* batches of another size may change the last bits, and so the order of equals */
static bool are_boxes_right(const td_json *doc, const td_question *q)
{
    td_question answer = { 0 };
    size_t n = 0;
    bool is_read = read_boxes(doc, 0, &answer);
    for (size_t i = 0; i < q->n_boxes; i++)
        for (size_t k = 0; k < answer.n_boxes; k++)
            if (is_same_box(&q->boxes[i], &answer.boxes[k])) {
                n++;
                answer.boxes[k].category = -1;
                break;
            }
    td_free(answer.boxes);
    return is_read && n == q->n_boxes && n == answer.n_boxes;
}

bool td_questions_is_right(const td_questions *all, int i, const char *body)
{
    td_json *doc = NULL;
    const bool is_right = td_json_parse(body, strlen(body), "answer", &doc) == TD_OK &&
                          (all->detects ? are_boxes_right : is_class_right)(doc, &all->list[i]);
    td_json_free(doc);
    return is_right;
}
