// The model in training as a ModelSource: the original model file with the trained weights in
// float32, read from whichever rank holds them. quantize/ writes it in any type.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coll/comm.h"
#include "model_files/source_over.h"
#include "train/state.h"

namespace weft::train {

// A rank's parts of each tensor, by the tensor's place in the model's list.
using OwnMembers = std::vector<std::pair<const OwnPart*, const program::FlatBucket::Member*>>;
using MembersByTensor = std::map<int64_t, OwnMembers>;

// Rank 0 reads the source. Meanwhile all other ranks run ServeExport, which returns when the source
// is destroyed.
class ExportSource final : public model_files::SourceOver {
  public:
    // world: null with one rank. All arguments must outlive this object.
    ExportSource(const model_files::ModelSource& source, const TrainState& state,
                 coll::Comm* world);
    ~ExportSource() override;

    // Always kUnsupported, because the weights change.
    Result<std::string> Fingerprint() const override;

  private:
    // Errors: errors of links.
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    const TrainState& state_;
    const MembersByTensor members_;
    coll::Comm* const world_;
    mutable std::mutex mutex_;
};

// On the other ranks: sends the data that rank 0 requests, until rank 0 is done.
Status ServeExport(const model_files::ModelSource& source, const TrainState& state,
                   coll::Comm& world);

}  // namespace weft::train
