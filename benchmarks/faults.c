/* Refuses the n-th call of the system that changes something below a folder, or that reads there.

   Preloaded; `fault_arm` begins to count, and says which of the two, at which call, with what error,
   and whether all later ones fail too, as on a full disk. An error of 0 writes, or reads, half of
   what is asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long at = -1, count = 0;
static int reading = 0, error_number = 0, lasting = 0;

void fault_arm(const char *below, int of_reads, long n, int number, int all)
{
    strncpy(folder, below, PATH_MAX - 1);
    reading = of_reads, at = n, count = 0, error_number = number, lasting = all;
}

long fault_count(void) { return count; }

static int below(const char *path)
{
    char whole[PATH_MAX];
    if (!path || !folder[0]) return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(whole, sizeof whole, "%.2000s/%.2000s", here, path);
        path = whole;
    }
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int open_below(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

static int changes(const char *path) { return !reading && below(path); }

/* Whether this call is to fail. */
static int hit(void)
{
    long now = __sync_fetch_and_add(&count, 1);
    return now == at || (lasting && at >= 0 && now > at);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define REFUSE(yes) if ((yes) && hit() && error_number) { errno = error_number; return -1; }

static int writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0; }

#define OPEN(name, before, pass) \
    int name before { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        REAL(name); REFUSE(writes(flags) != reading && below(path)) return real pass; }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at_fd, const char *path, int flags, ...), (at_fd, path, flags, mode))
OPEN(openat64, (int at_fd, const char *path, int flags, ...), (at_fd, path, flags, mode))

#define TRANSFER(name, of_reads, before, pass) \
    ssize_t name before { \
        REAL(name); \
        if (reading == of_reads && open_below(fd) && hit()) { \
            if (error_number) { errno = error_number; return -1; } \
            size = size > 1 ? size / 2 : size; } \
        return real pass; }
TRANSFER(write, 0, (int fd, const void *data, size_t size), (fd, data, size))
TRANSFER(read, 1, (int fd, void *data, size_t size), (fd, data, size))
TRANSFER(pread, 1, (int fd, void *data, size_t size, off_t from), (fd, data, size, from))
TRANSFER(pread64, 1, (int fd, void *data, size_t size, off64_t from), (fd, data, size, from))

int fsync(int fd) { REAL(fsync); REFUSE(!reading && open_below(fd)) return real(fd); }
int rename(const char *from, const char *to)
{ REAL(rename); REFUSE(changes(to)) return real(from, to); }
int renameat(int f, const char *from, int t, const char *to)
{ REAL(renameat); REFUSE(changes(to)) return real(f, from, t, to); }
int mkdir(const char *path, mode_t mode)
{ REAL(mkdir); REFUSE(changes(path)) return real(path, mode); }
int mkdirat(int at_fd, const char *path, mode_t mode)
{ REAL(mkdirat); REFUSE(changes(path)) return real(at_fd, path, mode); }
int unlink(const char *path) { REAL(unlink); REFUSE(changes(path)) return real(path); }
int rmdir(const char *path) { REAL(rmdir); REFUSE(changes(path)) return real(path); }
int chmod(const char *path, mode_t mode)
{ REAL(chmod); REFUSE(changes(path)) return real(path, mode); }
