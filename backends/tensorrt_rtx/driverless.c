/* What a process needs in place of an NVIDIA driver to build TensorRT for RTX engines on a host that has none.
 *
 * The provider's library is linked against libcuda, libnvidia-ml and libcudart, and ONNX Runtime offers it only for
 * hardware that it finds in /sys/class/drm. In a compile-only session (provider option nv_target_sm) nothing of these
 * computes. So this file is compiled into four libraries, which LD_PRELOAD brings into one process alone: three that
 * have the drivers' names, answer what is asked before the session is in that mode, and end the process at anything
 * else; and one that shows a PCI device in /sys/class/drm. The questions were observed with version 0.5.0 of the
 * provider and ONNX Runtime 1.31.1; the layout of cudaDeviceProp is that of CUDA 13 (driver_types.h).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSED 86 /* the exit status of a process that asked for more; compiler.py knows it */
#define REFUSE(name)                                                                                                   \
    int name(void) {                                                                                                   \
        fprintf(stderr, "driverless: " #name " was called, which needs an NVIDIA driver\n");                           \
        _exit(REFUSED);                                                                                                \
    }

#ifdef SYSFS
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

#define SHOWN "/sys/class/drm"
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

/* The path to open: of the folder that stands for SHOWN, or the path itself. */
static const char *real(const char *path, char *space) {
    const char *folder = getenv("DRIVERLESS_DRM");
    size_t length = strlen(SHOWN);
    if (path == NULL || folder == NULL || strncmp(path, SHOWN, length) != 0 || (path[length] && path[length] != '/'))
        return path;
    snprintf(space, PATH_MAX, "%s%s", folder, path + length);
    return space;
}

#define REAL(path) real(path, (char[PATH_MAX]){0})
static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }
#define OPEN(function)                                                                                                 \
    int function(const char *path, int flags, ...) {                                                                   \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return NEXT(function)(REAL(path), flags, mode);                                                                \
    }
OPEN(open)
OPEN(open64)
int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return NEXT(openat)(folder, REAL(path), flags, mode);
}
DIR *opendir(const char *path) { return NEXT(opendir)(REAL(path)); }
FILE *fopen(const char *path, const char *mode) { return NEXT(fopen)(REAL(path), mode); }
FILE *fopen64(const char *path, const char *mode) { return NEXT(fopen64)(REAL(path), mode); }
int access(const char *path, int mode) { return NEXT(access)(REAL(path), mode); }
ssize_t readlink(const char *path, char *to, size_t size) { return NEXT(readlink)(REAL(path), to, size); }
char *realpath(const char *path, char *to) { return NEXT(realpath)(REAL(path), to); }
/* glibc before 2.33 has stat as __xstat, and published builds of ONNX Runtime are linked against that. */
int __xstat(int version, const char *path, struct stat *found) { return stat(REAL(path), found); }
int __xstat64(int version, const char *path, struct stat64 *found) { return stat64(REAL(path), found); }
#endif

#ifdef CUDA
REFUSE(cuCtxCreate_v4) REFUSE(cuCtxDestroy_v2) REFUSE(cuCtxGetCurrent) REFUSE(cuCtxPopCurrent_v2)
REFUSE(cuCtxPushCurrent_v2) REFUSE(cuCtxSetCurrent) REFUSE(cuDestroyExternalMemory) REFUSE(cuDestroyExternalSemaphore)
REFUSE(cuExternalMemoryGetMappedBuffer) REFUSE(cuFuncSetAttribute) REFUSE(cuGetErrorName) REFUSE(cuGetErrorString)
REFUSE(cuImportExternalMemory) REFUSE(cuImportExternalSemaphore) REFUSE(cuInit) REFUSE(cuLaunchKernel)
REFUSE(cuModuleGetFunction) REFUSE(cuModuleLoadData) REFUSE(cuModuleUnload) REFUSE(cuSignalExternalSemaphoresAsync)
REFUSE(cuStreamGetCtx) REFUSE(cuWaitExternalSemaphoresAsync)
#endif

#ifdef NVML
REFUSE(nvmlErrorString) REFUSE(nvmlInit_v2) REFUSE(nvmlShutdown) REFUSE(nvmlSystemGetDriverVersion)
#endif

#ifdef CUDART
#define PROPERTIES 1008 /* bytes of cudaDeviceProp that are cleared: all up to its last field */
int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
int cudaDeviceGetByPCIBusId(int *device, const char *bus) { return *device = 0, 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { return *value = 1, 0; }
int cudaGetDeviceProperties(char *properties, int device) {
    memset(properties, 0, PROPERTIES);
    strcpy(properties, "no device: engines are built for another one");
    *(size_t *)(properties + 288) = 24ul << 30; /* totalGlobalMem */
    *(int *)(properties + 360) = 8;             /* major, minor: the provider offers itself from 8.6 on */
    *(int *)(properties + 364) = 9;
    return 0;
}
int cudaMemPoolCreate(void **pool, void *properties) { return *pool = (void *)0x1000, 0; }
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value) { return 0; }
int cudaMemPoolDestroy(void *pool) { return 0; }
int cudaGetLastError(void) { return 0; }
REFUSE(cudaDeviceSynchronize) REFUSE(cudaEventCreateWithFlags) REFUSE(cudaEventDestroy) REFUSE(cudaEventRecord)
REFUSE(cudaEventSynchronize) REFUSE(cudaFree) REFUSE(cudaFreeAsync) REFUSE(cudaFreeHost) REFUSE(cudaGetDevice)
REFUSE(cudaGetErrorName) REFUSE(cudaGetErrorString) REFUSE(cudaGraphDestroy) REFUSE(cudaGraphExecDestroy)
REFUSE(cudaGraphInstantiate) REFUSE(cudaGraphLaunch) REFUSE(cudaHostAlloc) REFUSE(cudaHostGetDevicePointer)
REFUSE(cudaMalloc) REFUSE(cudaMallocFromPoolAsync) REFUSE(cudaMallocHost) REFUSE(cudaMemPoolGetAttribute)
REFUSE(cudaMemPoolTrimTo) REFUSE(cudaMemcpy) REFUSE(cudaMemcpyAsync) REFUSE(cudaPointerGetAttributes)
REFUSE(cudaRuntimeGetVersion) REFUSE(cudaSetDevice) REFUSE(cudaStreamBeginCapture) REFUSE(cudaStreamCreateWithFlags)
REFUSE(cudaStreamDestroy) REFUSE(cudaStreamEndCapture) REFUSE(cudaStreamSynchronize) REFUSE(cudaStreamWaitEvent)
#endif
