/*
 * questions.h -- requests for `tandem serve` and the expected answers
 *
 *     td_questions all;
 *     if (!td_questions_read(&all, "answers.json"))
 *         ...                                              td_error_message() has the reason
 *     td_questions_is_right(&all, 3, body)                 body: the server's JSON for image 3
 *     td_questions_release(&all);
 *
 * The file has the output of `tandem classify --json-lines`, or of `tandem detect --json`.
 */
#ifndef TD_TEST_QUESTIONS_H
#define TD_TEST_QUESTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t category;
    double place[4], score; /* x, y, width, height in pixels of the image; 0 .. 1 */
} td_answer_box;

typedef struct {
    char *bytes; /* [n] the image file */
    size_t n;
    int64_t label;        /* of a classifier: the most probable class */
    double probability;   /* its, 0 .. 1 */
    td_answer_box *boxes; /* [n_boxes] of a detector */
    size_t n_boxes, cap_boxes;
} td_question;

typedef struct {
    bool detects;
    int n;
    td_question *list; /* [n] owned */
    size_t cap;
} td_questions;

/** False: the file, or an image that it names, cannot be read, or there is none. */
bool td_questions_read(td_questions *all, const char *path);
void td_questions_release(td_questions *all);

/**
 * Does the answer `body` agree with question `i`: the class and its probability within 2e-3, or all
 * boxes within 0.05 pixels and 1e-5 of their scores, in any order?
 */
bool td_questions_is_right(const td_questions *all, int i, const char *body);

#endif
