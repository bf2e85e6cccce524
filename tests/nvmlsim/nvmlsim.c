/* A simulated libnvidia-ml.so.1 for carbontui's tests: the real nvidia-ml-py runs on it unchanged.
 *
 * State lives in one file, mapped by every process (NVMLSIM_STATE names it). A board's past is a list of regimes, in
 * each of which its power is a known function of time; energy, averages, the sensor and the counter are integrals of it,
 * so a getter only reads (a seqlock tells it when to read again) and no client can block another, stopped or killed.
 * Setters and the test's controls (nvmlsim_*) append regimes under a robust mutex; a setter that cannot have it in half
 * a second answers TIMEOUT.
 *
 * Processes live and die as /proc says: one that is stopped keeps its memory and runs no kernels but the queued ones,
 * a dead one leaves nothing. Clients of NVML and processes keep the driver up; without persistence mode it forgets
 * limits, clock locks and counters when the last of them is gone. Whoever writes next notices (or nvmlsim_reap).
 *
 * Readings can lie (garbage_w, power_zero, limit_garbage_mw, counter_gain, hold_counter) while the truth goes on; pids can be hidden as in a container (1: those of
 * the host, 2: none at all); a lost board (1; 2: without a handle; 3: but for its UUID) can come back (lost 0), after a
 * reset with its limits and counter forgotten (reset_board).
 *
 * Each process's own joules are known as well (nvmlsim_process_j): what the board draws above its idle watts by the kernels
 * each runs, its idle watts by the memory each holds.
 *
 * Not modelled: NVLink, accounting, vGPU calls, a queue of work beside an endless load on the same board.
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

enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT = 7, NOT_LOADED = 9, TIMEOUT, LOST = 15 };
enum { DEVICES = 16, REGIMES = 256, FAULTS = 16, PIDS = 8, GONE = 16, CLIENTS = 64 };
static const unsigned long long GIB = 1ull << 30;

typedef struct {           /* what holds from t0 on, until the next regime */
  double t0, energy_j, sensor_j; /* true and sensor-seen joules up to t0 */
  double limit_w, lock_x;  /* enforced limit (0: none), clock lock as a share of the full clock */
  double idle_w, level, period_s, duty; /* idle_w: what it draws when no kernel runs; level 0..1; square wave if period */
  double work_s;           /* kernel time at full clock that is queued at t0; below 0: the load has no end */
} Regime;

typedef struct { unsigned pid; unsigned long long start; } Life; /* the start time tells a pid from its next bearer */
typedef struct {
  Life life;
  unsigned long long memory;
  double level; /* kernels it runs while it is not stopped */
  double energy_j; /* its own, up to the board's booked_t */
  int stopped;
} Process;
typedef struct { unsigned pid; double energy_j; } Past; /* a process that is gone */

