/*
 * test_pickle.c -- pickles that want more than weights: each ends in a sentence
 */
#include "pth/pickle.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "pth/pth.h"
#include "support/expect.h"

/* a text with its NULs, without the last one */
#define P(text) text, sizeof(text) - 1

static td_status load(const char *bytes, size_t n, td_pickle **p)
{
    char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read past the end */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    td_status st = td_pickle_load(exact, n, 0, "bad.pth", p);
    if (st == TD_OK) { /* texts lie in the bytes; the kind of the root is all that is asked for */
        td_pickle_free(*p);
        *p = NULL;
    }
    free(exact);
    assert_null(*p);
    return st;
}

static void refuses(const char *bytes, size_t n, td_status st, const char *part)
{
    td_pickle *p = NULL;
    expect_error(load(bytes, n, &p), st, part);
    assert_non_null(strstr(td_error_message(), "'bad.pth': byte "));
}

static void takes(const char *bytes, size_t n)
{
    td_pickle *p = NULL;
    expect_ok(load(bytes, n, &p));
}

/* --- opcodes ---------------------------------------------------------------------------------- */

/* pickletools' codes of all that PyTorch writes; no others may do anything */
static const unsigned char known[] = { 0x80, 0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c,
                                       0x8d, 0x8f, 0x90, 0x93, 0x94, 0x95, '.',  '(',  '0',
                                       'N',  '}',  ']',  ')',  'J',  'K',  'M',  'G',  'X',
                                       'U',  'T',  'C',  'B',  'q',  'r',  'h',  'j',  't',
                                       'a',  'e',  's',  'u',  'c',  'Q',  'R',  'b' };

static void test_every_opcode(void **state)
{
    int n_refused = 0;
    (void)state;
    for (int code = 0; code < 256; code++) {
        char bytes[64] = { (char)0x80, 2, 'N', 'N', (char)code }, hex[16];
        td_pickle *p = NULL;
        if (memchr(known, code, sizeof known))
            continue;
        snprintf(hex, sizeof hex, "(0x%02x)", (unsigned)code);
        expect_error(load(bytes, sizeof bytes, &p), TD_EUNSUPPORTED, hex);
        assert_non_null(strstr(td_error_message(), "'bad.pth': byte 4: the pickle opcode "));
        n_refused++;
    }
    assert_int_equal(n_refused, 256 - (int)sizeof known);
    refuses(P("\x80\2(X\2\0\0\0lsios\nsystem\n."), TD_EUNSUPPORTED, "opcode INST (0x69)");
    refuses(P("\x80\2(N)o."), TD_EUNSUPPORTED, "opcode OBJ");
    refuses(P("\x80\2\x82\1."), TD_EUNSUPPORTED, "opcode EXT1");
    refuses(P("\x80\2\x83\1\1."), TD_EUNSUPPORTED, "opcode EXT2");
    refuses(P("\x80\2\x84\1\1\1\1."), TD_EUNSUPPORTED, "opcode EXT4");
    refuses(P("\x80\4)}\x92."), TD_EUNSUPPORTED, "opcode NEWOBJ_EX");
    refuses(P("\x80\2P1\n."), TD_EUNSUPPORTED, "opcode PERSID");
}

static void test_protocols(void **state)
{
    (void)state;
    takes(P("\x80\2N."));
    takes(P("\x80\5N."));
    refuses(P("\x80\1N."), TD_EUNSUPPORTED, "1, wanted 2 to 5");
    refuses(P("\x80\6N."), TD_EUNSUPPORTED, "pickle protocol is 6, wanted 2 to");
    refuses(P("\x80\2\x80\2N."), TD_EFORMAT, "second protocol");
}

