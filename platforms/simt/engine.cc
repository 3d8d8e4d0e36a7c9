// Executes the threads of a block on one CPU thread: one fibre a thread where the kernel has barriers or shuffles, a loop
// where it has none. Linked into every library of kernels; platforms/simt/library.py describes the same structures.
#include "engine.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif
#if defined(__x86_64__)
#include <ucontext.h>
#include <xmmintrin.h>
#endif

extern "C" {
simt_thread* simt_self;
}

namespace {

enum State : unsigned char { READY, BARRIER, WARP, DONE };
enum Code { COMPLETED, SIGNAL, DIVERGENT, INCOMPLETE, MATRIX };

#if defined(__x86_64__) || defined(__aarch64__)
using Saved = void*;
extern "C" void simt_switch(void** save, void* load);
#else
using Saved = ucontext_t;
#endif

struct Fibre {
  Saved saved;
  State state;
  unsigned site, mask, source;
  unsigned long long value;
};

struct Launch {
  const simt_kernel* kernel;
  const simt_launch_args* args;
  simt_report* report;
  unsigned threads;
};

constexpr unsigned LIMIT = 1024;  // threads in a block, on every device that there is
Fibre fibres[LIMIT];
simt_thread threads[LIMIT];
simt_thread outside;  // so that simt_self always points somewhere
Launch now;
Saved scheduler;
__thread bool executing;
sigjmp_buf escape;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[sizeof SIGNALS / sizeof *SIGNALS];

// ---- context switch -------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
asm(R"(
.text
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.type simt_switch, %function
simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size simt_switch, .-simt_switch
)");
#endif

void enter(Saved& from, Saved& to) {
#if defined(__x86_64__) || defined(__aarch64__)
  simt_switch(&from, to);
#else
  swapcontext(&from, &to);
#endif
}

[[noreturn]] void fibre_main() {  // executes the same thread of one block after the other
  for (;;) {
    now.kernel->thread(now.args->arguments, now.args->shared, simt_self);
    Fibre& me = fibres[simt_self->linear];
    me.state = DONE;
    enter(me.saved, scheduler);
  }
}

void prepare(Fibre& fibre, char* stack, size_t size) {
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + size) - 1;  // 8 bytes off alignment, as after a call
  *top = nullptr;
  *--top = reinterpret_cast<void*>(fibre_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fibre.saved = top;
#elif defined(__aarch64__)
  void** frame = reinterpret_cast<void**>(stack + size - 160);
  memset(frame, 0, 160);
  frame[11] = reinterpret_cast<void*>(fibre_main);  // x30
  fibre.saved = frame;
#else
  getcontext(&fibre.saved);
  fibre.saved.uc_stack.ss_sp = stack;
  fibre.saved.uc_stack.ss_size = size;
  fibre.saved.uc_link = nullptr;
  makecontext(&fibre.saved, fibre_main, 0);
#endif
}

void wait(State state, unsigned site) {
  simt_thread* self = simt_self;
  Fibre& me = fibres[self->linear];
  me.state = state;
  me.site = site;
  enter(me.saved, scheduler);
}

// ---- faults ---------------------------------------------------------------------------------------------------------

[[noreturn]] void fail(Code code) {
  now.report->code = code;
  siglongjmp(escape, 1);
}

void on_signal(int number, siginfo_t* info, void* context) {
  if (!executing) {  // not ours: as it was before
    for (unsigned i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; ++i)
      if (SIGNALS[i] == number) sigaction(number, &before[i], nullptr);
    return;
  }
  simt_report& report = *now.report;
  report.signal = number;
  report.address = reinterpret_cast<unsigned long long>(info->si_addr);
  report.write = -1;
#if defined(__x86_64__)
  report.write = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
  (void)context;
#endif
  report.thread[0] = simt_self->threadIdx.x, report.thread[1] = simt_self->threadIdx.y;
  report.thread[2] = simt_self->threadIdx.z;
  fail(SIGNAL);
}

void blame(unsigned thread) {
  now.report->thread[0] = threads[thread].threadIdx.x, now.report->thread[1] = threads[thread].threadIdx.y;
  now.report->thread[2] = threads[thread].threadIdx.z;
}

// ---- warps ----------------------------------------------------------------------------------------------------------

// The lanes of a warp that wait at `site`, as a mask.
unsigned at_site(unsigned first, unsigned lanes, unsigned site) {
  unsigned mask = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Fibre& fibre = fibres[first + lane];
    if (fibre.state == WARP && fibre.site == site) mask |= 1u << lane;
  }
  return mask;
}

