#include "model_files/content.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/field_codec.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/home_folder.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "base/output_file.h"
#include "hub/digest.h"
#include "model_files/weight_file.h"

namespace weft::model_files {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;  // of one read
constexpr uint64_t kMostCacheBytes = uint64_t{64} << 20;
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr size_t kHashDigits = 64, kShortDigits = 16;
// A later write within one tick of the kernel's clock would leave the times as they are.
constexpr int64_t kTickNs = 20'000'000;

constexpr auto kFileFields = [](auto& file, auto& visit) {
    visit("path", file.path);
    visit("bytes", file.bytes);
    visit("chunk_bytes", file.chunk_bytes, FieldRange{1, 1e18});
    visit("hashes", file.hashes);
};

struct CacheEntry {
    std::string stamp;
    std::vector<std::string> hashes;
};

constexpr auto kCacheFields = [](auto& entry, auto& visit) {
    visit("stamp", entry.stamp);
    visit("hashes", entry.hashes);
};

std::string HashOf(const std::string& text) {
    return Hex(Sha256(std::as_bytes(std::span(text))));
}

uint64_t ChunksOf(uint64_t bytes) {
    return (bytes + kHashedBytes - 1) / kHashedBytes;
}

struct Stamp {
    std::string file, text;  // identify the file, and its content
    int64_t changed_ns = 0;
};

Result<Stamp> StampOf(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) {
        return MakeError(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
    }
    Stamp stamp;
    stamp.file = fmt::format("{} {}", found.st_dev, found.st_ino);
    stamp.changed_ns = found.st_ctim.tv_sec * kNsPerS + found.st_ctim.tv_nsec;
    stamp.text = fmt::format("{} {} {}.{:09} {}", stamp.file, found.st_size, found.st_mtim.tv_sec,
                             found.st_mtim.tv_nsec, stamp.changed_ns);
    return stamp;
}

// ---- The cache ----------------------------------------------------------------------------------

// "": the user has no cache folder.
std::string CachePath(const Stamp& stamp) {
    const std::string folder = CacheFolder();
    if (folder.empty()) return "";
    return fmt::format("{}/content/{}.json", folder, HashOf(stamp.file).substr(0, kShortDigits));
}

// Fills the hashes of `file`. Returns false if the cache does not have them.
bool ReadCache(const Stamp& stamp, FileContent& file) {
    const auto text = ReadTextFile(CachePath(stamp), kMostCacheBytes);
    CacheEntry entry;
    if (!text.ok() || !DecodeFields("cached hashes", *text, kCacheFields, entry).ok()) return false;
    const bool fits = entry.stamp == stamp.text && entry.hashes.size() == ChunksOf(file.bytes) &&
                      std::ranges::all_of(entry.hashes, [](const std::string& hash) {
                          return hash.size() == kHashDigits;
                      });
    if (fits) file.hashes = std::move(entry.hashes);
    return fits;
}

// If the write fails, the next job reads the file again.
void WriteCache(const Stamp& stamp, const FileContent& file, int64_t now_ns) {
    const std::string path = CachePath(stamp);
    if (path.empty() || now_ns - stamp.changed_ns < kTickNs) return;
    const CacheEntry entry{stamp.text, file.hashes};
    if (ReplaceFile(path, EncodeFields(entry, kCacheFields)).ok()) return;
    Log(LogLevel::kDebug, "the hashes of {} could not be kept in {}", file.path, path);
}

// ---- Reading ------------------------------------------------------------------------------------

struct OpenFile {
    WeightFile file;
    Stamp stamp;
    bool cached = false;
};

Result<OpenFile> OpenWhole(const std::string& path) {
    WEFT_ASSIGN(Stamp stamp, StampOf(path));
    WEFT_ASSIGN(WeightFile file, WeightFile::Open(path));
    if (!file.is_partial()) return OpenFile{std::move(file), std::move(stamp)};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: only whole files can be compared, and 'weft pull --shard' downloaded a "
                     "part of this one. Pull the whole model (without --shard)",
                     path);
}

// Hashes the chunks of all files that the cache lacks, on several threads.
class Hasher {
  public:
    Hasher(const std::vector<OpenFile>& opened, std::vector<FileContent>& files,
           const ReadContentOptions& options)
        : opened_(opened), files_(files), options_(options) {
        for (size_t i = 0; i < files.size(); ++i) {
            if (opened[i].cached) continue;
            all_ += files[i].bytes;
            files[i].hashes.resize(ChunksOf(files[i].bytes));
            for (size_t chunk = 0; chunk < files[i].hashes.size(); ++chunk) {
                chunks_.emplace_back(i, chunk);
            }
        }
    }

    Result<uint64_t> Run() {
        WEFT_TRY(OnThreads(options_.threads, chunks_.size(), [this](size_t i) {
            std::vector<std::byte> piece(kReadBytes);
            return HashChunk(chunks_[i].first, chunks_[i].second, piece);
        }));
        return all_;
    }

  private:
    Status HashChunk(size_t index, size_t chunk, std::span<std::byte> piece) {
        FileContent& file = files_[index];
        const uint64_t begin = chunk * kHashedBytes;
        const uint64_t end = std::min(begin + kHashedBytes, file.bytes);
        hub::Digest digest(true, end - begin);
        for (uint64_t at = begin; at < end; at += piece.size()) {
            const auto part = piece.first(std::min<uint64_t>(piece.size(), end - at));
            WEFT_TRY(opened_[index].file.ReadAt(at, part));
            digest.Add(part);
            const uint64_t done = done_ += part.size();
            if (options_.progress) WEFT_TRY(options_.progress(done, all_));
        }
        file.hashes[chunk] = digest.Finish();
        return {};
    }

