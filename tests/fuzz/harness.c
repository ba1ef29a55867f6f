/* The entry point of libFuzzer. It loads the compiled targets (MOSQ_FUZZ_MODULE) from MOSQ_FUZZ_PATH and calls one of them
   (MOSQ_FUZZ_TARGET) for each input. An embedded Python only initialises the Cython modules. */
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t (*target_fn)(const uint8_t *, size_t);

static target_fn target;
static volatile uint64_t sink;

static void give_up(const char *what)
{
    if (PyErr_Occurred()) PyErr_Print();
    fprintf(stderr, "harness: %s\n", what);
    exit(2);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *path = getenv("MOSQ_FUZZ_PATH"), *module = getenv("MOSQ_FUZZ_MODULE"), *name = getenv("MOSQ_FUZZ_TARGET");
    PyObject *where, *loaded, *functions, *capsule;

    (void)argc, (void)argv;
    if (!path || !module || !name) give_up("MOSQ_FUZZ_PATH, MOSQ_FUZZ_MODULE and MOSQ_FUZZ_TARGET must be set");
    Py_InitializeEx(0);
    where = PyUnicode_DecodeFSDefault(path);
    if (!where || PyList_Insert(PySys_GetObject("path"), 0, where)) give_up("no path");
    loaded = PyImport_ImportModule(module);
    functions = loaded ? PyObject_GetAttrString(loaded, "__pyx_capi__") : NULL;
    capsule = functions ? PyDict_GetItemString(functions, name) : NULL;
    if (!capsule) give_up("no such target");
    target = (target_fn)PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (!target) give_up("a target without an address");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    sink += target(p, n);
    return 0;
}
