// Kernels of the optimizer's update (program/update.h), and a kernel that searches for numbers that
// are not finite.
//
// Gradients, weights and optimizer state are vectors. A run (tensor/update_runs.h) is a range of
// elements of these vectors that are all updated in the same way. dense/lookup.h explains the
// calling convention and parts. Kernels read scalars that change between updates through the
// pointer `numbers`, so that arguments are created once. A kernel in two phases is two functions
// with the same args: all parts of the first finish before the second begins.
#pragma once

#include "kernels/kernels.h"
#include "tensor/update_runs.h"

namespace weft::kernels::dense {

// number: the update's number, from 1 on. Kernels multiply gradients by gradient_scale when they
// read them.
struct UpdateNumbers {
    int64_t number = 0;
    double rate = 0, gradient_scale = 1;
    double average_share = 0;  // of ScheduleFreeRunsArgs
};

// ---- Sums of squares ---------------------------------------------------------------------------

// Number of elements per block of a sum of squares. The first block of a range begins at the
// range's first element.
inline constexpr int64_t kSquaresBlock = 1 << 16;
int64_t SquaresBlocks(const ElementRange* ranges, int64_t count);

// sum += the squares of those elements of x that are in the ranges, in float64. Phase 1
// (BlockSquares): each block is summed by a single part, in the order of its elements, into its
// entry of blocks[]. Phase 2 (AddSquares): part 0 adds the entries of blocks[] to *sum, in order.
struct SquaresArgs {
    const void* x = nullptr;
    Element type = Element::kF32;
    const ElementRange* ranges = nullptr;
    int64_t range_count = 0;
    double* blocks = nullptr;  // [SquaresBlocks(ranges)]
    double* sum = nullptr;     // [1]
};
void BlockSquares(const SquaresArgs& args, int part, int parts);
void AddSquares(const SquaresArgs& args, int part, int parts);

// A float32 sum and its rounding error: the value is sum + rest.
struct FloatPair {
    float sum = 0, rest = 0;
};
// The same sums as SquaresArgs, in compensated float32 (Dekker 1971; Ogita, Rump and Oishi 2005)
// instead of float64: for jobs in which a rank's device has no float64. A block is summed in
// kPairLanes lanes: lane l adds the elements l, l + kPairLanes, ... of the block, in order. Then
// the lanes' sums are added in order, and last the blocks' sums.
//
// Error: each square is split exactly into two floats. Adding two pairs of the same sign has an
// error of at most 3 * 2^-48 of the new sum (Joldes, Muller and Popescu 2017). All terms are
// positive, so with n blocks the relative error of the result is at most (1024 + kPairLanes + n) *
// 2^-46. That is below 2^-24, half a unit of a float32, for up to two million blocks (2^37
// elements). In addition, a square below 2^-100 has an error of at most 2^-146, and a square above
// 2^127 makes the sum infinite or NaN.
inline constexpr int64_t kPairLanes = 64;
struct PairSquaresArgs {
    const void* x = nullptr;
    Element type = Element::kF32;
    const ElementRange* ranges = nullptr;
    int64_t range_count = 0;
    FloatPair* blocks = nullptr;  // [SquaresBlocks(ranges)]
    FloatPair* sum = nullptr;     // [1]
};
void BlockPairSquares(const PairSquaresArgs& args, int part, int parts);
void AddPairSquares(const PairSquaresArgs& args, int part, int parts);

// ---- Adam and SGD ------------------------------------------------------------------------------

// The memory that an update reads and writes for a rank's own part of the parameters. Element 0 of
// each array is the first element of that part. g: the gradients, p: the weights. copy: the weights
// in the type that the forward and backward pass read, or null.
struct UpdatedPart {
    const void* g = nullptr;
    Element g_type = Element::kF32;
    float* p = nullptr;
    void* copy = nullptr;
    Element copy_type = Element::kBf16;
};

// Adam, or AdamW with `decay` (AdamArgs of dense/rows.h), over the elements of each run. l2 and
// decay apply only to runs whose `decays` is set. The moments of a run begin at run.kept.
struct AdamRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, l2 = 0, decay = 0;
    UpdatedPart own;
    float* m = nullptr;
    float* v = nullptr;
};
void AdamRuns(const Kernels& kernels, const AdamRunsArgs& args, int part, int parts);

// As AdamRuns, with 8-bit moments (tensor/dynamic_codes.h): one byte per element and one scale per
// kStateBlock elements. Codes and scales have the same indices as the elements of the rank's own
// part, so run.kept == run.begin, which is a multiple of kStateBlock. Each block is decoded,
// updated and encoded again. The blocks are divided among the parts.
struct Adam8bitRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, l2 = 0, decay = 0;
    UpdatedPart own;
    uint8_t* m = nullptr;  // signed codes
    uint8_t* v = nullptr;  // unsigned codes
    float* m_scales = nullptr;
    float* v_scales = nullptr;
};
void Adam8bitRuns(const Kernels& kernels, const Adam8bitRunsArgs& args, int part, int parts);

// Gradient descent (SgdArgs of dense/rows.h) over the elements of each run. The first update adds
// the whole gradient to the momentum; later updates add (1 - dampening) times the gradient, as in
// torch.optim.SGD.
struct SgdRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double momentum = 0, dampening = 0, l2 = 0;
    bool nesterov = false;
    UpdatedPart own;
    float* b = nullptr;  // momentum, from run.kept on; null if there is no momentum
};
void SgdRuns(const Kernels& kernels, const SgdRunsArgs& args, int part, int parts);

