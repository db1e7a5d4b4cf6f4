/*
 * pth/pickle.h -- reads the subset of Python's pickles used by PyTorch's weight files
 *
 * A pickle is a program for a machine with a stack and a memo; Python's reader calls any function
 * that it names.  This reader has a fixed table of opcodes and a fixed table of names
 * (pickle_names.c), and calls nothing: opcodes and names only create values of the kinds below.
 * Anything else is an error with its name and byte offset.
 *
 *     td_pickle *p;
 *     TD_TRY(td_pickle_load(bytes, n, 0, "w.pth", &p));
 *     const td_pvalue *v = td_pickle_get(td_pickle_root(p), "state_dict");
 *     td_pickle_free(p);
 *
 * Values can form cycles (a list that contains itself): walk to a fixed depth only.
 */
#ifndef TD_PTH_PICKLE_H
#define TD_PTH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tandem/types.h"

#define TD_PICKLE_RANK_MAX 8

typedef enum {
    TD_PICKLE_NONE,
    TD_PICKLE_BOOL,
    TD_PICKLE_INT,
    TD_PICKLE_REAL,
    TD_PICKLE_TEXT,
    TD_PICKLE_TUPLE,
    TD_PICKLE_LIST,
    TD_PICKLE_DICT,
    TD_PICKLE_NAME,    /* a class or a function in the table */
    TD_PICKLE_STORAGE, /* storage of a tensor's elements */
    TD_PICKLE_TENSOR,
    TD_PICKLE_OPAQUE, /* only its type is known: a numpy scalar, a device, ... */
} td_pickle_kind;

typedef struct td_pvalue td_pvalue;
typedef struct td_pickle_name td_pickle_name;

typedef struct {
    const char *bytes; /* in the pickle; not terminated */
    size_t len;
} td_ptext;

typedef struct {
    td_pvalue **at; /* in a dict: key, value, key, value */
    size_t n, cap;
} td_plist;

typedef struct {
    const td_pickle_name *type; /* its class */
    td_ptext key;
    int64_t n; /* elements */
} td_pstorage;

/** offset and strides in elements; checked: every element is inside the storage. */
typedef struct {
    const td_pvalue *storage;
    td_dtype dtype;   /* TD_DT_NONE: a type not supported here */
    const char *type; /* its name in the file, for messages */
    int64_t offset;
    int rank;
    int64_t dim[TD_PICKLE_RANK_MAX], stride[TD_PICKLE_RANK_MAX];
    int64_t n; /* elements */
} td_ptensor;

struct td_pvalue {
    td_pickle_kind kind;
    td_pvalue *next;       /* list of all values of the pickle */
    td_pvalue *attributes; /* DICT only: its __dict__, set by BUILD; NULL: none */
    union {
        int64_t whole; /* INT and BOOL */
        double real;
        td_ptext text;
        td_plist list; /* TUPLE, LIST, DICT */
        const td_pickle_name *name;
        td_pstorage storage;
        td_ptensor tensor;
    };
};

typedef struct td_pickle td_pickle;

/**
 * Read the pickle that starts at `at`.  `bytes` is borrowed until td_pickle_free: texts point into
 * it.
 *
 *   TD_EFORMAT       malformed: the message has the byte offset
 *   TD_EUNSUPPORTED  an opcode or a name outside the tables
 *   TD_ELIMIT        more than 1,000,000 values, 100,000 deep, memo numbers above 1,000,000
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pickle_load(const void *bytes, size_t n_bytes, size_t at, const char *what,
                                    td_pickle **out);
void td_pickle_free(td_pickle *p);

const td_pvalue *td_pickle_root(const td_pickle *p);
const td_pvalue *td_pickle_values(const td_pickle *p); /* all values, linked by ->next */
size_t td_pickle_end(const td_pickle *p);              /* offset of the byte after the pickle */

/** The value of a text key in a dict, the last one if there are several; NULL: not a dict, or
    absent. */
const td_pvalue *td_pickle_get(const td_pvalue *dict, const char *key);

/** Is the value this text? */
bool td_pvalue_is(const td_pvalue *v, const char *text);

/** "a tuple", "a tensor" */
const char *td_pickle_kind_name(td_pickle_kind kind);

#endif
