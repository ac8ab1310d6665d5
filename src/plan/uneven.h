// Uneven shares for unlike hosts: the share of a stage for each tensor rank, the layers of each
// stage.
#pragma once

#include <memory>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

inline constexpr int kShareUnits = 128, kMostTries = 400;

// Finds the fastest shares for a layout's tp x pp (x ep), in the form of --tensor-split: tensor
// shares that sum to kShareUnits, or layers per stage. Borrows the predictor.
class UnevenLayout {
  public:
    UnevenLayout(LayoutPredictor& predictor, const model::Layout& layout);
    ~UnevenLayout();
    UnevenLayout(UnevenLayout&&) noexcept;
    UnevenLayout& operator=(UnevenLayout&&) noexcept;
    // Tries even shares, shares by devices' bandwidth, and shares by devices' memory. Errors: those
    // of Predict.
    Status Begin();
    // Moves shares between ranks while the prediction improves. If a prompt or a token passes
    // through the stages one by one, the fastest stage gets as much as its memory holds. Stops
    // after most_kinds kinds of ranks were predicted, or kMostTries layouts.
    void Refine(size_t most_kinds);
    const Prediction& best() const;

  private:
    class Search;
    std::unique_ptr<Search> search_;
};

}  // namespace weft::plan
