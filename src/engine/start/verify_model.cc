#include "engine/start/verify_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "hw/cpu.h"
#include "model_files/weight_file.h"
#include "net/offer.h"

namespace weft::engine {
namespace {

// A wait restarts while another rank reads.
constexpr int64_t kVerifyMs = 600'000;
// Bytes of the hashes of all ranks, and of one hash.
constexpr size_t kRoundBytes = 16 << 20, kHashBytes = 20;
constexpr size_t kFileDigits = 16;

using Words = std::vector<std::string>;
using Files = std::vector<const model_files::WeightFile*>;

std::string HostName(const cluster::Cluster& cluster, size_t rank) {
    return fmt::format("rank {} (host {})", rank, cluster.host(static_cast<int>(rank)).name);
}

// Whether a rank reads its copy: the first of the ranks with the same id.
std::vector<bool> Readers(const Words& ids) {
    std::vector<bool> reads;
    for (auto id = ids.begin(); id != ids.end(); ++id) {
        reads.push_back(std::find(ids.begin(), id, *id) == id);
    }
    return reads;
}

Status Read(cluster::Cluster& cluster, const Files& files,
            std::optional<model_files::Content>& content, std::atomic<int64_t>& ticks) {
    if (content) return {};
    const PinnedThread pinned(cluster.cores());  // a device may have pinned it to one core
    model_files::ReadContentOptions options{.threads = cluster.cores().size()};
    options.progress = [&](uint64_t done, uint64_t all) -> Status {
        ++ticks;
        cluster.SetLoaded(static_cast<int>(1000.0 * static_cast<double>(done) /
                                           static_cast<double>(std::max<uint64_t>(1, all))));
        if (cluster.stop_requested()) {
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        }
        const net::PeerMonitor* monitor = cluster.monitor();
        return monitor != nullptr && monitor->Failed() ? Status(monitor->Failure()) : Status();
    };
    WEFT_ASSIGN(content, model_files::ReadContent(files, options));
    return {};
}

// The index of the first file whose digests differ; -1: the number of files differs.
int64_t FirstOtherFile(const Words& digests, const std::vector<bool>& reads) {
    std::vector<Words> files;
    for (size_t rank = 0; rank < digests.size(); ++rank) {
        if (!reads[rank]) continue;
        std::istringstream words(digests[rank]);
        Words& list = files.emplace_back();
        for (std::string word; words >> word;) list.push_back(word);
    }
    for (size_t i = 0; i < files.front().size(); ++i) {
        for (const Words& list : files) {
            if (list.size() == files.front().size() && list[i] != files.front()[i]) {
                return static_cast<int64_t>(i);
            }
        }
    }
    return -1;
}

// Collective: finds the file and the range that differ. content: null unless this rank reads.
Error Explain(cluster::Cluster& cluster, const std::vector<bool>& reads,
              const model_files::Content* content) {
    const auto gather = [&](const char* name, const std::string& mine) {
        return cluster.AllGather(name, mine, Deadline::In(kVerifyMs));
    };
    std::string digests;
    for (size_t i = 0; content != nullptr && i < content->files.size(); ++i) {
        digests += content->files[i].Digest().substr(0, kFileDigits) + " ";
    }
    const auto all = gather("digests of model files", digests);
    if (!all.ok()) return all.error();
    const int64_t index = FirstOtherFile(*all, reads);
    if (index < 0) {
        std::string counts;
        for (size_t rank = 0; rank < all->size(); ++rank) {
            if (!reads[rank]) continue;
            counts += fmt::format("{}{} on {}", counts.empty() ? "" : ", ",
                                  std::ranges::count((*all)[rank], ' '), HostName(cluster, rank));
        }
        return MakeError(ErrorCode::kDenied,
                         "--verify-model: the copies of the model have different numbers of "
                         "files: {}. Copy the same files to every host",
                         counts);
    }
    const size_t most = kRoundBytes / all->size() / kHashBytes;
    std::string mine;
    if (content != nullptr) {
        mine = FileContentToJson(content->files[static_cast<size_t>(index)], most);
    }
    const auto texts = gather("hashes of a model file", mine);
    if (!texts.ok()) return texts.error();
    std::vector<model_files::FileCopy> copies;
    for (size_t rank = 0; rank < texts->size(); ++rank) {
        if (!reads[rank]) continue;
        auto file = model_files::FileContentFromJson((*texts)[rank]);
        if (!file.ok()) return file.error();
        copies.push_back({HostName(cluster, rank), *std::move(file)});
    }
    if (cluster.rank() != 0) {  // rank 0 reports for all
        const Status verdict = cluster.Barrier("comparison of the model", Deadline::In(kVerifyMs));
        if (!verdict.ok()) return verdict.error();
    }
    return MakeError(ErrorCode::kDenied, "--verify-model: {}", model_files::CompareCopies(copies));
}

}  // namespace

Status VerifyModel(cluster::Cluster& cluster, const model_files::ModelSource& source,
                   std::optional<model_files::Content>& content, std::atomic<int64_t>& ticks) {
    Files files = source.Files();
    for (const model_files::WeightFile* file : source.AdapterFiles()) files.push_back(file);
    const std::string id = model_files::CopyId(files, net::BootId());
    WEFT_ASSIGN(const Words ids,
                cluster.AllGather("copy of the model", id, Deadline::In(kVerifyMs)));
    const std::vector<bool> reads = Readers(ids);
    const auto copies = std::ranges::count(reads, true);
    if (copies == 1) {
        if (cluster.rank() == 0) {
            Log(LogLevel::kInfo, "--verify-model: all ranks read the same copy of the model");
        }
        return {};
    }
    const auto rank = static_cast<size_t>(cluster.rank());
    // (The slowest rank's progress is shown.)
    cluster.SetLoaded(reads[rank] ? 0 : 1000);
    if (reads[rank]) WEFT_TRY(Read(cluster, files, content, ticks));
    const std::string mine =
        reads[rank] ? fmt::format("{} {}", content->Digest(), content->read_bytes) : "";
    WEFT_ASSIGN(const Words all,
                cluster.AllGather("content of the model", mine, Deadline::In(kVerifyMs)));
    std::string first;
    uint64_t read_bytes = 0;
    for (const std::string& word : all) {
        if (word.empty()) continue;
        const size_t blank = std::min(word.find(' '), word.size());
        read_bytes += std::strtoull(word.c_str() + blank, nullptr, 10);
        const std::string digest = word.substr(0, blank);
        if (first.empty()) first = digest;
        if (digest != first) return Explain(cluster, reads, reads[rank] ? &*content : nullptr);
    }
    if (cluster.rank() == 0) {
        Log(LogLevel::kInfo, "--verify-model: {} copies of the model are equal ({}; {})", copies,
            first.substr(0, kFileDigits),
            read_bytes == 0
                ? "cached hashes"
                : fmt::format("read {:.2f} GB", static_cast<double>(read_bytes) * 1e-9));
    }
    return {};
}

}  // namespace weft::engine