typedef struct {
  char name[96], uuid[96], mig_uuid[2][96];
  int arch, persistence, mig, lost, module_scope;
  int has_fields, has_average, has_instant, has_counter, has_power, has_limit, limit_works, lock_works, usage_is_average;
  int counter_from_sensor, permission; /* 0 anyone, 1 root, 2 nobody, 3 who has NVMLSIM_ADMIN */
  int power_zero, pids_hidden, limit_garbage_mw, no_process_util; /* what its answers hide or get wrong */
  int enforced_mw, smoothing, ecc, xid, xids; /* what a platform holds; errors: how many, the last Xid, how many of them */
  double garbage_w;        /* added to every reading of watts */
  double bare_w, parked_w, full_w, linear, limit_lag_s, window_s, tick_s, gain, counter_base_j, counter_gain, counter_held_j; /* counter_gain: of the counter alone; held: it stands still there */
  unsigned limit_min, limit_max, limit_default, limit_mw, clock_mhz, locked_mhz, writes;
  unsigned long long memory_total, memory_used;
  double memory_share, load_level, load_period_s, load_duty; /* load_*: kernels of nobody in particular */
  int load_context, up;    /* up: the driver keeps this board's state */
  Process processes[PIDS];
  unsigned nprocesses, ngone;
  Past gone[GONE]; /* the last of them */
  double booked_t;
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
  Life clients[CLIENTS]; /* of NVML; pid 0: free */
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
static double speed_of(const Board *b, const Regime *r) { /* of work, as a share of that at full clock */
  return 1 / ((1 - b->memory_share) / clock_share(b, r) + b->memory_share);
}
static double drained(const Board *b, const Regime *r) { return r->work_s < 0 ? INFINITY : r->t0 + r->work_s / speed_of(b, r); }
static double wave_on(const Regime *r, double t) { /* seconds with kernels running in [0, t) of the wave's own time */
  if (r->period_s <= 0) return t;
  double whole = floor(t / r->period_s), rest = t - whole * r->period_s, on = r->period_s * r->duty;
  return whole * on + (rest < on ? rest : on);
}
static double on_time(const Board *b, const Regime *r, double from, double to) {
  if (r->level <= 0) return 0;
  if (r->work_s < 0) return wave_on(r, to) - wave_on(r, from);
  return fmax(0, fmin(to, drained(b, r)) - fmax(from, r->t0));
}
static int runs(const Board *b, const Regime *r, double t) { return r->level > 0 && t < drained(b, r); }
static double span_j(const Board *b, const Regime *r, double from, double to) { /* times relative to zero of the clock */
  double on = on_time(b, r, from, to), off = (to - from) - on;
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
  joules = (joules * b->gain - b->counter_base_j) * b->counter_gain;
  return b->counter_held_j > 0 ? b->counter_held_j : joules > 0 ? joules : 0;
}
static double average_w(const Board *b, double t) { return b->gain * (energy_at(b, t) - energy_at(b, t - 1)); }
static unsigned told_mw(const Board *b, double w) { return b->power_zero ? 0 : (unsigned)(1000 * fmax(0, w + b->garbage_w)); }
static unsigned told_limit(const Board *b) { return b->limit_garbage_mw ? (unsigned)b->limit_garbage_mw : b->limit_mw; }

/* ---- writers ----------------------------------------------------------------------------------------------- */

static Regime *next_regime(Board *b, double t) { /* a copy of the last regime, starting at t */
  Regime *last = &b->past[(b->count - 1) % REGIMES], fresh = *last;
  if (t < last->t0) t = last->t0;
  fresh.energy_j = last->energy_j + span_j(b, last, last->t0, t);
  fresh.sensor_j = b->counter_from_sensor ? sensor_at(b, t) : 0;
  if (last->work_s > 0) fresh.work_s = fmax(0, last->work_s - (t - last->t0) * speed_of(b, last));
  fresh.t0 = t;
  b->past[b->count % REGIMES] = fresh;
  return &b->past[b->count++ % REGIMES];
}
static void enforce(Board *b, unsigned mw, double t) {
  b->limit_mw = mw;
  if (b->enforced_mw > 0 && (unsigned)b->enforced_mw < mw) mw = b->enforced_mw;
  if (b->limit_works) next_regime(b, t + b->limit_lag_s)->limit_w = mw / 1000.0;
}

static void forget(Board *b, double t) { /* what a driver does not keep when it is loaded anew */
  b->counter_base_j = b->gain * energy_at(b, t);
  b->locked_mhz = 0;
  next_regime(b, t)->lock_x = 0;
  enforce(b, b->limit_default, t);
}

/* ---- whose joules -------------------------------------------------------------------------------------------- */

static double own_j(const Board *b, const Process *p, double t) { /* joules of one process since booked_t */
  double level = 0, memory = 0, dt = t - b->booked_t, all = energy_at(b, t) - energy_at(b, b->booked_t);
  for (unsigned k = 0; k < b->nprocesses; k++) {
    level += b->processes[k].stopped ? 0 : b->processes[k].level;
    memory += b->processes[k].memory;
  }
  double idle = fmin(all, b->parked_w * dt), active = all - idle;
  double by_memory = memory > 0 ? p->memory / memory : 1.0 / b->nprocesses;
  double by_kernels = level > 0 ? (p->stopped ? 0 : p->level / level) : by_memory;
  return idle * by_memory + active * by_kernels;
}
static void book(Board *b, double t) { /* before the processes change */
  if (t <= b->booked_t) return;
  double own[PIDS];
  for (unsigned k = 0; k < b->nprocesses; k++) own[k] = own_j(b, &b->processes[k], t);
  for (unsigned k = 0; k < b->nprocesses; k++) b->processes[k].energy_j += own[k];
  b->booked_t = t;
}

/* ---- processes ---------------------------------------------------------------------------------------------- */

static char state_of(unsigned pid, unsigned long long *start) { /* as /proc names it; 0: there is none */
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (size <= 0) return 0;
  text[size] = 0;
  char *at = strrchr(text, ')'), state = 0; /* the name may hold anything, parentheses too */
  if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, start) != 2) return 0;
  return state == 'Z' || state == 'X' ? 0 : state;
}
static char state_now(const Life *life) {
  unsigned long long start;
  char state = state_of(life->pid, &start);
  return start == life->start ? state : 0;
}
static void settle(Board *b, double t) { /* kernels, memory and idle watts of those who are there now */
  double level = 0;
  int context = b->load_context;
  b->memory_used = context ? 30 * GIB : 0;
  for (unsigned k = 0; k < b->nprocesses; k++) {
    context = 1;
    b->memory_used += b->processes[k].memory;
    if (!b->processes[k].stopped) level += b->processes[k].level;
  }
  Regime *r = next_regime(b, t);
  r->idle_w = context ? b->parked_w : b->bare_w;
  if (level <= 0 && b->load_level <= 0 && context && r->work_s >= 0) return; /* what is queued runs on */
  r->work_s = b->load_level > 0 || level > 0 ? -1 : 0;
  r->level = fmin(1, level + b->load_level);
  r->period_s = level > 0 ? 0 : b->load_period_s;
  r->duty = b->load_duty;
}
static void reap(void) { /* under the lock: who stopped, went on or died since the last writer */
  unsigned clients = 0;
  double t = now();
  for (int i = 0; i < CLIENTS; i++)
    if (S->clients[i].pid) {
      if (state_now(&S->clients[i])) clients++;
      else S->clients[i].pid = 0;
    }
  for (unsigned i = 0; i < S->devices; i++) {
    Board *b = &S->boards[i];
    unsigned kept = 0, changed = 0;
    book(b, t);
    for (unsigned k = 0; k < b->nprocesses; k++) {
      Process p = b->processes[k];
      char state = state_now(&p.life);
      int stopped = state == 'T' || state == 't';
      changed += !state || stopped != p.stopped;
      p.stopped = stopped;
      if (state) b->processes[kept++] = p;
      else b->gone[b->ngone++ % GONE] = (Past){p.life.pid, p.energy_j};
    }
    b->nprocesses = kept;
    if (changed) settle(b, t);
    int up = b->persistence || clients || kept;
    if (b->up && !up) forget(b, t);
    b->up = up;
  }
}
static int begin(void) {
  struct timespec due;
  clock_gettime(CLOCK_REALTIME, &due);
  due.tv_nsec += 500000000;
  if (due.tv_nsec >= 1000000000) { due.tv_nsec -= 1000000000; due.tv_sec++; }
  int rc = pthread_mutex_timedlock(&S->lock, &due);
  if (rc == ETIMEDOUT) return TIMEOUT;
  if (rc == EOWNERDEAD) pthread_mutex_consistent(&S->lock);
  if (atomic_load(&S->sequence) % 2 == 0) atomic_fetch_add(&S->sequence, 1);
  reap();
  return OK;
}
static void end(void) {
  atomic_fetch_add(&S->sequence, 1);
  pthread_mutex_unlock(&S->lock);
}
static void enlist(int present) { /* this process as a client of NVML */
  unsigned pid = getpid();
  for (int i = 0; i < CLIENTS; i++) if (S->clients[i].pid == pid) S->clients[i].pid = 0;
  for (int i = 0; i < CLIENTS && present; i++)
    if (!S->clients[i].pid) {
      Life *life = &S->clients[i];
      life->pid = pid;
      state_of(pid, &life->start);
      break;
    }
  reap();
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
  if (S->boards[thread_device].lost == 3 && !strcmp(function, "nvmlDeviceGetUUID")) return OK;
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
  if ((code = begin())) return code;
  enlist(1);
  end();
  opened = (int)atomic_load(&S->generation);
  return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  if (opened < 0) return UNINITIALIZED;
  opened = -1;
  if (begin()) return OK;
  enlist(0);
  end();
  return OK;
}
const char *nvmlErrorString(int code) { static __thread char text[32]; snprintf(text, sizeof text, "simulated error %d", code); return text; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { ENTER(0); snprintf(text, size, "580.00.sim"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(0); *count = S->devices; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  ENTER(0);
  if (index >= S->devices) return INVALID;
  *handle = (void *)(uintptr_t)(index + 1);
  return S->boards[index].lost == 2 ? LOST : OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  ENTER(0);
  for (unsigned i = 0; i < S->devices; i++)
    if (!strcmp(uuid, S->boards[i].uuid)) {
      *handle = (void *)(uintptr_t)(i + 1);
      return S->boards[i].lost == 2 ? LOST : OK;
    }
  return 6; /* not found */
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
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *v) { ENTER(h); if (!b->has_limit) return NOT_SUPPORTED; *v = told_limit(b); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *v) {
  ENTER(h);
  if (!b->has_limit) return NOT_SUPPORTED;
  *v = told_limit(b);
  if (b->enforced_mw > 0 && (unsigned)b->enforced_mw < *v) *v = b->enforced_mw;
  return OK;
}
int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, unsigned long long *v) {
  ENTER(h);
  (void)counter;
  *v = type == 1 ? b->ecc : 0;
  return OK;
}
static int xids_heard[DEVICES]; /* of this process */
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } Event;
int nvmlEventSetCreate(void **set) { ENTER(0); *set = xids_heard; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) {
  ENTER(h);
  (void)types, (void)set;
  xids_heard[thread_device] = b->xids;
  return OK;
}
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
  ENTER(0);
  (void)set, (void)timeout_ms;
  for (unsigned i = 0; i < S->devices; i++) {
    if (S->boards[i].xids <= xids_heard[i]) continue;
    xids_heard[i]++;
    *event = (Event){(void *)(uintptr_t)(i + 1), 8, S->boards[i].xid, ~0u, ~0u};
    return OK;
  }
  return TIMEOUT;
}
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *v) { ENTER(h); if (!b->has_limit) return NOT_SUPPORTED; *v = b->limit_default; return OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *h, unsigned *lo, unsigned *hi) {
  ENTER(h);
  if (!b->has_limit) return NOT_SUPPORTED;
  *lo = b->limit_min; *hi = b->limit_max;
  return OK;
}
static int forbidden(const Board *b) {
  return b->permission == 2 || (b->permission == 1 && geteuid() != 0) || (b->permission == 3 && !getenv("NVMLSIM_ADMIN"));
}
int nvmlDeviceSetPowerManagementLimit(void *h, unsigned mw) {
  ENTER(h);
  if (!b->has_limit) return NOT_SUPPORTED;
  if (forbidden(b)) return NO_PERMISSION;
  if (mw < b->limit_min || mw > b->limit_max) return INVALID;
  if ((rc = begin())) return rc;
  Board *real = &S->boards[thread_device];
  real->writes++;
  enforce(real, mw, now());
  end();
  return OK;
}
int nvmlDeviceSetGpuLockedClocks(void *h, unsigned lo, unsigned hi) {
  ENTER(h);
  (void)lo;
  if (forbidden(b)) return NO_PERMISSION;
  if ((rc = begin())) return rc;
  Board *real = &S->boards[thread_device];
  if (real->lock_works) next_regime(real, now())->lock_x = (double)hi / b->clock_mhz;
  real->locked_mhz = hi;
  end();
  return OK;
}
int nvmlDeviceResetGpuLockedClocks(void *h) {
  ENTER(h);
  if (forbidden(b)) return NO_PERMISSION;
  if ((rc = begin())) return rc;
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
  *mw = told_mw(b, b->usage_is_average ? average_w(b, t) : b->gain * seen_w(b, t));
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
    if (f->field == 185 && b->has_average && here) { f->code = OK; f->value.ui = told_mw(b, average_w(b, t)); }
    if (f->field == 251) { f->code = OK; f->value.ui = b->smoothing; }
    if (f->field == 186 && b->has_instant && here) { f->code = OK; f->value.ui = told_mw(b, b->gain * seen_w(b, t)); }
  }
  return OK;
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) {
  ENTER(h);
  if (b->mig > 0) return NOT_SUPPORTED;
  double t = now();
  const Regime *r = regime_at(b, t);
  u[0] = (unsigned)(100 * on_time(b, r, t - 0.5, t) / 0.5 + 0.5);
  u[1] = u[0] / 2;
  return OK;
}
int nvmlDeviceGetClockInfo(void *h, int type, unsigned *mhz) {
  ENTER(h);
  (void)type;
  double t = now();
  const Regime *r = regime_at(b, t);
  *mhz = runs(b, r, t) ? (unsigned)(clock_share(b, r) * b->clock_mhz) : 345;
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
  double t = now();
  const Regime *r = regime_at(b, t);
  *v = runs(b, r, t) ? (r->limit_w > 0 && clock_share(b, r) < 0.99 * (r->lock_x > 0 ? r->lock_x : 1) ? 4 : 0) : 1;
  return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *v) { ENTER(h); return reasons(b, v); }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *v) { ENTER(h); return reasons(b, v); }
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } ProcessInfo;
static unsigned told_pid(const Board *b, const Process *p) { return p->life.pid + (b->pids_hidden == 1 ? 0x600000 : 0); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, ProcessInfo *out) {
  ENTER(h);
  unsigned room = *count, n = 0;
  for (unsigned i = 0; i < b->nprocesses && b->pids_hidden != 2; i++) {
    const Process *p = &b->processes[i];
    if (!state_now(&p->life)) continue; /* dead, and nobody has written since */
    if (n < room && out) out[n] = (ProcessInfo){told_pid(b, p), p->memory, 0xffffffff, 0xffffffff};
    n++;
  }
  *count = n;
  return n > room ? INSUFFICIENT : OK;
}
typedef struct { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; } Utilization;
int nvmlDeviceGetProcessUtilization(void *h, Utilization *out, unsigned *count, unsigned long long last_seen_us) {
  ENTER(h);
  (void)last_seen_us;
  unsigned room = *count, n = 0;
  double t = now(), level = 0;
  if (b->mig > 0 || b->no_process_util) return NOT_SUPPORTED;
  for (unsigned i = 0; i < b->nprocesses; i++) level += b->processes[i].stopped ? 0 : b->processes[i].level;
  for (unsigned i = 0; i < b->nprocesses && b->pids_hidden != 2; i++) {
    const Process *p = &b->processes[i];
    if (!state_now(&p->life)) continue;
    double share = p->stopped ? 0 : p->level / fmax(1, level);
    if (n < room && out) out[n] = (Utilization){told_pid(b, p), (unsigned long long)(t * 1e6), (unsigned)(100 * share + 0.5), (unsigned)(50 * share + 0.5), 0, 0};
    n++;
  }
  *count = n;
  return n > room ? INSUFFICIENT : OK;
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
                 .full_w = 680, .linear = 0.4, .memory_share = 0.3, .up = 1, .window_s = 0.025, .tick_s = 0.1, .gain = 1, .counter_gain = 1, .limit_min = 200000,
                 .limit_max = 700000, .limit_default = 700000, .limit_mw = 700000, .clock_mhz = 1980,
                 .memory_total = 80 * GIB, .count = 1};
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
  b->load_level = level; b->load_period_s = period_s; b->load_duty = duty; b->load_context = context;
  settle(b, now());
  end();
}
int nvmlsim_process(int i, unsigned pid, unsigned long long memory, double level) { /* it has a context from now on */
  begin();
  Board *b = &S->boards[i];
  Process p = {.life.pid = pid, .memory = memory, .level = level};
  char state = state_of(pid, &p.life.start);
  p.stopped = state == 'T';
  unsigned k = 0;
  while (k < b->nprocesses && b->processes[k].life.pid != pid) k++;
  int found = state && k < PIDS;
  if (found) {
    p.energy_j = k < b->nprocesses ? b->processes[k].energy_j : 0;
    b->processes[k] = p;
    if (k == b->nprocesses) b->nprocesses++;
    b->up = 1;
    settle(b, now());
  }
  end();
  return found ? 0 : -1;
}
int nvmlsim_submit(int i, double level, double seconds) { /* kernel time at full clock, behind what is queued */
  begin();
  Board *b = &S->boards[i];
  Regime *r = next_regime(b, now());
  int idle = r->level <= 0 || r->work_s >= 0;
  if (idle) {
    r->level = level;
    r->work_s = fmax(0, r->work_s) + seconds;
  }
  end();
  return idle ? 0 : -1;
}
double nvmlsim_process_j(int i, unsigned pid) { /* the joules that were this process's own so far */
  begin(); /* which books */
  Board *b = &S->boards[i];
  double found = NAN;
  for (unsigned k = 0; k < GONE && k < b->ngone; k++) if (b->gone[k].pid == pid) found = b->gone[k].energy_j;
  for (unsigned k = 0; k < b->nprocesses; k++) if (b->processes[k].life.pid == pid) found = b->processes[k].energy_j;
  end();
  return found;
}
void nvmlsim_reap(void) { begin(); end(); }
int nvmlsim_set(int i, const char *key, double v) {
  begin();
  Board *b = &S->boards[i];
  struct { const char *key; int *place; } ints[] = {
      {"arch", &b->arch}, {"mig", &b->mig}, {"lost", &b->lost}, {"module_scope", &b->module_scope}, {"has_fields", &b->has_fields},
      {"has_average", &b->has_average}, {"has_instant", &b->has_instant}, {"has_counter", &b->has_counter},
      {"has_power", &b->has_power}, {"has_limit", &b->has_limit}, {"limit_works", &b->limit_works}, {"lock_works", &b->lock_works}, {"persistence", &b->persistence},
      {"usage_is_average", &b->usage_is_average}, {"counter_from_sensor", &b->counter_from_sensor}, {"permission", &b->permission}, {"power_zero", &b->power_zero},
      {"pids_hidden", &b->pids_hidden}, {"limit_garbage_mw", &b->limit_garbage_mw}, {"limit_default", (int *)&b->limit_default}, {"no_process_util", &b->no_process_util},
      {"smoothing", &b->smoothing}, {"ecc", &b->ecc}, {"limit_min", (int *)&b->limit_min}, {"limit_max", (int *)&b->limit_max}};
  struct { const char *key; double *place; } doubles[] = {{"gain", &b->gain}, {"counter_gain", &b->counter_gain}, {"tick_s", &b->tick_s}, {"window_s", &b->window_s}, {"limit_lag_s", &b->limit_lag_s}, {"garbage_w", &b->garbage_w}};
  int found = -1;
  for (unsigned k = 0; k < sizeof ints / sizeof *ints; k++) if (!strcmp(key, ints[k].key)) { *ints[k].place = (int)v; found = 0; }
  for (unsigned k = 0; k < sizeof doubles / sizeof *doubles; k++) if (!strcmp(key, doubles[k].key)) { *doubles[k].place = v; found = 0; }
  if (!strcmp(key, "limit_mw")) { enforce(b, (unsigned)v, now()); found = 0; } /* someone else's nvidia-smi */
  if (!strcmp(key, "enforced_mw")) { b->enforced_mw = (int)v; enforce(b, b->limit_mw, now()); found = 0; } /* a controller's */
  if (!strcmp(key, "xid")) { b->xid = (int)v; b->xids++; found = 0; }
  if (!strcmp(key, "reset_counter")) { b->counter_base_j = b->gain * energy_at(b, now()); found = 0; }
  if (!strcmp(key, "hold_counter")) { b->counter_held_j = 0; b->counter_held_j = v ? counter_j(b, now()) : 0; found = 0; }
  if (!strcmp(key, "reset_board")) { b->lost = 0; forget(b, now()); found = 0; } /* back on the bus after nvidia-smi -r */
  end();
  return found;
}
void nvmlsim_name(int i, const char *name) { snprintf(S->boards[i].name, 96, "%s", name); }
double nvmlsim_get(int i, const char *key) {
  Board *b = &S->boards[i];
  double t = now();
  const Regime *r = regime_at(b, t);
  if (!strcmp(key, "energy_j")) return energy_at(b, t);
  if (!strcmp(key, "power_w")) return runs(b, r, t) ? busy_w(b, r) : r->idle_w;
  if (!strcmp(key, "limit_mw")) return b->limit_mw;
  if (!strcmp(key, "locked_mhz")) return b->locked_mhz;
  if (!strcmp(key, "writes")) return b->writes;
  if (!strcmp(key, "speed")) return runs(b, r, t) ? speed_of(b, r) : 0; /* of work, as a share of that at full clock */
  if (!strcmp(key, "memory_b")) return b->memory_used;
  if (!strcmp(key, "queued_s")) return r->work_s > 0 ? fmax(0, r->work_s - (t - r->t0) * speed_of(b, r)) : 0;
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
    for (unsigned i = 0; i < S->devices; i++) forget(&S->boards[i], now());
  }
  end();
}
void nvmlsim_hold(int seconds) { if (!attach() && !begin()) { sleep(seconds); end(); } } /* a client inside the lock */
