// The self-test of a rank: see self_test.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "engine/rank/rank.h"
#include "engine/rank/rank_options.h"
#include "engine/rank/sum_wire.h"
#include "engine/start/self_test.h"

namespace weft::engine {
namespace {

// The tolerances of the layout tests. Activations rounded to 8 bits or BF16 sometimes round
// differently.
constexpr double kRoundedTolerance = 5e-3;
constexpr double kFloatTolerance = 1e-4;
// For stages on unlike devices: a CPU rounds activations to 8 bits for quantized weights, a GPU may
// not, and the caches may have different types. The bounds are those for a device beside the CPU
// (tests/vulkan/jobs_test.py).
constexpr double kUnlikeRoundedTolerance = 3e-2;
constexpr double kUnlikeFloatTolerance = 3e-3;
// For one op after a stage on an unlike device: its digest has few numbers, and attention may
// spread rounding. A wrong weight changes its own op by more.
constexpr double kUnlikeOpTolerance = 0.1;

double ToleranceOf(const program::Program& program, backend::SumWire wire, bool unlike) {
    const bool rounded = std::ranges::any_of(program.values, [](const program::Value& value) {
        return value.storage == program::Storage::kWeight && value.shape.rank >= 2 &&
               (Info(value.dtype).block_elements > 1 || value.dtype == DType::kBF16);
    });
    const double most = unlike ? (rounded ? kUnlikeRoundedTolerance : kUnlikeFloatTolerance)
                               : (rounded ? kRoundedTolerance : kFloatTolerance);
    return most + SumWireTolerance(wire, rounded);
}

std::string RankNames(const cluster::Cluster& cluster, const std::vector<int>& ranks) {
    std::string text;
    for (int rank : ranks) {
        text += fmt::format("{}rank {} (host {})", text.empty() ? "" : ", ", rank,
                            cluster.host(rank).name);
    }
    return text;
}

constexpr const char* kNext =
    "This cluster would give wrong answers: check the memory, the files and the weft of these "
    "hosts. --skip-self-test starts without this check.";

}  // namespace

// identity: of the device that makes the record. "": no record, because a synthetic model has no
// file, or the model's identity is not known.
std::string Rank::SelfTestPath(const std::string& model, const std::string& identity) const {
    if (model.empty() || job_.model.starts_with("synthetic:")) return "";
    const char* what = job_.outputs == model::Outputs::kHidden ? "-hidden" : "";
    return RecordPath(
        fmt::format("{}-{}-{}-{}{}", model, WEFT_VERSION, identity, KvTypesOf(job_).Name(), what));
}

// Record of one rank alone on this rank's device, or else on another stage's device.
Result<Rank::DeviceRecord> Rank::FindRecord(const std::string& model) const {
    for (size_t rank = 0; rank < identities_.size(); ++rank) {
        const std::string path = SelfTestPath(model, identities_[rank]);
        if (path.empty()) break;
        if (auto found = ReadRecord(path); found.ok()) {
            return DeviceRecord{*std::move(found), static_cast<int>(rank)};
        }
    }
    return MakeError(ErrorCode::kNotFound, "no record of the self-test");
}

// Whether a stage up to this one uses another device than the record's.
bool Rank::IsUnlike(int stage, const DeviceRecord& record) const {
    if (record.device_of < 0) return false;
    const auto ranks = static_cast<size_t>((stage + 1) * shard_.layout.tp);
    const std::string& device = identities_[static_cast<size_t>(record.device_of)];
    return std::ranges::any_of(std::span(identities_).first(std::min(ranks, identities_.size())),
                               [&](const std::string& one) { return one != device; });
}

// Rank 0's result: the logits of the last token, or the hidden states of all tokens.
Result<std::vector<float>> Rank::ReadSelfTestResult(int64_t tokens) {
    if (cluster_.rank() != 0) return std::vector<float>{};
    const bool hidden = job_.outputs == model::Outputs::kHidden;
    std::vector<float> out(static_cast<size_t>(hidden ? tokens * hyper_.hidden : hyper_.vocab));
    WEFT_TRY(executable_->ReadFloats(hidden ? hidden_ : logits_, 0, out));
    return out;
}

// Runs the prompt, on all ranks. blocks: to compare with a record, or to make one.
Result<std::vector<OpDigest>> Rank::RunSelfTestPrompt(int64_t tokens, bool blocks) {
    StepData step;
    step.tokens = SelfTestPrompt(hyper_.vocab);
    step.tokens.resize(static_cast<size_t>(tokens));
    step.positions.resize(step.tokens.size());
    std::iota(step.positions.begin(), step.positions.end(), 0);
    step.output_rows = {static_cast<int32_t>(tokens) - 1};
    step.sequences.resize(1);
    step.sequences[0].row_count = static_cast<int32_t>(tokens);
    step.sequences[0].pages = {0};
    step.sequences[0].state_to = 0;
    const auto places = PlacesOf(program_);
    std::vector<OpDigest> digests;
    std::vector<float> data;
    executable_->SetProbe([&](int32_t op, int64_t rows) -> Status {
        const auto& place = places[static_cast<size_t>(op)];
        if (!place.has_value() || (!blocks && !place->whole)) return {};
        const program::ValueId out = program_.ops[static_cast<size_t>(op)].outputs[0];
        const program::Value& value = program_.value(out);
        if (value.dtype != DType::kF32 || value.shape.rank != 2) return {};
        data.resize(static_cast<size_t>(rows * value.shape[1]));
        WEFT_TRY(executable_->ReadFloats(out, 0, data));
        digests.push_back(Digest(*place, op, data, rows, blocks));
        return {};
    });
    const Status status = executable_->Run(head_.step, step.View(views_), StepGroups(step));
    executable_->SetProbe(nullptr);
    WEFT_TRY(status);
    return digests;
}

// A single rank leaves its record for later clusters.
Status Rank::LeaveRecord(const std::string& path, int64_t tokens) {
    std::error_code ignored;
    if (path.empty() || std::filesystem::exists(path, ignored)) return {};
    // Only if the folder exists or can be created.
    const auto folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder, ignored);
    if (!std::filesystem::is_directory(folder, ignored)) return {};
    WEFT_ASSIGN(const std::vector<OpDigest> digests, RunSelfTestPrompt(tokens, true));
    WEFT_ASSIGN(const std::vector<float> logits, ReadSelfTestResult(tokens));
    // A read-only folder is no reason to fail.
    const Status written = WriteRecord(path, {digests, logits});
    if (!written.ok())
        Log(LogLevel::kDebug, "no record of the self-test: {}", written.error().message);
    return {};
}

