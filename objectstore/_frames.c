/* Records of a batch (v2) walked through. `look` tells whether they can be read: lengths, variable-length numbers,
 * headers, and that nothing is left over. `columns` gives them by column, `passed` what follows them. None makes an object
 * for a record, which is all that they gain over the codec that stands beside them (objectstore/batch.py, columns.py), their oracle:
 * tests/unit/objectstore/test_frames.py and test_columns.py compare them.
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

/* What is between the two ends, or None for a negative length. NULL: an exception is set. */
static inline PyObject *
bytes_or_none(const uint8_t *start, int64_t length)
{
    if (length < 0) {
        return Py_NewRef(Py_None);
    }
    return PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)length);
}

/* Put (key, value) behind the headers that are `kept`; takes `key` over. 0: an exception is set. */
static int
keep(PyObject *kept, PyObject *key, const uint8_t *start, int64_t length)
{
    PyObject *value = bytes_or_none(start, length);
    PyObject *pair = value == NULL ? NULL : PyTuple_Pack(2, key, value);
    int done = pair != NULL && PyList_Append(kept, pair) == 0;
    Py_DECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(pair);
    return done;
}

/* Why the headers cannot be read; NULL when they can. A Python exception may be set. A list that is given, maybe
 * NULL, gets them. `size` grows by their bytes. */
static inline const char *
headers(Cursor *cursor, PyObject *kept, int64_t *size)
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
        *size += length;
        if (!octets(cursor, 1, &start, &length)) {
            Py_DECREF(text);
            return "the value of a header does not fit";
        }
        *size += length > 0 ? length : 0;
        if (kept == NULL) {
            Py_DECREF(text);
        } else if (!keep(kept, text, start, length)) {
            return "there is no memory for a header"; /* an exception is set */
        }
    }
    return NULL;
}

/* Whether nothing worse came up than text that is not UTF-8, which is forgotten. 0: an exception is set. */
static int
only_unreadable(void)
{
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            return 0;
        }
        PyErr_Clear();
    }
    return 1;
}

/* What a record says. A negative length is null. Its headers, at least their number, are what is left. */
typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_length;
    const uint8_t *value;
    int64_t value_length;
    Cursor headers;
} Record;

/* Why the record at the cursor cannot be read up to its headers; NULL when it can. Leaves the cursor behind it. */
static inline const char *
record(Cursor *batch, Record *found)
{
    int64_t length;
    if (!number(batch, VARINT_BYTES_MAX, &length) || length < 0 || length > batch->end - batch->at) {
        return "its length is not possible";
    }
    Cursor inside = {batch->at, batch->at + length};
    batch->at = inside.end;
    /* No bit of them means anything. Some readers take them for a number of variable length. */
    if (inside.at == inside.end || *inside.at++ & 0x80) {
        return "its attributes cannot be read";
    }
    if (!number(&inside, VARLONG_BYTES_MAX, &found->timestamp_delta)) {
        return "its timestamp cannot be read";
    }
    if (!number(&inside, VARINT_BYTES_MAX, &found->offset_delta)) {
        return "its offset cannot be read";
    }
    if (!octets(&inside, 1, &found->key, &found->key_length)) {
        return "its key does not fit";
    }
    if (!octets(&inside, 1, &found->value, &found->value_length)) {
        return "its value does not fit";
    }
    found->headers = inside;
    return NULL;
}

static inline int
has_headers(const Record *found)
{
    return found->headers.end - found->headers.at != 1 || *found->headers.at != 0;
}

