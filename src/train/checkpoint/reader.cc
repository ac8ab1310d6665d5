#include "train/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "base/crc32c.h"
#include "base/on_threads.h"
#include "base/open_files.h"
#include "cluster/frame.h"
#include "train/checkpoint/read_ahead.h"
#include "train/checkpoint/writer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

// Bytes of a file that are prefetched at once.
constexpr uint64_t kWindowBytes = 64 << 20;
// A large region is read in parts of at least this size by several threads, because a disk with
// many queued requests is faster, and the threads copy and check in parallel.
constexpr int64_t kPartBytes = 8 << 20, kMostReaders = 4;

// A checkpoint has a file of each rank, which stays open; direct reads open it once more. Beside
// these, a process has the connections and links of a job.
constexpr uint64_t kDescriptorsOfFile = 2;
constexpr uint64_t kOtherDescriptors = 512 + 3 * cluster::kMostRanks;

constexpr char kAdvice[] = "Resume from another checkpoint (--resume FOLDER)";

}  // namespace

// Reads one piece in ascending order; a MiB that several reads touch is read once.
class Checkpoint::Run {
  public:
    // end: end of the piece's bytes that will be read.
    Run(const File& file, const StoredPiece& piece, uint64_t end)
        : file_(file), ahead_(file.path()), piece_(piece), end_(end) {}

    // Reads `out.size()` bytes of the piece, starting at byte `at`.
    Status Read(uint64_t at, std::span<std::byte> out) {
        while (!out.empty()) {
            FetchFrom(at);
            const uint64_t block = at / kCheckedBytes, begin = block * kCheckedBytes;
            const uint64_t size = std::min(kCheckedBytes, piece_.bytes() - begin);
            if (at == begin && out.size() >= size) {
                WEFT_TRY(ReadBlock(block, out.first(size)));
                at += size;
                out = out.subspan(size);
                continue;
            }
            if (held_ != block) {
                held_.reset();
                buffer_.resize(size);
                WEFT_TRY(ReadBlock(block, buffer_));
                held_ = block;
            }
            const uint64_t count = std::min<uint64_t>(out.size(), begin + size - at);
            std::memcpy(out.data(), buffer_.data() + (at - begin), count);
            at += count;
            out = out.subspan(count);
        }
        return {};
    }

  private:
    // Prefetches half a window at a time, so the disk works while we copy.
    void FetchFrom(uint64_t at) {
        if (fetched_ >= end_ || at + kWindowBytes / 2 < fetched_) return;
        const uint64_t begin = std::max(fetched_, at / kCheckedBytes * kCheckedBytes);
        fetched_ = std::min(begin + kWindowBytes, end_);
        ahead_.Fetch(piece_.offset + begin, fetched_ - begin);
    }

    Status ReadBlock(uint64_t block, std::span<std::byte> out) const {
        const uint64_t offset = piece_.offset + block * kCheckedBytes;
        WEFT_TRY(file_.ReadAt(offset, out));
        const uint32_t expected = piece_.checksums[block], actual = Crc32c(out);
        if (expected == actual) return {};
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {}: bytes {} to {} are not those that were written (CRC-32C {:08x}, "
                         "expected {:08x}): the file was damaged or changed. {}",
                         file_.path(), piece_.array.Name(), offset, offset + out.size(), actual,
                         expected, kAdvice);
    }

    const File& file_;
    const ReadAhead ahead_;
    const StoredPiece& piece_;
    const uint64_t end_;
    uint64_t fetched_ = 0;          // end of the prefetched bytes
    std::optional<uint64_t> held_;  // the block in buffer_
    std::vector<std::byte> buffer_;
};

Result<Checkpoint> Checkpoint::Open(const std::string& folder) {
    const std::string path = folder + "/" + kManifestName;
    const auto text = ReadTextFile(path, kMostManifestBytes);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
        return MakeError(
            ErrorCode::kNotFound,
            "{}: {} is missing: this folder is not a checkpoint, or its save did not finish",
            folder, kManifestName);
    }
    if (!text.ok()) return text.error();
    WEFT_ASSIGN(Manifest manifest, ParseManifest(*text, path));
    return Open(folder, std::move(manifest));
}