// Largest difference of an op of this rank to the record. After an unlike stage, rounding may
// choose other experts; for mixtures of experts only the logits are compared after it.
double Rank::OpTolerance(const DeviceRecord& record) const {
    const bool same = !IsUnlike(shard_.stage, record) && shard_.layout.tp == 1;
    if (same) return ToleranceOf(program_, wire_, false);
    return hyper_.moe.experts > 0 ? HUGE_VAL : kUnlikeOpTolerance;
}

Status Rank::RunSelfTest(const std::string& model) {
    if (!job_.self_test) return {};
    const int64_t tokens = std::min({kSelfTestTokens, job_.chunk, job_.ctx});
    const bool recorded = tokens == kSelfTestTokens;
    if (cluster_.size() == 1) {
        return recorded ? LeaveRecord(SelfTestPath(model, device_->info().identity), tokens)
                        : Status();
    }
    const int64_t begin_ns = NowNs();
    DeviceRecord record;
    if (cluster_.rank() == 0 && recorded) {
        if (auto found = FindRecord(model); found.ok()) record = *std::move(found);
    }
    const std::vector<float> expected = record.of_one.logits;
    // If stages round differently, logits are too coarse to show which rank differs, so each rank
    // compares its own ops.
    const bool unlike = std::ranges::any_of(
        identities_, [&](const std::string& one) { return one != identities_[0]; });
    if (unlike) WEFT_TRY(ShareRecord(record));
    const bool by_op = unlike && record.device_of >= 0;
    WEFT_ASSIGN(const std::vector<OpDigest> digests, RunSelfTestPrompt(tokens, by_op));
    WEFT_ASSIGN(const std::vector<float> logits, ReadSelfTestResult(tokens));
    double distance = 0;
    if (cluster_.rank() == 0 && record.device_of >= 0) distance = Distance(logits, expected);
    bool differs = !(distance <= ToleranceOf(program_, wire_, unlike));
    if (by_op) {
        differs = differs || FirstDifference(record.of_one.ops, digests, OpTolerance(record)) >= 0;
    }
    uint64_t sum = 0;
    for (const OpDigest& digest : digests) {
        if (!digest.whole) continue;
        sum = Checksum64(std::as_bytes(std::span(&digest.checksum, 1)), sum);
    }
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("self-test", fmt::format("{:016x} {}", sum, differs ? 1 : 0),
                                   Deadline::In(cluster_.timeout_ms())));
    const int tp = shard_.layout.tp;
    bool same = true;
    for (int rank = 0; rank < cluster_.size(); ++rank) {
        const std::string& first = all[static_cast<size_t>(rank / tp * tp)];
        same = same && all[static_cast<size_t>(rank)].substr(0, 16) == first.substr(0, 16);
    }
    if (!same) return ExplainReplicas(digests);
    if (std::ranges::any_of(all, [](const std::string& one) { return one.ends_with("1"); })) {
        if (!unlike) WEFT_TRY(ShareRecord(record));
        return ExplainRecord(tokens, record, distance);
    }
    Log(LogLevel::kDebug, "self-test: {:.1f} ms{}", static_cast<double>(NowNs() - begin_ns) * 1e-6,
        by_op ? fmt::format("; unlike devices round differently: {:.2g} from one rank's logits",
                            distance)
              : "");
    return {};
}