/* Why the headers of a record cannot be read; as `headers`. */
static inline const char *
rest_of(Record *found, PyObject *kept, int64_t *size)
{
    const char *wrong = headers(&found->headers, kept, size);
    if (wrong != NULL) {
        return wrong;
    }
    return found->headers.at == found->headers.end ? NULL : "bytes are left over in it";
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
        Record found;
        int64_t ignored = 0;
        const char *wrong = record(&cursor, &found);
        if (wrong == NULL && has_headers(&found)) { /* hardly ever */
            wrong = rest_of(&found, NULL, &ignored);
        }
        if (wrong == NULL && dense && found.offset_delta != index) {
            wrong = "its offset is not next to the one before";
        }
        if (wrong != NULL) {
            if (!only_unreadable()) {
                goto done;
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

/* Records that are gathered by column; `numbers` holds offsets, and `room` behind them timestamps. */
typedef struct {
    Py_ssize_t room;
    Py_ssize_t rows;
    int64_t size;
    int64_t *numbers;
    PyObject *keys;
    PyObject *values;
    PyObject *headers;
    PyObject *none;
} Columns;

static int
made(Columns *into, Py_ssize_t room)
{
    *into = (Columns){.room = room};
    into->numbers = PyMem_Malloc(2 * sizeof(int64_t) * (size_t)room);
    into->keys = PyList_New(room);
    into->values = PyList_New(room);
    into->headers = PyList_New(room);
    into->none = PyTuple_New(0);
    if (into->numbers == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    return into->keys != NULL && into->values != NULL && into->headers != NULL && into->none != NULL;
}

static void
dropped(Columns *into)
{
    PyMem_Free(into->numbers);
    Py_XDECREF(into->keys);
    Py_XDECREF(into->values);
    Py_XDECREF(into->headers);
    Py_XDECREF(into->none);
}

/* Sums as the codec has them: beyond 64 bits they wrap around. */
static inline int64_t
sum(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

/* Put the record behind the others, for which there is room. Why it cannot be read; NULL when it can. A Python
 * exception may be set. */
static inline const char *
gather(Columns *into, Record *found, int64_t base_offset, int64_t base_timestamp)
{
    Py_ssize_t at = into->rows;
    PyObject *key = bytes_or_none(found->key, found->key_length);
    if (key == NULL || PyList_SetItem(into->keys, at, key) < 0) {
        return "there is no memory for its key";
    }
    PyObject *value = bytes_or_none(found->value, found->value_length);
    if (value == NULL || PyList_SetItem(into->values, at, value) < 0) {
        return "there is no memory for its value";
    }
    PyObject *kept = has_headers(found) ? PyList_New(0) : Py_NewRef(into->none);
    if (kept == NULL || PyList_SetItem(into->headers, at, kept) < 0) {
        return "there is no memory for its headers";
    }
    into->numbers[at] = sum(base_offset, found->offset_delta);
    into->numbers[into->room + at] = sum(base_timestamp, found->timestamp_delta);
    into->size += (found->key_length > 0 ? found->key_length : 0) + (found->value_length > 0 ? found->value_length : 0);
    into->rows++;
    return has_headers(found) ? rest_of(found, kept, &into->size) : NULL;
}

/* What was gathered, and where the next record begins. NULL: an exception is set. */
static PyObject *
told(Columns *into, Py_ssize_t next)
{
    Py_ssize_t rows = into->rows, octets = rows * (Py_ssize_t)sizeof(int64_t);
    if (PyList_SetSlice(into->keys, rows, into->room, NULL) < 0 ||
        PyList_SetSlice(into->values, rows, into->room, NULL) < 0 ||
        PyList_SetSlice(into->headers, rows, into->room, NULL) < 0) {
        return NULL;
    }
    return Py_BuildValue("(y#y#OOOLn)", (const char *)into->numbers, octets,
                         (const char *)(into->numbers + into->room), octets, into->keys, into->values, into->headers,
                         (long long)into->size, next);
}

PyDoc_STRVAR(columns_doc,
"columns(batch, position, count, octets_max, base_offset, base_timestamp, /)\n--\n\n"
"The `count` records that begin at the byte `position`, by column, or None where one of them cannot be read.\n\n"
"Offsets and timestamps (int64, of this machine), keys, values, headers, bytes of these three, and the byte\n"
"behind the last record. Fewer than `count` once they have `octets_max` bytes.");

static PyObject *
columns(PyObject *module, PyObject *const *given, Py_ssize_t n)
{
    (void)module;
    if (n != 6) {
        return PyErr_Format(PyExc_TypeError, "columns() takes 6 arguments, not %zd", n);
    }
    Py_ssize_t position = PyLong_AsSsize_t(given[1]), count = PyLong_AsSsize_t(given[2]);
    int64_t octets_max = PyLong_AsLongLong(given[3]);
    int64_t base_offset = PyLong_AsLongLong(given[4]), base_timestamp = PyLong_AsLongLong(given[5]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    Columns into = {0};
    if (position < 0 || position > view.len || count < 1) {
        PyErr_Format(PyExc_ValueError, "%zd records from byte %zd of %zd", count, position, view.len);
        goto done;
    }
    if (count > view.len - position) { /* a record takes more than a byte: no room is made for what is not there */
        answer = Py_NewRef(Py_None);
        goto done;
    }
    if (!made(&into, count)) {
        goto done;
    }
    Cursor cursor = {(const uint8_t *)view.buf + position, (const uint8_t *)view.buf + view.len};
    while (into.rows < count && (into.rows == 0 || into.size < octets_max)) {
        Record found;
        const char *wrong = record(&cursor, &found);
        if (wrong == NULL) {
            wrong = gather(&into, &found, base_offset, base_timestamp);
        }
        if (wrong != NULL) {
            if (!only_unreadable()) {
                goto done;
            }
            answer = Py_NewRef(Py_None);
            goto done;
        }
    }
    answer = told(&into, (Py_ssize_t)(cursor.at - (const uint8_t *)view.buf));
done:
    dropped(&into);
    PyBuffer_Release(&view);
    return answer;
}

PyDoc_STRVAR(passed_doc,
"passed(batch, position, count, base_timestamp, /)\n--\n\n"
"The newest timestamp of the `count` records that begin at the byte `position`, and the byte behind the last;\n"
"None where one of them cannot be read. No object is made for any of them.");

static PyObject *
passed(PyObject *module, PyObject *const *given, Py_ssize_t n)
{
    (void)module;
    if (n != 4) {
        return PyErr_Format(PyExc_TypeError, "passed() takes 4 arguments, not %zd", n);
    }
    Py_ssize_t position = PyLong_AsSsize_t(given[1]), count = PyLong_AsSsize_t(given[2]);
    int64_t base_timestamp = PyLong_AsLongLong(given[3]), newest = INT64_MIN, size = 0;
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (position < 0 || position > view.len || count < 1) {
        PyErr_Format(PyExc_ValueError, "%zd records from byte %zd of %zd", count, position, view.len);
        goto done;
    }
    Cursor cursor = {(const uint8_t *)view.buf + position, (const uint8_t *)view.buf + view.len};
    while (count--) {
        Record found;
        const char *wrong = record(&cursor, &found);
        if (wrong == NULL && has_headers(&found)) {
            wrong = rest_of(&found, NULL, &size);
        }
        if (wrong != NULL) {
            if (!only_unreadable()) {
                goto done;
            }
            answer = Py_NewRef(Py_None);
            goto done;
        }
        int64_t timestamp = sum(base_timestamp, found.timestamp_delta);
        newest = timestamp > newest ? timestamp : newest;
    }
    answer = Py_BuildValue("(Ln)", (long long)newest, (Py_ssize_t)(cursor.at - (const uint8_t *)view.buf));
done:
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef methods[] = {
    {"passed", (PyCFunction)(void (*)(void))passed, METH_FASTCALL, passed_doc},
    {"look", (PyCFunction)(void (*)(void))look, METH_FASTCALL, look_doc},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, columns_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "objectstore._frames", "Records of a batch, walked through.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__frames(void)
{
    return PyModuleDef_Init(&module);
}
