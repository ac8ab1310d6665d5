// The state of the model that one rank trains: the rank's own part of each unit (a FlatBucket,
// program/zero.h) and the Program values of that part. Loads the weights from the model's file.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
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

// Timeout of short exchanges between ranks.
inline constexpr int64_t kAgreeMs = 600'000;

// This rank's own part of a unit: elements [own_begin, own_begin + own_count) of the FlatBucket.
struct OwnPart {
    const program::FlatBucket* unit = nullptr;
    // The ranges of the own part that no rank with a lower number holds, in elements of the unit.
    // Over all ranks, these ranges cover the model exactly once.
    std::vector<ElementRange> sole;
    // The Program's values for the elements of the own part, set by AddUpdate (train/update/add.h):
    // gradients, float32 weights, and the copy in a narrower type that the forward and backward
    // pass read. copy is kNoValue if there is no such copy.
    program::ValueId gradients = program::kNoValue, weights = program::kNoValue,
                     copy = program::kNoValue;
    program::ValueId average = program::kNoValue;  // average of the weights, or kNoValue
};

// A part of a tensor of the model's file that a rank holds; ranks exchange their holdings.
struct Holding {
    std::string tensor;
    int64_t row = 0, rows = 0, col = 0, cols = 0;
};
Holding HoldingOf(const program::Value& weight);

class TrainState {
  public:
    // Exchanges holdings with the other ranks. `units` must outlive this object. replica: this
    // rank's replica. If several replicas hold a tensor whole, replica 0 owns it. Errors: errors of
    // links, kCorrupt.
    Status Agree(const std::vector<program::FlatBucket>& units, cluster::Cluster& cluster,
                 int replica);
    // Reads this rank's weights from the model's file; frozen weights keep their types. training:
    // the executable whose Program has the values of parts(); must outlive this object.
    // Errors: errors of model files, kUnsupported (a weight that can't be trained), kCancelled.
    Status Load(backend::Executable& training, const model_files::ModelSource& source,
                cluster::Cluster& cluster);

    std::vector<OwnPart>& parts() { return parts_; }
    const std::vector<OwnPart>& parts() const { return parts_; }
    int64_t parameters() const { return parameters_; }  // of the whole model
    // Names of the tensors that any rank trains.
    const std::set<std::string, std::less<>>& trained_tensors() const { return trained_tensors_; }
    // Precondition: the state is loaded.
    backend::Executable& training() const { return *training_; }
    // From now on, ReadWeights gives the averages of the weights, multiplied by `factor`; with
    // `between`, weights + factor * (averages - weights).
    void UseAverages(float factor, bool between = false) {
        average_factor_ = factor;
        between_ = between;
    }
    // Reads the current weights of the own part, from element `first` of the part on. Errors: the
    // device's.
    Status ReadWeights(const OwnPart& part, int64_t first, std::span<float> out) const;

  private:
    Status FindSole(cluster::Cluster& cluster, int replica,
                    const std::vector<program::FlatBucket>& units);
    Status LoadMember(const OwnPart& part, const program::FlatBucket::Member& member,
                      const model_files::ModelSource& source, const cluster::Cluster& cluster,
                      std::mutex& writes);
    Status Store(const OwnPart& part, int64_t begin, std::span<const float> values,
                 std::mutex& writes);

    backend::Executable* training_ = nullptr;
    std::vector<OwnPart> parts_;
    float average_factor_ = 0;  // 0: ReadWeights gives the weights
    bool between_ = false;
    int64_t parameters_ = 0;
    std::set<std::string, std::less<>> trained_tensors_;
};

// ReadElements reads elements [begin, end) of a weight (row-major) as floats. It calls take for
// several rows at a time, with the index of the first element and the values.
using TakeFloats = std::function<Status(int64_t begin, std::span<const float> values)>;
Status ReadElements(const model_files::ModelSource& source, const program::Value& weight,
                    int64_t begin, int64_t end, const TakeFloats& take);

// Reads the weights among values [first, end) of a Program from a model's file, in their types.
// Units of trained weights are no weights of the file. Errors: as for TrainState::Load.
Status LoadFrozen(backend::Executable& executable, program::ValueId first, program::ValueId end,
                  const model_files::ModelSource& source, const cluster::Cluster& cluster);

}  // namespace weft::train
