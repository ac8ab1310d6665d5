// What a rank keeps of the model in training: the weights in memory that steps read, and of its own
// part of each unit the float32 weights. (What an optimizer keeps beside them: train/update.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/training.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "program/zero.h"

namespace weft::train {

// Half-open, in elements of a unit.
struct ElementRange {
    int64_t begin = 0, end = 0;
};

// This rank's own part of a unit: elements [own_begin, own_begin + own_count).
struct OwnPart {
    const program::Unit* unit = nullptr;
    std::span<float> weights;  // the unit's own bytes in memory, or `master`
    std::vector<float> master;
    // Of the own part, in elements of the unit: what no rank of lower number has, too. These
    // ranges of all ranks make the whole model once.
    std::vector<ElementRange> sole;
};

// A part of a tensor of the model's file that a rank has, for others to know.
struct Holding {
    std::string tensor;
    int64_t row = 0, rows = 0, col = 0, cols = 0;
};
Holding HoldingOf(const program::Value& weight);

class TrainState {
  public:
    // All three outlive the state.
    TrainState(backend::TrainingExecutable& training, const std::vector<program::Unit>& units)
        : training_(training), units_(units) {}

    // Agrees with the other ranks on who has what, and reads this rank's weights from the model's
    // file; weights that are not trained, too, in their own types. replica: 0 counts as the owner
    // of what several replicas hold whole.
    // Errors: links', model files', kUnsupported (a weight that can't be trained), kCancelled.
    Status Load(const model_files::ModelSource& source, cluster::Cluster& cluster, int replica);

    std::vector<OwnPart>& parts() { return parts_; }
    const std::vector<OwnPart>& parts() const { return parts_; }
    // Of a unit's weights or gradients in this rank's memory: whole, or its share.
    std::span<std::byte> WeightBytes(const program::Unit& unit) const {
        return training_.Bytes(unit.weights);
    }
    std::span<std::byte> GradientBytes(const program::Unit& unit) const {
        return training_.Bytes(unit.gradients);
    }
    // The own part of either.
    std::span<std::byte> OwnWeightBytes(const program::Unit& unit) const;
    std::span<std::byte> OwnGradientBytes(const program::Unit& unit) const;
    uint64_t size_bytes() const;                        // of masters
    int64_t parameters() const { return parameters_; }  // of the whole model
    // Of all ranks.
    const std::set<std::string, std::less<>>& trained_tensors() const { return trained_tensors_; }

  private:
    Status FindSole(cluster::Cluster& cluster, int replica);
    Status LoadUnit(OwnPart& part, const model_files::ModelSource& source,
                    const cluster::Cluster& cluster);
    Status LoadFrozen(const model_files::ModelSource& source, const cluster::Cluster& cluster);
    void Store(OwnPart& part, int64_t begin, std::span<const float> values);

    backend::TrainingExecutable& training_;
    const std::vector<program::Unit>& units_;
    std::vector<OwnPart> parts_;
    int64_t parameters_ = 0;
    std::set<std::string, std::less<>> trained_tensors_;
};

// Reads elements [begin, end) of a weight, row-major, as floats, some rows at a time:
// take(first element, values).
using TakeFloats = std::function<void(int64_t begin, std::span<const float> values)>;
Status ReadElements(const model_files::ModelSource& source, const program::Value& weight,
                    int64_t begin, int64_t end, const TakeFloats& take);

}  // namespace weft::train
