#include "gpu/cache_file.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/output_file.h"

namespace weft::gpu {
namespace {

constexpr uint64_t kMagic = 0x3163706774666577;  // "weftgpc1"

struct CacheHead {
    uint64_t magic = kMagic;
    uint64_t data_bytes = 0;
    Sha256Digest digest{};
};

Status Write(const std::string& path, std::span<const std::byte> data) {
    const CacheHead head{.data_bytes = data.size(), .digest = Sha256(data)};
    WEFT_ASSIGN(OutputFile file, OutputFile::Create(path, sizeof head + data.size(), true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(&head, 1))));
    WEFT_TRY(file.WriteAt(sizeof head, data));
    return file.Finish();
}

// Other processes may delete files at the same time.
void Prune(const std::filesystem::path& written, uint64_t most_bytes) {
    struct Found {
        std::filesystem::file_time_type used;
        std::filesystem::path path;
        uint64_t bytes = 0;
    };
    std::vector<Found> all;
    uint64_t bytes = 0;
    std::error_code failed;
    std::filesystem::directory_iterator file(written.parent_path(), failed), end;
    for (; !failed && file != end; file.increment(failed)) {
        if (file->path().extension() != written.extension()) continue;
        std::error_code gone, gone_too;
        Found one{file->last_write_time(gone), file->path(), file->file_size(gone_too)};
        if (gone || gone_too || one.path == written) continue;
        bytes += one.bytes;
        all.push_back(std::move(one));
    }
    const uint64_t own = std::filesystem::file_size(written, failed);
    if (failed) return;
    std::ranges::sort(all, {}, &Found::used);
    for (size_t i = 0; i < all.size() && bytes + own > most_bytes; ++i) {
        std::filesystem::remove(all[i].path, failed);
        bytes -= all[i].bytes;
    }
}

}  // namespace

std::vector<std::byte> ReadCacheFile(const std::string& path) {
    const Result<File> file = File::Open(path);
    CacheHead head;
    if (!file.ok() || file->size_bytes() < sizeof head || file->size_bytes() > kMostCacheBytes)
        return {};
    if (!file->ReadAt(0, std::as_writable_bytes(std::span(&head, 1))).ok()) return {};
    if (head.magic != kMagic || head.data_bytes != file->size_bytes() - sizeof head) return {};
    std::vector<std::byte> data(head.data_bytes);
    if (!file->ReadAt(sizeof head, data).ok() || !DigestsEqual(Sha256(data), head.digest))
        return {};
    std::error_code ignored;
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
    return data;
}

Status WriteCacheFile(const std::string& path, std::span<const std::byte> data,
                      uint64_t most_bytes) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    Status written = Write(path, data);
    if (!written.ok() && written.error().code == ErrorCode::kDenied) written = {};
    Prune(path, most_bytes);
    return written;
}

void WarnNotStored(const Status& written, std::atomic<bool>& told) {
    if (written.ok() || told.exchange(true)) return;
    Log(LogLevel::kWarning, "cannot store compiled kernels, so later starts compile them again: {}",
        written.error().message);
}

}  // namespace weft::gpu
