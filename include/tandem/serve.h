/*
 * tandem/serve.h -- serve classification or detection over HTTP
 *
 *     td_serve_opts o;
 *     td_serve_defaults(&o);
 *     o.weights = "model_best.safetensors";
 *     TD_TRY(td_serve(&o, print_address, NULL));       until SIGINT or SIGTERM
 *
 * docs/serve.md describes the endpoints.
 */
#ifndef TD_SERVE_H
#define TD_SERVE_H

#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/loader.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The field table (td_serve_fields) holds names, defaults and ranges. */
typedef struct {
    td_given given;
    td_model_opts model;
    td_amp_opts amp;
    td_boxes_opts boxes; /* detectors: as in td_detect_opts */
    const char *only;    /* detectors: likewise */
    const char *classes; /* file of class names; NULL: those in the weight file, or built-in ones */
    const char *weights;
    bool use_ema;                   /* use the averaged (EMA) weights of the file */
    const char *host;               /* an address of this machine, "127.0.0.1" or "::1" */
    int port;                       /* 0: a free port */
    const char *name;               /* model name in URLs; NULL: the architecture's */
    td_interpolation interpolation; /* classifiers */
    bool stored_orientation;
    int topk;               /* classifiers: default number of classes in a response */
    double threshold;       /* multi-label: likewise, probability from which one is in it */
    int max_batch;          /* maximum batch size */
    double max_delay_ms;    /* maximum time that an image waits for others to join its batch */
    int max_queue;          /* requests in progress; further ones get 503 */
    int64_t max_body;       /* bytes of a request body; larger ones get 413 */
    int64_t max_pixels;     /* pixels of an image; larger ones get 413 */
    double timeout;         /* seconds a client has to send its request */
    double drain_timeout;   /* seconds after the signal to finish sending a request */
    int max_connections;    /* at the limit the longest idle connection is closed */
    const char *token_file; /* file of the bearer token that requests must send; NULL: none */
    const char *tls_cert;   /* PEM files; NULL: no TLS */
    const char *tls_key;
    int streams; /* batches computed at the same time; 0: one for each 8 compute threads */
    int workers; /* decoding threads; 0: automatic */
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
 * Serve until SIGINT or SIGTERM, then answer all received requests and return TD_OK; a second
 * signal ends the process. `ready` is called once, when the server accepts requests; a failure that
 * it returns ends the job.
 *
 *   TD_EUSAGE  no weights, a name that is not valid in a URL, options that apply to the other kind
 *              of network, a certificate without its key
 *   TD_EFORMAT the token file is empty; the certificate and the key do not match
 *   TD_EUNSUPPORTED  TLS, if the HTTP library was built without it
 *   TD_EARG    the host is not an address
 *   TD_EIO     the port is in use or not permitted
 *   and the errors of reading weights and of td_compile
 */
TD_API TD_CHECKED td_status td_serve(const td_serve_opts *opts,
                                     td_status (*ready)(void *ctx, const td_serve_address *a),
                                     void *ctx);

#ifdef __cplusplus
}
#endif
#endif
