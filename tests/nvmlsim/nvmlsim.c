/* A simulated libnvidia-ml.so.1 for carbontui's tests: the real nvidia-ml-py runs on it unchanged.
 *
 * State lives in one file, mapped by every process (NVMLSIM_STATE names it). A board's past is a list of regimes, in
 * each of which its power is a known function of time; energy, averages, the sensor and the counter are integrals of it,
 * so a getter only reads (a seqlock tells it when to read again) and no client can block another, stopped or killed.
 * Setters and the test's controls (nvmlsim_*) append regimes under a robust mutex.
 *
 * Not modelled: NVLink, accounting, vGPU calls, work queues, limits that fall back when the last client leaves.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT = 7, NOT_LOADED = 9, LOST = 15 };
enum { DEVICES = 8, REGIMES = 256, FAULTS = 16, PIDS = 8 };

typedef struct {           /* what holds from t0 on, until the next regime */
  double t0, energy_j, sensor_j; /* true and sensor-seen joules up to t0 */
  double limit_w, lock_x;  /* enforced limit (0: none), clock lock as a share of the full clock */
  double idle_w, level, period_s, duty; /* idle_w: what it draws when no kernel runs; level 0..1; square wave if period */
} Regime;

typedef struct {
  char name[96], uuid[96], mig_uuid[2][96];
  int arch, persistence, mig, lost, module_scope;
  int has_fields, has_average, has_instant, has_counter, has_power, has_limit, limit_works, lock_works, usage_is_average;
  int counter_from_sensor, permission; /* 0 anyone, 1 root, 2 nobody */
  double bare_w, parked_w, full_w, linear, limit_lag_s, window_s, tick_s, gain, counter_base_j;
  unsigned limit_min, limit_max, limit_default, limit_mw, clock_mhz, locked_mhz, writes;
  unsigned long long memory_total, memory_used;
  unsigned pids[PIDS], npids;
  unsigned count;
  Regime past[REGIMES];
} Board;

typedef struct {
  char function[64];
  int device, code; /* device -1: any */
  atomic_int left, after; /* left -1: for ever */
  int latency_ms;
} Fault;

typedef struct {
  unsigned magic, devices;
  pthread_mutex_t lock;
  atomic_uint sequence, generation; /* generation: driver loads */
  int loaded, frozen;
  double clock_s, scale, origin_s;
  Fault faults[FAULTS];
  Board boards[DEVICES];
} State;

static State *S;
static int opened = -1; /* generation this process initialised in */
static __thread int thread_device;

static double real_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static double now(void) { return S->frozen ? S->clock_s : (real_now() - S->origin_s) * S->scale + S->clock_s; }

static int attach(void) {
  if (S) return 0;
  const char *path = getenv("NVMLSIM_STATE");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return -1;
  void *m = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (m == MAP_FAILED) return -1;
  S = m;
  return 0;
}

/* ---- the physics ------------------------------------------------------------------------------------------- */

static double load_of(const Board *b, double x) { return b->linear * x + (1 - b->linear) * x * x * x; }