    const std::vector<OpenFile>& opened_;
    std::vector<FileContent>& files_;
    const ReadContentOptions& options_;
    std::vector<std::pair<size_t, size_t>> chunks_;  // file, chunk
    uint64_t all_ = 0;
    std::atomic<uint64_t> done_{0};
    std::atomic<size_t> next_{0};
    std::mutex mutex_;
    Status error_;
};

int64_t WallNs() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * kNsPerS + now.tv_nsec;
}

// ---- Comparing ----------------------------------------------------------------------------------

// How `odd` differs from `good`.
std::string Difference(const FileContent& odd, const FileContent& good) {
    if (odd.bytes != good.bytes) {
        return fmt::format("{} bytes instead of {}", odd.bytes, good.bytes);
    }
    std::vector<size_t> chunks;
    for (size_t i = 0; i < std::min(odd.hashes.size(), good.hashes.size()); ++i) {
        if (odd.hashes[i] != good.hashes[i]) chunks.push_back(i);
    }
    if (chunks.empty()) return "the hashes are of other ranges";
    const uint64_t begin = chunks.front() * good.chunk_bytes;
    const uint64_t end = std::min(begin + good.chunk_bytes, good.bytes);
    const std::string more =
        chunks.size() == 1
            ? ""
            : fmt::format(" and {} more of {} such ranges", chunks.size() - 1, good.hashes.size());
    return fmt::format("bytes {} to {}{}", begin, end - 1, more);
}

}  // namespace

std::string FileContent::Digest() const {
    return HashOf(fmt::format("{} {} {}", bytes, chunk_bytes, fmt::join(hashes, " ")));
}

uint64_t Content::bytes() const {
    uint64_t all = 0;
    for (const FileContent& file : files) all += file.bytes;
    return all;
}

std::string Content::Digest() const {
    std::string text;
    for (const FileContent& file : files) text += file.Digest();
    return HashOf(text);
}

Result<Content> ReadContent(std::span<const std::string> paths, const ReadContentOptions& options) {
    Content content;
    std::vector<OpenFile> opened;
    for (const std::string& path : paths) {
        WEFT_ASSIGN(OpenFile one, OpenWhole(path));
        FileContent& file = content.files.emplace_back();
        file.path = path;
        file.bytes = one.file.size_bytes();
        one.cached = !options.anew && ReadCache(one.stamp, file);
        opened.push_back(std::move(one));
    }
    const int64_t now_ns = WallNs();
    WEFT_ASSIGN(content.read_bytes, Hasher(opened, content.files, options).Run());
    for (size_t i = 0; i < opened.size(); ++i) {
        WEFT_ASSIGN(const Stamp after, StampOf(paths[i]));
        if (after.text != opened[i].stamp.text) {
            return MakeError(ErrorCode::kIo, "{}: the file changed while Weft read it", paths[i]);
        }
        if (!opened[i].cached) WriteCache(after, content.files[i], now_ns);
    }
    return content;
}

Result<std::string> CopyId(std::span<const std::string> paths) {
    std::string text;
    for (const std::string& path : paths) {
        WEFT_ASSIGN(const Stamp stamp, StampOf(path));
        text += stamp.text + "\n";
    }
    return HashOf(text);
}

std::string FileContentToJson(const FileContent& file, size_t most) {
    const size_t each = (file.hashes.size() + most - 1) / std::max<size_t>(1, most);
    FileContent sent = file;
    sent.hashes.clear();
    sent.chunk_bytes = file.chunk_bytes * std::max<size_t>(1, each);
    for (size_t i = 0; i < file.hashes.size(); i += each) {
        const auto first = file.hashes.begin() + static_cast<ptrdiff_t>(i);
        const auto count = static_cast<ptrdiff_t>(std::min(each, file.hashes.size() - i));
        const std::string joined = fmt::format("{}", fmt::join(first, first + count, " "));
        sent.hashes.push_back((each == 1 ? joined : HashOf(joined)).substr(0, kShortDigits));
    }
    return EncodeFields(sent, kFileFields);
}

Result<FileContent> FileContentFromJson(const std::string& text) {
    FileContent file;
    WEFT_TRY(DecodeFields("hashes of a model file", text, kFileFields, file));
    return file;
}

std::string CompareCopies(std::span<const FileCopy> copies) {
    std::vector<std::string> digests;
    for (const FileCopy& copy : copies) digests.push_back(copy.file.Digest());
    const auto good = std::ranges::max_element(digests, {}, [&](const std::string& digest) {
        return std::ranges::count(digests, digest);
    });
    const auto odd = std::ranges::find_if(digests, [&](const auto& one) { return one != *good; });
    if (odd == digests.end()) return "";
    std::vector<std::string> with, without;
    for (size_t i = 0; i < copies.size(); ++i) {
        (digests[i] == *good ? with : without).push_back(copies[i].host);
    }
    const FileCopy& bad = copies[static_cast<size_t>(odd - digests.begin())];
    const std::string text = fmt::format(
        "{} on {} differs from that on {}: {}", bad.file.path, bad.host, fmt::join(with, ", "),
        Difference(bad.file, copies[static_cast<size_t>(good - digests.begin())].file));
    if (with.size() > 1 && with.size() > without.size()) {
        return fmt::format("{}. {} of {} copies agree: copy the file again to {}", text,
                           with.size(), copies.size(), fmt::join(without, ", "));
    }
    return fmt::format(
        "{}. Compare 'sha256sum' of the file on each host with the publisher's value to find the "
        "bad copy, and copy the file there again",
        text);
}

}  // namespace weft::model_files