Result<Checkpoint> Checkpoint::Open(const std::string& folder, Manifest manifest) {
    Checkpoint checkpoint;
    checkpoint.folder_ = folder;
    checkpoint.manifest_ = std::move(manifest);
    for (const Array& array : checkpoint.manifest_.arrays) {
        checkpoint.entries_[{array.kind, array.tensor}].array = array;
    }
    AllowOpenFiles(kOtherDescriptors + kDescriptorsOfFile * checkpoint.manifest_.files.size());
    for (const CheckpointFile& file : checkpoint.manifest_.files) {
        WEFT_TRY(checkpoint.OpenFile(file));
    }
    checkpoint.DropCopies();
    WEFT_TRY(checkpoint.CheckComplete());
    return checkpoint;
}

Status Checkpoint::OpenFile(const CheckpointFile& listed) {
    const std::string path = folder_ + "/" + listed.name;
    auto opened = File::Open(path);
    if (!opened.ok() && opened.error().code == ErrorCode::kNotFound) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: this file of the checkpoint is missing ({} of {}). Where ranks do "
                         "not share a file system, all files must be brought into one folder that "
                         "every rank can read",
                         path, files_.size() + 1, manifest_.files.size());
    }
    if (!opened.ok()) return opened.error();
    if (opened->size_bytes() != listed.bytes) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} bytes long; {} says {}. {}", path,
                         opened->size_bytes(), kManifestName, listed.bytes, kAdvice);
    }
    uint64_t length = 0;
    if (listed.bytes < sizeof length) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} bytes are too few for a file of a checkpoint",
                         path, listed.bytes);
    }
    WEFT_TRY(opened->ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
    const uint64_t most = std::min(listed.bytes - sizeof length, model_files::hf::kMostHeaderBytes);
    std::vector<std::byte> header(sizeof length + std::min(length, most));
    WEFT_TRY(opened->ReadAt(0, header));
    if (!DigestsEqual(Sha256(header), listed.header)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: its header is not the one that {} names: the file belongs to another "
                         "checkpoint, or is damaged. {}",
                         path, kManifestName, kAdvice);
    }
    WEFT_ASSIGN(RankFile file, ParseRankHeader(header, listed.bytes, path));
    stored_.push_back(file.pieces);
    for (StoredPiece& piece : file.pieces) {
        const auto entry = entries_.find({piece.array.kind, piece.array.tensor});
        if (entry == entries_.end() || !(entry->second.array == piece.array)) {
            return MakeError(ErrorCode::kCorrupt, "{}: holds {}, {} x {}, which {} does not list",
                             path, piece.array.Name(), piece.array.rows, piece.array.cols,
                             kManifestName);
        }
        entry->second.pieces.push_back({files_.size(), std::move(piece)});
    }
    files_.push_back(std::move(*opened));
    return {};
}

// Reads data that several ranks hold alike from one file only.
void Checkpoint::DropCopies() {
    const auto place = [](const Held& held) {
        const TensorRegion& r = held.piece.region;
        return std::tuple(r.row_begin, r.col_begin, r.row_count, r.col_count, r.begin, r.end);
    };
    for (auto& [key, entry] : entries_) {
        std::ranges::stable_sort(entry.pieces, {}, place);
        const auto same = [&](const Held& a, const Held& b) { return place(a) == place(b); };
        entry.pieces.erase(std::unique(entry.pieces.begin(), entry.pieces.end(), same),
                           entry.pieces.end());
    }
}

Status Checkpoint::CheckComplete() const {
    for (const auto& [key, entry] : entries_) {
        std::vector<TensorRegion> regions;
        for (const Held& held : entry.pieces) regions.push_back(held.piece.region);
        if (Cover(regions, entry.array)) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {}, {} x {}, is not complete: the {} files hold only some of it. {}",
                         folder_, entry.array.Name(), entry.array.rows, entry.array.cols,
                         files_.size(), kAdvice);
    }
    return {};
}

void Checkpoint::Close() {
    files_.clear();
}

Status Checkpoint::CheckFile(size_t index) const {
    struct Window {
        const StoredPiece* piece;
        uint64_t begin, end;
    };
    std::vector<Window> windows;
    for (const StoredPiece& piece : stored_[index]) {
        for (uint64_t begin = 0; begin < piece.bytes(); begin += kWindowBytes) {
            windows.push_back({&piece, begin, std::min(begin + kWindowBytes, piece.bytes())});
        }
    }
    return OnThreads(kMostReaders, windows.size(), [&](size_t i) -> Status {
        const Window& window = windows[i];
        Run run(files_[index], *window.piece, window.end);
        std::vector<std::byte> bytes;
        for (uint64_t at = window.begin; at < window.end; at += bytes.size()) {
            bytes.resize(std::min<uint64_t>(kPartBytes, window.end - at));
            WEFT_TRY(run.Read(at, bytes));
        }
        return {};
    });
}

