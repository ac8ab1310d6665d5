#include "engine/start/verify_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/field_codec.h"
#include "base/log.h"
#include "hw/cpu.h"
#include "model_files/content.h"
#include "model_files/lora/adapted_source.h"
#include "net/offer.h"

namespace weft::engine {
namespace {

// A wait restarts while another rank reads.
constexpr int64_t kVerifyMs = 600'000;
// Bytes of the sums of all ranks, and of one sum.
constexpr size_t kRoundBytes = 16 << 20, kSumBytes = 20;
constexpr size_t kFileDigits = 16;

using model_files::Content;
using Files = std::vector<const model_files::WeightFile*>;
using Words = std::vector<std::string>;

std::string HostName(const cluster::Cluster& cluster, size_t rank) {
    return fmt::format("rank {} (host {})", rank, cluster.host(static_cast<int>(rank)).name);
}

// Whether a rank reads its copy: the first of the ranks with the same id. "": it has no files.
std::vector<bool> Readers(const Words& ids) {
    std::vector<bool> reads;
    for (auto id = ids.begin(); id != ids.end(); ++id) {
        reads.push_back(!id->empty() && std::find(ids.begin(), id, *id) == id);
    }
    return reads;
}

Result<Content> Read(cluster::Cluster& cluster, const Files& files, bool anew,
                     std::atomic<int64_t>& ticks) {
    const PinnedThread pinned(cluster.cores());  // a device may have pinned it to one core
    model_files::ReadContentOptions options{.threads = cluster.cores().size(), .anew = anew};
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
    return model_files::ReadContent(files, options);
}

// The files whose digests differ. Errors: kDenied: the number of files differs.
Result<std::vector<size_t>> OtherFiles(const cluster::Cluster& cluster, const Words& digests,
                                       const std::vector<bool>& reads) {
    std::vector<Words> lists;
    std::string counts;
    for (size_t rank = 0; rank < digests.size(); ++rank) {
        if (!reads[rank]) continue;
        std::istringstream words(digests[rank]);
        Words& list = lists.emplace_back();
        for (std::string word; words >> word;) list.push_back(word);
        counts += fmt::format("{}{} on {}", counts.empty() ? "" : ", ", list.size(),
                              HostName(cluster, rank));
    }
    const Words& first = lists.front();
    std::vector<size_t> others;
    for (const Words& list : lists) {
        if (list.size() == first.size()) continue;
        return MakeError(ErrorCode::kDenied,
                         "the copies of the model have different numbers of files: {}. Copy the "
                         "same files to every host",
                         counts);
    }
    for (size_t i = 0; i < first.size(); ++i) {
        const auto differs = [&](const Words& list) { return list[i] != first[i]; };
        if (std::ranges::any_of(lists, differs)) others.push_back(i);
    }
    return others;
}

// Collective: finds the file and the range that differ. Parts of partial files that only one copy
// has cannot differ. content: null unless this rank reads.
Status Explain(cluster::Cluster& cluster, const std::vector<bool>& reads, const Content* content) {
    const auto gather = [&](const char* name, const std::string& mine) {
        return cluster.AllGather(name, mine, Deadline::In(kVerifyMs));
    };
    std::string digests;
    for (size_t i = 0; content != nullptr && i < content->files.size(); ++i) {
        digests += content->files[i].Digest().substr(0, kFileDigits) + " ";
    }
    WEFT_ASSIGN(const Words all, gather("digests of model files", digests));
    WEFT_ASSIGN(const std::vector<size_t> others, OtherFiles(cluster, all, reads));
    for (const size_t index : others) {
        const size_t most = kRoundBytes / all.size() / kSumBytes;
        const std::string mine =
            content == nullptr ? "" : FileContentToJson(content->files[index], most);
        WEFT_ASSIGN(const Words texts, gather("sums of a model file", mine));
        std::vector<model_files::FileCopy> copies;
        for (size_t rank = 0; rank < texts.size(); ++rank) {
            if (!reads[rank]) continue;
            WEFT_ASSIGN(auto file, model_files::FileContentFromJson(texts[rank]));
            copies.push_back({HostName(cluster, rank), std::move(file)});
        }
        const std::string text = model_files::CompareCopies(copies);
        if (text.empty()) continue;
        if (cluster.rank() != 0) {  // rank 0 reports for all
            WEFT_TRY(cluster.Barrier("comparison of the model", Deadline::In(kVerifyMs)));
        }
        return MakeError(ErrorCode::kDenied, "{}", text);
    }
    return {};
}

// The report of a rank that has read its copy to the other ranks.
struct CopyReport {
    std::string model, adapters;  // digests
    uint64_t read_bytes = 0;
    bool partial = false;
};

constexpr auto kReportFields = [](auto& report, auto& visit) {
    visit("model", report.model);
    visit("adapters", report.adapters);
    visit("read_bytes", report.read_bytes);
    visit("partial", report.partial);
};

// The identity of `copies`, which agree.
Result<ModelIdentity> IdentityOf(const model_files::ModelSource& source,
                                 const std::vector<CopyReport>& copies) {
    CopyReport all = copies.front();
    for (const CopyReport& copy : copies) all.partial |= copy.partial;
    for (size_t i = 1; i < copies.size() && all.partial; ++i) {
        all.model += copies[i].model;
        all.adapters += copies[i].adapters;
    }
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    return ModelIdentity{
        model_files::IdentityOf(fingerprint, all.model),
        model_files::IdentityOf(model_files::FingerprintOfAdapters(source), all.adapters),
        !all.partial};
}

void LogEqual(bool loud, const std::vector<CopyReport>& copies) {
    uint64_t read_bytes = 0;
    for (const CopyReport& copy : copies) read_bytes += copy.read_bytes;
    Log(loud ? LogLevel::kInfo : LogLevel::kDebug, "{}{} of the model {} ({}; {})",
        loud ? "--verify-model: " : "",
        copies.size() == 1 ? "the copy" : fmt::format("{} copies", copies.size()),
        copies.size() == 1 ? "is summed" : "are equal", copies.front().model.substr(0, kFileDigits),
        read_bytes == 0 ? "no bytes read"
                        : fmt::format("read {:.2f} GB", static_cast<double>(read_bytes) * 1e-9));
}

}  // namespace

std::vector<const model_files::WeightFile*> AllFiles(const model_files::ModelSource& source) {
    std::vector<const model_files::WeightFile*> files = source.Files();
    for (const model_files::WeightFile* file : source.AdapterFiles()) files.push_back(file);
    return files;
}

Result<ModelIdentity> AgreeOnModel(cluster::Cluster& cluster,
                                   const model_files::ModelSource& source,
                                   const VerifyOptions& options, std::atomic<int64_t>& ticks) {
    const Files files = AllFiles(source);
    std::optional<Content> content;
    if (!options.anew) {
        WEFT_ASSIGN(content, model_files::KnownContent(files));
    }
    for (const model_files::WeightFile* file : files) file->sums().TurnOn(false);
    const auto gather = [&](const char* name, const std::string& mine) {
        return cluster.AllGather(name, mine, Deadline::In(kVerifyMs));
    };
    std::string id = files.empty() ? "" : CopyId(files, net::BootId());
    // (A host's memory may have another byte than the file.)
    if (options.anew && !files.empty()) id += net::BootId();
    WEFT_ASSIGN(const Words ids, gather("copy of the model", id));
    WEFT_ASSIGN(const Words known, gather("known copy", content ? "known" : ""));
    const std::vector<bool> reads = Readers(ids);
    const auto copies = std::ranges::count(reads, true);
    if (copies == 0) return IdentityOf(source, {CopyReport()});
    const auto rank = static_cast<size_t>(cluster.rank());
    const auto reader = static_cast<size_t>(std::ranges::find(reads, true) - reads.begin());
    const bool needed = options.needed || options.anew;
    if (copies == 1 && !needed && known[reader].empty()) return ModelIdentity();
    // (The slowest rank's progress is shown.)
    cluster.SetLoaded(reads[rank] && !content ? 0 : 1000);
    CopyReport mine;
    if (reads[rank]) {
        if (!content) {
            WEFT_ASSIGN(content, Read(cluster, files, options.anew, ticks));
        }
        const auto of_model = static_cast<ptrdiff_t>(source.Files().size());
        Content model{.files = {content->files.begin(), content->files.begin() + of_model}};
        Content adapters{.files = {content->files.begin() + of_model, content->files.end()}};
        mine = {model.Digest(), adapters.Digest(), content->read_bytes, false};
        mine.partial = std::ranges::any_of(files, &model_files::WeightFile::is_partial);
    }
    WEFT_ASSIGN(const Words all, gather("content of the model",
                                        reads[rank] ? EncodeFields(mine, kReportFields) : ""));
    std::vector<CopyReport> reports;
    for (size_t i = 0; i < all.size(); ++i) {
        if (!reads[i]) continue;
        WEFT_TRY(
            DecodeFields("content of the model", all[i], kReportFields, reports.emplace_back()));
    }
    const bool equal = std::ranges::all_of(reports, [&](const CopyReport& copy) {
        return copy.model == reports[0].model && copy.adapters == reports[0].adapters;
    });
    if (!equal) WEFT_TRY(Explain(cluster, reads, reads[rank] ? &*content : nullptr));
    if (rank == 0) LogEqual(options.anew, reports);
    return IdentityOf(source, reports);
}

}  // namespace weft::engine
