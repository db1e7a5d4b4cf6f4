/*
 * tandem/serve.h -- a network behind HTTP: images in, classes or boxes out
 *
 *     td_serve_opts o;
 *     td_serve_defaults(&o);
 *     o.weights = "model_best.safetensors";
 *     TD_TRY(td_serve(&o, print_address, NULL));       until SIGINT or SIGTERM
 *
 * docs/serve.md has the endpoints.
 */
#ifndef TD_SERVE_H
#define TD_SERVE_H

#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The field table (td_serve_fields) holds names, defaults and ranges. */
typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    td_boxes_opts boxes; /* of a detector, as td_detect_opts have them */
    const char *only;    /* of a detector, likewise */
    const char *classes; /* file of the classes' names; NULL: the weight file's, or known ones */
    const char *weights;
    bool use_ema;      /* the file's averaged weights */
    const char *host;  /* an address of this machine, "127.0.0.1" or "::1" */
    int port;          /* 0: one that is free */
    const char *name;  /* of the model in paths; NULL: the architecture's */
    int interpolation; /* of a classifier */
    bool ignore_orientation;
    int topk;               /* of a classifier: classes in an answer that asks for no number */
    int max_batch;          /* rows that are computed together */
    double max_delay_ms;    /* how long a row waits for others that are being decoded */
    int max_queue;          /* requests under way; those above get 503 */
    int64_t max_body;       /* bytes of a request; longer ones get 413 */
    int64_t max_pixels;     /* of an image; larger ones get 413 */
    double timeout;         /* seconds to send a request in */
    double drain_timeout;   /* seconds, after the signal, to end one that has begun */
    int max_connections;    /* at the limit the one that has been idle longest is closed */
    const char *token_file; /* holds the bearer token that requests bring; NULL: none */
    const char *tls_cert;   /* PEM files; NULL: no TLS */
    const char *tls_key;
    int workers; /* decoding threads; 0: chosen */
    td_device_opts device;
    const char *log;
} td_serve_opts;

TD_API const struct td_field *td_serve_fields(void);
TD_API void td_serve_defaults(td_serve_opts *opts);

/** Where the server listens; lent for the call. */
typedef struct {
    const char *name; /* the model's */
    const char *host;
    int port;
    bool is_tls;
} td_serve_address;

/**
 * Serve until SIGINT or SIGTERM, then answer what was received and return TD_OK; the second signal
 * ends the process.  `ready` is called once, when requests are taken; a failure that it returns
 * ends the job.
 *
 *   TD_EUSAGE  no weights, a name that cannot stand in a path, options of the other kind of
 *              network, a certificate without its key
 *   TD_EFORMAT the token file is empty; certificate and key are no pair
 *   TD_EUNSUPPORTED  TLS, where the HTTP library was built without it
 *   TD_EARG    the host is no address
 *   TD_EIO     the port is in use, or may not be used
 *   and the errors of reading weights and of td_compile
 */
TD_API TD_CHECKED td_status td_serve(const td_serve_opts *opts,
                                     td_status (*ready)(void *ctx, const td_serve_address *a),
                                     void *ctx);

#ifdef __cplusplus
}
#endif
#endif
