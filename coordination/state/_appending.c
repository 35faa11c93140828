/* Batches that simply follow, appended to the state. Of a chunk's batches `append_following` takes those that need no
 * decision: their partition is there, their producer (if any) goes on where it was, nobody's transaction is
 * near, and every number fits. It stops at the first that is otherwise, before changing anything for it, and
 * chunks.py decides on that one: so the rules stay there, in Python, which is also this walk's oracle
 * (tests/property/test_appending.py), and does the same work where no compiler is.
 *
 * As all of apply this has no I/O, no clock and no entropy: it calls Python's objects and nothing else
 * (tests/unit/coordination/test_appending.py reads the symbols).
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are little-endian: here chunks.py appends alone"
#endif

/* Of a row, as slices.py has it: "<qqIIq". */
typedef struct {
    int64_t end;
    int64_t serial;
    uint32_t position;
    uint32_t length;
    int64_t newest;
} Row;
_Static_assert(sizeof(Row) == 32, "a row has 32 bytes");

#define SEQUENCE_MASK 0x7fffffff /* sequences wrap from 2^31 - 1 to 0 */

/* The slots that are read and written. `bind` finds where in an object each is. */
enum {
    HIGH_WATERMARK, PRODUCERS, TRANSACTIONS, SLICES, BEGINS_SPAN, /* Partition */
    EPOCH, LAST_SEQUENCE, LAST_TIMESTAMP, FREEZES, RECENT,        /* ProducerEntry */
    ROWS, SIZE_BYTES,                                             /* SliceIndex */
    SLOTS
};
enum { PARTITION, ENTRY, INDEX, CLASSES };

static const struct {
    const char *name;
    int of;
} slots[SLOTS] = {
    {"high_watermark", PARTITION}, {"producers", PARTITION}, {"transactions", PARTITION}, {"slices", PARTITION},
    {"begins_span", PARTITION}, {"epoch", ENTRY}, {"last_sequence", ENTRY}, {"last_timestamp", ENTRY},
    {"freezes", ENTRY}, {"recent", ENTRY}, {"rows", INDEX}, {"size_bytes", INDEX},
};
static PyTypeObject *classes[CLASSES]; /* NULL until `bind` */
static Py_ssize_t places[SLOTS];       /* in bytes from the object's start */
static int64_t offset_max;
static Py_ssize_t remembered; /* numbers in ProducerEntry.recent when it is full */

#define IN(object, slot) (*(PyObject **)((char *)(object) + places[slot]))

/* Put a value, whose reference is taken over, into a slot. */
static inline void
put(PyObject *object, int slot, PyObject *value)
{
    PyObject *before = IN(object, slot);
    IN(object, slot) = value;
    Py_XDECREF(before);
}

