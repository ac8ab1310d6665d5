// Matrix products of training: C = A . B or C += A . B, where each operand is float32, bfloat16 or
// float16 (src/shaders/gemm.comp).
//
// The sum over all of k is float32. It is added to the old element of C once and rounded once, to
// nearest even. Arithmetic::compute says whether operands are rounded to bfloat16 first. The same
// sizes give the same bits; a row of C does not depend on other rows of A (of GemmForm::kTN, whose
// k is the rows, every row counts).
#pragma once

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// A matrix in the device's memory: element (i, j) is i * stride + j elements behind `address`,
// which is a multiple of the element's size and need not be one of more.
struct GemmMatrix {
    DType dtype = DType::kF32;
    uint64_t address = 0;
    int64_t rows = 0, cols = 0, stride = 0;

    // From the first element to the last.
    Region All() const;
    // Rows [begin, begin + count).
    GemmMatrix Rows(int64_t begin, int64_t count) const;
};

enum class GemmForm : uint32_t {
    kNT,  // C[m,n] = A[m,k] . B[n,k]^T: y = x . W^T
    kNN,  // C[m,n] = A[m,k] . B[k,n]: dx = dy . W
    kTN,  // C[m,n] = A[k,m]^T . B[k,n]: dW = dy^T . x
};

struct Gemm {
    GemmForm form = GemmForm::kNT;
    GemmMatrix a, b, c;  // as they lie in memory; C overlaps neither A nor B
    bool accumulate = false;
};

// Rows that are slots of experts (row * used + k of a value [T, K, n]), by a plan of
// expert_order.comp.
struct GemmSlots {
    enum class Kind : uint32_t {
        kNone,
        kRows,   // NT, NN: rows of C, and of A unless it has a row for each token. B is a stack of
                 // matrices, one below the other. Rows of C whose expert is not held become zeros.
        kTerms,  // TN: the terms of the sums. C is a stack.
    };
    Kind kind = Kind::kNone;
    Region plan;
    int64_t experts = 0, tile = 0, blocks = 0;  // tile: most slots of a block
    int64_t a_used = 1, b_used = 1;             // slots that share a row of A or B
    Region factors;  // kTerms: float32 for each slot, which A is multiplied by; or none
};

// Errors: kUnsupported (a type that is none of the three, a size beyond 2^32, sums of over a
// million terms).
Status EmitGemm(Emitter& e, const Gemm& gemm, const GemmSlots& slots = {});

// A value as a matrix: its columns are its last dimension, its rows all others. A weight of a block
// type is decoded to scratch, in the type that Arithmetic::compute says; the matrix is there until
// the next call for such a weight.
// Errors: kUnsupported (an integer type).
Result<GemmMatrix> MatrixOf(Emitter& e, program::ValueId id);
// Rows [begin, begin + count) of a weight, the rows of its stack counted through, decoded likewise
// where it is of a block type. A large one needs less scratch piece by piece.
Result<GemmMatrix> RowsOfWeight(Emitter& e, const WeightPlace& weight, int64_t begin,
                                int64_t count);

// Whether a product is of training: an activation is of 16 bits, or the weight is not laid out by
// weights.h. Other products have the kernels of inference.
bool IsTrainingProduct(const Emitter& e, program::ValueId x, program::ValueId weight,
                       program::ValueId y);
// The forward products of training. Errors: kUnsupported (a bias: train/graph.h splits it off).
Status LowerTrainingMatMul(Emitter& e, const program::Op& op);
Status LowerTrainingExperts(Emitter& e, const program::Op& op, const program::ExpertMatMul& a);
Status LowerTrainingExperts(Emitter& e, const program::Op& op, const program::ExpertSum& a);

// As shaders number element types (gemm_elements.glsl). Errors: kUnsupported (another type).
Result<uint32_t> ElementType(DType dtype);

}  // namespace weft::backend::vulkan
