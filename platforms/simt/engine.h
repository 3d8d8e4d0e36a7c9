// What the engine and the kernels share. Includes nothing, so that kernels compile fast and no name of theirs is taken.
#pragma once

struct simt_uint3 {
  unsigned x, y, z;
};

// One thread of the block that is executing.
struct simt_thread {
  simt_uint3 threadIdx, blockIdx, blockDim, gridDim;
  unsigned linear;             // x fastest, then y, then z; 32 make a warp
  unsigned matrix_operations;  // of its warp, in which it has taken part
};

// One kernel. shared_sizes: bytes of each shared array; 0 for the one whose size comes with the launch.
struct simt_kernel {
  void (*thread)(void* const* arguments, char* const* shared, const simt_thread* self);
  const unsigned long* shared_sizes;
  unsigned shared_count;
  unsigned fibres;  // whether threads wait for one another
};

struct simt_launch_args {
  unsigned kernel, order, flush_denormals, unused;  // order: 0 forward, 1 reverse, others pseudo-random
  unsigned grid[3], block[3];
  void* const* arguments;
  char* const* shared;
  unsigned long dynamic_shared;
  unsigned long long poison;  // eight bytes of it
  char* stacks;
  unsigned long stack_size, stack_stride;
};

struct simt_report {
  int code, signal, write;
  unsigned site, other_site, count, total;
  unsigned thread[3], block[3];
  unsigned long long address;
};

#define SIMT_EXPORT __attribute__((visibility("default")))
#define SIMT_LANES 32u  // as a source lane: the result is the mask of the lanes that met

extern "C" {
extern simt_thread* simt_self;
void simt_barrier(unsigned site);
// Waits for the lanes of the warp (those in mask; 0: those that come) and returns the value of the source lane.
unsigned long long simt_meet(unsigned site, unsigned mask, unsigned long long value, unsigned source);
SIMT_EXPORT int simt_launch(const simt_launch_args* args, simt_report* report);
SIMT_EXPORT extern const simt_kernel simt_kernels[];  // written by platforms/simt/translate.py
}
