/*
 * inference/network_parts.h -- what the files of a loaded network share
 */
#ifndef TD_INFERENCE_NETWORK_PARTS_H
#define TD_INFERENCE_NETWORK_PARTS_H

#include <limits.h>
#include <pthread.h>

#include "data/parallel.h"
#include "inference/compute_thread.h"
#include "inference/detector.h"
#include "inference/network.h"
#include "inference/nms_pool.h"

enum { TD_NETWORK_BATCH_MAX = 4096, TD_NETWORK_WORKERS_MAX = 1024, TD_NETWORK_THREADS_MAX = 4096 };

/** The buffers of a decoding thread between two calls. */
typedef struct td_spare_buffers {
    td_transformer buffers;
    struct td_spare_buffers *next;
} td_spare_buffers;

struct td_network {
    td_compute_thread *compute;
    td_predictor *predictor; /* the compute thread's */
    td_nms_pool *nms_pool;   /* a detector's, like the next two; the compute thread's */
    td_anchors *anchors;
    td_nms_opts nms;
    td_transform transform;
    td_network_info about;
    int batch; /* the largest */
    int topk, n_workers;
    double threshold;     /* multi-label */
    pthread_mutex_t lock; /* of `spare` */
    td_spare_buffers *spare;
};

void td_network_free_spare(td_network *net);

#endif
