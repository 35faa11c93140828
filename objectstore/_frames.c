/* Whether the records of a batch (v2) can be read: lengths, variable-length numbers, headers, and that nothing
 * is left over. No object is made for a record, which is all that it gains over the codec that stands beside it
 * (objectstore/batch.py), its oracle: tests/unit/objectstore/test_frames.py compares the two.
 *
 * Source: Kafka's message format (kafka.apache.org/documentation/#record); DefaultRecord.readFrom for what a
 * reader does not take. Optional: where no compiler is, the codec does the same work.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define VARINT_BYTES_MAX 5
#define VARLONG_BYTES_MAX 10

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* A zigzag number of at most `bytes_max` bytes. 0 when it is cut off or longer. */
static inline int
number(Cursor *cursor, int bytes_max, int64_t *found)
{
    uint64_t raw = 0;
    if (cursor->at < cursor->end && !(*cursor->at & 0x80)) { /* nearly always */
        raw = *cursor->at++;
        *found = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
        return 1;
    }
    for (int place = 0; place < bytes_max && cursor->at < cursor->end; place++) {
        uint8_t octet = *cursor->at++;
        raw |= (uint64_t)(octet & 0x7f) << (7 * place);
        if (!(octet & 0x80)) {
            *found = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

/* Bytes with their length before them; a negative length, where it may be, is null. 0 when they are not there. */
static inline int
octets(Cursor *cursor, int may_be_null, const uint8_t **start, int64_t *length)
{
    if (!number(cursor, VARINT_BYTES_MAX, length) || (*length < 0 && !may_be_null)) {
        return 0;
    }
    *start = cursor->at;
    if (*length > cursor->end - cursor->at) {
        return 0;
    }
    if (*length > 0) {
        cursor->at += *length;
    }
    return 1;
}

/* Why the headers cannot be read; NULL when they can. A Python exception may be set. */
static inline const char *
headers(Cursor *cursor)
{
    int64_t count, length;
    const uint8_t *start;
    if (!number(cursor, VARINT_BYTES_MAX, &count) || count < 0 || count > cursor->end - cursor->at) {
        return "its number of headers is not possible";
    }
    while (count--) {
        if (!octets(cursor, 0, &start, &length)) {
            return "the key of a header does not fit";
        }
        PyObject *text = PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)length, NULL);
        if (text == NULL) {
            return "the key of a header is not UTF-8"; /* or there is no memory: an exception is set */
        }
        Py_DECREF(text);
        if (!octets(cursor, 1, &start, &length)) {
            return "the value of a header does not fit";
        }
    }
    return NULL;
}

/* Why the record at the cursor cannot be read; NULL as above. Leaves the cursor behind it. */
static inline const char *
record(Cursor *batch, int64_t *offset_delta)
{
    int64_t length, ignored;
    const uint8_t *start;
    if (!number(batch, VARINT_BYTES_MAX, &length) || length < 0 || length > batch->end - batch->at) {
        return "its length is not possible";
    }
    Cursor inside = {batch->at, batch->at + length};
    batch->at = inside.end;
    /* No bit of them means anything. Some readers take them for a number of variable length. */
    if (inside.at == inside.end || *inside.at++ & 0x80) {
        return "its attributes cannot be read";
    }
    if (!number(&inside, VARLONG_BYTES_MAX, &ignored)) {
        return "its timestamp cannot be read";
    }
    if (!number(&inside, VARINT_BYTES_MAX, offset_delta)) {
        return "its offset cannot be read";
    }
    if (!octets(&inside, 1, &start, &ignored)) {
        return "its key does not fit";
    }
    if (!octets(&inside, 1, &start, &ignored)) {
        return "its value does not fit";
    }
    if (inside.end - inside.at == 1 && *inside.at == 0) { /* no headers, as nearly always */
        return NULL;
    }
    const char *wrong = headers(&inside);
    if (wrong != NULL) {
        return wrong;
    }
    return inside.at == inside.end ? NULL : "bytes are left over in it";
}

PyDoc_STRVAR(look_doc,
"look(batch, position, count, dense, /)\n--\n\n"
"Why the `count` records that begin at the byte `position` cannot be read, or None.\n\n"
"They must fill the rest of `batch`. `dense`: their offsets must be side by side.");

static PyObject *
look(PyObject *module, PyObject *const *given, Py_ssize_t n)
{
    (void)module;
    if (n != 4) {
        return PyErr_Format(PyExc_TypeError, "look() takes 4 arguments, not %zd", n);
    }
    Py_ssize_t position = PyLong_AsSsize_t(given[1]), count = PyLong_AsSsize_t(given[2]);
    int dense = PyObject_IsTrue(given[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (position < 0 || position > view.len || count < 0) {
        PyErr_Format(PyExc_ValueError, "%zd records from byte %zd of %zd", count, position, view.len);
        goto done;
    }
    Cursor cursor = {(const uint8_t *)view.buf + position, (const uint8_t *)view.buf + view.len};
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t offset_delta = 0;
        const char *wrong = record(&cursor, &offset_delta);
        if (wrong == NULL && dense && offset_delta != index) {
            wrong = "its offset is not next to the one before";
        }
        if (wrong != NULL) {
            if (PyErr_Occurred()) {
                if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
                    goto done;
                }
                PyErr_Clear();
            }
            answer = PyUnicode_FromFormat("record %zd of %zd: %s", index, count, wrong);
            goto done;
        }
    }
    if (cursor.at != cursor.end) {
        answer = PyUnicode_FromFormat("%zd bytes are left behind %zd records",
                                      (Py_ssize_t)(cursor.end - cursor.at), count);
        goto done;
    }
    answer = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef methods[] = {
    {"look", (PyCFunction)(void (*)(void))look, METH_FASTCALL, look_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "objectstore._frames", "Records of a batch, looked through.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__frames(void)
{
    return PyModuleDef_Init(&module);
}