void exchange(unsigned first, unsigned mask) {
  unsigned long long values[32];
  for (unsigned lane = 0; lane < 32; ++lane)
    values[lane] = mask >> lane & 1 ? fibres[first + lane].value : now.args->poison;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Fibre& fibre = fibres[first + lane];
    fibre.value = fibre.source == SIMT_LANES ? mask : values[fibre.source];
    fibre.state = READY;
  }
}

// All lanes of the warp are blocked: lets those go on that have met. Lanes named in a mask must come, unless they have
// ended. Where no mask is given, the lanes that are there are all that come; the earliest place goes first, so that lanes
// that took another branch can catch up. False when no lane waits for its warp.
bool meet(unsigned first, unsigned lanes) {
  unsigned earliest = ~0u, absent = 0, late = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Fibre& fibre = fibres[first + lane];
    if (fibre.state != WARP) continue;
    const unsigned here = at_site(first, lanes, fibre.site);
    if (!fibre.mask) {
      if (fibre.site < earliest) earliest = fibre.site;
      continue;
    }
    unsigned expected = 0;
    for (unsigned other = 0; other < lanes; ++other)
      if ((fibre.mask >> other & 1) && fibres[first + other].state != DONE) expected |= 1u << other;
    if (!(expected & ~here)) return exchange(first, here & fibre.mask), true;
    absent = expected & ~here, late = lane + 1;
  }
  if (earliest != ~0u) return exchange(first, at_site(first, lanes, earliest)), true;
  if (!late) return false;
  blame(first + late - 1);
  now.report->site = fibres[first + late - 1].site;
  now.report->count = __builtin_popcount(absent);
  now.report->total = __builtin_ctz(absent);
  fail(INCOMPLETE);
}

// The i-th of count threads (or warps) in the order of this launch; pseudo-random ones change with every interval.
unsigned interval;
unsigned in_order(unsigned i, unsigned count) {
  static constexpr unsigned primes[] = {1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069};  // of none a multiple is in a block
  const unsigned order = now.args->order;
  if (order < 2) return order ? count - 1 - i : i;
  const unsigned mixed = (order * 2654435761u ^ interval * 40503u) >> 3;
  return (i * primes[mixed % 8] + mixed / 8) % count;
}

void run_warp(unsigned first, unsigned lanes) {
  do {
    for (unsigned i = 0; i < lanes; ++i) {
      const unsigned thread = first + in_order(i, lanes);
      if (fibres[thread].state != READY) continue;
      simt_self = &threads[thread];
      enter(scheduler, fibres[thread].saved);
    }
  } while (meet(first, lanes));
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

void run_fibres() {
  const unsigned count = now.threads, warps = (count + 31) / 32;
  for (unsigned i = 0; i < count; ++i) fibres[i].state = READY, threads[i].matrix_operations = 0;
  for (;; ++interval) {
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned warp = in_order(i, warps);
      run_warp(warp * 32, count - warp * 32 < 32 ? count - warp * 32 : 32);
    }
    unsigned ended = 0, waiting = count, elsewhere = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (fibres[i].state == DONE) ++ended;
      else if (waiting == count) waiting = i;
      else if (fibres[i].site != fibres[waiting].site) elsewhere = fibres[i].site, ++now.report->count;
    }
    if (ended == count) break;
    if (ended || elsewhere) {
      blame(waiting);
      now.report->site = fibres[waiting].site, now.report->other_site = elsewhere;
      now.report->count = ended ? ended : now.report->count, now.report->total = count;
      fail(DIVERGENT);
    }
    for (unsigned i = 0; i < count; ++i) fibres[i].state = READY;
  }
  for (unsigned i = 0; i < count; ++i)
    if (threads[i].matrix_operations != threads[i & ~31u].matrix_operations) {
      blame(i);
      now.report->count = threads[i].matrix_operations, now.report->total = threads[i & ~31u].matrix_operations;
      fail(MATRIX);
    }
}

