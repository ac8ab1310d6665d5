// The kernel table of AVX-VNNI: the table of AVX2, with other products of quantized weights. Only
// the files of vector/ that multiply bytes are compiled for this set (cmake/kernels.cmake); the two
// functions that they need from other files are those of AVX2.
#include "kernels/vector/set.h"

namespace weft::kernels {

namespace avx2 {
Kernels Table();
void MatMulFloats(const MatMulArgs& args, Range rows);
void QuantizeActivations(const QuantizeActivationsArgs& args, int part, int parts);
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

void QuantizeActivations(const QuantizeActivationsArgs& args, int part, int parts) {
    avx2::QuantizeActivations(args, part, parts);
}

}  // namespace avxvnni
}  // namespace weft::kernels