// Lion (Chen et al. 2023) over the elements of each run: with the momentum m,
//   p = p - rate * (sign(beta1 * m + (1 - beta1) * g) + decay * p)
//   m = beta2 * m + (1 - beta2) * g
struct LionRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double beta1 = 0.9, beta2 = 0.99, decay = 0;
    UpdatedPart own;
    float* m = nullptr;
};
void LionRuns(const LionRunsArgs& args, int part, int parts);

// Schedule-free AdamW (Defazio et al. 2024) over the elements of each run, with the weights p = y
// and the share c of the average (UpdateNumbers::average_share):
//   v = beta2 * v + (1 - beta2) * g^2
//   d = g / (sqrt(v / correction2) + eps) + decay * y
//   y = y + c * (z - y) + rate * (beta1 * (1 - c) - 1) * d
//   z = z - rate * d
struct ScheduleFreeRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
    UpdatedPart own;
    float* z = nullptr;
    float* v = nullptr;
};
void ScheduleFreeRuns(const ScheduleFreeRunsArgs& args, int part, int parts);
// program::ScheduleFreeView. The kernel writes `kept` if there is no copy.
struct ScheduleFreeViewArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double beta1 = 0.9;
    bool averaged = true;
    const float* z = nullptr;
    float* p = nullptr;
    float* kept = nullptr;  // the gradients' memory
    void* copy = nullptr;
    Element copy_type = Element::kBf16;
};
void ScheduleFreeView(const ScheduleFreeViewArgs& args, int part, int parts);

// Muon (Jordan et al. 2024) on one matrix, as torch.optim.Muon with float32 products: MuonStep,
// MuonScale, five times {gram = x x^T; mixed = gram gram; MuonMix; next += mixed x; swap x and
// next}, MuonApply. x is [short side, long side].
//
// MuonStep updates the momentum m and sets x to the step, transposed if the matrix has more rows
// than columns, and row_squares to the sums of squares of the matrix's rows. MuonScale divides x by
// its norm. MuonApply adds x to the weights.
struct MuonArgs {
    UpdateMatrix matrix;
    const UpdateNumbers* numbers = nullptr;
    double momentum = 0.95, decay = 0;
    bool nesterov = true, adam_size = true;
    UpdatedPart own;
    float* m = nullptr;
    float* x = nullptr;
    double* row_squares = nullptr;  // [matrix.rows]
    bool turned() const { return matrix.rows > matrix.cols; }
};
void MuonStep(const MuonArgs& args, int part, int parts);
void MuonScale(const MuonArgs& args, int part, int parts);
void MuonApply(const MuonArgs& args, int part, int parts);
// mixed = b gram + c mixed, and next = a x.
struct MuonMixArgs {
    const float* gram = nullptr;
    float* mixed = nullptr;
    const float* x = nullptr;
    float* next = nullptr;
    int64_t square = 0, count = 0;  // elements of gram, of x
};
void MuonMix(const MuonMixArgs& args, int part, int parts);

// ---- Adafactor (Shazeer and Stern 2018) --------------------------------------------------------

// Adds the squared gradients of each row and each column to sums[]. The sum of a row or column is
// at the index of its moment (FactoredTensor::rows_at, cols_at). With `sizes`, also adds the
// squared weights of tensor i (FactoredTensor::number) to sums[moments + i]. Sums are float64, in
// the order of the elements. For sums of rows, the rows are divided among the parts; for sums of
// columns, the columns; for the squared weights, the tensors.
struct AdafactorSumsArgs {
    const FactoredRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;  // gradient_scale
    const void* g = nullptr;
    Element g_type = Element::kF32;
    const float* p = nullptr;  // read if `sizes` is set
    int64_t moments = 0;
    bool sizes = false;
    double* sums = nullptr;  // [moments + tensors]
};
void AdafactorSums(const AdafactorSumsArgs& args, int part, int parts);

// Updates moments[], the moving averages of the mean squares of each row and of each column. Sets
// inverse[] to the factors, one for each row and each column, by which gradients are multiplied. A
// vector has factors of columns only. The tensors are divided among the parts.
struct AdafactorMomentsArgs {
    const FactoredTensor* tensors = nullptr;
    int64_t tensor_count = 0;
    const UpdateNumbers* numbers = nullptr;  // number
    double decay_rate = -0.8, eps_square = 1e-30;
    const double* sums = nullptr;
    float* moments = nullptr;
    float* inverse = nullptr;
};
void AdafactorMoments(const AdafactorMomentsArgs& args, int part, int parts);

// Adds to squares[i] the squared elements of the update of tensor i (FactoredTensor::number),
// before the learning rate is applied. Phase 1 (AdafactorRowSizes): each row of a run is summed by
// a single part, into its entry of rows[]. Phase 2 (AdafactorAddSizes): part 0 adds rows[] to
// squares[], in order.
struct AdafactorSizesArgs {
    const FactoredRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;  // gradient_scale
    const void* g = nullptr;
    Element g_type = Element::kF32;
    const float* inverse = nullptr;
    double* rows = nullptr;     // [AdafactorRows(runs)]
    double* squares = nullptr;  // [tensors]
};
int64_t AdafactorRows(const FactoredRun* runs, int64_t count);
void AdafactorRowSizes(const AdafactorSizesArgs& args, int part, int parts);
void AdafactorAddSizes(const AdafactorSizesArgs& args, int part, int parts);

// Updates the weights. The rows are divided among the parts.
struct AdafactorUpdateArgs {
    const FactoredRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    UpdatedPart own;
    const float* inverse = nullptr;
    const double* sums = nullptr;     // [moments + tensors]: read if scale_parameter is set
    const double* squares = nullptr;  // [tensors]
    int64_t moments = 0;
    double eps_scale = 1e-3, clip_threshold = 1, decay = 0;
    bool scale_parameter = false, relative_step = false;
};
void AdafactorUpdate(const Kernels& kernels, const AdafactorUpdateArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
