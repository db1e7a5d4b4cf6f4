/*
 * coco/detections.h -- reads and writes detections as COCO result files
 *
 *     [{"image_id": 42, "category_id": 18, "bbox": [258.15, 41.29, 348.26, 243.78],
 *       "score": 0.236}, ...]
 *
 * bbox is x, y, width and height in pixels of the image.  Numbers are written so that they read
 * back to the same bits.  Reading and writing do not hold the text in memory.
 *
 *     td_detections_file *f;
 *     TD_TRY(td_detections_create("found.json", &f));
 *     TD_OUT(td_detections_add(f, &one));                      any number of times
 *     TD_OUT(td_detections_commit(f));                         the file appears now
 *     td_detections_close(f);
 *
 * Source: cocodataset.org, "Results format", object detection.
 */
#ifndef TD_COCO_DETECTIONS_H
#define TD_COCO_DETECTIONS_H

#include "base/status.h"
#include "coco/coco_metrics.h"

/** All detections in a file. */
typedef struct {
    td_coco_detection *items; /* [n], in the order of the file */
    size_t n;
} td_detections;

/**
 * Read a file.  Other members of an entry are skipped.  On failure *out is empty.
 *
 *   TD_ENOTFOUND, TD_EIO  no such file, unreadable
 *   TD_EFORMAT  not JSON, truncated; no list of objects; an entry without image_id, category_id,
 *               bbox or score, with one of them twice, with another kind of value, or with a number
 *               that is not finite.  The message has the entry's number, from 0, and the position
 *   TD_ELIMIT   nested deeper than 64
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_detections_read(const char *path, td_detections *out);

/** The same from memory; `what` names it in messages. */
TD_CHECKED td_status td_detections_parse(const void *bytes, size_t n_bytes, const char *what,
                                         td_detections *out);

void td_detections_release(td_detections *d);

typedef struct td_detections_file td_detections_file;

/** Start a new file for `path`; an existing one stays until the commit.  TD_EIO, TD_ENOMEM. */
TD_CHECKED td_status td_detections_create(const char *path, td_detections_file **out);

/**
 * Append.  TD_ENUMERIC a number that is not finite; TD_EIO, TD_ENOMEM: then only close may be
 * called.
 */
TD_CHECKED td_status td_detections_add(td_detections_file *f, const td_coco_detection *d);

/** Commit it atomically.  TD_EIO, TD_ENOMEM. */
TD_CHECKED td_status td_detections_commit(td_detections_file *f);

/** Close; removes the file if it was not committed.  `f` may be NULL. */
void td_detections_close(td_detections_file *f);

#endif
