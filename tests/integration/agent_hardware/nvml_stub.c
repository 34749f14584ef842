/* Stands in for libnvidia-ml.so.1, so that the real Python binding can be tested without a GPU.

   What it does is told by the file that STUB_STATE names, which is read at every call, so that a
   running process sees changes. Each line is KEY=VALUE:

     gpus=N           how many GPUs there are (2 at most, default 1)
     mig=1            GPU 0 is split: GPU instance 3 with one compute instance, 5 with two
     gpm=1            the GPUs have GPM
     xid=N:I:X:G      event number N happens: XID X on GPU I, GPU instance G (-1 = none)
     FUNCTION=CODE    FUNCTION returns CODE; FUNCTION@I=CODE only for GPU I
     FUNCTION=hang    FUNCTION comes back when this line is gone; =crash it never does
     metric.M=CODE    GPM metric M has no figure, for the reason CODE

   What is not here the binding reports as "function not found". -DNEWER adds what newer drivers have.
   How many GPM samples are allocated stands in the file STUB_STATE.samples. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int uint;
typedef unsigned long long u64;

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 2, MIG_DEVICES = 3 };

/* A handle: a GPU, or one of its MIG devices. */
struct device { int gpu; int mig; };
static struct device gpus[MOST_GPUS] = {{0, -1}, {1, -1}};
static struct device migs[MIG_DEVICES] = {{0, 0}, {0, 1}, {0, 2}};
static const int mig_instances[MIG_DEVICES] = {3, 5, 5};

static int read_state(const char *key, char *value, size_t size) {
    const char *path = getenv("STUB_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != '=') continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(value, size, "%s", line + length + 1);
        found = 1;
    }
    fclose(file);
    return found;
}

static int number(const char *key, int otherwise) {
    char value[64];
    return read_state(key, value, sizeof value) ? atoi(value) : otherwise;
}

/* What a function returns before it does anything; OK = go on. */
static int told(const char *function, const void *handle) {
    const struct device *device = handle;
    char key[128], value[64];
    for (;;) {
        int found = 0;
        if (device) {
            snprintf(key, sizeof key, "%s@%d", function, device->gpu);
            found = read_state(key, value, sizeof value);
        }
        if (!found) found = read_state(function, value, sizeof value);
        if (!found) return OK;
        if (!strcmp(value, "crash")) raise(SIGSEGV);
        if (strcmp(value, "hang")) return atoi(value);
        usleep(5000);
    }
}

#define TOLD(handle) do { int code = told(__func__, handle); if (code) return code; } while (0)
#define WHOLE_GPU(handle) do { TOLD(handle); if (((struct device *)(handle))->mig >= 0) return NOT_SUPPORTED; } while (0)

const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlInitWithFlags(uint flags) { (void)flags; TOLD(NULL); return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *out, uint size) { TOLD(NULL); snprintf(out, size, "999.1"); return OK; }
int nvmlSystemGetNVMLVersion(char *out, uint size) { TOLD(NULL); snprintf(out, size, "13.999"); return OK; }
int nvmlDeviceGetCount_v2(uint *count) { TOLD(NULL); *count = (uint)number("gpus", 1); return OK; }

