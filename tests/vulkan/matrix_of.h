// The matrix units of tests.
#pragma once

#include <cstdlib>

#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu::test {

// The device's own matrix units, if it has any; else their emulation. Lavapipe takes half a minute
// to compile a kernel for its own, so it uses them only where they are tested
// (matrix_units_test.py).
inline Arithmetic::Matrix MatrixOf(const gpu::Description& gpu) {
    const bool wanted =
        gpu.kind != gpu::Kind::kCpu || std::getenv("WEFT_TEST_MATRIX_UNIT") != nullptr;
    const bool own = wanted && gpu.cooperative_matrix && HasMatrixKernels(gpu);
    return own ? Arithmetic::Matrix::kUnits : Arithmetic::Matrix::kEmulated;
}

}  // namespace weft::backend::on_gpu::test
