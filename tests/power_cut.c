/* Records what a process does to files, as a library for LD_PRELOAD; power_cut.py replays the record.

   The record goes to the file that POWER_CUT_RECORD names. An entry is a struct of a fixed size and two byte strings.
   Files and directories are known by their inode, so that no table of descriptors is needed. Each entry is written
   after its operation has succeeded, under a lock, so that the entries of a process are in the order of its operations.
   What stdio and mappings write is not seen.
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR };

struct entry { uint32_t kind; uint32_t first; uint64_t second; uint64_t inode; uint64_t offset; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;

/* The function of the C library of this name. */
#define REAL(result, name, ...) result (*real)(__VA_ARGS__) = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("POWER_CUT_RECORD");
    REAL(int, "open", const char *, int, ...);
    if (path != NULL)
        record = real(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(uint32_t kind, uint64_t inode, uint64_t offset, const void *one, size_t n, const void *two, size_t m)
{
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    struct entry entry = {kind, (uint32_t)n, m, inode, offset};
    struct iovec parts[3] = {{&entry, sizeof entry}, {(void *)one, n}, {(void *)two, m}};
    if (record >= 0 && real(record, parts, 3) != (ssize_t)(sizeof entry + n + m))
        abort();
}

/* The inode of a regular file or a directory; 0 for anything else. */
static uint64_t inode_of(int file)
{
    struct stat found;
    int before = errno;
    uint64_t inode = 0;
    if (fstat(file, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)))
        inode = found.st_ino;
    errno = before;
    return inode;
}

/* Make a path absolute. */
static const char *absolute(int directory, const char *path, char *into)
{
    char link[64];
    ssize_t length;
    if (path[0] == '/')
        return path;
    if (directory == AT_FDCWD) {
        if (getcwd(into, PATH_MAX) == NULL)
            abort();
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        if ((length = readlink(link, into, PATH_MAX - 1)) < 0)
            abort();
        into[length] = 0;
    }
    strncat(into, "/", PATH_MAX - strlen(into) - 1);
    return strncat(into, path, PATH_MAX - strlen(into) - 1);
}

static void put_paths(uint32_t kind, uint64_t inode, uint64_t offset, int at, const char *one, int to, const char *two)
{
    char first[PATH_MAX], second[PATH_MAX];
    one = absolute(at, one, first);
    two = two == NULL ? "" : absolute(to, two, second);
    put(kind, inode, offset, one, strlen(one), two, strlen(two));
}

static int opened(int file, int directory, const char *path, int flags)
{
    if (file >= 0 && (flags & O_ACCMODE) != O_RDONLY && inode_of(file) != 0)
        put_paths(OPEN, inode_of(file), (flags & O_TRUNC) != 0, directory, path, AT_FDCWD, NULL);
    return file;
}

#define LOCKED(type, call, after) \
    pthread_mutex_lock(&lock); \
    type result = call; \
    if (result >= 0) { after; } \
    pthread_mutex_unlock(&lock); \
    return result;

#define MODE \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);

#define DEFINE_OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        MODE; \
        REAL(int, #name, const char *, int, ...); \
        LOCKED(int, real(path, flags, mode), opened(result, AT_FDCWD, path, flags)) \
    }

#define DEFINE_OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        MODE; \
        REAL(int, #name, int, const char *, int, ...); \
        LOCKED(int, real(directory, path, flags, mode), opened(result, directory, path, flags)) \
    }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

/* The entry of a write that has moved the position of the file to its end. */
static void wrote(int file, const void *data, ssize_t n)
{
    uint64_t inode = inode_of(file);
    if (inode != 0 && n > 0)
        put(WRITE, inode, (uint64_t)(lseek(file, 0, SEEK_CUR) - n), "", 0, data, (size_t)n);
}

ssize_t write(int file, const void *data, size_t n)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    LOCKED(ssize_t, real(file, data, n), wrote(file, data, result))
}

#define DEFINE_PWRITE(name) \
    ssize_t name(int file, const void *data, size_t n, off_t offset) \
    { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        LOCKED(ssize_t, real(file, data, n, offset), \
               put(WRITE, inode_of(file), (uint64_t)offset, "", 0, data, (size_t)result)) \
    }

DEFINE_PWRITE(pwrite)
DEFINE_PWRITE(pwrite64)

#define DEFINE_TRUNCATE(name) \
    int name(int file, off_t size) \
    { \
        REAL(int, #name, int, off_t); \
        LOCKED(int, real(file, size), put(TRUNCATE, inode_of(file), (uint64_t)size, "", 0, "", 0)) \
    }

DEFINE_TRUNCATE(ftruncate)
DEFINE_TRUNCATE(ftruncate64)

#define DEFINE_SYNC(name) \
    int name(int file) \
    { \
        REAL(int, #name, int); \
        LOCKED(int, real(file), put(SYNC, inode_of(file), 0, "", 0, "", 0)) \
    }

DEFINE_SYNC(fsync)
DEFINE_SYNC(fdatasync)

int renameat(int from, const char *one, int to, const char *two)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    LOCKED(int, real(from, one, to, two), put_paths(RENAME, 0, 0, from, one, to, two))
}

int rename(const char *one, const char *two)
{
    return renameat(AT_FDCWD, one, AT_FDCWD, two);
}

int linkat(int from, const char *one, int to, const char *two, int flags)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    LOCKED(int, real(from, one, to, two, flags), put_paths(LINK, 0, 0, from, one, to, two))
}

int link(const char *one, const char *two)
{
    return linkat(AT_FDCWD, one, AT_FDCWD, two, 0);
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    LOCKED(int, real(path), put_paths(UNLINK, 0, 0, AT_FDCWD, path, AT_FDCWD, NULL))
}

int mkdir(const char *path, mode_t mode)
{
    struct stat made;
    REAL(int, "mkdir", const char *, mode_t);
    LOCKED(int, real(path, mode),
           stat(path, &made); put_paths(MKDIR, made.st_ino, 0, AT_FDCWD, path, AT_FDCWD, NULL))
}
