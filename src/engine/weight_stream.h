// Feeding weights (--weights-from 0): only rank 0 has the model's file; the others get their shards
// from it over the fabric while they load.
//
// The header (tensor table, metadata but the tokenizer's, fingerprint) goes over the control plane,
// before the others make their Program from it. While loading, each of them asks rank 0 for one
// piece of a tensor after another over the links of the world group; rank 0 answers the ranks in
// turn, on a thread of its own beside its own loading.
// What comes is checked as a file is: rank 0 is known by its key, but may have a bug.
// Errors of reading are rank 0's, which end the job on all ranks; a lost peer is the links' error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "engine/job.h"
#include "model_files/model_file.h"

namespace weft::engine {

// A model whose bytes are on rank 0. Thread: as ModelSource; reads wait for one another.
class StreamedSource : public model_files::ModelSource {
  public:
    // Errors: kCorrupt (no header, or one that makes no sense).
    static Result<std::unique_ptr<StreamedSource>> Parse(const std::string& header);

    // The group that reads go over, until the next call; its rank 0 runs StreamWeights meanwhile.
    void Connect(coll::Comm* world) { world_ = world; }
    // Tells rank 0 that nothing more will be asked for.
    Status SayDone();

    const std::string& name() const override { return name_; }
    const model_files::Metadata& meta() const override { return *meta_; }
    const std::vector<model_files::TensorInfo>& tensors() const override { return tensors_; }
    const model_files::TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const model_files::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override { return fingerprint_; }

  private:
    Status TakeMetadata(const std::string& header);

    std::string name_, fingerprint_;
    std::vector<std::string> keys_;             // meta_'s entries point to these
    std::vector<std::vector<uint8_t>> values_;  // and these
    std::unique_ptr<model_files::Metadata> meta_;
    std::vector<model_files::TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> index_;
    mutable std::mutex mutex_;  // of world_
    coll::Comm* world_ = nullptr;
};

// The header of `source`, for StreamedSource::Parse. Errors: those of Fingerprint.
Result<std::string> StreamHeader(const model_files::ModelSource& source);

// Collective, once an epoch: opens the model (and its adapters) on rank 0 and gives every other
// rank its header. On rank 0 what OpenAdapted returns, elsewhere a StreamedSource.
Result<std::unique_ptr<model_files::ModelSource>> OpenStreamed(const Job& job,
                                                               cluster::Cluster& cluster);

// Rank 0: serves every other rank of `world` until it has said that it is done, or `stop` is set.
// fed_bytes grows by what was sent. Errors: kCorrupt (a request outside its tensor), those of
// ReadRows and of the links.
Status StreamWeights(coll::Comm& world, const model_files::ModelSource& source,
                     const std::atomic<bool>& stop, std::atomic<uint64_t>& fed_bytes);

}  // namespace weft::engine
