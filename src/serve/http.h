/*
 * serve/http.h -- connects libmicrohttpd's sockets to the batcher
 *
 * The listener's thread accepts connections; one thread of the library reads and writes all of
 * them.  A request with a complete body goes to the batcher, and its connection is suspended until
 * the answer is ready; everything else is answered at once, so that health and metrics respond
 * under any load.
 */
#ifndef TD_SERVE_HTTP_H
#define TD_SERVE_HTTP_H

#include "serve/batcher.h"

typedef struct {
    const td_service *service; /* borrowed */
    td_batcher *batcher;       /* borrowed */
    td_metrics *metrics;       /* borrowed */
    const char *host;
    int port;
    int64_t max_body; /* bytes; limits a compressed body before and after decompression */
    double timeout_s;
    int max_connections;
    const char *token;    /* required in requests, except health checks; NULL: none */
    const char *tls_cert; /* PEM texts; NULL: no TLS */
    const char *tls_key;
} td_http_opts;

typedef struct td_http td_http;

/**
 * Listen and answer requests.  TD_EARG: the host is not an address; TD_EIO: listening failed;
 * TD_EFORMAT: certificate and key do not match; TD_EUNSUPPORTED: the library has no TLS.
 */
td_status td_http_open(const td_http_opts *opts, td_http **out) TD_CHECKED;
int td_http_port(const td_http *h);

/**
 * Stop listening; connections that the kernel has already accepted are still served.  From now on
 * every answer closes its connection.
 */
void td_http_drain(td_http *h);

/**
 * While draining: is every request answered?  `is_late`: only requests in the batcher are still
 * waited for, and no new ones are accepted.  If true, td_http_close may be called.
 */
bool td_http_is_over(td_http *h, bool is_late);

/** Requests whose answer is not sent yet, and open connections. */
int td_http_requests(const td_http *h);
int td_http_connections(const td_http *h);

/** Call only if the batcher has no job.  Incomplete requests are cut off. */
void td_http_close(td_http *h);

#endif
