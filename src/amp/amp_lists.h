/*
 * amp/amp_lists.h -- TensorFlow's four lists of ops for mixed precision, by rule and mode, with
 * edits
 *
 *     td_amp_lists *l;
 *     TD_TRY(td_amp_lists_new(&(td_amp_list_opts){ .mode = TD_AMP_MODE_BF16 }, &l));
 *     td_amp_lists_class(l, "Conv2D")  ->  TD_AMP_ALLOW
 *     td_amp_lists_free(l);
 *
 * Names are TensorFlow's.  Edits are texts of names separated by commas; as in TensorFlow they are
 * not trimmed ("Abs, Relu" names "Abs" and " Relu"), and they are applied in the order add[0],
 * remove[0], add[1], remove[1], so that the older spelling of a variable can add again what the
 * newer one removed.
 */
#ifndef TD_AMP_AMP_LISTS_H
#define TD_AMP_AMP_LISTS_H

#include "base/status.h"
#include "ir/op.h"
#include "tandem/amp.h"

/* Half type and device of the reproduced pass. */
typedef enum {
    TD_AMP_MODE_FP16,    /* half on the GPU: the usual lists */
    TD_AMP_MODE_BF16,    /* bfloat16 on the CPU: sums and means may be half too; 1.15 had no such
                            mode, so the classic rule uses the lists of 2.15 */
    TD_AMP_MODE_CPU,     /* half on the CPU, lists of FP16; may be emulated */
    TD_AMP_MODE_FP16_CPU /* half on the CPU by its vector library */
} td_amp_mode;

/* Edits of one list; NULL: none.  [0] is applied before [1]. */
typedef struct {
    const char *add[2];
    const char *remove[2];
} td_amp_edit;

/* All zero: the current rule, fp16, default level, no edits. */
typedef struct {
    td_amp_rule rule;
    td_amp_mode mode;
    td_amp_level level;
    td_amp_edit allow, infer, deny, clear;
    const char *(*resolve)(const char *name); /* an edit's name -> TensorFlow's; NULL: unchanged */
} td_amp_list_opts;

typedef struct td_amp_lists td_amp_lists;

/**
 * Make the lists; the caller frees *out.  TD_ENOMEM.  An op in two lists is not an error here: the
 * rewrite reports it (td_amp_opts.conflict), other callers use td_amp_lists_check.
 */
TD_CHECKED td_status td_amp_lists_new(const td_amp_list_opts *opts, td_amp_lists **out);
void td_amp_lists_free(td_amp_lists *l);

/** TD_EARG naming the first op (by name) that is in two lists, and both lists. */
TD_CHECKED td_status td_amp_lists_check(const td_amp_lists *l);

/** An op's class with the level applied; TD_AMP_NONE for names in no list and for NULL. */
td_amp td_amp_lists_class(const td_amp_lists *l, const char *op);

/** The names in a list, sorted, before the level merges infer into deny; borrowed. */
const char *const *td_amp_lists_names(const td_amp_lists *l, td_amp list, int *n);

/** Ops in more than one list, sorted, each repeated for every list; borrowed. */
const char *const *td_amp_lists_conflicts(const td_amp_lists *l, int *n);

/** "allow", "infer", "deny", "clear"; "unlisted" for TD_AMP_NONE. */
const char *td_amp_class_name(td_amp c);

#endif
