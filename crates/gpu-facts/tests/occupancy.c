/* Prints what CUDA's occupancy calculator says, for the test of `Occupancy`: the table `occupancy.txt`, of the compute capabilities that
 * `Limits` has.
 *
 *     cc -I <CUDA's include directory> occupancy.c -o occupancy && ./occupancy > occupancy.txt
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "cuda_occupancy.h"

struct gpu { int major, minor, threads, shared_kib; };

static const struct gpu GPUS[] = {
    {8, 0, 2048, 164}, {8, 6, 1536, 100}, {8, 7, 1536, 164}, {8, 9, 1536, 100}, {9, 0, 2048, 228},
    {10, 0, 2048, 228}, {10, 3, 2048, 228}, {11, 0, 1536, 228}, {12, 0, 1536, 100}, {12, 1, 1536, 100},
};
static const int THREADS[] = {1, 32, 33, 64, 96, 128, 160, 256, 288, 384, 416, 512, 768, 1024};
static const int REGISTERS[] = {0, 16, 24, 32, 33, 40, 56, 64, 65, 96, 128, 168, 255};
static const int SHARED[] = {0, 1, 1024, 7168, 9216, 16000, 49152, 50000, 101376, 166912, 200000, 232448};
static const int BARRIERS[] = {0, 1, 3, 16};

#define EACH(item, list) for (unsigned item = 0; item < sizeof list / sizeof *list; item++)

int main(void) {
    printf("# By cuda_occupancy.h of CUDA 13.0: major, minor, threads, registers, shared bytes, barriers, blocks, limits\n");
    unsigned count = 0;
    EACH(g, GPUS) EACH(t, THREADS) EACH(r, REGISTERS) EACH(s, SHARED) EACH(b, BARRIERS) {
        /* One in 61, a step that meets all values. */
        if (count++ % 61) continue;
        const struct gpu gpu = GPUS[g];
        cudaOccDeviceProp device;
        memset(&device, 0, sizeof device);
        device.computeMajor = gpu.major;
        device.computeMinor = gpu.minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = gpu.threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 << 10;
        device.sharedMemPerMultiprocessor = gpu.shared_kib << 10;
        device.numSms = 1;
        device.reservedSharedMemPerBlock = 1 << 10;
        device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - device.reservedSharedMemPerBlock;
        cudaOccFuncAttributes kernel;
        memset(&kernel, 0, sizeof kernel);
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = REGISTERS[r];
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = SHARED[s];
        kernel.numBlockBarriers = BARRIERS[b];
        cudaOccDeviceState state;
        memset(&state, 0, sizeof state);
        state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
        cudaOccResult result;
        memset(&result, 0, sizeof result);
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, THREADS[t], SHARED[s])) return 1;
        printf("%d %d %d %d %d %d %d %u\n", gpu.major, gpu.minor, THREADS[t], REGISTERS[r], SHARED[s], BARRIERS[b],
               result.activeBlocksPerMultiprocessor, result.limitingFactors);
    }
    return 0;
}
