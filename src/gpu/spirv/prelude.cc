// The prelude of each kernel's text. It defines types, memory, subgroups, atomics and mathematical
// functions for hiprtc, nvrtc and, with WEFT_EMULATED, tests/gpu/standin/emulated.h.
#include "gpu/spirv/matrices.h"
#include "gpu/spirv/writer.h"

namespace weft::gpu::spirv {
namespace {

constexpr std::string_view kTypes = R"text(
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned u32; typedef int i32; typedef unsigned long long u64; typedef long long i64;
template <class T, int n> struct vec { T at[n]; };
template <class T, u64 n> struct arr { T at[n]; };
template <class T, int n> struct alignas(n) Box { T value; };
#define FN __device__ __forceinline__
#if defined(WEFT_CUDA)
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_KEEP _Pragma("unroll 1")
#define WEFT_LOOP
#else  // full: a loop of unknown length is not unrolled
#define WEFT_UNROLL _Pragma("clang loop unroll(full)")
#define WEFT_KEEP _Pragma("clang loop unroll(disable)")
#define WEFT_LOOP WEFT_KEEP  // clang unrolls long loops, and hoists the loads of all turns
#endif
#define WEFT_CONSTANT static __device__ const
#if defined(WEFT_ROOMY)  // one workgroup is enough
#define WEFT_KERNEL(invocations) extern "C" __global__ void __launch_bounds__(invocations, 1)
#else
#define WEFT_KERNEL(invocations) extern "C" __global__ void __launch_bounds__(invocations)
#endif
#define WEFT_SHARED __shared__ __attribute__((aligned(16)))
#if defined(WEFT_CUDA) && !defined(WEFT_EMULATED)
#define WEFT_IS_AT(type, member, offset) true  // nvrtc before 13.5 has no offsetof
#else
#define WEFT_IS_AT(type, member, offset) (__builtin_offsetof(type, member) == offset)
#endif
template <class T, class U> FN T bits(const U& from) {
  static_assert(sizeof(T) == sizeof(U), "bits");
  T to;
  memcpy(&to, &from, sizeof(T));
  return to;
}
#if defined(WEFT_CUDA) && !defined(WEFT_EMULATED)
struct f16 {  // nvrtc has no half without its headers
  u16 word;
  f16() = default;
  FN explicit f16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(word) : "f"(x)); }
  FN operator float() const { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(word)); return x; }
};
FN f16 operator*(f16 a, f16 b) { return f16((float)a * (float)b); }
FN f16 operator+(f16 a, f16 b) { return f16((float)a + (float)b); }
#else
typedef _Float16 f16;
#endif
// Component i of a vector in registers: a dynamic index would put the vector into scratch memory.
template <class T, int n> FN T pick(const vec<T, n>& v, u32 i) {
  T x = v.at[0];
  WEFT_UNROLL for (int k = 1; k < n; ++k) x = i == k ? v.at[k] : x;
  return x;
}
template <class T, int n> FN void put(vec<T, n>& v, u32 i, T x) {
  WEFT_UNROLL for (int k = 0; k < n; ++k) v.at[k] = i == k ? x : v.at[k];
}
template <class T, class U> FN T convert(U x) { return (T)(float)x; }
)text";

// On AMD, an address that was a number is generic: without the cast to the global address space,
// accesses are flat_load, which also count as accesses of shared memory.
constexpr std::string_view kMemory = R"text(
#if defined(WEFT_HIP) && !defined(WEFT_EMULATED)
#define WEFT_GLOBAL __attribute__((address_space(1)))
#else
#define WEFT_GLOBAL
#endif
template <class T> FN T* global(u64 address) { return (T*)(WEFT_GLOBAL T*)address; }
template <class T, int align> FN T load(u64 address) {
  return global<const Box<T, align>>(address)->value;
}
template <class T, int align> FN void store(u64 address, const T& value) {
  global<Box<T, align>>(address)->value = value;
}
// Memory that other workgroups (coherent) or the host (volatile) write meanwhile.
#if defined(WEFT_HIP) && !defined(WEFT_EMULATED)
#define WEFT_SHARING(name, scope)                                                              \
  template <class T, int> FN T load_##name(u64 address) {                                      \
    static_assert(sizeof(T) == 4, "shared memory of 4 bytes");                                 \
    return bits<T>(__hip_atomic_load(global<u32>(address), __ATOMIC_RELAXED, scope));          \
  }                                                                                            \
  template <class T, int> FN void store_##name(u64 address, const T& value) {                  \
    static_assert(sizeof(T) == 4, "shared memory of 4 bytes");                                 \
    __hip_atomic_store(global<u32>(address), bits<u32>(value), __ATOMIC_RELAXED, scope);       \
  }
