// Matrix products of training: C = A . B or C += A . B, where each operand is float32, bfloat16 or
// float16 (src/shaders/gemm.comp).
//
// An element of C is a sum over k, computed in float32. With C +=, this sum is added once to the
// old element of C. The result is rounded once, to nearest even. Arithmetic::compute states whether
// operands are first rounded to bfloat16. Two products with equal sizes and equal operands give
// results with equal bits. A row of C does not depend on other rows of A, except with
// GemmForm::kTN, where the sum runs over the rows of A.
#pragma once

#include "backend/gpu/dispatch/dispatch.h"

namespace weft::backend::on_gpu {

// A matrix in device memory: element (i, j) is i * stride + j elements after `address`. `address`
// is a multiple of the element's size; a larger alignment is not required.
struct GemmMatrix {
    DType dtype = DType::kF32;
    uint64_t address = 0;
    int64_t rows = 0, cols = 0, stride = 0;

    // The region from the first element to the last.
    Region All() const;
    // Rows or columns [begin, begin + count).
    GemmMatrix Rows(int64_t begin, int64_t count) const;
    GemmMatrix Columns(int64_t begin, int64_t count) const;
};

enum class GemmForm : uint32_t {
    kNT,  // C[m,n] = A[m,k] . B[n,k]^T: y = x . W^T
    kNN,  // C[m,n] = A[m,k] . B[k,n]: dx = dy . W
    kTN,  // C[m,n] = A[k,m]^T . B[k,n]: dW = dy^T . x
};

struct Gemm {
    GemmForm form = GemmForm::kNT;
    GemmMatrix a, b, c;  // with rows and columns as they are stored; C overlaps neither A nor B
    bool accumulate = false;
    bool exact = false;  // operands are not rounded, whatever the value of Arithmetic::compute
};

// For products with experts: rows of the operands belong to slots. A value [T, K, n] has K slots
// for each of its T rows, one per expert that the row uses; slot number row * K + k is element
// (row, k). expert_order.comp computes a plan, which contains the order in which the slots are
// computed.
struct GemmSlots {
    enum class Kind : uint32_t {
        kNone,
        kRows,   // For kNT and kNN: the slots are the rows of C. They are also the rows of A,
                 // unless A has one row per token. B is a stack of matrices, one below the other.
                 // Rows of C whose expert is on another rank become zeros. B may also have only the
                 // `experts` matrices from `first_matrix` on; then rows of other matrices stay.
        kTerms,  // For kTN: the slots are the terms of the sums. C is a stack of matrices.
    };
    Kind kind = Kind::kNone;
    Region plan;
    int64_t experts = 0, tile = 0, blocks = 0;  // tile: maximum slots of a block
    int64_t first_matrix = 0;
    int64_t a_used = 1, b_used = 1;  // number of slots that share a row of A or B
    Region factors;                  // kTerms: float32 [slots]: factors of the rows of A; or empty
};

// Errors: kUnsupported (a type other than float32, bfloat16 and float16, a size above 2^32, sums of
// over a million terms).
Status EmitGemm(Emitter& e, const Gemm& gemm, const GemmSlots& slots = {});

// Views a value as a matrix: the last dimension becomes the columns; all other dimensions together
// become the rows. A weight of a block type is decoded to scratch memory in the type
// Arithmetic::compute; the next call for a weight of a block type overwrites the decoded data.
// Errors: kUnsupported (an integer type).
Result<GemmMatrix> MatrixOf(Emitter& e, program::ValueId id);
// Returns rows [begin, begin + count) of a weight. If the weight has a block type, these rows are
// decoded as by MatrixOf. In a stack of matrices, row numbers continue from one matrix to the next.
Result<GemmMatrix> RowsOfWeight(Emitter& e, const WeightPlace& weight, int64_t begin,
                                int64_t count);
// The weight of a block type, or null: such a weight is decoded before a product reads it.
// RowsAtOnce: how many of its rows are decoded at once (Arithmetic::decoded_bytes), a multiple of
// `unit`, or all.
const WeightPlace* DecodedWeight(const Emitter& e, program::ValueId id);
int64_t RowsAtOnce(const Emitter& e, const WeightPlace& weight, int64_t unit);

// Whether a product uses the training kernels: an activation has 16 bits, or the weight is not in
// the layout of weights.h. The remaining products use the inference kernels.
bool IsTrainingProduct(const Emitter& e, program::ValueId x, program::ValueId weight,
                       program::ValueId y);
// C = A . B, or C += A . B, of three values of training. Errors: kUnsupported.
enum class GemmEnd { kSets, kAdds };
Status EmitValueGemm(Emitter& e, GemmForm form, program::ValueId a, program::ValueId b,
                     program::ValueId c, GemmEnd end = GemmEnd::kSets);
// gemm_experts.cc: lower the products of experts with the training kernels. Errors:
// kUnsupported (a bias).
Status LowerExpertGemm(Emitter& e, const program::Op& op, const program::ExpertMatMul& a);
Status LowerExpertGemm(Emitter& e, const program::Op& op, const program::ExpertSum& a);

}  // namespace weft::backend::on_gpu
