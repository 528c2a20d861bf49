/* The time of day, moved by as many seconds as the first eight bytes of the file CHAOS_CLOCK say, in every program that
 * is started with this library preloaded.  Clocks that run evenly are the machine's.  Each process maps the file: a jump
 * takes effect everywhere at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t nowhere = 0;
static const volatile int64_t *offset = &nowhere;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (found != MAP_FAILED) offset = found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    now->tv_sec = t.tv_sec;
    now->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    if (now) *now = t.tv_sec;
    return t.tv_sec;
}
