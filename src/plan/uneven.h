// Shares of unlike hosts: how much of a stage each of its tensor ranks holds, how many layers each
// stage has.
#pragma once

#include <memory>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

inline constexpr int kShareUnits = 128, kMostTries = 400;

// The fastest shares found for a layout's tp x pp (x ep), in the form of --tensor-split: of the
// tensor ranks kShareUnits in all, of stages their layers. Borrows the predictor.
class UnevenLayout {
  public:
    UnevenLayout(LayoutPredictor& predictor, const model::Layout& layout);
    ~UnevenLayout();
    UnevenLayout(UnevenLayout&&) noexcept;
    UnevenLayout& operator=(UnevenLayout&&) noexcept;
    // Even shares, and shares by what each device reads a second and by what it holds. Errors: as
    // of Predict.
    Status Begin();
    // Moves parts of them for as long as the prediction gets better: where a prompt or a token goes
    // through the stages one by one, the fastest stage has all that its memory holds. Ends early
    // where so many kinds of ranks were predicted anew, or kMostTries layouts.
    void Refine(size_t most_kinds);
    const Prediction& best() const;

  private:
    class Search;
    std::unique_ptr<Search> search_;
};

}  // namespace weft::plan
