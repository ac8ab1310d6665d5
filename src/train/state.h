// The model in training on one rank: its own part of each unit, the values of that part, and their
// loading from the model's file.
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

// Timeout of short agreements between ranks.
inline constexpr int64_t kAgreeMs = 600'000;

// This rank's own part of a unit: elements [own_begin, own_begin + own_count).
struct OwnPart {
    const program::FlatBucket* unit = nullptr;
    // The ranges of the own part that no lower rank holds, in elements of the unit. These ranges of
    // all ranks together cover the model exactly once.
    std::vector<ElementRange> sole;
    // Values of the own part's elements (train/update/add.h): gradients, float32 weights, and the
    // narrower copy that passes read (else kNoValue).
    program::ValueId gradients = program::kNoValue, weights = program::kNoValue,
                     copy = program::kNoValue;
};

// A part of a tensor of the model's file that a rank holds, as announced to other ranks.
struct Holding {
    std::string tensor;
    int64_t row = 0, rows = 0, col = 0, cols = 0;
};
Holding HoldingOf(const program::Value& weight);

class TrainState {
  public:
    // Exchanges holdings with the other ranks. units outlive it. replica: replica 0 owns tensors
    // that several replicas hold whole. Errors: those of links, kCorrupt.
    Status Agree(const std::vector<program::FlatBucket>& units, cluster::Cluster& cluster,
                 int replica);
    // Reads this rank's weights from the model's file; frozen weights keep their types. training
    // has the parts' values in its Program and outlives the state.
    // Errors: those of model files, kUnsupported (a weight that can't be trained), kCancelled.
    Status Load(backend::Executable& training, const model_files::ModelSource& source,
                cluster::Cluster& cluster);

    std::vector<OwnPart>& parts() { return parts_; }
    const std::vector<OwnPart>& parts() const { return parts_; }
    int64_t parameters() const { return parameters_; }  // of the whole model
    // Over all ranks.
    const std::set<std::string, std::less<>>& trained_tensors() const { return trained_tensors_; }
    // Precondition: the state is loaded.
    backend::Executable& training() const { return *training_; }
    // Reads elements of the own part from `first` on, with their current values. Errors: the
    // device's.
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

// Reads elements [begin, end) of a weight, row-major, as floats, several rows at a time: take(first
// element, values).
using TakeFloats = std::function<Status(int64_t begin, std::span<const float> values)>;
Status ReadElements(const model_files::ModelSource& source, const program::Value& weight,
                    int64_t begin, int64_t end, const TakeFloats& take);

}  // namespace weft::train