int nvmlDeviceGetHandleByIndex_v2(uint index, struct device **handle) {
    if (index >= MOST_GPUS) return NOT_FOUND;
    TOLD(&gpus[index]);
    *handle = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(struct device *d, char *out, uint size) {
    TOLD(d);
    if (d->mig >= 0) snprintf(out, size, "MIG-stub-%d", d->mig);
    else snprintf(out, size, "GPU-stub-%d", d->gpu);
    return OK;
}

int nvmlDeviceGetName(struct device *d, char *out, uint size) {
    TOLD(d);
    snprintf(out, size, d->mig >= 0 ? "Stub GPU MIG 1g.10gb" : "Stub GPU");
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct device *d, uint *rates) {
    WHOLE_GPU(d);
    if (d->gpu == 0 && number("mig", 0)) return NOT_SUPPORTED;
    rates[0] = 42;
    rates[1] = 17;
    return OK;
}

struct memory { uint version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory *m) {
    TOLD(d);
    u64 share = d->mig >= 0 ? 4 : 1;
    m->total = (1000ULL << 20) / share;
    m->reserved = (200ULL << 20) / share;
    m->used = ((d->mig >= 0 ? 400ULL : 200ULL) << 20) / share;
    m->free = m->total - m->reserved - m->used;
    return OK;
}

int nvmlDeviceGetTemperature(struct device *d, int sensor, uint *t) { (void)sensor; WHOLE_GPU(d); *t = 71; return OK; }
int nvmlDeviceGetPowerUsage(struct device *d, uint *mw) { WHOLE_GPU(d); *mw = 123456; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(struct device *d, uint *mw) { WHOLE_GPU(d); *mw = 400000; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, u64 *bits) { WHOLE_GPU(d); *bits = 0x40; return OK; }
int nvmlDeviceGetPcieReplayCounter(struct device *d, uint *n) { WHOLE_GPU(d); *n = 9; return OK; }

int nvmlDeviceGetTotalEccErrors(struct device *d, int kind, int counter, u64 *n) {
    (void)counter;
    WHOLE_GPU(d);
    *n = kind ? 2 : 5;
    return OK;
}

int nvmlDeviceGetRemappedRows(struct device *d, uint *corrected, uint *uncorrected, uint *pending, uint *failed) {
    WHOLE_GPU(d);
    *corrected = 1;
    *uncorrected = 2;
    *pending = 1;
    *failed = 0;
    return OK;
}

#ifdef NEWER
struct temperature { uint version; uint sensor; int celsius; };
int nvmlDeviceGetTemperatureV(struct device *d, struct temperature *t) { WHOLE_GPU(d); t->celsius = 72; return OK; }
struct margin { uint version; int celsius; };
int nvmlDeviceGetMarginTemperature(struct device *d, struct margin *m) { WHOLE_GPU(d); m->celsius = 13; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, u64 *bits) { WHOLE_GPU(d); *bits = 0x4; return OK; }
#endif

int nvmlDeviceGetMigMode(struct device *d, uint *current, uint *pending) {
    WHOLE_GPU(d);
    *current = *pending = d->gpu == 0 && number("mig", 0);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *d, uint *count) { TOLD(d); *count = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, uint index, struct device **handle) {
    TOLD(d);
    if (index >= MIG_DEVICES) return NOT_FOUND;
    *handle = &migs[index];
    return OK;
}

int nvmlDeviceGetGpuInstanceId(struct device *d, uint *id) { TOLD(d); *id = (uint)mig_instances[d->mig]; return OK; }

struct process { uint pid; u64 memory; uint instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, uint *count, struct process *out) {
    TOLD(d);
    uint size = *count;
    *count = 2;
    if (!out || size < 2) return INSUFFICIENT_SIZE;
    out[0] = (struct process){(uint)(d->gpu ? 4000 + d->gpu : number("pid", 4000)), 1, 0, 0};
    out[1] = (struct process){(uint)(5000 + d->mig), 1, 0, 0};
    return OK;
}

/* GPM */
struct support { uint version, supported; };
struct metric { uint id; int code; double value; const char *names[3]; };
struct metrics { uint version, count; void *first, *second; struct metric metrics[]; };
struct sample { int taken; int instance; };
static int samples;

static void write_samples(void) {
    char path[512];
    const char *state = getenv("STUB_STATE");
    snprintf(path, sizeof path, "%s.samples", state ? state : "/dev/null");
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%d", samples);
    fclose(file);
}

int nvmlGpmQueryDeviceSupport(struct device *d, struct support *s) { TOLD(d); s->supported = (uint)number("gpm", 0); return OK; }

int nvmlGpmSampleAlloc(struct sample **sample) {
    TOLD(NULL);
    *sample = calloc(1, sizeof **sample);
    samples++;
    write_samples();
    return OK;
}

int nvmlGpmSampleFree(struct sample *sample) {
    free(sample);
    samples--;
    write_samples();
    return OK;
}

int nvmlGpmSampleGet(struct device *d, struct sample *s) { TOLD(d); s->taken = 1; s->instance = -1; return OK; }

int nvmlGpmMigSampleGet(struct device *d, uint instance, struct sample *s) {
    TOLD(d);
    s->taken = 1;
    s->instance = (int)instance;
    return OK;
}

int nvmlGpmMetricsGet(struct metrics *m) {
    TOLD(NULL);
    struct sample *first = m->first, *second = m->second;
    if (m->version != 1 || first == second || !first->taken || !second->taken) return NOT_SUPPORTED;
    for (uint i = 0; i < m->count; i++) {
        char key[32];
        uint id = m->metrics[i].id;
        snprintf(key, sizeof key, "metric.%u", id);
        m->metrics[i].code = number(key, OK);
        m->metrics[i].value = id == 2 ? 80.25 : id == 5 ? 41.5 : id == 10 ? 61.0 : -1.0;
        if (second->instance >= 0) m->metrics[i].value += second->instance;
    }
    return OK;
}

/* Events */
struct event { struct device *device; u64 type, data; uint instance, compute_instance; };
static int registered, last_event = -1;

int nvmlEventSetCreate(void **set) { TOLD(NULL); registered = 0; *set = &registered; return OK; }
int nvmlEventSetFree(void *set) { (void)set; registered = 0; return OK; }

int nvmlDeviceRegisterEvents(struct device *d, u64 types, void *set) {
    TOLD(d);
    (void)set;
    if (types & 8) registered |= 1 << d->gpu;
    /* What happened before counts for nothing. */
    last_event = number("xid", -1);
    return OK;
}

int nvmlEventSetWait_v2(void *set, struct event *event, uint timeout_ms) {
    (void)set;
    for (uint waited = 0; waited < timeout_ms; waited += 5) {
        int n, gpu, xid, instance;
        char value[64];
        TOLD(NULL);
        if (read_state("xid", value, sizeof value) && sscanf(value, "%d:%d:%d:%d", &n, &gpu, &xid, &instance) == 4
            && n != last_event && gpu < MOST_GPUS && (registered & 1 << gpu)) {
            last_event = n;
            *event = (struct event){&gpus[gpu], 8, (u64)xid, (uint)instance, 0xFFFFFFFF};
            return OK;
        }
        usleep(5000);
    }
    return TIMEOUT;
}
