// Holds the writes of a program to segments of the log while the file $HOLD says so: for examples/stall.rs.
//
//   cc -shared -fPIC -o hold_writes.so hold_writes.c -ldl
//   HOLD=flag LD_PRELOAD=./hold_writes.so stall FOLDER flag x ...
//
// It says so by a third byte of '1', which the example writes there. $ONLY names the one thread whose writes are held.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int is_held(void) {
    char said[4] = {0};
    int file = open(getenv("HOLD"), O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t len = read(file, said, 3);
    close(file);
    return len == 3 && said[2] == '1';
}

static int is_meant(int file) {
    char link[64], path[4096], name[17] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t len = readlink(link, path, sizeof path);
    prctl(PR_GET_NAME, name);
    const char *only = getenv("ONLY");
    return len > 4 && !memcmp(path + len - 4, ".wal", 4) && (!only || !strcmp(name, only));
}

ssize_t pwrite64(int file, const void *bytes, size_t len, off64_t offset) {
    static ssize_t (*system_call)(int, const void *, size_t, off64_t);
    if (!system_call)
        *(void **)&system_call = dlsym(RTLD_NEXT, "pwrite64");
    while (is_meant(file) && is_held())
        usleep(500);
    return system_call(file, bytes, len, offset);
}
