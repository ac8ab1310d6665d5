#include "kernels/avx2/rows.h"

#include "kernels/avx2/simd.h"
#include "kernels/dense/vector_rows.h"

namespace weft::kernels::avx2 {
namespace {

struct WithRoot : Simd {
    static Float Sqrt(Float x) { return _mm256_sqrt_ps(x); }
};

}  // namespace

void NormGradInput(const dense::NormGradArgs& args, int part, int parts) {
    dense::NormGradInputRows<WithRoot>(args, part, parts);
}

void NormGradWeight(const dense::NormGradArgs& args, int part, int parts) {
    dense::NormGradWeightRows<WithRoot>(args, part, parts);
}

void GluGrad(const reference::GluGradArgs& args, int part, int parts) {
    dense::GluGradRows<WithRoot>(args, part, parts);
}

void Loss(const dense::LossArgs& args, int part, int parts) {
    dense::LossRows<WithRoot>(args, part, parts);
}

void AdamW(const dense::AdamWArgs& args, int part, int parts) {
    dense::AdamWElements<WithRoot>(args, part, parts);
}

}  // namespace weft::kernels::avx2