/* --- names ------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    static const char *const bad[] = {
        "os\nsystem",
        "posix\nsystem",
        "nt\nsystem",
        "builtins\neval",
        "builtins\nexec",
        "__builtin__\neval",
        "builtins\ngetattr",
        "subprocess\nPopen",
        "builtins\n__import__",
        "runpy\n_run_code",
        "torch\nload",
        "torch\nhub.load",
        "torch._utils\n_import_dotted_name",
        "torch.storage\n_load_from_bytes",
        "numpy\nload",
        "collections\nOrderedDict.__init__",
        "copyreg\n_reconstructor",
        "torch\nFloatStorage.__class__",
        "\n",
        "a\n",
        "\nsystem",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char bytes[200], want[200];
        int n = snprintf(bytes, sizeof bytes, "\x80\2c%s\nX%c%c%c%cls\x85R.", bad[i], 2, 0, 0, 0);
        snprintf(want, sizeof want, "byte 2: the name '%s'", bad[i]);
        *strchr(want, '\n') = '.';
        refuses(bytes, (size_t)n, TD_EUNSUPPORTED, want);
    }
    refuses(P("\x80\4\x8c\2os\x8c\6system\x93\x8c\2ls\x85R."), TD_EUNSUPPORTED, "name 'os.system'");
    refuses(P("\x80\2c\x1b[2J\n\xff\n."), TD_EUNSUPPORTED, "name '?[2J.?'");
    refuses(P("\x80\4NN\x93."), TD_EFORMAT, "a name that is");
    /* known names, used for what they are not for */
    refuses(P("\x80\2ctorch\nfloat32\n)R."), TD_EUNSUPPORTED, "'torch.float32' is called");
    refuses(P("\x80\2ctorch\nFloatStorage\n)R."), TD_EUNSUPPORTED, "is called");
    refuses(P("\x80\2ccollections\nOrderedDict\n)\x81."), TD_EUNSUPPORTED, "an object of");
    refuses(P("\x80\2ccollections\nOrderedDict\n]\x85R."), TD_EUNSUPPORTED, "1 arguments");
    refuses(P("\x80\2N)R."), TD_EFORMAT, "a call of None with a tuple");
    refuses(P("\x80\2ccollections\nOrderedDict\n]R."), TD_EFORMAT, "with a list");
    refuses(P("\x80\2]}b."), TD_EUNSUPPORTED, "a state for a list");
    refuses(P("\x80\2ccollections\nOrderedDict\n}b."), TD_EUNSUPPORTED, "a state for a class");
    takes(P("\x80\2ccollections\nOrderedDict\n)R}b."));
    takes(P("\x80\2c__builtin__\nset\n](K\1K\2e\x85R."));
    takes(P("\x80\2cargparse\nNamespace\n)\x81}b."));
    takes(P("\x80\4\x8f(K\1\x90."));
}

/* --- the machine ------------------------------------------------------------------------------ */