// Sends rank 0's record to all ranks, without its logits.
Status Rank::ShareRecord(DeviceRecord& record) {
    record.of_one.logits.clear();
    const std::string mine =
        cluster_.rank() == 0 ? fmt::format("{} {}", record.device_of, EncodeRecord(record.of_one))
                             : "";
    WEFT_ASSIGN(const auto texts,
                cluster_.AllGather("self-test record", mine, Deadline::In(cluster_.timeout_ms())));
    char* end = nullptr;
    record.device_of = static_cast<int>(std::strtol(texts[0].c_str(), &end, 10));
    if (record.device_of < 0 || std::cmp_greater_equal(record.device_of, identities_.size())) {
        record = {};
        return {};
    }
    const auto number = static_cast<size_t>(end - texts[0].c_str());  // (the record has zeros)
    const std::string whole = texts[0].substr(std::min(number + 1, texts[0].size()));
    WEFT_ASSIGN(record.of_one, DecodeRecord(whole));
    return {};
}

// Rank 0 has the error; the others get it as the cluster's verdict.
Status Rank::RefuseToServe(Error error) {
    if (cluster_.rank() == 0) return error;
    WEFT_TRY(cluster_.Barrier("self-test refused", Deadline::In(cluster_.timeout_ms())));
    return error;
}

