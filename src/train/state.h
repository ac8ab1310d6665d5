// What a rank has of the model in training: which part of each unit is its own, where the values of
// that part are, and how they come from the model's file.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "program/zero.h"

namespace weft::train {

using program::ElementRange;

// How long ranks wait for the others' word, unless they wait for more than a word.
inline constexpr int64_t kAgreeMs = 600'000;

// This rank's own part of a unit: elements [own_begin, own_begin + own_count).
struct OwnPart {
    const program::FlatBucket* unit = nullptr;
    // Of the own part, in elements of the unit: what no rank of lower number has, too. These
    // ranges of all ranks make the whole model once.
    std::vector<ElementRange> sole;
    // Values of the own part's elements (train/update/add.h): its gradients, its weights in
    // float32, and what passes read where that is narrower (else kNoValue).
    program::ValueId gradients = program::kNoValue, weights = program::kNoValue,
                     copy = program::kNoValue;
};

// A part of a tensor of the model's file that a rank has, for others to know.
struct Holding {
    std::string tensor;
    int64_t row = 0, rows = 0, col = 0, cols = 0;
};
Holding HoldingOf(const program::Value& weight);

class TrainState {
  public:
    // Agrees with the other ranks on who has what. units outlive it. replica: 0 counts as the owner
    // of what several replicas hold whole. Errors: links', kCorrupt.
    Status Agree(const std::vector<program::FlatBucket>& units, cluster::Cluster& cluster,
                 int replica);
    // Reads this rank's weights from the model's file; weights that are not trained, too, in their
    // own types. training, whose Program has the parts' values, outlives the state.
    // Errors: model files', kUnsupported (a weight that can't be trained), kCancelled.
    Status Load(backend::Executable& training, const model_files::ModelSource& source,
                cluster::Cluster& cluster);

    std::vector<OwnPart>& parts() { return parts_; }
    const std::vector<OwnPart>& parts() const { return parts_; }
    int64_t parameters() const { return parameters_; }  // of the whole model
    // Of all ranks.
    const std::set<std::string, std::less<>>& trained_tensors() const { return trained_tensors_; }
    // Once it is loaded.
    backend::Executable& training() const { return *training_; }
    // Elements of the own part from `first` on, as they are now. Errors: the device's.
    Status ReadWeights(const OwnPart& part, int64_t first, std::span<float> out) const {
        return training_->ReadFloats(part.weights, first, out);
    }

  private:
    Status FindSole(cluster::Cluster& cluster, int replica,
                    const std::vector<program::FlatBucket>& units);
    Status LoadUnit(const OwnPart& part, const model_files::ModelSource& source,
                    const cluster::Cluster& cluster);
    Status LoadFrozen(const model_files::ModelSource& source, const cluster::Cluster& cluster);
    Status Store(const OwnPart& part, int64_t begin, std::span<const float> values);

    backend::Executable* training_ = nullptr;
    std::vector<OwnPart> parts_;
    int64_t parameters_ = 0;
    std::set<std::string, std::less<>> trained_tensors_;
};

// Reads elements [begin, end) of a weight, row-major, as floats, some rows at a time:
// take(first element, values).
using TakeFloats = std::function<Status(int64_t begin, std::span<const float> values)>;
Status ReadElements(const model_files::ModelSource& source, const program::Value& weight,
                    int64_t begin, int64_t end, const TakeFloats& take);

}  // namespace weft::train