static void test_underflow(void **state)
{
    static const char *const ops[] = { "R",    "b",    "a",  "s",    "0",    "Q",    "\x85",
                                       "\x86", "\x87", "q1", "\x93", "\x81", "\x94", "." };
    char bytes[16];
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const char *part = *ops[i] == '.' ? "with a single value" : "stack is too short";
        int n = snprintf(bytes, sizeof bytes, "\x80\4%s.", ops[i]);
        refuses(bytes, (size_t)n, TD_EFORMAT, part);
        n = snprintf(bytes, sizeof bytes, "\x80\4NNN(%s.", ops[i]); /* what is below a mark */
        refuses(bytes, (size_t)n, TD_EFORMAT, part);
    }
    refuses(P("\x80\2t."), TD_EFORMAT, "no mark");
    refuses(P("\x80\2}u."), TD_EFORMAT, "no mark");
    refuses(P("\x80\2]e."), TD_EFORMAT, "no mark");
    refuses(P("\x80\2(u."), TD_EFORMAT, "stack is too short");
    refuses(P("\x80\2}(Nu."), TD_EFORMAT, "a key without a value");
    refuses(P("\x80\2](NNu."), TD_EFORMAT, "elements for a list, wanted a dict");
    refuses(P("\x80\2}Na."), TD_EFORMAT, "elements for a dict, wanted a list");
    refuses(P("\x80\2NN."), TD_EFORMAT, "with a single value");
    refuses(P("\x80\2N(."), TD_EFORMAT, "with a single value");
    refuses(P("\x80\2h\0."), TD_EFORMAT, "memo number 0 was never set");
    refuses(P("\x80\2Nq\5h\4."), TD_EFORMAT, "memo number 4 was never set");
    refuses(P(""), TD_EFORMAT, "the pickle is truncated");
    refuses(P("\x80"), TD_EFORMAT, "the pickle is truncated");
    refuses(P("\x80\2X\xff\xff\xff\xff"), TD_EFORMAT, "the pickle is truncated");
    refuses(P("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), TD_EFORMAT, "the pickle is truncated");
    refuses(P("\x80\2\x8a\xff."), TD_EFORMAT, "the pickle is truncated");
    refuses(P("\x80\2cos\nsys"), TD_EFORMAT, "the pickle is truncated");
}

static td_status load_text(td_text *t)
{
    td_pickle *p = NULL;
    expect_ok(td_text_status(t));
    td_status st = load(td_text_get(t), t->len, &p);
    td_text_release(t);
    return st;
}

static void test_limits(void **state)
{
    td_text t = { 0 };
    (void)state;
    td_text_add_bytes(&t, P("\x80\2"));
    for (int i = 0; i < 100001; i++)
        td_text_add_bytes(&t, "N", 1);
    expect_error(load_text(&t), TD_ELIMIT, "more than 100000 values on a pickle's stack");
    td_text_add_bytes(&t, P("\x80\2"));
    for (int i = 0; i < 100001; i++)
        td_text_add_bytes(&t, "(", 1);
    expect_error(load_text(&t), TD_ELIMIT, "more than 100000 marks");
    td_text_add_bytes(&t, P("\x80\2"));
    for (int i = 0; i < 1000001; i++)
        td_text_add_bytes(&t, "N0", 2);
    expect_error(load_text(&t), TD_ELIMIT, "more than 1000000 values in a pickle");
    td_text_add_bytes(&t, P("\x80\2c"));
    for (int i = 0; i < 300; i++)
        td_text_add_bytes(&t, "x", 1);
    expect_error(load_text(&t), TD_ELIMIT, "a name of more than 255 bytes");
    refuses(P("\x80\2Nr\xff\xff\xff\x7f."), TD_ELIMIT, "memo number 2147483647");
    refuses(P("\x80\2Nr\xff\xff\xff\xff."), TD_ELIMIT, "memo number 4294967295");
}

/* values that hold themselves are values; walks over them have a fixed depth */
static void test_loops(void **state)
{
    static const char dict[] = "\x80\2}q\0X\1\0\0\0xh\0s.";
    td_pickle *p;
    (void)state;
    takes(P("\x80\2]q\0h\0a."));
    expect_ok(td_pickle_load(dict, sizeof dict - 1, 0, "loop", &p));
    const td_pvalue *v = td_pickle_root(p);
    assert_ptr_equal(td_pickle_get(v, "x"), v);
    assert_null(td_pickle_get(v, "y"));
    assert_int_equal(td_pickle_end(p), sizeof dict - 1);
    td_pickle_free(p);
}

static void test_values(void **state)
{
    static const char bytes[] = "\x80\2(J\xfe\xff\xff\xffK\xffM\xff\xff\x8a\2\0\x80\x8a\0"
                                "\x8a\x09"
                                "123456789G\x3f\xf8\0\0\0\0\0\0U\2abB\2\0\0\0cdt.";
    static const int64_t whole[] = { -2, 255, 65535, -32768, 0 };
    td_pickle *p;
    (void)state;
    expect_ok(td_pickle_load(bytes, sizeof bytes - 1, 0, "values", &p));
    const td_plist *l = &td_pickle_root(p)->list;
    assert_int_equal(l->n, 9);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(l->at[i]->kind, TD_PICKLE_INT);
        assert_int_equal(l->at[i]->whole, whole[i]);
    }
    assert_int_equal(l->at[5]->kind, TD_PICKLE_OPAQUE);
    assert_true(l->at[6]->real == 1.5);
    assert_true(td_pvalue_is(l->at[7], "ab"));
    assert_true(td_pvalue_is(l->at[8], "cd"));
    assert_false(td_pvalue_is(l->at[8], "c"));
    td_pickle_free(p);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static void add_long(td_text *t, int64_t x)
{
    td_text_add_bytes(t, "\x8a\x08", 2);
    for (int i = 0; i < 8; i++, x >>= 8) {
        const char byte = (char)(unsigned char)(x & 255);
        td_text_add_bytes(t, &byte, 1);
    }
}

static void add_longs(td_text *t, const char *numbers)
{
    td_text_add_bytes(t, "(", 1);
    for (const char *p = numbers; *p;) {
        char *end;
        add_long(t, strtoll(p, &end, 10));
        p = end + (*end == ' ');
    }
    td_text_add_bytes(t, "t", 1);
}

static void add_text(td_text *t, const char *text)
{
    const char len[4] = { (char)strlen(text) };
    td_text_add_bytes(t, "X", 1);
    td_text_add_bytes(t, len, 4);
    td_text_add_bytes(t, text, strlen(text));
}

/* a tensor over a storage "0" of `n` elements */
static void add_tensor(td_text *t, const char *storage, int64_t n, int64_t offset,
                       const char *sizes, const char *strides)
{
    td_text_add(t, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_text(t, "storage");
    td_text_add(t, "ctorch\n%sStorage\n", storage);
    add_text(t, "0");
    add_text(t, "cpu");
    add_long(t, n);
    td_text_add(t, "tQ");
    add_long(t, offset);
    add_longs(t, sizes);
    add_longs(t, strides);
    td_text_add(t, "\x89}tR");
}

typedef struct {
    int64_t n, offset;
    const char *sizes, *strides, *part;
} shape_case;

static void test_extents(void **state)
{
    static const shape_case bad[] = {
        { 6, 0, "7", "1", "element 6 of a storage of 6" },
        { 6, 1, "6", "1", "element 6 of a storage" },
        { 6, 7, "0", "1", "element 7 of a storage" },
        { 6, 0, "2 3", "4 1", "element 6 of a storage" },
        { 6, 0, "2 3", "1", "2 sizes, 1 strides" },
        { 6, 0, "-1", "1", "size 0 is negative" },
        { 6, 0, "1", "-1", "stride 0 is negative" },
        { 6, -1, "1", "1", "malformed arguments" },
        { 6, 0, "4611686018427387904 4", "1 1", "sizes and strides" },
        { 6, 0, "3", "9223372036854775807", "sizes and strides" },
        { 6, INT64_MAX, "2", "1", "sizes and strides" },
        { 6, 0, "1 1 1 1 1 1 1 1 1", "1 1 1 1 1 1 1 1 1", "9 dimensions, at most 8" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_text t = { 0 };
        const shape_case *c = &bad[i];
        td_text_add_bytes(&t, P("\x80\2"));
        add_tensor(&t, "Float", c->n, c->offset, c->sizes, c->strides);
        td_text_add(&t, ".");
        td_pickle *p = NULL;
        td_status st = load(td_text_get(&t), t.len, &p);
        assert_int_not_equal(st, TD_OK);
        expect_error(st, st, c->part);
        td_text_release(&t);
    }
    td_text t = { 0 };
    td_text_add_bytes(&t, P("\x80\2"));
    add_tensor(&t, "Float", -1, 0, "1", "1");
    td_text_add(&t, ".");
    expect_error(load_text(&t), TD_EFORMAT, "storage of PyTorch's");
    refuses(P("\x80\2NQ."), TD_EFORMAT, "storage of PyTorch's");
    refuses(P("\x80\2(NNNNNtQ."), TD_EFORMAT, "storage of PyTorch's");
    refuses(P("\x80\2ctorch._utils\n_rebuild_tensor_v2\n)R."), TD_EFORMAT, "malformed arguments");
    refuses(P("\x80\2ctorch._utils\n_rebuild_tensor_v3\n)R."), TD_EFORMAT, "malformed arguments");
    refuses(P("\x80\2ctorch._utils\n_rebuild_parameter\n)R."), TD_EFORMAT, "wanted a tensor");
}

/* --- whole legacy files ----------------------------------------------------------------------- */

static void begin_file(td_text *t)
{
    td_text_add_bytes(t, P("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."));
    td_text_add_bytes(t, P("\x80\2M\xe9\3."));
    td_text_add_bytes(t, P("\x80\2}X\x0d\0\0\0little_endian\x88s."));
    td_text_add_bytes(t, P("\x80\2}("));
}

/* the end of the dict, the list of storages, one of them of `n` elements and `n_bytes` */
static void end_file(td_text *t, int64_t n, size_t n_bytes)
{
    td_text_add_bytes(t, P("u."));
    td_text_add_bytes(t, P("\x80\2]X\1\0\0\0"
                           "0a."));
    for (int i = 0; i < 8; i++, n >>= 8) {
        const char byte = (char)(unsigned char)(n & 255);
        td_text_add_bytes(t, &byte, 1);
    }
    for (size_t i = 0; i < n_bytes; i++)
        td_text_add_bytes(t, "", 1);
}

static td_status parse(td_text *file, td_tensors **out)
{
    expect_ok(td_text_status(file));
    td_status st = td_pth_parse(td_text_get(file), file->len, "bad.pth", false, out);
    td_text_release(file);
    return st;
}

static void test_files(void **state)
{
    td_text f = { 0 };
    td_tensors *t;
    (void)state;
    begin_file(&f);
    add_text(&f, "w");
    add_tensor(&f, "Float", 6, 0, "2 3", "3 1");
    end_file(&f, 6, 24);
    expect_ok(parse(&f, &t));
    assert_int_equal(td_tensors_get(t, "w")->n_bytes, 24);
    td_tensors_free(t);

    begin_file(&f); /* pytorch#12042: more elements than any file has */
    add_text(&f, "w");
    add_tensor(&f, "Float", 2900000000000000000, 0, "1", "1");
    end_file(&f, 2900000000000000000, 24);
    expect_error(parse(&f, &t), TD_EFORMAT, "2900000000000000000 elements in a file of");

    begin_file(&f);
    add_text(&f, "w");
    add_tensor(&f, "Float", INT64_MAX, 0, "1", "1");
    end_file(&f, INT64_MAX, 24);
    expect_error(parse(&f, &t), TD_EFORMAT, "elements in a file of");

    begin_file(&f);
    add_text(&f, "w");
    add_tensor(&f, "Float", 6, 0, "6", "1");
    end_file(&f, 5, 24);
    expect_error(parse(&f, &t), TD_EFORMAT, "'0' has 5 elements, its tensors need 6");

    begin_file(&f); /* one key, two types */
    add_text(&f, "v");
    add_tensor(&f, "Double", 6, 0, "6", "1");
    add_text(&f, "w");
    add_tensor(&f, "Float", 6, 0, "6", "1");
    end_file(&f, 6, 48);
    expect_error(parse(&f, &t), TD_EFORMAT, "'w': its storage is declared with 6");

    begin_file(&f); /* one number, seen a thousand million million times */
    add_text(&f, "w");
    add_tensor(&f, "Float", 1, 0, "1000000000 1000000", "0 0");
    end_file(&f, 1, 4);
    expect_error(parse(&f, &t), TD_ELIMIT, "more than four times the file's bytes");

    begin_file(&f);
    for (int i = 0; i < 2; i++) {
        add_text(&f, "w");
        add_tensor(&f, "Float", 6, 0, "6", "1");
    }
    end_file(&f, 6, 24);
    expect_error(parse(&f, &t), TD_EFORMAT, "tensor 'w' is");

    begin_file(&f);
    add_text(&f, "w");
    td_text_add(&f, "N");
    td_text_add_bytes(&f, P("u."));
    td_text_add_bytes(&f, P("\x80\2]."));
    expect_error(parse(&f, &t), TD_EFORMAT, "a dict without weights");

    begin_file(&f);
    td_text_add_bytes(&f, P("u.\x80\2]X\1\0\0\0"
                            "0a."));
    expect_error(parse(&f, &t), TD_EFORMAT, "list of storages names one that no tensor");

    td_text_add_bytes(&f, P("\x80\2}X\5\0\0\0worldNs."));
    expect_error(parse(&f, &t), TD_EUNSUPPORTED, "that torch.save");
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_opcode), cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_underflow),
        cmocka_unit_test(test_limits),       cmocka_unit_test(test_loops),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_extents),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
