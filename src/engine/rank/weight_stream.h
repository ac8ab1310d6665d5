// Weight streaming (--weights-from 0): only rank 0 has the model's file. It sends the other ranks
// their shards over the links between ranks while they load.
//
// First, the header (tensor table, metadata except the tokenizer's, fingerprint, and the few small
// tensors that a Program is made from) travels over the control connections, and the other ranks
// make their Program from it. While loading, each rank
// requests one piece of a tensor after another over the links of the world group. Rank 0 answers
// the ranks in turn, on a separate thread, while it loads its own shard. Ranks check the data as
// they would check a file: rank 0 is authenticated, but may have a bug.
// Errors: a read error on rank 0 ends the job on all ranks; a lost peer is an error of the links.
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

// A model whose bytes are on rank 0. Thread: as ModelSource; a mutex serializes reads.
class StreamedSource : public model_files::ModelSource {
  public:
    // Errors: kCorrupt (no header, or an invalid one).
    static Result<std::unique_ptr<StreamedSource>> Parse(const std::string& header);

    // Sets the group whose rank 0 answers the reads. Rank 0 must run StreamWeights during reads.
    void Connect(coll::Comm* world) { world_ = world; }
    // Tells rank 0 that no more requests follow.
    Status LogDone();

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
    std::vector<std::string> keys_;             // meta_ points to these
    std::vector<std::vector<uint8_t>> values_;  // meta_ points to these
    std::unique_ptr<model_files::Metadata> meta_;
    std::vector<model_files::TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> index_;
    std::unordered_map<size_t, std::vector<uint8_t>> held_;  // tensors that arrived with the header
    mutable std::mutex mutex_;                               // guards world_
    coll::Comm* world_ = nullptr;
};

// The header of `source`, which StreamedSource::Parse reads. Errors: as Fingerprint.
Result<std::string> StreamHeader(const model_files::ModelSource& source);

// Collective, once per epoch: rank 0 opens the model (and its adapters) and sends the header to
// every other rank. Returns OpenModelOf's result on rank 0, a StreamedSource elsewhere.
Result<std::unique_ptr<model_files::ModelSource>> OpenStreamed(const Job& job,
                                                               cluster::Cluster& cluster);

// Rank 0: serves every other rank of `world` until each has reported that it is done, or `stop` is
// set. Adds the number of sent bytes to fed_bytes. Errors: kCorrupt (a request outside its tensor),
// errors of ReadRows and of the links.
Status StreamWeights(coll::Comm& world, const model_files::ModelSource& source,
                     const std::atomic<bool>& stop, std::atomic<uint64_t>& fed_bytes);

}  // namespace weft::engine
