/*
 * serve/http.h -- connects libmicrohttpd's sockets to the batcher
 *
 * The listener's thread brings connections; one thread of the library's own reads and writes all
 * of them.  A request whose body is whole goes to the batcher and its connection sleeps until the
 * answer is there; everything else is answered at once, so that health and metrics answer under any
 * load.
 */
#ifndef TD_SERVE_HTTP_H
#define TD_SERVE_HTTP_H

#include "serve/batcher.h"

typedef struct {
    const td_service *service; /* kept */
    td_batcher *batcher;       /* kept */
    td_metrics *metrics;       /* kept */
    const char *host;
    int port;
    int64_t max_body; /* bytes; of a compressed body before and after */
    double timeout_s;
    int max_connections;
    const char *token;    /* required in requests, except health checks; NULL: none */
    const char *tls_cert; /* PEM texts; NULL: no TLS */
    const char *tls_key;
} td_http_opts;

typedef struct td_http td_http;

/**
 * Listen and answer.  TD_EARG: the host is not an address; TD_EIO: listening failed;
 * TD_EFORMAT: certificate and key are no pair; TD_EUNSUPPORTED: the library has no TLS.
 */
td_status td_http_open(const td_http_opts *opts, td_http **out) TD_CHECKED;
int td_http_port(const td_http *h);

/**
 * Take no more connections but those that the kernel has accepted; answers to requests from now on
 * end theirs.
 */
void td_http_drain(td_http *h);

/**
 * While draining: is everything answered?  `is_late`: what is with the batcher is waited for, but
 * nothing else, and nothing more is taken on.  True: td_http_close may follow.
 */
bool td_http_is_over(td_http *h, bool is_late);

/** Requests whose answer is not sent yet, and open connections. */
int td_http_requests(const td_http *h);
int td_http_connections(const td_http *h);

/** Only when no job is with the batcher.  Requests that are not whole are cut off. */
void td_http_close(td_http *h);

#endif