WEFT_SHARING(coherent, __HIP_MEMORY_SCOPE_AGENT)
WEFT_SHARING(volatile, __HIP_MEMORY_SCOPE_SYSTEM)
FN u32 atomic_load(u32* p) {
  return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
FN void atomic_store(u32* p, u32 value) {
  __hip_atomic_store(p, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
#else
#define WEFT_SHARING(name)                                                                     \
  template <class T, int> FN T load_##name(u64 address) {                                      \
    static_assert(sizeof(T) == 4, "shared memory of 4 bytes");                                 \
    const u32 word = *(const volatile u32*)address;                                            \
    return bits<T>(word);                                                                      \
  }                                                                                            \
  template <class T, int> FN void store_##name(u64 address, const T& value) {                  \
    static_assert(sizeof(T) == 4, "shared memory of 4 bytes");                                 \
    *(volatile u32*)address = bits<u32>(value);                                                \
  }
WEFT_SHARING(coherent)
WEFT_SHARING(volatile)
FN u32 atomic_load(u32* p) {
  const u32 value = *(volatile u32*)p;
  __threadfence_system();
  return value;
}
FN void atomic_store(u32* p, u32 value) {
  __threadfence_system();
  *(volatile u32*)p = value;
}
#endif
// Scopes: 0 to 1 and 5 the device, 2 the workgroup, 3 the subgroup.
template <int scope> FN void fence() {
  if (scope == 2 || scope == 3) __threadfence_block();
  else if (kMeetsHost) __threadfence_system();
  else __threadfence();
}
template <int scope> FN void barrier() {
  static_assert(scope == 2 || scope == 3, "scope");
  if (scope == 2) {
    __syncthreads();
  } else {
#if defined(WEFT_HIP) && !defined(WEFT_EMULATED)
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
#else
    __syncwarp();
#endif
  }
}
)text";

