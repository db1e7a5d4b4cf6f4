/*
 * tandem/inference.h -- classify image files, and detect objects in them
 */
#ifndef TD_INFERENCE_H
#define TD_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/loader.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    const char *weights;
    const char *classes; /* file of class names; NULL: those in the weight file, or ImageNet's */
    bool use_ema;        /* use the averaged (EMA) weights of the file */
    td_interpolation interpolation;
    bool stored_orientation;
    int topk;
    int batch_size;    /* at most; 0: 8 */
    int workers;       /* decoding threads; 0: automatic */
    bool json_lines;   /* the command prints one JSON object per line */
    const char *image; /* one more file, as given by the reference's option --image */
    td_device_opts device;
    const char *log;
} td_classify_opts;

TD_API const struct td_field *td_classify_fields(void);
TD_API void td_classify_defaults(td_classify_opts *opts);

typedef struct {
    const char *path;
    td_status st;        /* result for this image: TD_ENOTFOUND, TD_EFORMAT, ... */
    const char *message; /* when st is not TD_OK */
    int n;               /* entries below */
    int label[10];
    const char *name[10]; /* class names, "class 17" when there is none */
    double probability[10];
} td_prediction;

/**
 * Call `each` for every file in order; a folder means all images below it, sorted by folder, then
 * by name. An unreadable image is reported through `each` and does not end the job; a failure
 * returned by `each` does.
 */
TD_API TD_CHECKED td_status td_classify(const td_classify_opts *opts, int n_files,
                                        const char *const *files,
                                        td_status (*each)(void *ctx, const td_prediction *p),
                                        void *ctx);

/** Options of td_detect. */
typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    td_boxes_opts boxes; /* min_score -1: 0.3 */
    const char *weights;
    bool use_ema; /* use the averaged (EMA) weights of the file */
    bool stored_orientation;
    const char *only;    /* "RBC,WBC": report only these classes; NULL: all */
    const char *classes; /* file of class names; NULL: those in the weight file, or COCO's */
    const char *draw;    /* folder for images with boxes drawn on them; NULL: none */
    int batch_size;      /* at most; 0: 8 */
    int workers;         /* decoding threads; 0: automatic */
    td_device_opts device;
    const char *log;
} td_detect_opts;

TD_API const struct td_field *td_detect_fields(void);
TD_API void td_detect_defaults(td_detect_opts *opts);

typedef struct {
    int label;        /* class, 1 .. K */
    int64_t category; /* its category id in the training annotations; the label if unknown */
    const char *name; /* "class 17" when the weight file has no names */
    double score;
    double x, y, width, height; /* pixels of the upright image */
} td_found_box;

typedef struct {
    const char *path;
    td_status st;        /* result for this image: TD_ENOTFOUND, TD_EFORMAT, ... */
    const char *message; /* when st is not TD_OK */
    int width, height;   /* size of the upright image */
    int n;
    const td_found_box *boxes;      /* [n], best first */
    const char *drawn;              /* file of the image with boxes drawn on it, or NULL */
    int n_classes;                  /* number of classes in the weight file; 0: unknown */
    const char *const *class_names; /* [n_classes] */
    const int64_t *categories;      /* [n_classes] */
} td_found;

/**
 * Call `each` for every file in order, as td_classify does. TD_EUSAGE: the weights are not those of
 * a detector.
 */
TD_API TD_CHECKED td_status td_detect(const td_detect_opts *opts, int n_files,
                                      const char *const *files,
                                      td_status (*each)(void *ctx, const td_found *f), void *ctx);

/** Detections of many images as COCO's lists in JSON: categories and detections. */
typedef struct td_coco_results td_coco_results;
TD_API TD_CHECKED td_status td_coco_results_new(td_coco_results **out);
TD_API void td_coco_results_free(td_coco_results *l);

/** Add an image's boxes under this id.  TD_ENOMEM. */
TD_API TD_CHECKED td_status td_coco_results_add(td_coco_results *l, const td_found *f,
                                                int64_t image_id);

/** The text "categories": [...], "detections": [...] (td_text_free). */
TD_API TD_CHECKED td_status td_coco_results_text(const td_coco_results *l, char **text);

#ifdef __cplusplus
}
#endif
#endif