static double clock_share(const Board *b, const Regime *r) { /* the highest 15 MHz step that fits */
  double top = r->lock_x > 0 ? r->lock_x : 1;
  for (double mhz = floor(b->clock_mhz * top / 15) * 15; mhz > b->clock_mhz * 0.1; mhz -= 15) {
    double x = mhz / b->clock_mhz;
    if (r->limit_w <= 0 || b->parked_w + r->level * (b->full_w - b->parked_w) * load_of(b, x) <= r->limit_w) return x;
  }
  return 0.1;
}
static double busy_w(const Board *b, const Regime *r) {
  return b->parked_w + r->level * (b->full_w - b->parked_w) * load_of(b, clock_share(b, r));
}
static double on_time(const Regime *r, double t) { /* seconds with kernels running in [0, t) of the wave's own time */
  if (r->level <= 0) return 0;
  if (r->period_s <= 0) return t;
  double whole = floor(t / r->period_s), rest = t - whole * r->period_s, on = r->period_s * r->duty;
  return whole * on + (rest < on ? rest : on);
}
static double span_j(const Board *b, const Regime *r, double from, double to) { /* times relative to zero of the clock */
  double on = on_time(r, to) - on_time(r, from), off = (to - from) - on;
  return on * busy_w(b, r) + off * r->idle_w;
}
static const Regime *regime_at(const Board *b, double t) {
  unsigned n = b->count < REGIMES ? b->count : REGIMES;
  for (unsigned i = 0; i < n; i++) {
    const Regime *r = &b->past[(b->count - 1 - i) % REGIMES];
    if (r->t0 <= t || i == n - 1) return r;
  }
  return &b->past[0];
}
static double energy_at(const Board *b, double t) {
  const Regime *r = regime_at(b, t);
  return r->energy_j + span_j(b, r, r->t0, t);
}
/* the sensor sees the first window_s of each 100 ms, and takes it for the whole */
static double seen_w(const Board *b, double t) {
  double start = floor(t / 0.1 + 1e-9) * 0.1;
  if (start + b->window_s > t) start -= 0.1; /* the last complete window */
  return (energy_at(b, start + b->window_s) - energy_at(b, start)) / b->window_s;
}
static double sensor_at(const Board *b, double t) {
  const Regime *r = regime_at(b, t);
  double joules = r->sensor_j;
  for (double p = ceil(r->t0 / 0.1 - 1e-9) * 0.1; p + 0.1 <= t + 1e-9; p += 0.1) joules += 0.1 * seen_w(b, p + 0.0999);
  return joules;
}
static double counter_j(const Board *b, double t) {
  double tick = floor(t / b->tick_s + 1e-9) * b->tick_s;
  double joules = b->counter_from_sensor ? sensor_at(b, tick) : energy_at(b, tick);
  joules = joules * b->gain - b->counter_base_j;
  return joules > 0 ? joules : 0;
}
static double average_w(const Board *b, double t) { return b->gain * (energy_at(b, t) - energy_at(b, t - 1)); }

/* ---- writers ----------------------------------------------------------------------------------------------- */

static void begin(void) {
  if (pthread_mutex_lock(&S->lock) == EOWNERDEAD) pthread_mutex_consistent(&S->lock);
  if (atomic_load(&S->sequence) % 2 == 0) atomic_fetch_add(&S->sequence, 1);
}
static void end(void) {
  atomic_fetch_add(&S->sequence, 1);
  pthread_mutex_unlock(&S->lock);
}
static Regime *next_regime(Board *b, double t) { /* a copy of the last regime, starting at t */
  Regime *last = &b->past[(b->count - 1) % REGIMES], fresh = *last;
  if (t < last->t0) t = last->t0;
  fresh.energy_j = last->energy_j + span_j(b, last, last->t0, t);
  fresh.sensor_j = b->counter_from_sensor ? sensor_at(b, t) : 0;
  fresh.t0 = t;
  b->past[b->count % REGIMES] = fresh;
  return &b->past[b->count++ % REGIMES];
}
static void enforce(Board *b, unsigned mw, double t) {
  b->limit_mw = mw;
  if (b->limit_works) next_regime(b, t + b->limit_lag_s)->limit_w = mw / 1000.0;
}

/* ---- faults and entering ------------------------------------------------------------------------------------ */

static int fault(const char *function, int device) {
  for (int i = 0; i < FAULTS; i++) {
    Fault *f = &S->faults[i];
    if (!f->function[0] || fnmatch(f->function, function, 0) || (f->device >= 0 && f->device != device)) continue;
    if (atomic_load(&f->left) == 0) continue;
    if (atomic_load(&f->after) > 0) { atomic_fetch_sub(&f->after, 1); continue; }
    if (atomic_load(&f->left) > 0) atomic_fetch_sub(&f->left, 1);
    for (int waited = 0; waited < f->latency_ms && atomic_load(&f->left) != 0; waited += 20) usleep(20000);
    if (f->code) return f->code;
  }
  return OK;
}
static int enter(const char *function, void *handle, Board *copy) {
  if (attach() || opened < 0) return UNINITIALIZED;
  thread_device = (int)((uintptr_t)handle & 0xff) - 1;
  int code = fault(function, handle ? thread_device : -1);
  if (code) return code;
  if (!S->loaded) return NOT_LOADED;
  if (opened != (int)atomic_load(&S->generation)) return UNINITIALIZED;
  if (!handle) return OK;
  if (thread_device < 0 || thread_device >= (int)S->devices) return INVALID;
  for (int tries = 0; tries < 2000; tries++) { /* a writer stopped half-way holds nobody up for long */
    unsigned before = atomic_load(&S->sequence);
    if (copy) memcpy(copy, &S->boards[thread_device], sizeof *copy);
    if (before % 2 == 0 && atomic_load(&S->sequence) == before) break;
    if (tries > 1000) usleep(1);
  }
  return S->boards[thread_device].lost ? LOST : OK;
}
#define ENTER(handle)                          \
  static __thread Board board;                 \
  Board *b = &board;                           \
  int rc = enter(__func__, (void *)(handle), b); \
  (void)b;                                     \
  if (rc) return rc

