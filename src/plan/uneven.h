// Shares of unlike hosts: how much of a stage each of its tensor ranks holds, how many layers each
// stage has.
#pragma once

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

// The fastest shares found for a layout's tp x pp (x ep), in the form of --split: of the tensor
// ranks kShareUnits in all, of stages their layers. It begins with shares by what each device reads
// a second, and moves parts of them for as long as the prediction gets better: where a prompt or a
// token goes through the stages one by one, the fastest stage has all that its memory holds. At
// most kMostTries layouts are predicted. Errors: as of Predict.
inline constexpr int kShareUnits = 128, kMostTries = 400;
Result<Prediction> PredictUneven(LayoutPredictor& predictor, const model::Layout& layout);

}  // namespace weft::plan
