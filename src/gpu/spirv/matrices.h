// The definitions of 16 x 16 matrices of a subgroup in the text of a kernel: float16 times float16,
// summed in float32. An invocation holds kEach elements of a matrix; the layout is the layout of
// the target's matrix instruction:
//
//     gfx908 to gfx950  MFMA 16x16x16, 64 lanes
//     gfx11             WMMA 16x16x16, 32 lanes; both halves of the lanes hold all of A and B
//     gfx12             WMMA 16x16x16, 32 lanes
//     CUDA              mma.m16n8k16, twice (sm_75: m16n8k8, four times)
//     WEFT_EMULATED     parts of rows
//
// Sources: AMD's CDNA 3, RDNA 3 and RDNA 4 instruction set guides, and its
// amd_matrix_instruction_calculator; NVIDIA's PTX ISA, "Matrix Fragments for mma.m16n8k16".
#pragma once

#include <string_view>

namespace weft::gpu::spirv {

inline constexpr std::string_view kMatrices = R"text(
// Layout<use>: use 0 is A, 1 is B, 2 the sums. Element i of lane l is at (row, column). kRun
// elements follow each other in memory, along a row (kAlongRow) or along a column.
template <int use> struct Layout {
#if defined(WEFT_EMULATED)
  static constexpr int kEach = 256 / kSubgroup, kRun = kEach;
  static constexpr bool kAlongRow = true;
  static FN u32 row(u32 l, u32 i) { return (l * kEach + i) / 16; }
  static FN u32 column(u32 l, u32 i) { return (l * kEach + i) % 16; }
#elif defined(WEFT_CUDA)
  static constexpr int kEach = 8, kRun = 2;
  static constexpr bool kAlongRow = use != 1;
  static FN u32 row(u32 l, u32 i) {
    return use == 1 ? l % 4 * 2 + (i & 1) + (i & 2) * 4 : l / 4 + (i & 2) * 4;
  }
  static FN u32 column(u32 l, u32 i) {
    return use == 1 ? l / 4 + (i & 4) * 2 : l % 4 * 2 + (i & 1) + (i & 4) * 2;
  }
#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define WEFT_MFMA
  static constexpr int kEach = 4, kRun = 4;
  static constexpr bool kAlongRow = use == 0;
  static FN u32 row(u32 l, u32 i) { return use == 0 ? l % 16 : l / 16 * 4 + i; }
  static FN u32 column(u32 l, u32 i) { return use == 0 ? l / 16 * 4 + i : l % 16; }
#elif defined(__GFX12__)
  // (A half of the lanes has columns 0 to 3 and 8 to 11 of A, by the guide, and the same rows of B.
  // A product does not see the order of these, as long as A and B have the same.)
  static constexpr int kEach = 8, kRun = 8;
  static constexpr bool kAlongRow = use == 0;
  static FN u32 row(u32 l, u32 i) { return use == 0 ? l % 16 : l / 16 * 8 + i; }
  static FN u32 column(u32 l, u32 i) { return use == 0 ? l / 16 * 8 + i : l % 16; }
#elif defined(__GFX11__)
  static constexpr int kEach = use == 2 ? 8 : 16, kRun = use == 2 ? 1 : 16;
  static constexpr bool kAlongRow = use == 0;
  static FN u32 row(u32 l, u32 i) { return use == 0 ? l % 16 : use == 1 ? i : 2 * i + l / 16; }
  static FN u32 column(u32 l, u32 i) { return use == 0 ? i : l % 16; }
#else
#error "this target has no matrix instructions"
#endif
};
template <class T, int rows, int columns, int use> struct matrix;
template <class T_, int use> struct matrix<T_, 16, 16, use> : Layout<use> {
  typedef T_ T;
  T at[Layout<use>::kEach];
};
// Memory of elements E, each a T or a vector of them; stride in E. layout 0: row after row.
template <class M, class E> struct Access {
  typedef typename M::T T;
  static constexpr int kWide = sizeof(E) / sizeof(T);
  template <int part, bool loads, class P>
  static FN void run(P* memory, M& m, u32 layout, u32 stride) {
  WEFT_UNROLL
    for (int i = 0; i < M::kEach; i += part) {
      const u32 r = M::row(lane(), i), c = M::column(lane(), i), step = stride * kWide;
      P* at = memory + (layout == 0 ? r * step + c : c * step + r);
      if (loads) {
        const arr<T, part> given = ((const Box<arr<T, part>, part * sizeof(T)>*)at)->value;
  WEFT_UNROLL
        for (int j = 0; j < part; ++j) m.at[i + j] = given.at[j];
      } else {
        arr<T, part> taken;
  WEFT_UNROLL
        for (int j = 0; j < part; ++j) taken.at[j] = m.at[i + j];
        ((Box<arr<T, part>, part * sizeof(T)>*)at)->value = taken;
      }
    }
  }
  template <bool loads> static FN void any(T* memory, M& m, u32 layout, u32 stride) {
    if ((layout == 0) == M::kAlongRow) {
      run<(M::kRun < kWide ? M::kRun : kWide), loads>(memory, m, layout, stride);
    } else {
      run<1, loads>(memory, m, layout, stride);
    }
  }
};
template <class M, class E> FN M matrix_load(const E* from, u32 layout, u32 stride) {
  M m;
  Access<M, E>::template any<true>((typename M::T*)from, m, layout, stride);
  return m;
}
template <class M, class E> FN void matrix_store(E* to, M m, u32 layout, u32 stride) {
  Access<M, E>::template any<false>((typename M::T*)to, m, layout, stride);
}
template <class M, class T> FN M splat(T x) {
  M m;
  WEFT_UNROLL
  for (int i = 0; i < M::kEach; ++i) m.at[i] = x;
  return m;
}
template <class T, int use>
FN matrix<T, 16, 16, use> operator*(const matrix<T, 16, 16, use>& a,
                                    const matrix<T, 16, 16, use>& b) {
  matrix<T, 16, 16, use> m;
  WEFT_UNROLL
  for (int i = 0; i < m.kEach; ++i) m.at[i] = a.at[i] * b.at[i];
  return m;
}
typedef matrix<f16, 16, 16, 0> MatrixA;
typedef matrix<f16, 16, 16, 1> MatrixB;
typedef matrix<float, 16, 16, 2> Sums;
#if defined(WEFT_EMULATED)
FN Sums multiply_add(const MatrixA& a, const MatrixB& b, const Sums& c) {
  struct Own { const MatrixA* a; const MatrixB* b; } own = {&a, &b};
  weft_emulated::Meet((u64)&own);
  const auto peer = [](u32 l) {
    return (const Own*)weft_emulated::Given(weft_emulated::Peer(l));
  };
  const u32 each = Sums::kEach;
  Sums d = c;
  for (u32 i = 0; i < each; ++i) {
    for (u32 k = 0; k < 16; ++k) {
      const u32 in_a = Sums::row(lane(), i) * 16 + k, in_b = k * 16 + Sums::column(lane(), i);
      d.at[i] += (float)peer(in_a / each)->a->at[in_a % each] *
                 (float)peer(in_b / each)->b->at[in_b % each];
    }
  }
  weft_emulated::Meet(0);  // all have read
  return d;
}
#elif defined(WEFT_CUDA)
FN Sums multiply_add(const MatrixA& a, const MatrixB& b, const Sums& c) {
  const vec<u32, 4> x = bits<vec<u32, 4>>(a.at), y = bits<vec<u32, 4>>(b.at);
  Sums d = c;
  WEFT_UNROLL
  for (int n = 0; n < 8; n += 4) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d.at[n]), "+f"(d.at[n + 1]), "+f"(d.at[n + 2]), "+f"(d.at[n + 3])
        : "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]), "r"(x.at[3]), "r"(y.at[n / 2]),
          "r"(y.at[n / 2 + 1]));
#else
  WEFT_UNROLL
    for (int k = 0; k < 2; ++k) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
          "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
          : "+f"(d.at[n]), "+f"(d.at[n + 1]), "+f"(d.at[n + 2]), "+f"(d.at[n + 3])
          : "r"(x.at[2 * k]), "r"(x.at[2 * k + 1]), "r"(y.at[n / 2 + k]));
    }
#endif
  }
  return d;
}
#else
template <class T, int n> struct Wide { typedef T type __attribute__((ext_vector_type(n))); };
FN Sums multiply_add(const MatrixA& a, const MatrixB& b, const Sums& c) {
  typedef Wide<f16, MatrixA::kEach>::type Halves;
  typedef Wide<float, Sums::kEach>::type Floats;
  const Halves x = bits<Halves>(a.at), y = bits<Halves>(b.at);
  const Floats z = bits<Floats>(c.at);
#if defined(WEFT_MFMA)
  return bits<Sums>(__builtin_amdgcn_mfma_f32_16x16x16f16(x, y, z, 0, 0, 0));
#elif defined(__GFX12__)
  return bits<Sums>(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, z));
#else
  return bits<Sums>(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, z));
#endif
}
#endif
)text";

}  // namespace weft::gpu::spirv
