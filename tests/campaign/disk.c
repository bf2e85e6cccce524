/* Preloaded: a disk that is slow, fails, or knows no locks. Every write to a file below CAMPAIGN_DISK takes as many seconds
 * as the file named by CAMPAIGN_DISK_S holds (a double), and one whose path contains the text behind that (JOB/FILE; '':
 * none) fails with EIO after half of it; with CAMPAIGN_NO_LOCKS locks on those files fail, POSIX ones with
 * ENOLCK, those of flock with ENOSYS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static const volatile double *seconds;
static const char *failing = "";
static const char *below;

__attribute__((constructor)) static void open_it(void) {
  const char *path = getenv("CAMPAIGN_DISK_S");
  below = getenv("CAMPAIGN_DISK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) seconds = at, failing = (const char *)at + sizeof(double);
  close(fd);
}

static int there(int fd, char path[4096]) {
  char link[64];
  if (!below) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, 4095);
  if (length <= 0) return 0;
  path[length] = 0;
  return !strncmp(path, below, strlen(below));
}

/* Whether the path contains one of the lines. */
static int fails(int fd) {
  char path[4096], lines[4096 - sizeof(double)], *rest = lines;
  if (!*failing || !there(fd, path)) return 0;
  memcpy(lines, failing, sizeof lines - 1);
  lines[sizeof lines - 1] = 0;
  for (char *line; (line = strsep(&rest, "\n"));)
    if (*line && strstr(path, line)) return 1;
  return 0;
}

static void wait_for_it(int fd) {
  char path[4096];
  if (!seconds || *seconds <= 0 || !there(fd, path)) return;
  struct timespec left = {(time_t)*seconds, (long)((*seconds - (time_t)*seconds) * 1e9)};
  while (nanosleep(&left, &left) && errno == EINTR) {}
}

#define REAL(kind, name) \
  static kind; \
  if (!real) real = dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t (*real)(int, const void *, size_t), "write");
  wait_for_it(fd);
  if (fails(fd)) return real(fd, data, size / 2), errno = EIO, -1;
  return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  REAL(ssize_t (*real)(int, const void *, size_t, off_t), "pwrite");
  wait_for_it(fd);
  if (fails(fd)) return real(fd, data, size / 2, at), errno = EIO, -1;
  return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  REAL(ssize_t (*real)(int, const void *, size_t, off64_t), "pwrite64");
  wait_for_it(fd);
  if (fails(fd)) return real(fd, data, size / 2, at), errno = EIO, -1;
  return real(fd, data, size, at);
}

static int locks(int fd, int what) {
  char path[4096];
  return getenv("CAMPAIGN_NO_LOCKS") && (what == F_SETLK || what == F_SETLKW || what == F_GETLK) && there(fd, path);
}

int fcntl(int fd, int what, ...) {
  REAL(int (*real)(int, int, ...), "fcntl");
  va_list rest;
  va_start(rest, what);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  if (locks(fd, what)) return errno = ENOLCK, -1;
  return real(fd, what, argument);
}

int fcntl64(int fd, int what, ...) {
  REAL(int (*real)(int, int, ...), "fcntl64");
  va_list rest;
  va_start(rest, what);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  if (locks(fd, what)) return errno = ENOLCK, -1;
  return real(fd, what, argument);
}

int flock(int fd, int what) {
  REAL(int (*real)(int, int), "flock");
  if (locks(fd, F_SETLK)) return errno = ENOSYS, -1;
  return real(fd, what);
}