const Array* Checkpoint::Find(const std::string& kind, const std::string& tensor) const {
    const auto found = entries_.find({kind, tensor});
    return found == entries_.end() ? nullptr : &found->second.array;
}

Status Checkpoint::Read(const Array& array, const TensorRegion& region,
                        std::span<std::byte> out) const {
    const uint64_t element = model_files::hf::SafeTypeBytes(array.type);
    WEFT_CHECK(IsInside(region, array) &&
               out.size() == static_cast<uint64_t>(region.elements()) * element);
    WEFT_CHECK(!files_.empty());
    const auto found = entries_.find({array.kind, array.tensor});
    if (found == entries_.end()) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: has no {}: it was written by a job with another model, optimizer or "
                         "set of trained weights",
                         folder_, array.Name());
    }
    const Array& stored = found->second.array;
    if (!(stored == array)) {
        return MakeError(
            ErrorCode::kCorrupt, "{}: {} is {} x {} of {} there; expected {} x {} of {}", folder_,
            array.Name(), stored.rows, stored.cols, model_files::hf::SafeTypeName(stored.type),
            array.rows, array.cols, model_files::hf::SafeTypeName(array.type));
    }
    return ReadByParts(found->second, region, out);
}

Status Checkpoint::ReadByParts(const Entry& entry, const TensorRegion& region,
                               std::span<std::byte> out) const {
    const auto bytes = static_cast<int64_t>(out.size());
    const int64_t parts = std::clamp<int64_t>(bytes / kPartBytes, 1, kMostReaders);
    const int64_t element = bytes / region.elements();
    const auto count = static_cast<size_t>(parts);
    return OnThreads(count, count, [&](size_t index) {
        const auto part = static_cast<int64_t>(index);
        TensorRegion own = region;
        own.begin = region.begin + region.elements() * part / parts;
        own.end = region.begin + region.elements() * (part + 1) / parts;
        const std::span<std::byte> to =
            out.subspan(static_cast<size_t>((own.begin - region.begin) * element),
                        static_cast<size_t>(own.elements() * element));
        return ReadPart(entry, own, to);
    });
}

Status Checkpoint::ReadPart(const Entry& entry, const TensorRegion& region,
                            std::span<std::byte> out) const {
    const uint64_t element = model_files::hf::SafeTypeBytes(entry.array.type);
    for (const Held& held : entry.pieces) {
        uint64_t end = 0;
        ForEachRun(region, held.piece.region, [&](int64_t, int64_t from, int64_t count) {
            end = static_cast<uint64_t>(from + count) * element;
        });
        if (end == 0) continue;
        Run run(files_[held.file], held.piece, end);
        Status status;
        ForEachRun(region, held.piece.region, [&](int64_t to, int64_t from, int64_t count) {
            if (!status.ok()) return;
            status = run.Read(static_cast<uint64_t>(from) * element,
                              out.subspan(static_cast<uint64_t>(to) * element,
                                          static_cast<uint64_t>(count) * element));
        });
        WEFT_TRY(status);
    }
    return {};
}

Status Checkpoint::Read(const std::string& kind, const std::string& tensor,
                        const TensorRegion& region, std::span<float> out) const {
    Array array{kind, tensor, 0, 0, SafeType::kF32};
    if (const Array* stored = Find(kind, tensor)) array = *stored;
    if (array.rows == 0 || array.type != SafeType::kF32 || !IsInside(region, array)) {
        return MakeError(ErrorCode::kCorrupt, "{}: has no {} in F32 that is large enough", folder_,
                         array.Name());
    }
    return Read(array, region, std::as_writable_bytes(out));
}

std::string JobFolderOf(const std::string& where) {
    std::error_code ignored;
    if (fs::exists(fs::path(where) / kManifestName, ignored)) return "";
    const fs::path path = fs::path(where).lexically_normal();
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    if (folder.filename().string().starts_with(kStepPrefix)) return "";  // its manifest is missing
    std::string dir = folder.string();
    if (folder.filename() == kCheckpointsName) dir = folder.parent_path().string();
    return dir.empty() ? "." : dir;
}

}  // namespace weft::train