/* ---- NVML --------------------------------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (attach()) return NOT_LOADED;
  int code = fault(__func__, -1);
  if (code) return code;
  if (!S->loaded) return NOT_LOADED;
  opened = (int)atomic_load(&S->generation);
  return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { opened = -1; return OK; }
const char *nvmlErrorString(int code) { static __thread char text[32]; snprintf(text, sizeof text, "simulated error %d", code); return text; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { ENTER(0); snprintf(text, size, "580.00.sim"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(0); *count = S->devices; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  ENTER(0);
  if (index >= S->devices) return INVALID;
  *handle = (void *)(uintptr_t)(index + 1);
  return S->boards[index].lost == 2 ? LOST : OK;
}
int nvmlDeviceGetName(void *h, char *text, unsigned size) { ENTER(h); snprintf(text, size, "%s", b->name); return OK; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned size) {
  ENTER(h);
  unsigned slice = (unsigned)((uintptr_t)h >> 8);
  snprintf(text, size, "%s", slice ? b->mig_uuid[(slice - 1) % 2] : b->uuid);
  return OK;
}
int nvmlDeviceGetArchitecture(void *h, unsigned *v) { ENTER(h); *v = b->arch; return OK; }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *v) { ENTER(h); *v = b->persistence; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
  ENTER(h);
  if (b->mig < 0) return NOT_SUPPORTED;
  *current = *pending = b->mig;
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *v) { ENTER(h); *v = b->mig > 0 ? 2 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **out) {
  ENTER(h);
  if (i > 1 || b->mig <= 0) return INVALID;
  *out = (void *)((uintptr_t)h | (uintptr_t)(i + 1) << 8);
  return OK;
}
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) {
  ENTER(h);
  m[0] = b->memory_total; m[2] = b->memory_used; m[1] = m[0] - m[2];
  return OK;
}
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *v) { ENTER(h); if (!b->has_limit) return NOT_SUPPORTED; *v = b->limit_mw; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *v) { ENTER(h); if (!b->has_limit) return NOT_SUPPORTED; *v = b->limit_mw; return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *v) { ENTER(h); if (!b->has_limit) return NOT_SUPPORTED; *v = b->limit_default; return OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *h, unsigned *lo, unsigned *hi) {
  ENTER(h);
  if (!b->has_limit) return NOT_SUPPORTED;
  *lo = b->limit_min; *hi = b->limit_max;
  return OK;
}
int nvmlDeviceSetPowerManagementLimit(void *h, unsigned mw) {
  ENTER(h);
  if (!b->has_limit) return NOT_SUPPORTED;
  if (b->permission == 2 || (b->permission == 1 && geteuid() != 0)) return NO_PERMISSION;
  if (mw < b->limit_min || mw > b->limit_max) return INVALID;
  begin();
  Board *real = &S->boards[thread_device];
  real->writes++;
  enforce(real, mw, now());
  end();
  return OK;
}
int nvmlDeviceSetGpuLockedClocks(void *h, unsigned lo, unsigned hi) {
  ENTER(h);
  (void)lo;
  if (b->permission == 2 || (b->permission == 1 && geteuid() != 0)) return NO_PERMISSION;
  begin();
  Board *real = &S->boards[thread_device];
  if (real->lock_works) next_regime(real, now())->lock_x = (double)hi / b->clock_mhz;
  real->locked_mhz = hi;
  end();
  return OK;
}
int nvmlDeviceResetGpuLockedClocks(void *h) {
  ENTER(h);
  if (b->permission == 2 || (b->permission == 1 && geteuid() != 0)) return NO_PERMISSION;
  begin();
  next_regime(&S->boards[thread_device], now())->lock_x = 0;
  S->boards[thread_device].locked_mhz = 0;
  end();
  return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *mj) {
  ENTER(h);
  if (!b->has_counter) return NOT_SUPPORTED;
  *mj = (unsigned long long)(counter_j(b, now()) * 1000);
  return OK;
}
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) {
  ENTER(h);
  if (!b->has_power || b->module_scope) return NOT_SUPPORTED;
  double t = now();
  *mw = (unsigned)(1000 * (b->usage_is_average ? average_w(b, t) : b->gain * seen_w(b, t)));
  return OK;
}
typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  int type, code;
  union { unsigned ui; unsigned long long ull; double d; } value;
} Field;
int nvmlDeviceGetFieldValues(void *h, int count, Field *fields) {
  ENTER(h);
  if (!b->has_fields) return NOT_SUPPORTED;
  double t = now();
  for (int i = 0; i < count; i++) {
    Field *f = &fields[i];
    int here = b->module_scope ? f->scope == 1 : f->scope == 0;
    f->code = NOT_SUPPORTED;
    f->type = 1;
    if (f->field == 83 && b->has_counter) { f->code = OK; f->type = 3; f->value.ull = (unsigned long long)(counter_j(b, t) * 1000); }
    if (f->field == 185 && b->has_average && here) { f->code = OK; f->value.ui = (unsigned)(1000 * average_w(b, t)); }
    if (f->field == 186 && b->has_instant && here) { f->code = OK; f->value.ui = (unsigned)(1000 * b->gain * seen_w(b, t)); }
  }
  return OK;
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) {
  ENTER(h);
  if (b->mig > 0) return NOT_SUPPORTED;
  double t = now();
  const Regime *r = regime_at(b, t);
  u[0] = (unsigned)(100 * (on_time(r, t) - on_time(r, t - 0.5)) / 0.5 + 0.5);
  u[1] = u[0] / 2;
  return OK;
}
int nvmlDeviceGetClockInfo(void *h, int type, unsigned *mhz) {
  ENTER(h);
  (void)type;
  const Regime *r = regime_at(b, now());
  *mhz = r->level > 0 ? (unsigned)(clock_share(b, r) * b->clock_mhz) : 345;
  return OK;
}
int nvmlDeviceGetMaxClockInfo(void *h, int type, unsigned *mhz) { ENTER(h); (void)type; *mhz = b->clock_mhz; return OK; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *c) {
  ENTER(h);
  (void)sensor;
  *c = (unsigned)(30 + 0.06 * average_w(b, now()));
  return OK;
}
static int reasons(Board *b, unsigned long long *v) {
  const Regime *r = regime_at(b, now());
  *v = r->level > 0 ? (r->limit_w > 0 && clock_share(b, r) < 0.99 * (r->lock_x > 0 ? r->lock_x : 1) ? 4 : 0) : 1;
  return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *v) { ENTER(h); return reasons(b, v); }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *v) { ENTER(h); return reasons(b, v); }
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, Process *out) {
  ENTER(h);
  unsigned room = *count;
  *count = b->npids;
  if (b->npids == 0) return OK;
  if (room < b->npids || !out) return INSUFFICIENT;
  for (unsigned i = 0; i < b->npids; i++) out[i] = (Process){b->pids[i], b->memory_used / b->npids, 0xffffffff, 0xffffffff};
  return OK;
}

/* ---- the test's controls ------------------------------------------------------------------------------------- */