/* The number that an object is. 0 where it is none, or has more than 64 bits. */
static inline int
number(PyObject *object, int64_t *found)
{
    if (object == NULL || Py_TYPE(object) != &PyLong_Type) {
        return 0;
    }
    *found = PyLong_AsLongLong(object);
    if (*found == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* Where a slot of a class is: what is put there by its name shows up there, and nowhere else. -1: an exception is set.
 * The stable interface has no other way, and by names an entry of 30 batches takes a third longer. */
static Py_ssize_t
place_of(PyTypeObject *class, const char *name)
{
    Py_ssize_t place = -1;
    int64_t size = 0;
    PyObject *told = PyObject_GetAttrString((PyObject *)class, "__basicsize__");
    PyObject *object = PyType_GenericAlloc(class, 0), *mark = PyList_New(0);
    if (told == NULL || object == NULL || mark == NULL || !number(told, &size) ||
        PyObject_SetAttrString(object, name, mark) < 0) {
        goto done;
    }
    for (int64_t at = sizeof(PyObject); at + (int64_t)sizeof(PyObject *) <= size; at += sizeof(PyObject *)) {
        if (*(PyObject **)((char *)object + at) == mark) {
            if (place >= 0) {
                place = -1;
                break;
            }
            place = (Py_ssize_t)at;
        }
    }
done:
    Py_XDECREF(told);
    Py_XDECREF(object);
    Py_XDECREF(mark);
    if (place < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ImportError, "%R has no slot %s where it was looked for", class, name);
    }
    return place;
}

PyDoc_STRVAR(bind_doc,
"bind(partition, entry, index, offset_max, remembered, /)\n--\n\n"
"Learn the classes Partition, ProducerEntry and SliceIndex, the highest offset at which a batch may end, and how many\n"
"numbers an entry remembers. Once, before anything is appended. Raises ImportError where this Python lays\n"
"objects out otherwise.");

static PyObject *
bind(PyObject *module, PyObject *const *given, Py_ssize_t n)
{
    (void)module;
    if (n != CLASSES + 2) {
        return PyErr_Format(PyExc_TypeError, "bind() takes %d arguments, not %zd", CLASSES + 2, n);
    }
    for (int which = 0; which < CLASSES; which++) {
        if (!PyObject_TypeCheck(given[which], &PyType_Type)) {
            return PyErr_Format(PyExc_TypeError, "bind() takes classes, not %R", given[which]);
        }
    }
    offset_max = PyLong_AsLongLong(given[CLASSES]);
    remembered = PyLong_AsSsize_t(given[CLASSES + 1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (remembered < 2 || remembered % 2) {
        return PyErr_Format(PyExc_ValueError, "%zd numbers are remembered: an even number", remembered);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        places[slot] = place_of((PyTypeObject *)given[slots[slot].of], slots[slot].name);
        if (places[slot] < 0) {
            return NULL;
        }
    }
    for (int which = 0; which < CLASSES; which++) {
        PyObject *before = (PyObject *)classes[which];
        classes[which] = (PyTypeObject *)Py_NewRef(given[which]);
        Py_XDECREF(before);
    }
    return Py_NewRef(Py_None);
}

/* The columns of a chunk, in the order of chunks.py's rows. */
enum { HANDLE, LENGTH, OFFSETS, NEWEST, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, PART, COLUMNS };

/* A walk over a chunk's batches. All references are borrowed, of what the caller holds. */
typedef struct {
    PyObject *partitions;
    PyObject *columns[COLUMNS];
    PyObject *before; /* the partition that the batch before was appended to, or None */
    PyObject *now_ms;
    PyObject *base_offsets;
    int64_t position; /* in the chunk, of the next batch */
    int64_t serial;
    int64_t freezes;
    Py_ssize_t rows; /* that were written */
} Walk;

/* What is known of a batch that follows, before anything is changed for it. */
typedef struct {
    int64_t of[COLUMNS];
    PyObject *partition;
    PyObject *entry; /* NULL: no producer */
    PyObject *recent;
    PyObject *rows;
    int64_t size_bytes;
    int64_t end;
    Row row; /* as it is to be written */
} Batch;

/* Whether the batch continues what its producer wrote, in an entry that may be changed. -1: an exception is set. */
static inline int
follows(const Walk *walk, Batch *batch, Py_ssize_t place)
{
    int64_t epoch, last, freezes;
    PyObject *producers = IN(batch->partition, PRODUCERS);
    if (IN(batch->partition, TRANSACTIONS) != Py_None || producers == NULL || Py_TYPE(producers) != &PyDict_Type) {
        return 0;
    }
    PyObject *entry = PyDict_GetItemWithError(producers, PyList_GetItem(walk->columns[PRODUCER_ID], place));
    if (entry == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    batch->entry = entry;
    batch->recent = Py_TYPE(entry) == classes[ENTRY] ? IN(entry, RECENT) : NULL;
    return batch->recent != NULL && number(IN(entry, FREEZES), &freezes) && freezes == walk->freezes &&
           number(IN(entry, EPOCH), &epoch) && epoch == batch->of[PRODUCER_EPOCH] &&
           number(IN(entry, LAST_SEQUENCE), &last) &&
           batch->of[SEQUENCE] == (int64_t)(((uint64_t)last + 1) & SEQUENCE_MASK);
}

/* Whether the batch begins or lengthens a row that can hold it; says which row. */
static inline int
fits(const Walk *walk, Batch *batch)
{
    PyObject *slices = IN(batch->partition, SLICES);
    if (slices == NULL || Py_TYPE(slices) != classes[INDEX]) {
        return 0;
    }
    batch->rows = IN(slices, ROWS);
    int64_t length = batch->of[LENGTH], newest = batch->of[NEWEST];
    if (batch->rows == NULL || Py_TYPE(batch->rows) != &PyByteArray_Type ||
        !number(IN(slices, SIZE_BYTES), &batch->size_bytes) || batch->size_bytes < 0 ||
        length < 0 || length > UINT32_MAX || walk->position < 0 || walk->position > UINT32_MAX ||
        batch->size_bytes > INT64_MAX - length) {
        return 0;
    }
    if (batch->partition != walk->before) {
        batch->row = (Row){batch->end, walk->serial, (uint32_t)walk->position, (uint32_t)length, newest};
        return 1;
    }
    Py_ssize_t held = PyByteArray_Size(batch->rows);
    if (held < (Py_ssize_t)sizeof(Row)) {
        return 0;
    }
    memcpy(&batch->row, PyByteArray_AsString(batch->rows) + held - sizeof(Row), sizeof(Row));
    if (length > (int64_t)UINT32_MAX - batch->row.length) {
        return 0;
    }
    batch->row.end = batch->end;
    batch->row.length += (uint32_t)length;
    batch->row.newest = newest > batch->row.newest ? newest : batch->row.newest;
    return 1;
}

/* Whether the batch at this place is one that follows. Changes nothing. -1: an exception is set. */
static inline int
look(const Walk *walk, Batch *batch, Py_ssize_t place)
{
    int64_t base;
    for (int column = 0; column < COLUMNS; column++) {
        if (!number(PyList_GetItem(walk->columns[column], place), &batch->of[column])) {
            return 0;
        }
    }
    int64_t handle = batch->of[HANDLE], count = batch->of[OFFSETS];
    if (handle < 0 || handle >= PyList_Size(walk->partitions) || count < 1 || batch->of[PART] != 0) {
        return 0;
    }
    batch->partition = PyList_GetItem(walk->partitions, (Py_ssize_t)handle);
    if (Py_TYPE(batch->partition) != classes[PARTITION] || IN(batch->partition, BEGINS_SPAN) != Py_False ||
        !number(IN(batch->partition, HIGH_WATERMARK), &base) || base < 0 || base > offset_max ||
        count > offset_max - base) {
        return 0;
    }
    batch->end = base + count;
    batch->entry = NULL;
    if (batch->of[PRODUCER_ID] >= 0) {
        int answer = follows(walk, batch, place);
        if (answer <= 0) {
            return answer;
        }
    }
    return fits(walk, batch);
}

/* Note the batch in its producer's entry. 0: an exception is set. */
static inline int
note(const Walk *walk, const Batch *batch, Py_ssize_t place)
{
    Py_buffer view;
    int64_t noted[2] = {batch->of[SEQUENCE], batch->end - batch->of[OFFSETS]};
    PyObject *last = PyLong_FromLongLong((noted[0] + batch->of[OFFSETS] - 1) & SEQUENCE_MASK);
    if (last == NULL) {
        return 0;
    }
    put(batch->entry, LAST_SEQUENCE, last);
    put(batch->entry, LAST_TIMESTAMP, Py_NewRef(walk->now_ms));
    if (PyObject_GetBuffer(batch->recent, &view, PyBUF_WRITABLE) < 0) {
        return 0;
    }
    Py_ssize_t full = remembered * (Py_ssize_t)sizeof(int64_t);
    int is_full = view.len == full && view.itemsize == (Py_ssize_t)sizeof(int64_t);
    if (is_full) { /* nearly always */
        memmove(view.buf, (char *)view.buf + sizeof(noted), (size_t)full - sizeof(noted));
        memcpy((char *)view.buf + full - sizeof(noted), noted, sizeof(noted));
    }
    PyBuffer_Release(&view);
    if (is_full) {
        return 1;
    }
    PyObject *sequence = PyList_GetItem(walk->columns[SEQUENCE], place);
    PyObject *base = IN(batch->partition, HIGH_WATERMARK);
    PyObject *one = PyObject_CallMethod(batch->recent, "append", "O", sequence);
    PyObject *other = one == NULL ? NULL : PyObject_CallMethod(batch->recent, "append", "O", base);
    Py_XDECREF(one);
    Py_XDECREF(other);
    return other != NULL;
}

/* Append the batch that was looked at. 0: an exception is set, and the state is void. */
static inline int
append(Walk *walk, const Batch *batch, Py_ssize_t place)
{
    if (batch->entry != NULL && !note(walk, batch, place)) {
        return 0;
    }
    PyObject *slices = IN(batch->partition, SLICES);
    Py_ssize_t held = PyByteArray_Size(batch->rows);
    if (batch->partition == walk->before) {
        held -= (Py_ssize_t)sizeof(Row);
    } else if (PyByteArray_Resize(batch->rows, held + (Py_ssize_t)sizeof(Row)) < 0) {
        return 0;
    } else {
        walk->rows++;
    }
    memcpy(PyByteArray_AsString(batch->rows) + held, &batch->row, sizeof(Row));
    if (PyList_Append(walk->base_offsets, IN(batch->partition, HIGH_WATERMARK)) < 0) {
        return 0;
    }
    PyObject *end = PyLong_FromLongLong(batch->end);
    PyObject *size = PyLong_FromLongLong(batch->size_bytes + batch->of[LENGTH]);
    if (end == NULL || size == NULL) {
        Py_XDECREF(end);
        Py_XDECREF(size);
        return 0;
    }
    put(batch->partition, HIGH_WATERMARK, end);
    put(slices, SIZE_BYTES, size);
    walk->before = batch->partition;
    walk->position += batch->of[LENGTH];
    return 1;
}

/* Take the arguments apart. How many batches there are; -1: an exception is set. */
static Py_ssize_t
begun(Walk *walk, PyObject *const *given)
{
    Py_ssize_t count = -1;
    walk->partitions = given[0];
    walk->before = given[4];
    walk->now_ms = given[7];
    walk->base_offsets = given[8];
    walk->position = PyLong_AsLongLong(given[3]);
    walk->serial = PyLong_AsLongLong(given[5]);
    walk->freezes = PyLong_AsLongLong(given[6]);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (classes[PARTITION] == NULL || Py_TYPE(walk->partitions) != &PyList_Type ||
        Py_TYPE(walk->base_offsets) != &PyList_Type || Py_TYPE(given[1]) != &PyTuple_Type ||
        PyTuple_Size(given[1]) != COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "append_following() takes a list, eight columns and a list, once bound");
        return -1;
    }
    for (int column = 0; column < COLUMNS; column++) {
        PyObject *one = walk->columns[column] = PyTuple_GetItem(given[1], column);
        if (Py_TYPE(one) != &PyList_Type || (column > 0 && PyList_Size(one) != count)) {
            PyErr_Format(PyExc_TypeError, "column %d is no list as long as the others", column);
            return -1;
        }
        count = PyList_Size(one);
    }
    return count;
}

PyDoc_STRVAR(append_following_doc,
"append_following(partitions, columns, place, position, before, serial, freezes, now_ms, base_offsets, /)\n--\n\n"
"Append a chunk's batches from `place` on, up to the first that does not simply follow.\n\n"
"The place of that one, its byte position, the partition that the batch before it was appended to (or None),\n"
"and how many rows were written.");

static PyObject *
append_following(PyObject *module, PyObject *const *given, Py_ssize_t n)
{
    (void)module;
    if (n != 9) {
        return PyErr_Format(PyExc_TypeError, "append_following() takes 9 arguments, not %zd", n);
    }
    Walk walk = {0};
    Py_ssize_t place = PyLong_AsSsize_t(given[2]);
    if (place == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t count = begun(&walk, given);
    if (count < 0) {
        return NULL;
    }
    if (place < 0) {
        return PyErr_Format(PyExc_ValueError, "there is no batch %zd", place);
    }
    for (; place < count; place++) {
        Batch batch;
        int answer = look(&walk, &batch, place);
        if (answer < 0 || (answer > 0 && !append(&walk, &batch, place))) {
            return NULL;
        }
        if (answer == 0) {
            break;
        }
    }
    return Py_BuildValue("(nLOn)", place, (long long)walk.position, walk.before, walk.rows);
}

static PyMethodDef methods[] = {
    {"bind", (PyCFunction)(void (*)(void))bind, METH_FASTCALL, bind_doc},
    {"append_following", (PyCFunction)(void (*)(void))append_following, METH_FASTCALL, append_following_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "coordination.state._appending", "Batches that simply follow, appended.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__appending(void)
{
    return PyModuleDef_Init(&module);
}
