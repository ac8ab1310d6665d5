// Searches uneven shares for unlike hosts: how much of a stage each tensor rank gets, or how many
// layers each stage gets.
#pragma once

#include <memory>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

// Tensor shares add up to kShareUnits. Refine tries at most kMostTries layouts.
inline constexpr int kShareUnits = 128, kMostTries = 400;

// Finds the fastest shares for a layout with given tp, pp and ep. Shares have the form of
// --tensor-split: tensor shares, or layers per stage. `predictor` must outlive this object.
class UnevenLayout {
  public:
    UnevenLayout(LayoutPredictor& predictor, const model::Layout& layout);
    ~UnevenLayout();
    UnevenLayout(UnevenLayout&&) noexcept;
    UnevenLayout& operator=(UnevenLayout&&) noexcept;
    // Tries even shares, shares by devices' bandwidth, and shares by devices' memory. Errors: those
    // of Predict.
    Status Begin();
    // Moves shares between ranks as long as the prediction improves. If a prompt or a token passes
    // through the stages one by one, the fastest stage gets as much as its memory holds. Stops once
    // the predictor has predicted `most_kinds` more kinds of ranks, or kMostTries layouts.
    void Refine(size_t most_kinds);
    const Prediction& best() const;

  private:
    class Search;
    std::unique_ptr<Search> search_;
};

}  // namespace weft::plan
