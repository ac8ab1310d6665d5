// Kernels of the optimizer's update (program/update.h), and the search for numbers that are not
// finite.
//
// Gradients, weights and optimizer state are vectors; runs (tensor/update_runs.h) say which of
// their elements belong together. For the calling convention and parts see dense/lookup.h. Kernels
// read scalars that change between updates through `numbers`, so that arguments are created once. A
// kernel in two phases is two functions with the same args: all parts of the first finish before
// the second begins.
#pragma once

#include "kernels/kernels.h"
#include "tensor/update_runs.h"

namespace weft::kernels::dense {

// number: the update's number, from 1 on. Kernels multiply gradients by gradient_scale when they
// read them.
struct UpdateNumbers {
    int64_t number = 0;
    double rate = 0, gradient_scale = 1;
};

// ---- Sums of squares ---------------------------------------------------------------------------

// Elements per block of a sum of squares; the blocks of a range begin at its first element.
inline constexpr int64_t kSquaresBlock = 1 << 16;
int64_t SquaresBlocks(const ElementRange* ranges, int64_t count);

// sum += the squares of x in the ranges, in float64. Phase 1 (BlockSquares): one part sums each
// block in the order of its elements, into blocks[]. Phase 2 (AddSquares): part 0 adds blocks[] to
// *sum in order.
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

// A float32 sum and its rounding errors: the value is sum + rest.
struct FloatPair {
    float sum = 0, rest = 0;
};
// As above for devices without float64, in compensated float32 (Dekker 1971; Ogita, Rump and Oishi
// 2005). A block is summed in kPairLanes lanes: lane l takes its elements l, l + kPairLanes, ... in
// order. Then the lanes are added in order, and then the blocks.
//
// Error: each square is split exactly into two floats. Adding pairs of one sign errs by at most 3 *
// 2^-48 of the new sum (Joldes, Muller and Popescu 2017). All terms are positive, so with n blocks
// the value errs by at most (1024 + kPairLanes + n) * 2^-46 of itself. That is below 2^-24, half a
// unit of a float32, for up to two million blocks (2^37 elements). In addition, a square below
// 2^-100 errs by at most 2^-146, and a square above 2^127 makes the sum infinite or NaN.
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

// Memory for the update of a rank's own part; element 0 is the first element of that part. `copy`:
// the weights in the type that passes read, or null.
struct UpdatedPart {
    const void* g = nullptr;
    Element g_type = Element::kF32;
    float* p = nullptr;
    void* copy = nullptr;
    Element copy_type = Element::kBf16;
};

// Adam, or AdamW with `decay` (AdamArgs of dense/rows.h), over the elements of each run. l2 and
// decay apply to runs that decay. Moments of a run are at run.kept.
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
// kStateBlock elements, both at the element's place in the own part (run.kept == run.begin, a
// multiple of kStateBlock). Each block is widened, updated and narrowed. Parts divide the blocks.
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

// SgdArgs of dense/rows.h over the elements of each run. The first update adds the whole gradient
// to the momentum, later ones (1 - dampening) of it, as in torch.optim.SGD.
struct SgdRunsArgs {
    const UpdateRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    double momentum = 0, dampening = 0, l2 = 0;
    bool nesterov = false;
    UpdatedPart own;
    float* b = nullptr;  // momentum, at run.kept; null without momentum
};
void SgdRuns(const Kernels& kernels, const SgdRunsArgs& args, int part, int parts);

// ---- Adafactor (Shazeer and Stern 2018) --------------------------------------------------------

// sums += squares of the gradients by row and by column, at the indexes of the tensors' moments.
// With `sizes`, sums[moments + number] += squares of the weights. Sums are float64, in the order of
// the elements. Parts divide the rows for sums of rows, the columns for sums of columns, and the
// tensors for sizes.
struct AdafactorSumsArgs {
    const FactoredRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;  // gradient_scale
    const void* g = nullptr;
    Element g_type = Element::kF32;
    const float* p = nullptr;  // read with `sizes`
    int64_t moments = 0;
    bool sizes = false;
    double* sums = nullptr;  // [moments + tensors]
};
void AdafactorSums(const AdafactorSumsArgs& args, int part, int parts);

// moments = the decayed means of the sums; inverse = the factor of a gradient. Parts divide the
// tensors.
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

// squares[number] += the squares of each tensor's update before the learning rate is applied. Phase
// 1 (AdafactorRowSizes): one part sums each row of a run, into rows[]. Phase 2 (AdafactorAddSizes):
// part 0 adds rows[] to squares in order.
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

// Updates the weights. Parts divide the rows.
struct AdafactorUpdateArgs {
    const FactoredRun* runs = nullptr;
    int64_t run_count = 0;
    const UpdateNumbers* numbers = nullptr;
    UpdatedPart own;
    const float* inverse = nullptr;
    const double* sums = nullptr;     // [moments + tensors]: read with scale_parameter
    const double* squares = nullptr;  // [tensors]
    int64_t moments = 0;
    double eps_scale = 1e-3, clip_threshold = 1, decay = 0;
    bool scale_parameter = false, relative_step = false;
};
void AdafactorUpdate(const Kernels& kernels, const AdafactorUpdateArgs& args, int part, int parts);

// ---- Divergence --------------------------------------------------------------------------------

// found[part] = the first row of the part's share with a number that is not finite, or -1. The
// first element of found[] that is not -1 is the first such row of x.
struct FindNonFiniteArgs {
    ConstMatrix x;  // [rows, cols], any type
    int64_t rows = 0, cols = 0;
    int64_t* found = nullptr;  // [parts]
};
void FindNonFinite(const FindNonFiniteArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
