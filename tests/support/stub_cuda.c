/* A CUDA driver that does nothing: enough for kernels/triton_driver.py to load and launch on a machine without a GPU.
   It copies the last launch, parameters included, so that tests can look at it. stub_sizes: bytes of each parameter. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { unsigned gx, gy, gz, bx, by, bz, smem; void *stream; void *attrs; unsigned nattrs; } Config;
typedef struct {
    uint64_t launches, functions, attribute_calls, enters;
    unsigned gx, gy, gz, bx, smem, nattrs, cooperative;
    uint64_t stream;
    uint64_t params[64];
} Record;

Record stub_record;
int stub_count = 0;
int stub_sizes[64];
int stub_fail = 0; /* the next launch fails with this */
int stub_fault = 0; /* waiting for a stream fails with this */
int stub_waits = 0;
int stub_wrong = -1; /* this parameter is said to have a byte more */
static char context[8], module[8], function[8];

int cuInit(unsigned f) { return 0; }
int cuCtxSetCurrent(void *c) { stub_record.enters++; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : 1; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = context; return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { stub_record.attribute_calls++; return 0; }
int cuGetErrorString(int r, const char **s) { *s = "as the test asked"; return 0; }
int cuModuleGetFunction(void **f, void *m, const char *n) { *f = function; stub_record.functions++; return 0; }
int cuModuleLoadData(void **m, const void *p) { *m = module; return 0; }
int cuFuncGetParamInfo(void *f, size_t index, size_t *offset, size_t *size) {
    if (!stub_count) return 500; /* the test does not watch parameters: as a driver that does not know them */
    if (index >= (size_t)stub_count) return 1;
    *offset = 8 * index;
    *size = stub_sizes[index] + (stub_wrong == (int)index);
    return 0;
}
int cuStreamSynchronize(void *stream) { stub_waits++; return stub_fault; }
int cuLaunchKernelEx(const Config *c, void *f, void **params, void **extra) {
    if (stub_fail) { int code = stub_fail; stub_fail = 0; return code; }
    stub_record.launches++;
    stub_record.gx = c->gx; stub_record.gy = c->gy; stub_record.gz = c->gz; stub_record.bx = c->bx;
    stub_record.smem = c->smem; stub_record.nattrs = c->nattrs; stub_record.stream = (uint64_t)c->stream;
    stub_record.cooperative = c->nattrs ? *(unsigned *)c->attrs : 0;
    for (int i = 0; i < stub_count; i++) {
        stub_record.params[i] = 0;
        memcpy(&stub_record.params[i], params[i], stub_sizes[i]);
    }
    return 0;
}