void run_loop() {
  for (unsigned i = 0; i < now.threads; ++i) {
    simt_self = &threads[in_order(i, now.threads)];
    now.kernel->thread(now.args->arguments, now.args->shared, simt_self);
  }
}

void poison_shared() {
  for (unsigned i = 0; i < now.kernel->shared_count; ++i) {
    const size_t size = now.kernel->shared_sizes[i] ? now.kernel->shared_sizes[i] : now.args->dynamic_shared;
    for (size_t at = 0; at < size; at += 8)
      memcpy(now.args->shared[i] + at, &now.args->poison, size - at < 8 ? size - at : 8);
  }
}

void run_blocks() {
  const unsigned* block = now.args->block;
  const unsigned* grid = now.args->grid;
  for (unsigned i = 0; i < now.threads; ++i) {
    threads[i].threadIdx = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
    threads[i].blockDim = {block[0], block[1], block[2]};
    threads[i].gridDim = {grid[0], grid[1], grid[2]};
    threads[i].linear = i;
    if (now.kernel->fibres) prepare(fibres[i], now.args->stacks + i * now.args->stack_stride, now.args->stack_size);
  }
  const unsigned long long blocks = 1ull * grid[0] * grid[1] * grid[2];
  for (unsigned long long n = 0; n < blocks; ++n) {
    const unsigned long long at = now.args->order & 1 ? blocks - 1 - n : n;
    const simt_uint3 index = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
    now.report->block[0] = index.x, now.report->block[1] = index.y, now.report->block[2] = index.z;
    for (unsigned i = 0; i < now.threads; ++i) threads[i].blockIdx = index;
    poison_shared();
    if (now.kernel->fibres) run_fibres();
    else run_loop();
  }
}

}  // namespace

extern "C" {

void simt_barrier(unsigned site) { wait(BARRIER, site); }

unsigned long long simt_meet(unsigned site, unsigned mask, unsigned long long value, unsigned source) {
  Fibre& me = fibres[simt_self->linear];
  me.value = value, me.source = source, me.mask = mask;
  wait(WARP, site);
  return me.value;
}

int simt_launch(const simt_launch_args* args, simt_report* report) {
  static char signal_stack[1 << 16];
  const unsigned threads_per_block = args->block[0] * args->block[1] * args->block[2];
  if (threads_per_block > LIMIT) return -1;
  now = {&simt_kernels[args->kernel], args, report, threads_per_block};
  simt_self = &outside;
  interval = 0;
  stack_t alternate = {}, old_alternate;
  alternate.ss_sp = signal_stack;
  alternate.ss_size = sizeof signal_stack;
  sigaltstack(&alternate, &old_alternate);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (unsigned i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; ++i) sigaction(SIGNALS[i], &action, &before[i]);
#if defined(__x86_64__)
  const unsigned modes = _mm_getcsr();
  if (args->flush_denormals) _mm_setcsr(modes | 0x8040);
#endif
  if (sigsetjmp(escape, 1) == 0) {
    executing = true;
    run_blocks();
  }
  executing = false;
#if defined(__x86_64__)
  _mm_setcsr(modes);
#endif
  for (unsigned i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; ++i) sigaction(SIGNALS[i], &before[i], nullptr);
  sigaltstack(&old_alternate, nullptr);
  return report->code;
}
}
