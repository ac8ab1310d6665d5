#include "model_files/weight_file.h"

#include <algorithm>
#include <utility>

namespace weft::model_files {

void ReadPlan::Add(const std::string& path, hub::ByteRange range) {
    const std::lock_guard lock(mutex_);
    files_.try_emplace(path, gap_bytes_).first->second.Add(range);
}

std::map<std::string, hub::RangeSet> ReadPlan::Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(files_, {});
}

FileSums::FileSums(uint64_t size_bytes) : sums_((size_bytes + kSummedBytes - 1) / kSummedBytes) {}

void FileSums::Add(uint64_t offset, std::span<const std::byte> bytes) {
    if (!on_.load(std::memory_order_relaxed)) return;
    const hub::ByteRange all{offset, offset + bytes.size()};
    for (std::vector<hub::ByteRange> missing = MissingOf(all); !missing.empty();) {
        std::vector<std::pair<uint64_t, ByteSum>> parts;  // by range of kSummedBytes
        for (const hub::ByteRange& range : missing) {
            for (uint64_t at = range.begin; at < range.end;) {
                const uint64_t end = std::min(range.end, at - at % kSummedBytes + kSummedBytes);
                parts.emplace_back(at / kSummedBytes, ByteSum())
                    .second.Add(at, bytes.subspan(at - all.begin, end - at));
                at = end;
            }
        }
        const std::lock_guard lock(mutex_);
        std::vector<hub::ByteRange> now = added_.MissingOf(all);
        if (std::ranges::equal(now, missing, {}, &hub::ByteRange::begin, &hub::ByteRange::begin) &&
            std::ranges::equal(now, missing, {}, &hub::ByteRange::end, &hub::ByteRange::end)) {
            added_.Add(all);
            for (const auto& [index, sum] : parts) sums_[index].Add(sum);
            return;
        }
        missing = std::move(now);  // another thread has added some of them
    }
}

std::vector<hub::ByteRange> FileSums::MissingOf(hub::ByteRange range) const {
    const std::lock_guard lock(mutex_);
    return added_.MissingOf(range);
}

std::vector<ByteSum> FileSums::sums() const {
    const std::lock_guard lock(mutex_);
    return sums_;
}

Result<WeightFile> WeightFile::Open(const std::string& path, ReadPlan* plan) {
    WEFT_ASSIGN(File file, File::Open(path));
    WEFT_ASSIGN(const FileStamp opened, file.Stamp());
    WEFT_ASSIGN(std::optional<hub::RangeSet> held, hub::HeldRanges(path));
    return WeightFile(std::move(file), std::move(held), opened, plan);
}

std::vector<hub::ByteRange> WeightFile::Held() const {
    if (held_) return held_->ranges();
    return {{0, size_bytes()}};
}

// (A second 'weft pull --shard' adds to a partial file.)
Status WeightFile::CheckUnchanged() const {
    if (is_partial()) return {};
    WEFT_ASSIGN(const FileStamp now, file_.Stamp());
    if (now.SameContent(opened_)) return {};
    return MakeError(ErrorCode::kIo,
                     "{}: the file was changed while Weft used it, so its weights may be those of "
                     "two models. Start again; to replace a model that is in use, write a new file "
                     "and rename it",
                     path());
}

Status WeightFile::Need(hub::ByteRange range) const {
    if (!held_ || held_->Contains(range)) return {};
    if (plan_ != nullptr) plan_->Add(path(), range);
    return MakeError(
        ErrorCode::kNotFound,
        "{}: bytes {} to {} are missing: 'weft pull --shard' downloaded {:.2f} of {:.2f} GB, for "
        "other ranks or another layout. Pull this rank's shard, too (--shard RANK/RANKS with the "
        "same --tp, --pp, --ep, --tensor-split), or the whole model (without --shard)",
        path(), range.begin, range.end - 1, static_cast<double>(held_->bytes()) * 1e-9,
        static_cast<double>(size_bytes()) * 1e-9);
}

Status WeightFile::NeedKey(hub::ByteRange range) {
    if (plan_ != nullptr) keys_.Add(range);
    return Need(range);
}

Status WeightFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
    return ReadStrided(offset, out.size(), out.size(), out);
}

Status WeightFile::ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                               std::span<std::byte> out) const {
    if (out.empty()) return {};
    const uint64_t count = out.size() / piece_bytes;
    const hub::ByteRange all{offset, offset + (count - 1) * stride + piece_bytes};
    const auto piece = [&](uint64_t i) {
        return hub::ByteRange{offset + i * stride, offset + i * stride + piece_bytes};
    };
    if (Pretends(all)) {
        std::ranges::fill(out, std::byte{0});
        if (!held_) return {};
        const bool at_once = stride - piece_bytes <= plan_->gap_bytes();
        if (at_once) plan_->Add(path(), all);
        for (uint64_t i = 0; i < count && !at_once; ++i) plan_->Add(path(), piece(i));
        return {};
    }
    if (held_ && !held_->Contains(all)) {
        for (uint64_t i = 0; i < count; ++i) WEFT_TRY(Need(piece(i)));
    }
    const bool whole = count == 1 || stride == piece_bytes;
    WEFT_TRY(whole ? file_.ReadAt(offset, out)
                   : file_.ReadStrided(offset, stride, piece_bytes, out));
    WEFT_TRY(CheckUnchanged());
    if (whole) sums_->Add(offset, out);
    return {};
}

}  // namespace weft::model_files