// Some tensor ranks have different bits: finds the first such op.
Status Rank::ExplainReplicas(const std::vector<OpDigest>& digests) {
    std::string mine;
    for (const OpDigest& digest : digests) {
        if (digest.whole) mine += fmt::format("{:016x}\n", digest.checksum);
    }
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("self-test ops", mine, Deadline::In(cluster_.timeout_ms())));
    constexpr size_t kLine = 17;
    const auto tp = static_cast<size_t>(shard_.layout.tp);
    for (size_t stage = 0; stage < all.size() / tp; ++stage) {
        const auto group = std::span(all).subspan(stage * tp, tp);
        for (size_t at = 0; at + kLine <= group[0].size(); at += kLine) {
            std::map<std::string, std::vector<int>> holders;
            for (size_t t = 0; t < tp; ++t) {
                holders[group[t].substr(std::min(at, group[t].size()), kLine - 1)].push_back(
                    static_cast<int>(stage * tp + t));
            }
            if (holders.size() == 1) continue;
            std::vector<std::string> sides;
            for (const auto& [sum, ranks] : holders) {
                sides.push_back(fmt::format("{} has {}", RankNames(cluster_, ranks), sum));
            }
            return RefuseToServe(MakeError(ErrorCode::kCorrupt,
                                           "start-up self-test: the tensor ranks do not hold the "
                                           "same bits. The first op that differs is {}: {}. {}",
                                           OpText(stage, at / kLine), fmt::join(sides, ", "),
                                           kNext));
        }
    }
    return RefuseToServe(
        MakeError(ErrorCode::kCorrupt, "start-up self-test: ranks differ. {}", kNext));
}

// "op #12 (rms_norm l1.attn_norm)" for a replicated value of a stage; names only for this rank's
// own stage.
std::string Rank::OpText(size_t stage, size_t index) const {
    if (static_cast<int>(stage) != shard_.stage) {
        return fmt::format("whole value {} of stage {}", index, stage);
    }
    const auto places = PlacesOf(program_);
    for (size_t op = 0; op < places.size(); ++op) {
        if (!places[op].has_value() || !places[op]->whole) continue;
        if (index-- > 0) continue;
        return fmt::format("op #{} ({} {})", op, program::OpName(program_.ops[op].kind()),
                           places[op]->name);
    }
    return "unknown";
}

// The logits differ from the record: finds the first such op and its rank.
Status Rank::ExplainRecord(int64_t tokens, const DeviceRecord& of_device, double distance) {
    const SelfTestRecord& record = of_device.of_one;
    WEFT_ASSIGN(const std::vector<OpDigest> mine, RunSelfTestPrompt(tokens, true));
    const std::vector<double> distances = OpDistances(record.ops, mine);
    const int64_t first = FirstDifference(record.ops, mine, OpTolerance(of_device));
    const double by = first < 0 ? 0 : distances[static_cast<size_t>(first)];
    WEFT_ASSIGN(const auto all,
                cluster_.AllGather("self-test first", fmt::format("{} {:.2g}", first, by),
                                   Deadline::In(cluster_.timeout_ms())));
    int64_t least = -1;
    std::vector<int> ranks;
    std::string far;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        const int64_t theirs = std::atoll(all[rank].c_str());
        if (theirs < 0 || theirs >= static_cast<int64_t>(record.ops.size())) continue;
        if (least < 0 || theirs < least) ranks.clear();
        if (least < 0 || theirs <= least) {
            least = theirs;
            ranks.push_back(static_cast<int>(rank));
            far = all[rank].substr(all[rank].find(' ') + 1);
        }
    }
    std::string where = "no single op differs by more than its rounding";
    if (least >= 0) {
        const OpDigest& op = record.ops[static_cast<size_t>(least)];
        where = fmt::format(
            "the first op that differs by more than its rounding is #{} of one rank's ({}), on {} "
            "(distance {})",
            op.op, op.name, RankNames(cluster_, ranks), far);
    }
    const bool unlike = IsUnlike(cluster_.size() / shard_.layout.tp - 1, of_device);
    return RefuseToServe(
        MakeError(ErrorCode::kCorrupt,
                  "start-up self-test: for this file, one rank alone ({}) computes other logits "
                  "than this cluster: their distance is {:.2g}, {} up to {:.0g}; {}. {}",
                  identities_[static_cast<size_t>(of_device.device_of)], distance,
                  unlike ? "the rounding of unlike devices explains" : "rounding explains",
                  ToleranceOf(program_, wire_, unlike), where, kNext));
}

}  // namespace weft::engine
