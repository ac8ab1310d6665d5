// A file of weights: whole, or the part of it that `weft pull --shard` fetched for a rank.
//
// A partial file (hub/part.h) is as long as the whole one, with holes. No hole is ever read: a read
// that touches one is an error that says so.
//
// With a ReadPlan a file is read only to find out what would be: see below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "hub/part.h"

namespace weft::model_files {

// What is read of partial files, by path, as what a shard must have. While headers and small
// tensors are read (reads happen, and one that fails for a hole is noted), that is what is missing
// to learn more. After Pretend() nothing is read but keys: each read is noted, gives zeros, and
// succeeds.
// Thread: any, at the same time.
class ReadPlan {
  public:
    // gap: ranges no further apart than this become one.
    explicit ReadPlan(uint64_t gap_bytes) : gap_bytes_(gap_bytes) {}
    void Add(const std::string& path, hub::ByteRange range);
    void Pretend() { pretends_ = true; }
    bool pretends() const { return pretends_; }
    uint64_t gap_bytes() const { return gap_bytes_; }
    // All that was noted.
    std::map<std::string, hub::RangeSet> Take();

  private:
    const uint64_t gap_bytes_;
    bool pretends_ = false;  // set before reads begin on other threads
    std::mutex mutex_;
    std::map<std::string, hub::RangeSet> files_;
};

class WeightFile {
  public:
    // plan (may be null) outlives the file. Errors: File's; kCorrupt for a partial file without its
    // note.
    static Result<WeightFile> Open(const std::string& path, ReadPlan* plan = nullptr);

    const std::string& path() const { return file_.path(); }
    uint64_t size_bytes() const { return file_.size_bytes(); }
    bool is_partial() const { return held_.has_value(); }
    // Bytes that are there without a gap from the first one.
    uint64_t Prefix() const { return held_ ? held_->Prefix() : size_bytes(); }
    // kNotFound where some of it is not there; noted in the plan.
    Status Need(hub::ByteRange range) const;
    // The same for bytes that say which others are read: a plan doesn't pretend to read them.
    Status NeedKey(hub::ByteRange range);
    // As File's, but kNotFound for a hole.
    Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
    Status ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                       std::span<std::byte> out) const;

  private:
    WeightFile(File file, std::optional<hub::RangeSet> held, ReadPlan* plan)
        : file_(std::move(file)), held_(std::move(held)), plan_(plan) {}
    bool Pretends(hub::ByteRange range) const {
        return plan_ != nullptr && plan_->pretends() && !keys_.Contains(range);
    }
    File file_;
    std::optional<hub::RangeSet> held_;  // nothing: all of it
    hub::RangeSet keys_;
    ReadPlan* plan_;
};

}  // namespace weft::model_files