int nvmlsim_create(const char *path, unsigned devices, int frozen) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(State))) return -1;
  close(fd);
  setenv("NVMLSIM_STATE", path, 1);
  if (S) munmap(S, sizeof(State));
  S = NULL;
  if (attach()) return -1;
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&S->lock, &a);
  S->loaded = 1; S->devices = devices; S->frozen = frozen; S->scale = 1; S->clock_s = 1000; S->origin_s = real_now();
  for (unsigned i = 0; i < devices; i++) {
    Board *b = &S->boards[i];
    *b = (Board){.arch = 9, .persistence = 1, .has_fields = 1, .has_average = 1, .has_instant = 1, .has_counter = 1,
                 .has_power = 1, .has_limit = 1, .limit_works = 1, .lock_works = 1, .usage_is_average = 1, .bare_w = 70, .parked_w = 118,
                 .full_w = 680, .linear = 0.4, .window_s = 0.025, .tick_s = 0.1, .gain = 1, .limit_min = 200000,
                 .limit_max = 700000, .limit_default = 700000, .limit_mw = 700000, .clock_mhz = 1980,
                 .memory_total = 80ull << 30, .count = 1};
    snprintf(b->name, sizeof b->name, "NVIDIA H100 80GB HBM3");
    snprintf(b->uuid, sizeof b->uuid, "GPU-51a0%04u-7c1d-4e55-9d3a-0000000000%02u", i, i);
    for (int k = 0; k < 2; k++) snprintf(b->mig_uuid[k], 96, "MIG-9f%02u%04d-1111-5222-8333-444444444444", i, k);
    b->past[0] = (Regime){.t0 = 0, .limit_w = 700, .idle_w = 70};
    b->past[0].energy_j = 0;
  }
  return 0;
}
void nvmlsim_advance(double seconds) { S->clock_s += seconds; }
void nvmlsim_load(int i, double level, double period_s, double duty, int context) { /* level 0: no kernels */
  begin();
  Board *b = &S->boards[i];
  Regime *r = next_regime(b, now());
  r->level = level; r->period_s = period_s; r->duty = duty; r->idle_w = context ? b->parked_w : b->bare_w;
  b->memory_used = context ? 30ull << 30 : 0;
  end();
}
void nvmlsim_pids(int i, const unsigned *pids, unsigned n) {
  begin();
  memcpy(S->boards[i].pids, pids, n * sizeof *pids);
  S->boards[i].npids = n;
  end();
}
int nvmlsim_set(int i, const char *key, double v) {
  begin();
  Board *b = &S->boards[i];
  struct { const char *key; int *place; } ints[] = {
      {"arch", &b->arch}, {"mig", &b->mig}, {"lost", &b->lost}, {"module_scope", &b->module_scope}, {"has_fields", &b->has_fields},
      {"has_average", &b->has_average}, {"has_instant", &b->has_instant}, {"has_counter", &b->has_counter},
      {"has_power", &b->has_power}, {"has_limit", &b->has_limit}, {"limit_works", &b->limit_works}, {"lock_works", &b->lock_works}, {"persistence", &b->persistence},
      {"usage_is_average", &b->usage_is_average}, {"counter_from_sensor", &b->counter_from_sensor}, {"permission", &b->permission}};
  struct { const char *key; double *place; } doubles[] = {{"gain", &b->gain}, {"tick_s", &b->tick_s}, {"window_s", &b->window_s}, {"limit_lag_s", &b->limit_lag_s}};
  int found = -1;
  for (unsigned k = 0; k < sizeof ints / sizeof *ints; k++) if (!strcmp(key, ints[k].key)) { *ints[k].place = (int)v; found = 0; }
  for (unsigned k = 0; k < sizeof doubles / sizeof *doubles; k++) if (!strcmp(key, doubles[k].key)) { *doubles[k].place = v; found = 0; }
  if (!strcmp(key, "limit_mw")) { enforce(b, (unsigned)v, now()); found = 0; } /* someone else's nvidia-smi */
  if (!strcmp(key, "reset_counter")) { b->counter_base_j = b->gain * energy_at(b, now()); found = 0; }
  end();
  return found;
}
void nvmlsim_name(int i, const char *name) { snprintf(S->boards[i].name, 96, "%s", name); }
double nvmlsim_get(int i, const char *key) {
  Board *b = &S->boards[i];
  double t = now();
  const Regime *r = regime_at(b, t);
  if (!strcmp(key, "energy_j")) return energy_at(b, t);
  if (!strcmp(key, "power_w")) return r->level > 0 ? busy_w(b, r) : r->idle_w;
  if (!strcmp(key, "limit_mw")) return b->limit_mw;
  if (!strcmp(key, "locked_mhz")) return b->locked_mhz;
  if (!strcmp(key, "writes")) return b->writes;
  if (!strcmp(key, "clock_s")) return t;
  return NAN;
}
void nvmlsim_fault(int slot, const char *function, int device, int code, int count, int after, int latency_ms) {
  Fault *f = &S->faults[slot];
  atomic_store(&f->left, 0);
  snprintf(f->function, sizeof f->function, "%s", function);
  f->device = device; f->code = code; f->latency_ms = latency_ms;
  atomic_store(&f->after, after);
  atomic_store(&f->left, count);
}
void nvmlsim_driver(int loaded, int reload) { /* reload: counters and limits as after modprobe */
  begin();
  S->loaded = loaded;
  if (reload) {
    atomic_fetch_add(&S->generation, 1);
    for (unsigned i = 0; i < S->devices; i++) {
      Board *b = &S->boards[i];
      b->counter_base_j = b->gain * energy_at(b, now());
      enforce(b, b->limit_default, now());
    }
  }
  end();
}
void nvmlsim_hold(int seconds) { begin(); sleep(seconds); end(); } /* for tests of a client stopped inside the lock */
