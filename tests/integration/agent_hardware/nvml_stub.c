/* Stands in for libnvidia-ml.so.1, so that the real Python binding can be tested without a GPU.
   One GPU; STUB_LOST=1 in the environment makes it fall off the bus. What is not here the binding
   reports as "function not found". */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };
typedef unsigned int uint;
typedef unsigned long long u64;

int nvmlInitWithFlags(uint flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlDeviceGetCount_v2(uint *count) { *count = 1; return OK; }

int nvmlDeviceGetHandleByIndex_v2(uint index, void **handle) {
    (void)index;
    *handle = (void *)1;
    return getenv("STUB_LOST") ? GPU_IS_LOST : OK;
}

int nvmlDeviceGetUUID(void *h, char *out, uint size) { (void)h; strncpy(out, "GPU-stub", size); return OK; }
int nvmlDeviceGetName(void *h, char *out, uint size) { (void)h; strncpy(out, "Stub GPU", size); return OK; }

int nvmlDeviceGetUtilizationRates(void *h, uint *rates) {
    (void)h;
    rates[0] = 42;
    rates[1] = 17;
    return OK;
}

struct memory_v2 { uint version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *h, struct memory_v2 *m) {
    (void)h;
    m->total = 1000ULL << 20;
    m->reserved = 200ULL << 20;
    m->free = 600ULL << 20;
    m->used = 200ULL << 20;
    return OK;
}

int nvmlDeviceGetTemperature(void *h, int sensor, uint *t) { (void)h; (void)sensor; *t = 71; return OK; }
int nvmlDeviceGetPowerUsage(void *h, uint *mw) { (void)h; *mw = 123456; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, uint *mw) { (void)h; *mw = 400000; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, u64 *bits) { (void)h; *bits = 0x40; return OK; }
int nvmlDeviceGetPcieReplayCounter(void *h, uint *n) { (void)h; *n = 9; return OK; }

int nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, u64 *n) {
    (void)h, (void)kind, (void)counter, (void)n;
    return NOT_SUPPORTED;
}