// Lanes belong to one-dimensional workgroups. Reductions of a workgroup that is smaller than a
// subgroup leave out the lanes that do not exist.
constexpr std::string_view kSubgroups = R"text(
FN u32 lane() { return threadIdx.x % kSubgroup; }
FN u32 subgroups() { return (kInvocations + kSubgroup - 1) / kSubgroup; }
FN vec<u32, 3> workgroups() { return vec<u32, 3>{{gridDim.x, gridDim.y, gridDim.z}}; }
FN vec<u32, 3> workgroup(const uint3& first) {
  return vec<u32, 3>{{blockIdx.x + first.x, blockIdx.y + first.y, blockIdx.z + first.z}};
}
FN vec<u32, 3> invocation(const uint3& first) {
  return vec<u32, 3>{{(blockIdx.x + first.x) * kInvocations + threadIdx.x, blockIdx.y + first.y,
                      blockIdx.z + first.z}};
}
struct Add { template <class T> FN T operator()(T a, T b) const { return a + b; } };
struct Min {
  template <class T> FN T operator()(T a, T b) const { return a < b ? a : b; }
  FN float operator()(float a, float b) const { return fminf(a, b); }
};
struct Max {
  template <class T> FN T operator()(T a, T b) const { return a > b ? a : b; }
  FN float operator()(float a, float b) const { return fmaxf(a, b); }
};
#if defined(WEFT_HIP) && !defined(WEFT_EMULATED)
// (Compilers from LLVM 22 on, as in ROCm 7.2, do not define it.)
#if defined(__AMDGCN_WAVEFRONT_SIZE) && __AMDGCN_WAVEFRONT_SIZE != WEFT_SUBGROUP
#error "the target has another subgroup size"
#endif
// The value of another lane: of xor 1 and 2, of the mirrored 8 and 16 (which hold equal values
// halfway), then of xor 16 and 32.
template <u32 distance> FN u32 other(u32 x) {
  if (distance == 1) return __builtin_amdgcn_mov_dpp(x, 0xB1, 15, 15, true);
  if (distance == 2) return __builtin_amdgcn_mov_dpp(x, 0x4E, 15, 15, true);
  if (distance == 4) return __builtin_amdgcn_mov_dpp(x, 0x141, 15, 15, true);
  if (distance == 8) return __builtin_amdgcn_mov_dpp(x, 0x140, 15, 15, true);
  if (distance == 16) return __builtin_amdgcn_ds_swizzle(x, 0x401F);
  return __builtin_amdgcn_ds_bpermute((lane() ^ distance) * 4, x);
}
#else
template <u32 distance> FN u32 other(u32 x) { return __shfl_xor_sync(~0u, x, distance); }
#endif
template <u32 distance, class F> struct Butterfly {
  template <class T> static FN T run(T value, F f) {
    value = f(value, bits<T>(other<distance>(bits<u32>(value))));
    constexpr u32 next = distance * 2;
    return Butterfly<(next < kSubgroup && next < kInvocations) ? next : 0, F>::run(value, f);
  }
};
template <class F> struct Butterfly<0, F> {
  template <class T> static FN T run(T value, F) { return value; }
};
template <class T, class F> FN T reduce(T value, F f) {
  return Butterfly<(kInvocations > 1 ? 1 : 0), F>::run(value, f);
}
)text";

constexpr std::string_view kMath = R"text(
// The sum of c and the products of four signed bytes.
FN i32 dot4(u32 a, u32 b, i32 c = 0) {
#if defined(WEFT_CUDA)
  return __dp4a((i32)a, (i32)b, c);
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1011__) || \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || \
    defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) || \
    defined(__gfx1035__) || defined(__gfx1036__)
  return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#else
  u32 sum = (u32)c;
  for (int i = 0; i < 32; i += 8) sum += (u32)((i8)(a >> i) * (i8)(b >> i));
  return (i32)sum;
#endif
}
FN bool is_inf(float x) { return (bits<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
FN float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }
FN i32 bit_field_s(i32 x, u32 at, u32 n) {
  return n == 0 ? 0 : (i32)((u32)x << (32 - at - n)) >> (32 - n);
}
FN u32 bit_field_u(u32 x, u32 at, u32 n) { return n == 0 ? 0 : x << (32 - at - n) >> (32 - n); }
FN u32 bit_insert(u32 x, u32 y, u32 at, u32 n) {
  const u32 mask = (n == 32 ? ~0u : (1u << n) - 1) << at;
  return (x & ~mask) | (y << at & mask);
}
FN vec<float, 2> unpack_halves(u32 x) {
  return vec<float, 2>{{(float)bits<f16>((u16)x), (float)bits<f16>((u16)(x >> 16))}};
}
FN u32 pack_halves(const vec<float, 2>& v) {
  return bits<u16>((f16)v.at[0]) | (u32)bits<u16>((f16)v.at[1]) << 16;
}
)text";

}  // namespace

std::string Prelude(const Request& request, const Module& module) {
    return fmt::format(
        "// {}: from SPIR-V, by weft\n#define {} 1\n#define WEFT_SUBGROUP {}\n"
        "static constexpr unsigned kSubgroup = {}, kInvocations = {};\n"
        "static constexpr bool kMeetsHost = {};\n{}{}{}{}{}",
        request.name, request.language == Language::kHip ? "WEFT_HIP" : "WEFT_CUDA",
        request.subgroup, request.subgroup, module.local_size[0], module.meets_host, kTypes,
        kMemory, kSubgroups, kMath, module.has_matrices ? kMatrices : "");
}

}  // namespace weft::gpu::spirv
