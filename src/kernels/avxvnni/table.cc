// The kernel table of AVX-VNNI: the table of AVX2, with other products of quantized weights. Only
// the files of vector/ that multiply bytes are compiled for this set (cmake/kernels.cmake); the
// function that they need from another file is AVX2's.
#include "kernels/vector/set.h"

namespace weft::kernels {

namespace avx2 {
Kernels Table();
void MatMulFloats(const MatMulArgs& args, Range rows);
}  // namespace avx2

namespace avxvnni {

Kernels Table() {
    Kernels table = avx2::Table();
    table.level = Simd::kLevel;
    SetMatMul(table);
    return table;
}

void MatMulFloats(const MatMulArgs& args, Range rows) {
    avx2::MatMulFloats(args, rows);
}

}  // namespace avxvnni
}  // namespace weft::kernels
