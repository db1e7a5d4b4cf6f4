/*
 * dropout_source.c -- dropout nodes of a network in the making, and their random numbers
 */
#include "model/dropout_source.h"

#include "ir/type.h"
#include "tandem/model.h"

td_value *td_dropout_emit(td_builder *b, td_dropout_source *s, td_value *x, double p,
                          td_dropout_mode mode, bool is_training)
{
    const td_dropout_attr attr = { .p = p, .mode = (int)mode, .id = is_training ? s->n : 0 };
    if (p == 0)
        return x;
    s->n++;
    if (!is_training)
        return td_emit(b, &td_op_dropout, &attr, x);
    if (!s->random)
        s->random = td_input(b, TD_INPUT_RANDOM, td_type_1d(TD_DT_I64, TD_RANDOM_COUNT));
    return td_emit(b, &td_op_dropout, &attr, x, s->random);
}
