// A file of weights: complete, or the part that `weft pull --shard` downloaded for a rank.
//
// A partial file (hub/part.h) has the full length, with holes. A read that touches a hole fails
// with an error that names the hole.
//
// A file can sum the bytes that it reads (FileSums), so that the hash of a file costs no second
// read (content.h). A complete file that is changed while it is open fails at the next read.
//
// With a ReadPlan, reads only determine which bytes a shard needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_sum.h"
#include "base/file.h"
#include "base/result.h"
#include "hub/part.h"

namespace weft::model_files {

// Records the byte ranges that are read from partial files, by path: the bytes that a shard needs.
// Before Pretend(), bytes are really read, and a read that hits a hole fails but is recorded. After
// Pretend(), only keys (NeedKey) are really read; every other read is recorded, returns zeros and
// succeeds.
// Thread: any, concurrently.
class ReadPlan {
  public:
    // gap_bytes: merges ranges that are at most this far apart.
    explicit ReadPlan(uint64_t gap_bytes) : gap_bytes_(gap_bytes) {}
    void Add(const std::string& path, hub::ByteRange range);
    void Pretend() { pretends_ = true; }
    bool pretends() const { return pretends_; }
    uint64_t gap_bytes() const { return gap_bytes_; }
    // Returns all recorded ranges and forgets them.
    std::map<std::string, hub::RangeSet> Take();

  private:
    const uint64_t gap_bytes_;
    bool pretends_ = false;  // set before reads begin on other threads
    std::mutex mutex_;
    std::map<std::string, hub::RangeSet> files_;
};

// Bytes of each sum of a file; the last range may be shorter.
inline constexpr uint64_t kSummedBytes = uint64_t{64} << 20;

// The sums of a file's bytes that were read so far. Thread: any, concurrently.
class FileSums {
  public:
    explicit FileSums(uint64_t size_bytes);
    // Add has an effect only while the sums are on. At first, they are off.
    void TurnOn(bool on) { on_ = on; }
    // Adds those bytes of the file that were not added before.
    void Add(uint64_t offset, std::span<const std::byte> bytes);
    // The parts of `range` that were not added.
    std::vector<hub::ByteRange> MissingOf(hub::ByteRange range) const;
    // One sum per range of kSummedBytes.
    std::vector<ByteSum> sums() const;

  private:
    std::atomic<bool> on_{false};
    mutable std::mutex mutex_;
    hub::RangeSet added_;
    std::vector<ByteSum> sums_;
};

class WeightFile {
  public:
    // plan (may be null) must outlive the file. Errors: those of File; kCorrupt for a partial file
    // without the note of its ranges (hub/part.h).
    static Result<WeightFile> Open(const std::string& path, ReadPlan* plan = nullptr);

    const std::string& path() const { return file_.path(); }
    uint64_t size_bytes() const { return file_.size_bytes(); }
    bool is_partial() const { return held_.has_value(); }
    // The parts of the file that are there.
    std::vector<hub::ByteRange> Held() const;
    // The stamp when the file was opened.
    const FileStamp& opened() const { return opened_; }
    // The sums of contiguous reads, which count while the sums are on.
    FileSums& sums() const { return *sums_; }
    // Bytes present from the file's start to the first hole.
    uint64_t Prefix() const { return held_ ? held_->Prefix() : size_bytes(); }
    // kNotFound if some of the range is missing, which is then recorded in the plan.
    Status Need(hub::ByteRange range) const;
    // As Need, for bytes that decide which other bytes are read: they are really read even after
    // Pretend().
    Status NeedKey(hub::ByteRange range);
    // As File::ReadAt; kNotFound for a hole; kIo if the file was changed since the opening.
    Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
    Status ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                       std::span<std::byte> out) const;

  private:
    WeightFile(File file, std::optional<hub::RangeSet> held, const FileStamp& opened,
               ReadPlan* plan)
        : file_(std::move(file)),
          held_(std::move(held)),
          opened_(opened),
          sums_(std::make_unique<FileSums>(file_.size_bytes())),
          plan_(plan) {}
    Status CheckUnchanged() const;
    bool Pretends(hub::ByteRange range) const {
        return plan_ != nullptr && plan_->pretends() && !keys_.Contains(range);
    }
    File file_;
    std::optional<hub::RangeSet> held_;  // nullopt: the file is complete
    hub::RangeSet keys_;
    FileStamp opened_;
    std::unique_ptr<FileSums> sums_;
    ReadPlan* plan_;
};

}  // namespace weft::model_files
