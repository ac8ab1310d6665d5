#include "train/flops.h"

#include "train/lora/lora.h"

namespace weft::train {
namespace {

// Weights of experts that a position does not use.
double IdleWeights(const Trainer& trainer) {
    const model::Moe& moe = trainer.hyper().moe;
    double all = 0;
    for (const model_files::TensorInfo& tensor : trainer.source().tensors()) {
        if (tensor.dim_count == 3) all += static_cast<double>(tensor.rows * tensor.cols);
    }
    if (moe.experts == 0) return 0;
    return all * static_cast<double>(moe.experts - moe.used) / static_cast<double>(moe.experts);
}

}  // namespace

double FlopsPerToken(const Trainer& trainer) {
    const model::Hyper& hyper = trainer.hyper();
    const double table =
        hyper.tied ? 0 : static_cast<double>(hyper.vocab) * static_cast<double>(hyper.hidden);
    const double unused = IdleWeights(trainer) + table;
    const auto trained = static_cast<double>(trainer.state().parameters());
    if (!trainer.options().lora.on()) return 6 * (trained - unused);
    double frozen = -unused;
    for (const model_files::TensorInfo& tensor : trainer.source().tensors()) {
        const bool adapter = tensor.name.starts_with(kAdapterPrefix);
        if (tensor.dim_count > 1 && !adapter) {
            frozen += static_cast<double>(tensor.rows * tensor.cols);
        }
    }
    return 6 * trained + 4 * frozen;
}

}  // namespace weft::train
