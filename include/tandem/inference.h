/*
 * tandem/inference.h -- classify images, and detect objects in them
 *
 *     td_network_opts o;                         a network that stays loaded
 *     td_network *net;
 *     td_predictions *found;
 *     td_network_defaults(&o);
 *     o.weights = "resnet50.safetensors";
 *     if (td_network_open(&o, &net) != TD_OK)
 *         return puts(td_error_message());
 *     td_network_predict(net, 1, &(td_image_source){ .path = "cat.jpg" }, &found);
 *     ... td_predictions_classes(found, 0)->name[0] ...
 *     td_predictions_free(found);
 *     td_network_close(net);
 *
 * td_classify and td_detect are the jobs of the commands: they open a network, take a list of files
 * and folders, and close it.
 */
#ifndef TD_INFERENCE_H
#define TD_INFERENCE_H

#include <stdbool.h>
#include <stddef.h>
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
    double threshold;  /* multi-label: classes of at least this probability, at most topk; 0: 0.5 */
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

/* --- a network that stays loaded -------------------------------------------------------------- */

/**
 * A network in memory.  After td_network_open any number of threads may use it at the same time:
 * each call decodes its images in the calling thread and in td_network_opts.workers others; one
 * thread of the network computes, with td_network_opts.device.threads, one call after the other.
 * td_network_close must be the last call.
 */
typedef struct td_network td_network;

enum { TD_NETWORK_BATCHES = 4 };

/** Options of td_network_open; texts are read only during that call. */
typedef struct {
    td_model_opts model; /* completed by the weight file; an ONNX file may be given here instead */
    td_amp_opts amp;
    const char *weights;
    const char *classes;            /* file of class names; NULL: those in the weight file */
    bool use_ema;                   /* use the averaged (EMA) weights of the file */
    td_interpolation interpolation; /* classifiers */
    bool stored_orientation;        /* ignore EXIF orientations */
    int topk;                       /* classifiers: classes of a prediction, 1 .. 10; 5 */
    double threshold;               /* multi-label: as in td_classify_opts */
    td_boxes_opts boxes;            /* detectors: min_score -1: 0.3 */
    /* Batch sizes that programs are compiled for; 0: none, all 0: only 1.  n images are computed in
       batches of these sizes, padded where that is faster. */
    int batch_sizes[TD_NETWORK_BATCHES];
    int64_t
        planned_runs;   /* as in td_compile_opts: at most 3 % of this time is spent on --tune quick;
                             default INT64_MAX, a program that runs for long */
    int64_t max_pixels; /* of an image; 0: 178,956,970 */
    int workers;        /* most threads that decode the images of a call; 0: one per processor */
    td_device_opts device;
} td_network_opts;

TD_API void td_network_defaults(td_network_opts *opts);

/**
 * Read the weights, compile, and time the programs if there are several.  Calls td_set_threads,
 * which concerns the whole process.
 *   TD_EUSAGE  no weights are named
 *   TD_EARG    a batch size, topk, threshold, limit or number of threads out of range
 *   and the errors of reading weights, of td_device_open, td_amp_resolve and td_compile
 */
TD_API TD_CHECKED td_status td_network_open(const td_network_opts *opts, td_network **out);

/** No other call may be running.  `net` may be NULL. */
TD_API void td_network_close(td_network *net);

/** What a network is; constant, valid until td_network_close. */
typedef struct {
    const char *name;      /* "resnet50", or the name of a graph file */
    const char *precision; /* "fp32", "bf16", ... */
    bool is_detector;
    int n_classes;  /* K; of a detector without the background */
    int n_anchors;  /* A; 0 for a classifier */
    int image_size; /* S */
    int channels;   /* C: 3, or 1 for gray images */
} td_network_info;

TD_API const td_network_info *td_network_about(const td_network *net);

/**
 * An image, as exactly one of: a file; the bytes of an image file of any kind that is read (JPEG,
 * PNG, WebP, TIFF, GIF, BMP); pixels, 8-bit RGB [height, width, 3].  The memory is borrowed for
 * the call.
 */
typedef struct {
    const char *path;
    const void *bytes;
    size_t n_bytes;
    const uint8_t *pixels;
    int width, height; /* of pixels */
    size_t row_bytes;  /* from one row of pixels to the next; 0: 3 * width */
} td_image_source;

/**
 * The predictions of one call.  Its memory is its own, except class_names and categories of a
 * td_found, which are the network's.
 */
typedef struct td_predictions td_predictions;

/**
 * Classify n images, or detect objects in them.  An image that cannot be read has its own error in
 * `st` and `message` of its prediction, and `path` is that of its source or NULL.  TD_EARG: n < 1;
 * TD_ENOMEM, TD_EDEVICE.
 */
TD_API TD_CHECKED td_status td_network_predict(td_network *net, int n,
                                               const td_image_source *images, td_predictions **out);

/**
 * The prediction of image i by a classifier; NULL: of a detector, or the call had no image i.
 */
TD_API const td_prediction *td_predictions_classes(const td_predictions *p, int i);

/** The boxes found in image i by a detector; NULL: of a classifier, or the call had no image i. */
TD_API const td_found *td_predictions_boxes(const td_predictions *p, int i);
TD_API void td_predictions_free(td_predictions *p);

/**
 * Run the network on n rows f32[n, C, S, S] as the transform makes them, normalized.  Results are
 * copied to `first` and `second`, either of which may be NULL: of a classifier logits [n, K] and
 * probabilities [n, K], of a detector box deltas [n, A, 4] and scores [n, A, K + 1].  TD_EARG:
 * n < 1; TD_EDEVICE.
 */
TD_API TD_CHECKED td_status td_network_run(td_network *net, int n, const float *images,
                                           float *first, float *second);

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
